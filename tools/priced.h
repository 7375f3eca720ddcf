/*
 * priced.h -- declares a compiled model with the price of its step on a
 * cluster, which simulate, show and diff print.
 */
#ifndef TOOLS_PRICED_H
#define TOOLS_PRICED_H

#include "passes/plan/price.h"
#include "tools/tools.h"

/* An interval of a stream: a launch, what is between two launches, or a wait.
 * Those of a class follow each other without a gap, so they add up to a step.
 */
typedef struct StreamSpan {
  int instruction; /* of the list; a wait: the start of what ends it */
  CostTerm part;
  bool is_wait;
  Ps begin, end;
  Ps taken; /* of it, by transfers: counted as interference */
} StreamSpan;

/* A transfer while it is the first in its queue. */
typedef struct QueueSpan {
  int instruction, queue;
  Ps begin, end;
} QueueSpan;

typedef struct PricedClass {
  VEC(StreamSpan) stream;
  VEC(QueueSpan) queues; /* in the order of their ends */
} PricedClass;

/* The node of an instruction, and the one of the entry point that it belongs
 * to: inside the loop of a scan that is the scan. */
typedef struct PricedNode {
  const Graph *graph; /* NULL: the instruction has no node */
  const Node *node;
  int id, outer;
} PricedNode;

typedef struct Priced {
  Compilation c;          /* `step` lies in it: a Priced is not copied */
  const Cluster *cluster; /* after --what-if */
  CostModel model;
  const EntryPoint *step; /* of training */
  Bytes peak;             /* the arena of a rank */
  Bytes pinned;           /* what the plan allows; 0: nothing is said */
  Bytes memory;           /* of the least device, or less if the plan says so */
  Price price;
  /* With spans only: */
  PricedNode *nodes; /* by instruction */
  int n_classes;     /* of ranks, as in the price */
  PricedClass *classes;
} Priced;

/* Compiles what the options name and prices its training step, with spans if
 * they are wanted.  Returns an exit code; mistakes are printed. */
int tool_price(Tool *tool, bool wants_spans, Priced *out);

/* The class that takes as long as the step; NULL without spans. */
const PricedClass *priced_slowest(const Priced *p);
/* The path of the value that a node belongs to: "grad." and "optimizer." are
 * what its phase says. */
const char *priced_path(const Node *node);
Ps priced_length(const StreamSpan *span);
/* The devices of the ranks: "a100_80g", or "a100_80g, v100_16g". */
const char *priced_devices(Arena *arena, const Priced *p);
/* "bulk", or "bulk of data" where queues are those of a group. */
const char *priced_queue_name(Arena *arena, const Priced *p, int queue);

/* ---- simulate_model.c ---- */

/* The step by term and whether it fits: words, or fields of an object. */
void priced_print(Text *out, const Priced *priced);
void priced_print_json(Text *out, const Priced *priced);
/* How much of the price --profile has given; nothing without one. */
void priced_print_profile(Text *out, const Priced *priced);
void priced_print_profile_json(Text *out, const Priced *priced);

/* ---- what_if.c ---- */

/* A copy of the cluster with the changes of --what-if.  NULL after a mistake,
 * which is printed. */
const Cluster *what_if(Tool *tool, const Cluster *cluster);

/* ---- trace_steps.c ---- */

/* The spans as a timeline, into a file. */
Status trace_step(Arena *arena, const Priced *priced, const char *path);

#endif
