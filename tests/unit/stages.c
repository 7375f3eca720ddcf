// links: frontend passes interp ir support
/*
 * stages.c -- compares the graphs of the stages of a plan with the joint graph
 * that they are cut from.
 *
 * The interpreter runs the stages in turns, each as far as the values allow
 * that it receives from the others.  All outputs must have the bits of the
 * joint graph, in every stage that has them.
 */
#include "passes/stages/stages.h"
#include "frontend/frontend.h"
#include "ir/place/mesh_place.h"
#include "tests/unit/values.h"

TestSuite(stages, .fini = modules_destroy);

/* ---- models ---- */

typedef struct Sources {
  Module *module;
  const char *text; /* of model.dnn, or NULL */
} Sources;

static const Source *load(void *user, const char *path) {
  const Sources *sources = user;
  Arena *arena = sources->module->arena;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){path, sources->text, 0};
  if (sources->text && strstr(path, "/model.dnn")) {
    source->n = strlen(sources->text);
    return source;
  }
  Status status = file_read(arena, path, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

typedef struct StageCase {
  const char *model; /* file below models/, or the text of one */
  const char *sizes; /* "B=8 C=3", or NULL */
  const char *plan;
  int n_stages;
} StageCase;

typedef struct Loaded {
  PassContext ctx;
  const Model *model;
  StageCut cut;
  const Graph *joint;
} Loaded;

static int read_sizes(Arena *arena, const char *sizes, Override *out) {
  int n = 0;
  char *rest = NULL, *text = arena_strdup(arena, sizes ? sizes : "");
  for (char *word = strtok_r(text, " ", &rest); word;
       word = strtok_r(NULL, " ", &rest)) {
    char *value = strchr(word, '=');
    *value++ = 0;
    out[n++] = (Override){word, value};
  }
  return n;
}

static void cr_assert_no_mistakes(const Module *module) {
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(diags_errors(module->diags) == 0, "%s", text_string(&text));
}

static Loaded load_case(const StageCase *one) {
  Module *module = module_create();
  Arena *arena = module->arena;
  bool is_text = strchr(one->model, '\n') != NULL;
  Sources *sources = ARENA_NEW(arena, Sources);
  *sources = (Sources){module, is_text ? one->model : NULL};
  Source *plan = ARENA_NEW(arena, Source);
  *plan = (Source){"test.plan", one->plan, strlen(one->plan)};
  Override *sizes = ARENA_ARRAY(arena, Override, 16);
  FrontendOptions options = {
      .load = load,
      .user = sources,
      .path = arena_printf(arena, "%s/models/%s", TEST_ROOT,
                           is_text ? "model.dnn" : one->model),
      .overrides = sizes,
      .n_overrides = read_sizes(arena, one->sizes, sizes),
      .plan = plan};
  LoadedModel loaded = frontend_load(module, &options);
  cr_assert_no_mistakes(module);
  const Plan *made = plan_make(module, loaded.pins);
  cr_assert_no_mistakes(module);
  return (Loaded){.ctx = {.module = module,
                          .scratch = arena,
                          .model = loaded.model,
                          .plan = made},
                  .model = loaded.model};
}

static void cut_graph(Loaded *loaded, Graph *graph, bool is_training) {
  Module *module = loaded->ctx.module;
  loaded->ctx.is_training = is_training;
  PassOptions options = {
      .level = 2, .verify = true, .end = pass_phase(PASSES_partition)};
  loaded->joint = passes_run(&loaded->ctx, &options, graph).graph;
  cr_assert_no_mistakes(module);
  loaded->cut = stages_cut(&loaded->ctx, loaded->joint);
  cr_assert_no_mistakes(module);
}

/* ---- values ---- */

/* Integers are 0 or 1, so that any table has them. */
static Tensor joint_input(const Graph *graph, int i) {
  Arena *arena = graph->module->arena;
  const GraphInput *input = &graph->inputs.data[i];
  const Type *type = graph_type(graph, input->value);
  switch (input->role) {
  case ROLE_data:
    return tensor_random(arena, type, (uint64_t)i + 1, -1,
                         dtype_class(type->dtype) == CLASS_FLOAT ? 1 : 2);
  case ROLE_step: return tensor_of(arena, type, (double[]){3});
  case ROLE_seed: return tensor_of(arena, type, (double[]){7});
  case ROLE_epoch: return tensor_of(arena, type, (double[]){5});
  default: return interp_initial(graph, i, 11, arena);
  }
}

static bool same_bits(const Tensor *a, const Tensor *b) {
  size_t n = (size_t)type_elements(a->type) * sizeof(double);
  return type_same_shape(a->type, b->type) && memcmp(a->data, b->data, n) == 0;
}

/* ---- stages in turns ---- */

typedef struct Turns {
  int n_stages;
  Graph *const *graphs;
  const Graph *joint;
  const Tensor *inputs; /* of the joint graph */
  Map *sent;            /* path -> Tensor */
  int *n_run;           /* nodes of each stage so far */
  Tensor **outputs;     /* of each stage, once it has run */
} Turns;

/* The value of an input, or NULL: nobody has sent it yet. */
static const Tensor *value_of(const Turns *turns, const GraphInput *input) {
  if (input->role == ROLE_receive) return map_get(turns->sent, input->path);
  const GraphInput *whole =
      graph_find_input(turns->joint, input->role, input->path);
  cr_assert(whole, "%s", input->path);
  return &turns->inputs[whole - turns->joint->inputs.data];
}

/* By node: the values that it follows from have been sent. */
static bool *find_ready(const Turns *turns, const Graph *graph, int *out_n) {
  bool *ready = ARENA_ARRAY(graph->module->arena, bool, graph->nodes.n);
  *out_n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    ready[id] =
        node->op != OP_input ||
        value_of(turns, &graph->inputs.data[node_int(node, ATTR_index, 0)]) !=
            NULL;
    for (int i = 0; i < node->n_inputs; i++)
      ready[id] &= ready[node->inputs[i].node];
    *out_n += ready[id];
  }
  return ready;
}

/* The nodes that can run, with the outputs that they make. */
static Graph *ready_nodes(const Graph *graph, const bool *ready) {
  Arena *arena = graph->module->arena;
  Graph *part = graph_like(graph);
  int *now = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    Value *inputs = ARENA_ARRAY(arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = (Value){now[node->inputs[i].node], node->inputs[i].result};
    if (ready[id])
      now[id] = graph_copy_node(part, graph, id, inputs, false).node;
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (ready[output->value.node])
      graph_output(part, output->role, output->path,
                   (Value){now[output->value.node], output->value.result});
  }
  return part;
}

/* Runs a stage as far as it goes; true if that is further than before. */
static bool take_turn(Turns *turns, int stage) {
  const Graph *graph = turns->graphs[stage];
  Arena *arena = graph->module->arena;
  int n_ready;
  const bool *ready = find_ready(turns, graph, &n_ready);
  if (n_ready == turns->n_run[stage]) return false;
  turns->n_run[stage] = n_ready;
  const Graph *part = ready_nodes(graph, ready);
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, part->inputs.n + 1);
  for (int i = 0; i < part->inputs.n; i++)
    inputs[i] = *value_of(turns, &part->inputs.data[i]);
  Tensor *outputs = turns->outputs[stage] =
      ARENA_ARRAY(arena, Tensor, part->outputs.n + 1);
  interp_run(part, INTERP_f32, arena, inputs, outputs, NULL);
  for (int i = 0; i < part->outputs.n; i++)
    if (part->outputs.data[i].role == ROLE_send)
      map_put(turns->sent, part->outputs.data[i].path, &outputs[i]);
  return true;
}

static void run_in_turns(Turns *turns) {
  int n_stages = turns->n_stages;
  for (bool any = true; any;) {
    any = false;
    for (int s = 0; s < n_stages; s++) any |= take_turn(turns, s);
  }
  for (int s = 0; s < n_stages; s++)
    cr_assert_eq(turns->n_run[s], turns->graphs[s]->nodes.n, "stage %d waits",
                 s);
}

/* ---- checks ---- */

static void check_edges(const Loaded *loaded) {
  const StageCut *cut = &loaded->cut;
  int n_ends = 0;
  for (int i = 0; i < cut->edges.n; i++) {
    const StageEdge *edge = &cut->edges.data[i];
    const GraphOutput *sent =
        graph_find_output(cut->graphs.data[edge->from], ROLE_send, edge->path);
    const GraphInput *received =
        graph_find_input(cut->graphs.data[edge->to], ROLE_receive, edge->path);
    cr_assert(sent && received, "%s", edge->path);
    cr_expect_neq(edge->from, edge->to);
    const Type *type = graph_type(cut->graphs.data[edge->to], received->value);
    cr_expect_eq(edge->is_of_step,
                 type_find(type, loaded->ctx.plan->batch_dim) < 0, "%s",
                 edge->path);
    for (int k = 0; k < i; k++)
      cr_expect_neq(cut->edges.data[k].path, edge->path, "%s", edge->path);
  }
  for (int s = 0; s < cut->graphs.n; s++) {
    const Graph *graph = cut->graphs.data[s];
    for (int i = 0; i < graph->inputs.n; i++)
      n_ends += graph->inputs.data[i].role == ROLE_receive;
    for (int i = 0; i < graph->outputs.n; i++)
      n_ends += graph->outputs.data[i].role == ROLE_send;
  }
  cr_expect_eq(n_ends, 2 * cut->edges.n);
}

static bool updates_early(const Graph *joint) {
  for (int i = 0; i < joint->outputs.n; i++)
    if (joint->outputs.data[i].role == ROLE_norm)
      return strcmp(joint->outputs.data[i].path, "norm") != 0;
  return false;
}

/* Stages on the same ranks change the loss scale once.  Those that update early
 * have loss and norms each in one of them. */
static int holders_of(const Loaded *loaded, Role role) {
  int *class_of =
      ARENA_ARRAY(loaded->ctx.module->arena, int, loaded->ctx.plan->stages.n);
  if (role == ROLE_loss_scale)
    return plan_classes(loaded->ctx.module->arena, loaded->ctx.plan, class_of);
  bool is_result = role == ROLE_loss || role == ROLE_norm;
  bool is_of_all =
      role == ROLE_rate || (is_result && !updates_early(loaded->joint));
  return is_of_all ? loaded->ctx.plan->stages.n : 1;
}

/* Each output is in one stage, or in all, with the bits of the joint graph. */
static void check_outputs(const Loaded *loaded, const Turns *turns,
                          const Tensor *wanted) {
  for (int i = 0; i < loaded->joint->outputs.n; i++) {
    const GraphOutput *output = &loaded->joint->outputs.data[i];
    int n = 0;
    for (int s = 0; s < turns->n_stages; s++) {
      const Graph *graph = turns->graphs[s];
      const GraphOutput *own =
          graph_find_output(graph, output->role, output->path);
      if (!own) continue;
      n++;
      cr_expect(
          same_bits(&turns->outputs[s][own - graph->outputs.data], &wanted[i]),
          "stage %d, %s", s, output->path);
    }
    cr_expect_eq(n, holders_of(loaded, output->role), "%s", output->path);
  }
}

/* Compares the graphs of the stages with the joint one, and returns its norm.
 */
static double check_same(const Loaded *loaded, Graph *const *graphs) {
  Arena *arena = loaded->ctx.module->arena;
  const Graph *joint = loaded->joint;
  Text errors = text_create(arena);
  for (int s = 0; s < loaded->cut.graphs.n; s++)
    cr_assert(graph_verify(graphs[s], &errors), "%s", text_string(&errors));
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, joint->inputs.n + 1);
  Tensor *wanted = ARENA_ARRAY(arena, Tensor, joint->outputs.n + 1);
  for (int i = 0; i < joint->inputs.n; i++) inputs[i] = joint_input(joint, i);
  interp_run(joint, INTERP_f32, arena, inputs, wanted, NULL);
  int n = loaded->cut.graphs.n;
  Turns turns = {.n_stages = n,
                 .graphs = graphs,
                 .joint = joint,
                 .inputs = inputs,
                 .sent = map_create(arena),
                 .n_run = ARENA_ARRAY(arena, int, n),
                 .outputs = ARENA_ARRAY(arena, Tensor *, n)};
  for (int s = 0; s < n; s++) turns.n_run[s] = -1;
  run_in_turns(&turns);
  check_outputs(loaded, &turns, wanted);
  for (int i = 0; i < joint->outputs.n; i++)
    if (joint->outputs.data[i].role == ROLE_norm) return wanted[i].data[0];
  return 0;
}

static Loaded check_case(const StageCase *one, double *out_norm) {
  Loaded loaded = load_case(one);
  cut_graph(&loaded, loaded.model->train, true);
  cr_assert_eq(loaded.cut.graphs.n, one->n_stages);
  check_edges(&loaded);
  *out_norm = check_same(&loaded, loaded.cut.graphs.data);
  return loaded;
}

#define GPT2  "gpt2.dnn", "B=2 T=4 V=8 C=8 H=2 F=8 L=2"
#define SMALL "mlp.dnn", "B=4 P=8 H1=8 H2=8 K=4"
#define UNET  "unet_shapes.dnn", "N=2 side=8 out=8 width=2"
#define LEVELS                                                                 \
  "plan { stage 0: level.twice[0] on 0\n"                                      \
  "stage 1: level.level on 1\n"                                                \
  "stage 2: level.up, level.twice[1], conv2d on 2 }"

Test(stages, equal_the_joint_graph) {
  const StageCase cases[] = {
      {SMALL, "mesh { pipe = 2 } plan { cut after linear[0] }", 2},
      {SMALL,
       "mesh { pipe = 3 } plan { cut after linear[0]; cut after linear[1] }",
       3},
      {"lenet.dnn", "N=2 F=8", "mesh { pipe = 2 } plan { cut after conv2d[1] }",
       2},
      {GPT2, "mesh { pipe = 2 } plan { cut after block[0] }", 2},
      {GPT2,
       "mesh { pipe = 3 } plan { cut after block[0]; cut after block[1] }", 3},
      {UNET, LEVELS, 3},
      {"charmoe.dnn", "B=2 T=4 V=8 C=8 H=2 F=8 L=2",
       "mesh { pipe = 2 } plan { cut after moe_block[0] }", 2},
      {"charlstm.dnn", "B=2 T=4 V=8 E=4 C=4",
       "mesh { pipe = 2 } plan { cut after lstm }", 2},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    double norm;
    check_case(&cases[i], &norm);
    cr_expect(norm > 0 && isfinite(norm), "%s", cases[i].model);
  }
}

/* ---- a dynamic loss scale ---- */

#define SCALED                                                                 \
  "dim B = 4, C = 4, D = 3\n"                                                  \
  "layer low(x: [B, C]) -> [B, D] {\n"                                         \
  "  param w: [C, D] = normal(1)\n"                                            \
  "  return dot(x, w, C)\n"                                                    \
  "}\n"                                                                        \
  "net f(x: [B, C]) -> [B, D] {\n"                                             \
  "  param v: [D] = normal(1)\n"                                               \
  "  return low(x) * v\n"                                                      \
  "}\n"                                                                        \
  "data d { x: [B, C] = synthetic()\n y: [B, D] = synthetic() }\n"             \
  "train {\n"                                                                  \
  "  loss = scale * mse(f(d.x), d.y)\n"                                        \
  "  optimizer = adamw(lr = 0.01)\n"                                           \
  "  clip = 0.5\n steps = 30\n"                                                \
  "}\n"                                                                        \
  "precision { compute = f16; loss_scale = dynamic }\n"

/* Steps that are made and steps that are skipped. */
/* The gradient of sqrt(v) at 0 is infinite, in the first stage alone. */
static const char infinite_gradient[] =
    "dim B = 4, C = 3\n"
    "layer root(x: [B, C]) -> [B, C] { param v: [C] = zeros\n"
    "  return x + sqrt(v) }\n"
    "layer unit(x: [B, C]) -> [B, C] { param w: [C] = ones\n"
    "  return x * w }\n"
    "net chain(x: [B, C]) -> [B, C] { return unit(root(x)) }\n"
    "data d { x: [B, C] = synthetic(); y: [B, C] = synthetic() }\n"
    "train { loss = mse(chain(d.x), d.y)\n"
    "  optimizer = sgd(lr = 0.1, momentum = 0.9); steps = 3 }\n";

/* Returns whether a persistent buffer keeps its value in a step. */
static bool keeps(const Graph *graph, const Tensor *inputs,
                  const Tensor *outputs, Role role, const char *path) {
  Name name = name_intern(graph->module->names, path);
  const GraphInput *in = graph_find_input(graph, role, name);
  const GraphOutput *out = graph_find_output(graph, role, name);
  cr_assert(in && out, "%s", path);
  return same_bits(&inputs[in - graph->inputs.data],
                   &outputs[out - graph->outputs.data]);
}

static void check_updates(const char *schedule, bool is_early) {
  char plan[200];
  snprintf(plan, sizeof plan,
           "mesh { pipe = 2 } plan { microbatches = 4; schedule = %s\n"
           "cut after root }",
           schedule);
  StageCase one = {infinite_gradient, NULL, plan, 2};
  double norm;
  Loaded loaded = check_case(&one, &norm);
  const Graph *joint = loaded.joint;
  Module *module = loaded.ctx.module;
  cr_expect_eq(updates_early(joint), is_early, "%s", schedule);
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, joint->inputs.n + 1);
  Tensor *outputs = ARENA_ARRAY(module->arena, Tensor, joint->outputs.n + 1);
  for (int i = 0; i < joint->inputs.n; i++) inputs[i] = joint_input(joint, i);
  interp_run(joint, INTERP_f32, module->arena, inputs, outputs, NULL);
  static const struct {
    Role role;
    const char *path;
    bool is_of_first;
  } rows[] = {{ROLE_param, "root.v", true},
              {ROLE_optimizer_state, "sgd.m/root.v", true},
              {ROLE_param, "unit.w", false},
              {ROLE_optimizer_state, "sgd.m/unit.w", false}};
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    cr_expect_eq(keeps(joint, inputs, outputs, rows[i].role, rows[i].path),
                 rows[i].is_of_first || !is_early, "%s: %s", schedule,
                 rows[i].path);
}

Test(stages, a_step_that_is_not_finite_changes_nothing_in_its_stage) {
  check_updates("zbh2", true);
  check_updates("zbh1", false);
}

Test(stages, share_a_dynamic_loss_scale) {
  static const char *const scales[] = {"const scale = 0.001\n",
                                       "const scale = 30000\n"};
  for (int i = 0; i < 2; i++) {
    Module *module = module_create();
    StageCase one = {.model =
                         arena_printf(module->arena, "%s%s", scales[i], SCALED),
                     .plan = "mesh { pipe = 2 } plan { cut after low }",
                     .n_stages = 2};
    double norm;
    check_case(&one, &norm);
    cr_expect_eq(isfinite(norm), i == 0);
    one.plan = "plan { stage 0: low on 0; stage 1: v on 0 }";
    check_case(&one, &norm);
    cr_expect_eq(isfinite(norm), i == 0);
  }
}

/* ---- what the edges are ---- */

static const char *edge_lines(const Loaded *loaded) {
  Text text = text_create(loaded->ctx.module->arena);
  for (int i = 0; i < loaded->cut.edges.n; i++) {
    const StageEdge *edge = &loaded->cut.edges.data[i];
    const Graph *to = loaded->cut.graphs.data[edge->to];
    text_printf(&text, "%d -> %d %s ", edge->from, edge->to, edge->path);
    if (edge->is_of_step) text_printf(&text, "level %d ", edge->level);
    type_print(
        &text,
        graph_type(to, graph_find_input(to, ROLE_receive, edge->path)->value),
        &to->mesh);
    text_add(&text, "\n");
  }
  return text_string(&text);
}

/* A table that two stages read: its 16-bit copy and its share of the gradient
 * are sent.  Activations are sent in 16 bits. */
Test(stages, send_what_is_small) {
  double norm;
  Loaded loaded = check_case(
      &(StageCase){GPT2, "mesh { pipe = 2 } plan { cut after block[0] }", 2},
      &norm);
  cr_expect_str_eq(edge_lines(&loaded),
                   "0 -> 1 block[0].add[1] bf16[B:2, T:4, C:8]\n"
                   "0 -> 1 wte level 1 bf16[V:8, C:8]\n"
                   "1 -> 0 loss.cross_entropy level 2 f32[]\n"
                   "1 -> 0 grad.dot level 2 f32[V:8, C:8]\n"
                   "1 -> 0 grad.block[1].norm[0].layernorm f32[B:2, T:4, C:8]\n"
                   "0 -> 1 optimizer.block[0].mlp.b2 level 3 f64[]\n"
                   "1 -> 0 optimizer.norm.b level 4 f64[]\n");
}

/* ---- other entry points ---- */

Test(stages, cut_forward_graphs) {
  Loaded loaded = load_case(&(StageCase){UNET, LEVELS, 3});
  cut_graph(&loaded, loaded.model->eval, false);
  check_edges(&loaded);
  check_same(&loaded, loaded.cut.graphs.data);
  cr_expect_str_eq(
      edge_lines(&loaded),
      "0 -> 1 level.twice[0].unit[1].relu f32[Y:8, N:2, X:8, C:2]\n"
      "0 -> 2 level.twice[0].unit[1].relu#2 f32[Y:8, N:2, X:8, C:2]\n"
      "1 -> 2 level.level.twice[1].unit[1].relu f32[Y:4, N:2, X:4, C:4]\n"
      "2 -> 0 loss.cross_entropy level 1 f32[]\n"
      "2 -> 1 loss.cross_entropy#2 level 1 f32[]\n");
}

/* ---- placements ---- */

static const char *placed_text(const Graph *graph, Value value) {
  Text text = text_create(graph->module->arena);
  type_print(&text, graph_type(graph, value), &graph->mesh);
  return text_string(&text);
}

/* Partitions the graphs of all stages; false after a mistake. */
static bool partition_stages(Loaded *loaded, Graph **out) {
  PassContext ctx = loaded->ctx;
  ctx.cut = &loaded->cut;
  for (int s = 0; s < loaded->cut.graphs.n; s++) {
    PassOptions options = {
        .level = 2, .verify = true, .begin = pass_phase(PASSES_partition)};
    ctx.plan = plan_of_stage(ctx.module, loaded->ctx.plan, s);
    out[s] = passes_run(&ctx, &options, loaded->cut.graphs.data[s]).graph;
    if (diags_errors(ctx.module->diags) > 0) return false;
  }
  return true;
}

/* Both ends of each edge have one placement: `data`, or a complete value. */
static void check_placements(const char *plan, const char *data) {
  Loaded loaded = load_case(&(StageCase){GPT2, plan, 2});
  cut_graph(&loaded, loaded.model->train, true);
  Graph *graphs[2];
  cr_assert(partition_stages(&loaded, graphs));
  for (int i = 0; i < loaded.cut.edges.n; i++) {
    const StageEdge *edge = &loaded.cut.edges.data[i];
    const Graph *from = graphs[edge->from], *to = graphs[edge->to];
    const char *sent = placed_text(
        from, graph_find_output(from, ROLE_send, edge->path)->value);
    const char *received =
        placed_text(to, graph_find_input(to, ROLE_receive, edge->path)->value);
    cr_expect_str_eq(sent, received, "%s", edge->path);
    cr_expect_eq(strstr(sent, data) != NULL, !edge->is_of_step, "%s: %s",
                 edge->path, sent);
    if (edge->is_of_step)
      cr_expect(!strchr(sent, '@'), "%s: %s", edge->path, sent);
  }
}

#define CUT      "plan { cut after block[0]\n"
#define TWO_CUTS "plan { cut after block[0]; cut after block[1]\n"

Test(stages, place_both_ends_of_an_edge_alike) {
  check_placements("mesh { pipe = 2 }" CUT "microbatches = 2 }", "[B:2@time");
  check_placements("mesh { pipe = 2; data = 2 }" CUT "}", "[B:2@data");
  check_placements("mesh { pipe = 2; data = 2 }" CUT "zero = 3 }", "[B:2@data");
  check_placements("mesh { pipe = 2; tensor = 2 }" CUT
                   "microbatches = 2; shard F, H over tensor }",
                   "[B:2@time, T:4, C:8]");
  check_placements("mesh { pipe = 2; seq = 2 }" CUT
                   "microbatches = 2; shard T over seq }",
                   "[B:2@time, T:4@seq, C:8]");
}

/* On one rank with one micro-batch nothing has a placement, and the interpreter
 * runs what all passes make. */
Test(stages, equal_the_joint_graph_after_all_passes) {
  const StageCase cases[] = {
      {GPT2, "mesh { pipe = 3 }" TWO_CUTS "}", 3},
      {UNET, LEVELS, 3},
      {"charlstm.dnn", "B=2 T=4 V=8 E=4 C=4",
       "mesh { pipe = 2 } plan { cut after lstm }", 2},
      {"charmoe.dnn", "B=2 T=4 V=8 C=8 H=2 F=8 L=2",
       "mesh { pipe = 2 } plan { cut after moe_block[0] }", 2},
      {"../benchmarks/systems/merged.dnn", "B=4",
       "mesh { pipe = 4 } plan { cut after words; cut after pairs; "
       "cut after other }",
       4}};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Loaded loaded = load_case(&cases[i]);
    cut_graph(&loaded, loaded.model->train, true);
    Graph *graphs[4];
    cr_assert(partition_stages(&loaded, graphs));
    check_same(&loaded, graphs);
  }
}

/* One micro-batch has no axis, so nodes say that they run for it. */
Test(stages, mark_the_work_of_one_microbatch) {
  Loaded loaded = load_case(&(StageCase){GPT2, "mesh { pipe = 2 }" CUT "}", 2});
  cut_graph(&loaded, loaded.model->train, true);
  Graph *graphs[2];
  cr_assert(partition_stages(&loaded, graphs));
  for (int i = 0; i < loaded.cut.edges.n; i++) {
    const StageEdge *edge = &loaded.cut.edges.data[i];
    const Graph *from = graphs[edge->from];
    int id = graph_find_output(from, ROLE_send, edge->path)->value.node;
    if (!edge->is_of_step)
      cr_expect(node_is_per_microbatch(from, id), "%s", edge->path);
    if (!edge->is_after && edge->is_of_step)
      cr_expect(!node_is_per_microbatch(from, id), "%s", edge->path);
  }
  for (int s = 0; s < 2; s++)
    for (int id = 0; id < graphs[s]->nodes.n; id++)
      if (graphs[s]->nodes.data[id]->phase == PHASE_update)
        cr_expect(!node_is_per_microbatch(graphs[s], id));
}

/* ---- the order of launches ---- */

/* The numbers that nodes of a stage have in its order: what runs before, in the
 * forward pass of, in the backward pass of and after a micro-batch. */
static int part_of_node(const Graph *graph, int id, bool *is_after) {
  if (node_is_per_microbatch(graph, id)) {
    *is_after = true;
    return graph->nodes.data[id]->phase == PHASE_forward ? 1 : 2;
  }
  return *is_after ? 3 : 0;
}

static void check_order(const Loaded *loaded, const Graph *graph) {
  Arena *arena = loaded->ctx.module->arena;
  int *levels = ARENA_ARRAY(arena, int, graph->nodes.n);
  int part = 0, level = 0;
  bool is_after = false;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      if (levels[node->inputs[i].node] > levels[id])
        levels[id] = levels[node->inputs[i].node];
    if (node->op == OP_input) {
      const StageEdge *edge = stage_edge_received(
          &loaded->cut, &graph->inputs.data[node_int(node, ATTR_index, 0)]);
      levels[id] = edge ? edge->level : 0;
      continue;
    }
    int now = part_of_node(graph, id, &is_after);
    cr_expect_geq(now, part, "node %d", id);
    if (now != part) level = 0;
    if (now == 0 || now == 3)
      cr_expect_geq(levels[id], level, "node %d of level %d", id, levels[id]);
    part = now;
    level = levels[id];
  }
  cr_expect_eq(part, 3);
}

/* Messages that are sent before the micro-batches are made before them, and no
 * pass lets a message wait for one of its own level. */
static void check_sends(const Loaded *loaded, const Graph *graph) {
  const int *levels =
      stage_node_levels(graph->module->arena, &loaded->cut, graph);
  bool is_after = false;
  for (int id = 0; id < graph->nodes.n; id++) {
    int part = part_of_node(graph, id, &is_after);
    for (int i = 0; i < graph->outputs.n; i++) {
      const GraphOutput *output = &graph->outputs.data[i];
      const StageEdge *edge = stage_edge_sent(&loaded->cut, output);
      if (!edge || !edge->is_of_step || output->value.node != id) continue;
      if (!edge->is_after) cr_expect_eq(part, 0, "%s", edge->path);
      cr_expect_lt(levels[id], edge->level, "%s", edge->path);
    }
  }
}

Test(stages, order_passes_and_levels) {
  static const char *const plans[] = {
      "mesh { pipe = 3 }" TWO_CUTS "}",
      "mesh { pipe = 3 }" TWO_CUTS "microbatches = 2 }",
      "mesh { pipe = 3; data = 2 }" TWO_CUTS "zero = 3 }",
      "mesh { pipe = 3; tensor = 2 }" TWO_CUTS
      "microbatches = 2; shard F, H over tensor }"};
  for (int i = 0; i < ARRAY_LENGTH(plans); i++) {
    Loaded loaded = load_case(&(StageCase){GPT2, plans[i], 3});
    cut_graph(&loaded, loaded.model->train, true);
    Graph *graphs[3];
    cr_assert(partition_stages(&loaded, graphs));
    for (int s = 0; s < 3; s++) {
      check_order(&loaded, graphs[s]);
      check_sends(&loaded, graphs[s]);
    }
  }
}
