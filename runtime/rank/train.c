/*
 * train.c -- runs the training loop of a rank.
 *
 * All ranks do the same in the same order.  They must agree only on when to
 * stop, and they vote on that while each step runs.  A failure inside a step
 * ends the process at once: other ranks may wait in a collective that can never
 * complete, and the transport or the launcher ends them.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Nobody knows yet how long a step takes. */
static const int64_t first_deadline_ns = 1800000000000;

/* ---- scalars ---- */

static const DnnTensor *scale_tensor(const DnnProgram *program) {
  for (int i = 0; i < program->n_tensors; i++)
    if (program->tensors[i].role == DNN_LOSS_SCALE &&
        strcmp(program->tensors[i].path, "loss_scale") == 0)
      return &program->tensors[i];
  return NULL;
}

static void read_results(Run *run) {
  const DnnProgram *program = run->program;
  if (program->is_paced || run->late.are_on) return;
  run_read_scalar(run, program_tensor(program, run->train, DNN_LOSS),
                  &run->loss);
  run->has_norm = run_read_scalar(
      run, program_tensor(program, run->train, DNN_NORM), &run->norm);
  run_read_scalar(run, program_tensor(program, run->train, DNN_RATE),
                  &run->rate);
  run->scale = 0;
  run_read_scalar(run, scale_tensor(program), &run->scale);
}

/* ---- a step ---- */

/* The batch after step t, while the device computes t.  From now on a signal
 * ends no read: there is a step to save. */
static void read_ahead(Run *run, int64_t t) {
  if (!device_runs_behind(run->device) || t == run->last) return;
  run->read_signals = 0;
  data_read_ahead(run->data, run->device, run->train, t + 1);
}

/* A server runs its update when it has the gradients. */
static void run_own_part(Run *run, int64_t t, bool reads_on) {
  bool is_worker =
      !run->servers || run->comm->rank < run->program->first_server;
  if (is_worker) {
    run_must(run, exec_start(run->exec, run->train, t));
    if (reads_on) read_ahead(run, t);
    run_must(run, exec_finish(run->exec));
  }
  if (run->servers) servers_step(run, t);
}

/* A rank whose data is wrong says so in the vote, so that all end together;
 * *out_data is why.  The results of that step are not used. */
static int64_t one_step(Run *run, int64_t t, Status *out_data) {
  int64_t begin = clock_ns();
  *out_data = data_fill_train(run->data, run->device, run->train, t);
  bool is_good = out_data->code == STATUS_ok;
  run_write_step(run, t);
  CommVote vote =
      late_results_vote(run, is_good ? run_pending_stop(run) : STOP_failed);
  run_must(run, run->comm->vote_start(run->comm, &vote));
  run_own_part(run, t, is_good);
  read_results(run);
  run_must(run, run->comm->vote_wait(run->comm, &vote));
  run->stop = (Stop)vote.greatest;
  late_results_take(run, &vote);
  int64_t ns = clock_ns() - begin;
  run_note_time(run, ns);
  return ns;
}

/* The failed step has halved a dynamic scale. */
static void take_scale_back(Run *run) {
  const DnnTensor *tensor = scale_tensor(run->program);
  float scale = run->scale * 2;
  if (tensor)
    run_must(run, run->device->write(run->device, tensor->offset, &scale,
                                     sizeof scale));
}

/* The update did not happen, so the same step can be run again with a check of
 * every result.  NULL: all are finite. */
static const char *find_not_finite(Run *run, Arena *arena, int64_t t) {
  const DnnValue *value;
  run_must(run, data_fill_train(run->data, run->device, run->train, t));
  run_write_step(run, t);
  take_scale_back(run);
  if (!explain_step(run, t, &value)) return explain_launches(run, arena, t);
  if (value) return explain_place(arena, value, run->n_times > 1 ? t - 1 : 0);
  return isfinite(run->loss) ? "the norm of all gradients" : NULL;
}

static int explain_not_finite(Run *run, int64_t t) {
  Arena *arena = arena_create(run->memory);
  const char *where = find_not_finite(run, arena, t);
  const char *what = isfinite(run->loss) ? "gradient norm" : "loss";
  fflush(stdout);
  if (run->comm->rank == 0 && scale_tensor(run->program))
    fprintf(stderr, "error: step %lld: the loss scale fell below 1\n",
            (long long)t);
  if (run->comm->rank == 0 && where)
    message_print("error: step %lld: the %s is not finite; the first value "
                  "that is not is in %s\n"
                  "help: %s, or check its inputs\n",
                  (long long)t, what, where,
                  run->program->settings.is_checked
                      ? "--checked turns an index out of range into NaN"
                      : "lower the learning rate, clip the gradients");
  else if (run->comm->rank == 0)
    message_print("error: step %lld: the %s is not finite\n", (long long)t,
                  what);
  arena_destroy(arena);
  return EXIT_mistake;
}

/* ---- checkpoints ---- */

typedef struct Saved {
  int32_t was_tried, failed;
  char message[512];
} Saved;

/* Rank 0 writes, and the others send it the shards that they own. */
static void write_checkpoint(Run *run, Arena *arena, Saved *out) {
  LogicalReader *states =
      logical_reader_create(arena, run->program, run->comm, run->device);
  if (run->comm->rank != 0) {
    run_must(run, logical_serve(states));
    return;
  }
  if (run->saver) {
    Status status = saver_save(run->saver, states, run->done, run->seed);
    out->was_tried = 1;
    out->failed = status.code != STATUS_ok;
    if (status.message)
      snprintf(out->message, sizeof out->message, "%s", status.message);
  }
  run_must(run, logical_end(states));
}

/* All learn how it went. The disk may take its time. */
static int save_checkpoint(Run *run) {
  Saved saved = {0};
  int64_t deadline = atomic_exchange(&run->recorder.deadline_ns, 0);
  recorder_note(&run->recorder, run->done, "save", 0, "checkpoint");
  Arena *scratch = arena_create(run->memory);
  write_checkpoint(run, scratch, &saved);
  arena_destroy(scratch);
  run_must(run, run->comm->broadcast(run->comm, &saved, sizeof saved, 0));
  atomic_store(&run->recorder.deadline_ns, deadline);
  if (!saved.was_tried) return EXIT_done;
  if (!saved.failed) {
    run->saved = run->done;
    run->n_failed_saves = 0;
    return EXIT_done;
  }
  run->n_failed_saves++;
  bool is_end = run->n_failed_saves > 1;
  if (run->comm->rank == 0)
    message_print("%s: %s%s\n", is_end ? "error" : "warning", saved.message,
                  is_end ? "; that was the second time in a row"
                         : "; training continues");
  return is_end ? EXIT_machine : EXIT_done;
}

/* The last checkpoint of a run is tried twice: nobody comes after it. */
static int save_last(Run *run) {
  if (run->saved == run->done || run->done == 0 || run->program->is_paced)
    return EXIT_done;
  int code = save_checkpoint(run);
  if (!code && run->n_failed_saves > 0) code = save_checkpoint(run);
  return code;
}

/* ---- the loop ---- */

static bool is_due(int64_t every, int64_t t) {
  return every > 0 && t % every == 0;
}

/* Reports a step, or keeps it to be reported.  Result: exit code. */
static int end_step(Run *run, int64_t t, int64_t ns) {
  /* A dynamic loss scale has skipped the step and halved itself. */
  if (!run->late.are_on && run_step_failed(run) && run->scale < 1)
    return explain_not_finite(run, t);
  run->done = t;
  run->read_signals = 0;
  if (run->late.are_on)
    late_results_keep(run, t, ns);
  else
    report_step(run, t, ns);
  return EXIT_done;
}

/* Compares, evaluates and saves after a step, at the end of which nothing is
 * under way.  Result: exit code. */
static int after_step(Run *run, bool evaluates, bool saves) {
  bool is_lowest = false;
  int code = evaluates || saves ? replicas_compare(run) : EXIT_done;
  if (!code && evaluates) code = run_evaluate(run);
  if (!code && evaluates) code = best_note(run, true, &is_lowest);
  bool saves_best = is_lowest && run->program->settings.save_best;
  if (!code && (saves || saves_best)) code = save_checkpoint(run);
  if (!code && saves_best) code = best_point(run);
  return code;
}

/* The evaluation after the last step. */
static int evaluate_last(Run *run) {
  bool is_lowest = false, is_made = run->evaluated != run->done;
  int code = run_evaluate(run);
  if (!code && is_made)
    code = best_note(run, run->done == run->total, &is_lowest);
  return !code && is_lowest ? best_point(run) : code;
}

/* Steps without a flush between them, from one evaluation or checkpoint to the
 * next.  Result: exit code. */
static int train_rounds(Run *run) {
  const DnnSettings *settings = &run->program->settings;
  while (run->done < run->last && !run->stop) {
    int64_t end = run->last;
    int64_t every[] = {settings->eval_every, settings->save_every};
    for (int i = 0; i < ARRAY_LENGTH(every); i++) {
      int64_t next = every[i] > 0 ? (run->done / every[i] + 1) * every[i] : end;
      if (next < end) end = next;
    }
    int code = run->servers ? servers_train(run, end) : periods_train(run, end);
    if (code) return code;
    code =
        after_step(run, is_due(settings->eval_every, run->done) && !run->stop,
                   is_due(settings->save_every, run->done));
    if (code) return code;
  }
  return EXIT_done;
}

/* Result: exit code. */
static int train_steps(Run *run) {
  const DnnSettings *settings = &run->program->settings;
  bool has_staleness = run->servers && run->program->staleness != 0;
  if (run->train->periods || has_staleness) return train_rounds(run);
  for (int64_t t = run->done + 1; t <= run->last && !run->stop; t++) {
    Status data;
    int64_t ns = one_step(run, t, &data);
    int code = late_results_report(run);
    if (!code && run->stop == STOP_failed) return run_agree(run, data);
    if (!code) code = end_step(run, t, ns);
    bool evaluates = is_due(settings->eval_every, t) && !run->stop;
    bool saves = is_due(settings->save_every, t) && !run->program->is_paced;
    bool ends = t == run->last || run->stop;
    if (!code && (evaluates || saves || ends)) code = late_results_settle(run);
    if (!code) code = after_step(run, evaluates, saves);
    if (code) return code;
  }
  return EXIT_done;
}

static int stop_code(const Run *run) {
  if (run->stop == STOP_terminate) return 143;
  return run->stop == STOP_interrupt ? 130 : EXIT_done;
}

/* A run that is stopped keeps what it has measured. */
static int write_profiles(Run *run) {
  if (!run->profiler) return EXIT_done;
  Arena *scratch = arena_create(run->memory);
  Status status =
      profiler_write(run->profiler, scratch, run->device, run->comm,
                     run->bundle, run->options.profile, run->options.transfers);
  int code = run_agree(run, status);
  arena_destroy(scratch);
  return code;
}

int run_train(Run *run) {
  atomic_store(&run->recorder.deadline_ns, first_deadline_ns);
  servers_fill(run);
  int code = best_is_behind(run) ? after_step(run, true, false) : EXIT_done;
  if (!code) code = train_steps(run);
  if (!code) code = servers_close(run);
  if (!code) code = write_profiles(run);
  if (!code) code = replicas_compare(run);
  if (code) return code;
  code = save_last(run);
  if (code) return code;
  if (run->stop && run->comm->rank == 0)
    message_print("stopped after step %lld%s%s\n", (long long)run->done,
                  run->saved == run->done ? "; checkpoint in " : "",
                  run->saved == run->done ? run->program->settings.save : "");
  if (run->stop) return stop_code(run);
  code = evaluate_last(run);
  if (!code) best_report(run);
  return code ? code : report_end(run);
}
