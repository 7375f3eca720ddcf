/*
 * instructions.h -- declares the straight list of what a rank executes, in
 * order: launches, starts of collectives, waits, and loops.
 *
 * The list is made of an ordered graph, and it alone says when anything
 * happens: codegen makes launches of it, and whoever prices or checks a program
 * reads the same list.  All ranks of a mesh execute one list.
 *
 * Text form (instructions_print, instructions_parse), one instruction a line.
 * %5 is the node whose first result has this number in the text of its graph:
 * inside the loop of a scan that is the body of the scan.
 *
 *     instructions train {
 *       queue 0 blocking
 *       run %3 dot "hidden.dot"
 *       start %4 all_reduce on 0 "hidden.dot"
 *       run %5 fused "grad.hidden"
 *       wait %4 all_reduce before %6 "hidden.relu"
 *       loop %6 scan 16 "hidden.relu"
 *         run %2 fused "hidden.relu"
 *       end
 *       loop microbatches 4
 *         start %9 all_gather on 0 "w"
 *         wait %9 all_gather at end "w"
 *       end
 *     }
 */
#ifndef IR_LIST_INSTRUCTIONS_H
#define IR_LIST_INSTRUCTIONS_H

#include "ir/target.h"

typedef enum InstructionKind {
#define INSTRUCTION(name, meaning) INSTRUCTION_##name,
#include "ir/list/instructions.def"
  N_INSTRUCTIONS
} InstructionKind;

typedef enum QueueKind {
#define QUEUE(name, meaning) QUEUE_##name,
#include "ir/list/instructions.def"
  N_QUEUE_KINDS
} QueueKind;

/* Runs its collectives or swaps one after the other, in the order of their
 * starts; different queues run at the same time. */
typedef struct InstructionQueue {
  QueueKind kind;
  /* Axes of its process group; empty means that it serves all groups. */
  AxisList axes;
} InstructionQueue;

/* Nodes are those of the list's graph; inside the loop of a scan, those of the
 * body of that scan. */
typedef struct Instruction {
  InstructionKind kind;
  /* The node that runs, starts or is cleared.  For a wait, the first reader, or
   * the collective itself, for which nobody has waited before the end.  For a
   * loop, the scan, or -1 for micro-batches.  For an end, -1. */
  int node;
  int collective; /* wait: what has to end, a swap perhaps; else -1 */
  int queue;      /* start, swap: index in `queues`; else -1 */
  int64_t trips;  /* loop: how often it runs, at least once */
} Instruction;

typedef struct InstructionList {
  const Graph *graph; /* graph of the entry point */
  VEC(Instruction) instructions;
  VEC(InstructionQueue) queues;
} InstructionList;

const char *instruction_name(InstructionKind kind);
const char *queue_name(QueueKind kind);

/* ---- instructions.c ---- */

/* Returns the list of a graph after list_schedule; of `target` (or NULL) it
 * asks whether queues are those of a group.  A wait inside the loop of
 * micro-batches for a collective that was started before it belongs to the
 * first micro-batch: later ones find it ended. */
InstructionList *instructions_of(Arena *arena, const Graph *ordered,
                                 const Target *target);
/* Nodes whose instructions stand side by side: a segment of ir/program.h. */
typedef struct ListSegment {
  int first_node, end_node;
  bool is_of_microbatch;
  int begin, end; /* of the list, without brackets */
} ListSegment;
/* Values that are set to zero before the first segment of a micro-batch. */
typedef enum ListClears {
  CLEARS_sums,   /* what micro-batches add up */
  CLEARS_joined, /* likewise what they leave side by side: a rank runs some */
  CLEARS_left    /* all that they leave for the segments after them */
} ListClears;
/* Returns the list of the graph of a stage of several, and writes the places of
 * its segments, which are all nodes.  Each that is of a micro-batch is a loop.
 * A segment waits for the collectives whose results it sends. */
InstructionList *instructions_of_segments(Arena *arena, const Graph *ordered,
                                          const Target *target,
                                          ListSegment *segments, int n,
                                          ListClears clears);
/* Returns whether a node makes an instruction; inputs and views do not. */
bool node_is_launched(const Graph *graph, int id);
/* Returns the queue of a swap, or of a collective: bulk for buckets of
 * gradients, which are read at the end of a step, blocking for all else. */
QueueKind collective_queue(const Node *node);
/* Returns the mesh axes that a collective names, in its order. */
AxisList collective_axes(const Mesh *mesh, const Node *node);
/* Returns the end of the loop at this place; the list is closed. */
int instructions_loop_end(const InstructionList *list, int loop);

/* ---- instructions_text.c ---- */

void instructions_print(Text *out, const InstructionList *list);
/* Reads what instructions_print wrote, for the same graph; mistakes become
 * diags.  NULL on error.  Whether the list may be executed is
 * instructions_check's question. */
InstructionList *instructions_parse(Module *module, const Graph *graph,
                                    const Source *source);

/* ---- instructions_check.c ---- */

/* Appends (unless NULL) a line for each violation; true if there is none:
 *   - loops are closed, and run as often as their scan, or as there are
 *     micro-batches;
 *   - each node that is launched stands there once, in the order of its graph,
 *     and inside the loop of micro-batches if it runs for each;
 *   - a collective has exactly one wait on every path: in its own loop, or, if
 *     it was started before the micro-batches, in theirs;
 *   - nothing reads the result of a collective before that wait;
 *   - what micro-batches add to is cleared before them. */
bool instructions_check(const InstructionList *list, Text *out_errors);

#endif
