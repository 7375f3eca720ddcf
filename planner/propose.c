/*
 * propose.c -- finds assignments of units whose loads are least under several
 * weightings.
 *
 * A step takes at least as long as its forward pass, with the transfers that it
 * waits for, and what is largest of the backward pass: its kernels, its chain
 * of input gradients with the transfers between them, its other transfers.
 * Which is largest is known afterwards, so the loads are weighted in several
 * ways, and the sum of each weighting is minimised.
 */
#include "planner/propose.h"

enum { WEIGHT_ONE = 16 };

/* Parts of WEIGHT_ONE of weight gradients, waits and bulk in the backward
 * pass. */
typedef struct Weighting {
  int weight_gradient, wait, bulk;
} Weighting;

/* The first ones mostly win. */
enum { N_FEW = 2 };
static const Weighting weightings[] = {{8, 8, 4}, {16, 16, 16}, {16, 0, 0},
                                       {8, 8, 0}, {4, 12, 0},   {0, 16, 0},
                                       {8, 0, 8}, {4, 0, 12},   {2, 7, 7}};

/* The sum that is minimised. */
typedef struct Aim {
  Weighting weights;
  int zero;
  bool recomputes;
  double per_byte; /* of memory, in the units of the weighted sum */
} Aim;

typedef struct Proposer {
  Arena *arena; /* of this mesh */
  const ProposeRequest *r;
  const UnitTables *tables;
  PairSolver *solver;
  PairShape shape;
} Proposer;

/* ---- one elimination ---- */

static int64_t weighted(const Load *load, const Aim *aim, bool is_in_block) {
  const Weighting *w = &aim->weights;
  const ZeroLoad *zero = &load->zero[aim->zero];
  int64_t sum = (load->forward - zero->less_cast + load->wait[0] +
                 load->input_gradient + zero->update) *
                    WEIGHT_ONE +
                load->weight_gradient * w->weight_gradient +
                load->wait[1] * w->wait + zero->bulk * w->bulk;
  if (aim->recomputes && is_in_block)
    sum += (load->forward - load->casts) * WEIGHT_ONE + load->wait[0] * w->wait;
  if (aim->per_byte > 0) {
    Bytes bytes = zero->state + zero->gradient / 2 +
                  (aim->recomputes ? load->left : load->saved);
    sum += (int64_t)(aim->per_byte * (double)bytes);
  }
  return sum;
}

static const int64_t *unit_costs(Arena *arena, Proposer *p, Map *known,
                                 int unit, const Aim *aim) {
  const UnitShape *shape = p->tables->unit[unit];
  int64_t *costs = map_get(known, shape);
  if (costs) return costs;
  bool is_in_block = p->r->of->units->units.data[unit]->block >= 0;
  costs = ARENA_ARRAY(arena, int64_t, shape->n_values);
  for (int i = 0; i < shape->n_values; i++)
    costs[i] = weighted(&shape->loads[i], aim, is_in_block);
  map_put(known, shape, costs);
  return costs;
}

/* A value that is computed again is brought to its readers again. */
static bool is_repeated(const Units *units, const UnitEdge *edge) {
  return !edge->is_backward && units->units.data[edge->from]->block >= 0 &&
         units->units.data[edge->to]->block >= 0;
}

typedef enum EdgeWeight {
  EDGE_forward,
  EDGE_forward_twice,
  EDGE_backward,
  N_EDGE_WEIGHTS
} EdgeWeight;

static const int64_t *edge_costs(Arena *arena, Proposer *p, Map *const *known,
                                 int i, const Aim *aim) {
  const UnitEdge *edge = &p->r->of->units->edges.data[i];
  int again = aim->recomputes && is_repeated(p->r->of->units, edge);
  int weight = edge->is_backward ? aim->weights.wait
                                 : WEIGHT_ONE + again * aim->weights.wait;
  const EdgeTable *table = p->tables->edge[i];
  Map *of = known[edge->is_backward ? EDGE_backward
                  : again           ? EDGE_forward_twice
                                    : EDGE_forward];
  int64_t *costs = map_get(of, table);
  if (costs) return costs;
  int n = p->tables->unit[edge->from]->n_values *
          p->tables->unit[edge->to]->n_values;
  costs = ARENA_ARRAY(arena, int64_t, n);
  for (int k = 0; k < n; k++)
    costs[k] = table->loads[k].wait >= ELIMINATE_MOST / WEIGHT_ONE
                   ? ELIMINATE_MOST
                   : table->loads[k].wait * weight;
  map_put(of, table, costs);
  return costs;
}

static bool solve_in(Arena *arena, Proposer *p, const Aim *aim, int *values) {
  const Units *units = p->r->of->units;
  Map *known = map_create(arena), *known_edges[N_EDGE_WEIGHTS];
  for (int i = 0; i < N_EDGE_WEIGHTS; i++) known_edges[i] = map_create(arena);
  int *n_values = ARENA_ARRAY(arena, int, units->units.n);
  const int64_t **costs = ARENA_ARRAY(arena, const int64_t *, units->units.n);
  PairCosts *pairs = ARENA_ARRAY(arena, PairCosts, units->edges.n + 1);
  for (int u = 0; u < units->units.n; u++) {
    n_values[u] = p->tables->unit[u]->n_values;
    costs[u] = unit_costs(arena, p, known, u, aim);
  }
  for (int i = 0; i < units->edges.n; i++)
    pairs[i] = (PairCosts){units->edges.data[i].from, units->edges.data[i].to,
                           edge_costs(arena, p, known_edges, i, aim)};
  PairProblem problem = {units->units.n, n_values, costs, units->edges.n,
                         pairs};
  return solve_pairs(p->arena, p->solver, &p->shape, &problem, values);
}

static bool solve(Proposer *p, const Aim *aim, int *values) {
  Arena *arena = arena_beside(p->arena);
  bool is_solved = solve_in(arena, p, aim, values);
  arena_destroy(arena);
  return is_solved;
}

/* ---- proposals ---- */

/* The sum over all units and edges. */
typedef struct Total {
  Load load;
  Ps again, again_wait; /* of blocks, computed twice */
  Bytes transient;      /* the most of one unit, or of a block that is computed
                           again */
} Total;

static void add_load(Total *total, const Load *load, bool is_in_block) {
  Load *sum = &total->load;
  sum->forward += load->forward;
  sum->input_gradient += load->input_gradient;
  sum->weight_gradient += load->weight_gradient;
  sum->wait[0] += load->wait[0];
  sum->wait[1] += load->wait[1];
  sum->saved += load->saved;
  sum->left += load->left;
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++) {
    sum->zero[zero].bulk += load->zero[zero].bulk;
    sum->zero[zero].update += load->zero[zero].update;
    sum->zero[zero].less_cast += load->zero[zero].less_cast;
    sum->zero[zero].state += load->zero[zero].state;
    sum->zero[zero].gradient += load->zero[zero].gradient;
  }
  if (!is_in_block) return;
  total->again += load->forward - load->casts;
  total->again_wait += load->wait[0];
}

/* The unit with the most bytes, beside the saved values of a block that is
 * computed again. */
static Bytes most_transient(const Units *units, const UnitTables *tables,
                            const int *values, bool recomputes) {
  Bytes most = 0, block = 0, most_block = 0;
  for (int u = 0; u < units->units.n; u++) {
    const PlanUnit *unit = units->units.data[u];
    const Load *load = &tables->unit[u]->loads[values[u]];
    if (u > 0 && unit->block != units->units.data[u - 1]->block) block = 0;
    if (unit->block >= 0) block += (load->saved - load->left) / unit->times;
    if (block > most_block) most_block = block;
    if (load->transient > most) most = load->transient;
  }
  return most + (recomputes ? most_block : 0);
}

static Total total_of(const Units *units, const UnitTables *tables,
                      const int *values, bool recomputes) {
  Total total = {0};
  for (int u = 0; u < units->units.n; u++)
    add_load(&total, &tables->unit[u]->loads[values[u]],
             units->units.data[u]->block >= 0);
  total.transient = most_transient(units, tables, values, recomputes);
  for (int i = 0; i < units->edges.n; i++) {
    const UnitEdge *edge = &units->edges.data[i];
    int n_values = tables->unit[edge->to]->n_values;
    int at = values[edge->from] * n_values + values[edge->to];
    Ps time = tables->edge[i]->loads[at].wait;
    total.load.wait[edge->is_backward] += time;
    if (is_repeated(units, edge)) total.again_wait += time;
  }
  return total;
}

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static Ps step_of(const Total *total, int level, bool recomputes) {
  const Load *l = &total->load;
  Ps chain = l->input_gradient, wait = l->wait[1];
  if (recomputes) chain += total->again, wait += total->again_wait;
  Ps backward = chain + larger(l->weight_gradient, wait);
  const ZeroLoad *zero = &l->zero[level];
  return l->forward - zero->less_cast + l->wait[0] +
         larger(backward, zero->bulk) + zero->update;
}

Ps propose_estimate(const Units *units, const UnitTables *tables,
                    const int *values, int zero, bool recomputes) {
  Total total = total_of(units, tables, values, recomputes);
  return step_of(&total, zero, recomputes);
}

/* With several micro-batches gradients are there while values are saved. */
static Bytes peak_of(const Proposer *p, const Total *total, const Aim *aim) {
  const ZeroLoad *zero = &total->load.zero[aim->zero];
  Bytes saved = aim->recomputes ? total->load.left : total->load.saved;
  Bytes turn = saved + total->transient;
  return zero->state + (p->r->microbatches > 1 ? zero->gradient + turn
                                               : larger(zero->gradient, turn));
}

/* Returns the number of the proposal; there may have been an equal one. */
static int add_proposal(Arena *arena, Proposer *p, const int *values,
                        const Aim *aim, Proposals *out) {
  const Units *units = p->r->of->units;
  Total total = total_of(units, p->tables, values, aim->recomputes);
  Proposal made = {.place = *p->r->place,
                   .microbatches = p->r->microbatches,
                   .batch_axes = p->r->batch_axes,
                   .zero = aim->zero,
                   .recomputes = aim->recomputes,
                   .step = step_of(&total, aim->zero, aim->recomputes),
                   .peak = peak_of(p, &total, aim)};
  made.fits = made.peak <= p->r->memory;
  for (int i = 0; i < out->list.n; i++) {
    const Proposal *other = &out->list.data[i];
    if (other->place.mesh == made.place.mesh && other->zero == made.zero &&
        other->microbatches == made.microbatches &&
        other->recomputes == made.recomputes && other->step == made.step &&
        other->peak == made.peak)
      return i;
  }
  Assignment *assignments = ARENA_ARRAY(arena, Assignment, units->units.n);
  for (int u = 0; u < units->units.n; u++)
    assignments[u] = p->tables->unit[u]->values[values[u]];
  made.assignments = assignments;
  vec_push(arena, &out->list, made);
  return out->list.n - 1;
}

/* ---- what needs no elimination ---- */

/* Below the time and bytes of every assignment: each unit has its least, and
 * values between units cost nothing. */
typedef struct Floor {
  Ps chain, bulk; /* a step takes as long as either */
  Bytes bytes, state;
} Floor;

static void lower(int64_t *least, int64_t value) {
  if (value < *least) *least = value;
}

static Floor floor_of_unit(const Proposer *p, int unit, const Aim *aim) {
  const UnitShape *shape = p->tables->unit[unit];
  bool again = aim->recomputes && p->r->of->units->units.data[unit]->block >= 0;
  Floor least = {INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX};
  for (int i = 0; i < shape->n_values; i++) {
    const Load *load = &shape->loads[i];
    const ZeroLoad *zero = &load->zero[aim->zero];
    Ps ends = load->forward - zero->less_cast + load->wait[0] + zero->update;
    Bytes held = aim->recomputes ? load->left : load->saved;
    lower(&least.chain, ends + load->input_gradient + load->weight_gradient +
                            again * (load->forward - load->casts));
    lower(&least.bulk, ends + zero->bulk);
    lower(&least.state, zero->state);
    lower(&least.bytes,
          zero->state + held + (p->r->microbatches > 1 ? zero->gradient : 0));
  }
  return least;
}

static Floor floor_of(const Proposer *p, const Aim *aim) {
  Floor sum = {0};
  for (int u = 0; u < p->r->of->units->units.n; u++) {
    Floor own = floor_of_unit(p, u, aim);
    sum.chain += own.chain;
    sum.bulk += own.bulk;
    sum.bytes += own.bytes;
    sum.state += own.state;
  }
  return sum;
}

static bool is_worth(const Proposer *p, const Floor *floor) {
  return larger(floor->chain, floor->bulk) <= p->r->worth &&
         floor->bytes <= p->r->memory;
}

/* If what is fastest does not fit, memory gets a price, which rises.  Returns
 * false if nothing fits that is worth a look. */
static bool propose_setting(Arena *arena, Proposer *p, Aim aim, int *values,
                            Proposals *out) {
  static const double prices[] = {0, 0.2, 2, 10};
  double unit = 0;
  for (int i = 0; i < ARRAY_LENGTH(prices); i++) {
    aim.per_byte = prices[i] * unit;
    if (!solve(p, &aim, values)) return false;
    int at = add_proposal(arena, p, values, &aim, out);
    const Proposal *made = &out->list.data[at];
    if (made->step > p->r->worth) return false;
    if (made->fits) return true;
    if (i == 0) unit = (double)made->step * WEIGHT_ONE / (double)made->peak;
  }
  return false;
}

/* Several weightings of one level of ZeRO. */
static void propose_weighted(Arena *arena, Proposer *p, Aim aim, int *values,
                             Proposals *out) {
  int n = p->r->is_wide ? ARRAY_LENGTH(weightings) : N_FEW;
  for (int i = 0; i < n; i++) {
    aim.weights = weightings[i];
    if (!propose_setting(arena, p, aim, values, out)) return;
  }
}

static unsigned propose_all(Arena *arena, Proposer *p, Proposals *out) {
  int *values = ARENA_ARRAY(p->arena, int, p->r->of->units->units.n);
  unsigned fitting = 0;
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++)
    for (int again = 0; again <= p->r->may_recompute; again++) {
      Aim aim = {.zero = zero, .recomputes = again};
      if (!(p->r->zeros >> zero & 1)) continue;
      Floor floor = floor_of(p, &aim);
      if (floor.state <= p->r->memory) fitting |= 1u << zero;
      if (is_worth(p, &floor)) propose_weighted(arena, p, aim, values, out);
    }
  return fitting;
}

unsigned propose(Arena *arena, const ProposeRequest *request, Proposals *out) {
  PairSolver own = {0};
  Proposer p = {.arena = arena_beside(arena),
                .r = request,
                .solver = request->solver ? request->solver : &own};
  p.tables =
      request->place->space->tables(p.arena, request->of, request->place,
                                    request->microbatches, request->batch_axes);
  unsigned fitting = p.tables ? propose_all(arena, &p, out) : 0;
  out->has_tables |= p.tables != NULL;
  arena_destroy(p.arena);
  return fitting;
}
