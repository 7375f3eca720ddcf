// links: codegen passes ir
/*
 * halves.c -- compares emitted C of every operator on bf16 and f16 with the
 * interpreter on the same graph, which rounds where the graph says, and with
 * exact arithmetic on the graph before the passes.
 *
 * All kernels of a test go into one file, so that the compiler starts once.
 */
#include "tests/ops/cases.h"
#include "tests/ops/emitted.h"

#include <dlfcn.h>
#include <unistd.h>

#include "codegen/c/emit.h"
#include "codegen/select.h"
#include "passes/passes.h"

TestSuite(halves, .fini = modules_destroy);

typedef struct Job {
  const char *label;
  Graph *graph;
  Tensor *inputs, *exact, *rounded;
  int *kernel; /* by node; -1: none */
} Job;

typedef struct Bench {
  Module *module;
  KernelSet *set;
  VEC(Job) jobs;
} Bench;

static int kernel_of(Bench *bench, const Graph *graph, int id) {
  int kernel = kernel_set_override(bench->set, graph, id);
  if (kernel >= 0) return kernel;
  Nest *nest = nest_lower(bench->module, graph, id);
  cr_assert(nest, "%s", op_info(graph->nodes.data[id]->op)->name);
  return kernel_set_nest(bench->set, nest);
}

static void add_job(Bench *bench, const char *label, Graph *graph, int level) {
  Arena *arena = bench->module->arena;
  Job job = {.label = arena_printf(arena, "%s -O%d", label, level)};
  PassContext ctx = {.module = bench->module,
                     .scratch = arena_create(bench->module->memory),
                     .target = &bench->set->backend->target};
  PassOptions options = {.level = level, .verify = true};
  job.inputs = op_case_inputs(graph, hash_bytes(label, strlen(label), 0));
  job.exact = run(graph, INTERP_f64, job.inputs);
  job.graph = passes_run(&ctx, &options, graph).graph;
  job.rounded = run(job.graph, INTERP_f32, job.inputs);
  job.kernel = ARENA_ARRAY(arena, int, job.graph->nodes.n);
  for (int id = 0; id < job.graph->nodes.n; id++)
    job.kernel[id] = job.graph->nodes.data[id]->op == OP_input
                         ? -1
                         : kernel_of(bench, job.graph, id);
  vec_push(arena, &bench->jobs, job);
}

static void *compile(Bench *bench) {
  char folder[] = "/tmp/dnn-halves-XXXXXX";
  cr_assert(mkdtemp(folder));
  Arena *arena = bench->module->arena;
  Text text = text_create(arena);
  text_add(&text, c_prelude);
  for (int i = 0; i < bench->set->kernels.n; i++)
    text_add(&text, bench->set->kernels.data[i].text);
  const char *source = arena_printf(arena, "%s/kernels.c", folder);
  const char *library = arena_printf(arena, "%s/kernels.so", folder);
  cr_assert_eq(file_replace(source, text_string(&text), text.n).code,
               STATUS_ok);
  const char *command =
      arena_printf(arena,
                   "cc -std=gnu11 " EMITTED_LEVEL
                   " -march=native -fopenmp -Wall -Wno-unused -shared "
                   "-fPIC -o %s %s -lm",
                   library, source);
  cr_assert_eq(system(command), 0, "%s", command);
  void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  cr_assert(handle, "%s", dlerror());
  unlink(library);
  unlink(source);
  rmdir(folder);
  return handle;
}

static void *buffer(Arena *arena, const Type *type) {
  size_t n = (size_t)(type_elements(type) * dtype_size_bytes(type->dtype));
  return memset(arena_alloc(arena, n + 64), 0xff, n);
}

/* Attention rounds its probabilities for the products. */
static bool rounds_inside(const Job *job, DType dtype) {
  bool attends = strncmp(job->label, "attention", 9) == 0;
  return attends && dtype_is_16bit(dtype);
}

/* Compares as near to the interpreter as one rounding is; and as near to what
 * is exact as a number of this dtype can be, but for what sums in f32 lose: an
 * operator rounds once, whatever it is decomposed into. */
static void check(const Job *job, int output, const void *bytes) {
  const Tensor *exact = &job->exact[output], *rounded = &job->rounded[output];
  DType dtype = rounded->type->dtype;
  double near = op_case_tolerance(job->graph, dtype);
  double lost = rounds_inside(job, dtype) ? tolerance_decomposed(dtype)
                                          : tolerance(DT_f32);
  for (int64_t i = 0; i < type_elements(rounded->type); i++) {
    double got = element_from_bytes(dtype, bytes, i);
    double x = rounded->data[i], y = exact->data[i];
    double least = fabs(dtype_round(dtype, y) - y);
    bool is_near = got == x || fabs(got - x) <= near * fmax(1, fabs(x));
    bool is_right =
        got == y || fabs(got - y) <= least + lost * fmax(1, fabs(y));
    if (isnan(got) && isnan(x) && isnan(y)) continue;
    cr_assert(is_near && is_right,
              "%s: result %d, element %d is %.9g, not %.9g (exactly %.9g)",
              job->label, output, (int)i, got, x, y);
  }
}

static void run_job(Bench *bench, const Job *job, void *library) {

  const Graph *graph = job->graph;
  Arena *arena = arena_create(bench->module->memory);
  void ***values = ARENA_ARRAY(arena, void **, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    void **buffers =
        ARENA_ARRAY(arena, void *, node->n_inputs + node->n_results);
    int n = 0;
    values[id] = ARENA_ARRAY(arena, void *, node->n_results);
    for (int i = 0; i < node->n_inputs; i++)
      buffers[n++] = values[node->inputs[i].node][node->inputs[i].result];
    for (int r = 0; r < node->n_results; r++)
      buffers[n++] = values[id][r] = buffer(arena, node->types[r]);
    if (node->op == OP_input) {
      tensor_to_bytes(&job->inputs[node_int(node, ATTR_index, 0)],
                      values[id][0]);
      continue;
    }
    op_case_prefill(node, buffers[0], values[id][0]);
    DnnKernelFn *function = NULL;
    const char *name = bench->set->kernels.data[job->kernel[id]].name;
    *(void **)&function = dlsym(library, name);
    cr_assert(function, "%s", name);
    function(buffers, NULL);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    check(job, i, values[value.node][value.result]);
  }
  arena_destroy(arena);
}

/* Cases that the table lacks: sums of halves in f32, tiles of keys. */
static const OpCase more_cases[] = {
    {"dot", "over=K dtype=f32", {"TYPE M:12 K:300", "TYPE K:300 N:14"}},
    {"conv",
     "dim=C space=X stride=1 pad=1 dtype=f32",
     {"TYPE N:2 C:3 X:9", "TYPE O:4 C:3 X:3"}},
    {"scatter_add",
     "over=B,T dim=V sizes=4 dtype=f32",
     {"TYPE B:2 T:30 C:20", "i32 B:2 T:30"}},
    {"cast", "dtype=bf16", {"f32 B:70"}},
    {"cast", "dtype=f16", {"f32 B:70"}},
    {"cast", "dtype=f16", {"bf16 B:70"}},
    {"attention_grad",
     "over=D query=T key=S scale=0.3 causal=1",
     {"TYPE B:2 T:150 D:12", "TYPE B:2 S:150 D:12", "TYPE B:2 S:150 D:12",
      "TYPE B:2 T:150 D:12", "f32 B:2 T:150", "TYPE B:2 T:150 D:12"}},
};

static void add_case(Bench *bench, const OpCase *item, const char *number) {
  const char *label =
      arena_printf(bench->module->arena, "%s {%s} %s %s", item->op, item->attrs,
                   item->inputs[0] ? item->inputs[0] : "", number);
  for (int level = 0; level <= 2; level += 2)
    add_job(bench, label, op_case_graph(bench->module, item, number), level);
}

static void check_all(const char *number) {
  Bench bench = {.module = module_create()};
  bench.set = kernel_set_create(bench.module, backend_find("cpu"));
  for (int op = 0; op < N_OPS; op++) {
    if (!op_info((Op)op)->is_pointwise) continue;
    for (int shape = 0; shape < POINTWISE_SHAPES; shape++) {
      Graph *graph = pointwise_case_graph(bench.module, (Op)op, number, shape);
      if (graph) add_job(&bench, op_info((Op)op)->name, graph, 0);
    }
  }
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++)
    add_case(&bench, &op_cases[i], number);
  for (int i = 0; i < ARRAY_LENGTH(more_cases); i++)
    add_case(&bench, &more_cases[i], number);
  void *library = compile(&bench);
  for (int i = 0; i < bench.jobs.n; i++)
    run_job(&bench, &bench.jobs.data[i], library);
}

Test(halves, bf16) {
  check_all("bf16");
}

Test(halves, f16) {
  check_all("f16");
}
