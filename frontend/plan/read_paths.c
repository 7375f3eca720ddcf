/*
 * read_paths.c -- reads the paths that a plan names, and checks that what they
 * mean has the dims of the line.
 *
 *     shard block[2..5].attn.q: H over tensor
 *
 * ir/plan/graph_paths.c finds what a path means in the graph.
 */
#include "frontend/elaborate/eval.h"
#include "frontend/plan/read_paths.h"
#include "frontend/syntax/help.h"
#include "ir/place/shardrule.h"

#include <string.h>

/* ---- patterns ---- */

static bool add_part(const PathReader *reader, PathPattern *pattern,
                     const char *name, size_t n, Span span) {
  if (pattern->n == MOST_PATH_PARTS) {
    diag(reader->e->diags, DIAG_too_deep, span, MOST_PATH_PARTS, name);
    return false;
  }
  pattern->parts[pattern->n++] = (PathPart){.name = name, .n_name = n};
  return true;
}

static bool add_range(const PathReader *reader, PathPart *part,
                      const Sub *sub) {
  PathRange range = {0, INT64_MAX, SPAN_NONE};
  if (sub->kind == SUB_value) {
    const Expr *x = sub->to;
    range.span = x->span;
    bool is_range = x->kind == EXPR_range;
    if (!eval_int(reader->e, is_range ? x->a : x, &range.first) ||
        !eval_int(reader->e, is_range ? x->b : x, &range.last))
      return false;
  } else if (sub->kind != SUB_all) {
    diag(reader->e->diags, DIAG_plan_path_form, sub->span);
    return false;
  }
  vec_push(reader->e->arena, &part->ranges, range);
  return true;
}

static bool read_quoted(const PathReader *reader, const Expr *x,
                        PathPattern *out) {
  if (path_pattern_parse(reader->e->arena, out, x->name, x->span)) return true;
  diag(reader->e->diags, DIAG_plan_path_form, x->span);
  return false;
}

static bool read_pattern(const PathReader *reader, const Expr *x,
                         PathPattern *out);

static bool read_ranges(const PathReader *reader, const Expr *x,
                        PathPattern *out) {
  int n;
  const Expr *const *chain = expr_chain(reader->e->arena, x, &n);
  if (!read_pattern(reader, chain[n - 1]->a, out)) return false;
  for (int i = n - 1; i >= 0; i--)
    for (int j = 0; j < chain[i]->subs.n; j++)
      if (!add_range(reader, &out->parts[out->n - 1], &chain[i]->subs.data[j]))
        return false;
  return true;
}

static bool read_pattern(const PathReader *reader, const Expr *x,
                         PathPattern *out) {
  Elab *e = reader->e;
  switch (x->kind) {
  case EXPR_name:
    return add_part(reader, out, x->name, strlen(x->name), x->span);
  case EXPR_string: return read_quoted(reader, x, out);
  case EXPR_field:
  case EXPR_bang:
    if (!read_pattern(reader, x->a, out)) return false;
    out->is_operator = x->kind == EXPR_bang;
    return add_part(reader, out, x->name, strlen(x->name), x->span);
  case EXPR_index: return read_ranges(reader, x, out);
  default: diag(e->diags, DIAG_plan_path_form, x->span); return false;
  }
}

bool path_is_operator(const Expr *x) {
  while (x->kind == EXPR_index) x = x->a;
  const char *bang = x->kind == EXPR_string ? strrchr(x->name, '!') : NULL;
  return x->kind == EXPR_bang || (bang && !strchr(bang, '.'));
}

/* ---- what a path means ---- */

static void report_range(const PathReader *reader, const PathPart *part,
                         const PathRange *range, int64_t most) {
  Arena *arena = reader->e->arena;
  const char *text =
      range->first == range->last
          ? arena_printf(arena, "%lld", (long long)range->first)
          : arena_printf(arena, "%lld..%lld", (long long)range->first,
                         (long long)range->last);
  Diag *d = diag(reader->e->diags, DIAG_plan_index, range->span, text,
                 arena_printf(arena, "%.*s", (int)part->n_name, part->name),
                 most ? arena_printf(arena, "0..%lld", (long long)most) : "0");
  if (range->first > range->last) diag_help(d, "a range goes upwards");
}

/* Indices that nothing has are a mistake, also where others of the range are
 * there. */
static bool paths_check_ranges(const PathReader *reader,
                               const PathPattern *pattern) {
  for (int i = 0; i < pattern->n; i++) {
    const PathPart *part = &pattern->parts[i];
    for (int k = 0; k < part->ranges.n; k++) {
      const PathRange *range = &part->ranges.data[k];
      int64_t most = range->span.source
                         ? plan_paths_last_index(reader->paths, pattern, i, k)
                         : -1;
      if (most < 0 || (range->first >= 0 && range->first <= range->last &&
                       range->last <= most))
        continue;
      report_range(reader, part, range, most);
      return false;
    }
  }
  return true;
}

static void paths_suggest(const PathReader *reader, Diag *d,
                          const char *wanted) {
  VEC(const char *) names = {0};
  const char *path;
  bool has_state = false;
  for (int i = 0; (path = plan_paths_at(reader->paths, i)); i++) {
    vec_push(reader->e->arena, &names, path);
    has_state = has_state || !strncmp(path, "optimizer.", 10);
  }
  if (has_state) vec_push(reader->e->arena, &names, "optimizer");
  diag_suggest(d, wanted, names.data, names.n);
}

static bool is_part(const PathPart *part, const char *name) {
  return part->n_name == strlen(name) &&
         !memcmp(part->name, name, part->n_name);
}

/* `grad.PATH` or `optimizer.PATH` of what is not trained. */
static bool is_of_no_update(const PathReader *reader,
                            const PathPattern *pattern) {
  const PathPart *first = &pattern->parts[0];
  if (pattern->n < 2 || pattern->is_operator ||
      (!is_part(first, "grad") && !is_part(first, "optimizer")))
    return false;
  PathPattern rest = *pattern;
  memmove(rest.parts, rest.parts + 1, (size_t)--rest.n * sizeof rest.parts[0]);
  PathList found = {0};
  return plan_paths_find(reader->paths, &rest, &found);
}

static bool paths_node_has_dim(const Graph *graph, const char *name) {
  for (int i = 0; i < graph->nodes.n; i++)
    for (int d = 0; d < graph->nodes.data[i]->types[0]->rank; d++)
      if (!strcmp(graph->nodes.data[i]->types[0]->dims[d].name, name))
        return true;
  return false;
}

bool paths_read_pattern(const PathReader *reader, const Expr *x,
                        PathPattern *out) {
  Elab *e = reader->e;
  PathList found = {0};
  if (!read_pattern(reader, x, out) || !paths_check_ranges(reader, out))
    return false;
  if (plan_paths_find(reader->paths, out, &found)) return true;
  const char *text = span_text(e->arena, x->span);
  if (is_of_no_update(reader, out)) {
    diag(e->diags, DIAG_plan_not_trained, x->span, text);
    return false;
  }
  Diag *d = diag(e->diags, DIAG_plan_path, x->span, reader->model->name, text);
  if (paths_node_has_dim(reader->graph, text))
    diag_help(d, "a dimension stands without ':', as in shard %s over data",
              text);
  else
    paths_suggest(reader, d, text);
  return false;
}

bool paths_read(const PathReader *reader, const Expr *x, PathList *out) {
  PathPattern pattern = {0};
  return paths_read_pattern(reader, x, &pattern) &&
         plan_paths_find(reader->paths, &pattern, out);
}

/* ---- what has the dims of a line ---- */

/* A layer has other names for the dims of its result than its caller. */
static void help_with_dims(const PathReader *reader, const PathList *list,
                           Diag *d) {
  Arena *arena = reader->e->arena;
  Map *names = map_create(arena);
  Text out = text_create(arena);
  for (int i = 0; i < list->n; i++) {
    const PlanNodes *at = plan_paths_nodes_of(reader->paths, list->data[i]);
    const Type *type = at->n ? at->data[0].node->types[0] : NULL;
    for (int k = 0; type && k < type->rank; k++) {
      Name name = type->dims[k].name;
      if (map_has(names, name)) continue;
      map_put(names, name, (void *)name);
      text_printf(&out, "%s%s", out.n ? ", " : "", name);
    }
  }
  if (out.n) diag_help(d, "it has %s here", text_string(&out));
}

bool paths_have_dim(const PathReader *reader, const PathList *list,
                    const Expr *x, Name dim, Span span) {
  for (int i = 0; i < list->n; i++) {
    const PlanNodes *at = plan_paths_nodes_of(reader->paths, list->data[i]);
    for (int k = 0; k < at->n; k++)
      for (int r = 0; r < at->data[k].node->n_results; r++)
        if (type_find(at->data[k].node->types[r], dim) >= 0) return true;
  }
  Diag *d = diag(reader->e->diags, DIAG_plan_path_dim, span,
                 span_text(reader->e->arena, x->span), dim);
  help_with_dims(reader, list, d);
  return false;
}

/* Adds the dims over which the nodes compute. */
static void add_computed_dims(const PlanNodes *nodes, ShardRule *rule,
                              Map *out) {
  for (int i = 0; i < nodes->n; i++) {
    PlanNode at = nodes->data[i];
    if (!op_info(at.node->op)->infer) continue;
    ShardCall call = shard_call(at.graph, at.node);
    shard_rule(&call, rule);
    for (int d = 0; d < rule->n; d++)
      map_put(out, rule->dims[d].name, (void *)rule->dims[d].name);
  }
}

bool paths_compute_over(const PathReader *reader, const PathList *list,
                        Name dim, Span span) {
  Elab *e = reader->e;
  Map *dims = map_create(e->arena);
  ShardRule *rule = ARENA_NEW(e->arena, ShardRule);
  for (int i = 0; i < list->n; i++)
    add_computed_dims(plan_paths_nodes_of(reader->paths, list->data[i]), rule,
                      dims);
  if (map_has(dims, dim)) return true;
  int n = map_size(dims);
  const char **names = ARENA_ARRAY(e->arena, const char *, n);
  for (int i = 0; i < n; i++) names[i] = map_key_at(dims, i);
  Diag *d = diag(e->diags, DIAG_operator_dim, span, list->data[0], dim);
  diag_choices(e->arena, d, dim, names, n);
  return false;
}
