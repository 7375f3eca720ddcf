/*
 * duals_text.c -- reads duals from text.  Each list has its length before it,
 * and is no longer than the text that is left, so memory is bounded.
 */
#include <string.h>

#include "planner/recheck/duals.h"

typedef struct Reader {
  Arena *arena;
  const char *name, *text, *at, *end;
  const char *fault; /* NULL: none */
} Reader;

static bool is_space(char c) {
  return c == ' ' || c == '\n';
}

static void fail(Reader *r, const char *fault) {
  if (!r->fault) r->fault = fault;
}

static void skip(Reader *r) {
  while (r->at < r->end && is_space(*r->at)) r->at++;
}

/* Reads a number of at most 63 bits. */
static int64_t number(Reader *r) {
  skip(r);
  const char *at = r->at;
  bool is_negative = at < r->end && *at == '-';
  int64_t value = 0;
  if (is_negative) at++;
  if (at == r->end || *at < '0' || *at > '9') fail(r, "a number must be here");
  for (; at < r->end && *at >= '0' && *at <= '9'; at++)
    if (__builtin_mul_overflow(value, 10, &value) ||
        __builtin_add_overflow(value, *at - '0', &value)) {
      fail(r, "a number has at most 63 bits");
      return 0;
    }
  if (at < r->end && !is_space(*at)) fail(r, "a number must be here");
  if (!r->fault) r->at = at;
  return is_negative ? -value : value;
}

static int index_of(Reader *r) {
  skip(r);
  const char *begin = r->at;
  int64_t value = number(r);
  if (value >= 0 && value <= INT32_MAX) return (int)value;
  if (!r->fault) r->at = begin;
  fail(r, "a number must be from 0 to 2147483647");
  return 0;
}

static bool has_word(Reader *r, const char *word) {
  skip(r);
  size_t n = strlen(word);
  if ((size_t)(r->end - r->at) < n || strncmp(r->at, word, n) != 0)
    return false;
  if (r->at + n < r->end && !is_space(r->at[n])) return false;
  r->at += n;
  return true;
}

static void word(Reader *r, const char *wanted, const char *fault) {
  if (!r->fault && !has_word(r, wanted)) fail(r, fault);
}

/* Reads a length: each item takes `bytes` of text or more. */
static int length(Reader *r, int bytes) {
  skip(r);
  const char *begin = r->at;
  int n = index_of(r);
  if (n <= (r->end - r->at) / bytes) return r->fault ? 0 : n;
  r->at = begin;
  fail(r, "the text is too short for so many");
  return 0;
}

static FactorStep step(Reader *r) {
  FactorStep step = {0};
  int kind = 0;
  while (kind < N_FACTOR_STEPS &&
         !has_word(r, factor_step_name((FactorStepKind)kind)))
    kind++;
  if (kind == N_FACTOR_STEPS) {
    fail(r, "there is no such step");
    return step;
  }
  step.kind = (FactorStepKind)kind;
  for (const char *of = factor_step_arguments(step.kind); *of && !r->fault;
       of++) {
    if (*of == 'v') step.variable = index_of(r);
    if (*of == 'l') step.value = index_of(r);
    if (*of == 'o') step.other = index_of(r);
    if (*of == 't') step.time = number(r);
  }
  return step;
}

static const int64_t *numbers(Reader *r, int *out_n) {
  *out_n = length(r, 2);
  int64_t *of = ARENA_ARRAY(r->arena, int64_t, *out_n);
  for (int i = 0; i < *out_n && !r->fault; i++) of[i] = number(r);
  return of;
}

static const int (*couples(Reader *r, int *out_n))[2] {
  *out_n = length(r, 4);
  int(*of)[2] = arena_alloc(r->arena, sizeof(int[2]) * (size_t)*out_n);
  for (int i = 0; i < *out_n && !r->fault; i++)
    for (int k = 0; k < 2 && !r->fault; k++) of[i][k] = index_of(r);
  return (const int(*)[2])of;
}

static FactorStage stage(Reader *r, const FactorDuals *duals, int *out_moved) {
  FactorStage stage = {0};
  int n = 0;
  word(r, "prices", "'prices' must be here");
  if (!r->fault) stage.prices = numbers(r, &n);
  if (n != duals->n_times) fail(r, "each time has a price");
  word(r, "moved", "'moved' must be here");
  if (!r->fault) stage.moved = numbers(r, out_moved);
  word(r, "removed", "'removed' must be here");
  if (!r->fault) stage.removed = couples(r, &stage.n_removed);
  return stage;
}

static void read_steps(Reader *r, FactorDuals *duals) {
  word(r, "steps", "'steps' must be here");
  if (r->fault) return;
  duals->n_steps = length(r, 5);
  FactorStep *steps = ARENA_ARRAY(r->arena, FactorStep, duals->n_steps);
  for (int i = 0; i < duals->n_steps && !r->fault; i++) steps[i] = step(r);
  duals->steps = steps;
}

static void read_stages(Reader *r, FactorDuals *duals) {
  word(r, "stages", "'stages' must be here");
  if (r->fault) return;
  duals->n_stages = length(r, 26);
  FactorStage *stages = ARENA_ARRAY(r->arena, FactorStage, duals->n_stages);
  for (int i = 0; i < duals->n_stages && !r->fault; i++) {
    int n_moved = 0;
    stages[i] = stage(r, duals, &n_moved);
    if (i > 0 && n_moved != duals->n_moved)
      fail(r, "stages have equally many messages");
    duals->n_moved = n_moved;
  }
  duals->stages = stages;
}

static Status fault_of(const Reader *r) {
  int line = 1, column = 1;
  for (const char *at = r->text; at < r->at; at++) {
    column = *at == '\n' ? 1 : column + 1;
    line += *at == '\n';
  }
  return status_make(STATUS_invalid, "%s:%d:%d: %s", r->name, line, column,
                     r->fault);
}

Status recheck_duals_read(Arena *arena, const char *name, const char *text,
                          size_t n, FactorDuals **out) {
  Reader r = {arena, name, text, text, text + n, NULL};
  FactorDuals *duals = ARENA_NEW(arena, FactorDuals);
  word(&r, "duals", "'duals' must be here");
  if (!r.fault && number(&r) != 1) fail(&r, "the version must be 1");
  word(&r, "bound", "'bound' must be here");
  if (!r.fault) duals->bound = number(&r);
  word(&r, "best", "'best' must be here");
  if (!r.fault) duals->best = number(&r);
  if (!r.fault) read_steps(&r, duals);
  word(&r, "times", "'times' must be here");
  if (!r.fault) duals->times = numbers(&r, &duals->n_times);
  word(&r, "pairs", "'pairs' must be here");
  if (!r.fault) duals->pairs = couples(&r, &duals->n_pairs);
  if (!r.fault) read_stages(&r, duals);
  skip(&r);
  if (r.at < r.end) fail(&r, "the text must end here");
  *out = duals;
  return r.fault ? fault_of(&r) : (Status){0};
}
