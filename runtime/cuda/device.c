/*
 * device.c -- makes an NVIDIA GPU a device.
 *
 * The arena is one allocation.  Instructions are enqueued on one stream in
 * order, collectives run on another with a higher priority (nccl.c) and are
 * tied to it by events.  Everything that an instruction needs is computed when
 * the device is opened: a launch allocates nothing and searches nothing.
 *
 * Two further streams swap values with host memory, one for each direction
 * (swap.c).
 *
 * Convolutions run as their emitted loop nests; cuDNN is not supported yet.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/recorder/recorder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening ---- */

/* $DNN_CUDA_SHARE: ranks share GPUs, for tests where there are too few. */
bool cuda_shares_gpus(void) {
  const char *text = getenv("DNN_CUDA_SHARE");
  return text && *text && strcmp(text, "0") != 0;
}

static Status choose_device(CudaState *state, int local_rank) {
  int n = 0;
  TRY(cuda_load_driver(&state->driver));
  CU_TRY(state, NULL, cuInit, 0);
  CU_TRY(state, NULL, cuDeviceGetCount, &n);
  if (n > 0 && cuda_shares_gpus()) local_rank %= n;
  if (local_rank >= n)
    return status_make(STATUS_unavailable,
                       "rank %d of this machine needs a GPU of its own, but "
                       "there are %d; start fewer ranks here",
                       local_rank, n);
  CU_TRY(state, NULL, cuDeviceGet, &state->device, local_rank);
  CU_TRY(state, NULL, cuDevicePrimaryCtxRetain, &state->context, state->device);
  state->has_context = true;
  CU_TRY(state, NULL, cuCtxSetCurrent, state->context);
  int least, greatest;
  CU_TRY(state, NULL, cuCtxGetStreamPriorityRange, &least, &greatest);
  CU_TRY(state, NULL, cuStreamCreateWithPriority, &state->compute,
         CU_NON_BLOCKING, least);
  for (int q = 0; q < CUDA_N_STREAMS; q++)
    CU_TRY(state, NULL, cuStreamCreateWithPriority, &state->comm[q],
           CU_NON_BLOCKING, greatest);
  return STATUS_OK;
}

static Status make_arena(CudaState *state, int64_t bytes) {
  size_t n = (size_t)(bytes > 0 ? bytes : 1), free_bytes = 0, total = 0;
  CuEnum error = state->driver.cuMemAlloc_v2(&state->data, n);
  if (error == CU_OUT_OF_MEMORY) {
    CU_TRY(state, NULL, cuMemGetInfo_v2, &free_bytes, &total);
    char needed[MEMORY_TEXT], left[MEMORY_TEXT], all[MEMORY_TEXT];
    return status_make(STATUS_unavailable,
                       "the program needs %s on the GPU, which has %s of its "
                       "%s free; make the batch or the model smaller, or use "
                       "more micro-batches",
                       text_memory(needed, (double)n, 1),
                       text_memory(left, (double)free_bytes, 1),
                       text_memory(all, (double)total, 1));
  }
  if (error) return cuda_error(state, error, "cuMemAlloc", NULL);
  CU_TRY(state, NULL, cuMemsetD8Async, state->data, 0, n, state->compute);
  return STATUS_OK;
}

/* How well a cubin suits the GPU: its own first ("sm_90a" before "sm_90"),
 * then older ones of the same family, then text that the driver compiles. */
static int image_suitability(const char *arch, int major, int minor) {
  int number = 0, n = 0;
  if (sscanf(arch, "compute_%d", &number) == 1)
    return number <= 10 * major + minor;
  if (sscanf(arch, "sm_%d%n", &number, &n) != 1) return 0;
  bool is_special = arch[n] == 'a';
  if (number / 10 != major || number % 10 > minor) return 0;
  if (is_special && number % 10 != minor) return 0;
  return 10 + 2 * (number % 10) + is_special;
}

static Status load_module(CudaState *state, const DnnModule *module, int index,
                          int major, int minor) {
  const DnnImage *best = NULL;
  int best_suits = 0;
  for (int i = 0; i < module->n_images; i++) {
    int suits = image_suitability(module->images[i].arch, major, minor);
    if (suits <= best_suits) continue;
    best = &module->images[i];
    best_suits = suits;
  }
  if (!best)
    return status_make(STATUS_unavailable,
                       "the program has no kernels for this GPU (compute "
                       "capability %d.%d); build with --target cuda:sm_%d%d",
                       major, minor, major, minor);
  CU_TRY(state, NULL, cuModuleLoadDataEx, &state->modules[index], best->data, 0,
         NULL, NULL);
  return STATUS_OK;
}

static Status load_kernels(CudaState *state, const DnnProgram *program) {
  int major, minor;
  CU_TRY(state, NULL, cuDeviceGetAttribute, &major, CU_CAPABILITY_MAJOR,
         state->device);
  CU_TRY(state, NULL, cuDeviceGetAttribute, &minor, CU_CAPABILITY_MINOR,
         state->device);
  state->modules = ARENA_ARRAY(state->arena, CuModule, program->n_modules);
  state->functions = ARENA_ARRAY(state->arena, CuFunction, program->n_kernels);
  for (int i = 0; i < program->n_modules; i++)
    TRY(load_module(state, &program->modules[i], i, major, minor));
  for (int i = 0; i < program->n_kernels; i++) {
    const DnnKernel *kernel = &program->kernels[i];
    ASSERT(kernel->module >= 0 && kernel->module < program->n_modules);
    CU_TRY(state, kernel->name, cuModuleGetFunction, &state->functions[i],
           state->modules[kernel->module], kernel->name);
    if (kernel->shared_bytes > 48 * 1024)
      CU_TRY(state, kernel->name, cuFuncSetAttribute, state->functions[i],
             CU_MAX_DYNAMIC_SHARED, (int)kernel->shared_bytes);
  }
  return STATUS_OK;
}

static Status prepare_kernel(Device *device, const DnnInstr *instr,
                             int n_buffers, CudaPrepared *prepared) {
  CudaState *state = device->state;
  ASSERT(instr->kernel >= 0);
  prepared->kernel = &device->program->kernels[instr->kernel];
  prepared->function = state->functions[instr->kernel];
  int n = n_buffers + instr->n_numbers;
  prepared->n_addresses = n_buffers;
  prepared->words = ARENA_ARRAY(state->arena, int64_t, n + 1);
  int64_t *scratch = ARENA_ARRAY(state->arena, int64_t, instr->n_numbers + 1);
  const int64_t *numbers = instr_numbers(instr, device->rank, scratch);
  for (int i = 0; i < n_buffers; i++)
    prepared->words[i] = (int64_t)state->data + instr->buffers[i];
  for (int i = 0; i < instr->n_numbers; i++)
    prepared->words[n_buffers + i] = numbers[i];
  if (instr->number_advances)
    prepared->numbers =
        arena_copy(state->arena, numbers, sizeof *numbers * instr->n_numbers);
  return STATUS_OK;
}

/* By the library, else by a loop nest if there is one. */
static Status prepare_product(Device *device, const DnnInstr *instr,
                              CudaPrepared *prepared) {
  CudaState *state = device->state;
  unsigned long long buffers[4] = {0};
  for (int i = 0; i < instr->n_buffers && i < 4; i++)
    buffers[i] = state->data + (unsigned long long)instr->buffers[i];
  TRY(cuda_product(state, instr, buffers, &prepared->product));
  if (prepared->product) return STATUS_OK;
  if (instr->kernel >= 0) return prepare_kernel(device, instr, 3, prepared);
  if (state->lt_status.code != STATUS_ok) return state->lt_status;
  return status_make(STATUS_unavailable,
                     "cuBLASLt does not support the matmul '%s'", instr->path);
}

static Status prepare_instr(Device *device, const DnnInstr *instr,
                            CudaPrepared *prepared) {
  switch ((DnnOpcode)instr->op) {
  case DNN_OP_KERNEL:
  case DNN_OP_CONV:
    return prepare_kernel(device, instr, instr->n_buffers, prepared);
  case DNN_OP_GEMM: return prepare_product(device, instr, prepared);
  case DNN_OP_COPY:
  case DNN_OP_ZERO:
  case DNN_OP_COLLECTIVE:
  case DNN_OP_WAIT:
  case DNN_OP_LOOP:
  case DNN_OP_SWAP:
  case DNN_OP_SWAP_WAIT: return STATUS_OK;
  }
  UNREACHABLE();
}

static bool has_product(const DnnProgram *program) {
  for (int i = 0; i < program->n_entry_points; i++)
    for (int j = 0; j < program->entry_points[i].n_instrs; j++)
      if (program->entry_points[i].instrs[j].op == DNN_OP_GEMM) return true;
  return false;
}

/* A missing library is an error for the first matmul that needs it. */
static void find_lt(Device *device) {
  CudaState *state = device->state;
  if (!has_product(device->program)) return;
  state->lt_status = cuda_load_lt(&state->lt);
  if (state->lt_status.code != STATUS_ok) return;
  CuEnum error = state->lt.Create(&state->lt_handle);
  if (!error) return;
  state->lt_handle = NULL;
  state->lt_status = status_make(STATUS_unavailable,
                                 "cublasLtCreate failed with status %u", error);
}

static Status cuda_open(Device *device, const DnnProgram *program,
                        int local_rank) {
  CudaState *state = device->state;
  device->program = program;
  const char *sync = getenv("DNN_CUDA_SYNC");
  state->is_synchronous = sync && *sync && strcmp(sync, "0") != 0;
  TRY(choose_device(state, local_rank));
  CU_TRY(state, NULL, cuDeviceGetAttribute, &device->cores, CU_MULTIPROCESSORS,
         state->device);
  TRY(make_arena(state, program->arena_bytes));
  TRY(cuda_swaps_open(state, program));
  TRY(load_kernels(state, program));
  find_lt(device);
  state->entry_points =
      ARENA_ARRAY(state->arena, CudaPrepared *, program->n_entry_points);
  for (int i = 0; i < program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &program->entry_points[i];
    state->entry_points[i] =
        ARENA_ARRAY(state->arena, CudaPrepared, entry->n_instrs);
    for (int j = 0; j < entry->n_instrs; j++)
      TRY(prepare_instr(device, &entry->instrs[j], &state->entry_points[i][j]));
  }
  TRY(cuda_profile_open(state, program, device->rank));
  return device->wait(device);
}

/* ---- running ---- */

static const CudaPrepared *find_prepared(const Device *device,
                                         const DnnInstr *instr) {
  const CudaState *state = device->state;
  uintptr_t at = (uintptr_t)instr;
  for (int i = 0; i < device->program->n_entry_points; i++) {
    const DnnEntryPoint *entry = &device->program->entry_points[i];
    if (at >= (uintptr_t)entry->instrs &&
        at < (uintptr_t)(entry->instrs + entry->n_instrs))
      return &state->entry_points[i][instr - entry->instrs];
  }
  UNREACHABLE();
}

static Status launch_kernel(CudaState *state, const CudaPrepared *prepared,
                            const char *path) {
  const DnnKernel *kernel = prepared->kernel;
  void *parameters[] = {prepared->words};
  CU_TRY(state, path, cuLaunchKernel, prepared->function, kernel->grid[0],
         kernel->grid[1], kernel->grid[2], kernel->block[0], kernel->block[1],
         kernel->block[2], kernel->shared_bytes, state->compute, parameters,
         NULL);
  return STATUS_OK;
}

/* The driver copies the arguments of a launch, so that they may move on. */
static void move_arguments(const CudaState *state, const CudaPrepared *prepared,
                           const DnnInstr *instr, const int64_t *iterations) {
  if (!prepared->words) return;
  if (prepared->numbers)
    instr_move_numbers(instr, prepared->numbers, iterations,
                       prepared->words + prepared->n_addresses);
  for (int i = 0; instr->advances && i < prepared->n_addresses; i++)
    prepared->words[i] =
        (int64_t)state->data + instr_buffer(instr, i, iterations);
}

static Status enqueue_instr(Device *device, const DnnInstr *instr,
                            const int64_t *iterations) {
  CudaState *state = device->state;
  const CudaPrepared *prepared = find_prepared(device, instr);
  switch ((DnnOpcode)instr->op) {
  case DNN_OP_COPY:
    CU_TRY(state, instr->path, cuMemcpyDtoDAsync_v2,
           state->data + (unsigned long long)instr_buffer(instr, 1, iterations),
           state->data + (unsigned long long)instr_buffer(instr, 0, iterations),
           (size_t)instr->numbers[0], state->compute);
    return STATUS_OK;
  case DNN_OP_ZERO:
    CU_TRY(state, instr->path, cuMemsetD8Async,
           state->data + (unsigned long long)instr_buffer(instr, 0, iterations),
           0, (size_t)instr->numbers[0], state->compute);
    return STATUS_OK;
  case DNN_OP_SWAP: return cuda_swap(state, instr, iterations);
  case DNN_OP_SWAP_WAIT: return cuda_swap_wait(state, instr);
  default: break;
  }
  if (prepared->product)
    return cuda_product_run(state, prepared->product, instr, iterations);
  move_arguments(state, prepared, instr, iterations);
  return launch_kernel(state, prepared, instr->path);
}

static Status cuda_launch(Device *device, const DnnInstr *instr,
                          const int64_t *iterations) {
  CudaState *state = device->state;
  if (state->profile) TRY(cuda_profile_begin(state));
  TRY(enqueue_instr(device, instr, iterations));
  if (state->profile) return cuda_profile_end(state, instr);
  return state->is_synchronous ? cuda_wait_for(state, instr->path) : STATUS_OK;
}

static Status cuda_wait(Device *device) {
  return cuda_wait_for(device->state, NULL);
}

static Status cuda_write(Device *device, int64_t offset, const void *from,
                         int64_t bytes) {
  CudaState *state = device->state;
  void *host = cuda_host_address(state, offset);
  if (host) {
    TRY(cuda_wait_for(state, NULL));
    memcpy(host, from, (size_t)bytes);
    return STATUS_OK;
  }
  CU_TRY(state, NULL, cuMemcpyHtoDAsync_v2,
         state->data + (unsigned long long)offset, from, (size_t)bytes,
         state->compute);
  return cuda_wait_for(state, NULL);
}

static Status cuda_read(Device *device, int64_t offset, void *to,
                        int64_t bytes) {
  CudaState *state = device->state;
  TRY(cuda_wait_for(state,
                    NULL)); /* a copy to plain memory would block unwatched */
  const void *host = cuda_host_address(state, offset);
  if (host) {
    memcpy(to, host, (size_t)bytes);
    return STATUS_OK;
  }
  CU_TRY(state, NULL, cuMemcpyDtoHAsync_v2, to,
         state->data + (unsigned long long)offset, (size_t)bytes,
         state->compute);
  return cuda_wait_for(state, NULL);
}

static void *cuda_address(Device *device, int64_t offset) {
  CudaState *state = device->state;
  void *host = cuda_host_address(state, offset);
  if (host) return host;
  return (void *)(uintptr_t)(state->data + (unsigned long long)offset);
}

static void close_codes(Device *device) {
  CudaState *state = device->state;
  for (int i = 0; state->entry_points && i < device->program->n_entry_points;
       i++)
    for (int j = 0; state->entry_points[i] &&
                    j < device->program->entry_points[i].n_instrs;
         j++)
      cuda_product_destroy(state, state->entry_points[i][j].product);
}

static void cuda_close(Device *device) {
  CudaState *state = device->state;
  CudaDriver *driver = &state->driver;
  if (!driver->library) return;
  if (state->before_close) state->before_close(state->user);
  cuda_profile_close(state);
  close_codes(device);
  if (state->lt_handle) state->lt.Destroy(state->lt_handle);
  for (int i = 0; state->modules && i < device->program->n_modules; i++)
    if (state->modules[i]) driver->cuModuleUnload(state->modules[i]);
  cuda_swaps_close(state);
  if (state->data) driver->cuMemFree_v2(state->data);
  if (state->compute) driver->cuStreamDestroy_v2(state->compute);
  for (int q = 0; q < CUDA_N_STREAMS; q++)
    if (state->comm[q]) driver->cuStreamDestroy_v2(state->comm[q]);
  if (state->has_context) driver->cuDevicePrimaryCtxRelease_v2(state->device);
  dylib_close(state->lt.library);
  dylib_close(driver->library);
  driver->library = NULL;
}

Status device_cuda_create(Arena *arena, Device **out) {
  CudaState *state = ARENA_NEW(arena, CudaState);
  state->arena = arena;
  Device *device = ARENA_NEW(arena, Device);
  *device = (Device){.name = "cuda",
                     .open = cuda_open,
                     .launch = cuda_launch,
                     .write = cuda_write,
                     .read = cuda_read,
                     .wait = cuda_wait,
                     .time_begin = cuda_time_begin,
                     .time_end = cuda_time_end,
                     .address = cuda_address,
                     .close = cuda_close,
                     .state = state};
  *out = device;
  return STATUS_OK;
}
