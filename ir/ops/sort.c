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
  Name dim = infer_name(&in, ATTR_dim);
  infer_positions(&in, dim, infer_size(&in, 0, dim), DT_i32);
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

/* Pairs of elements `distance` apart that a stage of the network compares. */
static int64_t count_pairs(int64_t n, int64_t distance) {
  int64_t blocks = n / (2 * distance), rest = n % (2 * distance);
  return blocks * distance + (rest > distance ? rest - distance : 0);
}

/* Comparisons of the network that lower_sort.c emits: for each length of a run
 * the stages of a merge. */
double cost_sort(const Node *node, const Type *const *inputs) {
  const Type *type = inputs[0];
  int64_t n = type_size(type, node_name(node, ATTR_dim));
  double pairs = 0;
  for (int64_t run = 1; run < n; run *= 2)
    for (int64_t distance = run; distance >= 1; distance /= 2)
      pairs += (double)count_pairs(n, distance);
  return n > 0 ? pairs * (double)(type_elements(type) / n) : 0;
}
