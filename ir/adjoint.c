/*
 * adjoint.c -- differentiates the nodes of one graph in reverse mode, for the
 * pass `autodiff` and for the gradient of a scan's body.
 *
 * One walk backwards over the forward nodes.  When it reaches a node, all its
 * users have been visited, so that its cotangents are complete.  Only nodes
 * that depend on a wanted input are visited.
 */
#include "ir/ir.h"

Adjoint adjoint_begin(Arena *scratch, Graph *graph) {
  int n = graph->nodes.n, n_values = 0;
  Adjoint adjoint = {.graph = graph, .n_forward = n};
  adjoint.is_wanted = ARENA_ARRAY(scratch, bool, n);
  adjoint.first = ARENA_ARRAY(scratch, int, n);
  for (int id = 0; id < n; id++) {
    adjoint.first[id] = n_values;
    n_values += graph->nodes.data[id]->n_results;
  }
  adjoint.cotangents = ARENA_ARRAY(scratch, Value, n_values);
  for (int i = 0; i < n_values; i++) adjoint.cotangents[i] = VALUE_NONE;
  adjoint.pins = graph_pins(graph, scratch);
  adjoint.pinned = map_create(scratch);
  return adjoint;
}

void adjoint_spread(Adjoint *adjoint) {
  for (int id = 0; id < adjoint->n_forward; id++) {
    const Node *node = adjoint->graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      adjoint->is_wanted[id] |= adjoint->is_wanted[node->inputs[i].node];
  }
}

static Value *cotangent_of(const Adjoint *adjoint, Value value) {
  return &adjoint->cotangents[adjoint->first[value.node] + value.result];
}

Value adjoint_get(const Adjoint *adjoint, Value value) {
  return *cotangent_of(adjoint, value);
}

/* Two cotangents of one stage are added there, so that one value is sent; else
 * their sum is of the stage of the value. */
static uint16_t stage_of_sum(const Graph *graph, Value value, Value a,
                             Value b) {
  uint16_t stage = graph_node(graph, a)->stage;
  bool is_same = graph_node(graph, b)->stage == stage;
  return is_same ? stage : graph_node(graph, value)->stage;
}

void adjoint_add(Adjoint *adjoint, Value value, Value cotangent) {
  const Type *type = graph_type(adjoint->graph, value);
  ASSERT(type_same_dims(type, graph_type(adjoint->graph, cotangent)));
  Graph *graph = adjoint->graph;
  Value *sum = cotangent_of(adjoint, value);
  if (!value_is(*sum)) {
    *sum = cotangent;
    return;
  }
  uint16_t stage = graph->stage;
  graph->stage = stage_of_sum(graph, value, *sum, cotangent);
  *sum = graph_op2(graph, OP_add, *sum, cotangent);
  graph->stage = stage;
}

void adjoint_set_place(Adjoint *adjoint, int id) {
  Graph *graph = adjoint->graph;
  const Node *node = graph->nodes.data[id];
  graph->phase = PHASE_input_gradient;
  graph->stage = node->stage;
  graph->span = node->span;
  graph->path = name_format(graph->module->names, "grad.%s",
                            node->path[0] != '\0' ? node->path : "loss");
}

static bool pin_says_same(const Node *pin, const Node *other) {
  bool is_same = pin->n_attrs == other->n_attrs;
  for (int i = 0; is_same && i < pin->n_attrs; i++)
    is_same = attr_equal(&pin->attrs[i], &other->attrs[i]);
  return is_same;
}

/* Pins the cotangent as the value is, unless that is a partial sum, whose terms
 * have one gradient.  All terms of a sum get the same
 * cotangent: where another value pins it in another way, readers of this
 * value's gradient read the constraint. */
static void adjoint_pin(Adjoint *adjoint, int pin) {
  Graph *graph = adjoint->graph;
  Value *cotangent = cotangent_of(adjoint, graph->nodes.data[pin]->inputs[0]);
  if (!value_is(*cotangent) || node_has(graph->nodes.data[pin], ATTR_partial))
    return;
  const void *key =
      (const void *)(((intptr_t)cotangent->node << 16) + cotangent->result + 1);
  intptr_t known = (intptr_t)map_get(adjoint->pinned, key);
  Value placed;
  adjoint_set_place(adjoint, pin);
  op_info(OP_constraint)->grad(graph, pin, cotangent, &placed);
  if (!known)
    map_put(adjoint->pinned, key, (void *)(intptr_t)placed.node);
  else if (!pin_says_same(graph->nodes.data[known], graph_node(graph, placed)))
    *cotangent = placed;
}

/* Passes the cotangents of node `id` on to its inputs. */
static void adjoint_visit(Adjoint *adjoint, Arena *scratch, int id) {
  const Node *node = adjoint->graph->nodes.data[id];
  const OpInfo *info = op_info(node->op);
  const Value *cotangents = &adjoint->cotangents[adjoint->first[id]];
  bool has_any = false;
  for (int i = 0; i < node->n_results; i++)
    has_any = has_any || value_is(cotangents[i]);
  if (!has_any || !adjoint->is_wanted[id] || info->grad == NULL) return;
  for (int pin = pin_first(&adjoint->pins, id); pin > 0;
       pin = adjoint->pins.next[pin])
    adjoint_pin(adjoint, pin);
  adjoint_set_place(adjoint, id);
  Value *out = ARENA_ARRAY(scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) out[i] = VALUE_NONE;
  info->grad(adjoint->graph, id, cotangents, out);
  for (int i = 0; i < node->n_inputs; i++)
    if (value_is(out[i]) && adjoint->is_wanted[node->inputs[i].node])
      adjoint_add(adjoint, node->inputs[i], out[i]);
}

void adjoint_walk(Adjoint *adjoint, Arena *scratch) {
  for (int id = adjoint->n_forward - 1; id >= 0; id--)
    adjoint_visit(adjoint, scratch, id);
}
