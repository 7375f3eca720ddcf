/*
 * work.c -- adds up the work of a step once for each kind of device, and
 * divides it by what the time of all devices is worth.
 *
 * Kernels are priced from the sizes of their operands, as costs.c prices parts
 * of them.  A unit of which all kernels have one path is on the ranks of one
 * stage, which may be of the kind that is cheapest for it.
 */
#include "planner/recheck/work.h"

#include "ir/list/instructions.h"
#include "ir/scan.h"
#include "ir/work.h"
#include "price/units/stage_groups.h"

/* Returns what the whole kernel takes on a device. */
static double kernel_takes(Arena *scratch, const BoundRequest *r,
                           const BoundKind *kind, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  double iteration = 0;
  if (!node_is_launched(graph, id)) return 0;
  for (int i = 0; node->op == OP_scan && i < node->body->nodes.n; i++)
    iteration += kernel_takes(scratch, r, kind, node->body, i);
  if (node->op == OP_scan) return iteration * (double)scan_steps(node);
  CostModel model = bound_whole_model(kind->model);
  const Type **inputs = ARENA_ARRAY(scratch, const Type *, node->n_inputs + 1);
  Work work;
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = graph_type(graph, node->inputs[i]);
  op_work(scratch, &(WorkCall){node, inputs, node->types, NULL}, &work);
  LaunchCost cost = cost_work(&model, node, &work);
  /* Each part is a launch, which takes more than what is rounded off. */
  double parts = (double)r->ranks * (double)r->batch;
  double rounded = cost.launch > 1 ? 0 : parts;
  double takes = (double)cost.time + (double)cost.launch - rounded;
  return takes > 0 ? takes : 0;
}

static double update_takes(const BoundRequest *r, const BoundKind *kind,
                           const UnitParam *param) {
  double takes = (double)cost_bytes(kind->model, (double)param->updated);
  return takes > (double)r->ranks ? takes - (double)r->ranks : 0;
}

/* The prices of the same work on each kind. */
typedef struct Bill {
  double of[MOST_BOUND_KINDS];
} Bill;

/* Returns the least that the ranks pay which share this work: all of them as
 * much, unless there are stages. */
static double paid(const BoundRequest *r, const Bill *bill) {
  double least = bill->of[0], sum = 0;
  for (int k = 0; k < r->n_kinds; k++) {
    if (bill->of[k] < least) least = bill->of[k];
    sum += bill->of[k] * (double)r->kinds[k].ranks / (double)r->ranks;
  }
  return r->most_groups > 1 ? least : sum;
}

static double unit_paid(Arena *scratch, const BoundRequest *r,
                        const double *prices, int at) {
  const PlanUnit *unit = r->units->units.data[at];
  Bill whole = {{0}};
  double alone = 0;
  for (int i = 0; i < unit->kernels.n; i++) {
    Bill one = {{0}};
    for (int k = 0; k < r->n_kinds; k++) {
      one.of[k] =
          prices[k] * kernel_takes(scratch, r, &r->kinds[k], r->units->graph,
                                   unit->kernels.data[i].id);
      whole.of[k] += one.of[k];
    }
    alone += paid(r, &one);
  }
  bool is_in_one = unit_is_in_one_stage(r->units, at);
  return (double)unit->times * (is_in_one ? paid(r, &whole) : alone);
}

static double update_paid(const BoundRequest *r, const double *prices,
                          const UnitParam *param) {
  Bill bill = {{0}};
  for (int k = 0; k < r->n_kinds; k++)
    bill.of[k] = prices[k] * update_takes(r, &r->kinds[k], param);
  return (double)r->units->units.data[param->unit]->times * paid(r, &bill);
}

Ps recheck_work(Arena *arena, const BoundRequest *r,
                const BoundWeights *prices) {
  double sum = 0, worth = 0;
  if (prices->n_kinds != r->n_kinds) return 0;
  Arena *scratch = arena_beside(arena);
  for (int k = 0; k < r->n_kinds; k++)
    worth += (double)r->kinds[k].ranks * prices->of_kind[k];
  for (int u = 0; u < r->units->units.n; u++)
    sum += unit_paid(scratch, r, prices->of_kind, u);
  for (int i = 0; i < r->units->params.n; i++)
    sum += update_paid(r, prices->of_kind, &r->units->params.data[i]);
  arena_destroy(scratch);
  return (Ps)(sum / worth);
}
