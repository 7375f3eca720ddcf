/*
 * offload.h -- declares the parts of the pass `offload`: what is in host
 * memory, when it is swapped, and the graph that says so.
 */
#ifndef PASSES_BUFFERS_OFFLOAD_H
#define PASSES_BUFFERS_OFFLOAD_H

#include "ir/list/instructions.h"
#include "passes/rewrite.h"

/* A value that is swapped to the host: a saved one, or what replaces an input
 * that persists there.  Nodes are those of the old graph. */
typedef struct OffloadOut {
  Value value;
  int64_t bytes;
  int producer;     /* a swap starts behind it: of what is received a reader */
  int last_forward; /* of its readers */
  int until;  /* it has ended before this node; n: at the end of the step */
  int output; /* index of the output, or -1: a saved value */
} OffloadOut;

/* A value that is swapped to the device for its readers of a window. */
typedef struct OffloadIn {
  Value value;
  int64_t bytes;
  int reader; /* the first */
  int at;     /* it starts before this node */
  int out;    /* the swap that it follows, or -1: the value is an input */
} OffloadIn;

typedef struct Offload {
  PassContext *ctx;
  const Graph *graph;
  int n, n_values;
  int *first_value;         /* number of the first result, by node */
  ProgramSegments segments; /* of a stage of several; else none */
  int *segment;             /* by node */
  bool *is_swapped;         /* by value */
  bool *is_on_host;         /* by input */
  int n_windows;            /* whose readers have a swap in of their own */
  int *in_of;               /* by value and window: swap in, plus 1 */
  VEC(OffloadOut) outs;     /* by producer */
  VEC(OffloadIn) ins;       /* by reader */
} Offload;

/* ---- offload.c ---- */

/* Returns whether the plan stores an input in host memory. */
bool offload_has_input(const PassContext *ctx, const GraphInput *input);
/* Returns the value whose bytes a view shows. */
Value offload_root(const Graph *graph, Value value);
/* Decides what is swapped, and when. */
Offload offload_decide(PassContext *ctx, const Graph *graph);
/* Returns the index of the swap in that a node reads in place of a root value,
 * or -1. */
int offload_find_in(const Offload *o, Value root, int reader);
/* Returns the phase of the nodes that bring a value for this reader. */
Phase offload_phase(const Offload *o, int reader);

#endif
