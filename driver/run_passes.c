/*
 * run_passes.c -- runs the pass list over one graph, with what the options ask
 * to see: the time of each pass, the graph after one of them, or the graph
 * after every one in a file of its own.
 */
#include "driver/internal.h"

#include <stdio.h>
#include <time.h>

double driver_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void driver_print_time(const CompileOptions *options, const char *station,
                       double begin) {
  if (options->times_passes)
    fprintf(stderr, "%-14s %8.2f ms\n", station,
            (driver_seconds() - begin) * 1e3);
}

typedef struct PassReport {
  const Compilation *c;
  const char *name; /* of the entry point */
} PassReport;

/* The files are numbered by the rows of `dnnc list passes`, so that they are in
 * order and a pass with several rows has a file for each. */
static void dump_graph(const PassReport *report, int index, Text *text) {
  const Compilation *c = report->c;
  const char *folder = c->options->dump;
  const char *path =
      arena_printf(c->module->arena, "%s/%s-%02d-%s.ir", folder, report->name,
                   index + 1, pass_info(index)->name);
  Status status = file_make_dirs(folder);
  if (status.code == STATUS_ok)
    status = file_replace(path, text_string(text), text->n);
  if (status.code != STATUS_ok)
    message_print("dnnc: error: %s\n", status.message);
}

static void after_pass(void *user, int index, const Graph *graph,
                       double seconds) {
  const PassReport *report = user;
  const Compilation *c = report->c;
  const CompileOptions *options = c->options;
  if (options->times_passes)
    fprintf(stderr, "%-14s %8.2f ms  %7d nodes\n", pass_info(index)->name,
            seconds * 1e3, graph->nodes.n);
  if (options->watch) options->watch(options->watch_user, index, graph);
  bool is_printed = options->printed && pass_is_named(index, options->printed);
  if (!is_printed && !options->dump) return;
  Text text = text_create(c->module->arena);
  graph_print(&text, graph);
  if (is_printed) fputs(text_string(&text), stderr);
  if (options->dump) dump_graph(report, index, &text);
}

PassContext driver_pass_context(const Compilation *c, const Plan *plan) {
  return (PassContext){.module = c->module,
                       .scratch = arena_create(c->module->memory),
                       .model = c->model,
                       .plan = plan,
                       .target = &c->target.backend->target};
}

PassResult driver_passes(const Compilation *c, Module *module,
                         const PassRun *run, Graph *graph) {
  const CompileOptions *options = c->options;
  PassReport report = {c, run->name};
  PassContext ctx = {.module = module,
                     .model = c->model,
                     .plan = run->plan,
                     .target = &c->target.backend->target,
                     .is_training = run->is_training,
                     .keeps_gradients = run->keeps_gradients,
                     .is_decode = run->is_decode};
  PassOptions passes = {.level = options->level,
                        .is_plain = run->is_plain,
                        .stop_after = run->stop_after,
                        .disabled = options->disabled,
                        .n_disabled = options->n_disabled,
                        .verify = options->verifies,
                        .after = run->is_plain ? NULL : after_pass,
                        .clock = driver_seconds,
                        .user = &report};
  return passes_run(&ctx, &passes, graph);
}
