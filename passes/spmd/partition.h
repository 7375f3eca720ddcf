/*
 * partition.h -- declares the state of the pass `partition` and the parts of
 * its walk: nodes, the operators that they need, scans, and what readers share.
 */
#ifndef PASSES_SPMD_PARTITION_H
#define PASSES_SPMD_PARTITION_H

#include "ir/place/reshard.h"
#include "passes/rewrite.h"
#include "passes/spmd/partition_trials.h"
#include "passes/stages/stages.h"

/* The placement that ZeRO gives a parameter. */
typedef struct ZeroShard ZeroShard;

/* The strategies of operators so far. */
typedef struct StrategyMemo StrategyMemo;

typedef struct Partition {
  Rewrite rewrite;
  PassContext *ctx;
  const Plan *plan;
  const Mesh *mesh;
  Resharding *table; /* the table of the steps that can be appended */
  /* Value of the new graph -> node of its reduced value, plus 1. */
  Map *reduced;
  Map *resharded;  /* text of a value and a placement -> node, plus 1 */
  Map *zero;       /* path of a parameter -> ZeroShard */
  Map *parameters; /* path -> Type with its placement */
  Map *warned;     /* name and size of a dim with padding */
  StrategyMemo *strategies;
  Map *by_heads; /* result of attention -> node that made it by heads, plus 1 */
  bool has_heads; /* some attention is computed by heads */
  /* By node of the old graph: readers[first_reader[id] .. first_reader[id + 1])
   * are the nodes that read its results. */
  int *first_reader, *readers;
  bool is_body;    /* of a scan */
  bool *is_pinned; /* by node of the old graph: its pins are followed */
  /* By pin of a cast: the partial sum that was reduced for it before the cast,
   * or NULL. */
  const Type **summed;
  GraphPins pins; /* of the old graph; they are no readers */
  /* Path of the parameter that each input of a scan's body shows, or NULL; NULL
   * means that the graph is no body. */
  const Name *shown;
  /* Axes by node of the old graph and by dim of its result.  NULL means that
   * nothing is completed, or that the node has none. */
  AxisList **targets;
  PartitionTrial *trial;
} Partition;

/* ---- place_nodes.c ---- */

/* Returns the graph of a rank.  The plan must have ranks or micro-batches. What
 * cannot be is reported, and the result is then the graph as it was. */
Graph *partition_graph(PassContext *ctx, const Graph *graph,
                       PartitionTrial *trial);

/* Places node `id` of the old graph: reshards its operands, appends it with the
 * placements that follow, and records its results. */
void place_node(Partition *p, int id);

/* ---- place_call.c ---- */

/* Appends an operator that takes part in node `id`, with its operands resharded
 * as its rule wants them.  `logical`: its result types. */
Value place_call(Partition *p, int id, Op op, const Attrs *attrs,
                 const Value *inputs, int n_inputs, const Type *const *logical,
                 int n_results);

/* Appends a node whose operands are as the rule wants them already; `results`
 * are the types that follow. */
Value append_placed(Partition *p, int id, Op op, const Attrs *attrs,
                    Value *inputs, int n_inputs, const Type *const *logical,
                    const Type *const *results, int n_results);

/* Places a call of an operator with one result, whose logical type is inferred.
 */
Value place_inferred(Partition *p, int id, Op op, const Value *inputs,
                     int n_inputs, const Attrs *attrs);

/* Reshards the operands of node `id` so that the axes that its attribute lists,
 * and no others, shard its dim; padding becomes zeros.  Partial sums over other
 * axes stay as they are. */
void place_on_axes(Partition *p, int id, Value *inputs);

/* ---- place_terms.c ---- */

/* Returns whether the node works on the terms of partial sums. */
bool works_on_terms(const Node *node);
/* Returns the placement of an input that such a node reads: that of the sum to
 * which it is added, or none.  Returns NULL for other inputs. */
const Type *place_term_input(Partition *p, int id);
/* Brings the operands of such a node into the placement of the sum. */
void settle_terms(Partition *p, int id, Value *inputs);

/* ---- completion.c ---- */

/* Finds the placements that constraints imply for the values around them. */
void find_targets(Partition *p);
/* Returns the value of node `id`, sharded along the dims that only its target
 * shards. */
Value place_by_target(Partition *p, int id, Value value);

/* ---- partition_scan.c ---- */

/* Places the body like a graph and iterates the carry shardings to a fixed
 * point.  Partial values that an iteration reads are reduced in the body;
 * values that are only stacked or added up are reduced after the loop. */
void place_scan(Partition *p, int id);

/* ---- scan_hoist.c ---- */

/* Returns the body of a scan, which `inner` has placed, without collectives
 * that are the same in all iterations.  These are appended to the new graph,
 * but for those of parameters that a line `remat` names.  `inputs` are the
 * operands of the scan, replaced by those of the new body. */
Graph *hoist_collectives(Partition *p, const Partition *inner, Graph *body,
                         Value **inputs);

/* ---- full_batch.c ---- */

/* Returns the graph, or one in which sums over micro-batches that follow from
 * data alone are computed before the micro-batches that read them. */
Graph *sum_over_full_batch(PassContext *ctx, Graph *graph);
/* Makes nodes run once per micro-batch that need not, because their value is
 * the same for all micro-batches: those that depend on a node that runs so, and
 * on which another one that runs so depends.  Returns the new graph, or `graph`
 * if it has no such nodes. */
Graph *repeat_between_microbatches(PassContext *ctx, Graph *graph);
/* Gives these nodes the attribute `per_microbatch`. */
Graph *repeat_nodes(PassContext *ctx, const Graph *graph, bool *is_repeated);

/* ---- stage_microbatches.c ---- */

/* Reports what would run for each micro-batch of a stage but waits for a value
 * that another stage sends after all of them. */
void check_stage(const PassContext *ctx, const Graph *placed);

/* ---- partial_values.c ---- */

/* Finds pins and readers of the old graph. */
void index_readers(Partition *p);
/* Reduces and scatters a partial value for all its readers if one of them, not
 * only node `id`, has an operand that is sharded over its axes. */
void settle_partial(Partition *p, Value old, int id);
/* Makes a broadcast term of a partial sum a partial sum as well; what moves a
 * sum that is reduced already moves the reduced one. */
void keep_partial(Partition *p, int id, Value *inputs);

#endif
