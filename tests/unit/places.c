// links: frontend ir support
/*
 * places.c -- checks the stages that lines `place` of a plan become: what is in
 * them, and that values go up in their numbers whatever is placed.
 */
#include "tests/unit/planned.h"

#include <criterion/criterion.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void out_of_memory(void *user) {
  (void)user;
  abort();
}

static const Source *load(void *user, const char *path) {
  (void)path;
  return user;
}

static Source *source_of(Arena *arena, const char *path, const char *text) {
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){path, text, strlen(text)};
  return source;
}

static Planned plan_of(Module *module, const char *model, const char *plan) {
  FrontendOptions options = {
      .load = load,
      .user = source_of(module->arena, "model.dnn", model),
      .path = "model.dnn",
      .plan = source_of(module->arena, "test.plan", plan)};
  Planned planned = load_planned(module, &options, 0, 0);
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(planned.plan, "%s", text_string(&text));
  return planned;
}

static Module module_create(void) {
  Memory *memory = memory_create(out_of_memory, NULL);
  Arena *arena = arena_create(memory);
  return (Module){memory, arena, names_create(arena), diags_create(arena)};
}

static const uint16_t *labels_of(Module *module, const Planned *planned) {
  StageFault fault;
  return stage_labels(module->arena, planned->model->train,
                      planned->plan->stage_of, &fault);
}

static Name path_of(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return node->op == OP_input
             ? graph->inputs.data[node_int(node, ATTR_index, 0)].path
             : graph_path(graph, id);
}

/* ---- what is in a stage ---- */

/* A line for each stage: its first rank, and the paths of its nodes but for the
 * loss, each once. */
static const char *stage_lines(Module *module, const Planned *planned) {
  const Graph *graph = planned->model->train;
  const uint16_t *labels = labels_of(module, planned);
  Text text = text_create(module->arena);
  cr_assert(labels);
  for (int s = 0; s < planned->plan->stages.n; s++) {
    Map *known = map_create(module->arena);
    text_printf(&text, "%d:", planned->plan->stages.data[s].first_rank);
    for (int id = 0; id < graph->nodes.n; id++) {
      Name path = path_of(graph, id);
      if (labels[id] != s + 1 || map_has(known, path) ||
          strncmp(path, "loss", 4) == 0)
        continue;
      map_put(known, path, known);
      text_printf(&text, " %s", path);
    }
    text_add(&text, "\n");
  }
  return text_string(&text);
}

#define MODEL(values, result)                                                  \
  "dim B = 8, I = 6\n"                                                         \
  "layer lin[I -> O](x: [B, I]) -> [B, O] {\n"                                 \
  "  param w: [I, O] = normal(1)\n"                                            \
  "  return dot(x, w, I)\n"                                                    \
  "}\n"                                                                        \
  "layer square(z: [B, I]) { return z * z }\n"                                 \
  "net f(x: [B, I]) -> [B, I] {\n"                                             \
  "  param v, w: [I] = normal(1)\n" values "  return " result "\n"             \
  "}\n"                                                                        \
  "data d { x: [B, I] = synthetic()\n y: [B, I] = synthetic() }\n"             \
  "train {\n"                                                                  \
  "  loss = mse(f(d.x), d.y)\n optimizer = sgd(lr = 0.1)\n steps = 2\n"        \
  "}\n"

static void expect_stages(const char *model, const char *plan,
                          const char *lines) {
  Module module = module_create();
  Planned planned = plan_of(&module, model, plan);
  cr_expect_str_eq(stage_lines(&module, &planned), lines, "%s: got\n%s", plan,
                   stage_lines(&module, &planned));
  memory_destroy(module.memory);
}

#define BRANCHES MODEL("  t = x * w\n  a = relu(t)\n  b = exp(t)\n", "a + b")

Test(places, part_branches_from_what_is_before_and_behind_them) {
  expect_stages(BRANCHES, "plan { place a on 1 }",
                "0: v w t\n1: a\n0: b\n0: add\n");
  expect_stages(BRANCHES, "plan { place a on 1; place b on 2 }",
                "0: v w t\n1: a\n2: b\n0: add\n");
  expect_stages(BRANCHES, "plan { place a, b on 1 }",
                "0: v w t\n1: a b\n0: add\n");
  expect_stages(BRANCHES, "mesh { data = 2 } plan { place b on 2..3 }",
                "0: v w t\n0: a\n2: b\n0: add\n");
  expect_stages(BRANCHES, "plan { place a on 0; place b on 1 }",
                "0: v w t\n0: a\n1: b\n0: add\n");
}

/* Values go to a rank and come back several times, and one goes past it. */
#define TURNS                                                                  \
  MODEL("  t = x * w\n  a = relu(t)\n  b = exp(a)\n  c = tanh(b)\n",           \
        "c * v + t")

Test(places, take_turns) {
  expect_stages(TURNS, "plan { place a, c on 1 }",
                "0: w t\n1: a\n0: b\n1: c\n0: v mul[1] add\n");
  expect_stages(TURNS, "plan { place a, b, c on 1 }",
                "0: w t\n1: a b c\n0: v mul[1] add\n");
}

/* Values that follow from parameters alone go to their reader and make no
 * stage.
 */
#define PARAMETERS                                                             \
  MODEL("  n = exp(w)\n  t = x * v\n  a = t * n\n", "a + v * w")

Test(places, leave_parameters_with_their_readers) {
  expect_stages(PARAMETERS, "plan { place a on 1 }",
                "0: v t\n1: w n a\n0: mul[2] add\n");
  expect_stages(PARAMETERS, "plan { place a, v on 1 }",
                "0: t\n1: v w n a\n0: mul[2] add\n");
}

/* The dims of a layer are renamed where the layer is read. */
Test(places, follow_renamed_dims) {
  const char *model = MODEL("  t = x * w\n  a = lin[I -> I](t)\n", "a * v");
  expect_stages(model, "plan { place lin!dot on 1 }",
                "0: w t\n1: lin.w lin.dot\n0: v lin mul[1]\n");
}

/* The operand of a layer has a name in it, but the layer does not compute it.
 */
Test(places, leave_operands_where_they_are) {
  const char *model = MODEL("  a = lin[I -> I](x * w)\n", "square(a) * v");
  expect_stages(model, "plan { place square on 1 }",
                "0: w mul[0] lin.w lin.dot\n1: lin square.mul\n0: v mul[1]\n");
}

/* ---- any places ---- */

enum { N_VALUES = 14, N_RANKS = 3 };

static int draw(uint64_t *seed, int n) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((*seed >> 33) % (uint64_t)n);
}

/* Every value reads two before it; `rank`: by value. */
static const char *random_model(Arena *arena, uint64_t *seed) {
  Text values = text_create(arena);
  text_add(&values, "  v0 = x * w\n");
  for (int i = 1; i < N_VALUES; i++)
    text_printf(&values, "  v%d = v%d * v%d + v\n", i, draw(seed, i),
                draw(seed, i));
  return arena_printf(arena, MODEL("%s", "v%d"), text_string(&values),
                      N_VALUES - 1);
}

/* Each rank has a value at least. */
static const char *random_places(Arena *arena, uint64_t *seed, int *rank) {
  Text plan = text_create(arena);
  text_add(&plan, "plan {\n");
  for (int i = 0; i < N_VALUES; i++) {
    rank[i] = i < N_RANKS ? i : draw(seed, N_RANKS);
    if (rank[i] > 0) text_printf(&plan, "  place v%d on %d\n", i, rank[i]);
  }
  text_add(&plan, "}\n");
  return text_string(&plan);
}

static void check_random(uint64_t seed) {
  Module module = module_create();
  int rank[N_VALUES];
  const char *model = random_model(module.arena, &seed);
  const char *plan = random_places(module.arena, &seed, rank);
  Planned planned = plan_of(&module, model, plan);
  const Graph *graph = planned.model->train;
  const uint16_t *labels = labels_of(&module, &planned);
  int n_found = 0;
  cr_assert(labels, "values go back:\n%s%s", model, plan);
  for (int id = 0; id < graph->nodes.n; id++) {
    int value;
    if (graph->nodes.data[id]->op == OP_input ||
        sscanf(path_of(graph, id), "v%d", &value) != 1)
      continue;
    int stage = labels[id] - 1;
    cr_expect_eq(planned.plan->stages.data[stage].first_rank, rank[value],
                 "v%d:\n%s%s", value, model, plan);
    n_found++;
  }
  cr_expect_eq(n_found, N_VALUES);
  memory_destroy(module.memory);
}

Test(places, hold_for_any_values) {
  for (uint64_t seed = 1; seed <= 300; seed++) check_random(seed);
}
