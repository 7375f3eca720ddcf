/*
 * eliminate.h -- declares the exact solution of small problems: variables are
 * eliminated one after the other, over tables of several variables.
 */
#ifndef PLANNER_FACTOR_ELIMINATE_H
#define PLANNER_FACTOR_ELIMINATE_H

#include "planner/factor/internal.h"

/* A forbidden cost where all must stay comparable: no labelling should have
 * one, but fewer of them are better. */
#define COST_AVOID ((FactorCost)1 << 48)

enum { MOST_SCOPE = 8 }; /* variables of a table */

typedef struct Table {
  int n, scope[MOST_SCOPE];
  int64_t strides[MOST_SCOPE];
  const FactorCost *cells;
  bool is_gone, may_forbid; /* may_forbid: it holds COST_NEVER */
} Table;

typedef VEC(int) Numbers;

typedef struct Elimination {
  Arena *arena;
  int n;            /* variables */
  const int *sizes; /* values of each */
  FactorCost **costs;
  int *held; /* the value of a variable that is too wide to go */
  VEC(Table) tables;
  Numbers *lists; /* tables of each variable */
  int64_t most;   /* operations for one variable */
  int64_t work;   /* operations so far */
  int n_held;
  /* Chooses a value by what each costs. */
  int (*choose)(void *user, int variable, const FactorCost *costs);
  void *user;
} Elimination;

Elimination *elimination_create(Arena *arena, int n, const int *sizes);
void elimination_add(Elimination *e, int a, int b, int64_t stride_a,
                     int64_t stride_b, const FactorCost *costs);
/* Chooses all values: the last variable that was eliminated first. */
void elimination_solve(Elimination *e, int *out_values);

#endif
