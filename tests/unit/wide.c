// links: codegen passes ir
/*
 * wide.c -- index arithmetic beyond 2^31 elements, without the memory for it.
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
#include "tests/unit/values.h"

TestSuite(wide, .fini = modules_destroy, .timeout = 120);

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

static DnnKernelFn *compile(Arena *arena, const char *text, const char *name) {
  char folder[] = "/tmp/dnnc-wide-XXXXXX";
  cr_assert(mkdtemp(folder));
  const char *source = arena_printf(arena, "%s/k.c", folder);
  const char *object = arena_printf(arena, "%s/k.so", folder);
  cr_assert_eq(file_replace(source, text, strlen(text)).code, STATUS_ok);
  /* Without -fopenmp: the loops are no longer of its form. */
  const char *command = arena_printf(
      arena,
      "cc -std=gnu11 -O1 -march=native -fsanitize=signed-integer-overflow "
      "-fsanitize-undefined-trap-on-error -w -shared -fPIC %s -o %s -lm",
      source, object);
  cr_assert_eq(system(command), 0, "%s", source);
  void *library = dlopen(object, RTLD_NOW);
  cr_assert(library, "%s", dlerror());
  unlink(source);
  unlink(object);
  rmdir(folder);
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
    double got =
        run_corners(&cases[i], graph, compile(module->arena, text, nest->name));
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
  run_corners(&cases[0], graph, compile(module->arena, text, nest->name));
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
