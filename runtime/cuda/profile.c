/*
 * profile.c -- measures what runs on the GPU: between two calls for the
 * profiler of exec/, and each launch of a run for a table at its end, of which
 * $DNN_CUDA_PROFILE names the file and rank 0 alone writes one.
 *
 * An event stands before and after each launch, and the host waits for it, so
 * launches do not overlap and every figure includes about two microseconds of
 * the events themselves.  Collectives are not measured.  The table has a line
 * of JSON for each instruction that ran: the median of its last launches, what
 * it computes and what it moves by the operator's cost rule, and the sizes of a
 * matmul.
 */
#include "runtime/cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

enum { N_SAMPLES = 16 };

typedef struct Measured {
  const DnnInstr *instr;
  int64_t n; /* launches, of which the last are in `samples` */
  float samples[N_SAMPLES];
} Measured;

struct CudaProfile {
  const char *path;
  CuEvent begin, end;
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
  CU_TRY(state, NULL, cuEventCreate, &profile->begin, 0);
  CU_TRY(state, NULL, cuEventCreate, &profile->end, 0);
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
  CU_TRY(state, "a measurement", cuEventRecord, state->profile->begin,
         state->compute);
  return STATUS_OK;
}

Status cuda_profile_end(CudaState *state, const DnnInstr *instr) {
  CudaProfile *profile = state->profile;
  CU_TRY(state, instr->path, cuEventRecord, profile->end, state->compute);
  TRY(cuda_wait_for(state, instr->path));
  float ms = 0;
  CU_TRY(state, instr->path, cuEventElapsedTime, &ms, profile->begin,
         profile->end);
  Measured *measured = find_measured(profile, instr);
  measured->instr = instr;
  measured->samples[measured->n++ % N_SAMPLES] = ms;
  return STATUS_OK;
}

/* ---- for the profiler ---- */

Status cuda_time_begin(Device *device) {
  CudaState *state = device->state;
  if (!state->has_timer) {
    CU_TRY(state, NULL, cuEventCreate, &state->timer[0], 0);
    CU_TRY(state, NULL, cuEventCreate, &state->timer[1], 0);
    state->has_timer = true;
  }
  CU_TRY(state, "a measurement", cuEventRecord, state->timer[0],
         state->compute);
  return STATUS_OK;
}

Status cuda_time_end(Device *device, int64_t *out_ps) {
  CudaState *state = device->state;
  float ms = 0;
  CU_TRY(state, "a measurement", cuEventRecord, state->timer[1],
         state->compute);
  TRY(cuda_wait_for(state, "a measurement"));
  CU_TRY(state, "a measurement", cuEventElapsedTime, &ms, state->timer[0],
         state->timer[1]);
  *out_ps = (int64_t)((double)ms * 1e9);
  return STATUS_OK;
}

/* ---- the table ---- */

static int by_value(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double median_us(Measured *measured) {
  size_t n = (size_t)(measured->n < N_SAMPLES ? measured->n : N_SAMPLES);
  qsort(measured->samples, n, sizeof(float), by_value);
  return 1e3 * (double)measured->samples[n / 2];
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
  for (int i = 0; i < 2 && state->has_timer; i++)
    state->driver.cuEventDestroy_v2(state->timer[i]);
  state->has_timer = false;
  if (!profile) return;
  write_table(state);
  state->driver.cuEventDestroy_v2(profile->begin);
  state->driver.cuEventDestroy_v2(profile->end);
  state->profile = NULL;
}
