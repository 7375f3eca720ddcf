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

/* Adds all that an expression of a line `remat` or `keep` means: forward
 * values, and some parameters. */
static void read_saved_paths(SavingLines *lines, const Expr *x, PathPin *saving,
                             PathList *values) {
  PathPattern pattern = {0};
  SavedPaths found = {.values = *values,
                      .inputs = saving->inputs,
                      .names_values = saving->names_values};
  if (!paths_read_pattern(lines->paths, x, &pattern)) {
    saving->names_values = true; /* a mistake, which is reported */
    return;
  }
  plan_paths_saved(lines->paths->paths, &pattern, saving->pin.says, &found);
  *values = found.values;
  saving->inputs = found.inputs;
  saving->names_values = found.names_values;
}

static void add_saving(SavingLines *lines, PathPin saving,
                       const PathList *values) {
  saving.pin.n_paths = values->n;
  saving.pin.paths = values->data;
  vec_push(lines->e->arena, &lines->pins->of_paths, saving);
}

void saving_read_line(SavingLines *lines, const Pin *pin) {
  PathList values = {0};
  static const PinSays says[] = {[PIN_remat] = SAYS_remat,
                                 [PIN_keep] = SAYS_keep,
                                 [PIN_offload] = SAYS_offload};
  PathPin saving = {.pin = {.says = says[pin->kind], .span = pin->span},
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
  Map *inputs = map_create(arena);
  for (int i = 0; i < lines->graph->inputs.n; i++) {
    Name path = lines->graph->inputs.data[i].path;
    map_put(inputs, path, (void *)path);
  }
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
