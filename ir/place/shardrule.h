/*
 * shardrule.h -- declares what an operator's row says about sharding its dims,
 * for everyone who chooses placements: shard_infer and the strategies.
 */
#ifndef IR_PLACE_SHARDRULE_H
#define IR_PLACE_SHARDRULE_H

#include "ir/ir.h"

/* A node that may not exist yet: all types are logical, or the caller takes
 * shapes from them only. */
typedef struct ShardCall {
  Op op;
  const Attr *attrs;
  int n_attrs;
  const Type *const *inputs;
  int n_inputs;
  const Type *const *results;
  int n_results;
} ShardCall;

ShardCall shard_call(const Graph *graph, const Node *node);

/* The ways in which an operator treats a dim that is sharded. */
typedef enum ShardTreatment {
  SHARD_pass,      /* results that have the dim are sharded too */
  SHARD_replicate, /* it may not be sharded */
  SHARD_sum,       /* results are partial sums over the ranks */
  SHARD_max,       /* results are partial maxima */
  SHARD_min,       /* results are partial minima */
  /* The operator works on a range of global positions: it reads 0 outside the
   * range and leaves a partial sum, or it makes only those elements of the
   * result. */
  SHARD_positions,
  /* Results that have the dim are sharded, others are partial sums. */
  SHARD_pass_or_sum,
} ShardTreatment;

/* An iteration dim: one that an operand or a result has. */
typedef struct ShardDim {
  Name name; /* name in operands; of a dim that only results have, there */
  Name result_name; /* NULL means that no result has it */
  ShardTreatment treatment;
  int64_t even_size; /* 0, or the number of shards must divide it */
} ShardDim;

#define MAX_SHARD_DIMS (8 * MAX_RANK)

typedef struct ShardRule {
  const ShardCall *call;
  int n;
  ShardDim dims[MAX_SHARD_DIMS];
} ShardRule;

/* Reads the row of ops.def; the call must outlive the rule. */
void shard_rule(const ShardCall *call, ShardRule *out);
/* Returns the index of the iteration dim of a dim of an operand or of a
 * result.  Returns -1 if it has none. */
int shard_rule_input(const ShardRule *rule, Name dim);
int shard_rule_result(const ShardRule *rule, Name dim);
const Attr *shard_call_attr(const ShardCall *call, AttrKey key);
bool shard_is_reduction(ShardTreatment treatment);
/* Returns the linearity of the call.  The attribute `reduce` says that a cast
 * rounds the parts of a sum, and that a pad or select fills zeros into them, so
 * that they are linear. */
Linearity shard_linearity(const ShardCall *call);

#endif
