/*
 * stage_decisions.c -- lists the alternatives to the number of stages and to
 * the cuts of a plan, and finds what the best plans with other numbers of
 * stages and other schedules lose.
 *
 *     cuts       each cut one border earlier and later, in this plan
 *     stages     the best plan of a search for stages with each number of
 *     schedule   groups of ranks, or with each schedule
 *
 * The search estimates more plans than it prices.  The best of these are priced
 * here; the others keep their estimates, which the table says.
 */
#include <stdlib.h>
#include <string.h>

#include "tools/explain/stage_borders.h"
#include "tools/plan/one_rank.h"
#include "tools/show/show_stages.h"

static bool is_setting(const Explanation *e, const char *name) {
  return e->subject.kind == SUBJECT_setting &&
         strcmp(e->subject.text, name) == 0;
}

static const Plan *plan_of(const Explanation *e) {
  return e->priced->c->plan;
}

bool explain_has_stages(const Explanation *e) {
  return plan_of(e)->stages.n > 1;
}

bool explain_is_of_stages(const Explanation *e) {
  return is_setting(e, "stages") || is_setting(e, "cuts") ||
         is_setting(e, "bubble") ||
         (is_setting(e, "schedule") && explain_has_stages(e));
}

/* ---- what is decided ---- */

static int groups_of(const Plan *plan) {
  int n = 0;
  for (int i = 0; i < plan->stages.n; i++) {
    bool is_new = true;
    for (int k = 0; k < i; k++)
      is_new &=
          plan->stages.data[k].first_rank != plan->stages.data[i].first_rank;
    n += is_new;
  }
  return n;
}

static void add_cuts(Text *out, const Plan *plan) {
  for (int s = 0; s + plan->has_cuts < plan->stages.n; s++) {
    text_add(out, s ? "; " : "");
    plan_print_stage(out, plan, s, NULL, !plan->has_cuts);
  }
}

void explain_add_stage_decision(Text *out, const Explanation *e) {
  const Plan *plan = plan_of(e);
  const Priced *p = e->priced;
  if (!explain_has_stages(e))
    text_add(out, "there is one stage");
  else if (is_setting(e, "cuts"))
    add_cuts(out, plan);
  else if (is_setting(e, "bubble"))
    text_printf(out,
                "the slowest ranks wait %.1f %% of a step for other stages",
                100 * priced_bubble(&p->price.classes[p->price.slowest]));
  else
    text_printf(out, "%d stages on %d group%s of ranks", plan->stages.n,
                groups_of(plan), groups_of(plan) == 1 ? "" : "s");
}

/* ---- cuts ---- */

typedef struct CutWalk {
  Explanation *e;
  StageChain chain;
  int *stages; /* by piece: the stage that its border is in, from 1 */
} CutWalk;

/* Returns why there are no borders, or NULL. */
static const char *find_borders(CutWalk *w) {
  Explanation *e = w->e;
  Arena *arena = e->tool->arena;
  OneRank program;
  const char *reason = "the model does not compile for one rank";
  const Pins *pins = e->planning.loaded.pins;
  if (!one_rank_compile(e->tool, &e->planning.loaded, &e->planning.request,
                        e->ranks, &program))
    return reason;
  const Units *units =
      units_of(arena, program.kernels, pins ? pins->batch_dim : NULL,
               &program.repeats, &reason);
  if (!units) return reason;
  reason = units_loop(arena, units);
  if (reason) return reason;
  w->chain = stage_chain_of(arena, pins->paths, units, BORDERS_between_kernels);
  return w->chain.n < 2 ? "no value alone leaves a part of the model" : NULL;
}

/* The last stage of the nodes of a path, from 1. */
static int stage_of_path(const Explanation *e, const uint16_t *labels,
                         const char *path) {
  const Graph *graph = e->planning.loaded.model->train;
  const PlanPaths *paths = e->planning.loaded.pins->paths;
  PathPattern pattern;
  PathList list = {0};
  int stage = 0;
  if (!path_pattern_parse(e->tool->arena, &pattern, path, SPAN_NONE) ||
      !plan_paths_find(paths, &pattern, &list))
    return 0;
  for (int i = 0; i < list.n; i++) {
    const PlanNodes *nodes = plan_paths_nodes_of(paths, list.data[i]);
    for (int k = 0; k < nodes->n; k++)
      for (int id = 0; id < graph->nodes.n; id++)
        if (graph->nodes.data[id] == nodes->data[k].node &&
            nodes->data[k].node->phase == PHASE_forward && labels[id] > stage)
          stage = labels[id];
  }
  return stage;
}

static bool find_stages(CutWalk *w) {
  const Explanation *e = w->e;
  StageFault fault;
  const uint16_t *labels =
      stage_labels(e->tool->arena, e->planning.loaded.model->train,
                   plan_of(e)->stage_of, &fault);
  w->stages = ARENA_ARRAY(e->tool->arena, int, w->chain.n);
  for (int i = 0; labels && i + 1 < w->chain.n; i++)
    w->stages[i] = stage_of_path(e, labels, w->chain.ends[i]);
  return labels != NULL;
}

/* The last piece of a stage; its border is the cut. */
static int last_piece(const CutWalk *w, int stage) {
  int last = -1;
  for (int i = 0; i + 1 < w->chain.n; i++)
    if (w->stages[i] > 0 && w->stages[i] <= stage + 1) last = i;
  return last;
}

static const char *cut_line(const CutWalk *w, int stage) {
  Text line = text_create(w->e->tool->arena);
  plan_print_stage(&line, plan_of(w->e), stage, NULL, false);
  return text_string(&line);
}

/* The plan with this cut elsewhere; lines of other cuts stay. */
static void add_cut(CutWalk *w, int stage, int piece) {
  Explanation *e = w->e;
  Arena *arena = e->tool->arena;
  const char *old = cut_line(w, stage), *text = e->plan_text, *at;
  size_t n = strlen(old);
  for (at = strstr(text, old); at && at[n] != '\n';) at = strstr(at + n, old);
  if (!at) return;
  const char *line = arena_printf(arena, "cut after %s", w->chain.ends[piece]);
  Alternative one = {
      .text =
          arena_printf(arena, "%s, not %s", line, old + strlen("cut after ")),
      .pins = "",
      .changed =
          arena_printf(arena, "%.*s%s%s", (int)(at - text), text, line, at + n),
      .cut = stage};
  vec_push(arena, &e->alternatives, one);
}

static void add_cuts_beside(CutWalk *w, int stage) {
  int n = plan_of(w->e)->stages.n, at = last_piece(w, stage);
  int before = stage > 0 ? last_piece(w, stage - 1) : -1;
  int after = stage + 2 < n ? last_piece(w, stage + 1) : w->chain.n - 1;
  if (at < 0) return;
  bool is_at =
      strcmp(cut_line(w, stage) + strlen("cut after "), w->chain.ends[at]) == 0;
  if (at > before && !is_at) add_cut(w, stage, at);
  if (at - 1 > before && is_at) add_cut(w, stage, at - 1);
  if (at + 1 < after) add_cut(w, stage, at + 1);
}

/* Stages follow the chain as far as their last pieces do. */
static const char *add_ends(CutWalk *w) {
  Explanation *e = w->e;
  int n = plan_of(e)->stages.n, *ends = ARENA_ARRAY(e->tool->arena, int, n);
  for (int s = 0; s < n; s++)
    ends[s] = s + 1 < n ? last_piece(w, s) + 1 : w->chain.n;
  return explain_add_borders(
      &(StageBorders){.e = e, .chain = &w->chain, .ends = ends});
}

void explain_add_cuts(Explanation *e) {
  CutWalk w = {.e = e};
  if (!explain_has_stages(e)) return;
  if (plan_of(e)->places.n > 0) {
    e->why_none = "other cuts of a plan with lines 'place' are not supported "
                  "yet: write lines 'stage' or 'cut after'";
    return;
  }
  e->why_none = find_borders(&w);
  if (e->why_none || !find_stages(&w)) return;
  if (!plan_of(e)->has_cuts) {
    e->why_none = add_ends(&w);
    return;
  }
  for (int s = 0; s + 1 < plan_of(e)->stages.n; s++) add_cuts_beside(&w, s);
}

/* ---- numbers of stages and schedules ---- */

/* A plan of the search, under the alternative that it is of. */
typedef struct FoundChoice {
  const StagedChoice *of;
  int alternative, round; /* how many of the alternative are before it */
  CandidatePrice price;
  bool is_estimate;
} FoundChoice;
typedef VEC(FoundChoice) FoundChoices;

static bool has_schedule(const StagedChoice *choice, const char *line) {
  const char *name = strstr(line, "= ");
  size_t n = strcspn(choice->schedule, "(");
  return name && n > 0 && strlen(name + 2) == n &&
         strncmp(name + 2, choice->schedule, n) == 0;
}

static const char *count_text(Arena *arena, const StagedChoice *choice) {
  if (choice->groups == 1) return "no stages";
  return arena_printf(arena, "%d groups of ranks", choice->groups);
}

/* Returns the alternative of a choice, which may be new; -1: there is none. */
static int alternative_of(Explanation *e, const StagedChoice *choice) {
  bool is_count = is_setting(e, "stages");
  const char *text = count_text(e->tool->arena, choice);
  for (int i = 0; i < e->alternatives.n; i++) {
    const char *known = e->alternatives.data[i].text;
    if (is_count ? strcmp(known, text) == 0 : has_schedule(choice, known))
      return i;
  }
  if (!is_count) return -1;
  vec_push(e->tool->arena, &e->alternatives,
           ((Alternative){.text = text, .pins = ""}));
  return e->alternatives.n - 1;
}

static FoundChoices choices_of(Explanation *e, const SearchResult *result) {
  FoundChoices out = {0};
  for (int i = 0; i < result->n_staged; i++) {
    const StagedChoice *choice = &result->staged[i];
    FoundChoice one = {.of = choice,
                       .alternative = alternative_of(e, choice),
                       .price = choice->plan.price,
                       .is_estimate = choice->is_estimate};
    for (int k = 0; k < out.n; k++)
      one.round += out.data[k].alternative == one.alternative;
    if (one.alternative >= 0) vec_push(e->tool->arena, &out, one);
  }
  return out;
}

/* The first choice of each alternative goes first. */
static int compare_rounds(const void *a, const void *b) {
  const FoundChoice *x = a, *y = b;
  if (x->round != y->round) return x->round < y->round ? -1 : 1;
  if (x->price.step != y->price.step)
    return x->price.step < y->price.step ? -1 : 1;
  return (x->of > y->of) - (x->of < y->of);
}

/* Prices `n` of the estimates. */
static void price_choices(Planning *planning, FoundChoices *list, int n) {
  if (list->n > 1)
    qsort(list->data, (size_t)list->n, sizeof *list->data, compare_rounds);
  for (int i = 0; i < list->n && n > 0 && !tool_is_stopped(); i++) {
    FoundChoice *one = &list->data[i];
    if (!one->is_estimate) continue;
    planning_price_whole(planning, 1, &one->of->plan.text, &one->price);
    one->is_estimate = false;
    n--;
  }
}

/* A price goes before an estimate. */
static bool is_better(const FoundChoice *a, const FoundChoice *b) {
  if (!b) return true;
  if (a->is_estimate != b->is_estimate) return b->is_estimate;
  return a->price.step < b->price.step;
}

static void set_found(Explanation *e, Alternative *one,
                      const FoundChoice *best) {
  one->is_searched = true;
  one->has_found = best != NULL;
  if (!best) {
    one->why = "what the search estimates does not fit";
    return;
  }
  one->is_estimate = best->is_estimate;
  one->found = planning_printed(&e->planning, &best->of->plan);
  one->found.price = best->price;
}

static void set_alternatives(Explanation *e, const FoundChoices *list) {
  for (int i = 0; i < e->alternatives.n; i++) {
    const FoundChoice *best = NULL;
    bool has_one = false;
    for (int k = 0; k < list->n; k++) {
      const FoundChoice *one = &list->data[k];
      if (one->alternative != i) continue;
      bool fits = one->price.is_legal && one->price.peak <= one->price.memory;
      has_one = true;
      if (fits && is_better(one, best)) best = one;
    }
    if (has_one) set_found(e, &e->alternatives.data[i], best);
  }
}

void explain_search_stages(Explanation *e, int n) {
  Diags *diags = diags_create(e->tool->arena);
  Planning planning;
  if (n == 0 || is_setting(e, "cuts") || is_setting(e, "bubble")) return;
  if (!planning_with(&e->planning, "plan {\n}\n", e->ranks, e->effort, diags,
                     &planning))
    return;
  planning.search = search_find("stages");
  planning.lists_stages = true;
  planning_search(&planning);
  const SearchResult *result = &planning.result;
  FoundChoices list = choices_of(e, result);
  price_choices(&planning, &list, n);
  set_alternatives(e, &list);
  if (result->n_staged == 0) e->why_none = result->space;
}
