/*
 * lower_ops.c -- lowers contractions, scatter, concat and the operators that
 * partition inserts to loop nests.
 */
#include "codegen/nest/lower.h"
#include "ir/place/mesh_place.h"

#include <string.h>

static void outer_loops_of_type(Lower *lower, Space *space, const Type *type) {
  for (int d = 0; d < type->rank; d++)
    space_add(
        space, type->dims[d].name,
        lower_outer(lower, type->dims[d].name, lower_size(lower, type, d)));
}

/* Inner loops over the dims of `type` that the space does not have yet. */
static void inner_loops_of_type(Lower *lower, Space *space, const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    Name name = type->dims[d].name;
    if (space_find(space, name)) continue;
    space_add(space, name,
              lower_inner(lower, name, lower_size(lower, type, d)));
  }
}

static int load_here(Lower *lower, const Space *space, int buffer,
                     const Type *type) {
  Coord coords[MAX_RANK];
  space_coords(space, type, coords);
  return lower_load(lower, buffer, type, coords);
}

static void store_here(Lower *lower, const Space *space, NestStmtKind kind,
                       int result, int expr) {
  const Type *type = lower->node->types[result];
  Coord coords[MAX_RANK];
  space_coords(space, type, coords);
  lower_store(lower, kind, lower_result_buffer(lower, result), type, coords,
              expr);
}

/* c[m, n] = sum over k of a[m, k] b[k, n], with any number of each; one that
 * joins micro-batches adds this sum to c. */
void lower_dot(Lower *lower) {
  Space space = {0};
  const Type *type = lower->node->types[0];
  DType dtype = lower_work_dtype(type->dtype);
  outer_loops_of_type(lower, &space, type);
  int n_outer = space.n;
  lower_stage(lower);
  inner_loops_of_type(lower, &space, lower->input_types[0]);
  lower_stage_ready(lower);
  int a = load_here(lower, &space, 0, lower->input_types[0]);
  int b = load_here(lower, &space, 1, lower->input_types[1]);
  int term = lower_pw(lower, OP_mul, dtype, lower_cast(lower, a, dtype),
                      lower_cast(lower, b, dtype), -1);
  int sum = lower_reduce(lower, NEST_sum, dtype, term);
  space.n = n_outer;
  lower_stage(lower);
  lower_stage_ready(lower);
  bool adds = node_joins_microbatches(lower->node);
  store_here(lower, &space, adds ? NEST_accumulate : NEST_store, 0, sum);
}

/* The dims of the result but `dim` are parallel; zero, then add row by row. */
void lower_scatter_add(Lower *lower) {
  Space space = {0};
  const Node *node = lower->node;
  const Type *type = node->types[0], *rows = lower->input_types[0];
  const Type *index = lower->input_types[1];
  Name dim = node_name(node, ATTR_dim);
  int at = type_find(type, dim);
  for (int d = 0; d < type->rank; d++)
    if (d != at)
      space_add(
          &space, type->dims[d].name,
          lower_outer(lower, type->dims[d].name, lower_size(lower, type, d)));
  int n_outer = space.n;
  lower_stage(lower);
  space_add(&space, dim, lower_inner(lower, dim, lower_size(lower, type, at)));
  lower_stage_ready(lower);
  store_here(lower, &space, NEST_store, 0, lower_const(lower, type->dtype, 0));
  space.n = n_outer;
  lower_stage(lower);
  inner_loops_of_type(lower, &space, index);
  inner_loops_of_type(lower, &space, rows);
  lower_stage_ready(lower);
  int position = lower_cast(lower, load_here(lower, &space, 1, index), DT_i64);
  int row = load_here(lower, &space, 0, rows);
  space_add(&space, dim, coord_of_expr(position, lower_size(lower, type, at)));
  store_here(lower, &space, NEST_accumulate, 0, row);
}

/* Writes the row alone: select.c copies the rest of the result. */
void lower_update_slice(Lower *lower) {
  Space space = {0};
  const Node *node = lower->node;
  const Type *type = node->types[0], *row = lower->input_types[1];
  Name dim = node_name(node, ATTR_dim);
  int at = type_find(type, dim);
  for (int d = 0; d < type->rank; d++)
    if (d != at)
      space_add(
          &space, type->dims[d].name,
          lower_outer(lower, type->dims[d].name, lower_size(lower, type, d)));
  lower_stage(lower);
  lower_stage_ready(lower);
  int value = load_here(lower, &space, 1, row);
  int position = lower_cast(
      lower, load_here(lower, &space, 2, lower->input_types[2]), DT_i64);
  space_add(&space, dim, coord_of_expr(position, lower_size(lower, type, at)));
  store_here(lower, &space, NEST_store, 0, value);
}

/* One stage copies one input to its place along the dim. */
void lower_concat(Lower *lower) {
  Space space = {0};
  const Node *node = lower->node;
  const Type *type = node->types[0];
  Name dim = node_name(node, ATTR_dim);
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].name != dim)
      space_add(
          &space, type->dims[d].name,
          lower_outer(lower, type->dims[d].name, lower_size(lower, type, d)));
  int n_outer = space.n;
  int64_t begin = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *part = lower->input_types[i];
    int at = type_find(part, dim);
    int64_t size = at >= 0 ? lower_size(lower, part, at) : 1;
    lower_stage(lower);
    Coord coord = lower_inner(lower, dim, size);
    lower_stage_ready(lower);
    space.n = n_outer;
    space_add(&space, dim, coord);
    int value = load_here(lower, &space, i, part);
    space.n = n_outer;
    space_add(&space, dim, coord_add(coord, begin));
    store_here(lower, &space, NEST_store, 0, value);
    begin += size;
  }
}

/* The coordinate of an element of a shard in a larger shard of the dim. */
static Coord coord_in_larger(Lower *lower, Coord coord, const Dim *shard,
                             const Dim *larger) {
  AxisList cut;
  bool continues = axis_list_continues(shard->split, larger->split, &cut);
  ASSERT(continues);
  int64_t n = axis_list_shards(shard->split, lower->mesh);
  if (axis_list_shards(cut, lower->mesh) == 1) return coord;
  int number = lower_number(lower, cut, (shard->size + n - 1) / n);
  return coord_sum(lower, coord, coord_of_expr(number, INT64_MAX));
}

/* Copies the shard of this rank or micro-batch out of a larger shard. */
void lower_shard(Lower *lower) {
  Space space = {0};
  const Type *type = lower->node->types[0], *from = lower->input_types[0];
  outer_loops_of_type(lower, &space, type);
  lower_stage(lower);
  lower_stage_ready(lower);
  Coord coords[MAX_RANK];
  for (int d = 0; d < from->rank; d++) {
    int at = type_find(type, from->dims[d].name);
    coords[d] = *space_find(&space, from->dims[d].name);
    coords[d] =
        coord_in_larger(lower, coords[d], &type->dims[at], &from->dims[d]);
  }
  int value = lower_load(lower, 0, from, coords);
  store_here(lower, &space, NEST_store, 0, value);
}

/* Copies the shard of this micro-batch into the value of all of them. */
void lower_collect_microbatches(Lower *lower) {
  Space space = {0};
  const Type *type = lower->node->types[0], *from = lower->input_types[0];
  lower_stage(lower);
  inner_loops_of_type(lower, &space, from);
  lower_stage_ready(lower);
  int value = load_here(lower, &space, 0, from);
  for (int d = 0; d < type->rank; d++) {
    int at = type_find(from, type->dims[d].name);
    space_add(&space, type->dims[d].name,
              coord_in_larger(lower, *space_find(&space, type->dims[d].name),
                              &from->dims[at], &type->dims[d]));
  }
  store_here(lower, &space, NEST_store, 0, value);
}

/* The pointwise operator of a maximum or minimum, OP_add of a sum. */
static Op accumulating_op(const Node *node) {
  const char *reduce =
      node_has(node, ATTR_reduce) ? node_name(node, ATTR_reduce) : "sum";
  if (strcmp(reduce, reduce_name(REDUCE_sum)) == 0) return OP_add;
  return strcmp(reduce, reduce_name(REDUCE_max)) == 0 ? OP_maximum : OP_minimum;
}

/* Adds the value of one micro-batch to the sum of the step; a maximum or
 * minimum is compared with what the micro-batches before have left. */
void lower_accumulate(Lower *lower) {
  Op op = accumulating_op(lower->node);
  for (int i = 0; i < lower->node->n_inputs; i++) {
    Space space = {0};
    const Type *type = lower->input_types[i];
    lower_stage(lower);
    inner_loops_of_type(lower, &space, type);
    lower_stage_ready(lower);
    int value = load_here(lower, &space, i, type);
    if (op == OP_add) {
      store_here(lower, &space, NEST_accumulate, i, value);
      continue;
    }
    DType dtype = lower_work_dtype(type->dtype);
    int before = load_here(lower, &space, lower_result_buffer(lower, i), type);
    value = lower_pw(lower, op, dtype, lower_cast(lower, before, dtype),
                     lower_cast(lower, value, dtype), -1);
    store_here(lower, &space, NEST_store, i, value);
  }
}
