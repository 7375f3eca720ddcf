/*
 * wait.c -- waits for the compute stream of a GPU, and says what failed there.
 */
#include "runtime/cuda/cuda.h"
#include "runtime/recorder/recorder.h"

#include <sched.h>
#include <time.h>

Status cuda_error(const CudaState *state, CuEnum error, const char *what,
                  const char *path) {
  const char *name = NULL, *text = NULL;
  state->driver.cuGetErrorName(error, &name);
  state->driver.cuGetErrorString(error, &text);
  return status_make(STATUS_unavailable, "%s failed%s%s%s: %s (%s)", what,
                     path ? " at '" : "", path ? path : "", path ? "'" : "",
                     name ? name : "unknown error", text ? text : "no text");
}

/* Asks again and again, first in haste, so that a rank that is gone does not
 * leave us waiting for its part. */
static Status wait_watching(CudaState *state, const char *path) {
  int64_t since = clock_ns();
  Status status = STATUS_OK;
  for (int i = 0; status.code == STATUS_ok; i++) {
    CuEnum error = state->driver.cuStreamQuery(state->compute);
    if (error == 0) break;
    if (error != CU_NOT_READY) {
      status = cuda_error(state, error, "a kernel", path);
      break;
    }
    status = state->poll(state->user, since);
    if (i < 10000) {
      sched_yield();
    } else {
      nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    }
  }
  (void)state->poll(state->user, 0);
  return status;
}

Status cuda_wait_for(CudaState *state, const char *path) {
  if (state->poll) return wait_watching(state, path);
  CuEnum error = state->driver.cuStreamSynchronize(state->compute);
  return error ? cuda_error(state, error, "a kernel", path) : STATUS_OK;
}
