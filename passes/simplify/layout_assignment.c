/*
 * layout_assignment.c -- choose the storage order of the dims of each value.
 *
 *     %2 = broadcast %0 {to = [V]} : f32[V, B]
 *     %3 = mul %2, %1 : f32[V, B]         =>   %3 = mul %2, %1 : f32[B, V]
 *                    (%1 : f32[B, V])
 *
 * The order of dims has no meaning for an operator, but a kernel that reads
 * [B, V] and writes [V, B] strides through one of them, and a reduction reduces
 * rows only along the last dims.  Inference takes the order of the first
 * operand, which may be a mask or a constant.  This pass takes the order of an
 * operand that is stored in memory, if possible of one with all dims.  Where no
 * operand has all dims, it takes the order that a later node wants.  It drops a
 * transpose whose users address dims by name, and exchanges the operands' dims
 * in the result of a `dot` that such a transpose follows.
 *
 * Values that a view, an output or a structured operator reads keep their
 * order.
 *
 * requires: logical types     keeps: values, types but for the order of dims
 * breaks: node ids            cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct LayoutAssignment {
  Rewrite rewrite;
  bool *is_pinned;   /* by old node */
  int *score;        /* by new node: how much its order is worth */
  const Type **wish; /* by old node: the order that is wanted later; or NULL */
} LayoutAssignment;

enum { SCORE_made_up, SCORE_partly, SCORE_stored };

static void pin_layouts(LayoutAssignment *layouts) {
  const Graph *graph = layouts->rewrite.from;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !op_has(node->op, OP_FLAG_free_order);
         i++)
      layouts->is_pinned[node->inputs[i].node] = true;
  }
  for (int i = 0; i < graph->outputs.n; i++)
    layouts->is_pinned[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool follows = node->op == OP_rename || node->op == OP_constraint;
    if (follows && layouts->is_pinned[id])
      layouts->is_pinned[node->inputs[0].node] = true;
  }
}

/* Wished orders propagate backwards from transposes and pinned values. */
static void collect_wished_layouts(LayoutAssignment *layouts) {
  const Graph *graph = layouts->rewrite.from;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (!op_has(node->op, OP_FLAG_free_order) || node->op == OP_dot ||
        node->op == OP_rename)
      continue;
    const Type *wish = layouts->wish[id];
    bool is_left = node->op == OP_transpose && !wish;
    if (is_left || layouts->is_pinned[id]) wish = node->types[0];
    for (int i = 0; wish && i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      const Type *type = graph_type(graph, node->inputs[i]);
      if (type->rank == wish->rank && !layouts->wish[from])
        layouts->wish[from] = wish;
    }
  }
}

/* Without batch dims, the dims of one operand and those of the other may stand
 * in either order: a matmul writes both equally well. */
static bool dot_may_exchange(const Graph *graph, const Node *dot,
                             const Type *wish) {
  const Type *a = graph_type(graph, dot->inputs[0]);
  const Type *b = graph_type(graph, dot->inputs[1]);
  int changes = 0, last[2] = {-1, -1}, before = -1;
  for (int d = 0; d < wish->rank; d++) {
    Name dim = wish->dims[d].name;
    bool in_a = type_find(a, dim) >= 0, in_b = type_find(b, dim) >= 0;
    int at = type_find(dot->types[0], dim);
    if (in_a == in_b || at < last[in_b]) return false;
    last[in_b] = at;
    changes += before >= 0 && before != in_b;
    before = in_b;
  }
  return changes <= 1;
}

static int layout_score(const LayoutAssignment *layouts, const Node *node,
                        const Value *inputs, int *out_best) {
  const Graph *to = layouts->rewrite.to;
  int best = -1, best_score = -1, any = SCORE_made_up;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(to, inputs[i]);
    int score = layouts->score[inputs[i].node];
    if (score > SCORE_made_up && type->rank > 0) any = SCORE_partly;
    if (type->rank != node->types[0]->rank || score <= best_score) continue;
    best = i;
    best_score = score;
  }
  *out_best = best;
  return best_score > any ? best_score : any;
}

/* All dims of `type` that `first` has come last, in its order. */
static bool type_is_ordered_as(const Type *type, const Type *first) {
  int before = -1, n_last = 0;
  for (int d = 0; d < first->rank; d++) {
    int at = type_find(type, first->dims[d].name);
    if (at < 0) continue;
    if (at < before) return false;
    before = at;
    n_last++;
  }
  for (int d = type->rank - n_last; d < type->rank; d++)
    if (type_find(first, type->dims[d].name) < 0) return false;
  return true;
}

/* Dims of `type` that `first` has come in its order, the others before. */
static const Type *type_ordered_as(Arena *arena, const Type *type,
                                   const Type *first) {
  if (type_is_ordered_as(type, first)) return type;
  Type *result = type_create(arena, type->dtype, type->rank);
  result->partial = type->partial;
  result->partial_kind = type->partial_kind;
  int n = 0;
  for (int d = 0; d < type->rank; d++)
    if (type_find(first, type->dims[d].name) < 0)
      result->dims[n++] = type->dims[d];
  for (int d = 0; d < first->rank; d++) {
    int at = type_find(type, first->dims[d].name);
    if (at >= 0) result->dims[n++] = type->dims[at];
  }
  ASSERT(n == type->rank);
  return result;
}

static void copy_retyped(LayoutAssignment *layouts, int id, const Type *type) {
  Rewrite *rewrite = &layouts->rewrite;
  Value now = graph_copy_node_as(rewrite->to, rewrite->from, id,
                                 rewrite_inputs(rewrite, id), &type);
  rewrite_set(rewrite, (Value){id, 0}, now);
}

/* A rename is a view and has the order of its input. */
static void rename_as_stored(LayoutAssignment *layouts, int id, Value input) {
  Rewrite *rewrite = &layouts->rewrite;
  const Node *node = rewrite->from->nodes.data[id];
  const Type *from = graph_type(rewrite->from, node->inputs[0]);
  const Type *now = graph_type(rewrite->to, input);
  Type *type = type_create(rewrite->ctx->module->arena, now->dtype, now->rank);
  for (int d = 0; d < now->rank; d++)
    type->dims[d] = node->types[0]->dims[type_find(from, now->dims[d].name)];
  copy_retyped(layouts, id, type);
}

static bool dot_contracts(const Node *dot, Name dim) {
  int n;
  const Name *over = node_names(dot, ATTR_over, &n);
  for (int i = 0; i < n; i++)
    if (over[i] == dim) return true;
  return false;
}

/* `type` with the contracted dims in the order that `other` has them in, in
 * the same places; `type` itself if they are. */
static const Type *type_contracted_as(Arena *arena, const Node *dot,
                                      const Type *type, const Type *other) {
  Type *result = type_create(arena, type->dtype, type->rank);
  int next = 0;
  bool is_same = true;
  for (int d = 0; d < type->rank; d++) {
    result->dims[d] = type->dims[d];
    if (!dot_contracts(dot, type->dims[d].name)) continue;
    while (!dot_contracts(dot, other->dims[next].name)) next++;
    result->dims[d] = type->dims[type_find(type, other->dims[next++].name)];
    is_same = is_same && result->dims[d].name == type->dims[d].name;
  }
  return is_same ? type : result;
}

/* Contracted dims must have one order in both operands to be one loop of a
 * library's matmul; the smaller operand is transposed, of equal ones the
 * second: in the gradient of a weight the first is a forward value, which
 * others read as it is. */
static void copy_dot(LayoutAssignment *layouts, int id, const Type *type) {
  Rewrite *rewrite = &layouts->rewrite;
  const Node *node = rewrite->from->nodes.data[id];
  Arena *arena = rewrite->ctx->module->arena;
  Value *inputs = rewrite_inputs(rewrite, id);
  const Type *a = graph_type(rewrite->to, inputs[0]);
  const Type *b = graph_type(rewrite->to, inputs[1]);
  int small = type_elements(a) < type_elements(b) ? 0 : 1;
  const Type *order =
      type_contracted_as(arena, node, small ? b : a, small ? a : b);
  inputs[small] = graph_transpose_to(rewrite->to, inputs[small], order);
  layouts->score[inputs[small].node] = SCORE_stored;
  Value now = graph_copy_node_as(rewrite->to, rewrite->from, id, inputs, &type);
  rewrite_set(rewrite, (Value){id, 0}, now);
}

static int assign_layout(LayoutAssignment *layouts, int id) {
  Rewrite *rewrite = &layouts->rewrite;
  const Node *node = rewrite->from->nodes.data[id];
  const Type *wish = layouts->wish[id];
  if (node->op == OP_dot && wish && !layouts->is_pinned[id] &&
      dot_may_exchange(rewrite->from, node, wish)) {
    copy_dot(
        layouts, id,
        type_ordered_as(rewrite->ctx->module->arena, node->types[0], wish));
    return SCORE_stored;
  }
  bool is_free = node->op == OP_const || node->op == OP_iota;
  bool may_change = op_has(node->op, OP_FLAG_free_order) &&
                    node->op != OP_dot && node->n_inputs > 0 &&
                    !layouts->is_pinned[id];
  if (!op_has(node->op, OP_FLAG_free_order) || node->op == OP_dot) {
    if (node->op == OP_dot)
      copy_dot(layouts, id, node->types[0]);
    else
      rewrite_copy(rewrite, id);
    return is_free ? SCORE_made_up : SCORE_stored;
  }
  Value *inputs = rewrite_inputs(rewrite, id);
  bool is_there =
      node->op == OP_transpose &&
      type_equal(graph_type(rewrite->to, inputs[0]), node->types[0]);
  if (node->op == OP_transpose && (may_change || is_there)) {
    rewrite_set(rewrite, (Value){id, 0}, inputs[0]);
    return -1;
  }
  if (node->op == OP_rename) {
    rename_as_stored(layouts, id, inputs[0]);
    return layouts->score[inputs[0].node];
  }
  int best, score = layout_score(layouts, node, inputs, &best);
  if (op_is(node->op, OPCLASS_reduction)) best = 0;
  if (node->op == OP_broadcast) {
    best = 0;
    score = SCORE_made_up;
  }
  if (may_change && best < 0 && wish && wish->rank == node->types[0]->rank)
    copy_retyped(
        layouts, id,
        type_ordered_as(rewrite->ctx->module->arena, node->types[0], wish));
  else if (!may_change || best < 0)
    rewrite_copy(rewrite, id);
  else
    copy_retyped(layouts, id,
                 type_ordered_as(rewrite->ctx->module->arena, node->types[0],
                                 graph_type(rewrite->to, inputs[best])));
  return layouts->is_pinned[id] ? SCORE_stored : score;
}

Graph *pass_layout_assignment(PassContext *ctx, const Graph *graph) {
  LayoutAssignment layouts = {.rewrite = rewrite_begin(ctx, graph)};
  layouts.is_pinned = ARENA_ARRAY(ctx->scratch, bool, graph->nodes.n);
  /* A dot may add a transpose. */
  layouts.score = ARENA_ARRAY(ctx->scratch, int, 2 * graph->nodes.n);
  layouts.wish = ARENA_ARRAY(ctx->scratch, const Type *, graph->nodes.n);
  pin_layouts(&layouts);
  collect_wished_layouts(&layouts);
  for (int id = 0; id < graph->nodes.n; id++) {
    rewrite_at(&layouts.rewrite, id);
    int score = assign_layout(&layouts, id);
    if (score >= 0)
      layouts.score[rewrite_get(&layouts.rewrite, (Value){id, 0}).node] = score;
  }
  return rewrite_end(&layouts.rewrite);
}
