/*
 * cpu.h -- declares the parts of the CPU device: threads, matmuls and
 * convolutions of our own, and oneDNN, found at run time.
 */
#ifndef RUNTIME_CPU_CPU_H
#define RUNTIME_CPU_CPU_H

#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

/* ---- threads.c: the OpenMP that the emitted kernels use ---- */

/* A team of one thread where there is no OpenMP library. */
typedef struct Threads {
  void (*parallel)(void (*body)(void *), void *arg, unsigned n, unsigned flags);
  int (*number)(void);
  int (*count)(void);
  Dylib *library;
  int n; /* threads of a team */
} Threads;

typedef void ThreadBody(void *arg, int index, int n);

/* Sets a short spin, unless the environment says how to wait: threads that spin
 * at a barrier take the cores of other ranks and programs.  Returns true where
 * an OpenMP library is loaded already: it has read its settings, and this
 * program must be started anew to have them. */
bool threads_limit_spinning(void);
void threads_open(Threads *threads);
/* Runs body(arg, i, n) on every thread of the team, i = 0..n-1. */
void threads_run(const Threads *threads, ThreadBody *body, void *arg);
void threads_close(Threads *threads);
/* Makes subnormal results zero, in the calling thread. */
void denormals_flush(void);

/* ---- pages.c: memory in large pages, where the system has them ---- */

/* Maps full pages, zeroed by the system. */
Status pages_map(int64_t bytes, void **out);
/* Lets malloc give large pages from now on, for scratch that a library
 * allocates at each call: oneDNN multiplies 768 x 128 by 128 x 512 in 0.6 of
 * the time.  This is for the complete process. */
void pages_enlarge_heap(int n_threads);

/* Before a short loop of constant length. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* ---- gemm.c: blocked matmul of f32, bf16 or f16, summed in f32 ---- */

bool gemm_accepts(const DnnGemm *gemm);
/* Returns bytes of packing space that a team needs. */
int64_t gemm_pack_bytes(const Threads *threads);
void gemm_run(const Threads *threads, const DnnGemm *gemm, const void *a,
              const void *b, void *c, void *pack);

/* ---- conv.c: convolutions of f32, bf16 or f16 and their gradients ---- */

/* Runs a convolution; `pack` is as for gemm_run.  The operands are those of
 * DnnConvKind. */
void conv_run(const Threads *threads, const DnnConv *conv, const void *a,
              const void *b, void *c, void *pack);

/* ---- gemv.c: matmuls whose m or n is 1, of f32 or bf16 ---- */

enum { GEMV_MOST_K = 1 << 16 };
/* Returns whether the matrix can be read in its storage order. */
bool gemv_accepts(const DnnGemm *gemm);
/* Returns bytes of `work` that a team needs. */
int64_t gemv_work_bytes(const Threads *threads);
void gemv_run(const Threads *threads, const DnnGemm *gemm, const void *a,
              const void *b, void *c, void *work);

/* ---- onednn.c ---- */

/* Returns the scratch memory that the library asks for, 0 without one. */
int64_t cpu_gemm_scratch(const DnnGemm *gemm);
int64_t cpu_conv_scratch(const DnnConv *conv);

typedef struct Library Library;
typedef struct LibraryCall LibraryCall; /* one instruction, ready to run */

/* Searches $DNN_ONEDNN_LIB, then the soname.  The arena holds the calls. */
Status library_open(Arena *arena, Library **out);
void library_close(Library *library);
/* Prepares a call.  `spare` stands in for a scratch buffer that was planned too
 * small (other processor, more threads).  Returns NULL where the library
 * refuses, or where `spare` is too small as well; then *out_needs says how
 * large it must be. */
LibraryCall *library_gemm(Library *library, const DnnGemm *gemm,
                          void *const *buffers, void *spare,
                          int64_t spare_bytes, int64_t *out_needs);
/* Returns whether oneDNN runs its reference implementation: it has no other for
 * a matrix that has stride 1 in neither of its dims. */
bool library_is_reference(const LibraryCall *call);
LibraryCall *library_conv(Library *library, const DnnConv *conv,
                          void *const *buffers, void *spare,
                          int64_t spare_bytes, int64_t *out_needs);
/* Runs a call; `buffers` say where the operands lie this time, if not where
 * they were bound. */
Status library_run(Library *library, const LibraryCall *call,
                   void *const *buffers);

#endif
