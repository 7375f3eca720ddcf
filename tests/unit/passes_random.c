// links: verify passes ir support
/*
 * passes_random.c -- compares random graphs before and after all passes.
 *
 * Every fused body must keep the contract of passes/fuse/fuse.c, and the buffer
 * assignment must survive a run in which every buffer is really overwritten.
 *
 * DNNC_SEED=N repeats the graph of one seed, DNNC_GRAPHS=N makes so many.
 */
#include "passes/passes.h"
#include "tests/unit/memory_play.h"
#include "tests/unit/random_graph.h"

#define N_GRAPHS 400

/* ---- the contract of fused bodies ---- */

static bool in_list(const Name *list, int n, Name name) {
  for (int i = 0; i < n; i++)
    if (list[i] == name) return true;
  return false;
}

static void add_dims(const Type *type, Name *list, int *n) {
  for (int d = 0; d < type->rank; d++)
    if (!in_list(list, *n, type->dims[d].name))
      list[(*n)++] = type->dims[d].name;
}

static const Name *over_of(const Node *node, int *n) {
  return node_names(node, ATTR_over, n);
}

static void check_body(const Graph *body, uint64_t seed) {
  Name space[32], inner[32];
  int n_space = 0, n_inner = 0;
  bool has_reduction = false;
  for (int i = 0; i < body->nodes.n; i++) {
    const Node *node = body->nodes.data[i];
    cr_assert(!op_is(node->op, OPCLASS_view), "seed %lu", (unsigned long)seed);
    if (node->op == OP_input) continue;
    add_dims(node->types[0], space, &n_space);
    if (node->op != OP_sum && node->op != OP_max) continue;
    add_dims(graph_type(body, node->inputs[0]), space, &n_space);
    int n;
    const Name *over = over_of(node, &n);
    if (has_reduction) cr_assert_eq(n, n_inner);
    for (int k = 0; k < n; k++) {
      if (!has_reduction) inner[n_inner++] = over[k];
      cr_assert(in_list(inner, n_inner, over[k]));
    }
    has_reduction = true;
  }
  for (int i = 0; i < body->outputs.n; i++) {
    const Type *type = graph_type(body, body->outputs.data[i].value);
    int n_in = 0;
    for (int d = 0; d < type->rank; d++)
      n_in += in_list(inner, n_inner, type->dims[d].name);
    bool is_row = n_in == 0 && type->rank == n_space - n_inner;
    cr_assert(type->rank == n_space || (has_reduction && is_row),
              "seed %lu: a result is neither row nor element",
              (unsigned long)seed);
  }
}

/* ---- the test ---- */

static void check_seed(uint64_t seed) {
  Module *module = module_create();
  Graph *graph = make_random(module, seed, false);
  Tensor inputs[6];
  for (int i = 0; i < 6; i++)
    inputs[i] = tensor_random(module->arena,
                              graph_type(graph, graph->inputs.data[i].value),
                              seed * 16 + (uint64_t)i, -1, 1);
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  for (int level = 0; level <= 2; level++) {
    PassContext ctx = {.module = module, .scratch = module->arena};
    PassOptions options = {.level = level, .verify = true};
    Graph *now = passes_run(&ctx, &options, graph).graph;
    Tensor *got = run(now, INTERP_f64, inputs);
    for (int i = 0; i < graph->outputs.n; i++) {
      int64_t n = type_elements(wanted[i].type);
      for (int64_t k = 0; k < n; k++) {
        double a = wanted[i].data[k], b = got[i].data[k];
        cr_assert(a == b || fabs(a - b) <= 1e-6 * (1 + fabs(a)),
                  "seed %lu -O%d output %d element %ld: %.17g, not %.17g",
                  (unsigned long)seed, level, i, (long)k, b, a);
      }
    }
    for (int id = 0; id < now->nodes.n; id++) {
      const Node *node = now->nodes.data[id];
      cr_assert(!op_info(node->op)->is_pointwise);
      if (node->op == OP_fused) check_body(node->body, seed);
    }
    check_memory(&ctx, now, seed);
  }
  modules_destroy();
}

Test(passes_random, same_meaning) {
  for_seeds(N_GRAPHS, check_seed);
}

/* ---- training ---- */

static const Tensor *find_output(const Graph *graph, const Tensor *tensors,
                                 const GraphOutput *like) {
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == like->role &&
        graph->outputs.data[i].path == like->path)
      return &tensors[i];
  return NULL;
}

/* The random graph's first result, summed, is the loss. */
static Graph *make_training(Module *module, uint64_t seed) {
  Graph *graph = make_random(module, seed, false);
  Value loss = graph->outputs.data[0].value;
  graph->outputs.n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    graph->nodes.data[id]->phase = PHASE_forward;
  graph->phase = PHASE_forward;
  Name over[MAX_RANK];
  const Type *type = graph_type(graph, loss);
  for (int d = 0; d < type->rank; d++) over[d] = type->dims[d].name;
  loss = graph_op1(graph, OP_tanh, loss);
  if (type->rank > 0)
    loss = graph_reduce(graph, OP_sum, loss, over, type->rank);
  make_output(graph, ROLE_loss, "loss", loss);
  return graph;
}

static void check_training(uint64_t seed) {
  Module *module = module_create();
  Graph *graph = make_training(module, seed);
  Model model = {.module = module, .has_train = true};
  OptimizerCall *call = &model.settings.optimizer;
  *call =
      optimizer_call(name_intern(module->names, seed % 2 ? "adamw" : "sgd"));
  call->lr = (Rate){.kind = RATE_constant, .values = {0.1}};
  if (seed % 2) *optimizer_value(call, "eps") = 1e-6;
  call->decay = 0.1;
  model.settings.steps = 10;
  model.settings.clip = 0.5;
  Graph *graphs[2];
  Tensor *tensors[2];
  for (int k = 0; k < 2; k++) {
    PassContext ctx = {.module = module,
                       .scratch = module->arena,
                       .model = &model,
                       .is_training = true};
    PassOptions options = {.level = k ? 2 : 0, .verify = true};
    graphs[k] = passes_run(&ctx, &options, graph).graph;
    cr_assert_eq(diags_errors(module->diags), 0);
    Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, graphs[k]->inputs.n);
    for (int i = 0; i < graphs[k]->inputs.n; i++)
      inputs[i] = tensor_random(
          module->arena, graph_type(graphs[k], graphs[k]->inputs.data[i].value),
          seed * 16 + (uint64_t)i, 0.1, 1);
    tensors[k] = run(graphs[k], INTERP_f64, inputs);
    check_memory(&ctx, graphs[k], seed);
  }
  for (int i = 0; i < graphs[0]->outputs.n; i++) {
    const GraphOutput *output = &graphs[0]->outputs.data[i];
    const Tensor *other = find_output(graphs[1], tensors[1], output);
    cr_assert(other != NULL);
    for (int64_t e = 0; e < type_elements(tensors[0][i].type); e++) {
      double a = tensors[0][i].data[e], b = other->data[e];
      cr_assert(a == b || (isnan(a) && isnan(b)) ||
                    fabs(a - b) <= 1e-6 * (1 + fabs(a)),
                "seed %lu: %s[%ld] is %.17g, not %.17g", (unsigned long)seed,
                output->path, (long)e, b, a);
    }
  }
  modules_destroy();
}

Test(passes_random, training) {
  for_seeds(N_GRAPHS / 2, check_training);
}
