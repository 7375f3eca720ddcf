// links: driver codegen frontend passes runtime ir support
/*
 * verify.c -- models under plans are equal to one rank when all ranks are
 * played, and what cannot be compared is not called equal.
 */
#include "tests/unit/play_model.h"

TestSuite(verify, .fini = modules_destroy, .timeout = 300);

/* ---- models ---- */

#define SMALL(name, sizes, ranks, microbatches)                                \
  { "tests/reference/" name "_small.dnn", sizes, ranks, microbatches, NULL, 0 }

static const PlayCase models[] = {
    {"models/mlp.dnn", "B=8 P=7 H1=5 H2=6 K=3", 2, 2, NULL, 0},
    {"models/mlp.dnn", "B=12 P=7 H1=5 H2=6 K=3", 3, 1, NULL, 0},
    {"models/mlp.dnn", "B=6 P=7 H1=5 H2=6 K=3", 1, 3, NULL, 0},
    {"models/mlp.dnn", "B=8 P=4 H1=3 H2=3 K=3", 4, 1,
     TEST_ROOT "/tests/plans/two_axes.plan", 0},
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

/* A gigabyte of numbers is no longer played. */
Test(verify, what_is_too_large_is_not_called_equal) {
  VerifyReport report = play_case(&(PlayCase){
      "models/mlp.dnn", "B=4 P=4 H1=9000 H2=9000 K=3", 2, 1, NULL, 0});
  cr_expect_eq(report.equal, ANSWER_not_checked);
  cr_expect_eq(report.n_compared, 0);
  cr_expect(strstr(report.not_compared, "too much to play"), "%s",
            report.not_compared);
}
