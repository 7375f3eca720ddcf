/*
 * plan_frontier.c -- lists the plans of `dnnc plan --frontier`: those that no
 * other plan of the search beats in both a step and what it needs.
 *
 *     memory   step                            memory   step
 *      4 GB    9 ms                             4 GB    9 ms
 *      6 GB    9 ms   slower for more     =>    7 GB    5 ms
 *      7 GB    5 ms
 *
 * A plan needs the memory of a rank, or with several numbers of ranks so many
 * ranks.  The plans are those that the search has priced, that for the
 * fewest bytes, and the search with a half, a quarter and so on of the memory.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/plan/plan_table.h"

enum { MOST_POINTS = 20 /* each is priced whole */ };

static int compare_needs(int64_t x_needs, Ps x_step, int64_t y_needs,
                         Ps y_step) {
  if (x_needs != y_needs) return x_needs < y_needs ? -1 : 1;
  return (x_step > y_step) - (x_step < y_step);
}

static int compare_plans(const void *a, const void *b) {
  const FoundPlan *x = &((const PricedPlan *)a)->plan;
  const FoundPlan *y = &((const PricedPlan *)b)->plan;
  int by =
      compare_needs(x->price.peak, x->price.step, y->price.peak, y->price.step);
  return by ? by : strcmp(x->text, y->text);
}

static int compare_memory(const void *a, const void *b) {
  const TableRow *x = a, *y = b;
  int by =
      compare_needs(x->price.peak, x->price.step, y->price.peak, y->price.step);
  return by ? by : strcmp(x->text, y->text);
}

static int compare_ranks(const void *a, const void *b) {
  const TableRow *x = a, *y = b;
  int by = compare_needs(x->ranks, x->price.step, y->ranks, y->price.step);
  return by ? by : strcmp(x->text, y->text);
}

/* Each row of the result is faster than all before it. */
static void drop_slower(TableRows *rows) {
  Ps best = INT64_MAX;
  int n = 0;
  for (int i = 0; i < rows->n; i++) {
    if (rows->data[i].price.step >= best) continue;
    best = rows->data[i].price.step;
    rows->data[n++] = rows->data[i];
  }
  rows->n = n;
}

void plan_frontier_of_memory(TableRows *rows) {
  if (rows->n > 1)
    qsort(rows->data, (size_t)rows->n, sizeof *rows->data, compare_memory);
  drop_slower(rows);
}

void plan_frontier_of_ranks(TableRows *rows) {
  int n = 0;
  for (int i = 0; i < rows->n; i++)
    if (rows->data[i].text && table_row_fits(&rows->data[i]))
      rows->data[n++] = rows->data[i];
  if (n == 0) return; /* the table says what there is */
  rows->n = n;
  qsort(rows->data, (size_t)n, sizeof *rows->data, compare_ranks);
  drop_slower(rows);
}

/* The legal plans of the record, fewest bytes first, each faster than all
 * before it. */
static int list_points(const Planning *planning, PricedPlan **out) {
  const PricedPlans *priced = &planning->priced;
  PricedPlan *points =
      ARENA_ARRAY(planning->tool->arena, PricedPlan, priced->list.n + 1);
  Ps best = INT64_MAX;
  int n_legal = 0, n = 0;
  for (int i = 0; i < priced->list.n; i++)
    if (priced->list.data[i].plan.price.is_legal)
      points[n_legal++] = priced->list.data[i];
  if (n_legal > 1)
    qsort(points, (size_t)n_legal, sizeof *points, compare_plans);
  for (int i = 0; i < n_legal; i++) {
    if (points[i].plan.price.step >= best) continue;
    best = points[i].plan.price.step;
    points[n++] = points[i];
  }
  *out = points;
  return n;
}

/* Both ends stay, and those between that are equally far apart in the list. */
static int thin(PricedPlan *points, int n) {
  if (n <= MOST_POINTS) return n;
  for (int i = 0; i < MOST_POINTS; i++)
    points[i] = points[(int64_t)i * (n - 1) / (MOST_POINTS - 1)];
  return MOST_POINTS;
}

TableRows plan_frontier_rows(Planning *planning, const Chosen *chosen) {
  Arena *arena = planning->tool->arena;
  PricedPlan *points;
  TableRows rows = {0};
  int n = list_points(planning, &points);
  n = thin(points, n);
  const char **texts = ARENA_ARRAY(arena, const char *, n + 1);
  CandidatePrice *prices = ARENA_ARRAY(arena, CandidatePrice, n + 1);
  for (int i = 0; i < n; i++) texts[i] = points[i].plan.text;
  planning_price_whole(planning, n, texts, prices);
  for (int i = 0; i < n; i++) {
    points[i].plan.price = prices[i];
    if (!prices[i].is_legal) continue;
    FoundPlan printed = planning_printed(planning, &points[i].plan);
    vec_push(arena, &rows,
             plan_row_of(planning, chosen, points[i].mesh, &printed));
  }
  return rows;
}
