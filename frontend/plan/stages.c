/*
 * stages.c -- reads the lines `stage` and `cut after` of a plan.
 *
 *     stage 0: wte, block[0..3] on 0..3     paths and ranks of a stage
 *     cut after block[3]                    a stage ends here
 *
 * ir/plan/plan_stages.c makes the stages of a plan of them.
 */
#include "frontend/elaborate/eval.h"
#include "frontend/plan/read.h"

#include <string.h>

/* Paths of values, operators, parameters and states. */
static bool read_stage_path(PinReader *r, const Expr *x, StagePath *out) {
  PathList found = {0};
  if (!paths_read(&r->paths, x, &found)) return false;
  *out = (StagePath){.text = span_text(r->e->arena, x->span),
                     .n_paths = found.n,
                     .paths = found.data,
                     .span = x->span};
  if (!plan_path_is_of_update(found.data[0])) return true;
  diag(r->e->diags, DIAG_stage_update, x->span, out->text);
  return false;
}

static bool read_rank(PinReader *r, const Expr *x, int64_t *out) {
  if (!reader_read_int(r, x, "a rank", 0, out)) return false;
  if (*out < INT32_MAX) return true;
  diag(r->e->diags, DIAG_wrong_setting, x->span, "a rank", "small enough",
       "so large");
  return false;
}

/* `on 3` or `on 0..3`. */
static bool read_stage_ranks(PinReader *r, const Expr *x, PlanStage *out) {
  bool is_range = x->kind == EXPR_range;
  int64_t first, last;
  if (!read_rank(r, is_range ? x->a : x, &first) ||
      !read_rank(r, is_range ? x->b : x, &last))
    return false;
  if (last < first) {
    diag(r->e->diags, DIAG_stage_range, x->span, (long long)first,
         (long long)last);
    return false;
  }
  out->first_rank = (int)first;
  out->n_ranks = (int)(last - first) + 1;
  return true;
}

/* Reports a line of the other form, or one of the same number. */
static bool may_stand(PinReader *r, const PinStage *now) {
  for (int i = 0; i < r->pins->stages.n; i++) {
    const PinStage *other = &r->pins->stages.data[i];
    bool is_twice = !now->is_cut && other->number == now->number;
    if (other->is_cut == now->is_cut && !is_twice) continue;
    Diag *d = is_twice && !other->is_cut
                  ? diag(r->e->diags, DIAG_given_twice, now->stage.span,
                         arena_printf(r->e->arena, "stage %lld",
                                      (long long)now->number))
                  : diag(r->e->diags, DIAG_stage_forms, now->stage.span);
    diag_note(d, other->stage.span, "the other line is here");
    return false;
  }
  return true;
}

void reader_read_stage(PinReader *r, const Pin *pin) {
  PinStage line = {.is_cut = pin->kind == PIN_cut, .number = pin->stage};
  line.stage.span = pin->span;
  if (pin->as.n > 0) {
    elab_not_supported(r->e, pin->span, "a stage with a mesh of its own");
    return;
  }
  bool is_good = true;
  for (int i = 0; i < pin->exprs.n; i++) {
    StagePath path;
    bool is_path = read_stage_path(r, pin->exprs.data[i], &path);
    if (is_path) vec_push(r->e->arena, &line.stage.paths, path);
    is_good &= is_path;
  }
  if (pin->value && !read_stage_ranks(r, pin->value, &line.stage)) return;
  if (is_good && may_stand(r, &line))
    vec_push(r->e->arena, &r->pins->stages, line);
}

void reader_check_pipe(PinReader *r) {
  for (int i = 0; i < r->pins->axes.n; i++) {
    const PinAxis *axis = &r->pins->axes.data[i];
    if (strcmp(axis->name, "pipe") == 0 && axis->size != 1 &&
        r->pins->stages.n == 0)
      elab_not_supported(r->e, axis->span,
                         "choosing stages: write lines 'stage' or 'cut after' "
                         "beside the axis 'pipe'");
  }
}
