/*
 * plan_list.c -- compares the list of a schedule that a person wrote with the
 * stages of the plan.
 *
 *     0F0,0F1,2F0,2F1 ...     the first list: stages 0 and 2 are on the first
 *     1F0,1F1,3F0,3F1 ...     ranks, 1 and 3 on the next
 */
#include "ir/plan/pins.h"

static const Token *last_token(const Pipeline *list) {
  for (int r = list->n_ranks - 1; r >= 0; r--)
    if (list->lists[r].n > 0) return &list->lists[r].data[list->lists[r].n - 1];
  UNREACHABLE();
}

/* ---- ranks ---- */

/* The place of the first list that is too much, else of the last one. */
static Span span_of_rows(const Pipeline *list, int n_classes) {
  for (int r = n_classes; r < list->n_ranks; r++)
    if (list->lists[r].n > 0) return list->lists[r].data[0].span;
  return last_token(list)->span;
}

static bool check_rows(Module *module, const Pins *pins, int n_classes) {
  const Pipeline *list = pins->list;
  if (list->n_ranks == n_classes) return true;
  Diag *d =
      diag(module->diags, DIAG_schedule_rows, span_of_rows(list, n_classes),
           list->n_ranks, n_classes, n_classes > 1 ? "s" : "");
  diag_note(d, pins->schedule_span, "the plan names the schedule here");
  diag_help(d, "a line of the file is the list of a group of ranks");
  return false;
}

/* ---- stages ---- */

bool plan_check_list_stages(Module *module, const Pins *pins, int n_stages) {
  const Pipeline *list = pins->list;
  bool *is_there = ARENA_ARRAY(module->arena, bool, n_stages);
  for (int r = 0; r < list->n_ranks; r++)
    for (int i = 0; i < list->lists[r].n; i++) {
      const Token *token = &list->lists[r].data[i];
      if (token->stage < n_stages) {
        is_there[token->stage] = true;
        continue;
      }
      Diag *d =
          diag(module->diags, DIAG_schedule_cell, token->span,
               span_text(module->arena, token->span),
               n_stages > 1 ? arena_printf(module->arena,
                                           "the plan has the stages 0 to %d",
                                           n_stages - 1)
                            : "the plan has no stages");
      diag_note(d, pins->schedule_span, "the plan names the schedule here");
      return false;
    }
  for (int s = 0; s < n_stages; s++) {
    if (is_there[s]) continue;
    Diag *d =
        diag(module->diags, DIAG_schedule_lacks, last_token(list)->span, s);
    diag_note(d, pins->schedule_span, "the plan names the schedule here");
    return false;
  }
  return true;
}

int plan_list_group(const Pipeline *list, int stage) {
  for (int r = 0; r < list->n_ranks; r++)
    for (int i = 0; i < list->lists[r].n; i++)
      if (list->lists[r].data[i].stage == stage) return r;
  UNREACHABLE();
}

static bool check_places(Module *module, const Pins *pins, const Plan *plan,
                         const int *class_of) {
  const Pipeline *list = pins->list;
  for (int r = 0; r < list->n_ranks; r++)
    for (int i = 0; i < list->lists[r].n; i++) {
      const Token *token = &list->lists[r].data[i];
      int class = class_of[token->stage];
      if (class == r) continue;
      Diag *d = diag(module->diags, DIAG_schedule_cell, token->span,
                     span_text(module->arena, token->span),
                     arena_printf(module->arena,
                                  "stage %d is on other ranks, whose list is "
                                  "in line %d",
                                  token->stage, class + 1));
      diag_note(d, plan->stages.data[token->stage].span, "the stage is here");
      return false;
    }
  return true;
}

/* ---- all of it ---- */

bool plan_check_list(Module *module, const Pins *pins, const Plan *plan) {
  const Pipeline *list = pins->list;
  int n = plan->stages.n > 0 ? plan->stages.n : 1;
  int *class_of = ARENA_ARRAY(module->arena, int, n);
  int n_classes =
      plan->stages.n > 0 ? plan_classes(module->arena, plan, class_of) : 1;
  if (!plan_check_list_stages(module, pins, n) ||
      !check_rows(module, pins, n_classes) ||
      !check_places(module, pins, plan, class_of))
    return false;
  if (list->n_microbatches == plan->microbatches) return true;
  bool is_written = pins->microbatches.span.source != NULL;
  Diag *d = diag(module->diags, DIAG_schedule_microbatches,
                 is_written ? pins->microbatches.span : pins->schedule_span,
                 list->n_microbatches, (long long)plan->microbatches);
  diag_help(d, "write 'microbatches = %d'", list->n_microbatches);
  return false;
}
