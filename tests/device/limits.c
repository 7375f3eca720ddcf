/*
 * limits.c -- measures what a GPU allows: the bandwidth of its memory and the
 * rate of cuBLASLt for matmuls of given sizes, by the runtime's own device.
 *
 *     echo "4096 4096 4096 1 bf16 bf16" | limits
 *
 * A line of input is m n k batch, the dtype of the operands and of the result.
 * A line of output is JSON: a median of 20 after 3 that do not count, over data
 * of random signs and fractions, because a GPU is faster on zeros.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SIZES = 512, WARM = 3, TIMED = 20 };
#define SCRATCH_BYTES (INT64_C(32) << 20)

typedef struct Size {
  DnnGemm gemm;
  int64_t buffers[4];
  char dtype[16], c_dtype[16];
} Size;

static Size sizes[MAX_SIZES];
static DnnInstr instrs[MAX_SIZES];
static int n_sizes;

static _Noreturn void no_memory(void *user) {
  (void)user;
  abort();
}

static bool read_dtype(const char *text, DnnDtype *out) {
  for (int i = 0; i < N_DNN_DTYPES; i++)
    if (strcmp(dtype_label((DnnDtype)i), text) == 0) {
      *out = (DnnDtype)i;
      return true;
    }
  return false;
}

static int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

/* Bytes of the arena that the size needs. */
static int64_t add_size(const char *line) {
  if (n_sizes == MAX_SIZES) return 0;
  Size *size = &sizes[n_sizes];
  DnnGemm *g = &size->gemm;
  long long m, n, k, batch;
  DnnDtype dtype, c_dtype;
  if (sscanf(line, "%lld %lld %lld %lld %15s %15s", &m, &n, &k, &batch,
             size->dtype, size->c_dtype) != 6 ||
      !read_dtype(size->dtype, &dtype) || !read_dtype(size->c_dtype, &c_dtype))
    return 0;
  *g = (DnnGemm){.dtype = dtype,
                 .c_dtype = c_dtype,
                 .m = m,
                 .n = n,
                 .k = k,
                 .a_i = k,
                 .a_k = 1,
                 .b_k = n,
                 .b_j = 1,
                 .c_i = n,
                 .c_j = 1,
                 .batch = {1, batch},
                 .a_batch = {0, m * k},
                 .b_batch = {0, k * n},
                 .c_batch = {0, m * n},
                 .scratch_bytes = SCRATCH_BYTES};
  int64_t item = dtype_bytes(dtype);
  size->buffers[1] = aligned(batch * m * k * item);
  size->buffers[2] = size->buffers[1] + aligned(batch * k * n * item);
  size->buffers[3] =
      size->buffers[2] + aligned(batch * m * n * dtype_bytes(c_dtype));
  instrs[n_sizes] = (DnnInstr){.op = DNN_OP_GEMM,
                               .n_buffers = 4,
                               .kernel = -1,
                               .buffers = size->buffers,
                               .detail = g,
                               .path = "a measured matmul"};
  n_sizes++;
  return size->buffers[3] + SCRATCH_BYTES;
}

/* Numbers of size 0.5 to 2 in f32, bf16 and f16. */
static Status fill(Device *device, int64_t bytes) {
  enum { WORDS = 1 << 20 };
  static uint16_t words[WORDS];
  uint64_t state = 1;
  for (int i = 0; i < WORDS; i++) {
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    words[i] = (uint16_t)(0x3f00 | (state >> 57) | (state >> 40 & 0x8000));
  }
  for (int64_t at = 0; at < bytes; at += (int64_t)sizeof words) {
    int64_t n =
        bytes - at < (int64_t)sizeof words ? bytes - at : (int64_t)sizeof words;
    TRY(device->write(device, at, words, n));
  }
  return STATUS_OK;
}

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

typedef struct Timer {
  CuEvent begin, end;
} Timer;

/* Measures a matmul, or a copy of `bytes` where there is none. */
static Status measure(Device *device, const Timer *timer, const DnnInstr *instr,
                      size_t bytes, double *out_ms) {
  CudaState *state = device->state;
  float samples[TIMED];
  for (int i = 0; i < WARM + TIMED; i++) {
    CU_TRY(state, NULL, cuEventRecord, timer->begin, state->compute);
    if (instr) {
      TRY(device->launch(device, instr, NULL));
    } else {
      CU_TRY(state, NULL, cuMemcpyDtoDAsync_v2, state->data + bytes,
             state->data, bytes, state->compute);
    }
    CU_TRY(state, NULL, cuEventRecord, timer->end, state->compute);
    TRY(device->wait(device));
    float ms = 0;
    CU_TRY(state, NULL, cuEventElapsedTime, &ms, timer->begin, timer->end);
    if (i >= WARM) samples[i - WARM] = ms;
  }
  qsort(samples, TIMED, sizeof *samples, by_value);
  *out_ms = (double)samples[TIMED / 2];
  return STATUS_OK;
}

static Status run(Arena *arena, int64_t arena_bytes) {
  Device *device;
  DnnEntryPoint entry = {.name = "all", .n_instrs = n_sizes, .instrs = instrs};
  DnnProgram program = {.target = "cuda",
                        .world = 1,
                        .arena_bytes = arena_bytes,
                        .n_entry_points = 1,
                        .entry_points = &entry};
  TRY(device_create("cuda", arena, &device));
  TRY(device->open(device, &program, 0));
  CudaState *state = device->state;
  Timer timer;
  CU_TRY(state, NULL, cuEventCreate, &timer.begin, 0);
  CU_TRY(state, NULL, cuEventCreate, &timer.end, 0);
  TRY(fill(device, arena_bytes));
  size_t bytes = (size_t)arena_bytes / 2;
  double ms;
  TRY(measure(device, &timer, NULL, bytes, &ms));
  printf("{\"copy_bytes\":%zu,\"ms\":%.4f,\"bytes_per_s\":%.4g}\n", 2 * bytes,
         ms, 2 * (double)bytes / (ms * 1e-3));
  for (int i = 0; i < n_sizes; i++) {
    const DnnGemm *g = &sizes[i].gemm;
    double flops =
        2.0 * (double)g->m * (double)g->n * (double)g->k * (double)g->batch[1];
    TRY(measure(device, &timer, &instrs[i], 0, &ms));
    printf("{\"m\":%lld,\"n\":%lld,\"k\":%lld,\"batch\":%lld,\"dtype\":\"%s\","
           "\"c_dtype\":\"%s\",\"us\":%.2f,\"flops_per_s\":%.4g}\n",
           (long long)g->m, (long long)g->n, (long long)g->k,
           (long long)g->batch[1], sizes[i].dtype, sizes[i].c_dtype, ms * 1e3,
           flops / (ms * 1e-3));
  }
  state->driver.cuEventDestroy_v2(timer.begin);
  state->driver.cuEventDestroy_v2(timer.end);
  device->close(device);
  return STATUS_OK;
}

/* The first argument: bytes of the copied memory, read and written. */
int main(int argc, char **argv) {
  char line[256];
  int64_t bytes = argc > 1 ? atoll(argv[1]) : INT64_C(4) << 30;
  while (fgets(line, sizeof line, stdin)) {
    int64_t needed = add_size(line);
    if (needed == 0) {
      fprintf(stderr, "limits: no size: %s", line);
      return 1;
    }
    if (needed > bytes) bytes = needed;
  }
  Status status =
      run(arena_create(memory_create(no_memory, NULL)), aligned(bytes));
  if (status.code == STATUS_ok) return 0;
  fprintf(stderr, "limits: %s\n", status.message);
  return 3;
}
