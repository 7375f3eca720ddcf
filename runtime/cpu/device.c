/*
 * device.c -- makes the CPU a device: the arena is in host memory, and
 * instructions run at once in the calling thread and its team.
 *
 * Everything that an instruction needs is computed when the device is opened:
 * addresses instead of offsets, and the library call, the product of this
 * folder or the emitted fallback.  So a launch is a switch and a call.
 *
 * $DNN_GEMM forces one way for matmuls: library, own, kernel.
 */
#include "runtime/cpu/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

typedef enum Way {
  WAY_kernel,
  WAY_library,
  WAY_own,
  WAY_vector,
  WAY_conv,
  WAY_copy,
  WAY_zero,
  WAY_none
} Way;

typedef struct Prepared {
  uint8_t way; /* Way */
  DnnKernelFn *function;
  void **buffers;
  void **moved; /* in a loop: addresses of the iteration; else NULL */
  const int64_t *numbers;
  int64_t *moved_numbers; /* in a loop: numbers of the iteration; else NULL */
  LibraryCall *call;
  const void *detail; /* DnnGemm or DnnConv */
} Prepared;

typedef struct CpuState {
  Arena *arena;
  unsigned char *data;
  size_t data_bytes;
  Threads threads;
  Library *library; /* or NULL */
  const char *wanted_way;
  Prepared **entry_points; /* of each entry point, one per instruction */
  void *pack;              /* of the own products */
  int64_t pack_bytes;
  void *spare; /* scratch beyond what was planned */
  int64_t spare_bytes;
} CpuState;

static bool is_way_allowed(const CpuState *state, const char *way) {
  return !state->wanted_way || strcmp(state->wanted_way, way) == 0;
}

static Status use_fallback(const DnnProgram *program, const DnnInstr *instr,
                           Prepared *prepared) {
  if (instr->kernel < 0 || instr->kernel >= program->n_kernels ||
      !program->kernels[instr->kernel].function)
    return status_make(STATUS_unavailable,
                       "'%s' needs oneDNN (apt-get install libdnnl2); it has "
                       "no other implementation here",
                       instr->path);
  prepared->way = WAY_kernel;
  prepared->function = program->kernels[instr->kernel].function;
  return STATUS_OK;
}

/* Sets *needs and returns NULL if only spare memory is missing. */
static LibraryCall *library_call(CpuState *state, const DnnInstr *instr,
                                 void *const *buffers, int64_t *needs) {
  *needs = 0;
  if (!state->library || !is_way_allowed(state, "library")) return NULL;
  if (instr->op == DNN_OP_GEMM)
    return library_gemm(state->library, instr->detail, buffers, state->spare,
                        state->spare_bytes, needs);
  return library_conv(state->library, instr->detail, buffers, state->spare,
                      state->spare_bytes, needs);
}

/* By a product of our own: of matrices, of a vector, or a convolution. */
static Status prepare_own(CpuState *state, const DnnInstr *instr, Way way,
                          Prepared *prepared) {
  int64_t bytes = gemm_pack_bytes(&state->threads);
  if (bytes < gemv_work_bytes(&state->threads))
    bytes = gemv_work_bytes(&state->threads);
  if (!state->pack) {
    state->pack_bytes = bytes;
    TRY(pages_map(bytes, &state->pack));
  }
  prepared->way = (uint8_t)way;
  prepared->detail = instr->detail;
  return STATUS_OK;
}

static Status prepare_product(CpuState *state, const DnnProgram *program,
                              const DnnInstr *instr, Prepared *prepared) {
  int64_t needs;
  bool has_own = instr->op == DNN_OP_GEMM && is_way_allowed(state, "own");
  if (has_own && gemv_accepts(instr->detail))
    return prepare_own(state, instr, WAY_vector, prepared);
  prepared->call = library_call(state, instr, prepared->buffers, &needs);
  if (!prepared->call && needs > 0) {
    /* Earlier calls keep the smaller block they were bound to. */
    TRY(pages_map(needs, &state->spare));
    state->spare_bytes = needs;
    prepared->call = library_call(state, instr, prepared->buffers, &needs);
  }
  bool accepts_own = has_own && gemm_accepts(instr->detail);
  /* Matmuls whose innermost dim is one of the batch, as those of scores that
   * are mixed over heads: the reference takes 50 times as long. */
  bool is_slow =
      accepts_own && prepared->call && library_is_reference(prepared->call);
  if (prepared->call && !is_slow) {
    prepared->way = WAY_library;
    return STATUS_OK;
  }
  if (accepts_own) return prepare_own(state, instr, WAY_own, prepared);
  if (instr->op == DNN_OP_CONV)
    return prepare_own(state, instr, WAY_conv, prepared);
  return use_fallback(program, instr, prepared);
}

static Status prepare_instr(Device *device, const DnnInstr *instr,
                            Prepared *prepared) {
  CpuState *state = device->state;
  prepared->buffers = ARENA_ARRAY(state->arena, void *, instr->n_buffers);
  for (int i = 0; i < instr->n_buffers; i++)
    prepared->buffers[i] = device_host_address(device, instr->buffers[i]);
  if (instr->advances)
    prepared->moved = ARENA_ARRAY(state->arena, void *, instr->n_buffers);
  prepared->numbers = instr->numbers;
  if (instr->n_rank_offsets) {
    int64_t *numbers = ARENA_ARRAY(state->arena, int64_t, instr->n_numbers);
    prepared->numbers = instr_numbers(instr, device->rank, numbers);
  }
  if (instr->number_advances)
    prepared->moved_numbers =
        ARENA_ARRAY(state->arena, int64_t, instr->n_numbers);
  switch ((DnnOpcode)instr->op) {
  case DNN_OP_KERNEL: return use_fallback(device->program, instr, prepared);
  case DNN_OP_GEMM:
  case DNN_OP_CONV:
    return prepare_product(state, device->program, instr, prepared);
  case DNN_OP_SWAP: /* both arenas are host memory */
  case DNN_OP_COPY: prepared->way = WAY_copy; return STATUS_OK;
  case DNN_OP_SWAP_WAIT: prepared->way = WAY_none; return STATUS_OK;
  case DNN_OP_ZERO: prepared->way = WAY_zero; return STATUS_OK;
  case DNN_OP_COLLECTIVE:
  case DNN_OP_WAIT:
  case DNN_OP_LOOP: return STATUS_OK;
  }
  UNREACHABLE();
}

static void flush_thread(void *arg, int index, int n) {
  (void)arg, (void)index, (void)n;
  denormals_flush();
}

static bool has_product(const DnnProgram *program) {
  for (int i = 0; i < program->n_entry_points; i++)
    for (int j = 0; j < program->entry_points[i].n_instrs; j++)
      if (program->entry_points[i].instrs[j].op == DNN_OP_GEMM ||
          program->entry_points[i].instrs[j].op == DNN_OP_CONV)
        return true;
  return false;
}

static void find_library(Device *device) {
  CpuState *state = device->state;
  if (!has_product(device->program) || !is_way_allowed(state, "library"))
    return;
  pages_enlarge_heap(state->threads.n);
  Status status = library_open(state->arena, &state->library);
  if (status.code != STATUS_ok && device->rank == 0)
    message_print("warning: matmuls are slower without oneDNN "
                  "(apt-get install libdnnl2): %s\n",
                  status.message);
}

static Status cpu_open(Device *device, const DnnProgram *program,
                       int local_rank) {
  (void)local_rank;
  CpuState *state = device->state;
  device->program = program;
  state->wanted_way = getenv("DNN_GEMM");
  void *data = NULL;
  TRY(pages_map(program->arena_bytes, &data));
  state->data = data;
  state->data_bytes = (size_t)(program->arena_bytes ? program->arena_bytes : 1);
  device->host_arena = data;
  device->is_zeroed = true;
  TRY(device_open_swaps(device, program));
  threads_open(&state->threads);
  device->cores = state->threads.n;
  denormals_flush();
  threads_run(&state->threads, flush_thread, NULL);
  find_library(device);
  state->entry_points =
      ARENA_ARRAY(state->arena, Prepared *, program->n_entry_points);
  for (int i = 0; i < program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &program->entry_points[i];
    state->entry_points[i] =
        ARENA_ARRAY(state->arena, Prepared, entry->n_instrs);
    for (int j = 0; j < entry->n_instrs; j++)
      TRY(prepare_instr(device, &entry->instrs[j], &state->entry_points[i][j]));
  }
  /* Libraries may have started threads of their own team. */
  threads_run(&state->threads, flush_thread, NULL);
  return STATUS_OK;
}

static const Prepared *find_prepared(const Device *device,
                                     const DnnInstr *instr) {
  const CpuState *state = device->state;
  uintptr_t at = (uintptr_t)instr;
  for (int i = 0; i < device->program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &device->program->entry_points[i];
    if (at >= (uintptr_t)entry->instrs &&
        at < (uintptr_t)(entry->instrs + entry->n_instrs))
      return &state->entry_points[i][instr - entry->instrs];
  }
  UNREACHABLE();
}

static void *const *buffers_at(const Prepared *prepared, const DnnInstr *instr,
                               const int64_t *iterations) {
  if (!prepared->moved) return prepared->buffers;
  for (int i = 0; i < instr->n_buffers; i++)
    prepared->moved[i] = (unsigned char *)prepared->buffers[i] +
                         instr_advance(instr, i, iterations);
  return prepared->moved;
}

static const int64_t *numbers_at(const Prepared *prepared,
                                 const DnnInstr *instr,
                                 const int64_t *iterations) {
  if (!prepared->moved_numbers) return prepared->numbers;
  instr_move_numbers(instr, prepared->numbers, iterations,
                     prepared->moved_numbers);
  return prepared->moved_numbers;
}

static Status cpu_launch(Device *device, const DnnInstr *instr,
                         const int64_t *iterations) {
  CpuState *state = device->state;
  const Prepared *prepared = find_prepared(device, instr);
  void *const *buffers = buffers_at(prepared, instr, iterations);
  switch ((Way)prepared->way) {
  case WAY_kernel:
    prepared->function(buffers, numbers_at(prepared, instr, iterations));
    break;
  case WAY_library:
    return library_run(state->library, prepared->call,
                       prepared->moved ? buffers : NULL);
  case WAY_own:
    gemm_run(&state->threads, prepared->detail, buffers[0], buffers[1],
             buffers[2], state->pack);
    break;
  case WAY_vector:
    gemv_run(&state->threads, prepared->detail, buffers[0], buffers[1],
             buffers[2], state->pack);
    break;
  case WAY_conv:
    conv_run(&state->threads, prepared->detail, buffers[0], buffers[1],
             buffers[2], state->pack);
    break;
  case WAY_copy:
    memmove(buffers[1], buffers[0], (size_t)prepared->numbers[0]);
    break;
  case WAY_zero: memset(buffers[0], 0, (size_t)prepared->numbers[0]); break;
  case WAY_none: break;
  }
  return STATUS_OK;
}

static void cpu_close(Device *device) {
  CpuState *state = device->state;
  library_close(state->library);
  threads_close(&state->threads);
  device_close_swaps(device);
  if (state->data) munmap(state->data, state->data_bytes);
  if (state->pack) munmap(state->pack, (size_t)state->pack_bytes);
  if (state->spare) munmap(state->spare, (size_t)state->spare_bytes);
}

Status device_cpu_create(Arena *arena, Device **out) {
  CpuState *state = ARENA_NEW(arena, CpuState);
  state->arena = arena;
  Device *device = ARENA_NEW(arena, Device);
  *device = (Device){.name = "cpu",
                     .open = cpu_open,
                     .launch = cpu_launch,
                     .write = device_host_write,
                     .read = device_host_read,
                     .wait = device_host_wait,
                     .address = device_host_address,
                     .close = cpu_close,
                     .state = state};
  *out = device;
  return STATUS_OK;
}
