/*
 * command_build.c -- implements `dnnc build`, `run` and `sample`: all compile a
 * model to a bundle; `run` and `sample` then start the launcher of the bundle.
 */
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/comm/comm.h"
#include "runtime/cuda/describe.h"
#include "runtime/launch/launch.h"
#include "runtime/launch/machine.h"
#include "tools/commands/tools.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

/* A kernel file takes seconds; a compiler that swaps takes minutes. */
#define COMPILE_LIMIT_S 600

/* ---- places ---- */

/* $XDG_CACHE_HOME/dnnc, ~/.cache/dnnc, or NULL; made with mode 0700.  A folder
 * that others may write is not used, because objects are linked from it. */
static const char *find_cache(Tool *tool) {
  const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  const char *path = base && base[0] == '/'
                         ? arena_printf(tool->arena, "%s/dnnc", base)
                     : home && home[0] == '/'
                         ? arena_printf(tool->arena, "%s/.cache/dnnc", home)
                         : NULL;
  struct stat info;
  if (!path || tool->options.no_cache) return NULL;
  mode_t mask = umask(077);
  Status status = file_make_dirs(path);
  umask(mask);
  if (status.code == STATUS_ok && lstat(path, &info) == 0 &&
      S_ISDIR(info.st_mode) && info.st_uid == getuid() && !(info.st_mode & 022))
    return path;
  message_print("dnnc: warning: no cache: '%s' must be a folder of yours "
                "that nobody else can write\n",
                path);
  return NULL;
}

static const char *cache_folder(Tool *tool) {
  if (!tool->knows_cache) tool->cache = find_cache(tool);
  tool->knows_cache = true;
  return tool->cache;
}

/* The first `cc` (or $CC) of $PATH, as an absolute path. */
static const char *find_compiler(Arena *arena) {
  const char *wanted = getenv("CC");
  const char *path = getenv("PATH");
  if (!wanted || !wanted[0]) wanted = "cc";
  if (wanted[0] == '/') return access(wanted, X_OK) == 0 ? wanted : NULL;
  while (path && *path) {
    size_t length = strcspn(path, ":");
    char *candidate = arena_printf(arena, "%.*s/%s", (int)length, path, wanted);
    if (candidate[0] == '/' && access(candidate, X_OK) == 0) return candidate;
    path += length + (path[length] == ':');
  }
  return NULL;
}

/* ---- building ---- */

static void show_progress(void *user, int done, int total) {
  Tool *tool = user;
  if (tool->options.quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\rcompiling %d/%d%s", done, total,
          done == total ? "\r\033[K" : "");
}

static bool is_stopped(void *user) {
  (void)user;
  return tool_is_stopped();
}

static int write_bundle(Tool *tool, const Compilation *c, const char *out_dir,
                        const Pacer *pacer, BuildReport *report) {
  const char *cc = find_compiler(tool->arena);
  if (!cc) {
    fprintf(stderr, "dnnc: error: no C compiler in $PATH; install one "
                    "(apt-get install gcc) or set CC\n");
    return EXIT_machine;
  }
  BuildOptions host = {
      .out_dir = out_dir,
      .cache_dir = cache_folder(tool),
      .cc = cc,
      .keep_source = tool->options.keep_source,
      .is_quick = tool->options.quick,
      .compile_limit_s = tool->options.compile_timeout >= 0
                             ? tool->options.compile_timeout
                             : COMPILE_LIMIT_S,
      .jobs = (int)sysconf(_SC_NPROCESSORS_ONLN),
      .program_header = embed_program_header(),
      .progress = show_progress,
      .is_stopped = is_stopped,
      .user = tool,
      .pacer = pacer,
  };
  host.runtime_archive = embed_runtime_archive(&host.runtime_bytes);
  Status status = driver_build(c, &host, report);
  if (status.code == STATUS_ok) return EXIT_done;
  return tool_is_stopped() ? EXIT_machine : tool_fail(status);
}

static void report_build(Tool *tool, const Compilation *c, const char *bundle,
                         const BuildReport *report) {
  Text out = text_create(tool->arena);
  char memory[MEMORY_TEXT];
  int ranks = c->ranks;
  if (tool->options.json) {
    text_add(&out, "{\"bundle\":");
    text_add_json(&out, bundle);
    text_printf(&out,
                ",\"ranks\":%d,\"classes\":1,\"kernels\":%d,"
                "\"arena_bytes\":%lld,\"seconds\":%.3f,\"cached\":%d}\n",
                ranks, report->kernels, (long long)report->arena_bytes,
                report->seconds, report->cached);
    tool_print(&out);
  } else if (!tool->options.quiet) {
    message_print(
        "%s: %d rank%s, %d kernels in %d files (%d from the cache), arena "
        "%s, %.2f s\n",
        bundle, ranks, ranks == 1 ? "" : "s", report->kernels, report->files,
        report->cached, text_memory(memory, (double)report->arena_bytes, 1),
        report->seconds);
  }
}

int command_build(Tool *tool) {
  Compilation c;
  BuildReport report = {0};
  const char *bundle = tool_bundle_path(tool);
  int code = tool_compile(tool, &c);
  if (code != EXIT_done) return code;
  tool_hold_signals();
  code = write_bundle(tool, &c, bundle, NULL, &report);
  tool_end_as_signalled();
  if (code == EXIT_done && tool->options.kernels) {
    Status status = tool_write_kernels(tool, &c, tool->options.kernels);
    if (status.code != STATUS_ok) return tool_fail(status);
  }
  if (code == EXIT_done) report_build(tool, &c, bundle, &report);
  return code;
}

/* ---- running ---- */

/* The options that the bundle's own `run` accepts. */
static void run_words(Tool *tool, Words *words) {
  const Options *options = &tool->options;
  options_hand_on(tool->arena, options, words);
  if (options->command == COMMAND_sample)
    vec_push(tool->arena, words, "--sample");
  if (options->command == COMMAND_eval) vec_push(tool->arena, words, "--eval");
  if (options->command != COMMAND_predict) return;
  vec_push(tool->arena, words, "--predict");
  vec_push(tool->arena, words, "--output");
  vec_push(tool->arena, words, options->output);
}

/* The run writes one complete file or line, or nothing. */
static bool is_reading(const Tool *tool) {
  CommandId command = tool->options.command;
  return command == COMMAND_predict || command == COMMAND_eval;
}

/* Where a run saves; NULL: it does not. */
static const char *saved_folder(const Tool *tool, const Compilation *c) {
  const Options *options = &tool->options;
  bool saves = options->command == COMMAND_run && !options->no_save &&
               !options->dry_run && !options->paced;
  return saves ? c->model->settings.save : NULL;
}

static int run_bundle(Tool *tool, const Compilation *c, const char *bundle) {
  Words words = {0};
  run_words(tool, &words);
  memory_trim(); /* ranks have more use for it */
  LaunchOptions launch = {.bundle = bundle,
                          .ranks = c->ranks,
                          .arguments = words.data,
                          .n_arguments = words.n,
                          .is_quiet = tool->options.quiet ||
                                      tool->options.json || tool->options.paced,
                          .save = saved_folder(tool, c),
                          .keeps_nothing =
                              is_reading(tool) || tool->options.paced,
                          .start_timeout_s = tool->options.start_timeout >= 0
                                                 ? tool->options.start_timeout
                                                 : START_TIMEOUT_S};
  tool->has_started_ranks = true;
  return launch_ranks(&launch);
}

/* A paced run has no values: it neither reads nor measures any. */
static bool check_paced(const Options *options) {
  const struct {
    bool is_given;
    const char *name;
  } others[] = {{options->resume, "--resume"},
                {options->load != NULL, "--load"},
                {options->profile != NULL, "--profile"},
                {options->transfers != NULL, "--transfers"}};
  if (!options_check_pairs(options)) return false;
  for (int i = 0; options->paced && i < ARRAY_LENGTH(others); i++) {
    if (!others[i].is_given) continue;
    message_print("dnnc: error: --paced and %s exclude each other: a paced run "
                  "computes nothing\n",
                  others[i].name);
    return false;
  }
  return true;
}

/* How many copies of dnnc somebody has started as ranks of one job.  A script
 * of Slurm has the variables of a rank too, but for those of a step. */
static int count_copies(void) {
  static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
                                      "SLURM_STEP_NUM_TASKS"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    const char *text = getenv(names[i]);
    int n = text ? atoi(text) : 1;
    if (n > 1) return n;
  }
  return 1;
}

/* Each copy would start ranks of its own.  One of them speaks. */
bool tool_check_not_in_job(Tool *tool) {
  const char *name = options_command_name(tool->options.command);
  const char *subject = tool->options.subject;
  bool has_ranks = tool->options.command != COMMAND_sample;
  int n = count_copies();
  if (n == 1) return true;
  tool->is_silent = comm_place().rank > 0;
  if (tool->is_silent) return false;
  message_print("dnnc: error: %d copies of 'dnnc %s' were started, as by "
                "mpirun or srun, and each would start ranks of its own\n",
                n, name);
  if (has_ranks)
    message_print("help: without mpirun, 'dnnc %s %s --ranks %d' starts %d "
                  "ranks on this machine\n",
                  name, subject, n, n);
  else
    message_print("help: start 'dnnc %s %s' without mpirun\n", name, subject);
  if (tool->options.command == COMMAND_run)
    message_print("help: for several machines, 'dnnc build' makes a bundle, "
                  "and mpirun starts its files rank-0000, rank-0001, ...\n");
  return false;
}

/* Bytes that ranks on this machine have, all together or, on GPUs, each; 0:
 * that is unknown. */
static int64_t memory_here(Tool *tool, bool has_gpus) {
  Machine machine = {0};
  struct sysinfo info;
  int n = 0;
  GpuDescription *gpus = NULL;
  int64_t most = 0;
  if (has_gpus) {
    if (cuda_describe(tool->arena, &n, &gpus).code != STATUS_ok) return 0;
    for (int i = 0; i < n; i++)
      if (gpus[i].memory_bytes > most) most = gpus[i].memory_bytes;
    return most;
  }
  if (sysinfo(&info) != 0) return 0;
  most = ((int64_t)info.totalram + (int64_t)info.totalswap) * info.mem_unit;
  if (machine_read(tool->arena, "", &machine).code == STATUS_ok &&
      machine.memory_bytes.value > 0 &&
      machine.memory_bytes.value < (int64_t)info.totalram * info.mem_unit)
    most = machine.memory_bytes.value; /* of a control group */
  return most;
}

/* Finds before kernels are compiled what the runtime would find later. */
static bool check_memory_here(Tool *tool, const Compilation *c) {
  bool has_gpus = strcmp(c->target.backend->device, "cuda") == 0;
  int64_t arena = driver_arena_bytes(c), here = memory_here(tool, has_gpus);
  int ranks = has_gpus ? 1 : c->ranks;
  if (here == 0 || arena <= here / ranks) return true;
  message_print("dnnc: error: '%s' needs %s of memory on a rank, and %s has "
                "%s for %d rank%s\n"
                "help: make the batch or the model smaller, or use more "
                "micro-batches; 'dnnc show' says what needs it\n",
                driver_largest(c)->name,
                text_quantity(tool->arena, (double)arena, "B"),
                has_gpus ? "a GPU" : "this machine",
                text_quantity(tool->arena, (double)here, "B"), ranks,
                ranks == 1 ? "" : "s");
  return false;
}

/* Periods are paced as steps are; servers are not. */
static bool has_versions(const Compilation *c) {
  return c->plan && plan_has_versions(c->module->arena, c->plan);
}

bool tool_has_checkpoint(const Tool *tool) {
  if (tool->options.load) return true;
  message_print(
      "dnnc: error: 'dnnc %s' needs --load PATH, a checkpoint folder or a "
      ".safetensors file\n",
      tool->options.command == COMMAND_eval ? "eval" : "predict");
  return false;
}

/* A net without parameters needs no checkpoint. */
static bool can_predict(const Tool *tool, const Compilation *c) {
  const Graph *graph = c->model->predict;
  if (tool->options.command != COMMAND_predict || !graph) return true;
  for (int i = 0; i < graph->inputs.n; i++) {
    Role role = graph->inputs.data[i].role;
    if (role == ROLE_param || role == ROLE_state)
      return tool_has_checkpoint(tool);
  }
  return true;
}

int tool_build_and_run(Tool *tool) {
  Compilation c;
  BuildReport report = {0};
  const char *folder = NULL;
  const char *bundle =
      tool->options.command == COMMAND_run ? tool_bundle_path(tool) : NULL;
  if (tool->options.partial && !tool->options.load) {
    fprintf(stderr, "dnnc: error: --partial needs --load PATH, the "
                    "checkpoint whose names may differ\n");
    return EXIT_user;
  }
  if (tool->options.data_changed && !tool->options.resume) {
    fprintf(stderr, "dnnc: error: --data-changed needs --resume, which "
                    "compares the data files with those of the checkpoint\n");
    return EXIT_user;
  }
  if (!check_paced(&tool->options) || !tool_check_not_in_job(tool))
    return EXIT_user;
  int code = tool_compile(tool, &c);
  if (code != EXIT_done) return code;
  if (!can_predict(tool, &c)) return EXIT_user;
  Pacer pacer;
  bool is_paced = tool->options.paced != NULL;
  if (is_paced && !has_versions(&c) &&
      driver_refuse_versions(&c, "a paced run")) {
    tool_report(tool);
    return EXIT_user;
  }
  if (is_paced && !tool_make_pacer(tool, &c, &pacer)) return EXIT_user;
  const char *save = saved_folder(tool, &c);
  Status status = save ? saver_check_free(save) : STATUS_OK;
  if (status.code != STATUS_ok) return tool_fail(status);
  if (!is_paced && !check_memory_here(tool, &c)) return EXIT_machine;
  tool_hold_signals();
  if (!bundle) {
    folder = tool_scratch_folder(tool, cache_folder(tool));
    if (!folder) return EXIT_machine;
    bundle = arena_printf(tool->arena, "%s/bundle", folder);
  }
  code = write_bundle(tool, &c, bundle, is_paced ? &pacer : NULL, &report);
  if (code == EXIT_done && !tool_is_stopped()) {
    if (!tool->options.json && tool->options.command == COMMAND_run)
      report_build(tool, &c, tool->options.subject, &report);
    code = run_bundle(tool, &c, bundle);
  }
  if (folder) codegen_remove_tree(tool->arena, folder);
  tool_end_as_signalled();
  return code;
}

int command_run(Tool *tool) {
  return tool_build_and_run(tool);
}

int command_sample(Tool *tool) {
  if (!tool->options.load) {
    fprintf(stderr, "dnnc: error: 'dnnc sample' needs --load DIR, a "
                    "checkpoint folder such as chargpt.ckpt\n");
    return EXIT_user;
  }
  return tool_build_and_run(tool);
}
