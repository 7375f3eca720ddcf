/*
 * cuda.h -- declares the parts of the CUDA device: the libraries as tables of
 * functions, the device's streams, and matmuls by cuBLASLt.  It uses the driver
 * API only.
 */
#ifndef RUNTIME_CUDA_CUDA_H
#define RUNTIME_CUDA_CUDA_H

#include "runtime/device/device.h"
#include "runtime/tensor/tensor.h"

/* ---- types of api.def ---- */

typedef unsigned CuEnum;
typedef void *CuContext, *CuStream, *CuEvent, *CuModule, *CuFunction;
typedef void *LtHandle, *LtDesc, *LtLayout, *LtPreference;
typedef void *NcclComm;
typedef struct LtAlgorithm {
  uint64_t data[8];
} LtAlgorithm;
typedef struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  CuEnum state;
  float waves;
  int reserved[4];
} LtHeuristic;
typedef struct NcclId {
  char bytes[128];
} NcclId;
/* The fields of version 2.18; newer libraries take the shorter struct. */
typedef struct NcclConfig {
  size_t size;
  unsigned magic, version;
  int blocking, cga_cluster, min_ctas, max_ctas;
  const char *net_name;
  int split_share;
} NcclConfig;

enum {
  CU_OUT_OF_MEMORY = 2,
  CU_NOT_READY = 600,
  CU_CLOCK_KHZ = 13,
  CU_MULTIPROCESSORS = 16,
  CU_L2_BYTES = 38,
  CU_CAPABILITY_MAJOR = 75,
  CU_CAPABILITY_MINOR = 76,
  CU_MAX_DYNAMIC_SHARED = 8,
  CU_NON_BLOCKING = 1,
  CU_NO_TIMING = 2,
  LT_COMPUTE_F32 = 68,
  LT_COMPUTE_F64 = 70,
  LT_TRANSPOSE_A = 3,
  LT_TRANSPOSE_B = 4,
  LT_BATCH_COUNT = 5,
  LT_BATCH_STRIDE = 6,
  LT_MAX_WORKSPACE = 1,
  LT_REDUCTION_SCHEMES = 3,
  NCCL_IN_PROGRESS = 7,
};

/* Dtypes and reductions by the libraries' numbers; -1 means not for that
 * library. */
enum {
  LT_none = -1,
  NCCL_none = -1,
#define LT_DTYPE(name, value)    LT_##name = (value),
#define NCCL_DTYPE(name, value)  NCCL_##name = (value),
#define NCCL_REDUCE(name, value) NCCL_##name = (value),
#include "runtime/cuda/api.def"
};

/* ---- load.c ---- */

typedef struct CudaDriver {
  Dylib *library;
#define CU(name, parameters) CuEnum(*name) parameters;
#include "runtime/cuda/api.def"
} CudaDriver;

typedef struct CublasLt {
  Dylib *library;
#define LT(name, parameters) CuEnum(*name) parameters;
#include "runtime/cuda/api.def"
} CublasLt;

typedef struct Nccl {
  Dylib *library;
#define NCCL(name, parameters) CuEnum(*name) parameters;
#include "runtime/cuda/api.def"
  const char *(*error_text)(CuEnum error);
} Nccl;

/* Loads a library from $DNN_CUDA_LIB, $DNN_CUBLASLT_LIB, $DNN_NCCL_LIB or where
 * they usually are.  Unavailable says what to install. */
Status cuda_load_driver(CudaDriver *out);
Status cuda_load_lt(CublasLt *out);
Status cuda_load_nccl(Nccl *out);

/* ---- device.c ---- */

typedef struct CudaProduct CudaProduct;
typedef struct CudaProfile CudaProfile;
typedef struct CudaTimer CudaTimer;

/* The needs of an instruction, computed when the device is opened. */
typedef struct CudaPrepared {
  CuFunction function; /* function, or NULL */
  const DnnKernel *kernel;
  int64_t *words; /* arguments: addresses, then numbers */
  int n_addresses;
  int64_t *numbers;     /* in a loop: those of the rank; else NULL */
  CudaProduct *product; /* product, or NULL */
} CudaPrepared;

enum { CUDA_SENDS = DNN_N_QUEUES, CUDA_RECEIPTS, CUDA_N_STREAMS };

/* Directions of swaps between the GPU and host memory. */
typedef enum CudaSwaps {
  CUDA_SWAPS_OUT,
  CUDA_SWAPS_IN,
  CUDA_N_SWAPS
} CudaSwaps;

typedef struct CudaState {
  Arena *arena;
  CudaDriver driver;
  CublasLt lt;
  LtHandle lt_handle; /* NULL means no cuBLASLt, and why */
  Status lt_status;
  int device;
  bool has_context;
  CuContext context;
  CuStream compute;
  /* Streams of queues, which have the higher priority, then those of messages
   * that are sent and of those that are received. */
  CuStream comm[CUDA_N_STREAMS];
  unsigned long long data; /* address of the arena */
  /* Arena in host memory, pinned, and a stream for each direction; NULL: no
   * plan has them.  An event is recorded when a stream may begin, and one when
   * a swap has ended, by its id. */
  void *host_data;
  CuStream swap[CUDA_N_SWAPS];
  CuEvent swap_ready[CUDA_N_SWAPS], *swap_done;
  int n_swaps;
  CuModule *modules;
  CuFunction *functions; /* functions of the kernels */
  CudaPrepared **entry_points;
  bool is_synchronous;  /* $DNN_CUDA_SYNC: wait after every launch */
  CudaProfile *profile; /* $DNN_CUDA_PROFILE, or NULL */
  CudaTimer *timer; /* timer of time_begin and time_end, once they were used */
  /* Is asked while waiting for the device since `since_ns`, and with 0 when the
   * wait is over; a lost rank ends it.  NULL on one rank. */
  Status (*poll)(void *user, int64_t since_ns);
  void (*before_close)(void *user); /* or NULL */
  void *user;
} CudaState;

/* ---- device.c ---- */

/* Returns whether ranks of a machine may have one GPU. */
bool cuda_shares_gpus(void);

/* ---- wait.c ---- */

/* Returns a status that says that `what` failed, for the instruction `path` (or
 * NULL). */
Status cuda_error(const CudaState *state, CuEnum error, const char *what,
                  const char *path);
/* Waits for what was enqueued on the compute stream. */
Status cuda_wait_for(CudaState *state, const char *path);
#define CU_TRY(state, path, function, ...)                                     \
  do {                                                                         \
    CuEnum cu_error = (state)->driver.function(__VA_ARGS__);                   \
    if (cu_error) return cuda_error(state, cu_error, #function, path);         \
  } while (0)

/* ---- swap.c ---- */

Status cuda_swaps_open(CudaState *state, const DnnProgram *program);
void cuda_swaps_close(CudaState *state);
/* Returns the address of a byte of the arena in host memory.  Returns NULL for
 * one of the GPU's. */
void *cuda_host_address(const CudaState *state, int64_t offset);
/* Enqueue an instruction SWAP or SWAP_WAIT. */
Status cuda_swap(CudaState *state, const DnnInstr *instr,
                 const int64_t *iterations);
Status cuda_swap_wait(CudaState *state, const DnnInstr *instr);

/* ---- product.c: cuBLASLt ---- */

/* Prepares a matmul; *out is NULL where strides or dtype are not for the
 * library.  `scratch` is an address in the arena or 0. */
Status cuda_product(CudaState *state, const DnnInstr *instr,
                    const unsigned long long *buffers, CudaProduct **out);
Status cuda_product_run(CudaState *state, const CudaProduct *product,
                        const DnnInstr *instr, const int64_t *iterations);
void cuda_product_destroy(CudaState *state, CudaProduct *product);

/* ---- profile.c ---- */

/* Opens the profile; rank 0 measures if the environment says so. */
Status cuda_profile_open(CudaState *state, const DnnProgram *program, int rank);
/* Begins to measure what is launched for an instruction; cuda_profile_end ends
 * it. */
Status cuda_profile_begin(CudaState *state);
Status cuda_profile_end(CudaState *state, const DnnInstr *instr);
/* Writes the table. */
void cuda_profile_close(CudaState *state);
/* Begins to measure, as a row of the table of the device. */
Status cuda_time_begin(Device *device);
Status cuda_time_end(Device *device, int64_t *out_ps);

#endif
