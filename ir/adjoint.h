/*
 * adjoint.h -- declares one walk of reverse-mode differentiation.
 */
#ifndef IR_ADJOINT_H
#define IR_ADJOINT_H

#include "ir/graph.h"

typedef struct Adjoint {
  Graph *graph;
  int n_forward;   /* nodes of the graph when the walk began */
  bool *is_wanted; /* [n_forward]: set for inputs, then adjoint_spread */
  int *first;      /* [n_forward]: number of the node's first result */
  /* Cotangents by first[node] + result; VALUE_NONE means none. */
  Value *cotangents;
  GraphPins pins; /* of the forward nodes */
  Map *pinned;    /* a cotangent -> id of its pin */
} Adjoint;

Adjoint adjoint_begin(Arena *scratch, Graph *graph);
/* Marks every node that depends on a wanted one as wanted. */
void adjoint_spread(Adjoint *adjoint);
Value adjoint_get(const Adjoint *adjoint, Value value);
void adjoint_add(Adjoint *adjoint, Value value, Value cotangent);
/* Sets the phase input_gradient, the span and stage of node `id` and the path
 * "grad.PATH". */
void adjoint_set_place(Adjoint *adjoint, int id);
/* Walks the forward nodes backwards, with cotangents set for the values that
 * are to be differentiated. */
void adjoint_walk(Adjoint *adjoint, Arena *scratch);

#endif
