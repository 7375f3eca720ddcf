/*
 * losses.c -- prices the alternatives of an explanation.
 *
 *     only this line changed      one price each
 *     a search with the pin       as `dnnc plan` with this pin, for the best
 *
 * The loss is the step of the plan that the search finds, without the step of
 * the plan that is explained.
 */
#include "tools/explain/explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_SEARCHED = 8 };

/* ---- only this line changed ---- */

typedef struct ChangeTrials {
  Explanation *e;
  int *alternatives; /* by trial */
} ChangeTrials;

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  ChangeTrials *trials = user;
  Explanation *e = trials->e;
  Alternative *one = &e->alternatives.data[trials->alternatives[i]];
  one->is_legal = is_priced;
  if (!is_priced) {
    one->why = diags_first_error(trial->module.diags, e->tool->arena);
    return;
  }
  one->step = trial->priced.price.step;
  one->peak = trial->priced.peak;
  one->is_equal =
      one->step == e->priced->price.step && one->peak == e->priced->peak;
}

/* The plan may name a file beside it. */
static const char *beside_plan(const Explanation *e) {
  const char *plan = e->tool->options.plan;
  if (!plan) plan = e->tool->options.subject;
  const char *slash = plan ? strrchr(plan, '/') : NULL;
  return arena_printf(e->tool->arena, "%.*schanged.plan",
                      slash ? (int)(slash - plan) + 1 : 0, plan ? plan : "");
}

static const Pins *read_changed(Explanation *e, Alternative *one) {
  Arena *arena = e->tool->arena;
  Source *source = ARENA_NEW(arena, Source);
  Diags *diags = diags_create(arena);
  *source = (Source){beside_plan(e), one->changed, strlen(one->changed)};
  PlanSource from = {.file = source};
  const Pins *pins = driver_read_pins(&e->planning.loaded, &from, diags);
  if (!pins) one->why = diags_first_error(diags, arena);
  return pins;
}

static void price_changes(Explanation *e) {
  Arena *arena = e->tool->arena;
  int n = 0, most = e->alternatives.n;
  ChangeTrials trials = {e, ARENA_ARRAY(arena, int, most + 1)};
  TrialPlan *plans = ARENA_ARRAY(arena, TrialPlan, most + 1);
  for (int i = 0; i < most; i++) {
    if (!e->alternatives.data[i].changed) continue;
    const Pins *pins = read_changed(e, &e->alternatives.data[i]);
    if (!pins) continue;
    plans[n].pins = pins;
    trials.alternatives[n++] = i;
  }
  PriceRequest request = e->planning.request;
  driver_try_all(&e->planning.loaded,
                 &(TrialList){.n = n,
                              .plans = plans,
                              .request = &request,
                              .most_threads = tool_threads(),
                              .is_stopped = tool_is_stopped,
                              .visit = end_trial,
                              .user = &trials});
}

/* ---- searches ---- */

/* Legal and fast ones go first. */
static int compare_changes(const void *a, const void *b) {
  const Alternative *x = a, *y = b;
  if (x->is_legal != y->is_legal) return x->is_legal ? -1 : 1;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  return strcmp(x->text, y->text);
}

static int compare_losses(const void *a, const void *b) {
  const Alternative *x = a, *y = b;
  if (x->has_found != y->has_found) return x->has_found ? -1 : 1;
  if (x->has_found && x->found.price.step != y->found.price.step)
    return x->found.price.step < y->found.price.step ? -1 : 1;
  return compare_changes(a, b);
}

static void show_progress(const Explanation *e, int i, int n) {
  if (e->tool->options.quiet || !isatty(STDERR_FILENO)) return;
  if (i < n)
    fprintf(stderr, "\rsearching with alternative %d of %d ", i + 1, n);
  else
    fprintf(stderr, "\r%50s\r", "");
  fflush(stderr);
}

static void search(Explanation *e, Alternative *one) {
  Diags *diags = diags_create(e->tool->arena);
  Planning planning;
  one->is_searched = true;
  one->why = NULL;
  if (!planning_with(&e->planning, one->pins, e->ranks, e->effort, diags,
                     &planning)) {
    one->why = diags_first_error(diags, e->tool->arena);
    return;
  }
  SearchResult result = planning_find(&planning);
  one->has_found = result.has_plan;
  one->found = result.best;
}

void explain_price(Explanation *e) {
  int64_t lines = e->tool->options.lines;
  int n = lines < 0 ? MOST_SEARCHED : (int)lines, all = e->alternatives.n;
  Alternative *list = e->alternatives.data;
  tool_hold_search_signals();
  price_changes(e);
  if (explain_is_of_stages(e)) {
    explain_search_stages(e, n);
    list = e->alternatives.data;
    all = e->alternatives.n;
    n = 0;
  }
  if (all > 1) qsort(list, (size_t)all, sizeof *list, compare_changes);
  if (n > all) n = all;
  for (int i = 0; i < n && !tool_is_stopped(); i++) {
    show_progress(e, i, n);
    search(e, &list[i]);
  }
  show_progress(e, n, n);
  if (all > 1) qsort(list, (size_t)all, sizeof *list, compare_losses);
}
