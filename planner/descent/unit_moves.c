/*
 * unit_moves.c -- goes from the best plan that elimination found to plans that
 * place one unit otherwise, as long as they are faster.
 *
 *     move                        estimate   price
 *     conv2d[3] over C, not N     12.99 ms   15.39 ms of 16.00, so it stays
 *     linear[1] over O, not I     13.24 ms   15.11 ms, so this, too
 *     conv2d[1] whole             13.32 ms   16.80 ms
 *
 * Loads know less of waits than the simulator does, so the plan of the least
 * loads is seldom the fastest.  But one beside it that is faster mostly has
 * hardly higher loads: moves are priced in the order of their estimates, and
 * few of them.
 *
 * Units at the same place of equal blocks move together.
 */
#include "planner/elimination.h"

#include <stdlib.h>
#include <string.h>

/* Another value of a unit. */
typedef struct UnitMove {
  Ps step; /* estimate */
  int unit, value;
} UnitMove;

typedef VEC(UnitMove) UnitMoves;

/* The plan from which moves are tried. */
typedef struct Moving {
  Pricing *p;
  const EliminatedPlans *plans;
  const Units *units;
  const UnitTables *tables;
  int *inside; /* by unit: how many units of its block come before it */
  int *values; /* by unit */
} Moving;

static const PlanUnit *unit_at(const Moving *m, int unit) {
  return m->units->units.data[unit];
}

static void number_insides(Moving *m) {
  for (int u = 0; u < m->units->units.n; u++)
    for (int k = 0; k < u && unit_at(m, u)->block >= 0; k++)
      m->inside[u] += unit_at(m, k)->block == unit_at(m, u)->block;
}

/* Returns false if a unit has a value that the tables lack. */
static bool find_values(Moving *m, const Proposal *proposal) {
  for (int u = 0; u < m->units->units.n; u++) {
    const UnitShape *shape = m->tables->unit[u];
    int i = 0;
    while (i < shape->n_values &&
           memcmp(&shape->values[i], &proposal->assignments[u],
                  sizeof shape->values[i]) != 0)
      i++;
    if (i == shape->n_values) return false;
    m->values[u] = i;
  }
  return true;
}

static bool moves_with(const Moving *m, int unit, int other) {
  if (unit == other) return true;
  return unit_at(m, unit)->block >= 0 && unit_at(m, other)->block >= 0 &&
         m->tables->unit[unit] == m->tables->unit[other] &&
         m->inside[unit] == m->inside[other];
}

static bool is_first(const Moving *m, int unit) {
  for (int u = 0; u < unit; u++)
    if (moves_with(m, unit, u)) return false;
  return true;
}

/* The values of all units after a move. */
static int *moved(const Moving *m, Arena *arena, int unit, int value) {
  int n = m->units->units.n;
  int *out = ARENA_ARRAY(arena, int, n + 1);
  for (int u = 0; u < n; u++)
    out[u] = moves_with(m, unit, u) ? value : m->values[u];
  return out;
}

/* ---- moves in the order of their estimates ---- */

static int compare_moves(const void *a, const void *b) {
  const UnitMove *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  if (x->unit != y->unit) return x->unit < y->unit ? -1 : 1;
  return x->value < y->value ? -1 : x->value > y->value;
}

static UnitMoves list_moves(const Moving *m, Arena *arena,
                            const Candidate *from) {
  UnitMoves out = {0};
  for (int u = 0; u < m->units->units.n; u++)
    for (int i = 0; is_first(m, u) && i < m->tables->unit[u]->n_values; i++) {
      if (i == m->values[u]) continue;
      Ps step = propose_estimate(m->units, m->tables, moved(m, arena, u, i),
                                 from->zero, from->remats != 0);
      vec_push(arena, &out, ((UnitMove){step, u, i}));
    }
  if (out.n > 0)
    qsort(out.data, (size_t)out.n, sizeof *out.data, compare_moves);
  return out;
}

/* ---- prices ---- */

/* The candidate with other values of units. */
static Candidate with_values(const Moving *m, const Candidate *from,
                             const int *values) {
  Arena *arena = m->p->arena;
  Proposal proposal = *from->proposal;
  Assignment *assignments =
      ARENA_ARRAY(arena, Assignment, m->units->units.n + 1);
  for (int u = 0; u < m->units->units.n; u++)
    assignments[u] = m->tables->unit[u]->values[values[u]];
  proposal.assignments = assignments;
  const Candidate placed = proposal_candidate(m->plans, &proposal);
  Candidate out = *from;
  out.lines = placed.lines;
  out.axis_names = placed.axis_names;
  out.proposal = placed.proposal;
  return out;
}

/* Returns the best one that it came to.  What is faster stays moved. */
static const Scored *try_units(Moving *m, const Scored *at, int most) {
  Arena *arena = arena_beside(m->p->arena);
  UnitMoves moves = list_moves(m, arena, &at->candidate);
  for (int i = 0; i < moves.n && i < most && !pricing_is_over(m->p); i++) {
    const UnitMove *move = &moves.data[i];
    int *values = moved(m, arena, move->unit, move->value);
    Candidate c = with_values(m, &at->candidate, values);
    const Scored *scored = pricing_known(m->p, &c);
    if (!scored) scored = pricing_one(m->p, &c);
    if (!scored || !price_is_better(&scored->price, &at->price)) continue;
    at = scored;
    memcpy(m->values, values, (size_t)m->units->units.n * sizeof *values);
  }
  arena_destroy(arena);
  return at;
}

const Scored *climb_units(Pricing *p, const EliminatedPlans *plans,
                          const Scored *at, int most) {
  const Units *units = eliminated_units(plans);
  for (const Scored *before = NULL;
       at != before && most > 0 && !pricing_is_over(p);) {
    const Proposal *proposal = at->candidate.proposal;
    Moving m = {.p = p, .plans = plans, .units = units};
    before = at;
    if (!proposal) break;
    m.tables = eliminated_tables(plans, proposal, at->candidate.microbatches);
    m.inside = ARENA_ARRAY(p->arena, int, units->units.n + 1);
    m.values = ARENA_ARRAY(p->arena, int, units->units.n + 1);
    number_insides(&m);
    if (m.tables && find_values(&m, proposal)) at = try_units(&m, at, most);
  }
  return at;
}
