/*
 * bound_planes.c -- finds the best weights for the assignments that are known
 * (cutting planes: Kelley, 1960).
 *
 *     assignment   stream   link       weights     least mean
 *     1            232      9,000      1, 0        232
 *     2            240         40      0.999, 0.001 240
 *
 * Each assignment has a mean that grows and falls evenly with weights, and
 * their least is at least the bound.  So weights are a mixed strategy against
 * assignments, found by the simplex method: with loads a[e][i] of extreme e
 *
 *     most sum of x[i]  where  sum of a[e][i] x[i] <= 1 for each e
 *
 * is one part of the least mean, and the prices of rows are the weights in
 * these parts.  Memory is a row, too: sum of (bytes[i] - memory) x[i] <= 0.
 */
#include "price/units/bound_planes.h"

#include <math.h>
#include <string.h>

enum { MOST_ROWS = N_BOUND_EXTREMES + 1 };

typedef struct Tableau {
  int n_rows, n; /* n: columns of assignments; slacks of rows follow */
  double *cells; /* of rows, then those of the aim; the last column: limits */
  int basis[MOST_ROWS];
} Tableau;

static double *cell(const Tableau *t, int row, int column) {
  return &t->cells[row * (t->n + t->n_rows + 1) + column];
}

static int limit_of(const Tableau *t) {
  return t->n + t->n_rows;
}

/* The first column that helps: so no basis comes again (Bland, 1977). */
static int next_column(const Tableau *t) {
  for (int c = 0; c < t->n + t->n_rows; c++)
    if (*cell(t, t->n_rows, c) < -1e-12) return c;
  return -1;
}

static int next_row(const Tableau *t, int column) {
  int best = -1;
  double least = INFINITY;
  for (int r = 0; r < t->n_rows; r++) {
    double at = *cell(t, r, column);
    if (at <= 1e-12) continue;
    double ratio = *cell(t, r, limit_of(t)) / at;
    if (ratio < least || (ratio == least && t->basis[r] < t->basis[best])) {
      least = ratio;
      best = r;
    }
  }
  return best;
}

static void pivot(Tableau *t, int row, int column) {
  double at = *cell(t, row, column);
  for (int c = 0; c <= limit_of(t); c++) *cell(t, row, c) /= at;
  for (int r = 0; r <= t->n_rows; r++) {
    double times = *cell(t, r, column);
    if (r == row || times == 0) continue;
    for (int c = 0; c <= limit_of(t); c++)
      *cell(t, r, c) -= times * *cell(t, row, c);
  }
  t->basis[row] = column;
}

static void solve(Tableau *t) {
  enum { MOST_PIVOTS = 1000 };
  for (int i = 0; i < MOST_PIVOTS; i++) {
    int column = next_column(t);
    int row = column < 0 ? -1 : next_row(t, column);
    if (row < 0) return;
    pivot(t, row, column);
  }
}

/* ---- rows ---- */

static bool has_extreme(const BoundPlanes *planes, int extreme) {
  BoundWeights w = {.split = -1};
  bound_set_extreme(&w, extreme);
  return bound_weights_suit(&w, planes->setting->groups);
}

static bool some_fits(const BoundPlanes *planes) {
  for (int i = 0; i < planes->list.n; i++)
    if (planes->list.data[i].bytes <= (double)planes->memory) return true;
  return false;
}

static double largest_load(const BoundPlanes *planes) {
  double largest = 1;
  for (int i = 0; i < planes->list.n; i++)
    for (int e = 0; e < N_BOUND_EXTREMES; e++)
      largest = fmax(largest, planes->list.data[i].of[e]);
  return largest;
}

/* Loads are parts of the largest, bytes parts of a rank's.  `rows`: extremes;
 * the row behind them is memory. */
static Tableau tableau_of(Arena *arena, const BoundPlanes *planes, int n_rows,
                          const int *rows, double largest) {
  Tableau t = {.n_rows = n_rows, .n = planes->list.n};
  int n_cells = (n_rows + 1) * (t.n + n_rows + 1);
  t.cells = ARENA_ARRAY(arena, double, n_cells);
  for (int r = 0; r < n_rows; r++) {
    bool is_memory = rows[r] == N_BOUND_EXTREMES;
    for (int i = 0; i < t.n; i++) {
      const BoundLoads *loads = &planes->list.data[i];
      *cell(&t, r, i) = is_memory ? loads->bytes / (double)planes->memory - 1
                                  : loads->of[rows[r]] / largest;
    }
    *cell(&t, r, t.n + r) = 1;
    *cell(&t, r, limit_of(&t)) = is_memory ? 0 : 1;
    t.basis[r] = t.n + r;
  }
  for (int i = 0; i < t.n; i++) *cell(&t, n_rows, i) = -1;
  return t;
}

static void add_share(BoundWeights *out, int extreme, int parts) {
  const BoundWeight *of = bound_extremes[extreme];
  out->of[of[0]] += parts;
  if (of[1] != of[0]) out->of[of[1]] += parts;
}

/* Rounds shares of extremes, which add up to one, to parts of BOUND_ONE; the
 * largest has what is left. */
static void set_shares(const double *shares, BoundWeights *out) {
  int left = BOUND_ONE, most = 0;
  memset(out->of, 0, sizeof out->of);
  for (int e = 1; e < N_BOUND_EXTREMES; e++)
    if (shares[e] > shares[most]) most = e;
  for (int e = 0; e < N_BOUND_EXTREMES; e++) {
    int parts = (int)floor(shares[e] * BOUND_ONE + 0.5);
    if (e == most) continue;
    if (parts > left) parts = left;
    add_share(out, e, parts);
    left -= parts;
  }
  add_share(out, most, left);
}

double bound_planes_best(Arena *arena, const BoundPlanes *planes,
                         BoundWeights *out) {
  int rows[MOST_ROWS], n_rows = 0;
  double shares[N_BOUND_EXTREMES] = {0}, largest = largest_load(planes);
  out->per_byte = 0;
  for (int e = 0; e < N_BOUND_EXTREMES; e++)
    if (has_extreme(planes, e)) rows[n_rows++] = e;
  if (some_fits(planes)) rows[n_rows++] = N_BOUND_EXTREMES;
  Tableau t = tableau_of(arena, planes, n_rows, rows, largest);
  solve(&t);
  double sum = *cell(&t, n_rows, limit_of(&t));
  if (sum <= 0) return INFINITY;
  for (int r = 0; r < n_rows; r++) {
    double price = *cell(&t, n_rows, t.n + r) / sum;
    if (rows[r] < N_BOUND_EXTREMES)
      shares[rows[r]] = price;
    else
      out->per_byte = price * largest / (double)planes->memory;
  }
  set_shares(shares, out);
  return largest / sum;
}
