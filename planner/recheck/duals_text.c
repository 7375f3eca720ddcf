/*
 * duals_text.c -- reads duals from text.  Each list has its length before it,
 * and is no longer than the text that is left, so memory is bounded.
 */
#include <string.h>

#include "planner/recheck/duals_reader.h"

static bool is_space(char c) {
  return c == ' ' || c == '\n';
}

void duals_fail(DualsReader *r, const char *fault) {
  if (!r->fault) r->fault = fault;
}

void duals_skip(DualsReader *r) {
  while (r->at < r->end && is_space(*r->at)) r->at++;
}

int64_t duals_number(DualsReader *r) {
  duals_skip(r);
  const char *at = r->at;
  bool is_negative = at < r->end && *at == '-';
  int64_t value = 0;
  if (is_negative) at++;
  if (at == r->end || *at < '0' || *at > '9')
    duals_fail(r, "a number must be here");
  for (; at < r->end && *at >= '0' && *at <= '9'; at++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *at - '0', &value)) {
      duals_fail(r, "a number has at most 63 bits");
      return 0;
    }
  if (at < r->end && !is_space(*at)) duals_fail(r, "a number must be here");
  if (!r->fault) r->at = at;
  return is_negative ? -value : value;
}

int duals_index(DualsReader *r) {
  duals_skip(r);
  const char *begin = r->at;
  int64_t value = duals_number(r);
  if (value >= 0 && value <= INT32_MAX) return (int)value;
  if (!r->fault) r->at = begin;
  duals_fail(r, "a number must be from 0 to 2147483647");
  return 0;
}

static bool has_word(DualsReader *r, const char *word) {
  duals_skip(r);
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || strncmp(r->at, word, n) != 0)
    return false;
  if (r->at + n < r->end && !is_space(r->at[n])) return false;
  r->at += n;
  return true;
}

void duals_word(DualsReader *r, const char *wanted, const char *fault) {
  if (!r->fault && !has_word(r, wanted)) duals_fail(r, fault);
}

int duals_length(DualsReader *r, int bytes) {
  duals_skip(r);
  const char *begin = r->at;
  int n = duals_index(r);
  if (n <= (r->end - r->at) / bytes) return r->fault ? 0 : n;
  r->at = begin;
  duals_fail(r, "the text is too short for so many");
  return 0;
}

static FactorStep step(DualsReader *r) {
  FactorStep step = {0};
  int kind = 0;
  while (kind < N_FACTOR_STEPS &&
         !has_word(r, factor_step_name((FactorStepKind)kind)))
    kind++;
  if (kind == N_FACTOR_STEPS) {
    duals_fail(r, "there is no such step");
    return step;
  }
  step.kind = (FactorStepKind)kind;
  for (const char *of = factor_step_arguments(step.kind); *of && !r->fault;
       of++) {
    if (*of == 'v') step.variable = duals_index(r);
    if (*of == 'l') step.value = duals_index(r);
    if (*of == 'o') step.other = duals_index(r);
    if (*of == 't') step.time = duals_number(r);
  }
  return step;
}

static const int64_t *numbers(DualsReader *r, int *out_n) {
  *out_n = duals_length(r, 2);
  int64_t *of = ARENA_ARRAY(r->arena, int64_t, *out_n);
  for (int i = 0; i < *out_n && !r->fault; i++) of[i] = duals_number(r);
  return of;
}

static const int (*couples(DualsReader *r, int *out_n))[2] {
  *out_n = duals_length(r, 4);
  int(*of)[2] = arena_alloc(r->arena, sizeof(int[2]) * (size_t)*out_n);
  for (int i = 0; i < *out_n && !r->fault; i++)
    for (int k = 0; k < 2 && !r->fault; k++) of[i][k] = duals_index(r);
  return (const int(*)[2])of;
}

static FactorStage stage(DualsReader *r, const FactorDuals *duals,
                         int *out_moved) {
  FactorStage stage = {0};
  int n = 0;
  duals_word(r, "prices", "'prices' must be here");
  if (!r->fault) stage.prices = numbers(r, &n);
  if (n != duals->n_times) duals_fail(r, "each time has a price");
  duals_word(r, "moved", "'moved' must be here");
  if (!r->fault) stage.moved = numbers(r, out_moved);
  duals_word(r, "removed", "'removed' must be here");
  if (!r->fault) stage.removed = couples(r, &stage.n_removed);
  return stage;
}

static void read_steps(DualsReader *r, FactorDuals *duals) {
  duals_word(r, "steps", "'steps' must be here");
  if (r->fault) return;
  duals->n_steps = duals_length(r, 5);
  FactorStep *steps = ARENA_ARRAY(r->arena, FactorStep, duals->n_steps);
  for (int i = 0; i < duals->n_steps && !r->fault; i++) steps[i] = step(r);
  duals->steps = steps;
}

static void read_stages(DualsReader *r, FactorDuals *duals) {
  duals_word(r, "stages", "'stages' must be here");
  if (r->fault) return;
  duals->n_stages = duals_length(r, 26);
  FactorStage *stages = ARENA_ARRAY(r->arena, FactorStage, duals->n_stages);
  for (int i = 0; i < duals->n_stages && !r->fault; i++) {
    int n_moved = 0;
    stages[i] = stage(r, duals, &n_moved);
    if (i > 0 && n_moved != duals->n_moved)
      duals_fail(r, "stages have equally many messages");
    duals->n_moved = n_moved;
  }
  duals->stages = stages;
}

void duals_read(DualsReader *r, FactorDuals *out) {
  duals_word(r, "duals", "'duals' must be here");
  if (!r->fault && duals_number(r) != 1) duals_fail(r, "the version must be 1");
  duals_word(r, "bound", "'bound' must be here");
  if (!r->fault) out->bound = duals_number(r);
  duals_word(r, "best", "'best' must be here");
  if (!r->fault) out->best = duals_number(r);
  if (!r->fault) read_steps(r, out);
  duals_word(r, "times", "'times' must be here");
  if (!r->fault) out->times = numbers(r, &out->n_times);
  duals_word(r, "pairs", "'pairs' must be here");
  if (!r->fault) out->pairs = couples(r, &out->n_pairs);
  if (!r->fault) read_stages(r, out);
}

Status duals_status(const DualsReader *r) {
  int line = 1, column = 1;
  if (!r->fault) return (Status){0};
  for (const char *at = r->text; at < r->at; at++) {
    column = *at == '\n' ? 1 : column + 1;
    line += *at == '\n';
  }
  return status_make(STATUS_invalid, "%s:%d:%d: %s", r->name, line, column,
                     r->fault);
}

Status recheck_duals_read(Arena *arena, const char *name, const char *text,
                          size_t n, FactorDuals **out) {
  DualsReader r = {arena, name, text, text, text + n, NULL};
  *out = ARENA_NEW(arena, FactorDuals);
  duals_read(&r, *out);
  duals_skip(&r);
  if (r.at < r.end) duals_fail(&r, "the text must end here");
  return duals_status(&r);
}
