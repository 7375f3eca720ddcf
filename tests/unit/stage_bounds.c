// links: planner driver codegen frontend passes price runtime ir support
/*
 * stage_bounds.c -- tests that no plan with stages is faster than the bound of
 * its setting: of small models, under every schedule, at several cuts.
 */
#include "driver/trial.h"
#include "planner/bound.h"
#include "planner/recheck/recheck.h"
#include "planner/recheck/work.h"
#include "price/units/stage_groups.h"
#include "tests/unit/values.h"

#include <stdlib.h>

TestSuite(stage_bounds, .fini = modules_destroy);

typedef struct Subject {
  const char *path, *cluster;
  Override overrides[4];
  int n_overrides;
  int64_t batch;
  int n_cuts;
  const char *cuts[7]; /* borders, in their order */
} Subject;

static const Subject chain = {.path = TEST_ROOT "/models/mlp.dnn",
                              .cluster =
                                  TEST_ROOT "/models/pipedream-a.cluster",
                              .batch = 64,
                              .n_cuts = 2,
                              .cuts = {"linear[0]", "linear[1]"}};

#define GPT_CUTS                                                               \
  {                                                                            \
    "block[0].attn", "block[0]", "block[1].attn", "block[1]", "block[2].attn", \
        "block[2]", "block[3].attn"                                            \
  }
static const Subject gpt = {.path = TEST_ROOT "/models/chargpt.dnn",
                            .cluster = TEST_ROOT "/models/pipedream-a.cluster",
                            .overrides = {{"L", "4"}, {"B", "16"}},
                            .n_overrides = 2,
                            .batch = 16,
                            .n_cuts = 7,
                            .cuts = GPT_CUTS};
static const Subject gpt_h100 = {
    .path = TEST_ROOT "/models/gpt2.dnn",
    .cluster = TEST_ROOT "/models/h100x256.cluster",
    .overrides = {{"L", "4"}, {"B", "16"}, {"V", "512"}, {"C", "1536"}},
    .n_overrides = 4,
    .batch = 16,
    .n_cuts = 7,
    .cuts = GPT_CUTS};

typedef struct Program {
  const Subject *subject;
  Module *module;
  Compilation loaded;
  Trial trial; /* on one rank */
  BoundRequest space;
} Program;

static void load(const Subject *subject, int64_t ranks, Program *out) {
  *out = (Program){.subject = subject, .module = module_create()};
  Arena *arena = out->module->arena;
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  *options = (CompileOptions){.path = subject->path,
                              .overrides = subject->overrides,
                              .n_overrides = subject->n_overrides,
                              .cluster = subject->cluster,
                              .level = 2};
  cr_assert_eq(driver_load(out->module, options, &out->loaded), COMPILE_done);
  TrialPlan plan = {.pins = ARENA_NEW(arena, Pins), .is_training_only = true};
  PriceRequest *request = ARENA_NEW(arena, PriceRequest);
  cr_assert(driver_try(&out->loaded, out->module->memory, &plan, request,
                       &out->trial));
  UnitRepeats *repeats = ARENA_NEW(arena, UnitRepeats);
  Repeat *list = ARENA_ARRAY(arena, Repeat, MOST_REPEATS);
  int n = graph_repeats(out->loaded.model->train, NULL, list);
  *repeats = (UnitRepeats){n, KEPT_BLOCKS, list};
  ClusterSlice *slice = ARENA_NEW(arena, ClusterSlice);
  *slice = cluster_slice(arena, out->trial.priced.cluster, 0, ranks);
  const char *reason;
  const Units *units =
      units_of(arena, out->trial.c.trained,
               name_intern(out->module->names, "B"), repeats, &reason);
  cr_assert(units, "%s", reason);
  out->space = (BoundRequest){.units = units,
                              .slice = slice,
                              .model = &out->trial.priced.model,
                              .ranks = ranks,
                              .batch = subject->batch,
                              .may_recompute = n > 0,
                              .crosses = unit_edges_cross(arena, units),
                              .spans = unit_stage_spans(arena, units)};
}

/* ---- plans ---- */

typedef struct Shape {
  const char *schedule;
  int groups, chunks, microbatches, zero, cut; /* cut: where cuts begin */
  int data, tensor;
  bool recomputes;
} Shape;

static const char *text_of(const Program *program, const Shape *s) {
  const Subject *subject = program->subject;
  int n = s->groups * s->chunks - 1;
  if (n > subject->n_cuts) return NULL;
  Text out = text_create(program->module->arena);
  text_printf(&out, "mesh { pipe = %d", s->groups);
  if (s->data > 1) text_printf(&out, "; data = %d", s->data);
  if (s->tensor > 1) text_printf(&out, "; tensor = %d", s->tensor);
  text_printf(&out, " }\nplan {\n  schedule = %s\n  microbatches = %d\n",
              s->schedule, s->microbatches);
  text_printf(&out, "  zero = %d\n", s->zero);
  if (s->data > 1) text_add(&out, "  shard B over data\n");
  if (s->tensor > 1) text_add(&out, "  shard F, H over tensor\n");
  if (s->recomputes) text_add(&out, "  remat block\n");
  for (int i = 0; i < n; i++) {
    int at = n == 1 ? s->cut % subject->n_cuts
                    : (i * (subject->n_cuts - 1) + n - 2) / (n - 1);
    text_printf(&out, "  cut after %s\n", subject->cuts[at]);
  }
  text_add(&out, "}\n");
  return text_string(&out);
}

/* Bounds the setting of the plan in the memory that it takes. */
static Bound bound_of(const Program *program, const Shape *s, Bytes peak,
                      Ps step) {
  Arena *arena = program->module->arena;
  Mesh *mesh = ARENA_NEW(arena, Mesh);
  if (s->data > 1)
    mesh->axes[mesh->n_axes++] = (MeshAxis){.name = "data", .size = s->data};
  if (s->tensor > 1)
    mesh->axes[mesh->n_axes++] =
        (MeshAxis){.name = "tensor", .size = s->tensor};
  BoundRequest request = program->space;
  request.least_groups = request.most_groups = s->groups;
  request.mesh = mesh;
  request.microbatches = s->microbatches;
  request.zeros = 1u << s->zero;
  request.memory = peak;
  request.step = step;
  Bound bound = plan_bound(arena, &request);
  cr_assert(!bound.reason, "%s", bound.reason);
  BoundClaim claim = {
      .bound = bound.time, .step = step, .weights = bound.weights};
  Bound again = recheck_bound(arena, &request, &claim);
  cr_expect(!again.reason && recheck_holds(&again, &claim));
  return bound;
}

/* Returns the bound as a share of the step; 0: there is no such plan. */
static double check(const Program *program, const Shape *shape) {
  Arena *arena = program->module->arena;
  const char *text = text_of(program, shape);
  Trial trial;
  double share = 0;
  if (!text) return 0;
  Source source = {"stages.plan", text, strlen(text)};
  PlanSource from = {.file = &source};
  TrialPlan plan = {
      .pins = driver_read_pins(&program->loaded, &from, diags_create(arena)),
      .is_training_only = true};
  PriceRequest *request = ARENA_NEW(arena, PriceRequest);
  if (plan.pins && driver_try(&program->loaded, program->module->memory, &plan,
                              request, &trial)) {
    Ps step = trial.priced.price.step;
    Bound bound = bound_of(program, shape, trial.priced.peak, INT64_MAX / 4);
    share = (double)bound.time / (double)step;
    cr_expect(bound.time <= step, "bound %lld, step %lld\n%s",
              (long long)bound.time, (long long)step, text);
    /* The less time a step has, the more micro-batches are stored at a time. */
    Bound near =
        bound_of(program, shape, trial.priced.peak, step + step / 1000);
    cr_expect(near.time <= step, "near bound %lld, step %lld\n%s",
              (long long)near.time, (long long)step, text);
    if (near.time > bound.time) bound = near;
    share = (double)bound.time / (double)step;
    if (getenv("STAGE_BOUNDS")) printf("%.3f %s\n", share, text);
  }
  if (plan.pins) driver_end_trial(&trial);
  return share;
}

static const struct {
  const char *text;
  int chunks;
} schedules[] = {{"naive", 1},
                 {"fthenb", 1},
                 {"gpipe", 1},
                 {"1f1b", 1},
                 {"interleaved(v = 2)", 2},
                 {"bfs(v = 2)", 2},
                 {"zb1p(v = 2)", 2},
                 {"zbh1", 1},
                 {"zbh2", 1},
                 {"zbv", 2},
                 {"vhalf", 2},
                 {"vmin", 2},
                 {"dualpipev", 2}};

/* Returns how many plans there were; each is in the setting of `like`. */
static int check_schedules(const Program *program, const Shape *like,
                           double *out_most) {
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++) {
    Shape shape = *like;
    shape.schedule = schedules[i].text;
    shape.chunks = schedules[i].chunks;
    double share = check(program, &shape);
    n += share > 0;
    if (share > *out_most) *out_most = share;
  }
  return n;
}

Test(stage_bounds, hold_for_a_chain_of_layers) {
  Program program;
  double most = 0;
  int n = 0;
  load(&chain, 4, &program);
  for (int m = 2; m <= 8; m *= 2)
    for (int cut = 0; cut < 2; cut++)
      n += check_schedules(
          &program,
          &(Shape){.groups = 2, .microbatches = m, .cut = cut, .data = 2},
          &most);
  cr_expect_gt(n, 20);
  cr_expect(most > 0.4, "no bound is near: %.3f of a step", most);
  driver_end_trial(&program.trial);
}

static void check_gpt(const Subject *subject) {
  Program program;
  double most = 0;
  int n = 0;
  load(subject, 4, &program);
  static const Shape shapes[] = {
      {.groups = 2, .microbatches = 4, .cut = 3, .data = 2, .zero = 1},
      {.groups = 2, .microbatches = 8, .cut = 2, .tensor = 2},
      {.groups = 2, .microbatches = 8, .cut = 3, .data = 2, .zero = 3},
      {.groups = 2,
       .microbatches = 4,
       .tensor = 2,
       .recomputes = true,
       .cut = 4},
      {.groups = 4, .microbatches = 8},
      {.groups = 4, .microbatches = 16, .recomputes = true}};
  for (int i = 0; i < ARRAY_LENGTH(shapes); i++)
    n += check_schedules(&program, &shapes[i], &most);
  cr_expect_gt(n, 50);
  cr_expect(most > 0.6, "no bound is near: %.3f of a step", most);
  driver_end_trial(&program.trial);
}

Test(stage_bounds, hold_for_blocks_of_attention) {
  check_gpt(&gpt);
}

Test(stage_bounds, hold_behind_fast_links) {
  check_gpt(&gpt_h100);
}

/* Half a block on each rank: many micro-batches are in flight, or each rank
 * waits for the few that there are. */
Test(stage_bounds, hold_for_many_groups) {
  static const int microbatches[] = {2, 4, 8, 16};
  Program program;
  int n = 0;
  load(&gpt_h100, 8, &program);
  for (int i = 0; i < ARRAY_LENGTH(microbatches); i++) {
    double most = 0;
    n += check_schedules(&program,
                         &(Shape){.groups = 8, .microbatches = microbatches[i]},
                         &most);
    cr_expect(most > 0.35, "%d micro-batches: %.3f of a step at most",
              microbatches[i], most);
  }
  cr_expect_gt(n, 20);
  driver_end_trial(&program.trial);
}

/* A block on each of six ranks. */
static const Subject gpt_deep = {
    .path = TEST_ROOT "/models/chargpt.dnn",
    .cluster = TEST_ROOT "/models/h100x256.cluster",
    .overrides = {{"L", "6"}, {"B", "64"}, {"C", "512"}},
    .n_overrides = 3,
    .batch = 64};

static Bound bound_in(Program *program, Bytes memory, Ps step) {
  BoundRequest request = program->space;
  request.least_groups = request.most_groups = 6;
  request.microbatches = 16;
  request.zeros = 1;
  request.memory = memory;
  request.step = step;
  Bound out = plan_bound(program->module->arena, &request);
  BoundClaim claim = {.bound = out.time, .step = step, .weights = out.weights};
  Bound again = recheck_bound(program->module->arena, &request, &claim);
  cr_expect(!again.reason && recheck_holds(&again, &claim));
  return out;
}

/* Where little memory is left, micro-batches in flight do not fit, and blocks
 * are computed again. */
Test(stage_bounds, rise_with_micro_batches_in_flight) {
  Program program;
  load(&gpt_deep, 6, &program);
  Ps free = bound_in(&program, 1000000000, INT64_MAX / 4).time;
  Ps once = bound_in(&program, 62000000, INT64_MAX / 4).time;
  Bound many = bound_in(&program, 62000000, free + free / 50);
  cr_expect_eq(free, once, "%lld, then %lld", (long long)free, (long long)once);
  cr_expect_gt(many.time, free + free / 60);
  cr_expect(many.setting.recomputes);
  driver_end_trial(&program.trial);
}

/* Fewer micro-batches than groups: each group waits for all others. */
Test(stage_bounds, are_no_less_than_one_micro_batch_through_all_stages) {
  Program program;
  load(&gpt_deep, 6, &program);
  BoundRequest request = program.space;
  request.least_groups = request.most_groups = 6;
  request.microbatches = 2;
  request.zeros = 1;
  request.memory = 1000000000;
  request.step = INT64_MAX / 4;
  Bound chain = plan_bound(program.module->arena, &request);
  request.spans = NULL;
  Bound mean = plan_bound(program.module->arena, &request);
  cr_expect_eq(chain.by, BOUND_BY_chain);
  cr_expect_gt(chain.time, mean.time + mean.time / 2);
  driver_end_trial(&program.trial);
}

/* ---- kinds of devices ---- */

static const Subject gpt_mixed = {.path = TEST_ROOT "/models/chargpt.dnn",
                                  .cluster = TEST_ROOT "/models/mixed.cluster",
                                  .overrides = {{"L", "4"}, {"B", "64"}},
                                  .n_overrides = 2,
                                  .batch = 64};

static void load_kinds(Program *program, int most_groups) {
  load(&gpt_mixed, 32, program);
  BoundRequest *space = &program->space;
  space->step = INT64_MAX / 4;
  space->most_groups = most_groups;
  space->n_kinds = space->slice->n_groups;
  space->kinds =
      bound_kinds(program->module->arena, space->model, space->slice);
}

/* All prices of the time of devices give bounds; the best ones are found. */
Test(stage_bounds, have_the_best_prices_of_kinds) {
  Program program;
  load_kinds(&program, 64);
  Arena *arena = program.module->arena;
  Bound bound = plan_bound(arena, &program.space);
  double best = (double)bound.time, near = 0;
  cr_assert_eq(bound.by, BOUND_BY_work);
  uint64_t key = random_key(1, "prices of kinds");
  for (uint64_t i = 0; i < 300; i++) {
    BoundWeights prices = {.n_kinds = 2, .of_kind = {1, 1}, .split = -1};
    prices.of_kind[i % 2] = (double)(1 + random_below(key, i, 999)) / 1000;
    double time = (double)recheck_work(arena, &program.space, &prices);
    cr_expect_leq(time, best + 1, "%g and %g", prices.of_kind[0],
                  prices.of_kind[1]);
    if (time > near) near = time;
  }
  cr_expect_gt(near, best * 0.99);
  cr_expect_eq((double)recheck_work(arena, &program.space, &bound.weights),
               best);
  driver_end_trial(&program.trial);
}

/* One program gives slow devices as much as fast ones. */
Test(stage_bounds, are_higher_without_stages_on_slow_devices) {
  Program staged, whole;
  load_kinds(&staged, 64);
  load_kinds(&whole, 0);
  Ps with = plan_bound(staged.module->arena, &staged.space).time;
  Ps without = plan_bound(whole.module->arena, &whole.space).time;
  cr_expect_gt(without, with + with / 10);
  driver_end_trial(&staged.trial);
  driver_end_trial(&whole.trial);
}
