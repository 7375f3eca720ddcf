/*
 * toolchain.c -- compiles emitted CUDA kernels to modules of cubins and PTX.
 *
 * A module has some dozen kernels, because half of NVRTC's time is its start.
 * There is one job for each module and architecture, and jobs run in parallel.
 * The driver loads the cubin of its GPU; PTX is for GPUs that are newer than
 * all architectures.
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

typedef struct Job {
  int module;
  const char *arch;
  const char *text;
  char key[33];
  NvrtcProgram *program; /* compiled by a thread */
  const void *image;
  size_t bytes;
  bool is_cached;
} Job;

typedef struct Work {
  const Nvrtc *nvrtc;
  Job *jobs;
  int n;
  atomic_int next, n_ended; /* job to take; threads that have ended */
  atomic_bool is_stopped;
} Work;

/* ---- jobs ---- */

static void work_on_jobs(Work *work) {
  for (int i; (i = atomic_fetch_add(&work->next, 1)) < work->n;) {
    Job *job = &work->jobs[i];
    if (!job->is_cached && !atomic_load(&work->is_stopped))
      job->program = nvrtc_run(work->nvrtc, job->text, job->arch);
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
  const char *all = arena_printf(arena, "nvrtc %d %s\n%s", nvrtc_version(nvrtc),
                                 job->arch, job->text);
  hash_hex(all, strlen(all), job->key);
}

static Status finish_module_job(const Nvrtc *nvrtc, Arena *arena,
                                const char *cache_dir, Job *job) {
  if (job->is_cached) return STATUS_OK;
  NvrtcResult result = nvrtc_finish(nvrtc, arena, job->program, job->arch);
  job->program = NULL;
  if (!result.is_compiled)
    return status_make(STATUS_invalid,
                       "an emitted kernel does not compile for %s:\n%.1500s",
                       job->arch, result.log);
  job->image = result.image;
  job->bytes = result.bytes;
  cache_store(arena, cache_dir, job->key, "cubin", result.image, result.bytes);
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

static Job *make_module_jobs(Arena *arena, const Nvrtc *nvrtc,
                             const BuildOptions *options,
                             const char *const *texts, int n_modules,
                             int n_archs, const char *const *archs) {
  Job *jobs = ARENA_ARRAY(arena, Job, n_modules * (n_archs + 1));
  int n = 0;
  for (int m = 0; m < n_modules; m++) {
    for (int a = 0; a <= n_archs; a++) {
      Job *job = &jobs[n++];
      job->module = m;
      job->arch = a < n_archs ? archs[a] : PTX_ARCH;
      job->text = texts[m];
      set_cache_key(arena, nvrtc, job);
      job->is_cached = cache_load(arena, options->cache_dir, job->key, "cubin",
                                  &job->image, &job->bytes);
    }
  }
  return jobs;
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

static const char *image_name(const Job *job) {
  return strcmp(job->arch, PTX_ARCH) == 0 ? "ptx" : job->arch;
}

/* The assembler includes the bytes, which is far quicker than C arrays. */
static void add_image(Text *text, const char *work_dir, const char *part,
                      const Job *job) {
  const char *name = image_name(job);
  text_printf(text,
              "__asm__(\".pushsection .rodata\\n.balign 64\\n\"\n"
              "  \"dnn_%simage_%d_%s:\\n.incbin \\\"%s/%simage-%d-%s\\\"\\n\"\n"
              "  \".byte 0\\n.popsection\");\n"
              "extern const char dnn_%simage_%d_%s[];\n",
              part, job->module, name, work_dir, part, job->module, name, part,
              job->module, name);
}

/* Jobs of one module follow each other, `images` of them. */
static Status write_images(Arena *arena, const char *work_dir, const char *part,
                           const Work *work, int images, DeviceCode *out) {
  Text text = text_create(arena);
  text_add(&text, "#include \"program.h\"\n");
  for (int i = 0; i < work->n; i++) {
    const Job *job = &work->jobs[i];
    const char *path = arena_printf(arena, "%s/%simage-%d-%s", work_dir, part,
                                    job->module, image_name(job));
    TRY(file_replace(path, job->image, job->bytes));
    add_image(&text, work_dir, part, job);
  }
  for (int i = 0; i < work->n; i++) {
    const Job *job = &work->jobs[i];
    if (i % images == 0)
      text_printf(&text, "static const DnnImage dnn_%simages_%d[] = {\n", part,
                  job->module);
    text_printf(&text, "  {\"%s\", dnn_%simage_%d_%s, %llu},\n",
                image_name(job), part, job->module, image_name(job),
                (unsigned long long)job->bytes);
    if (i % images == images - 1) text_add(&text, "};\n");
  }
  text_printf(&text,
              "extern const DnnModule dnn_%smodules[];\n"
              "const DnnModule dnn_%smodules[] = {\n",
              part, part);
  for (int m = 0; m < out->n_modules; m++)
    text_printf(&text, "  {%d, dnn_%simages_%d},\n", images, part, m);
  text_add(&text, "};\n");
  out->modules_text = text_string(&text);
  return STATUS_OK;
}

static Status compile_modules(const Backend *backend, Arena *arena,
                              const Nvrtc *nvrtc, const BuildOptions *options,
                              const char *work_dir, const char *const *texts,
                              int n_modules, DeviceCode *out,
                              bool *out_is_stopped) {
  int n_archs = options->n_archs;
  const char *const *archs = options->archs;
  const char *part = options->part ? options->part : "";
  if (options->part) {
    n_archs = 0; /* the driver compiles the PTX if it is ever run */
  } else if (n_archs == 0) {
    archs = backend->archs;
    while (archs[n_archs]) n_archs++;
  }
  int images = n_archs + 1;
  Work *work = ARENA_NEW(arena, Work);
  work->nvrtc = nvrtc;
  work->n = n_modules * images;
  work->jobs =
      make_module_jobs(arena, nvrtc, options, texts, n_modules, n_archs, archs);
  *out_is_stopped = !run_module_jobs(work, options);
  if (*out_is_stopped) return status_make(STATUS_unavailable, "stopped");
  Status status = STATUS_OK;
  for (int i = 0; i < work->n; i++) { /* all of them: programs are freed */
    Status one =
        finish_module_job(nvrtc, arena, options->cache_dir, &work->jobs[i]);
    if (status.code == STATUS_ok) status = one;
    out->cached += work->jobs[i].is_cached;
    if (options->progress) options->progress(options->user, i + 1, work->n);
  }
  out->files += work->n;
  if (status.code != STATUS_ok) return status;
  out->n_modules = n_modules;
  return write_images(arena, work_dir, part, work, images, out);
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
