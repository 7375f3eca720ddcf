/*
 * plan_words.c -- says in a line what the mesh of a plan is.
 */
#include "tools/commands/planning.h"

const char *plan_mesh_words(Arena *arena, const Plan *plan) {
  Text out = text_create(arena);
  const Mesh *mesh = plan ? plan_mesh(plan) : NULL;
  for (int a = 0; mesh && a < mesh->n_axes; a++)
    if (!mesh->axes[a].is_sequential)
      text_printf(&out, "%s%s %d", out.n ? " x " : "", mesh->axes[a].name,
                  mesh->axes[a].size);
  if (plan && plan->stages.n > 1)
    text_printf(&out, "%s%d stages", out.n ? " x " : "", plan->stages.n);
  return out.n ? text_string(&out) : "one rank";
}
