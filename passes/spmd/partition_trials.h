/*
 * partition_trials.h -- declares runs of the pass `partition` with some pins
 * left out or followed in another way, what they note, and what their graphs
 * cost.
 */
#ifndef PASSES_SPMD_PARTITION_TRIALS_H
#define PASSES_SPMD_PARTITION_TRIALS_H

#include "passes/passes.h"

/* A constraint as a run of the pass followed it. */
typedef struct ConstraintNote {
  const Node *node;        /* node of the old graph */
  const Type *have, *want; /* types of its operand and of its result */
} ConstraintNote;

/* A value as a run of the pass brought it from one placement to another, by
 * the table of ir/place/reshard.h. */
typedef struct ReshardNote {
  const Type *from, *to;
  DType reduced; /* the dtype in which a sum is sent */
} ReshardNote;

/* The settings and results of one trial of partition: how it treats the
 * constraints of the graph, and its notes of them and of the placements that it
 * chose. */
typedef struct PartitionTrial {
  bool completes; /* values around them get the placements that they imply */
  /* Notes of a run that did not complete, or NULL: pins that did nothing there
   * imply nothing for values around them. */
  const Map *before;
  bool is_changed; /* result: completing changed a placement */
  Span left_out;   /* the pin written here is not followed, or SPAN_NONE: */
  /* path -> Type that its values have in place of it; NULL means that they stay
   * as they are computed. */
  const Map *instead;
  /* A map from each node with a constraint to its ConstraintNote, in the arena
   * of the module.  NULL means that nothing is noted. */
  Map *notes;
  VEC(ReshardNote) reshards; /* reshardings in the same arena, without slices */
} PartitionTrial;

/* The cost by which placements are compared: the bytes that a rank sends in a
 * training step. */
typedef struct PlacementCost {
  int64_t bytes;
  /* The part of `bytes` for the forward pass and for gradients of values. */
  int64_t value_bytes;
} PlacementCost;

/* ---- partition.c ---- */

/* Returns the graph that `partition` makes, without a warning of costly
 * pins.  The trial, empty before, says how it treated constraints. */
const Graph *partition_decide(PassContext *ctx, const Graph *graph,
                              PartitionTrial *trial);

/* ---- partition_trials.c ---- */

/* Returns the cost of a partitioned graph, before or after `remat`. */
PlacementCost placement_cost(const PassContext *ctx, const Graph *placed,
                             bool with_remat);
/* Returns the graph in the placements of the trial.  Reports nothing;
 * `out_is_quiet` says that there was nothing to report.  Returns NULL if the
 * placements are not possible. */
const Graph *partition_quietly(const PassContext *ctx, const Graph *graph,
                               PartitionTrial *trial, bool *out_is_quiet);
/* Finds the cost of the graph in the placements of the trial, which gets its
 * notes.  Reports nothing.  Returns false if the placements are not possible.
 */
bool try_placement(const PassContext *ctx, const Graph *graph,
                   PartitionTrial *trial, bool with_remat,
                   PlacementCost *out_cost);

/* Decides whether values are completed, with the constraints as the trial has
 * them: sets `completes`.  The partitioned graph, where it is known then and
 * there was nothing to report, and the trial has its notes; else NULL. */
const Graph *choose_completion(const PassContext *ctx, const Graph *graph,
                               PartitionTrial *trial);

/* ---- costly_pins.c ---- */

/* Warns of each pin of values that another one of them would save bytes.
 * `placed`: the partitioned graph, which `trial` made. */
void warn_of_costly_pins(PassContext *ctx, const Graph *graph,
                         const Graph *placed, const PartitionTrial *trial);

#endif
