/*
 * compare.c -- compares what `dnnc plan` claims with the prices of all plans.
 *
 * A bound is about plans that fit, a floor about all.  What the search refuses
 * is compared with what the compiler takes.
 */
#include "tests/sound/sound.h"

enum { EXIT_found = 0, EXIT_mistake = 1, EXIT_nothing_fits = 2 };

static const struct {
  const char *name, *text;
} faults[] = {
#define FAULT(name, what) {#name, what},
#include "tests/sound/faults.def"
};

const char *sound_fault_name(SoundFault fault) {
  return faults[fault].name;
}

const char *sound_fault_text(SoundFault fault) {
  return faults[fault].text;
}

static bool is_faster(const SoundPrice *a, const SoundPrice *b) {
  return a->step != b->step ? a->step < b->step : a->peak < b->peak;
}

int sound_best(const SoundPrice *prices, int n) {
  int best = -1;
  for (int i = 0; i < n; i++)
    if (sound_fits(&prices[i]) &&
        (best < 0 || is_faster(&prices[i], &prices[best])))
      best = i;
  return best;
}

/* The fastest of all that are legal; -1: none is. */
static int fastest(const SoundPrice *prices, int n) {
  int best = -1;
  for (int i = 0; i < n; i++)
    if (prices[i].is_legal &&
        (best < 0 || is_faster(&prices[i], &prices[best])))
      best = i;
  return best;
}

typedef struct Findings {
  SoundFinding *data;
  int n;
} Findings;

static void check(Findings *out, bool is_true, SoundFault fault, int plan) {
  if (!is_true) out->data[out->n++] = (SoundFinding){fault, plan};
}

static bool is_same(const SoundPrice *a, const SoundPrice *b) {
  return b->is_legal && a->step == b->step && a->peak == b->peak;
}

/* Looks at the plan that was written. */
static void check_plan(Findings *out, const SoundClaim *claim,
                       const SoundEvidence *e) {
  check(out, e->found.is_legal, FAULT_unreadable, -1);
  if (!e->found.is_legal) return;
  check(out, e->found.step == claim->step, FAULT_step, -1);
  check(out, sound_fits(&e->found), FAULT_does_not_fit, -1);
  check(out, is_same(&e->found, &e->again), FAULT_lost_pin, -1);
}

/* A step of the certificate, its bound and its gap are one statement.  The gap
 * may be of the step or of the bound, which is the larger one. */
static bool is_gap_true(const SoundClaim *claim, Ps best) {
  double least = (double)claim->step * (1 - claim->gap);
  if (!claim->has_gap) return true;
  return least <= (double)best + 1 &&
         (!claim->has_bound || least <= (double)claim->bound + 1);
}

/* The fastest of those that fit and keep the restrictions of the bound. */
static int best_bounded(const SoundClaim *claim, const SoundEvidence *e) {
  int best = -1;
  for (int i = 0; i < e->n; i++) {
    if (e->breaks && e->breaks[i] & claim->restrictions) continue;
    if (sound_fits(&e->prices[i]) &&
        (best < 0 || is_faster(&e->prices[i], &e->prices[best])))
      best = i;
  }
  return best;
}

static void check_bounds(Findings *out, const SoundClaim *claim,
                         const SoundEvidence *e) {
  int first = fastest(e->prices, e->n), best = best_bounded(claim, e);
  check(out, first < 0 || e->prices[first].step >= claim->floor,
        FAULT_below_floor, first);
  check(out,
        !claim->has_bound || best < 0 || e->prices[best].step >= claim->bound,
        FAULT_below_bound, best);
  check(out, best < 0 || is_gap_true(claim, e->prices[best].step), FAULT_gap,
        best);
  /* The plan that was found is a plan, too. */
  bool is_above = e->found.step >= claim->floor &&
                  (!claim->has_bound || e->found.step >= claim->bound);
  if (e->found.is_legal && !is_above && out->n < N_FAULTS)
    check(out, false,
          e->found.step < claim->floor ? FAULT_below_floor : FAULT_below_bound,
          -1);
}

int sound_compare(const SoundClaim *claim, const SoundEvidence *evidence,
                  SoundFinding out[N_FAULTS]) {
  Findings findings = {out, 0};
  int legal = fastest(evidence->prices, evidence->n);
  int best = sound_best(evidence->prices, evidence->n);
  switch (claim->exit_code) {
  case EXIT_found:
    check_plan(&findings, claim, evidence);
    check_bounds(&findings, claim, evidence);
    break;
  case EXIT_mistake:
    check(&findings, legal < 0 || claim->is_unsupported, FAULT_illegal, legal);
    break;
  case EXIT_nothing_fits:
    check(&findings, best < 0, FAULT_refused, best);
    break;
  default: check(&findings, false, FAULT_crashed, -1);
  }
  return findings.n;
}
