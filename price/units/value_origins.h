/*
 * value_origins.h -- declares what each value of a graph is made of, inside of
 * kernels too.
 */
#ifndef PRICE_UNITS_VALUE_ORIGINS_H
#define PRICE_UNITS_VALUE_ORIGINS_H

#include "ir/graph.h"

typedef struct ValueOrigins {
  Arena *arena;
  const Graph *graph;
  unsigned phases;             /* a bit for each of which values are followed */
  int n, n_words;              /* values; words of a set of them */
  const int *first;            /* by node: its first value */
  uint64_t *before;            /* by value: those of the phases it is made of */
  bool *has_params, *has_data; /* by value: what it is made of */
} ValueOrigins;

const ValueOrigins *value_origins(Arena *arena, const Graph *graph,
                                  unsigned phases);

/* Returns the number of a value, and the set of those that one is made of. */
int origins_index(const ValueOrigins *o, Value value);
const uint64_t *origins_set(const ValueOrigins *o, int value);
bool origins_has(const uint64_t *set, int at);
/* Returns whether result `r` of a node is made of operand `input` by more than
 * what has the path `without`; NULL: by anything. */
bool origins_read(const ValueOrigins *o, int id, int r, int input,
                  Name without);
/* Returns the number of the graph input that a node stands for. */
int origins_input(const Node *node);

#endif
