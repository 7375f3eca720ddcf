/*
 * toolchain.c -- compiles emitted CUDA kernels to modules of cubins and PTX.
 *
 * A module has some dozen kernels, because half of NVRTC's time is its start.
 * There is one job for each module and architecture, and jobs run in parallel.
 * The driver loads the cubin of its GPU.  PTX is for GPUs without one; it is
 * that of the oldest architecture, whose job makes it on the way to the cubin.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "codegen/host/cache.h"
#include "codegen/cuda/cuda.h"

#define KERNELS_A_MODULE 16
#define PTX_ARCH         "compute_80"
#define MAX_THREADS      64

/* A cubin, or PTX. */
typedef struct Image {
  const char *arch; /* "sm_90a"; "compute_80" of PTX */
  const void *data;
  size_t bytes;
} Image;

typedef struct Job {
  const char *arch;
  const char *text;
  bool is_quick; /* kernels of the plain program run once, if ever */
  char key[33];
  NvrtcProgram *program; /* compiled by a thread */
  Image *image, *ptx;    /* results; `ptx` is NULL where nobody wants it */
  bool is_cached;
} Job;

typedef struct Work {
  const Nvrtc *nvrtc;
  Job *jobs;
  int n;
  Image *images; /* those of a module follow each other */
  int n_images, per_module;
  atomic_int next, n_ended; /* job to take; threads that have ended */
  atomic_bool is_stopped;
} Work;

/* ---- jobs ---- */

static void work_on_jobs(Work *work) {
  for (int i; (i = atomic_fetch_add(&work->next, 1)) < work->n;) {
    Job *job = &work->jobs[i];
    if (!job->is_cached && !atomic_load(&work->is_stopped))
      job->program =
          nvrtc_run(work->nvrtc, job->text, job->arch, job->is_quick);
  }
}

static void *work_thread(void *argument) {
  Work *work = argument;
  work_on_jobs(work);
  atomic_fetch_add(&work->n_ended, 1);
  return NULL;
}

/* False: stopped.  NVRTC cannot be interrupted, so the threads run on; they use
 * `work` and the library until the process ends. */
static bool wait_for_threads(Work *work, int n, const BuildOptions *options) {
  while (atomic_load(&work->n_ended) < n) {
    if (options->is_stopped && options->is_stopped(options->user)) {
      atomic_store(&work->is_stopped, true);
      return false;
    }
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
  return true;
}

static bool run_module_jobs(Work *work, const BuildOptions *options) {
  pthread_t threads[MAX_THREADS];
  int n = 0, wanted = options->jobs > 1 ? options->jobs : 1;
  while (n < wanted && n < MAX_THREADS &&
         pthread_create(&threads[n], NULL, work_thread, work) == 0)
    n++;
  if (n == 0) work_on_jobs(work);
  if (!wait_for_threads(work, n, options)) return false;
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  return true;
}

static void set_cache_key(Arena *arena, const Nvrtc *nvrtc, Job *job) {
  const char *all =
      arena_printf(arena, "nvrtc %d %s%s\n%s", nvrtc_version(nvrtc), job->arch,
                   job->is_quick ? " quick" : "", job->text);
  hash_hex(all, strlen(all), job->key);
}

static bool load_image(Arena *arena, const char *cache_dir, const Job *job,
                       const char *kind, Image *image) {
  return cache_load(arena, cache_dir, job->key, kind, &image->data,
                    &image->bytes);
}

static bool load_job(Arena *arena, const char *cache_dir, const Job *job) {
  return load_image(arena, cache_dir, job, "cubin", job->image) &&
         (!job->ptx || load_image(arena, cache_dir, job, "ptx", job->ptx));
}

static void store_image(Arena *arena, const char *cache_dir, const Job *job,
                        const char *kind, Image *image, const void *data,
                        size_t bytes) {
  image->data = data;
  image->bytes = bytes;
  cache_store(arena, cache_dir, job->key, kind, data, bytes);
}

static Status finish_job(const Nvrtc *nvrtc, Arena *arena,
                         const char *cache_dir, Job *job) {
  if (job->is_cached) return STATUS_OK;
  NvrtcResult result = nvrtc_finish(nvrtc, arena, job->program, job->arch);
  job->program = NULL;
  if (!result.is_compiled)
    return status_make(STATUS_invalid,
                       "an emitted kernel does not compile for %s:\n%.1500s",
                       job->arch, result.log);
  store_image(arena, cache_dir, job, "cubin", job->image, result.image,
              result.bytes);
  if (job->ptx)
    store_image(arena, cache_dir, job, "ptx", job->ptx, result.ptx,
                result.ptx_bytes);
  return STATUS_OK;
}

/* ---- modules ---- */

/* Equal names are equal kernels, so each is defined once in a module. */
static const char *module_text(Arena *arena, const KernelText *kernels, int n) {
  Text text = text_create(arena);
  text_add(&text, cuda_prelude);
  for (int i = 0; i < n; i++) {
    text_add(&text, "\n");
    text_add(&text, kernels[i].text);
  }
  return text_string(&text);
}

/* The architecture of which there is PTX, too: the oldest, so that most GPUs
 * can run it.  That of "sm_90a" is for one GPU.  -1: none. */
static int ptx_source(const char *const *archs, int n) {
  int oldest = -1;
  for (int i = 0; i < n; i++)
    if (archs[i][strlen(archs[i]) - 1] != 'a' &&
        (oldest < 0 || atoi(archs[i] + 3) < atoi(archs[oldest] + 3)))
      oldest = i;
  return oldest;
}

/* A module has an image for each architecture, then PTX. */
static void add_module(Arena *arena, Work *work, const BuildOptions *options,
                       const char *text, const char *const *archs,
                       int n_archs) {
  int source = ptx_source(archs, n_archs);
  Image *images = work->images + work->n_images, *ptx = &images[n_archs];
  work->n_images += n_archs + 1;
  for (int i = 0; i < n_archs + (source < 0); i++) {
    Job *job = &work->jobs[work->n++];
    *job = (Job){.arch = i < n_archs ? archs[i] : PTX_ARCH,
                 .text = text,
                 .is_quick = options->is_quick || options->part,
                 .image = &images[i],
                 .ptx = i == source ? ptx : NULL};
    images[i].arch = job->arch;
    set_cache_key(arena, work->nvrtc, job);
    job->is_cached = load_job(arena, options->cache_dir, job);
  }
  if (source >= 0)
    ptx->arch = arena_printf(arena, "compute_%s", archs[source] + 3);
}

static Status write_module_sources(Arena *arena, const char *source,
                                   const char *part, const char *const *texts,
                                   int n_modules) {
  if (!source) return STATUS_OK;
  for (int m = 0; m < n_modules; m++) {
    const char *path =
        arena_printf(arena, "%s/%skernels-%d.cu", source, part, m);
    TRY(file_replace(path, texts[m], strlen(texts[m])));
  }
  return STATUS_OK;
}

/* ---- tables of images ---- */

/* The assembler includes the bytes, which is far quicker than C arrays. */
static void add_image(Text *text, const char *work_dir, const char *part,
                      int module, const char *arch) {
  text_printf(text,
              "__asm__(\".pushsection .rodata\\n.balign 64\\n\"\n"
              "  \"dnn_%simage_%d_%s:\\n.incbin \\\"%s/%simage-%d-%s\\\"\\n\"\n"
              "  \".byte 0\\n.popsection\");\n"
              "extern const char dnn_%simage_%d_%s[];\n",
              part, module, arch, work_dir, part, module, arch, part, module,
              arch);
}

static Status write_images(Arena *arena, const char *work_dir, const char *part,
                           const Work *work, const char **out_text) {
  int per_module = work->per_module;
  Text text = text_create(arena);
  text_add(&text, "#include \"program.h\"\n");
  for (int i = 0; i < work->n_images; i++) {
    const Image *image = &work->images[i];
    int module = i / per_module;
    const char *path = arena_printf(arena, "%s/%simage-%d-%s", work_dir, part,
                                    module, image->arch);
    TRY(file_replace(path, image->data, image->bytes));
    add_image(&text, work_dir, part, module, image->arch);
  }
  for (int i = 0; i < work->n_images; i++) {
    const Image *image = &work->images[i];
    int module = i / per_module;
    if (i % per_module == 0)
      text_printf(&text, "static const DnnImage dnn_%simages_%d[] = {\n", part,
                  module);
    text_printf(&text, "  {\"%s\", dnn_%simage_%d_%s, %llu},\n", image->arch,
                part, module, image->arch, (unsigned long long)image->bytes);
    if (i % per_module == per_module - 1) text_add(&text, "};\n");
  }
  text_printf(&text,
              "extern const DnnModule dnn_%smodules[];\n"
              "const DnnModule dnn_%smodules[] = {\n",
              part, part);
  for (int m = 0; m < work->n_images / per_module; m++)
    text_printf(&text, "  {%d, dnn_%simages_%d},\n", per_module, part, m);
  text_add(&text, "};\n");
  *out_text = text_string(&text);
  return STATUS_OK;
}

static Status compile_modules(const Backend *backend, Arena *arena,
                              const Nvrtc *nvrtc, const BuildOptions *options,
                              const char *work_dir, const char *const *texts,
                              int n_modules, DeviceCode *out,
                              bool *out_is_stopped) {
  int n_archs = options->n_archs;
  const char *const *archs = options->archs;
  if (options->part) {
    n_archs = 0; /* the driver compiles the PTX if it is ever run */
  } else if (n_archs == 0 && !options->is_quick) {
    archs = backend->archs;
    while (archs[n_archs]) n_archs++;
  }
  Work *work = ARENA_NEW(arena, Work);
  work->nvrtc = nvrtc;
  work->per_module = n_archs + 1;
  work->jobs = ARENA_ARRAY(arena, Job, n_modules * work->per_module);
  work->images = ARENA_ARRAY(arena, Image, n_modules * work->per_module);
  for (int m = 0; m < n_modules; m++)
    add_module(arena, work, options, texts[m], archs, n_archs);
  *out_is_stopped = !run_module_jobs(work, options);
  if (*out_is_stopped) return status_make(STATUS_unavailable, "stopped");
  Status status = STATUS_OK;
  for (int i = 0; i < work->n; i++) { /* all of them: programs are freed */
    Status one = finish_job(nvrtc, arena, options->cache_dir, &work->jobs[i]);
    if (status.code == STATUS_ok) status = one;
    out->cached += work->jobs[i].is_cached;
    if (options->progress) options->progress(options->user, i + 1, work->n);
  }
  out->files += work->n;
  if (status.code != STATUS_ok) return status;
  out->n_modules = n_modules;
  return write_images(arena, work_dir, options->part ? options->part : "", work,
                      &out->modules_text);
}

Status cuda_compile(const Backend *backend, Module *module,
                    const BuildOptions *options, const char *work,
                    const char *source, const KernelText *kernels, int n,
                    DeviceCode *out) {
  Arena *arena = module->arena;
  int n_modules = (n + KERNELS_A_MODULE - 1) / KERNELS_A_MODULE;
  out->module_of = ARENA_ARRAY(arena, int, n);
  const char **texts = ARENA_ARRAY(arena, const char *, n_modules);
  for (int m = 0; m < n_modules; m++) {
    int first = m * KERNELS_A_MODULE, rest = n - first;
    int count = rest < KERNELS_A_MODULE ? rest : KERNELS_A_MODULE;
    texts[m] = module_text(arena, kernels + first, count);
    for (int i = 0; i < count; i++) out->module_of[first + i] = m;
  }
  TRY(write_module_sources(arena, source, options->part ? options->part : "",
                           texts, n_modules));
  Nvrtc *nvrtc;
  TRY(nvrtc_open(arena, &nvrtc));
  bool is_stopped;
  Status status = compile_modules(backend, arena, nvrtc, options, work, texts,
                                  n_modules, out, &is_stopped);
  if (!is_stopped) nvrtc_close(nvrtc);
  return status;
}

/* ---- output of the assembler ---- */

static int number_before(const char *line, const char *end, const char *word) {
  const char *at = strstr(line, word);
  if (!at || at >= end) return 0;
  while (at > line && at[-1] == ' ') at--;
  while (at > line && at[-1] >= '0' && at[-1] <= '9') at--;
  return atoi(at);
}

static int used_number(const char *line, const char *end) {
  const char *at = strstr(line, "Used ");
  return at && at < end ? atoi(at + 5) : 0;
}

/* "Compiling entry function 'NAME' for ...", then two lines of figures. */
bool cuda_kernel_facts(const char *log, const char *kernel, KernelFacts *out) {
  char quoted[256] = "'";
  strncat(quoted, kernel, sizeof quoted - 3);
  strcat(quoted, "'");
  const char *at = strstr(log, quoted);
  if (!at) return false;
  const char *end = strstr(at, "Compiling entry function");
  if (!end) end = at + strlen(at);
  *out = (KernelFacts){
      .registers = used_number(at, end),
      .stack_bytes = number_before(at, end, "bytes stack frame"),
      .spill_bytes = number_before(at, end, "bytes spill stores"),
      .shared_bytes = number_before(at, end, "bytes smem"),
  };
  return out->registers > 0;
}
