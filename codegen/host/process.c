/*
 * process.c -- starts compilers, several at a time, and sends their output to
 * files.
 */
#include "codegen/host/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOG_LIMIT  3000    /* bytes of a compiler's output in a message */
#define FULL_BYTES 1048576 /* fewer left: full, cc removed its output */

#define GRACE_NS   200000000 /* from SIGTERM to SIGKILL */
#define LOOK_NS    1000000   /* between two polls of the children */

extern char **environ;

static int64_t clock_now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* ---- starting ---- */

/* A process group of its own, so that the children of the compiler can be ended
 * too. */
static int spawn_group(const posix_spawn_file_actions_t *actions,
                       const char *const *arguments, pid_t *out_pid) {
  posix_spawnattr_t attributes;
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGXFSZ); /* which we ignore */
  int error = posix_spawnattr_init(&attributes);
  if (error) return error;
  error = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
                                                    POSIX_SPAWN_SETSIGDEF);
  if (!error) error = posix_spawnattr_setsigdefault(&attributes, &defaults);
  if (!error)
    error = posix_spawn(out_pid, arguments[0], actions, &attributes,
                        (char *const *)(uintptr_t)arguments, environ);
  posix_spawnattr_destroy(&attributes);
  return error;
}

Status process_start(const char *const *arguments, const char *log,
                     Process *out) {
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (!error)
    error = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO,
                                             "/dev/null", O_RDONLY, 0);
  if (!error)
    error = posix_spawn_file_actions_addopen(
        &actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!error)
    error = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO,
                                             STDERR_FILENO);
  if (!error) error = spawn_group(&actions, arguments, &out->pid);
  posix_spawn_file_actions_destroy(&actions);
  out->started_ns = clock_now_ns();
  return error ? status_errno(error, "cannot start %s", arguments[0])
               : STATUS_OK;
}

/* ---- waiting ---- */

static ProcessEnd process_end(int state) {
  if (WIFSIGNALED(state))
    return (ProcessEnd){PROCESS_signaled, WTERMSIG(state)};
  return (ProcessEnd){PROCESS_exited, WEXITSTATUS(state)};
}

/* Returns whether the process has ended; its pid is then 0. */
static bool reap_process(Process *process, ProcessEnd *out_end,
                         int *out_error) {
  int state = 0;
  pid_t ended = waitpid(process->pid, &state, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return false;
  if (ended < 0) *out_error = errno;
  *out_end = process_end(state);
  process->pid = 0;
  return true;
}

static void sleep_between_looks(void) {
  nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
}

/* Ends compilers with their children: SIGTERM first, so that they can remove
 * their temporary files. */
static void kill_processes(Process *processes, int n) {
  int64_t begin = clock_now_ns();
  int n_left = 0, error = 0;
  ProcessEnd end;
  for (int i = 0; i < n; i++)
    if (processes[i].pid) n_left++, kill(-processes[i].pid, SIGTERM);
  for (bool is_killed = false; n_left > 0; sleep_between_looks()) {
    bool is_time = !is_killed && clock_now_ns() - begin > GRACE_NS;
    is_killed |= is_time;
    for (int i = 0; i < n; i++) {
      if (!processes[i].pid) continue;
      if (is_time) kill(-processes[i].pid, SIGKILL);
      pid_t group = processes[i].pid;
      if (!reap_process(&processes[i], &end, &error)) continue;
      kill(-group, SIGKILL); /* its children */
      n_left--;
    }
  }
}

static bool is_over_limit(const Process *process, const ProcessBounds *bounds) {
  return bounds->limit_s > 0 &&
         (clock_now_ns() - process->started_ns) / 1000000000 >= bounds->limit_s;
}

/* Waiting for any child would also take children of other code, so the
 * processes are polled one by one, every few milliseconds. */
Status process_wait_any(Process *processes, int n, const ProcessBounds *bounds,
                        int *out_index, ProcessEnd *out_end) {
  for (;; sleep_between_looks()) {
    if (bounds->is_stopped && bounds->is_stopped(bounds->user)) {
      kill_processes(processes, n);
      return status_make(STATUS_unavailable, "stopped");
    }
    for (int i = 0; i < n; i++) {
      int error = 0;
      if (!processes[i].pid) continue;
      *out_index = i;
      if (reap_process(&processes[i], out_end, &error))
        return error ? status_errno(error, "cannot wait for a compiler")
                     : STATUS_OK;
      if (!is_over_limit(&processes[i], bounds)) continue;
      kill_processes(&processes[i], 1);
      *out_end = (ProcessEnd){PROCESS_late, bounds->limit_s};
      return STATUS_OK;
    }
  }
}

/* ---- logs ---- */

/* On a full disk a compiler cannot write the reason of its failure. */
static const char *empty_log_reason(Arena *arena, const char *log) {
  struct statvfs info;
  int n = (int)(strrchr(log, '/') - log);
  const char *folder = arena_printf(arena, "%.*s", n, log);
  if (statvfs(folder, &info) == 0 && info.f_bavail * info.f_frsize < FULL_BYTES)
    return arena_printf(arena, "no space is left in %s: %llu bytes are free",
                        folder,
                        (unsigned long long)info.f_bavail * info.f_frsize);
  return "it printed nothing";
}

const char *process_log(Arena *arena, const char *log) {
  char *text = arena_alloc(arena, LOG_LIMIT + sizeof "...");
  FILE *file = fopen(log, "r");
  size_t n = file ? fread(text, 1, LOG_LIMIT, file) : 0;
  if (n > 0 && getc(file) != EOF) strcpy(text + n, "...");
  if (file) fclose(file);
  return n > 0 ? text : empty_log_reason(arena, log);
}

/* The log, after a line break, unless it is empty. */
static const char *log_if_any(Arena *arena, const char *log) {
  struct stat info;
  bool has_text = stat(log, &info) == 0 && info.st_size > 0;
  return has_text ? arena_printf(arena, ":\n%s", process_log(arena, log)) : "";
}

Status process_failure(Arena *arena, const char *program, const char *input,
                       ProcessEnd end, const char *log) {
  const char *what =
      input ? arena_printf(arena, "%s, compiling %s,", program, input)
            : program;
  switch (end.kind) {
  case PROCESS_exited: break;
  case PROCESS_signaled:
    return status_make(STATUS_unavailable, "%s was ended by signal %d (%s)%s%s",
                       what, (int)end.number, strsignal((int)end.number),
                       end.number == SIGKILL
                           ? ", which is what happens when memory runs out"
                           : "",
                       log_if_any(arena, log));
  case PROCESS_late:
    return status_make(STATUS_unavailable,
                       "%s had not ended after %lld s and was stopped; "
                       "--compile-timeout SECONDS raises that limit%s",
                       what, (long long)end.number, log_if_any(arena, log));
  }
  return status_make(STATUS_unavailable, "%s failed%s:\n%s", program,
                     input ? " on emitted code" : "", process_log(arena, log));
}

Status process_run(Arena *arena, const char *const *arguments, const char *log,
                   const ProcessBounds *bounds) {
  Process process;
  int index;
  ProcessEnd end;
  TRY(process_start(arguments, log, &process));
  TRY(process_wait_any(&process, 1, bounds, &index, &end));
  if (process_is_ok(end)) return STATUS_OK;
  return process_failure(arena, arguments[0], NULL, end, log);
}
