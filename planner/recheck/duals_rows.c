/*
 * duals_rows.c -- rows of memory of a problem whose steps are made again.
 *
 * Usage rises where an interval begins and falls where one ends.  So it is the
 * largest at a begin with an end behind it, and only such times are rows.
 */
#include <stdlib.h>

#include "planner/recheck/duals_graph.h"

static int compare(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Returns the first row that is no earlier than a time. */
static int row_at(const DualGraph *g, int64_t time) {
  int low = 0, n = g->n_rows;
  while (n > 0) {
    int half = n / 2;
    if (g->times[low + half] < time) {
      low += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return low;
}

int dual_rows_find(const DualGraph *g, int64_t time) {
  int row = row_at(g, time);
  return row < g->n_rows && g->times[row] == time ? row : -1;
}

/* Merges begins and ends, both in order. */
static void find_times(DualGraph *g, const int64_t *begins, const int64_t *ends,
                       int n) {
  g->times = ARENA_ARRAY(g->arena, int64_t, n);
  for (int i = 0, j = 0; i < n; i++) {
    while (j < n && ends[j] <= begins[i]) j++;
    if (i + 1 < n && j < n && begins[i + 1] < ends[j]) continue;
    if (g->n_rows == 0 || g->times[g->n_rows - 1] < begins[i])
      g->times[g->n_rows++] = begins[i];
  }
}

void dual_rows_create(DualGraph *g, const FactorProblem *problem) {
  int n = factor_n_usages(problem), variable;
  int64_t times[2];
  Arena *scratch = arena_beside(g->arena);
  int64_t *begins = ARENA_ARRAY(scratch, int64_t, n);
  int64_t *ends = ARENA_ARRAY(scratch, int64_t, n);
  for (int i = 0; i < n; i++) {
    factor_usage(problem, i, &variable, times);
    begins[i] = times[0];
    ends[i] = times[1];
  }
  qsort(begins, (size_t)n, sizeof *begins, compare);
  qsort(ends, (size_t)n, sizeof *ends, compare);
  find_times(g, begins, ends, n);
  arena_destroy(scratch);
  for (int i = 0; i < n; i++) {
    const int64_t *usages = factor_usage(problem, i, &variable, times);
    DualVariable *v = &g->variables[variable];
    DualPiece piece = {row_at(g, times[0]), row_at(g, times[1]), NULL, 0, 0};
    piece.usages = ARENA_ARRAY(g->arena, Int128, v->n);
    for (int value = 0; value < v->n; value++)
      piece.usages[value] = usages[value];
    vec_push(g->arena, &v->pieces, piece);
  }
  g->limit = factor_limit_of(problem);
  g->least = ARENA_ARRAY(g->arena, Int128, g->n_rows + 1);
  g->n_short = ARENA_ARRAY(g->arena, int, g->n_rows + 1);
  for (int row = 0; row <= g->n_rows; row++) g->n_short[row] = row;
}

/* ---- pieces ---- */

static int compare_ints(const void *a, const void *b) {
  return *(const int *)a - *(const int *)b;
}

void dual_rows_split(DualGraph *g, int variable) {
  DualVariable *v = &g->variables[variable];
  if (v->is_disjoint) return;
  Arena *scratch = arena_beside(g->arena);
  int n = 0, *ends = ARENA_ARRAY(scratch, int, 2 * (int64_t)v->pieces.n);
  for (int k = 0; k < v->pieces.n; k++) {
    ends[2 * k] = v->pieces.data[k].begin;
    ends[2 * k + 1] = v->pieces.data[k].end;
  }
  qsort(ends, 2 * (size_t)v->pieces.n, sizeof *ends, compare_ints);
  for (int k = 0; k < 2 * v->pieces.n; k++)
    if (n == 0 || ends[n - 1] < ends[k]) ends[n++] = ends[k];
  DualPieces split = {0};
  for (int k = 0; k + 1 < n; k++) {
    DualPiece piece = {ends[k], ends[k + 1], NULL, 0, 0};
    piece.usages = ARENA_ARRAY(g->arena, Int128, v->n);
    vec_push(g->arena, &split, piece);
  }
  for (int k = 0; k < v->pieces.n; k++) {
    const DualPiece *from = &v->pieces.data[k];
    int at = 0;
    while (at < split.n && split.data[at].begin < from->begin) at++;
    for (; at < split.n && split.data[at].end <= from->end; at++)
      for (int value = 0; value < v->n; value++)
        split.data[at].usages[value] += from->usages[value];
  }
  v->pieces = split;
  v->is_disjoint = true;
  v->is_counted = false;
  arena_destroy(scratch);
}

static void count(DualVariable *v) {
  for (int k = 0; k < v->pieces.n; k++) {
    DualPiece *piece = &v->pieces.data[k];
    bool is_first = true;
    for (int value = 0; value < v->n; value++) {
      Int128 usage = piece->usages[value];
      if (!v->is_left[value]) continue;
      if (is_first || usage < piece->least) piece->least = usage;
      if (is_first || usage > piece->most) piece->most = usage;
      is_first = false;
    }
  }
  v->is_counted = true;
}

void dual_rows_add_up(DualGraph *g) {
  Arena *scratch = arena_beside(g->arena);
  Int128 *least = ARENA_ARRAY(scratch, Int128, g->n_rows + 1);
  Int128 *most = ARENA_ARRAY(scratch, Int128, g->n_rows + 1), sums[2] = {0};
  for (int i = 0; i < g->n; i++) {
    dual_rows_split(g, i);
    count(&g->variables[i]);
    for (int k = 0; k < g->variables[i].pieces.n; k++) {
      const DualPiece *piece = &g->variables[i].pieces.data[k];
      least[piece->begin] += piece->least;
      least[piece->end] -= piece->least;
      most[piece->begin] += piece->most;
      most[piece->end] -= piece->most;
    }
  }
  for (int row = 0; row < g->n_rows; row++) {
    sums[0] += least[row];
    sums[1] += most[row];
    g->least[row] = sums[0];
    if (sums[0] > g->limit) g->has_none = true;
    g->n_short[row + 1] = g->n_short[row] + (sums[1] > g->limit);
  }
  arena_destroy(scratch);
}
