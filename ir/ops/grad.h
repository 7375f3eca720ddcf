/*
 * grad.h -- declares the helpers that gradient and decomposition rules share.
 */
#ifndef IR_OPS_GRAD_H
#define IR_OPS_GRAD_H

#include "ir/ops/rules.h"

/* ---- grad_pointwise.c ---- */

/* Sums `value` over the dims that `type` lacks and casts it to its dtype:
 * the gradient of an operand that was broadcast. */
Value grad_sum_to(Graph *graph, Value value, const Type *type);
/* Returns the product of a and b, summed over every dim that `type` lacks. */
Value grad_dot_to(Graph *graph, Value a, Value b, const Type *type);
/* Repeats `value` along the dims of `type` that it lacks. */
Value grad_broadcast_to(Graph *graph, Value value, const Type *type);

/* ---- decompose_rows.c: spelled once, so that cse merges the values that the
 * forward and the gradient of a normalisation have in common ---- */

/* Returns the sum over `over` divided by the number of elements. */
Value rows_mean(Graph *graph, Value x, const Name *over, int n);
/* Computes x - mean and 1 / sqrt(var + eps) of layernorm. */
void rows_moments(Graph *graph, Value x, const Name *over, int n, double eps,
                  Value *out_centred, Value *out_rstd);
/* Returns 1 / sqrt(mean(x^2) + eps), the factor by which rmsnorm multiplies its
 * rows. */
Value rows_rrms(Graph *graph, Value x, const Name *over, int n, double eps);
/* Returns a maximum or minimum of x and a constant that replaces no regular x:
 * x is above (below) it, or is -inf (inf) or 0, or is away by rounding alone.
 */
Value rows_guard(Graph *graph, Op op, Value x, double bound);
/* softmax, and the maximum and sum of each row that it divides by (or NULL). */
void rows_softmax(Graph *graph, Value x, const Name *over, int n,
                  Value *out_softmax, Value *out_max, Value *out_sum);
/* The softmax of x, 0 in a row of -inf, as exp(x - max - log(sum)): of what the
 * forward pass of a logsumexp has, it reads x and two numbers of each row. */
Value rows_share(Graph *graph, Value x, const Name *over, int n);

#endif
