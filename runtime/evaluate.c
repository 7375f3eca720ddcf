/*
 * evaluate.c -- the evaluation of a run: the loss and the metrics over all
 * evaluation data, in whole batches and what remains.
 */
#include "runtime/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct Sums {
  double loss, weight;
} Sums;

static const DnnTensor *metric_tensor(const Run *run, const DnnCode *code,
                                      int metric) {
  const char *path = run->program->settings.metrics[metric];
  for (int i = 0; i < code->n_tensors; i++)
    if (code->tensors[i].role == DNN_METRIC &&
        strcmp(code->tensors[i].path, path) == 0)
      return &code->tensors[i];
  return NULL;
}

/* A line that is overwritten, on a terminal only. */
static void show_progress(const Run *run, int64_t at, int64_t n) {
  if (run->comm->rank != 0 || run->options.quiet || !isatty(STDERR_FILENO))
    return;
  if (at < n)
    fprintf(stderr, "\revaluating %lld/%lld", (long long)at, (long long)n);
  else
    fprintf(stderr, "\r%40s\r", "");
}

static void evaluate_batch(Run *run, const DnnCode *code, int64_t first,
                           bool is_random, Sums *sums) {
  float loss = 0;
  double weight = (double)code->batch;
  run_must(run, data_fill_eval(run->data, run->device, code, first, is_random));
  run_must(run, states_fill_lanes(run, code, true));
  run_must(run, exec_run(run->exec, code, run->done));
  run_read_scalar(run, program_tensor(run->program, code, DNN_LOSS), &loss);
  sums->loss += (double)loss * weight;
  sums->weight += weight;
  for (int i = 0; i < run->program->settings.n_metrics; i++) {
    float value = 0;
    run_read_scalar(run, metric_tensor(run, code, i), &value);
    run->metrics[i] += (double)value * weight;
  }
}

static void warn_about_rest(const Run *run, int64_t rest, int64_t n) {
  if (run->comm->rank == 0 && rest > 0 && run->evaluated < 0)
    fprintf(stderr,
            "warning: %lld of %lld evaluation samples are left out: no "
            "program for the remainder of the last batch\n",
            (long long)rest, (long long)n);
}

/* Result: samples evaluated. */
static int64_t evaluate_all(Run *run, Sums *sums) {
  const DnnSettings *settings = &run->program->settings;
  int64_t batch = run->eval->batch, n = data_eval_samples(run->data), at = 0;
  bool is_random = settings->eval_batches > 0;
  if (is_random) n = settings->eval_batches * batch;
  for (; at + batch <= n; at += batch) {
    show_progress(run, at, n);
    evaluate_batch(run, run->eval, at, is_random, sums);
  }
  show_progress(run, n, n);
  if (is_random) return at;
  for (; run->eval_rest && at + run->eval_rest->batch <= n;
       at += run->eval_rest->batch)
    evaluate_batch(run, run->eval_rest, at, false, sums);
  warn_about_rest(run, n - at, n);
  return at;
}

int run_evaluate(Run *run) {
  if (!run->eval || data_eval_samples(run->data) == 0 ||
      run->evaluated == run->done)
    return EXIT_done;
  Arena *scratch = arena_create(run->memory);
  unsigned char *states;
  Sums sums = {0};
  for (int i = 0; i < run->program->settings.n_metrics; i++)
    run->metrics[i] = 0;
  run_must(run, states_begin(run, scratch, &states));
  int64_t n = evaluate_all(run, &sums);
  run_must(run, states_end(run, states));
  arena_destroy(scratch);
  run->evaluated = run->done;
  run->has_validation = sums.weight > 0;
  if (!run->has_validation) return EXIT_done;
  run->validation = sums.loss / sums.weight;
  const DnnSettings *settings = &run->program->settings;
  for (int i = 0; i < settings->n_metrics; i++) {
    run->metrics[i] /= sums.weight;
    if (settings->metric_is_exp[i]) run->metrics[i] = exp(run->metrics[i]);
  }
  report_evaluation(run, n);
  return EXIT_done;
}
