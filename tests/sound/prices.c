/*
 * prices.c -- prices plan files of a loaded model, as `dnnc plan` prices the
 * one that it writes: the whole program, evaluation included.
 */
#include <string.h>

#include "tests/sound/sound.h"

static const Pins *read_text(const Compilation *loaded, const char *text) {
  Arena *arena = loaded->module->arena;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){"enumerated.plan", text, strlen(text)};
  PlanSource from = {.file = source};
  return driver_read_pins(loaded, &from, diags_create(arena));
}

typedef struct Pricing {
  SoundPrice *prices; /* by trial */
} Pricing;

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  Pricing *pricing = user;
  const Priced *p = &trial->priced;
  pricing->prices[i] = (SoundPrice){0};
  if (is_priced)
    pricing->prices[i] = (SoundPrice){true, p->price.step, p->peak, p->memory};
}

static void price_some(const Compilation *loaded, const char *const *texts,
                       int n, int threads, SoundPrice *out) {
  Arena *arena = loaded->module->arena;
  PriceRequest request = {0};
  TrialPlan *plans = ARENA_ARRAY(arena, TrialPlan, n);
  Pricing pricing = {ARENA_ARRAY(arena, SoundPrice, n)};
  int *numbers = ARENA_ARRAY(arena, int, n), n_read = 0;
  for (int i = 0; i < n; i++) {
    out[i] = (SoundPrice){0};
    const Pins *pins = read_text(loaded, texts[i]);
    if (!pins) continue;
    numbers[n_read] = i;
    plans[n_read++] = (TrialPlan){.pins = pins};
  }
  driver_try_all(loaded, &(TrialList){.n = n_read,
                                      .plans = plans,
                                      .request = &request,
                                      .most_threads = threads,
                                      .visit = end_trial,
                                      .user = &pricing});
  for (int i = 0; i < n_read; i++) out[numbers[i]] = pricing.prices[i];
}

/* In parts, because threads start anew for each. */
void sound_price(const Compilation *loaded, const char *const *texts, int n,
                 int threads, SoundPrice *out) {
  enum { AT_A_TIME = 256 };
  for (int i = 0; i < n; i += AT_A_TIME) {
    int left = n - i < AT_A_TIME ? n - i : AT_A_TIME;
    price_some(loaded, texts + i, left, threads, out + i);
  }
}
