/*
 * describe.h -- declares what NVIDIA's driver says about the GPUs of this
 * machine, before any of them is opened.
 */
#ifndef RUNTIME_CUDA_DESCRIBE_H
#define RUNTIME_CUDA_DESCRIBE_H

#include "support/support.h"

typedef struct GpuDescription {
  const char *name; /* "NVIDIA H100 80GB HBM3" */
  int64_t memory_bytes, cache_bytes, clock_hz;
  int multiprocessors;
} GpuDescription;

/* Describes the GPUs that this process may use.  Unavailable means that there
 * is no driver, or it has none. */
Status cuda_describe(Arena *arena, int *out_n, GpuDescription **out);

#endif
