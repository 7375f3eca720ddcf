// links: driver codegen frontend passes runtime ir support
/*
 * verify.c -- models under plans are equal to one rank when all ranks are
 * played, and what cannot be compared is not called equal.
 */
#include "tests/unit/play_model.h"

TestSuite(verify, .fini = modules_destroy, .timeout = 300);

/* ---- models ---- */

#define CASE(file, given, n_ranks, n_microbatches)                             \
  {                                                                            \
    .model = file, .sizes = given, .ranks = n_ranks,                           \
    .microbatches = n_microbatches                                             \
  }
#define SMALL(name) "tests/reference/" name "_small.dnn"

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
    /* scans whose values are computed again */
    {.model = "models/gnmt8.dnn",
     .sizes = "B=4 S=3 T=3 V=7 C=4 L=2",
     .plan = TEST_ROOT "/benchmarks/plans/remat_scan.plan"},
    /* attention over a sequence in shards */
    {.model = SMALL("llama"),
     .sizes = "B=4",
     .plan = TEST_ROOT "/benchmarks/plans/ring.plan"},
    {.model = SMALL("llama"),
     .sizes = "B=4",
     .plan = TEST_ROOT "/benchmarks/plans/ulysses.plan"},
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
  cr_expect_eq(report.messages_match, ANSWER_yes);
  cr_expect_gt(report.n_compared, 10);
}

Test(verify, models_are_equal_on_all_ranks) {
  for (int i = 0; i < ARRAY_LENGTH(models); i++) expect_equal(&models[i]);
}

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
}
