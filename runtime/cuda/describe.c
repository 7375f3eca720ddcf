/*
 * describe.c -- asks NVIDIA's driver which GPUs there are.  No context is made,
 * so nothing is allocated on them.
 */
#include "runtime/cuda/describe.h"
#include "runtime/cuda/cuda.h"

static Status describe_failed(const CudaDriver *driver, const char *call,
                              CuEnum error) {
  const char *name = "unknown error";
  driver->cuGetErrorName(error, &name);
  return status_make(STATUS_unavailable, "%s: %s", call, name);
}

#define DESCRIBE_TRY(driver, call, ...)                                        \
  do {                                                                         \
    CuEnum describe_error = (driver)->call(__VA_ARGS__);                       \
    if (describe_error) return describe_failed(driver, #call, describe_error); \
  } while (0)

static Status describe_gpu(Arena *arena, const CudaDriver *driver, int ordinal,
                           GpuDescription *out) {
  enum { LONGEST_NAME = 256 };
  char name[LONGEST_NAME] = "";
  int device, clock_khz, cache;
  size_t memory;
  DESCRIBE_TRY(driver, cuDeviceGet, &device, ordinal);
  DESCRIBE_TRY(driver, cuDeviceGetName, name, LONGEST_NAME - 1, device);
  DESCRIBE_TRY(driver, cuDeviceTotalMem_v2, &memory, device);
  DESCRIBE_TRY(driver, cuDeviceGetAttribute, &out->multiprocessors,
               CU_MULTIPROCESSORS, device);
  DESCRIBE_TRY(driver, cuDeviceGetAttribute, &clock_khz, CU_CLOCK_KHZ, device);
  DESCRIBE_TRY(driver, cuDeviceGetAttribute, &cache, CU_L2_BYTES, device);
  out->name = arena_strdup(arena, name);
  out->memory_bytes = (int64_t)memory;
  out->clock_hz = clock_khz * INT64_C(1000);
  out->cache_bytes = cache;
  return STATUS_OK;
}

static Status describe_all(Arena *arena, const CudaDriver *driver, int *out_n,
                           GpuDescription **out) {
  int n = 0;
  DESCRIBE_TRY(driver, cuInit, 0);
  DESCRIBE_TRY(driver, cuDeviceGetCount, &n);
  *out = ARENA_ARRAY(arena, GpuDescription, n);
  for (int i = 0; i < n; i++) TRY(describe_gpu(arena, driver, i, &(*out)[i]));
  *out_n = n;
  return STATUS_OK;
}

Status cuda_describe(Arena *arena, int *out_n, GpuDescription **out) {
  CudaDriver driver = {0};
  *out_n = 0;
  TRY(cuda_load_driver(&driver));
  Status status = describe_all(arena, &driver, out_n, out);
  dylib_close(driver.library);
  return status;
}
