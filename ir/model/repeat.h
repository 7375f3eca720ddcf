/*
 * repeat.h -- finds equal blocks that follow each other in a forward graph, and
 * shortens the run to its first block, one in the middle and its last.
 */
#ifndef IR_MODEL_REPEAT_H
#define IR_MODEL_REPEAT_H

#include "ir/plan/plan.h"

/* Blocks "NAME[first]" to "NAME[last]", of which all but the first and the last
 * are equal: node for node the same operators, attributes and types, reading
 * the same values of the same block, the one before, or what stands before the
 * run. */
typedef struct Repeat {
  Name name;
  int first, last;
} Repeat;

/* The runs of at least five blocks, in order, of each of which a plan (or NULL)
 * says the same and which are in one stage of it; returns how many.  `out` has
 * room for MOST_REPEATS. */
enum { MOST_REPEATS = 64 };
int graph_repeats(const Graph *graph, const Plan *plan, Repeat *out);
/* Returns the graph with `kept` blocks of a run, 3 or more: the first ones and
 * the last. */
Graph *graph_fold(const Graph *graph, const Repeat *repeat, int kept);
/* The index of the block that a path is in, "grad." and the like in front of it
 * or not; -1: none. */
int repeat_index(const Repeat *repeat, const char *path);

#endif
