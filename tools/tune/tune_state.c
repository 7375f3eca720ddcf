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
