/*
 * schedule_list.c -- reads the schedule of a plan from a file.
 *
 *     schedule = "odd.csv"     0F0,0F1,0B0,0B1     beside the plan
 *                              1F0,1B0,1F1,1B1
 *
 * Its calls are checked alone here.  ir/plan/plan_list.c compares them with the
 * stages, which may be open yet.
 */
#include "frontend/elaborate/source_tree.h"
#include "frontend/plan/read.h"
#include "ir/pipeline/rendezvous.h"

#include <string.h>

static const Source *load(PinReader *r, const char *folder, const char *path) {
  const FrontendOptions *options = r->e->tree->options;
  return options->load_plan_file
             ? options->load_plan_file(options->user, folder, path)
             : options->load(options->user, path);
}

static const Source *read_file(PinReader *r, const Expr *x) {
  SourceTree *tree = r->e->tree;
  const char *own = x->span.source->path, *slash = strrchr(own, '/');
  if (!source_tree_check_path(tree, x->name, x->span)) return NULL;
  const char *folder =
      slash ? arena_printf(r->e->arena, "%.*s", (int)(slash - own) + 1, own)
            : "";
  const char *path = source_tree_join(tree, own, x->name);
  const Source *source = load(r, folder, path);
  if (source) return source;
  Diag *d = diag(r->e->diags, DIAG_no_file, x->span, path);
  if (tree->options->why)
    diag_note(d, SPAN_NONE, "%s", tree->options->why(tree->options->user));
  return NULL;
}

/* Messages follow from the calls, and what a stage does once a step does, too.
 */
static bool check_kinds(PinReader *r, const Pipeline *list) {
  bool goes_back = false, is_good = true;
  for (int c = 0; c < list->n_ranks; c++)
    for (int i = 0; i < list->lists[c].n; i++) {
      const Token *token = &list->lists[c].data[i];
      const char *text = span_text(r->e->arena, token->span);
      const TokenInfo *info = token_info(token->kind);
      goes_back |=
          token->kind == TOKEN_backward || token->kind == TOKEN_input_grad;
      if (info->role == TOKEN_ROLE_call && !info->is_of_step) continue;
      is_good = false;
      diag(r->e->diags, DIAG_schedule_cell, token->span, text,
           "dnnc inserts messages and work of a step itself: leave it out");
    }
  if (is_good && !goes_back) {
    diag(r->e->diags, DIAG_schedule_forward,
         list->lists[0].n ? list->lists[0].data[0].span : SPAN_NONE);
    is_good = false;
  }
  return is_good;
}

/* Its ranks may wait for each other in a circle. */
static void check_end(PinReader *r, const Pipeline *list) {
  Arena *arena = r->e->arena;
  const Pipeline *lowered = pipeline_lower(arena, list);
  RendezvousResult result = rendezvous_check(
      arena, pipeline_rendezvous(arena, lowered, 1), RENDEZVOUS_all);
  pipeline_report_hang(arena, r->e->diags, lowered, &result);
}

const Pipeline *reader_read_list(PinReader *r, const Expr *x) {
  Diags *diags = r->e->diags;
  int n_errors = diags_errors(diags);
  const Source *source = read_file(r, x);
  Pipeline *list = source ? pipeline_read(r->e->arena, diags, source) : NULL;
  if (!list || !check_kinds(r, list)) return NULL;
  pipeline_check_calls(r->e->arena, diags, list);
  pipeline_check_complete(r->e->arena, diags, list);
  if (diags_errors(diags) == n_errors) check_end(r, list);
  return diags_errors(diags) > n_errors ? NULL : list;
}
