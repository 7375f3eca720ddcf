// links: planner driver codegen frontend passes price runtime ir support
/*
 * proposals.c -- tests that floors leave out no setting that wins, and that a
 * signal ends an elimination and a bound.
 */
#include "driver/trial.h"
#include "planner/bound.h"
#include "planner/elimination.h"
#include "planner/propose.h"
#include "planner/search.h"
#include "tests/unit/values.h"

TestSuite(proposals, .fini = modules_destroy);

enum { RANKS = 8 };

typedef struct Program {
  Module *module;
  Compilation loaded;
  Trial trial; /* on one rank */
  UnitRepeats repeats;
  ClusterSlice slice;
  SpaceRequest of;
} Program;

static void load(const char *path, Program *out) {
  out->module = module_create();
  Arena *arena = out->module->arena;
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  *options =
      (CompileOptions){.path = path,
                       .cluster = TEST_ROOT "/models/pipedream-a.cluster",
                       .level = 2};
  cr_assert_eq(driver_load(out->module, options, &out->loaded), COMPILE_done);
  TrialPlan plan = {.pins = ARENA_NEW(arena, Pins), .is_training_only = true};
  PriceRequest *request = ARENA_NEW(arena, PriceRequest);
  cr_assert(driver_try(&out->loaded, out->module->memory, &plan, request,
                       &out->trial));
  const char *reason;
  out->repeats = (UnitRepeats){0};
  out->slice = cluster_slice(arena, out->trial.priced.cluster, 0, RANKS);
  out->of =
      (SpaceRequest){.arena = arena,
                     .units = units_of(arena, out->trial.c.trained,
                                       name_intern(out->module->names, "B"),
                                       &out->repeats, &reason),
                     .slice = &out->slice,
                     .model = &out->trial.priced.model,
                     .ranks = RANKS};
  cr_assert(out->of.units, "%s: %s", path, reason);
}

/* ---- floors ---- */

typedef struct Walk {
  const SpaceRequest *of;
  Bytes memory;
  Ps worth, best; /* best: of those that fit */
  Bytes peak;     /* of the best */
} Walk;

static void visit(void *user, const SpacePlace *place) {
  Walk *w = user;
  Proposals found = {0};
  ProposeRequest request = {.of = w->of,
                            .place = place,
                            .microbatches = 1,
                            .batch_axes = ANY_AXES,
                            .zeros = 0xf,
                            .is_wide = true,
                            .memory = w->memory,
                            .worth = w->worth};
  propose(w->of->arena, &request, &found);
  for (int i = 0; i < found.list.n; i++) {
    const Proposal *p = &found.list.data[i];
    if (!p->fits || p->step >= w->best) continue;
    w->best = p->step;
    w->peak = p->peak;
  }
}

static Walk walk(const SpaceRequest *of, Bytes memory, Ps worth) {
  int n;
  const SpaceInfo *spaces = spaces_all(&n);
  Walk w = {of, memory, worth, INT64_MAX, 0};
  spaces_visit(spaces, n, of, visit, &w);
  return w;
}

/* The elimination looks at no setting that is 5 % slower than the best plan so
 * far, here from the start, or that needs more bytes than there are. */
Test(proposals, floors_leave_out_no_setting_that_wins) {
  static const char *const models[] = {TEST_ROOT "/models/mlp.dnn",
                                       TEST_ROOT "/models/lenet.dnn",
                                       TEST_ROOT "/models/alexnet.dnn"};
  for (int i = 0; i < ARRAY_LENGTH(models); i++) {
    Program program;
    load(models[i], &program);
    Bytes all = (Bytes)1 << 50;
    Walk free = walk(&program.of, all, INT64_MAX / 2);
    cr_assert_lt(free.best, INT64_MAX);
    Ps worth = free.best + free.best / 20;
    cr_expect_eq(walk(&program.of, all, worth).best, free.best, "%s",
                 models[i]);
    cr_expect_eq(walk(&program.of, free.peak, worth).best, free.best,
                 "%s in %lld bytes", models[i], (long long)free.peak);
    driver_end_trial(&program.trial);
  }
}

static BoundRequest request_of(const Program *program, int64_t batch, Ps step) {
  return (BoundRequest){.units = program->of.units,
                        .slice = &program->slice,
                        .model = program->of.model,
                        .ranks = RANKS,
                        .batch = batch,
                        .zeros = 0xf,
                        .memory = (Bytes)1 << 40,
                        .step = step};
}

/* ---- plans of a bound ---- */

/* All are between the bound and the step, and none is there twice. */
Test(proposals, a_bound_lists_plans_by_their_loads) {
  Program program;
  load(TEST_ROOT "/models/alexnet.dnn", &program);
  Arena *arena = program.module->arena;
  BoundRequest request = request_of(&program, 256, 60000000000);
  BoundPlans plans = {0};
  Bound bound = plan_bound_and_plans(arena, &request, &plans);
  cr_assert(!bound.reason, "%s", bound.reason);
  cr_expect_eq(bound.time, plan_bound(arena, &request).time);
  cr_expect_gt(plans.list.n, 2);
  for (int i = 0; i < plans.list.n; i++) {
    const BoundPlan *plan = &plans.list.data[i];
    cr_expect_geq(plan->load + 64, bound.time);
    cr_expect_lt(plan->load, request.step);
    cr_expect(i == 0 || plan[-1].load <= plan->load);
  }
  driver_end_trial(&program.trial);
}

/* ---- signals ---- */

typedef struct Signal {
  int asked, after, n_priced;
  int n_in_part; /* candidates that a descent prices, with fewer blocks */
} Signal;

static bool is_stopped(void *user) {
  Signal *signal = user;
  return signal->asked++ >= signal->after;
}

static void price(void *user, const CandidateList *list, CandidatePrice *out) {
  Signal *signal = user;
  signal->n_priced += list->n;
  if (!list->is_whole) signal->n_in_part += list->n;
  for (int i = 0; i < list->n; i++) out[i] = (CandidatePrice){true, 1000, 1, 2};
}

Test(proposals, a_signal_during_a_bound_leaves_none) {
  Program program;
  load(TEST_ROOT "/models/mlp.dnn", &program);
  Signal signal = {.after = 3}, never = {.after = INT32_MAX};
  BoundRequest request = request_of(&program, 64, INT64_MAX / 4);
  request.is_stopped = is_stopped;
  request.user = &never;
  Bound bound = plan_bound(program.module->arena, &request);
  cr_assert(!bound.reason && never.asked > 4, "%s", bound.reason);
  request.user = &signal;
  bound = plan_bound(program.module->arena, &request);
  cr_assert(bound.reason);
  cr_expect_str_eq(bound.reason, "the search was stopped");
  cr_expect_leq(signal.asked, signal.after + 2, "it ends at once");
  driver_end_trial(&program.trial);
}

/* Any lines, so that the paths of the model are known. */
static const PlanPaths *known_paths(const Program *program) {
  static const char text[] = "mesh {\n}\nplan {\n  zero = 0\n}\n";
  Arena *arena = program->module->arena;
  Source source = {"case.plan", text, strlen(text)};
  PlanSource from = {.file = arena_copy(arena, &source, sizeof source)};
  const Pins *pins =
      driver_read_pins(&program->loaded, &from, diags_create(arena));
  cr_assert(pins);
  return pins->paths;
}

static SearchInput input_of(const Program *program, const SearchHost *host) {
  return (SearchInput){.arena = program->module->arena,
                       .train = program->loaded.model->train,
                       .pins = program->loaded.pins,
                       .cluster = program->trial.priced.cluster,
                       .ranks = RANKS,
                       .most_candidates = 800,
                       .host = host,
                       .kernels = program->trial.c.trained,
                       .model = program->of.model,
                       .slice = &program->slice,
                       .paths = known_paths(program),
                       .memory = (Bytes)1 << 40};
}

/* The walk asks in each place, and the first plan is priced before it. */
Test(proposals, a_signal_during_an_elimination_leaves_a_plan) {
  Program program;
  load(TEST_ROOT "/models/mlp.dnn", &program);
  Signal signal;
  SearchHost host = {.price = price, .is_stopped = is_stopped, .user = &signal};
  SearchInput input = input_of(&program, &host);
  Pricing pricing = pricing_create(&input);
  signal = (Signal){.after = INT32_MAX};
  int n = eliminate_plans(&pricing, input.memory, INT64_MAX / 2).list.n;
  signal = (Signal){.after = 1};
  cr_expect_lt(eliminate_plans(&pricing, input.memory, INT64_MAX / 2).list.n,
               n);
  signal = (Signal){.after = 0};
  cr_expect_eq(eliminate_plans(&pricing, input.memory, INT64_MAX / 2).list.n,
               0);
  for (int after = 2; after < 12; after++) {
    signal = (Signal){.after = after};
    SearchResult result = plan_search(&input);
    cr_expect(result.is_stopped);
    cr_expect(result.best.text, "no plan after %d questions", after);
    cr_expect_leq(signal.n_priced, after + 4);
  }
  driver_end_trial(&program.trial);
}

/* A plan that fits is priced: then only its neighbours are, as whole programs,
 * and fewer than a descent prices. */
Test(proposals, no_descent_follows_an_elimination_with_a_plan) {
  Program program;
  load(TEST_ROOT "/models/mlp.dnn", &program);
  Signal signal = {.after = INT32_MAX};
  SearchHost host = {.price = price, .is_stopped = is_stopped, .user = &signal};
  SearchInput input = input_of(&program, &host);
  cr_expect(plan_search(&input).has_plan);
  cr_expect_eq(signal.n_in_part, 0);
  input.kernels = NULL;
  signal = (Signal){.after = INT32_MAX};
  cr_expect(plan_search(&input).has_plan);
  cr_expect_gt(signal.n_in_part, 0);
  driver_end_trial(&program.trial);
}

static bool has_zero_over_one(const char *text) {
  static const char words[] = "zero = 1 over ";
  const char *at = strstr(text, words);
  return at && at[sizeof words - 1] != '(';
}

/* Plans with two axes are faster, and those with ZeRO over one of them. */
static void price_axes(void *user, const CandidateList *list,
                       CandidatePrice *out) {
  price(user, list, out);
  for (int i = 0; i < list->n; i++) {
    const char *text = list->texts[i], *end = strchr(text, '}');
    int n_axes = -1;
    for (const char *at = text; at < end; at++) n_axes += *at == '\n';
    if (n_axes == 2) out[i].step -= 100;
    if (n_axes == 2 && has_zero_over_one(text)) out[i].step -= 100;
  }
}

Test(proposals, zero_may_be_over_some_axes) {
  Program program;
  load(TEST_ROOT "/models/mlp.dnn", &program);
  Signal signal = {.after = INT32_MAX};
  SearchHost host = {
      .price = price_axes, .is_stopped = is_stopped, .user = &signal};
  SearchInput input = input_of(&program, &host);
  SearchResult result = plan_search(&input);
  cr_assert(result.has_plan);
  cr_expect(has_zero_over_one(result.best.text), "%s", result.best.text);
  cr_expect(strstr(result.best.words, "ZeRO 1 over "), "%s", result.best.words);
  driver_end_trial(&program.trial);
}

static void price_too_large(void *user, const CandidateList *list,
                            CandidatePrice *out) {
  price(user, list, out);
  for (int i = 0; i < list->n; i++) out[i].peak = 3;
}

/* Where a rank has no memory for its part of the parameters, no descent looks
 * for a plan that fits. */
Test(proposals, no_descent_where_parameters_do_not_fit) {
  Program program;
  load(TEST_ROOT "/models/mlp.dnn", &program);
  Signal signal = {.after = INT32_MAX};
  SearchHost host = {
      .price = price_too_large, .is_stopped = is_stopped, .user = &signal};
  SearchInput input = input_of(&program, &host);
  input.memory = 1 << 10;
  SearchResult result = plan_search(&input);
  cr_expect(!result.has_plan);
  cr_expect(result.best.text, "the plan that misses least");
  cr_expect_eq(signal.n_in_part, 0);
  driver_end_trial(&program.trial);
}
