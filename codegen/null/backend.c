/*
 * backend.c -- a back end that does nothing, as a skeleton to copy.
 *
 * It shows what a back end has to fill in: the Target that passes see, the
 * text of a loop nest, and a compiler that turns texts into something the
 * runtime's device of the same name can start.  Its kernels are empty C
 * functions, so a program for it builds, links and runs, and computes nothing.
 */
#include "codegen/host/toolchain.h"

/* Operators that this back end does itself; the others are decomposed. */
static bool keeps(const Target *target, const Graph *graph, int id) {
  (void)target, (void)graph, (void)id;
  return false;
}

static int64_t workspace_bytes(const Target *target, const Graph *graph,
                               int id) {
  (void)target, (void)graph, (void)id;
  return 0;
}

static void emit_nest(const Backend *backend, Module *module, const Nest *nest,
                      KernelText *out) {
  (void)backend;
  *out = (KernelText){
      .name = nest->name,
      .text = arena_printf(
          module->arena,
          "void %s(void *const *buffers, const int64_t *numbers) {\n"
          "  (void)buffers, (void)numbers;\n}\n",
          nest->name)};
}

static bool emit_override(const Backend *backend, Module *module,
                          const Graph *graph, int id, KernelText *out) {
  (void)backend, (void)module, (void)graph, (void)id, (void)out;
  return false;
}

const Backend backend_null = {
    .name = "null",
    .device = "null",
    .is_skeleton = true,
    .prelude = "#include <stdint.h>\n",
    .target = {.name = "null",
               .alignment_bytes = 64,
               .has_kernel = keeps,
               .workspace_bytes = workspace_bytes,
               .max_fused_nodes = 64,
               .max_fused_inputs = 16},
    .emit_nest = emit_nest,
    .emit_override = emit_override,
    .compile = toolchain_compile_kernels,
};
