/*
 * decode.c -- reads values off the messages, in an order in which memory stays
 * within the limit: a variable without a value counts with its least usages.
 */
#include "planner/factor/eliminate.h"
#include "planner/factor/solver.h"

/* Returns what a value costs with the values of earlier variables. */
static FactorCost value_cost(const Solver *s, int variable, int value) {
  const Messages *m = s->messages;
  const Core *core = s->core;
  bool is_told = !s->budget->without[FACTOR_decoding];
  FactorCost sum =
      (is_told ? m->theta : core->costs)[core->first[variable] + value];
  if (m->is_bad[core->first[variable] + value]) sum += COST_AVOID;
  for (int k = core->edge_begins[variable]; k < core->edge_begins[variable + 1];
       k++) {
    const CoreEdge *edge = &core->edges[core->edge_lists[k]];
    if (edge->of[1] != variable) break;
    int other = s->labelling->values[edge->of[0]];
    FactorCost cost = edge->costs[(int64_t)other * edge->n[1] + value];
    sum += cost >= COST_LIMIT ? COST_AVOID : cost;
    if (is_told && cost < COST_LIMIT)
      sum += m->moved[edge->at[0] + other] + m->moved[edge->at[1] + value];
  }
  return sum;
}

static int choose(const Solver *s, int variable, bool freely) {
  const Core *core = s->core;
  FactorCost least = 0;
  int64_t least_over = INT64_MAX;
  int best = 0;
  for (int v = 0; v < core->n[variable]; v++) {
    if (core->costs[core->first[variable] + v] >= COST_LIMIT) continue;
    FactorCost cost = value_cost(s, variable, v);
    if (least_over == 0 && cost >= least) continue;
    int64_t over = freely ? 0 : labelling_over(s->labelling, variable, v);
    if (over > least_over || (over == least_over && cost >= least)) continue;
    least = cost;
    least_over = over;
    best = v;
  }
  return best;
}

void decode(Solver *s, bool freely) {
  labelling_clear(s->labelling);
  for (int i = 0; i < s->core->n_variables; i++)
    labelling_put(s->labelling, i, choose(s, i, freely));
  s->labelling->cost = labelling_cost(s->labelling);
  if (cost_is_allowed(s->labelling->cost))
    solver_better(s, s->labelling->cost.sum);
}
