/*
 * select_values.c -- makes the table of values of the plain program: from which
 * values each one is computed, and whether its operator can make NaN or
 * infinity from finite operands.
 *
 *     %3 = mul %0, %1                    COMPUTES, from %0 and %1
 *     %4 = fused %3 { select c, %3, -inf }   CHOOSES, with an infinity
 *     %5 = rename %4                     PASSES
 *
 * Rows are made in program order.  A scan's results have rows before those of
 * its body, because its carries are the same memory.
 */
#include <math.h>

#include "codegen/select.h"

ValueTable *value_table_create(Arena *arena) {
  ValueTable *table = ARENA_NEW(arena, ValueTable);
  table->arena = arena;
  table->of_graphs = map_create(arena);
  return table;
}

int32_t *value_table_rows(ValueTable *table, const Graph *graph) {
  int32_t *rows = map_get(table->of_graphs, graph);
  if (rows) return rows;
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += graph->nodes.data[id]->n_results;
  rows = ARENA_ARRAY(table->arena, int32_t, n + 1);
  map_put(table->of_graphs, graph, rows);
  return rows;
}

/* The operator copies elements of its operands, or an infinity that the program
 * wrote.  Kernels that are more than a region count as computing. */
static bool op_chooses(Op op) {
  bool is_kernel = op_is(op, OPCLASS_scatter) || op_is(op, OPCLASS_window) ||
                   op_is(op, OPCLASS_routing);
  return op_has(op, OP_FLAG_exact) && !is_kernel;
}

static bool is_float(const Node *node) {
  return node->n_results > 0 &&
         dtype_class(node->types[0]->dtype) == CLASS_FLOAT;
}

static bool node_has_infinity(const Node *node) {
  return (node->op == OP_const || node->op == OP_pad) &&
         isinf(node_float(node, ATTR_value, 0));
}

/* Values that an operator computes can be an origin; constants and bools
 * cannot.
 */
static DnnValueKind value_kind(const Graph *graph, int id, bool *out_infinity) {
  const Node *node = graph->nodes.data[id];
  *out_infinity = node_has_infinity(node);
  if (node->op == OP_const || node->op == OP_scan || node_is_view(graph, id))
    return DNN_VALUE_PASSES;
  if (node->op != OP_fused)
    return op_chooses(node->op) ? DNN_VALUE_CHOOSES : DNN_VALUE_COMPUTES;
  bool chooses = true;
  for (int i = 0; i < node->body->nodes.n; i++) {
    const Node *inner = node->body->nodes.data[i];
    *out_infinity = *out_infinity || node_has_infinity(inner);
    if (inner->op == OP_input || inner->op == OP_const || !is_float(inner))
      continue;
    chooses = chooses && op_chooses(inner->op);
  }
  return chooses ? DNN_VALUE_CHOOSES : DNN_VALUE_COMPUTES;
}

bool node_gives_infinity(const Graph *graph, int id) {
  bool has_infinity;
  return value_kind(graph, id, &has_infinity) != DNN_VALUE_COMPUTES &&
         has_infinity;
}

int32_t value_table_add(ValueTable *table, const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  ValueRow row = {.path = node->path, .phase = (int)node->phase};
  row.kind = value_kind(graph, id, &row.has_infinity);
  if (node->op == OP_input) {
    const GraphInput *input =
        &graph->inputs.data[node_int(node, ATTR_index, 0)];
    row.kind = DNN_VALUE_LEAF;
    row.role = input->role;
    row.path = input->path;
    row.dtype = node->types[0]->dtype;
    row.has_infinity =
        input->init.kind == INIT_constant && isinf(input->init.a);
  }
  vec_push(table->arena, &table->rows, row);
  return table->rows.n - 1;
}

void value_table_link(ValueTable *table, int32_t row, int32_t input) {
  vec_push(table->arena, &table->rows.data[row].inputs, input);
}
