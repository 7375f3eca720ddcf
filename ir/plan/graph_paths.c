/*
 * graph_paths.c -- finds the parameters, data fields, values and operators that
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
#include "ir/plan/graph_paths.h"

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
  PathTree *tree; /* of their paths, by number */
  Map *by_node;   /* node path -> PathList: other paths */
  PlanNodes nodes;
  Map *nodes_by_path; /* path -> PlanNodes */
  Map *hidden;        /* node paths */
  const Graph *graph;
  SavedPathsIndex *saved;
};

/* ---- candidates ---- */

static void add_candidate(PlanPaths *paths, Candidate candidate) {
  Arena *arena = paths->module->arena;
  path_tree_add(paths->module, paths->tree, candidate.path,
                paths->candidates.n);
  vec_push(arena, &paths->candidates, candidate);
  if (candidate.path == candidate.node_path) return;
  PathList *others = map_get(paths->by_node, candidate.node_path);
  if (!others) {
    others = ARENA_NEW(arena, PathList);
    map_put(paths->by_node, candidate.node_path, others);
  }
  vec_push(arena, others, candidate.path);
}

static void add_plan_node(PlanPaths *paths, PlanNode node) {
  Arena *arena = paths->module->arena;
  vec_push(arena, &paths->nodes, node);
  PlanNodes *same = map_get(paths->nodes_by_path, node.path);
  if (!same) {
    same = ARENA_NEW(arena, PlanNodes);
    map_put(paths->nodes_by_path, node.path, same);
  }
  vec_push(arena, same, node);
}

static void paths_add_node(PlanPaths *paths, const Map *named,
                           const Graph *graph, const Node *node, Name place) {
  if (!place || !*place) return;
  add_plan_node(paths, (PlanNode){graph, node, place});
  if (node->op == OP_input) return;
  PathKind kind = map_has(named, place) ? KIND_value : KIND_operator;
  char *text = arena_strdup(paths->module->arena, place), *bang = text;
  while ((bang = strchr(bang, '!'))) *bang = '.';
  Name path = name_intern(paths->module->names, text);
  add_candidate(paths, (Candidate){path, place, kind});
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
                   is_input ? graph->inputs.data[slot].path
                            : graph_path(graph, i));
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
    if (c->kind != KIND_operator) map_put(taken, c->path, (void *)c->path);
  }
  for (int i = 0; i < n; i++) {
    const Candidate *c = &paths->candidates.data[i];
    if (c->kind != KIND_operator || !map_has(taken, c->path))
      map_put(reached, c->node_path, (void *)c->node_path);
  }
  for (int i = 0; i < n; i++) {
    Name node_path = paths->candidates.data[i].node_path;
    if (!map_has(reached, node_path))
      map_put(paths->hidden, node_path, (void *)node_path);
  }
}

/* "grad.PATH" and "optimizer.PATH" of a parameter that is trained, in place of
 * which the keys of plan_update_key are found. */
static void add_update(PlanPaths *paths, const Graph *graph,
                       const GraphInput *input) {
  static const struct {
    const char *path;
    PinAbout about;
  } rows[] = {{"grad.%s", ABOUT_gradient}, {"optimizer.%s", ABOUT_optimizer}};
  if (input->role != ROLE_param || input->is_frozen) return;
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Names *names = paths->module->names;
    Candidate candidate = {name_format(names, rows[i].path, input->path),
                           plan_update_key(names, rows[i].about, input->path),
                           KIND_update};
    add_candidate(paths, candidate);
    add_plan_node(paths, (PlanNode){graph, graph_node(graph, input->value),
                                    candidate.node_path});
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
  paths->tree = path_tree_create(arena);
  paths->by_node = map_create(arena);
  paths->nodes_by_path = map_create(arena);
  for (int i = 0; i < graph->inputs.n; i++) {
    Name path = graph->inputs.data[i].path;
    add_candidate(paths, (Candidate){path, path, KIND_input});
  }
  Map *named = map_create(arena);
  for (int i = 0; i < n_aliases; i++) {
    const PathAlias *alias = &aliases[i];
    PathKind kind = alias->is_value ? KIND_value : KIND_operator;
    if (!alias->is_value)
      map_put(named, alias->node_path, (void *)alias->node_path);
    add_candidate(paths, (Candidate){alias->path, alias->node_path, kind});
  }
  add_nodes(paths, named, graph, false);
  find_hidden(paths);
  paths->graph = graph;
  paths->saved = ARENA_NEW(arena, SavedPathsIndex);
  for (int i = 0; i < graph->inputs.n && has_loss(graph); i++)
    add_update(paths, graph, &graph->inputs.data[i]);
  return paths;
}

const Graph *plan_paths_graph(const PlanPaths *paths) {
  return paths->graph;
}

const char *plan_paths_at(const PlanPaths *paths, int i) {
  return i < paths->candidates.n ? paths->candidates.data[i].path : NULL;
}

bool plan_paths_is_hidden(const PlanPaths *paths, Name node_path) {
  return map_has(paths->hidden, node_path);
}

SavedPathsIndex *plan_paths_saved_index(const PlanPaths *paths,
                                        Module **out_module,
                                        const Graph **out_graph) {
  *out_module = paths->module;
  *out_graph = paths->graph;
  return paths->saved;
}

const PlanNodes *plan_paths_nodes(const PlanPaths *paths) {
  return &paths->nodes;
}

const PlanNodes *plan_paths_nodes_of(const PlanPaths *paths, Name path) {
  static const PlanNodes none;
  const PlanNodes *nodes = map_get(paths->nodes_by_path, path);
  return nodes ? nodes : &none;
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
  out->n = 0;
  out->is_operator = *text == '!'; /* of the net: "!dot" */
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

int64_t plan_paths_last_index(const PlanPaths *paths,
                              const PathPattern *pattern, int i, int k) {
  return path_tree_last_index(paths->module, paths->tree, pattern, i, k);
}

/* Which of the meanings of section 6 holds: the first that there is. */
static bool is_meant(const PathPattern *pattern, const Candidate *candidate,
                     bool is_exact, const bool *found) {
  if (pattern->is_operator) return is_exact && candidate->kind == KIND_operator;
  if (found[0]) return is_exact && candidate->kind == KIND_input;
  if (found[1]) return !is_exact;
  if (found[2]) return is_exact && candidate->kind == KIND_value;
  return is_exact;
}

/* Appends each path once; false: none. */
static bool append_meant(const PlanPaths *paths, const PathPattern *pattern,
                         const PathMatches *matches, bool is_update,
                         const bool *found, PathList *out) {
  Arena *arena = paths->module->arena;
  Map *seen = map_create(arena);
  for (int i = 0; i < matches->n; i++) {
    PathMatch match = matches->data[i];
    const Candidate *candidate = &paths->candidates.data[match.number];
    Name path = candidate->node_path;
    if (is_update != (candidate->kind == KIND_update) || map_has(seen, path) ||
        (!is_update && !is_meant(pattern, candidate, match.is_exact, found)))
      continue;
    map_put(seen, path, (void *)path);
    vec_push(arena, out, path);
  }
  return map_size(seen) > 0;
}

bool plan_paths_find(const PlanPaths *paths, const PathPattern *pattern,
                     PathList *out) {
  PathMatches matches = path_tree_find(paths->module, paths->tree, pattern);
  bool found[3] = {false}; /* a parameter, something below, a value */
  for (int i = 0; i < matches.n; i++) {
    PathKind kind = paths->candidates.data[matches.data[i].number].kind;
    bool is_exact = matches.data[i].is_exact;
    if (kind == KIND_update) continue;
    found[0] |= is_exact && kind == KIND_input;
    found[1] |= !is_exact;
    found[2] |= is_exact && kind == KIND_value;
  }
  return append_meant(paths, pattern, &matches, false, found, out) ||
         (!pattern->is_operator &&
          append_meant(paths, pattern, &matches, true, found, out));
}

bool plan_paths_find_text(const PlanPaths *paths, const char *text,
                          PathList *out) {
  PathPattern pattern;
  return *text &&
         path_pattern_parse(paths->module->arena, &pattern, text, SPAN_NONE) &&
         plan_paths_find(paths, &pattern, out);
}

const char *plan_paths_other(const PlanPaths *paths, Name node_path, int n) {
  const PathList *others = map_get(paths->by_node, node_path);
  return others && n < others->n ? others->data[n] : NULL;
}
