// links: sound random driver codegen frontend passes runtime ir support
/*
 * sound.c -- tests what tries to catch the search lying: the enumeration of
 * plans, and that each kind of lie is found.
 */
#include "tests/sound/sound.h"
#include "tests/unit/values.h"

#include <unistd.h>

TestSuite(sound, .fini = modules_destroy);

/* Two dims, a product of both, a layer; 2 levels of ZeRO, 2 numbers of
 * micro-batches. */
static SoundSpace small_space(Arena *arena) {
  SoundSpace space = {.arena = arena,
                      .ranks = 2,
                      .batch = 4,
                      .n_meshes = 1,
                      .meshes = {{.n_axes = 1, .sizes = {2}}},
                      .n_zeros = 2,
                      .zeros = {0, 1},
                      .n_microbatches = 2,
                      .microbatches = {1, 2},
                      .n_dims = 2,
                      .dims = {"B", "F"},
                      .batch_dim = "B",
                      .n_operators = 1,
                      .n_remats = 1,
                      .remats = {"mlp"},
                      .pinned = ""};
  space.operators[0] = (SoundOperator){"mlp!dot", 2, {"B", "F"}};
  return space;
}

/* Counts the plans one by one; none may come twice. */
static int64_t walk(const SoundSpace *space) {
  Names *texts = names_create(space->arena);
  Map *seen = map_create(space->arena);
  SoundPlan plan = {0};
  int64_t n = 0;
  do {
    Name text = name_intern(texts, sound_text(space, &plan));
    cr_assert(!map_has(seen, text), "twice:\n%s", text);
    map_put(seen, text, (void *)text);
    n++;
  } while (sound_next(space, &plan));
  return n;
}

Test(sound, counts_by_hand) {
  SoundSpace space = small_space(module_create()->arena);
  /* Settings 2 x 2 x 2.  Dims: none, B, F, and both in two orders.  Operator:
   * no line, none, B, F. */
  cr_expect_eq(sound_count(&space), 8 * 5 * 4);
  cr_expect_eq(walk(&space), 8 * 5 * 4);
  /* A second mesh of two axes.  Dims: 16 in two orders, of which 9 are in one
   * order.  Operator: no line, and 3 x 3. */
  space.n_meshes = 2;
  space.meshes[1] = (SoundMesh){.n_axes = 2, .sizes = {2, 1}};
  cr_expect_eq(sound_count(&space), 8 * (5 * 4 + (32 - 9) * 10));
  cr_expect_eq(walk(&space), 8 * (5 * 4 + (32 - 9) * 10));
}

Test(sound, pins_take_away_what_they_fix) {
  SoundSpace space = small_space(module_create()->arena);
  sound_pin_zero(&space, 1);
  cr_expect_eq(sound_count(&space), 4 * 5 * 4);
  sound_pin_microbatches(&space, 2);
  cr_expect_eq(sound_count(&space), 2 * 5 * 4);
  sound_pin_mesh(&space, 0);
  sound_pin_dim(&space, 1, 1);
  cr_expect_eq(sound_count(&space), 2 * 2 * 4);
  sound_pin_operator(&space, 0, 2);
  cr_expect_eq(sound_count(&space), 2 * 2);
  sound_pin_remat(&space, 0, false);
  cr_expect_eq(walk(&space), 2);
  cr_expect_str_eq(space.pinned, "  zero = 1\n  microbatches = 2\n"
                                 "  shard F over a\n  shard mlp!dot: B over a\n"
                                 "  keep mlp\n");
}

Test(sound, texts) {
  SoundSpace space = small_space(module_create()->arena);
  space.meshes[0] = (SoundMesh){.n_axes = 2, .sizes = {4, 2}};
  /* ZeRO 1, 2 micro-batches, remat, the other order; B over b, F over both; the
   * operator F over a, B over b: 1 + 2 + 1 x 3. */
  SoundPlan plan = {0, {0, 0, 1, 1, 1, 1, 2, 3, 1 + 2 + 1 * 3}};
  cr_expect_str_eq(sound_text(&space, &plan),
                   "mesh { a = 4; b = 2 }\nplan {\n  microbatches = 2\n"
                   "  zero = 1\n  shard F over (a, b)\n  shard B over b\n"
                   "  shard mlp!dot: B over b, F over a\n  remat mlp\n}\n");
}

/* ---- stages ---- */

/* Adds three borders, three schedules, two groups of equal ranks, and two of
 * 1 and 2. */
static SoundSpace staged_space(Arena *arena) {
  static const SoundGroups equal = {2, true, {2, 2}, {{2}, {2}}};
  static const SoundGroups other = {2, false, {1, 2}, {{0}, {2}}};
  SoundSpace space = small_space(arena);
  space.n_borders = 3;
  space.borders[0] = (SoundBorder){"x", "\"y\", \"z\", \"loss\""};
  space.borders[1] = (SoundBorder){"y", "\"z\", \"loss\""};
  space.borders[2] = (SoundBorder){"z", "\"loss\""};
  space.n_schedules = 3;
  space.schedules[0] =
      (SoundSchedule){pipeline_schedule_find("1f1b"), 1, "1f1b"};
  space.schedules[1] = (SoundSchedule){pipeline_schedule_find("zbv"), 2, "zbv"};
  space.schedules[2] = (SoundSchedule){pipeline_schedule_find("bfs"), 3, "bfs"};
  space.n_meshes = 3;
  space.meshes[1] = (SoundMesh){1, {2}, &equal};
  space.meshes[2] = (SoundMesh){1, {2}, &other};
  return space;
}

Test(sound, counts_stages_by_hand) {
  SoundSpace space = staged_space(module_create()->arena);
  /* Without stages 160.  With: 1f1b has 3 cuts, zbv has all three borders, and
   * bfs would need five. */
  cr_expect_eq(sound_n_schedules(&space, &space.meshes[1]), 2);
  cr_expect_eq(sound_count(&space), 160 * (1 + 4 + 4));
  cr_expect_eq(walk(&space), 160 * (1 + 4 + 4));
  cr_expect(sound_pin_schedule(&space, 2) == false || space.n_meshes == 1);
  cr_expect_eq(sound_count(&space), 160);
}

Test(sound, pins_of_stages) {
  SoundSpace space = staged_space(module_create()->arena);
  cr_expect(sound_pin_schedule(&space, 1));
  sound_pin_mesh(&space, 1);
  cr_expect_eq(sound_count(&space), 160);
  sound_pin_cuts(&space, 0);
  cr_expect_eq(walk(&space), 160);
  cr_expect_str_eq(space.pinned, "  schedule = zbv\n  cut after \"x\"\n"
                                 "  cut after \"y\"\n  cut after \"z\"\n");
}

Test(sound, texts_of_stages) {
  SoundSpace space = staged_space(module_create()->arena);
  SoundPlan plan = {1, {0, 2}};
  cr_expect_str_eq(sound_text(&space, &plan),
                   "mesh { pipe = 2; a = 2 }\nplan {\n  schedule = 1f1b\n"
                   "  cut after \"z\"\n  shard B over none\n}\n");
  cr_expect_str_eq(sound_words(space.arena, sound_text(&space, &plan)),
                   "pipe=2,a=2,1f1b,-");
  plan = (SoundPlan){2, {1, 0, 0, 1}};
  cr_expect_str_eq(sound_text(&space, &plan),
                   "plan {\n  schedule = zbv\n  stage 0: \"x\" on 0\n"
                   "  stage 1: \"y\" on 1..2 as (a = 2)\n"
                   "  stage 2: \"z\" on 1..2 as (a = 2)\n"
                   "  stage 3: \"loss\" on 0\n  microbatches = 2\n"
                   "  shard B over none\n}\n");
}

/* ---- lies ---- */

static const SoundPrice honest_prices[] = {
    {true, 90, 200, 100}, /* the fastest, which does not fit */
    {true, 100, 80, 100},
    {false, 0, 0, 0},
    {true, 120, 50, 100},
};

static SoundEvidence honest_evidence(void) {
  return (SoundEvidence){.prices = honest_prices,
                         .n = ARRAY_LENGTH(honest_prices),
                         .found = {true, 110, 90, 100},
                         .again = {true, 110, 90, 100}};
}

static SoundClaim honest_claim(void) {
  return (SoundClaim){.step = 110,
                      .floor = 90,
                      .bound = 100,
                      .has_bound = true,
                      .has_gap = true,
                      .gap = 0.1};
}

static void expect_fault(const SoundClaim *claim, const SoundEvidence *evidence,
                         SoundFault fault, int plan) {
  SoundFinding findings[N_FAULTS];
  int n = sound_compare(claim, evidence, findings);
  bool is_found = false;
  for (int i = 0; i < n; i++)
    is_found |= findings[i].fault == fault && findings[i].plan == plan;
  cr_expect(is_found, "%s is not found", sound_fault_name(fault));
}

Test(sound, the_truth_is_no_finding) {
  SoundFinding findings[N_FAULTS];
  SoundEvidence evidence = honest_evidence();
  SoundClaim claim = honest_claim();
  cr_expect_eq(sound_compare(&claim, &evidence, findings), 0);
  /* The search may be better than all: its lines are of more kinds. */
  claim.step = evidence.found.step = evidence.again.step = 100;
  claim.gap = 0;
  cr_expect_eq(sound_compare(&claim, &evidence, findings), 0);
  evidence.n = 1;
  claim = (SoundClaim){.exit_code = 2};
  cr_expect_eq(sound_compare(&claim, &evidence, findings), 0);
  evidence.prices = &honest_prices[2];
  claim.exit_code = 1;
  cr_expect_eq(sound_compare(&claim, &evidence, findings), 0);
}

Test(sound, lies_about_bounds) {
  SoundEvidence evidence = honest_evidence();
  SoundClaim claim = honest_claim();
  claim.bound = 101;
  expect_fault(&claim, &evidence, FAULT_below_bound, 1);
  claim = honest_claim();
  claim.floor = 91;
  expect_fault(&claim, &evidence, FAULT_below_floor, 0);
  claim = honest_claim();
  claim.gap = 0.05; /* 110 less 5 % is more than 100 */
  expect_fault(&claim, &evidence, FAULT_gap, 1);
  evidence.found.step = evidence.again.step = 95;
  claim = honest_claim();
  claim.step = 95;
  expect_fault(&claim, &evidence, FAULT_below_bound, -1);
}

/* A plan that breaks a restriction may be faster than the bound, not than the
 * floor. */
Test(sound, bounds_have_restrictions) {
  SoundFinding findings[N_FAULTS];
  SoundEvidence evidence = honest_evidence();
  SoundClaim claim = honest_claim();
  unsigned breaks[ARRAY_LENGTH(honest_prices)] = {0};
  evidence.breaks = breaks;
  breaks[1] = sound_restrictions("plan {\n}\ncertificate {\n  restrictions = "
                                 "\"one_stage, all_ranks\"\n}\n");
  cr_assert_neq(breaks[1], 0);
  claim.bound = 101;
  claim.gap = 0.09;
  expect_fault(&claim, &evidence, FAULT_below_bound, 1);
  claim.restrictions = breaks[1];
  cr_expect_eq(sound_compare(&claim, &evidence, findings), 0);
  breaks[1] =
      sound_restrictions("certificate {\n  restrictions = \"no_one_stage\"\n");
  cr_expect_eq(breaks[1], 0);
  claim.floor = 91;
  expect_fault(&claim, &evidence, FAULT_below_floor, 0);
}

Test(sound, lies_about_the_plan) {
  SoundEvidence evidence = honest_evidence();
  SoundClaim claim = honest_claim();
  claim.step = 109;
  expect_fault(&claim, &evidence, FAULT_step, -1);
  evidence.found.peak = 101;
  expect_fault(&claim, &evidence, FAULT_does_not_fit, -1);
  evidence = honest_evidence();
  evidence.again.step = 111;
  expect_fault(&claim, &evidence, FAULT_lost_pin, -1);
  evidence.found.is_legal = false;
  expect_fault(&claim, &evidence, FAULT_unreadable, -1);
}

Test(sound, lies_about_nothing) {
  SoundEvidence evidence = honest_evidence();
  SoundClaim claim = {.exit_code = 2};
  expect_fault(&claim, &evidence, FAULT_refused, 1);
  claim.exit_code = 1;
  expect_fault(&claim, &evidence, FAULT_illegal, 0);
  claim.exit_code = 4;
  expect_fault(&claim, &evidence, FAULT_crashed, -1);
  claim.exit_code = -1;
  expect_fault(&claim, &evidence, FAULT_crashed, -1);
}

Test(sound, reads_claims) {
  SoundClaim claim = {0};
  sound_read_claim("{\"plan\":\"x \\\"step_s\\\": 7\",\"step_s\":0.5,"
                   "\"floor_s\":1e-12,\"search_gap\":0.2}",
                   &claim);
  cr_expect_eq(claim.step, 500000000000);
  cr_expect_eq(claim.floor, 1);
  cr_expect(!claim.has_bound && !claim.has_gap);
  cr_expect(claim.n_eliminated == 0 && claim.n_engine == 0);
  sound_read_claim("{\"step_s\":0.5,\"bound_s\":0.25,\"gap\":0.5,"
                   "\"solved\":{\"elimination\":3,\"engine\":4}}",
                   &claim);
  cr_expect(claim.n_eliminated == 3 && claim.n_engine == 4);
  cr_expect_eq(claim.bound, 250000000000);
  cr_expect(claim.has_bound && claim.has_gap && claim.gap == 0.5);
}

/* ---- a case ---- */

static SoundCase *draw(Arena *arena, uint64_t seed) {
  char folder[] = "/tmp/dnnc-sound-XXXXXX";
  static const char *const names[] = {"model.dnn", "machines.cluster",
                                      "pins.plan"};
  SoundLimits limits = {.least = 20, .most = 200, .threads = 1};
  cr_assert(mkdtemp(folder));
  SoundCase *c = sound_case(arena, seed, arena_strdup(arena, folder), &limits);
  for (int i = 0; i < ARRAY_LENGTH(names); i++)
    unlink(arena_printf(arena, "%s/%s", folder, names[i]));
  rmdir(folder);
  return c;
}

Test(sound, a_seed_makes_one_case) {
  Arena *arena = module_create()->arena;
  for (uint64_t seed = 0; seed < 10; seed++) {
    const SoundCase *one = draw(arena, seed), *other = draw(arena, seed);
    int64_t n = sound_count(&one->space);
    cr_expect(n <= 200 && (seed % 2 == 1 || n >= 20));
    cr_expect_eq(walk(&one->space), n);
    cr_expect_str_eq(one->model, other->model);
    cr_expect_str_eq(one->cluster, other->cluster);
    cr_expect_eq(!one->pins, !other->pins);
    if (one->pins) cr_expect_str_eq(one->pins, other->pins);
  }
}

/* All plans of a case are priced, and a bound is a lie from the best step on.
 */
Test(sound, a_bound_above_the_best_of_a_case) {
  Arena *arena = module_create()->arena;
  SoundFinding findings[N_FAULTS];
  int n_cases = 0;
  for (uint64_t seed = 0; seed < 8; seed++) {
    SoundCase *c = draw(arena, seed);
    int n = (int)sound_count(&c->space), i = 0;
    const char **texts = ARENA_ARRAY(arena, const char *, n);
    SoundPrice *prices = ARENA_ARRAY(arena, SoundPrice, n);
    SoundPlan plan = {0};
    do texts[i++] = sound_text(&c->space, &plan);
    while (sound_next(&c->space, &plan));
    sound_price(&c->loaded, texts, n, 1, prices);
    int best = sound_best(prices, n);
    if (best < 0) continue;
    n_cases++;
    SoundClaim claim = {.step = prices[best].step, .has_bound = true};
    SoundEvidence e = {
        .prices = prices, .n = n, .found = prices[best], .again = prices[best]};
    claim.bound = claim.step;
    cr_expect_eq(sound_compare(&claim, &e, findings), 0);
    claim.bound++;
    expect_fault(&claim, &e, FAULT_below_bound, best);
    claim = (SoundClaim){.exit_code = 2};
    expect_fault(&claim, &e, FAULT_refused, best);
  }
  cr_expect_geq(n_cases, 3);
}
