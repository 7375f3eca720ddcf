/*
 * factor_graph.h -- declares a problem that shrinks: variables lose values and
 * go, and what went can be found again from the values of those that are left.
 */
#ifndef PLANNER_FACTOR_FACTOR_GRAPH_H
#define PLANNER_FACTOR_FACTOR_GRAPH_H

#include "planner/factor/internal.h"

typedef struct Edge {
  int of[2];
  FactorCost *costs; /* [values of of[0]][values of of[1]] */
  bool is_gone;
} Edge;

/* Usages of the values of a variable in the rows from begin to end - 1. */
typedef struct Piece {
  int begin, end;
  int64_t *usages;
} Piece;

typedef VEC(Piece) Pieces;

typedef struct Variable {
  int n;       /* values; 0: the variable is gone */
  int *labels; /* of each value, its number in the problem */
  FactorCost *costs;
  VEC(int) edges; /* none that is gone */
  Pieces pieces;
  bool is_merged;  /* its pieces are as rows_merge leaves them */
  bool is_waiting; /* in the queue of the reductions */
} Variable;

/* How a variable that is gone follows from at most two others, by their labels
 * when it went. */
typedef struct Step {
  int variable, n_others;
  int others[2], n[2];
  int *labels[2];
  int *choice; /* [n[0]][n[1]], labels */
} Step;

typedef struct FactorGraph {
  Arena *arena;
  int n_variables;
  Variable *variables;
  VEC(Edge) edges;
  int n_rows;  /* times at which usages may be largest */
  Wide *fixed; /* usages that no choice changes: by row, how much more there
                  is than in the one before */
  int64_t limit;
  FactorCost constant;
  FactorCost cap; /* costs above the least of their table count as this one at
                     most; COST_NEVER: sums are small enough */
  Wide outside;   /* with a cap: the least costs of all tables */
  VEC(Step) steps;
  bool is_noted;         /* `notes` are wanted */
  bool is_rough;         /* no pair is taken for a sum of two functions */
  VEC(FactorStep) notes; /* how it shrank, for duals */
  int64_t *times;        /* of rows */
  bool has_none;         /* proved: no values are allowed */
} FactorGraph;

/* ---- factor_graph.c ---- */

/* Makes the graph of a problem, one edge for each pair of variables. */
FactorGraph *factor_graph_create(Arena *arena, const FactorProblem *problem);
/* Removes the values of forbidden cost, with what they take of rows. */
void factor_graph_remove_forbidden(FactorGraph *g);
int factor_graph_other(const Edge *edge, int variable);
/* Returns a pair's cost by the value of `variable` and that of the other. */
FactorCost *factor_graph_at(const FactorGraph *g, const Edge *edge,
                            int variable, int value, int other_value);
/* Adds costs [values of a][values of b], which become the graph's. */
void factor_graph_add_edge(FactorGraph *g, int a, int b, FactorCost *costs);
void factor_graph_remove_edge(FactorGraph *g, int edge);
/* Notes why it shrinks. `value` is one that the variable has now, or -1. */
void factor_graph_note(FactorGraph *g, FactorStepKind kind, int variable,
                       int value, int other, int64_t time);
/* Removes the values that are not kept. */
void factor_graph_keep(FactorGraph *g, int variable, const bool *keep);
/* Removes a variable without edges and pieces, whose value the step gives. */
void factor_graph_remove(FactorGraph *g, int variable, Step step);
/* Finds the labels of variables that are gone. */
void factor_graph_restore(const FactorGraph *g, int *labels);

/* ---- rows.c ---- */

/* Finds the rows of a problem and gives its usages to the variables. */
void rows_create(FactorGraph *g, const FactorProblem *problem);
/* Makes the pieces of a variable disjoint, with a least usage of 0, none equal
 * to the one before it; what all values take becomes `fixed`. */
void rows_merge(FactorGraph *g, int variable);
/* Marks values that no memory is left for and removes pieces in rows that
 * cannot exceed the limit.  Returns the number of changed variables. */
int rows_reduce(FactorGraph *g, bool *is_changed);

/* ---- reduce.c ---- */

/* Reduces until nothing changes.  `without` are parts. */
void factor_graph_reduce(FactorGraph *g, const bool *without);

#endif
