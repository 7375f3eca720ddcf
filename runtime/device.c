/*
 * device.c -- the table of devices, and what every device needs of an
 * instruction.
 */
#include "runtime/runtime.h"

#include <string.h>

typedef struct DeviceRow {
  const char *name;
  Status (*create)(Arena *arena, Device **out);
} DeviceRow;

Status device_create(const char *name, Arena *arena, Device **out) {
  static const DeviceRow rows[] = {
#define DEVICE(name) {#name, device_##name##_create},
#include "runtime/devices.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (strcmp(rows[i].name, name) == 0) return rows[i].create(arena, out);
  return status_make(STATUS_unavailable, "no device '%s'; this runtime has"
#define DEVICE(name) " " #name
#include "runtime/devices.def"
                     ,
                     name);
}

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
    scratch[place->number] +=
        (rank / place->stride) % place->shards * place->factor;
  }
  return scratch;
}

int64_t dtype_bytes(DnnDtype dtype) {
  static const int64_t bytes[] = {
#define DTYPE(name, size_bytes, ...) size_bytes,
#include "support/dtype.def"
  };
  ASSERT(dtype < ARRAY_LENGTH(bytes));
  return bytes[dtype];
}

const char *dtype_label(DnnDtype dtype) {
  static const char *const labels[] = {
#define DTYPE(name, ...) #name,
#include "support/dtype.def"
  };
  ASSERT(dtype < ARRAY_LENGTH(labels));
  return labels[dtype];
}
