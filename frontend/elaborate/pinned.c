/*
 * pinned.c -- notes which values an annotation that is a pin stands before, for
 * frontend/plan, which makes a line of the plan of it.
 *
 *     @keep                the line `keep block[0].h, block[0]!dot`, once for
 *     h = relu(dot(x, w))  each execution
 */
#include "frontend/elaborate/elaborate.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"

#include <string.h>

static void add_pinned_path(Elab *e, PinnedPaths *pinned, Name path) {
  for (int i = 0; i < pinned->paths.n; i++)
    if (pinned->paths.data[i] == path) return;
  vec_push(e->arena, &pinned->paths, path);
}

static void add_assigned(Elab *e, PinnedPaths *pinned, ExprValue val) {
  if (val.kind == EXPR_VALUE_list)
    for (int i = 0; i < val.list->n; i++)
      add_assigned(e, pinned, val.list->items[i]);
  if (!expr_value_is_tensor(val)) return;
  const Node *node = graph_node(e->graph, val.tensor);
  Name path = node->path;
  if (node->op == OP_input)
    path = e->graph->inputs.data[node_int(node, ATTR_index, 0)].path;
  if (path && *path) add_pinned_path(e, pinned, path);
}

/* Parameters have placements and stages, but the backward pass always finds
 * them.  Data have no stage. */
static void add_computed(Elab *e, PinnedPaths *pinned, const Graph *graph,
                         int first_node) {
  bool is_shard = strcmp(pinned->annotation->name, "shard") == 0;
  bool is_stage = strcmp(pinned->annotation->name, "stage") == 0;
  for (int i = first_node; i < graph->nodes.n; i++) {
    const Node *node = graph->nodes.data[i];
    const GraphInput *input =
        node->op == OP_input
            ? &graph->inputs.data[node_int(node, ATTR_index, 0)]
            : NULL;
    bool is_stored =
        input && (input->role == ROLE_param || input->role == ROLE_state);
    Name path = input ? input->path : node->path;
    if (path && *path && (!input || is_shard || (is_stage && is_stored)))
      add_pinned_path(e, pinned, path);
    if (node->body && !is_shard) add_computed(e, pinned, node->body, 0);
  }
}

/* Adds the values that the expression of the statement computes; one that a
 * layer returns keeps the path that it has there. */
static void add_named(Elab *e, PinnedPaths *pinned, const Stmt *stmt) {
  for (int i = 0; stmt->kind == STMT_assign && i < stmt->names.n; i++) {
    const Name *place = &stmt->names.names[i];
    const Local *local = frame_local(e->frame, *place);
    if (!local || !expr_value_is_tensor(local->val)) continue;
    Name path = scope_path(e, place, *place);
    if (graph_node(e->graph, local->val.tensor)->path == path)
      vec_push(e->arena, &pinned->named, path);
  }
}

void elab_note_pins(Elab *e, const AnnotationList *list, const Stmt *stmt,
                    int first_node) {
  for (int i = 0; i < list->n; i++) {
    const Annotation *annotation = &list->items[i];
    bool is_shard = strcmp(annotation->name, "shard") == 0;
    bool is_saving = strcmp(annotation->name, "remat") == 0 ||
                     strcmp(annotation->name, "keep") == 0;
    bool is_stage = strcmp(annotation->name, "stage") == 0;
    if (!is_shard && !is_saving && !is_stage) continue;
    PinnedPaths pinned = {.annotation = annotation};
    bool is_body = !stmt || stmt->kind == STMT_repeat || stmt->kind == STMT_if;
    if (is_shard && !is_body)
      for (int k = 0; k < stmt->names.n; k++) {
        const Local *local = frame_local(e->frame, stmt->names.names[k]);
        if (local) add_assigned(e, &pinned, local->val);
      }
    else
      add_computed(e, &pinned, e->graph, first_node);
    if (is_saving && stmt) add_named(e, &pinned, stmt);
    vec_push(e->arena, &e->pinned, pinned);
  }
}
