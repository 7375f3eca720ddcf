/*
 * messages.h -- declares the bound: costs that move between variables and edges
 * without changing any sum, and prices of memory.
 */
#ifndef PLANNER_FACTOR_MESSAGES_H
#define PLANNER_FACTOR_MESSAGES_H

#include "planner/factor/core.h"

/* A price of 2^PRICE_BITS is one unit of cost for each byte. */
enum { PRICE_BITS = 32 };

typedef struct Messages {
  const Core *core;
  bool *is_out;          /* by value: not allowed at present */
  bool *is_bad;          /* by value: has no allowed partner at present */
  FactorCost *theta;     /* by value: what is left of its cost */
  FactorCost *moved;     /* by end of an edge and value: added to the edge */
  FactorCost constant;   /* the bound without rent, after a sweep */
  bool is_local;         /* nothing is passed on: each variable bounds itself */
  bool has_none;         /* a variable has no value that is allowed */
  int64_t *prices;       /* by row, none negative */
  int64_t *sums;         /* of prices, before each row */
  FactorCost *paid;      /* by value: what theta has for prices */
  FactorCost rent;       /* of all room, rounded up */
  FactorCost *marginals; /* by value: a bound of all that has the value, from
                            the last sweep back */
  FactorCost *taken,
      *more; /* scratch: a number for each value of one variable */
} Messages;

Messages *messages_create(Arena *arena, const Core *core);
/* Makes them equal to others of the same core. */
void messages_copy(Messages *m, const Messages *from);
/* Sends messages once in the order of variables, and back. */
void messages_sweep(Messages *m);
/* Sends them in order, and reads values off: each is the best with those of
 * earlier variables. */
void messages_read(Messages *m, int *out_values);
/* Returns the bound that the last sweep or reading proved. */
FactorCost messages_bound(const Messages *m);
/* Takes prices that have changed into account. */
void messages_price(Messages *m);
/* Returns what a value pays at the prices that were taken into account. */
FactorCost messages_paid(const Messages *m, int variable, int value);

#endif
