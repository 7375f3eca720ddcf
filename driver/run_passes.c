/*
 * run_passes.c -- runs the pass list over one graph, and tells the watch of the
 * options of each pass.
 */
#include "driver/internal.h"

#include <time.h>

double driver_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void driver_end_station(const CompileOptions *options, const char *station,
                        double begin) {
  const CompileWatch *watch = &options->watch;
  if (watch->station)
    watch->station(watch->user, station, driver_seconds() - begin);
}

typedef struct PassReport {
  const CompileWatch *watch;
  const char *entry_point;
} PassReport;

static void after_pass(void *user, int row, const Graph *graph,
                       double seconds) {
  const PassReport *report = user;
  WatchedPass pass = {report->entry_point, row, graph, seconds};
  report->watch->pass(report->watch->user, &pass);
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
  PassReport report = {&options->watch, run->name};
  bool is_watched = options->watch.pass && !run->is_plain;
  PassContext ctx = {.module = module,
                     .model = c->model,
                     .plan = run->plan,
                     .compared = run->compared,
                     .target = &c->target.backend->target,
                     .is_training = run->is_training,
                     .is_trial = c->is_trial,
                     .keeps_gradients = run->keeps_gradients,
                     .is_decode = run->is_decode,
                     .cut = run->cut};
  PassOptions passes = {.level = options->level,
                        .is_plain = run->is_plain,
                        .leaves_out_updates = run->leaves_out_updates,
                        .begin = run->begin,
                        .end = run->end,
                        .disabled = options->disabled,
                        .n_disabled = options->n_disabled,
                        .verify = options->verifies,
                        .after = is_watched ? after_pass : NULL,
                        .clock = driver_seconds,
                        .user = &report};
  return passes_run(&ctx, &passes, graph);
}
