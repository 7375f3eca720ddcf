/*
 * placement.h -- declares how a node that changes a placement is appended, and
 * what shards of unequal size need.
 */
#ifndef PASSES_SPMD_PLACEMENT_H
#define PASSES_SPMD_PLACEMENT_H

#include "passes/spmd/partition.h"

/* ---- placement.c ---- */

Type *type_copy(Arena *arena, const Type *type);
/* The axes of a line, or of none (NULL), but for the sequential one. */
AxisList rank_axes(const Partition *p, const PlanShard *shard);
/* The rank axes that the line of the batch dim names. */
AxisSet batch_axes(const Partition *p);
/* The value in another dtype, placed as it is. */
Value cast_placed(Partition *p, Value value, DType dtype);
/* The dtype in which a partial value is reduced between ranks. */
DType reduced_dtype(const Partition *p, Value value);
/* A partial value in this dtype; what is reduced is cast back by the caller. */
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

/* A strategy's operand with the axes of micro-batches, which strategies leave
 * out: they stay where they are.  `partial`: what the rule of the node lets be
 * partial. */
const Type *with_microbatches(const Partition *p, const Type *have,
                              const Type *want, AxisSet partial);
/* Whether the operator can be written for a range of indices. */
bool range_is_supported(Op op);

/* ---- padding.c ---- */

/* Some shards of the dim have padding. */
bool dim_is_uneven(const Partition *p, const Dim *dim);
/* Each shard of `larger` consists of complete shards of `smaller`, whose axes
 * continue those of `larger`. */
bool shards_are_aligned(const Partition *p, const Dim *larger,
                        const Dim *smaller);
/* Replaces padding of the operands by what does not change a result that mixes
 * the elements of a dim. */
void mask_operands(Partition *p, Op op, const Attrs *attrs, Value *inputs,
                   int n_inputs, const Type *const *results, int n_results);
/* The value with zeros in the padding of this dim. */
Value mask_padding(Partition *p, Value value, Name dim);
/* A replicated dim gets `size` elements: zeros after those that it has, or the
 * first ones of them. */
Value append_padding(Partition *p, Value value, int d, int64_t size);
Value drop_padding(Partition *p, Value value, int d, int64_t size);

#endif
