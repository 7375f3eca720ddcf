/*
 * sort.c -- the rules of sort: the type of its results, its gradient and its
 * cost.
 */
#include "ir/ops/infer.h"

/* The elements of every row along `dim` in ascending order, and the index along
 * `dim` from which each came. */
int infer_sort(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  infer_size(&in, 0, infer_name(&in, ATTR_dim));
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  out_types[0] = infer_result(&in, call->types[0]->dtype, &dims);
  out_types[1] = infer_result(&in, DT_i32, &dims);
  return out_types[0] && out_types[1] ? 2 : -1;
}

/* Each element of the gradient returns to the index from which its value came.
 * The dim is renamed, because scatter_add makes it anew. */
void grad_sort(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  Name sorted = name_format(graph->module->names, "%s.sorted", dim);
  int64_t size = type_size(node->types[0], dim);
  if (!value_is(cotangents[0])) return;
  Attrs rename = {0}, attrs = {0};
  attrs_names(&rename, ATTR_from, &dim, 1);
  attrs_names(&rename, ATTR_to, &sorted, 1);
  attrs_names(&attrs, ATTR_over, &sorted, 1);
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  Value inputs[] = {cotangents[0], (Value){id, 1}};
  for (int i = 0; i < 2; i++)
    inputs[i] = graph_append(graph, OP_rename, &inputs[i], 1, &rename);
  out[0] = graph_append(graph, OP_scatter_add, inputs, 2, &attrs);
}

/* Comparisons of the network that lower_sort.c emits: half of the elements for
 * each of k (k + 1) / 2 steps, k = log2(n) rounded up. */
double cost_sort(const Node *node, const Type *const *inputs) {
  const Type *type = inputs[0];
  int64_t n = type_size(type, node_name(node, ATTR_dim));
  double k = 0;
  while ((int64_t)1 << (int)k < n) k++;
  return (double)type_elements(type) * k * (k + 1) / 4;
}
