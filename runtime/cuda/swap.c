/*
 * swap.c -- copies between the arena of a GPU and the one in host memory, which
 * is pinned, so that copies run beside kernels: one stream for each direction.
 *
 *     SWAP 3       ready = record(compute); out waits for ready; copy;
 *                  done[3] = record(out)
 *     SWAP_WAIT 3  compute waits for done[3]
 *
 * A swap begins when all that was launched before it has run: its operand is
 * written, and nobody reads the bytes that it writes.  The host waits for none,
 * but at the end of a step, because the compute stream has waited for all.
 */
#include "runtime/cuda/cuda.h"

#include <string.h>

static bool is_on_host(int64_t offset) {
  return offset >= DNN_HOST_ORIGIN;
}

Status cuda_swaps_open(CudaState *state, const DnnProgram *program) {
  size_t bytes = (size_t)program->host_bytes;
  if (bytes == 0) return STATUS_OK;
  CU_TRY(state, NULL, cuMemAllocHost_v2, &state->host_data, bytes);
  memset(state->host_data, 0, bytes);
  int least, greatest;
  CU_TRY(state, NULL, cuCtxGetStreamPriorityRange, &least, &greatest);
  for (int q = 0; q < CUDA_N_SWAPS; q++) {
    CU_TRY(state, NULL, cuStreamCreateWithPriority, &state->swap[q],
           CU_NON_BLOCKING, greatest);
    CU_TRY(state, NULL, cuEventCreate, &state->swap_ready[q], CU_NO_TIMING);
  }
  state->swap_done = ARENA_ARRAY(state->arena, CuEvent, program->n_swaps);
  for (int i = 0; i < program->n_swaps; i++) {
    CU_TRY(state, NULL, cuEventCreate, &state->swap_done[i], CU_NO_TIMING);
    state->n_swaps = i + 1;
  }
  return STATUS_OK;
}

void cuda_swaps_close(CudaState *state) {
  CudaDriver *driver = &state->driver;
  for (int i = 0; i < state->n_swaps; i++)
    driver->cuEventDestroy_v2(state->swap_done[i]);
  for (int q = 0; q < CUDA_N_SWAPS; q++) {
    if (state->swap_ready[q]) driver->cuEventDestroy_v2(state->swap_ready[q]);
    if (state->swap[q]) driver->cuStreamDestroy_v2(state->swap[q]);
  }
  if (state->host_data) driver->cuMemFreeHost(state->host_data);
  state->n_swaps = 0;
  state->host_data = NULL;
}

void *cuda_host_address(const CudaState *state, int64_t offset) {
  return is_on_host(offset)
             ? (char *)state->host_data + (offset - DNN_HOST_ORIGIN)
             : NULL;
}

Status cuda_swap(CudaState *state, const DnnInstr *instr,
                 const int64_t *iterations) {
  int64_t from = instr_buffer(instr, 0, iterations);
  int64_t to = instr_buffer(instr, 1, iterations);
  CudaSwaps queue = is_on_host(to) ? CUDA_SWAPS_OUT : CUDA_SWAPS_IN;
  CuStream stream = state->swap[queue];
  size_t bytes = (size_t)instr->numbers[0];
  CU_TRY(state, instr->path, cuEventRecord, state->swap_ready[queue],
         state->compute);
  CU_TRY(state, instr->path, cuStreamWaitEvent, stream,
         state->swap_ready[queue], 0);
  if (queue == CUDA_SWAPS_OUT)
    CU_TRY(state, instr->path, cuMemcpyDtoHAsync_v2,
           cuda_host_address(state, to), state->data + (unsigned long long)from,
           bytes, stream);
  else
    CU_TRY(state, instr->path, cuMemcpyHtoDAsync_v2,
           state->data + (unsigned long long)to, cuda_host_address(state, from),
           bytes, stream);
  CU_TRY(state, instr->path, cuEventRecord, state->swap_done[instr->numbers[1]],
         stream);
  return STATUS_OK;
}

Status cuda_swap_wait(CudaState *state, const DnnInstr *instr) {
  CU_TRY(state, instr->path, cuStreamWaitEvent, state->compute,
         state->swap_done[instr->numbers[0]], 0);
  return STATUS_OK;
}
