/*
 * bound.c -- bounds the step of all plans of a setting from below.
 *
 * A setting is a mesh, micro-batches, a level of ZeRO and whether blocks are
 * computed again.  The step of each of its plans is at least every weighted
 * mean of some loads (bound_weights.def), which are sums over units and edges;
 * the least sum over all assignments is found by elimination.  A plan that fits
 * has no more bytes than a rank, so each byte beyond may cost any price
 * (Everett, Generalized Lagrange multiplier method, 1963):
 *
 *     step >= least of (mean of loads + price x (bytes - memory))
 *
 * Which settings and means there are is decided by bound_walk.c.
 */
#include "planner/bound.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "planner/solve/eliminate.h"
#include "planner/stages/stage_bound.h"
#include "planner/unit_tables.h"
#include "planner/unroll.h"
#include "planner/work/work_bound.h"
#include "price/units/stage_groups.h"

/* Tables that are larger take seconds and hardly raise the bound. */
#define MOST_ENTRIES ((int64_t)1 << 12)

/* Weights are finer than the costs that they weigh. */
enum { PARTS_OF_WEIGHT = BOUND_ONE / BOUND_PARTS };

/* A mean that was asked for, and the assignment at which it is the least. */
typedef struct Answer {
  BoundWeights weights;
  const uint16_t *values; /* by unit */
  Ps time, alone;         /* as in BoundMean */
  BoundBy by_alone;
} Answer;

typedef struct Answered {
  const BoundSetting *setting;
  const UnitTables *tables;
  VEC(Answer) answers;
} Answered;

struct BoundMeans {
  Arena *arena;
  const BoundRequest *r;
  const Unrolled *all;
  Map *answered;      /* BoundSetting -> Answered */
  Map *flows;         /* tables with stages -> StageFlow */
  MeshChains *chains; /* of the meshes of settings */
};

typedef BoundMeans Bounding;

/* ---- one elimination ---- */

typedef struct Aim {
  const Bounding *b;
  const BoundSetting *s;
  const UnitTables *tables;
  BoundWeights weights;
} Aim;

/* The least bytes that a plan has at some time: what is kept for the backward
 * pass at its begin; with several micro-batches, gradients beside it. */
static Bytes bytes_of(const Load *load, const BoundSetting *s) {
  const ZeroLoad *zero = &load->zero[s->zero];
  return zero->least_state +
         (s->recomputes ? load->least_left : load->least_saved) +
         (s->microbatches > 1 ? zero->least_gradient : 0);
}

static int groups_of(const BoundSetting *s) {
  return s->groups > 1 ? s->groups : 1;
}

static StageFlow flow_of(const Bounding *b, const void *tables) {
  const StageFlow *flow = map_get(b->flows, tables);
  return flow ? *flow : (StageFlow){0, 0};
}

/* Bytes of micro-batches in flight.  A schedule may keep the inputs of stages
 * alone where it computes again. */
static double bytes_in_flight(const Bounding *b, const BoundSetting *s,
                              const void *tables) {
  return s->recomputes ? 0 : flow_of(b, tables).bytes;
}

static double interference(const Bounding *b) {
  return (double)b->r->model->rates.interference / (double)SIM_ONE;
}

/* Only a unit with values that its block does not leave runs again. */
static double runs_again(const Aim *aim, const Load *load, int unit) {
  bool runs = aim->s->recomputes && load->saved > load->left &&
              aim->b->r->units->units.data[unit]->block >= 0;
  return runs ? (double)(load->forward - load->casts) : 0;
}

/* The stream of the backward pass.  What is computed again can be in the head,
 * too. */
static double backward_stream(const Aim *aim, const Load *load, int unit) {
  const Units *units = aim->b->r->units;
  const ZeroLoad *zero = &load->zero[aim->s->zero];
  double chain = (double)load->input_gradient, light = (double)load->light[1];
  double all = chain + (double)load->least_weights +
               interference(aim->b) * (double)zero->least_summed;
  if (aim->weights.split < 0) return all + runs_again(aim, load, unit);
  switch (units->splits.data[aim->weights.split].units[unit]) {
  case SIDE_head: return chain - light + (double)load->cut[1];
  case SIDE_rest: return all;
  case SIDE_both: break;
  }
  return chain - light;
}

/* With ZeRO 3 each micro-batch gathers a parameter for its forward pass; what
 * is gathered again may be kept instead.  A stage may keep what it gathers
 * first. */
static int64_t sure_gathers(const BoundSetting *s) {
  return s->zero == 3 && s->groups < 2 ? s->microbatches : 1;
}

static double weighted(const Aim *aim, const Load *load, int unit) {
  const BoundWeights *w = &aim->weights;
  const ZeroLoad *zero = &load->zero[aim->s->zero];
  double forward = (double)load->links[0].busy[w->link];
  double backward = (double)load->links[1].busy[w->link];
  double sums = (double)zero->least_sums.busy[w->link];
  const ZeroLoad *once =
      &load->zero[aim->s->zero > 0]; /* level 1 gathers once */
  double gathers = (double)(sure_gathers(aim->s) * once->gathers.busy[w->link]);
  double chain = (double)load->input_gradient, sum = 0;
  double taken = interference(aim->b);
  sum +=
      w->of[BOUND_forward_stream] *
      (double)(load->forward - zero->less_cast - load->light[0] + load->cut[0]);
  /* Gathers for the backward pass may be early, those for the forward pass not
   * late. */
  int during = aim->s->zero < 3 || w->of[BOUND_forward_stream] <
                                       w->of[BOUND_backward_stream]
                   ? w->of[BOUND_forward_stream]
                   : w->of[BOUND_backward_stream];
  sum += during * taken *
         (double)(sure_gathers(aim->s) * (once->bulk - once->summed));
  sum +=
      w->of[BOUND_forward_link] * (forward + (aim->s->zero == 3 ? 0 : gathers));
  sum += w->of[BOUND_backward_stream] * backward_stream(aim, load, unit);
  sum += w->of[BOUND_backward_chain] *
         (chain + (double)(load->cut[1] - load->light[1]));
  sum += w->of[BOUND_backward_link] * (backward + sums);
  sum += w->of[BOUND_all_link] * (forward + backward + sums + gathers);
  sum += (BOUND_ONE - w->of[BOUND_all_link]) * (double)zero->update;
  return sum +
         aim->weights.per_byte * BOUND_ONE * (double)bytes_of(load, aim->s);
}

static int side_of(const Aim *aim, int unit) {
  int split = aim->weights.split;
  return split < 0 ? 0 : (int)aim->b->r->units->splits.data[split].units[unit];
}

static const int64_t *unit_costs(Arena *arena, const Aim *aim,
                                 Map *const *known, int unit) {
  const PlanUnit *u = aim->b->r->units->units.data[unit];
  const UnitShape *shape = aim->tables->unit[unit];
  Map *of = known[side_of(aim, unit)];
  int64_t *costs = map_get(of, shape);
  if (costs) return costs;
  costs = ARENA_ARRAY(arena, int64_t, shape->n_values);
  for (int i = 0; i < shape->n_values; i++)
    costs[i] =
        (int64_t)(weighted(aim, &shape->loads[i], unit) / PARTS_OF_WEIGHT /
                  (double)u->times / groups_of(aim->s));
  map_put(of, shape, costs);
  return costs;
}

static bool is_in_head(const Aim *aim, int edge) {
  int split = aim->weights.split;
  return split >= 0 && aim->b->r->units->splits.data[split].is_head[edge];
}

/* All readers of a cut wait for what the first one reads. */
static int64_t edge_cost(const Aim *aim, int at, const EdgeLoad *load) {
  const UnitEdge *edge = &aim->b->r->units->edges.data[at];
  const BoundWeights *w = &aim->weights;
  Ps wait = edge->is_cut ? load->least * edge->readers : 0;
  Ps link = edge->only_weights ? 0 : load->links.busy[w->link];
  if (load->wait >= ELIMINATE_MOST / BOUND_PARTS / edge->readers)
    return ELIMINATE_MOST;
  int of_wait = !edge->is_backward ? w->of[BOUND_forward_stream]
                : is_in_head(aim, at)
                    ? w->of[BOUND_backward_chain] + w->of[BOUND_backward_stream]
                    : w->of[BOUND_backward_chain];
  int of_link = edge->is_backward ? w->of[BOUND_backward_link]
                                  : w->of[BOUND_forward_link];
  return (of_wait * wait + (of_link + w->of[BOUND_all_link]) * link) /
         PARTS_OF_WEIGHT / edge->times / groups_of(aim->s);
}

static const int64_t *edge_costs(Arena *arena, const Aim *aim,
                                 Map *const *known, int i) {
  const UnitEdge *edge = &aim->b->r->units->edges.data[i];
  const EdgeTable *table = aim->tables->edge[i];
  Map *of =
      known[4 * is_in_head(aim, i) + 2 * edge->is_backward + edge->is_cut];
  int64_t *costs = map_get(of, table);
  if (costs) return costs;
  int n = aim->tables->unit[edge->from]->n_values *
          aim->tables->unit[edge->to]->n_values;
  costs = ARENA_ARRAY(arena, int64_t, n);
  for (int k = 0; k < n; k++) costs[k] = edge_cost(aim, i, &table->loads[k]);
  map_put(of, table, costs);
  return costs;
}

/* The largest of the least costs of units, each of which one group has whole.
 */
static int64_t largest_unit(const Aim *aim, const int64_t *const *costs) {
  const Unrolled *all = aim->b->all;
  int64_t largest = 0;
  for (int u = 0; u < all->n && aim->s->groups > 1; u++) {
    int unit = all->unit[u], n = aim->tables->unit[unit]->n_values;
    int64_t least = costs[u][0];
    for (int v = 1; v < n; v++)
      if (costs[u][v] < least) least = costs[u][v];
    if (least > largest && unit_is_in_one_stage(aim->b->r->units, unit))
      largest = least;
  }
  return largest;
}

static PairProblem problem_of(Arena *arena, const Aim *aim) {
  const Unrolled *all = aim->b->all;
  Map *known[3], *known_edges[8];
  for (int i = 0; i < ARRAY_LENGTH(known); i++) known[i] = map_create(arena);
  for (int i = 0; i < ARRAY_LENGTH(known_edges); i++)
    known_edges[i] = map_create(arena);
  int *n_values = ARENA_ARRAY(arena, int, all->n + 1), n_pairs = 0;
  const int64_t **costs = ARENA_ARRAY(arena, const int64_t *, all->n + 1);
  PairCosts *pairs = ARENA_ARRAY(arena, PairCosts, all->n_edges + 1);
  for (int u = 0; u < all->n; u++) {
    n_values[u] = aim->tables->unit[all->unit[u]]->n_values;
    costs[u] = unit_costs(arena, aim, known, all->unit[u]);
  }
  for (int i = 0; i < all->n_edges; i++) {
    const int64_t *of = edge_costs(arena, aim, known_edges, all->edges[i].edge);
    pairs[n_pairs++] = (PairCosts){all->edges[i].from, all->edges[i].to, of};
  }
  return (PairProblem){all->n, n_values, costs, n_pairs, pairs};
}

/* ---- what the walk asks ---- */

static Aim aim_of(const Bounding *b, const BoundQuestion *question) {
  return (Aim){b, question->setting, question->tables, question->weights};
}

static Bytes bytes_of_values(const Aim *aim, const int *values) {
  const Unrolled *all = aim->b->all;
  Bytes sum = 0;
  for (int u = 0; u < all->n; u++) {
    int unit = all->unit[u];
    const UnitShape *shape = aim->tables->unit[unit];
    sum += bytes_of(&shape->loads[values[u]], aim->s) /
           aim->b->r->units->units.data[unit]->times;
  }
  return sum;
}

static void note_answer(const Aim *aim, const int *values, Answer answer) {
  const Bounding *b = aim->b;
  Answered *of = map_get(b->answered, aim->s);
  if (!of) {
    of = ARENA_NEW(b->arena, Answered);
    *of = (Answered){.setting = aim->s, .tables = aim->tables};
    map_put(b->answered, aim->s, of);
  }
  uint16_t *copy = ARENA_ARRAY(b->arena, uint16_t, b->all->n + 1);
  for (int u = 0; u < b->all->n; u++) copy[u] = (uint16_t)values[u];
  answer.values = copy;
  vec_push(b->arena, &of->answers, answer);
}

/* Returns the time of a sum whose bytes beyond those of a rank have a price. */
static Ps time_of(const Aim *aim, int64_t sum) {
  double more = bytes_in_flight(aim->b, aim->s, aim->tables);
  return (Ps)(((double)sum / BOUND_PARTS) -
              aim->weights.per_byte * ((double)aim->b->r->memory - more));
}

/* Finds what bounds the step without a sum over the model. */
static void find_alone(const Aim *aim, const PairProblem *problem,
                       Answer *out) {
  Ps chain = flow_of(aim->b, aim->tables).chain;
  int64_t largest = largest_unit(aim, problem->costs);
  out->alone = time_of(aim, largest * groups_of(aim->s));
  out->by_alone = BOUND_BY_operator;
  if (out->alone >= chain) return;
  out->alone = chain;
  out->by_alone = BOUND_BY_chain;
}

static BoundAnswer answer(void *user, const BoundQuestion *question) {
  const Bounding *b = user;
  Aim aim = aim_of(b, question);
  Arena *arena = arena_beside(b->arena);
  int *values = ARENA_ARRAY(arena, int, b->all->n + 1);
  PairProblem problem = problem_of(arena, &aim);
  int64_t sum = eliminate_below(arena, &problem, MOST_ENTRIES, values);
  double more = bytes_in_flight(b, aim.s, aim.tables);
  BoundAnswer out = {.is_known = true,
                     .by = BOUND_BY_mean,
                     .time = time_of(&aim, sum),
                     .bytes = bytes_of_values(&aim, values) / groups_of(aim.s) +
                              (Bytes)more};
  Answer noted = {.weights = aim.weights};
  find_alone(&aim, &problem, &noted);
  if (out.time < noted.alone) {
    out.time = noted.alone;
    out.by = noted.by_alone;
  }
  noted.time = out.time;
  note_answer(&aim, values, noted);
  arena_destroy(arena);
  return out;
}

/* The mean of the assignment, with no price of memory, and its bytes; both on
 * average over groups. */
static double mean_of(const Aim *aim, const uint16_t *values,
                      double *out_bytes) {
  const Unrolled *all = aim->b->all;
  double sum = 0;
  *out_bytes = 0;
  for (int u = 0; u < all->n; u++) {
    int unit = all->unit[u];
    double times = (double)aim->b->r->units->units.data[unit]->times;
    const Load *load = &aim->tables->unit[unit]->loads[values[u]];
    sum +=
        weighted(aim, load, unit) / PARTS_OF_WEIGHT / times / groups_of(aim->s);
    *out_bytes += (double)bytes_of(load, aim->s) / times;
  }
  for (int i = 0; i < all->n_edges; i++) {
    int edge = all->edges[i].edge;
    int to = aim->b->r->units->edges.data[edge].to;
    int at = values[all->edges[i].from] * aim->tables->unit[to]->n_values +
             values[all->edges[i].to];
    sum += (double)edge_cost(aim, edge, &aim->tables->edge[edge]->loads[at]);
  }
  *out_bytes /= groups_of(aim->s);
  *out_bytes += bytes_in_flight(aim->b, aim->s, aim->tables);
  return sum / BOUND_PARTS;
}

/* The least mean is no higher than that of any assignment: prices of memory are
 * left at which the means of all that are known are higher. */
static bool may_pass(void *user, const BoundQuestion *question, Ps worth) {
  const Bounding *b = user;
  Aim aim = aim_of(b, question);
  const Answered *of = map_get(b->answered, question->setting);
  double low = 0, high = INFINITY, bytes;
  aim.weights.per_byte = 0;
  for (int i = of ? of->answers.n - 1 : -1; i >= 0 && low < high; i--) {
    double more =
        mean_of(&aim, of->answers.data[i].values, &bytes) - (double)worth;
    double beyond = bytes - (double)b->r->memory;
    if (beyond <= 0 && more <= 0) return false;
    if (beyond > 0 && -more / beyond > low) low = -more / beyond;
    if (beyond < 0 && -more / beyond < high) high = -more / beyond;
  }
  return low < high;
}

/* The loads of the assignment of an answer, by each extreme mean. */
static bool loads_of_answer(void *user, const BoundQuestion *question, int at,
                            BoundLoads *out) {
  const Bounding *b = user;
  const Answered *of = map_get(b->answered, question->setting);
  if (!of || at >= of->answers.n) return false;
  for (int i = 0; i < N_BOUND_EXTREMES; i++) {
    Aim aim = aim_of(b, question);
    bound_set_extreme(&aim.weights, i);
    out->of[i] = mean_of(&aim, of->answers.data[at].values, &out->bytes);
  }
  return true;
}

static Bytes least_bytes(void *user, const BoundQuestion *question) {
  const Bounding *b = user;
  const UnitTables *tables = question->tables;
  Bytes sum = 0;
  for (int u = 0; u < b->r->units->units.n; u++) {
    const UnitShape *shape = tables->unit[u];
    Bytes least = INT64_MAX;
    for (int i = 0; i < shape->n_values; i++) {
      Bytes bytes = bytes_of(&shape->loads[i], question->setting);
      if (bytes < least) least = bytes;
    }
    sum += least;
  }
  return sum / groups_of(question->setting) +
         (Bytes)bytes_in_flight(b, question->setting, tables);
}

static const void *open_tables(void *user, const BoundSetting *setting,
                               const char **out_reason) {
  const Bounding *b = user;
  const BoundRequest *r = b->r;
  TableRequest request = {.loads = {.units = r->units,
                                    .mesh = setting->mesh,
                                    .slice = r->slice,
                                    .model = r->model,
                                    .microbatches = setting->microbatches,
                                    .chains = b->chains},
                          .batch_axes = setting->batch_axes};
  request.loads.models = bound_models(r, &request.loads.group);
  const UnitTables *tables =
      setting->groups > 1 ? stage_bound_tables(b->arena, r, setting, b->chains)
                          : unit_tables(b->arena, &request);
  if (tables && tables->is_partial)
    *out_reason = "a unit has too many assignments";
  if (tables && !tables->is_partial && setting->groups > 1) {
    StageFlow *flow = ARENA_NEW(b->arena, StageFlow);
    *flow = stage_bound_flow(b->arena, r, setting, tables, b->chains);
    map_put(b->flows, tables, flow);
  }
  return tables;
}

/* ---- the plans of answers ---- */

static bool has_values(const Bounding *b, const Answered *of, int n,
                       const uint16_t *values) {
  for (int i = 0; i < n; i++)
    if (memcmp(of->answers.data[i].values, values,
               (size_t)b->all->n * sizeof *values) == 0)
      return true;
  return false;
}

static const Assignment *assignments_of(const Bounding *b,
                                        const UnitTables *tables,
                                        const uint16_t *values) {
  const Units *units = b->r->units;
  Assignment *out = ARENA_ARRAY(b->arena, Assignment, units->units.n + 1);
  int *copies = ARENA_ARRAY(b->arena, int, units->units.n + 1);
  for (int u = 0; u < b->all->n; u++) {
    int unit = b->all->unit[u];
    if (copies[unit]++ == units->units.data[unit]->times / 2)
      out[unit] = tables->unit[unit]->values[values[u]];
  }
  return out;
}

static void add_plan(const Bounding *b, const Answered *of, int at,
                     BoundPlans *out) {
  const uint16_t *values = of->answers.data[at].values;
  double load = 0, bytes = 0;
  if (has_values(b, of, at, values)) return;
  for (int i = 0; i < of->answers.n; i++) {
    Aim aim = {b, of->setting, of->tables, of->answers.data[i].weights};
    aim.weights.per_byte = 0;
    double mean = mean_of(&aim, values, &bytes);
    if (mean > load) load = mean;
  }
  if (load >= (double)b->r->step || bytes > (double)b->r->memory) return;
  vec_push(b->arena, &out->list,
           ((BoundPlan){*of->setting, assignments_of(b, of->tables, values),
                        (Ps)load, out->list.n}));
}

static int compare_plans(const void *a, const void *b) {
  const BoundPlan *x = a, *y = b;
  if (x->load != y->load) return x->load < y->load ? -1 : 1;
  return x->number - y->number;
}

static void list_plans(const Bounding *b, BoundPlans *out) {
  for (int i = 0; i < map_size(b->answered); i++) {
    const Answered *of = map_value_at(b->answered, i);
    Ps bound = 0;
    for (int k = 0; k < of->answers.n; k++)
      if (of->answers.data[k].time > bound) bound = of->answers.data[k].time;
    for (int k = 0; k < of->answers.n && bound < b->r->step; k++)
      add_plan(b, of, k, out);
  }
  if (out->list.n > 0)
    qsort(out->list.data, (size_t)out->list.n, sizeof *out->list.data,
          compare_plans);
}

/* ---- means for those who prove them ---- */

int bound_means_count(const BoundMeans *means) {
  return map_size(means->answered);
}

BoundMean bound_means_at(const BoundMeans *means, int i) {
  const Answered *of = map_value_at(means->answered, i);
  const Answer *best = &of->answers.data[0];
  for (int k = 1; k < of->answers.n; k++)
    if (of->answers.data[k].time > best->time) best = &of->answers.data[k];
  return (BoundMean){*of->setting, of->tables,  best->weights,
                     best->time,   best->alone, best->by_alone};
}

static Aim aim_of_mean(const BoundMeans *means, const BoundMean *mean) {
  return (Aim){means, &mean->setting, mean->tables, mean->weights};
}

PairProblem bound_means_problem(Arena *arena, const BoundMeans *means,
                                const BoundMean *mean) {
  Aim aim = aim_of_mean(means, mean);
  return problem_of(arena, &aim);
}

Ps bound_means_time(const BoundMeans *means, const BoundMean *mean,
                    int64_t sum) {
  Aim aim = aim_of_mean(means, mean);
  return time_of(&aim, sum);
}

/* ---- all ---- */

Bound plan_bound_and_means(Arena *arena, const BoundRequest *request,
                           BoundPlans *out, const BoundMeans **out_means) {
  *out_means = NULL;
  if (request->n_kinds > 0) return work_bound(arena, request);
  BoundRequest *kept = ARENA_NEW(arena, BoundRequest);
  BoundMeans *b = ARENA_NEW(arena, BoundMeans);
  *kept = *request;
  *b = (BoundMeans){arena,
                    kept,
                    unroll(arena, request->units),
                    map_create(arena),
                    map_create(arena),
                    mesh_chains_create(arena)};
  BoundEvaluator evaluator = {.user = b,
                              .open = open_tables,
                              .answer = answer,
                              .least_bytes = least_bytes,
                              .may_pass = may_pass,
                              .loads = loads_of_answer};
  if (!b->all)
    return (Bound){.reason = "blocks that are not neighbours share a value"};
  Bound bound = bound_walk(arena, request, &evaluator);
  if (out && !bound.reason) list_plans(b, out);
  if (!bound.reason) *out_means = b;
  return bound;
}

Bound plan_bound_and_plans(Arena *arena, const BoundRequest *request,
                           BoundPlans *out) {
  const BoundMeans *means;
  return plan_bound_and_means(arena, request, out, &means);
}

Bound plan_bound(Arena *arena, const BoundRequest *request) {
  return plan_bound_and_plans(arena, request, NULL);
}
