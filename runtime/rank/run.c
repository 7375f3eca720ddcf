/*
 * run.c -- holds what every part of a run needs: exit codes on which all ranks
 * agree, the end after a failure inside a step, pending signals, scalars, the
 * number and the time of a step.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { MESSAGE = 512 };

int status_exit_code(Status status) {
  if (status.code == STATUS_ok) return EXIT_done;
  if (status.code == STATUS_stopped) return EXIT_stopped;
  return status.code == STATUS_invalid ? EXIT_mistake : EXIT_machine;
}

/* ---- agreement ---- */

typedef struct Report {
  int32_t exit_code;
  char message[MESSAGE];
} Report;

static void print_reports(const Report *reports, int world) {
  int first = 0, n = 0;
  while (first < world && !reports[first].exit_code) first++;
  for (int i = 0; i < world; i++) n += reports[i].exit_code != 0;
  if (first == world) return;
  message_print("error: %s\n", reports[first].message);
  if (n > 1)
    fprintf(stderr, "(rank %d and %d more)\n", first, n - 1);
  else if (world > 1)
    fprintf(stderr, "(rank %d)\n", first);
}

int run_agree(Run *run, Status status) {
  Comm *comm = run->comm;
  Report own = {.exit_code = status_exit_code(status)};
  if (status.message)
    snprintf(own.message, sizeof own.message, "%s", status.message);
  Arena *scratch = arena_create(run->memory);
  Report *all = ARENA_ARRAY(scratch, Report, comm->world);
  Status gathered = comm->gather(comm, &own, sizeof own, all);
  int code = status_exit_code(gathered);
  for (int i = 0; i < comm->world && !code; i++) code = all[i].exit_code;
  if (comm->rank == 0) print_reports(all, comm->world);
  arena_destroy(scratch);
  return code;
}

/* ---- signals, input, scalars ---- */

/* From now on a second signal ends the process at once. */
static void let_signals_through(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigprocmask(SIG_UNBLOCK, &set, NULL);
}

Stop run_pending_stop(Run *run) {
  struct signalfd_siginfo info;
  Stop stop = STOP_none;
  while (read(run->signals, &info, sizeof info) == (ssize_t)sizeof info) {
    Stop asked = info.ssi_signo == SIGUSR1   ? STOP_user1
                 : info.ssi_signo == SIGTERM ? STOP_terminate
                                             : STOP_interrupt;
    if (asked > stop) stop = asked;
  }
  if (stop > STOP_user1) let_signals_through();
  return stop;
}

InputSearch run_search(const Run *run) {
  return (InputSearch){.folder = run->options.data,
                       .model_dir = run->program->model_dir,
                       .follows_links = run->options.follow_links,
                       .signals = &run->read_signals};
}

_Noreturn static void give_up(Run *run, Status status) {
  fflush(stdout);
  message_print("error: %s\n", status.message);
  recorder_report(&run->recorder, "cannot continue");
  recorder_tell(&run->recorder, "ended %d", status_exit_code(status));
  _exit(status_exit_code(status));
}

void run_must(Run *run, Status status) {
  if (status.code != STATUS_ok) give_up(run, status);
}

bool run_read_scalar(Run *run, const DnnTensor *tensor, float *out) {
  if (!tensor) return false;
  double wide;
  bool is_wide = tensor->dtype == DNN_f64;
  run_must(run, run->device->read(run->device, tensor->offset,
                                  is_wide ? (void *)&wide : (void *)out,
                                  is_wide ? 8 : 4));
  if (is_wide) *out = (float)wide;
  return true;
}

bool run_step_failed(const Run *run) {
  if (run->program->is_paced) return false;
  return !isfinite(run->loss) || (run->has_norm && !isfinite(run->norm));
}

/* ---- a step ---- */

void run_write_step(Run *run, int64_t t) {
  const DnnTensor *tensor = program_tensor(run->program, NULL, DNN_STEP);
  if (!tensor) return;
  int32_t narrow = (int32_t)t;
  bool is_wide = tensor->dtype == DNN_i64;
  run_must(run, run->device->write(run->device, tensor->offset,
                                   is_wide ? (void *)&t : (void *)&narrow,
                                   is_wide ? 8 : 4));
}

void run_write_batch(Run *run, int64_t first) {
  run_write_step(run, -1 - first % INT32_MAX);
}

/* Waiting longer than 20 median steps, and a minute, is a hang. */
static const int64_t least_deadline_ns = 60000000000;
enum { MEDIANS_WAITED = 20 };

static int by_value(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

void run_note_time(Run *run, int64_t ns) {
  int64_t sorted[N_TIMES];
  run->times[run->n_times++ % N_TIMES] = ns;
  int64_t n = run->n_times < N_TIMES ? run->n_times : N_TIMES;
  memcpy(sorted, run->times, sizeof(int64_t) * (size_t)n);
  qsort(sorted, (size_t)n, sizeof *sorted, by_value);
  int64_t deadline = sorted[n / 2] * MEDIANS_WAITED;
  atomic_store(&run->recorder.deadline_ns,
               deadline > least_deadline_ns ? deadline : least_deadline_ns);
}
