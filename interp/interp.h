/*
 * interp.h -- declares the interpreter: the slow reference that says what the
 * operators of a graph compute.
 */
#ifndef INTERP_INTERP_H
#define INTERP_INTERP_H

#include "ir/ir.h"

typedef enum InterpNumber { INTERP_f64, INTERP_f32, INTERP_exact } InterpNumber;

typedef struct ExactNumber ExactNumber; /* interp/exact.h */

/* A dense tensor without placement; floats as doubles (rounded to f32 after
 * every operation in INTERP_f32), integers and bools as their value.  Floats
 * of INTERP_exact are in `exact` instead; the other pointer is NULL. */
typedef struct Tensor {
  const Type *type;
  double *data;
  ExactNumber *exact;
} Tensor;

/* Runs a graph without placements: inputs in the order of graph->inputs; fills
 * out_outputs in the order of graph->outputs.  `values`, if not NULL, receives
 * the first result of every node.  Deterministic, single-threaded. */
void interp_run(const Graph *graph, InterpNumber number, Arena *arena,
                const Tensor *inputs, Tensor *out_outputs, Tensor *values);
/* Returns the initial value of a parameter, state or moment. */
Tensor interp_initial(const Graph *graph, int input_index, uint64_t seed,
                      Arena *arena);

#endif
