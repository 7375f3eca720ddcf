/*
 * figures.h -- declares the figures that ir/work.h should give for a node, from
 * counts (count.h) and the rules of rules.def.
 */
#ifndef TESTS_COUNT_FIGURES_H
#define TESTS_COUNT_FIGURES_H

#include "ir/work.h"
#include "tests/count/count.h"

typedef struct Figures {
  double flops;
  int64_t read, written; /* bytes */
} Figures;

/* A node of a graph with placements, on the first rank and micro-batch. */
typedef struct CountedNode {
  const Graph *graph; /* the given one */
  int id;
  const Graph *local; /* of the sizes that are counted */
  const Node *node;   /* there */
  MeshPlace place;
  Tensor *inputs; /* made up; integers are small */
  const Type **result_types;
  Arena *arena;
  Count count;
  Figures figures;
} CountedNode;

CountedNode count_placed_node(const Graph *graph, int id, Arena *arena);
/* Says what is wrong with the work of the node, or gives NULL: class and dtype
 * are not looked at. */
const char *count_difference(const CountedNode *counted, const Work *work);

#endif
