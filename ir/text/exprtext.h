/*
 * exprtext.h -- declares how formula texts of tables become nodes.
 */
#ifndef IR_TEXT_EXPRTEXT_H
#define IR_TEXT_EXPRTEXT_H

#include "ir/graph.h"

typedef struct ExprName {
  const char *name; /* NUL-terminated */
  Value value;
} ExprName;

/* Dims under one name: SUM(x, in) sums over those of them that x has. */
typedef struct ExprDims {
  const char *name;
  int n;
  Name dims[MAX_RANK];
} ExprDims;

/* Names that a formula may read; assignments add to them or replace. */
typedef struct ExprScope {
  Graph *graph;
  DType dtype; /* dtype of literals */
  int n, n_groups;
  ExprName names[32];
  ExprDims groups[2];
} ExprScope;

void expr_bind(ExprScope *scope, const char *name, Value value);
/* Binds a float literal to a name. */
void expr_bind_float(ExprScope *scope, const char *name, double value);
/* Returns the value of a name.  Returns VALUE_NONE if there is none. */
Value expr_find(const ExprScope *scope, const char *name);
/* Appends the nodes of `text`: an expression in the notation of ops.def, or
 * statements "m = b1 * m; w = w - m".  Numbers may stand without R(). SUM(x),
 * MEAN(x) and NORM(x) (root of the sum of squares) reduce all dims of x, or
 * those of the groups named after it; ORTH(x) is exprtext.c's.  Constants are
 * computed in double and rounded once.  Returns the last value; texts come from
 * our tables, so a mistake in one is asserted. */
Value expr_build(ExprScope *scope, const char *text);

#endif
