/*
 * periods.c -- trains stages that keep versions of their parameters: fills the
 * pipeline, runs it without a flush, and drains it.
 *
 *     period   -2   -1    0    1    2   ...     of 3 stages, steps from 0 on
 *     rank 0   F0   F1   F2B0 F3B1 F4B2
 *     rank 1        F0   F1B0 F2B1 F3B2
 *     rank 2             F0B0 F1B1 F2B2
 *
 * In period t every rank updates with micro-batch t, and both sides of a
 * message are in one period.  So ranks agree on a period without waiting for
 * each other: each brings its part of the results of period t to a vote, and
 * takes the vote of some periods before.  A stop that the vote of period t asks
 * for ends the run behind the last micro-batch that any rank can have begun.
 */
#include "runtime/rank/run.h"

typedef struct Round {
  Run *run;
  int64_t first;   /* step of micro-batch 0 */
  int64_t n;       /* micro-batches */
  int64_t written; /* the step that the arena has */
  Status data;     /* of the batches that were read */
  int64_t n_votes, n_taken;
  LateResults parts[COMM_MOST_VOTES]; /* of votes under way */
} Round;

static Status begin_call(void *user, int64_t step) {
  Round *round = user;
  if (round->written != step) run_write_step(round->run, step);
  round->written = step;
  return STATUS_OK;
}

/* Periods by which the last rank may be ahead of the first. */
static int64_t votes_under_way(const Run *run) {
  int64_t n = run->train->lead + 1;
  return n < COMM_MOST_VOTES ? n : COMM_MOST_VOTES - 1;
}

/* Forward passes that this rank runs ahead. */
static int64_t own_lead(const DnnEntryPoint *train) {
  int64_t lead = 0;
  for (int32_t i = 0; i < train->n_calls; i++) {
    const DnnSegment *segment = &train->segments[train->calls[i].segment];
    bool is_message = segment->n == 1 &&
                      train->instrs[segment->begin].op == DNN_OP_COLLECTIVE;
    if (!is_message && train->periods[i].lag > lead)
      lead = train->periods[i].lag;
  }
  return lead;
}

/* The batch of the forward pass of this period. */
static void read_batch(Round *round, int64_t period) {
  Run *run = round->run;
  int64_t k = period + own_lead(run->train);
  if (k < 0 || k >= round->n || round->data.code != STATUS_ok) return;
  round->data =
      data_fill_slot(run->data, run->device, run->train, round->first + k, k);
}

static void start_vote(Round *round, int64_t period, int64_t ns) {
  Run *run = round->run;
  bool is_good = round->data.code == STATUS_ok;
  recorder_note(&run->recorder, round->first + period, "vote", 0, "results");
  run->late = (LateResults){.are_on = true};
  if (period >= 0) late_results_keep(run, round->first + period, ns);
  CommVote vote =
      late_results_vote(run, is_good ? run_pending_stop(run) : STOP_failed);
  round->parts[round->n_votes++ % COMM_MOST_VOTES] = run->late;
  run_must(run, run->comm->vote_start(run->comm, &vote));
}

/* Takes the first vote under way, after `period`.  A period whose data are
 * wrong has no results.  Result: exit code. */
static int take_vote(Round *round, int64_t period) {
  Run *run = round->run;
  CommVote vote;
  run_must(run, run->comm->vote_wait(run->comm, &vote));
  run->late = round->parts[round->n_taken++ % COMM_MOST_VOTES];
  if (vote.greatest == STOP_failed) {
    run->stop = STOP_failed;
    return EXIT_done;
  }
  late_results_take(run, &vote);
  int code = late_results_report(run);
  if (code || vote.greatest == STOP_none || run->stop) return code;
  run->stop = (Stop)vote.greatest;
  int64_t begun = period + run->train->lead + 1;
  if (begun < round->n) round->n = begun;
  return EXIT_done;
}

/* The newest version is the first of the next round. */
static Status keep_newest(Run *run, int64_t n) {
  int64_t most = 0;
  for (int i = 0; i < run->program->n_tensors; i++)
    if (run->program->tensors[i].bytes > most)
      most = run->program->tensors[i].bytes;
  Arena *scratch = arena_create(run->memory);
  unsigned char *bytes = ARENA_ARRAY(scratch, unsigned char, most);
  for (int i = 0; i < run->program->n_tensors; i++) {
    const DnnTensor *tensor = &run->program->tensors[i];
    if (tensor->role != DNN_PARAM || tensor->n_slots <= 1) continue;
    int64_t from = tensor->offset + n % tensor->n_slots * tensor->slot_bytes;
    run_must(run, run->device->read(run->device, from, bytes, tensor->bytes));
    run_must(run, run->device->write(run->device, tensor->offset, bytes,
                                     tensor->bytes));
  }
  arena_destroy(scratch);
  return STATUS_OK;
}

static int run_periods(Round *round) {
  Run *run = round->run;
  int64_t late = votes_under_way(run);
  for (int64_t t = -run->train->lead; t < round->n; t++) {
    int64_t begin = clock_ns();
    ExecPeriod period = {t, round->n, round->first, begin_call, round};
    read_batch(round, t);
    run_must(run, exec_period(run->exec, run->train, &period));
    int64_t ns = clock_ns() - begin;
    run_note_time(run, ns);
    start_vote(round, t, ns);
    if (round->n_votes - round->n_taken <= late) continue;
    int code = take_vote(round, t);
    if (code) return code;
    if (run->stop == STOP_failed) return run_agree(run, round->data);
  }
  return EXIT_done;
}

int periods_train(Run *run, int64_t end) {
  Round round = {.run = run,
                 .first = run->done + 1,
                 .n = end - run->done,
                 .data = STATUS_OK};
  int code = run_periods(&round);
  while (!code && run->stop != STOP_failed && round.n_taken < round.n_votes)
    code = take_vote(&round, round.n);
  if (code) return code;
  if (run->stop == STOP_failed) return run_agree(run, round.data);
  run_must(run, exec_finish(run->exec));
  run_must(run, keep_newest(run, round.n));
  run->done = round.first + round.n - 1;
  run->read_signals = 0;
  return EXIT_done;
}
