/*
 * device.h -- declares a device, which holds the arena and runs instructions.
 * Each device is a folder that fills the table of functions below, and a row of
 * devices.def.
 */
#ifndef RUNTIME_DEVICE_DEVICE_H
#define RUNTIME_DEVICE_DEVICE_H

#include "runtime/program.h"
#include "support/support.h"

typedef struct Device Device;
struct Device {
  const char *name;
  /* Makes the arena (arena_bytes, aligned to 4096), with device_open_swaps that
   * in host memory, and loads the kernels. */
  Status (*open)(Device *device, const DnnProgram *program, int local_rank);
  /* Enqueues one instruction of kind KERNEL, GEMM, CONV, COPY, ZERO, SWAP or
   * SWAP_WAIT, with
   * these registers and iterations of the loops around it, the outermost first.
   */
  Status (*launch)(Device *device, const DnnInstr *instr,
                   const int64_t *iterations);
  /* Writes from the host to the arena; it and `read` wait for what was enqueued
   * before. */
  Status (*write)(Device *device, int64_t offset, const void *from,
                  int64_t bytes);
  Status (*read)(Device *device, int64_t offset, void *to, int64_t bytes);
  Status (*wait)(Device *device);
  /* Begins to measure, by the clock of the device, how long it takes what is
   * enqueued until time_end; both wait for it.  NULL means that a launch has
   * ended when it returns. */
  Status (*time_begin)(Device *device);
  Status (*time_end)(Device *device, int64_t *out_ps);
  /* Returns the address of an arena byte as the comm needs it. */
  void *(*address)(Device *device, int64_t offset);
  void (*close)(Device *device);
  const DnnProgram *program;
  /* Cores of the host, or multiprocessors, that one launch may use; set by
   * open. */
  int cores;
  int rank; /* rank, which is set before open; DnnRankOffset needs it */
  /* Address of the arena for the host, or NULL where it has none. */
  void *host_arena;
  bool is_zeroed; /* open has left zeros in the arena */
  /* Address of the arena in host memory for swaps, or NULL: there is none. */
  void *swap_arena;
  void *state;
};
/* Creates the device of this name in devices.def. */
Status device_create(const char *name, Arena *arena, Device **out);
#define DEVICE(name) Status device_##name##_create(Arena *arena, Device **out);
#include "runtime/device/devices.def"
/* Returns whether a launch may return before it has ended, so that the host has
 * time meanwhile. */
static inline bool device_runs_behind(const Device *device) {
  return device->time_begin != NULL;
}
/* Makes and frees the arena in host memory, of zeros. */
Status device_open_swaps(Device *device, const DnnProgram *program);
void device_close_swaps(Device *device);
/* Writes, for the tables of devices whose arena is `host_arena`. */
Status device_host_write(Device *device, int64_t offset, const void *from,
                         int64_t bytes);
Status device_host_read(Device *device, int64_t offset, void *to,
                        int64_t bytes);
Status device_host_wait(Device *device);
void *device_host_address(Device *device, int64_t offset);
/* Returns how far buffer `index` has moved at these iterations of the loops
 * around. */
static inline int64_t instr_advance(const DnnInstr *instr, int index,
                                    const int64_t *iterations) {
  int64_t bytes = 0;
  for (int i = 0; instr->advances && i < instr->n_loops; i++)
    bytes += iterations[i] * instr->advances[index * instr->n_loops + i];
  return bytes;
}
/* Returns the offset of that buffer in the arena. */
static inline int64_t instr_buffer(const DnnInstr *instr, int index,
                                   const int64_t *iterations) {
  return instr->buffers[index] + instr_advance(instr, index, iterations);
}
/* Returns the numbers of a launch for this rank: instr->numbers, or a copy in
 * `scratch` with the places added. */
const int64_t *instr_numbers(const DnnInstr *instr, int rank, int64_t *scratch);
/* Writes to `out` the numbers at these iterations of the loops around, where
 * those of the rank are `numbers`. */
void instr_move_numbers(const DnnInstr *instr, const int64_t *numbers,
                        const int64_t *iterations, int64_t *out);

#endif
