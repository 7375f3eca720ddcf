/*
 * bounds.c -- bounds the steps of a few small models as the search does, and
 * asks the recheck whether each bound is one.
 *
 *     recheck_bounds [FIRST [LAST]]
 *     mlp.dnn 4 0 1803212 holds
 *
 * A line has the model, the ranks, the number of the case, the bound in
 * picoseconds and what the recheck says.  faults.py links it with faulty copies
 * of the tables and compares the bounds.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/trial.h"
#include "planner/bound.h"
#include "planner/recheck/recheck.h"
#include "price/units/stage_groups.h"

typedef struct BoundCase {
  const char *model, *cluster;
  Override overrides[6];
  int n_overrides;
  int64_t ranks;
  Bytes memory;         /* 0: that of a rank */
  int64_t microbatches; /* 0: any */
  Ps step;              /* settings that take as long get no more work */
  int most_groups;      /* of ranks with stages; 0: no stages */
} BoundCase;

static const BoundCase cases[] = {
#define BOUND_CASE(...) {__VA_ARGS__},
#include "tests/recheck/cases.def"
};

static bool load(Module *module, const BoundCase *of, BoundRequest *out) {
  Arena *arena = module->arena;
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  Compilation *loaded = ARENA_NEW(arena, Compilation);
  Trial *trial = ARENA_NEW(arena, Trial);
  PriceRequest request = {0};
  TrialPlan plan = {.pins = ARENA_NEW(arena, Pins),
                    .blocks = KEPT_BLOCKS,
                    .is_training_only = true};
  *options = (CompileOptions){
      .path = arena_printf(arena, TEST_ROOT "/models/%s", of->model),
      .overrides = of->overrides,
      .n_overrides = of->n_overrides,
      .cluster = arena_printf(arena, TEST_ROOT "/models/%s", of->cluster),
      .level = 2};
  if (driver_load(module, options, loaded) != COMPILE_done ||
      !driver_try(loaded, module->memory, &plan, &request, trial))
    return false;
  Repeat *list = ARENA_ARRAY(arena, Repeat, MOST_REPEATS);
  UnitRepeats *repeats = ARENA_NEW(arena, UnitRepeats);
  ClusterSlice *slice = ARENA_NEW(arena, ClusterSlice);
  int n = graph_repeats(loaded->model->train, NULL, list);
  *repeats = (UnitRepeats){n, KEPT_BLOCKS, list};
  *slice = cluster_slice(arena, trial->priced.cluster, 0, of->ranks);
  const char *reason;
  const Units *units = units_of(arena, trial->c.trained,
                                loaded->pins->batch_dim, repeats, &reason);
  *out =
      (BoundRequest){.units = units,
                     .slice = slice,
                     .model = &trial->priced.model,
                     .ranks = of->ranks,
                     .batch = loaded->pins->batch,
                     .microbatches = of->microbatches,
                     .zeros = of->ranks > 1 ? 0xf : 1,
                     .may_recompute = n > 0,
                     .memory = of->memory ? of->memory : trial->priced.memory,
                     .step = of->step,
                     .least_groups = of->most_groups > 0 ? 2 : 0,
                     .most_groups = of->most_groups};
  if (units && of->most_groups > 0) {
    out->crosses = unit_edges_cross(arena, units);
    out->spans = unit_stage_spans(arena, units);
  }
  if (slice->n_groups > 1) {
    out->n_kinds = slice->n_groups;
    out->kinds = bound_kinds(arena, &trial->priced.model, slice);
  }
  return units != NULL;
}

static void no_memory(void *user) {
  (void)user;
  fprintf(stderr, "recheck_bounds: out of memory\n");
  exit(1);
}

static Module *create_module(void) {
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){memory, arena, names_create(arena), diags_create(arena)};
  return module;
}

/* A bound holds, and is refused if it is raised by 0.1 %. */
static const char *answer(Arena *arena, const BoundRequest *request,
                          const BoundClaim *claim) {
  BoundClaim raised = *claim;
  Bound found = recheck_bound(arena, request, claim);
  if (found.reason) return found.reason;
  if (!recheck_holds(&found, claim)) return "refused";
  raised.bound += raised.bound / 1000;
  found = recheck_bound(arena, request, &raised);
  return recheck_holds(&found, &raised) ? "holds, and 0.1 % more" : "holds";
}

static void print_bound(Module *module, const BoundCase *of) {
  BoundRequest request;
  if (!load(module, of, &request)) {
    printf("-1 not loaded\n");
    return;
  }
  Bound bound = plan_bound(module->arena, &request);
  BoundClaim claim = {bound.time, request.step, bound.weights};
  if (bound.reason)
    printf("-1 no bound: %s\n", bound.reason);
  else
    printf("%lld %s\n", (long long)bound.time,
           answer(module->arena, &request, &claim));
}

static void print_case(int i) {
  Module *module = create_module();
  printf("%s %lld %d ", cases[i].model, (long long)cases[i].ranks, i);
  print_bound(module, &cases[i]);
  memory_destroy(module->memory);
}

int main(int argc, char **argv) {
  int first = argc > 1 ? atoi(argv[1]) : 0;
  int last = argc > 2 ? atoi(argv[2]) : argc > 1 ? first : INT_MAX;
  for (int i = first; i < ARRAY_LENGTH(cases) && i <= last; i++) print_case(i);
  return 0;
}
