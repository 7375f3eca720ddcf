// links: frontend passes ir support
/*
 * exact_passes.c -- a training step computes the same function before and
 * after all passes, at -O0 and -O2, in exact mode; a wrong rewrite is seen.
 *
 * The step has the loss, the gradients and the updates of two models: a GPT of
 * two blocks with dropout, and a convnet with batch normalisation in groups,
 * pooling and residuals.  Keys have no bias: its gradient is 0, because a
 * softmax takes any shift, so nodes that compute it may be wrong.
 */
#include "tests/unit/exact_run.h"
#include "tests/unit/forms.h"

TestSuite(exact_passes, .fini = modules_destroy, .timeout = 200);

static const char gpt[] =
    "dim B = 4, T = 5, V = 7, C = 4, H = 2, D = C / H, F = 6, L = 2\n"
    "layer norm(x: [..., C]) {\n"
    "  param g: [C] = ones\n"
    "  param b: [C] = zeros\n"
    "  return layernorm(x, C) * g + b\n"
    "}\n"
    "layer attn(x: [B, T, C]) {\n"
    "  param wq, wk, wv: [C, H, D] = normal(0.02)\n"
    "  param bq, bv: [H, D] = zeros\n"
    "  param wo: [H, D, C] = normal(0.02)\n"
    "  q, k, v = dot(x, [wq, wk, wv], C)\n"
    "  q = q + bq\n"
    "  v = v + bv\n"
    "  s = dot(q, k[T -> S], D) / sqrt(D)\n"
    "  p = softmax(mask(s, T >= S), S)\n"
    "  return dropout(dot(dot(p, v[T -> S], S), wo, (H, D)), 0.3)\n"
    "}\n"
    "layer mlp(x: [..., C]) {\n"
    "  param w1: [C, F] = normal(0.02)\n"
    "  param b1: [F] = zeros\n"
    "  param w2: [F, C] = normal(0.02)\n"
    "  return dot(gelu(dot(x, w1, C) + b1), w2, F)\n"
    "}\n"
    "layer block(x) {\n"
    "  x = x + attn(norm(x))\n"
    "  return x + mlp(norm(x))\n"
    "}\n"
    "net small(tok: i32[B, T]) -> [B, T, V] {\n"
    "  param wte: [V, C] = normal(0.02)\n"
    "  param wpe: [T, C] = normal(0.02)\n"
    "  x = gather(wte, tok, V) + wpe\n"
    "  repeat i in L { x = block(x) }\n"
    "  return dot(norm(x), wte, C)\n"
    "}\n"
    "data text {\n"
    "  x: i32[B, T] = synthetic(V)\n"
    "  y: i32[B, T] = synthetic(V)\n"
    "}\n"
    "train {\n"
    "  loss = cross_entropy(small(text.x), text.y, V)\n"
    "  optimizer = adamw(lr = 0.001, betas = (0.9, 0.99), decay = 0.1)\n"
    "  clip = 1.0\n"
    "  steps = 5\n"
    "}\n";

static const char convnet[] =
    "dim N = 4, K = 3\n"
    "layer conv_bn(x: [N, C:I, Y, X], out, k, stride = 1) {\n"
    "  param w: [O:out, C:I, Y:k, X:k] = he_normal(I * k * k)\n"
    "  param g: [C:out] = ones\n"
    "  param b: [C:out] = zeros\n"
    "  state mean: [C:out] = zeros\n"
    "  state var: [C:out] = ones\n"
    "  y = conv(x, w, C, (Y, X), stride = stride, pad = k // 2)[O -> C]\n"
    "  return batchnorm(y, (N, Y, X), mean, var, group = 2) * g + b\n"
    "}\n"
    "net small(x: [N, C:1, Y:6, X:6]) -> [N, K] {\n"
    "  param w: [C:3, K] = normal(0.1)\n"
    "  x = relu(conv_bn(x, 2, 3))\n"
    "  y = relu(conv_bn(x, 2, 3))\n"
    "  x = relu(x + conv_bn(y, 2, 3))\n"
    "  x = maxpool(x, (Y, X), 2)\n"
    "  x = relu(conv_bn(x, 3, 3, stride = 2))\n"
    "  return dot(mean(x, (Y, X)), w, C)\n"
    "}\n"
    "data set {\n"
    "  x: [N, C:1, Y:6, X:6] = synthetic()\n"
    "  y: i32[N] = synthetic(K)\n"
    "}\n"
    "train {\n"
    "  loss = cross_entropy(small(set.x), set.y, K, smooth = 0.1)\n"
    "  optimizer = sgd(lr = 0.1, momentum = 0.9, nesterov = true, decay = "
    "5e-4)\n"
    "  steps = 5\n"
    "}\n";

/* Every final graph against that of -O0 before `decompose`, which has the
 * operators as they are. */
static void check_levels(const char *name, const char *text, int least) {
  Module *module = module_create();
  Model *model = read_form(module, name, text);
  Graph *first = after(module, model, "optimizer", 0);
  for (int level = 0; level <= 2; level++) {
    Graph *last = after(module, model, NULL, level);
    for (int s = 0; s < EXACT_SEEDS; s++) {
      ExactComparison got = exact_compare_graphs(first, last, exact_seeds[s]);
      cr_assert_eq(got.n_differing, 0,
                   "%s -O%d: %d of %d outputs differ, first %s", name, level,
                   got.n_differing, got.n, got.first);
      cr_assert_geq(got.n, least, "%s: %d outputs", name, got.n);
    }
  }
}

Test(exact_passes, gpt_is_the_same_after_all_passes) {
  check_levels("gpt", gpt, 60);
}

Test(exact_passes, convnet_is_the_same_after_all_passes) {
  check_levels("convnet", convnet, 20);
}

/* ---- each pass, with and without ranks ---- */

/* Collectives are the identity of logical values. */
static void check_each_pass(const char *name, const char *text, int ranks,
                            int microbatches, int level) {
  Module *module = module_create();
  Planned planned = read_form_on(module, name, text, ranks, microbatches);
  const Model *model = planned.model;
  for (int s = 0; s < EXACT_SEEDS; s++) {
    PassContext ctx = {.module = module,
                       .scratch = arena_create(module->memory),
                       .model = model,
                       .plan = planned.plan,
                       .is_training = true};
    ExactWalk walk = exact_walk(model->train, exact_seeds[s]);
    PassOptions options = {
        .level = level, .verify = true, .after = exact_walk_on, .user = &walk};
    Graph *last = passes_run(&ctx, &options, model->train).graph;
    Text errors = text_create(module->arena);
    diags_print(module->diags, &errors);
    cr_assert_eq(diags_errors(module->diags), 0, "%s", text_string(&errors));
    cr_assert(walk.first == NULL, "%s -O%d: %s changes '%s'", name, level,
              pass_label(module->arena, walk.wrong), walk.first);
    cr_assert_gt(walk.n_graphs, level == 0 ? 4 : 8, "%d", walk.n_graphs);
    cr_assert_eq(count(last, OP_all_reduce) > 0, ranks > 1);
  }
}

Test(exact_passes, each_pass_keeps_each_model) {
  for (int level = 0; level <= 2; level++) {
    check_each_pass("gpt", gpt, 1, 1, level);
    check_each_pass("convnet", convnet, 1, 1, level);
    check_each_pass("gpt", gpt, 2, 2, level);
    check_each_pass("convnet", convnet, 2, 1, level);
  }
}

/* ---- wrong rewrites ---- */

static Op wrong_op(Op op) {
  switch (op) {
  case OP_add: return OP_sub;
  case OP_sub: return OP_add;
  case OP_mul: return OP_add;
  case OP_div: return OP_mul;
  case OP_maximum: return OP_minimum;
  case OP_max: return OP_min;
  case OP_min: return OP_max;
  case OP_exp: return OP_expm1;
  case OP_rsqrt: return OP_sqrt;
  case OP_ge: return OP_gt;
  case OP_gelu: return OP_gelu_tanh;
  default: return op;
  }
}

static Value wrong_node(Graph *to, const Node *node, const Value *inputs) {
  Attrs attrs = {.n = node->n_attrs};
  for (int k = 0; k < node->n_attrs; k++) attrs.items[k] = node->attrs[k];
  return graph_append_typed(to, wrong_op(node->op), inputs, node->n_inputs,
                            &attrs, node->types, node->n_results, NULL);
}

/* The maximum of a row, subtracted from it: exp(x - max) over its sum is the
 * same under any other shift. */
static bool is_shift(const Graph *graph, const Node *node) {
  return node->op == OP_sub &&
         node_int(graph_node(graph, node->inputs[1]), ATTR_guard, 0) != 0;
}

/* Every third node is made wrong: how many are not seen. */
static int count_unseen(const char *name, const char *text, int *out_wrong) {
  Module *module = module_create();
  Model *model = read_form(module, name, text);
  Graph *graph = after(module, model, "dce@2", 0);
  int n_unseen = 0;
  *out_wrong = 0;
  for (int id = 0; id < graph->nodes.n; id += 3) {
    const Node *node = graph->nodes.data[id];
    if (wrong_op(node->op) == node->op || node_int(node, ATTR_guard, 0) != 0 ||
        dtype_class(node->types[0]->dtype) != CLASS_FLOAT)
      continue;
    ++*out_wrong;
    bool is_seen = false;
    Graph *wrong = exact_changed(graph, id, id + 1, wrong_node);
    for (int s = 0; s < EXACT_SEEDS && !is_seen; s++)
      is_seen =
          exact_compare_graphs(graph, wrong, exact_seeds[s]).n_differing > 0;
    if (is_seen || is_shift(graph, node)) continue;
    n_unseen++;
    cr_log_warn("%s: %s in place of node %d, %s, is not seen", name,
                op_info(wrong_op(node->op))->name, id, op_info(node->op)->name);
  }
  return n_unseen;
}

Test(exact_passes, wrong_rewrites_are_seen) {
  int n_gpt, n_convnet;
  int unseen = count_unseen("gpt", gpt, &n_gpt);
  unseen += count_unseen("convnet", convnet, &n_convnet);
  cr_assert_gt(n_gpt + n_convnet, 100);
  cr_assert_eq(unseen, 0, "%d of %d", unseen, n_gpt + n_convnet);
}
