/*
 * backend.c -- describes the CPU back end to the rest of codegen: C with
 * OpenMP, compiled by the system's compiler.
 */
#include "codegen/c/emit.h"
#include "codegen/host/toolchain.h"
#include "codegen/select.h"

static bool c_has_kernel(const Target *target, const Graph *graph, int id) {
  (void)target;
  return op_has(graph->nodes.data[id]->op, OP_FLAG_attends) &&
         c_has_attention_kernel(graph, id);
}

const Backend backend_cpu = {
    .name = "cpu",
    .device = "cpu",
    .uses_host_libraries = true,
    .target = {.name = "cpu",
               .alignment_bytes = 64,
               .has_kernel = c_has_kernel,
               .workspace_bytes = select_workspace_bytes,
               .max_fused_nodes = 256,
               .max_fused_inputs = 64,
               .has_free_f64 = true},
    .has_host_kernels = true,
    .prelude = c_prelude,
    .emit_nest = c_emit_nest,
    .emit_sized_nest = c_emit_sized_nest,
    .emit_override = c_emit_attention,
    .compile = toolchain_compile_kernels,
};
