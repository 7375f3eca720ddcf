/*
 * profile.c -- measures what runs on the GPU: between two calls for the
 * profiler of exec/, and each launch of a run for a table at its end, of which
 * $DNN_CUDA_PROFILE names the file and rank 0 alone writes one.
 *
 * An event stands before and after each launch, and the host waits for it, so
 * launches do not overlap.  What two events take with nothing between is
 * subtracted.  Collectives are not measured.  The table has a line of JSON for
 * each instruction that ran: the median of its last launches, what it computes
 * and what it moves by the operator's cost rule, and the sizes of a matmul.
 */
#include "runtime/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the timer ---- */

/* The host takes longer to enqueue a launch than the GPU to record an event, so
 * an event before a launch alone would add the host's time to the launch's.
 * Something else therefore runs first, until both events and what is between
 * them are enqueued: a copy from the host, which leaves the caches of the GPU
 * as they are, and a small memset, so that the event does not wait where copies
 * are run. */
struct CudaTimer {
  CuEvent begin, end;
  void *from;            /* pinned: the copy returns at once */
  unsigned long long to; /* DELAY_BYTES each */
  float empty_ms;        /* between two events with nothing between */
};

enum { DELAY_BYTES = 512 * 1024 }; /* some 10 us */

static const char what[] = "a measurement";

static Status record_begin(CudaState *state) {
  const CudaTimer *timer = state->timer;
  CU_TRY(state, what, cuMemcpyHtoDAsync_v2, timer->to, timer->from, DELAY_BYTES,
         state->compute);
  CU_TRY(state, what, cuMemsetD8Async, timer->to, 0, 1, state->compute);
  CU_TRY(state, what, cuEventRecord, timer->begin, state->compute);
  return STATUS_OK;
}

static Status record_end(CudaState *state, float *out_ms) {
  const CudaTimer *timer = state->timer;
  CU_TRY(state, what, cuEventRecord, timer->end, state->compute);
  TRY(cuda_wait_for(state, what));
  CU_TRY(state, what, cuEventElapsedTime, out_ms, timer->begin, timer->end);
  return STATUS_OK;
}

static Status open_timer(CudaState *state) {
  enum { TIMES = 8 };
  CudaTimer *timer = state->timer = ARENA_NEW(state->arena, CudaTimer);
  CU_TRY(state, what, cuEventCreate, &timer->begin, 0);
  CU_TRY(state, what, cuEventCreate, &timer->end, 0);
  CU_TRY(state, what, cuMemAllocHost_v2, &timer->from, DELAY_BYTES);
  memset(timer->from, 0, DELAY_BYTES);
  CU_TRY(state, what, cuMemAlloc_v2, &timer->to, DELAY_BYTES);
  for (int i = 0; i < TIMES; i++) {
    float ms = 0;
    TRY(record_begin(state));
    TRY(record_end(state, &ms));
    if (i == 0 || ms < timer->empty_ms) timer->empty_ms = ms;
  }
  return STATUS_OK;
}

static void close_timer(CudaState *state) {
  CudaTimer *timer = state->timer;
  if (!timer) return;
  if (timer->begin) state->driver.cuEventDestroy_v2(timer->begin);
  if (timer->end) state->driver.cuEventDestroy_v2(timer->end);
  if (timer->from) state->driver.cuMemFreeHost(timer->from);
  if (timer->to) state->driver.cuMemFree_v2(timer->to);
  state->timer = NULL;
}

static Status time_begin(CudaState *state) {
  if (!state->timer) TRY(open_timer(state));
  return record_begin(state);
}

/* At least a nanosecond. */
static Status time_end(CudaState *state, double *out_us) {
  float ms = 0;
  TRY(record_end(state, &ms));
  double us = 1e3 * ((double)ms - (double)state->timer->empty_ms);
  *out_us = us > 1e-3 ? us : 1e-3;
  return STATUS_OK;
}

Status cuda_time_begin(Device *device) {
  return time_begin(device->state);
}

Status cuda_time_end(Device *device, int64_t *out_ps) {
  double us;
  TRY(time_end(device->state, &us));
  *out_ps = (int64_t)(us * 1e6);
  return STATUS_OK;
}

/* ---- launches for the table ---- */

enum { N_SAMPLES = 16 };

typedef struct Measured {
  const DnnInstr *instr;
  int64_t n;                 /* launches, of which the last are in `samples` */
  double samples[N_SAMPLES]; /* microseconds */
} Measured;

struct CudaProfile {
  const char *path;
  const DnnProgram *program;
  Measured **entry_points; /* of each, its instructions */
};

Status cuda_profile_open(CudaState *state, const DnnProgram *program,
                         int rank) {
  const char *path = getenv("DNN_CUDA_PROFILE");
  if (!path || !*path || rank != 0) return STATUS_OK;
  CudaProfile *profile = ARENA_NEW(state->arena, CudaProfile);
  profile->path = path;
  profile->program = program;
  profile->entry_points =
      ARENA_ARRAY(state->arena, Measured *, program->n_entry_points);
  for (int i = 0; i < program->n_entry_points; i++)
    profile->entry_points[i] =
        ARENA_ARRAY(state->arena, Measured, program->entry_points[i].n_instrs);
  state->profile = profile;
  return STATUS_OK;
}

static Measured *find_measured(CudaProfile *profile, const DnnInstr *instr) {
  uintptr_t at = (uintptr_t)instr;
  for (int i = 0; i < profile->program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &profile->program->entry_points[i];
    if (at >= (uintptr_t)entry->instrs &&
        at < (uintptr_t)(entry->instrs + entry->n_instrs))
      return &profile->entry_points[i][instr - entry->instrs];
  }
  UNREACHABLE();
}

Status cuda_profile_begin(CudaState *state) {
  return time_begin(state);
}

Status cuda_profile_end(CudaState *state, const DnnInstr *instr) {
  double us;
  TRY(time_end(state, &us));
  Measured *measured = find_measured(state->profile, instr);
  measured->instr = instr;
  measured->samples[measured->n++ % N_SAMPLES] = us;
  return STATUS_OK;
}

/* ---- the table ---- */

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double median_us(Measured *measured) {
  size_t n = (size_t)(measured->n < N_SAMPLES ? measured->n : N_SAMPLES);
  qsort(measured->samples, n, sizeof(double), by_value);
  return measured->samples[n / 2];
}

static const char *kind_of(const DnnInstr *instr) {
  switch ((DnnOpcode)instr->op) {
  case DNN_OP_KERNEL: return "kernel";
  case DNN_OP_GEMM: return "gemm";
  case DNN_OP_CONV: return "conv";
  case DNN_OP_COPY: return "copy";
  case DNN_OP_ZERO: return "zero";
  default: return "other";
  }
}

static void write_measured(FILE *file, const CudaState *state,
                           const char *entry_name, Measured *measured) {
  const DnnInstr *instr = measured->instr;
  const DnnProgram *program = state->profile->program;
  fprintf(file,
          "{\"entry\":\"%s\",\"path\":\"%s\",\"kind\":\"%s\",\"kernel\":\"%s\","
          "\"launches\":%lld,\"us\":%.3f,\"flops\":%.0f,\"bytes\":%.0f",
          entry_name, instr->path ? instr->path : "", kind_of(instr),
          instr->kernel >= 0 ? program->kernels[instr->kernel].name : "",
          (long long)measured->n, median_us(measured), instr->flops,
          instr->bytes_moved);
  if (instr->op == DNN_OP_GEMM) {
    const DnnGemm *g = instr->detail;
    fprintf(file,
            ",\"m\":%lld,\"n\":%lld,\"k\":%lld,\"batch\":%lld,\"dtype\":\"%s\","
            "\"c_dtype\":\"%s\"",
            (long long)g->m, (long long)g->n, (long long)g->k,
            (long long)(g->batch[0] * g->batch[1]), dtype_label(g->dtype),
            dtype_label(g->c_dtype));
  }
  fprintf(file, "}\n");
}

static void write_table(const CudaState *state) {
  const CudaProfile *profile = state->profile;
  FILE *file = fopen(profile->path, "w");
  if (!file) {
    fprintf(stderr, "warning: cannot write '%s'\n", profile->path);
    return;
  }
  for (int i = 0; i < profile->program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &profile->program->entry_points[i];
    for (int k = 0; k < entry->n_instrs; k++)
      if (profile->entry_points[i][k].n > 0)
        write_measured(file, state, entry->name, &profile->entry_points[i][k]);
  }
  fclose(file);
}

void cuda_profile_close(CudaState *state) {
  CudaProfile *profile = state->profile;
  close_timer(state);
  if (!profile) return;
  write_table(state);
  state->profile = NULL;
}
