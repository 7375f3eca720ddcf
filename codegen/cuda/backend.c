/*
 * backend.c -- describes the CUDA back end to the rest of codegen: CUDA C,
 * compiled by NVRTC.
 */
#include "codegen/cuda/cuda.h"

/* Scratch memory for cuBLASLt in matmuls that are worth splitting. */
#define GEMM_SCRATCH_BYTES (INT64_C(32) << 20)
#define GEMM_SCRATCH_FLOPS 1e8

static bool cuda_has_kernel(const Target *target, const Graph *graph, int id) {
  (void)target;
  return op_has(graph->nodes.data[id]->op, OP_FLAG_attends) &&
         cuda_has_attention_kernel(graph, id);
}

/* Scratch memory is a part of the arena, so that a step allocates nothing; the
 * call tells cuBLASLt how much there is.  Convolutions keep partial sums
 * there. */
static int64_t cuda_workspace_bytes(const Target *target, const Graph *graph,
                                    int id) {
  (void)target;
  bool is_dot = graph->nodes.data[id]->op == OP_dot;
  if (!is_dot) return cuda_conv_scratch_bytes(graph, id);
  return node_flops(graph, id) >= GEMM_SCRATCH_FLOPS ? GEMM_SCRATCH_BYTES : 0;
}

/* NCCL would round a sum of 16-bit floats at every rank, and has no integers
 * of 16 bits. */
static DType cuda_reduce_dtype(DType dtype, ReduceKind kind) {
  if (dtype_is_16bit(dtype) && kind == REDUCE_sum) return DT_f32;
  return dtype == DT_i16 ? DT_i32 : dtype;
}

static bool cuda_emit_override(const Backend *backend, Module *module,
                               const Graph *graph, int id, KernelText *out) {
  return cuda_emit_attention(backend, module, graph, id, out) ||
         cuda_emit_scatter(module, graph, id, out) ||
         cuda_emit_conv(backend, module, graph, id, out);
}

static const char *const cuda_archs[] = {"sm_80", "sm_90", "sm_90a", "sm_100",
                                         NULL};

const Backend backend_cuda = {
    .name = "cuda",
    .device = "cuda",
    .archs = cuda_archs,
    .prelude = cuda_prelude,
    .needs_unit_strides = true,
    .target = {.name = "cuda",
               .alignment_bytes = 256,
               .has_kernel = cuda_has_kernel,
               .workspace_bytes = cuda_workspace_bytes,
               .max_fused_nodes = 256,
               .max_fused_inputs = 64,
               .has_queues_per_group = true,
               .reduce_dtype = cuda_reduce_dtype},
    .emit_nest = cuda_emit_nest,
    .emit_override = cuda_emit_override,
    .compile = cuda_compile,
};
