/*
 * draw.c -- prices plans of a case: all, or as many as one may.
 *
 * Half of those that are drawn are beside the best so far: a plan at random is
 * slow, and what is faster than a bound is fast.
 */
#include "tests/sound/sound.h"

typedef struct Drawing {
  const SoundSpace *space;
  SoundPlans *out;
  SoundPlan *plans; /* that the texts are of */
  SoundPriceFn *price;
  void *user;
} Drawing;

static SoundPlans make_plans(Arena *arena, int64_t n) {
  return (SoundPlans){.texts = ARENA_ARRAY(arena, const char *, n),
                      .prices = ARENA_ARRAY(arena, SoundPrice, n),
                      .breaks = ARENA_ARRAY(arena, unsigned, n),
                      .has_stages = ARENA_ARRAY(arena, bool, n)};
}

static void add_plan(Drawing *d, const SoundPlan *plan) {
  SoundPlans *out = d->out;
  out->texts[out->n] = sound_text(d->space, plan);
  out->breaks[out->n] = sound_breaks(d->space, plan);
  out->has_stages[out->n] = d->space->meshes[plan->mesh].groups != NULL;
  d->plans[out->n++] = *plan;
}

static void price_from(Drawing *d, int first) {
  SoundPlans *out = d->out;
  d->price(d->user, out->texts + first, out->n - first, out->prices + first);
}

static void add_all(Drawing *d) {
  SoundPlan plan = {0};
  d->out->are_all = true;
  do add_plan(d, &plan);
  while (sound_next(d->space, &plan));
  price_from(d, 0);
}

static void add_drawn(Drawing *d, Choices *choices, int n) {
  enum { AT_A_TIME = 64 };
  for (int i = 0; i < (n + 1) / 2; i++) {
    SoundPlan plan = sound_random(d->space, choices);
    add_plan(d, &plan);
  }
  price_from(d, 0);
  while (d->out->n < n) {
    int first = d->out->n, best = sound_best(d->out->prices, first);
    for (int i = 0; i < AT_A_TIME && d->out->n < n; i++) {
      SoundPlan plan =
          best < 0 ? sound_random(d->space, choices)
                   : sound_neighbour(d->space, choices, &d->plans[best]);
      add_plan(d, &plan);
    }
    price_from(d, first);
  }
}

SoundPlans sound_plans(const SoundCase *of, int64_t most, SoundPriceFn *price,
                       void *user) {
  Arena *arena = of->space.arena;
  int64_t n = sound_count(&of->space);
  bool are_all = n <= most;
  if (!are_all) n = most;
  SoundPlans out = make_plans(arena, n);
  Drawing d = {.space = &of->space,
               .out = &out,
               .plans = ARENA_ARRAY(arena, SoundPlan, n),
               .price = price,
               .user = user};
  if (are_all)
    add_all(&d);
  else
    add_drawn(&d, choices_random(arena, of->seed + 1000000007), (int)n);
  ASSERT(out.n == n);
  return out;
}
