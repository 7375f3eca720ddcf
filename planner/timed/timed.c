/*
 * timed.c -- looks for stages of a model whose units are refused.
 */
#include "planner/timed/timed.h"

#include "planner/stages/stage_ranks.h"

/* The divisors of the batch, each at least twice the one before. */
static void list_parts(Arena *arena, int64_t batch, TimedNodes *nodes) {
  VEC(int64_t) parts = {0};
  for (int64_t k = 1; k <= batch; k++)
    if (batch % k == 0 &&
        (parts.n == 0 || k >= 2 * parts.data[parts.n - 1] || k == batch))
      vec_push(arena, &parts, k);
  nodes->parts = parts.data;
  nodes->n_parts = parts.n;
}

/* By piece: lines end a stage behind it. */
static const bool *pinned_borders(const StageSearch *s,
                                  const StageChain *chain) {
  StageEnds ends = stage_ends_of(s->arena, &s->pins, chain);
  if (!ends.of_stages) return ends.is_pinned;
  bool *is_pinned = ARENA_ARRAY(s->arena, bool, chain->n);
  for (int i = 0; i + 1 < s->pins.n_stages; i++)
    is_pinned[ends.of_stages[i] - 1] = true;
  return is_pinned;
}

static const char *begin(StageSearch *s, TimedNodes *nodes) {
  const SearchInput *input = s->p->input;
  const Pins *pins = input->pins;
  *nodes = (TimedNodes){
      .search = s,
      .of = timed_chain_of(s->arena, input->paths, &input->repeats),
      .rates = map_create(s->arena)};
  if (nodes->of.chain.n < 2) return "few values leave no part of the model";
  list_parts(s->arena, pins && pins->batch > 0 ? pins->batch : 1, nodes);
  if (!timed_sample(nodes, 1, 0)) return "one rank is refused";
  timed_join_pieces(nodes, pinned_borders(s, &nodes->of.chain));
  s->chain = nodes->of.chain;
  s->timed = nodes;
  s->ends = stage_ends_of(s->arena, &s->pins, &s->chain);
  return s->ends.lost ? "a line about stages has no border" : NULL;
}

const char *price_timed(StageSearch *s) {
  Pricing *p = s->p;
  TimedNodes *nodes = ARENA_NEW(s->arena, TimedNodes);
  const char *reason = begin(s, nodes);
  if (reason) return reason;
  /* Beside those of the search without stages, which is no worse then. */
  int most = p->most;
  p->most = p->n_priced + 5 * MOST_TIMED_PRICES;
  if (p->input->slice->n_groups == 1)
    price_timed_equal(s, nodes, MOST_TIMED_PRICES);
  p->most = p->n_priced + MOST_TIMED_PRICES;
  if (!s->pins.needs_stages && !s->pins.schedule)
    price_ranked(s, MOST_TIMED_PRICES);
  p->most = most;
  return NULL;
}
