/*
 * tolerance.h -- how far a result may lie from the exact one, by dtype: the one
 * table that every numeric suite reads.  The distance is relative to the larger
 * of one and the value.
 *
 *   TOLERANCE(dtype, of one operator, of an operator that is decomposed)
 *
 * One operator computes in f32 and rounds once: half a unit in the last place
 * (2^-9 in bf16, 2^-12 in f16) and what the sum lost.  Where an operator is
 * written out in simpler ones, every step rounds.
 */
#ifndef TESTS_OPS_TOLERANCE_H
#define TESTS_OPS_TOLERANCE_H

#include <math.h>

#include "ir/ir.h"

#define TOLERANCES(TOLERANCE)                                                  \
  TOLERANCE(f64, 1e-10, 1e-10)                                                 \
  TOLERANCE(f32, 2e-5, 2e-5)                                                   \
  TOLERANCE(f16, 1e-3, 4e-3)                                                   \
  TOLERANCE(bf16, 6e-3, 3e-2)

static inline double tolerance(DType dtype) {
  switch (dtype) {
#define TOLERANCE(dtype, one, many)                                            \
  case DT_##dtype: return one;
    TOLERANCES(TOLERANCE)
#undef TOLERANCE
  default: return 0;
  }
}

static inline double tolerance_decomposed(DType dtype) {
  switch (dtype) {
#define TOLERANCE(dtype, one, many)                                            \
  case DT_##dtype: return many;
    TOLERANCES(TOLERANCE)
#undef TOLERANCE
  default: return 0;
  }
}

#endif
