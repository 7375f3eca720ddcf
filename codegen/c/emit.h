/*
 * emit.h -- what the files of the CPU back end share; private to it.
 */
#ifndef CODEGEN_C_EMIT_H
#define CODEGEN_C_EMIT_H

#include "codegen/codegen.h"

/* Flags of the compiler for kernels.  No -ffast-math: sums are reordered only
 * where `omp simd` says so, and NaN and infinity are numbers like any other. */
#define C_KERNEL_FLAGS                                                         \
  "-std=gnu11 -O3 -march=native -fopenmp -fno-math-errno -fno-trapping-math "  \
  "-ffp-contract=fast -fno-semantic-interposition -fno-plt "                   \
  "-fno-asynchronous-unwind-tables"

/* prelude.c: text before the kernels of every file. */
extern const char c_prelude[];

void c_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                 KernelText *out);
/* attention.c */
bool c_attention_keeps(const Graph *graph, int id);
bool c_emit_attention(const Backend *backend, Module *module,
                      const Graph *graph, int id, KernelText *out);
Status c_compile(const Backend *backend, Module *module,
                 const BuildOptions *options, const char *work,
                 const char *source, const KernelText *kernels, int n,
                 DeviceCode *out);

#endif
