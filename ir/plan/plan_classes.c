/*
 * plan_classes.c -- finds the groups of ranks on which stages are, and compares
 * meshes of stages.
 *
 *     stage 0: a on 2..3      stage 1: b on 0..1      stage 2: c on 2..3
 *
 *     class 1                 class 0                 class 1
 */
#include "ir/plan/plan.h"

int plan_classes(Arena *arena, const Plan *plan, int *out_class_of) {
  int n = plan->stages.n, n_classes = 0;
  bool *is_first = ARENA_ARRAY(arena, bool, n);
  for (int s = 0; s < n; s++) {
    is_first[s] = true;
    for (int k = 0; k < s; k++)
      is_first[s] &=
          plan->stages.data[k].first_rank != plan->stages.data[s].first_rank;
    n_classes += is_first[s];
  }
  for (int s = 0; s < n; s++) {
    out_class_of[s] = 0;
    for (int k = 0; k < n; k++)
      out_class_of[s] += is_first[k] && plan->stages.data[k].first_rank <
                                            plan->stages.data[s].first_rank;
  }
  return n_classes;
}

bool stage_meshes_equal(const Mesh *a, const Mesh *b) {
  bool is_equal = a->n_axes == b->n_axes;
  for (int i = 0; i < a->n_axes && is_equal; i++)
    is_equal = a->axes[i].name == b->axes[i].name &&
               a->axes[i].size == b->axes[i].size;
  return is_equal;
}
