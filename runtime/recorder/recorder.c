/*
 * watch.c -- what this rank is doing, and the line to the launcher.
 *
 * A run that hangs must say what it hangs on.  The main thread notes every
 * instruction in a ring; whoever finds that a rank is lost prints from it.
 *
 * mpirun closes the descriptors that its children inherit, so pipes cannot be
 * handed down.  The launcher names its process and descriptors in
 * $DNN_LAUNCHER ("HOST:PID:READ:WRITE") and a rank on the same machine opens
 * them under /proc.  The pipe that nobody writes to ends when the launcher
 * does, however that dies.
 */
#include "runtime/recorder/recorder.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int open_of(int pid, int fd, int flags) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
  return open(path, flags | O_CLOEXEC | O_NONBLOCK);
}

void watch_open(Watch *watch, int rank, int local_rank) {
  watch->rank = rank;
  watch->local_rank = local_rank;
  watch->alive_fd = watch->report_fd = -1;
  atomic_store(&watch->code, "start");
  atomic_store(&watch->path, "");
  const char *launcher = getenv("DNN_LAUNCHER");
  char host[256] = "", own[256] = "";
  int pid, alive, report;
  if (!launcher || gethostname(own, sizeof own - 1) != 0 ||
      sscanf(launcher, "%255[^:]:%d:%d:%d", host, &pid, &alive, &report) != 4 ||
      strcmp(host, own) != 0)
    return;
  watch->alive_fd = open_of(pid, alive, O_RDONLY);
  watch->report_fd = open_of(pid, report, O_WRONLY);
  watch_tell(watch, "started %d", (int)getpid());
}

void watch_close(Watch *watch) {
  if (watch->alive_fd >= 0) close(watch->alive_fd);
  if (watch->report_fd >= 0) close(watch->report_fd);
  watch->alive_fd = watch->report_fd = -1;
}

bool watch_launcher_is_gone(const Watch *watch) {
  if (watch->alive_fd < 0) return false;
  struct pollfd item = {.fd = watch->alive_fd, .events = POLLIN};
  return poll(&item, 1, 0) > 0 && (item.revents & (POLLHUP | POLLERR));
}

void watch_tell(const Watch *watch, const char *format, ...) {
  if (watch->report_fd < 0) return;
  char line[160];
  FixedText text = fixed_text(line, sizeof line);
  va_list args;
  va_start(args, format);
  fixed_printf(&text, "%d ", watch->rank);
  fixed_vprintf(&text, format, args);
  va_end(args);
  line[text.n] = '\n'; /* in place of the NUL */
  /* Shorter than PIPE_BUF, so lines of several ranks do not mix. */
  if (write(watch->report_fd, line, text.n + 1) < 0) return;
}

void watch_note(Watch *watch, int64_t step, const char *code, int32_t instr,
                const char *path) {
  uint32_t n = atomic_load_explicit(&watch->n, memory_order_relaxed);
  watch->ring[n % WATCH_RING] = (WatchEntry){step, instr, path};
  atomic_store_explicit(&watch->step, step, memory_order_relaxed);
  atomic_store_explicit(&watch->code, code, memory_order_relaxed);
  atomic_store_explicit(&watch->instr, instr, memory_order_relaxed);
  atomic_store_explicit(&watch->path, path, memory_order_relaxed);
  atomic_store_explicit(&watch->n, n + 1, memory_order_release);
}

void watch_report(const Watch *watch, const char *why) {
  char data[8192];
  FixedText text = fixed_text(data, sizeof data);
  int64_t since = atomic_load(&watch->waits_since);
  fixed_printf(&text, "rank %d: %s\n", watch->rank, why);
  fixed_printf(&text, "rank %d %s at step %lld, instruction %d of %s, '%s'",
               watch->rank, since ? "waits" : "is",
               (long long)atomic_load(&watch->step), atomic_load(&watch->instr),
               atomic_load(&watch->code), atomic_load(&watch->path));
  if (since)
    fixed_printf(&text, ", for %.1f s", (double)(clock_ns() - since) * 1e-9);
  uint32_t written = atomic_load_explicit(&watch->n, memory_order_acquire);
  uint32_t shown = written < 4 ? written : 4;
  for (uint32_t i = written - shown; i + 1 < written; i++) {
    const WatchEntry *entry = &watch->ring[i % WATCH_RING];
    fixed_printf(&text, "%s %d '%s'",
                 i == written - shown ? "; before that" : ",", entry->instr,
                 entry->path);
  }
  data[text.n] = '\n'; /* in place of the NUL */
  if (write(STDERR_FILENO, data, text.n + 1) < 0) return;
}
