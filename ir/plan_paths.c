/*
 * plan_paths.c -- finds the parameters, data fields, values and operators that
 * a path of a plan means (docs/language.md, section 6).
 *
 *     block[2..5].attn      all below attn in four blocks
 *     block.attn.q          q in every block: an index left out means all
 *     norm!mean             the operator, where a value has this name too
 *     grad.block.attn.wq    the gradients of these parameters
 *     optimizer.embed       their optimizer state
 *
 * A pattern is matched with every path of the graph.  Where several things have
 * the path, a parameter or state goes before the call, the call (all that is
 * below it) before the value, and the value before the operator.  Gradients and
 * optimizer state come last.
 */
#include "ir/plan_paths.h"

#include <stdlib.h>
#include <string.h>

typedef enum PathKind {
  KIND_input,
  KIND_value,
  KIND_operator,
  KIND_update /* a gradient or optimizer state */
} PathKind;

typedef struct Candidate {
  Name path, node_path; /* they differ for an operator with a named value */
  PathKind kind;
} Candidate;

struct PlanPaths {
  Module *module;
  VEC(Candidate) candidates;
  VEC(PlanNode) nodes;
  Map *hidden; /* node paths */
};

/* ---- candidates ---- */

static void paths_add_node(PlanPaths *paths, const Map *named,
                           const Graph *graph, const Node *node, Name place) {
  if (!place || !*place) return;
  vec_push(paths->module->arena, &paths->nodes, (PlanNode){graph, node, place});
  if (node->op == OP_input) return;
  PathKind kind = map_has(named, place) ? KIND_value : KIND_operator;
  char *path = arena_strdup(paths->module->arena, place), *bang = path;
  while ((bang = strchr(bang, '!'))) *bang = '.';
  Candidate candidate = {path, place, kind};
  vec_push(paths->module->arena, &paths->candidates, candidate);
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
  Arena *arena = paths->module->arena;
  Map *taken = map_create(arena), *reached = map_create(arena);
  int n = paths->candidates.n;
  paths->hidden = map_create(arena);
  for (int i = 0; i < n; i++) {
    const Candidate *c = &paths->candidates.data[i];
    Name path = name_intern(paths->module->names, c->path);
    if (c->kind != KIND_operator) map_put(taken, path, (void *)path);
  }
  for (int i = 0; i < n; i++) {
    const Candidate *c = &paths->candidates.data[i];
    Name path = name_intern(paths->module->names, c->path);
    if (c->kind != KIND_operator || !map_has(taken, path))
      map_put(reached, c->node_path, (void *)c->node_path);
  }
  for (int i = 0; i < n; i++) {
    Name node_path = paths->candidates.data[i].node_path;
    if (!map_has(reached, node_path))
      map_put(paths->hidden, node_path, (void *)node_path);
  }
}

/* "grad.PATH" and "optimizer.PATH" of a parameter that is trained, in place of
 * which the keys of plan_find_update are found. */
static void add_update(PlanPaths *paths, const Graph *graph,
                       const GraphInput *input) {
  static const struct {
    const char *path, *key;
  } rows[] = {{"grad.%s", PLAN_GRADIENT "%s"},
              {"optimizer.%s", PLAN_OPTIMIZER "%s"}};
  if (input->role != ROLE_param || input->is_frozen) return;
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Arena *arena = paths->module->arena;
    Names *names = paths->module->names;
    Candidate candidate = {name_format(names, rows[i].path, input->path),
                           name_format(names, rows[i].key, input->path),
                           KIND_update};
    PlanNode node = {graph, graph_node(graph, input->value),
                     candidate.node_path};
    vec_push(arena, &paths->candidates, candidate);
    vec_push(arena, &paths->nodes, node);
  }
}

static bool has_loss(const Graph *graph) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_loss) return true;
  return false;
}

PlanPaths *plan_paths_create(Module *module, const Graph *graph,
                             const PathAlias *aliases, int n_aliases) {
  Arena *arena = module->arena;
  PlanPaths *paths = ARENA_NEW(arena, PlanPaths);
  paths->module = module;
  for (int i = 0; i < graph->inputs.n; i++) {
    Name path = graph->inputs.data[i].path;
    vec_push(arena, &paths->candidates, (Candidate){path, path, KIND_input});
  }
  Map *named = map_create(arena);
  for (int i = 0; i < n_aliases; i++) {
    const PathAlias *alias = &aliases[i];
    PathKind kind = alias->is_value ? KIND_value : KIND_operator;
    if (!alias->is_value)
      map_put(named, alias->node_path, (void *)alias->node_path);
    vec_push(arena, &paths->candidates,
             (Candidate){alias->path, alias->node_path, kind});
  }
  add_nodes(paths, named, graph, false);
  find_hidden(paths);
  for (int i = 0; i < graph->inputs.n && has_loss(graph); i++)
    add_update(paths, graph, &graph->inputs.data[i]);
  return paths;
}

const char *plan_paths_at(const PlanPaths *paths, int i) {
  return i < paths->candidates.n ? paths->candidates.data[i].path : NULL;
}

bool plan_paths_is_hidden(const PlanPaths *paths, Name node_path) {
  return map_has(paths->hidden, node_path);
}

const PlanNode *plan_paths_nodes(const PlanPaths *paths, int *out_n) {
  *out_n = paths->nodes.n;
  return paths->nodes.data;
}

/* ---- patterns ---- */

/* Reads "[3]", "[2..5]" or "[*]": the text after it, or NULL. */
static const char *paths_read_index(const char *at, PathRange *out) {
  char *end;
  *out = (PathRange){0, INT64_MAX, SPAN_NONE};
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

bool path_pattern_parse(Arena *arena, PathPattern *out, const char *text,
                        Span span) {
  *out = (PathPattern){.is_operator = *text == '!'}; /* of the net: "!dot" */
  for (const char *at = text + out->is_operator; *at;) {
    size_t n = strcspn(at, ".![");
    if (n == 0 || out->n == MOST_PATH_PARTS) return false;
    PathPart *part = &out->parts[out->n++];
    *part = (PathPart){.name = at, .n_name = n};
    for (at += n; *at == '[';) {
      PathRange range;
      at = paths_read_index(at, &range);
      if (!at) return false;
      if (range.last < INT64_MAX) range.span = span;
      vec_push(arena, &part->ranges, range);
    }
    if (!*at) return true;
    out->is_operator = *at == '!';
    if (*at != '.' && *at != '!') return false;
    at++;
  }
  return false;
}

/* ---- matching ---- */

typedef enum Match { MATCH_none, MATCH_exact, MATCH_below } Match;

/* The text after the part, or NULL. */
static const char *match_part(const PathPart *part, const char *at) {
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

static Match paths_match(const PathPattern *pattern, const char *path) {
  for (int i = 0; i < pattern->n; i++) {
    path = match_part(&pattern->parts[i], path);
    if (!path) return MATCH_none;
    if (i + 1 < pattern->n && *path++ != '.') return MATCH_none;
  }
  return *path == '\0' ? MATCH_exact : MATCH_below;
}

/* The index that this path has where the pattern has range `k` of part
 * `i`, all before it being as the pattern says; -1: none has one there. */
static int64_t index_at(const PathPattern *pattern, int i, int k,
                        const char *path) {
  for (int j = 0; j < i; j++) {
    path = match_part(&pattern->parts[j], path);
    if (!path || *path++ != '.') return -1;
  }
  PathPart before = pattern->parts[i];
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

int64_t plan_paths_last_index(const PlanPaths *paths,
                              const PathPattern *pattern, int i, int k) {
  int64_t most = -1;
  for (int c = 0; c < paths->candidates.n; c++) {
    int64_t index = index_at(pattern, i, k, paths->candidates.data[c].path);
    if (index > most) most = index;
  }
  return most;
}

/* Which of the meanings of section 6 holds: the first that there is. */
static bool is_meant(const PathPattern *pattern, const Candidate *candidate,
                     Match how, const bool *found) {
  bool is_exact = how == MATCH_exact;
  if (pattern->is_operator) return is_exact && candidate->kind == KIND_operator;
  if (found[0]) return is_exact && candidate->kind == KIND_input;
  if (found[1]) return how == MATCH_below;
  if (found[2]) return is_exact && candidate->kind == KIND_value;
  return is_exact;
}

/* Appends a path once. */
static void append_path(const PlanPaths *paths, Map *seen, Name node_path,
                        PathList *out) {
  if (map_has(seen, node_path)) return;
  map_put(seen, node_path, (void *)node_path);
  vec_push(paths->module->arena, out, node_path);
}

static void find_updates(const PlanPaths *paths, const PathPattern *pattern,
                         PathList *out) {
  Map *seen = map_create(paths->module->arena);
  for (int i = 0; i < paths->candidates.n; i++) {
    const Candidate *candidate = &paths->candidates.data[i];
    if (candidate->kind == KIND_update &&
        paths_match(pattern, candidate->path) != MATCH_none)
      append_path(paths, seen, candidate->node_path, out);
  }
}

bool plan_paths_find(const PlanPaths *paths, const PathPattern *pattern,
                     PathList *out) {
  Map *seen = map_create(paths->module->arena);
  bool found[3] = {false}; /* a parameter, something below, a value */
  for (int i = 0; i < paths->candidates.n; i++) {
    const Candidate *candidate = &paths->candidates.data[i];
    Match how = paths_match(pattern, candidate->path);
    if (candidate->kind == KIND_update) continue;
    found[0] |= how == MATCH_exact && candidate->kind == KIND_input;
    found[1] |= how == MATCH_below;
    found[2] |= how == MATCH_exact && candidate->kind == KIND_value;
  }
  int before = out->n;
  for (int i = 0; i < paths->candidates.n; i++) {
    const Candidate *candidate = &paths->candidates.data[i];
    Match how = paths_match(pattern, candidate->path);
    if (candidate->kind != KIND_update && how != MATCH_none &&
        is_meant(pattern, candidate, how, found))
      append_path(paths, seen, candidate->node_path, out);
  }
  if (out->n == before && !pattern->is_operator)
    find_updates(paths, pattern, out);
  return out->n > before;
}

bool plan_paths_find_text(const PlanPaths *paths, const char *text,
                          PathList *out) {
  PathPattern pattern;
  return *text &&
         path_pattern_parse(paths->module->arena, &pattern, text, SPAN_NONE) &&
         plan_paths_find(paths, &pattern, out);
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
