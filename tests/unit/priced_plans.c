// links: planner ir support
/*
 * priced_plans.c -- tests what a search leaves beside its best plan: plans of
 * different programs, and the best plan of each mesh.
 */
#include "planner/priced_plans.h"
#include "tests/unit/values.h"

TestSuite(priced_plans, .fini = modules_destroy);

static void add(PricedPlans *plans, const char *text, const char *mesh,
                uint64_t program, Ps step, Bytes peak) {
  CandidatePrice price = {true, step, peak, 100};
  priced_plans_add(plans, &(PricedPlan){{text, text, price}, mesh, program});
}

static const char *texts_of(Arena *arena, const SearchResult *result) {
  Text out = text_create(arena);
  for (int i = 0; i < result->n_found; i++)
    text_printf(&out, "%s ", result->found[i].text);
  text_add(&out, "|");
  for (int i = 0; i < result->n_meshes; i++)
    text_printf(&out, " %s: %s", result->meshes[i].mesh,
                result->meshes[i].plan.text);
  return text_string(&out);
}

Test(priced_plans, of_each_program_and_of_each_mesh) {
  Module *module = module_create();
  PricedPlans plans = priced_plans_create(module->arena);
  SearchResult result = {0};
  add(&plans, "a", "data 4", 17, 9, 50);
  add(&plans, "b", "data 4", 17, 9, 50);
  add(&plans, "c", "tensor 4", 23, 7, 50);
  add(&plans, "d", "tensor 4", 29, 8, 50);
  add(&plans, "large", "data 2", 31, 1, 101);
  priced_plans_add(&plans, &(PricedPlan){{"wrong", "", {0}}, "tensor 4", 37});
  priced_plans_list(&plans, &result);
  const char *got = texts_of(module->arena, &result);
  cr_expect_str_eq(got, "c d a | tensor 4: c data 4: a data 2: large", "%s",
                   got);
}

/* The whole program of a plan has another price than was thought. */
Test(priced_plans, a_new_price_replaces_the_old_one) {
  Module *module = module_create();
  PricedPlans plans = priced_plans_create(module->arena);
  SearchResult result = {0};
  add(&plans, "a", "data 4", 17, 9, 50);
  add(&plans, "c", "tensor 4", 23, 7, 50);
  add(&plans, "d", "tensor 4", 29, 8, 50);
  add(&plans, "c", "tensor 4", 123, 10, 50);
  priced_plans_add(&plans, &(PricedPlan){{"d", "d", {0}}, "tensor 4", 129});
  priced_plans_list(&plans, &result);
  const char *got = texts_of(module->arena, &result);
  cr_expect_str_eq(got, "a c | data 4: a tensor 4: c", "%s", got);
}

/* The search has priced its finalists as whole programs, and the others not. */
Test(priced_plans, the_best_plan_of_the_search_is_the_first) {
  Module *module = module_create();
  PricedPlans plans = priced_plans_create(module->arena);
  SearchResult result = {.best = {.text = "a"}};
  add(&plans, "c", "tensor 4", 23, 7, 50);
  add(&plans, "a", "data 4", 17, 9, 50);
  priced_plans_list(&plans, &result);
  const char *got = texts_of(module->arena, &result);
  cr_expect_str_eq(got, "a c | data 4: a tensor 4: c", "%s", got);
}
