/*
 * solver.c -- the state of a solution: the best values, the bound, what is left
 * of the budget.
 */
#include "planner/factor/solver.h"

#include "planner/factor/eliminate.h"

int solver_random(Solver *s, int n) {
  uint64_t z = ++s->random * UINT64_C(0x9e3779b97f4a7c15);
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return (int)((z ^ (z >> 31)) % (uint64_t)n);
}

bool solver_must_stop(Solver *s) {
  const FactorBudget *budget = s->budget;
  return s->is_proved || (s->most_nodes && s->nodes >= s->most_nodes) ||
         (budget->stop && budget->stop(budget->user));
}

bool solver_count(Solver *s) {
  s->nodes++;
  return !solver_must_stop(s);
}

void solver_report(Solver *s) {
  if (s->bound >= s->cost) s->is_proved = true;
  if (s->budget->better && !s->has_cap && !s->is_beside)
    s->budget->better(s->budget->user,
                      s->cost < COST_LIMIT ? s->cost : FACTOR_FORBIDDEN,
                      s->bound < s->cost ? s->bound : s->cost);
}

void solver_better(Solver *s, FactorCost cost) {
  if (cost >= s->cost) return;
  s->cost = cost;
  for (int i = 0; i < s->core->n_variables; i++)
    s->best[i] = s->labelling->values[i];
  solver_report(s);
}

bool solver_take_best(Solver *s, const Solver *from) {
  if (from->cost >= s->cost) return false;
  s->cost = from->cost;
  for (int i = 0; i < s->core->n_variables; i++) s->best[i] = from->best[i];
  return true;
}

FactorCost solver_worth(const Solver *s, Cost cost) {
  Wide sum = cost.sum +
             (((Wide)cost.over * s->labelling->weight) >> PRICE_BITS) +
             (Wide)cost.n_forbidden * COST_AVOID;
  return sum < COST_NEVER ? (FactorCost)sum : COST_NEVER;
}

void solver_raise(Solver *s, FactorCost bound) {
  if (bound <= s->bound) return;
  s->bound = bound;
  solver_report(s);
}

Solver *solver_create(Arena *arena, const Core *core,
                      const FactorBudget *budget) {
  Solver *s = ARENA_NEW(arena, Solver);
  s->arena = arena;
  s->budget = budget;
  s->most_nodes = budget->nodes;
  s->core = core;
  s->messages = messages_create(arena, core);
  s->messages->is_local = budget->without[FACTOR_messages];
  s->labelling = labelling_create(arena, core);
  s->other_labelling = labelling_create(arena, core);
  s->prices = ARENA_ARRAY(arena, int64_t, core->n_rows + 1);
  s->root_prices = ARENA_ARRAY(arena, int64_t, core->n_rows + 1);
  s->scale = 1 << 20;
  s->labelling->weight = s->other_labelling->weight = (int64_t)1 << PRICE_BITS;
  s->best = ARENA_ARRAY(arena, int, core->n_variables);
  s->reading = ARENA_ARRAY(arena, int, core->n_variables);
  s->usages = ARENA_ARRAY(arena, int64_t, core->n_rows + 1);
  s->steps = ARENA_ARRAY(arena, int64_t, core->n_rows + 1);
  s->numbers = ARENA_ARRAY(arena, int, core->n_variables);
  for (int i = 0; i < core->n_variables; i++) s->numbers[i] = -1;
  s->cost = COST_NEVER;
  s->bound = -COST_NEVER;
  return s;
}

FactorCost solver_gap(const Solver *s, int variable) {
  const Core *core = s->core;
  const Messages *m = s->messages;
  const int *values = s->labelling->values;
  FactorCost sum = m->theta[core->first[variable] + values[variable]];
  for (int k = core->edge_begins[variable]; k < core->edge_begins[variable + 1];
       k++) {
    const CoreEdge *edge = &core->edges[core->edge_lists[k]];
    int a = values[edge->of[0]], b = values[edge->of[1]];
    FactorCost cost = edge->costs[(int64_t)a * edge->n[1] + b];
    sum += cost < COST_AVOID
               ? cost + m->moved[edge->at[0] + a] + m->moved[edge->at[1] + b]
               : COST_AVOID;
  }
  return sum;
}
