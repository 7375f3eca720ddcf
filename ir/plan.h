/*
 * plan.h -- a Plan: a decision, data only.  Keyed by names and paths, never by
 * node numbers.  The planner makes one, `partition` acts on it.
 */
#ifndef IR_PLAN_H
#define IR_PLAN_H

#include "ir/ir.h"

/* `shard NAME over AXES`: every dim of this name in every tensor that has it.
 */
typedef struct PlanShard {
  Name dim;
  int n_axes;
  Name axes[MAX_AXES]; /* outermost first */
  Span span;
} PlanShard;

typedef struct Plan {
  Name name;
  Mesh mesh; /* rank axes, then "time" if microbatches > 1 */
  int ranks;
  int64_t microbatches; /* 1: no sequential axis */
  VEC(PlanShard) shards;
  int64_t bucket_bytes; /* gradients are reduced in buckets of this size */
  int zero;
} Plan;

/* The plan of plain data parallelism: the batch dim over an axis "data". */
Plan *plan_data_parallel(Module *module, Name model, Name batch_dim, int ranks,
                         int64_t microbatches);
/* Takes the sequential axis out (evaluation does the batch at once). */
void plan_drop_time(Plan *plan);
/* The text of section 11 of docs/language.md. */
void plan_print(Text *out, const Plan *plan);

#endif
