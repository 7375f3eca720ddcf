/*
 * low_rank.h -- declares the compression of gradients to products of low rank
 * (`compress = power(rank = r)` of a plan): PowerSGD, Vogels et al. 2019,
 * algorithms 1 and 2, with error feedback and warm start.
 *
 * With g the gradient of a matrix, n_in x n_out, as a sum of one term a rank:
 *
 *     m = g + e            e: the error of the steps before, f32, at first 0
 *     p = m q              q: n_out x r, from the step before, at first random
 *     u = p with orthonormal columns
 *     q' = m^T u           kept for the next step
 *     g' = u q'^T          what the update gets in place of g
 *     e' = m - g'
 *
 * All but u is linear, so each rank has a term of g, m and e, and ranks add up
 * p and q' alone: (n_in + n_out) r elements in place of n_in n_out.  The terms
 * of e add up to the error: that of a rank is m - u q'^T of its own m and q'.
 */
#ifndef PASSES_TRAIN_LOW_RANK_H
#define PASSES_TRAIN_LOW_RANK_H

#include "passes/passes.h"

typedef struct LowRank {
  bool is_used;
  Value gradient;      /* g' */
  Value error, factor; /* e and q, inputs of the graph */
  Name error_path, factor_path;
  Value next_error, next_factor;
} LowRank;

/* Returns whether the plan asks for it. */
bool low_rank_is_asked(const PassContext *ctx);
/* Reports what it cannot stand beside yet. */
void low_rank_check(const PassContext *ctx);
/* Appends the compression of the gradient `g`, f32 and without loss scale, of a
 * parameter, for a plan that asks for it.  `is_used` stays false where the
 * factors would have as many elements as the gradient. */
LowRank low_rank_gradient(PassContext *ctx, Graph *graph,
                          const GraphInput *param, Value g);
/* Returns `value` where `ok` holds, `old` elsewhere, of two partial sums. */
Value low_rank_select(Graph *graph, Value ok, Value value, Value old);

#endif
