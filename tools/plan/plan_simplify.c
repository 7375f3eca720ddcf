/*
 * plan_simplify.c -- leaves out lines of a found plan without which its program
 * is the same.
 *
 *     shard B over data
 *     shard x: B over data         follows from the line above
 *     shard mlp!dot: B over data   so do operators compute anyway
 *       =>
 *     shard B over data
 *
 * A search over every operator says how each of them computes, also where this
 * follows.  All lines about paths are tried at once, those of values, those of
 * operators, then halves of what is left, as far as a fixed number of trials
 * goes.
 */
#include "tools/commands/planning.h"

#include <string.h>

/* Few of large programs. */
enum { MOST_TRIALS = 12, MOST_TRIALS_OF_LARGE = 3, LARGE = 1500 };

typedef struct Simplifier {
  Planning *planning;
  const char *const *lines; /* of the plan file */
  int n;
  int n_trials, most_trials;
  uint64_t program; /* of all lines */
  Ps step;
  Bytes peak;
} Simplifier;

typedef bool LineTest(const char *line);

/* ---- lines ---- */

/* "  shard PATH: ..." or "  replicate PATH". */
static bool is_path_line(const char *line) {
  return strncmp(line, "  replicate ", 12) == 0 ||
         (strncmp(line, "  shard ", 8) == 0 && strchr(line, ':'));
}

static bool is_operator_line(const char *line) {
  return is_path_line(line) && strchr(line, '!');
}

static bool is_value_line(const char *line) {
  return is_path_line(line) && !strchr(line, '!');
}

static const char *const *split_lines(Arena *arena, const char *text,
                                      int *out_n) {
  VEC(const char *) lines = {0};
  char *rest = arena_strdup(arena, text);
  for (char *end; (end = strchr(rest, '\n')); rest = end + 1) {
    *end = '\0';
    vec_push(arena, &lines, rest);
  }
  *out_n = lines.n;
  return (const char *const *)lines.data;
}

static const char *join_lines(const Simplifier *s, const bool *is_left_out) {
  Text out = text_create(s->planning->tool->arena);
  for (int i = 0; i < s->n; i++)
    if (!is_left_out[i]) text_printf(&out, "%s\n", s->lines[i]);
  return text_string(&out);
}

/* ---- trials ---- */

/* Compiles the training step.  Returns false after mistakes. */
static bool find_program(Simplifier *s, const char *text, uint64_t *program,
                         Ps *step, Bytes *peak) {
  Planning *planning = s->planning;
  Diags *diags = diags_create(planning->tool->arena);
  TrialPlan plan = {.pins = planning_read(planning, text, diags),
                    .is_training_only = true};
  Trial trial;
  if (!plan.pins) return false;
  bool is_priced = driver_try(&planning->loaded, planning->tool->memory, &plan,
                              &planning->request, &trial);
  if (is_priced) {
    *program = planning_program(&trial.priced);
    *step = trial.priced.price.step;
    *peak = trial.priced.peak;
  }
  driver_end_trial(&trial);
  return is_priced;
}

static bool is_same(Simplifier *s, const bool *is_left_out) {
  uint64_t program;
  Ps step;
  Bytes peak;
  return s->n_trials++ < s->most_trials &&
         find_program(s, join_lines(s, is_left_out), &program, &step, &peak) &&
         program == s->program && step == s->step && peak == s->peak;
}

/* Leaves out the lines from `first` to before `end` that pass the test, if the
 * program stays. */
static void try_without(Simplifier *s, bool *is_left_out, LineTest *test,
                        int first, int end) {
  Arena *arena = s->planning->tool->arena;
  size_t n_bytes = (size_t)s->n * sizeof *is_left_out;
  bool *tried = arena_copy(arena, is_left_out, n_bytes), is_new = false;
  for (int i = first; i < end; i++) {
    if (tried[i] || !test(s->lines[i])) continue;
    tried[i] = is_new = true;
  }
  if (is_new && is_same(s, tried)) memcpy(is_left_out, tried, n_bytes);
}

/* Halves, quarters and so on of all lines. */
static void try_parts(Simplifier *s, bool *is_left_out) {
  for (int n_parts = 2; n_parts <= s->n && s->n_trials < s->most_trials;
       n_parts *= 2)
    for (int k = 0; k < n_parts; k++)
      try_without(s, is_left_out, is_path_line, k * s->n / n_parts,
                  (k + 1) * s->n / n_parts);
}

const char *planning_simplify(Planning *planning, const char *text) {
  bool is_large = planning->loaded.model->train->nodes.n > LARGE;
  Simplifier s = {.planning = planning,
                  .most_trials = is_large ? MOST_TRIALS_OF_LARGE : MOST_TRIALS};
  Arena *arena = planning->tool->arena;
  s.lines = split_lines(arena, text, &s.n);
  bool *is_left_out = ARENA_ARRAY(arena, bool, s.n + 1);
  if (!find_program(&s, text, &s.program, &s.step, &s.peak)) return text;
  try_without(&s, is_left_out, is_path_line, 0, s.n);
  try_without(&s, is_left_out, is_value_line, 0, s.n);
  try_without(&s, is_left_out, is_operator_line, 0, s.n);
  try_parts(&s, is_left_out);
  return join_lines(&s, is_left_out);
}
