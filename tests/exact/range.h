/*
 * range.h -- finds the values of a graph that are computed without rounding.
 */
#ifndef TESTS_EXACT_RANGE_H
#define TESTS_EXACT_RANGE_H

#include "ir/ir.h"

/* A bound of all elements x of a value: |x| <= bound.  If is_exact, each x is
 * an integer multiple of 2^unit, and so is every partial sum on the way to it,
 * none of them rounded. */
typedef struct Range {
  bool is_exact;
  int unit;
  double bound;
} Range;

/* [node][result], given the ranges of graph->inputs. */
Range **range_analyse(Arena *arena, const Graph *graph, const Range *inputs);

#endif
