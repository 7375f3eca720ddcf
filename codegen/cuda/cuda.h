/*
 * cuda.h -- declares the CUDA back end: its emitters turn loop nests into CUDA
 * C, toolchain.c compiles CUDA C to modules of cubins.  Neither needs a CUDA
 * header or a GPU.
 *
 * Emitted text is C with a few qualifiers, without templates or headers, so
 * that NVRTC compiles it for a GPU and a C compiler for the tests
 * (tests/shim).  The prelude holds all differences between the two, but for
 * launch bounds of conv.c.
 */
#ifndef CODEGEN_CUDA_CUDA_H
#define CODEGEN_CUDA_CUDA_H

#include "codegen/codegen.h"

/* ---- backend.c ---- */

extern const Backend backend_cuda;
/* The widest attention head that fits into shared memory (attention.c); wider
 * ones are decomposed. */
#define CUDA_MAX_HEAD 160

/* ---- prelude.c ---- */

/* Types, pointwise operators of ops.def for every number type, reductions over
 * a warp or block, random numbers (Philox). */
extern const char cuda_prelude[];

/* ---- types.c ---- */

/* Returns the CUDA type in which a dtype is stored, such as "unsigned char". */
const char *cuda_storage(DType dtype);
/* Returns the CUDA type of its values, such as "int". */
const char *cuda_number(DType dtype);
/* Returns the suffix of the prelude's functions for it, such as "i32". */
const char *cuda_suffix(DType dtype);
bool cuda_has_dtype(DType dtype);
/* Appends a constant of this dtype as C text. */
void cuda_constant(Text *out, DType dtype, double value);
/* Appends the value with which a reduction begins. */
void cuda_add_identity(Text *out, NestReduce reduce, DType dtype);

/* ---- emit.c, attention.c, scatter.c, conv.c ---- */

void cuda_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                    KernelText *out);
bool cuda_emit_attention(const Backend *backend, Module *module,
                         const Graph *graph, int id, KernelText *out);
bool cuda_has_attention_kernel(const Graph *graph, int id);
/* Emits the gradient of a look-up in a long table.  Returns false where the
 * nest stays. */
bool cuda_emit_scatter(Module *module, const Graph *graph, int id,
                       KernelText *out);
/* Emits a convolution or its gradient in tiles.  Returns false where the nest
 * stays. */
bool cuda_emit_conv(const Backend *backend, Module *module, const Graph *graph,
                    int id, KernelText *out);
/* Returns the bytes of the fourth buffer of that kernel.  Returns 0 if it has
 * three buffers. */
int64_t cuda_conv_scratch_bytes(const Graph *graph, int id);

/* ---- toolchain.c ---- */

/* Groups kernels into modules and compiles each for every target of
 * `options->archs` (all four if there are none), and to PTX for the oldest of
 * them.  Unavailable if NVRTC is missing, and the message says what to install;
 * invalid if a text does not compile.
 */
Status cuda_compile(const Backend *backend, Module *module,
                    const BuildOptions *options, const char *work,
                    const char *source, const KernelText *kernels, int n,
                    DeviceCode *out);

/* ---- nvrtc.c ---- */

/* NVIDIA's compiler as a library.  Start and run are thread-safe and allocate
 * nothing from arenas; finish copies out and frees. */
typedef struct Nvrtc Nvrtc;
typedef struct NvrtcProgram NvrtcProgram;
typedef struct NvrtcResult {
  bool is_compiled;
  const void *image; /* a cubin; the PTX where that is all that was wanted */
  size_t bytes;
  const void *ptx; /* text with its NUL */
  size_t ptx_bytes;
  const char *log; /* output of compiler and assembler */
} NvrtcResult;

Status nvrtc_open(Arena *arena, Nvrtc **out);
void nvrtc_close(Nvrtc *nvrtc);
/* Returns the version of NVRTC, such as 13000. */
int nvrtc_version(const Nvrtc *nvrtc);
/* Compiles a text.  `arch` is "sm_90a" for a cubin and its PTX, or "compute_80"
 * for PTX alone; `is_quick` gives slower kernels in a quarter of the time. */
NvrtcProgram *nvrtc_run(const Nvrtc *nvrtc, const char *text, const char *arch,
                        bool is_quick);
NvrtcResult nvrtc_finish(const Nvrtc *nvrtc, Arena *arena,
                         NvrtcProgram *program, const char *arch);

/* Registers, spills and shared bytes of a kernel, out of the assembler's log;
 * false if it is not in there. */
typedef struct KernelFacts {
  int registers, stack_bytes, spill_bytes, shared_bytes;
} KernelFacts;
bool cuda_kernel_facts(const char *log, const char *kernel, KernelFacts *out);

#endif
