// links: passes ir support
/*
 * passes_random.c -- random graphs mean the same before and after all passes,
 * every fused body keeps the contract at the head of passes/fuse.c, and the
 * memory layout survives a run in which every buffer is really overwritten.
 *
 * DNNC_SEED=N repeats the graph of one seed.
 */
#include "passes/passes.h"
#include "tests/unit/values.h"

#define N_GRAPHS 400
#define N_DIMS 4

typedef struct Maker {
  Module *module;
  Graph *graph;
  uint64_t seed, draw;
  VEC(Value) values;
  Name dims[N_DIMS];
} Maker;

static const int64_t sizes[N_DIMS] = {4, 3, 5, 2};

static int below(Maker *m, int n) {
  return (int)random_below(m->seed, m->draw++, (uint64_t)n);
}

static Value pick(Maker *m) {
  /* Mostly something recent. */
  int n = m->values.n, back = below(m, 3) ? n < 5 ? n : 5 : n;
  return m->values.data[n - 1 - below(m, back)];
}

static const Type *random_type(Maker *m) {
  Type *type = type_create(m->module->arena, DT_f32, 0);
  int order[N_DIMS] = {0, 1, 2, 3}, n = 0;
  Type *full = type_create(m->module->arena, DT_f32, N_DIMS);
  for (int i = 0; i < N_DIMS; i++) {
    int k = i + below(m, N_DIMS - i), swap = order[i];
    order[i] = order[k];
    order[k] = swap;
    if (below(m, 3) == 0) continue;
    full->dims[n++] = (Dim){m->dims[order[i]], sizes[order[i]], 0};
  }
  full->rank = (uint8_t)n;
  return n ? full : type;
}

static void keep(Maker *m, Value value) {
  vec_push(m->module->arena, &m->values, value);
}

/* A random subset of the value's dims, perhaps all. */
static int subset(Maker *m, const Type *type, Name *out) {
  int n = 0;
  for (int d = 0; d < type->rank; d++)
    if (below(m, 2)) out[n++] = type->dims[d].name;
  if (n == 0 && type->rank > 0)
    out[n++] = type->dims[below(m, type->rank)].name;
  return n;
}

static void make_rows(Maker *m, Value x) {
  static const Op ops[] = {OP_softmax, OP_layernorm, OP_logsumexp,
                           OP_rmsnorm, OP_log_softmax};
  Name over[MAX_RANK];
  int n = subset(m, graph_type(m->graph, x), over);
  if (n == 0) return;
  Op op = ops[below(m, ARRAY_LENGTH(ops))];
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n);
  if (op == OP_layernorm || op == OP_rmsnorm)
    attrs_real(&attrs, ATTR_eps, 1e-3);
  keep(m, graph_append(m->graph, op, &x, 1, &attrs));
}

static void make_gather(Maker *m, Value x) {
  const Type *type = graph_type(m->graph, x);
  if (type->rank == 0) return;
  Name dim = type->dims[below(m, type->rank)].name;
  int other = below(m, N_DIMS);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, m->dims[other]);
  attrs_ints(&attrs, ATTR_sizes, &sizes[other], 1);
  if (m->dims[other] == dim) return;
  Value position = graph_append(m->graph, OP_iota, NULL, 0, &attrs);
  Value limit = graph_const(m->graph, DT_i32, (double)type_size(type, dim));
  Value index = graph_op2(m->graph, OP_mod, position, limit);
  Attrs along = {0};
  attrs_name(&along, ATTR_dim, dim);
  keep(m, graph_append(m->graph, OP_gather, (Value[]){x, index}, 2, &along));
}

static void make_mask(Maker *m, Value x) {
  const Type *type = graph_type(m->graph, x);
  if (type->rank < 2) return;
  Value position[2];
  for (int i = 0; i < 2; i++) {
    Attrs attrs = {0};
    attrs_name(&attrs, ATTR_dim, type->dims[i].name);
    attrs_ints(&attrs, ATTR_sizes, &type->dims[i].size, 1);
    position[i] = graph_append(m->graph, OP_iota, NULL, 0, &attrs);
  }
  Value seen = graph_op2(m->graph, OP_ge, position[0], position[1]);
  Value zero = graph_const(m->graph, DT_f32, 0.25);
  keep(m, graph_op3(m->graph, OP_select, seen, x, zero));
}

static void make_node(Maker *m) {
  static const Op unary[] = {OP_tanh, OP_neg, OP_relu, OP_sigmoid, OP_erf};
  static const Op binary[] = {OP_add, OP_mul, OP_sub, OP_maximum};
  Graph *graph = m->graph;
  Value x = pick(m), y = pick(m);
  const Type *type = graph_type(graph, x);
  Name dims[MAX_RANK];
  graph->phase = (Phase)(m->values.n * 4 / 60);
  if (graph->phase > PHASE_update) graph->phase = PHASE_update;
  switch (below(m, 12)) {
  case 0:
  case 1:
    keep(m, graph_op1(graph, unary[below(m, ARRAY_LENGTH(unary))], x));
    return;
  case 2:
  case 3:
  case 4:
  case 5:
    keep(m, graph_op2(graph, binary[below(m, ARRAY_LENGTH(binary))], x, y));
    return;
  case 6: {
    int n = subset(m, type, dims);
    if (n > 0)
      keep(m, graph_reduce(graph, below(m, 2) ? OP_sum : OP_max, x, dims, n));
    return;
  }
  case 7: keep(m, graph_transpose_to(graph, x, type)); return;
  case 8: make_rows(m, x); return;
  case 9: make_gather(m, x); return;
  case 10: make_mask(m, x); return;
  default: {
    const Type *other = graph_type(graph, y);
    int n = 0;
    for (int d = 0; d < type->rank; d++)
      if (type_find(other, type->dims[d].name) >= 0 && below(m, 2))
        dims[n++] = type->dims[d].name;
    Attrs attrs = {0};
    attrs_names(&attrs, ATTR_over, dims, n);
    keep(m, graph_append(graph, OP_dot, (Value[]){x, y}, 2, &attrs));
  }
  }
}

/* A new value for the slot: some value, brought to the slot's type. */
static Value fit(Maker *m, Value value, Value slot) {
  Graph *graph = m->graph;
  const Type *type = graph_type(graph, value), *to = graph_type(graph, slot);
  Name over[MAX_RANK];
  int n = 0;
  for (int d = 0; d < type->rank; d++)
    if (type_find(to, type->dims[d].name) < 0) over[n++] = type->dims[d].name;
  if (n > 0) value = graph_reduce(graph, OP_sum, value, over, n);
  Value half = graph_const(graph, DT_f32, 0.5);
  Value old = below(m, 4) ? slot : graph_op1(graph, OP_neg, slot);
  value = graph_op2(graph, OP_mul, value, half);
  return graph_transpose_to(graph, graph_op2(graph, OP_add, value, old), to);
}

static Graph *make_random(Module *module, uint64_t seed) {
  static const char *const names[N_DIMS] = {"B", "C", "T", "H"};
  Maker m = {.module = module, .seed = seed, .graph = make_graph(module)};
  for (int d = 0; d < N_DIMS; d++)
    m.dims[d] = name_intern(module->names, names[d]);
  Value slots[3];
  for (int i = 0; i < 6; i++) {
    char path[8];
    snprintf(path, sizeof path, "p%d", i);
    Role role = i < 3 ? ROLE_param : ROLE_data;
    Value value = graph_input(m.graph, role, name_intern(module->names, path),
                              random_type(&m));
    if (i < 3) slots[i] = value;
    keep(&m, value);
  }
  int n = 5 + below(&m, 60);
  for (int i = 0; i < n; i++) make_node(&m);
  for (int i = 0; i < 3; i++) {
    char path[8];
    snprintf(path, sizeof path, "r%d", i);
    make_output(m.graph, ROLE_result, path, pick(&m));
  }
  m.graph->phase = PHASE_update;
  for (int i = 0; i < 3; i++) {
    if (below(&m, 4) == 0) continue;
    char path[8];
    snprintf(path, sizeof path, "p%d", i);
    make_output(m.graph, ROLE_param, path, fit(&m, pick(&m), slots[i]));
  }
  return m.graph;
}

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
    cr_assert(!op_info(node->op)->is_view, "seed %lu", (unsigned long)seed);
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

/* ---- memory ---- */

static void touch(const Layout *layout, const Graph *graph, Value value,
                  int *bytes, int tag, uint64_t seed) {
  int v = layout->first_value[value.node] + value.result;
  for (int64_t b = 0; b < layout->bytes[v]; b++) {
    int *at = &bytes[layout->offset[v] + b];
    if (tag >= 0) {
      cr_assert_eq(*at, tag, "seed %lu: %s %%%d is overwritten",
                   (unsigned long)seed,
                   op_info(graph->nodes.data[value.node]->op)->name,
                   value.node);
    } else {
      *at = -tag;
    }
  }
}

/* Runs the graph on tags instead of numbers: every byte knows the value that
 * was last written to it. */
static void check_memory(PassContext *ctx, const Graph *graph, uint64_t seed) {
  PersistentLayout persistent = {0};
  layout_persistent(&persistent, ctx->module->arena, graph, ctx->target);
  Layout *layout = layout_pack(ctx, graph, &persistent);
  cr_assert_leq(layout_bound(graph, layout) + persistent.bytes,
                layout->arena_bytes);
  int *bytes = ARENA_ARRAY(ctx->module->arena, int, layout->arena_bytes + 1);
  int *tag = ARENA_ARRAY(ctx->module->arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    if (graph->nodes.data[id]->op != OP_input) continue;
    tag[id] = 8 * id + 1;
    touch(layout, graph, (Value){id, 0}, bytes, -tag[id], seed);
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_input) continue;
    for (int i = 0; i < node->n_inputs; i++)
      touch(layout, graph, node->inputs[i], bytes,
            tag[node->inputs[i].node] + node->inputs[i].result, seed);
    tag[id] = 8 * id + 1;
    for (int r = 0; r < node->n_results; r++)
      touch(layout, graph, (Value){id, r}, bytes, -(tag[id] + r), seed);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    touch(layout, graph, output->value, bytes,
          tag[output->value.node] + output->value.result, seed);
    const GraphInput *slot =
        graph_find_input(graph, output->role, output->path);
    if (slot == NULL) continue;
    cr_assert_eq(layout->offset[layout->first_value[slot->value.node]],
                 layout->offset[layout->first_value[output->value.node] +
                                output->value.result]);
  }
}

/* ---- the test ---- */

static void check_seed(uint64_t seed) {
  Module *module = module_create();
  Graph *graph = make_random(module, seed);
  Tensor inputs[6];
  for (int i = 0; i < 6; i++)
    inputs[i] =
        tensor_random(module->arena,
                      graph_type(graph, graph->inputs.data[i].value),
                      seed * 16 + (uint64_t)i, -1, 1);
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  for (int level = 0; level <= 2; level++) {
    PassContext ctx = {.module = module, .scratch = module->arena};
    PassOptions options = {.level = level, .verify = true};
    Graph *now = passes_run(&ctx, &options, graph);
    Tensor *got = run(now, INTERP_f64, inputs);
    for (int i = 0; i < graph->outputs.n; i++) {
      int64_t n = type_elements(wanted[i].type);
      for (int64_t k = 0; k < n; k++) {
        double a = wanted[i].data[k], b = got[i].data[k];
        cr_assert(a == b || fabs(a - b) <= 1e-9 * (1 + fabs(a)),
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
  memory_destroy(module->memory);
}

Test(passes_random, same_meaning) {
  const char *one = getenv("DNNC_SEED");
  if (one != NULL) {
    check_seed(strtoull(one, NULL, 10));
    return;
  }
  for (uint64_t seed = 1; seed <= N_GRAPHS; seed++) check_seed(seed);
}
