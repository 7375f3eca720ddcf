/*
 * daemon.c -- ends the mpirun or orted above a rank that cannot continue.
 *
 * Over several machines mpirun waits for the daemons of all of them, and a
 * daemon waits for mpirun, forever if the link between them is cut.  So a rank
 * that cannot continue leaves a process that gives its parent a moment to end
 * by itself, and then kills it and the processes it has started (ssh), and
 * removes the folder that it would have removed.  On one machine mpirun ends by
 * itself.
 */
#include "runtime/comm/mpi.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GRACE_MS = 500, DEAD_MS = 1000, RANK_MS = 5000, MOST_CHILDREN = 4096 };

/* Reads a file of /proc/PID: the name of the process or its children. */
static size_t read_proc(pid_t pid, const char *what, char *to, size_t size) {
  char path[80];
  snprintf(path, sizeof path, what, (int)pid, (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, to, size - 1) : 0;
  if (fd >= 0) close(fd);
  to[n > 0 ? n : 0] = '\0';
  return n > 0 ? (size_t)n : 0;
}

static bool is_daemon(pid_t pid) {
  static const char *const names[] = {"mpirun\n", "mpiexec\n", "orterun\n",
                                      "orted\n",  "prte\n",    "prterun\n",
                                      "prted\n"};
  char name[64];
  read_proc(pid, "/proc/%d/comm", name, sizeof name);
  for (int i = 0; i < ARRAY_LENGTH(names); i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static int remove_one(const char *path, const struct stat *info, int kind,
                      struct FTW *walk) {
  (void)info, (void)kind, (void)walk;
  remove(path);
  return 0;
}

/* /tmp/ompi.HOST.UID/jf.NUMBER (of mpirun: pid.NUMBER), and what holds it if
 * that is empty then. */
static void remove_session(void) {
  const char *own = getenv("OMPI_MCA_orte_jobfam_session_dir");
  const char *all = getenv("OMPI_MCA_orte_top_session_dir");
  const char *name = own ? strrchr(own, '/') : NULL;
  struct stat info;
  if (!all || !name || lstat(own, &info) != 0 || info.st_uid != getuid() ||
      (strncmp(name, "/jf.", 4) != 0 && strncmp(name, "/pid.", 5) != 0))
    return;
  nftw(own, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
  rmdir(all);
}

/* In a process of its own. */
_Noreturn static void wait_and_kill(pid_t parent, int process, int rank) {
  char children[MOST_CHILDREN * 8];
  struct pollfd item = {.fd = process, .events = POLLIN};
  setsid();
  /* A process that reads these would wait for this one. */
  for (int i = 0; i <= STDERR_FILENO; i++) close(i);
  struct pollfd own = {.fd = rank, .events = POLLIN};
  poll(&own, 1, RANK_MS);
  if (poll(&item, 1, GRACE_MS) != 0) {
    remove_session(); /* some end without that */
    _exit(0);
  }
  read_proc(parent, "/proc/%d/task/%d/children", children, sizeof children);
  syscall(SYS_pidfd_send_signal, process, SIGKILL, NULL, 0);
  for (char *at = children, *end;; at = end) {
    long child = strtol(at, &end, 10);
    if (end == at) break;
    if (child > 1) kill((pid_t)child, SIGKILL);
  }
  poll(&item, 1, DEAD_MS);
  remove_session();
  _exit(0);
}

void mpi_end_daemon(const RankPlace *place) {
  pid_t parent = getppid();
  if (place->local_world >= place->world || parent <= 1 || !is_daemon(parent))
    return;
  int process = (int)syscall(SYS_pidfd_open, parent, 0);
  int rank = (int)syscall(SYS_pidfd_open, getpid(), 0);
  if (process >= 0 && rank >= 0 && fork() == 0)
    wait_and_kill(parent, process, rank);
  if (process >= 0) close(process);
  if (rank >= 0) close(rank);
}
