/*
 * batch_dims.h -- declares where values have the batch dim under another name.
 */
#ifndef PASSES_STAGES_BATCH_DIMS_H
#define PASSES_STAGES_BATCH_DIMS_H

#include "ir/ir.h"

/* The batch dim of a value under another name. */
typedef struct HiddenBatch {
  Name dim; /* the first one that has it; NULL: none has */
  /* The dims that are merged to `dim`, the batch dim among them; or, if it
   * `is_split`, those that the batch dim is split to.  Of length 0: unknown. */
  Name parts[MAX_RANK];
  int64_t sizes[MAX_RANK];
  int n;
  bool is_split;
} HiddenBatch;

/* Fills in those of all values, which are numbered first_value[node] + result.
 */
void batch_dims_find(const Graph *graph, const int *first_value, Name batch_dim,
                     HiddenBatch *out);
/* Returns the type of the value with the batch dim.  Returns NULL where it
 * cannot be brought back. */
const Type *batch_dims_shown(Arena *arena, const Type *type,
                             const HiddenBatch *batch, Name batch_dim);
/* Appends what brings the batch dim of a value back. */
Value batch_dims_show(Graph *to, Value value, const HiddenBatch *batch,
                      Name batch_dim);
/* Appends what undoes this. */
Value batch_dims_hide(Graph *to, Value value, const HiddenBatch *batch,
                      Name batch_dim);

#endif
