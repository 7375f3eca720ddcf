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

Test(cuda, compiles_for_all_targets, WHERE_NVRTC_RUNS) {
  static const char *const archs[] = {"sm_80", "sm_90", "sm_90a", "sm_100"};
  Suite *suite = suite_create();
  Nvrtc *nvrtc;
  Status status = nvrtc_open(suite->module->arena, &nvrtc);
  if (status.code != STATUS_ok) {
    fprintf(stderr, "skipped: no NVRTC (%s)\n", status.message);
    return;
  }
  add_pointwise(suite, "f32", 1);
  add_structured(suite, "f32");
  add_cases(suite, "bf16", "attention");
  add_cases(suite, "f16", "attention");
  const char *text = suite_text(suite);
  for (int i = 0; i < ARRAY_LENGTH(archs); i++)
    compile_for(nvrtc, suite, text, archs[i]);
  nvrtc_close(nvrtc);
}
#endif
