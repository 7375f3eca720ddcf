/*
 * plan_describe.c -- says in a few words what a plan does.
 *
 *     data 16 x tensor 8, ZeRO 1, 4 micro-batches, block recomputed
 */
#include "ir/plan/plan.h"

#include <string.h>

enum { MOST_NAMED = 2 }; /* paths that are recomputed */

/* The path of a line "remat PATH", or NULL. */
static const char *recomputed_path(const char *line) {
  static const char head[] = "remat ";
  return strncmp(line, head, strlen(head)) == 0 ? line + strlen(head) : NULL;
}

static void add_recomputed(Text *out, const Plan *plan) {
  int n = 0;
  for (int i = 0; i < plan->lines.n; i++)
    n += recomputed_path(plan->lines.data[i]) != NULL;
  for (int i = 0, k = 0; i < plan->lines.n && n <= MOST_NAMED; i++) {
    const char *path = recomputed_path(plan->lines.data[i]);
    if (path) text_printf(out, "%s%s", k++ ? " and " : ", ", path);
  }
  if (n > MOST_NAMED) text_printf(out, ", %d lines of values", n);
  if (n > 0) text_add(out, " recomputed");
}

/* Lines that change the values that a step computes. */
static void add_asynchronous(Arena *arena, Text *out, const Plan *plan) {
  const PlanServers *servers = plan_servers(plan);
  if (servers) text_printf(out, ", %s", plan_servers_text(arena, servers));
  if (plan_has_versions(arena, plan)) text_printf(out, ", %s", plan->schedule);
}

/* Lines about values, gradients, optimizer state and operators. */
static void add_placements(Text *out, const Plan *plan) {
  int n = 0;
  for (int i = 0; i < plan->lines.n; i++)
    n += strncmp(plan->lines.data[i], "shard ", 6) == 0 ||
         strncmp(plan->lines.data[i], "replicate ", 10) == 0;
  if (n > 0) text_printf(out, ", %d line%s of paths", n, n == 1 ? "" : "s");
}

const char *plan_describe(Arena *arena, const Plan *plan) {
  const Mesh *mesh = plan_mesh(plan);
  Text out = text_create(arena);
  for (int a = 0; a < mesh->n_axes; a++)
    if (!mesh->axes[a].is_sequential)
      text_printf(&out, "%s%s %d", out.n ? " x " : "", mesh->axes[a].name,
                  mesh->axes[a].size);
  if (plan->stages.n > 0)
    text_printf(&out, "%s%d stages", out.n ? " x " : "", plan->stages.n);
  if (out.n == 0) text_add(&out, "one rank");
  add_asynchronous(arena, &out, plan);
  if (plan->zero > 0) text_printf(&out, ", ZeRO %d", plan->zero);
  if (plan->border.n_axes > 0) text_add(&out, ", hierarchical sums");
  if (plan->microbatches > 1)
    text_printf(&out, ", %lld micro-batches", (long long)plan->microbatches);
  if (plan->attention == ATTENTION_ring) text_add(&out, ", ring attention");
  if (plan->attention == ATTENTION_ulysses) text_add(&out, ", ulysses");
  add_recomputed(&out, plan);
  add_placements(&out, plan);
  return text_string(&out);
}
