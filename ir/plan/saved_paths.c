/*
 * saved_paths.c -- finds the forward values and parameters that a line `remat`
 * or `keep` means.
 *
 *     remat block            all values inside of each block; the result of a
 *     keep  block.attn.q     block is stored, and the next block begins there
 *
 * Values that leave a layer are what its recomputation, or that of the next
 * layer, begins with: a line about layers does not name them.
 */
#include "ir/plan/graph_paths.h"

typedef struct Lookup {
  Module *module;
  const Graph *graph;
  SavedPathsIndex *index;
} Lookup;

/* The layer of this path that a pattern of `n` names means: "block[2]" of
 * "block[2].attn.q"; NULL: the path has no more names. */
static Name layer_of_path(Names *names, const char *path, int n) {
  const char *at = path;
  for (; *at && n > 0; at++) n -= *at == '.' || *at == '!';
  return n > 0 ? NULL : name_format(names, "%.*s", (int)(at - 1 - path), path);
}

static Map *find_layer_results(const Lookup *lookup, int n_names) {
  Names *names = lookup->module->names;
  const Graph *graph = lookup->graph;
  Map *results = map_create(lookup->module->arena);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    Name reader = node->path ? layer_of_path(names, node->path, n_names) : NULL;
    for (int i = 0; i < node->n_inputs; i++) {
      Name path = graph_node(graph, node->inputs[i])->path;
      if (path && layer_of_path(names, path, n_names) != reader)
        map_put(results, path, (void *)path);
    }
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    Name path = graph_node(graph, graph->outputs.data[i].value)->path;
    if (path) map_put(results, path, (void *)path);
  }
  return results;
}

static const Map *layer_results(const Lookup *lookup, int n_names) {
  const void *key = (const void *)(intptr_t)(n_names + 1);
  if (!lookup->index->results)
    lookup->index->results = map_create(lookup->module->arena);
  if (!map_has(lookup->index->results, key))
    map_put(lookup->index->results, key, find_layer_results(lookup, n_names));
  return map_get(lookup->index->results, key);
}

static const Map *index_inputs(const Lookup *lookup) {
  if (lookup->index->inputs) return lookup->index->inputs;
  Map *inputs = lookup->index->inputs = map_create(lookup->module->arena);
  for (int i = 0; i < lookup->graph->inputs.n; i++) {
    Name path = lookup->graph->inputs.data[i].path;
    map_put(inputs, path, (void *)path);
  }
  return inputs;
}

/* Returns whether the line, whose pattern has `n` names, is about this input
 * too.  Ranks gather a parameter under ZeRO 3: `keep` means those below a path,
 * too, `remat` one that it names itself, because the backward pass gathers all
 * others again anyway. */
static bool takes_input(const Lookup *lookup, PinSays says, Name path, int n) {
  return says == SAYS_keep ||
         (graph_find_input(lookup->graph, ROLE_param, path) &&
          !layer_of_path(lookup->module->names, path, n));
}

bool plan_paths_saved(const PlanPaths *paths, const PathPattern *pattern,
                      PinSays says, SavedPaths *out) {
  Lookup lookup;
  lookup.index = plan_paths_saved_index(paths, &lookup.module, &lookup.graph);
  Arena *arena = lookup.module->arena;
  PathList found = {0};
  if (!plan_paths_find(paths, pattern, &found)) return false;
  const Map *inputs = index_inputs(&lookup);
  const Map *results =
      says == SAYS_remat ? layer_results(&lookup, pattern->n) : NULL;
  for (int i = 0; i < found.n; i++) {
    Name path = found.data[i];
    const char *parameter;
    if (says == SAYS_offload &&
        plan_path_about(path, &parameter) == ABOUT_optimizer)
      vec_push(arena, &out->inputs, path);
    if (plan_path_is_of_update(path)) continue;
    if (map_has(inputs, path)) {
      if (takes_input(&lookup, says, path, pattern->n))
        vec_push(arena, &out->inputs, path);
      continue;
    }
    out->names_values = true;
    if (!results || !map_has(results, path) ||
        !layer_of_path(lookup.module->names, path, pattern->n))
      vec_push(arena, &out->values, path);
  }
  return true;
}
