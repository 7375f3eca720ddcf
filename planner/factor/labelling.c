/*
 * plan.c -- keeps what values take by row, in a tree over the rows.
 */
#include "planner/factor/plan.h"

static void fill(Plan *plan, int at, int begin, int width) {
  const Core *core = plan->core;
  plan->more[at] = 0;
  if (width == 1) {
    plan->most[at] = begin < core->n_rows ? -core->room[begin] : INT64_MIN / 4;
    return;
  }
  fill(plan, 2 * at, begin, width / 2);
  fill(plan, 2 * at + 1, begin + width / 2, width / 2);
  int64_t a = plan->most[2 * at], b = plan->most[2 * at + 1];
  plan->most[at] = a > b ? a : b;
}

void plan_clear(Plan *plan) {
  for (int i = 0; i < plan->core->n_variables; i++) plan->values[i] = -1;
  fill(plan, 1, 0, plan->width);
}

Plan *plan_create(Arena *arena, const Core *core) {
  Plan *plan = ARENA_NEW(arena, Plan);
  plan->core = core;
  plan->width = 1;
  while (plan->width < core->n_rows) plan->width *= 2;
  plan->values = ARENA_ARRAY(arena, int, core->n_variables);
  plan->most = ARENA_ARRAY(arena, int64_t, 2 * (int64_t)plan->width);
  plan->more = ARENA_ARRAY(arena, int64_t, 2 * (int64_t)plan->width);
  plan_clear(plan);
  return plan;
}

/* Adds to the rows of a piece that lie in a subtree. */
static void add(Plan *plan, int at, int begin, int width, const CorePiece *of,
                int64_t usage) {
  if (of->end <= begin || begin + width <= of->begin) return;
  if (of->begin <= begin && begin + width <= of->end) {
    plan->most[at] += usage;
    plan->more[at] += usage;
    return;
  }
  add(plan, 2 * at, begin, width / 2, of, usage);
  add(plan, 2 * at + 1, begin + width / 2, width / 2, of, usage);
  int64_t a = plan->most[2 * at], b = plan->most[2 * at + 1];
  plan->most[at] = (a > b ? a : b) + plan->more[at];
}

/* Returns the most above the room in the rows of a piece in a subtree. */
static int64_t most_in(const Plan *plan, int at, int begin, int width,
                       const CorePiece *of) {
  if (of->end <= begin || begin + width <= of->begin) return INT64_MIN / 2;
  if (of->begin <= begin && begin + width <= of->end) return plan->most[at];
  int64_t a = most_in(plan, 2 * at, begin, width / 2, of);
  int64_t b = most_in(plan, 2 * at + 1, begin + width / 2, width / 2, of);
  return (a > b ? a : b) + plan->more[at];
}

static void add_all(Plan *plan, int variable, int value, int sign) {
  const Core *core = plan->core;
  for (int k = core->piece_begins[variable];
       k < core->piece_begins[variable + 1]; k++)
    if (core->pieces[k].usages[value])
      add(plan, 1, 0, plan->width, &core->pieces[k],
          sign * core->pieces[k].usages[value]);
}

void plan_put(Plan *plan, int variable, int value) {
  add_all(plan, variable, value, 1);
  plan->values[variable] = value;
}

void plan_take(Plan *plan, int variable) {
  add_all(plan, variable, plan->values[variable], -1);
  plan->values[variable] = -1;
}

int64_t plan_over(const Plan *plan, int variable, int value) {
  const Core *core = plan->core;
  int64_t over = 0;
  for (int k = core->piece_begins[variable];
       k < core->piece_begins[variable + 1]; k++) {
    const CorePiece *piece = &core->pieces[k];
    int64_t usage = piece->usages[value];
    if (usage == 0) continue;
    int64_t above = most_in(plan, 1, 0, plan->width, piece) + usage;
    over = above > over ? above : over;
  }
  return over;
}

int plan_worst_row(const Plan *plan) {
  int at = 1;
  while (at < plan->width)
    at = 2 * at + (plan->most[2 * at + 1] > plan->most[2 * at]);
  return at - plan->width;
}

void cost_add(Cost *to, FactorCost cost) {
  if (cost >= COST_LIMIT)
    to->n_forbidden++;
  else
    to->sum += cost;
}

Cost plan_cost(const Plan *plan) {
  const Core *core = plan->core;
  const int *values = plan->values;
  Cost cost = {plan->most[1] > 0 ? plan->most[1] : 0, 0, core->constant};
  for (int i = 0; i < core->n_variables; i++)
    cost_add(&cost, core->costs[core->first[i] + values[i]]);
  for (int e = 0; e < core->n_edges; e++) {
    const CoreEdge *edge = &core->edges[e];
    cost_add(&cost, edge->costs[(int64_t)values[edge->of[0]] * edge->n[1] +
                                values[edge->of[1]]]);
  }
  return cost;
}
