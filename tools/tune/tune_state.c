/*
 * tune_state.c -- holds the small things that all parts of `dnnc tune` need:
 * its budget and the words of its children.
 */
#include "tools/tune/tune.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_ERROR_BYTES = 1 << 20 };

void tune_say(const Tuning *tuning, const char *format, ...) {
  if (tuning->tool->options.quiet) return;
  va_list args;
  va_start(args, format);
  vfprintf(stderr, format, args);
  va_end(args);
}

bool tune_has_left(const Tuning *tuning, int64_t ms) {
  return child_now_ms() + ms <= tuning->until_ms;
}

int64_t tune_left_ms(const Tuning *tuning) {
  int64_t left = tuning->until_ms - child_now_ms();
  return left > 0 ? left : 0;
}

bool tune_has_measured(const Tuning *tuning) {
  return tuning->n_measured > 0 || tuning->has_links;
}

/* A guess at a budget for which one probe can run: twice the time of a build
 * and of steps at a rate that every machine reaches, and as much for links. */
static int64_t enough_seconds(const Tuning *tuning) {
  enum { START_MS = 2000, BUILD_MS = 10000, ROUND_S = 5 };
  static const double slow_flops_per_ms = 1e6;
  const Graph *graph = tuning->model->model->train;
  double step_ms = 3 * graph_product_flops(graph, tuning->arena) /
                   slow_flops_per_ms; /* forward and backward */
  double build_ms = tuning->build_ms ? (double)tuning->build_ms : BUILD_MS;
  double ms = 4 * (build_ms + START_MS + TUNE_STEPS * step_ms);
  if (!tuning->tool->options.no_plans) ms *= 2;
  if (ms < 2 * (double)tuning->budget_ms) ms = 2 * (double)tuning->budget_ms;
  return ((int64_t)(ms / 1e3) / ROUND_S + 1) * ROUND_S;
}

int tune_report_nothing(const Tuning *tuning) {
  message_print("dnnc: error: nothing could be measured\n");
  if (tuning->is_late)
    message_print("help: the budget ended before the first probe; --budget "
                  "%llds should be enough for it, at 1 GFLOP/s\n",
                  (long long)enough_seconds(tuning));
  return EXIT_machine;
}

static const char *first_line(const Tuning *tuning, const char *path) {
  static const char prefix[] = "dnnc: error: ";
  const char *text;
  size_t n;
  Status status = file_read(tuning->arena, path, MOST_ERROR_BYTES, &text, &n);
  if (status.code != STATUS_ok || n == 0) return "it said nothing";
  if (strncmp(text, prefix, sizeof prefix - 1) == 0) text += sizeof prefix - 1;
  return arena_printf(tuning->arena, "%.*s", (int)strcspn(text, "\n"), text);
}

const char *tune_why(const Tuning *tuning, int code, const char *path) {
  switch (code) {
  case CHILD_late: return "it took longer than the budget";
  case CHILD_stopped: return "the command was stopped";
  case CHILD_failed: return "its process could not be run to its end";
  default: return first_line(tuning, path);
  }
}

static void add_option(const Tuning *tuning, Words *words, const char *name,
                       const char *value) {
  vec_push(tuning->arena, words, name);
  vec_push(tuning->arena, words, value);
}

void tune_model_words(const Tuning *tuning, Words *words) {
  const Options *options = &tuning->tool->options;
  vec_push(tuning->arena, words, options->subject);
  for (int i = 0; i < options->overrides.n; i++)
    vec_push(tuning->arena, words,
             arena_printf(tuning->arena, "%s=%s",
                          options->overrides.data[i].name,
                          options->overrides.data[i].value));
}

void tune_build_words(const Tuning *tuning, Words *words) {
  const Options *options = &tuning->tool->options;
  if (options->target) add_option(tuning, words, "--target", options->target);
  if (options->data) add_option(tuning, words, "--data", options->data);
}
