// links: frontend passes runtime ir support
/*
 * incremental.c -- compares incremental decoding with a run of the full window.
 *
 * The logits of every token position must equal those of the full window, from
 * the first position on and after a prefill.  Nets that cannot be decoded one
 * token at a time are refused, with the value that prevents it.
 */
#include "passes/decode/incremental_decoding.h"
#include "frontend/frontend.h"
#include "tests/unit/values.h"

TestSuite(incremental, .fini = modules_destroy);

/* ---- models ---- */

#define HEAD                                                                   \
  "dim B = 1, T = 9, V = 11, C = 8, H = 2, D = C / H, G = 2\n"                 \
  "net n(tok: i32[B, T]) -> [B, T, V] {\n"                                     \
  "  param wte: [V, C] = normal(1)\n"                                          \
  "  param wpe: [T, C] = normal(1)\n"                                          \
  "  param wq, wk, wv: [C, H, D] = normal(1)\n"                                \
  "  param wo: [H, D, C] = normal(1)\n"                                        \
  "  x = gather(wte, tok, V)\n"
#define QKV                                                                    \
  "  q, k, v = dot(x, [wq, wk, wv], C)\n"                                      \
  "  k = k[T -> S]\n"                                                          \
  "  v = v[T -> S]\n"
#define TAIL                                                                   \
  "  return dot(x, wte, C)\n"                                                  \
  "}\n"                                                                        \
  "sample { model = n }\n"

typedef struct Net {
  Module *module;
  const char *text; /* of model.dnn */
} Net;

static const Source *load(void *user, const char *path) {
  const Net *net = user;
  Source *source = ARENA_NEW(net->module->arena, Source);
  *source = (Source){path, net->text, strlen(net->text)};
  if (strstr(path, "/model.dnn")) return source;
  Status status =
      file_read(net->module->arena, path, 1 << 20, &source->text, &source->n);
  return status.code == STATUS_ok ? source : NULL;
}

static const Graph *loaded(Module *module, const FrontendOptions *options) {
  Model *model = frontend_load(module, options).model;
  Text text = text_create(module->arena);
  diags_print(module->diags, &text);
  cr_assert(model && model->prefill, "%s", text_string(&text));
  return model->prefill;
}

static const Graph *net_of(Module *module, const char *text, const char *name,
                           const Override *sizes, int n) {
  Net net = {module, text};
  FrontendOptions options = {.load = load,
                             .user = &net,
                             .path = TEST_ROOT "/models/model.dnn",
                             .net = name,
                             .overrides = sizes,
                             .n_overrides = n};
  return loaded(module, &options);
}

/* ---- the two ways ---- */

typedef struct Pair {
  Module *module;
  Graph *whole, *step, *decode_init;
  bool has_carries;
  int64_t length;
  Tensor *whole_inputs, *step_inputs;
} Pair;

static bool verified(const Graph *graph) {
  Text errors = text_create(graph->module->arena);
  bool is_right = graph_verify(graph, &errors);
  cr_expect(is_right, "%s", text_string(&errors));
  return is_right;
}

static Tensor *inputs_of(Module *module, const Graph *graph) {
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    const Type *type = graph_type(graph, input->value);
    inputs[i] = input->role == ROLE_param
                    ? interp_initial(graph, i, 1, module->arena)
                    : tensor_create(module->arena, type);
    for (int64_t k = 0; input->role == ROLE_param && k < type_elements(type);
         k++) /* zeros and ones would hide mistakes */
      inputs[i].data[k] +=
          0.1 * random_normal(random_key(7, input->path), (uint64_t)k);
  }
  return inputs;
}

static Pair split(Module *module, const Graph *net) {
  PassContext ctx = {.module = module, .scratch = arena_create(module->memory)};
  Text why = text_create(module->arena);
  Pair pair = {.module = module};
  DecodeGraphs stepping;
  cr_assert(decode_split(&ctx, net, &stepping, &why), "%s", text_string(&why));
  pair.step = stepping.step;
  pair.has_carries = stepping.has_carries;
  DecodeFinish finish =
      decode_finish(&ctx, net, &stepping,
                    &(CompiledDecode){.graphs = &pair.step, .n_graphs = 1});
  pair.whole = finish.prefill;
  pair.decode_init = finish.decode_init;
  cr_assert(verified(pair.whole) && verified(pair.step) &&
            (!pair.decode_init || verified(pair.decode_init)));
  const Type *tokens = graph_type(pair.whole, pair.whole->inputs.data[0].value);
  pair.length = tokens->dims[1].size;
  pair.whole_inputs = inputs_of(module, pair.whole);
  pair.step_inputs = inputs_of(module, pair.step);
  return pair;
}

static Tensor *input_named(const Graph *graph, Tensor *inputs,
                           const char *path) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (!strcmp(graph->inputs.data[i].path, path)) return &inputs[i];
  cr_assert_fail("no input %s", path);
  return NULL;
}

/* Caches that an execution gave are what the next one reads. */
static void take_caches(const Pair *pair, const Graph *graph,
                        const Tensor *outputs) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (output->role == ROLE_decode_cache)
      *input_named(pair->step, pair->step_inputs, output->path) = outputs[i];
  }
}

static int token_at(int64_t position) {
  return (int)random_below(5, (uint64_t)position, 11);
}

static Tensor *run_window(const Pair *pair, int64_t n_known) {
  Tensor *tokens = input_named(pair->whole, pair->whole_inputs,
                               pair->whole->inputs.data[0].path);
  for (int64_t i = 0; i < pair->length; i++)
    tokens->data[i] = i < n_known ? token_at(i) : 3;
  return run(pair->whole, INTERP_f64, pair->whole_inputs);
}

static Tensor *run_step(const Pair *pair, int64_t position) {
  Tensor *token = input_named(pair->step, pair->step_inputs,
                              pair->whole->inputs.data[0].path);
  token->data[0] = token_at(position);
  if (graph_find_input(pair->step, ROLE_data,
                       name_intern(pair->module->names, SAMPLE_POSITION)))
    input_named(pair->step, pair->step_inputs, SAMPLE_POSITION)->data[0] =
        (double)position;
  Tensor *outputs = run(pair->step, INTERP_f64, pair->step_inputs);
  take_caches(pair, pair->step, outputs);
  return outputs;
}

/* Steps from `first` on, after a window of so many tokens. */
static void compare(const Pair *pair, int64_t first) {
  Tensor *wanted = run_window(pair, pair->length);
  int64_t row = type_elements(wanted[0].type) / pair->length;
  double *logits = arena_copy(pair->module->arena, wanted[0].data,
                              (size_t)(pair->length * row) * sizeof(double));
  if (pair->decode_init)
    take_caches(pair, pair->decode_init,
                run(pair->decode_init, INTERP_f64,
                    inputs_of(pair->module, pair->decode_init)));
  if (first > 0) take_caches(pair, pair->whole, run_window(pair, first));
  for (int64_t t = first; t < pair->length; t++) {
    Tensor *got = run_step(pair, t);
    cr_assert_eq(type_elements(got[0].type), row);
    for (int64_t i = 0; i < row; i++)
      cr_assert(fabs(got[0].data[i] - logits[t * row + i]) <
                    1e-12 * (1 + fabs(logits[t * row + i])),
                "position %lld, logit %lld: %.15g, in the window %.15g",
                (long long)t, (long long)i, got[0].data[i],
                logits[t * row + i]);
  }
}

static void check_net(Module *module, const Graph *net) {
  Pair pair = split(module, net);
  compare(&pair, 0);
  if (pair.has_carries) return; /* a window does not fill them */
  pair.step_inputs = inputs_of(module, pair.step);
  compare(&pair, pair.length / 2);
}

static void check(const char *text) {
  Module *module = module_create();
  check_net(module, net_of(module, text, "n", NULL, 0));
}

/* ---- nets that can ---- */

Test(incremental, models) {
  static const Override sizes[] = {{"V", "11"}, {"C", "8"}, {"H", "2"},
                                   {"T", "9"},  {"L", "2"}, {"G", "3"},
                                   {"D", "4"},  {"F", "10"}};
  static const char *const names[] = {"chargpt", "gpt2", "llama"};
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    Module *module = module_create();
    const char *text = arena_printf(
        module->arena, "import \"%s.dnn\"\nsample { model = %s }\n", names[i],
        names[i]);
    check_net(module, net_of(module, text, names[i], sizes,
                             strcmp(names[i], "llama") ? 5 : 8));
  }
}

Test(incremental, positions_learned_and_counted) {
  check(HEAD "  x = (x + wpe) * (1 + iota(x, T)) + sin(0.1 * wpe)\n" TAIL);
}

/* Rotary positions, queries in groups, a window of the last four. */
Test(incremental, rotary_groups_and_a_short_window) {
  check("dim B = 1, T = 9, V = 11, C = 8, H = 2, D = 4, G = 3\n"
        "layer rotary(x: [B, T, ..., D]) {\n"
        "  a, b  = split(x, D, 2)\n"
        "  angle = iota(x, T) * pow(100.0, -2 * iota(a, D) / D)\n"
        "  return concat([a * cos(angle) - b * sin(angle), b * cos(angle) + a "
        "* sin(angle)], D)\n"
        "}\n"
        "net n(tok: i32[B, T]) -> [B, T, V] {\n"
        "  param wte: [V, C] = normal(1)\n"
        "  param wq: [C, G, H, D] = normal(1)\n"
        "  param wk, wv: [C, G, D] = normal(1)\n"
        "  param wo: [G, H, D, C] = normal(1)\n"
        "  x = gather(wte, tok, V)\n"
        "  q = rotary(dot(x, wq, C))\n"
        "  k = rotary(dot(x, wk, C))[T -> S]\n"
        "  v = dot(x, wv, C)[T -> S]\n"
        "  s = dot(q, k, D) / sqrt(D)\n"
        "  p = softmax(mask(s, (T >= S) and (T < S + 4)), S)\n"
        "  x = rmsnorm(x + dot(dot(p, v, S), wo, (G, H, D)), C)\n" TAIL);
}

/* The mask first, then a bias and the scale; the softmax written out; weights
 * that are selected to zero. */
Test(incremental, other_spellings_of_a_mask) {
  check(HEAD QKV "  s = mask(dot(q, k, D), S <= T) / sqrt(D) + 0.5\n"
                 "  x = x + dot(dot(softmax(s, S), v, S), wo, (H, D))\n" TAIL);
  check(HEAD QKV "  w = mask(exp(dot(q, k, D)), T >= S, fill = 0)\n"
                 "  x = x + dot(dot(w, v, S) / sum(w, S), wo, (H, D))\n" TAIL);
  check(HEAD QKV "  s = mask(dot(q, k, D), T > S)\n"
                 "  x = x + dot(dot(softmax(s, S), v, S), wo, (H, D))\n" TAIL);
}

/* Keys are computed from positions: the cache stores x. */
Test(incremental, the_rename_may_come_first) {
  check(HEAD "  y = (x + wpe)[T -> S]\n"
             "  q = dot(x, wq, C)\n"
             "  k = dot(y, wk, C)\n"
             "  v = dot(y, wv, C)\n"
             "  s = mask(dot(q, k, D), T >= S)\n"
             "  x = x + dot(dot(softmax(s, S), v, S), wo, (H, D))\n" TAIL);
}

#define SCAN_HEAD                                                              \
  "dim B = 1, T = 9, V = 11, C = 8, O = C\n"                                   \
  "net n(tok: i32[B, T]) -> [B, T, V] {\n"                                     \
  "  param wte: [V, C] = normal(1)\n"                                          \
  "  param w: [P:O, O] = normal(0.3)\n"                                        \
  "  param start: [O] = normal(1)\n"                                           \
  "  x = gather(wte, tok, V)\n"                                                \
  "  u = x[C -> O]\n"

/* Carries that begin with a parameter, a state of lanes, a number; positions
 * beside them; a scan over what another one gave. */
Test(incremental, scans_keep_their_carries) {
  check(SCAN_HEAD "  y = scan T (h: [B, O] = start) {\n"
                  "    h = tanh(u + dot(h[O -> P], w, P))\n"
                  "    return h\n"
                  "  }\n"
                  "  x = y[O -> C]\n" TAIL);
  check(SCAN_HEAD "  state s: [B, O] = 0.5\n"
                  "  at = 0.1 * iota(x, T)\n"
                  "  y = scan T (h: [B, O] = s, c: [B, O] = 0) {\n"
                  "    c = 0.5 * c + u * at\n"
                  "    h = tanh(c + dot(h[O -> P], w, P))\n"
                  "    return h\n"
                  "  }\n"
                  "  s = h\n"
                  "  z = scan T (g: [B, O] = 0) {\n"
                  "    g = g + y\n"
                  "    return g * y\n"
                  "  }\n"
                  "  x = z[O -> C]\n" TAIL);
}

/* A list that is renamed at once gives values of one path. */
Test(incremental, caches_of_one_path) {
  check(HEAD "  q = dot(x, wq, C)\n"
             "  kv = dot(x, [wk, wv], C)[T -> S]\n"
             "  p = softmax(mask(dot(q, kv[0], D), T >= S), S)\n"
             "  x = x + dot(dot(p, kv[1], S), wo, (H, D))\n" TAIL);
}

/* ---- nets that cannot ---- */

static void refuse(const char *text, const char *wanted) {
  Module *module = module_create();
  PassContext ctx = {.module = module, .scratch = arena_create(module->memory)};
  Text why = text_create(module->arena);
  DecodeGraphs stepping;
  cr_assert_not(
      decode_split(&ctx, net_of(module, text, "n", NULL, 0), &stepping, &why));
  cr_expect_str_eq(text_string(&why), wanted);
}

Test(incremental, refusal_names_the_mixing_value) {
  refuse(HEAD QKV "  p = softmax(dot(q, k, D), S)\n"
                  "  x = x + dot(dot(p, v, S), wo, (H, D))\n" TAIL,
         "'p' reads later token positions along 'T'");
  refuse(HEAD QKV "  p = softmax(mask(dot(q, k, D), T <= S), S)\n"
                  "  x = x + dot(dot(p, v, S), wo, (H, D))\n" TAIL,
         "'p' reads later token positions along 'T'");
  refuse(HEAD QKV "  p = softmax(mask(dot(q, k, D), T >= S, fill = -5.0), S)\n"
                  "  x = x + dot(dot(p, v, S), wo, (H, D))\n" TAIL,
         "'p' reads later token positions along 'T'");
  refuse(HEAD QKV "  p = softmax(mask(dot(q, k, D), T >= S) * -1, S)\n"
                  "  x = x + dot(dot(p, v, S), wo, (H, D))\n" TAIL,
         "'p' reads later token positions along 'T'");
  refuse(SCAN_HEAD "  y = scan T (h: [B, O] = 0) { h = h + u; return h }\n"
                   "  x = x + h[O -> C]\n" TAIL,
         "'rename[1]' reads the result of the last token position along 'T'");
  refuse(SCAN_HEAD "  y = scan T (h: [B, O] = mean(u, T)) { h = h + u; return "
                   "h }\n"
                   "  x = x + y[O -> C]\n" TAIL,
         "'mean' mixes token positions along 'T'");
  refuse(SCAN_HEAD "  r = reverse(u, T)\n"
                   "  y = scan T (h: [B, O] = 0) { h = h + r; return h }\n"
                   "  x = x + y[O -> C]\n" TAIL,
         "'r' mixes token positions along 'T'");
  refuse(HEAD "  x = x + mean(x, T)\n" TAIL,
         "'mean' mixes token positions along 'T'");
  refuse(HEAD "  x = x + softmax(x, T)\n" TAIL,
         "'softmax' mixes token positions along 'T'");
  refuse(HEAD "  x = x + shift(x, T, 1)\n" TAIL,
         "'shift' mixes token positions along 'T'");
}
