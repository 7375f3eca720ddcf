/*
 * evaluate.c -- evaluates the model: the loss and the metrics over all
 * evaluation data, in full batches and a remainder.
 */
#include "runtime/rank/run.h"

#include <stdio.h>
#include <unistd.h>

/* A line that is overwritten, on a terminal only. */
static void show_progress(const Run *run, int64_t at, int64_t n) {
  if (run->comm->rank != 0 || run->options.quiet || !isatty(STDERR_FILENO))
    return;
  if (at < n)
    fprintf(stderr, "\revaluating %lld/%lld", (long long)at, (long long)n);
  else
    fprintf(stderr, "\r%40s\r", "");
}

/* A batch; where the data of a rank is wrong, the evaluation fails on all. */
static void evaluate_batch(Run *run, const DnnEntryPoint *entry, int64_t first,
                           bool is_random) {
  Status data = data_fill_eval(run->data, run->device, entry, first, is_random);
  CommVote vote = {data.code == STATUS_ok ? STOP_none : STOP_failed, {0}};
  run_must(run, run->comm->vote_start(run->comm, &vote));
  run_must(run, states_fill_batch_rows(run, entry, true));
  run_write_batch(run, first);
  run_must(run, exec_run(run->exec, entry, run->done));
  run_must(run, run->comm->vote_wait(run->comm, &vote));
  if (vote.greatest == STOP_failed) {
    run->stop = STOP_failed;
    run->failure = run_agree(run, data);
    return;
  }
  figures_add(run, run->validation, 1, entry);
  figures_add(run, run->metrics, run->program->settings.n_metrics, entry);
}

static void warn_about_rest(const Run *run, int64_t rest, int64_t n) {
  if (run->comm->rank == 0 && rest > 0 && run->evaluated < 0)
    fprintf(stderr,
            "warning: %lld of %lld evaluation samples are left out: no "
            "program for the remainder of the last batch\n",
            (long long)rest, (long long)n);
}

/* Result: samples evaluated. */
static int64_t evaluate_all(Run *run) {
  const DnnSettings *settings = &run->program->settings;
  int64_t batch = run->eval->batch, n = data_eval_samples(run->data), at = 0;
  bool is_random = settings->eval_batches > 0;
  if (is_random) n = settings->eval_batches * batch;
  for (; at + batch <= n && run->stop != STOP_failed; at += batch) {
    show_progress(run, at, n);
    evaluate_batch(run, run->eval, at, is_random);
  }
  show_progress(run, n, n);
  if (is_random) return at;
  for (; run->eval_remainder && at + run->eval_remainder->batch <= n &&
         run->stop != STOP_failed;
       at += run->eval_remainder->batch)
    evaluate_batch(run, run->eval_remainder, at, false);
  warn_about_rest(run, n - at, n);
  return at;
}

/* Once: a figure without a value stays so. */
static void warn_about_nothing(const Run *run, const Figure *figure) {
  if (run->comm->rank != 0 || figure->has_value || run->evaluated >= 0) return;
  message_print("warning: '%s' has no value: nothing that it counts is in the "
                "evaluation data, such as a label other than 'ignore'\n",
                figure->metric->name);
}

int run_evaluate(Run *run) {
  const DnnSettings *settings = &run->program->settings;
  if (!run->eval || data_eval_samples(run->data) == 0 ||
      run->evaluated == run->done || run->program->is_paced)
    return EXIT_done;
  Arena *scratch = arena_create(run->memory);
  unsigned char *states;
  figures_clear(run->validation, 1);
  figures_clear(run->metrics, settings->n_metrics);
  run_must(run, states_begin(run, scratch, &states));
  int64_t n = evaluate_all(run);
  run_must(run, states_end(run, states));
  arena_destroy(scratch);
  if (run->stop == STOP_failed) return run->failure;
  run->has_validation = n > 0;
  if (run->has_validation) {
    run_must(run, figures_share(run, run->validation, 1, ENTRY_eval));
    run_must(run,
             figures_share(run, run->metrics, settings->n_metrics, ENTRY_eval));
    figures_finish(run->validation, 1);
    figures_finish(run->metrics, settings->n_metrics);
    warn_about_nothing(run, run->validation);
    for (int i = 0; i < settings->n_metrics; i++)
      warn_about_nothing(run, &run->metrics[i]);
    report_evaluation(run, n);
  }
  run->evaluated = run->done;
  return EXIT_done;
}
