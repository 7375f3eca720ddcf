// links: codegen passes ir
/*
 * wide.c -- tests index arithmetic beyond 2^31 elements, without the memory for
 * it.
 *
 * Emitted C: every loop is made to visit its first and last position only, the
 * buffers are mapped but hardly touched, and signed overflow traps.  The last
 * element of an operand must arrive at its place in the result.  Emitted CUDA:
 * the largest offset and the most points of every kernel, worked out here from
 * the nest in doubles, must fit the type of its indices.
 */
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "codegen/cuda/cuda.h"
#include "codegen/cuda/emit.h"
#include "codegen/select.h"
#include "tests/ops/cases.h"
#include "tests/ops/emitted.h"

TestSuite(wide, .fini = modules_destroy, .timeout = 280);

typedef struct Case {
  const char *op, *attrs, *inputs[3];
  int64_t index; /* value of every element of an i32 operand at the corners */
  int64_t from, to; /* element of the first operand, of the result; -1: last */
} Case;

static const Case cases[] = {
    {"add", "", {"f32 A:70000 B:40000", "f32 B:40000"}, 0, -1, -1},
    {"add", "", {"f32 A:3 B:1000000000", "f32 A:3"}, 0, -1, -1},
    {"cast", "dtype=f64", {"f32 A:2200000000"}, 0, -1, -1},
    {"sum", "over=B", {"f32 A:70000 B:40000"}, 0, -1, -1},
    {"sum", "over=A", {"f32 A:70000 B:40000"}, 0, -1, -1},
    {"max", "over=A,B", {"f32 A:70000 B:40000"}, 0, -1, -1},
    {"transpose", "order=B,A", {"f32 A:70000 B:40000"}, 0, -1, -1},
    {"broadcast", "to=B sizes=80000", {"f32 A:40000"}, 0, -1, -1},
    {"slice",
     "dim=A start=60000 sizes=10000",
     {"f32 A:70000 B:400000"},
     0,
     -1,
     -1},
    {"reverse", "dim=A", {"f32 B:30000 A:80000"}, 0, -1, 2399920000},
    {"concat",
     "dim=A",
     {"f32 A:20000 B:60000", "f32 A:20000 B:60000"},
     0,
     -1,
     1199999999},
    {"pad", "dim=B pad=1,0 value=0", {"f32 A:70000 B:40000"}, 0, -1, -1},
    {"gather", "dim=V", {"f32 V:2500000 C:1000", "i32 B:4"}, 2499999, -1, -1},
    {"gather", "dim=V", {"f32 V:10 C:1000", "i32 B:2500000"}, 9, -1, -1},
    {"maxpool",
     "space=X window=2 stride=2 pad=0",
     {"f32 N:70000 X:40000"},
     0,
     -1,
     -1},
    {"dot", "over=", {"f32 A:70000", "f32 B:40000"}, 0, -1, -1},
    {"dot", "over=K", {"f32 A:70000 K:40000", "f32 K:40000"}, 0, -1, -1},
};

static Graph *graph_of(Module *module, const Case *item) {
  Graph *graph = make_graph(module);
  Value inputs[3];
  int n = 0;
  for (; n < 3 && item->inputs[n]; n++)
    inputs[n] = make_input(graph, ROLE_data, "x", item->inputs[n]);
  make_output(graph, ROLE_metric, "y",
              make(graph, item->op, item->attrs, inputs, n));
  return graph;
}

/* ---- C ---- */

/* `; u < N; u++)` becomes a step from the first position to the last. */
static const char *corners_only(Arena *arena, const char *text) {
  Text out = text_create(arena);
  text_add(&out, "static int64_t to_last(int64_t at, int64_t end) {\n"
                 "  return at + 1 < end ? end - 1 - at : 1;\n}\n");
  for (const char *at = text; *at;) {
    const char *end = strstr(at, "++)");
    if (!end) {
      text_add(&out, at);
      break;
    }
    const char *less = end, *name = end;
    while (less > at && *less != '<') less--;
    while (name > less && name[-1] != ' ') name--;
    const char *semicolon = strchr(less, ';');
    bool is_loop = *less == '<' && semicolon < end;
    text_add_n(&out, at, (size_t)(end - at));
    if (is_loop)
      text_printf(&out, " += to_last(%.*s, %.*s))", (int)(end - name), name,
                  (int)(semicolon - less - 1), less + 1);
    else
      text_add(&out, "++)");
    at = end + 3;
  }
  return text_string(&out);
}

static void *compile(Arena *arena, const char *text) {
  char folder[] = "/tmp/dnnc-wide-XXXXXX";
  cr_assert(mkdtemp(folder));
  const char *source = arena_printf(arena, "%s/k.c", folder);
  const char *object = arena_printf(arena, "%s/k.so", folder);
  cr_assert_eq(file_replace(source, text, strlen(text)).code, STATUS_ok);
  /* Without -fopenmp: the loops are no longer of its form. */
  const char *command = arena_printf(
      arena,
      "cc -std=gnu11 " EMITTED_LEVEL
      " -march=native -fsanitize=signed-integer-overflow "
      "-fsanitize-undefined-trap-on-error -w -shared -fPIC %s -o %s -lm",
      source, object);
  cr_assert_eq(system(command), 0, "%s", source);
  void *library = dlopen(object, RTLD_NOW);
  cr_assert(library, "%s", dlerror());
  unlink(source);
  unlink(object);
  rmdir(folder);
  return library;
}

static DnnKernelFn *find(void *library, const char *name) {
  DnnKernelFn *function = NULL;
  *(void **)&function = dlsym(library, name);
  cr_assert(function != NULL);
  return function;
}

static void *map_buffer(const Type *type) {
  size_t n = (size_t)(type_elements(type) * dtype_size_bytes(type->dtype));
  void *bytes = mmap(NULL, n, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  cr_assert(bytes != MAP_FAILED, "%zu bytes", n);
  return bytes;
}

static int64_t corner(const Type *type, int64_t element) {
  return element < 0 ? type_elements(type) - 1 : element;
}

static void fill(const Case *item, const Type *type, void *bytes) {
  int64_t last = type_elements(type) - 1;
  if (type->dtype == DT_i32) {
    ((int32_t *)bytes)[0] = ((int32_t *)bytes)[last] = (int32_t)item->index;
    return;
  }
  ((float *)bytes)[last] = 1;
}

/* The first operand's element is 3, the last of any other 1. */
static double run_corners(const Case *item, const Graph *graph,
                          DnnKernelFn *function) {
  const Node *node = graph_node(graph, graph->outputs.data[0].value);
  void *buffers[4];
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(graph, node->inputs[i]);
    buffers[i] = map_buffer(type);
    fill(item, type, buffers[i]);
    if (i == 0) ((float *)buffers[0])[corner(type, item->from)] = 3;
  }
  const Type *result = node->types[0];
  buffers[node->n_inputs] = map_buffer(result);
  function(buffers, NULL);
  int64_t at = corner(result, item->to);
  return result->dtype == DT_f64 ? ((double *)buffers[node->n_inputs])[at]
                                 : ((float *)buffers[node->n_inputs])[at];
}

static double expected(const Case *item) {
  return !strcmp(item->op, "add") ? 4 : 3;
}

Test(wide, emitted_c) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    Graph *graph = graph_of(module, &cases[i]);
    Nest *nest = nest_lower(module, graph, graph->nodes.n - 1);
    cr_assert(nest, "%s", cases[i].op);
    const Backend *backend = backend_find("cpu");
    KernelText kernel = {0};
    backend->emit_nest(backend, module, nest, &kernel);
    const char *text = arena_printf(module->arena, "%s%s", backend->prelude,
                                    corners_only(module->arena, kernel.text));
    double got = run_corners(&cases[i], graph,
                             find(compile(module->arena, text), nest->name));
    cr_expect_eq(got, expected(&cases[i]), "%s {%s}: %g", cases[i].op,
                 cases[i].attrs, got);
  }
}

/* The test itself must see an index of 32 bits. */
Test(wide, narrow_loops_are_seen, .signal = SIGILL) {
  Module *module = module_create();
  Graph *graph = graph_of(module, &cases[0]);
  Nest *nest = nest_lower(module, graph, graph->nodes.n - 1);
  const Backend *backend = backend_find("cpu");
  KernelText kernel = {0};
  backend->emit_nest(backend, module, nest, &kernel);
  const char *text = arena_printf(
      module->arena, "%s\n#define int64_t int\n%s\n#undef int64_t\n",
      backend->prelude, corners_only(module->arena, kernel.text));
  run_corners(&cases[0], graph, find(compile(module->arena, text), nest->name));
}

/* ---- CUDA ---- */

/* The largest offset of an index, whichever way its strides go. */
static double reach(const Nest *nest, const NestStage *stage,
                    const NestIndex *at) {
  double low = at->base, high = at->base;
  for (int l = 0; l < nest->n_outer + stage->n_inner; l++) {
    int64_t extent = l < nest->n_outer ? nest->outer[l].extent
                                       : stage->inner[l - nest->n_outer].extent;
    double most = (double)at->stride[l] * (extent - 1);
    if (most > 0) high += most;
    if (most < 0) low += most;
  }
  for (int d = 0; d < at->n_dynamic; d++)
    high += (double)at->dynamic[d].stride * (at->dynamic[d].limit - 1);
  return high > -low ? high : -low;
}

static double largest(const Nest *nest) {
  double most = 0, outer = 1;
  for (int l = 0; l < nest->n_outer; l++) outer *= nest->outer[l].extent;
  for (int s = 0; s < nest->stages.n; s++) {
    const NestStage *stage = &nest->stages.data[s];
    double points = outer;
    for (int l = 0; l < stage->n_inner; l++) points *= stage->inner[l].extent;
    if (points > most) most = points;
    for (int i = 0; i < stage->stmts.n; i++)
      if (stage->stmts.data[i].at &&
          reach(nest, stage, stage->stmts.data[i].at) > most)
        most = reach(nest, stage, stage->stmts.data[i].at);
    for (int e = 0; e < nest->exprs.n; e++)
      if (nest->exprs.data[e].kind == NEST_load &&
          reach(nest, stage, nest->exprs.data[e].at) > most)
        most = reach(nest, stage, nest->exprs.data[e].at);
  }
  return most;
}

/* A thread steps beyond the end by a whole grid before it stops. */
#define GRID_STEP ((int64_t)1 << 27)

static void check_cuda(Module *module, Graph *graph, const char *label) {
  Nest *nest = nest_lower(module, graph, graph->nodes.n - 1);
  KernelText kernel = {0};
  cuda_emit_nest(&backend_cuda, module, nest, &kernel);
  bool must_be_wide = largest(nest) + GRID_STEP > INT32_MAX;
  bool is_narrow = strstr(kernel.text, "const int x0") != NULL;
  bool is_wide = strstr(kernel.text, "const long long x0") != NULL;
  cr_expect(is_wide || is_narrow || nest->n_outer == 0, "%s:\n%s", label,
            kernel.text);
  cr_expect(!must_be_wide || !is_narrow, "%s reaches %lld with int:\n%s", label,
            (long long)largest(nest), kernel.text);
}

Test(wide, emitted_cuda) {
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    check_cuda(module, graph_of(module, &cases[i]), cases[i].op);
  }
}

/* Around the borders: 2^30, 2^31 and what steps beyond. */
Test(wide, cuda_at_the_border) {
  static const int64_t sizes[] = {1 << 30,         (1LL << 30) - 8,
                                  (1LL << 30) + 8, (1LL << 31) - 8,
                                  1LL << 31,       1900000000};
  for (int i = 0; i < ARRAY_LENGTH(sizes); i++)
    for (int columns = 1; columns <= 8; columns *= 8) {
      Module *module = module_create();
      const char *type = arena_printf(module->arena, "f32 A:%lld B:%d",
                                      (long long)(sizes[i] / columns), columns);
      Case item = {"relu", "", {type}, 0, -1, -1};
      check_cuda(module, graph_of(module, &item), type);
      Case sum = {"sum", "over=A", {type}, 0, -1, -1};
      check_cuda(module, graph_of(module, &sum), type);
    }
}

/* ---- every operator ---- */

#define WIDE INT64_C(2200000000) /* elements of an operand, at least */

typedef struct Kernel {
  const Graph *graph;
  const char *name, *label;
} Kernel;
typedef VEC(Kernel) KernelList;

/* Sizes of a case's operands with dim `dim` so long that one has WIDE elements;
 * false where none has it. */
static bool widen(Module *module, const OpCase *item, Name dim,
                  const Type **types, int *out_n) {
  int64_t others = 0;
  char text[300];
  for (*out_n = 0; *out_n < 6 && item->inputs[*out_n]; ++*out_n) {
    op_case_text(text, sizeof text, item->inputs[*out_n], "f32");
    const Type *type = types[*out_n] = make_type(module, text);
    int at = type_find(type, dim);
    if (at < 0) continue;
    int64_t n = type_elements(type) / type->dims[at].size;
    if (n > others) others = n;
  }
  if (others == 0) return false;
  for (int i = 0; i < *out_n; i++) {
    int at = type_find(types[i], dim);
    if (at >= 0) ((Type *)types[i])->dims[at].size = WIDE / others / 12 * 12;
  }
  return true;
}

/* NULL where the operator does not take the operands or has no nest. */
static Graph *widened_graph(Module *module, const OpCase *item, Name dim) {
  const Type *types[6], *results[8];
  Value inputs[6];
  Op op;
  int n;
  char text[300];
  if (!widen(module, item, dim, types, &n)) return NULL;
  op_case_text(text, sizeof text, item->attrs, "f32");
  Attrs attrs = make_attrs(module, text);
  cr_assert(op_find(item->op, &op));
  OpCall call = {op, n, types, &attrs, NULL};
  if (op_infer(module, &call, SPAN_NONE, results) < 0) return NULL;
  Graph *graph = make_graph(module);
  Name none = name_intern(module->names, "");
  for (int i = 0; i < n; i++)
    inputs[i] = graph_input(graph, ROLE_data, none, types[i]);
  Value y = graph_append(graph, op, inputs, n, &attrs);
  graph_output(graph, ROLE_metric, none, y);
  return graph;
}

static void add_widened(Module *module, const OpCase *item, Name dim,
                        Text *text, KernelList *kernels) {
  Graph *graph = widened_graph(module, item, dim);
  Nest *nest = graph ? nest_lower(module, graph, graph->nodes.n - 1) : NULL;
  if (!nest) return;
  Kernel kernel = {graph, nest->name,
                   arena_printf(module->arena, "%s {%s}, long %s", item->op,
                                item->attrs, dim)};
  check_cuda(module, graph, kernel.label);
  for (int i = 0; i < kernels->n; i++)
    if (!strcmp(kernels->data[i].name, nest->name)) return;
  const Backend *backend = backend_find("cpu");
  KernelText emitted = {0};
  backend->emit_nest(backend, module, nest, &emitted);
  text_add(text, emitted.text);
  vec_push(module->arena, kernels, kernel);
}

/* Overflow traps; a wrong address most likely, too: buffers lie apart. */
static void run_kernel(const Kernel *kernel, DnnKernelFn *function) {
  const Graph *graph = kernel->graph;
  const Node *node = graph_node(graph, graph->outputs.data[0].value);
  void *buffers[16];
  size_t bytes[16];
  int n = 0;
  for (int i = 0; i < node->n_inputs + node->n_results; i++, n++) {
    const Type *type = i < node->n_inputs ? graph_type(graph, node->inputs[i])
                                          : node->types[i - node->n_inputs];
    bytes[n] = (size_t)(type_elements(type) * dtype_size_bytes(type->dtype));
    buffers[n] = map_buffer(type);
  }
  pid_t child = fork();
  if (child == 0) {
    alarm(20);
    function(buffers, NULL);
    _exit(0);
  }
  int status;
  waitpid(child, &status, 0);
  cr_expect_eq(status, 0, "%s: signal %d", kernel->label, WTERMSIG(status));
  while (n-- > 0) munmap(buffers[n], bytes[n]);
}

/* Rows are written in simpler operators first; pointwise ones are lowered as
 * one, and `cases` has some; attention and collectives are no nests. */
static bool has_no_long_nest(Op op) {
  const OpInfo *info = op_info(op);
  return info->is_pointwise || info->decompose || info->max_inputs == 0 ||
         op_case_exempt(op) || op_is(op, OPCLASS_random) ||
         op == OP_attention || op == OP_attention_grad;
}

Test(wide, every_operator) {
  Module *module = module_create();
  KernelList kernels = {0};
  Text text = text_create(module->arena);
  bool is_seen[N_OPS] = {false};
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++)
    for (char letter = 'A'; letter <= 'Z'; letter++) {
      const char name[] = {letter, '\0'};
      add_widened(module, &op_cases[i], name_intern(module->names, name), &text,
                  &kernels);
    }
  void *library =
      compile(module->arena,
              arena_printf(module->arena, "%s%s", backend_find("cpu")->prelude,
                           corners_only(module->arena, text_string(&text))));
  for (int i = 0; i < kernels.n; i++) {
    const Graph *graph = kernels.data[i].graph;
    is_seen[graph_node(graph, graph->outputs.data[0].value)->op] = true;
    run_kernel(&kernels.data[i], find(library, kernels.data[i].name));
  }
  cr_expect_gt(kernels.n, 120);
  for (int op = 0; op < N_OPS; op++)
    cr_expect(is_seen[op] || has_no_long_nest((Op)op), "no long case of %s",
              op_info((Op)op)->name);
}
