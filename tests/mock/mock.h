/*
 * mock.h -- simulates a GPU: libcuda, cuBLASLt and NCCL in one library, on
 * which the CUDA runtime executes complete training steps on a CPU.
 *
 *     cc -shared -fPIC -I. -o libdnn-mock.so tests/mock/X.c ... -ldl -lm
 *     DNN_CUDA_LIB= DNN_CUBLASLT_LIB= DNN_NCCL_LIB= all name it
 *
 * Work on a stream is not done until somebody waits for it, and
 * another stream continues only as far as an event demands: a missing wait
 * shows in wrong numbers.  Messages alone move while any stream waits, because
 * the other rank may have to go on first; they have no buffer, a send ends when
 * its receiver has taken all.  Device memory is out of the host's reach except
 * while enqueued work is done, has guard pages on both sides and disappears
 * when it is freed.  Objects that are still alive when the context is destroyed
 * are reported.
 *
 * The environment says what kind of GPU it is:
 *   - DNN_MOCK_KERNELS: libraries of kernels compiled with tests/shim, "a:b";
 *     "idle": kernels do nothing
 *   - DNN_MOCK_DEVICES: how many GPUs (8)
 *   - DNN_MOCK_SM: compute capability (90)
 *   - DNN_MOCK_CAPACITY: bytes of memory (80e9)
 *   - DNN_MOCK_FAIL: "cuLaunchKernel:17:700@1", the 17th call (from 1) of rank
 *     1 returns this error; without the number 719, without the rank on all.
 *     A kernel's fault (700 to 719) is what all later calls return, too.
 *     "asyncError:3:6": ncclCommGetAsyncError finds error 6 when it is called
 *     for the third time after a communicator is complete
 *   - DNN_MOCK_DROP_WAIT: the n-th cuStreamWaitEvent (from 1) has no effect,
 *     for tests of the tests
 *   - DNN_MOCK_SEED: order of blocks and warps (0: ascending)
 *   - DNN_MOCK_EAGER: 1, all streams but the first work as soon as they may, so
 *     that what they should have waited for is missing
 *   - DNN_MOCK_LOG: file to which every piece of work is appended when done
 */
#ifndef TESTS_MOCK_MOCK_H
#define TESTS_MOCK_MOCK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/cuda/cuda.h"

/* The prototypes are those that the runtime calls. */
#define CU(name, parameters)   CuEnum name parameters;
#define LT(name, parameters)   CuEnum cublasLt##name parameters;
#define NCCL(name, parameters) CuEnum nccl##name parameters;
#include "runtime/cuda/api.def"
const char *ncclGetErrorString(CuEnum error);

enum { MOCK_ILLEGAL_ADDRESS = 700, MOCK_INVALID_VALUE = 1, MOCK_FAILED = 719 };

/* A piece of work: `run` says whether it is done (else it is asked again). */
typedef struct MockWork MockWork;
struct MockWork {
  bool (*run)(MockWork *work);
  const char *what;
  bool is_message; /* is done while any stream waits */
  char data[256];  /* its arguments, by kind */
  void *more;      /* freed when done */
};

/* Takes a copy of the work. */
CuEnum mock_enqueue(CuStream stream, const MockWork *work);
/* First thing in every function: counts, and says what to fail with. */
CuEnum mock_enter(const char *function);
#define MOCK_ENTER()                                                           \
  do {                                                                         \
    CuEnum mock_error = mock_enter(__func__);                                  \
    if (mock_error) return mock_error;                                         \
  } while (0)
/* Returns whether all bytes lie in one live piece of device memory. */
bool mock_in_memory(unsigned long long address, size_t bytes);
/* Work calls it before it reads or writes device memory, which is out of reach
 * again when the wait for the work ends.  It takes longer than asking whether a
 * collective is over, so a question alone does not call it. */
void mock_open_memory(void);
/* The GPU of this process; how many streams were there before this one. */
int mock_device(void);
int mock_stream_number(CuStream stream);
/* Appends a line to the log. */
void mock_log(const char *format, ...) PRINTF_LIKE(1, 2);

#endif
