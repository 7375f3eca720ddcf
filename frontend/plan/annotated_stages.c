/*
 * annotated_stages.c -- reads the annotations `@stage` of a model.
 *
 *     @stage(1)                           the line `stage 1: tail`
 *     layer tail(x: [B, I]) -> [B, O]
 *
 * Lines win over annotations, which say nothing beside cuts or without an axis
 * of stages.
 */
#include "frontend/plan/read.h"

#include <string.h>

/* The plan has stages whose contents annotations may name: an axis of stages,
 * or lines `stage`. */
static bool takes_annotations(const PinReader *r) {
  if (r->pins->places.n > 0) return false;
  if (r->pins->stages.n > 0) return !r->pins->stages.data[0].is_cut;
  for (int i = 0; i < r->pins->axes.n; i++)
    if (axis_is_pipe(r->pins->axes.data[i].name) &&
        r->pins->axes.data[i].size != 1)
      return true;
  return false;
}

static PinStage *stage_of_number(PinReader *r, int64_t number, Span span) {
  for (int i = 0; i < r->pins->stages.n; i++)
    if (r->pins->stages.data[i].number == number)
      return &r->pins->stages.data[i];
  PinStage stage = {.number = number, .stage = {.span = span}};
  vec_push(r->e->arena, &r->pins->stages, stage);
  return &r->pins->stages.data[r->pins->stages.n - 1];
}

/* Fills in the shortest beginning of a path that means paths of `own` alone, as
 * a layer whose annotation this is; false: only `!` reaches the path. */
static bool shortest_path(PinReader *r, Name path, const Map *own,
                          StagePath *out) {
  Arena *arena = r->e->arena;
  size_t length = strlen(path);
  for (size_t n = 1; n <= length; n++) {
    if (n < length && path[n] != '.' && path[n] != '[') continue;
    const char *text = arena_printf(arena, "%.*s", (int)n, path);
    PathList found = {0};
    if (!plan_paths_find_text(r->paths.paths, text, &found)) continue;
    bool is_own = true;
    for (int i = 0; i < found.n; i++) is_own &= map_has(own, found.data[i]);
    if (!is_own) continue;
    out->text = arena_printf(arena, "\"%s\"", text);
    out->n_paths = found.n;
    out->paths = found.data;
    return true;
  }
  return false;
}

static void add_annotated(PinReader *r, const PinnedPaths *pinned,
                          Map *has_stage) {
  const Annotation *annotation = pinned->annotation;
  Map *own = map_create(r->e->arena);
  int64_t number;
  if (!reader_read_int(r, annotation->args.items[0].value, "a stage", 0,
                       &number))
    return;
  for (int i = 0; i < pinned->paths.n; i++)
    if (!map_has(has_stage, pinned->paths.data[i]))
      map_put(own, pinned->paths.data[i], own);
  PinStage *stage = stage_of_number(r, number, annotation->span);
  for (int i = 0; i < map_size(own); i++) {
    Name path = map_key_at(own, i);
    StagePath line = {.span = annotation->span};
    if (map_has(has_stage, path) || !shortest_path(r, path, own, &line))
      continue;
    vec_push(r->e->arena, &stage->stage.paths, line);
    for (int k = 0; k < line.n_paths; k++)
      map_put(has_stage, line.paths[k], own);
  }
}

/* Inner annotations are noted before outer ones, over which they win. */
void reader_add_annotated_stages(PinReader *r, const PlanSource *from) {
  if (!takes_annotations(r)) return;
  Map *has_stage = map_create(r->e->arena);
  for (int s = 0; s < r->pins->stages.n; s++) {
    const PlanStage *stage = &r->pins->stages.data[s].stage;
    for (int i = 0; i < stage->paths.n; i++)
      for (int k = 0; k < stage->paths.data[i].n_paths; k++)
        map_put(has_stage, stage->paths.data[i].paths[k], has_stage);
  }
  for (int i = 0; i < r->walk->pinned.n; i++) {
    const PinnedPaths *pinned = &r->walk->pinned.data[i];
    if (strcmp(pinned->annotation->name, "stage") == 0 &&
        !reader_leaves_out(from, pinned->annotation->span))
      add_annotated(r, pinned, has_stage);
  }
}
