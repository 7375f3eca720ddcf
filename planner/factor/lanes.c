/*
 * lanes.c -- the bound and several labellings side by side.
 *
 * A round has four items of work: one raises the bound, three change labellings
 * of their own by what the messages said when the round began.  After all are
 * done, each learns what the others found, always in the same order.  How many
 * items there are, and how much work each does, depends on counts alone, so the
 * result is the same whatever threads do them.
 *
 * Each lane allocates from a memory of its own, since a memory is for one
 * thread.  Where one has no memory left, the caller's memory ends as if a
 * request of its own had failed.
 */
#include "planner/factor/solver.h"

enum { BOUND, N_LANES = 4 }; /* the first lane; the others are walkers */

typedef struct Lanes Lanes;

typedef struct Lane {
  Lanes *lanes;
  Memory *memory;
  Arena *arena;
  Solver *s;
  int64_t work; /* in this round */
} Lane;

struct Lanes {
  Memory *memory; /* of the caller */
  Solver *s;      /* which the bound's lane uses */
  Branches *branches;
  int round, n_steady;
  Lane lane[N_LANES];
};

/* ---- what lanes know of each other ---- */

/* Gives a walker what is known when a round begins.  By duality, a price of the
 * sum of all prices keeps the cheapest labelling from exceeding the limit. */
static void tell(Solver *walker, const Solver *s) {
  const Core *core = s->core;
  messages_copy(walker->messages, s->messages);
  for (int row = 0; row < core->n_rows; row++)
    walker->prices[row] = s->prices[row];
  solver_take_best(walker, s);
  walker->bound = s->bound;
  int64_t price = s->messages->sums[core->n_rows];
  if (price > 0 && s->cost < COST_LIMIT) walker->labelling->weight = price;
}

static Solver *walker_of(Lanes *l, int lane) {
  return l->lane[lane].s;
}

/* All walkers go on with the best values of all, or with the best labelling
 * while none is allowed.  A labelling may lead far away from the best values,
 * and seldom finds the way back. */
static void choose_labelling(Lanes *l) {
  const Labelling *best = walker_of(l, BOUND + 1)->labelling;
  for (int i = BOUND + 2; i < N_LANES; i++) {
    const Solver *other = walker_of(l, i);
    if (other->labelling->values[0] >= 0 &&
        (best->values[0] < 0 ||
         rounds_is_better(other, other->labelling, best)))
      best = other->labelling;
  }
  for (int i = BOUND + 1; i < N_LANES; i++) {
    Labelling *labelling = walker_of(l, i)->labelling;
    if (l->s->cost < COST_LIMIT)
      labelling_set(labelling, l->s->best);
    else if (best != labelling)
      labelling_copy(labelling, best);
  }
}

/* ---- items ---- */

static void free_lanes(Lanes *l) {
  for (int i = 0; i < N_LANES; i++) memory_destroy(l->lane[i].memory);
}

/* Other threads may still use their lanes. */
static void end_lane(void *user) {
  Lanes *l = user;
  if (!l->s->budget->side_by_side) free_lanes(l);
  memory_exhausted(l->memory);
}

static void create_lane(Lane *lane) {
  const Solver *s = lane->lanes->s;
  lane->memory = memory_create(end_lane, lane->lanes);
  lane->arena = arena_create(lane->memory);
  if (lane == &lane->lanes->lane[BOUND]) return;
  lane->s = solver_create(lane->arena, s->core, s->budget);
  lane->s->is_beside = true;
  lane->s->random = (uint64_t)(lane - lane->lanes->lane) << 32;
  if (s->labelling->values[0] >= 0)
    labelling_copy(lane->s->labelling, s->labelling);
}

/* Returns the work of the bound in a round: ten sweeps, each followed by a
 * reading.  Branches that are cheap have more of them. */
static int64_t work_of(const Lanes *l) {
  int64_t work = 30 * l->s->core->entries;
  return l->branches && work < BRANCH_WORK ? BRANCH_WORK : work;
}

/* Returns the work of a walker: the less the bound rises, the more. */
static int64_t walk_of(const Lanes *l) {
  int64_t work = work_of(l);
  if (l->n_steady >= STEADY_ROUNDS) return work;
  return (l->n_steady > 0 ? 2 * work : work) / 3 + 1;
}

static void raise_bound(Lanes *l) {
  Solver *s = l->s;
  if (l->n_steady >= STEADY_ROUNDS && !l->branches &&
      !s->budget->without[FACTOR_branching])
    l->branches = branches_create(s->arena, s);
  if (l->branches)
    rounds_branch(s, l->branches, work_of(l));
  else
    rounds_raise(s, 10);
}

/* A walker goes on from the best values with random numbers of its own.  While
 * the bound rises, the last one begins at what the messages say now, for memory
 * that is dear or as it is. */
static void walk(Lane *lane, int i) {
  Solver *s = lane->s;
  const Lanes *l = lane->lanes;
  int64_t end = s->work + lane->work;
  if ((i == N_LANES - 1 && l->n_steady == 0) || s->labelling->values[0] < 0)
    rounds_start(s, (l->round + i) % 2);
  rounds_walk(s, end - s->work);
}

static void work(void *of, int i) {
  Lanes *l = of;
  Lane *lane = &l->lane[i];
  if (i == BOUND)
    raise_bound(l);
  else if (lane->work > 0)
    walk(lane, i);
}

static void work_all(Lanes *l) {
  const FactorBudget *budget = l->s->budget;
  if (budget->side_by_side)
    budget->side_by_side(budget->user, N_LANES, work, l);
  else
    for (int i = 0; i < N_LANES; i++) work(l, i);
}

/* ---- rounds ---- */

/* Gives each lane its work of a round, and a share of the nodes that are left:
 * the bound has what no walker can have. */
static void share(Lanes *l) {
  Solver *s = l->s;
  int64_t part = s->most_nodes ? (s->most_nodes - s->nodes) / N_LANES : 0;
  for (int i = BOUND + 1; i < N_LANES; i++) {
    Solver *walker = walker_of(l, i);
    tell(walker, s);
    walker->nodes = walker->work = 0;
    walker->most_nodes = part;
    l->lane[i].work = walk_of(l);
    if (s->most_nodes && part == 0) l->lane[i].work = 0;
  }
  if (s->most_nodes) s->most_nodes -= (N_LANES - 1) * part;
}

/* Adds up what the lanes did. */
static void join(Lanes *l) {
  Solver *s = l->s;
  for (int i = BOUND + 1; i < N_LANES; i++) {
    const Solver *walker = walker_of(l, i);
    s->nodes += walker->nodes;
    s->work += walker->work;
    solver_take_best(s, walker);
  }
  s->most_nodes = s->budget->nodes;
  choose_labelling(l);
}

static void run_round(Lanes *l) {
  Solver *s = l->s;
  FactorCost bound = s->bound, cost = s->cost;
  int64_t nodes = s->nodes;
  share(l);
  s->is_beside = true;
  work_all(l);
  s->is_beside = false;
  join(l);
  if (s->nodes == nodes) s->nodes++; /* where a node of branches takes long */
  if (s->bound > bound || s->cost < cost) solver_report(s);
  l->n_steady = rounds_is_steady(s, bound) ? l->n_steady + 1 : 0;
  l->round++;
}

void lanes_run(Solver *s) {
  Arena *arena = s->arena;
  Lanes *l = ARENA_NEW(arena, Lanes);
  l->s = s;
  l->memory = arena_memory(arena);
  for (int i = 0; i < N_LANES; i++) {
    l->lane[i].lanes = l;
    create_lane(&l->lane[i]);
  }
  s->arena = l->lane[BOUND].arena;
  while (!solver_must_stop(s)) run_round(l);
  s->arena = arena;
  if (l->branches) branches_leave(l->branches);
  free_lanes(l);
}
