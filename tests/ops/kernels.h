/*
 * kernels.h -- graphs as emitted kernels, run on this CPU: what the suites
 * share that look at the bits of results.
 *
 *     Kernels *kernels = kernels_create(module, backend_find("cpu"));
 *     int job = kernels_add(kernels, graph, 2);     at -O2
 *     kernels_compile(kernels);                     all in one shared object
 *     Tensor *y = kernels_run(kernels, job, inputs);
 *
 * Kernels of the C back end are compiled with the flags of a build.  Those of
 * CUDA go through tests/shim, without contraction of products and sums: a GPU
 * compiler contracts, so results of more than one operation differ by rounding.
 */
#ifndef TESTS_OPS_KERNELS_H
#define TESTS_OPS_KERNELS_H

#include <dlfcn.h>
#include <unistd.h>

#include "codegen/c/emit.h"
#include "codegen/host/toolchain.h"
#include "codegen/codegen.h"
#include "codegen/cuda/cuda.h"
#include "passes/rewrite.h"
#include "tests/ops/cases.h"
#include "tests/ops/emitted.h"

typedef struct KernelJob {
  Graph *graph; /* after the passes */
  int *kernel;  /* by node; -1: an input or a view */
} KernelJob;

typedef struct Kernels {
  Module *module;
  const Backend *backend;
  VEC(KernelJob) jobs;
  VEC(KernelText) texts;
  Map *by_name;
  void *library;
} Kernels;

static inline Kernels *kernels_create(Module *module, const Backend *backend) {
  Kernels *kernels = ARENA_NEW(module->arena, Kernels);
  kernels->module = module;
  kernels->backend = backend;
  kernels->by_name = map_create(module->arena);
  return kernels;
}

static inline int kernels_text(Kernels *kernels, const Graph *graph, int id) {
  const Backend *backend = kernels->backend;
  Module *module = kernels->module;
  KernelText text = {0};
  if (!backend->emit_override(backend, module, graph, id, &text)) {
    const Nest *nest = nest_lower(module, graph, id);
    cr_assert(nest, "no nest for %s", op_info(graph->nodes.data[id]->op)->name);
    backend->emit_nest(backend, module, nest, &text);
  }
  int found = (int)(intptr_t)map_get(kernels->by_name, text.name);
  if (found) return found - 1;
  vec_push(module->arena, &kernels->texts, text);
  map_put(kernels->by_name, text.name, (void *)(intptr_t)kernels->texts.n);
  return kernels->texts.n - 1;
}

static inline int kernels_add(Kernels *kernels, Graph *graph, int level) {
  Module *module = kernels->module;
  PassContext ctx = {.module = module,
                     .scratch = arena_create(module->memory),
                     .target = &kernels->backend->target};
  PassOptions options = {.level = level, .verify = true};
  KernelJob job = {.graph = passes_run(&ctx, &options, graph).graph};
  job.kernel = ARENA_ARRAY(module->arena, int, job.graph->nodes.n);
  for (int id = 0; id < job.graph->nodes.n; id++)
    job.kernel[id] =
        job.graph->nodes.data[id]->op == OP_input || node_is_view(job.graph, id)
            ? -1
            : kernels_text(kernels, job.graph, id);
  vec_push(module->arena, &kernels->jobs, job);
  return kernels->jobs.n - 1;
}

/* ---- compiling ---- */

static inline const char *kernels_flags(const Kernels *kernels) {
  return kernels->backend == &backend_cuda ? "-std=gnu11 " EMITTED_LEVEL
                                             " -ffp-contract=off -I " TEST_ROOT
                                             "/tests/shim"
                                           : C_KERNEL_FLAGS;
}

static inline void kernels_compile(Kernels *kernels) {
  Arena *arena = kernels->module->arena;
  Text text = text_create(arena);
  text_add(&text, kernels->backend->prelude);
  for (int i = 0; i < kernels->texts.n; i++)
    text_add(&text, kernels->texts.data[i].text);
  char folder[] = "/tmp/dnn-kernels-XXXXXX";
  cr_assert(mkdtemp(folder));
  const char *source = arena_printf(arena, "%s/kernels.c", folder);
  const char *library = arena_printf(arena, "%s/kernels.so", folder);
  cr_assert_eq(file_replace(source, text_string(&text), text.n).code,
               STATUS_ok);
  const char *command =
      arena_printf(arena, "cc %s -w -shared -fPIC -o %s %s -lm",
                   kernels_flags(kernels), library, source);
  cr_assert_eq(system(command), 0, "%s", command);
  kernels->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  cr_assert(kernels->library, "%s", dlerror());
  if (getenv("DNN_KEEP")) return;
  unlink(library);
  unlink(source);
  rmdir(folder);
}

/* ---- running ---- */

typedef int KernelsShimFn(const void *arguments, const unsigned *grid,
                          const unsigned *block, unsigned seed);

static inline void kernels_launch(Kernels *kernels, int kernel,
                                  void **buffers) {
  const KernelText *text = &kernels->texts.data[kernel];
  void *symbol = dlsym(kernels->library, text->name);
  cr_assert(symbol, "%s", text->name);
  if (kernels->backend == &backend_cuda) {
    KernelsShimFn *function;
    memcpy(&function, &symbol, sizeof symbol);
    cr_assert(function(buffers, text->grid, text->block, 0));
  } else {
    DnnKernelFn *function;
    memcpy(&function, &symbol, sizeof symbol);
    function(buffers, NULL);
  }
}

/* Aligned as in an arena, and poisoned. */
static inline void *kernels_buffer(Arena *arena, const Type *type) {
  size_t n = (size_t)(type_elements(type) * dtype_size_bytes(type->dtype));
  char *bytes = arena_alloc(arena, n + 512);
  bytes += 256 - (uintptr_t)bytes % 256;
  memset(bytes, 0x7e, n);
  return bytes;
}

static inline void kernels_node(Kernels *kernels, const KernelJob *job, int id,
                                void ***values) {
  const Node *node = job->graph->nodes.data[id];
  void *buffers[128] = {0};
  int n = 0;
  for (int i = 0; i < node->n_inputs; i++)
    buffers[n++] = values[node->inputs[i].node][node->inputs[i].result];
  if (job->kernel[id] < 0) {
    values[id][0] = buffers[0];
    return;
  }
  for (int r = 0; r < node->n_results; r++) buffers[n++] = values[id][r];
  int64_t scratch = kernels->backend == &backend_cuda
                        ? cuda_conv_scratch_bytes(job->graph, id)
                        : 0;
  if (scratch > 0)
    buffers[n++] = arena_alloc(kernels->module->arena, (size_t)scratch);
  if (node->n_inputs > 0)
    op_case_prefill(node, buffers[0], buffers[node->n_inputs]);
  kernels_launch(kernels, job->kernel[id], buffers);
}

/* The outputs of the job's graph, in the arena. */
static inline Tensor *kernels_run(Kernels *kernels, int number,
                                  const Tensor *inputs, Arena *arena) {
  const KernelJob *job = &kernels->jobs.data[number];
  const Graph *graph = job->graph;
  void ***values = ARENA_ARRAY(arena, void **, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    values[id] = ARENA_ARRAY(arena, void *, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      values[id][r] = kernels_buffer(arena, node->types[r]);
    if (node->op == OP_input)
      tensor_to_bytes(&inputs[node_int(node, ATTR_index, 0)], values[id][0]);
    else
      kernels_node(kernels, job, id, values);
  }
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    outputs[i] = tensor_create(arena, graph_type(graph, value));
    for (int64_t k = 0; k < type_elements(outputs[i].type); k++)
      outputs[i].data[k] = element_from_bytes(
          outputs[i].type->dtype, values[value.node][value.result], k);
  }
  return outputs;
}

#endif
