/*
 * gpu_suite.h -- runs the kernels of tests/unit/cuda.c on a GPU: NVRTC compiles
 * them for it, and each launch takes the memory of its job to the device and
 * back.  On the mock driver the kernels run as C, from the library that the
 * other way of running makes.
 */
#include "runtime/cuda/cuda.h"

#define GPU_BYTES ((size_t)64 << 20)

/* One process runs one suite after the other, of which one is loaded. */
static struct {
  CudaDriver driver;
  CuStream stream;
  CuModule module;
  char *host; /* of the job, mirrored on the device */
  size_t used;
  unsigned long long device;
} gpu;

#define GPU(function, ...)                                                     \
  do {                                                                         \
    CuEnum gpu_error = gpu.driver.function(__VA_ARGS__);                       \
    cr_assert(gpu_error == 0, "%s: error %u", #function, gpu_error);           \
  } while (0)

static int gpu_open(void) {
  CuContext context;
  int device, major, minor;
  Status status = cuda_load_driver(&gpu.driver);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  GPU(cuInit, 0);
  GPU(cuDeviceGet, &device, 0);
  GPU(cuDevicePrimaryCtxRetain, &context, device);
  GPU(cuCtxSetCurrent, context);
  GPU(cuStreamCreateWithPriority, &gpu.stream, CU_NON_BLOCKING, 0);
  GPU(cuMemAlloc_v2, &gpu.device, GPU_BYTES);
  gpu.host = aligned_alloc(256, GPU_BYTES);
  GPU(cuDeviceGetAttribute, &major, CU_CAPABILITY_MAJOR, device);
  GPU(cuDeviceGetAttribute, &minor, CU_CAPABILITY_MINOR, device);
  return 10 * major + minor;
}

/* For the GPU's own architecture, or PTX where NVRTC does not know it. */
static void gpu_load(Suite *suite, const char *text, int capability) {
  Arena *arena = suite->module->arena;
  Nvrtc *nvrtc;
  Status status = nvrtc_open(arena, &nvrtc);
  cr_assert(status.code == STATUS_ok, "%s", status.message);
  const char *arch =
      arena_printf(arena, "sm_%d%s", capability, capability >= 90 ? "a" : "");
  NvrtcResult result =
      nvrtc_finish(nvrtc, arena, nvrtc_run(nvrtc, text, arch, false), arch);
  cr_assert(result.is_compiled, "%s: %.3000s", arch, result.log);
  nvrtc_close(nvrtc);
  GPU(cuModuleLoadDataEx, &gpu.module, result.image, 0, NULL, NULL);
}

/* The mock opens its kernels with the driver. */
static void compile_suite(Suite *suite) {
  const char *library = NULL;
  if (getenv("DNN_MOCK_KERNELS")) {
    library = compile_shim_library(suite);
    setenv("DNN_MOCK_KERNELS", library, 1);
  }
  int capability = gpu_open();
  if (library) remove_library(library);
  gpu_load(suite, suite_text(suite), capability);
}

static void *allocate(Suite *suite, size_t bytes) {
  (void)suite;
  size_t at = gpu.used;
  gpu.used += (bytes + 255) / 256 * 256 + 256;
  cr_assert(gpu.used <= GPU_BYTES);
  return gpu.host + at;
}

static void free_all(Suite *suite) {
  (void)suite;
  gpu.used = 0;
}

static void call_kernel(Suite *suite, const KernelText *kernel, int64_t *words,
                        int n, unsigned seed) {
  (void)suite, (void)seed;
  CuFunction function;
  for (int i = 0; i < n; i++)
    words[i] = (int64_t)gpu.device +
               ((char *)(uintptr_t)(uint64_t)words[i] - gpu.host);
  GPU(cuModuleGetFunction, &function, gpu.module, kernel->name);
  if (kernel->shared_bytes > 48 * 1024)
    GPU(cuFuncSetAttribute, function, CU_MAX_DYNAMIC_SHARED,
        (int)kernel->shared_bytes);
  void *parameters[] = {words};
  GPU(cuMemcpyHtoDAsync_v2, gpu.device, gpu.host, gpu.used, gpu.stream);
  GPU(cuLaunchKernel, function, kernel->grid[0], kernel->grid[1],
      kernel->grid[2], kernel->block[0], kernel->block[1], kernel->block[2],
      kernel->shared_bytes, gpu.stream, parameters, NULL);
  GPU(cuStreamSynchronize, gpu.stream);
  GPU(cuMemcpyDtoHAsync_v2, gpu.host, gpu.device, gpu.used, gpu.stream);
  GPU(cuStreamSynchronize, gpu.stream);
}

static void close_suite(Suite *suite) {
  (void)suite;
  GPU(cuModuleUnload, gpu.module);
  GPU(cuMemFree_v2, gpu.device);
  GPU(cuStreamDestroy_v2, gpu.stream);
  free(gpu.host);
}
