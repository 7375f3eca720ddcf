/*
 * saving.c -- reads the lines `remat` and `keep` of a plan: which forward
 * values the backward pass computes again, and which it finds stored.
 *
 *     remat block            all values inside of each block; the result of a
 *     keep  block.attn.q     block is stored, and the next block begins there
 *
 * An annotation `@remat` means what the statement or layer after it computes,
 * but for values that leave it: these are stored.  A value that the statement
 * names itself is computed again, as a line about its name would say.
 */
#include "frontend/elaborate/eval.h"
#include "frontend/plan/read_paths.h"

#include <string.h>

/* The names in a path, or in an expression that means paths. */
static int count_parts(const char *path) {
  int n = 1;
  for (; *path; path++) n += *path == '.' || *path == '!';
  return n;
}

static int count_names(const Expr *x) {
  switch (x->kind) {
  case EXPR_string: return count_parts(x->name);
  case EXPR_field:
  case EXPR_bang: return count_names(x->a) + 1;
  case EXPR_index: return count_names(x->a);
  default: return 1;
  }
}

/* The layer of this path that an expression of `n` names means: "block[2]" of
 * "block[2].attn.q"; NULL: the path has no more names. */
static Name layer_of_path(SavingLines *lines, const char *path, int n) {
  const char *at = path;
  for (; *at && n > 0; at++) n -= *at == '.' || *at == '!';
  return n > 0
             ? NULL
             : name_format(lines->e->names, "%.*s", (int)(at - 1 - path), path);
}

/* Values that leave a layer are what its recomputation, or that of the next
 * layer, begins with: a line about layers does not name them. */
static Map *find_layer_results(SavingLines *lines, int n_names) {
  Map *results = map_create(lines->e->arena);
  for (int id = 0; id < lines->graph->nodes.n; id++) {
    const Node *node = lines->graph->nodes.data[id];
    Name reader = node->path ? layer_of_path(lines, node->path, n_names) : NULL;
    for (int i = 0; i < node->n_inputs; i++) {
      Name path = graph_node(lines->graph, node->inputs[i])->path;
      if (path && layer_of_path(lines, path, n_names) != reader)
        map_put(results, path, (void *)path);
    }
  }
  for (int i = 0; i < lines->graph->outputs.n; i++) {
    Name path =
        graph_node(lines->graph, lines->graph->outputs.data[i].value)->path;
    if (path) map_put(results, path, (void *)path);
  }
  return results;
}

static const Map *layer_results(SavingLines *lines, int n_names) {
  const void *key = (const void *)(intptr_t)(n_names + 1);
  if (!lines->results) lines->results = map_create(lines->e->arena);
  if (!map_has(lines->results, key))
    map_put(lines->results, key, find_layer_results(lines, n_names));
  return map_get(lines->results, key);
}

static const Map *index_input_paths(SavingLines *lines) {
  if (lines->inputs) return lines->inputs;
  Map *inputs = lines->inputs = map_create(lines->e->arena);
  for (int i = 0; i < lines->graph->inputs.n; i++) {
    Name path = lines->graph->inputs.data[i].path;
    map_put(inputs, path, (void *)path);
  }
  return inputs;
}

/* Returns whether the line, whose expression has `n` names, is about this input
 * too.  Ranks gather a parameter under ZeRO 3: `keep` means those below a path,
 * too, `remat` one that it names itself, because the backward pass gathers all
 * others again anyway. */
static bool takes_input(SavingLines *lines, const PathPin *saving, Name path,
                        int n) {
  return saving->pin.says == SAYS_keep ||
         (graph_find_input(lines->graph, ROLE_param, path) &&
          !layer_of_path(lines, path, n));
}

/* Adds all that an expression of a line `remat` or `keep` means: forward
 * values, and some parameters. */
static void read_saved_paths(SavingLines *lines, const Expr *x, PathPin *saving,
                             PathList *values) {
  PathList paths = {0};
  Arena *arena = lines->e->arena;
  const Map *inputs = index_input_paths(lines);
  if (!paths_read(lines->paths, x, &paths)) {
    saving->names_values = true; /* a mistake, which is reported */
    return;
  }
  int n_names = count_names(x);
  const Map *results =
      saving->pin.says == SAYS_remat ? layer_results(lines, n_names) : NULL;
  for (int i = 0; i < paths.n; i++) {
    Name path = paths.data[i];
    if (plan_path_is_of_update(path)) continue;
    if (map_has(inputs, path)) {
      if (takes_input(lines, saving, path, n_names))
        vec_push(arena, &saving->inputs, path);
      continue;
    }
    saving->names_values = true;
    if (!results || !layer_of_path(lines, path, n_names) ||
        !map_has(results, path))
      vec_push(arena, values, path);
  }
}

static void add_saving(SavingLines *lines, PathPin saving,
                       const PathList *values) {
  saving.pin.n_paths = values->n;
  saving.pin.paths = values->data;
  vec_push(lines->e->arena, &lines->pins->of_paths, saving);
}

void saving_read_line(SavingLines *lines, const Pin *pin) {
  PathList values = {0};
  PathPin saving = {
      .pin = {.says = pin->kind == PIN_remat ? SAYS_remat : SAYS_keep,
              .span = pin->span},
      .subject = pin->exprs.data[0]->span};
  for (int i = 0; i < pin->exprs.n; i++)
    read_saved_paths(lines, pin->exprs.data[i], &saving, &values);
  add_saving(lines, saving, &values);
}

/* ---- annotations ---- */

/* By path: the number of the execution that computes it, from 1. */
static Map *index_executions(SavingLines *lines, const Elab *walk,
                             const Annotation *annotation, Map *named) {
  Map *executions = map_create(lines->e->arena);
  for (int k = 0; k < walk->pinned.n; k++) {
    const PinnedPaths *pinned = &walk->pinned.data[k];
    if (pinned->annotation != annotation) continue;
    for (int i = 0; i < pinned->paths.n; i++)
      map_put(executions, pinned->paths.data[i], (void *)(intptr_t)(k + 1));
    for (int i = 0; i < pinned->named.n; i++)
      map_put(named, pinned->named.data[i], (void *)pinned->named.data[i]);
  }
  return executions;
}

/* Adds the paths that something outside of their execution reads. */
static void find_leaving(const Graph *graph, const Map *executions,
                         Map *leaving) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    void *reader = node->path ? map_get(executions, node->path) : NULL;
    for (int i = 0; i < node->n_inputs; i++) {
      Name path = graph_node(graph, node->inputs[i])->path;
      void *writer = path ? map_get(executions, path) : NULL;
      if (writer && writer != reader) map_put(leaving, path, (void *)path);
    }
    if (node->body) find_leaving(node->body, executions, leaving);
  }
}

static void find_outputs(const Graph *graph, const Map *executions,
                         Map *leaving) {
  for (int i = 0; i < graph->outputs.n; i++) {
    Name path = graph_node(graph, graph->outputs.data[i].value)->path;
    if (path && map_has(executions, path)) map_put(leaving, path, (void *)path);
  }
}

void saving_read_annotation(SavingLines *lines, const Elab *walk,
                            const Annotation *annotation) {
  Arena *arena = lines->e->arena;
  bool is_remat = strcmp(annotation->name, "remat") == 0;
  Map *named = map_create(arena), *leaving = map_create(arena);
  const Map *executions = index_executions(lines, walk, annotation, named);
  if (is_remat) {
    find_leaving(lines->graph, executions, leaving);
    find_outputs(lines->graph, executions, leaving);
  }
  const Map *inputs = index_input_paths(lines);
  PathPin saving = {.pin = {.says = is_remat ? SAYS_remat : SAYS_keep,
                            .is_annotation = true,
                            .span = annotation->span}};
  PathList values = {0};
  for (int i = 0; i < map_size(executions); i++) {
    Name path = map_key_at(executions, i);
    if (map_has(inputs, path) ||
        (map_has(leaving, path) && !map_has(named, path)))
      continue;
    vec_push(arena, &values, path);
  }
  add_saving(lines, saving, &values);
  if (is_remat && values.n == 0)
    diag(lines->e->diags, DIAG_remat_not_saved, annotation->span);
}
