/*
 * kernels.c -- compiles kernels that are C functions into object files, for
 * back ends whose compiler is the system's C compiler.
 *
 * Kernels are spread over a few files of like size.  The compilers run on while
 * the caller writes the program's tables.
 */
#include <string.h>

#include "codegen/host/toolchain.h"

/* Kernels of the plain program run once, if ever. */
#define PLAIN_FLAGS                                                            \
  "-std=gnu11 -O0 -w -march=native -fno-math-errno -fno-trapping-math "        \
  "-fno-asynchronous-unwind-tables"
#define QUICK_FLAGS      C_KERNEL_FLAGS_AT("1")
#define KERNELS_PER_FILE 16

/* Longest first, each into the file that is shortest so far. */
static void spread_kernels(const KernelText *kernels, int n, int n_files,
                           int *file_of, Arena *arena) {
  size_t *sizes = ARENA_ARRAY(arena, size_t, n_files);
  bool *is_placed = ARENA_ARRAY(arena, bool, n);
  for (int k = 0; k < n; k++) {
    int longest = -1, shortest = 0;
    for (int i = 0; i < n; i++)
      if (!is_placed[i] && (longest < 0 || strlen(kernels[i].text) >
                                               strlen(kernels[longest].text)))
        longest = i;
    for (int f = 1; f < n_files; f++)
      if (sizes[f] < sizes[shortest]) shortest = f;
    is_placed[longest] = true;
    file_of[longest] = shortest;
    sizes[shortest] += strlen(kernels[longest].text);
  }
}

static void write_kernel_sources(Arena *arena, const char *source,
                                 const CompileJob *jobs, int n) {
  for (int i = 0; i < n && source; i++)
    toolchain_write(arena_printf(arena, "%s/%s.c", source, jobs[i].stem),
                    jobs[i].text, strlen(jobs[i].text));
}

/* Files of kernels that are plain or not, from `first` on; returns how many. */
static int make_kernel_jobs(const Backend *backend, Arena *arena,
                            const BuildOptions *options,
                            const KernelText *kernels, int n, bool is_plain,
                            CompileJob *jobs) {
  int n_files =
      is_plain ? n > 0 : (n + KERNELS_PER_FILE - 1) / KERNELS_PER_FILE;
  if (!is_plain && n_files < options->jobs)
    n_files = options->jobs < n ? options->jobs : n;
  const char *flags = is_plain            ? PLAIN_FLAGS
                      : options->is_quick ? QUICK_FLAGS
                                          : C_KERNEL_FLAGS;
  int *file_of = ARENA_ARRAY(arena, int, n);
  if (!is_plain) spread_kernels(kernels, n, n_files, file_of, arena);
  for (int f = 0; f < n_files; f++) {
    Text text = text_create(arena);
    text_add(&text, backend->prelude);
    for (int i = 0; i < n; i++)
      if (file_of[i] == f) text_add(&text, kernels[i].text);
    jobs[f] = (CompileJob){.stem = arena_printf(arena, "%skernels-%d",
                                                is_plain ? "plain-" : "", f),
                           .text = text_string(&text),
                           .flags = flags,
                           .key = ""};
  }
  return n_files;
}

Status toolchain_compile_kernels(const Backend *backend, Module *module,
                                 const BuildOptions *options, const char *work,
                                 const char *source, const KernelText *kernels,
                                 int n, DeviceCode *out) {
  Arena *arena = module->arena;
  int n_own = n;
  while (n_own > 0 && kernels[n_own - 1].is_plain) n_own--;
  CompileJob *jobs = ARENA_ARRAY(arena, CompileJob, n + options->jobs + 1);
  int n_files =
      make_kernel_jobs(backend, arena, options, kernels, n_own, false, jobs);
  n_files += make_kernel_jobs(backend, arena, options, kernels + n_own,
                              n - n_own, true, jobs + n_files);
  write_kernel_sources(arena, source, jobs, n_files);
  out->compiling =
      toolchain_start(module, options, work, jobs, n_files, &out->cached);
  for (int f = 0; f < n_files; f++)
    vec_push(arena, &out->objects, jobs[f].object);
  out->files = n_files;
  return STATUS_OK;
}
