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

/* Gives a walker what is known when a round begins. */
static void tell(Solver *walker, const Solver *s) {
  const Core *core = s->core;
  messages_copy(walker->messages, s->messages);
  for (int row = 0; row < core->n_rows; row++)
    walker->prices[row] = s->prices[row];
  solver_take_best(walker, s);
  walker->bound = s->bound;
}

static Solver *walker_of(Lanes *l, int lane) {
  return l->lane[lane].s;
}

/* All walkers go on with the best labelling of all. */
static void choose_labelling(Lanes *l) {
  const Labelling *best = walker_of(l, BOUND + 1)->labelling;
  for (int i = BOUND + 2; i < N_LANES; i++) {
    const Solver *other = walker_of(l, i);
    if (other->labelling->values[0] >= 0 &&
        (best->values[0] < 0 ||
         rounds_is_better(other, other->labelling, best)))
      best = other->labelling;
  }
  for (int i = BOUND + 1; i < N_LANES; i++)
    if (best != walker_of(l, i)->labelling)
      labelling_copy(walker_of(l, i)->labelling, best);
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

static void raise_bound(Lanes *l) {
  Solver *s = l->s;
  if (l->n_steady >= STEADY_ROUNDS && !l->branches &&
      !s->budget->without[FACTOR_branching])
    l->branches = branches_create(s->arena, s);
  if (l->branches)
    rounds_branch(s, l->branches, BRANCH_WORK);
  else
    rounds_raise(s, 10);
}

/* The last walker begins at what the messages say now, for memory that is dear
 * or as it is: a labelling that was changed for long leads nowhere else.  The
 * others go on, each with random numbers of its own. */
static void walk(Lane *lane, int i) {
  Solver *s = lane->s;
  if (i == N_LANES - 1 || s->labelling->values[0] < 0)
    rounds_start(s, (lane->lanes->round + i) % 2);
  rounds_walk(s, lane->work);
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
  int64_t work = l->branches ? BRANCH_WORK : 30 * s->core->entries;
  int64_t part = s->most_nodes ? (s->most_nodes - s->nodes) / N_LANES : 0;
  for (int i = BOUND + 1; i < N_LANES; i++) {
    Solver *walker = walker_of(l, i);
    tell(walker, s);
    walker->nodes = walker->work = 0;
    walker->most_nodes = part;
    l->lane[i].work = (l->n_steady > 0 ? 2 * work : work) / 3 + 1;
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
