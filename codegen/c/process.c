/*
 * process.c -- starting compilers, several at a time, with what they print
 * kept in files.
 */
#include "codegen/c/process.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LOG_LIMIT  3000   /* bytes of a compiler's output in a message */
#define FULL_BYTES 131072 /* a disk with fewer left is full */

extern char **environ;

Status process_start(const char *const *arguments, const char *log,
                     pid_t *out_pid) {
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (!error)
    error = posix_spawn_file_actions_addopen(
        &actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (!error)
    error = posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO,
                                             STDERR_FILENO);
  if (!error)
    error = posix_spawn(out_pid, arguments[0], &actions, NULL,
                        (char *const *)(uintptr_t)arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error ? status_errno(error, "cannot start %s", arguments[0])
               : STATUS_OK;
}

/* Waiting for any child would also take those of others, so ours are asked one
 * by one, every few milliseconds. */
Status process_wait_any(pid_t *pids, int n, int *out_index, bool *out_ok) {
  for (;;) {
    for (int i = 0; i < n; i++) {
      if (pids[i] == 0) continue;
      int state = 0;
      pid_t ended = waitpid(pids[i], &state, WNOHANG);
      if (ended == 0 || (ended < 0 && errno == EINTR)) continue;
      if (ended < 0) return status_errno(errno, "cannot wait for a child");
      pids[i] = 0;
      *out_index = i;
      *out_ok = WIFEXITED(state) && WEXITSTATUS(state) == 0;
      return STATUS_OK;
    }
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
}

/* A compiler on a full disk cannot even write down why it failed. */
static const char *silent_reason(Arena *arena, const char *log) {
  struct statvfs info;
  int n = (int)(strrchr(log, '/') - log);
  const char *folder = arena_printf(arena, "%.*s", n, log);
  if (statvfs(folder, &info) == 0 && info.f_bavail * info.f_frsize < FULL_BYTES)
    return arena_printf(arena, "no space is left in %s", folder);
  return "it printed nothing";
}

const char *process_log(Arena *arena, const char *log) {
  char *text = arena_alloc(arena, LOG_LIMIT + sizeof "...");
  FILE *file = fopen(log, "r");
  size_t n = file ? fread(text, 1, LOG_LIMIT, file) : 0;
  if (n > 0 && getc(file) != EOF) strcpy(text + n, "...");
  if (file) fclose(file);
  return n > 0 ? text : silent_reason(arena, log);
}

Status process_run(Arena *arena, const char *const *arguments,
                   const char *log) {
  pid_t pid;
  int index;
  bool is_ok;
  TRY(process_start(arguments, log, &pid));
  TRY(process_wait_any(&pid, 1, &index, &is_ok));
  if (is_ok) return STATUS_OK;
  return status_make(STATUS_unavailable, "%s failed:\n%s", arguments[0],
                     process_log(arena, log));
}
