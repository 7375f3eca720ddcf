/*
 * core.h -- declares what is left of a problem after the reductions, in flat
 * arrays, and the states of those who work on it.
 */
#ifndef PLANNER_FACTOR_CORE_H
#define PLANNER_FACTOR_CORE_H

#include "planner/factor/factor_graph.h"

typedef struct CoreEdge {
  int of[2];               /* of[0] < of[1] */
  int n[2];                /* values */
  int at[2];               /* where the messages to either end begin */
  const FactorCost *costs; /* [n[0]][n[1]] */
} CoreEdge;

/* Usages above the least one, in the rows from begin to end - 1. */
typedef struct CorePiece {
  int begin, end;
  const int64_t *usages;
} CorePiece;

/* A list of each variable: items[begins[i]] to items[begins[i + 1] - 1]. */
typedef struct Core {
  Arena *arena;
  int n_variables, n_edges, n_rows, n_values, n_pieces;
  int n_messages;
  int *rows;         /* their numbers in the graph */
  int *variables;    /* the same */
  int *n;            /* values of each */
  int *first;        /* its first value among all */
  FactorCost *costs; /* of all values */
  CoreEdge *edges;
  int *edge_begins, *edge_lists; /* by variable, neighbours in order */
  CorePiece *pieces;
  int *piece_begins;
  int64_t *room; /* by row: what is left above the least usages */
  FactorCost constant;
  int64_t entries; /* of all tables: the work of half a sweep */
} Core;

Core *core_create(Arena *arena, const FactorGraph *g);
/* Returns the cost of values, COST_NEVER if one is forbidden. */
FactorCost core_cost(const Core *core, const int *values);
/* Computes what the values take above the least, by row. */
void core_usages(const Core *core, const int *values, int64_t *out);

#endif
