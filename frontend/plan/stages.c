/*
 * stages.c -- reads the lines `stage` and `cut after` of a plan.
 *
 *     stage 0: wte, block[0..3] on 0..3     paths and ranks of a stage
 *     stage 1: block[4..5] on 4..6 as (data = 3)    with a mesh of its own
 *     cut after block[3]                    a stage ends here
 *
 * ir/plan/plan_stages.c makes the stages of a plan of them.
 */
#include "frontend/elaborate/eval.h"
#include "frontend/plan/read.h"

/* Paths of values, operators, parameters and states. */
bool reader_read_stage_path(PinReader *r, const Expr *x, StagePath *out) {
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
  diag(r->e->diags, DIAG_wrong_setting, x->span, "a rank",
       arena_printf(r->e->arena, "at most %d", INT32_MAX - 1),
       span_text(r->e->arena, x->span));
  return false;
}

/* `on 3` or `on 0..3`. */
bool reader_read_stage_ranks(PinReader *r, const Expr *x, PlanStage *out) {
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

/* ---- meshes of stages ---- */

static bool is_axis(PinReader *r, const Arg *arg) {
  if (!arg->name) {
    diag(r->e->diags, DIAG_mesh_axis, arg->span);
    return false;
  }
  if (!axis_is_pipe(arg->name)) return true;
  diag(r->e->diags, DIAG_axis_pipe, arg->name_span);
  return false;
}

/* Lines may name the axes of all meshes, so these are found first. */
static void add_axes_of_stage(PinReader *r, const Pin *pin) {
  for (int i = 0; i < pin->as.n; i++) {
    const Arg *arg = &pin->as.items[i];
    if (!arg->name || axis_is_pipe(arg->name) ||
        pins_find_axis(r->pins, arg->name))
      continue;
    if (r->pins->axes.n == MAX_AXES - 1) {
      diag(r->e->diags, DIAG_mesh_axes, arg->name_span, MAX_AXES - 1);
      return;
    }
    vec_push(r->e->arena, &r->pins->axes,
             (PinAxis){.name = arg->name,
                       .is_of_stages = true,
                       .span = arg->name_span});
  }
}

void reader_add_stage_axes(PinReader *r) {
  for (int b = 0; b < r->blocks.n; b++)
    for (int i = 0; i < r->blocks.data[b]->n_pins; i++)
      if (r->blocks.data[b]->pins[i].kind == PIN_stage)
        add_axes_of_stage(r, &r->blocks.data[b]->pins[i]);
}

/* `as (data = 3, tensor = 2)`; axes of size 1 are left out. */
static bool read_stage_mesh(PinReader *r, const Pin *pin, PinStage *out) {
  Mesh *mesh = &out->stage.mesh;
  out->has_mesh = pin->has_as;
  out->mesh_span = pin->as_span;
  for (int i = 0; i < pin->as.n; i++) {
    const Arg *arg = &pin->as.items[i];
    int64_t size;
    if (!is_axis(r, arg) ||
        !reader_read_int(r, arg->value, arg->name, 1, &size))
      return false;
    if (mesh_find(mesh, arg->name) >= 0) {
      diag(r->e->diags, DIAG_axis_twice, arg->name_span, arg->name);
      return false;
    }
    if (size > INT32_MAX / mesh_ranks(mesh)) {
      diag(r->e->diags, DIAG_wrong_setting, arg->value->span, arg->name,
           "small enough for the ranks to be counted", "so large");
      return false;
    }
    if (size > 1)
      mesh->axes[mesh->n_axes++] = (MeshAxis){arg->name, (int32_t)size, false};
  }
  return true;
}

void reader_read_stage(PinReader *r, const Pin *pin) {
  PinStage line = {.is_cut = pin->kind == PIN_cut, .number = pin->stage};
  line.stage.span = pin->span;
  bool is_good = read_stage_mesh(r, pin, &line);
  for (int i = 0; i < pin->exprs.n; i++) {
    StagePath path;
    bool is_path = reader_read_stage_path(r, pin->exprs.data[i], &path);
    if (is_path) vec_push(r->e->arena, &line.stage.paths, path);
    is_good &= is_path;
  }
  if (pin->value && !reader_read_stage_ranks(r, pin->value, &line.stage))
    return;
  if (is_good && may_stand(r, &line))
    vec_push(r->e->arena, &r->pins->stages, line);
}
