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
  int producer, last_forward; /* last_forward: of its readers */
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
  int *first_value;     /* number of the first result, by node */
  uint8_t *segment;     /* by node */
  bool *is_swapped;     /* by value */
  bool *is_on_host;     /* by input */
  int *in_of;           /* by value and window: swap in, plus 1 */
  VEC(OffloadOut) outs; /* by producer */
  VEC(OffloadIn) ins;   /* by reader */
  Map *used;            /* lines of the plan that have an effect */
} Offload;

/* ---- offload.c ---- */

/* Returns the value whose bytes a view shows. */
Value offload_root(const Graph *graph, Value value);
/* Decides what is swapped, and when. */
Offload offload_decide(PassContext *ctx, const Graph *graph);
/* Returns the index of the swap in that a node reads in place of a root value,
 * or -1. */
int offload_find_in(const Offload *o, Value root, int reader);

/* Warns about lines of the plan that have no effect. */
void offload_report(const Offload *o);

#endif
