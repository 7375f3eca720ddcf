// links: frontend passes ir support
/*
 * plan_print.c -- checks that a printed plan has every decision, in few lines:
 * read again it is the same text and leads to the same program.
 */
#include "frontend/frontend.h"
#include "passes/passes.h"
#include "tests/unit/planned.h"

#include <criterion/criterion.h>

#include <stdlib.h>
#include <string.h>

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static const Source *load(void *user, const char *path) {
  Module *module = user;
  Source *source = ARENA_NEW(module->arena, Source);
  source->path = arena_strdup(module->arena, path);
  Status status = file_read(
      module->arena, arena_printf(module->arena, "%s/%s", TEST_ROOT, path),
      1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

static Module *module_create(void) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  Module *module = ARENA_NEW(arena, Module);
  *module = (Module){memory, arena, names_create(arena), diags_create(arena)};
  return module;
}

static Planned planned_of(Module *module, const char *model, const char *layers,
                          const char *plan) {
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"file.plan", plan, strlen(plan)};
  Override size = {"L", layers};
  FrontendOptions options = {.load = load,
                             .user = module,
                             .path = model,
                             .plan = source,
                             .overrides = &size,
                             .n_overrides = layers ? 1 : 0};
  return load_planned(module, &options, 0, 0);
}

static const char *messages(const Module *module) {
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  return text_string(&text);
}

static const char *print(const Module *module, const Plan *plan) {
  Text text = text_create(module->arena);
  plan_print(&text, plan);
  return text_string(&text);
}

static uint64_t program_hash(Module *module, const Planned *planned) {
  PassContext ctx = {.module = module,
                     .scratch = module->arena,
                     .model = planned->model,
                     .plan = planned->plan,
                     .is_training = true};
  PassOptions passes = {.level = 2, .end = pass_end("fuse")};
  return graph_hash(passes_run(&ctx, &passes, planned->model->train).graph);
}

static int count_lines(const char *text) {
  int n = 0;
  for (; (text = strchr(text, '\n')); text++) n++;
  return n;
}

/* ---- decisions without a line ---- */

/* The message about a plan with another pin, of a path that no line has. */
static void check_mistake(const char *path, PinAbout about, const char *want) {
  Module *module = module_create();
  Planned planned = planned_of(module, "models/chargpt.dnn", "2",
                               "mesh { data = 2 }\n"
                               "plan { shard block[0]!add[0]: B over data }\n");
  cr_assert(planned.plan, "%s", messages(module));
  Plan *plan = arena_copy(module->arena, planned.plan, sizeof *planned.plan);
  PlanPin pin = plan->pins.data[0];
  Name paths[] = {name_intern(module->names, path)};
  pin.about = about;
  pin.paths = paths;
  pin.n_paths = 1;
  vec_push(module->arena, &plan->pins, pin);
  plan_index(module->arena, plan);
  plan_make_lines(module, planned.pins->paths, plan);
  const char *got = messages(module);
  cr_expect(strstr(got, want), "%s: got\n%s", path, got);
  memory_destroy(module->memory);
}

/* q, k and v of a layer are one operator of the language, which one path means:
 * no line says how one of them alone computes. */
Test(plan_print, a_decision_without_a_line_is_a_mistake) {
  check_mistake("block[0].attn.q", ABOUT_operator,
                "file.plan:2:8: error: no line of a plan can say that "
                "'block[0].attn.q' is computed as this one has it");
  check_mistake("block[0].attn.div", ABOUT_value,
                "file.plan:2:8: error: no line of a plan can say that "
                "'block[0].attn.div' is placed as this one has it");
  check_mistake("block[0].lost", ABOUT_value,
                "file.plan:2:8: error: no line of a plan can say that "
                "'block[0].lost' is placed as this one has it");
}

/* ---- few lines ---- */

/* Lines for every operator of every block, of three sorts, and recomputation of
 * half of the blocks. */
static const char *plan_by_operators(Arena *arena, int n_blocks) {
  static const char *const sorts[] = {"H over tensor, B over data",
                                      "B over data, H over (tensor)",
                                      "B over (data, tensor)"};
  static const char *const mlps[] = {"F over tensor, B over data",
                                     "F over tensor", "B over (data, tensor)"};
  Text text = text_create(arena);
  text_add(&text, "mesh { data = 128; tensor = 8 }\nplan {\n"
                  "shard B over data\n");
  for (int i = 0; i < n_blocks; i++) {
    const char *attn = sorts[3 * i / n_blocks], *mlp = mlps[3 * i / n_blocks];
    for (int k = 0; k < 2; k++)
      text_printf(&text, "shard block[%d].attn!dot[%d]: %s\n", i, 3 * k, attn);
    text_printf(&text, "shard block[%d].attn!add[0]: %s\n", i, attn);
    for (int k = 0; k < 2; k++)
      text_printf(&text, "shard block[%d].mlp!dot[%d]: %s\n", i, k, mlp);
    text_printf(&text, "shard block[%d].mlp!gelu_tanh: %s\n", i, mlp);
    text_printf(&text, "shard block[%d].mlp.gelu_tanh: B over data, %s\n", i,
                i < n_blocks / 2 ? "F over tensor" : "T over tensor");
    if (i < n_blocks / 2) text_printf(&text, "remat block[%d]\n", i);
  }
  text_add(&text, "}\n");
  return text_string(&text);
}

static void check_again(Module *module, const char *layers, const char *text,
                        uint64_t *out_hash) {
  Planned again = planned_of(module, "models/gpt3.dnn", layers, text);
  cr_assert(again.plan, "%s\n%s", text, messages(module));
  cr_expect_str_eq(print(module, again.plan), text);
  if (out_hash) *out_hash = program_hash(module, &again);
}

Test(plan_print, lines_of_every_operator_of_gpt3_are_few) {
  Module *module = module_create();
  Planned planned = planned_of(module, "models/gpt3.dnn", NULL,
                               plan_by_operators(module->arena, 96));
  cr_assert(planned.plan, "%s", messages(module));
  const char *text = print(module, planned.plan);
  cr_expect_leq(count_lines(text), 60, "%s", text);
  cr_expect(strstr(text, "\n  remat block[0..47]\n"), "%s", text);
  check_again(module, NULL, text, NULL);
  memory_destroy(module->memory);
}

Test(plan_print, lines_of_operators_lead_to_the_same_program) {
  Module *module = module_create();
  Planned planned = planned_of(module, "models/gpt3.dnn", "6",
                               plan_by_operators(module->arena, 6));
  cr_assert(planned.plan, "%s", messages(module));
  uint64_t hash = program_hash(module, &planned), again = 0;
  check_again(module, "6", print(module, planned.plan), &again);
  cr_expect_eq(hash, again);
  memory_destroy(module->memory);
}

/* A line about all blocks, and `keep` in some of them. */
Test(plan_print, whole_repeats_are_one_line) {
  Module *module = module_create();
  Planned planned = planned_of(module, "models/gpt3.dnn", "6",
                               "mesh { data = 2 }\n"
                               "plan { remat block; keep block[2..3].attn.q }");
  cr_assert(planned.plan, "%s", messages(module));
  const char *text = print(module, planned.plan);
  cr_expect(strstr(text, "\n  remat block\n  keep block[2..3].attn.q\n}"), "%s",
            text);
  uint64_t hash = program_hash(module, &planned), again = 0;
  check_again(module, "6", text, &again);
  cr_expect_eq(hash, again);
  memory_destroy(module->memory);
}
