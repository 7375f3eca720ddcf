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
 *   - what gathers of parameters take from kernels beside them;
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
    of->bulk = of->summed = 0;
    if (has_links) continue;
    of->least_summed = 0;
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
  TableRequest request = {.loads = {.units = r->units,
                                    .mesh = setting->mesh,
                                    .slice = has_links ? slice : r->slice,
                                    .model = r->model,
                                    .microbatches = setting->microbatches,
                                    .chains = chains},
                          .batch_axes = setting->batch_axes};
  Arena *scratch = arena_beside(arena);
  const UnitTables *all = unit_tables(scratch, &request);
  UnitTables *out = all ? ARENA_NEW(arena, UnitTables) : NULL;
  if (all) *out = (UnitTables){.is_partial = all->is_partial};
  if (all && !all->is_partial) copy_tables(arena, r, all, has_links, out);
  arena_destroy(scratch);
  return out;
}

/* ---- one micro-batch ---- */

typedef struct Flow {
  const BoundRequest *r;
  const UnitTables *tables;
  Loads *loads;
  Ps *times; /* by kernel of the spans, the least of all assignments */
} Flow;

static const PlanUnit *unit_of(const Flow *f, int unit) {
  return f->r->units->units.data[unit];
}

static Ps least_time(const Flow *f, const SpanKernel *kernel) {
  const UnitShape *shape = f->tables->unit[kernel->unit];
  Ps least = INT64_MAX;
  for (int v = 0; v < shape->n_values; v++) {
    Ps time = loads_of_kernel(f->loads, kernel->unit, kernel->kernel,
                              shape->values[v]);
    if (time < least) least = time;
  }
  return least;
}

/* How long kernels of a step run while the value of a block is stored, and what
 * each copy of the block behind it adds. */
typedef struct SpanTime {
  double own, of_copy;
} SpanTime;

static SpanTime time_of_span(const Flow *f, const StageSpan *span) {
  const StageSpans *spans = f->r->spans;
  const PlanUnit *maker = unit_of(f, span->unit);
  SpanTime out = {0, 0};
  for (int k = 0; k < spans->n_kernels; k++) {
    const PlanUnit *unit = unit_of(f, spans->kernels[k].unit);
    double time = (double)f->times[k];
    bool is_inside = maker->times > 1 && unit->block == maker->block;
    if (!span->between[k]) continue;
    out.own += time * (is_inside ? 1 : (double)unit->times);
    if (maker->times > 1 && unit->block == maker->block + 1)
      out.of_copy += time;
  }
  return out;
}

/* A byte of a micro-batch that is stored for as long as kernels of the step run
 * is there for a part of the step. */
StageFlow stage_bound_flow(Arena *arena, const BoundRequest *r,
                           const BoundSetting *setting,
                           const UnitTables *tables, MeshChains *chains) {
  StageFlow out = {0, 0};
  const ClusterSlice *slice =
      stage_group_slice(arena, r->slice, setting->groups);
  LoadRequest request = {.units = r->units,
                         .mesh = setting->mesh,
                         .slice = slice ? slice : r->slice,
                         .model = r->model,
                         .microbatches = setting->microbatches,
                         .chains = chains};
  double once = 0, stored = 0, longest = 0;
  if (!r->spans) return out;
  Arena *scratch = arena_beside(arena);
  Flow f = {r, tables, loads_create(scratch, &request),
            ARENA_ARRAY(scratch, Ps, r->spans->n_kernels + 1)};
  for (int k = 0; k < r->spans->n_kernels; k++)
    f.times[k] = least_time(&f, &r->spans->kernels[k]);
  for (int i = 0; i < r->spans->spans.n; i++) {
    const StageSpan *span = &r->spans->spans.data[i];
    double copies = (double)unit_of(&f, span->unit)->times;
    SpanTime time = time_of_span(&f, span);
    double bytes = (double)loads_of_saved(f.loads, span->unit, span->saved);
    double all = copies * time.own + copies * (copies - 1) / 2 * time.of_copy;
    double first = time.own + (copies - 1) * time.of_copy;
    once += copies * bytes;
    stored += bytes * all / (double)r->step;
    if (first > longest) longest = first;
  }
  out.chain = (Ps)(longest / (double)setting->microbatches);
  if (stored > once) out.bytes = (stored - once) / setting->groups;
  arena_destroy(scratch);
  return out;
}
