/*
 * report.c -- prints the progress of a run: a line per step for people, or JSON
 * lines for programs, and at the end digests of the parameters and memory use.
 *
 * Results go to standard output, notes to standard error.  Only rank 0 prints.
 */
#include "runtime/rank/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { POISON = 0xff };        /* as a float: not a number */
enum { LINE_NS = 1000000000 }; /* between two lines on a terminal */

static bool prints_progress(const Run *run) {
  return run->comm->rank == 0 && !run->options.json && !run->options.quiet;
}

/* 17.2k */
static void short_number(double value, char out[32]) {
  static const char units[] = " kMGT";
  int i = 0;
  while (value >= 999.5 && i < 4) {
    value /= 1000;
    i++;
  }
  const char *format = value < 9.995 && i > 0 ? "%.2f" : "%.1f";
  FixedText text = fixed_text(out, 32);
  fixed_printf(&text, value >= 99.95 ? "%.0f" : format, value);
  if (i > 0) fixed_printf(&text, "%c", units[i]);
}

void report_flush(const Run *run) {
  if (fflush(stdout) == 0 || errno != EPIPE || run->comm->world == 1) return;
  recorder_tell(&run->recorder, "left");
  _exit(EXIT_machine);
}

void report_start(const Run *run) {
  const DnnProgram *program = run->program;
  const RunOptions *options = &run->options;
  if (!prints_progress(run) || options->sample || options->predict ||
      options->eval)
    return;
  char memory[MEMORY_TEXT], on_host[MEMORY_TEXT];
  bool has_host = program->host_bytes > 0;
  message_print("%s: %lld parameters, %d rank%s, %lld step%s, arena %s%s%s\n",
                program->model, (long long)program->parameters, program->world,
                program->world == 1 ? "" : "s", (long long)run->last,
                run->last == 1 ? "" : "s",
                text_memory(memory, (double)program->arena_bytes, 1),
                has_host ? ", host memory " : "",
                has_host ? text_memory(on_host, (double)program->host_bytes, 1)
                         : "");
  if (program->is_paced)
    message_print("note: this run is paced: launches sleep as long as a "
                  "profile says, and no values are computed\n");
  if (run->profiler)
    message_print("note: every launch and collective is measured alone, so "
                  "these steps take longer than others\n");
}

static double items_per_second(const Run *run, int64_t ns) {
  return (double)(run->train->batch * run->program->settings.items_per_sample) /
         ((double)ns * 1e-9);
}

/* 42s, 3m05s, 2h10m or 4d03h */
static void print_left(double seconds) {
  static const struct {
    int64_t seconds;
    const char *unit, *rest;
  } units[] = {{86400, "d", "h"}, {3600, "h", "m"}, {60, "m", "s"}};
  int64_t left = (int64_t)(seconds + 0.5);
  for (int i = 0; i < ARRAY_LENGTH(units); i++) {
    int64_t next = i + 1 < ARRAY_LENGTH(units) ? units[i + 1].seconds : 1;
    if (left < units[i].seconds) continue;
    printf(" | %lld%s%02lld%s left", (long long)(left / units[i].seconds),
           units[i].unit, (long long)(left % units[i].seconds / next),
           units[i].rest);
    return;
  }
  printf(" | %llds left", (long long)left);
}

/* `ns`: of this step, or the mean of those since the last line; `has_left`: the
 * line says when the run ends. */
static void print_step(const Run *run, int64_t step, int64_t ns,
                       bool has_left) {
  char rate[32];
  const char *items = run->program->settings.items;
  short_number(items_per_second(run, ns), rate);
  printf("step %lld/%lld | ", (long long)step, (long long)run->total);
  if (run->program->is_paced) {
    printf("paced: no values are computed | %.1f ms | %s %s/s\n",
           (double)ns * 1e-6, rate, items ? items : "samples");
    return;
  }
  printf("loss %.4f", (double)run->loss);
  if (run->has_norm) printf(" | norm %.2f", (double)run->norm);
  if (run->scale > 0 && run_step_failed(run))
    printf(" | skipped, loss scale %g", (double)run->scale);
  char memory[MEMORY_TEXT];
  printf(" | lr %.1e | %.1f ms | %s %s/s | %s", (double)run->rate,
         (double)ns * 1e-6, rate, items ? items : "samples",
         text_memory(memory, (double)run->program->arena_bytes, 0));
  if (has_left) print_left((double)(run->last - step) * (double)ns * 1e-9);
  printf("\n");
}

static void print_json_step(const Run *run, int64_t step, int64_t ns) {
  printf("{\"step\":%lld,", (long long)step);
  if (run->program->is_paced) {
    printf("\"paced\":true,\"loss\":null,\"ms\":%.3f,\"items_per_s\":%.1f}\n",
           (double)ns * 1e-6, items_per_second(run, ns));
    return;
  }
  printf("\"loss\":");
  report_json_number((double)run->loss);
  printf(",\"norm\":");
  report_json_number(run->has_norm ? (double)run->norm : NAN);
  printf(",\"lr\":");
  report_json_number((double)run->rate);
  if (run->scale > 0)
    printf(",\"loss_scale\":%.9g,\"skipped\":%s", (double)run->scale,
           run_step_failed(run) ? "true" : "false");
  printf(",\"ms\":%.3f,\"items_per_s\":%.1f}\n", (double)ns * 1e-6,
         items_per_second(run, ns));
}

/* mpirun stands between the ranks and the terminal; the launcher says it. */
static bool is_on_terminal(void) {
  const char *says = getenv("DNN_TERMINAL");
  return says ? strcmp(says, "1") == 0 : isatty(STDOUT_FILENO) == 1;
}

static void report_json_step(const Run *run, int64_t step, int64_t ns) {
  int64_t every = run->options.log_every ? run->options.log_every : 1;
  if (step % every != 0 && step != run->last && !run_step_failed(run)) return;
  print_json_step(run, step, ns);
  report_flush(run);
}

void report_step(Run *run, int64_t step, int64_t ns) {
  int64_t every = run->options.log_every, now = clock_ns();
  bool by_time = every == 0 && is_on_terminal();
  if (run->comm->rank != 0) return;
  log_step(run, step, ns);
  if (run->options.quiet) return;
  if (run->options.json) {
    report_json_step(run, step, ns);
    return;
  }
  bool is_due = by_time ? now - run->printed_ns >= LINE_NS
                        : step % (every ? every : 1) == 0;
  if (!is_due && step != run->last && !run_step_failed(run)) return;
  if (by_time && run->printed_ns > 0 && step > run->printed_step)
    ns = (now - run->printed_ns) / (step - run->printed_step);
  print_step(run, step, ns, by_time);
  run->printed_ns = now;
  run->printed_step = step;
  report_flush(run);
}

static void print_metrics(const Run *run) {
  const DnnSettings *settings = &run->program->settings;
  printf("\"metrics\":{");
  for (int i = 0; i < settings->n_metrics; i++) {
    printf("%s\"%s\":", i ? "," : "", settings->metrics[i].name);
    report_json_figure(&run->metrics[i]);
  }
  printf("}");
}

void report_evaluation(const Run *run, int64_t n_samples) {
  const DnnSettings *settings = &run->program->settings;
  if (run->comm->rank == 0 && !run->options.eval) log_evaluation(run);
  bool is_quiet = run->options.quiet && !run->options.eval;
  if (run->comm->rank != 0 || is_quiet) return;
  if (run->options.json) {
    printf("{\"step\":%lld,\"validation_loss\":", (long long)run->done);
    report_json_figure(run->validation);
    printf(",");
    print_metrics(run);
    printf("}\n");
  } else {
    printf("step %lld/%lld | validation", (long long)run->done,
           (long long)run->total);
    report_figure(run->validation);
    for (int i = 0; i < settings->n_metrics; i++)
      if (!metric_is_table(&settings->metrics[i])) {
        printf(" |");
        report_figure(&run->metrics[i]);
      }
    printf(" | %lld samples\n", (long long)n_samples);
    for (int i = 0; i < settings->n_metrics; i++)
      report_table(&run->metrics[i]);
  }
  report_flush(run);
}

/* ---- memory ---- */

typedef enum Cause {
  CAUSE_arena,
  CAUSE_libraries,
  CAUSE_heap,
  CAUSE_threads,
  CAUSE_transport,
  CAUSE_kernel_data,
  CAUSE_other,
  N_CAUSES
} Cause;

static const char *const cause_names[] = {"arena",
                                          "program_and_libraries",
                                          "heap",
                                          "thread_heaps_and_stacks",
                                          "shared_memory_of_transport",
                                          "system",
                                          "other"};
_Static_assert(sizeof cause_names / sizeof *cause_names == N_CAUSES,
               "a name for each cause");

/* One line of /proc/self/smaps that begins a mapping. */
static Cause cause_of(const Run *run, uintptr_t begin, uintptr_t end,
                      const char *name) {
  uintptr_t arena = (uintptr_t)run->device->host_arena;
  if (arena && begin < arena + (uintptr_t)run->program->arena_bytes &&
      arena < end)
    return CAUSE_arena;
  if (strcmp(name, "[heap]") == 0) return CAUSE_heap;
  if (strncmp(name, "[stack", 6) == 0 || !*name) return CAUSE_threads;
  if (name[0] == '[') return CAUSE_kernel_data;
  if (strncmp(name, "/dev/shm", 8) == 0 || strstr(name, "ompi") ||
      strstr(name, "vader"))
    return CAUSE_transport;
  return name[0] == '/' ? CAUSE_libraries : CAUSE_other;
}

static void read_causes(const Run *run, int64_t bytes[N_CAUSES]) {
  memset(bytes, 0, sizeof(int64_t) * N_CAUSES);
  FILE *file = fopen("/proc/self/smaps", "r");
  if (!file) return;
  char line[4400];
  Cause cause = CAUSE_other;
  while (fgets(line, sizeof line, file)) {
    unsigned long begin, end;
    long kilobytes;
    int at = 0;
    if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &begin, &end, &at) >= 2 &&
        at > 0) {
      line[strcspn(line, "\n")] = '\0';
      cause = cause_of(run, begin, end, line + at);
    } else if (sscanf(line, "Rss: %ld", &kilobytes) == 1) {
      bytes[cause] += kilobytes * 1024;
    }
  }
  fclose(file);
}

int64_t report_peak_resident(void) {
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
  return (int64_t)usage.ru_maxrss * 1024;
}

/* ---- poison ---- */

Status poison_arena(Run *run) {
  int64_t n = run->program->arena_bytes;
  if (!getenv("DNN_POISON") || !run->device->host_arena) return STATUS_OK;
  memset(run->device->host_arena, POISON, (size_t)n);
  if (run->device->swap_arena)
    memset(run->device->swap_arena, POISON, (size_t)run->program->host_bytes);
  run->device->is_zeroed = false;
  return STATUS_OK;
}

/* Bytes up to the last one that is no longer poison. */
static int64_t poison_end(const unsigned char *data, int64_t n) {
  while (data && n > 0 && data[n - 1] == POISON) n--;
  return data ? n : 0;
}

void poison_look(Run *run) {
  const Device *device = run->device;
  if (!getenv("DNN_POISON") || !device->host_arena) return;
  run->poison_top = poison_end(device->host_arena, run->program->arena_bytes);
  run->host_poison_top =
      poison_end(device->swap_arena, run->program->host_bytes);
}

/* ---- the end ---- */

typedef struct Last {
  int64_t peak_bytes, poison_top, host_poison_top;
  char sha[65];
} Last;

static void print_memory(const Run *run) {
  int64_t bytes[N_CAUSES];
  read_causes(run, bytes);
  printf(",\"resident\":{");
  for (int i = 0; i < N_CAUSES; i++)
    printf("%s\"%s\":%lld", i ? "," : "", cause_names[i], (long long)bytes[i]);
  printf("},\"transport_buffer_bytes\":%lld,\"data_bytes\":%lld",
         (long long)run->comm->buffer_bytes,
         (long long)data_resident_bytes(run->data));
}

static void print_validation(const Run *run) {
  const DnnSettings *settings = &run->program->settings;
  double accuracy = NAN;
  for (int i = 0; i < settings->n_metrics; i++)
    if (strstr(settings->metrics[i].name, "accuracy") && run->has_validation)
      accuracy = run->metrics[i].value;
  printf(",\"validation_loss\":");
  report_json_number(run->has_validation ? run->validation->value : NAN);
  printf(",");
  print_metrics(run);
  printf(",\"accuracy\":");
  report_json_number(accuracy);
}

static void print_digests(const Last *all, int world) {
  printf(",\"parameters_sha256\":[");
  for (int i = 0; i < world; i++) printf("%s\"%s\"", i ? "," : "", all[i].sha);
  printf("]");
}

/* Ranks of the own program may run a part of it. */
static int64_t arena_bytes_of(const Run *run, int rank) {
  const DnnProgram *program = bundle_program(run->bundle, rank);
  bool is_own = program == bundle_program(run->bundle, run->comm->rank);
  return is_own ? run->program->arena_bytes : program->arena_bytes;
}

/* The arenas in host memory, where a rank has one. */
static void print_host_memory(const Run *run, const Last *all) {
  int world = run->comm->world;
  bool has_any = false;
  for (int i = 0; i < world; i++)
    has_any |= bundle_program(run->bundle, i)->host_bytes > 0;
  if (!has_any) return;
  printf(",\"host_arena_bytes\":[");
  for (int i = 0; i < world; i++)
    printf("%s%lld", i ? "," : "",
           (long long)bundle_program(run->bundle, i)->host_bytes);
  printf("]");
  if (!run->poison_top) return;
  printf(",\"host_arena_touched_bytes\":[");
  for (int i = 0; i < world; i++)
    printf("%s%lld", i ? "," : "", (long long)all[i].host_poison_top);
  printf("]");
}

static void print_json_end(const Run *run, const Last *all) {
  int world = run->comm->world;
  printf("{\"final\":true,\"steps\":%lld", (long long)run->done);
  if (run->program->is_paced) printf(",\"paced\":true");
  /* A run that made no step has none. */
  if (run->n_times > 0) {
    printf(",\"loss\":");
    report_json_number((double)run->loss);
  }
  print_validation(run);
  if (!run->program->is_paced) print_digests(all, world);
  printf(",\"arena_bytes\":[");
  for (int i = 0; i < world; i++)
    printf("%s%lld", i ? "," : "", (long long)arena_bytes_of(run, i));
  printf("],\"peak_resident_bytes\":[");
  for (int i = 0; i < world; i++)
    printf("%s%lld", i ? "," : "", (long long)all[i].peak_bytes);
  printf("]");
  if (run->poison_top) {
    printf(",\"arena_touched_bytes\":[");
    for (int i = 0; i < world; i++)
      printf("%s%lld", i ? "," : "", (long long)all[i].poison_top);
    printf("]");
  }
  print_host_memory(run, all);
  print_memory(run);
  printf("}\n");
}

static Status gather_last(Run *run, Last *own, Last *all) {
  own->peak_bytes = report_peak_resident();
  poison_look(run);
  own->poison_top = run->poison_top;
  own->host_poison_top = run->host_poison_top;
  if (run->options.json && !run->program->is_paced)
    TRY(params_sha256(run->arena, run->program, run->comm, run->device,
                      own->sha));
  if (run->trace)
    TRY(trace_write(run->trace, run->options.trace, run->comm, run->program));
  return run->comm->gather(run->comm, own, sizeof *own, all);
}

int report_end(Run *run) {
  int world = run->comm->world;
  Last own = {0};
  Last *all = ARENA_ARRAY(run->arena, Last, world);
  int code = run_agree(run, gather_last(run, &own, all));
  if (code) return code;
  if (run->comm->rank != 0) return EXIT_done;
  if (prints_progress(run) && run->saved == run->done)
    message_print("saved %s/step-%08lld\n", run->program->settings.save,
                  (long long)run->done);
  if (run->options.json) {
    print_json_end(run, all);
  } else if (run->poison_top) {
    fprintf(stderr, "arena: %lld bytes, touched up to %lld\n",
            (long long)run->program->arena_bytes, (long long)run->poison_top);
  }
  report_flush(run);
  return EXIT_done;
}
