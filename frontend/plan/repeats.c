/*
 * repeats.c -- warns of lines of a plan that say what others imply.
 *
 *     shard B over data
 *     shard x: B over data      warning: this pin says so already
 */
#include "frontend/plan/paths.h"

/* The pin that decides if this one is removed, if it gives this type the same
 * placement: an earlier pin about the path, or pins about all dims. */
static Span decides_alike(const Plan *plan, const PlanPlacement *line,
                          const PlanPlacement *before, Name path,
                          const Type *type) {
  const PlanShard *now[MAX_RANK], *else_[MAX_RANK];
  Span by = before ? before->span : SPAN_NONE;
  for (int d = 0; d < type->rank; d++) {
    Name dim = type->dims[d].name;
    now[d] = plan_placed_dim(line, dim);
    else_[d] =
        before ? plan_placed_dim(before, dim) : plan_named_dim(plan, path, dim);
    if (!before && (!else_[d] || !else_[d]->span.source)) return SPAN_NONE;
    if (!before) by = else_[d]->span;
  }
  for (int d = 0; d < type->rank; d++) {
    Name axes[MAX_AXES], other[MAX_AXES];
    int n = plan_lines_axes(now, type->rank, d, axes);
    if (n != plan_lines_axes(else_, type->rank, d, other)) return SPAN_NONE;
    for (int i = 0; i < n; i++)
      if (axes[i] != other[i]) return SPAN_NONE;
  }
  return by;
}

static bool same_partial(const PlanPlacement *a, const PlanPlacement *b) {
  int n = b ? b->n_partial : 0;
  bool is_same = a->n_partial == n;
  for (int i = 0; is_same && i < n; i++)
    is_same = a->partial[i] == b->partial[i];
  return is_same;
}

/* Only another line about it makes one about a gradient or optimizer state
 * superfluous. */
static Span find_implying(const PlanPaths *paths, const Plan *plan,
                          const Map *placed, const PlanPlacement *line) {
  Span by = SPAN_NONE;
  for (int i = 0; i < line->n_paths; i++) {
    Name path = line->paths[i];
    const PlanNodes *nodes = plan_paths_nodes_of(paths, path);
    const PlanPlacement *before = map_get(placed, path);
    if (line->is_of_update && !before) return SPAN_NONE;
    for (int k = 0; k < nodes->n; k++) {
      const Node *node = nodes->data[k].node;
      for (int r = 0; r < node->n_results; r++) {
        if (node->types[r]->rank == 0) continue;
        by = decides_alike(plan, line, before, path, node->types[r]);
        if (!by.source) return by;
      }
    }
    if (!same_partial(line, before)) return SPAN_NONE;
  }
  return by;
}

void plan_line_repeats(Elab *e, Span later, Span earlier) {
  Diag *d = diag(e->diags, DIAG_pin_repeats, later, span_text(e->arena, later));
  diag_note(d, earlier, "this pin says so already");
}

static bool same_shards(const PlanPlacement *a, const PlanPlacement *b) {
  bool is_same = a->n_shards == b->n_shards;
  for (int i = 0; is_same && i < a->n_shards; i++) {
    const PlanShard *other = plan_placed_dim(b, a->shards[i].dim);
    is_same = other && other->n_axes == a->shards[i].n_axes;
    for (int k = 0; is_same && k < other->n_axes; k++)
      is_same = other->axes[k] == a->shards[i].axes[k];
  }
  return is_same;
}

static void check_operator_repeats(Elab *e, const Plan *plan) {
  Map *known = map_create(e->arena);
  for (int i = 0; i < plan->operators.n; i++) {
    const PlanPlacement *line = &plan->operators.data[i];
    const PlanPlacement *before = map_get(known, line->paths[0]);
    bool repeats = before != NULL;
    for (int k = 0; k < line->n_paths; k++) {
      const PlanPlacement *other = map_get(known, line->paths[k]);
      repeats = repeats && other && same_shards(line, other);
      map_put(known, line->paths[k], (void *)line);
    }
    if (repeats) plan_line_repeats(e, line->span, before->span);
  }
}

void plan_check_lines(Elab *e, const PlanPaths *paths, const Plan *plan) {
  check_operator_repeats(e, plan);
  Map *placed = map_create(e->arena);
  for (int i = 0; i < plan->placements.n; i++) {
    const PlanPlacement *line = &plan->placements.data[i];
    if (line->is_annotation) continue;
    Span by = find_implying(paths, plan, placed, line);
    if (by.source) plan_line_repeats(e, line->span, by);
    for (int k = 0; k < line->n_paths; k++)
      map_put(placed, line->paths[k], (void *)line);
  }
}
