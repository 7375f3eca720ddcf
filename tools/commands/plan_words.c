/*
 * plan_words.c -- says in a line what a plan is.
 */
#include "tools/commands/planning.h"

const char *plan_mesh_words(Arena *arena, const Plan *plan) {
  Text out = text_create(arena);
  const Mesh *mesh = plan ? plan_mesh(plan) : NULL;
  for (int a = 0; mesh && a < mesh->n_axes; a++)
    if (!mesh->axes[a].is_sequential)
      text_printf(&out, "%s%s %d", out.n ? " x " : "", mesh->axes[a].name,
                  mesh->axes[a].size);
  return out.n ? text_string(&out) : "one rank";
}

const char *plan_words(Arena *arena, const Plan *plan) {
  Text out = text_create(arena);
  text_add(&out, plan_mesh_words(arena, plan));
  if (!plan) return text_string(&out);
  if (plan->zero > 0) text_printf(&out, ", ZeRO %d", plan->zero);
  if (plan->microbatches > 1)
    text_printf(&out, ", %lld micro-batches", (long long)plan->microbatches);
  if (plan->attention == ATTENTION_ring) text_add(&out, ", ring attention");
  if (plan->attention == ATTENTION_ulysses) text_add(&out, ", ulysses");
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    if (pin->says == SAYS_remat && pin->span.source)
      text_printf(&out, ", %s", span_text(arena, pin->span));
  }
  return text_string(&out);
}
