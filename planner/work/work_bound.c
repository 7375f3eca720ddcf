/*
 * work_bound.c -- bounds a step by the time that all devices together have for
 * the kernels of the model.
 *
 *     kind 0: 2 devices, kind 1: 4      mu_0 = 1, mu_1 = 0.2
 *     unit A takes 6 ms, or 10 ms       least of 6 and 2
 *     unit B takes 1 ms, or 9 ms        least of 1 and 1.8
 *     step >= (2 + 1) / (2 x 1 + 4 x 0.2) = 1.07 ms
 *
 * A rank of kind k computes for at most a step, so with prices mu_k for its
 * time
 *
 *     step x sum of n_k mu_k  >=  sum over ranks of mu_k x time of its kernels
 *
 * The ranks that have a unit take together no less than one device takes for
 * all of it.  They are of some kinds, of which the cheapest one counts.  Plans
 * of one stage give each rank as large a part, so there the mean over ranks
 * counts, and the slowest kind bounds best.  Prices are moved between kinds as
 * long as that helps: the bound is a concave function of them.
 */
#include "planner/work/work_bound.h"

#include "ir/scan.h"
#include "price/units/stage_groups.h"

/* The work that some ranks have together: a unit, a kernel or an update. */
typedef struct WorkItem {
  double times;                   /* how often the model has it */
  double takes[MOST_BOUND_KINDS]; /* picoseconds, on a device of each kind */
} WorkItem;

typedef struct WorkBound {
  const BoundRequest *r;
  CostModel models[MOST_BOUND_KINDS];
  VEC(WorkItem) items;
} WorkBound;

static int n_kinds_of(const WorkBound *b) {
  return b->r->n_kinds;
}

/* ---- what kernels take ---- */

/* Where launches are free, parts of a kernel may take less by what is rounded:
 * half a picosecond each, of at most so many parts. */
static double lost_by_rounding(const WorkBound *b, const LaunchCost *cost) {
  return cost->launch > 1 ? 0 : (double)b->r->ranks * (double)b->r->batch;
}

static void add_launch(const WorkBound *b, const Graph *graph, int id,
                       double times, WorkItem *to) {
  if (!node_is_launched(graph, id)) return;
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_scan) {
    times *= (double)scan_steps(node);
    for (int i = 0; i < node->body->nodes.n; i++)
      add_launch(b, node->body, i, times, to);
    return;
  }
  for (int k = 0; k < n_kinds_of(b); k++) {
    LaunchCost cost = cost_launch(&b->models[k], graph, id);
    double time = (double)(cost.launch + cost.time);
    double less = lost_by_rounding(b, &cost);
    if (time > less) to->takes[k] += times * (time - less);
  }
}

static void add_unit(Arena *arena, WorkBound *b, int at) {
  const PlanUnit *unit = b->r->units->units.data[at];
  WorkItem item = {.times = (double)unit->times};
  bool is_whole = unit_is_in_one_stage(b->r->units, at);
  for (int i = 0; i < unit->kernels.n; i++) {
    add_launch(b, b->r->units->graph, unit->kernels.data[i].id, 1, &item);
    if (is_whole && i + 1 < unit->kernels.n) continue;
    vec_push(arena, &b->items, item);
    item = (WorkItem){.times = (double)unit->times};
  }
}

/* Each parameter is updated somewhere, in parts or as a whole. */
static void add_update(Arena *arena, WorkBound *b, const UnitParam *param) {
  const PlanUnit *unit = b->r->units->units.data[param->unit];
  WorkItem item = {.times = (double)unit->times};
  double less = (double)b->r->ranks;
  for (int k = 0; k < n_kinds_of(b); k++) {
    double time = (double)cost_bytes(&b->models[k], (double)param->updated);
    item.takes[k] = time > less ? time - less : 0;
  }
  vec_push(arena, &b->items, item);
}

static void find_items(Arena *arena, WorkBound *b) {
  const Units *units = b->r->units;
  for (int k = 0; k < n_kinds_of(b); k++)
    b->models[k] = bound_whole_model(b->r->kinds[k].model);
  for (int u = 0; u < units->units.n; u++) add_unit(arena, b, u);
  for (int i = 0; i < units->params.n; i++)
    add_update(arena, b, &units->params.data[i]);
}

/* ---- prices of kinds ---- */

static double cheapest(const WorkBound *b, const WorkItem *item,
                       const double *prices) {
  double least = prices[0] * item->takes[0];
  for (int k = 1; k < n_kinds_of(b); k++)
    if (prices[k] * item->takes[k] < least) least = prices[k] * item->takes[k];
  return least;
}

static double mean_of_ranks(const WorkBound *b, const WorkItem *item,
                            const double *prices) {
  double sum = 0;
  for (int k = 0; k < n_kinds_of(b); k++)
    sum += (double)b->r->kinds[k].ranks * prices[k] * item->takes[k];
  return sum / (double)b->r->ranks;
}

/* Returns the bound with these prices of time. */
static double bound_at(const WorkBound *b, const double *prices) {
  bool has_stages = b->r->most_groups > 1;
  double sum = 0, time = 0;
  for (int i = 0; i < b->items.n; i++) {
    const WorkItem *item = &b->items.data[i];
    sum += item->times * (has_stages ? cheapest(b, item, prices)
                                     : mean_of_ranks(b, item, prices));
  }
  for (int k = 0; k < n_kinds_of(b); k++)
    time += (double)b->r->kinds[k].ranks * prices[k];
  return sum / time;
}

/* A kind is worth the more the faster it computes the whole model. */
static void first_prices(const WorkBound *b, double *out) {
  for (int k = 0; k < n_kinds_of(b); k++) {
    double takes = 1;
    for (int i = 0; i < b->items.n; i++)
      takes += b->items.data[i].times * b->items.data[i].takes[k];
    out[k] = 1 / takes;
  }
}

/* Sets how the two kinds share what their devices are worth together. */
static void share(const WorkBound *b, int i, int j, double part, double both,
                  double *prices) {
  prices[i] = both * (1 - part) / (double)b->r->kinds[i].ranks;
  prices[j] = both * part / (double)b->r->kinds[j].ranks;
}

/* Narrows the range of shares in which the bound is highest.  Keeps the share
 * where none is better, as of kinds that are alike. */
static void share_best(const WorkBound *b, int i, int j, double *prices) {
  enum { ROUNDS = 90 };
  double of_i = prices[i] * (double)b->r->kinds[i].ranks;
  double of_j = prices[j] * (double)b->r->kinds[j].ranks;
  double both = of_i + of_j, low = 1e-6, high = 1 - 1e-6;
  double before = bound_at(b, prices);
  for (int n = 0; n < ROUNDS; n++) {
    double a = low + (high - low) / 3, c = high - (high - low) / 3;
    share(b, i, j, a, both, prices);
    double at_a = bound_at(b, prices);
    share(b, i, j, c, both, prices);
    if (at_a < bound_at(b, prices))
      low = a;
    else
      high = c;
  }
  share(b, i, j, (low + high) / 2, both, prices);
  if (bound_at(b, prices) <= before * (1 + 1e-12))
    share(b, i, j, of_j / both, both, prices);
}

static void find_prices(const WorkBound *b, double *prices) {
  enum { ROUNDS = 4 };
  int n = n_kinds_of(b);
  double most = 0;
  first_prices(b, prices);
  for (int round = 0; round < ROUNDS && n > 1; round++)
    for (int i = 0; i < n; i++)
      for (int j = i + 1; j < n; j++) share_best(b, i, j, prices);
  for (int k = 0; k < n; k++)
    if (prices[k] > most) most = prices[k];
  for (int k = 0; k < n; k++) prices[k] /= most;
}

Bound work_bound(Arena *arena, const BoundRequest *request) {
  WorkBound b = {.r = request};
  Bound out = {.by = BOUND_BY_work,
               .weights = {.n_kinds = request->n_kinds, .split = -1}};
  find_items(arena, &b);
  find_prices(&b, out.weights.of_kind);
  double time = bound_at(&b, out.weights.of_kind);
  out.time = time < (double)request->step ? (Ps)time : request->step;
  return out;
}
