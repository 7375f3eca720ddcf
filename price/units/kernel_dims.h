/*
 * kernel_dims.h -- declares the loop dims of a kernel: what its operands and
 * results have in common, and what sharding each does to them.
 *
 *     %3 = fused %1, %2 : [B, C] {     loop dims  0: B, F is renamed C: 1: C
 *       add, rename, sum over C ...    operands   [B, F] = 0 1, [C] = 1
 *     }                                sums       [B] over 1, inside
 */
#ifndef PRICE_UNITS_KERNEL_DIMS_H
#define PRICE_UNITS_KERNEL_DIMS_H

#include "ir/place/shardrule.h"

enum { MOST_LOOP_DIMS = 16 };

typedef uint16_t LoopSet; /* a bit for each loop dim */

typedef struct LoopDim {
  Name name;     /* of the first operand or result that has it */
  int64_t size;  /* the smallest that has it */
  bool is_whole; /* it may not be sharded */
  int64_t even;  /* 0, or the shards must divide it */
} LoopDim;

/* The loop dim of each dim of an operand or result. */
typedef struct DimMap {
  int8_t at[MAX_RANK];
} DimMap;

/* A value inside of a kernel that ranks must reduce before it is read on. */
typedef struct InnerSum {
  LoopSet over;
  const Type *type;
  DimMap dims;
} InnerSum;

/* The loop dims of what the body of a scan computes. */
typedef struct LoopBody {
  const DimMap *const *values;         /* by node of the body and result */
  const struct LoopBody *const *inner; /* by node: of a scan in it, or NULL */
} LoopBody;

typedef struct KernelDims {
  int n;
  LoopDim dims[MOST_LOOP_DIMS];
  const DimMap *inputs, *results;
  const LoopSet *partial; /* by result: partial where these are sharded */
  int n_sums;
  const InnerSum *sums;
  const LoopBody *body; /* of a scan; else NULL */
} KernelDims;

/* Remembers those of equal kernels. */
typedef struct KernelDimsTable KernelDimsTable;
KernelDimsTable *kernel_dims_create(Arena *arena);
/* Returns NULL where a kernel has too many dims. */
const KernelDims *kernel_dims_of(KernelDimsTable *table, const Graph *graph,
                                 int id);

#endif
