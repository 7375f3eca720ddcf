/*
 * stage_bound.c -- makes tables of loads for plans whose groups of ranks have
 * stages.
 *
 * A step takes each group at least as long as any mean of its loads, so at
 * least as long as the mean over groups, which is the mean of the loads of the
 * whole model on the ranks of one group, divided by the number of groups.
 * Left out is what may not be there, or may be hidden by the work of another
 * micro-batch:
 *
 *   - transfers of values that may go from one stage to another;
 *   - sums inside of a unit, which a border may divide;
 *   - what transfers take from kernels beside them;
 *   - saved values where blocks are computed again: a schedule may compute a
 *     whole stage again;
 *   - all transfers where groups have links of several kinds.
 */
#include "planner/stages/stage_bound.h"

#include <string.h>

#include "price/units/stage_groups.h"

/* Stands for what cannot be, as in loads.c. */
#define IMPOSSIBLE ((Ps)1 << 50)

static Load without_sums(Load load, bool has_links) {
  memset(load.links, 0, sizeof load.links);
  memset(load.cut, 0, sizeof load.cut);
  load.least_left = 0;
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++) {
    ZeroLoad *of = &load.zero[zero];
    of->bulk = of->summed = of->least_summed = 0;
    if (has_links) continue;
    of->least_sums = (LinkLoad){0};
    of->gathers = (LinkLoad){0};
  }
  return load;
}

static const UnitShape *unit_shape(Arena *arena, Map *known,
                                   const UnitShape *of, bool has_links) {
  UnitShape *out = map_get(known, of);
  if (out) return out;
  Load *loads = ARENA_ARRAY(arena, Load, of->n_values);
  for (int i = 0; i < of->n_values; i++)
    loads[i] = without_sums(of->loads[i], has_links);
  size_t n_bytes = sizeof *of->values * (size_t)of->n_values;
  const Assignment *values = arena_copy(arena, of->values, n_bytes);
  out = ARENA_NEW(arena, UnitShape);
  *out = (UnitShape){of->n_values, values, loads};
  map_put(known, of, out);
  return out;
}

static EdgeLoad edge_load(const EdgeLoad *of, bool crosses, bool has_links) {
  EdgeLoad out = *of;
  bool is_possible = of->wait < IMPOSSIBLE;
  if (crosses || (!has_links && is_possible)) return (EdgeLoad){0};
  return out;
}

static const EdgeTable *edge_table(Arena *arena, Map *known,
                                   const EdgeTable *of, int n, bool crosses,
                                   bool has_links) {
  EdgeTable *out = map_get(known, of);
  if (out) return out;
  EdgeLoad *loads = ARENA_ARRAY(arena, EdgeLoad, n);
  for (int i = 0; i < n; i++)
    loads[i] = edge_load(&of->loads[i], crosses, has_links);
  out = ARENA_NEW(arena, EdgeTable);
  *out = (EdgeTable){loads};
  map_put(known, of, out);
  return out;
}

static void copy_tables(Arena *arena, const BoundRequest *r,
                        const UnitTables *all, bool has_links,
                        UnitTables *out) {
  int n_units = r->units->units.n, n_edges = r->units->edges.n;
  const UnitShape **units = ARENA_ARRAY(arena, const UnitShape *, n_units + 1);
  const EdgeTable **edges = ARENA_ARRAY(arena, const EdgeTable *, n_edges + 1);
  Map *shapes = map_create(arena);
  Map *tables[2] = {map_create(arena), map_create(arena)}; /* by `crosses` */
  for (int u = 0; u < n_units; u++)
    units[u] = unit_shape(arena, shapes, all->unit[u], has_links);
  for (int i = 0; i < n_edges; i++) {
    const UnitEdge *edge = &r->units->edges.data[i];
    int n = units[edge->from]->n_values * units[edge->to]->n_values;
    bool crosses = r->crosses[i];
    edges[i] =
        edge_table(arena, tables[crosses], all->edge[i], n, crosses, has_links);
  }
  *out = (UnitTables){units, edges, false};
}

const UnitTables *stage_bound_tables(Arena *arena, const BoundRequest *r,
                                     const BoundSetting *setting,
                                     MeshChains *chains) {
  const ClusterSlice *slice =
      stage_group_slice(arena, r->slice, setting->groups);
  bool has_links = slice != NULL;
  TableRequest request = {.loads = {r->units, setting->mesh,
                                    has_links ? slice : r->slice, r->model,
                                    setting->microbatches, chains},
                          .batch_axes = setting->batch_axes};
  Arena *scratch = arena_beside(arena);
  const UnitTables *all = unit_tables(scratch, &request);
  UnitTables *out = all ? ARENA_NEW(arena, UnitTables) : NULL;
  if (all) *out = (UnitTables){.is_partial = all->is_partial};
  if (all && !all->is_partial) copy_tables(arena, r, all, has_links, out);
  arena_destroy(scratch);
  return out;
}
