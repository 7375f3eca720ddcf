/*
 * compared.c -- compiles the plan of an assignment and compares its instruction
 * list with the loads of units and edges.
 */
#include <string.h>

#include "ir/list/instructions.h"
#include "planner/bound.h"
#include "planner/recheck/recheck.h"
#include "support/random.h"
#include "tests/assigned/assigned.h"

/* ---- launches, by path ---- */

typedef struct Launched {
  const char *path;
  bool attends;
  Ps time[2]; /* from tables; from the list */
} Launched;

typedef struct ByPath {
  Arena *arena;
  Map *found; /* hash of path and phase -> Launched */
} ByPath;

static Launched *launched(ByPath *by, const Node *node) {
  uint64_t hash = hash_bytes(node->path, strlen(node->path), node->phase);
  const void *key = (const void *)(uintptr_t)(hash | 1);
  Launched *of = map_get(by->found, key);
  if (of) return of;
  of = ARENA_NEW(by->arena, Launched);
  of->path = arena_strdup(by->arena, node->path);
  of->attends = op_has(node->op, OP_FLAG_attends);
  map_put(by->found, key, of);
  return of;
}

/* Fused kernels may be cut otherwise by collectives; these are never. */
static bool is_product(const Node *node) {
  return op_is(node->op, OPCLASS_contraction) ||
         op_is(node->op, OPCLASS_window) || op_has(node->op, OP_FLAG_attends);
}

static void add_launch(ByPath *by, const Node *node, int side, Ps time,
                       Sums *sums) {
  sums->launches[node->phase] += time;
  if (!is_product(node)) return;
  launched(by, node)->time[side] += time;
  *(op_has(node->op, OP_FLAG_attends) ? &sums->attention : &sums->products) +=
      time;
}

/* ---- from tables ---- */

static void add_links(Ps *to, const LinkLoad *links) {
  for (int l = 0; l < N_LOAD_LINKS; l++) to[l] += links->busy[l];
}

static void add_unit(const Program *p, const Drawn *d, ByPath *by, int unit,
                     Sums *sums) {
  const PlanUnit *u = p->units->units.data[unit];
  const Load *load = assigned_load_of(d, unit);
  const ZeroLoad *zero = &load->zero[d->proposal.zero];
  Assignment at = d->proposal.assignments[unit];
  for (int k = 0; k < u->kernels.n; k++)
    add_launch(by, p->units->graph->nodes.data[u->kernels.data[k].id], 0,
               loads_of_kernel(d->loads, unit, k, at), sums);
  sums->launches[PHASE_update] += zero->update;
  add_links(sums->links[PHASE_forward], &load->links[0]);
  add_links(sums->links[PHASE_input_gradient], &load->links[1]);
  add_links(sums->links[PHASE_weight_gradient], &zero->sums);
  add_links(sums->links[PHASE_update], &zero->gathers);
}

static void add_tables(const Program *p, const Drawn *d, ByPath *by,
                       Sums *sums) {
  const Units *units = p->units;
  for (int u = 0; u < units->units.n; u++) add_unit(p, d, by, u, sums);
  for (int i = 0; i < units->edges.n; i++)
    add_links(
        sums->links[units->edges.data[i].is_backward ? PHASE_input_gradient
                                                     : PHASE_forward],
        &assigned_edge_of(p, d, i)->links);
}

/* ---- from the list ---- */

static void add_transfer(const Trial *trial, Arena *arena, const Graph *graph,
                         int id, int64_t runs, Sums *sums) {
  const Priced *priced = &trial->priced;
  SimTransfer t =
      price_transfer(arena, &priced->model, &priced->slice, graph, id);
  for (int i = 0; i < t.n_loads; i++)
    if (t.loads[i].link < N_LOAD_LINKS)
      sums->links[graph->nodes.data[id]->phase][t.loads[i].link] +=
          runs * t.loads[i].busy;
}

static void add_list(const Trial *trial, Arena *arena, ByPath *by, Sums *sums) {
  const Graph *graph = trial->priced.stage->instructions->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int64_t runs =
        node_is_per_microbatch(graph, id) ? mesh_microbatches(&graph->mesh) : 1;
    if (!node_is_launched(graph, id)) continue;
    if (op_has(node->op, OP_FLAG_asynchronous)) {
      add_transfer(trial, arena, graph, id, runs, sums);
      continue;
    }
    LaunchCost cost = cost_launch(&trial->priced.model, graph, id);
    add_launch(by, node, 1, runs * (cost.launch + cost.time), sums);
  }
  sums->bytes = trial->priced.peak;
}

/* ---- both ---- */

static Ps apart(const Ps *time) {
  return time[0] > time[1] ? time[0] - time[1] : time[1] - time[0];
}

static void compare_launched(const ByPath *by, bool recomputes,
                             Comparison *out) {
  for (int i = 0; i < map_size(by->found); i++) {
    const Launched *of = map_value_at(by->found, i);
    /* A product that runs again has no path of a gradient. */
    if (recomputes && of->time[0] == 0) continue;
    bool differs = of->time[0] != of->time[1];
    ++*(of->attends ? &out->n_attention : &out->n_products);
    *(of->attends ? &out->n_other_attention : &out->n_other_products) +=
        differs;
    if (!differs || apart(of->time) <= apart(out->worst_of)) continue;
    out->worst = of->path;
    out->worst_of[0] = of->time[0];
    out->worst_of[1] = of->time[1];
  }
}

static BoundRequest request_of(const Program *program, const Trial *trial,
                               const Drawn *d) {
  const Mesh *mesh = d->proposal.place.mesh;
  return (BoundRequest){.units = program->units,
                        .slice = &d->slice,
                        .model = &d->model,
                        .ranks = mesh_ranks(mesh),
                        .mesh = mesh,
                        .microbatches = d->proposal.microbatches,
                        .zeros = 1u << d->proposal.zero,
                        .may_recompute = d->proposal.recomputes,
                        .memory = trial->priced.peak,
                        .step = 2 * trial->priced.price.step};
}

/* Returns a time below all plans of the mesh and the settings that need no more
 * memory; twice the step if the bound says that there is none. */
static Ps bound_of(Arena *arena, const BoundRequest *request) {
  Bound bound = plan_bound(arena, request);
  return bound.reason ? request->step : bound.time;
}

/* Returns the largest mean of loads of the assignment, those with a split too,
 * as the recheck adds it up. */
static Ps rechecked(Arena *arena, const BoundRequest *request, const Drawn *d) {
  BoundSetting setting = {.mesh = request->mesh,
                          .microbatches = request->microbatches,
                          .batch_axes = ANY_AXES,
                          .zero = d->proposal.zero,
                          .recomputes = d->proposal.recomputes};
  return recheck_load(arena, request, &setting, d->proposal.assignments).time;
}

static bool shards_more(const Type *type, Name batch_dim) {
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].split && type->dims[d].name != batch_dim) return true;
  return false;
}

/* Returns whether the bodies of all loops shard the batch alone, as the
 * restriction whole_loops says of the plans that are bounded. */
static bool are_loops_whole(const Graph *graph, Name batch_dim, bool is_body) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results && is_body; r++)
      if (shards_more(node->types[r], batch_dim)) return false;
    if (node->op == OP_scan && !are_loops_whole(node->body, batch_dim, true))
      return false;
  }
  return true;
}

Comparison assigned_compare(const Program *program, Arena *arena,
                            const Drawn *drawn) {
  Drawn own = *drawn, *d = &own;
  Comparison out = {0};
  ByPath by = {arena, map_create(arena)};
  const Pins *pins = assigned_read(program, arena, d->text);
  if (!pins) return out;
  Trial trial;
  TrialPlan plan = {.pins = pins, .is_training_only = true};
  Memory *memory = program->module->memory;
  out.is_legal =
      driver_try(&program->loaded, memory, &plan, &program->request, &trial);
  if (out.is_legal) {
    out.n_other_units = assigned_placed(program, arena, &trial, d);
    add_tables(program, d, &by, &out.tables);
    add_list(&trial, arena, &by, &out.list);
    compare_launched(&by, d->proposal.recomputes, &out);
    out.step = trial.priced.price.step;
    BoundRequest request = request_of(program, &trial, d);
    bool is_bounded = are_loops_whole(trial.priced.stage->instructions->graph,
                                      pins->batch_dim, false);
    out.bound = is_bounded ? bound_of(arena, &request) : 0;
    out.live = is_bounded ? assigned_live_bytes(program, d) : 0;
    out.mean = (Ps)assigned_largest_mean(program, d, &out.weights);
    Ps own = rechecked(arena, &request, d);
    if (own > out.mean) out.mean = own;
  }
  driver_end_trial(&trial);
  return out;
}
