/*
 * priced_plans.c -- remembers which plans a search has priced, and lists the
 * best ones: of each program, and of each mesh.
 *
 *     text  mesh      program  step         found     meshes
 *     a     data 4    17       9 ms         c 7 ms    tensor 4: c
 *     b     data 4    17       9 ms    =>   a 9 ms    data 4: a
 *     c     tensor 4  23       7 ms
 *
 * Two texts may have one program, such as ZeRO over one rank and no ZeRO.
 */
#include "planner/priced_plans.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_FOUND = 16, MOST_MESHES = 32 };

PricedPlans priced_plans_create(Arena *arena) {
  return (PricedPlans){
      .arena = arena, .texts = names_create(arena), .at = map_create(arena)};
}

void priced_plans_add(PricedPlans *plans, const PricedPlan *plan) {
  Name text = name_intern(plans->texts, plan->plan.text);
  intptr_t at = (intptr_t)map_get(plans->at, text);
  PricedPlan *known = at ? &plans->list.data[at - 1] : NULL;
  if (known && known->plan.price.is_legal) {
    known->plan.price = plan->plan.price;
    return;
  }
  if (!known) {
    vec_push(plans->arena, &plans->list, *plan);
    known = &plans->list.data[plans->list.n - 1];
    map_put(plans->at, text, (void *)(intptr_t)plans->list.n);
  }
  *known = *plan;
  known->plan.text = text;
}

static Bytes missing_bytes(const CandidatePrice *price) {
  return price->peak > price->memory ? price->peak - price->memory : 0;
}

/* Plans that fit, then those that miss few bytes.  Of equal ones the one that
 * was priced first. */
static int compare_plans(const void *a, const void *b) {
  const PricedPlan *x = *(const PricedPlan *const *)a;
  const PricedPlan *y = *(const PricedPlan *const *)b;
  const CandidatePrice *p = &x->plan.price, *q = &y->plan.price;
  Bytes p_missing = missing_bytes(p), q_missing = missing_bytes(q);
  if (p_missing != q_missing) return p_missing < q_missing ? -1 : 1;
  if (p->step != q->step) return p->step < q->step ? -1 : 1;
  if (p->peak != q->peak) return p->peak < q->peak ? -1 : 1;
  return x < y ? -1 : x > y;
}

/* The legal ones in order, but for the best plan, which is the first. */
static const PricedPlan **sorted(const PricedPlans *plans,
                                 const SearchResult *result, int *out_n) {
  const PricedPlan **list =
      ARENA_ARRAY(plans->arena, const PricedPlan *, plans->list.n + 1);
  Name best =
      result->best.text ? name_intern(plans->texts, result->best.text) : NULL;
  int at = (int)(intptr_t)(best ? map_get(plans->at, best) : NULL);
  int n = 0, n_best = at > 0;
  if (at > 0) list[n++] = &plans->list.data[at - 1];
  for (int i = 0; i < plans->list.n; i++)
    if (i != at - 1 && plans->list.data[i].plan.price.is_legal)
      list[n++] = &plans->list.data[i];
  if (n > n_best)
    qsort(list + n_best, (size_t)(n - n_best), sizeof *list, compare_plans);
  *out_n = n;
  return list;
}

static bool has_program(const PricedPlan *const *list, int n,
                        uint64_t program) {
  for (int i = 0; i < n; i++)
    if (list[i]->program == program) return true;
  return false;
}

void priced_plans_list(const PricedPlans *plans, SearchResult *out) {
  int n;
  const PricedPlan **list = sorted(plans, out, &n);
  FoundPlan *found = ARENA_ARRAY(plans->arena, FoundPlan, MOST_FOUND);
  MeshPlan *meshes = ARENA_ARRAY(plans->arena, MeshPlan, MOST_MESHES);
  const PricedPlan *taken[MOST_FOUND];
  Map *seen = map_create(plans->arena);
  out->n_found = out->n_meshes = 0;
  for (int i = 0; i < n; i++) {
    const PricedPlan *plan = list[i];
    Name mesh = name_intern(plans->texts, plan->mesh);
    if (missing_bytes(&plan->plan.price) == 0 && out->n_found < MOST_FOUND &&
        !has_program(taken, out->n_found, plan->program)) {
      taken[out->n_found] = plan;
      found[out->n_found++] = plan->plan;
    }
    if (map_has(seen, mesh) || out->n_meshes == MOST_MESHES) continue;
    map_put(seen, mesh, (void *)plan);
    meshes[out->n_meshes++] = (MeshPlan){plan->mesh, plan->plan};
  }
  out->found = found;
  out->meshes = meshes;
}
