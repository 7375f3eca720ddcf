/*
 * limits.c -- finds which integers a data field may hold.
 *
 * An index or label of a data file is checked when the file is read. Its limit
 * is found here: from the operator that takes it, back through operators that
 * only move elements (renames, slices, casts, stacks, scans), to the field.
 *
 *     y: i32[B, T] = npy("y.npy")
 *     cross_entropy(x, y[T = 0], V)     y[0] of a record: 0 <= value < V
 *
 * The walk carries the box of elements that are used, so that a limit holds for
 * these elements only. A computed index has no limit, because its value is
 * known only when it has been computed (--checked tests it then).
 */
#include "frontend/elaborate/match.h"
#include "frontend/elaborate/scan.h"

#include <string.h>

enum { MOST_NODES = 256 }; /* visited for one limit; the walk ends there */

/* Elements [begin, begin + size) of each dim of a value. */
typedef struct Box {
  Value value;
  int64_t begin[MAX_RANK], size[MAX_RANK];
} Box;

typedef struct Walk {
  Elab *e;
  const DataLimit *limit;
  VEC(Box) boxes; /* still to be visited */
  int n_nodes;
} Walk;

static bool box_is_full(const Box *box, const Type *type, int d) {
  return box->begin[d] == 0 && box->size[d] == type->dims[d].size;
}

/* ---- one node back ---- */

static int box_find_name(const Name *names, int n, Name name) {
  for (int i = 0; i < n; i++)
    if (names[i] == name) return i;
  return -1;
}

/* Dims keep their names; those that the result lacks have all elements. */
static void box_same_names(const Type *from, const Box *box, const Type *to,
                           Box *out) {
  for (int d = 0; d < to->rank; d++) {
    int at = type_find(from, to->dims[d].name);
    out->begin[d] = at >= 0 ? box->begin[at] : 0;
    out->size[d] = at >= 0 ? box->size[at] : to->dims[d].size;
  }
}

static void box_old_names(const Node *node, const Box *box, const Type *to,
                          Box *out) {
  int n, n_to;
  const Name *before = node_names(node, ATTR_from, &n);
  const Name *after = node_names(node, ATTR_to, &n_to);
  for (int d = 0; d < to->rank; d++) {
    int i = box_find_name(before, n, to->dims[d].name);
    int at = type_find(node->types[0], i < 0 ? to->dims[d].name : after[i]);
    out->begin[d] = box->begin[at];
    out->size[d] = box->size[at];
  }
}

/* Element i of the result is element i + offset of the operand. */
static bool box_move(const Node *node, int64_t offset, const Type *to,
                     Box *out) {
  int d = type_find(to, node_name(node, ATTR_dim));
  int64_t begin = out->begin[d] + offset, end = begin + out->size[d];
  if (begin < 0) begin = 0;
  if (end > to->dims[d].size) end = to->dims[d].size;
  out->begin[d] = begin;
  out->size[d] = end - begin;
  return end > begin;
}

static bool box_reverse(const Node *node, const Type *to, Box *out) {
  int d = type_find(to, node_name(node, ATTR_dim));
  out->begin[d] = to->dims[d].size - out->begin[d] - out->size[d];
  return true;
}

/* Where a dim is split or merged, the limit holds if all elements of the dim
 * are used; a part of them is not followed. */
static bool box_regroup(const Node *node, const Box *box, const Type *to,
                        Box *out) {
  int n;
  bool is_split = node->op == OP_split_dim;
  Name one = node_name(node, ATTR_dim);
  const Name *many = node_names(node, is_split ? ATTR_to : ATTR_from, &n);
  const Type *from = node->types[0];
  for (int d = 0; d < from->rank; d++) {
    Name name = from->dims[d].name;
    bool is_new = is_split ? box_find_name(many, n, name) >= 0 : name == one;
    if (is_new && !box_is_full(box, from, d)) return false;
  }
  for (int d = 0; d < to->rank; d++) {
    Name name = to->dims[d].name;
    bool is_old = is_split ? name == one : box_find_name(many, n, name) >= 0;
    if (!is_old) continue;
    out->begin[d] = 0;
    out->size[d] = to->dims[d].size;
  }
  return true;
}

static bool box_drops_dims(const Node *node, const Type *to) {
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  for (int i = 0; i < n; i++)
    if (type_size(to, over[i]) != 1) return false;
  return true;
}

/* bool, u8, i8 in i16 in i32 in i64: no value changes. */
static bool is_widened(const Type *from, const Type *to) {
  return dtype_class(to->dtype) != CLASS_FLOAT &&
         dtype_class(from->dtype) != CLASS_FLOAT &&
         (from->dtype == to->dtype || from->dtype == DT_bool ||
          (dtype_size_bytes(from->dtype) < dtype_size_bytes(to->dtype)));
}

static int64_t concat_offset(const Graph *graph, const Node *node, int input) {
  int64_t offset = 0;
  for (int i = 0; i < input; i++)
    offset += type_size(graph_type(graph, node->inputs[i]),
                        node_name(node, ATTR_dim));
  return offset;
}

/* An edge of the graph, walked from the result to input `input`. */
typedef struct Edge {
  const Graph *graph;
  const Node *node;
  int input;
  const Type *from, *to; /* of the result and of the input */
} Edge;

/* Changes *out, the box of the result by the names of the input's dims, into
 * that of the input; false where it has no element of that input. */
typedef bool BoxFunction(const Edge *edge, const Box *box, Box *out);

static bool box_of_same(const Edge *edge, const Box *box, Box *out) {
  (void)edge, (void)box, (void)out;
  return true;
}

static bool box_of_rename(const Edge *edge, const Box *box, Box *out) {
  box_old_names(edge->node, box, edge->to, out);
  return true;
}

static bool box_of_cast(const Edge *edge, const Box *box, Box *out) {
  (void)box, (void)out;
  return is_widened(edge->to, edge->from);
}

static bool box_of_regrouped(const Edge *edge, const Box *box, Box *out) {
  return box_regroup(edge->node, box, edge->to, out);
}

static bool box_of_sum(const Edge *edge, const Box *box, Box *out) {
  (void)box, (void)out;
  return box_drops_dims(edge->node, edge->to);
}

static bool box_of_slice(const Edge *edge, const Box *box, Box *out) {
  (void)box;
  return box_move(edge->node, node_int(edge->node, ATTR_start, 0), edge->to,
                  out);
}

static bool box_of_pad(const Edge *edge, const Box *box, Box *out) {
  (void)box;
  int n;
  return box_move(edge->node, -node_ints(edge->node, ATTR_pad, &n)[0], edge->to,
                  out);
}

static bool box_of_concat(const Edge *edge, const Box *box, Box *out) {
  (void)box;
  int64_t offset = concat_offset(edge->graph, edge->node, edge->input);
  return box_move(edge->node, -offset, edge->to, out);
}

static bool box_of_reverse(const Edge *edge, const Box *box, Box *out) {
  (void)box;
  return box_reverse(edge->node, edge->to, out);
}

/* Operators that hold elements of their operands; all others compute. */
static BoxFunction *const box_functions[N_OPS] = {
    [OP_rename] = box_of_rename,
    [OP_transpose] = box_of_same,
    [OP_broadcast] = box_of_same,
    [OP_copy] = box_of_same,
    [OP_stop_gradient] = box_of_same,
    [OP_cast] = box_of_cast,
    [OP_split_dim] = box_of_regrouped,
    [OP_merge_dims] = box_of_regrouped,
    [OP_sum] = box_of_sum,
    [OP_slice] = box_of_slice,
    [OP_pad] = box_of_pad,
    [OP_concat] = box_of_concat,
    [OP_reverse] = box_of_reverse,
};

/* The box of input `i` from which the box of the result comes; false where it
 * is computed or has no element of that input. */
static bool box_step_back(const Graph *graph, const Node *node, int i,
                          const Box *box, Box *out) {
  Edge edge = {graph, node, i, node->types[0],
               graph_type(graph, node->inputs[i])};
  BoxFunction *function = box_functions[node->op];
  out->value = node->inputs[i];
  box_same_names(edge.from, box, edge.to, out);
  return function && function(&edge, box, out);
}

/* ---- the field ---- */

static const GraphInput *limits_find_input(const Graph *graph, Value value) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (value_equal(graph->inputs.data[i].value, value))
      return &graph->inputs.data[i];
  return NULL;
}

/* Dim 0 counts samples. */
static bool same_limit(const DataLimit *a, const DataLimit *b, int rank) {
  size_t bytes = sizeof a->begin[0] * (size_t)(rank - 1);
  return a->below == b->below && a->has_ignored == b->has_ignored &&
         a->ignored == b->ignored &&
         memcmp(a->begin + 1, b->begin + 1, bytes) == 0 &&
         memcmp(a->size + 1, b->size + 1, bytes) == 0;
}

static void put_limit(Arena *arena, DataLimits *of, const DataLimit *limit,
                      int rank) {
  for (int i = 0; i < of->n; i++)
    if (same_limit(&of->data[i], limit, rank)) return;
  vec_push(arena, of, *limit);
}

/* A limit of the field holds for all samples: one of a single sample is none.
 */
static void add_limit(Walk *walk, Name path, const Type *type, const Box *box) {
  Elab *e = walk->e;
  if (type->rank == 0 || !box_is_full(box, type, 0)) return;
  DataLimit limit = *walk->limit;
  memcpy(limit.begin, box->begin, sizeof limit.begin);
  memcpy(limit.size, box->size, sizeof limit.size);
  DataLimits *of = map_get(e->limits, path);
  if (!of) {
    of = ARENA_NEW(e->arena, DataLimits);
    map_put(e->limits, path, of);
  }
  put_limit(e->arena, of, &limit, type->rank);
}

static void reach_input(Walk *walk, const Box *box) {
  Elab *e = walk->e;
  const Type *type = graph_type(e->graph, box->value);
  const GraphInput *input = limits_find_input(e->graph, box->value);
  Box outer = {0};
  if (!input) return;
  if (input->role == ROLE_data) {
    add_limit(walk, input->path, type, box);
  } else if (scan_outer(e, box->value, &outer.value)) {
    box_same_names(type, box, graph_type(e->graph, outer.value), &outer);
    vec_push(e->arena, &walk->boxes, outer);
  }
}

static Box box_of_value(const Elab *e, Value value) {
  Box box = {.value = value};
  const Type *type = graph_type(e->graph, value);
  for (int d = 0; d < type->rank; d++) box.size[d] = type->dims[d].size;
  return box;
}

/* The integer of the argument 'ignore', where the operator has one. */
static bool find_ignored(const BuiltinCall *call, int64_t *out) {
  for (int i = 0; i < call->builtin->n_params; i++)
    if (strcmp(call->builtin->params[i].name, "ignore") == 0 &&
        call->args[i].kind == EXPR_VALUE_int)
      return *out = call->args[i].integer, true;
  return false;
}

void limits_note(BuiltinCall *call, ExprValue index, int64_t below) {
  Elab *e = call->e;
  DataLimit limit = {.use = call->builtin->name, .below = below};
  limit.has_ignored = find_ignored(call, &limit.ignored);
  Walk walk = {.e = e, .limit = &limit};
  if (!expr_value_is_tensor(index)) return;
  vec_push(e->arena, &walk.boxes, box_of_value(e, index.tensor));
  while (walk.boxes.n > 0 && walk.n_nodes++ < MOST_NODES) {
    Box box = walk.boxes.data[--walk.boxes.n], before;
    const Node *node = graph_node(e->graph, box.value);
    if (node->op == OP_input) reach_input(&walk, &box);
    for (int i = 0; i < node->n_inputs; i++)
      if (box_step_back(e->graph, node, i, &box, &before))
        vec_push(e->arena, &walk.boxes, before);
  }
}

void limits_take(Model *model, const Elab *from) {
  for (int i = 0; i < model->n_data; i++)
    for (int k = 0; k < model->data[i].n_fields; k++) {
      DataField *field = &model->data[i].fields[k];
      const DataLimits *limits = map_get(from->limits, field->path);
      for (int l = 0; limits && field->type && l < limits->n; l++)
        put_limit(from->arena, &field->limits, &limits->data[l],
                  field->type->rank);
    }
}
