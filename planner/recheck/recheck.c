/*
 * recheck.c -- answers the walk over settings: the least mean of loads of all
 * assignments, and the least bytes.
 *
 * A mean is a sum over copies of units and edges.  The least cost of each alone
 * adds up to a bound, too, which is mostly enough; else least.c finds the least
 * sum.  Costs are parts of a picosecond, BOUND_PARTS of them, rounded down.
 */
#include "planner/recheck/recheck.h"

#include <string.h>

#include "planner/recheck/copies.h"
#include "planner/recheck/costs.h"
#include "planner/recheck/least.h"
#include "planner/recheck/work.h"
#include "price/units/stage_groups.h"

enum { MOST_VALUES = 4096 };
#define MOST_ENTRIES ((int64_t)1 << 20)
/* A mean of weights in costs. */
#define PARTS_OF_WEIGHT ((double)BOUND_PARTS / BOUND_ONE)

typedef struct Recheck {
  Arena *arena;
  const BoundRequest *r;
  const BoundClaim *claim; /* NULL: none */
  bool is_wide;            /* some sum has no order of elimination */
  const char *fault;       /* of duals; NULL: none was found */
  const Copies *copies;
  const LeastPair *pairs; /* by copy of an edge */
  const Kinds *kinds;
  Costs *costs;
  Map *answered; /* BoundSetting -> ValuesList */
} Recheck;

/* The values of least sums, by copy of a unit. */
typedef struct ValuesList {
  VEC(const int *) list;
} ValuesList;

/* ---- tables of a mesh, micro-batches and axes of the batch ---- */

typedef struct ValueTable {
  VEC(Assignment) values;
  const UnitCost *costs; /* by value */
} ValueTable;

/* Values that place the value of an edge alike cost the same there. */
typedef struct Places {
  const int *of;   /* place, by value */
  VEC(int) values; /* by place: one that has it */
} Places;

typedef struct PlaceTable {
  Places from, to;
  const EdgeCost *costs; /* [place of `from` * places of `to` + that of `to`] */
} PlaceTable;

typedef struct Tables {
  ValueTable *units;   /* by kind */
  PlaceTable *edges;   /* by kind */
  const int *n_values; /* by copy */
  const LeastOrder *order;
  double chain;     /* a micro-batch through all stages and back */
  double in_flight; /* bytes of a group on average, but for one micro-batch */
} Tables;

/* Lists what each axis may shard, from this axis on. */
static void list_values(Recheck *k, const BoundSetting *s, const PlanUnit *unit,
                        int axis, Assignment at, ValueTable *out) {
  if (out->values.n > MOST_VALUES) return;
  if (axis == s->mesh->n_axes || axis == MOST_MESH_AXES) {
    if (costs_allow(k->costs, unit, at) &&
        costs_shard_batch(k->costs, unit, at, s->batch_axes))
      vec_push(k->arena, &out->values, at);
    return;
  }
  for (int loop = NO_LOOP; loop < unit->n_dims; loop++) {
    at.loop[axis] = (int8_t)loop;
    list_values(k, s, unit, axis + 1, at, out);
  }
}

static bool has_stages(const BoundSetting *s) {
  return s->groups > 1;
}

static double groups_of(const BoundSetting *s) {
  return has_stages(s) ? s->groups : 1;
}

/* A stage may end inside of a unit, where its sums are.  It may gather its
 * parameters while it waits.  A schedule may keep the inputs of a stage alone.
 */
static void leave_for_stages(UnitCost *cost) {
  for (int pass = 0; pass < 2; pass++) {
    cost->cut[pass] = 0;
    cost->links[pass] = (Busy){0};
  }
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++) cost->zero[zero].gathers = 0;
  cost->left = 0;
}

static void fill_units(Recheck *k, const BoundSetting *s, Tables *out) {
  out->units = ARENA_ARRAY(k->arena, ValueTable, k->kinds->n_units + 1);
  for (int i = 0; i < k->kinds->n_units; i++) {
    ValueTable *table = &out->units[i];
    int unit = k->kinds->first_unit[i];
    Assignment none;
    memset(none.loop, NO_LOOP, sizeof none.loop);
    list_values(k, s, k->r->units->units.data[unit], 0, none, table);
    UnitCost *costs = ARENA_ARRAY(k->arena, UnitCost, table->values.n + 1);
    for (int v = 0; v < table->values.n; v++)
      costs[v] = cost_of_unit(k->costs, unit, table->values.data[v]);
    for (int v = 0; v < table->values.n && has_stages(s); v++)
      leave_for_stages(&costs[v]);
    table->costs = costs;
  }
}

static bool are_placed_alike(const Recheck *k, const UnitEdge *edge,
                             const DimMap *dims, LoopSet partial, Assignment a,
                             Assignment b) {
  for (int d = 0; d < edge->type->rank; d++)
    if (costs_axes(k->costs, a, dims->at[d]) !=
        costs_axes(k->costs, b, dims->at[d]))
      return false;
  return costs_axes_of(k->costs, a, partial) ==
         costs_axes_of(k->costs, b, partial);
}

static Places places_of(Recheck *k, const UnitEdge *edge, const DimMap *dims,
                        LoopSet partial, const ValueTable *table) {
  Places out = {0};
  int *of = ARENA_ARRAY(k->arena, int, table->values.n + 1);
  for (int v = 0; v < table->values.n; v++) {
    int p = 0;
    while (p < out.values.n &&
           !are_placed_alike(k, edge, dims, partial, table->values.data[v],
                             table->values.data[out.values.data[p]]))
      p++;
    if (p == out.values.n) vec_push(k->arena, &out.values, v);
    of[v] = p;
  }
  out.of = of;
  return out;
}

/* `crosses`: it may be a message from one stage to another. */
static PlaceTable place_table(Recheck *k, const UnitEdge *edge, bool crosses,
                              const Tables *tables) {
  const ValueTable *from = &tables->units[k->kinds->of_unit[edge->from]];
  const ValueTable *to = &tables->units[k->kinds->of_unit[edge->to]];
  PlaceTable out = {places_of(k, edge, &edge->from_dims, edge->partial, from),
                    places_of(k, edge, &edge->to_dims, 0, to), NULL};
  int n_to = out.to.values.n;
  EdgeCost *costs =
      ARENA_ARRAY(k->arena, EdgeCost, out.from.values.n * n_to + 1);
  for (int i = 0; i < out.from.values.n; i++)
    for (int j = 0; j < n_to; j++)
      costs[i * n_to + j] =
          crosses ? (EdgeCost){.is_possible = true}
                  : cost_of_edge(k->costs, edge,
                                 from->values.data[out.from.values.data[i]],
                                 to->values.data[out.to.values.data[j]]);
  out.costs = costs;
  return out;
}

/* ---- micro-batches in flight ---- */

static double least_of_kernel(Recheck *k, const Tables *tables,
                              const SpanKernel *kernel) {
  const ValueTable *table = &tables->units[k->kinds->of_unit[kernel->unit]];
  double least = 0;
  for (int v = 0; v < table->values.n; v++) {
    double time = cost_of_kernel(k->costs, kernel->unit, kernel->kernel,
                                 table->values.data[v]);
    if (v == 0 || time < least) least = time;
  }
  return least;
}

/* Returns how long all micro-batches together run between a saved value of copy
 * `copy` of its block, and the reader of the value. */
static double time_between(const Recheck *k, const StageSpan *span,
                           int64_t copy, const double *least) {
  const Units *units = k->r->units;
  const PlanUnit *of = units->units.data[span->unit];
  double sum = 0;
  for (int i = 0; i < k->r->spans->n_kernels; i++) {
    const PlanUnit *unit = units->units.data[k->r->spans->kernels[i].unit];
    int64_t times = unit->times;
    if (!span->between[i]) continue;
    /* The copies behind have what the next block has. */
    if (of->times > 1 && unit->block == of->block) times = 1;
    if (of->times > 1 && unit->block == of->block + 1)
      times += of->times - 1 - copy;
    sum += least[i] * (double)times;
  }
  return sum;
}

static void find_flow(Recheck *k, const BoundSetting *s, Tables *out) {
  const StageSpans *spans = k->r->spans;
  double once = 0, stored = 0;
  if (!has_stages(s) || !spans) return;
  double *least = ARENA_ARRAY(k->arena, double, spans->n_kernels + 1);
  for (int i = 0; i < spans->n_kernels; i++)
    least[i] = least_of_kernel(k, out, &spans->kernels[i]);
  for (int i = 0; i < spans->spans.n; i++) {
    const StageSpan *span = &spans->spans.data[i];
    double bytes = cost_of_saved(k->costs, span->unit, span->saved);
    for (int64_t t = 0; t < k->r->units->units.data[span->unit]->times; t++) {
      double time = time_between(k, span, t, least);
      once += bytes;
      stored += bytes * time / (double)k->claim->step;
      if (time / (double)s->microbatches > out->chain)
        out->chain = time / (double)s->microbatches;
    }
  }
  if (stored > once) out->in_flight = (stored - once) / groups_of(s);
}

static void make_order(Recheck *k, Tables *out) {
  int *n_values = ARENA_ARRAY(k->arena, int, k->copies->n + 1);
  for (int i = 0; i < k->copies->n; i++)
    n_values[i] = out->units[k->kinds->of_unit[k->copies->unit[i]]].values.n;
  out->n_values = n_values;
  out->order = least_order(k->arena, k->copies->n, n_values, k->copies->n_edges,
                           k->pairs, MOST_ENTRIES);
}

static const void *open_tables(void *user, const BoundSetting *setting,
                               const char **out_reason) {
  Recheck *k = user;
  Tables *out = ARENA_NEW(k->arena, Tables);
  const ClusterSlice *ranks = k->r->slice;
  if (has_stages(setting))
    ranks = stage_group_slice(k->arena, ranks, setting->groups);
  costs_set(k->costs, ranks, setting->mesh, setting->microbatches);
  fill_units(k, setting, out);
  for (int i = 0; i < k->kinds->n_units; i++) {
    if (out->units[i].values.n == 0) return NULL;
    if (out->units[i].values.n > MOST_VALUES)
      *out_reason = "a unit has too many assignments";
  }
  if (*out_reason) return NULL;
  out->edges = ARENA_ARRAY(k->arena, PlaceTable, k->kinds->n_edges + 1);
  for (int i = 0; i < k->kinds->n_edges; i++) {
    int edge = k->kinds->first_edge[i];
    bool crosses = has_stages(setting) && k->r->crosses[edge];
    out->edges[i] =
        place_table(k, &k->r->units->edges.data[edge], crosses, out);
  }
  find_flow(k, setting, out);
  make_order(k, out);
  k->is_wide |= !out->order;
  return out;
}

/* ---- a mean ---- */

static double bytes_of(const BoundSetting *s, const UnitCost *cost) {
  const StateCost *state = &cost->zero[s->zero];
  double kept = s->recomputes ? cost->left : cost->saved;
  return state->state + kept + (s->microbatches > 1 ? state->gradients : 0);
}

static UnitSide side_of(const Recheck *k, const BoundQuestion *q, int unit) {
  return k->r->units->splits.data[q->weights.split].units[unit];
}

/* Light kernels may run during a cut. */
static double chain_with_cuts(const UnitCost *cost) {
  return cost->chain - cost->light[1] + cost->cut[1];
}

/* The kernels of the backward pass, one after the other.  With a split these
 * are those of the rest, behind the chain of the head. */
static double backward_stream(const Recheck *k, const BoundQuestion *q,
                              int unit, const UnitCost *cost, double taken) {
  double stream =
      cost->chain + cost->weights + taken * cost->zero[q->setting->zero].sums;
  if (q->weights.split >= 0) switch (side_of(k, q, unit)) {
    case SIDE_rest: return stream;
    case SIDE_head: return chain_with_cuts(cost);
    case SIDE_both: return cost->chain - cost->light[1];
    }
  /* A block is computed again up to what it leaves. */
  bool runs_again = q->setting->recomputes && cost->runs_again;
  return stream + (runs_again ? cost->forward - cost->casts : 0);
}

/* Returns what a unit adds to the mean, bytes at their price included. */
static double unit_mean(const Recheck *k, const BoundQuestion *q, int unit,
                        const UnitCost *cost) {
  const int *w = q->weights.of, link = q->weights.link;
  const StateCost *state = &cost->zero[q->setting->zero];
  /* Transfers take a part of the stream that they run beside. */
  double taken = (double)k->r->model->rates.interference / (double)SIM_ONE;
  /* With ZeRO 3 each micro-batch gathers what level 1 gathers once; what it
   * gathers again for its backward pass might have been kept, and what a stage
   * reads first for the whole step. */
  bool in_any = q->setting->zero == 3;
  const StateCost *once = in_any ? &cost->zero[1] : state;
  double times =
      in_any && !has_stages(q->setting) ? (double)q->setting->microbatches : 1;
  double gathers = once->gather_links.of[link] * times;
  double sums = state->sum_links.of[link];
  double forward = cost->links[0].of[link], backward = cost->links[1].of[link];
  /* With ZeRO 3 it is not known in which pass a gather runs. */
  int of_gathers = w[BOUND_forward_stream];
  if (in_any && w[BOUND_backward_stream] < of_gathers)
    of_gathers = w[BOUND_backward_stream];
  return w[BOUND_forward_stream] * (cost->forward - state->whole_casts -
                                    cost->light[0] + cost->cut[0]) +
         of_gathers * taken * once->gathers * times +
         w[BOUND_forward_link] * (forward + (in_any ? 0 : gathers)) +
         w[BOUND_backward_stream] * backward_stream(k, q, unit, cost, taken) +
         w[BOUND_backward_chain] * chain_with_cuts(cost) +
         w[BOUND_backward_link] * (backward + sums) +
         w[BOUND_all_link] * (forward + backward + gathers + sums) +
         (BOUND_ONE - w[BOUND_all_link]) * state->update +
         q->weights.per_byte * BOUND_ONE * bytes_of(q->setting, cost);
}

static double edge_mean(const BoundQuestion *q, const UnitEdge *edge,
                        bool is_head, const EdgeCost *cost) {
  const int *w = q->weights.of;
  int of_wait =
      edge->is_backward ? w[BOUND_backward_chain] : w[BOUND_forward_stream];
  int of_link =
      edge->is_backward ? w[BOUND_backward_link] : w[BOUND_forward_link];
  if (edge->is_backward && is_head) of_wait += w[BOUND_backward_stream];
  return (edge->is_cut ? of_wait * cost->wait : 0) +
         (of_link + w[BOUND_all_link]) * cost->links.of[q->weights.link];
}

static int64_t rounded(double cost) {
  return cost < (double)LEAST_MOST ? (int64_t)cost : LEAST_MOST;
}

/* ---- sums ---- */

/* Costs of a table, and the least of them. */
typedef struct Column {
  const int64_t *costs;
  int64_t least;
} Column;

enum { N_SIDES = 3 };

/* A question with its costs, by kind and by side of a split. */
typedef struct Sum {
  Recheck *k;
  const BoundQuestion *q;
  const Tables *tables;
  Arena *arena;
  Column *units, *edges; /* of edges: by place */
  PairTable *pairs;      /* by value; are made when they are needed */
} Sum;

static int64_t least_cost(const int64_t *costs, int n) {
  int64_t least = LEAST_MOST;
  for (int i = 0; i < n; i++)
    if (costs[i] < least) least = costs[i];
  return least;
}

static const Column *unit_column(Sum *s, int unit) {
  int kind = s->k->kinds->of_unit[unit];
  int side = s->q->weights.split < 0 ? 0 : (int)side_of(s->k, s->q, unit);
  Column *out = &s->units[kind * N_SIDES + side];
  const ValueTable *table = &s->tables->units[kind];
  if (out->costs) return out;
  int64_t *costs = ARENA_ARRAY(s->arena, int64_t, table->values.n);
  for (int v = 0; v < table->values.n; v++)
    costs[v] = rounded(unit_mean(s->k, s->q, unit, &table->costs[v]) *
                       PARTS_OF_WEIGHT / groups_of(s->q->setting));
  *out = (Column){costs, least_cost(costs, table->values.n)};
  return out;
}

/* Returns where the column of an edge is. */
static int edge_column(const Sum *s, int edge) {
  int split = s->q->weights.split;
  bool is_head = split >= 0 && s->k->r->units->splits.data[split].is_head[edge];
  return s->k->kinds->of_edge[edge] * 2 + is_head;
}

static const Column *make_edge_column(Sum *s, int edge) {
  int at = edge_column(s, edge);
  Column *out = &s->edges[at];
  const PlaceTable *table = &s->tables->edges[at / 2];
  int n = table->from.values.n * table->to.values.n;
  if (out->costs) return out;
  int64_t *costs = ARENA_ARRAY(s->arena, int64_t, n);
  for (int i = 0; i < n; i++)
    costs[i] = table->costs[i].is_possible
                   ? rounded(edge_mean(s->q, &s->k->r->units->edges.data[edge],
                                       at % 2, &table->costs[i]) *
                             PARTS_OF_WEIGHT / groups_of(s->q->setting))
                   : LEAST_MOST;
  *out = (Column){costs, least_cost(costs, n)};
  return out;
}

static int64_t sum_of_least(Sum *s) {
  const Copies *copies = s->k->copies;
  int64_t sum = 0;
  for (int i = 0; i < copies->n; i++)
    sum += unit_column(s, copies->unit[i])->least;
  for (int i = 0; i < copies->n_edges; i++)
    sum += make_edge_column(s, copies->edges[i].edge)->least;
  return sum;
}

/* Some group has each unit whole that is in one stage. */
static int64_t largest_of_groups(Sum *s) {
  int64_t largest = 0;
  for (int u = 0; u < s->k->r->units->units.n && has_stages(s->q->setting);
       u++) {
    int64_t least = unit_column(s, u)->least;
    if (least > largest && unit_is_in_one_stage(s->k->r->units, u))
      largest = least;
  }
  return largest * (int64_t)groups_of(s->q->setting);
}

/* Writes the column of an edge out by values. */
static const PairTable *pair_table(Sum *s, int edge) {
  int at = edge_column(s, edge);
  PairTable *out = &s->pairs[at];
  const PlaceTable *table = &s->tables->edges[at / 2];
  const UnitEdge *of = &s->k->r->units->edges.data[edge];
  int n_from = s->tables->units[s->k->kinds->of_unit[of->from]].values.n;
  int n_to = s->tables->units[s->k->kinds->of_unit[of->to]].values.n;
  if (out->costs) return out;
  int64_t *costs = ARENA_ARRAY(s->arena, int64_t, n_from * n_to);
  int64_t *turned = ARENA_ARRAY(s->arena, int64_t, n_from * n_to);
  for (int i = 0; i < n_from; i++)
    for (int j = 0; j < n_to; j++)
      costs[i * n_to + j] = turned[j * n_from + i] =
          s->edges[at]
              .costs[table->from.of[i] * table->to.values.n + table->to.of[j]];
  *out = (PairTable){costs, turned};
  return out;
}

static void note_values(Recheck *k, const BoundSetting *setting,
                        const int *values) {
  ValuesList *of = map_get(k->answered, setting);
  if (!of) {
    of = ARENA_NEW(k->arena, ValuesList);
    map_put(k->answered, setting, of);
  }
  vec_push(k->arena, &of->list, values);
}

static int64_t least_of_all(Sum *s, double *out_bytes) {
  const Copies *copies = s->k->copies;
  const int64_t **own = ARENA_ARRAY(s->arena, const int64_t *, copies->n + 1);
  const PairTable **pairs =
      ARENA_ARRAY(s->arena, const PairTable *, copies->n_edges + 1);
  int *values = ARENA_ARRAY(s->k->arena, int, copies->n + 1);
  for (int i = 0; i < copies->n; i++)
    own[i] = unit_column(s, copies->unit[i])->costs;
  for (int i = 0; i < copies->n_edges; i++)
    pairs[i] = pair_table(s, copies->edges[i].edge);
  int64_t sum = least_sum(s->arena, s->tables->order, own, pairs, values);
  for (int i = 0; i < copies->n; i++) {
    int kind = s->k->kinds->of_unit[copies->unit[i]];
    *out_bytes +=
        bytes_of(s->q->setting, &s->tables->units[kind].costs[values[i]]);
  }
  note_values(s->k, s->q->setting, values);
  return sum;
}

/* ---- sums that duals prove ---- */

static const FactorCost *allowed(Sum *s, Map *known, const int64_t *costs,
                                 int n) {
  FactorCost *out = map_get(known, costs);
  if (out) return out;
  out = ARENA_ARRAY(s->arena, FactorCost, n);
  for (int i = 0; i < n; i++)
    out[i] = costs[i] < LEAST_MOST ? costs[i] : FACTOR_FORBIDDEN;
  map_put(known, costs, out);
  return out;
}

static const FactorProblem *problem_of(Sum *s) {
  const Copies *copies = s->k->copies;
  const int *n_values = s->tables->n_values;
  Map *known = map_create(s->arena);
  FactorProblem *out = factor_create(s->arena);
  for (int i = 0; i < copies->n; i++)
    factor_add_variable(
        out, n_values[i],
        allowed(s, known, unit_column(s, copies->unit[i])->costs, n_values[i]));
  for (int i = 0; i < copies->n_edges; i++) {
    const EdgeCopy *edge = &copies->edges[i];
    factor_add_pair(out, edge->from, edge->to,
                    allowed(s, known, pair_table(s, edge->edge)->costs,
                            n_values[edge->from] * n_values[edge->to]));
  }
  return out;
}

static const char *fault_of_duals(const Sum *s, const DualsCheck *check) {
  Text out = text_create(s->k->arena);
  text_add(&out, "the duals of plans of ");
  bound_setting_print(&out, s->q->setting);
  text_printf(&out, " prove nothing: %s", check->fault);
  if (check->step >= 0) text_printf(&out, " (step %d)", check->step);
  return text_string(&out);
}

/* Returns what duals prove about the sum.  Costs differ in the last digits from
 * those by which the duals were made. */
static int64_t sum_of_duals(Sum *s, const FactorDuals *of) {
  FactorDuals duals = *of;
  duals.bound = -FACTOR_MOST_SUM;
  DualsCheck check = recheck_duals(s->arena, problem_of(s), &duals);
  int64_t sum = check.bound < duals.best ? check.bound : duals.best;
  if (!check.fault &&
      (double)sum < (double)of->bound * (1 - 1e-9) - BOUND_PARTS)
    check.fault = "the sums are less than the bound";
  if (!check.fault) return sum;
  s->k->fault = fault_of_duals(s, &check);
  return 0;
}

static const SettingDuals *duals_of(const Recheck *k,
                                    const BoundSetting *setting) {
  return bound_duals_find(k->claim ? k->claim->duals : NULL, setting);
}

/* A file may name any link and split, and prices of other devices. */
static bool are_there(const BoundWeights *weights, const Units *units) {
  return weights->link < N_LOAD_LINKS && weights->split < units->splits.n &&
         weights->n_kinds == 0;
}

static const BoundWeights *known_weights(void *user,
                                         const BoundSetting *setting) {
  Recheck *k = user;
  const SettingDuals *duals = duals_of(k, setting);
  if (!duals || are_there(&duals->weights, k->r->units))
    return duals ? &duals->weights : NULL;
  k->fault = "the duals name a link or a split that is not there";
  return NULL;
}

/* ---- what the walk asks ---- */

/* A schedule that computes stages again may keep no more than their inputs. */
static double in_flight(const BoundQuestion *q) {
  const Tables *tables = q->tables;
  return q->setting->recomputes ? 0 : tables->in_flight;
}

/* Costs are means over groups, each of which may have the bytes of a rank. */
static Ps time_of(const Sum *s, int64_t sum) {
  double memory = (double)s->k->r->memory - in_flight(s->q);
  double free = s->q->weights.per_byte * memory;
  return (Ps)((double)sum / BOUND_PARTS - free);
}

/* Sums over the model, each only if those before it do not reach the step. */
static BoundAnswer answer_by_sums(Sum *s) {
  BoundAnswer out = {.is_known = true, .time = time_of(s, sum_of_least(s))};
  const SettingDuals *duals = duals_of(s->k, s->q->setting);
  double bytes = 0;
  if (out.time < s->k->r->step && duals &&
      bound_duals_have(duals, &s->q->weights)) {
    Ps proved = time_of(s, sum_of_duals(s, &duals->duals));
    if (proved > out.time) out.time = proved;
  }
  if (out.time < s->k->r->step && s->tables->order) {
    out.time = time_of(s, least_of_all(s, &bytes));
    out.bytes = (Bytes)(bytes / groups_of(s->q->setting) + in_flight(s->q));
  }
  return out;
}

static BoundAnswer answer(void *user, const BoundQuestion *question) {
  Recheck *k = user;
  Sum s = {.k = k,
           .q = question,
           .tables = question->tables,
           .arena = arena_beside(k->arena)};
  s.units = ARENA_ARRAY(s.arena, Column, k->kinds->n_units * N_SIDES + 1);
  s.edges = ARENA_ARRAY(s.arena, Column, k->kinds->n_edges * 2 + 1);
  s.pairs = ARENA_ARRAY(s.arena, PairTable, k->kinds->n_edges * 2 + 1);
  BoundAnswer out = answer_by_sums(&s);
  Ps whole = time_of(&s, largest_of_groups(&s));
  if (whole > out.time) {
    out.time = whole;
    out.by = BOUND_BY_operator;
  }
  if (s.tables->chain > (double)out.time) {
    out.time = (Ps)s.tables->chain;
    out.by = BOUND_BY_chain;
  }
  arena_destroy(s.arena);
  return out;
}

static Bytes least_bytes(void *user, const BoundQuestion *question) {
  const Recheck *k = user;
  const Tables *tables = question->tables;
  double sum = 0;
  for (int u = 0; u < k->r->units->units.n; u++) {
    const ValueTable *table = &tables->units[k->kinds->of_unit[u]];
    double least = bytes_of(question->setting, &table->costs[0]);
    for (int v = 1; v < table->values.n; v++) {
      double bytes = bytes_of(question->setting, &table->costs[v]);
      if (bytes < least) least = bytes;
    }
    sum += least * (double)k->r->units->units.data[u]->times;
  }
  return (Bytes)(sum / groups_of(question->setting) + in_flight(question));
}

/* The mean of an assignment of copies, with no price of memory. */
static double mean_of_values(const Recheck *k, const BoundQuestion *q,
                             const int *values) {
  const Tables *tables = q->tables;
  int split = q->weights.split;
  double sum = 0;
  for (int i = 0; i < k->copies->n; i++) {
    int unit = k->copies->unit[i];
    sum += unit_mean(k, q, unit,
                     &tables->units[k->kinds->of_unit[unit]].costs[values[i]]);
  }
  for (int i = 0; i < k->copies->n_edges; i++) {
    const EdgeCopy *copy = &k->copies->edges[i];
    const PlaceTable *table = &tables->edges[k->kinds->of_edge[copy->edge]];
    bool is_head =
        split >= 0 && k->r->units->splits.data[split].is_head[copy->edge];
    int at = table->from.of[values[copy->from]] * table->to.values.n +
             table->to.of[values[copy->to]];
    sum += edge_mean(q, &k->r->units->edges.data[copy->edge], is_head,
                     &table->costs[at]);
  }
  return sum / BOUND_ONE / groups_of(q->setting);
}

static double bytes_of_values(const Recheck *k, const BoundQuestion *q,
                              const int *values) {
  const Tables *tables = q->tables;
  double sum = 0;
  for (int i = 0; i < k->copies->n; i++) {
    int kind = k->kinds->of_unit[k->copies->unit[i]];
    sum += bytes_of(q->setting, &tables->units[kind].costs[values[i]]);
  }
  return sum / groups_of(q->setting) + in_flight(q);
}

static bool loads_of_answer(void *user, const BoundQuestion *question, int at,
                            BoundLoads *out) {
  const Recheck *k = user;
  const ValuesList *of = map_get(k->answered, question->setting);
  if (!of || at >= of->list.n) return false;
  for (int i = 0; i < N_BOUND_EXTREMES; i++) {
    BoundQuestion q = *question;
    bound_set_extreme(&q.weights, i);
    out->of[i] = mean_of_values(k, &q, of->list.data[at]);
  }
  out->bytes = bytes_of_values(k, question, of->list.data[at]);
  return true;
}

static Bound walk(Arena *arena, const BoundRequest *request,
                  const BoundClaim *claim, bool *out_is_wide) {
  Recheck k = {.arena = arena,
               .r = request,
               .claim = claim,
               .answered = map_create(arena),
               .copies = copies_of(arena, request->units),
               .kinds = kinds_of(arena, request->units, request->crosses)};
  if (!k.copies)
    return (Bound){.reason = "blocks that are not neighbours share a value"};
  LeastPair *pairs = ARENA_ARRAY(arena, LeastPair, k.copies->n_edges + 1);
  for (int i = 0; i < k.copies->n_edges; i++)
    pairs[i] = (LeastPair){k.copies->edges[i].from, k.copies->edges[i].to};
  k.pairs = pairs;
  k.costs = costs_create(arena, request);
  BoundEvaluator evaluator = {.user = &k,
                              .open = open_tables,
                              .answer = answer,
                              .least_bytes = least_bytes,
                              .known = known_weights,
                              .loads = loads_of_answer};
  Bound out = bound_walk(arena, request, &evaluator);
  costs_destroy(k.costs);
  out.fault = k.fault;
  *out_is_wide = k.is_wide;
  return out;
}

bool recheck_holds(const Bound *found, const BoundClaim *claim) {
  return !found->fault &&
         (double)found->time >= (double)claim->bound * (1 - 1e-9) - 1;
}

/* Settings that reach the claim get no more work.  Where one does not, each
 * gets as much as in a search. */
Bound recheck_bound(Arena *arena, const BoundRequest *request,
                    const BoundClaim *claim) {
  BoundRequest space = *request;
  bool is_wide = false;
  if (space.n_kinds > 0)
    return (Bound){.time = recheck_work(arena, request, &claim->weights),
                   .weights = claim->weights,
                   .by = BOUND_BY_work};
  if (are_there(&claim->weights, request->units)) space.first = &claim->weights;
  space.step = claim->bound;
  Bound found = walk(arena, &space, claim, &is_wide);
  if (found.reason || found.fault || recheck_holds(&found, claim)) return found;
  if (is_wide && !claim->duals)
    return (Bound){.reason = "a table would be too large, and no duals are "
                             "named: 'dnnc plan -o PLAN' writes them beside "
                             "the plan"};
  space.step = claim->step;
  return walk(arena, &space, claim, &is_wide);
}

/* ---- one plan ---- */

typedef struct OwnCosts {
  UnitCost *units;
  EdgeCost *edges;
} OwnCosts;

/* Returns false if the space has no such plan. */
static bool own_costs(const Recheck *k, const BoundSetting *setting,
                      const Assignment *assignments, OwnCosts *out) {
  const Units *units = k->r->units;
  out->units = ARENA_ARRAY(k->arena, UnitCost, units->units.n + 1);
  out->edges = ARENA_ARRAY(k->arena, EdgeCost, units->edges.n + 1);
  for (int u = 0; u < units->units.n; u++) {
    if (!costs_allow(k->costs, units->units.data[u], assignments[u]))
      return false;
    out->units[u] = cost_of_unit(k->costs, u, assignments[u]);
    if (has_stages(setting)) leave_for_stages(&out->units[u]);
  }
  for (int i = 0; i < units->edges.n; i++) {
    const UnitEdge *edge = &units->edges.data[i];
    if (has_stages(setting) && k->r->crosses[i]) continue; /* a message */
    out->edges[i] = cost_of_edge(k->costs, edge, assignments[edge->from],
                                 assignments[edge->to]);
    if (!out->edges[i].is_possible) return false;
  }
  return true;
}

static double own_mean(const Recheck *k, const BoundQuestion *q,
                       const OwnCosts *own) {
  const Units *units = k->r->units;
  int split = q->weights.split;
  double sum = 0;
  for (int u = 0; u < units->units.n; u++)
    sum += (double)units->units.data[u]->times *
           unit_mean(k, q, u, &own->units[u]);
  for (int i = 0; i < units->edges.n; i++) {
    const UnitEdge *edge = &units->edges.data[i];
    bool is_head = split >= 0 && units->splits.data[split].is_head[i];
    sum += (double)edge->times * edge_mean(q, edge, is_head, &own->edges[i]);
  }
  return sum / BOUND_ONE / groups_of(q->setting);
}

static void note_load(OwnLoad *out, double time, const BoundWeights *weights,
                      int unit) {
  if (time > (double)out->time) *out = (OwnLoad){(Ps)time, *weights, unit};
}

static void find_largest(const Recheck *k, const BoundQuestion *q,
                         const OwnCosts *own, OwnLoad *out) {
  const Units *units = k->r->units;
  note_load(out, own_mean(k, q, own), &q->weights, -1);
  for (int u = 0; u < units->units.n && has_stages(q->setting); u++)
    if (unit_is_in_one_stage(units, u))
      note_load(out, unit_mean(k, q, u, &own->units[u]) / BOUND_ONE,
                &q->weights, u);
}

static OwnLoad largest_load(const Recheck *k, const BoundSetting *setting,
                            const OwnCosts *own) {
  OwnLoad out = {.unit = -1};
  for (int i = 0; i < N_BOUND_EXTREMES; i++)
    for (int link = 0; link < N_LOAD_LINKS; link++)
      for (int split = -1; split < k->r->units->splits.n; split++) {
        BoundQuestion q = {.setting = setting,
                           .weights = {.link = link, .split = split}};
        if (split >= 0 && bound_extremes[i][1] != BOUND_backward_stream) break;
        q.weights.of[bound_extremes[i][0]] =
            q.weights.of[bound_extremes[i][1]] = BOUND_ONE;
        if (bound_weights_suit(&q.weights, setting->groups))
          find_largest(k, &q, own, &out);
      }
  return out;
}

OwnLoad recheck_load(Arena *arena, const BoundRequest *request,
                     const BoundSetting *setting,
                     const Assignment *assignments) {
  Recheck k = {.arena = arena, .r = request};
  OwnCosts own;
  OwnLoad out = {.time = -1, .unit = -1};
  const ClusterSlice *ranks = request->slice;
  if (has_stages(setting))
    ranks = stage_group_slice(arena, ranks, setting->groups);
  k.costs = costs_create(arena, request);
  costs_set(k.costs, ranks, setting->mesh, setting->microbatches);
  if (own_costs(&k, setting, assignments, &own))
    out = largest_load(&k, setting, &own);
  costs_destroy(k.costs);
  return out;
}
