/*
 * pinned.c -- notes which values an annotation that is a pin stands before, for
 * frontend/plan, which makes a line of the plan of it.
 *
 *     @remat               the line `remat block[0].h`, once per execution
 *     h = relu(dot(x, w))
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

/* Parameters have placements, but the backward pass always finds them. */
static void add_computed(Elab *e, PinnedPaths *pinned, int first_node,
                         bool with_inputs) {
  for (int i = first_node; i < e->graph->nodes.n; i++) {
    const Node *node = e->graph->nodes.data[i];
    bool is_input = node->op == OP_input;
    int slot = is_input ? (int)node_int(node, ATTR_index, 0) : 0;
    Name path = is_input ? e->graph->inputs.data[slot].path : node->path;
    if (path && *path && (with_inputs || !is_input))
      add_pinned_path(e, pinned, path);
  }
}

void elab_note_pins(Elab *e, const AnnotationList *list, const Stmt *stmt,
                    int first_node) {
  for (int i = 0; i < list->n; i++) {
    const Annotation *annotation = &list->items[i];
    bool is_shard = strcmp(annotation->name, "shard") == 0;
    bool is_saving = strcmp(annotation->name, "remat") == 0 ||
                     strcmp(annotation->name, "keep") == 0;
    if (!is_shard && !is_saving) continue;
    PinnedPaths pinned = {.annotation = annotation};
    bool is_body = !stmt || stmt->kind == STMT_repeat || stmt->kind == STMT_if;
    if (is_shard && !is_body)
      for (int k = 0; k < stmt->names.n; k++) {
        const Local *local = frame_local(e->frame, stmt->names.names[k]);
        if (local) add_assigned(e, &pinned, local->val);
      }
    else
      add_computed(e, &pinned, first_node, is_shard);
    vec_push(e->arena, &e->pinned, pinned);
  }
}
