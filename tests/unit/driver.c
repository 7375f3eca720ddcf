// links: driver codegen frontend passes runtime ir support
/*
 * driver.c -- tests the driver: which entry points each purpose has, and that
 * two compilations in one process do not affect each other.
 */
#include "driver/driver.h"
#include "tests/unit/values.h"

#include <string.h>

TestSuite(driver, .fini = modules_destroy);

static const Override small[] = {{"L", "1"}, {"T", "16"}, {"C", "16"}};

/* Names of the entry points, with a blank after each. */
static const char *entry_points_for(Purpose purpose, Compilation *out) {
  Module *module = module_create();
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options = (CompileOptions){.purpose = purpose,
                              .path = TEST_ROOT "/models/chargpt.dnn",
                              .predicting = PREDICTING_maybe,
                              .overrides = small,
                              .n_overrides = ARRAY_LENGTH(small),
                              .target = "null",
                              .level = 2};
  cr_assert_eq(driver_load(module, options, out), COMPILE_done);
  cr_assert_eq(driver_compile(out, STATION_program), COMPILE_done);
  Text text = text_create(module->arena);
  for (int i = 0; i < driver_only_program(out)->n_entry_points; i++) {
    cr_expect(entry_point_stage(&driver_only_program(out)->entry_points[i])
                  ->assignment);
    text_printf(&text, "%s ", driver_only_program(out)->entry_points[i].name);
  }
  return text_string(&text);
}

Test(driver, a_purpose_has_the_entry_points_that_it_needs) {
  Compilation c;
  cr_expect_str_eq(entry_points_for(PURPOSE_train, &c),
                   "train eval predict decode prefill ");
  cr_expect(entry_point_stage(&driver_only_program(&c)->plain)->assignment);
  cr_expect_str_eq(entry_points_for(PURPOSE_evaluate, &c), "eval ");
  cr_expect(driver_only_program(&c)->plain.stages.n == 0);
  cr_expect_str_eq(entry_points_for(PURPOSE_predict, &c), "predict ");
  cr_expect_str_eq(entry_points_for(PURPOSE_sample, &c), "decode prefill ");
}

Test(driver, compilations_do_not_depend_on_what_ran_before) {
  Compilation first, between, second;
  entry_points_for(PURPOSE_train, &first);
  entry_points_for(PURPOSE_sample, &between);
  entry_points_for(PURPOSE_train, &second);
  cr_expect_str_eq(first.model_hash, second.model_hash);
  cr_expect_eq(driver_only_program(&first)->persistent.bytes,
               driver_only_program(&second)->persistent.bytes);
}

Test(driver, every_entry_point_is_found_by_its_name) {
  for (int i = 0; i < N_ENTRY_POINTS; i++)
    cr_expect_eq(entry_point_find(entry_point_name((EntryPointId)i)),
                 (EntryPointId)i);
  cr_expect_eq(entry_point_find("sample"), N_ENTRY_POINTS);
}

/* ---- stages ---- */

#define STAGES                                                                 \
  "mesh { pipe = 2; data = 2 } plan { cut after conv2d[1]; microbatches = 2 }"
static const Source staged_plan = {"test.plan", STAGES, sizeof STAGES - 1};

static void check_ends(const StageGraphs *stages) {
  for (int i = 0; i < stages->cut.edges.n; i++) {
    const StageEdge *edge = &stages->cut.edges.data[i];
    const Graph *from = stages->graphs.data[edge->from],
                *to = stages->graphs.data[edge->to];
    const GraphOutput *sent = graph_find_output(from, ROLE_send, edge->path);
    const GraphInput *received = graph_find_input(to, ROLE_receive, edge->path);
    cr_assert(sent && received, "%s", edge->path);
    cr_expect(type_equal(graph_type(from, sent->value),
                         graph_type(to, received->value)),
              "%s", edge->path);
  }
}

Test(driver, compiles_each_stage_of_every_entry_point) {
  static const EntryPointId ids[] = {ENTRY_train, ENTRY_eval, ENTRY_predict};
  Module *module = module_create();
  Override size = {"N", "8"};
  CompileOptions options = {.path = TEST_ROOT "/models/lenet.dnn",
                            .plan = staged_plan.path,
                            .found_plan = &staged_plan,
                            .predicting = PREDICTING_maybe,
                            .overrides = &size,
                            .n_overrides = 1,
                            .verifies = true,
                            .target = "null",
                            .level = 2};
  Compilation c;
  cr_assert_eq(driver_load(module, &options, &c), COMPILE_done);
  for (int i = 0; i < ARRAY_LENGTH(ids); i++) {
    StageGraphs stages;
    Graph *graph = driver_graph(&c, ids[i]);
    cr_assert(driver_compile_stages(&c, ids[i], graph, 0, &stages));
    cr_expect_eq(stages.graphs.n, 2);
    check_ends(&stages);
    cr_assert(driver_compile_stages(&c, ids[i], graph,
                                    pass_phase(PASSES_partition), &stages));
    cr_expect_eq(stages.graphs.n, 1);
    cr_expect_eq(stages.cut.edges.n, 0);
  }
  cr_expect_eq(driver_compile(&c, STATION_program), COMPILE_done);
}

#define TEXT_STAGES                                                            \
  "mesh { pipe = 2 } plan { cut after block[0]; microbatches = 2 }"
static const Source text_plan = {"text.plan", TEXT_STAGES,
                                 sizeof TEXT_STAGES - 1};

/* Returns whether a class has a buffer whose path holds these words. */
static bool has_buffer(const ProgramClass *class, Role role, const char *path) {
  const PersistentBuffers *all = &class->program.persistent;
  for (int i = 0; i < all->buffers.n; i++)
    if (all->buffers.data[i].role == role &&
        strstr(all->buffers.data[i].path, path))
      return true;
  return false;
}

Test(driver, a_stage_samples_with_what_is_its_own) {
  static const Override sizes[] = {{"L", "2"}, {"T", "16"}, {"C", "16"}};
  Module *module = module_create();
  CompileOptions options = {.purpose = PURPOSE_sample,
                            .path = TEST_ROOT "/models/chargpt.dnn",
                            .plan = text_plan.path,
                            .found_plan = &text_plan,
                            .overrides = sizes,
                            .n_overrides = ARRAY_LENGTH(sizes),
                            .verifies = true,
                            .target = "null",
                            .level = 2};
  Compilation c;
  cr_assert_eq(driver_load(module, &options, &c), COMPILE_done);
  cr_assert_eq(driver_compile(&c, STATION_program), COMPILE_done);
  cr_assert_eq(c.classes.n, 2);
  for (int k = 0; k < 2; k++) {
    const ProgramClass *class = &c.classes.data[k];
    const char *own = k ? "block[1]." : "block[0].";
    const char *other = k ? "block[0]." : "block[1].";
    cr_expect(has_buffer(class, ROLE_param, own));
    cr_expect(!has_buffer(class, ROLE_param, other));
    cr_expect(has_buffer(class, ROLE_decode_cache, own));
    cr_expect(!has_buffer(class, ROLE_decode_cache, other));
    const EntryPoint *decode = rank_program_find(&class->program, ENTRY_decode);
    cr_assert_eq(decode->edges.n, 1, "no token waits for weights");
    cr_expect_str_eq(decode->edges.data[0].path, "block[0].add[1]");
  }
}
