/*
 * nvrtc.c -- loads NVRTC, NVIDIA's compiler library, and compiles texts with
 * it.
 *
 * The library is found at run time and called through prototypes of our own. It
 * compiles for any GPU on a machine without one.  The same text, options and
 * version always give the same output, so cubins can be cached.
 */
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "codegen/cuda/cuda.h"

/* name, parameters; every function returns 0 for success */
#define NVRTC_FUNCTIONS(F)                                                     \
  F(Version, (int *major, int *minor))                                         \
  F(CreateProgram,                                                             \
    (NvrtcProgram * *program, const char *text, const char *name,              \
     int n_headers, const char *const *headers, const char *const *names))     \
  F(DestroyProgram, (NvrtcProgram * *program))                                 \
  F(CompileProgram,                                                            \
    (NvrtcProgram * program, int n_options, const char *const *options))       \
  F(GetCUBINSize, (NvrtcProgram * program, size_t * bytes))                    \
  F(GetCUBIN, (NvrtcProgram * program, char *image))                           \
  F(GetPTXSize, (NvrtcProgram * program, size_t * bytes))                      \
  F(GetPTX, (NvrtcProgram * program, char *text))                              \
  F(GetProgramLogSize, (NvrtcProgram * program, size_t * bytes))               \
  F(GetProgramLog, (NvrtcProgram * program, char *log))

#define QUICK_OPTIONS_SINCE 13000 /* older ones were not tried with them */

struct Nvrtc {
  Dylib *library;
  int version;
#define F(name, parameters) int(*name) parameters;
  NVRTC_FUNCTIONS(F)
#undef F
};

/* ---- finding it ---- */

static const char *const sonames[] = {"libnvrtc.so.13", "libnvrtc.so.12",
                                      "/usr/local/cuda/lib64/libnvrtc.so",
                                      NULL};

/* The folders into which pip installs NVIDIA's libraries. */
static const char *const wheels[] = {
    "%s/lib/python3*/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
    "%s/lib/python3*/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.1[23]",
    "%s/lib/python3*/dist-packages/nvidia/cu13/lib/libnvrtc.so.13",
    "%s/lib/python3*/dist-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.1[23]"};

static bool open_wheel(Arena *arena, const char *root, Dylib **out) {
  for (int i = 0; root && i < ARRAY_LENGTH(wheels); i++) {
    glob_t found;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    const char *pattern = arena_printf(arena, wheels[i], root);
#pragma GCC diagnostic pop
    bool is_open = false;
    if (glob(pattern, 0, NULL, &found) == 0) {
      for (size_t k = 0; k < found.gl_pathc && !is_open; k++) {
        const char *names[] = {found.gl_pathv[k], NULL};
        is_open = dylib_open(NULL, names, out).code == STATUS_ok;
      }
    }
    globfree(&found);
    if (is_open) return true;
  }
  return false;
}

static Status open_library(Arena *arena, Dylib **out) {
  const char *chosen = getenv("DNN_NVRTC_LIB");
  Status status = dylib_open("DNN_NVRTC_LIB", sonames, out);
  if (status.code == STATUS_ok) return status;
  if (!chosen || !*chosen) {
    const char *home = getenv("HOME");
    const char *local = home ? arena_printf(arena, "%s/.local", home) : NULL;
    if (open_wheel(arena, getenv("VIRTUAL_ENV"), out) ||
        open_wheel(arena, local, out) || open_wheel(arena, "/usr/local", out) ||
        open_wheel(arena, "/usr", out))
      return STATUS_OK;
  }
  return status_make(
      STATUS_unavailable,
      "%s; building for CUDA needs NVRTC: run 'tools/setup.sh --cuda' or 'pip "
      "install nvidia-cuda-nvrtc', or name the library in DNN_NVRTC_LIB",
      status.message);
}

Status nvrtc_open(Arena *arena, Nvrtc **out) {
  Nvrtc *nvrtc = ARENA_NEW(arena, Nvrtc);
  *out = NULL;
  TRY(open_library(arena, &nvrtc->library));
  bool is_complete = true;
#define F(name, parameters)                                                    \
  {                                                                            \
    void *symbol = dylib_symbol(nvrtc->library, "nvrtc" #name);                \
    memcpy(&nvrtc->name, &symbol, sizeof symbol);                              \
    is_complete = is_complete && symbol;                                       \
  }
  NVRTC_FUNCTIONS(F)
#undef F
  int major, minor;
  if (!is_complete || nvrtc->Version(&major, &minor) != 0) {
    Status status =
        status_make(STATUS_unavailable,
                    "%s is not an NVRTC of version 11.2 or later; name "
                    "another library in DNN_NVRTC_LIB",
                    dylib_path(nvrtc->library));
    dylib_close(nvrtc->library);
    return status;
  }
  nvrtc->version = major * 1000 + minor * 10;
  *out = nvrtc;
  return STATUS_OK;
}

void nvrtc_close(Nvrtc *nvrtc) {
  if (nvrtc) dylib_close(nvrtc->library);
}

int nvrtc_version(const Nvrtc *nvrtc) {
  return nvrtc->version;
}

/* ---- compiling ---- */

static bool is_ptx(const char *arch) {
  return strncmp(arch, "compute_", 8) == 0;
}

NvrtcProgram *nvrtc_run(const Nvrtc *nvrtc, const char *text, const char *arch,
                        bool is_quick) {
  NvrtcProgram *program = NULL;
  if (nvrtc->CreateProgram(&program, text, "kernels.cu", 0, NULL, NULL) != 0)
    return NULL;
  char option[64] = "--gpu-architecture=";
  strncat(option, arch, sizeof option - strlen(option) - 1);
  const char *options[6] = {option, "--std=c++17", "--device-int128"};
  int n = 3;
  if (!is_ptx(arch)) options[n++] = "--ptxas-options=-v";
  if (nvrtc->version >= QUICK_OPTIONS_SINCE) {
    /* Without declarations of the CUDA runtime: a tenth of the time. */
    options[n++] = "--minimal";
    if (is_quick) options[n++] = "--Ofast-compile=max";
  }
  /* A failure is in the log, and nvrtc_finish finds no image. */
  (void)nvrtc->CompileProgram(program, n, options);
  return program;
}

static const void *copy_image(Arena *arena, NvrtcProgram *program,
                              int (*get_size)(NvrtcProgram *, size_t *),
                              int (*get)(NvrtcProgram *, char *),
                              size_t *out_bytes) {
  *out_bytes = 0;
  if (get_size(program, out_bytes) != 0 || *out_bytes == 0) return NULL;
  char *image = arena_alloc(arena, *out_bytes);
  return get(program, image) == 0 ? image : NULL;
}

NvrtcResult nvrtc_finish(const Nvrtc *nvrtc, Arena *arena,
                         NvrtcProgram *program, const char *arch) {
  NvrtcResult result = {.log = "out of memory"};
  if (!program) return result;
  size_t n = 0;
  if (nvrtc->GetProgramLogSize(program, &n) == 0 && n > 0) {
    char *log = arena_alloc(arena, n + 1);
    (void)nvrtc->GetProgramLog(program, log);
    result.log = log;
  }
  result.ptx = copy_image(arena, program, nvrtc->GetPTXSize, nvrtc->GetPTX,
                          &result.ptx_bytes);
  result.image = result.ptx;
  result.bytes = result.ptx_bytes;
  if (!is_ptx(arch))
    result.image = copy_image(arena, program, nvrtc->GetCUBINSize,
                              nvrtc->GetCUBIN, &result.bytes);
  result.is_compiled = result.image && result.ptx;
  (void)nvrtc->DestroyProgram(&program);
  return result;
}
