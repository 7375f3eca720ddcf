/*
 * build.c -- makes a bundle on disk from final graphs: selects launches,
 * compiles kernels and tables, links one executable for all ranks.
 *
 * All files are made in a folder beside the bundle, which replaces the bundle
 * by one rename at the end: a build that fails leaves the old bundle as it was.
 * Ranks are one file with several names.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "codegen/host/toolchain.h"
#include "codegen/host/cache.h"
#include "codegen/select.h"

#define MANIFEST       "bundle.json"
#define MANIFEST_BEGIN "{\"dnnc_bundle\":1,"
#define MANIFEST_LIMIT (1 << 20)

typedef struct Build {
  Module *module;
  Arena *arena;
  BuildOptions own;
  const BuildOptions *options; /* these */
  BundleInput input;
  KernelSet *plain; /* the plain programs'; NULL: there are none */
  DeviceCode plain_device;
  const char *base;   /* temporary folder beside the bundle */
  int lock;           /* on it; -1: none */
  const char *work;   /* BASE/work: sources and objects */
  const char *bundle; /* BASE/bundle: what will be the bundle */
  const char *source; /* BASE/bundle/source, or NULL */
  int64_t arena_bytes;
  BuildReport *report;
} Build;

static double clock_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- folders ---- */

static bool is_bundle(Arena *arena, const char *path) {
  const char *bytes;
  size_t n;
  const char *manifest = arena_printf(arena, "%s/" MANIFEST, path);
  return file_exists(manifest) &&
         file_read(arena, manifest, MANIFEST_LIMIT, &bytes, &n).code ==
             STATUS_ok &&
         !strncmp(bytes, MANIFEST_BEGIN, strlen(MANIFEST_BEGIN));
}

Status codegen_check_bundle(Arena *scratch, const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0) return file_check_output(path);
  if (S_ISDIR(info.st_mode) && is_bundle(scratch, path)) return STATUS_OK;
  return status_make(STATUS_invalid,
                     "'%s' exists and is not a bundle; remove it or give "
                     "another path with -o",
                     path);
}

static Status make_folder(const char *path) {
  if (mkdir(path, 0777) == 0) return STATUS_OK;
  return status_errno(errno, "cannot make the folder '%s'", path);
}

/* A folder of a build holds nothing but these. */
static bool is_build_folder(const char *path) {
  static const char *const names[] = {".", "..", "work", "bundle", "old"};
  DIR *list = opendir(path);
  bool is_known = list != NULL;
  for (struct dirent *entry; is_known && (entry = readdir(list));) {
    is_known = false;
    for (int i = 0; i < ARRAY_LENGTH(names); i++)
      if (!strcmp(entry->d_name, names[i])) is_known = true;
  }
  if (list) closedir(list);
  return is_known;
}

/* A build that was killed between its two renames has left the bundle in
 * `old`. */
static void remove_abandoned(void *user, const char *path, const char *name) {
  Arena *arena = user;
  if (!strncmp(name, ".unfinished-", 12) || !is_build_folder(path)) return;
  const char *old = arena_printf(arena, "%s/old", path);
  int length = (int)(strlen(path) - strlen(".unfinished-XXXXXX"));
  const char *bundle = arena_printf(arena, "%.*s", length, path);
  struct stat info;
  if (is_bundle(arena, old) && lstat(bundle, &info) != 0 && errno == ENOENT)
    rename(old, bundle);
  toolchain_remove(arena, path);
}

static void remove_all_abandoned(Build *build) {
  char *path = arena_strdup(build->arena, build->options->out_dir);
  char *slash = strrchr(path, '/');
  if (slash) *slash = '\0';
  const char *folder = !slash ? "." : slash == path ? "/" : path;
  folder_each_abandoned(build->arena, folder, remove_abandoned, build->arena);
}

static Status make_folders(Build *build) {
  Arena *arena = build->arena;
  remove_all_abandoned(build);
  const char *base;
  TRY(folder_create_unfinished(arena, build->options->out_dir, &base,
                               &build->lock));
  build->base = base;
  build->work = arena_printf(arena, "%s/work", base);
  build->bundle = arena_printf(arena, "%s/bundle", base);
  TRY(make_folder(build->work));
  TRY(make_folder(build->bundle));
  if (build->options->keep_source) {
    build->source = arena_printf(arena, "%s/source", build->bundle);
    TRY(make_folder(build->source));
  }
  return STATUS_OK;
}

/* The old bundle is removed only after the new one is in place. */
static Status move_into_place(const Build *build) {
  const char *path = build->options->out_dir;
  const char *old = arena_printf(build->arena, "%s/old", build->base);
  bool has_old = file_exists(path);
  if (has_old && rename(path, old) != 0)
    return status_errno(errno, "cannot replace '%s'", path);
  if (rename(build->bundle, path) == 0) return STATUS_OK;
  int error = errno;
  if (has_old && rename(old, path) != 0) error = errno;
  return status_errno(error, "cannot move the bundle to '%s'", path);
}

void codegen_remove_bundle(Arena *scratch, const char *path) {
  if (is_bundle(scratch, path)) toolchain_remove(scratch, path);
}

void codegen_remove_tree(Arena *scratch, const char *path) {
  toolchain_remove(scratch, path);
}

/* ---- the program ---- */

static Status select_program(Build *build, KernelSet *set,
                             ProgramInput *input) {
  const BuildOptions *options = build->options;
  const RankProgram *program = input->program;
  input->launches =
      ARENA_ARRAY(build->arena, LaunchList, program->n_entry_points);
  for (int i = 0; i < program->n_entry_points; i++) {
    if (options->is_stopped && options->is_stopped(options->user))
      return status_make(STATUS_unavailable, "stopped");
    const EntryPoint *entry_point = &program->entry_points[i];
    bool is_paced = entry_point->id == ENTRY_train;
    TRY(select_entry_point(set, entry_point, NULL,
                           is_paced ? options->pacer : NULL,
                           &input->launches[i]));
  }
  return STATUS_OK;
}

/* False: it has no plain program, or one that cannot be selected. */
static bool select_plain_of(Build *build, ProgramInput *input) {
  if (input->program->plain.stages.n == 0) return false;
  PlainInput *plain = ARENA_NEW(build->arena, PlainInput);
  plain->entry_point = input->program->plain;
  plain->values = value_table_create(build->arena);
  input->plain = plain;
  return select_entry_point(build->plain, &plain->entry_point, plain->values,
                            NULL, &plain->launches)
             .code == STATUS_ok;
}

/* Ranks run the plain program together: either all have one or none. */
static void select_plain(Build *build, const Backend *backend) {
  ProgramInput *programs = build->input.programs;
  int n = build->input.ranks->n;
  bool is_complete = !build->options->pacer;
  build->plain = kernel_set_create(build->module, backend);
  for (int i = 0; i < n && is_complete; i++)
    is_complete = select_plain_of(build, &programs[i]);
  for (int i = 0; i < n && !is_complete; i++) programs[i].plain = NULL;
  if (!is_complete) build->plain = NULL;
  for (int i = 0; is_complete && i < build->plain->kernels.n; i++)
    build->plain->kernels.data[i].is_plain = true;
}

/* The programs' kernels, then those that only plain programs have. */
static KernelText *all_kernels(const Build *build, const KernelSet *set,
                               int *out_n) {
  const KernelSet *more = build->plain;
  int n = set->kernels.n;
  KernelText *all =
      ARENA_ARRAY(build->arena, KernelText, n + (more ? more->kernels.n : 0));
  Map *names = map_create(build->arena);
  for (int i = 0; i < n; i++) {
    all[i] = set->kernels.data[i];
    map_put(names, all[i].name, all);
  }
  bool adds = more && set->backend->has_host_kernels;
  for (int i = 0; adds && i < more->kernels.n; i++)
    if (!map_has(names, more->kernels.data[i].name))
      all[n++] = more->kernels.data[i];
  *out_n = n;
  return all;
}

/* Where kernels are no host functions, plain programs have modules of their
 * own. */
static Status compile_plain(Build *build) {
  const Backend *backend = build->options->backend;
  const KernelSet *plain = build->plain;
  if (!plain || backend->has_host_kernels) return STATUS_OK;
  BuildOptions options = *build->options;
  options.part = "plain_";
  options.progress = NULL;
  return backend->compile(backend, build->module, &options, build->work,
                          build->source, plain->kernels.data, plain->kernels.n,
                          &build->plain_device);
}

/* Writes a file into the work folder, and into the folder for --keep-source. */
static Status write_part(const Build *build, const char *name,
                         const char *bytes, size_t n) {
  const char *const folders[] = {build->work, build->source};
  for (int i = 0; i < 2 && folders[i]; i++)
    TRY(toolchain_write(arena_printf(build->arena, "%s/%s", folders[i], name),
                        bytes, n));
  return STATUS_OK;
}

/* program.c includes program.h and the tables, so their content is part of the
 * object's key. */
static Status compile_program(Build *build, DeviceCode *device,
                              const char **out_object) {
  Arena *arena = build->arena;
  const char *header = build->options->program_header;
  ProgramTables tables = bundle_tables(arena, &build->input);
  char hash[33];
  hash_hex(tables.bytes, tables.n, hash);
  CompileJob job = {.stem = "program",
                    .text = tables.text,
                    .flags = "-std=gnu11 -O0",
                    .key = arena_printf(arena, "%s%s", header, hash)};
  build->arena_bytes = tables.arena_bytes;
  TRY(write_part(build, "program.h", header, strlen(header)));
  TRY(write_part(build, PROGRAM_TABLES, tables.bytes, tables.n));
  TRY(write_part(build, "program.c", tables.text, strlen(tables.text)));
  /* Images are read from files, which the key does not hold. */
  BuildOptions options = *build->options;
  if (device->modules_text) options.cache_dir = NULL;
  options.progress = NULL;
  TRY(toolchain_finish(toolchain_start(build->module, &options, build->work,
                                       &job, 1, &device->cached)));
  *out_object = job.object;
  return STATUS_OK;
}

static const char *rank_path(const Build *build, int rank) {
  return arena_printf(build->arena, "%s/rank-%04d", build->bundle, rank);
}

static Status link_ranks(Build *build, DeviceCode *device,
                         const char *program) {
  vec_push(build->arena, &device->objects, program);
  const char *first = rank_path(build, 0);
  TRY(toolchain_link(build->module, build->options, build->work,
                     device->objects.data, device->objects.n, first));
  /* Under the name `run` the same program launches all ranks. */
  const char *run = arena_printf(build->arena, "%s/run", build->bundle);
  for (int rank = 1; rank <= build->options->ranks; rank++) {
    const char *name =
        rank < build->options->ranks ? rank_path(build, rank) : run;
    if (link(first, name) != 0)
      return status_errno(errno, "cannot link '%s'", name);
  }
  return STATUS_OK;
}

static void add_member(Text *text, const char *key, const char *value) {
  text_printf(text, ",\n \"%s\": ", key);
  text_add_json(text, value ? value : "");
}

/* The stages of a program, which are the same in all of its entry points. */
static void add_stages(Text *text, const RankProgram *program) {
  const EntryPoint *entry = &program->entry_points[0];
  for (int s = 0; s < entry->stages.n; s++)
    text_printf(text, "%s%d", s ? ", " : "", entry->stages.data[s].number);
}

static int64_t largest_arena(const RankProgram *program) {
  int64_t most = 0;
  for (int i = 0; i < program->n_entry_points; i++) {
    int64_t bytes = entry_point_arena_bytes(&program->entry_points[i]);
    if (bytes > most) most = bytes;
  }
  return most;
}

/* Ranks that run one program each, where there are several. */
static void add_classes(Text *text, const Build *build) {
  const RankPrograms *of = build->input.ranks;
  text_add(text, ",\n \"classes\": [");
  for (int i = 0; i < of->n_rows; i++) {
    int first = of->rows[i].first;
    int end = i + 1 < of->n_rows ? of->rows[i + 1].first : build->own.ranks;
    const RankProgram *program = of->programs[of->rows[i].program];
    text_printf(text,
                "%s\n  {\"first_rank\": %d, \"n_ranks\": %d, \"stages\": [",
                i ? "," : "", first, end - first);
    add_stages(text, program);
    text_printf(text, "], \"persistent_bytes\": %lld, \"arena_bytes\": %lld}",
                (long long)program->persistent.bytes,
                (long long)largest_arena(program));
  }
  text_add(text, "]");
}

static Status write_manifest(Build *build) {
  const char *bytes;
  size_t n;
  TRY(file_read(build->arena, rank_path(build, 0), (size_t)1 << 32, &bytes,
                &n));
  char hex[33];
  hash_hex(bytes, n, hex);
  const BuildOptions *options = build->options;
  const char *plan = options->plan_text ? options->plan_text : "";
  Text text = text_create(build->arena);
  text_printf(&text, MANIFEST_BEGIN "\n \"ranks\": %d, \"arena_bytes\": %lld",
              options->ranks, (long long)build->arena_bytes);
  add_member(&text, "model", build->input.model->name);
  add_member(&text, "target", options->backend->name);
  add_member(&text, "model_hash", options->model_hash);
  add_member(&text, "plan_hash", options->plan_hash);
  add_member(&text, "program_hash", hex);
  if (options->pacer) text_add(&text, ",\n \"paced\": true");
  if (build->input.ranks->n > 1) add_classes(&text, build);
  text_add(&text, "}\n");
  TRY(file_replace(arena_printf(build->arena, "%s/plan.plan", build->bundle),
                   plan, strlen(plan)));
  if (options->schedule_text)
    TRY(file_replace(
        arena_printf(build->arena, "%s/" BUNDLE_SCHEDULE, build->bundle),
        options->schedule_text, strlen(options->schedule_text)));
  return file_replace(arena_printf(build->arena, "%s/" MANIFEST, build->bundle),
                      text_string(&text), text.n);
}

/* The compilers of kernels run while the tables are made; it waits for all. */
static Status compile_sources(Build *build, const KernelSet *set,
                              DeviceCode *device, const char **out_program) {
  const Backend *backend = build->options->backend;
  int n;
  const KernelText *kernels = all_kernels(build, set, &n);
  TRY(backend->compile(backend, build->module, build->options, build->work,
                       build->source, kernels, n, device));
  TRY(compile_plain(build));
  Status program = compile_program(build, device, out_program);
  if (device->compiling) TRY(toolchain_finish(device->compiling));
  return program;
}

static Status build_all(Build *build) {
  const Backend *backend = build->options->backend;
  BundleInput *input = &build->input;
  KernelSet *set = kernel_set_create(build->module, backend);
  DeviceCode device = {0};
  const char *object;
  TRY(codegen_check_bundle(build->arena, build->options->out_dir));
  for (int i = 0; i < input->ranks->n; i++)
    TRY(select_program(build, set, &input->programs[i]));
  select_plain(build, backend);
  TRY(make_folders(build));
  TRY(toolchain_machine(build->arena, build->options, build->work,
                        &build->own.machine));
  input->kernels = set;
  input->plain_kernels = build->plain;
  input->device = &device;
  input->plain_device = &build->plain_device;
  TRY(compile_sources(build, set, &device, &object));
  TRY(link_ranks(build, &device, object));
  TRY(write_manifest(build));
  TRY(move_into_place(build));
  build->report->kernels = set->kernels.n;
  build->report->cached = device.cached;
  build->report->files = device.files + 1;
  build->report->arena_bytes = build->arena_bytes;
  return STATUS_OK;
}

/* The folder of the model file, as an absolute path. */
static const char *model_folder(Arena *arena, const Model *model,
                                const BuildOptions *options) {
  if (options->model_dir) return options->model_dir;
  char *path = arena_strdup(arena, model->path ? model->path : "");
  char *slash = strrchr(path, '/');
  if (slash) *slash = 0;
  char *absolute = realpath(slash ? (slash == path ? "/" : path) : ".", NULL);
  const char *kept = arena_strdup(arena, absolute ? absolute : ".");
  free(absolute);
  return kept;
}

Status codegen_build(Module *module, const Model *model,
                     const RankPrograms *programs, const BuildOptions *options,
                     BuildReport *out) {
  double begin = clock_seconds();
  Build build = {.module = module,
                 .arena = module->arena,
                 .own = *options,
                 .options = &build.own,
                 .report = out,
                 .lock = -1};
  if (options->cache_dir && !cache_is_private(options->cache_dir))
    build.own.cache_dir = NULL;
  build.input = (BundleInput){
      .model = model,
      .ranks = programs,
      .programs = ARENA_ARRAY(module->arena, ProgramInput, programs->n),
      .options = &build.own,
      .model_dir = model_folder(module->arena, model, options)};
  for (int i = 0; i < programs->n; i++)
    build.input.programs[i].program = programs->programs[i];
  Status status = build_all(&build);
  if (build.base) toolchain_remove(module->arena, build.base);
  if (build.lock >= 0) close(build.lock);
  out->seconds = clock_seconds() - begin;
  return status;
}
