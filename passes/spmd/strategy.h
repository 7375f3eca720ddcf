/*
 * strategy.h -- declares which strategy an operator gets: that of a line about
 * it, or the best where its rule would move shards.
 */
#ifndef PASSES_SPMD_STRATEGY_H
#define PASSES_SPMD_STRATEGY_H

#include "passes/spmd/partition.h"

/* ---- strategy_choice.c ---- */

/* Returns the path of the parameter that a value of the new graph shows: it
 * reaches its readers through casts, views, copies, and as an argument of
 * scans.  Returns NULL if the value is computed. */
Name shown_parameter(const Partition *p, Value value);

/* Returns whether the rule of node `id` would move shards and a strategy is
 * better.  Then `wanted` has the operands of the best, and *out_positions the
 * axes over which it works on a range of indices. */
bool choose_strategy(Partition *p, int id, const Value *inputs,
                     const Type *const *have, const Type **wanted,
                     AxisSet *out_positions);

/* ---- strategy_memo.c ---- */

/* All that a choice reads of an operator. */
typedef struct StrategyQuestion {
  const Graph *graph; /* logical */
  const Node *node;
  const Type *const *have, *const *rule; /* types of the operands */
  /* The axes of ZeRO over which a parameter is stored, by operand.  -1 means
   * that it is none. */
  const int *zero_axes;
} StrategyQuestion;

typedef struct StrategyAnswer {
  bool is_found;
  AxisSet positions;
  const Type **wanted; /* the operands */
} StrategyAnswer;

StrategyMemo *strategy_memo_create(Arena *arena);
/* Returns whether an equal question has been answered; the answer then is as it
 * was put in. */
bool strategy_memo_find(StrategyMemo *memo, const StrategyQuestion *question,
                        StrategyAnswer *out);
void strategy_memo_put(StrategyMemo *memo, const StrategyQuestion *question,
                       const StrategyAnswer *answer);

/* ---- operator_lines.c ---- */

/* The line about the operator of which the node is a part, or a gradient.
 * Returns NULL if there is none. */
const PlanPin *find_operator_line(const Partition *p, const Node *node);
/* Returns whether a line says how node `id` computes.  Then, as in
 * choose_strategy, `wanted` and *out_positions follow from it.  Reports what
 * cannot be. */
bool place_by_operator_line(Partition *p, int id, const Type *const *have,
                            const Type **wanted, AxisSet *out_positions);
/* Reports lines that no operator of the graph follows. */
void check_operator_lines(Partition *p);

/* ---- index_range.c ---- */

/* Places a look-up of which each rank deals with its own range of indices. */
Value place_by_range(Partition *p, int id, const Value *inputs,
                     AxisSet positions);

#endif
