/*
 * node_times.h -- declares what the nodes of a simulated step take, for
 * searches that have no formulas of them, as of nets with loops.
 */
#ifndef PLANNER_TIMED_NODE_TIMES_H
#define PLANNER_TIMED_NODE_TIMES_H

#include "ir/graph.h"
#include "price/simulate.h"

/* The launches of the nodes of a path in one pass; all iterations of a scan
 * count for its path. */
typedef struct PathTime {
  const char *path; /* "lstm[0].y", in each phase */
  Phase phase;
  Ps time; /* of a micro-batch, with what is between launches; an update: of a
              step */
} PathTime;

/* A forward value that the backward pass reads, of the whole batch. */
typedef struct SavedValue {
  const char *path;
  Bytes bytes;
} SavedValue;

typedef struct NodeTimes {
  VEC(PathTime) times; /* in the order of the program */
  VEC(SavedValue) saved;
  Bytes persistent, peak;
} NodeTimes;

#endif
