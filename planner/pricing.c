/*
 * pricing.c -- prices candidates, each once, and remembers them.
 */
#include "planner/pricing.h"

/* ---- order ---- */

Bytes price_missing(const CandidatePrice *price) {
  return price->peak > price->memory ? price->peak - price->memory : 0;
}

bool price_is_better(const CandidatePrice *a, const CandidatePrice *b) {
  if (a->is_legal != b->is_legal) return a->is_legal;
  if (price_missing(a) != price_missing(b))
    return price_missing(a) < price_missing(b);
  if (a->step != b->step) return a->step < b->step;
  return a->peak < b->peak;
}

const Scored *scored_better(const Scored *a, const Scored *b) {
  if (!a || !b) return a ? a : b;
  return price_is_better(&b->price, &a->price) ? b : a;
}

const Scored *scored_take_best(const Scored *const *list, int n, Map *taken) {
  const Scored *best = NULL;
  for (int i = 0; i < n; i++)
    if (list[i] && list[i]->price.is_legal && !map_has(taken, list[i]))
      best = scored_better(best, list[i]);
  if (best) map_put(taken, best, (void *)best);
  return best;
}

/* ---- prices ---- */

bool pricing_is_over(const Pricing *p) {
  return p->n_priced >= p->most ||
         p->input->host->is_stopped(p->input->host->user);
}

const Scored *pricing_known(const Pricing *p, const Candidate *candidate) {
  return map_get(p->known,
                 name_intern(p->texts, candidate_text(&p->space, candidate)));
}

/* Prices those that are new, as far as the budget goes. */
static void price_some(Pricing *p, const Candidates *list) {
  const SearchHost *host = p->input->host;
  const char **texts = ARENA_ARRAY(p->arena, const char *, list->n + 1);
  Scored **added = ARENA_ARRAY(p->arena, Scored *, list->n + 1);
  CandidatePrice *prices = ARENA_ARRAY(p->arena, CandidatePrice, list->n + 1);
  int n = 0;
  for (int i = 0; i < list->n && !pricing_is_over(p); i++) {
    const Candidate *candidate = &list->data[i];
    Name text = name_intern(p->texts, candidate_text(&p->space, candidate));
    if (!candidate_is_even(&p->space, candidate) || map_has(p->known, text))
      continue;
    added[n] = ARENA_NEW(p->arena, Scored);
    added[n]->candidate = *candidate;
    map_put(p->known, text, added[n]);
    texts[n++] = text;
    p->n_priced++;
  }
  if (n == 0) return;
  CandidateList priced = {n, texts, p->prices_whole};
  host->price(host->user, &priced, prices);
  for (int i = 0; i < n; i++) {
    added[i]->price = prices[i];
    added[i]->is_whole = p->prices_whole;
    vec_push(p->arena, &p->scored, added[i]);
    if (prices[i].is_legal) p->best = scored_better(p->best, added[i]);
  }
  if (host->progress)
    host->progress(host->user, p->n_priced, p->most,
                   p->best ? &p->best->price : NULL);
}

/* In parts, so that a stop comes soon. */
void pricing_all(Pricing *p, const Candidates *list) {
  enum { AT_A_TIME = 16 };
  for (int i = 0; i < list->n && !pricing_is_over(p); i += AT_A_TIME) {
    int left = list->n - i;
    price_some(p, &(Candidates){.data = list->data + i,
                                .n = left < AT_A_TIME ? left : AT_A_TIME});
  }
}

const Scored *pricing_best_of(Pricing *p, const Candidates *list,
                              const Scored *from) {
  pricing_all(p, list);
  for (int i = 0; i < list->n; i++)
    from = scored_better(from, pricing_known(p, &list->data[i]));
  return from;
}

void pricing_add(Pricing *p, Candidates *list, const Candidate *candidate) {
  vec_push(p->arena, list, candidate_merged(&p->space, candidate));
}

const Scored *pricing_one(Pricing *p, const Candidate *candidate) {
  Candidate copy = *candidate;
  price_some(p, &(Candidates){.data = &copy, .n = 1});
  return pricing_known(p, candidate);
}

/* ---- pins ---- */

const Pins *pricing_pins(const Pricing *p) {
  return p->input->pins;
}

bool pricing_mesh_is_open(const Pricing *p) {
  return !pricing_pins(p) || !pins_have_mesh(pricing_pins(p));
}

void pricing_pin(const Pricing *p, Candidate *c) {
  const Pins *pins = pricing_pins(p);
  if (!pins) return;
  if (pins->zero.is_set) c->zero = (int)pins->zero.value;
  if (pins->microbatches.is_set) c->microbatches = pins->microbatches.value;
  if (pins->attention != ATTENTION_open) c->attention = pins->attention;
}

Pricing pricing_create(const SearchInput *input) {
  return (Pricing){.input = input,
                   .arena = input->arena,
                   .most = input->most_candidates,
                   .space = space_of(input),
                   .solver = ARENA_NEW(input->arena, PairSolver),
                   .texts = names_create(input->arena),
                   .known = map_create(input->arena)};
}
