/*
 * shardcheck.c -- whether every placement of a partitioned graph is the one
 * that the rule of its operator gives: what partition and all passes after it
 * have left is derived again, node by node.
 *
 * A value that is computed from nothing stored (iota, a broadcast constant, a
 * random mask) may be sharded along dims that none of its operands has: each
 * rank computes its own part.
 */
#include "ir/place/mesh_place.h"

#include <string.h>

typedef struct ShardCheck {
  const Graph *graph; /* at hand: the graph or a region in it */
  Name path;          /* of the node at hand */
  const Mesh *mesh;
  Arena *arena;
  Text *errors;
  bool is_right;
} ShardCheck;

static void report_placement(ShardCheck *check, const Node *node,
                             const char *what, const Type *has,
                             const Type *wanted) {
  check->is_right = false;
  text_printf(check->errors, "%s of %s '%s' is ", what, op_info(node->op)->name,
              check->path ? check->path : "");
  type_print(check->errors, has, check->mesh);
  text_add(check->errors, ", not ");
  type_print(check->errors, wanted, check->mesh);
  text_add(check->errors, "\n");
}

static bool has_same_partial(const Type *a, const Type *b) {
  return a->partial == b->partial &&
         (!a->partial || a->partial_kind == b->partial_kind);
}

static bool is_placed_alike(const Type *a, const Type *b) {
  for (int d = 0; d < a->rank; d++) {
    int at = type_find(b, a->dims[d].name);
    if (at < 0 || a->dims[d].split != b->dims[at].split) return false;
  }
  return a->rank == b->rank && has_same_partial(a, b);
}

static const Type *operand_type(const ShardCheck *check, const Node *node,
                                int i) {
  return graph_type(check->graph, node->inputs[i]);
}

/* ---- operators with a rule ---- */

static bool some_operand_has(const ShardCheck *check, const Node *node,
                             Name dim) {
  for (int i = 0; i < node->n_inputs; i++)
    if (type_find(operand_type(check, node, i), dim) >= 0) return true;
  return false;
}

/* Zero is also the partial sum of zeros. */
static bool is_partial_zero(const ShardCheck *check, const Node *node) {
  if (node->op != OP_broadcast) return false;
  const Node *from = graph_node(check->graph, node->inputs[0]);
  return from->op == OP_const && node_float(from, ATTR_value, 1) == 0;
}

/* A value that replicas have made of batches of their own, in turn, is a term
 * of their sum, by a rename of no dim (passes/spmd/replica_means.c). */
static bool is_term_of_replica(const ShardCheck *check, const Node *node,
                               const Type *has, const Type *derived) {
  int n = 1;
  if (node->op != OP_rename || derived->partial != 0) return false;
  node_names(node, ATTR_from, &n);
  return n == 0 && has->partial_kind == REDUCE_sum &&
         !node_has(node, ATTR_per_microbatch) &&
         node_is_per_microbatch(check->graph, node->inputs[0].node);
}

static bool is_derived(const ShardCheck *check, const Node *node,
                       const Type *has, const Type *derived) {
  for (int d = 0; d < has->rank; d++) {
    int at = type_find(derived, has->dims[d].name);
    AxisList split = at < 0 ? 0 : derived->dims[at].split;
    if (has->dims[d].split == split) continue;
    if (split || some_operand_has(check, node, has->dims[d].name)) return false;
  }
  return has_same_partial(has, derived) || is_partial_zero(check, node) ||
         is_term_of_replica(check, node, has, derived);
}

static Type *type_copied(const ShardCheck *check, const Type *type) {
  return arena_copy(check->arena, type,
                    sizeof *type + type->rank * sizeof(Dim));
}

static AxisSet axes_of_node(const ShardCheck *check, const Node *node) {
  int n = 0;
  AxisSet set = 0;
  const Name *names = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n; i++)
    set |= (AxisSet)(1u << mesh_find(check->mesh, names[i]));
  return set;
}

static const Type *type_reduced(const ShardCheck *check, const Type *type,
                                AxisSet axes) {
  Type *reduced = type_copied(check, type);
  reduced->partial &= (AxisSet)~axes;
  if (!reduced->partial) reduced->partial_kind = REDUCE_sum;
  return reduced;
}

static void check_by_rule(ShardCheck *check, const Node *node) {
  const Type **inputs = ARENA_ARRAY(check->arena, const Type *, node->n_inputs);
  const Type **wanted = ARENA_ARRAY(check->arena, const Type *, node->n_inputs);
  const Type **whole = ARENA_ARRAY(check->arena, const Type *, node->n_results);
  const Type **made = ARENA_ARRAY(check->arena, const Type *, node->n_results);
  Graph like = *check->graph;
  like.mesh = *check->mesh;
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = operand_type(check, node, i);
  for (int r = 0; r < node->n_results; r++)
    whole[r] = type_logical(check->arena, node->types[r]);
  shard_infer(&like, node->op, node->attrs, node->n_attrs, inputs,
              node->n_inputs, whole, node->n_results, check->arena, wanted,
              made);
  for (int i = 0; i < node->n_inputs; i++)
    if (!is_placed_alike(inputs[i], wanted[i]))
      report_placement(check, node, "an operand", inputs[i], wanted[i]);
  for (int r = 0; r < node->n_results; r++) {
    if (node_joins_microbatches(node))
      made[r] = type_reduced(check, made[r], axes_of_node(check, node));
    if (!is_derived(check, node, node->types[r], made[r]))
      report_placement(check, node, "a result", node->types[r], made[r]);
  }
}

/* ---- collectives ---- */

/* The result is the operand without the partial axes that are reduced, which
 * the operand must have. */
static void check_reduction(ShardCheck *check, const Node *node) {
  AxisSet axes = axes_of_node(check, node);
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *has = operand_type(check, node, i);
    const Type *wanted = type_reduced(check, has, axes);
    bool is_kind =
        !node_has(node, ATTR_reduce) ||
        !strcmp(node_name(node, ATTR_reduce), reduce_name(has->partial_kind));
    if ((has->partial & axes) != axes || !is_kind)
      report_placement(check, node, "an operand", has, wanted);
    else if (!is_placed_alike(node->types[i], wanted))
      report_placement(check, node, "a result", node->types[i], wanted);
  }
}

/* The larger shard of operand `part` is cut over the axes of the collective to
 * the smaller. */
static void check_cut(ShardCheck *check, const Node *node, int part,
                      const Type *larger, const Type *smaller) {
  Type *wanted = type_copied(check, larger);
  int d = type_find(wanted, node_part_dim(node, part)), n = 0;
  const Name *names = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n && d >= 0; i++)
    wanted->dims[d].split = axis_list_append(wanted->dims[d].split,
                                             mesh_find(check->mesh, names[i]));
  if (!is_placed_alike(wanted, smaller))
    report_placement(check, node, "a shard", smaller, wanted);
}

static void check_shard(ShardCheck *check, const Node *node) {
  check_cut(check, node, 0, operand_type(check, node, 0), node->types[0]);
}

static void check_collected(ShardCheck *check, const Node *node) {
  check_cut(check, node, 0, node->types[0], operand_type(check, node, 0));
}

/* The dim of an all_gather loses its last axes. */
static void check_gathered(ShardCheck *check, const Node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    check_cut(check, node, i, node->types[i], operand_type(check, node, i));
}

/* The operand is partial over the axes, which shard the dim of the result. */
static void check_scattered(ShardCheck *check, const Node *node) {
  AxisSet axes = axes_of_node(check, node);
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *has = operand_type(check, node, i);
    const Type *reduced = type_reduced(check, has, axes);
    if ((has->partial & axes) != axes)
      report_placement(check, node, "an operand", has, reduced);
    else
      check_cut(check, node, i, reduced, node->types[i]);
  }
}

/* The axes leave one dim for the end of another. */
static void check_exchanged(ShardCheck *check, const Node *node) {
  int n = 0;
  const Name *to = node_names(node, ATTR_to, &n);
  const Type *has = operand_type(check, node, 0);
  Type *without = type_copied(check, has), *wanted;
  int from = type_find(has, node_name(node, ATTR_dim));
  int gains = n == 1 ? type_find(has, to[0]) : -1;
  if (from < 0 || gains < 0) return;
  without->dims[from].split =
      node->types[0]
          ->dims[type_find(node->types[0], has->dims[from].name)]
          .split;
  check_cut(check, node, 0, without, has);
  wanted = type_copied(check, without);
  const Name *axes = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n; i++)
    wanted->dims[gains].split = axis_list_append(
        wanted->dims[gains].split, mesh_find(check->mesh, axes[i]));
  if (!is_placed_alike(node->types[0], wanted))
    report_placement(check, node, "a result", node->types[0], wanted);
}

/* The axes shard the dim, of which a place has one element. */
static void check_permuted(ShardCheck *check, const Node *node) {
  int n = 0;
  const Name *axes = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *has = operand_type(check, node, i);
    Type *wanted = type_copied(check, has);
    int d = type_find(has, node_name(node, ATTR_dim));
    wanted->dims[d].split = 0;
    for (int a = 0; a < n; a++)
      wanted->dims[d].split = axis_list_append(wanted->dims[d].split,
                                               mesh_find(check->mesh, axes[a]));
    if (!is_placed_alike(has, wanted) ||
        axis_list_shards(has->dims[d].split, check->mesh) != has->dims[d].size)
      report_placement(check, node, "an operand", has, wanted);
    else if (!is_placed_alike(node->types[i], has))
      report_placement(check, node, "a result", node->types[i], has);
  }
}

static void check_after(ShardCheck *check, const Node *node) {
  const Type *has = operand_type(check, node, 0);
  if (!is_placed_alike(node->types[0], has))
    report_placement(check, node, "a result", node->types[0], has);
}

/* ---- regions ---- */

static void check_graph(ShardCheck *check, const Graph *graph);

static void check_same(ShardCheck *check, const Node *node, const char *what,
                       const Type *inside, const Type *outside) {
  if (!is_placed_alike(inside, outside))
    report_placement(check, node, what, inside, outside);
}

static void check_body(ShardCheck *check, const Graph *body) {
  const Graph *outer = check->graph;
  check_graph(check, body);
  check->graph = outer;
}

static void check_fused(ShardCheck *check, const Node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    check_same(check, node, "an operand",
               graph_type(node->body, node->body->inputs.data[i].value),
               operand_type(check, node, i));
  for (int r = 0; r < node->n_results; r++)
    check_same(check, node, "a result",
               graph_type(node->body, node->body->outputs.data[r].value),
               node->types[r]);
  check_body(check, node->body);
}

static const Type *type_outside(const ShardCheck *check, const Node *scan,
                                const Type *inside, bool is_part) {
  return is_part
             ? scan_stacked_type(check->arena, inside,
                                 node_name(scan, ATTR_dim), scan_steps(scan))
             : inside;
}

static void check_scan(ShardCheck *check, const Node *node) {
  const Graph *body = node->body;
  int n_carries = scan_carries(node);
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *inside = graph_type(body, body->inputs.data[i].value);
    bool is_slice = scan_input_role(node, i) == ROLE_slice;
    check_same(check, node, "an operand", operand_type(check, node, i),
               type_outside(check, node, inside, is_slice));
  }
  for (int r = 0; r < node->n_results; r++) {
    const Type *inside = graph_type(body, body->outputs.data[r].value);
    check_same(check, node, "a result", node->types[r],
               type_outside(check, node, inside, r >= n_carries));
    if (r < n_carries)
      check_same(check, node, "a carry", inside,
                 graph_type(body, body->inputs.data[r].value));
  }
  check_body(check, body);
}

/* ---- the graph ---- */

typedef void NodeCheck(ShardCheck *check, const Node *node);
static NodeCheck *const node_checks[N_OPS] = {
    [OP_all_reduce] = check_reduction,
    [OP_accumulate] = check_reduction,
    [OP_all_gather] = check_gathered,
    [OP_reduce_scatter] = check_scattered,
    [OP_all_to_all] = check_exchanged,
    [OP_permute] = check_permuted,
    [OP_shard] = check_shard,
    [OP_collect_microbatches] = check_collected,
    [OP_after] = check_after,
    [OP_fused] = check_fused,
    [OP_scan] = check_scan,
};

static void check_graph(ShardCheck *check, const Graph *graph) {
  check->graph = graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_input) continue;
    check->path = graph_path(graph, id);
    (node_checks[node->op] ? node_checks[node->op] : check_by_rule)(check,
                                                                    node);
  }
}

bool graph_check_placements(const Graph *graph, Text *out_errors) {
  Arena *scratch = arena_create(graph->module->memory);
  ShardCheck check = {.mesh = &graph->mesh,
                      .arena = scratch,
                      .errors = out_errors,
                      .is_right = true};
  check_graph(&check, graph);
  arena_destroy(scratch);
  return check.is_right;
}
