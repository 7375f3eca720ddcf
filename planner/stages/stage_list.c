/*
 * stage_list.c -- lists the best plan of each number of groups and schedule
 * that the search has looked at.
 *
 *     groups  schedule            a step
 *          8  interleaved(v = 2)   9.8 s   priced
 *          8  1f1b                10.1 s   priced
 *          4  1f1b                10.6 s   estimate
 */
#include "planner/stages/staged.h"

#include <stdlib.h>
#include <string.h>

typedef VEC(StagedChoice) StagedChoices;

static StagedChoice *find_choice(StagedChoices *list, int groups,
                                 const char *schedule) {
  for (int i = 0; i < list->n; i++)
    if (list->data[i].groups == groups &&
        strcmp(list->data[i].schedule, schedule) == 0)
      return &list->data[i];
  return NULL;
}

/* Returns what follows the word in a line, or NULL. */
static const char *line_after(const char *line, const char *word) {
  size_t n = strlen(word);
  return strncmp(line, word, n) == 0 ? line + n : NULL;
}

/* Returns "block[3], block[7]" of the lines of a candidate, and how many stages
 * they make. */
static const char *cuts_of(Arena *arena, const char *lines, int *out_stages) {
  Text out = text_create(arena);
  int n_cuts = 0, n_stages = 0;
  for (const char *at = lines, *end; (end = strchr(at, '\n')); at = end + 1) {
    const char *path = line_after(at, "  cut after ");
    n_stages += line_after(at, "  stage ") != NULL;
    if (!path) continue;
    text_add(&out, n_cuts++ ? ", " : "");
    text_add_n(&out, path, (size_t)(end - path));
  }
  *out_stages = n_stages > 0 ? n_stages : n_cuts + 1;
  return text_string(&out);
}

static FoundPlan found_of(const StageSearch *s, const Candidate *c,
                          CandidatePrice price) {
  return (FoundPlan){candidate_text(&s->p->space, c),
                     candidate_words(&s->p->space, c), price};
}

/* ---- priced plans ---- */

static void add_priced(StageSearch *s, StagedChoices *list,
                       const Scored *scored) {
  const Candidate *c = &scored->candidate;
  bool has_stages = c->groups > 0;
  int groups = has_stages ? c->groups : 1;
  const char *schedule = has_stages ? c->schedule : "";
  if (!scored->price.is_legal || price_missing(&scored->price) > 0) return;
  StagedChoice *known = find_choice(list, groups, schedule);
  if (known && !price_is_better(&scored->price, &known->plan.price)) return;
  StagedChoice choice = {.groups = groups,
                         .schedule = schedule,
                         .microbatches = c->microbatches,
                         .plan = found_of(s, c, scored->price),
                         .is_estimate = !scored->is_whole};
  choice.cuts = cuts_of(s->arena, has_stages ? c->cuts : "", &choice.stages);
  if (known)
    *known = choice;
  else
    vec_push(s->arena, list, choice);
}

/* ---- estimated plans ---- */

static bool is_same_kind(const StagedPlan *a, const StagedPlan *b) {
  return a->shape.groups == b->shape.groups && a->chunks == b->chunks &&
         a->shape.schedule == b->shape.schedule;
}

static bool is_least(const StageSearch *s, int at) {
  const StagedPlan *plan = &s->plans.data[at];
  for (int i = 0; i < s->plans.n; i++) {
    const StagedPlan *other = &s->plans.data[i];
    if (is_same_kind(plan, other) &&
        (other->step < plan->step || (other->step == plan->step && i < at)))
      return false;
  }
  return true;
}

static void add_estimate(StageSearch *s, StagedChoices *list,
                         const StagedPlan *plan) {
  Candidate c = stage_candidate(s, plan);
  if (find_choice(list, c.groups, c.schedule)) return;
  CandidatePrice price = {true, plan->step, plan->peak, s->p->input->memory};
  StagedChoice choice = {.groups = c.groups,
                         .schedule = c.schedule,
                         .microbatches = c.microbatches,
                         .plan = found_of(s, &c, price),
                         .is_estimate = true};
  choice.cuts = cuts_of(s->arena, c.cuts, &choice.stages);
  vec_push(s->arena, list, choice);
}

/* ---- the list ---- */

static int compare_choices(const void *a, const void *b) {
  const StagedChoice *x = a, *y = b;
  if (x->plan.price.step != y->plan.price.step)
    return x->plan.price.step < y->plan.price.step ? -1 : 1;
  if (x->groups != y->groups) return x->groups < y->groups ? -1 : 1;
  return strcmp(x->schedule, y->schedule);
}

void stage_list(StageSearch *s) {
  StagedChoices list = {0};
  for (int i = 0; i < s->p->scored.n; i++)
    add_priced(s, &list, s->p->scored.data[i]);
  for (int i = 0; i < s->plans.n; i++)
    if (is_least(s, i)) add_estimate(s, &list, &s->plans.data[i]);
  if (list.n > 1)
    qsort(list.data, (size_t)list.n, sizeof *list.data, compare_choices);
  s->p->staged = list.data;
  s->p->n_staged = list.n;
}
