/*
 * child.c -- runs a program and waits for it, for a limited time.
 *
 * A child leads a process group.  It is asked to end with SIGTERM; a second one
 * tells a launcher to end its ranks at once instead of after their step.  A
 * child that still runs then is killed with all of its group, and so is one
 * whose parent is killed: a launcher's ranks notice its death.
 */
#include "tools/commands/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { POLL_MS = 20, ASK_MS = 200, GRACE_MS = 1200 };

/* Variables of a launcher: a child that has them would join its job. */
static bool is_of_job(const char *variable) {
  static const char *const prefixes[] = {"OMPI_", "PMIX_", "PMI_",
                                         "PRTE_", "ORTE_", "SLURM_"};
  for (int i = 0; i < ARRAY_LENGTH(prefixes); i++)
    if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0) return true;
  return false;
}

static char **environment_without_job(Arena *arena) {
  VEC(char *) kept = {0};
  for (int i = 0; environ[i]; i++)
    if (!is_of_job(environ[i])) vec_push(arena, &kept, environ[i]);
  vec_push(arena, &kept, NULL);
  return kept.data;
}

static void redirect(const char *path, int to) {
  int fd =
      open(path ? path : "/dev/null",
           to == STDIN_FILENO ? O_RDONLY : O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd >= 0 && fd != to) {
    dup2(fd, to);
    close(fd);
  }
}

/* Reached in the child alone. */
static _Noreturn void become(pid_t parent, const char *program,
                             char *const *words, char *const *environment,
                             const Child *child) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127); /* it was killed before this */
  setpgid(0, 0);
  for (int number = 1; number < 32; number++) signal(number, SIG_DFL);
  redirect(NULL, STDIN_FILENO);
  redirect(child->out, STDOUT_FILENO);
  redirect(child->err, STDERR_FILENO);
  execve(program, words, environment);
  _exit(127);
}

int64_t child_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int exit_code(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : CHILD_failed;
}

static bool has_ended(pid_t pid, int *out_status) {
  pid_t ended;
  do ended = waitpid(pid, out_status, WNOHANG);
  while (ended < 0 && errno == EINTR);
  return ended != 0;
}

static void pause_ms(int ms) {
  struct timespec time = {0, ms * 1000000L};
  nanosleep(&time, NULL);
}

/* Returns whether it has ended before so much time is over. */
static bool ends_within(pid_t pid, int64_t ms) {
  int status;
  for (int64_t until = child_now_ms() + ms; child_now_ms() < until;) {
    if (has_ended(pid, &status)) return true;
    pause_ms(POLL_MS);
  }
  return false;
}

static void end_child(pid_t pid) {
  int status;
  kill(pid, SIGTERM);
  if (ends_within(pid, ASK_MS)) return;
  kill(pid, SIGTERM);
  if (ends_within(pid, GRACE_MS)) return;
  kill(-pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
}

int child_run(Arena *arena, const char *program, const Child *child) {
  VEC(char *) words = {0};
  vec_push(arena, &words, arena_strdup(arena, program ? program : "dnnc"));
  if (!program) program = "/proc/self/exe";
  for (int i = 0; i < child->n_words; i++)
    vec_push(arena, &words, arena_strdup(arena, child->words[i]));
  vec_push(arena, &words, NULL);
  char **environment =
      child->is_alone ? environment_without_job(arena) : environ;
  if (child->limit_ms <= 0) return CHILD_late;
  int64_t until = child_now_ms() + child->limit_ms;
  pid_t parent = getpid(), pid = fork();
  if (pid < 0) return CHILD_failed;
  if (pid == 0) become(parent, program, words.data, environment, child);
  for (int status;;) {
    if (has_ended(pid, &status)) return exit_code(status);
    bool is_stopped = child->is_stopped && child->is_stopped();
    if (is_stopped || child_now_ms() > until) {
      end_child(pid);
      return is_stopped ? CHILD_stopped : CHILD_late;
    }
    pause_ms(POLL_MS);
  }
}
