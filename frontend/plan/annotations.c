/*
 * annotations.c -- reads the annotations of a model, which are pins as the
 * lines of a plan are.
 *
 *     @shard(B = data, H = (seq, tensor))
 *     h = relu(dot(x, w, I))                  shard h: B over data, H over ...
 */
#include "frontend/plan/read.h"

#include <string.h>

/* `H = tensor`, `H = (seq, tensor)` or `H = none` of an annotation. */
static bool read_annotation_place(PinReader *r, const Arg *arg, Place *out) {
  const Expr *x = arg->value;
  bool is_list = x->kind == EXPR_list;
  int n = is_list ? x->items.n : 1;
  *out = (Place){.span = arg->span};
  out->axes.names = ARENA_ARRAY(r->e->arena, Name, n + 1);
  out->axes.spans = ARENA_ARRAY(r->e->arena, Span, n + 1);
  bool is_good = arg->name != NULL;
  for (int i = 0; i < n && is_good; i++) {
    const Expr *axis = is_list ? x->items.data[i] : x;
    is_good = axis->kind == EXPR_name;
    out->axes.names[i] = axis->name;
    out->axes.spans[i] = axis->span;
  }
  out->axes.n = n;
  if (!is_good)
    diag(r->e->diags, DIAG_annotation_shard, arg->span);
  else if (strcmp(arg->name, "partial") != 0)
    out->dim = arg->name;
  return is_good;
}

static void read_annotation_shard(PinReader *r, const Annotation *annotation,
                                  const PathList *paths) {
  int n = annotation->args.n;
  Expr x = {.kind = EXPR_name, .span = annotation->span};
  Pin pin = {.kind = PIN_shard_paths, .span = annotation->span};
  PlanPin line;
  pin.places = ARENA_ARRAY(r->e->arena, Place, n + 1);
  pin.n_places = n;
  Expr *exprs[1] = {&x};
  pin.exprs = (ExprList){exprs, 1};
  for (int i = 0; i < n; i++)
    if (!read_annotation_place(r, &annotation->args.items[i], &pin.places[i]))
      return;
  if (!reader_read_line(r, &pin, paths, ABOUT_value, &line)) return;
  line.is_annotation = true;
  reader_add_pin(r, &line);
}

static void read_annotation(PinReader *r, const Annotation *annotation,
                            const PathList *paths) {
  SavingLines lines = {.e = r->e, .graph = r->graph, .pins = r->pins};
  if (paths->n == 0)
    diag(r->e->diags, DIAG_annotation_empty, annotation->span,
         annotation->name);
  else if (strcmp(annotation->name, "shard") == 0)
    read_annotation_shard(r, annotation, paths);
  else if (strcmp(annotation->name, "stage") == 0)
    return; /* reader_add_annotated_stages reads it after the lines */
  else
    saving_read_annotation(&lines, r->walk, annotation);
}

/* Inner annotations are noted before outer ones, over which they win. */
void reader_read_annotations(PinReader *r, const PlanSource *from) {
  const Elab *walk = r->walk;
  Map *seen = map_create(r->e->arena);
  for (int i = walk->pinned.n - 1; i >= 0; i--) {
    const Annotation *annotation = walk->pinned.data[i].annotation;
    PathList paths = {0};
    if (map_has(seen, annotation) || reader_leaves_out(from, annotation->span))
      continue;
    map_put(seen, annotation, (void *)annotation);
    for (int k = 0; k <= i; k++) {
      const PinnedPaths *pinned = &walk->pinned.data[k];
      for (int j = 0; j < pinned->paths.n && pinned->annotation == annotation;
           j++)
        vec_push(r->e->arena, &paths, pinned->paths.data[j]);
    }
    read_annotation(r, annotation, &paths);
  }
}

/* Placements and stages say nothing on one rank; what is saved is decided there
 * too. */
bool reader_annotations_ask(const Elab *walk) {
  for (int i = 0; i < walk->pinned.n; i++) {
    const char *name = walk->pinned.data[i].annotation->name;
    if (strcmp(name, "shard") != 0 && strcmp(name, "stage") != 0) return true;
  }
  return false;
}
