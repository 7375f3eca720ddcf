/*
 * duals_graph.h -- declares the problem of the engine while the steps of its
 * duals are made again.  Values keep their numbers; tables keep their sizes.
 */
#ifndef PLANNER_RECHECK_DUALS_GRAPH_H
#define PLANNER_RECHECK_DUALS_GRAPH_H

#include "planner/recheck/duals.h"

__extension__ typedef __int128 Int128;

/* A cost that forbids. */
#define NO_COST INT64_MAX

typedef struct DualTable {
  int of[2];
  FactorCost *costs; /* [values of of[0]][values of of[1]] */
  bool is_gone;
} DualTable;

/* Usages of the values of a variable in the rows from begin to end - 1. */
typedef struct DualPiece {
  int begin, end;
  Int128 *usages;
  Int128 least,
      most; /* of values that are left, when rows were added up last */
} DualPiece;

typedef VEC(DualPiece) DualPieces;

typedef struct DualVariable {
  int n, n_left;
  bool *is_left;
  FactorCost *costs;
  VEC(int) tables; /* some may be gone */
  DualPieces pieces;
  bool is_disjoint, is_counted; /* of pieces: none overlap; `least` and `most`
                                   are there */
  bool is_gone;                 /* eliminated: its pieces still count */
} DualVariable;

typedef struct DualGraph {
  Arena *arena;
  int n;
  DualVariable *variables;
  VEC(DualTable) tables;
  int n_rows;
  int64_t *times; /* of rows */
  Int128 *least;  /* by row: the sum of least usages */
  int *n_short;   /* rows before this one that may be short */
  Int128 limit;
  FactorCost constant;
  bool has_none; /* proved: there are no values */
} DualGraph;

/* ---- duals_graph.c ---- */

/* Returns NULL if sums do not fit. */
DualGraph *dual_graph_create(Arena *arena, const FactorProblem *problem);
FactorCost dual_plus(FactorCost a, FactorCost b);
/* Returns the table of two variables, NULL if there is none. */
DualTable *dual_graph_find(const DualGraph *g, int a, int b);
/* Returns a cost by the values of `a`, which is one of the two, and the other.
 */
FactorCost *dual_cell(const DualGraph *g, const DualTable *table, int a,
                      int value, int other_value);
/* Adds a cost to the table of two variables, which is made if need be. */
DualTable *dual_graph_table(DualGraph *g, int a, int b);
/* Removes a value of a variable. */
void dual_graph_remove(DualGraph *g, int variable, int value);

/* ---- duals_rows.c ---- */

void dual_rows_create(DualGraph *g, const FactorProblem *problem);
/* Makes pieces of a variable disjoint. */
void dual_rows_split(DualGraph *g, int variable);
/* Adds up usages. */
void dual_rows_add_up(DualGraph *g);
/* Returns the row of a time, -1 if there is none. */
int dual_rows_find(const DualGraph *g, int64_t time);

/* ---- duals_steps.c ---- */

/* Makes a step again.  Returns what is wrong with it, or NULL. */
const char *dual_step(DualGraph *g, const FactorStep *step);

#endif
