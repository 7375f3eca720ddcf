/*
 * update_lines.c -- finds the placement that a line about optimizer state gives
 * a persistent buffer and the gradient that updates it.
 *
 *     plan: shard optimizer.w: F over data
 *
 *     state "adamw.m/w"   : f32[C, F@data]
 *     gradient            : f32[C, F; sum@data]
 *     after reduce_scatter: f32[C, F@data]
 *
 * A line `shard grad.w: ...` is a constraint, which the pass `optimizer` puts
 * behind the gradient: nothing is left to decide here.
 */
#include "passes/spmd/placement.h"
#include "passes/spmd/zero.h"

const PlanPin *find_state_line(const Partition *p, Name parameter) {
  return plan_find_update(p->plan, p->ctx->module->names, ABOUT_optimizer,
                          parameter);
}

const PlanPin *find_input_line(const Partition *p, const GraphInput *input,
                               Name path) {
  const PlanPin *line =
      input->role == ROLE_optimizer_state ? find_state_line(p, path) : NULL;
  return line ? line : plan_find_placement(p->plan, path);
}

static const Type *placed_by_line(const Partition *p, const PlanPin *line,
                                  const Type *type) {
  const PlanShard *pins[MAX_RANK];
  Type *placed = type_copy(p->ctx->module->arena, type);
  for (int d = 0; d < type->rank; d++)
    pins[d] = plan_placed_dim(line, type->dims[d].name);
  for (int d = 0; d < type->rank; d++) {
    AxisList list = 0;
    for (int i = 0; pins[d] && i < pins[d]->n_axes; i++)
      if (plan_axis_taken(pins, type->rank, d, pins[d]->axes[i]) < 0)
        list = axis_list_append(list, mesh_find(p->mesh, pins[d]->axes[i]));
    placed->dims[d].split = list;
  }
  placed->partial = 0;
  placed->partial_kind = REDUCE_sum;
  return placed;
}

const Type *updating_gradient(const Partition *p, Name node_path,
                              const Type *type) {
  Names *names = p->ctx->module->names;
  Name parameter = update_path(names, node_path);
  if (!parameter || plan_find_update(p->plan, names, ABOUT_gradient, parameter))
    return NULL;
  for (int d = 0; d < type->rank; d++)
    if (axis_list_set(type->dims[d].split) & mesh_sequential(p->mesh))
      return NULL;
  const PlanPin *line = find_state_line(p, parameter);
  return line ? placed_by_line(p, line, type)
              : zero_gradient(p, node_path, type);
}
