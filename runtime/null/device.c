/*
 * device.c -- implements the smallest device: every instruction is an emitted
 * function, called at once. Copy this folder to begin a back end for new
 * hardware; it has everything that the runtime needs.
 */
#include "runtime/device/device.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BUFFERS = 256, MAX_NUMBERS = 256, ARENA_ALIGNMENT = 4096 };

static Status null_open(Device *device, const DnnProgram *program,
                        int local_rank) {
  (void)local_rank;
  size_t bytes = ((size_t)program->arena_bytes + ARENA_ALIGNMENT) /
                 ARENA_ALIGNMENT * ARENA_ALIGNMENT;
  char memory[MEMORY_TEXT];
  device->program = program;
  device->host_arena = aligned_alloc(ARENA_ALIGNMENT, bytes);
  if (!device->host_arena)
    return status_make(STATUS_unavailable, "no memory for %s",
                       text_memory(memory, (double)bytes, 1));
  memset(device->host_arena, 0, bytes);
  device->is_zeroed = true;
  device->cores = 1;
  return device_open_swaps(device, program);
}

static Status call_kernel(Device *device, const DnnInstr *instr,
                          void *const *buffers, const int64_t *numbers) {
  const DnnProgram *program = device->program;
  if (instr->kernel < 0 || instr->kernel >= program->n_kernels ||
      !program->kernels[instr->kernel].function)
    return status_make(STATUS_unavailable, "'%s' has no kernel for this device",
                       instr->path);
  program->kernels[instr->kernel].function(buffers, numbers);
  return STATUS_OK;
}

static Status null_launch(Device *device, const DnnInstr *instr,
                          const int64_t *iterations) {
  void *buffers[MAX_BUFFERS];
  int64_t scratch[MAX_NUMBERS], numbers[MAX_NUMBERS];
  ASSERT(instr->n_buffers <= MAX_BUFFERS && instr->n_numbers <= MAX_NUMBERS);
  for (int i = 0; i < instr->n_buffers; i++)
    buffers[i] = device->address(device, instr_buffer(instr, i, iterations));
  instr_move_numbers(instr, instr_numbers(instr, device->rank, scratch),
                     iterations, numbers);
  if (instr->op == DNN_OP_SWAP_WAIT) return STATUS_OK;
  if (instr->op == DNN_OP_COPY || instr->op == DNN_OP_SWAP)
    memmove(buffers[1], buffers[0], (size_t)numbers[0]);
  else if (instr->op == DNN_OP_ZERO)
    memset(buffers[0], 0, (size_t)numbers[0]);
  else
    return call_kernel(device, instr, buffers, numbers);
  return STATUS_OK;
}

static void null_close(Device *device) {
  device_close_swaps(device);
  free(device->host_arena);
}

Status device_null_create(Arena *arena, Device **out) {
  *out = ARENA_NEW(arena, Device);
  **out = (Device){.name = "null",
                   .open = null_open,
                   .launch = null_launch,
                   .write = device_host_write,
                   .read = device_host_read,
                   .wait = device_host_wait,
                   .address = device_host_address,
                   .close = null_close};
  return STATUS_OK;
}
