/*
 * lower_experts.c -- lowers the operators of experts to loop nests, which
 * assign capacity slots to routed tokens and find rows by both.
 * ir/ops/grad_experts.c describes the two indices.
 *
 * The capacity slot of a routed token in the buffer of its expert is the number
 * of earlier routed tokens of that expert, and the routed token of a capacity
 * slot is found by a search of all: sums over the routed tokens of a group,
 * which are parallel, need no counter and no atomic addition.  That is
 * quadratic in the routed tokens of a group, but of two operations each, where
 * a token costs 6 C F in its expert: under one percent as long as a group has
 * fewer tokens than C F / 20.
 */
#include "codegen/nest/lower.h"

/* ---- numbers of routed tokens and slots ---- */

/* Row-major over the listed dims, from their coordinates in the space. */
static Coord number_of(Lower *lower, const Space *space, AttrKey key,
                       const Type *type) {
  int n;
  const Name *names = node_names(lower->node, key, &n);
  Coord number = coord_zero();
  for (int i = 0; i < n; i++) {
    int64_t size = lower_size(lower, type, type_find(type, names[i]));
    number = coord_sum(lower, coord_scale(number, size),
                       *space_find(space, names[i]));
  }
  return number;
}

/* i32, which vectors hold more of. */
static int number_value(Lower *lower, Coord number) {
  return lower_cast(lower, coord_value(lower, number), DT_i32);
}

static void outer_loops(Lower *lower, Space *space, const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    Name name = type->dims[d].name;
    space_add(space, name,
              lower_outer(lower, name, lower_size(lower, type, d)));
  }
}

/* A stage over all routed tokens of a group; their dims hide the outer ones. */
static void tokens_stage(Lower *lower, Space *space, const Type *type) {
  int n;
  const Name *names = node_names(lower->node, ATTR_over, &n);
  lower_stage(lower);
  for (int i = 0; i < n; i++) {
    int64_t size = lower_size(lower, type, type_find(type, names[i]));
    space_add(space, names[i], lower_inner(lower, names[i], size));
  }
  lower_stage_ready(lower);
}

static int load_here(Lower *lower, const Space *space, const Type *type) {
  Coord coords[MAX_RANK];
  space_coords(space, type, coords);
  return lower_load(lower, lower_input_buffer(lower, 0), type, coords);
}

static void store_stage(Lower *lower, const Space *space, int expr) {
  const Type *type = lower->node->types[0];
  Coord coords[MAX_RANK];
  space_coords(space, type, coords);
  lower_store(lower, NEST_store, lower_result_buffer(lower, 0), type, coords,
              expr);
}

static int pw(Lower *lower, Op op, int a, int b) {
  bool is_truth = op_info(op)->pw_class == PW_COMPARE || op == OP_and;
  return lower_pw(lower, op, is_truth ? DT_bool : DT_i32, a, b, -1);
}

void lower_route(Lower *lower) {
  const Type *type = lower->input_types[0];
  int n;
  const int64_t *sizes = node_ints(lower->node, ATTR_sizes, &n);
  Space space = {0};
  outer_loops(lower, &space, type);
  int n_outer = space.n;
  Coord own = number_of(lower, &space, ATTR_over, type);
  tokens_stage(lower, &space, type);
  int mine = number_value(lower, own), expert;
  int other = number_value(lower, number_of(lower, &space, ATTR_over, type));
  int rival = load_here(lower, &space, type);
  space.n = n_outer;
  expert = load_here(lower, &space, type);
  int is_before = pw(lower, OP_and, pw(lower, OP_lt, other, mine),
                     lower_pw(lower, OP_eq, DT_bool, rival, expert, -1));
  int place = lower_reduce(lower, NEST_sum, DT_i32,
                           lower_cast(lower, is_before, DT_i32));
  lower_stage(lower);
  lower_stage_ready(lower);
  int n_slots = lower_const(lower, DT_i32, (double)sizes[1]);
  int none = lower_const(lower, DT_i32, -1);
  expert = lower_cast(lower, load_here(lower, &space, type), DT_i32);
  int slot = pw(lower, OP_add, pw(lower, OP_mul, expert, n_slots), place);
  int fits = pw(lower, OP_lt, place, n_slots);
  store_stage(lower, &space,
              lower_pw(lower, OP_select, DT_i32, fits, slot, none));
}

void lower_route_inverse(Lower *lower) {
  const Type *type = lower->input_types[0], *result = lower->node->types[0];
  Space space = {0};
  outer_loops(lower, &space, result);
  int n_outer = space.n;
  Coord own = number_of(lower, &space, ATTR_to, result);
  tokens_stage(lower, &space, type);
  int slot = lower_cast(lower, load_here(lower, &space, type), DT_i32);
  int number = number_value(lower, number_of(lower, &space, ATTR_over, type));
  int is_mine = pw(lower, OP_eq, slot, number_value(lower, own));
  int found = lower_pw(lower, OP_select, DT_i32, is_mine, number,
                       lower_const(lower, DT_i32, -1));
  int token = lower_reduce(lower, NEST_max, DT_i32, found);
  space.n = n_outer;
  lower_stage(lower);
  lower_stage_ready(lower);
  store_stage(lower, &space, token);
}

/* ---- lookups ---- */

void lower_row(Lower *lower, const Node *node, const Type *sized, int row,
               Space *out) {
  int n;
  AttrKey key = node->op == OP_dispatch ? ATTR_over : ATTR_to;
  const Name *names = node_names(node, key, &n);
  int64_t left = 1; /* product of the sizes of the dims that are slower */
  for (int i = 0; i < n; i++)
    left *= lower_size(lower, sized, type_find(sized, names[i]));
  row = lower_cast(lower, row, DT_i64);
  for (int i = n - 1; i >= 0; i--) {
    int64_t size = lower_size(lower, sized, type_find(sized, names[i]));
    int by = lower_const(lower, DT_i64, (double)size);
    left /= size;
    int here = row;
    if (left > 1) {
      here = lower_pw(lower, OP_mod, DT_i64, row, by, -1);
      row = lower_pw(lower, OP_floordiv, DT_i64, row, by, -1);
    }
    space_add(out, names[i], coord_of_expr(here, size));
  }
}
