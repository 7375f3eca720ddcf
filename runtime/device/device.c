/*
 * device.c -- implements what devices share: access to an arena in host memory,
 * and the numbers of an instruction that depend on the rank.
 */
#include "runtime/device/device.h"
#include "runtime/comm/group.h"

#include <stdlib.h>
#include <string.h>

#define ALIGNMENT ((int64_t)4096)

Status device_open_swaps(Device *device, const DnnProgram *program) {
  char memory[MEMORY_TEXT];
  if (program->host_bytes == 0) return STATUS_OK;
  size_t bytes =
      (size_t)(program->host_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  device->swap_arena = aligned_alloc(ALIGNMENT, bytes);
  if (!device->swap_arena)
    return status_make(STATUS_unavailable, "no memory for %s",
                       text_memory(memory, (double)bytes, 1));
  memset(device->swap_arena, 0, bytes);
  return STATUS_OK;
}

void device_close_swaps(Device *device) {
  free(device->swap_arena);
  device->swap_arena = NULL;
}

Status device_host_write(Device *device, int64_t offset, const void *from,
                         int64_t bytes) {
  memcpy(device_host_address(device, offset), from, (size_t)bytes);
  return STATUS_OK;
}

Status device_host_read(Device *device, int64_t offset, void *to,
                        int64_t bytes) {
  memcpy(to, device_host_address(device, offset), (size_t)bytes);
  return STATUS_OK;
}

Status device_host_wait(Device *device) {
  (void)device;
  return STATUS_OK;
}

void *device_host_address(Device *device, int64_t offset) {
  if (offset >= DNN_HOST_ORIGIN)
    return (char *)device->swap_arena + (offset - DNN_HOST_ORIGIN);
  return (char *)device->host_arena + offset;
}

const int64_t *instr_numbers(const DnnInstr *instr, int rank,
                             int64_t *scratch) {
  if (!instr->n_rank_offsets) return instr->numbers;
  memcpy(scratch, instr->numbers, sizeof(int64_t) * instr->n_numbers);
  for (int i = 0; i < instr->n_rank_offsets; i++) {
    const DnnRankOffset *place = &instr->rank_offsets[i];
    scratch[place->number] += group_index(place->group, rank) * place->factor;
  }
  return scratch;
}

void instr_move_numbers(const DnnInstr *instr, const int64_t *numbers,
                        const int64_t *iterations, int64_t *out) {
  for (int i = 0; i < instr->n_numbers; i++) {
    out[i] = numbers[i];
    for (int k = 0; instr->number_advances && k < instr->n_loops; k++)
      out[i] += iterations[k] * instr->number_advances[i * instr->n_loops + k];
  }
}
