/*
 * border.c -- adds gradients up on both sides of slow links.
 *
 *     mesh { island = 2; data = 2 }   plan { sync = hierarchical over island }
 *
 *     f32[C, F; sum@island, data]
 *     reduce_scatter over data    f32[C@data, F; sum@island]
 *     all_reduce over island      f32[C@data, F]
 *     all_gather over data        f32[C, F]
 *
 * A rank sends as many bytes as in one all-reduce over both axes, but over the
 * border only those of its own shard: of n bytes, d ranks on each side send n
 * together in each direction, the least that brings the sum of one side to the
 * other.  One all-reduce with direct messages sends d n.  (Rabenseifner's
 * all-reduce in levels; Jia et al. 2018, "Highly Scalable Deep Learning
 * Training System with Mixed-Precision", section 4.2, measure it.)
 *
 * With ZeRO the shards themselves are made so: zero.c appends the axes of the
 * border last.  Sums that no dim divides into nearly equal shards, as scalars,
 * stay one all-reduce.
 */
#include "passes/spmd/border.h"
#include "passes/spmd/placement.h"

AxisSet border_axes(const Partition *p) {
  return axis_list_set(rank_axes(p, &p->plan->border));
}

AxisList inside_first(const Partition *p, AxisList axes) {
  AxisSet border = border_axes(p), set = axis_list_set(axes);
  return axis_list_join(axis_list_without(axes, border),
                        axis_list_without(axes, (AxisSet)(set & ~border)));
}

static ReshardStep part_of(const ReshardStep *step, AxisList axes) {
  ReshardStep part = *step;
  part.axes = axes;
  part.group = axis_list_set(axes);
  return part;
}

/* The first axes are those inside, all others of the border; the dim has the
 * shards of both, and its shards over the first alone are made of them. */
static bool is_inside_first(const Partition *p, const Dim *dim, AxisList before,
                            AxisList inside, AxisList across) {
  Dim larger = *dim, smaller = *dim;
  larger.split = axis_list_join(before, inside);
  smaller.split = axis_list_join(larger.split, across);
  return shards_are_aligned(p, &larger, &smaller);
}

int divide_at_border(const Partition *p, const Type *type,
                     const ReshardStep *step, ReshardStep *out) {
  bool scatters = step->kind == RESHARD_reduce_scatter;
  AxisSet border = border_axes(p) & step->group;
  AxisList inside = axis_list_without(step->axes, border);
  AxisList across = axis_list_without(step->axes, axis_list_set(inside));
  out[0] = *step;
  if ((!scatters && step->kind != RESHARD_all_gather) || !inside || !across ||
      axis_list_join(inside, across) != step->axes)
    return 1;
  const Dim *dim = &type->dims[scatters ? step->to_dim : step->from_dim];
  int n_before = axis_list_length(dim->split) -
                 (scatters ? 0 : axis_list_length(step->axes));
  if (!is_inside_first(p, dim, axis_list_head(dim->split, n_before), inside,
                       across))
    return 1;
  out[0] = part_of(step, scatters ? inside : across);
  out[1] = part_of(step, scatters ? across : inside);
  return 2;
}
