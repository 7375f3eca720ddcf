/*
 * toolchain.c -- compiles C texts into objects with the system's compiler and
 * links objects into an executable.
 *
 * Several compilers run at a time.  The cache keeps an object under the hash of
 * its text, the flags, the compiler's version and the processor
 * (-march=native).
 */
#include "codegen/host/toolchain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "codegen/host/process.h"
#include "codegen/host/cache.h"

#define OBJECT_LIMIT ((size_t)1 << 30)

/* ---- arguments ---- */

typedef VEC(const char *) Arguments;

/* Adds the words of a text that blanks separate. */
static void add_words(Arena *arena, Arguments *arguments, const char *words) {
  while (*words) {
    size_t n = strcspn(words, " ");
    if (n > 0)
      vec_push(arena, arguments, arena_printf(arena, "%.*s", (int)n, words));
    words += n;
    while (*words == ' ') words++;
  }
}

static const char *const *end_arguments(Arena *arena, Arguments *arguments) {
  vec_push(arena, arguments, NULL);
  return arguments->data;
}

static const char *file_path(Arena *arena, const char *folder, const char *stem,
                             const char *ending) {
  return arena_printf(arena, "%s/%s%s", folder, stem, ending);
}

Status toolchain_write(const char *path, const void *bytes, size_t n) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return status_errno(errno, "cannot write '%s'", path);
  const char *at = bytes;
  while (n > 0) {
    ssize_t written = write(fd, at, n);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      int error = errno;
      close(fd);
      return status_errno(error, "cannot write '%s'", path);
    }
    at += written;
    n -= (size_t)written;
  }
  if (close(fd) != 0) return status_errno(errno, "cannot write '%s'", path);
  return STATUS_OK;
}

static ProcessBounds process_bounds(const BuildOptions *options) {
  return (ProcessBounds){.is_stopped = options->is_stopped,
                         .user = options->user,
                         .limit_s = options->compile_limit_s};
}

/* ---- the cache ---- */

/* The features that -march=native uses: those of the first processor. */
static const char *processor_features(Arena *arena) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  if (!file) return "";
  Text text = text_create(arena);
  char buffer[8192];
  while (fgets(buffer, sizeof buffer, file) && buffer[0] != '\n')
    if (!strncmp(buffer, "model name", 10) || !strncmp(buffer, "flags", 5) ||
        !strncmp(buffer, "Features", 8))
      text_add(&text, buffer);
  fclose(file);
  return text_string(&text);
}

Status toolchain_machine(Arena *arena, const BuildOptions *options,
                         const char *work, const char **out) {
  const char *log = file_path(arena, work, "version", ".txt");
  const char *const arguments[] = {options->cc, "--version", NULL};
  ProcessBounds bounds = process_bounds(options);
  TRY(process_run(arena, arguments, log, &bounds));
  *out = arena_printf(arena, "%s\n%s", process_log(arena, log),
                      processor_features(arena));
  return STATUS_OK;
}

static const char *cache_key(Arena *arena, const CompileJob *job,
                             const char *machine) {
  const char *parts[] = {job->text, job->flags, job->key, machine};
  Text all = text_create(arena);
  for (int i = 0; i < ARRAY_LENGTH(parts); i++)
    text_add_n(&all, parts[i], strlen(parts[i]) + 1);
  char hex[33];
  hash_hex(all.data, all.n, hex);
  return arena_strdup(arena, hex);
}

/* ---- compiling ---- */

struct Compiling {
  Module *module;
  Arena *scratch;
  const BuildOptions *options;
  const char *work;
  CompileJob *jobs;
  int n;
  const char **keys;  /* by job, of its place in the cache */
  int *todo;          /* jobs whose objects the cache has not */
  Process *processes; /* of todo */
  int n_todo, started, ended;
  Status status; /* the first failure */
};

static Status start_job(Compiling *compiling, CompileJob *job, Process *out) {
  Arena *arena = compiling->scratch;
  const BuildOptions *options = compiling->options;
  if (options->is_stopped && options->is_stopped(options->user))
    return status_make(STATUS_unavailable, "stopped");
  const char *source = file_path(arena, compiling->work, job->stem, ".c");
  Arguments arguments = {0};
  TRY(toolchain_write(source, job->text, strlen(job->text)));
  vec_push(arena, &arguments, options->cc);
  add_words(arena, &arguments, job->flags);
  /* The object must not depend on the folder in which it was compiled. */
  vec_push(arena, &arguments,
           arena_printf(arena, "-ffile-prefix-map=%s=.", compiling->work));
  vec_push(arena, &arguments, "-pipe");
  /* The folder of files that `.incbin` names. */
  vec_push(arena, &arguments, "-Xassembler");
  vec_push(arena, &arguments, "-I");
  vec_push(arena, &arguments, "-Xassembler");
  vec_push(arena, &arguments, compiling->work);
  vec_push(arena, &arguments, "-c");
  vec_push(arena, &arguments, source);
  vec_push(arena, &arguments, "-o");
  vec_push(arena, &arguments, job->object);
  return process_start(end_arguments(arena, &arguments),
                       file_path(arena, compiling->work, job->stem, ".log"),
                       out);
}

/* A compiler that says that it has done its work, and has not. */
static Status check_output(const BuildOptions *options, const char *path,
                           const char *what) {
  static const char magic[] = {0x7f, 'E', 'L', 'F'};
  char first[sizeof magic];
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  ssize_t n = fd < 0 ? 0 : read(fd, first, sizeof first);
  if (fd >= 0) close(fd);
  if (n == sizeof first && memcmp(first, magic, sizeof magic) == 0)
    return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "'%s' ended without an error, but %s %s; is it a C "
                     "compiler? CC names another",
                     options->cc, what,
                     fd < 0   ? "is missing"
                     : n == 0 ? "is empty"
                              : "is no object code");
}

static Status finish_job(Compiling *compiling, int index, ProcessEnd end) {
  Arena *arena = compiling->scratch;
  const CompileJob *job = &compiling->jobs[index];
  if (!process_is_ok(end))
    return process_failure(
        arena, compiling->options->cc, arena_printf(arena, "%s.c", job->stem),
        end, file_path(arena, compiling->work, job->stem, ".log"));
  const char *bytes;
  size_t n;
  TRY(check_output(compiling->options, job->object,
                   arena_printf(arena, "the object of '%s.c'", job->stem)));
  TRY(file_read(arena, job->object, OBJECT_LIMIT, &bytes, &n));
  cache_store(arena, compiling->options->cache_dir, compiling->keys[index], "o",
              bytes, n);
  return STATUS_OK;
}

/* Starts as many jobs as may run at a time; after a failure none is started. */
static void start_jobs(Compiling *compiling) {
  int limit = compiling->options->jobs > 0 ? compiling->options->jobs : 1;
  while (compiling->started < compiling->n_todo &&
         compiling->started - compiling->ended < limit &&
         compiling->status.code == STATUS_ok) {
    int at = compiling->started;
    compiling->status =
        start_job(compiling, &compiling->jobs[compiling->todo[at]],
                  &compiling->processes[at]);
    if (compiling->status.code == STATUS_ok) compiling->started++;
  }
}

static Status take_from_cache(Compiling *compiling, int *out_cached) {
  Arena *arena = compiling->scratch;
  const BuildOptions *options = compiling->options;
  compiling->keys = ARENA_ARRAY(arena, const char *, compiling->n);
  compiling->todo = ARENA_ARRAY(arena, int, compiling->n);
  compiling->processes = ARENA_ARRAY(arena, Process, compiling->n);
  for (int i = 0; i < compiling->n; i++) {
    CompileJob *job = &compiling->jobs[i];
    const void *bytes;
    size_t n_bytes;
    job->object =
        file_path(compiling->module->arena, compiling->work, job->stem, ".o");
    compiling->keys[i] = cache_key(arena, job, options->machine);
    if (cache_load(arena, options->cache_dir, compiling->keys[i], "o", &bytes,
                   &n_bytes)) {
      TRY(toolchain_write(job->object, bytes, n_bytes));
      (*out_cached)++;
    } else {
      compiling->todo[compiling->n_todo++] = i;
    }
  }
  return STATUS_OK;
}

Compiling *toolchain_start(Module *module, const BuildOptions *options,
                           const char *work, CompileJob *jobs, int n,
                           int *out_cached) {
  Compiling *compiling = ARENA_NEW(module->arena, Compiling);
  *compiling = (Compiling){.module = module,
                           .scratch = arena_create(module->memory),
                           .options = options,
                           .work = work,
                           .jobs = jobs,
                           .n = n};
  compiling->status = take_from_cache(compiling, out_cached);
  start_jobs(compiling);
  return compiling;
}

Status toolchain_finish(Compiling *compiling) {
  const BuildOptions *options = compiling->options;
  ProcessBounds bounds = process_bounds(options);
  while (compiling->ended < compiling->started) {
    int index;
    ProcessEnd end;
    TRY(process_wait_any(compiling->processes, compiling->started, &bounds,
                         &index, &end));
    compiling->ended++;
    Status finished = finish_job(compiling, compiling->todo[index], end);
    if (compiling->status.code == STATUS_ok) compiling->status = finished;
    start_jobs(compiling);
    if (options->progress)
      options->progress(options->user, compiling->ended, compiling->n_todo);
  }
  arena_destroy(compiling->scratch);
  return compiling->status;
}

Status toolchain_link(Module *module, const BuildOptions *options,
                      const char *work, const char *const *objects, int n,
                      const char *program) {
  Arena *arena = module->arena;
  if (!options->runtime_archive)
    return status_make(STATUS_unavailable,
                       "this dnnc carries no runtime: build it with CMake");
  const char *archive = file_path(arena, work, "libdnnrank", ".a");
  TRY(toolchain_write(archive, options->runtime_archive,
                      options->runtime_bytes));
  Arguments arguments = {0};
  vec_push(arena, &arguments, options->cc);
  for (int i = 0; i < n; i++) vec_push(arena, &arguments, objects[i]);
  vec_push(arena, &arguments, archive);
  add_words(arena, &arguments, "-fopenmp -lm -ldl -lpthread -o");
  vec_push(arena, &arguments, program);
  ProcessBounds bounds = process_bounds(options);
  TRY(process_run(arena, end_arguments(arena, &arguments),
                  file_path(arena, work, "link", ".log"), &bounds));
  return check_output(options, program, "the program of the bundle");
}

/* ---- folders ---- */

void toolchain_remove(Arena *arena, const char *path) {
  struct stat info;
  if (lstat(path, &info) != 0) return;
  if (!S_ISDIR(info.st_mode)) {
    unlink(path);
    return;
  }
  DIR *folder = opendir(path);
  if (!folder) return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    toolchain_remove(arena, file_path(arena, path, entry->d_name, ""));
  }
  closedir(folder);
  rmdir(path);
}
