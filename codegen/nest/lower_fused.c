/*
 * lower_fused.c -- lowers a region to a loop nest: pointwise chains, reductions
 * and operators that move elements.  passes/fuse/fuse.c states the contract of
 * the region.
 *
 * With R the dims that are reduced over and O all the others, the outer loops
 * are O and the inner loops of every stage are R.  The stage of a value is the
 * number of reductions on the longest way to it.  Stage k does the reductions
 * whose input has stage k and stores the results of stage k that have R dims;
 * results without them are stored last.
 *
 * A result that later stages need is read back.  Another element that several
 * stages need is computed again in each, which is cheaper than memory for
 * additions and multiplications.  An expensive one (an exponential) is stored
 * the first time in the buffer of a result that is written later anyway, and
 * read back:
 *
 *     stage 0: m = max x
 *     stage 1: y = exp(x - m), d = sum y
 *     stage 2: y = y / d
 *
 * A node outside a region (at -O0, or without a partner) is a region of one.
 */
#include <string.h>

#include "codegen/nest/lower.h"

#define EXPENSIVE_FLOPS 8

typedef struct Memo {
  Value value;
  uint64_t key;
  int expr;
} Memo;

typedef struct Region {
  Lower *lower;
  const Graph *body;
  Space space;       /* O and, in a stage, R */
  const Type *inner; /* type whose dims in R are the inner loops, or NULL */
  int n_over;
  const Name *over;
  int *stage;       /* of each node */
  bool *is_element; /* has a dim of R */
  bool *is_used;    /* a result needs it */
  int *reduced;     /* expression of a reduction that is done, or -1 */
  int *spilled;     /* result whose buffer holds the node's value, or -1 */
  int now;          /* the stage that is being built */
  int *spill_stage; /* from which stage on it is read back */
  int n_stages;
  VEC(Memo) memo;
} Region;

static int eval(Region *region, Value value, const Coord *coords);

/* ---- one element of each kind of node ---- */

/* Coordinates of an operand whose dims are among those of `type`. */
static int eval_operand(Region *region, Value operand, const Type *type,
                        const Coord *coords) {
  const Type *own = graph_type(region->body, operand);
  Coord mine[MAX_RANK];
  for (int i = 0; i < own->rank; i++) {
    int at = type_find(type, own->dims[i].name);
    ASSERT(at >= 0);
    mine[i] = coords[at];
  }
  return eval(region, operand, mine);
}

static DType operand_dtype(const Node *node, int i, DType common) {
  PwClass class = op_info(node->op)->pw_class;
  if (class == PW_LOGIC || (class == PW_SELECT && i == 0)) return DT_bool;
  if (class == PW_COMPARE) return common;
  return lower_work_dtype(node->types[0]->dtype);
}

static int element_pointwise(Region *region, const Node *node,
                             const Coord *coords) {
  Lower *lower = region->lower;
  int args[3] = {-1, -1, -1};
  DType common = DT_bool;
  for (int i = 0; i < node->n_inputs; i++)
    common =
        dtype_promote(common, graph_type(region->body, node->inputs[i])->dtype);
  common = lower_work_dtype(common);
  for (int i = 0; i < node->n_inputs; i++) {
    int arg = eval_operand(region, node->inputs[i], node->types[0], coords);
    args[i] = lower_cast(lower, arg, operand_dtype(node, i, common));
  }
  DType dtype = node->types[0]->dtype;
  if (op_has(node->op, OP_FLAG_identity))
    return lower_cast(lower, args[0], dtype);
  int value = lower_pw(lower, node->op, lower_work_dtype(dtype), args[0],
                       args[1], args[2]);
  return lower_cast(lower, value, dtype);
}

/* An index that is known at compile time, clamped like any other. */
static Coord coord_at(double index, int64_t size) {
  double last = (double)size - 1;
  return coord_add(coord_zero(), (int64_t)(index < 0      ? 0
                                           : index > last ? last
                                                          : index));
}

static int element_gather(Region *region, const Node *node,
                          const Coord *coords) {
  const Type *table = graph_type(region->body, node->inputs[0]);
  Name dim = node_name(node, ATTR_dim);
  Lower *lower = region->lower;
  const Node *index = graph_node(region->body, node->inputs[1]);
  bool is_known = index->op == OP_const;
  int row = -1;
  if (!is_known) {
    row = eval_operand(region, node->inputs[1], node->types[0], coords);
    row = lower_cast(lower, row, DT_i64);
  }
  Coord mine[MAX_RANK];
  for (int i = 0; i < table->rank; i++) {
    Name name = table->dims[i].name;
    int at = type_find(node->types[0], name);
    int64_t size = lower_size(lower, table, i);
    if (name == dim && is_known)
      mine[i] = coord_at(node_float(index, ATTR_value, 0), size);
    else if (name == dim)
      mine[i] = coord_of_expr(row, size);
    else
      mine[i] = at >= 0 ? coords[at] : coord_zero();
  }
  return eval(region, node->inputs[0], mine);
}

/* dispatch and combine: the row of the table at the index, or 0. */
static int element_row(Region *region, const Node *node, const Coord *coords) {
  Lower *lower = region->lower;
  const Type *table = graph_type(region->body, node->inputs[0]);
  const Type *type = node->types[0];
  int index = node->op == OP_dispatch ? 2 : 1;
  int row = eval_operand(region, node->inputs[index], type, coords);
  Space rows = {0};
  lower_row(lower, node, graph_type(region->body, node->inputs[3 - index]), row,
            &rows);
  Coord mine[MAX_RANK];
  for (int i = 0; i < table->rank; i++) {
    Name name = table->dims[i].name;
    const Coord *looked_up = space_find(&rows, name);
    mine[i] = looked_up ? *looked_up : coords[type_find(type, name)];
  }
  int value = eval(region, node->inputs[0], mine);
  DType number = graph_type(region->body, node->inputs[index])->dtype;
  int is_none =
      lower_pw(lower, OP_lt, DT_bool, row, lower_const(lower, number, 0), -1);
  DType work = lower_work_dtype(type->dtype);
  value = lower_pw(lower, OP_select, work, is_none, lower_const(lower, work, 0),
                   lower_cast(lower, value, work));
  return lower_cast(lower, value, type->dtype);
}

static int element_iota(Region *region, const Node *node, const Coord *coords) {
  Lower *lower = region->lower;
  const Type *type = node->types[0];
  Coord coord = coord_global(lower, coords[0], &type->dims[0]);
  return lower_cast(lower, coord_value(lower, coord), type->dtype);
}

static int element_one_hot(Region *region, const Node *node,
                           const Coord *coords) {
  Lower *lower = region->lower;
  const Type *type = node->types[0];
  int at = type_find(type, node_name(node, ATTR_dim));
  Coord coord = coord_global(lower, coords[at], &type->dims[at]);
  int hot = eval_operand(region, node->inputs[0], type, coords);
  int same = lower_pw(lower, OP_eq, DT_bool, coord_value(lower, coord),
                      lower_cast(lower, hot, DT_i64), -1);
  return lower_cast(lower, same, type->dtype);
}

/* The index of a random number is that of its element in the logical tensor. */
static int element_random(Region *region, const Node *node,
                          const Coord *coords) {
  Lower *lower = region->lower;
  const Type *type = node->types[0];
  Coord index = coord_zero();
  int64_t step = 1;
  for (int i = type->rank - 1; i >= 0; i--) {
    Coord global = coord_global(lower, coords[i], &type->dims[i]);
    index = coord_sum(lower, index, coord_scale(global, step));
    step *= type->dims[i].size;
  }
  Name stream = node_name(node, ATTR_stream);
  int seed = eval(region, node->inputs[0], NULL);
  int count = eval(region, node->inputs[1], NULL);
  NestExpr random = {
      .kind = NEST_random,
      .op = node->op,
      .dtype = type->dtype,
      .index = (int)(uint32_t)hash_bytes(stream, strlen(stream), 0),
      .number = node_float(node, ATTR_value, 0),
      .args = {lower_cast(lower, seed, DT_i64),
               lower_cast(lower, count, DT_i64), coord_value(lower, index)}};
  return lower_expr(lower, random);
}

static int element_split_dim(Region *region, const Node *node,
                             const Coord *coords) {
  Lower *lower = region->lower;
  const Type *from = graph_type(region->body, node->inputs[0]);
  const Type *type = node->types[0];
  Name dim = node_name(node, ATTR_dim);
  int n = 0;
  const Name *to = node_names(node, ATTR_to, &n);
  Coord mine[MAX_RANK];
  for (int i = 0; i < from->rank; i++) {
    if (from->dims[i].name != dim) {
      mine[i] = coords[type_find(type, from->dims[i].name)];
      continue;
    }
    Coord sum = coord_zero();
    for (int k = 0; k < n; k++) {
      int at = type_find(type, to[k]);
      sum = coord_sum(lower, coord_scale(sum, lower_size(lower, type, at)),
                      coords[at]);
    }
    mine[i] = sum;
  }
  return eval(region, node->inputs[0], mine);
}

static int element_merge_dims(Region *region, const Node *node,
                              const Coord *coords) {
  Lower *lower = region->lower;
  const Type *from = graph_type(region->body, node->inputs[0]);
  const Type *type = node->types[0];
  int n = 0;
  const Name *parts = node_names(node, ATTR_from, &n);
  int merged = type_find(type, node_name(node, ATTR_dim));
  Coord rest = coords[merged], mine[MAX_RANK];
  for (int i = 0; i < from->rank; i++) {
    int at = type_find(type, from->dims[i].name);
    if (at >= 0 && at != merged) mine[i] = coords[at];
  }
  int64_t limit = lower_size(lower, type, merged);
  for (int k = n - 1; k >= 0; k--) {
    int at = type_find(from, parts[k]);
    int64_t size = lower_size(lower, from, at);
    limit /= size;
    if (k == 0)
      mine[at] = rest;
    else
      coord_divide(lower, rest, size, limit, &rest, &mine[at]);
  }
  return eval(region, node->inputs[0], mine);
}

static int element_rename(Region *region, const Node *node,
                          const Coord *coords) {
  return eval(region, node->inputs[0], coords); /* dims keep their places */
}

static int element_slice(Region *region, const Node *node,
                         const Coord *coords) {
  const Type *type = node->types[0];
  Coord mine[MAX_RANK];
  for (int i = 0; i < type->rank; i++) {
    bool is_cut = type->dims[i].name == node_name(node, ATTR_dim);
    int64_t start = is_cut ? node_int(node, ATTR_start, 0) : 0;
    mine[i] = coord_add(coords[i], start);
  }
  return eval_operand(region, node->inputs[0], type, mine);
}

static int element_reverse(Region *region, const Node *node,
                           const Coord *coords) {
  const Type *type = node->types[0];
  Coord mine[MAX_RANK];
  for (int i = 0; i < type->rank; i++) {
    mine[i] = coords[i];
    if (type->dims[i].name != node_name(node, ATTR_dim)) continue;
    int64_t last = lower_size(region->lower, type, i) - 1;
    mine[i] = coord_add(coord_scale(coords[i], -1), last);
  }
  return eval_operand(region, node->inputs[0], type, mine);
}

/* 1 where every guard holds. */
static int guard_value(Lower *lower, const NestGuard *guard) {
  Coord coord = coord_zero();
  coord.base = guard->base;
  memcpy(coord.stride, guard->stride, sizeof coord.stride);
  int value = coord_value(lower, coord);
  int zero = lower_const(lower, DT_i64, 0);
  int limit = lower_const(lower, DT_i64, (double)guard->limit);
  int low = lower_pw(lower, OP_ge, DT_bool, value, zero, -1);
  int high = lower_pw(lower, OP_lt, DT_bool, value, limit, -1);
  return lower_pw(lower, OP_and, DT_bool, low, high, -1);
}

/* A load that gives `outside` where its guards do not hold, or -1 if the value
 * is no load under these guards alone. */
static int load_or(Lower *lower, int expr, double outside) {
  NestExpr load = lower->nest->exprs.data[expr];
  if (load.kind != NEST_load || load.at->n_guards != lower->n_guards) return -1;
  load.at = arena_copy(lower->arena, load.at, sizeof *load.at);
  load.at->outside = outside;
  return lower_expr(lower, load);
}

/* Loads below the pad are guarded, so that nothing outside is read. */
static int element_pad(Region *region, const Node *node, const Coord *coords) {
  Lower *lower = region->lower;
  const Type *from = graph_type(region->body, node->inputs[0]);
  const Type *type = node->types[0];
  int n = 0, at = type_find(type, node_name(node, ATTR_dim));
  int64_t before = node_ints(node, ATTR_pad, &n)[0];
  Coord mine[MAX_RANK];
  for (int i = 0; i < type->rank; i++)
    mine[i] = coord_add(coords[i], i == at ? -before : 0);
  int inside = type_find(from, type->dims[at].name);
  NestGuard guard = coord_guard(mine[at], lower_size(lower, from, inside));
  ASSERT(lower->n_guards < 3);
  lower->guards[lower->n_guards++] = guard;
  int value = eval_operand(region, node->inputs[0], type, mine);
  double outside = node_float(node, ATTR_value, 0);
  int load = lower->n_guards == 1 ? load_or(lower, value, outside) : -1;
  lower->n_guards--;
  if (load >= 0) return load;
  int fill = lower_const(lower, type->dtype, outside);
  return lower_pw(lower, OP_select, type->dtype, guard_value(lower, &guard),
                  value, fill);
}

static int element_const(Region *region, const Node *node,
                         const Coord *coords) {
  (void)coords;
  return lower_const(region->lower, node->types[0]->dtype,
                     node_float(node, ATTR_value, 0));
}

static int element_cast(Region *region, const Node *node, const Coord *coords) {
  int arg = eval_operand(region, node->inputs[0], node->types[0], coords);
  return lower_cast(region->lower, arg, node->types[0]->dtype);
}

/* By name: transpose, broadcast. */
static int element_same(Region *region, const Node *node, const Coord *coords) {
  return eval_operand(region, node->inputs[0], node->types[0], coords);
}

/* The stages compute reductions before anybody asks for one. */
static int element_reduced(Region *region, const Node *node,
                           const Coord *coords) {
  (void)region, (void)node, (void)coords;
  UNREACHABLE();
}

typedef int ElementFunction(Region *region, const Node *node,
                            const Coord *coords);

/* The functions that compute one element of a node inside a region. */
static ElementFunction *const elements[N_OPS] = {
#define EACH(op, function) [OP_##op] = element_##function,
#include "ir/ops.def"
};

bool lower_is_regional(Op op) {
  return elements[op] != NULL;
}

static int eval_node(Region *region, Value value, const Coord *coords) {
  const Node *node = graph_node(region->body, value);
  if (node->op == OP_input)
    return lower_load(
        region->lower,
        lower_input_buffer(region->lower, (int)node_int(node, ATTR_index, 0)),
        node->types[0], coords);
  return elements[node->op](region, node, coords);
}

static bool coord_equal(const Coord *a, const Coord *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

/* A stored value may be read back only at the loops' own coordinates. */
static bool is_own_place(const Region *region, const Type *type,
                         const Coord *coords) {
  for (int i = 0; i < type->rank; i++) {
    const Coord *own = space_find(&region->space, type->dims[i].name);
    if (!own || !coord_equal(own, &coords[i])) return false;
  }
  return region->lower->n_guards == 0;
}

static int eval(Region *region, Value value, const Coord *coords) {
  Lower *lower = region->lower;
  const Type *type = graph_type(region->body, value);
  if (region->reduced[value.node] >= 0) {
    return lower_cast(lower, region->reduced[value.node], type->dtype);
  }
  int spilled = region->spilled[value.node];
  if (spilled >= 0 && region->now >= region->spill_stage[value.node] &&
      is_own_place(region, type, coords)) {
    const Type *place = lower->node->types[spilled];
    Coord own[MAX_RANK];
    space_coords(&region->space, place, own);
    return lower_load(lower, lower_result_buffer(lower, spilled), place, own);
  }
  uint64_t key = hash_bytes(coords, (size_t)type->rank * sizeof *coords,
                            (uint64_t)lower->space);
  key = hash_bytes(lower->guards,
                   (size_t)lower->n_guards * sizeof lower->guards[0], key);
  for (int i = 0; i < region->memo.n; i++)
    if (value_equal(region->memo.data[i].value, value) &&
        region->memo.data[i].key == key)
      return region->memo.data[i].expr;
  Memo memo = {.value = value, .key = key};
  memo.expr = eval_node(region, value, coords);
  vec_push(lower->arena, &region->memo, memo);
  return memo.expr;
}

/* The element of `value` at the loops. */
static int eval_here(Region *region, Value value) {
  Coord coords[MAX_RANK];
  space_coords(&region->space, graph_type(region->body, value), coords);
  return eval(region, value, coords);
}

/* ---- analysis ---- */

static bool has_over(const Region *region, const Type *type) {
  for (int i = 0; i < region->n_over; i++)
    if (type_find(type, region->over[i]) >= 0) return true;
  return false;
}

static void mark_used(Region *region, Value value) {
  if (region->is_used[value.node]) return;
  region->is_used[value.node] = true;
  const Node *node = graph_node(region->body, value);
  for (int i = 0; i < node->n_inputs; i++) mark_used(region, node->inputs[i]);
}

static void find_over(Region *region, const Node *node) {
  if (region->inner) return;
  region->inner = graph_type(region->body, node->inputs[0]);
  if (node->op == OP_argmax) {
    Name *dim = ARENA_NEW(region->lower->arena, Name);
    *dim = node_name(node, ATTR_dim);
    region->over = dim;
    region->n_over = 1;
  } else {
    region->over = node_names(node, ATTR_over, &region->n_over);
  }
}

static void analyse_region(Region *region) {
  const Graph *body = region->body;
  Arena *arena = region->lower->arena;
  int n = body->nodes.n;
  region->stage = ARENA_ARRAY(arena, int, n);
  region->is_element = ARENA_ARRAY(arena, bool, n);
  region->is_used = ARENA_ARRAY(arena, bool, n);
  region->reduced = ARENA_ARRAY(arena, int, n);
  region->spilled = ARENA_ARRAY(arena, int, n);
  region->spill_stage = ARENA_ARRAY(arena, int, n);
  for (int i = 0; i < body->outputs.n; i++)
    mark_used(region, body->outputs.data[i].value);
  for (int id = 0; id < n; id++)
    if (region->is_used[id] &&
        op_is(body->nodes.data[id]->op, OPCLASS_reduction))
      find_over(region, body->nodes.data[id]);
  region->n_stages = 1;
  for (int id = 0; id < n; id++) {
    const Node *node = body->nodes.data[id];
    region->reduced[id] = region->spilled[id] = -1;
    for (int i = 0; i < node->n_inputs; i++)
      if (region->stage[node->inputs[i].node] > region->stage[id])
        region->stage[id] = region->stage[node->inputs[i].node];
    if (op_is(node->op, OPCLASS_reduction)) region->stage[id]++;
    region->is_element[id] = has_over(region, node->types[0]);
    if (region->is_used[id] && region->stage[id] >= region->n_stages)
      region->n_stages = region->stage[id] + 1;
  }
}

/* ---- loops ---- */

static bool is_over(const Region *region, Name name) {
  for (int i = 0; i < region->n_over; i++)
    if (region->over[i] == name) return true;
  return false;
}

/* A merged dim is walked as the dims that it was made of. */
static const Node *merge_of(const Region *region, Name name) {
  for (int id = 0; id < region->body->nodes.n; id++) {
    const Node *node = region->body->nodes.data[id];
    if (node->op == OP_merge_dims && node_name(node, ATTR_dim) == name)
      return node;
  }
  return NULL;
}

static void add_outer(Region *region, Name name, int64_t extent) {
  Lower *lower = region->lower;
  if (space_find(&region->space, name)) return;
  const Node *merge = merge_of(region, name);
  if (!merge) {
    space_add(&region->space, name, lower_outer(lower, name, extent));
    return;
  }
  int n = 0;
  const Name *parts = node_names(merge, ATTR_from, &n);
  const Type *from = graph_type(region->body, merge->inputs[0]);
  Coord sum = coord_zero();
  int64_t total = 1;
  for (int i = 0; i < n; i++) {
    int64_t size = lower_size(lower, from, type_find(from, parts[i]));
    total *= size;
    sum = coord_sum(lower, coord_scale(sum, size),
                    lower_outer(lower, parts[i], size));
  }
  ASSERT(total == extent);
  space_add(&region->space, name, sum);
}

/* O in the storage order of the first result, then the other dims of O. */
static void outer_loops(Region *region) {
  for (int i = 0; i < region->body->outputs.n; i++) {
    const Type *type =
        graph_type(region->body, region->body->outputs.data[i].value);
    for (int d = 0; d < type->rank; d++)
      if (!is_over(region, type->dims[d].name))
        add_outer(region, type->dims[d].name,
                  lower_size(region->lower, type, d));
  }
}

static void open_stage(Region *region, bool has_inner, int n_outer_names) {
  Lower *lower = region->lower;
  lower_stage(lower);
  region->space.n = n_outer_names;
  if (has_inner) {
    for (int d = 0; d < region->inner->rank; d++) {
      Name name = region->inner->dims[d].name;
      if (is_over(region, name))
        space_add(
            &region->space, name,
            lower_inner(lower, name, lower_size(lower, region->inner, d)));
    }
  }
  lower_stage_ready(lower);
}

/* ---- elements that are stored and read back ---- */

/* Marks the values that a stage needs below `value`, not past reductions. */
static void mark_needed(const Region *region, Value value, bool *needed) {
  if (needed[value.node]) return;
  needed[value.node] = true;
  const Node *node = graph_node(region->body, value);
  if (op_is(node->op, OPCLASS_reduction)) return;
  for (int i = 0; i < node->n_inputs; i++)
    mark_needed(region, node->inputs[i], needed);
}

static bool *needed_at(const Region *region, int stage) {
  const Graph *body = region->body;
  bool *needed = ARENA_ARRAY(region->lower->arena, bool, body->nodes.n);
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (region->is_used[id] && op_is(node->op, OPCLASS_reduction) &&
        region->stage[id] == stage + 1)
      mark_needed(region, node->inputs[0], needed);
  }
  for (int i = 0; i < body->outputs.n; i++) {
    Value value = body->outputs.data[i].value;
    if (region->is_element[value.node] && region->stage[value.node] == stage)
      mark_needed(region, value, needed);
  }
  return needed;
}

/* A result of a stage not before `last` whose buffer can hold `type`. */
static int free_result(const Region *region, const Type *type, int last,
                       const bool *is_taken) {
  const Graph *body = region->body;
  for (int i = 0; i < body->outputs.n; i++) {
    Value value = body->outputs.data[i].value;
    const Type *place = graph_type(body, value);
    if (!is_taken[i] && region->stage[value.node] >= last &&
        place->dtype == type->dtype && type_same_dims(place, type))
      return i;
  }
  return -1;
}

/* After its stage a result is in its own buffer. */
static void read_results_back(Region *region) {
  const Graph *body = region->body;
  for (int i = 0; i < body->outputs.n; i++) {
    int id = body->outputs.data[i].value.node;
    if (!region->is_element[id] || body->nodes.data[id]->op == OP_input)
      continue;
    region->spilled[id] = i;
    region->spill_stage[id] = region->stage[id] + 1;
  }
}

static void choose_spills(Region *region) {
  const Graph *body = region->body;
  Arena *arena = region->lower->arena;
  bool **needed = ARENA_ARRAY(arena, bool *, region->n_stages);
  for (int k = 0; k < region->n_stages; k++) needed[k] = needed_at(region, k);
  bool *is_taken = ARENA_ARRAY(arena, bool, body->outputs.n);
  for (int id = 0; id < body->nodes.n; id++) {
    const OpInfo *info = op_info(body->nodes.data[id]->op);
    int first = -1, last = -1;
    for (int k = 0; k < region->n_stages; k++) {
      if (!needed[k][id]) continue;
      if (first < 0) first = k;
      last = k;
    }
    if (!region->is_element[id] || !info->is_pointwise ||
        info->flops < EXPENSIVE_FLOPS || first == last ||
        region->spilled[id] >= 0)
      continue;
    int result =
        free_result(region, body->nodes.data[id]->types[0], last, is_taken);
    if (result < 0) continue;
    is_taken[result] = true;
    region->spilled[id] = result;
    region->spill_stage[id] = first + 1;
  }
}

static bool is_result(const Region *region, int id, int result) {
  return region->body->outputs.data[result].value.node == id;
}

/* ---- statements ---- */

static void store_result(Region *region, int result, int expr) {
  Lower *lower = region->lower;
  const Type *type = lower->node->types[result];
  Coord coords[MAX_RANK];
  space_coords(&region->space, type, coords);
  lower_store(lower, NEST_store, lower_result_buffer(lower, result), type,
              coords, expr);
}

static NestReduce reduce_kind(Op op) {
  static const Op ops[] = {
#define REDUCTION(name, ...)      [NEST_##name] = OP_##name,
#define LOOP_REDUCTION(name, ...) [NEST_##name] = OP_##name,
#include "support/reductions.def"
  };
  int reduce = 0;
  while (ops[reduce] != op) reduce++;
  return (NestReduce)reduce;
}

/* Sums to one number are the losses and norms of a step: in double. */
static DType reduce_dtype(const Region *region, const Node *node) {
  DType dtype = lower_work_dtype(node->types[0]->dtype);
  bool is_scalar =
      type_local_elements(node->types[0], region->lower->mesh) == 1;
  return node->op == OP_sum && dtype == DT_f32 && is_scalar ? DT_f64 : dtype;
}

static int reduce_node(Region *region, int id) {
  const Node *node = region->body->nodes.data[id];
  int expr = eval_here(region, node->inputs[0]);
  return lower_reduce(region->lower, reduce_kind(node->op),
                      reduce_dtype(region, node), expr);
}

static void spill_nodes(Region *region) {
  for (int id = 0; id < region->body->nodes.n; id++) {
    if (region->spilled[id] < 0 || region->spill_stage[id] != region->now + 1)
      continue;
    if (is_result(region, id, region->spilled[id])) continue; /* stored last */
    Value value = {.node = id, .result = 0};
    store_result(region, region->spilled[id], eval_here(region, value));
  }
}

/* Reductions of a stage can be read once all of it is built. */
static void build_stage(Region *region, int n_outer_names) {
  const Graph *body = region->body;
  bool *needed = needed_at(region, region->now);
  bool is_empty = true;
  for (int id = 0; id < body->nodes.n; id++) is_empty &= !needed[id];
  if (is_empty) return;
  open_stage(region, true, n_outer_names);
  spill_nodes(region);
  int *reduced = ARENA_ARRAY(region->lower->arena, int, body->nodes.n);
  for (int id = 0; id < body->nodes.n; id++) {
    bool is_now = region->is_used[id] && region->stage[id] == region->now + 1 &&
                  op_is(body->nodes.data[id]->op, OPCLASS_reduction);
    reduced[id] = is_now ? reduce_node(region, id) : region->reduced[id];
  }
  for (int i = 0; i < body->outputs.n; i++) {
    Value value = body->outputs.data[i].value;
    if (region->is_element[value.node] &&
        region->stage[value.node] == region->now)
      store_result(region, i, eval_here(region, value));
  }
  region->reduced = reduced;
}

static void store_rows(Region *region, int n_outer_names) {
  const Graph *body = region->body;
  bool is_open = false;
  for (int i = 0; i < body->outputs.n; i++) {
    Value value = body->outputs.data[i].value;
    if (region->is_element[value.node]) continue;
    if (!is_open) open_stage(region, false, n_outer_names);
    is_open = true;
    store_result(region, i, eval_here(region, value));
  }
}

void lower_region(Lower *lower, const Graph *body) {
  Region region = {.lower = lower, .body = body};
  analyse_region(&region);
  outer_loops(&region);
  int n_outer_names = region.space.n;
  read_results_back(&region);
  choose_spills(&region);
  if (region.inner)
    for (region.now = 0; region.now < region.n_stages; region.now++)
      build_stage(&region, n_outer_names);
  region.now = region.n_stages;
  store_rows(&region, n_outer_names);
}
