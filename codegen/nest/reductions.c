/*
 * reductions.c -- looks up the rows of reductions.def.
 */
#include <math.h>
#include <string.h>

#include "codegen/nest/nest.h"

static const NestReduction reductions[N_NEST_REDUCTIONS] = {
#define REDUCTION(name, clause, compare, identity)                             \
  {#name, clause, compare, identity},
#include "codegen/nest/reductions.def"
};

const NestReduction *nest_reduction(NestReduce reduce) {
  ASSERT(reduce < N_NEST_REDUCTIONS);
  return &reductions[reduce];
}
