/*
 * tolerance.h -- how far a result may lie from the exact one, by dtype: the one
 * table that every numeric suite reads.  The distance is relative to the larger
 * of one and the value.
 *
 *   TOLERANCE(dtype, of one operator, of an operator that is decomposed,
 *             of a tensor of a whole model)
 *
 * One operator computes in f32 and rounds once: half a unit in the last place
 * (2^-9 in bf16, 2^-12 in f16) and what the sum lost.  Where an operator is
 * written out in simpler ones, every step rounds.
 *
 * For a complete model the L2 error of each tensor counts, relative to its
 * norm: of the gradients of a step, and of the parameters after ten.  In f32
 * twice the error of PyTorch, recorded in tests/reference, is allowed where it
 * is larger: it shows how much the cancellations and kinks of a model lose in
 * any program. In 16 bits there is no such limit (0): PyTorch's own error alone
 * counts (tests/reference/README.md).
 */
#ifndef TESTS_OPS_TOLERANCE_H
#define TESTS_OPS_TOLERANCE_H

#include <math.h>

#include "ir/ir.h"

#define TOLERANCES(TOLERANCE)                                                  \
  TOLERANCE(f64, 1e-10, 1e-10, 1e-9)                                           \
  TOLERANCE(f32, 2e-5, 2e-5, 1e-5)                                             \
  TOLERANCE(f16, 1e-3, 4e-3, 0)                                                \
  TOLERANCE(bf16, 6e-3, 3e-2, 0)

static inline double tolerance(DType dtype) {
  switch (dtype) {
#define TOLERANCE(dtype, one, many, model)                                     \
  case DT_##dtype: return one;
    TOLERANCES(TOLERANCE)
#undef TOLERANCE
  default: return 0;
  }
}

static inline double tolerance_decomposed(DType dtype) {
  switch (dtype) {
#define TOLERANCE(dtype, one, many, model)                                     \
  case DT_##dtype: return many;
    TOLERANCES(TOLERANCE)
#undef TOLERANCE
  default: return 0;
  }
}

static inline double tolerance_model(DType dtype) {
  switch (dtype) {
#define TOLERANCE(dtype, one, many, model)                                     \
  case DT_##dtype: return model;
    TOLERANCES(TOLERANCE)
#undef TOLERANCE
  default: return 0;
  }
}

#endif
