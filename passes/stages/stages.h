/*
 * stages.h -- declares the cut: one graph for each stage of a plan, and the
 * values that go from one to another.
 */
#ifndef PASSES_STAGES_H
#define PASSES_STAGES_H

#include "ir/program.h"
#include "passes/passes.h"

/* A value that one stage makes and another one reads: an output ROLE_send of
 * one graph and the input ROLE_receive of the other one, both with this path.
 * Later passes number nodes anew, so edges are found by role and path. */
typedef struct StageEdge {
  int from, to;    /* stages, counted from 0 */
  Name path;       /* of the value; no other edge of the cut has it */
  bool is_of_step; /* it has no batch dim: it is sent once a step, others once
                      for each micro-batch */
  bool is_after;   /* of the step: it follows from micro-batches, so it is sent
                      after all of them; others are sent before the first */
  /* Number of messages in the longest chain of messages of the step that ends
   * with this one, each of which follows from the one before.  Other edges have
   * 0. */
  int level;
} StageEdge;

/* Edges stand in the order in which the joint graph makes their values. */
typedef struct StageCut {
  VEC(Graph *) graphs; /* by stage */
  VEC(StageEdge) edges;
  bool
      splits_backward; /* the schedule calls input and weight gradients apart */
  bool has_versions;   /* of parameters: an update for each batch */
} StageCut;

/* ---- cut.c ---- */

/* Cuts a joint graph, in which nodes have their stage, into those of the stages
 * of the plan, which live in the module.  What cannot be cut is reported. */
StageCut stages_cut(PassContext *ctx, const Graph *joint);

/* ---- state_updates.c ---- */

/* Makes what computes the next states from the last ones, and what no pass
 * reads, a part of the update. */
void stage_states_update(Arena *scratch, Graph *graph);

/* ---- server_tables.c ---- */

/* Deals the parameters that a graph trains to the servers of the plan. */
ServerDeal servers_deal(const PassContext *ctx, const Graph *graph);

/* ---- servers.c ---- */

/* Training graphs of the workers and of each server. */
typedef struct ServerCut {
  Graph *worker; /* NULL: what cannot be cut was reported */
  VEC(Graph *) servers;
} ServerCut;

/* Cuts the training graph of a plan with servers, in which `partition` has made
 * the sums over the workers; graphs live in the module. */
ServerCut servers_cut(PassContext *ctx, const Graph *joint);

/* ---- edge_levels.c ---- */

/* Fills in `is_after` and `level` of the edges.  The batch dim may be NULL. */
void stages_find_levels(Arena *scratch, Name batch_dim, StageCut *cut);
/* Returns the edge of the value that this input receives.  Returns NULL for
 * other inputs, and where `cut` is NULL. */
const StageEdge *stage_edge_received(const StageCut *cut,
                                     const GraphInput *input);
/* Returns whether the node is the input of a value that another stage sends
 * after the micro-batches. */
bool stage_receives_late(const StageCut *cut, const Graph *graph, int id);
/* Returns the edge of the value that this output sends, or NULL likewise. */
const StageEdge *stage_edge_sent(const StageCut *cut,
                                 const GraphOutput *output);
/* Returns the edges as those of a program, without what its timeline fills in.
 */
ProgramEdges stage_program_edges(Arena *arena, const StageCut *cut);

/* ---- node_levels.c ---- */

/* Returns, by node and in `arena`, the greatest level of the messages of the
 * step that it follows from. */
int *stage_node_levels(Arena *arena, const StageCut *cut, const Graph *graph);
/* Returns the segment of a micro-batch of each node, as microbatch_kinds. */
TokenKind *stage_segment_kinds(Arena *arena, const StageCut *cut,
                               const Graph *graph);
/* Returns the segments of an ordered graph of the cut, as stage_segments. */
ProgramSegments stage_graph_segments(Arena *arena, const StageCut *cut,
                                     const Graph *ordered);
/* Returns numbers by node: passes join no nodes of different ones, because what
 * one makes may be sent before another stage can send what the other one needs.
 * Where `cut` is NULL all are 0. */
int *stage_node_parts(Arena *arena, const StageCut *cut, const Graph *graph);

#endif
