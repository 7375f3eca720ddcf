// links: codegen passes ir
/*
 * cuda.c -- tests emitted CUDA of every operator: compiled as C with
 * tests/shim, it runs on the CPU against the interpreter; NVRTC compiles it for
 * every architecture where NVRTC is installed.
 *
 * All kernels of a test go into one file, so that the compiler starts once.
 *
 * With DNNC_ON_GPU the same cases run on a GPU (tests/device/gpu_suite.h), as a
 * program that needs no Criterion: build/gpu_kernels.
 */
#include "tests/ops/cases.h"
#include "tests/ops/emitted.h"

#include <dlfcn.h>
#include <unistd.h>

#include "codegen/cuda/emit.h"

typedef int ShimKernel(const void *arguments, const unsigned *grid,
                       const unsigned *block, unsigned seed);

/* A case after the passes, with a kernel for each node (-1: none). */
typedef struct Job {
  const char *label;
  Graph *graph;
  Tensor *inputs, *wanted;
  int *kernel;
} Job;

typedef struct Suite {
  Module *module;
  VEC(Job) jobs;
  VEC(KernelText) kernels;
  VEC(const Nest *) nests; /* of the kernels; NULL: an override */
  Map *by_name;
  void *library;
  Arena *values; /* of the job that runs */
} Suite;

TestSuite(cuda, .fini = modules_destroy, .timeout = 900);

/* ---- collecting ---- */

static Graph *run_passes(Graph *graph, int level) {
  PassContext ctx = {.module = graph->module,
                     .scratch = arena_create(graph->module->memory),
                     .target = &backend_cuda.target};
  PassOptions options = {.level = level, .verify = true};
  return passes_run(&ctx, &options, graph).graph;
}

static int add_kernel(Suite *suite, KernelText text, const Nest *nest) {
  int found = (int)(intptr_t)map_get(suite->by_name, text.name);
  if (found) return found - 1;
  Arena *arena = suite->module->arena;
  vec_push(arena, &suite->kernels, text);
  vec_push(arena, &suite->nests, nest);
  map_put(suite->by_name, text.name, (void *)(intptr_t)suite->kernels.n);
  return suite->kernels.n - 1;
}

static int kernel_of(Suite *suite, const Graph *graph, int id) {
  KernelText text = {0};
  if (backend_cuda.emit_override(&backend_cuda, suite->module, graph, id,
                                 &text))
    return add_kernel(suite, text, NULL);
  const Nest *nest = nest_lower(suite->module, graph, id);
  cr_assert(nest, "%s has neither a nest nor a kernel",
            op_info(graph->nodes.data[id]->op)->name);
  cuda_emit_nest(&backend_cuda, suite->module, nest, &text);
  return add_kernel(suite, text, nest);
}

static void add_job(Suite *suite, const char *label, Graph *graph, int level) {
  Arena *arena = suite->module->arena;
  Job job = {.label = arena_printf(arena, "%s -O%d", label, level)};
  job.inputs = op_case_inputs(graph, hash_bytes(label, strlen(label), 0));
  job.wanted = run(graph, INTERP_f64, job.inputs);
  job.graph = run_passes(graph, level);
  job.kernel = ARENA_ARRAY(arena, int, job.graph->nodes.n);
  for (int id = 0; id < job.graph->nodes.n; id++)
    job.kernel[id] = job.graph->nodes.data[id]->op == OP_input
                         ? -1
                         : kernel_of(suite, job.graph, id);
  vec_push(arena, &suite->jobs, job);
}

static Suite *suite_create(void) {
  Module *module = module_create();
  Suite *suite = ARENA_NEW(module->arena, Suite);
  suite->module = module;
  suite->by_name = map_create(module->arena);
  suite->values = arena_create(module->memory);
  return suite;
}

static void add_pointwise(Suite *suite, const char *number, int n_shapes) {
  for (int op = 0; op < N_OPS; op++) {
    if (!op_info((Op)op)->is_pointwise) continue;
    for (int shape = 0; shape < n_shapes; shape++) {
      Graph *graph = pointwise_case_graph(suite->module, (Op)op, number, shape);
      if (!graph) continue;
      const char *label = arena_printf(suite->module->arena, "%s %s %d",
                                       op_info((Op)op)->name, number, shape);
      add_job(suite, label, graph, 0);
    }
  }
}

/* `only`: cases of operators that are called like this; NULL: all. */
static void add_cases(Suite *suite, const char *number, const char *only) {
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    const OpCase *item = &op_cases[i];
    if (only && strncmp(item->op, only, strlen(only)) != 0) continue;
    if (!op_case_takes(item, number)) continue;
    const char *label = arena_printf(
        suite->module->arena, "%s {%s} %s %s", item->op, item->attrs,
        item->inputs[0] ? item->inputs[0] : "", number);
    for (int level = 0; level <= 2; level += 2)
      add_job(suite, label, op_case_graph(suite->module, item, number), level);
  }
}

static void add_structured(Suite *suite, const char *number) {
  add_cases(suite, number, NULL);
}

static void add_experts(Suite *suite) {
  for (int level = 0; level <= 2; level += 2)
    add_job(suite, "experts",
            expert_graph(suite->module, ROLE_data, "f32 B:3 T:9 E:4",
                         "f32 B:3 T:9 C:40"),
            level);
}

/* Convolutions that are computed in tiles, several of them in each dim, with
 * odd sizes; `is_split`: blocks share sums. */
static const struct {
  const char *op, *attrs, *inputs[2];
  bool is_split;
} tiled[] = {
    /* Channels last, of which each step has some; window, stride, dilation. */
    {"conv",
     "dim=C space=Y,X stride=1,1 pad=1,1",
     {"TYPE N:2 Y:7 X:5 C:20", "TYPE O:68 C:20 Y:3 X:3"},
     false},
    {"conv",
     "dim=C space=Y,X stride=2,1 pad=2,1 dilate=1,2",
     {"TYPE N:1 Y:17 X:11 C:17", "TYPE O:67 C:17 Y:3 X:2"},
     false},
    {"conv",
     "dim=C space=Y,X", /* a matmul, whose places are one dim */
     {"TYPE N:2 Y:5 X:7 C:32", "TYPE O:72 C:32 Y:1 X:1"},
     false},
    {"conv",
     "dim=C space=Y,X stride=2,2 pad=3,3", /* few channels, first */
     {"TYPE N:2 C:3 Y:17 X:15", "TYPE O:40 C:3 Y:7 X:7"},
     false},
    {"conv",
     "dim=C space=Y,X pad=1,1", /* channels first */
     {"TYPE N:2 C:19 Y:6 X:9", "TYPE O:33 C:19 Y:3 X:3"},
     false},
    {"conv",
     "dim=C space=X stride=3 pad=2", /* groups, a long sum */
     {"TYPE N:3 X:70 G:2 C:40", "TYPE G:2 O:24 C:40 X:9"},
     true},
    {"conv_input_grad",
     "dim=C to=O space=Y,X stride=1,1 pad=1,1 sizes=7,5",
     {"TYPE N:2 Y:7 X:5 O:20", "TYPE O:20 C:68 Y:3 X:3"},
     false},
    {"conv_input_grad",
     "dim=C to=O space=Y,X stride=2,2 pad=3,1 sizes=15,13",
     {"TYPE N:2 Y:9 X:6 O:30", "TYPE O:30 C:40 Y:5 X:5"},
     true},
    {"conv_input_grad",
     "dim=C to=O space=Y,X stride=2,2 sizes=16,17",
     {"TYPE N:1 Y:8 X:9 O:260", "TYPE O:260 C:68 Y:1 X:1"},
     true},
    {"conv_input_grad",
     "dim=C to=O space=Y,X stride=3,2 pad=2,0 dilate=2,3 sizes=25,16",
     {"TYPE N:1 Y:9 X:7 O:40", "TYPE O:40 C:28 Y:3 X:2"},
     false},
    {"conv_input_grad",
     "dim=C to=O space=X stride=4 pad=1 sizes=50",
     {"TYPE N:6 X:13 G:2 O:40", "TYPE G:2 O:40 C:31 X:2"},
     false},
    {"conv_input_grad",
     "dim=C to=O space=Y,X pad=2,2 sizes=9,9",
     {"TYPE N:2 Y:9 X:9 O:12", "TYPE O:12 C:20 Y:5 X:5"},
     true},
    {"conv_weight_grad",
     "dim=C to=O space=Y,X pad=1,1 window=3,3",
     {"TYPE N:3 Y:9 X:11 C:12", "TYPE N:3 Y:9 X:11 O:68"},
     true},
    {"conv_weight_grad",
     "dim=C to=O space=Y,X stride=2,3 pad=2,1 window=5,4",
     {"TYPE N:2 C:5 Y:13 X:19", "TYPE N:2 Y:7 X:6 O:33"},
     false},
    {"conv_weight_grad",
     "dim=C to=O space=Y,X window=1,1",
     {"TYPE N:7 Y:8 X:12 C:36", "TYPE N:7 Y:8 X:12 O:72"},
     true},
    {"conv_weight_grad",
     "dim=C to=O space=X stride=2 pad=1 dilate=2 window=3 over=N",
     {"TYPE N:13 X:41 G:2 C:23", "TYPE N:13 X:20 G:2 O:31"},
     true},
};

static int find_kernel(const Job *job, const char *op) {
  for (int id = 0; id < job->graph->nodes.n; id++)
    if (strcmp(op_info(job->graph->nodes.data[id]->op)->name, op) == 0)
      return job->kernel[id];
  cr_assert_fail("%s has no %s", job->label, op);
  return -1;
}

/* Adds each `step`-th of them.  The nest would give the same results, so this
 * looks at the kernels too. */
static void add_tiled(Suite *suite, const char *number, int step) {
  for (int i = 0; i < ARRAY_LENGTH(tiled); i += step) {
    OpCase item = {
        tiled[i].op, tiled[i].attrs, {tiled[i].inputs[0], tiled[i].inputs[1]}};
    const char *label = arena_printf(suite->module->arena, "%s {%s} %s",
                                     item.op, item.attrs, number);
    add_job(suite, label, op_case_graph(suite->module, &item, number), 0);
    int kernel = find_kernel(&suite->jobs.data[suite->jobs.n - 1], item.op);
    cr_expect(!suite->nests.data[kernel], "%s is a nest", label);
    const char *text = suite->kernels.data[kernel].text;
    cr_expect_eq(strstr(text, "_arrived") != NULL, tiled[i].is_split, "%s: %s",
                 label, tiled[i].is_split ? "not split" : "split");
  }
}

static const char *suite_text(Suite *suite) {
  Text text = text_create(suite->module->arena);
  text_add(&text, cuda_prelude);
  for (int i = 0; i < suite->kernels.n; i++)
    text_add(&text, suite->kernels.data[i].text);
  return text_string(&text);
}

/* ---- running on the CPU ---- */

/* The path of a library, which the caller removes. */
static const char *compile_shim_library(Suite *suite) {
  char folder[] = "/tmp/dnn-cuda-XXXXXX";
  cr_assert(mkdtemp(folder));
  Arena *arena = suite->module->arena;
  const char *source = arena_printf(arena, "%s/kernels.c", folder);
  const char *library = arena_printf(arena, "%s/kernels.so", folder);
  const char *text = suite_text(suite);
  cr_assert_eq(file_replace(source, text, strlen(text)).code, STATUS_ok);
  const char *command =
      arena_printf(arena,
                   "cc -std=gnu11 " EMITTED_LEVEL
                   " -Wall -Wno-unused -ffp-contract=off -shared -fPIC "
                   "-I %s/tests/shim -o %s %s -lm",
                   TEST_ROOT, library, source);
  cr_assert_eq(system(command), 0, "%s", command);
  unlink(source);
  return library;
}

static void remove_library(const char *library) {
  char folder[64];
  snprintf(folder, sizeof folder, "%.*s",
           (int)(strrchr(library, '/') - library), library);
  unlink(library);
  rmdir(folder);
}

#ifdef DNNC_ON_GPU
#include "tests/device/gpu_suite.h"
#else
static void compile_suite(Suite *suite) {
  const char *library = compile_shim_library(suite);
  suite->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  cr_assert(suite->library, "%s", dlerror());
  remove_library(library);
}

static void *allocate(Suite *suite, size_t bytes) {
  char *at = arena_alloc(suite->values, bytes + 512);
  return at + 256 - (uintptr_t)at % 256;
}

static void free_all(Suite *suite) {
  arena_destroy(suite->values);
  suite->values = arena_create(suite->module->memory);
}

static void call_kernel(Suite *suite, const KernelText *kernel, int64_t *words,
                        int n, unsigned seed) {
  (void)n;
  ShimKernel *function;
  void *symbol = dlsym(suite->library, kernel->name);
  cr_assert(symbol, "%s", kernel->name);
  memcpy(&function, &symbol, sizeof symbol);
  cr_assert(function(words, kernel->grid, kernel->block, seed));
}

static void close_suite(Suite *suite) {
  dlclose(suite->library);
}
#endif

/* Aligned as in an arena, and poisoned. */
static void *buffer(Suite *suite, const Type *type) {
  size_t n = (size_t)(type_elements(type) * dtype_size_bytes(type->dtype));
  return memset(allocate(suite, n), 0xff, n);
}

static void run_node(Suite *suite, const Job *job, int id, void ***values,
                     unsigned seed) {
  const Node *node = job->graph->nodes.data[id];
  const KernelText *kernel = &suite->kernels.data[job->kernel[id]];
  int64_t words[128] = {0};
  int n = 0;
  for (int i = 0; i < node->n_inputs; i++)
    words[n++] =
        (int64_t)(intptr_t)values[node->inputs[i].node][node->inputs[i].result];
  for (int r = 0; r < node->n_results; r++)
    words[n++] = (int64_t)(intptr_t)values[id][r];
  int64_t scratch = cuda_conv_scratch_bytes(job->graph, id);
  if (scratch > 0)
    words[n++] = (int64_t)(intptr_t)allocate(suite, (size_t)scratch);
  call_kernel(suite, kernel, words, n, seed);
}

static void check_output(const Job *job, int output, const void *bytes) {
  const Tensor *wanted = &job->wanted[output];
  Value value = job->graph->outputs.data[output].value;
  const Type *type = graph_type(job->graph, value);
  double tolerance = op_case_tolerance(job->graph, type->dtype);
  for (int i = 0; i < job->graph->inputs.n; i++)
    tolerance =
        fmax(tolerance, tolerance_decomposed(job->inputs[i].type->dtype));
  for (int64_t i = 0; i < type_elements(type); i++) {
    double got = element_from_bytes(type->dtype, bytes, i),
           want = wanted->data[i];
    want = dtype_round(type->dtype, want);
    if (got == want || (isnan(got) && isnan(want))) continue;
    double allowed = tolerance * fmax(1, fabs(want));
    cr_expect(fabs(got - want) <= allowed,
              "%s: result %d, element %d is %.9g, not %.9g", job->label, output,
              (int)i, got, want);
    if (!(fabs(got - want) <= allowed)) return;
  }
}

static void run_job(Suite *suite, const Job *job, unsigned seed) {
  Arena *arena = arena_create(suite->module->memory);
  const Graph *graph = job->graph;
  void ***values = ARENA_ARRAY(arena, void **, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    values[id] = ARENA_ARRAY(arena, void *, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      values[id][r] = buffer(suite, node->types[r]);
    if (node->op == OP_input) {
      tensor_to_bytes(&job->inputs[node_int(node, ATTR_index, 0)],
                      values[id][0]);
    } else {
      if (node->n_inputs > 0) {
        Value first = node->inputs[0];
        op_case_prefill(node, values[first.node][first.result], values[id][0]);
      }
      run_node(suite, job, id, values, seed);
    }
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    check_output(job, i, values[value.node][value.result]);
  }
  free_all(suite);
  arena_destroy(arena);
}

static void run_suite(Suite *suite) {
  compile_suite(suite);
  for (unsigned seed = 0; seed < 2; seed++)
    for (int i = 0; i < suite->jobs.n; i++)
      run_job(suite, &suite->jobs.data[i], seed * 12345);
  close_suite(suite);
}

Test(cuda, pointwise) {
  Suite *suite = suite_create();
  add_pointwise(suite, "f32", POINTWISE_SHAPES);
  add_pointwise(suite, "f64", POINTWISE_SHAPES);
  add_pointwise(suite, "i32", POINTWISE_SHAPES);
  add_pointwise(suite, "i64", POINTWISE_SHAPES);
  add_pointwise(suite, "bool", POINTWISE_SHAPES);
  run_suite(suite);
}

Test(cuda, structured_f32) {
  Suite *suite = suite_create();
  add_structured(suite, "f32");
  add_experts(suite);
  run_suite(suite);
}

Test(cuda, tiled_convolutions) {
  Suite *suite = suite_create();
  add_tiled(suite, "f32", 1);
  add_tiled(suite, "bf16", 3);
  run_suite(suite);
}

Test(cuda, structured_f64) {
  Suite *suite = suite_create();
  add_structured(suite, "f64");
  run_suite(suite);
}

Test(cuda, structured_integers) {
  Suite *suite = suite_create();
  add_structured(suite, "i32");
  add_structured(suite, "i64");
  add_structured(suite, "bool");
  run_suite(suite);
}

Test(cuda, structured_bf16) {
  Suite *suite = suite_create();
  add_pointwise(suite, "bf16", POINTWISE_SHAPES);
  add_structured(suite, "bf16");
  run_suite(suite);
}

Test(cuda, structured_f16) {
  Suite *suite = suite_create();
  add_pointwise(suite, "f16", POINTWISE_SHAPES);
  add_structured(suite, "f16");
  run_suite(suite);
}

#ifndef DNNC_ON_GPU
/* 2^30 elements need indices of 64 bits, half as many do not. */
Test(cuda, tiled_convolutions_count_wide) {
  static const char *const sizes[] = {"f32 N:2048 Y:64 X:64 C:64",
                                      "f32 N:4096 Y:64 X:64 C:64"};
  Module *module = module_create();
  for (int i = 0; i < 2; i++) {
    OpCase item = {"conv",
                   "dim=C space=Y,X stride=4,4",
                   {sizes[i], "f32 O:32 C:64 Y:4 X:4"}};
    Graph *graph = op_case_graph(module, &item, "f32");
    KernelText text;
    cr_assert(
        backend_cuda.emit_override(&backend_cuda, module, graph, 2, &text));
    cr_expect_eq(strstr(text.text, "typedef long long Index") != NULL, i == 1,
                 "%s", sizes[i]);
  }
}

static int count_op(const Graph *graph, Op op) {
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += graph->nodes.data[id]->op == op;
  return n;
}

/* Attention has its kernel in 16 bits wherever it has it in f32. */
Test(cuda, attention_in_16_bits_is_one_kernel) {
  static const char *const numbers[] = {"f32", "bf16", "f16"};
  int kept[ARRAY_LENGTH(numbers)] = {0};
  for (int n = 0; n < ARRAY_LENGTH(numbers); n++) {
    Suite *suite = suite_create();
    add_cases(suite, numbers[n], "attention");
    for (int i = 0; i < suite->jobs.n; i++) {
      const Graph *graph = suite->jobs.data[i].graph;
      kept[n] +=
          count_op(graph, OP_attention) + count_op(graph, OP_attention_grad);
    }
    cr_expect_eq(kept[n], kept[0], "%s: %d kernels, not %d", numbers[n],
                 kept[n], kept[0]);
  }
  cr_expect_geq(kept[0], 10);
}

/* The element to which a statement adds in an iteration of outer point 0; -1:
 * to none. */
static int64_t added_place(const Nest *nest, const NestStage *stage,
                           const NestStmt *stmt, int64_t iteration) {
  const NestIndex *at = stmt->at;
  int64_t place = at->base, guard[3];
  for (int g = 0; g < at->n_guards; g++) guard[g] = at->guards[g].base;
  for (int i = stage->n_inner - 1; i >= 0; i--) {
    int64_t x = iteration % stage->inner[i].extent;
    iteration /= stage->inner[i].extent;
    place += x * at->stride[nest->n_outer + i];
    for (int g = 0; g < at->n_guards; g++)
      guard[g] += x * at->guards[g].stride[nest->n_outer + i];
  }
  for (int g = 0; g < at->n_guards; g++)
    if (guard[g] < 0 || guard[g] >= at->guards[g].limit) return -1;
  return place;
}

/* True if two iterations add to one element in statements that run in parallel;
 * sets `same` if one statement does. */
static bool iterations_meet(Arena *arena, const Nest *nest,
                            const NestStage *stage, bool *same) {
  int64_t n = stage_points(stage);
  bool meet = false;
  *same = false;
  for (int b = 0; b < nest->buffers.n; b++) {
    int64_t elements = nest->buffers.data[b].elements;
    int64_t *iteration = ARENA_ARRAY(arena, int64_t, elements);
    int *writer = ARENA_ARRAY(arena, int, elements);
    for (int64_t e = 0; e < elements; e++) writer[e] = -1;
    for (int s = 0; s < stage->stmts.n; s++) {
      const NestStmt *stmt = &stage->stmts.data[s];
      if (stmt->kind != NEST_accumulate || stmt->target != b ||
          accumulates_in_order(nest, stage, stmt))
        continue;
      for (int64_t i = 0; i < n; i++) {
        int64_t place = added_place(nest, stage, stmt, i);
        if (place < 0) continue;
        cr_assert_lt(place, elements);
        bool is_met = writer[place] >= 0 && iteration[place] != i;
        meet |= is_met;
        *same |= is_met && writer[place] == s;
        writer[place] = s;
        iteration[place] = i;
      }
    }
  }
  return meet;
}

/* Threads run different iterations at once, so two of them may not add to one
 * element unless a barrier lies between.  The shim runs a thread from barrier
 * to barrier and so computes what is right by chance alone. */
Test(cuda, sums_of_different_threads_wait_for_each_other) {
  Suite *suite = suite_create();
  add_structured(suite, "f32");
  int n_turns = 0, n_free = 0;
  for (int k = 0; k < suite->nests.n; k++) {
    const Nest *nest = suite->nests.data[k];
    for (int s = 0; nest && s < nest->stages.n; s++) {
      const NestStage *stage = &nest->stages.data[s];
      bool same, turns = stage_takes_turns(nest, stage);
      bool meet = iterations_meet(suite->values, nest, stage, &same);
      cr_expect(!same, "%s, stage %d: one statement", nest->name, s);
      cr_expect(!meet || turns, "%s, stage %d", nest->name, s);
      cr_expect(!turns || !cuda_map(nest).is_flat, "%s is flat", nest->name);
      n_turns += turns;
      n_free += !turns && stage->stmts.n > 1 &&
                stage->stmts.data[0].kind == NEST_accumulate;
    }
  }
  cr_expect_geq(n_turns, 2);
  cr_expect_geq(n_free, 2);
}

Test(cuda, every_operator_has_a_case) {
  for (int op = 0; op < N_OPS; op++) {
    if (op_info((Op)op)->is_pointwise || op_case_exempt((Op)op)) continue;
    bool found = false;
    for (int i = 0; i < ARRAY_LENGTH(op_cases); i++)
      found |= strcmp(op_cases[i].op, op_info((Op)op)->name) == 0;
    cr_expect(found, "no case for %s", op_info((Op)op)->name);
  }
}

/* ---- NVRTC ---- */

static void compile_for(const Nvrtc *nvrtc, Suite *suite, const char *text,
                        const char *arch) {
  Arena *arena = suite->module->arena;
  NvrtcProgram *program = nvrtc_run(nvrtc, text, arch, false);
  NvrtcResult result = nvrtc_finish(nvrtc, arena, program, arch);
  cr_assert(result.is_compiled, "%s: %.3000s", arch, result.log);
  cr_assert_gt(result.bytes, 1000);
  cr_assert_gt(result.ptx_bytes, 1000);
  for (int i = 0; arch[0] == 's' && i < suite->kernels.n; i++) {
    KernelFacts facts;
    const char *name = suite->kernels.data[i].name;
    cr_assert(cuda_kernel_facts(result.log, name, &facts), "%s", name);
    cr_expect_leq(facts.spill_bytes, 64, "%s spills %d bytes on %s", name,
                  facts.spill_bytes, arch);
  }
}

/* NVRTC takes most of the time of this file and is not sanitized, so a
 * sanitized build leaves it to the others. */
#ifdef __SANITIZE_ADDRESS__
#define WHERE_NVRTC_RUNS .disabled = true
#else
#define WHERE_NVRTC_RUNS .disabled = false
#endif

static void compile_for_archs(Suite *suite, const char *const *archs, int n) {
  Nvrtc *nvrtc;
  Status status = nvrtc_open(suite->module->arena, &nvrtc);
  if (status.code != STATUS_ok) {
    fprintf(stderr, "skipped: no NVRTC (%s)\n", status.message);
    return;
  }
  const char *text = suite_text(suite);
  for (int i = 0; i < n; i++) compile_for(nvrtc, suite, text, archs[i]);
  nvrtc_close(nvrtc);
}

Test(cuda, compiles_for_all_targets, WHERE_NVRTC_RUNS) {
  static const char *const archs[] = {"sm_80", "sm_90", "sm_90a", "sm_100"};
  Suite *suite = suite_create();
  add_pointwise(suite, "f32", 1);
  add_structured(suite, "f32");
  compile_for_archs(suite, archs, ARRAY_LENGTH(archs));
}

/* For sm_90 it is compiled in f16, which differs by a word. */
Test(cuda, attention_on_tensor_cores_compiles, WHERE_NVRTC_RUNS) {
  static const char *const archs[] = {"sm_80", "sm_90a", "sm_100"};
  Suite *suite = suite_create();
  add_cases(suite, "bf16", "attention");
  compile_for_archs(suite, archs, ARRAY_LENGTH(archs));
}

/* Long loops, which take NVRTC longer: for one target. */
Test(cuda, tiles_compile, WHERE_NVRTC_RUNS) {
  static const char *const arch = "sm_90";
  Suite *suite = suite_create();
  add_tiled(suite, "f32", 2);
  add_cases(suite, "f16", "attention");
  compile_for_archs(suite, &arch, 1);
}
#endif
