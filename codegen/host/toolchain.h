/*
 * toolchain.h -- declares how the system's C compiler is used.  Every back end
 * needs it, because the tables of a program are C for all of them.
 */
#ifndef CODEGEN_HOST_TOOLCHAIN_H
#define CODEGEN_HOST_TOOLCHAIN_H

#include "codegen/codegen.h"

/* One translation unit. */
typedef struct CompileJob {
  const char *stem; /* files WORK/STEM.c and WORK/STEM.o */
  const char *text;
  const char *flags;  /* separated by blanks */
  const char *key;    /* text of what else the object depends on; "" */
  const char *object; /* out: the path */
} CompileJob;

/* Finds the compiler's version and the processor, which are part of cache keys.
 */
Status toolchain_machine(Arena *arena, const BuildOptions *options,
                         const char *work, const char **out);

/* Compiles all jobs, options->jobs at a time, and keeps objects in the cache.
 * toolchain_start starts the first compilers and returns; toolchain_finish must
 * be called, waits for all of them and returns the first failure.  The caller
 * keeps the jobs (whose `object` is known after the start), the options and
 * `work` until then. */
typedef struct Compiling Compiling;
Compiling *toolchain_start(Module *module, const BuildOptions *options,
                           const char *work, CompileJob *jobs, int n,
                           int *out_cached);
Status toolchain_finish(Compiling *compiling);
/* Links objects with the runtime archive into `program`. */
Status toolchain_link(Module *module, const BuildOptions *options,
                      const char *work, const char *const *objects, int n,
                      const char *program);

/* ---- kernels.c ---- */

/* Flags of the compiler for kernels.  No -ffast-math: sums are reordered only
 * where `omp simd` says so, and NaN and infinity are numbers like any other. */
#define C_KERNEL_FLAGS_AT(level)                                               \
  "-std=gnu11 -O" level                                                        \
  " -march=native -fopenmp -fno-math-errno -fno-trapping-math "                \
  "-ffp-contract=fast -fno-semantic-interposition -fno-plt "                   \
  "-fno-asynchronous-unwind-tables"
#define C_KERNEL_FLAGS C_KERNEL_FLAGS_AT("3")

/* Compiles as Backend.compile where kernels are C functions.  Compilers may
 * still run when it returns: `out->compiling`.  Those of the plain program come
 * last. */
Status toolchain_compile_kernels(const Backend *backend, Module *module,
                                 const BuildOptions *options, const char *work,
                                 const char *source, const KernelText *kernels,
                                 int n, DeviceCode *out);

/* ---- files ---- */

/* Writes a file of the work folder, which needs no sync. */
Status toolchain_write(const char *path, const void *bytes, size_t n);
/* Removes a folder of the build with everything in it. */
void toolchain_remove(Arena *arena, const char *path);

#endif
