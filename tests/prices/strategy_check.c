/*
 * strategy_check.c -- looks for the placement of each product of a partitioned
 * graph among the strategies of its operator.
 *
 * A search that takes its candidates from the strategies can then find every
 * plan, and price a product under a strategy from the types alone.
 */
#include "ir/place/strategies.h"
#include "ir/place/mesh_place.h"
#include "tests/prices/prices.h"

typedef struct StrategyMatch {
  const Graph *graph;
  const Node *node;
  AxisSet time; /* strategies leave these axes out */
  bool is_found;
} StrategyMatch;

static bool is_placed_as(const StrategyMatch *m, const Type *have,
                         const Type *want) {
  if ((have->partial & (AxisSet)~m->time) != want->partial) return false;
  for (int d = 0; d < have->rank; d++)
    if (axis_list_without(have->dims[d].split, m->time) != want->dims[d].split)
      return false;
  return true;
}

static bool match_strategy(void *user, const Strategy *strategy) {
  StrategyMatch *m = user;
  for (int i = 0; i < m->node->n_inputs; i++)
    if (!is_placed_as(m, graph_type(m->graph, m->node->inputs[i]),
                      strategy->inputs[i]))
      return true;
  for (int r = 0; r < m->node->n_results; r++)
    if (!is_placed_as(m, m->node->types[r], strategy->results[r])) return true;
  m->is_found = true;
  return false;
}

void count_strategies(Arena *arena, const Graph *placed, int64_t *products,
                      int64_t *found) {
  for (int id = 0; id < placed->nodes.n; id++) {
    const Node *node = placed->nodes.data[id];
    if (node->op == OP_scan) {
      count_strategies(arena, node->body, products, found);
      continue;
    }
    if (!op_is(node->op, OPCLASS_contraction)) continue;
    Arena *scratch = arena_beside(arena);
    StrategyMatch match = {placed, node, mesh_sequential(&placed->mesh), false};
    ShardCall call = shard_call(placed, node);
    shard_strategies(&placed->mesh, &call, scratch, match_strategy, &match);
    ++*products;
    *found += match.is_found;
    arena_destroy(scratch);
  }
}
