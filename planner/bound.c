/*
 * bound.c -- bounds the step of all plans of the space from below.
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
 * The bound of a setting is that of the best weights and price that are tried;
 * the bound of the space is the least of its settings.
 */
#include "planner/bound.h"

#include "planner/eliminate.h"
#include "planner/unroll.h"

#define MOST_ENTRIES ((int64_t)1 << 18)

typedef struct Setting {
  const UnitTables *tables;
  const Mesh *mesh;
  int64_t microbatches;
  int zero;
  bool recomputes;
  Ps bound;
  BoundWeights weights;
  int effort; /* of the list of efforts: those that were made */
} Setting;

typedef struct Bounding {
  Arena *arena;
  const BoundRequest *r;
  const Unrolled *all;
  VEC(Setting *) settings;
  BoundWeights last; /* that were the best of a setting */
  const char *reason;
} Bounding;

/* ---- one elimination ---- */

typedef struct Aim {
  const Bounding *b;
  const Setting *s;
  BoundWeights weights;
} Aim;

/* Bytes that a plan has at some time: what is kept for the backward pass at its
 * begin; with several micro-batches, gradients beside it. */
static Bytes bytes_of(const Load *load, const Setting *s) {
  const ZeroLoad *zero = &load->zero[s->zero];
  return zero->state + (s->recomputes ? load->left : load->saved) +
         (s->microbatches > 1 ? zero->gradient : 0);
}

static double interference(const Bounding *b) {
  return (double)b->r->model->rates.interference / (double)SIM_ONE;
}

/* Only a unit with values that its block does not leave runs again. */
static double runs_again(const Aim *aim, const Load *load, int unit) {
  bool runs = aim->s->recomputes && load->saved > load->left &&
              aim->b->r->units->units.data[unit]->block >= 0;
  return runs ? (double)load->forward : 0;
}

/* The stream of the backward pass.  What is computed again can be in the head,
 * too. */
static double backward_stream(const Aim *aim, const Load *load, int unit) {
  const Units *units = aim->b->r->units;
  const ZeroLoad *zero = &load->zero[aim->s->zero];
  double chain = (double)load->input_gradient;
  double all = chain + (double)load->weight_gradient +
               interference(aim->b) * (double)zero->summed;
  if (aim->weights.split < 0) return all + runs_again(aim, load, unit);
  switch (units->splits.data[aim->weights.split].units[unit]) {
  case SIDE_head: return chain + (double)load->cut[1];
  case SIDE_rest: return all;
  case SIDE_both: break;
  }
  return chain;
}

static double weighted(const Aim *aim, const Load *load, int unit) {
  const BoundWeights *w = &aim->weights;
  const ZeroLoad *zero = &load->zero[aim->s->zero];
  double forward = (double)load->links[0].busy[w->link];
  double backward = (double)load->links[1].busy[w->link];
  double sums = (double)zero->sums.busy[w->link];
  double gathers = (double)zero->gathers.busy[w->link];
  double chain = (double)load->input_gradient, sum = 0;
  double taken = interference(aim->b);
  sum += w->of[BOUND_forward_stream] * (double)(load->forward + load->cut[0]);
  /* Gathers for the backward pass may be early, those for the forward pass not
   * late. */
  int during = aim->s->zero < 3 || w->of[BOUND_forward_stream] <
                                       w->of[BOUND_backward_stream]
                   ? w->of[BOUND_forward_stream]
                   : w->of[BOUND_backward_stream];
  sum += during * taken * (double)(zero->bulk - zero->summed);
  sum +=
      w->of[BOUND_forward_link] * (forward + (aim->s->zero == 3 ? 0 : gathers));
  sum += w->of[BOUND_backward_stream] * backward_stream(aim, load, unit);
  sum += w->of[BOUND_backward_chain] * (chain + (double)load->cut[1]);
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
  const UnitShape *shape = aim->s->tables->unit[unit];
  Map *of = known[side_of(aim, unit)];
  int64_t *costs = map_get(of, shape);
  if (costs) return costs;
  costs = ARENA_ARRAY(arena, int64_t, shape->n_values);
  for (int i = 0; i < shape->n_values; i++)
    costs[i] =
        (int64_t)(weighted(aim, &shape->loads[i], unit) / (double)u->times);
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
  Ps link = load->links.busy[w->link];
  if (load->wait >= ELIMINATE_MOST / BOUND_ONE / edge->readers)
    return ELIMINATE_MOST;
  int of_wait = !edge->is_backward ? w->of[BOUND_forward_stream]
                : is_in_head(aim, at)
                    ? w->of[BOUND_backward_chain] + w->of[BOUND_backward_stream]
                    : w->of[BOUND_backward_chain];
  int of_link = edge->is_backward ? w->of[BOUND_backward_link]
                                  : w->of[BOUND_forward_link];
  return (of_wait * wait + (of_link + w->of[BOUND_all_link]) * link) /
         edge->times;
}

static const int64_t *edge_costs(Arena *arena, const Aim *aim,
                                 Map *const *known, int i) {
  const UnitEdge *edge = &aim->b->r->units->edges.data[i];
  const EdgeTable *table = aim->s->tables->edge[i];
  Map *of =
      known[4 * is_in_head(aim, i) + 2 * edge->is_backward + edge->is_cut];
  int64_t *costs = map_get(of, table);
  if (costs) return costs;
  int n = aim->s->tables->unit[edge->from]->n_values *
          aim->s->tables->unit[edge->to]->n_values;
  costs = ARENA_ARRAY(arena, int64_t, n);
  for (int k = 0; k < n; k++) costs[k] = edge_cost(aim, i, &table->loads[k]);
  map_put(of, table, costs);
  return costs;
}

typedef struct Least {
  Ps time;
  Bytes bytes; /* of the assignment that takes it */
} Least;

static int64_t least_in(Arena *arena, const Aim *aim, int *values) {
  const Unrolled *all = aim->b->all;
  Map *known[3], *known_edges[8];
  for (int i = 0; i < ARRAY_LENGTH(known); i++) known[i] = map_create(arena);
  for (int i = 0; i < ARRAY_LENGTH(known_edges); i++)
    known_edges[i] = map_create(arena);
  int *n_values = ARENA_ARRAY(arena, int, all->n + 1), n_pairs = 0;
  const int64_t **costs = ARENA_ARRAY(arena, const int64_t *, all->n + 1);
  PairCosts *pairs = ARENA_ARRAY(arena, PairCosts, all->n_edges + 1);
  for (int u = 0; u < all->n; u++) {
    n_values[u] = aim->s->tables->unit[all->unit[u]]->n_values;
    costs[u] = unit_costs(arena, aim, known, all->unit[u]);
  }
  for (int i = 0; i < all->n_edges; i++) {
    const int64_t *of = edge_costs(arena, aim, known_edges, all->edges[i].edge);
    pairs[n_pairs++] = (PairCosts){all->edges[i].from, all->edges[i].to, of};
  }
  PairProblem problem = {all->n, n_values, costs, n_pairs, pairs};
  return eliminate(arena, &problem, MOST_ENTRIES, values);
}

/* Returns a time of -1 if a table would be too large. */
static Least least(Bounding *b, const Aim *aim) {
  Arena *arena = arena_beside(b->arena);
  int *values = ARENA_ARRAY(arena, int, b->all->n + 1);
  int64_t sum = least_in(arena, aim, values);
  Least out = {-1, 0};
  if (b->r->is_stopped && b->r->is_stopped(b->r->user))
    b->reason = "the search was stopped";
  if (sum >= 0) {
    for (int u = 0; u < b->all->n; u++) {
      int unit = b->all->unit[u];
      out.bytes +=
          bytes_of(&aim->s->tables->unit[unit]->loads[values[u]], aim->s) /
          b->r->units->units.data[unit]->times;
    }
    out.time = (Ps)(((double)sum / BOUND_ONE) -
                    aim->weights.per_byte * (double)b->r->memory);
  }
  arena_destroy(arena);
  return out;
}

/* ---- the best weights of a setting ---- */

static void keep(Setting *s, const Aim *aim, Ps time) {
  if (time <= s->bound) return;
  s->bound = time;
  s->weights = aim->weights;
}

/* Returns false if there is no answer.  Memory gets a price where the least
 * plan does not fit: the price that makes the bytes those of a rank is best. */
static bool try_weights(Bounding *b, Setting *s, BoundWeights weights) {
  enum { MOST_PRICES = 8 };
  weights.per_byte = 0;
  Aim aim = {b, s, weights};
  Least at = least(b, &aim);
  if (at.time < 0 || b->reason) return false;
  keep(s, &aim, at.time);
  if (at.bytes <= b->r->memory) return true;
  double low = 0, high = 0, price = b->last.per_byte;
  if (price <= 0) price = (double)at.time / (double)b->r->memory;
  for (int i = 0; i < MOST_PRICES && s->bound < b->r->step; i++) {
    aim.weights.per_byte = price;
    at = least(b, &aim);
    keep(s, &aim, at.time);
    if (at.bytes > b->r->memory)
      low = price;
    else
      high = price;
    price = high > 0 ? (low + high) / 2 : price * 4;
  }
  return true;
}

/* Without those of links, which come last, a start says nothing of its link. */
static const int8_t starts[][N_BOUND_WEIGHTS] = {
    {64, 0, 64, 0, 0, 0},   {64, 0, 32, 32, 0, 0}, {64, 0, 0, 64, 0, 0},
    {64, 0, 48, 16, 0, 0},  {64, 0, 32, 0, 32, 0}, {64, 0, 0, 0, 64, 0},
    {64, 0, 16, 16, 32, 0}, {32, 32, 0, 0, 64, 0}, {32, 32, 32, 0, 32, 0},
    {32, 0, 32, 0, 0, 32}};
enum { FIRST_WITH_LINK = 4 };

/* The best weights of a setting are often good for the next one. */
static bool try_first(Bounding *b, Setting *s) {
  BoundWeights stream = {.split = -1};
  stream.of[BOUND_forward_stream] = stream.of[BOUND_backward_stream] =
      BOUND_ONE;
  if (!try_weights(b, s, stream)) return false;
  if (s->bound < b->r->step && b->last.split >= -1) try_weights(b, s, b->last);
  b->last = s->weights;
  return true;
}

static void try_starts(Bounding *b, Setting *s) {
  for (int i = 0; i < ARRAY_LENGTH(starts) && s->bound < b->r->step; i++) {
    int n_links = i < FIRST_WITH_LINK ? 1 : N_LOAD_LINKS;
    if (i > 0 && b->r->ranks == 1) break;
    for (int l = 0; l < n_links && s->bound < b->r->step; l++) {
      BoundWeights w = {.link = l, .split = -1};
      for (int k = 0; k < N_BOUND_WEIGHTS; k++) w.of[k] = starts[i][k];
      try_weights(b, s, w);
    }
  }
}

static void try_splits(Bounding *b, Setting *s) {
  BoundWeights w = s->weights;
  for (int i = 0; i < b->r->units->splits.n && s->bound < b->r->step; i++) {
    w.split = i;
    try_weights(b, s, w);
  }
}

/* Moves weight from one load to another while that helps. */
static void refine(Bounding *b, Setting *s) {
  static const int8_t moves[][N_BOUND_WEIGHTS] = {
      {0, 0, -1, 1, 0, 0},  {0, 0, 1, -1, 0, 0}, {0, 0, -1, 0, 1, 0},
      {0, 0, 1, 0, -1, 0},  {0, 0, 0, -1, 1, 0}, {0, 0, 0, 1, -1, 0},
      {-1, 1, 0, 0, 0, 0},  {1, -1, 0, 0, 0, 0}, {-1, 0, -1, 0, 0, 1},
      {-1, 0, 0, 0, -1, 1}, {1, 0, 1, 0, 0, -1}, {1, 0, 0, 0, 1, -1}};
  for (int step = 16; step >= 2 && s->bound < b->r->step; step /= 2) {
    bool is_better = false;
    for (int i = 0; i < ARRAY_LENGTH(moves) && s->bound < b->r->step; i++) {
      BoundWeights w = s->weights;
      bool is_legal = true;
      for (int k = 0; k < N_BOUND_WEIGHTS; k++) {
        w.of[k] += moves[i][k] * step;
        is_legal &= w.of[k] >= 0;
      }
      Ps before = s->bound;
      if (is_legal) try_weights(b, s, w);
      is_better |= s->bound > before;
    }
    if (is_better) step *= 2;
  }
}

/* ---- settings ---- */

static Bytes least_bytes(const Bounding *b, const Setting *s) {
  Bytes sum = 0;
  for (int u = 0; u < b->r->units->units.n; u++) {
    const UnitShape *shape = s->tables->unit[u];
    Bytes least = INT64_MAX;
    for (int i = 0; i < shape->n_values; i++) {
      Bytes bytes = bytes_of(&shape->loads[i], s);
      if (bytes < least) least = bytes;
    }
    sum += least;
  }
  return sum;
}

static bool make_settings(Bounding *b, const Mesh *mesh, int64_t microbatches) {
  const BoundRequest *r = b->r;
  int last = microbatches > 1 ? (1 << mesh->n_axes) - 1 : 0;
  for (int axes = 0; axes <= last; axes++) {
    TableRequest request = {
        .loads = {r->units, mesh, r->slice, r->model, microbatches},
        .batch_axes = microbatches > 1 ? axes : ANY_AXES};
    const UnitTables *tables = unit_tables(b->arena, &request);
    if (!tables) continue;
    if (tables->is_partial) {
      b->reason = "a unit has too many assignments";
      return false;
    }
    for (int zero = 0; zero < N_ZERO_LEVELS; zero++)
      for (int again = 0; again <= r->may_recompute; again++) {
        if (!(r->zeros >> zero & 1)) continue;
        Setting *s = ARENA_NEW(b->arena, Setting);
        *s = (Setting){tables, mesh, microbatches, zero, again, .bound = -1};
        if (least_bytes(b, s) > r->memory) continue;
        vec_push(b->arena, &b->settings, s);
        if (!try_first(b, s)) {
          if (!b->reason) b->reason = "a table would be too large";
          return false;
        }
      }
  }
  return true;
}

static bool walk_meshes(Bounding *b) {
  const BoundRequest *r = b->r;
  for (int64_t outer = 1; outer <= r->ranks; outer++) {
    if (r->ranks % outer != 0 || (outer == 1 && r->ranks > 1)) continue;
    Mesh *mesh = ARENA_NEW(b->arena, Mesh);
    int64_t sizes[] = {outer, r->ranks / outer};
    for (int i = 0; i < 2; i++)
      if (sizes[i] > 1)
        mesh->axes[mesh->n_axes++] = (MeshAxis){.name = i ? "inner" : "outer",
                                                .size = (int32_t)sizes[i]};
    int64_t m = r->microbatches ? r->microbatches : 1;
    for (; m <= r->batch && r->batch % m == 0; m *= 2) {
      if (!make_settings(b, mesh, m)) return false;
      if (r->microbatches) break;
    }
  }
  return true;
}

static Setting *least_setting(const Bounding *b) {
  Setting *best = NULL;
  for (int i = 0; i < b->settings.n; i++) {
    Setting *s = b->settings.data[i];
    if (!best || s->bound < best->bound) best = s;
  }
  return best;
}

/* Only the setting whose bound is the least is worth one. */
typedef void Effort(Bounding *b, Setting *s);
static Effort *const efforts[] = {try_starts, try_splits, refine, try_splits};

Bound plan_bound(Arena *arena, const BoundRequest *request) {
  enum { MOST_EFFORTS = 200 };
  Bounding b = {.arena = arena, .r = request, .last = {.split = -2}};
  b.all = unroll(arena, request->units);
  if (!b.all)
    return (Bound){.reason = "blocks that are not neighbours share a value"};
  if (!walk_meshes(&b)) return (Bound){.reason = b.reason};
  Setting *s = least_setting(&b);
  for (int i = 0; i < MOST_EFFORTS && s && s->effort < ARRAY_LENGTH(efforts);
       i++) {
    efforts[s->effort++](&b, s);
    if (b.reason) return (Bound){.reason = b.reason};
    s = least_setting(&b);
  }
  if (!s) return (Bound){.reason = "no setting has a plan that fits"};
  return (Bound){.time = s->bound < request->step ? s->bound : request->step,
                 .mesh = s->mesh,
                 .microbatches = s->microbatches,
                 .zero = s->zero,
                 .recomputes = s->recomputes,
                 .weights = s->weights};
}
