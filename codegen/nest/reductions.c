/*
 * reductions.c -- looks up the rows of support/reductions.def.
 */
#include <math.h>
#include <string.h>

#include "codegen/nest/nest.h"

static const NestReduction reductions[N_NEST_REDUCTIONS] = {
#define LOOP_REDUCTION(name, clause, compare, identity)                        \
  {#name, clause, compare, identity},
#define REDUCTION(name, nccl, ...) LOOP_REDUCTION(name, __VA_ARGS__)
#include "support/reductions.def"
};

const NestReduction *nest_reduction(NestReduce reduce) {
  ASSERT(reduce < N_NEST_REDUCTIONS);
  return &reductions[reduce];
}
