/*
 * padding.c -- shards of unequal size: all have ceil(n / k) elements, the last
 * ones with padding, which no operator may mix with elements.
 *
 *     dot x [B, F:10@model], w [F:10@model, C] {over = [F]}
 *
 *     here = lt iota {dim = F, sizes = [10]}, 10          : bool[F:10@model]
 *     dot (select here, x, 0), (select here, w, 0) {over = [F]}
 *
 * Positions are global, so `here` is false in padding alone.  Both operands of
 * a product are masked, because padding may hold NaN.  A maximum takes the
 * least number instead of 0.  An operator that keeps the dim may compute
 * anything in its padding.
 */
#include "ir/place/shardrule.h"
#include "passes/spmd/placement.h"

#include <float.h>
#include <math.h>

/* ---- masks ---- */

/* The least and the largest number of a dtype; of i64, the doubles nearest to
 * them that it can hold. */
static const struct {
  double least, greatest;
} dtype_bounds[] = {
#define DTYPE(name, bytes, class, c, safetensors, npy, digits, least,          \
              greatest, ...)                                                   \
  [DT_##name] = {CLASS_##class == CLASS_FLOAT ? -INFINITY : (double)(least),   \
                 CLASS_##class == CLASS_FLOAT ? INFINITY                       \
                 : bytes == 8                 ? 0x1.fffffffffffffp62           \
                                              : (double)(greatest)},
#include "support/dtype.def"
};

/* The operand that a reduction leaves as it is. */
static Value neutral_element(Graph *to, DType dtype, ShardTreatment treatment) {
  double value = treatment == SHARD_max   ? dtype_bounds[dtype].least
                 : treatment == SHARD_min ? dtype_bounds[dtype].greatest
                                          : 0;
  return graph_const(to, dtype, value);
}

/* A sum stays partial where zeros stand in for padding. */
static void partial_attr(const Partition *p, Attrs *attrs, const Type *type) {
  if (type->partial)
    attrs_name(
        attrs, ATTR_reduce,
        name_intern(p->ctx->module->names, reduce_name(type->partial_kind)));
}

/* Returns a bool for each element of the dim: it is not padding. */
static Value find_padding(Partition *p, Dim dim) {
  Graph *to = p->rewrite.to;
  Type *type = type_create(p->ctx->module->arena, DT_i32, 1);
  type->dims[0] = dim;
  if (dim.size > INT32_MAX) type->dtype = DT_i64;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim.name);
  attrs_ints(&attrs, ATTR_sizes, &dim.size, 1);
  attrs_name(&attrs, ATTR_dtype,
             name_intern(p->ctx->module->names, dtype_name(type->dtype)));
  const Type *types[1] = {type};
  Value position =
      graph_append_typed(to, OP_iota, NULL, 0, &attrs, types, 1, NULL);
  Value pair[] = {position, graph_const(to, type->dtype, (double)dim.size)};
  types[0] = type_with_dtype(p->ctx->module->arena, type, DT_bool);
  return graph_append_typed(to, OP_lt, pair, 2, NULL, types, 1, NULL);
}

static Value mask_dim(Partition *p, Value value, int d,
                      ShardTreatment treatment) {
  Graph *to = p->rewrite.to;
  const Type *type = graph_type(to, value);
  Value operands[] = {find_padding(p, type->dims[d]), value,
                      neutral_element(to, type->dtype, treatment)};
  Attrs attrs = {0};
  partial_attr(p, &attrs, type);
  return graph_append_typed(to, OP_select, operands, 3, &attrs, &type, 1, NULL);
}

bool dim_is_uneven(const Partition *p, const Dim *dim) {
  return dim->size % axis_list_shards(dim->split, p->mesh) != 0;
}

Value mask_padding(Partition *p, Value value, Name dim) {
  const Type *type = graph_type(p->rewrite.to, value);
  int d = type_find(type, dim);
  return dim_is_uneven(p, &type->dims[d]) ? mask_dim(p, value, d, SHARD_sum)
                                          : value;
}

bool shards_are_aligned(const Partition *p, const Dim *larger,
                        const Dim *smaller) {
  int64_t n = axis_list_shards(larger->split, p->mesh);
  int64_t k = axis_list_shards(smaller->split, p->mesh);
  int64_t large = (larger->size + n - 1) / n,
          small = (larger->size + k - 1) / k;
  return !larger->split || small * (k / n) == large;
}

void mask_operands(Partition *p, Op op, const Attrs *attrs, Value *inputs,
                   int n_inputs, const Type *const *results, int n_results) {
  const Graph *to = p->rewrite.to;
  Arena *scratch = p->ctx->scratch;
  const Type **types = ARENA_ARRAY(scratch, const Type *, n_inputs);
  bool is_uneven = false;
  for (int i = 0; i < n_inputs; i++) {
    types[i] = graph_type(to, inputs[i]);
    for (int d = 0; d < types[i]->rank; d++)
      is_uneven |= dim_is_uneven(p, &types[i]->dims[d]);
  }
  if (!is_uneven || !op_info(op)->infer) return;
  ShardCall call = {op,
                    attrs ? attrs->items : NULL,
                    attrs ? attrs->n : 0,
                    types,
                    n_inputs,
                    results,
                    n_results};
  ShardRule *rule = ARENA_NEW(scratch, ShardRule);
  shard_rule(&call, rule);
  for (int i = 0; i < n_inputs; i++)
    for (int d = 0; d < types[i]->rank; d++) {
      const Dim *dim = &types[i]->dims[d];
      int at = shard_rule_input(rule, dim->name);
      ShardTreatment treatment = rule->dims[at].treatment;
      if (dim_is_uneven(p, dim) && treatment != SHARD_pass)
        inputs[i] = mask_dim(p, inputs[i], d, treatment);
    }
}

/* ---- sizes ---- */

static Value append_resized(Partition *p, Op op, Value value, int d,
                            int64_t size, Attrs *attrs) {
  Graph *to = p->rewrite.to;
  Type *type = type_copy(p->ctx->module->arena, graph_type(to, value));
  const Type *types[1] = {type};
  type->dims[d].size = size;
  attrs_name(attrs, ATTR_dim, type->dims[d].name);
  return graph_append_typed(to, op, &value, 1, attrs, types, 1, NULL);
}

Value append_padding(Partition *p, Value value, int d, int64_t size) {
  const Type *type = graph_type(p->rewrite.to, value);
  int64_t pad[] = {0, size - type->dims[d].size};
  ASSERT(!type->dims[d].split && pad[1] >= 0);
  if (pad[1] == 0) return value;
  Attrs attrs = {0};
  attrs_ints(&attrs, ATTR_pad, pad, 2);
  attrs_float(&attrs, ATTR_value, 0);
  partial_attr(p, &attrs, type);
  return append_resized(p, OP_pad, value, d, size, &attrs);
}

Value drop_padding(Partition *p, Value value, int d, int64_t size) {
  const Type *type = graph_type(p->rewrite.to, value);
  ASSERT(!type->dims[d].split && size <= type->dims[d].size);
  if (type->dims[d].size == size) return value;
  Attrs attrs = {0};
  attrs_int(&attrs, ATTR_start, 0);
  attrs_ints(&attrs, ATTR_sizes, &size, 1);
  return append_resized(p, OP_slice, value, d, size, &attrs);
}
