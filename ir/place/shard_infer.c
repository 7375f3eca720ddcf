/*
 * shard_infer.c -- infers the placements of an operator's results from those of
 * its operands.
 *
 *     dot x [B:128@data, C], w [C, F] {over = [C]}   -> [B:128@data, F]
 *     dot x [B:128@data, C], y [B:128@data, F] {over = [B]} -> [C, F; sum@data]
 *
 * The first operand that splits a dim decides about it. Partial values pass
 * through operators that are linear in them. An operand keeps all its partial
 * axes or must be reduced over all of them.
 */
#include "ir/place/shardrule.h"

#include <string.h>

typedef struct Inference {
  const Mesh *mesh;
  const ShardCall *call;
  ShardRule rule;
  Arena *arena;
  AxisList splits[MAX_SHARD_DIMS]; /* of the rule's dims */
  AxisSet used;                    /* axes that some dim is split over */
} Inference;

/* ---- splits ---- */

static bool passes_shards(ShardTreatment treatment) {
  return treatment == SHARD_pass || treatment == SHARD_pass_or_sum;
}

/* A row may allow a dim that needs the operator rewritten; not here. */
static bool may_split(const Inference *r, const ShardDim *dim, AxisList split) {
  if (!passes_shards(dim->treatment) && !shard_is_reduction(dim->treatment))
    return false;
  return dim->even_size == 0 ||
         dim->even_size % axis_list_shards(split, r->mesh) == 0;
}

/* The first operand that splits a dim decides, or one that continues where that
 * one ends, unless an axis that it takes shards another dim of this node. */
static void decide_dim(Inference *r, const Dim *dim) {
  int at = shard_rule_input(&r->rule, dim->name);
  AxisList more;
  if (!may_split(r, &r->rule.dims[at], dim->split) ||
      !axis_list_continues(dim->split, r->splits[at], &more))
    return;
  AxisSet axes = axis_list_set(more);
  if (axes & r->used) return;
  r->splits[at] = dim->split;
  r->used |= axes;
}

static void decide_splits(Inference *r) {
  for (int i = 0; i < r->call->n_inputs; i++) {
    for (int j = 0; j < r->call->inputs[i]->rank; j++) {
      decide_dim(r, &r->call->inputs[i]->dims[j]);
    }
  }
}

/* ---- partial values ---- */

static bool is_partial_sum(const Type *type) {
  return type->partial && type->partial_kind == REDUCE_sum;
}

/* `partition` says that the operator may come before this reduction. */
static bool is_named_reduction(const ShardCall *call, ReduceKind kind) {
  const Attr *attr = shard_call_attr(call, ATTR_reduce);
  return attr && strcmp(attr->name, reduce_name(kind)) == 0;
}

/* Linear in all operands together: all are partial over the same axes, or none
 * may be.  An operator that copies elements of one operand may be followed by
 * any reduction. */
static bool all_agree(const Inference *r) {
  const ShardCall *call = r->call;
  bool takes_any = call->n_inputs == 1 && op_has(call->op, OP_FLAG_exact);
  for (int i = 0; i < call->n_inputs; i++) {
    const Type *type = call->inputs[i];
    if (type->partial != call->inputs[0]->partial) return false;
    if (type->partial & r->used) return false;
    bool may_follow = takes_any || is_named_reduction(call, type->partial_kind);
    if (!is_partial_sum(type) && !(type->partial && may_follow)) return false;
  }
  return call->n_inputs > 0;
}

/* Linear in one operand: no other may be partial over its axes or split over
 * them, as then ranks hold different factors.  If two factors are partial, both
 * are reduced. -1: none. */
static int kept_factor(const Inference *r, int n_candidates) {
  int kept = -1;
  for (int i = 0; i < n_candidates; i++) {
    const Type *type = r->call->inputs[i];
    if (!is_partial_sum(type) || type->partial & r->used) continue;
    if (kept >= 0 && type->partial & r->call->inputs[kept]->partial) return -1;
    if (kept < 0) kept = i;
  }
  return kept;
}

/* Does operand i stay partial? */
static bool stays_partial(const Inference *r, int i) {
  if (!r->call->inputs[i]->partial) return false;
  switch (shard_linearity(r->call)) {
  case LINEAR_no: return false;
  case LINEAR_all: return all_agree(r);
  case LINEAR_each: return kept_factor(r, r->call->n_inputs) == i;
  case LINEAR_first: return kept_factor(r, 1) == i;
  }
  UNREACHABLE();
}

/* ---- types ---- */

static AxisList wanted_split(const Inference *r, Name dim) {
  return r->splits[shard_rule_input(&r->rule, dim)];
}

/* The type that operand i must be given in; its own where that holds. */
static const Type *wanted_input(const Inference *r, int i, bool keep) {
  const Type *has = r->call->inputs[i];
  bool is_wanted = keep || !has->partial;
  for (int j = 0; j < has->rank && is_wanted; j++)
    is_wanted = wanted_split(r, has->dims[j].name) == has->dims[j].split;
  if (is_wanted) return has;
  Type *wanted = type_copy_logical(r->arena, has);
  for (int j = 0; j < has->rank; j++)
    wanted->dims[j].split = wanted_split(r, has->dims[j].name);
  if (keep) {
    wanted->partial = has->partial;
    wanted->partial_kind = has->partial_kind;
  }
  return wanted;
}

/* Axes that the row's reductions leave undone. */
static AxisSet reduced_axes(const Inference *r, ReduceKind *kind) {
  AxisSet axes = 0;
  for (int i = 0; i < r->rule.n; i++) {
    ShardTreatment treatment = r->rule.dims[i].treatment;
    if (!shard_is_reduction(treatment)) continue;
    axes |= axis_list_set(r->splits[i]);
    if (treatment == SHARD_max) *kind = REDUCE_max;
    if (treatment == SHARD_min) *kind = REDUCE_min;
  }
  return axes;
}

/* Axes of dims that some results have; one without them is a partial sum. */
static AxisSet axes_it_lacks(const Inference *r, const Type *result) {
  AxisSet axes = 0;
  for (int i = 0; i < r->rule.n; i++)
    if (r->rule.dims[i].treatment == SHARD_pass_or_sum &&
        type_find(result, r->rule.dims[i].name) < 0)
      axes |= axis_list_set(r->splits[i]);
  return axes;
}

static AxisList placed_split(const Inference *r, Name dim) {
  int at = shard_rule_result(&r->rule, dim);
  return at >= 0 && passes_shards(r->rule.dims[at].treatment) ? r->splits[at]
                                                              : 0;
}

/* The logical type itself where nothing is split or partial. */
static const Type *placed_result(const Inference *r, const Type *logical,
                                 AxisSet partial, ReduceKind kind) {
  partial |= axes_it_lacks(r, logical);
  bool is_same = !partial && !logical->partial;
  for (int j = 0; j < logical->rank && is_same; j++)
    is_same = placed_split(r, logical->dims[j].name) == logical->dims[j].split;
  if (is_same) return logical;
  Type *type = type_copy_logical(r->arena, logical);
  for (int j = 0; j < logical->rank; j++)
    type->dims[j].split = placed_split(r, logical->dims[j].name);
  type->partial = partial;
  type->partial_kind = partial ? kind : REDUCE_sum;
  return type;
}

static void infer_by_rule(Inference *r, const Type **out_inputs,
                          const Type **out_types) {
  ReduceKind kind = REDUCE_sum;
  for (int i = 0; i < r->rule.n; i++) r->splits[i] = 0;
  decide_splits(r);
  AxisSet partial = reduced_axes(r, &kind);
  for (int i = 0; i < r->call->n_inputs; i++) {
    bool keep = stays_partial(r, i);
    if (keep && !partial) kind = r->call->inputs[i]->partial_kind;
    if (keep) partial |= r->call->inputs[i]->partial;
    out_inputs[i] = wanted_input(r, i, keep);
  }
  for (int i = 0; i < r->call->n_results; i++) {
    out_types[i] = placed_result(r, r->call->results[i], partial, kind);
  }
}

/* Operators without a rule (regions, collectives) take and return replicated
 * values. */
static void infer_replicated(const Inference *r, const Type **out_inputs,
                             const Type **out_types) {
  for (int i = 0; i < r->call->n_inputs; i++) {
    out_inputs[i] = type_logical(r->arena, r->call->inputs[i]);
  }
  for (int i = 0; i < r->call->n_results; i++) {
    out_types[i] = type_logical(r->arena, r->call->results[i]);
  }
}

void shard_infer(const Graph *graph, Op op, const Attr *attrs, int n_attrs,
                 const Type *const *inputs, int n_inputs,
                 const Type *const *whole_results, int n_results, Arena *arena,
                 const Type **out_inputs, const Type **out_types) {
  ShardCall call = {op,       attrs,         n_attrs,  inputs,
                    n_inputs, whole_results, n_results};
  Inference r; /* its tables have room for more than most nodes need */
  r.mesh = &graph->mesh;
  r.call = &call;
  r.arena = arena;
  r.used = 0;
  if (!op_info(op)->infer) {
    infer_replicated(&r, out_inputs, out_types);
    return;
  }
  shard_rule(&call, &r.rule);
  infer_by_rule(&r, out_inputs, out_types);
}
