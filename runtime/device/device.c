/*
 * device.c -- implements what devices share: access to an arena in host memory,
 * and the numbers of an instruction that depend on the rank.
 */
#include "runtime/device/device.h"
#include "runtime/comm/group.h"

#include <string.h>

Status device_host_write(Device *device, int64_t offset, const void *from,
                         int64_t bytes) {
  memcpy((char *)device->host_arena + offset, from, (size_t)bytes);
  return STATUS_OK;
}

Status device_host_read(Device *device, int64_t offset, void *to,
                        int64_t bytes) {
  memcpy(to, (char *)device->host_arena + offset, (size_t)bytes);
  return STATUS_OK;
}

Status device_host_wait(Device *device) {
  (void)device;
  return STATUS_OK;
}

void *device_host_address(Device *device, int64_t offset) {
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
