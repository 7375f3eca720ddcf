// links: verify driver codegen frontend passes runtime price interp ir support
/*
 * play_stages.c -- plays programs of several stages and compares them with the
 * programs of one stage that computes all of it, in exact mode.
 */
#include "tests/unit/play_chain.h"

TestSuite(play_stages, .fini = modules_destroy);

static void try_shape(const Shape *shape) {
  if (!shape->list_seed &&
      stage_chain_refuses(shape->schedule, shape->n, shape->m, shape->form))
    return;
  for (uint64_t seed = 1; seed <= 3; seed++) {
    Numbers numbers = {.number = INTERP_exact, .seed = seed};
    Played wanted = reference_of(shape, &numbers);
    Played played = play(shape, &numbers, NULL, 0, NULL);
    cr_expect_str_eq(played.rules, "");
    cr_expect_null(played.memory_fault, "%s", played.memory_fault);
    cr_expect_null(played.message_fault, "%s", played.message_fault);
    cr_expect(are_equal(&numbers, &played, &wanted),
              "%s of %d stages, %d micro-batches, form %d, list %d",
              shape->schedule, shape->n, shape->m, shape->form,
              (int)shape->list_seed);
    modules_destroy();
  }
}

static void try_shapes(bool is_packed) {
  static const char *const schedules[] = {"naive", "fthenb",   "1f1b", "zbh1",
                                          "zbh2",  "zb1p",     "zbv",  "vhalf",
                                          "vmin",  "dualpipev"};
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    for (int n = 2; n <= 4; n++)
      for (int m = 1; m <= 6; m += m == 1 ? 1 : 2)
        for (int form = 0; form < N_FORMS; form++)
          for (int more = 0; more < 4; more++)
            try_shape(&(Shape){.schedule = schedules[i],
                               .n = n,
                               .m = m,
                               .form = form,
                               .has_skip = (more & 1) && n > 2,
                               .has_shared = more & 2,
                               .is_packed = is_packed});
}

Test(play_stages, equal_one_stage_at_a_time) {
  try_shapes(false);
}

/* Every byte of an arena is touched, and none too early. */
Test(play_stages, packed_arenas_are_equal) {
  try_shapes(true);
}

static const int microbatches[] = {1, 2, 3, 4, 6}; /* divisors of the batch */

/* Stages 0 and 2 of four are on a rank, or each on one, or all. */
Test(play_stages, chunks_of_ranks_are_equal) {
  static const char *const schedules[] = {"interleaved", "bfs"};
  for (int i = 0; i < 2; i++)
    for (int form = 0; form < 3; form++)
      for (int m = form == 0 ? 3 : 0; m < ARRAY_LENGTH(microbatches); m++)
        for (int more = 0; more < 8; more++)
          if (form > 0 || microbatches[m] == 4)
            try_shape(&(Shape){.schedule = schedules[i],
                               .n = 4,
                               .m = microbatches[m],
                               .form = form,
                               .has_skip = more & 1,
                               .has_shared = more & 2,
                               .is_packed = more & 4});
}

Test(play_stages, lists_in_any_order_are_equal) {
  for (uint64_t seed = 1; seed <= 300; seed++)
    try_shape(&(Shape){.schedule = "a list",
                       .n = 2 + (int)(seed % 3),
                       .m = microbatches[seed / 3 % 5],
                       .form = (int)(seed / 15 % 3),
                       .has_skip = seed % 3 > 0 && (seed & 1),
                       .has_shared = seed & 2,
                       .is_packed = seed & 4,
                       .list_seed = seed});
}

/* Each rank of a stage has half of the samples: gradients are sums over both.
 */
Test(play_stages, sums_over_ranks_are_equal) {
  static const char *const schedules[] = {"fthenb", "1f1b",        "zbh1",
                                          "zbv",    "interleaved", "dualpipev"};
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    for (int m = 1; m < ARRAY_LENGTH(microbatches); m++)
      for (int form = 0; form < N_FORMS; form++)
        try_shape(&(Shape){.schedule = schedules[i],
                           .n = 4,
                           .m = microbatches[m],
                           .form = form,
                           .has_shared = form & 1,
                           .is_sharded = true,
                           .is_packed = m & 1});
}
