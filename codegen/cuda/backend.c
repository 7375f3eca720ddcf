/*
 * backend.c -- the CUDA back end as the rest of codegen sees it.
 */
#include "codegen/cuda/cuda.h"

/* What cuBLASLt is given for products that are worth splitting. */
#define GEMM_SCRATCH_BYTES (INT64_C(32) << 20)
#define GEMM_SCRATCH_FLOPS 1e8

static bool keeps(const Target *target, const Graph *graph, int id) {
  (void)target;
  Op op = graph->nodes.data[id]->op;
  if (op == OP_attention || op == OP_attention_grad)
    return cuda_keeps_attention(graph, id);
  return false;
}

/* Asked for in the arena, so that a step allocates nothing; cuBLASLt is told
 * how much there is. */
static int64_t workspace_bytes(const Target *target, const Graph *graph,
                               int id) {
  (void)target;
  bool is_dot = graph->nodes.data[id]->op == OP_dot;
  return is_dot && node_flops(graph, id) >= GEMM_SCRATCH_FLOPS
             ? GEMM_SCRATCH_BYTES
             : 0;
}

static const char *const archs[] = {"sm_80", "sm_90", "sm_90a", "sm_100", NULL};

const Backend backend_cuda = {
    .name = "cuda",
    .device = "cuda",
    .archs = archs,
    .prelude = cuda_prelude,
    .needs_unit_strides = true,
    .target = {.name = "cuda",
               .alignment_bytes = 256,
               .has_kernel = keeps,
               .workspace_bytes = workspace_bytes,
               .max_fused_nodes = 256,
               .max_fused_inputs = 64},
    .emit_nest = cuda_emit_nest,
    .emit_override = cuda_emit_attention,
    .compile = cuda_compile,
};
