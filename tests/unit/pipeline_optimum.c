// links: price interp ir support
/*
 * pipeline_optimum.c -- compares zbh1 and zbh2 with the shortest of all orders
 * that keep no more micro-batches alive, for a few ranks and micro-batches.
 *
 * All ranks advance together by a unit of time, from the set of all states that
 * they may be in to the next set.  Micro-batches keep their order, which loses
 * nothing: they are equal.
 */
#include "price/schedule_list.h"
#include "tests/unit/pipeline_lists.h"

TestSuite(pipeline_optimum, .fini = modules_destroy);

enum { MOST_RANKS = 3, BITS = 16, N_KINDS = 3 };

/* A rank: calls of each kind that it has ended, the one that it makes, and for
 * how long it does. */
typedef struct RankState {
  int ended[N_KINDS]; /* F, I, W */
  int kind, rest;
} RankState;

typedef struct Search {
  int p, m, most_live;
  int times[N_KINDS];
  VEC(uint64_t) now, next;
  Map *seen;
  Arena *arena;
} Search;

static RankState unpack(uint64_t states, int rank) {
  uint64_t bits = states >> (rank * BITS);
  return (RankState){
      {(int)(bits & 7), (int)(bits >> 3 & 7), (int)(bits >> 6 & 7)},
      (int)(bits >> 9 & 3),
      (int)(bits >> 11 & 31)};
}

static uint64_t pack(const RankState *state, int rank) {
  uint64_t bits =
      (uint64_t)(state->ended[0] | state->ended[1] << 3 | state->ended[2] << 6 |
                 state->kind << 9 | state->rest << 11);
  return bits << (rank * BITS);
}

static bool can_begin(const Search *s, uint64_t states, int rank, int kind) {
  RankState own = unpack(states, rank);
  const int *n = own.ended;
  switch (kind) {
  case 0:
    return n[0] < s->m && n[0] - n[2] < s->most_live &&
           (rank == 0 || unpack(states, rank - 1).ended[0] > n[0]);
  case 1:
    return n[1] < n[0] &&
           (rank == s->p - 1 || unpack(states, rank + 1).ended[1] > n[1]);
  default: return n[2] < n[1];
  }
}

static uint64_t advance(const Search *s, uint64_t states) {
  uint64_t next = 0;
  for (int r = 0; r < s->p; r++) {
    RankState state = unpack(states, r);
    if (state.rest > 0 && --state.rest == 0) state.ended[state.kind]++;
    if (state.rest == 0) state.kind = 0;
    next |= pack(&state, r);
  }
  return next;
}

/* Lets rank and those after it begin each call that they can, or none; what
 * they can begin depends on calls that have ended. */
static void choose(Search *s, uint64_t before, uint64_t states, int rank) {
  if (rank == s->p) {
    uint64_t next = advance(s, states);
    const void *key = (const void *)(uintptr_t)(next + 1);
    if (map_has(s->seen, key)) return;
    map_put(s->seen, key, s);
    vec_push(s->arena, &s->next, next);
    return;
  }
  choose(s, before, states, rank + 1);
  RankState state = unpack(before, rank);
  if (state.rest > 0) return;
  for (int kind = 0; kind < N_KINDS; kind++) {
    if (!can_begin(s, before, rank, kind)) continue;
    RankState busy = state;
    busy.kind = kind;
    busy.rest = s->times[kind];
    uint64_t mask = ((uint64_t)1 << BITS) - 1;
    choose(s, before, (states & ~(mask << (rank * BITS))) | pack(&busy, rank),
           rank + 1);
  }
}

static bool is_end(const Search *s, uint64_t states) {
  for (int r = 0; r < s->p; r++)
    if (unpack(states, r).ended[2] < s->m) return false;
  return true;
}

static int shortest(Module *module, const PipelineShape *shape, int most_live) {
  Search s = {.p = shape->ranks,
              .m = shape->microbatches,
              .most_live = most_live,
              .times = {(int)shape->times.forward, (int)shape->times.input_grad,
                        (int)shape->times.weight_grad},
              .seen = map_create(module->arena),
              .arena = module->arena};
  vec_push(s.arena, &s.now, 0);
  for (int time = 0; time < 1000; time++) {
    for (int i = 0; i < s.now.n; i++)
      if (is_end(&s, s.now.data[i])) return time;
    s.next.n = 0;
    for (int i = 0; i < s.now.n; i++)
      choose(&s, s.now.data[i], s.now.data[i], 0);
    s.now.n = 0;
    for (int i = 0; i < s.next.n; i++)
      vec_push(s.arena, &s.now, s.next.data[i]);
  }
  return -1;
}

static void check(const char *name, int p, int m, PipelineTimes times) {
  Module *module = module_create();
  const PipelineSchedule *schedule = pipeline_schedule_find(name);
  PipelineShape shape = {p, p, m, times};
  ScheduleTimes of = {times.forward, times.input_grad, times.weight_grad};
  if (pipeline_schedule_refuses(module->arena, schedule, &shape)) return;
  const ScheduleList *list = schedule_list_make(
      module->arena, pipeline_make(module->arena, schedule, &shape), &of);
  int live = strcmp(name, "zbh1") == 0 ? p : 2 * p - 1;
  cr_expect_eq((int)simulate(module->arena, &list->program, 1, NULL, NULL).step,
               shortest(module, &shape, live), "%s p %d m %d times %d %d %d",
               name, p, m, (int)times.forward, (int)times.input_grad,
               (int)times.weight_grad);
  modules_destroy();
}

Test(pipeline_optimum, unit_times) {
  for (int p = 1; p <= MOST_RANKS; p++)
    for (int m = 1; m <= 4; m++) {
      check("zbh1", p, m, (PipelineTimes){1, 1, 1});
      check("zbh2", p, m, (PipelineTimes){1, 1, 1});
    }
}

Test(pipeline_optimum, other_times) {
  static const PipelineTimes times[] = {
      {2, 2, 1}, {1, 2, 3}, {1, 1, 4}, {3, 1, 2}, {2, 5, 3}};
  for (int i = 0; i < ARRAY_LENGTH(times); i++)
    for (int m = 1; m <= 4; m++) {
      check("zbh1", 2, m, times[i]);
      check("zbh2", 2, m, times[i]);
    }
}
