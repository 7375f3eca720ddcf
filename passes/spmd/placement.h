/*
 * placement.h -- declares how a node that changes a placement is appended, and
 * what shards of unequal size need.
 */
#ifndef PASSES_SPMD_PLACEMENT_H
#define PASSES_SPMD_PLACEMENT_H

#include "passes/spmd/partition.h"

/* ---- placement.c ---- */

Type *type_copy(Arena *arena, const Type *type);
/* Returns the axes of a line, or of none (NULL), but for the sequential one. */
AxisList rank_axes(const Partition *p, const PlanShard *shard);
/* Returns the rank axes that the line of the batch dim names. */
AxisSet batch_axes(const Partition *p);
/* Returns the value in another dtype, placed as it is. */
Value cast_placed(Partition *p, Value value, DType dtype);
/* Returns the dtype in which a partial value is reduced between ranks. */
DType reduced_dtype(const Partition *p, Value value);
/* Returns the dtype in which ranks send a result of `node` that they add up and
 * that has `type`: that of the line `compress` for gradients of parameters. */
DType gradient_sum_dtype(const Partition *p, const Node *node,
                         const Type *type);
/* Returns a partial value in this dtype; its reduced form is cast back by the
 * caller. */
Value cast_summand(Partition *p, Value value);
/* Appends `op` over the axes over which the value is partial. */
Value reduce_over(Partition *p, Value value, AxisSet axes, Op op);
/* Appends `op`, which changes the shards of the value along dim `d`. */
Value change_shards(Partition *p, Op op, Value value, int d, AxisList split,
                    AxisList axes);
void axis_list_attr(const Partition *p, Attrs *attrs, AxisList list);
/* Reports at the statement that needs the dim replicated, or, where that is the
 * update of a persistent buffer, at the pin. */
void report_uneven(Partition *p, const Dim *dim, int64_t shards, Span place);
Diag *report_unsupported_shard(Partition *p, Name path, const Dim *dim,
                               Span place, bool is_kept);

/* Returns a copy of `want` in which each dim is also sharded over those axes of
 * micro-batches that shard it in `have`.  Strategies leave out these axes.  The
 * result is also partial over those of them that are in `partial`. */
const Type *with_microbatches(const Partition *p, const Type *have,
                              const Type *want, AxisSet partial);
/* Returns whether the operator can be written for a range of indices. */
bool range_is_supported(Op op);

/* ---- padding.c ---- */

/* Returns whether some shards of the dim have padding. */
bool dim_is_uneven(const Partition *p, const Dim *dim);
/* Returns whether each shard of `larger` consists of complete shards of
 * `smaller`, whose axes continue those of `larger`. */
bool shards_are_aligned(const Partition *p, const Dim *larger,
                        const Dim *smaller);
/* Replaces padding of the operands by what does not change a result that mixes
 * the elements of a dim. */
void mask_operands(Partition *p, Op op, const Attrs *attrs, Value *inputs,
                   int n_inputs, const Type *const *results, int n_results);
/* Returns the value with zeros in the padding of this dim. */
Value mask_padding(Partition *p, Value value, Name dim);
/* Returns the value with `size` elements in a replicated dim: zeros after those
 * that it has, or the first ones of them. */
Value append_padding(Partition *p, Value value, int d, int64_t size);
Value drop_padding(Partition *p, Value value, int d, int64_t size);

#endif
