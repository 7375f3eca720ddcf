/*
 * late_results.c -- finds the loss and the gradient norm of a program whose
 * stages update their parameters alone (passes/train/early_update.c).
 *
 *     rank 0   step 1 |norm/0   step 2 vote: step 1|norm/0   ...
 *     rank 1      step 1 |norm/1, loss   step 2 vote: step 1|...
 *
 * No rank has them: a stage knows the norm of its own gradients, and one has
 * the loss.  If ranks exchanged them at the end of a step they would all wait
 * for the last one.  So a rank brings its part to the vote of the next step,
 * which is exchanged while that step runs; after it all ranks have the results
 * of the step before.  Before an evaluation, a checkpoint and the end they
 * vote once more.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SUM_squares, SUM_loss };
_Static_assert((int)SUM_loss < (int)COMM_VOTE_SUMS, "a sum for each");

/* A server that knows the norm of all has a copy of it that is no part. */
static bool is_part_of_norm(const DnnTensor *tensor) {
  return tensor->role == DNN_NORM && strncmp(tensor->path, "norm/", 5) == 0;
}

static bool has_own_norms(const DnnEntryPoint *entry) {
  for (int i = 0; entry && i < entry->n_tensors; i++)
    if (is_part_of_norm(&entry->tensors[i])) return true;
  return false;
}

bool late_results_are_in(const DnnBundle *bundle) {
  for (int i = 0; i < bundle->n_programs; i++) {
    const DnnProgram *program = &bundle->programs[i];
    if (!program->is_paced &&
        has_own_norms(program_entry_point(program, ENTRY_train)))
      return true;
  }
  return false;
}

/* Ranks of one program have equal results: the first one counts. */
static bool is_first_of_program(const Run *run) {
  for (int i = 0; i < run->bundle->n_rows; i++)
    if (run->bundle->rows[i].first == run->comm->rank) return true;
  return false;
}

void late_results_keep(Run *run, int64_t step, int64_t ns) {
  LateResults *late = &run->late;
  late->step = step;
  late->ns = ns;
  late->squares = late->loss = 0;
  for (int i = 0; i < run->train->n_tensors; i++) {
    const DnnTensor *tensor = &run->train->tensors[i];
    float value = 0;
    if (!is_part_of_norm(tensor) && tensor->role != DNN_LOSS) continue;
    run_read_scalar(run, tensor, &value);
    if (tensor->role == DNN_NORM)
      late->squares += (double)value * (double)value;
    else
      late->loss = (double)value;
  }
  run_read_scalar(run, program_tensor(run->program, run->train, DNN_RATE),
                  &late->rate);
}

CommVote late_results_vote(const Run *run, Stop stop) {
  CommVote vote = {stop, {0}};
  if (run->late.step == 0 || !is_first_of_program(run)) return vote;
  vote.sums[SUM_squares] = run->late.squares;
  vote.sums[SUM_loss] = run->late.loss;
  return vote;
}

void late_results_take(Run *run, const CommVote *vote) {
  if (run->late.step == 0) return;
  run->loss = (float)vote->sums[SUM_loss];
  run->norm = (float)sqrt(vote->sums[SUM_squares]);
  run->rate = run->late.rate;
  run->has_norm = true;
}

/* ---- a step that is not finite ---- */

/* Prints the stages of ranks that are not finite, each once: replicas may have
 * programs of their own. */
static void print_stages(const Run *run, const int32_t *is_finite) {
  const char *last = NULL;
  for (int i = 0; i < run->bundle->n_rows; i++) {
    const DnnRankRow *row = &run->bundle->rows[i];
    const char *stages = run->bundle->programs[row->program].stages;
    if (is_finite[row->first] || (last && strcmp(stages, last) == 0)) continue;
    fprintf(stderr, "%s%s", last ? ", " : " in ", stages);
    last = stages;
  }
}

static int fail(Run *run) {
  const LateResults *late = &run->late;
  Arena *scratch = arena_create(run->memory);
  int32_t *is_finite = ARENA_ARRAY(scratch, int32_t, run->comm->world);
  int32_t own = isfinite(late->squares) && isfinite(late->loss);
  run_must(run, run->comm->gather(run->comm, &own, sizeof own, is_finite));
  fflush(stdout);
  if (run->comm->rank == 0) {
    fprintf(stderr, "error: step %lld: the %s is not finite",
            (long long)late->step,
            isfinite(run->loss) ? "gradient norm" : "loss");
    print_stages(run, is_finite);
    message_print("\nhelp: lower the learning rate, clip the gradients, or "
                  "check its inputs; stages and servers whose gradients are "
                  "finite may have made their updates, so continue from a "
                  "checkpoint\n");
  }
  arena_destroy(scratch);
  return EXIT_mistake;
}

int late_results_report(Run *run) {
  if (run->late.step == 0) return EXIT_done;
  if (run_step_failed(run)) return fail(run);
  report_step(run, run->late.step, run->late.ns);
  run->late.step = 0;
  return EXIT_done;
}

int late_results_settle(Run *run) {
  if (run->late.step == 0) return EXIT_done;
  CommVote vote = late_results_vote(run, STOP_none);
  run_must(run, run->comm->vote_start(run->comm, &vote));
  run_must(run, run->comm->vote_wait(run->comm, &vote));
  late_results_take(run, &vote);
  return late_results_report(run);
}
