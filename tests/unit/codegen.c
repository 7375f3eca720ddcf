// links: codegen passes ir
/*
 * codegen.c -- compares the emitted C of every operator with the interpreter.
 *
 * Operators with a loop nest run on several shapes, alone and after the passes
 * `decompose` and `fuse`; matmuls and convolutions run as the calls that
 * libraries get.  All kernels go into one shared object, compiled once.  An
 * operator of the table without a nest and without a decomposition fails.
 */
#include <dlfcn.h>
#include <unistd.h>

#include "codegen/c/emit.h"
#include "codegen/select.h"
#include "passes/passes.h"
#include "tests/ops/cases.h"
#include "tests/ops/emitted.h"

TestSuite(codegen, .fini = modules_destroy, .timeout = 900);

typedef struct Row {
  const char *op, *attrs, *inputs[6];
  double low, high; /* of real inputs; 0, 0: -2 to 2 */
} Row;

static const Row rows[] = {
#define CPU_CASE(op, attrs, low, high, ...)                                    \
  {op, attrs, {__VA_ARGS__}, low, high},
#include "tests/ops/cases.def"
};

/* ---- running emitted kernels ---- */

typedef struct Case {
  const char *name;
  const Graph *graph;
  Tensor *inputs, *wanted;
  Name *kernel;          /* by node; NULL: a view or a library call */
  const int64_t **sizes; /* by node: run-time numbers; or NULL */
} Case;

typedef struct Bench {
  Module *module;
  KernelSet *set;
  VEC(Case) cases;
  bool is_lowered[N_OPS];
} Bench;

static void *to_bytes(Arena *arena, const Tensor *tensor) {
  int64_t n = type_elements(tensor->type);
  DType dtype = tensor->type->dtype;
  char *bytes = arena_alloc(arena, (size_t)(n * dtype_size_bytes(dtype)) + 64);
  tensor_to_bytes(tensor, bytes);
  return bytes;
}

static void compare(const Case *test, int output, const void *bytes) {
  const Tensor *wanted = &test->wanted[output];
  DType dtype = wanted->type->dtype;
  double allowed = op_case_tolerance(test->graph, dtype);
  for (int64_t i = 0; i < type_elements(wanted->type); i++) {
    double x = element_from_bytes(dtype, bytes, i), y = wanted->data[i];
    double scale = fabs(y) > 1 ? fabs(y) : 1;
    bool is_same =
        x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= allowed * scale;
    cr_assert(is_same, "%s: output %d, element %ld is %.9g, not %.9g",
              test->name, output, (long)i, x, y);
  }
}

/* A matmul as the call that a library gets. */
static void run_gemm(const DnnGemm *g, const float *a, const float *b,
                     float *c) {
  for (int64_t x = 0; x < g->batch[0]; x++)
    for (int64_t y = 0; y < g->batch[1]; y++)
      for (int64_t i = 0; i < g->m; i++)
        for (int64_t j = 0; j < g->n; j++) {
          const float *p =
              a + x * g->a_batch[0] + y * g->a_batch[1] + i * g->a_i;
          const float *q =
              b + x * g->b_batch[0] + y * g->b_batch[1] + j * g->b_j;
          float *to = c + x * g->c_batch[0] + y * g->c_batch[1] + i * g->c_i +
                      j * g->c_j;
          double sum = g->accumulate ? *to : 0;
          for (int64_t k = 0; k < g->k; k++)
            sum += (double)p[k * g->a_k] * q[k * g->b_k];
          *to = (float)sum;
        }
}

/* A convolution as the call that a library gets, with its buffers in order. */
static void run_conv(const DnnConv *c, void **buffers) {
  int which = c->kind == DNN_CONV_FORWARD      ? 2
              : c->kind == DNN_CONV_INPUT_GRAD ? 1
                                               : 0;
  float *x = buffers[which == 2 ? 0 : which == 1 ? 2 : 0];
  float *w = buffers[which == 0 ? 2 : 1];
  float *y = buffers[which == 2 ? 2 : which == 1 ? 0 : 1];
  int64_t ci = c->in_channels / c->groups, co = c->out_channels / c->groups;
  int64_t n = c->batch * c->groups * ci * co * c->out[0] * c->out[1] *
              c->window[0] * c->window[1];
  for (int pass = 0; pass < 2; pass++) /* clear what is written, then add */
    for (int64_t at = 0; at < n; at++) {
      int64_t rest = at, i[8];
      const int64_t sizes[8] = {c->batch,     c->groups,   ci,
                                co,           c->out[0],   c->out[1],
                                c->window[0], c->window[1]};
      for (int k = 7; k >= 0; k--) i[k] = rest % sizes[k], rest /= sizes[k];
      int64_t row = i[4] * c->stride[0] - c->pad[0] + i[6] * c->dilate[0];
      int64_t col = i[5] * c->stride[1] - c->pad[1] + i[7] * c->dilate[1];
      bool is_inside = row >= 0 && row < c->in[0] && col >= 0 && col < c->in[1];
      float zero = 0;
      float *px = is_inside ? x + i[0] * c->x_stride[0] +
                                  (i[1] * ci + i[2]) * c->x_stride[1] +
                                  row * c->x_stride[2] + col * c->x_stride[3]
                            : &zero;
      float *pw = w + i[1] * c->w_stride[0] + i[3] * c->w_stride[1] +
                  i[2] * c->w_stride[2] + i[6] * c->w_stride[3] +
                  i[7] * c->w_stride[4];
      float *py = y + i[0] * c->y_stride[0] +
                  (i[1] * co + i[3]) * c->y_stride[1] + i[4] * c->y_stride[2] +
                  i[5] * c->y_stride[3];
      float *target = which == 2 ? py : which == 1 ? px : pw;
      if (pass == 0)
        *target = 0;
      else
        *target += which == 2 ? *px * *pw : which == 1 ? *py * *pw : *px * *py;
    }
}

static void run_node(const Case *test, int id, void *library, void ***values) {
  const Node *node = test->graph->nodes.data[id];
  void *buffers[64];
  int n = 0;
  for (int i = 0; i < node->n_inputs; i++)
    buffers[n++] = values[node->inputs[i].node][node->inputs[i].result];
  if (node_is_view(test->graph, id)) {
    values[id][0] = buffers[0];
    return;
  }
  for (int r = 0; r < node->n_results; r++) buffers[n++] = values[id][r];
  op_case_prefill(node, buffers[0], buffers[node->n_inputs]);
  if (test->kernel[id]) {
    DnnKernelFn *function = NULL;
    *(void **)&function = dlsym(library, test->kernel[id]);
    cr_assert(function != NULL, "%s", test->kernel[id]);
    function(buffers, test->sizes[id]);
    return;
  }
  DnnConv conv;
  if (select_conv(test->graph, id, &conv)) {
    run_conv(&conv, buffers);
    return;
  }
  GemmCalls calls;
  cr_assert(select_gemm(test->graph, id, &calls), "%s", test->name);
  for (int64_t i = 0; i < calls.n; i++) {
    calls.gemm.accumulate = i > 0;
    run_gemm(
        &calls.gemm, (float *)buffers[calls.is_exchanged] + i * calls.a_step,
        (float *)buffers[!calls.is_exchanged] + i * calls.b_step, buffers[2]);
  }
}

static void run_case(const Case *test, void *library) {
  const Graph *graph = test->graph;
  Arena *arena = graph->module->arena;
  void ***values = ARENA_ARRAY(arena, void **, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    values[id] = ARENA_ARRAY(arena, void *, node->n_results);
    for (int r = 0; r < node->n_results; r++) {
      Tensor poison = tensor_create(arena, node->types[r]);
      memset(poison.data, 0x7f,
             (size_t)type_elements(node->types[r]) * sizeof(double));
      values[id][r] = to_bytes(arena, &poison);
    }
    if (node->op == OP_input)
      values[id][0] =
          to_bytes(arena, &test->inputs[node_int(node, ATTR_index, 0)]);
    else
      run_node(test, id, library, values);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    compare(test, i, values[value.node][value.result]);
  }
}

/* ---- making cases ---- */

/* A kernel that takes its sizes; false: this one has them as constants. */
static bool add_sized(Bench *bench, Case *test, int id, const Nest *nest) {
  KernelSet *set = bench->set;
  KernelText text = {0};
  if (!set->backend->emit_sized_nest(set->backend, bench->module, nest, &text))
    return false;
  if (!map_has(set->by_name, text.name)) {
    vec_push(bench->module->arena, &set->kernels, text);
    map_put(set->by_name, text.name, (void *)(uintptr_t)set->kernels.n);
  }
  test->kernel[id] = text.name;
  test->sizes[id] = text.sizes;
  return true;
}

static void add_kernel(Bench *bench, Case *test, int id, bool takes_sizes) {
  const Graph *graph = test->graph;
  int kernel = kernel_set_override(bench->set, graph, id);
  if (kernel < 0) {
    Nest *nest = nest_lower(bench->module, graph, id);
    cr_assert(nest != NULL, "%s: no nest for %s", test->name,
              op_info(graph->nodes.data[id]->op)->name);
    if (takes_sizes && add_sized(bench, test, id, nest)) return;
    kernel = kernel_set_nest(bench->set, nest);
  }
  test->kernel[id] = bench->set->kernels.data[kernel].name;
}

static void add_case(Bench *bench, const char *name, const Graph *graph,
                     Tensor *inputs, Tensor *wanted, bool has_library,
                     bool takes_sizes) {
  Module *module = bench->module;
  Case test = {
      .name = name, .graph = graph, .inputs = inputs, .wanted = wanted};
  test.kernel = ARENA_ARRAY(module->arena, Name, graph->nodes.n);
  test.sizes = ARENA_ARRAY(module->arena, const int64_t *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    GemmCalls calls;
    Op op = graph->nodes.data[id]->op;
    DnnConv conv;
    if (op == OP_input || node_is_view(graph, id) ||
        (has_library &&
         (select_gemm(graph, id, &calls) || select_conv(graph, id, &conv))))
      continue;
    add_kernel(bench, &test, id, takes_sizes);
    bench->is_lowered[op] = true;
  }
  vec_push(module->arena, &bench->cases, test);
}

static Graph *through(Bench *bench, const char *pass, const Graph *graph) {
  PassContext ctx = {.module = bench->module,
                     .scratch = bench->module->arena,
                     .level = 2,
                     .target = &bench->set->backend->target};
  return pass_info(pass_find(pass))->run(&ctx, graph);
}

/* Alone where it can be, after `decompose`, and after `fuse`. */
static void add_graph(Bench *bench, const char *name, const Graph *graph,
                      Tensor *inputs) {
  Tensor *wanted = run(graph, INTERP_f64, inputs);
  const Graph *plain = through(bench, "decompose", graph);
  bool is_basic = true;
  for (int id = 0; id < graph->nodes.n; id++)
    is_basic &= !op_info(graph->nodes.data[id]->op)->decompose;
  if (is_basic) add_case(bench, name, graph, inputs, wanted, false, false);
  add_case(bench, name, plain, inputs, wanted, false, false);
  add_case(bench, name, plain, inputs, wanted, true, false);
  add_case(bench, arena_printf(bench->module->arena, "%s, fused", name),
           through(bench, "fuse", plain), inputs, wanted, true, true);
}

static void add_row(Bench *bench, const Row *row) {
  Module *module = bench->module;
  Graph *graph = make_graph(module);
  Value values[6];
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, 6);
  int n = 0;
  double low = row->high == 0 ? -2 : row->low;
  double high = row->high == 0 ? 2 : row->high;
  for (; n < 6 && row->inputs[n]; n++) {
    char path[] = {(char)('a' + n), 0};
    values[n] = make_input(graph, ROLE_data, path, row->inputs[n]);
    const Type *type = graph_type(graph, values[n]);
    inputs[n] = tensor_random(module->arena, type, (uint64_t)n + 5, low, high);
  }
  if (!strcmp(row->op, "maxpool_grad")) { /* y must be the pool of x */
    Value y = make(graph, "maxpool", row->attrs, values, 1);
    values[1] = y;
  }
  Value value = make(graph, row->op, row->attrs, values, n);
  const Node *node = graph_node(graph, value);
  if (op_has_slots(node->op))
    expert_indices(graph, node, &inputs[1], &inputs[2], 1);
  for (int r = 0; r < node->n_results; r++)
    make_output(graph, ROLE_result, r ? "z" : "y", (Value){value.node, r});
  if (node->op == OP_attention) {
    Value all[6] = {values[0], values[1],       values[2],
                    value,     {value.node, 1}, value};
    Value grad = make(graph, "attention_grad", row->attrs, all, 6);
    for (int r = 0; r < 3; r++)
      make_output(graph, ROLE_result, "d", (Value){grad.node, r});
  }
  add_graph(bench,
            arena_printf(module->arena, "%s %s (%s)", row->op, row->attrs,
                         row->inputs[0] ? row->inputs[0] : ""),
            graph, inputs);
}

static const char *operand_of(PwClass class, int i, bool is_small) {
  bool is_bool = class == PW_LOGIC || (class == PW_SELECT && i == 0);
  if (is_bool) return is_small ? "bool B:33" : "bool A:7 B:33";
  if (class == PW_INTEGER) return is_small ? "i32 B:33" : "i32 A:7 B:33";
  return is_small ? "f32 B:33" : "f32 A:7 B:33";
}

/* Each pointwise operator, one operand broadcast; then of size 1. */
static void add_pointwise(Bench *bench, Op op) {
  const OpInfo *info = op_info(op);
  Row row = {.op = info->name, .attrs = "", .low = 0.1, .high = 3};
  for (int i = 0; i < info->max_inputs; i++)
    row.inputs[i] = operand_of(info->pw_class, i, i > 0);
  add_row(bench, &row);
  for (int i = 0; i < info->max_inputs; i++) {
    PwClass class = info->pw_class;
    row.inputs[i] = class == PW_LOGIC || (class == PW_SELECT && i == 0) ? "bool"
                    : class == PW_INTEGER                               ? "i32"
                                                                        : "f32";
  }
  add_row(bench, &row);
}

/* ---- longer regions, as models have them ---- */

static void add_chain(Bench *bench, const char *x_type, const char *g_type) {
  Module *module = bench->module;
  Graph *graph = make_graph(module);
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, 4);
  Value x = make_input(graph, ROLE_data, "x", x_type);
  Value y = make_input(graph, ROLE_data, "y", x_type);
  Value g = make_input(graph, ROLE_data, "g", g_type);
  for (int i = 0; i < 3; i++)
    inputs[i] = tensor_random(module->arena,
                              graph_type(graph, graph->inputs.data[i].value),
                              (uint64_t)i, -2, 2);
  Value sum = graph_op2(graph, OP_add, x, y);
  Value norm = make1(graph, "layernorm", "over=C eps=1e-5", sum);
  Value scaled = graph_op2(graph, OP_mul, norm, g);
  Value column =
      make1(graph, "sum", "over=B", graph_op2(graph, OP_mul, norm, y));
  Value total = make1(graph, "sum", "over=B,C", graph_op2(graph, OP_mul, y, y));
  make_output(graph, ROLE_result, "sum", sum);
  make_output(graph, ROLE_result, "scaled", make1(graph, "gelu", "", scaled));
  make_output(graph, ROLE_result, "softmax",
              make1(graph, "softmax", "over=C", scaled));
  make_output(graph, ROLE_result, "column", column);
  make_output(graph, ROLE_result, "total", total);
  add_graph(bench, arena_printf(module->arena, "chain %s", x_type), graph,
            inputs);
}

static void add_loss(Bench *bench, const char *x_type, const char *y_type) {
  Module *module = bench->module;
  Graph *graph = make_graph(module);
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, 2);
  Value x = make_input(graph, ROLE_data, "x", x_type);
  Value y = make_input(graph, ROLE_data, "y", y_type);
  inputs[0] = tensor_random(module->arena, graph_type(graph, x), 1, -2, 2);
  inputs[1] = tensor_random(module->arena, graph_type(graph, y), 2, 0, 9);
  Value logs = make1(graph, "log_softmax", "over=V", x);
  Value picked = make(graph, "gather", "dim=V", (Value[]){logs, y}, 2);
  Value loss = make1(graph, "sum", "over=B", picked);
  Value hot = make1(graph, "one_hot", "dim=V sizes=11", y);
  hot = graph_cast(graph, hot, DT_f32);
  Value p = graph_op1(graph, OP_exp, logs);
  make_output(graph, ROLE_result, "loss", loss);
  make_output(graph, ROLE_result, "dx", graph_op2(graph, OP_sub, p, hot));
  Value best = make1(graph, "argmax", "dim=V", x);
  make_output(graph, ROLE_result, "hits",
              graph_cast(graph, graph_op2(graph, OP_eq, best, y), DT_f32));
  add_graph(bench, "loss", graph, inputs);
}

static void add_experts(Bench *bench, const char *p_type, const char *x_type) {
  Module *module = bench->module;
  Graph *graph = expert_graph(module, ROLE_data, p_type, x_type);
  Tensor *inputs = ARENA_ARRAY(module->arena, Tensor, 2);
  for (int i = 0; i < 2; i++)
    inputs[i] = tensor_random(module->arena,
                              graph_type(graph, graph->inputs.data[i].value),
                              (uint64_t)i, 0, 1);
  add_graph(bench, "experts", graph, inputs);
}

/* ---- one shared object for all of them ---- */

static void *compile(Bench *bench) {
  Arena *arena = bench->module->arena;
  Text text = text_create(arena);
  text_add(&text, bench->set->backend->prelude);
  for (int i = 0; i < bench->set->kernels.n; i++)
    text_add(&text, bench->set->kernels.data[i].text);
  char folder[] = "/tmp/dnnc-test-XXXXXX";
  cr_assert(mkdtemp(folder) != NULL);
  const char *source = arena_printf(arena, "%s/k.c", folder);
  const char *object = arena_printf(arena, "%s/k.so", folder);
  Status status = file_replace(source, text_string(&text), text.n);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  const char *command = arena_printf(
      arena,
      "cc -std=gnu11 " EMITTED_LEVEL " -march=native -fopenmp -fno-math-errno "
      "-ffp-contract=fast -Wall -Wno-unused -shared -fPIC %s -o %s -lm",
      source, object);
  cr_assert_eq(system(command), 0, "%s", source);
  void *library = dlopen(object, RTLD_NOW);
  cr_assert(library != NULL, "%s", dlerror());
  if (!getenv("DNN_KEEP")) {
    unlink(source);
    unlink(object);
    rmdir(folder);
  }
  return library;
}

/* Nests that differ in sizes alone share a kernel, which takes them; the size
 * of one without its like is a constant. */
Test(codegen, nests_of_other_sizes_share_a_kernel) {
  static const char *const types[] = {"f32 A:7 B:33", "f32 A:5 B:21"};
  Module *module = module_create();
  KernelSet *set = kernel_set_create(module, backend_find("cpu"));
  const KernelKind *kinds[2];
  for (int i = 0; i < 2; i++) {
    Graph *graph = make_graph(module);
    Value x = make_input(graph, ROLE_data, "x", types[i]);
    Value y = make1(graph, "sum", "over=B", x);
    kinds[i] = kernel_set_kind(set, graph, y.node);
    const char *text = set->kernels.data[kinds[i]->kernel].text;
    cr_expect_eq(strstr(text, "numbers[") != NULL, i == 1, "%s", text);
  }
  cr_expect_eq(set->kernels.n, 1);
  cr_expect_eq(kinds[0]->kernel, kinds[1]->kernel);
  cr_expect_eq(kinds[0]->n_sizes, kinds[1]->n_sizes);
  cr_expect_eq(kinds[0]->sizes[0], 7);
  cr_expect_eq(kinds[1]->sizes[0], 5);
}

/* Random numbers and iota of a shard use the index in the logical tensor. */
Test(codegen, shards_have_global_indices) {
  static const char text[] =
      "graph g mesh(data = 2, time = 2~) {\n"
      "  %0 = input {index = 0} : i64[] seed \"\"\n"
      "  %1 = input {index = 1} : i32[] step \"\"\n"
      "  %2 = random_keep %0, %1 {to = [B, C], sizes = [8, 3], value = 0.5, "
      "stream = \"s\"} : bool[B:8@(data, time), C:3]\n"
      "  output result \"y\" %2\n"
      "}\n";
  Bench bench = {.module = module_create()};
  Arena *arena = bench.module->arena;
  bench.set = kernel_set_create(bench.module, backend_find("cpu"));
  Source source = {.path = "test", .text = text, .n = sizeof text - 1};
  Graph *graph = graph_parse(bench.module, &source);
  Nest *nest = nest_lower(bench.module, graph, 2);
  cr_assert_eq(nest->n_numbers, 1);
  kernel_set_nest(bench.set, nest);
  void *library = compile(&bench);
  DnnKernelFn *function = NULL;
  *(void **)&function = dlsym(library, nest->name);
  Graph *logical = make_graph(bench.module);
  Value inputs[2] = {make_input(logical, ROLE_data, "a", "i64"),
                     make_input(logical, ROLE_data, "b", "i32")};
  Value value = make(logical, "random_keep",
                     "to=B,C sizes=8,3 value=0.5 stream=s", inputs, 2);
  make_output(logical, ROLE_result, "y", value);
  double seed = 7, step = 3;
  Tensor given[2] = {tensor_of(arena, make_type(bench.module, "i64"), &seed),
                     tensor_of(arena, make_type(bench.module, "i32"), &step)};
  Tensor *wanted = run(logical, INTERP_f64, given);
  for (int shard = 0; shard < 4; shard++) {
    int64_t number = shard * nest->numbers[0].factor;
    uint8_t got[6];
    void *buffers[] = {to_bytes(arena, &given[0]), to_bytes(arena, &given[1]),
                       got};
    function(buffers, &number);
    for (int i = 0; i < 6; i++)
      cr_expect_eq(got[i], wanted[0].data[shard * 6 + i]);
  }
}

/* ---- the cases of every back end, in every dtype ---- */

static void add_case_graph(Bench *bench, const char *label, Graph *graph) {
  add_graph(bench, label, graph,
            op_case_inputs(graph, hash_bytes(label, strlen(label), 0)));
}

static void check_number(const char *number) {
  Bench bench = {.module = module_create()};
  Module *module = bench.module;
  bench.set = kernel_set_create(module, backend_find("cpu"));
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++)
    if (op_case_takes(&op_cases[i], number))
      add_case_graph(&bench,
                     arena_printf(module->arena, "%s {%s} %s", op_cases[i].op,
                                  op_cases[i].attrs, number),
                     op_case_graph(module, &op_cases[i], number));
  for (int op = 0; op < N_OPS; op++)
    for (int shape = 0; shape < POINTWISE_SHAPES; shape++) {
      if (!op_info((Op)op)->is_pointwise) continue;
      Graph *graph = pointwise_case_graph(module, (Op)op, number, shape);
      if (graph)
        add_case_graph(&bench,
                       arena_printf(module->arena, "%s %s %d",
                                    op_info((Op)op)->name, number, shape),
                       graph);
    }
  void *library = compile(&bench);
  for (int i = 0; i < bench.cases.n; i++)
    run_case(&bench.cases.data[i], library);
}

Test(codegen, every_case_in_f32) {
  check_number("f32");
}
Test(codegen, every_case_in_f64) {
  check_number("f64");
}
Test(codegen, every_case_in_i32) {
  check_number("i32");
}
Test(codegen, every_case_in_i64) {
  check_number("i64");
}
Test(codegen, every_case_in_i16) {
  check_number("i16");
}
Test(codegen, every_case_in_i8) {
  check_number("i8");
}
Test(codegen, every_case_in_u8) {
  check_number("u8");
}
Test(codegen, every_case_in_bool) {
  check_number("bool");
}

/* Operators that partition, the runtime or another pass does. */
static bool is_elsewhere(Op op) {
  return op == OP_input || op_is(op, OPCLASS_collective) ||
         op_is(op, OPCLASS_swap) || op_is(op, OPCLASS_region);
}

Test(codegen, equals_the_interpreter) {
  Bench bench = {.module = module_create()};
  bench.set = kernel_set_create(bench.module, backend_find("cpu"));
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) add_row(&bench, &rows[i]);
  for (int op = 0; op < N_OPS; op++)
    if (op_info((Op)op)->is_pointwise) add_pointwise(&bench, (Op)op);
  add_chain(&bench, "f32 B:5 C:100", "f32 C:100");
  add_chain(&bench, "f32 B:600 C:130", "f32 C:130");
  add_chain(&bench, "f32 B:1 C:1", "f32 C:1");
  add_loss(&bench, "f32 B:70 V:11", "i32 B:70");
  add_experts(&bench, "f32 B:5 T:9 E:4", "f32 B:5 T:9 C:70");
  void *library = compile(&bench);
  for (int i = 0; i < bench.cases.n; i++)
    run_case(&bench.cases.data[i], library);
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    Op op;
    Graph *graph = op_case_graph(bench.module, &op_cases[i], "f32");
    int last = graph->outputs.data[0].value.node;
    cr_assert(op_find(op_cases[i].op, &op), "%s", op_cases[i].op);
    bench.is_lowered[op] |= nest_lower(bench.module, graph, last) != NULL;
  }
  for (int op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info((Op)op);
    cr_expect(bench.is_lowered[op] || info->decompose ||
                  info->class == OPCLASS_view || is_elsewhere((Op)op),
              "%s has neither a nest nor a decomposition here", info->name);
  }
}
