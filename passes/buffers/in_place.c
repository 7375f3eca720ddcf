/*
 * in_place.c -- what may be written over: the persistent buffer that an output
 * replaces, and the operand whose bytes a result may take.  list_schedule
 * orders launches by it, buffer assignment relies on it.
 */
#include "passes/buffers/list_schedule.h"

int *output_replaces(const Graph *graph, Arena *arena) {
  InputIndex inputs = graph_index_inputs(graph, arena);
  int *replaces = ARENA_ARRAY(arena, int, graph->outputs.n);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *replaced =
        output->role == ROLE_data
            ? NULL
            : input_indexed(&inputs, output->role, output->path);
    replaces[i] = replaced ? replaced->value.node : -1;
  }
  return replaces;
}

bool node_writes_over(const Node *node, int input) {
  return op_has(node->op, OP_FLAG_in_place) &&
         (op_is(node->op, OPCLASS_collective) || input == 0);
}

bool fused_is_elementwise(const Node *node) {
  if (node->op != OP_fused) return false;
  for (int i = 0; i < node->body->nodes.n; i++)
    if (op_is(node->body->nodes.data[i]->op, OPCLASS_reduction)) return false;
  return true;
}

bool fused_may_overwrite(const Graph *graph, int id, int result, int input) {
  const Node *node = graph->nodes.data[id];
  if (!fused_is_elementwise(node)) return false;
  const Type *from = graph_type(graph, node->inputs[input]);
  const Type *to = node->types[result];
  if (!type_same_shape(from, to) ||
      dtype_size_bytes(from->dtype) != dtype_size_bytes(to->dtype))
    return false;
  for (int d = 0; d < to->rank; d++)
    if (from->dims[d].split != to->dims[d].split) return false;
  int arg = node->body->inputs.data[input].value.node;
  for (int i = 0; i < node->body->nodes.n; i++) {
    const Node *inner = node->body->nodes.data[i];
    if (op_has(inner->op, OP_FLAG_lookup) && inner->inputs[0].node == arg)
      return false;
  }
  return true;
}
