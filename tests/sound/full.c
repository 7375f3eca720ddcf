/*
 * full.c -- tries to find a plan of a model of full size that is faster than
 * the bound, where plans cannot be enumerated: random ones, then a local
 * search.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/sound/sound.h"

typedef struct Attack {
  const SoundFull *settings;
  Arena *arena;
  SoundCase *of;
  SoundClaim claim;
  Choices *choices;
  int64_t n, n_legal, n_fitting, n_wrong;
  bool has_best;
  SoundPlan at;     /* from where the local search goes on */
  SoundPrice price; /* its price */
  Ps best;          /* of all that fit */
} Attack;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* ---- one plan ---- */

static bool is_better(const SoundPrice *a, const SoundPrice *b) {
  if (a->is_legal != b->is_legal) return a->is_legal;
  if (sound_fits(a) != sound_fits(b)) return sound_fits(a);
  return sound_fits(a) ? a->step < b->step : a->peak < b->peak;
}

static void look_at(Attack *attack, const char *text, const SoundPrice *price) {
  const SoundClaim *claim = &attack->claim;
  attack->n++;
  attack->n_legal += price->is_legal;
  attack->n_fitting += sound_fits(price);
  if (sound_fits(price) && (attack->best == 0 || price->step < attack->best))
    attack->best = price->step;
  bool is_below = price->is_legal && price->step < claim->floor;
  if (claim->has_bound)
    is_below |= sound_fits(price) && price->step < claim->bound;
  if (!is_below) return;
  attack->n_wrong++;
  printf("this plan takes %lld ps; the floor is %lld, the bound %lld\n%s\n",
         (long long)price->step, (long long)claim->floor,
         (long long)claim->bound, text);
}

/* ---- plans ---- */

enum { AT_A_TIME = 8 };

/* Prices plans of the space and keeps the best one. */
static bool try_plans(Attack *attack, const SoundPlan *plans, int n) {
  const char *texts[AT_A_TIME];
  SoundPrice prices[AT_A_TIME];
  bool is_any = false;
  for (int i = 0; i < n; i++)
    texts[i] = sound_text(&attack->of->space, &plans[i]);
  sound_price(&attack->of->loaded, texts, n, attack->settings->threads, prices);
  for (int i = 0; i < n; i++) {
    look_at(attack, texts[i], &prices[i]);
    if (attack->has_best && !is_better(&prices[i], &attack->price)) continue;
    attack->has_best = is_any = true;
    attack->at = plans[i];
    attack->price = prices[i];
  }
  return is_any;
}

/* Half of them have lines of other kinds, where such plans can be made. */
static void try_random(Attack *attack) {
  SoundPlan plans[AT_A_TIME];
  while (attack->n < attack->settings->plans) {
    for (int i = 0; i < AT_A_TIME; i++)
      plans[i] = sound_random(&attack->of->space, attack->choices);
    try_plans(attack, plans, AT_A_TIME);
    for (int i = 0; i < AT_A_TIME; i++) {
      const char *text = sound_outside(attack->of, attack->choices);
      SoundPrice price;
      if (!text) break;
      sound_price(&attack->of->loaded, &text, 1, 1, &price);
      look_at(attack, text, &price);
    }
  }
}

/* Goes to a better neighbour as long as there is one; then begins anew. */
static void search(Attack *attack) {
  enum { PATIENCE = 40 };
  double end = now() + attack->settings->seconds;
  SoundPlan plans[AT_A_TIME];
  for (int failures = 0; now() < end;) {
    bool is_new = failures > PATIENCE;
    for (int i = 0; i < AT_A_TIME; i++)
      plans[i] = is_new ? sound_random(&attack->of->space, attack->choices)
                        : sound_neighbour(&attack->of->space, attack->choices,
                                          &attack->at);
    if (is_new) attack->has_best = false;
    failures = try_plans(attack, plans, AT_A_TIME) ? 0 : failures + 1;
  }
}

static void print(const Attack *attack, const char *what) {
  printf("%s: %lld plans, %lld legal, %lld fit", what, (long long)attack->n,
         (long long)attack->n_legal, (long long)attack->n_fitting);
  if (attack->best > 0)
    printf(", the best takes %.3f ms", (double)attack->best * 1e-9);
  printf("\n");
  fflush(stdout);
}

int sound_full(Arena *arena, const SoundFull *settings) {
  SoundCase of = {.folder = settings->folder,
                  .model_path = settings->model,
                  .cluster_path = settings->cluster,
                  .lines = "",
                  .ranks = settings->ranks,
                  .says_ranks = true};
  const char *const options[] = {"--effort", settings->effort};
  Attack attack = {.settings = settings,
                   .arena = arena,
                   .of = &of,
                   .choices = choices_random(arena, 1)};
  if (!sound_load(arena, &of)) return 2;
  of.space = sound_space(arena, &of.loaded, settings->ranks);
  attack.claim =
      sound_ask(arena, settings->dnnc, &of, options, settings->effort ? 2 : 0);
  const SoundClaim *claim = &attack.claim;
  printf("dnnc plan: exit code %d, step %.3f ms, floor %.3f ms",
         claim->exit_code, (double)claim->step * 1e-9,
         (double)claim->floor * 1e-9);
  if (claim->has_bound) printf(", bound %.3f ms", (double)claim->bound * 1e-9);
  printf("\n");
  if (claim->exit_code != 0) {
    fputs(claim->messages, stdout);
    return claim->exit_code == 2 ? 0 : 1;
  }
  try_random(&attack);
  print(&attack, "random plans");
  search(&attack);
  print(&attack, "with local search");
  if (attack.best > 0)
    printf("the plan that was found takes %.4f of that\n",
           (double)claim->step / (double)attack.best);
  return attack.n_wrong > 0;
}
