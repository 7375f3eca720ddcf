/*
 * kinds.c -- finds units and edges that differ in nothing but their paths.
 *
 * All that a table is made of is written down as a row of numbers; equal rows
 * are one kind.
 */
#include "planner/recheck/copies.h"

#include <string.h>

#include "ir/list/instructions.h"

typedef VEC(int64_t) Row;

typedef struct KindFinder {
  Arena *arena;
  const Units *units;
  Map *known; /* hash of a row -> KnownRow */
  int n;
} KindFinder;

typedef struct KnownRow {
  Row row;
  int kind;
  struct KnownRow *next; /* of the same hash */
} KnownRow;

static void add(KindFinder *f, Row *row, int64_t number) {
  vec_push(f->arena, row, number);
}

/* Returns the kind of a row, which may be new. */
static int kind_of(KindFinder *f, const Row *row) {
  size_t n_bytes = (size_t)row->n * sizeof *row->data;
  const void *key =
      (const void *)(uintptr_t)(hash_bytes(row->data, n_bytes, 53) | 1);
  KnownRow *first = map_get(f->known, key);
  for (KnownRow *k = first; k; k = k->next)
    if (k->row.n == row->n && memcmp(k->row.data, row->data, n_bytes) == 0)
      return k->kind;
  KnownRow *added = ARENA_NEW(f->arena, KnownRow);
  *added = (KnownRow){*row, f->n++, first};
  map_put(f->known, key, added);
  return added->kind;
}

/* ---- units ---- */

static void add_type(KindFinder *f, Row *row, const Type *type,
                     const DimMap *dims) {
  add(f, row, type->dtype);
  add(f, row, type->rank);
  for (int d = 0; d < type->rank; d++) {
    add(f, row, type->dims[d].size);
    add(f, row, dims->at[d]);
  }
}

static void add_kernel(KindFinder *f, Row *row, const UnitKernel *k) {
  const Graph *graph = f->units->graph;
  add(f, row, (int64_t)kernel_key(graph, k->id));
  add(f, row, graph->nodes.data[k->id]->phase);
  add(f, row, node_is_launched(graph, k->id));
  add(f, row, k->is_light);
  for (int d = 0; d < k->dims->n; d++) add(f, row, k->loop[d]);
}

static void add_sum(KindFinder *f, Row *row, const UnitSum *sum) {
  add_type(f, row, sum->type, &sum->dims);
  add(f, row, sum->over);
  add(f, row, sum->is_backward);
  add(f, row, sum->readers);
  add(f, row, sum->is_cut);
  add(f, row, f->units->graph->nodes.data[sum->kernel]->phase);
}

static void add_param(KindFinder *f, Row *row, const UnitParam *param) {
  add_type(f, row, param->type, &param->dims);
  add(f, row, param->read_as);
  add(f, row, param->state);
  add(f, row, param->updated);
  add(f, row, param->passes);
  add(f, row, param->cast);
}

static Row row_of_unit(KindFinder *f, int unit) {
  const PlanUnit *u = f->units->units.data[unit];
  Row row = {0};
  add(f, &row, u->n_dims);
  add(f, &row, u->batch);
  add(f, &row, u->block >= 0);
  for (int d = 0; d < u->n_dims; d++) {
    add(f, &row, u->dims[d].size);
    add(f, &row, u->dims[d].even);
    add(f, &row, u->dims[d].is_whole);
  }
  add(f, &row, u->kernels.n);
  for (int i = 0; i < u->kernels.n; i++)
    add_kernel(f, &row, &u->kernels.data[i]);
  add(f, &row, u->sums.n);
  for (int i = 0; i < u->sums.n; i++) add_sum(f, &row, &u->sums.data[i]);
  add(f, &row, u->saved.n);
  for (int i = 0; i < u->saved.n; i++) {
    const UnitSaved *saved = &u->saved.data[i];
    add_type(f, &row, saved->type, &saved->dims);
    add(f, &row, saved->of_params);
    add(f, &row, saved->leaves_block);
  }
  for (int i = 0; i < f->units->params.n; i++)
    if (f->units->params.data[i].unit == unit)
      add_param(f, &row, &f->units->params.data[i]);
  return row;
}

/* ---- edges ---- */

static Row row_of_edge(KindFinder *f, const Kinds *kinds, int i) {
  const UnitEdge *edge = &f->units->edges.data[i];
  Row row = {0};
  add(f, &row, kinds->of_unit[edge->from]);
  add(f, &row, kinds->of_unit[edge->to]);
  add_type(f, &row, edge->type, &edge->from_dims);
  add_type(f, &row, edge->type, &edge->to_dims);
  add(f, &row, edge->partial);
  add(f, &row, edge->is_backward);
  add(f, &row, edge->is_cut);
  add(f, &row, edge->readers);
  add(f, &row, edge->joined);
  add(f, &row, edge->from_sums);
  add(f, &row, edge->only_weights);
  add(f, &row, f->units->graph->nodes.data[edge->value.node]->phase);
  return row;
}

/* Fills in the kind of row `at`, and remembers where each is first. */
static void note(int kind, int at, int *of, int *first, int *n) {
  of[at] = kind;
  if (kind == *n) first[(*n)++] = at;
}

const Kinds *kinds_of(Arena *arena, const Units *units, const bool *crosses) {
  int n_units = units->units.n, n_edges = units->edges.n;
  int *of_unit = ARENA_ARRAY(arena, int, n_units + 1);
  int *of_edge = ARENA_ARRAY(arena, int, n_edges + 1);
  int *first_unit = ARENA_ARRAY(arena, int, n_units + 1);
  int *first_edge = ARENA_ARRAY(arena, int, n_edges + 1);
  Kinds *out = ARENA_NEW(arena, Kinds);
  *out = (Kinds){0, 0, of_unit, of_edge, first_unit, first_edge};
  KindFinder by_unit = {arena, units, map_create(arena), 0};
  for (int u = 0; u < n_units; u++) {
    Row row = row_of_unit(&by_unit, u);
    note(kind_of(&by_unit, &row), u, of_unit, first_unit, &out->n_units);
  }
  KindFinder by_edge = {arena, units, map_create(arena), 0};
  for (int i = 0; i < n_edges; i++) {
    Row row = row_of_edge(&by_edge, out, i);
    add(&by_edge, &row, crosses && crosses[i]);
    note(kind_of(&by_edge, &row), i, of_edge, first_edge, &out->n_edges);
  }
  return out;
}
