/*
 * recorder.c -- records what this rank does, and reports to the launcher.
 *
 * A run that hangs must say where.  The main thread notes every instruction in
 * the flight recorder; the thread that finds a lost rank prints from it.
 *
 * mpirun closes the descriptors that its children inherit, so pipes cannot be
 * inherited.  The launcher names its process and descriptors in $DNN_LAUNCHER
 * ("HOST:PID:READ:WRITE") and a rank on the same machine opens them under
 * /proc. The first pipe ends when the launcher does, however that dies; the
 * launcher writes to it when it has lost a rank.
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

void recorder_open(FlightRecorder *recorder, int rank, int local_rank) {
  recorder->rank = rank;
  recorder->local_rank = local_rank;
  recorder->alive_fd = recorder->report_fd = -1;
  atomic_store(&recorder->entry, "start");
  atomic_store(&recorder->path, "");
  const char *launcher = getenv("DNN_LAUNCHER");
  char host[256] = "", own[256] = "";
  int pid, alive, report;
  if (!launcher || gethostname(own, sizeof own - 1) != 0 ||
      sscanf(launcher, "%255[^:]:%d:%d:%d", host, &pid, &alive, &report) != 4 ||
      strcmp(host, own) != 0)
    return;
  recorder->alive_fd = open_of(pid, alive, O_RDONLY);
  recorder->report_fd = open_of(pid, report, O_WRONLY);
  recorder_tell(recorder, "started %d", (int)getpid());
}

void recorder_close(FlightRecorder *recorder) {
  if (recorder->alive_fd >= 0) close(recorder->alive_fd);
  if (recorder->report_fd >= 0) close(recorder->report_fd);
  recorder->alive_fd = recorder->report_fd = -1;
}

static bool has_event(const FlightRecorder *recorder, int events) {
  if (recorder->alive_fd < 0) return false;
  struct pollfd item = {.fd = recorder->alive_fd, .events = POLLIN};
  return poll(&item, 1, 0) > 0 && (item.revents & events);
}

bool recorder_launcher_is_gone(const FlightRecorder *recorder) {
  return has_event(recorder, POLLHUP | POLLERR);
}

/* Nobody reads what the launcher has written, so that all ranks see it. */
bool recorder_is_asked(const FlightRecorder *recorder) {
  return has_event(recorder, POLLIN);
}

void recorder_tell(const FlightRecorder *recorder, const char *format, ...) {
  if (recorder->report_fd < 0) return;
  char line[1024];
  FixedText text = fixed_text(line, sizeof line);
  va_list args;
  va_start(args, format);
  fixed_printf(&text, "%d ", recorder->rank);
  fixed_vprintf(&text, format, args);
  va_end(args);
  line[text.n] = '\n'; /* in place of the NUL */
  /* Shorter than PIPE_BUF, so lines of several ranks do not mix. */
  if (write(recorder->report_fd, line, text.n + 1) < 0) return;
}

void recorder_note(FlightRecorder *recorder, int64_t step, const char *entry,
                   int32_t instr, const char *path) {
  uint32_t n = atomic_load_explicit(&recorder->n, memory_order_relaxed);
  recorder->entries[n % RECORDER_ENTRIES] = (RecorderEntry){step, instr, path};
  atomic_store_explicit(&recorder->step, step, memory_order_relaxed);
  atomic_store_explicit(&recorder->entry, entry, memory_order_relaxed);
  atomic_store_explicit(&recorder->instr, instr, memory_order_relaxed);
  atomic_store_explicit(&recorder->path, path, memory_order_relaxed);
  atomic_store_explicit(&recorder->n, n + 1, memory_order_release);
}

void recorder_note_microbatch(FlightRecorder *recorder, int32_t microbatch) {
  atomic_store_explicit(&recorder->microbatch, microbatch + 1,
                        memory_order_relaxed);
}

void recorder_describe(const FlightRecorder *recorder, FixedText *text) {
  int64_t since = atomic_load(&recorder->waits_since);
  int32_t microbatch = atomic_load(&recorder->microbatch);
  fixed_printf(text, "rank %d", recorder->rank);
  if (recorder->stages) fixed_printf(text, " (%s)", recorder->stages);
  fixed_printf(text, " %s at step %lld, instruction %d of %s",
               since ? "waits" : "is", (long long)atomic_load(&recorder->step),
               atomic_load(&recorder->instr), atomic_load(&recorder->entry));
  if (microbatch > 0) fixed_printf(text, " in micro-batch %d", microbatch - 1);
  fixed_printf(text, ", '%s'", atomic_load(&recorder->path));
  if (since)
    fixed_printf(text, ", for %.1f s", (double)(clock_ns() - since) * 1e-9);
}

void recorder_describe_past(const FlightRecorder *recorder, FixedText *text) {
  uint32_t written = atomic_load_explicit(&recorder->n, memory_order_acquire);
  uint32_t shown = written < 4 ? written : 4;
  for (uint32_t i = written - shown; i + 1 < written; i++) {
    const RecorderEntry *entry = &recorder->entries[i % RECORDER_ENTRIES];
    fixed_printf(text, "%s %d '%s'",
                 i == written - shown ? "; before that" : ",", entry->instr,
                 entry->path);
  }
}

void recorder_report(const FlightRecorder *recorder, const char *why) {
  char data[8192];
  FixedText text = fixed_text(data, sizeof data);
  fixed_printf(&text, "rank %d: %s\n", recorder->rank, why);
  recorder_describe(recorder, &text);
  recorder_describe_past(recorder, &text);
  data[text.n] = '\n'; /* in place of the NUL */
  if (write(STDERR_FILENO, data, text.n + 1) < 0) return;
}
