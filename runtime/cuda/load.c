/*
 * load.c -- opens NVIDIA's libraries when they are needed and fills their
 * tables of functions.
 */
#include "runtime/cuda/cuda.h"

#include <string.h>

typedef struct Entry {
  const char *name;
  size_t offset; /* in the table of functions */
} Entry;

static Status load_library(const char *env, const char *const *names,
                           const char *advice, const Entry *entries, int n,
                           Dylib **out_library, void *table) {
  Status status = dylib_open(env, names, out_library);
  if (status.code != STATUS_ok)
    return status_make(STATUS_unavailable, "%s; %s, or name it in %s",
                       status.message, advice, env);
  for (int i = 0; i < n; i++) {
    void *symbol = dylib_symbol(*out_library, entries[i].name);
    if (!symbol) {
      status = status_make(STATUS_unavailable, "%s is too old: it lacks %s; %s",
                           dylib_path(*out_library), entries[i].name, advice);
      dylib_close(*out_library);
      *out_library = NULL;
      return status;
    }
    memcpy((char *)table + entries[i].offset, &symbol, sizeof symbol);
  }
  return STATUS_OK;
}

Status cuda_load_driver(CudaDriver *out) {
  static const char *const names[] = {"libcuda.so.1", NULL};
  static const Entry entries[] = {
#define CU(name, parameters) {#name, offsetof(CudaDriver, name)},
#include "runtime/cuda/api.def"
  };
  return load_library(
      "DNN_CUDA_LIB", names,
      "running on a GPU needs NVIDIA's driver, version 525 or later", entries,
      ARRAY_LENGTH(entries), &out->library, out);
}

Status cuda_load_lt(CublasLt *out) {
  static const char *const names[] = {"libcublasLt.so.13", "libcublasLt.so.12",
                                      "/usr/local/cuda/lib64/libcublasLt.so",
                                      NULL};
  static const Entry entries[] = {
#define LT(name, parameters) {"cublasLt" #name, offsetof(CublasLt, name)},
#include "runtime/cuda/api.def"
  };
  return load_library(
      "DNN_CUBLASLT_LIB", names,
      "install cuBLAS (the toolkit, or 'pip install nvidia-cublas')", entries,
      ARRAY_LENGTH(entries), &out->library, out);
}

Status cuda_load_nccl(Nccl *out) {
  static const char *const names[] = {
      "libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2", NULL};
  static const Entry entries[] = {
#define NCCL(name, parameters) {"nccl" #name, offsetof(Nccl, name)},
#include "runtime/cuda/api.def"
      {"ncclGetErrorString", offsetof(Nccl, error_text)}};
  return load_library(
      "DNN_NCCL_LIB", names,
      "several GPUs need NCCL 2.18 or later ('apt-get install libnccl2' "
      "or 'pip install nvidia-nccl-cu13')",
      entries, ARRAY_LENGTH(entries), &out->library, out);
}
