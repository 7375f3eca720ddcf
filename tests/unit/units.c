// links: planner driver codegen frontend passes price runtime ir support
/*
 * units.c -- tests that units hold every kernel of a training step once, that
 * their loads add up to what its list runs, that equal blocks count as often as
 * the program has them, and that bounds hold for all of them.
 */
#include <math.h>

#include "driver/trial.h"
#include "ir/list/instructions.h"
#include "ir/scan.h"
#include "planner/bound.h"
#include "planner/loads.h"
#include "planner/recheck/recheck.h"
#include "price/units/placed_units.h"
#include "tests/unit/values.h"

TestSuite(units, .fini = modules_destroy);

typedef struct Subject {
  const char *path;
  Override overrides[6];
  int n_overrides;
} Subject;

static const Subject subjects[] = {
    {TEST_ROOT "/models/mlp.dnn", {{0}}, 0},
    {TEST_ROOT "/models/lenet.dnn", {{0}}, 0},
    {TEST_ROOT "/models/resnet50.dnn", {{0}}, 0},
    {TEST_ROOT "/models/vit.dnn", {{"L", "3"}}, 1},
    {TEST_ROOT "/models/gpt2.dnn", {{"L", "3"}}, 1},
    {TEST_ROOT "/models/moe.dnn", {{"L", "2"}}, 1},
    {TEST_ROOT "/models/s2vt.dnn", {{"V", "600"}, {"P", "64"}, {"M", "6"}}, 3},
    {TEST_ROOT "/models/gnmt8.dnn", {{"V", "500"}, {"B", "8"}, {"S", "5"}}, 3},
};

typedef struct Program {
  Module *module;
  Compilation loaded;
  Trial trial; /* on one rank */
  const Units *units;
} Program;

static void load(const Subject *subject, int blocks, Program *out) {
  static const char cluster[] = TEST_ROOT "/models/h100x256.cluster";
  out->module = module_create();
  Arena *arena = out->module->arena;
  CompileOptions *options = ARENA_NEW(arena, CompileOptions);
  *options = (CompileOptions){.path = subject->path,
                              .overrides = subject->overrides,
                              .n_overrides = subject->n_overrides,
                              .cluster = cluster,
                              .level = 2};
  cr_assert_eq(driver_load(out->module, options, &out->loaded), COMPILE_done);
  TrialPlan plan = {.pins = ARENA_NEW(arena, Pins),
                    .blocks = blocks,
                    .is_training_only = true};
  PriceRequest *request = ARENA_NEW(arena, PriceRequest);
  cr_assert(driver_try(&out->loaded, out->module->memory, &plan, request,
                       &out->trial));
  UnitRepeats *repeats = ARENA_NEW(arena, UnitRepeats);
  Repeat *list = ARENA_ARRAY(arena, Repeat, MOST_REPEATS);
  int n = graph_repeats(out->loaded.model->train, NULL, list);
  *repeats = (UnitRepeats){n, KEPT_BLOCKS, list};
  const char *reason;
  out->units = units_of(arena, out->trial.c.trained,
                        name_intern(out->module->names, "B"), repeats, &reason);
  cr_assert(out->units, "%s: %s", subject->path, reason);
}

static Load sum_of(const Program *program) {
  const Units *units = program->units;
  Arena *arena = program->module->arena;
  const Mesh mesh = {0};
  Loads *loads = loads_create(
      arena, &(LoadRequest){.units = units,
                            .mesh = arena_copy(arena, &mesh, sizeof mesh),
                            .slice = &program->trial.priced.slice,
                            .model = &program->trial.priced.model,
                            .microbatches = 1});
  Load sum = {0};
  for (int u = 0; u < units->units.n; u++) {
    Load load = loads_of_unit(loads, u, (Assignment){{-1, -1, -1}});
    int64_t times = units->units.data[u]->times;
    sum.forward += times * load.forward;
    sum.input_gradient += times * load.input_gradient;
    sum.weight_gradient += times * load.weight_gradient;
    for (int k = 0; k < 2; k++) sum.light[k] += times * load.light[k];
    sum.zero[0].state += times * load.zero[0].state;
  }
  return sum;
}

Test(units, every_kernel_is_in_one_unit) {
  for (int s = 0; s < ARRAY_LENGTH(subjects); s++) {
    Program program;
    load(&subjects[s], 0, &program);
    const Graph *graph = program.units->graph;
    int *n = ARENA_ARRAY(program.module->arena, int, graph->nodes.n);
    for (int u = 0; u < program.units->units.n; u++) {
      const PlanUnit *unit = program.units->units.data[u];
      for (int k = 0; k < unit->kernels.n; k++) n[unit->kernels.data[k].id]++;
    }
    for (int id = 0; id < graph->nodes.n; id++) {
      const Node *node = graph->nodes.data[id];
      if (node->phase == PHASE_update || !node_is_launched(graph, id)) continue;
      cr_expect_eq(n[id], 1, "%s: '%s' is in %d units", subjects[s].path,
                   node->path, n[id]);
    }
    driver_end_trial(&program.trial);
  }
}

static Ps time_of_sum(const Program *program, const Mesh *mesh,
                      const Type *type) {
  int64_t n = type_elements(type);
  Bytes sent = collective_sent_elements(OP_all_reduce, 2, n, n) *
               dtype_size_bytes(type->dtype);
  SimTransfer t =
      price_message(program->module->arena, &program->trial.priced.model,
                    &program->trial.priced.slice, mesh, OP_all_reduce, 1, sent);
  Ps busy = 0;
  for (int i = 0; i < t.n_loads; i++)
    if (t.loads[i].busy > busy) busy = t.loads[i].busy;
  return t.latency + busy;
}

/* Returns what all readers pay for a value that is partial over loop dim `loop`
 * of the unit that makes it; 0: the unit sums another value, too. */
static Ps paid_for(const Program *program, Loads *loads, const UnitEdge *edge,
                   int loop) {
  const Units *units = program->units;
  const PlanUnit *unit = units->units.data[edge->from];
  Assignment from = {{(int8_t)loop, -1, -1}}, to = {{-1, -1, -1}};
  int n_sums = 0;
  for (int i = 0; i < unit->sums.n; i++) n_sums += unit->sums.data[i].over != 0;
  if (n_sums != 1 || unit->sums.data[0].over != edge->partial) return 0;
  Ps paid = loads_of_unit(loads, edge->from, from)
                .wait[unit->sums.data[0].is_backward];
  for (int i = 0; i < units->edges.n; i++)
    if (value_equal(units->edges.data[i].value, edge->value))
      paid += loads_of_edge(loads, &units->edges.data[i], from, to).wait;
  return paid;
}

/* The ranks reduce a partial value once, also where the unit that makes it and
 * another one read it. */
Test(units, readers_of_a_partial_value_share_its_sum) {
  static const Subject subject = {
      TEST_ROOT "/models/gpt2.dnn", {{"L", "3"}}, 1};
  Program program;
  int n = 0;
  load(&subject, 0, &program);
  Arena *arena = program.module->arena;
  Mesh *mesh = ARENA_NEW(arena, Mesh);
  *mesh = (Mesh){.n_axes = 1, .axes = {{.name = "data", .size = 2}}};
  Loads *loads =
      loads_create(arena, &(LoadRequest){.units = program.units,
                                         .mesh = mesh,
                                         .slice = &program.trial.priced.slice,
                                         .model = &program.trial.priced.model,
                                         .microbatches = 1});
  for (int i = 0; i < program.units->edges.n; i++) {
    const UnitEdge *edge = &program.units->edges.data[i];
    for (int d = 0; edge->is_backward && d < MOST_LOOP_DIMS; d++) {
      Ps paid = edge->partial >> d & 1 ? paid_for(&program, loads, edge, d) : 0;
      if (!paid) continue;
      n++;
      cr_expect(paid <= time_of_sum(&program, mesh, edge->type),
                "edge %d -> %d", edge->from, edge->to);
    }
  }
  cr_expect_gt(n, 0);
  driver_end_trial(&program.trial);
}

/* The time of all launches but those of the update, which is an estimate. */
static double launches_of(const Program *program, const Graph *graph) {
  double sum = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase == PHASE_update || !node_is_launched(graph, id)) continue;
    if (node->op == OP_scan) {
      sum += (double)scan_steps(node) * launches_of(program, node->body);
      continue;
    }
    LaunchCost cost = cost_launch(&program->trial.priced.model, graph, id);
    sum += (double)(cost.launch + cost.time);
  }
  return sum;
}

static double launches(const Program *program) {
  return launches_of(program, program->units->graph);
}

Test(units, loads_of_one_rank_are_those_of_its_list) {
  for (int s = 0; s < ARRAY_LENGTH(subjects); s++) {
    Program program;
    load(&subjects[s], 0, &program);
    Load sum = sum_of(&program);
    double found =
        (double)(sum.forward + sum.input_gradient + sum.weight_gradient);
    double listed = launches(&program);
    cr_expect(found > 0.99 * listed && found < 1.01 * listed,
              "%s: %.0f of %.0f us", subjects[s].path, found / 1e6,
              listed / 1e6);
    driver_end_trial(&program.trial);
  }
}

/* All blocks of a whole program are there. */
static void count_once(const Units *units) {
  for (int u = 0; u < units->units.n; u++) units->units.data[u]->times = 1;
  for (int i = 0; i < units->edges.n; i++) units->edges.data[i].times = 1;
}

Test(units, blocks_count_as_often_as_the_program_has_them) {
  static const Subject deep = {TEST_ROOT "/models/gpt2.dnn", {{"L", "12"}}, 1};
  Program whole, folded;
  load(&deep, 0, &whole);
  load(&deep, KEPT_BLOCKS, &folded);
  count_once(whole.units);
  Load a = sum_of(&whole), b = sum_of(&folded);
  cr_expect_lt(folded.units->units.n, whole.units->units.n);
  cr_expect_eq(a.forward, b.forward);
  cr_expect_eq(a.input_gradient, b.input_gradient);
  cr_expect_eq(a.weight_gradient, b.weight_gradient);
  cr_expect_eq(a.zero[0].state, b.zero[0].state);
  driver_end_trial(&whole.trial);
  driver_end_trial(&folded.trial);
}

static int count_cuts(const Units *units) {
  int n = 0;
  for (int i = 0; i < units->edges.n; i++) n += units->edges.data[i].is_cut;
  return n;
}

/* The loss that balances experts, and casts of weights, are beside all else. */
Test(units, kernels_that_hardly_work_are_no_cover) {
  static const Subject experts = {TEST_ROOT "/models/moe.dnn", {{"L", "3"}}, 1};
  static const Subject plain = {TEST_ROOT "/models/vgg16.dnn", {{0}}, 0};
  Program program;
  load(&experts, 0, &program);
  Load sum = sum_of(&program);
  cr_expect_gt(sum.light[0], 0);
  cr_expect_lt(sum.light[0], sum.forward / 50);
  cr_expect_lt(sum.light[1], sum.input_gradient / 50);
  cr_expect_geq(count_cuts(program.units), 3 * 4);
  driver_end_trial(&program.trial);
  load(&plain, 0, &program);
  cr_expect_eq(sum_of(&program).light[0], 0, "a chain has nothing beside it");
  driver_end_trial(&program.trial);
}

/* ---- bounds ---- */

static Bound bound_of(Program *program, int64_t ranks, Bytes memory,
                      unsigned zeros) {
  Arena *arena = program->module->arena;
  ClusterSlice slice =
      cluster_slice(arena, program->trial.priced.cluster, 0, ranks);
  BoundRequest request = {.units = program->units,
                          .slice = &slice,
                          .model = &program->trial.priced.model,
                          .ranks = ranks,
                          .batch = 8,
                          .zeros = zeros,
                          .may_recompute = true,
                          .memory = memory,
                          .step = INT64_MAX / 4};
  return plan_bound(arena, &request);
}

/* Blocks that a program has once for many bound it as if all were there. */
Test(units, a_bound_is_that_of_all_blocks) {
  static const Subject deep = {TEST_ROOT "/models/gpt2.dnn", {{"L", "9"}}, 1};
  Program whole, folded;
  load(&deep, 0, &whole);
  load(&deep, KEPT_BLOCKS, &folded);
  cr_assert(folded.units->units.n < whole.units->units.n);
  count_once(whole.units);
  for (int64_t ranks = 1; ranks <= 2; ranks++) {
    Bound a = bound_of(&whole, ranks, INT64_MAX / 4, 3);
    Bound b = bound_of(&folded, ranks, INT64_MAX / 4, 3);
    cr_assert(!a.reason && !b.reason, "%s %s", a.reason, b.reason);
    double apart = (double)(a.time - b.time) / (double)a.time;
    cr_expect(fabs(apart) < 0.001, "%lld ranks: %lld and %lld ps",
              (long long)ranks, (long long)a.time, (long long)b.time);
  }
  driver_end_trial(&whole.trial);
  driver_end_trial(&folded.trial);
}

/* Fewer plans are not faster. */
Test(units, a_bound_rises_with_what_is_asked) {
  static const Subject small = {TEST_ROOT "/models/gpt2.dnn", {{"L", "3"}}, 1};
  Program program;
  load(&small, 0, &program);
  Bound free = bound_of(&program, 4, INT64_MAX / 4, 0xf);
  cr_assert(!free.reason && free.time > 0);
  Bound limited = bound_of(&program, 4, (Bytes)1 << 30, 0xf);
  cr_expect(limited.reason || limited.time >= free.time);
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++)
    cr_expect(bound_of(&program, 4, INT64_MAX / 4, 1u << zero).time + 64 >=
              free.time);
  Bound none = bound_of(&program, 4, 1, 0xf);
  cr_expect_str_eq(none.reason, "no setting has a plan that fits");
  driver_end_trial(&program.trial);
}

static bool allows_batch(const Program *program, int64_t outer, int64_t inner,
                         int64_t microbatches) {
  const Units *units = program->units;
  Mesh mesh = {.n_axes = 2,
               .axes = {{.size = (int32_t)outer}, {.size = (int32_t)inner}}};
  Loads *loads =
      loads_create(program->module->arena,
                   &(LoadRequest){.units = units,
                                  .mesh = &mesh,
                                  .slice = &program->trial.priced.slice,
                                  .model = &program->trial.priced.model,
                                  .microbatches = microbatches});
  for (int u = 0; u < units->units.n; u++)
    for (int d = 0; d < units->units.data[u]->n_dims; d++)
      if (units->units.data[u]->batch >> d & 1)
        return loads_allow(loads, u, (Assignment){{(int8_t)d, (int8_t)d, -1}});
  return false;
}

/* Six samples. */
Test(units, shards_are_padded_if_they_are_smaller_then) {
  static const Subject six = {TEST_ROOT "/models/mlp.dnn", {{"B", "6"}}, 1};
  Program program;
  load(&six, 0, &program);
  cr_expect(allows_batch(&program, 3, 2, 1));
  cr_expect(allows_batch(&program, 2, 2, 1), "2, 2, 2 and 0");
  cr_expect(allows_batch(&program, 4, 2, 1),
            "one of each, two ranks have none");
  cr_expect(!allows_batch(&program, 8, 2, 1),
            "one of each over the first axis");
  cr_expect(!allows_batch(&program, 2, 2, 2), "micro-batches have one size");
  cr_expect(allows_batch(&program, 3, 1, 2));
  driver_end_trial(&program.trial);
}

/* Returns the loads of linear layer number 2 of an mlp whose dim of this name
 * is sharded over four ranks. */
static Load load_of_last(const Program *program, const char *dim) {
  const Units *units = program->units;
  const Mesh mesh = {.n_axes = 1, .axes = {{.name = "tensor", .size = 4}}};
  Arena *arena = program->module->arena;
  Loads *loads = loads_create(
      arena, &(LoadRequest){.units = units,
                            .mesh = arena_copy(arena, &mesh, sizeof mesh),
                            .slice = &program->trial.priced.slice,
                            .model = &program->trial.priced.model,
                            .microbatches = 1});
  for (int u = 0; u < units->units.n; u++) {
    const PlanUnit *unit = units->units.data[u];
    int id = unit->kernels.data[0].id;
    if (strcmp(units->graph->nodes.data[id]->path, "linear[2].dot") != 0)
      continue;
    for (int d = 0; d < unit->n_dims; d++)
      if (strcmp(unit->dims[d].name, dim) == 0)
        return loads_of_unit(loads, u, (Assignment){{(int8_t)d, -1, -1}});
  }
  cr_assert_fail("no dim %s", dim);
  return (Load){0};
}

/* Ten classes over four ranks are padded to twelve, 1,024 channels are not. */
Test(units, weight_gradients_may_shard_another_dim) {
  static const Subject mlp = {
      TEST_ROOT "/models/mlp.dnn", {{"H2", "1024"}, {"B", "4096"}}, 2};
  Program program;
  load(&mlp, 0, &program);
  Load classes = load_of_last(&program, "O"),
       channels = load_of_last(&program, "I"),
       batch = load_of_last(&program, "B");
  cr_expect_lt(channels.weight_gradient, classes.weight_gradient);
  cr_expect_eq(classes.least_weights, channels.weight_gradient);
  cr_expect_eq(channels.least_weights, channels.weight_gradient);
  cr_expect_eq(batch.least_weights, batch.weight_gradient,
               "what is a sum stays one");
  cr_expect_eq(classes.zero[0].gradient, 4 * 1024 * 3);
  cr_expect_eq(classes.zero[0].least_gradient, 4 * 1024 * 10 / 4);
  cr_expect_eq(batch.zero[0].least_summed, batch.zero[0].summed);
  driver_end_trial(&program.trial);
}

/* ---- the placements of a plan ---- */

/* Returns the axis that shards a dim of this name; -1: none, -2: the unit has
 * no such dim. */
static int axis_of(const PlanUnit *unit, Assignment at, const char *name) {
  int found = -2;
  for (int d = 0; d < unit->n_dims; d++) {
    if (strcmp(unit->dims[d].name, name) != 0) continue;
    found = -1;
    for (int a = 0; a < 2; a++)
      if (at.loop[a] == d) return a;
  }
  return found;
}

static PlacedUnits placed_of(Program *program, const char *text, Trial *trial) {
  Arena *arena = program->module->arena;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){"placed.plan", text, strlen(text)};
  PlanSource from = {.file = source};
  TrialPlan plan = {
      .pins = driver_read_pins(&program->loaded, &from, diags_create(arena))};
  PriceRequest *request = ARENA_NEW(arena, PriceRequest);
  cr_assert(plan.pins, "%s", text);
  cr_assert(driver_try(&program->loaded, program->module->memory, &plan,
                       request, trial));
  return units_placed(arena, program->units, trial->c.plan,
                      trial->priced.stage->instructions->graph);
}

/* Returns how long sums of weight gradients keep the busiest link busy. */
static Ps listed_sums(Arena *arena, const Trial *trial) {
  const Graph *graph = trial->priced.stage->instructions->graph;
  Ps busy[N_LOAD_LINKS] = {0}, most = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_weight_gradient ||
        !op_has(node->op, OP_FLAG_asynchronous) || !node_is_launched(graph, id))
      continue;
    SimTransfer t = price_transfer(arena, &trial->priced.model,
                                   &trial->priced.slice, graph, id);
    for (int i = 0; i < t.n_loads; i++)
      if (t.loads[i].link < N_LOAD_LINKS)
        busy[t.loads[i].link] += t.loads[i].busy;
  }
  for (int l = 0; l < N_LOAD_LINKS; l++)
    if (busy[l] > most) most = busy[l];
  return most;
}

/* With ZeRO, ranks along `tensor`, which have equal gradients, sum a slice each
 * over `data`. */
Test(units, copies_of_a_gradient_are_sliced_before_they_are_summed) {
  static const Subject mlp = {TEST_ROOT "/models/mlp.dnn", {{0}}, 0};
  Program program;
  Trial trial;
  Ps most = 0;
  load(&mlp, 0, &program);
  Arena *arena = program.module->arena;
  PlacedUnits placed = placed_of(&program,
                                 "mesh { tensor = 4; data = 2 }\n"
                                 "plan { zero = 1 over (tensor, data); shard B "
                                 "over data }\n",
                                 &trial);
  cr_assert(!placed.reason, "%s", placed.reason);
  Loads *loads =
      loads_create(arena, &(LoadRequest){.units = program.units,
                                         .mesh = placed.mesh,
                                         .slice = &trial.priced.slice,
                                         .model = &trial.priced.model,
                                         .microbatches = 1});
  for (int l = 0; l < N_LOAD_LINKS; l++) {
    Ps busy = 0;
    for (int u = 0; u < program.units->units.n; u++)
      busy +=
          loads_of_unit(loads, u, placed.assignments[u]).zero[1].sums.busy[l];
    if (busy > most) most = busy;
  }
  Ps listed = listed_sums(arena, &trial);
  cr_expect(most > listed * 9 / 10 && most <= listed, "%lld of %lld ps",
            (long long)most, (long long)listed);
  driver_end_trial(&trial);
  driver_end_trial(&program.trial);
}

/* Of 12 blocks six are kept, and the fourth stands for seven. */
Test(units, placements_are_read_from_a_program) {
  static const Subject gpt2 = {TEST_ROOT "/models/gpt2.dnn", {{"B", "8"}}, 1};
  Program program;
  Trial trial;
  load(&gpt2, KEPT_BLOCKS, &program);
  PlacedUnits placed = placed_of(
      &program,
      "mesh { data = 2; tensor = 2 }\n"
      "plan { shard B over data; shard F, V over tensor; remat block }\n",
      &trial);
  cr_assert(!placed.reason, "%s", placed.reason);
  cr_expect(placed.recomputes);
  cr_expect_eq(placed.mesh->n_axes, 2);
  const Units *units = program.units;
  int n_sharded = 0, n_batches = 0;
  for (int u = 0; u < units->units.n; u++) {
    const PlanUnit *unit = units->units.data[u];
    const char *path = units->graph->nodes.data[unit->kernels.data[0].id]->path;
    int data = axis_of(unit, placed.assignments[u], "B");
    int tensor = axis_of(unit, placed.assignments[u], "F");
    cr_expect(data == 0 || data == -2, "%s: %d", path, data);
    cr_expect(tensor == 1 || tensor == -2, "%s: %d", path, tensor);
    n_batches += data == 0;
    n_sharded += tensor == 1;
  }
  cr_expect_geq(n_sharded, 2 * KEPT_BLOCKS);
  cr_expect_geq(n_batches, 8 * KEPT_BLOCKS);
  driver_end_trial(&trial);
  placed = placed_of(&program, "mesh { data = 4 }\nplan { remat block[2] }\n",
                     &trial);
  cr_expect_str_eq(placed.reason,
                   "it computes some layers again, not all blocks");
  driver_end_trial(&trial);
  placed = placed_of(&program, "mesh { data = 4 }\nplan {}\n", &trial);
  cr_expect(!placed.reason && !placed.recomputes);
  driver_end_trial(&trial);
  driver_end_trial(&program.trial);
}

static int count_mixed(const Program *program, const PlacedUnits *placed) {
  int n = 0;
  for (int u = 0; u < program->units->units.n; u++) n += placed->is_mixed[u];
  return n;
}

/* Views behind a product lie where its readers want them, so they say nothing
 * of it.  The gradient of a unit whose parts are sharded otherwise is mixed. */
Test(units, launches_alone_say_how_a_unit_is_placed) {
  static const Subject mlp = {TEST_ROOT "/models/mlp.dnn", {{0}}, 0};
  Program program;
  Trial trial;
  load(&mlp, 0, &program);
  PlacedUnits placed = placed_of(
      &program, "mesh { data = 8 }\nplan { shard B over data }\n", &trial);
  cr_expect_eq(count_mixed(&program, &placed), 0);
  driver_end_trial(&trial);
  placed = placed_of(&program,
                     "mesh { data = 8 }\n"
                     "plan {\n"
                     "  replicate linear[0]!dot\n"
                     "  shard linear[0].add: B over data\n"
                     "  replicate linear[1].add\n"
                     "  shard linear[2]!dot: I over data\n"
                     "}\n",
                     &trial);
  cr_expect_gt(count_mixed(&program, &placed), 0);
  const PlanUnit *first = program.units->units.data[0];
  cr_expect_eq(axis_of(first, placed.assignments[0], "B"), -1);
  driver_end_trial(&trial);
  driver_end_trial(&program.trial);
}

/* The plan then needs less memory than its assignment says. */
Test(units, shards_of_a_parameter_that_is_read_whole_are_mixed) {
  static const Subject mlp = {TEST_ROOT "/models/mlp.dnn", {{0}}, 0};
  Program program;
  Trial trial;
  load(&mlp, 0, &program);
  PlacedUnits placed = placed_of(&program,
                                 "mesh { data = 8 }\n"
                                 "plan {\n"
                                 "  zero = 0\n"
                                 "  shard B over data\n"
                                 "  shard linear[1].w: I over data\n"
                                 "}\n",
                                 &trial);
  cr_expect_eq(count_mixed(&program, &placed), 1);
  driver_end_trial(&trial);
  driver_end_trial(&program.trial);
}

/* A bound is no larger than the largest load of a plan of its space, and that
 * no longer than its step. */
Test(units, a_bound_is_below_the_largest_load_of_a_plan) {
  static const Subject small = {TEST_ROOT "/models/gpt2.dnn", {{"L", "3"}}, 1};
  static const char *const plans[] = {
      "mesh { data = 4 }\nplan { }\n",
      ("mesh { data = 2; tensor = 2 }\n"
       "plan { shard B over data; shard F, H, V over tensor; zero = 1 }\n"),
      "mesh { data = 4 }\nplan { microbatches = 2; zero = 3 }\n"};
  Program program;
  load(&small, 0, &program);
  Arena *arena = program.module->arena;
  for (int i = 0; i < ARRAY_LENGTH(plans); i++) {
    Trial trial;
    PlacedUnits placed = placed_of(&program, plans[i], &trial);
    cr_assert(!placed.reason, "%s: %s", plans[i], placed.reason);
    Ps step = trial.priced.price.step;
    BoundRequest space = {.units = program.units,
                          .slice = &trial.priced.slice,
                          .model = &trial.priced.model,
                          .ranks = 4,
                          .batch = 512,
                          .mesh = placed.mesh,
                          .microbatches = trial.c.plan->microbatches,
                          .zeros = 1u << trial.c.plan->zero,
                          .memory = INT64_MAX / 4,
                          .step = step};
    BoundSetting setting = {.mesh = placed.mesh,
                            .microbatches = trial.c.plan->microbatches,
                            .batch_axes = ANY_AXES,
                            .zero = trial.c.plan->zero};
    Ps largest = recheck_load(arena, &space, &setting, placed.assignments).time;
    Bound bound = plan_bound(arena, &space);
    cr_assert(!bound.reason, "%s: %s", plans[i], bound.reason);
    cr_expect(bound.time <= largest && largest <= step,
              "%s: bound %lld, largest load %lld, step %lld", plans[i],
              (long long)bound.time, (long long)largest, (long long)step);
    cr_expect_gt((double)largest, 0.7 * (double)step);
    driver_end_trial(&trial);
  }
  driver_end_trial(&program.trial);
}

static void expect_printed(const BoundWeights *weights, const char *words) {
  Text text = text_create(module_create()->arena);
  bound_weights_print(&text, weights);
  cr_expect_str_eq(text_string(&text), words);
  BoundWeights read;
  cr_assert(bound_weights_read(text_string(&text), &read));
  cr_expect_arr_eq(&read, weights, sizeof read);
}

Test(units, weights_are_printed_and_read) {
  enum { PART = BOUND_ONE / 64 };
  BoundWeights weights = {.link = 2, .split = 3, .per_byte = 0.25}, read;
  weights.of[BOUND_forward_stream] = 30 * PART;
  weights.of[BOUND_forward_link] = 2 * PART;
  weights.of[BOUND_backward_chain] = 32 * PART;
  weights.of[BOUND_all_link] = 32 * PART;
  expect_printed(&weights,
                 "forward_stream 30, forward_link 2, backward_chain 32, "
                 "all_link 32, link 2, split 3, per_byte 0.25");
  weights.of[BOUND_forward_stream]--;
  weights.of[BOUND_forward_link]++;
  expect_printed(&weights,
                 "forward_stream 479, forward_link 33, backward_chain 512, "
                 "all_link 512, link 2, split 3, per_byte 0.25");
  static const char *const bad[] = {
      "",
      "forward_stream 64",
      "forward_stream 64, backward_stream 63",
      "forward_stream 65, backward_stream 65",
      "forward_stream 1023, backward_stream 1023",
      "forward_stream 1025, backward_stream 1025",
      "forward 64, backward 64",
      "forward_stream 64, backward_stream 64 and more",
      "forward_stream -1, backward_stream 64",
      "forward_stream 64, backward_stream 64, split x"};
  for (int i = 0; i < ARRAY_LENGTH(bad); i++)
    cr_expect(!bound_weights_read(bad[i], &read), "%s", bad[i]);
  unsigned set;
  cr_expect(restrictions_read("two_axes all_ranks", &set));
  cr_expect_eq(set, 1u << RESTRICTION_two_axes | 1u << RESTRICTION_all_ranks);
  cr_expect(!restrictions_read("two_axes nothing", &set));
}
