/*
 * places.c -- reads the lines `place` of a plan.
 *
 *     place branch[1] on 1       what the path names is on rank 1
 *     place tower.b on 2..3      on the two ranks of its mesh
 *
 * ir/plan/plan_places.c makes stages of them.
 */
#include "frontend/plan/read.h"

/* Reports a path that another line names, too. */
static bool is_named_once(PinReader *r, const PlanStage *line) {
  for (int i = 0; i < r->pins->places.n; i++) {
    const PlanStage *other = &r->pins->places.data[i];
    Map *paths = map_create(r->e->arena);
    for (int k = 0; k < other->paths.n; k++)
      for (int p = 0; p < other->paths.data[k].n_paths; p++)
        map_put(paths, other->paths.data[k].paths[p], paths);
    for (int k = 0; k < line->paths.n; k++) {
      const StagePath *path = &line->paths.data[k];
      int p = 0;
      while (p < path->n_paths && !map_has(paths, path->paths[p])) p++;
      if (p == path->n_paths) continue;
      Diag *d = diag(r->e->diags, DIAG_place_twice, path->span, path->paths[p],
                     other->first_rank, line->first_rank);
      diag_note(d, other->span, "the other line is here");
      return false;
    }
  }
  return true;
}

void reader_read_place(PinReader *r, const Pin *pin) {
  PlanStage line = {.span = pin->span};
  bool is_good = true;
  for (int i = 0; i < pin->exprs.n; i++) {
    StagePath path;
    bool is_path = reader_read_stage_path(r, pin->exprs.data[i], &path);
    if (is_path) vec_push(r->e->arena, &line.paths, path);
    is_good &= is_path;
  }
  if (!reader_read_stage_ranks(r, pin->value, &line) || !is_good) return;
  if (is_named_once(r, &line)) vec_push(r->e->arena, &r->pins->places, line);
}

void reader_check_places(PinReader *r) {
  const Pins *pins = r->pins;
  if (pins->places.n == 0 || pins->stages.n == 0) return;
  Diag *d = diag(r->e->diags, DIAG_not_supported, pins->places.data[0].span,
                 "'place' beside lines 'stage' or 'cut after'");
  diag_note(d, pins->stages.data[0].stage.span, "the other line is here");
  diag_help(d, "write all of them as 'stage N: PATHS on RANKS'; several stages "
               "may be on the same ranks");
}
