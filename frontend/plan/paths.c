/*
 * paths.c -- finds the parameters, data fields, values and operators that a
 * path of a plan means (language.md 6).
 *
 *     block[2..5].attn      all below attn in four blocks
 *     block.attn.q          q in every block: an index left out means all
 *     norm!mean             the operator, where a value has this name too
 *
 * A pattern is matched with every path of the graph.  Where several things have
 * the path, a parameter or state goes before the call, the call (all that is
 * below it) before the value, and the value before the operator.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/eval.h"
#include "frontend/plan/paths.h"
#include "ir/shardrule.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PARTS = 72 };

typedef struct Range {
  int64_t first, last;
  Span span; /* no source: all */
} Range;

typedef struct Part { /* name[range][range] */
  const char *name;
  size_t n_name;
  VEC(Range) ranges; /* outermost first; further ones mean all */
} Part;

typedef struct Pattern {
  int n;
  Part parts[MOST_PARTS];
  bool is_operator; /* PATH!NAME */
} Pattern;

typedef enum Kind { KIND_input, KIND_value, KIND_operator } Kind;

typedef struct Candidate {
  Name path, node_path; /* they differ for an operator with a named value */
  Kind kind;
} Candidate;

struct PlanPaths {
  Elab *e;
  const Model *model;
  const Graph *graph;
  VEC(Candidate) candidates;
  VEC(PlanNode) nodes;
  Map *hidden; /* node paths */
};

/* ---- candidates ---- */

static void paths_add_node(PlanPaths *paths, const Map *named,
                           const Graph *graph, const Node *node, Name place) {
  if (!place || !*place) return;
  vec_push(paths->e->arena, &paths->nodes, (PlanNode){graph, node, place});
  if (node->op == OP_input) return;
  Kind kind = map_has(named, place) ? KIND_value : KIND_operator;
  char *path = arena_strdup(paths->e->arena, place), *bang = path;
  while ((bang = strchr(bang, '!'))) *bang = '.';
  Candidate candidate = {path, place, kind};
  vec_push(paths->e->arena, &paths->candidates, candidate);
}

/* Nodes in program order, those of a scan's body before it. */
static void add_nodes(PlanPaths *paths, const Map *named, const Graph *graph,
                      bool is_body) {
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *node = graph->nodes.data[i];
    bool is_input = node->op == OP_input;
    if (is_input && is_body) continue;
    if (node->body) add_nodes(paths, named, node->body, true);
    int slot = is_input ? (int)node_int(node, ATTR_index, 0) : 0;
    paths_add_node(paths, named, graph, node,
                   is_input ? graph->inputs.data[slot].path : node->path);
  }
}

/* Operators whose paths all mean a parameter or a value. */
static void find_hidden(PlanPaths *paths) {
  Arena *arena = paths->e->arena;
  Map *taken = map_create(arena), *reached = map_create(arena);
  int n = paths->candidates.n;
  paths->hidden = map_create(arena);
  for (int i = 0; i < n; i++) {
    const Candidate *c = &paths->candidates.data[i];
    Name path = name_intern(paths->e->names, c->path);
    if (c->kind != KIND_operator) map_put(taken, path, (void *)path);
  }
  for (int i = 0; i < n; i++) {
    const Candidate *c = &paths->candidates.data[i];
    Name path = name_intern(paths->e->names, c->path);
    if (c->kind != KIND_operator || !map_has(taken, path))
      map_put(reached, c->node_path, (void *)c->node_path);
  }
  for (int i = 0; i < n; i++) {
    Name node_path = paths->candidates.data[i].node_path;
    if (!map_has(reached, node_path))
      map_put(paths->hidden, node_path, (void *)node_path);
  }
}

PlanPaths *plan_paths_create(Elab *e, const Model *model, const Elab *walk,
                             const Graph *graph) {
  PlanPaths *paths = ARENA_NEW(e->arena, PlanPaths);
  paths->e = e;
  paths->model = model;
  paths->graph = graph;
  for (int i = 0; i < graph->inputs.n; i++) {
    Name path = graph->inputs.data[i].path;
    vec_push(e->arena, &paths->candidates, (Candidate){path, path, KIND_input});
  }
  Map *named = map_create(e->arena);
  for (int i = 0; i < walk->aliases.n; i++) {
    PathAlias alias = walk->aliases.data[i];
    Kind kind = alias.is_value ? KIND_value : KIND_operator;
    if (!alias.is_value)
      map_put(named, alias.node_path, (void *)alias.node_path);
    vec_push(e->arena, &paths->candidates,
             (Candidate){alias.path, alias.node_path, kind});
  }
  add_nodes(paths, named, graph, false);
  find_hidden(paths);
  return paths;
}

bool plan_paths_is_hidden(const PlanPaths *paths, Name node_path) {
  return map_has(paths->hidden, node_path);
}

const PlanNode *plan_paths_nodes(const PlanPaths *paths, int *out_n) {
  *out_n = paths->nodes.n;
  return paths->nodes.data;
}

/* ---- patterns ---- */

static bool add_part(PlanPaths *paths, Pattern *pattern, const char *name,
                     size_t n, Span span) {
  if (pattern->n == MOST_PARTS) {
    diag(paths->e->diags, DIAG_too_deep, span, MOST_PARTS, name);
    return false;
  }
  pattern->parts[pattern->n++] = (Part){.name = name, .n_name = n};
  return true;
}

static bool add_range(PlanPaths *paths, Part *part, const Sub *sub) {
  Range range = {0, INT64_MAX, SPAN_NONE};
  if (sub->kind == SUB_value) {
    const Expr *x = sub->to;
    range.span = x->span;
    bool is_range = x->kind == EXPR_range;
    if (!eval_int(paths->e, is_range ? x->a : x, &range.first) ||
        !eval_int(paths->e, is_range ? x->b : x, &range.last))
      return false;
  } else if (sub->kind != SUB_all) {
    diag(paths->e->diags, DIAG_plan_path_form, sub->span);
    return false;
  }
  vec_push(paths->e->arena, &part->ranges, range);
  return true;
}

/* Reads "[3]", "[2..5]" or "[*]": the text after it, or NULL. */
static const char *paths_read_index(const char *at, Range *out) {
  char *end;
  *out = (Range){0, INT64_MAX, SPAN_NONE};
  if (at[1] == '*') return at[2] == ']' ? at + 3 : NULL;
  out->first = out->last = strtoll(at + 1, &end, 10);
  if (end == at + 1) return NULL;
  if (end[0] == '.' && end[1] == '.') {
    const char *last = end + 2;
    out->last = strtoll(last, &end, 10);
    if (end == last) return NULL;
  }
  return *end == ']' ? end + 1 : NULL;
}

/* "cut.x[3]": a quoted path, whose words may be those of a plan. */
static bool parse_text(PlanPaths *paths, Pattern *pattern, const char *text,
                       Span span) {
  pattern->is_operator = *text == '!'; /* of the net itself: "!dot" */
  for (const char *at = text + pattern->is_operator; *at;) {
    size_t n = strcspn(at, ".![");
    if (n == 0 || !add_part(paths, pattern, at, n, span)) return false;
    for (at += n; *at == '[';) {
      Range range;
      at = paths_read_index(at, &range);
      if (!at) return false;
      if (range.last < INT64_MAX) range.span = span;
      vec_push(paths->e->arena, &pattern->parts[pattern->n - 1].ranges, range);
    }
    if (!*at) return true;
    pattern->is_operator = *at == '!';
    if (*at != '.' && *at != '!') return false;
    at++;
  }
  return false;
}

static bool paths_add_text(PlanPaths *paths, Pattern *pattern, const Expr *x) {
  if (parse_text(paths, pattern, x->name, x->span)) return true;
  diag(paths->e->diags, DIAG_plan_path_form, x->span);
  return false;
}

static bool paths_read_pattern(PlanPaths *paths, const Expr *x, Pattern *out);

static bool read_ranges(PlanPaths *paths, const Expr *x, Pattern *out) {
  int n;
  const Expr *const *chain = expr_chain(paths->e->arena, x, &n);
  if (!paths_read_pattern(paths, chain[n - 1]->a, out)) return false;
  for (int i = n - 1; i >= 0; i--)
    for (int j = 0; j < chain[i]->subs.n; j++)
      if (!add_range(paths, &out->parts[out->n - 1], &chain[i]->subs.data[j]))
        return false;
  return true;
}

static bool paths_read_pattern(PlanPaths *paths, const Expr *x, Pattern *out) {
  Elab *e = paths->e;
  switch (x->kind) {
  case EXPR_name:
    return add_part(paths, out, x->name, strlen(x->name), x->span);
  case EXPR_string: return paths_add_text(paths, out, x);
  case EXPR_field:
  case EXPR_bang:
    if (!paths_read_pattern(paths, x->a, out)) return false;
    out->is_operator = x->kind == EXPR_bang;
    return add_part(paths, out, x->name, strlen(x->name), x->span);
  case EXPR_index: return read_ranges(paths, x, out);
  default: diag(e->diags, DIAG_plan_path_form, x->span); return false;
  }
}

bool plan_path_is_operator(const Expr *x) {
  while (x->kind == EXPR_index) x = x->a;
  const char *bang = x->kind == EXPR_string ? strrchr(x->name, '!') : NULL;
  return x->kind == EXPR_bang || (bang && !strchr(bang, '.'));
}

/* ---- matching ---- */

typedef enum Match { MATCH_none, MATCH_exact, MATCH_below } Match;

/* The text after the part, or NULL. */
static const char *match_part(const Part *part, const char *at) {
  size_t n = strcspn(at, ".[");
  if (n != part->n_name || memcmp(at, part->name, n) != 0) return NULL;
  int k = 0;
  for (at += n; *at == '['; k++) {
    char *end;
    int64_t index = strtoll(at + 1, &end, 10);
    if (k < part->ranges.n && (index < part->ranges.data[k].first ||
                               index > part->ranges.data[k].last))
      return NULL;
    at = end + 1;
  }
  return k >= part->ranges.n ? at : NULL;
}

static Match paths_match(const Pattern *pattern, const char *path) {
  for (int i = 0; i < pattern->n; i++) {
    path = match_part(&pattern->parts[i], path);
    if (!path) return MATCH_none;
    if (i + 1 < pattern->n && *path++ != '.') return MATCH_none;
  }
  return *path == '\0' ? MATCH_exact : MATCH_below;
}

/* The largest index that a path has where the pattern has range `k` of part
 * `i`, all before it being as the pattern says; -1: none has one there. */
static int64_t index_at(const Pattern *pattern, int i, int k,
                        const char *path) {
  for (int j = 0; j < i; j++) {
    path = match_part(&pattern->parts[j], path);
    if (!path || *path++ != '.') return -1;
  }
  Part before = pattern->parts[i];
  before.ranges.n = k;
  if (!match_part(&before, path)) return -1;
  path += before.n_name;
  for (int n = 0; *path == '['; n++) {
    char *end;
    int64_t index = strtoll(path + 1, &end, 10);
    if (n == k) return index;
    path = end + 1;
  }
  return -1;
}

static void report_range(PlanPaths *paths, const Part *part, const Range *range,
                         int64_t most) {
  Arena *arena = paths->e->arena;
  const char *text =
      range->first == range->last
          ? arena_printf(arena, "%lld", (long long)range->first)
          : arena_printf(arena, "%lld..%lld", (long long)range->first,
                         (long long)range->last);
  Diag *d = diag(paths->e->diags, DIAG_plan_index, range->span, text,
                 arena_printf(arena, "%.*s", (int)part->n_name, part->name),
                 most ? arena_printf(arena, "0..%lld", (long long)most) : "0");
  if (range->first > range->last) diag_help(d, "a range goes upwards");
}

/* Indices that nothing has are a mistake, also where others of the range are
 * there. */
static bool paths_check_ranges(PlanPaths *paths, const Pattern *pattern) {
  for (int i = 0; i < pattern->n; i++) {
    const Part *part = &pattern->parts[i];
    for (int k = 0; k < part->ranges.n; k++) {
      const Range *range = &part->ranges.data[k];
      int64_t most = -1;
      for (int c = 0; range->span.source && c < paths->candidates.n; c++) {
        Name path = paths->candidates.data[c].path;
        int64_t index = index_at(pattern, i, k, path);
        if (index > most) most = index;
      }
      if (most < 0 || (range->first >= 0 && range->first <= range->last &&
                       range->last <= most))
        continue;
      report_range(paths, part, range, most);
      return false;
    }
  }
  return true;
}

/* Which of the meanings of section 6 holds: the first that there is. */
static bool is_meant(const Pattern *pattern, const Candidate *candidate,
                     Match how, const bool *found) {
  bool is_exact = how == MATCH_exact;
  if (pattern->is_operator) return is_exact && candidate->kind == KIND_operator;
  if (found[0]) return is_exact && candidate->kind == KIND_input;
  if (found[1]) return how == MATCH_below;
  if (found[2]) return is_exact && candidate->kind == KIND_value;
  return is_exact;
}

static void paths_suggest(PlanPaths *paths, Diag *d, const char *wanted) {
  VEC(const char *) names = {0};
  for (int i = 0; i < paths->candidates.n; i++)
    vec_push(paths->e->arena, &names, paths->candidates.data[i].path);
  diag_suggest(d, wanted, names.data, names.n);
}

static bool paths_find(PlanPaths *paths, const Pattern *pattern,
                       PathList *out) {
  Map *seen = map_create(paths->e->arena);
  bool found[3] = {false}; /* a parameter, something below, a value */
  for (int i = 0; i < paths->candidates.n; i++) {
    const Candidate *candidate = &paths->candidates.data[i];
    Match how = paths_match(pattern, candidate->path);
    found[0] |= how == MATCH_exact && candidate->kind == KIND_input;
    found[1] |= how == MATCH_below;
    found[2] |= how == MATCH_exact && candidate->kind == KIND_value;
  }
  int before = out->n;
  for (int i = 0; i < paths->candidates.n; i++) {
    const Candidate *candidate = &paths->candidates.data[i];
    Match how = paths_match(pattern, candidate->path);
    if (how == MATCH_none || !is_meant(pattern, candidate, how, found) ||
        map_has(seen, candidate->node_path))
      continue;
    map_put(seen, candidate->node_path, (void *)candidate->node_path);
    vec_push(paths->e->arena, out, candidate->node_path);
  }
  return out->n > before;
}

static bool is_part(const Part *part, const char *name) {
  return part->n_name == strlen(name) &&
         !memcmp(part->name, name, part->n_name);
}

/* `optimizer` and `grad.PATH`: there are none yet where plans are read. */
static bool is_later(PlanPaths *paths, const Pattern *pattern) {
  if (pattern->n == 1) return is_part(&pattern->parts[0], "optimizer");
  if (!is_part(&pattern->parts[0], "grad")) return false;
  Pattern rest = *pattern;
  memmove(rest.parts, rest.parts + 1, (size_t)--rest.n * sizeof rest.parts[0]);
  PathList found = {0};
  return paths_find(paths, &rest, &found);
}

static bool paths_node_has_dim(const Graph *graph, const char *name) {
  for (int i = 0; i < graph->nodes.n; i++)
    for (int d = 0; d < graph->nodes.data[i]->types[0]->rank; d++)
      if (!strcmp(graph->nodes.data[i]->types[0]->dims[d].name, name))
        return true;
  return false;
}

bool plan_paths_find(PlanPaths *paths, const Expr *x, PathList *out) {
  Elab *e = paths->e;
  Pattern pattern = {0};
  if (!paths_read_pattern(paths, x, &pattern) ||
      !paths_check_ranges(paths, &pattern))
    return false;
  if (paths_find(paths, &pattern, out)) return true;
  if (is_later(paths, &pattern)) {
    elab_not_supported(e, x->span, "a line about gradients or the optimizer");
    return false;
  }
  const char *text = span_text(e->arena, x->span);
  Diag *d = diag(e->diags, DIAG_plan_path, x->span, paths->model->name, text);
  if (paths_node_has_dim(paths->graph, text))
    diag_help(d, "a dimension stands without ':', as in shard %s over data",
              text);
  else
    paths_suggest(paths, d, text);
  return false;
}

bool plan_paths_find_text(PlanPaths *paths, const char *text, PathList *out) {
  Pattern pattern = {0};
  return *text && parse_text(paths, &pattern, text, SPAN_NONE) &&
         paths_find(paths, &pattern, out);
}

const char *plan_paths_other(const PlanPaths *paths, Name node_path, int n) {
  for (int i = 0; i < paths->candidates.n; i++) {
    const Candidate *candidate = &paths->candidates.data[i];
    if (candidate->node_path == node_path && candidate->path != node_path &&
        n-- == 0)
      return candidate->path;
  }
  return NULL;
}

bool plan_paths_have_dim(const PlanPaths *paths, const PathList *list,
                         const Expr *x, Name dim, Span span) {
  Elab *e = paths->e;
  Map *wanted = map_create(e->arena);
  for (int i = 0; i < list->n; i++)
    map_put(wanted, list->data[i], (void *)list->data[i]);
  for (int i = 0; i < paths->nodes.n; i++) {
    const Node *node = paths->nodes.data[i].node;
    if (!map_has(wanted, paths->nodes.data[i].path)) continue;
    for (int r = 0; r < node->n_results; r++)
      if (type_find(node->types[r], dim) >= 0) return true;
  }
  diag(e->diags, DIAG_plan_path_dim, span, span_text(e->arena, x->span), dim);
  return false;
}

bool plan_paths_compute_over(const PlanPaths *paths, const PathList *list,
                             Name dim, Span span) {
  Elab *e = paths->e;
  Map *wanted = map_create(e->arena), *dims = map_create(e->arena);
  ShardRule *rule = ARENA_NEW(e->arena, ShardRule);
  for (int i = 0; i < list->n; i++)
    map_put(wanted, list->data[i], (void *)list->data[i]);
  for (int i = 0; i < paths->nodes.n; i++) {
    PlanNode at = paths->nodes.data[i];
    if (!map_has(wanted, at.path) || !op_info(at.node->op)->infer) continue;
    ShardCall call = shard_call(at.graph, at.node);
    shard_rule(&call, rule);
    for (int d = 0; d < rule->n; d++)
      map_put(dims, rule->dims[d].name, (void *)rule->dims[d].name);
  }
  if (map_has(dims, dim)) return true;
  int n = map_size(dims);
  const char **names = ARENA_ARRAY(e->arena, const char *, n);
  for (int i = 0; i < n; i++) names[i] = map_key_at(dims, i);
  Diag *d = diag(e->diags, DIAG_operator_dim, span, list->data[0], dim);
  diag_choices(e->arena, d, dim, names, n);
  return false;
}

/* The axis that both have, or NULL. */
static Name shared_axis(const PlanShard *a, const PlanShard *b) {
  for (int i = 0; i < a->n_axes; i++)
    for (int k = 0; k < b->n_axes; k++)
      if (a->axes[i] == b->axes[k]) return a->axes[i];
  return NULL;
}

static bool takes_axes_once(Elab *e, const Type *type, Name path,
                            const PlanPlacement *line) {
  for (int i = 0; i < line->n_shards; i++)
    for (int k = 0; k < i; k++) {
      const PlanShard *a = &line->shards[k], *b = &line->shards[i];
      Name axis = shared_axis(a, b);
      if (!axis || type_find(type, a->dim) < 0 || type_find(type, b->dim) < 0)
        continue;
      Diag *d = diag(e->diags, DIAG_axis_two_dims, line->span, axis, a->dim,
                     b->dim, path);
      diag_help(d, "one axis shards one dimension of a value: leave out one");
      return false;
    }
  return true;
}

bool plan_paths_take_axes_once(const PlanPaths *paths, const PathList *list,
                               const PlanPlacement *line) {
  if (line->n_shards < 2) return true;
  Map *wanted = map_create(paths->e->arena);
  for (int i = 0; i < list->n; i++)
    map_put(wanted, list->data[i], (void *)list->data[i]);
  for (int i = 0; i < paths->nodes.n; i++) {
    PlanNode at = paths->nodes.data[i];
    for (int r = 0; r < at.node->n_results && map_has(wanted, at.path); r++)
      if (!takes_axes_once(paths->e, at.node->types[r], at.path, line))
        return false;
  }
  return true;
}
