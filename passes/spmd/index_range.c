/*
 * index_range.c -- look-ups in a dim that ranks share out: each rank reads or
 * writes its own range of indices.
 *
 *     gather table [V:8@model, C], i [T] {dim = V}
 *
 *     shard = floordiv i, 2
 *     here  = eq shard, iota {dim = V~, sizes = [4]}     : [T, V~:4@model]
 *     index = select here, (mod i, 2), 0
 *     row   = gather (table as [V~:4@model, V:2, C]), index
 *     sum (select here, row, 0) {over = [V~]}            : [T, C; sum@model]
 *
 * The shards are a dim of the graph, so all of it has a meaning on one device.
 */
#include "passes/spmd/resharding.h"
#include "passes/spmd/strategy.h"

typedef struct Range {
  Partition *p;
  int id; /* of the look-up in the old graph */
  Name dim, shards;
  int64_t n, size; /* shards; elements of one */
  AxisList split;
  Value index; /* in the shard of an element, 0 where it is not here */
  Value here;  /* whether the element is in a shard */
} Range;

static Value range_call(Range *r, Op op, const Value *inputs, int n,
                        const Attrs *attrs) {
  return place_inferred(r->p, r->id, op, inputs, n, attrs);
}

static Value range_op2(Range *r, Op op, Value a, Value b) {
  Value inputs[] = {a, b};
  return range_call(r, op, inputs, 2, NULL);
}

static Value range_select(Range *r, Value a) {
  Graph *to = r->p->rewrite.to;
  DType dtype = graph_type(to, a)->dtype;
  Value inputs[] = {r->here, a, graph_const(to, dtype, 0)};
  return range_call(r, OP_select, inputs, 3, NULL);
}

static Value range_cast(Range *r, Value a, DType dtype) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dtype,
             name_intern(r->p->ctx->module->names, dtype_name(dtype)));
  return range_call(r, OP_cast, &a, 1, &attrs);
}

/* The number of each shard; a rank has its own. */
static Value shard_numbers(Range *r, DType dtype) {
  Partition *p = r->p;
  Type *type = type_create(p->ctx->module->arena, dtype, 1);
  type->dims[0] = (Dim){r->shards, r->n, r->split};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, r->shards);
  attrs_ints(&attrs, ATTR_sizes, &r->n, 1);
  attrs_name(&attrs, ATTR_dtype,
             name_intern(p->ctx->module->names, dtype_name(dtype)));
  const Type *types[1] = {type};
  return graph_append_typed(p->rewrite.to, OP_iota, NULL, 0, &attrs, types, 1,
                            NULL);
}

static Range range_begin(Partition *p, int id, Name dim, int64_t size,
                         AxisList split, Value indices) {
  Graph *to = p->rewrite.to;
  int64_t n = axis_list_shards(split, p->mesh);
  Range r = {.p = p,
             .id = id,
             .dim = dim,
             .shards = name_format(p->ctx->module->names, "%s~", dim),
             .n = n,
             .size = (size + n - 1) / n,
             .split = split};
  DType dtype = graph_type(to, indices)->dtype;
  Value each = graph_const(to, dtype, (double)r.size);
  Value shard = range_op2(&r, OP_floordiv, indices, each);
  r.here = range_op2(&r, OP_eq, shard, shard_numbers(&r, dtype));
  r.index = range_select(&r, range_op2(&r, OP_mod, indices, each));
  return r;
}

static Value place_gather(Partition *p, int id, const Value *inputs) {
  const Graph *to = p->rewrite.to;
  const Node *node = p->rewrite.from->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  const Type *table = graph_type(to, inputs[0]);
  int d = type_find(table, dim);
  Range r = range_begin(p, id, dim, table->dims[d].size, table->dims[d].split,
                        inputs[1]);
  Value shards = split_shards(p, inputs[0], d, r.n);
  r.shards = graph_type(to, shards)->dims[d].name;
  Attrs attrs = node_attrs(node);
  Value operands[] = {shards, r.index};
  Value rows = range_select(&r, range_call(&r, OP_gather, operands, 2, &attrs));
  Attrs over = {0};
  attrs_names(&over, ATTR_over, &r.shards, 1);
  bool is_bool = table->dtype == DT_bool; /* which has no sum */
  if (is_bool) rows = range_cast(&r, rows, DT_i32);
  rows = range_call(&r, OP_sum, &rows, 1, &over);
  return is_bool ? range_cast(&r, rows, DT_bool) : rows;
}

static Value place_scatter_add(Partition *p, int id, const Value *inputs,
                               AxisList split) {
  Graph *to = p->rewrite.to;
  const Node *node = p->rewrite.from->nodes.data[id];
  Name dim = node_name(node, ATTR_dim);
  Range r =
      range_begin(p, id, dim, type_size(node->types[0], dim), split, inputs[1]);
  Attrs attrs = node_attrs(node);
  attrs_ints(&attrs, ATTR_sizes, &r.size, 1);
  Value operands[] = {range_select(&r, inputs[0]), r.index};
  Value sums = range_call(&r, OP_scatter_add, operands, 2, &attrs);
  const Type *type = graph_type(to, sums);
  int from = type_find(type, r.shards), at = type_find(type, dim);
  sums = transpose_dim(p, sums, from, from < at ? at - 1 : at);
  at = type_find(graph_type(to, sums), r.shards);
  return merge_shards(p, sums, at, type_size(node->types[0], dim));
}

Value place_by_range(Partition *p, int id, const Value *inputs,
                     AxisSet positions) {
  const Graph *to = p->rewrite.to;
  const Node *node = p->rewrite.from->nodes.data[id];
  Value value =
      node->op == OP_gather
          ? place_gather(p, id, inputs)
          : place_scatter_add(p, id, inputs, axis_list_of_set(positions));
  const Type *type = graph_type(to, value);
  for (int d = 0; d < type->rank; d++) {
    int from = type_find(graph_type(to, value), node->types[0]->dims[d].name);
    value = transpose_dim(p, value, from, d);
  }
  return value;
}
