/*
 * bounds.c -- bounds the steps of a few small models as the search does, and
 * asks the recheck whether each bound is one.
 *
 *     recheck_bounds [--damage] [FIRST [LAST]]
 *     mlp.dnn 4 0 1803212 holds
 *
 * A line has the model, the ranks, the number of the case, the bound in
 * picoseconds and what the recheck says.  faults.py links it with faulty copies
 * of the tables and compares the bounds.  With --damage the duals of wide
 * programs are changed, each change by itself: all of these must be refused.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/trial.h"
#include "planner/bound.h"
#include "planner/recheck/recheck.h"
#include "planner/solve/bound_duals.h"
#include "price/units/stage_groups.h"

typedef struct BoundCase {
  const char *model, *cluster;
  Override overrides[6];
  int n_overrides;
  int64_t ranks;
  Bytes memory;         /* 0: that of a rank */
  int64_t microbatches; /* 0: any */
  Ps step;              /* settings that take as long get no more work */
  int most_groups;      /* of ranks with stages; 0: no stages; 1: neither, but
                           devices of several kinds share the work */
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
                     .least_groups = of->most_groups > 1 ? 2 : 0,
                     .most_groups = of->most_groups};
  if (units && of->most_groups > 1) {
    out->crosses = unit_edges_cross(arena, units);
    out->spans = unit_stage_spans(arena, units);
  }
  if (slice->n_groups > 1) {
    out->kinds = bound_kinds(arena, &trial->priced.model, slice);
    if (of->most_groups > 0)
      out->n_kinds = slice->n_groups;
    else
      out->of = bound_slowest_kind(units, out->kinds, slice->n_groups);
    if (out->of) out->model = out->of->model;
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

/* Reads the duals of a text and asks whether the claim holds.  Returns why not,
 * or NULL. */
static const char *refusal(Arena *arena, const BoundRequest *request,
                           BoundClaim claim, const char *text, size_t n) {
  BoundDuals *duals = NULL;
  Status status = bound_duals_read(arena, "duals", text, n, &duals);
  if (status.code != STATUS_ok) return arena_strdup(arena, status.message);
  claim.duals = duals;
  Bound found = recheck_bound(arena, request, &claim);
  if (found.reason || found.fault)
    return found.reason ? found.reason : found.fault;
  return recheck_holds(&found, &claim) ? NULL : "the bound is not one";
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

/* A change of a text of duals: each is in the first setting that has it. */
typedef struct Damage {
  const char *old, *new;
} Damage;

static const Damage damages[] = {
    {"bounds 1", "bounds 2"},
    {"bounds", "duals"},
    {"settings ", "settings 9"},
    {"settings ", "settings 999999999"},
    {"settings ", "settings -"},
    {"mesh 2 2", "mesh 2 3"},
    {"mesh 2 2", "mesh 2 0"},
    {"mesh 2", "mesh 4"},
    {"plan 1 1", "plan 65 1"},
    {"plan 1 1", "plan 1 0"},
    {"plan 1 1 -1", "plan 1 1 -2"},
    {"plan 1 1 -1", "plan 1 1 8"},
    {"plan 1 1 -1 0", "plan 1 1 -1 4"},
    {"plan 1 1 -1 0 0", "plan 1 1 -1 0 2"},
    {"forward_stream ", "forward_stream 1"},
    {"forward_stream", "sideward_stream"},
    {"weights ", "weights link 99, "},
    {"weights ", "weights split 99, "},
    {"weights ", "weights per_byte -1, "},
    {"weights ", "weights per_byte 1, "},
    {"weights ", "weights kind_0 1, "},
    {"shift ", "shift 9"},
    {"shift ", "shift -"},
    {"shift ", "shift 1"},
    {"duals 1", "duals 2"},
    {"bound ", "bound 1"},
    {"bound ", "bound 9999999999999999999"},
    {"best ", "best 9"},
    {"steps ", "steps 1"},
    {"eliminate ", "eliminate 99999"},
    {"eliminate ", "single "},
    {"eliminate ", "dominated 0 0 "},
    {"eliminate ", "join 0 "},
    {"eliminate ", "separate 0 "},
    {"times 0", "times 1\n0"},
    {"pairs ", "pairs 1"},
    {"pairs ", "pairs 9999999"},
    {"stages 1", "stages 0"},
    {"stages 1", "stages 2"},
    {"prices 0", "prices 1\n-5"},
    {"moved ", "moved 1"},
    {"moved ", "removed "},
    {"removed 0", "removed 1\n0 0"},
    {"removed 0", "removed 1\n99999999 0"},
    {"removed 0", "removed 0 7"},
};

static const char *changed(Arena *arena, const char *text, const Damage *by) {
  const char *at = strstr(text, by->old);
  if (!at) return NULL;
  return arena_printf(arena, "%.*s%s%s", (int)(at - text), text, by->new,
                      at + strlen(by->old));
}

/* Returns whether a changed text is refused, and prints the line if not. */
static bool is_refused(Arena *arena, const BoundRequest *request,
                       const BoundClaim *claim, const char *text, size_t n,
                       const char *what) {
  if (refusal(arena, request, *claim, text, n)) return true;
  printf("NOT REFUSED: %s\n", what);
  return false;
}

/* The first message of each setting becomes another number. */
static int change_messages(Arena *arena, const BoundRequest *request,
                           const BoundClaim *claim, const char *text) {
  static const char *const numbers[] = {"99999999",
                                        "-99999999",
                                        "4611686018427387904",
                                        "99999999999999999999",
                                        "-",
                                        "x",
                                        ""};
  int n_passed = 0;
  const char *at = strstr(text, "\nmoved ");
  for (; at; at = strstr(at + 1, "\nmoved "))
    for (int i = 0; i < ARRAY_LENGTH(numbers); i++) {
      const char *number = strchr(at + 1, '\n');
      const char *end = number + 1 + strcspn(number + 1, " \n");
      const char *new = arena_printf(
          arena, "%.*s%s%s", (int)(number + 1 - text), text, numbers[i], end);
      if (atoi(at + 7) == 0) break;
      n_passed +=
          !is_refused(arena, request, claim, new, strlen(new), numbers[i]);
    }
  return n_passed;
}

/* Returns how many changes pass. */
static int damage(Arena *arena, const BoundRequest *request,
                  const BoundClaim *claim, const char *text) {
  size_t n = strlen(text);
  int n_passed = 0;
  for (int i = 0; i < ARRAY_LENGTH(damages); i++) {
    const char *new = changed(arena, text, &damages[i]);
    if (!new) printf("NOT THERE: %s\n", damages[i].old);
    n_passed += !new || !is_refused(arena, request, claim, new, strlen(new),
                                    damages[i].new);
  }
  for (int i = 0; i < 16; i++) /* truncated, and bytes that are no text */
    n_passed += !is_refused(arena, request, claim, text,
                            n - 2 - n / 16 * (size_t)i, "truncated");
  char *copy = arena_strdup(arena, text);
  copy[n / 2] = 0;
  n_passed += !is_refused(arena, request, claim, copy, n, "a byte 0");
  return n_passed + change_messages(arena, request, claim, text);
}

static bool is_damaging;

/* A wide program has duals. */
static const char *prove(Arena *arena, const BoundRequest *request,
                         const BoundMeans *means, Bound *bound) {
  Text text = text_create(arena);
  if (!bound_needs_duals(arena, &means, 1)) return NULL;
  bound_prove(arena, &means, 1, request->step, bound, &text);
  return text_string(&text);
}

/* Returns how many damaged duals pass. */
static int print_bound(Module *module, const BoundCase *of) {
  BoundRequest request;
  Arena *arena = module->arena;
  if (!load(module, of, &request)) {
    printf("-1 not loaded\n");
    return 1;
  }
  const BoundMeans *means;
  BoundDuals *duals = NULL;
  Bound bound = plan_bound_and_means(arena, &request, NULL, &means);
  if (bound.reason) {
    printf("-1 no bound: %s\n", bound.reason);
    return 1;
  }
  const char *text = means ? prove(arena, &request, means, &bound) : NULL;
  BoundClaim claim = {
      .bound = bound.time, .step = request.step, .weights = bound.weights};
  if (text) bound_duals_read(arena, "duals", text, strlen(text), &duals);
  claim.duals = duals;
  printf("%lld %s\n", (long long)bound.time, answer(arena, &request, &claim));
  return is_damaging && text ? damage(arena, &request, &claim, text) : 0;
}

static int print_case(int i) {
  Module *module = create_module();
  printf("%s %lld %d ", cases[i].model, (long long)cases[i].ranks, i);
  int n_passed = print_bound(module, &cases[i]);
  memory_destroy(module->memory);
  return n_passed;
}

int main(int argc, char **argv) {
  is_damaging = argc > 1 && strcmp(argv[1], "--damage") == 0;
  int begin = is_damaging ? 2 : 1, n_passed = 0;
  int first = argc > begin ? atoi(argv[begin]) : 0;
  int last = argc > begin + 1 ? atoi(argv[begin + 1])
             : argc > begin   ? first
                              : INT_MAX;
  for (int i = first; i < ARRAY_LENGTH(cases) && i <= last; i++)
    n_passed += print_case(i);
  return is_damaging && n_passed > 0;
}
