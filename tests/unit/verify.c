// links: verify driver codegen frontend passes runtime ir support
/*
 * verify.c -- models under plans are equal to one rank when all ranks are
 * played, and what cannot be compared is not called equal.
 */
#include "tests/unit/play_model.h"
#include "verify/verify_steps.h"

TestSuite(verify, .fini = modules_destroy, .timeout = 300);

/* ---- models ---- */

#define CASE(file, given, n_ranks, n_microbatches)                             \
  {                                                                            \
    .model = file, .sizes = given, .ranks = n_ranks,                           \
    .microbatches = n_microbatches                                             \
  }
#define SMALL(name) "tests/reference/" name "_small.dnn"
#define GPT         "benchmarks/systems/gpt.dnn"

static const PlayCase models[] = {
    CASE("models/mlp.dnn", "B=8 P=7 H1=5 H2=6 K=3", 2, 2),
    CASE("models/mlp.dnn", "B=12 P=7 H1=5 H2=6 K=3", 3, 1),
    CASE("models/mlp.dnn", "B=6 P=7 H1=5 H2=6 K=3", 1, 3),
    /* dropout, scans, clip */
    CASE("models/charlstm.dnn", "B=4 T=3 V=5 E=2 C=3", 2, 1),
    CASE("models/charlstm.dnn", "B=8 T=3 V=5 E=2 C=3", 2, 2),
    CASE("models/awdlm.dnn", "B=4 T=3 V=7 E=3 C=4", 2, 1),
    CASE("tests/scans/nested.dnn", NULL, 2, 1),
    /* attention, embeddings, experts */
    CASE("models/chargpt.dnn", "B=12 T=3 V=7 C=4 H=2 L=1", 3, 2),
    CASE("models/charmoe.dnn", "B=4 T=4 V=7 C=4 H=2 L=1", 2, 1),
    /* targets that count, in micro-batches of different numbers of them */
    CASE("models/bert.dnn", "B=4 T=6 V=9 C=4 H=2 L=1", 2, 2),
    CASE(SMALL("llama"), "B=4", 2, 2),
    /* windows, statistics over the batch */
    CASE("models/vit_digits.dnn", "B=8 C=4 H=2 L=1", 4, 1),
    CASE(SMALL("lenet"), "N=8", 2, 2),
    CASE(SMALL("resnet_mnist"), "N=4 K=3 width=2", 2, 1),
    CASE(SMALL("resnet_mnist"), "N=6 K=3 width=2 bn_group=2", 2, 1),
    CASE(SMALL("unet_shapes"), "N=4", 2, 1),
    {.model = "models/mlp.dnn",
     .sizes = "B=8 P=4 H1=3 H2=3 K=3",
     .plan = TEST_ROOT "/tests/plans/two_axes.plan"},
    /* groups of one rank */
    {.model = GPT,
     .sizes = "L=1",
     .plan = TEST_ROOT "/tests/plans/one_rank_axis.plan"},
    /* scans whose values are computed again */
    {.model = "models/gnmt8.dnn",
     .sizes = "B=4 S=3 T=3 V=7 C=4 L=2",
     .plan = TEST_ROOT "/benchmarks/plans/remat_scan.plan"},
    /* a bias beside a partial sum is added on the first rank alone */
    {.model = "benchmarks/systems/mlp.dnn",
     .plan = TEST_ROOT "/benchmarks/plans/hidden.plan"},
    /* attention over a sequence in shards */
    {.model = SMALL("llama"),
     .sizes = "B=4",
     .plan = TEST_ROOT "/benchmarks/plans/ring.plan"},
    {.model = SMALL("llama"),
     .sizes = "B=4",
     .plan = TEST_ROOT "/benchmarks/plans/ulysses.plan"},
    /* in zigzag order, with positions as parameters; in two more turns; with
       padding, and with an empty shard, in the order of the sequence */
    {.model = GPT,
     .sizes = "L=1",
     .plan = TEST_ROOT "/benchmarks/plans/ring.plan"},
    {.model = GPT,
     .sizes = "L=1 T=16 H=3 C=9",
     .plan = TEST_ROOT "/benchmarks/plans/ring4.plan"},
    {.model = GPT,
     .sizes = "L=1 T=7",
     .plan = TEST_ROOT "/benchmarks/plans/ring.plan"},
    {.model = GPT,
     .sizes = "L=1 T=6",
     .plan = TEST_ROOT "/benchmarks/plans/ring4.plan"},
    /* without a mask, with an empty shard */
    {.model = "models/bert.dnn",
     .sizes = "B=4 T=6 V=9 C=4 H=2 L=1",
     .plan = TEST_ROOT "/benchmarks/plans/ring4.plan"},
};

/* Every output of every rank was compared, and all checks hold. */
static void expect_equal(const PlayCase *one) {
  VerifyReport report = play_case(one);
  cr_expect_eq(report.equal, ANSWER_yes, "%s: %s %s %s", one->model,
               report.step, report.path, report.not_compared);
  cr_expect_eq(report.memory_ok, ANSWER_yes, "%s: %s", one->model,
               report.memory_fault);
  cr_expect_eq(report.placement_ok, ANSWER_yes, "%s: %s", one->model,
               report.placement_fault);
  cr_expect_eq(report.messages_match, ANSWER_yes, "%s: %s", one->model,
               report.message_fault);
  cr_expect_eq(report.hang_free, ANSWER_yes);
  cr_expect_gt(report.n_compared, 10);
}

Test(verify, models_are_equal_on_all_ranks) {
  for (int i = 0; i < ARRAY_LENGTH(models); i++) expect_equal(&models[i]);
}

/* Sums are taken in other orders, so f64 differs a little. */
Test(verify, differences_in_f64_are_not_rounded_away) {
  static const PlayCase one = CASE("models/mlp.dnn", NULL, 2, 2);
  VerifyReport report = play_case(&one);
  cr_expect_gt(report.max_rel_error, 0);
  cr_expect_lt(report.max_rel_error, 1e-12);
}

/* ---- samples ---- */

/* The samples of a step, by shard of the batch. */
static const double *samples(Module *module, const VerifyInputs *inputs) {
  GraphInput input = {.role = ROLE_data,
                      .path = name_intern(module->names, "x")};
  const Type *type = make_type(module, "f32 B:128 C:3");
  return verify_input(inputs, &input, type, module->arena).data;
}

static bool is_equal_shard(const double *x, int a, int b) {
  return !memcmp(x + 6 * a, x + 6 * b, 6 * sizeof *x);
}

Test(verify, any_two_shards_of_the_batch_differ_in_a_step) {
  enum { SHARDS = 64 };
  Module *module = module_create();
  Numbers numbers = {.number = INTERP_f64, .seed = 3};
  VerifyInputs inputs = {.numbers = &numbers, .shards = SHARDS};
  const double *first = samples(module, &inputs);
  inputs.step = 2;
  const double *last = samples(module, &inputs);
  int n = 0;
  for (int a = 0; a < SHARDS; a++) {
    bool is_new = true;
    for (int b = 0; b < a; b++) {
      is_new &= !is_equal_shard(first, a, b);
      cr_expect(!is_equal_shard(first, a, b) || !is_equal_shard(last, a, b),
                "%d and %d", a, b);
    }
    n += is_new;
  }
  cr_expect_eq(n, 9);
  cr_expect_eq(verify_contents(SHARDS), 9);
  cr_expect_eq(verify_contents(16), 16);
}

Test(verify, ranks_with_equal_samples_are_equal) {
  static const PlayCase wide =
      CASE("models/mlp.dnn", "B=128 P=7 H1=5 H2=6 K=3", 64, 1);
  VerifyReport report = play_case(&wide);
  cr_expect_eq(report.equal, ANSWER_yes, "%s %s", report.path,
               report.not_compared);
  cr_expect(report.batch_shards == 64 && report.contents == 9);
}

/* ---- messages ---- */

/* Plays a model on a mesh of two axes and compares its tables with what was
 * played, after `change` has made that something else. */
static VerifyReport compare_messages(void (*change)(PlayMessages *played)) {
  Module *module = module_create();
  CompileOptions options = {.path = TEST_ROOT "/benchmarks/systems/gpt.dnn",
                            .plan = TEST_ROOT
                            "/benchmarks/plans/sequence_zero3.plan",
                            .target = "cpu",
                            .follows_links = true,
                            .level = 2};
  Compilation c;
  VerifySteps steps;
  PlayMessages played = {.arena = module->arena};
  VerifyReport report = {.hang_free = ANSWER_yes, .messages_match = ANSWER_yes};
  cr_assert_eq(driver_load(module, &options, &c), COMPILE_done);
  cr_assert_eq(verify_compile(&c, module, false, &steps), COMPILE_done);
  VerifyRun run = {.c = &c,
                   .steps = &steps,
                   .arena = module->arena,
                   .numbers = {.number = INTERP_f64},
                   .messages = &played};
  verify_play(&run);
  cr_assert_gt(played.list.n, 20);
  change(&played);
  verify_messages(&c, &steps, &played, &report);
  return report;
}

static void change_nothing(PlayMessages *played) {
  (void)played;
}

static void change_bytes(PlayMessages *played) {
  played->list.data[7].bytes++;
}

static void drop_last(PlayMessages *played) {
  played->list.n--;
}

static void exchange_messages(PlayMessages *played) {
  int i = 0;
  while (played->list.data[i].bytes == played->list.data[i + 1].bytes) i++;
  PlayMessage first = played->list.data[i];
  played->list.data[i] = played->list.data[i + 1];
  played->list.data[i + 1] = first;
}

/* The first axis is taken for the second. */
static void exchange_axes(PlayMessages *played) {
  static Mesh mesh;
  mesh = *played->list.data[0].mesh;
  MeshAxis first = mesh.axes[0];
  mesh.axes[0] = mesh.axes[1];
  mesh.axes[1] = first;
  for (int i = 0; i < played->list.n; i++) played->list.data[i].mesh = &mesh;
}

Test(verify, tables_have_the_messages_that_were_played) {
  static const struct {
    void (*change)(PlayMessages *played);
    Answer match, hang_free;
    const char *fault;
  } rows[] = {
      {change_nothing, ANSWER_yes, ANSWER_yes, NULL},
      {change_bytes, ANSWER_no, ANSWER_yes, "another collective at"},
      {drop_last, ANSWER_no, ANSWER_yes, "more collectives than were played"},
      {exchange_messages, ANSWER_no, ANSWER_yes, "another collective at"},
      {exchange_axes, ANSWER_no, ANSWER_no, "into another group"},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    VerifyReport report = compare_messages(rows[i].change);
    cr_expect_eq(report.messages_match, rows[i].match, "row %d: %s", i,
                 report.message_fault);
    cr_expect_eq(report.hang_free, rows[i].hang_free, "row %d", i);
    cr_expect(!rows[i].fault || strstr(report.message_fault, rows[i].fault),
              "row %d: %s", i, report.message_fault);
    modules_destroy();
  }
}

/* ---- sizes and blocks ---- */

/* Sizes that do not shrink are reported, and so is what is not played. */
Test(verify, what_is_too_large_is_not_called_equal) {
  static const PlayCase large = CASE("tests/verify/large.dnn", NULL, 2, 1);
  VerifyReport report = play_case(&large);
  cr_expect_eq(report.equal, ANSWER_not_checked);
  cr_expect_eq(report.n_compared, 0);
  cr_expect(strstr(report.not_compared, "too much to play"), "%s",
            report.not_compared);
  cr_expect(strstr(report.kept_sizes, "Y 12000"), "%s", report.kept_sizes);
}

/* The choices of the passes are those at the sizes of the model. */
Test(verify, large_models_shrink_by_themselves) {
  static const PlayCase large = {.model = "models/llama.dnn",
                                 .sizes = "L=1",
                                 .plan =
                                     TEST_ROOT "/benchmarks/plans/groups.plan"};
  VerifyReport report = play_case(&large);
  cr_expect_eq(report.equal, ANSWER_yes, "%s %s", report.path,
               report.not_compared);
  cr_expect_null(report.kept_sizes, "%s", report.kept_sizes);
}

/* The blocks between the first and the last are equal, so one is played. */
Test(verify, equal_blocks_are_played_as_three) {
  static const PlayCase deep = {.model = "models/chargpt.dnn",
                                .sizes = "L=9",
                                .plan =
                                    TEST_ROOT "/benchmarks/plans/tensor.plan"};
  VerifyReport report = play_case(&deep);
  cr_expect_eq(report.equal, ANSWER_yes, "%s %s", report.path,
               report.not_compared);
  cr_expect_str_eq(report.repeats, "block[0..8]");
  static const PlayCase ordered = {.model = "models/llama.dnn",
                                   .sizes = "L=7",
                                   .plan = TEST_ROOT
                                   "/benchmarks/plans/zero3.plan"};
  report = play_case(&ordered);
  cr_expect_str_eq(report.repeats, "block[0..6]");
  /* The end of the chain changes the last two blocks. */
  static const PlayCase ends = {.model = "models/chargpt.dnn",
                                .sizes = "L=8",
                                .plan = TEST_ROOT "/tests/plans/ends.plan"};
  report = play_case(&ends);
  cr_expect_eq(report.equal, ANSWER_yes, "%s", report.path);
  cr_expect_null(report.repeats);
}
