/*
 * pipedream_profile.h -- declares the reader of PipeDream's profiles
 * (graph.txt): a line for each layer with its times and bytes, then a line for
 * each edge.
 */
#ifndef BENCHMARKS_PIPEDREAM_PROFILE_H
#define BENCHMARKS_PIPEDREAM_PROFILE_H

#include "planner/cuts/cuts.h"
#include "support/support.h"

typedef struct Profile {
  CutGraph graph;
  const char *const *ids;   /* by node of the graph: node24 */
  const char *const *names; /* "Conv2d(3, 64, ...)" */
  int n_dropped; /* inputs, and parts of a result that nobody reads */
} Profile;

/* Reads a profile.  Nodes are in topological order, of those that may come next
 * the one with the lowest number, so the order of lines has no influence.
 * Sources that are inputs, and unread __getitem__ nodes, are dropped.  Returns
 * false after a message with file and line. */
bool profile_read(Arena *arena, const char *path, Profile *out);

#endif
