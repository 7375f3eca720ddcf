/*
 * cse.c -- merge nodes that compute the same value.
 *
 *     %1 = exp %0          %1 = exp %0
 *     %2 = exp %0    =>    %2 = add %1, %1
 *     %3 = add %1, %2
 *
 * Two nodes are equal when operator, stage, attributes, result types and inputs
 * are equal, and so are the pins of both, if both have one.  The inputs of a
 * commutative operator are compared as a set.  Where an update reads newer
 * parameters than the passes do, its nodes equal none of theirs.  One walk in
 * id order suffices, because inputs precede users.  Nodes with a body are
 * skipped: only scans have one before `fuse`.
 *
 * requires: any graph     keeps: order, placements     breaks: use counts
 * cost: O(nodes), one hash table in scratch memory
 */
#include "passes/rewrite.h"

/* Nodes of the new graph by hash; ids count from 1, 0 ends a chain. */
typedef struct KnownNodes {
  size_t mask;
  int *newest; /* by hash */
  int *before; /* by id */
  GraphPins pins;
  const Node **pinned; /* by id of the new graph: the first pin; or NULL */
  bool updates_apart;  /* updates read other parameters than the passes */
} KnownNodes;

static KnownNodes known_nodes_create(Arena *arena, const Graph *graph) {
  int n_nodes = graph->nodes.n;
  size_t n = 64;
  while (n < (size_t)n_nodes) n *= 2;
  return (KnownNodes){.mask = n - 1,
                      .newest = ARENA_ARRAY(arena, int, n),
                      .before = ARENA_ARRAY(arena, int, n_nodes + 1),
                      .pins = graph_pins(graph, arena),
                      .pinned = ARENA_ARRAY(arena, const Node *, n_nodes)};
}

/* By place, so that -0 and 0 differ and equal NaNs are equal. */
static bool cse_same_inputs(const Node *node, const Node *other,
                            const Value *inputs) {
  if (node->n_inputs != other->n_inputs) return false;
  bool same = true;
  for (int i = 0; i < node->n_inputs && same; i++)
    same = value_equal(inputs[i], other->inputs[i]);
  if (same || !op_has(node->op, OP_FLAG_commutative)) return same;
  return value_equal(inputs[0], other->inputs[1]) &&
         value_equal(inputs[1], other->inputs[0]);
}

static bool cse_same_node(const Node *node, const Node *other,
                          const Value *inputs) {
  if (node->op != other->op || node->stage != other->stage ||
      node->n_attrs != other->n_attrs || node->n_results != other->n_results ||
      !cse_same_inputs(node, other, inputs))
    return false;
  for (int i = 0; i < node->n_attrs; i++)
    if (!attr_equal(&node->attrs[i], &other->attrs[i])) return false;
  for (int r = 0; r < node->n_results; r++)
    if (!type_equal(node->types[r], other->types[r])) return false;
  return true;
}

/* Follows the numbers of the inputs, so that a walk over the nodes walks over
 * the table, too, and the table need not be in the cache.  The latest alone
 * would not do: every update of a parameter reads one factor.  Nor would the
 * plain sum of two: the backward pass reads values in the opposite order. */
static uint64_t cse_hash(const Node *node, const Value *inputs) {
  enum { NEAR = 64 };
  uint64_t sum = 0; /* of inputs, in any order */
  int earliest = 0, latest = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    sum += hash_mix(0, (uint64_t)inputs[i].node << 24 ^
                           (uint64_t)inputs[i].result);
    if (inputs[i].node > latest) latest = inputs[i].node;
    if (inputs[i].node < earliest || i == 0) earliest = inputs[i].node;
  }
  return (uint64_t)latest + (uint64_t)earliest / 2 +
         hash_mix(sum, (uint64_t)node->op) % NEAR;
}

static const Node *cse_pin(const KnownNodes *known, const Graph *graph,
                           int id) {
  int pin = pin_first(&known->pins, id);
  return pin ? graph->nodes.data[pin] : NULL;
}

/* Two pins that place a value differently keep it twice. */
static bool cse_same_pin(const Node *pin, const Node *other) {
  bool is_same = !pin || !other || pin->n_attrs == other->n_attrs;
  for (int i = 0; pin && other && is_same && i < pin->n_attrs; i++)
    is_same = attr_equal(&pin->attrs[i], &other->attrs[i]);
  return is_same;
}

static bool reads_alike(const KnownNodes *known, const Node *node,
                        const Node *other) {
  return !known->updates_apart ||
         (node->phase == PHASE_update) == (other->phase == PHASE_update);
}

static bool cse_rule(Rewrite *rewrite, int id, void *user) {
  KnownNodes *known = user;
  const Node *node = rewrite->from->nodes.data[id];
  if (op_has(node->op, OP_FLAG_impure) || op_is(node->op, OPCLASS_collective) ||
      node->body)
    return false;
  Value few[REWRITE_FEW];
  const Value *inputs = rewrite_read_inputs(rewrite, id, few);
  const Node *pin = cse_pin(known, rewrite->from, id);
  int *newest = &known->newest[cse_hash(node, inputs) & known->mask];
  for (int at = *newest; at > 0; at = known->before[at]) {
    int other = at - 1;
    if (!cse_same_node(node, rewrite->to->nodes.data[other], inputs) ||
        !cse_same_pin(pin, known->pinned[other]) ||
        !reads_alike(known, node, rewrite->to->nodes.data[other]))
      continue;
    if (pin) known->pinned[other] = pin;
    for (int r = 0; r < node->n_results; r++)
      rewrite_set(rewrite, (Value){id, r}, (Value){other, r});
    return true;
  }
  int at = rewrite_copy(rewrite, id).node + 1;
  known->pinned[at - 1] = pin;
  known->before[at] = *newest;
  *newest = at;
  return true;
}

Graph *pass_cse(PassContext *ctx, const Graph *graph) {
  KnownNodes known = known_nodes_create(ctx->scratch, graph);
  known.updates_apart =
      ctx->plan &&
      (plan_has_versions(ctx->scratch, ctx->plan) || ctx->plan->servers.n > 0);
  return rewrite_graph(ctx, graph, cse_rule, &known);
}
