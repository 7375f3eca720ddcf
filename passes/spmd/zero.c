/*
 * zero.c -- spreads what training keeps of a parameter over the ranks that
 * would all hold it: ZeRO (Rajbhandari et al. 2020, "ZeRO: Memory Optimizations
 * Toward Training Trillion Parameter Models", section 5).
 *
 *     plan: zero = 1, shard B over data
 *
 *     param "w"     : f32[C:8@data, F]
 *     state "m/w"   : f32[C:8@data, F]
 *     cast and all_gather: bf16[C:8, F], which the step computes with
 *     gradient      : f32[C:8, F; sum@data]
 *     after reduce_scatter: f32[C:8@data, F], which updates "m/w" and "w"
 *
 * Level 1 shards the optimizer's state, with the copy of a parameter that is
 * updated; level 2 the accumulated gradients too; level 3 what a step computes
 * with as well.  So parameters are stored alike at all levels, and levels 1 and
 * 2 gather them once a step, before their first reader, and level 3 wherever
 * they are read (remat.c).  It is a placement: the axes are appended to those
 * of the dim that leaves a rank the fewest elements, padding included; a
 * parameter that no dim makes smaller stays as it is.  Of several such dims,
 * with at most a hundredth more elements, it is the outermost if its shards lie
 * one after the other, because what a gather receives and what a reduce-scatter
 * sends then needs no copy; else the largest.  Where the update multiplies
 * matrices (muon) it is always the largest, because the product of a matrix
 * with itself contracts that one, so ranks send only the sums.
 */
#include "passes/spmd/border.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/zero.h"

#include <string.h>

/* A dim may leave a rank this part more elements than the best one. */
#define MOST_PADDING 100

struct ZeroShard {
  Name dim;
  AxisList split; /* of this dim */
  AxisSet axes;   /* that it has for this reason */
};

static AxisList zero_axes(const Partition *p) {
  return inside_first(p, rank_axes(p, plan_zero_shard(p->plan)));
}

static bool prefers_largest(const Partition *p) {
  const Model *model = p->ctx->model;
  return model && model->has_train &&
         optimizer_multiplies_matrices(&model->settings.optimizer);
}

/* Returns whether the shards of this dim lie one after the other: the dims
 * outside it have one element on a rank. */
static bool has_contiguous_shards(const Partition *p, const Type *type, int d) {
  for (int outer = 0; outer < d; outer++)
    if (type_local_size(type, p->mesh, outer) > 1) return false;
  return true;
}

/* The axes on this dim, in a placement that has them nowhere; dim NULL: it
 * takes none. */
static ZeroShard split_for_zero(const Partition *p, const Type *type, int d,
                                AxisList more, int64_t *out_elements) {
  Type *sharded = type_copy(p->ctx->scratch, type);
  AxisList *split = &sharded->dims[d].split;
  for (int i = 0; i < axis_list_length(more); i++)
    *split = axis_list_append(*split, axis_list_at(more, i));
  *out_elements = type_local_elements(sharded, p->mesh);
  if (*out_elements >= type_local_elements(type, p->mesh) ||
      !shards_are_aligned(p, &type->dims[d], &sharded->dims[d]))
    return (ZeroShard){0};
  return (ZeroShard){type->dims[d].name, *split, axis_list_set(more)};
}

int dim_to_spread(const Partition *p, const Type *type, AxisList axes,
                  bool prefers_largest, int64_t *out_elements) {
  int64_t elements, least = INT64_MAX, size = 0;
  int best = -1;
  for (int d = 0; d < type->rank; d++)
    if (split_for_zero(p, type, d, axes, &elements).dim && elements < least)
      least = elements;
  for (int d = 0; d < type->rank; d++) {
    ZeroShard shard = split_for_zero(p, type, d, axes, &elements);
    if (!shard.dim || elements - least > least / MOST_PADDING) continue;
    if (best < 0 || type->dims[d].size > size)
      best = d, size = type->dims[d].size, *out_elements = elements;
    if (has_contiguous_shards(p, type, d) && !prefers_largest) break;
  }
  return best;
}

/* The shard of a parameter that has this placement without it; or NULL.  Along
 * axes that shard it already no two ranks hold the same. */
static ZeroShard *find_zero_shard(const Partition *p, const Type *type) {
  AxisSet used = 0;
  for (int d = 0; d < type->rank; d++)
    used |= axis_list_set(type->dims[d].split);
  AxisList more = axis_list_without(zero_axes(p), used);
  int64_t elements;
  int d =
      more ? dim_to_spread(p, type, more, prefers_largest(p), &elements) : -1;
  if (d < 0) return NULL;
  ZeroShard shard = split_for_zero(p, type, d, more, &elements);
  return arena_copy(p->ctx->scratch, &shard, sizeof shard);
}

void zero_add_parameter(Partition *p, Name path, const Type *type) {
  ZeroShard *shard = p->plan->zero > 0 ? find_zero_shard(p, type) : NULL;
  if (shard) map_put(p->zero, path, shard);
}

/* Another dim of a gradient may have the axes: it loses them. */
static const Type *with_shard(const Partition *p, const Type *type,
                              const ZeroShard *shard) {
  int d = type_find(type, shard->dim);
  AxisList more;
  if (d < 0 || !axis_list_continues(shard->split, type->dims[d].split, &more))
    return type;
  Type *placed = type_copy(p->ctx->module->arena, type);
  AxisSet axes = axis_list_set(shard->split);
  for (int i = 0; i < type->rank; i++)
    placed->dims[i].split = axis_list_without(type->dims[i].split, axes);
  placed->dims[d].split = shard->split;
  return shards_are_aligned(p, &type->dims[d], &placed->dims[d]) ? placed
                                                                 : type;
}

const Type *zero_input(const Partition *p, Role role, Name path,
                       const Type *type) {
  bool applies =
      role == ROLE_optimizer_state || role == ROLE_param || role == ROLE_ema;
  const ZeroShard *shard = map_get(p->zero, path);
  return applies && shard ? with_shard(p, type, shard) : type;
}

/* The pass `optimizer` gives the nodes of an update the path "optimizer.PATH".
 */
Name update_path(Names *names, Name node_path) {
  static const char prefix[] = "optimizer.";
  size_t n = sizeof prefix - 1;
  bool is_update = node_path && strncmp(node_path, prefix, n) == 0;
  return is_update ? name_intern(names, node_path + n) : NULL;
}

const Type *zero_gradient(const Partition *p, Name node_path,
                          const Type *type) {
  Name path = update_path(p->ctx->module->names, node_path);
  const ZeroShard *shard = path ? map_get(p->zero, path) : NULL;
  if (!shard || type_find(type, shard->dim) < 0) return NULL;
  Type *reduced = type_copy(p->ctx->module->arena, type);
  reduced->partial = 0;
  reduced->partial_kind = REDUCE_sum;
  const Type *placed = with_shard(p, reduced, shard);
  return placed == reduced ? NULL : placed;
}

AxisSet zero_all_axes(const Partition *p) {
  return p->plan->zero > 0 ? axis_list_set(zero_axes(p)) : 0;
}

AxisSet zero_axes_of(const Partition *p, Name path) {
  const ZeroShard *shard = map_get(p->zero, path);
  return shard ? shard->axes : 0;
}
