/*
 * strategy_choice.c -- chooses how an operator is computed where its rule asks
 * for an operand whose shards would have to move.
 *
 *     x [B@data, T@model, C] . w [C, F@model], plan: shard F over model
 *
 * The rule takes the first operand as it is and wants all of w.  The strategies
 * of the operator also have: all of x's T, with F sharded.  The best strategy
 * takes the fewest shards away from dims that a line of the plan shards, and
 * from parameters; then it moves the fewest bytes, in the fewest steps.
 */
#include "ir/place/strategies.h"
#include "passes/spmd/follow_pins.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"
#include "passes/spmd/strategy.h"
#include "passes/spmd/zero.h"

typedef struct Cost {
  int broken; /* pins that would not hold */
  int64_t bytes;
  int steps;
} Cost;

typedef struct Choice {
  Partition *p;
  const Node *node;
  const int *zero_axes;    /* as in StrategyQuestion */
  const Type *const *have; /* of the inputs */
  const Type *const *rule; /* those that the rule wants */
  Cost best;
  bool is_found;
  AxisSet positions;
  const Type **out; /* the operands of the best strategy */
} Choice;

static bool is_cheaper(const Cost *a, const Cost *b) {
  if (a->broken != b->broken) return a->broken < b->broken;
  if (a->bytes != b->bytes) return a->bytes < b->bytes;
  return a->steps < b->steps;
}

/* ---- pins ---- */

Name shown_parameter(const Partition *p, Value value) {
  const Graph *graph = p->rewrite.to;
  const Node *node = graph_node(graph, value);
  while (node->op != OP_input) {
    bool follows = node->n_inputs == 1 &&
                   (node->op == OP_cast || op_has(node->op, OP_FLAG_exact));
    if (!follows) return NULL;
    node = graph_node(graph, node->inputs[0]);
  }
  int64_t index = node_int(node, ATTR_index, 0);
  const GraphInput *input = &graph->inputs.data[index];
  if (p->shown) return p->shown[index];
  return input->role == ROLE_param || input->role == ROLE_ema ? input->path
                                                              : NULL;
}

/* The rank axes that lines give a dim of this name. */
static AxisSet line_axes(const Partition *p, const Dim *dim) {
  return dim->name == p->plan->batch_dim
             ? batch_axes(p)
             : axis_list_set(plan_line_axes(p, dim));
}

/* Dims of an operand that lose axes which a pin gave them. */
static int count_taken(const Choice *c, int input, const Type *want) {
  const Type *have = c->have[input];
  int zero_axes = c->zero_axes[input], n = 0;
  for (int d = 0; d < have->rank; d++) {
    AxisSet lost = axis_list_set(have->dims[d].split) &
                   (AxisSet)~axis_list_set(want->dims[d].split);
    AxisSet pinned =
        zero_axes >= 0 ? (AxisSet)~zero_axes : line_axes(c->p, &have->dims[d]);
    n += (lost & pinned) != 0;
  }
  return n;
}

/* Dims of a result that lack the axes of their line. */
static int count_missing(const Choice *c, const Type *result) {
  int n = 0;
  for (int d = 0; d < result->rank; d++)
    n += (line_axes(c->p, &result->dims[d]) &
          ~axis_list_set(result->dims[d].split)) != 0;
  return n;
}

/* ---- bytes ---- */

/* The placement of an operand.  A parameter counts as gathered over the axes of
 * ZeRO: it is gathered for any strategy, and where ZeRO stores its shards is no
 * reason to place activations by it. */
static const Type *placement_before(const Choice *c, int input) {
  const Type *have = c->have[input];
  AxisSet axes = c->zero_axes[input] > 0 ? (AxisSet)c->zero_axes[input] : 0;
  if (!axes) return have;
  Type *gathered = type_copy(c->p->ctx->scratch, have);
  for (int d = 0; d < gathered->rank; d++)
    gathered->dims[d].split = axis_list_without(have->dims[d].split, axes);
  return gathered;
}

static bool add_operand_cost(const Choice *c, int input, const Type *want,
                             Cost *cost) {
  const Type *have = placement_before(c, input);
  ReshardStep steps[MAX_RESHARD_STEPS];
  if (type_equal(have, want)) return true;
  int n = reshard_chain(c->p, have, want, steps);
  for (int i = 0; i < n; i++) cost->bytes += steps[i].bytes;
  if (n > 0) cost->steps += n;
  return n >= 0;
}

/* The all-reduce of what the operator leaves partial. */
static void add_result_cost(const Choice *c, const Type *type, AxisSet before,
                            Cost *cost) {
  int64_t n = 1;
  for (int a = 0; a < c->p->mesh->n_axes; a++)
    if (type->partial & ~before & (1u << a)) n *= c->p->mesh->axes[a].size;
  DType dtype = gradient_sum_dtype(c->p, c->node, type);
  if (c->p->plan->reduces_bf16 && type->partial_kind == REDUCE_sum &&
      dtype_is_16bit(c->have[0]->dtype))
    dtype = c->have[0]->dtype;
  int64_t bytes =
      type_local_elements(type, c->p->mesh) * dtype_size_bytes(dtype);
  cost->bytes += 2 * (n - 1) * ((bytes + n - 1) / n);
}

/* ---- the search ---- */

/* Shards of unequal size are taken where an operand or a line has them; no
 * other strategy is worth their padding. */
static bool has_new_padding(const Choice *c, const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    const Dim *dim = &type->dims[d];
    AxisSet axes = axis_list_set(dim->split);
    bool is_new = dim_is_uneven(c->p, dim) && (axes & ~line_axes(c->p, dim));
    for (int i = 0; is_new && i < c->node->n_inputs; i++) {
      int at = type_find(c->have[i], dim->name);
      is_new = at < 0 || c->have[i]->dims[at].split != dim->split;
    }
    if (is_new) return true;
  }
  return false;
}

/* Costs only grow, so a strategy that is not cheaper yet never is. */
static bool may_be_best(const Choice *c, const Cost *cost) {
  return !c->is_found || is_cheaper(cost, &c->best);
}

/* Adds the costs that need no chain; false: the strategy is not taken. */
static bool add_own_cost(const Choice *c, const Strategy *strategy,
                         const Type **want, Cost *cost) {
  const Node *node = c->node;
  AxisSet before = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    want[i] = with_microbatches(c->p, c->have[i], strategy->inputs[i],
                                c->rule[i]->partial);
    cost->broken += count_taken(c, i, want[i]);
    before |= want[i]->partial;
    if (has_new_padding(c, want[i])) return false;
  }
  for (int r = 0; r < node->n_results; r++) {
    if (has_new_padding(c, strategy->results[r])) return false;
    cost->broken += count_missing(c, strategy->results[r]);
    add_result_cost(c, strategy->results[r], before, cost);
  }
  return true;
}

/* Returns false where no further strategy can be cheaper. */
static bool try_strategy(void *user, const Strategy *strategy) {
  Choice *c = user;
  const Node *node = c->node;
  Cost cost = {0};
  if (strategy->positions && !range_is_supported(node->op)) return true;
  const Type **want =
      ARENA_ARRAY(c->p->ctx->scratch, const Type *, node->n_inputs);
  if (!add_own_cost(c, strategy, want, &cost)) return true;
  for (int i = 0; i < node->n_inputs; i++)
    if (!may_be_best(c, &cost) || !add_operand_cost(c, i, want[i], &cost))
      return true;
  if (!may_be_best(c, &cost)) return true;
  c->is_found = true;
  c->best = cost;
  c->positions = strategy->positions;
  for (int i = 0; i < node->n_inputs; i++) c->out[i] = want[i];
  return cost.broken > 0 || cost.bytes > 0 || cost.steps > 0;
}

static bool moves_shards(const Partition *p, const Type *have,
                         const Type *want) {
  AxisList more;
  for (int d = 0; d < have->rank; d++)
    if (!axis_list_continues(want->dims[d].split, have->dims[d].split, &more) ||
        !shards_are_aligned(p, &have->dims[d], &want->dims[d]))
      return true;
  return false;
}

/* Terms of a sum that are partial over different axes would all be reduced. */
static bool has_mixed_terms(const Choice *c) {
  ShardCall call = shard_call(c->p->rewrite.from, c->node);
  bool differ = false;
  if (shard_linearity(&call) != LINEAR_all) return false;
  for (int i = 0; i < c->node->n_inputs; i++) {
    if (!c->have[i]->partial) return false;
    differ |= c->have[i]->partial != c->have[0]->partial;
  }
  return differ;
}

static const int *zero_axes_of_inputs(const Partition *p, const Node *node,
                                      const Value *inputs) {
  int *axes = ARENA_ARRAY(p->ctx->scratch, int, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    Name parameter = shown_parameter(p, inputs[i]);
    axes[i] = parameter ? zero_axes_of(p, parameter) : -1;
  }
  return axes;
}

static StrategyAnswer best_strategy(Choice *choice) {
  Partition *p = choice->p;
  StrategyQuestion question = {p->rewrite.from, choice->node, choice->have,
                               choice->rule, choice->zero_axes};
  StrategyAnswer answer;
  if (strategy_memo_find(p->strategies, &question, &answer)) return answer;
  choice->out =
      ARENA_ARRAY(p->ctx->scratch, const Type *, choice->node->n_inputs);
  ShardCall call = shard_call(p->rewrite.from, choice->node);
  shard_strategies(p->mesh, &call, p->ctx->scratch, try_strategy, choice);
  answer = (StrategyAnswer){choice->is_found, choice->positions, choice->out};
  strategy_memo_put(p->strategies, &question, &answer);
  return answer;
}

bool choose_strategy(Partition *p, int id, const Value *inputs,
                     const Type *const *have, const Type **wanted,
                     AxisSet *out_positions) {
  const Node *node = p->rewrite.from->nodes.data[id];
  *out_positions = 0;
  Choice choice = {.p = p, .node = node, .have = have, .rule = wanted};
  bool moves = has_mixed_terms(&choice);
  for (int i = 0; i < node->n_inputs; i++)
    moves |= moves_shards(p, have[i], wanted[i]);
  if (!moves) return false;
  choice.zero_axes = zero_axes_of_inputs(p, node, inputs);
  StrategyAnswer best = best_strategy(&choice);
  if (!best.is_found) return false;
  for (int i = 0; i < node->n_inputs; i++)
    wanted[i] = type_equal(best.wanted[i], have[i]) ? have[i] : best.wanted[i];
  *out_positions = best.positions;
  return true;
}
