/*
 * init.c -- one element of an initial value, as a function of the tensor's key
 * and the element's index alone.
 */
#include "support/support.h"

#include <math.h>

/* Beyond two deviations lie 4.6 % of the draws: the bound is never reached. */
static double truncated_normal(uint64_t key, uint64_t index) {
  for (uint64_t attempt = 0; attempt < 64; attempt++) {
    uint64_t stream = attempt ? hash_bytes(&attempt, sizeof attempt, key) : key;
    double value = random_normal(stream, index);
    if (fabs(value) <= 2) return value;
  }
  return 0;
}

double init_value(Init init, uint64_t key, uint64_t index) {
  switch (init.kind) {
  case INIT_zeros: return 0;
  case INIT_constant: return init.a;
  case INIT_normal: return init.a * random_normal(key, index);
  case INIT_trunc_normal: return init.a * truncated_normal(key, index);
  case INIT_uniform: return init.a * (2 * random_uniform(key, index) - 1);
  case INIT_orthogonal:
  case INIT_eye: break; /* refused where models are elaborated */
  }
  UNREACHABLE();
}
