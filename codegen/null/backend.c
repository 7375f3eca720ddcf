/*
 * backend.c -- a back end whose kernels are empty C functions, to copy as the
 * skeleton of a new one.
 *
 * It fills in everything that a back end must have: the Target that passes see,
 * the text of a loop nest, and a compiler for that text.  A program for it
 * builds, links and runs on the runtime's device of the same name, and computes
 * nothing.  To begin a back end, copy the folder, change the name and add a row
 * to backends.def.
 */
#include "codegen/host/toolchain.h"

/* Says which operators have a kernel here; `decompose` rewrites the others. */
static bool null_has_kernel(const Target *target, const Graph *graph, int id) {
  (void)target, (void)graph, (void)id;
  return false;
}

static int64_t null_workspace_bytes(const Target *target, const Graph *graph,
                                    int id) {
  (void)target, (void)graph, (void)id;
  return 0;
}

static void null_emit_nest(const Backend *backend, Module *module,
                           const Nest *nest, KernelText *out) {
  (void)backend;
  *out = (KernelText){
      .name = nest->name,
      .text = arena_printf(
          module->arena,
          "void %s(void *const *buffers, const int64_t *numbers) {\n"
          "  (void)buffers, (void)numbers;\n}\n",
          nest->name)};
}

static bool null_emit_override(const Backend *backend, Module *module,
                               const Graph *graph, int id, KernelText *out) {
  (void)backend, (void)module, (void)graph, (void)id, (void)out;
  return false;
}

const Backend backend_null = {
    .name = "null",
    .device = "null",
    .is_skeleton = true,
    .has_host_kernels = true,
    .prelude = "#include <stdint.h>\n",
    .target = {.name = "null",
               .alignment_bytes = 64,
               .has_kernel = null_has_kernel,
               .workspace_bytes = null_workspace_bytes,
               .max_fused_nodes = 64,
               .max_fused_inputs = 16},
    .emit_nest = null_emit_nest,
    .emit_override = null_emit_override,
    .compile = toolchain_compile_kernels,
};
