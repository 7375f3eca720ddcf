/*
 * backend.c -- the CPU back end as the rest of codegen sees it.
 */
#include "codegen/c/emit.h"
#include "codegen/host/toolchain.h"
#include "codegen/select.h"

static bool keeps(const Target *target, const Graph *graph, int id) {
  (void)target;
  Op op = graph->nodes.data[id]->op;
  if (op == OP_attention || op == OP_attention_grad)
    return c_attention_keeps(graph, id);
  return false;
}

const Backend backend_cpu = {
    .name = "cpu",
    .device = "cpu",
    .uses_host_libraries = true,
    .target = {.name = "cpu",
               .alignment_bytes = 64,
               .has_kernel = keeps,
               .workspace_bytes = select_workspace_bytes,
               .max_fused_nodes = 256,
               .max_fused_inputs = 64,
               .has_free_f64 = true},
    .has_host_kernels = true,
    .prelude = c_prelude,
    .emit_nest = c_emit_nest,
    .emit_override = c_emit_attention,
    .compile = toolchain_compile_kernels,
};
