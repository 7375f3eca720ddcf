/*
 * periods.c -- trains stages that keep versions of their parameters: fills the
 * pipeline, runs it without a flush, and drains it.
 *
 *     period   -2   -1    0    1    2   ...     of 3 stages, steps from 0 on
 *     rank 0   F0   F1   F2B0 F3B1 F4B2
 *     rank 1        F0   F1B0 F2B1 F3B2
 *     rank 2             F0B0 F1B1 F2B2
 *
 * In period t every rank updates with the units of period t.  So ranks agree on
 * a period without waiting for each other: each brings its part of the results
 * of each batch of period t to a vote, and takes the votes of some periods
 * before.  A stop that the vote of period t asks
 * for ends the run behind the last micro-batch that any rank can have begun.
 */
#include "runtime/rank/run.h"

typedef struct Round {
  Run *run;
  int64_t first;   /* step of unit 0 */
  int64_t n;       /* steps */
  int64_t written; /* the step that the arena has */
  Status data;     /* of the batches that were read */
  int64_t n_votes, n_taken;
  LateResults *own;                   /* by step of a period */
  LateResults parts[COMM_MOST_VOTES]; /* of votes under way */
} Round;

/* ---- the calls of a period ---- */

/* Where the batch of a unit lies. */
static int64_t slot_of(const DnnEntryPoint *train, const DnnPeriodCall *call,
                       int64_t unit) {
  return unit / (train->batch_units > 1 ? train->batch_units
                                        : call->divisors[DNN_REGISTER_FRAME]);
}

static Status begin_call(void *user, const DnnPeriodCall *call, int64_t unit,
                         int64_t step) {
  Round *round = user;
  Run *run = round->run;
  if (round->written != step) run_write_step(run, step);
  round->written = step;
  if (call->begins && round->data.code == STATUS_ok)
    round->data = data_fill_slot(run->data, run->device, run->train, step,
                                 slot_of(run->train, call, unit));
  return STATUS_OK;
}

static int64_t period_steps(const DnnEntryPoint *train) {
  return train->period_units / train->batch_units;
}

static int64_t units_of(const Round *round) {
  return round->n * round->run->train->batch_units;
}

/* Units that share an update. */
static int64_t group_of(const DnnEntryPoint *train, int32_t update) {
  return train->periods[update].divisors[DNN_REGISTER_NEW_VERSION];
}

/* Keeps the results of a unit after its update, which the next one overwrites.
 * The rate is that of all units of the group. */
static void keep_results(Round *round, int64_t period, int32_t call) {
  Run *run = round->run;
  const DnnEntryPoint *train = run->train;
  int64_t at = train->periods[call].unit;
  int64_t unit = period * train->period_units + at;
  if (unit < 0 || unit >= units_of(round)) return;
  late_results_keep(run, round->first + unit / train->batch_units, 0);
  /* Replicas that share out a batch have equal results: the first one counts.
   */
  if (train->batch_units > 1 && train->periods[call].replica > 0)
    run->late.squares = run->late.loss = 0;
  int64_t first = (at - train->periods[call].replica) / train->batch_units;
  int64_t n = group_of(train, call) / train->batch_units;
  for (int64_t i = first; i < first + n; i++)
    round->own[i].rate = run->late.rate;
  round->own[at / train->batch_units] = run->late;
}

static bool is_update(const DnnEntryPoint *train, int32_t call) {
  return train->periods[call].when == DNN_PERIOD_GROUP;
}

static void run_period(Round *round, int64_t t) {
  Run *run = round->run;
  const DnnEntryPoint *train = run->train;
  for (int64_t i = 0; i < period_steps(train); i++)
    round->own[i] = (LateResults){.are_on = true};
  run->late = (LateResults){.are_on = true};
  for (int32_t begin = 0, end; begin < train->n_calls; begin = end) {
    end = begin + 1;
    while (end < train->n_calls &&
           (is_update(train, end) || !is_update(train, end - 1)))
      end++;
    ExecPeriod period = {t,   units_of(round), round->first, begin,
                         end, begin_call,      round};
    run_must(run, exec_period(run->exec, train, &period));
    if (is_update(train, end - 1)) keep_results(round, t, end - 1);
  }
}

/* ---- votes ---- */

/* Votes that may be under way when a period begins: the last rank may be so
 * many periods behind the first. */
static int64_t votes_under_way(const Run *run) {
  int64_t steps = period_steps(run->train);
  int64_t n = (run->train->lead + 1) * steps;
  return n + steps <= COMM_MOST_VOTES ? n : COMM_MOST_VOTES - steps;
}

/* The first rank to begin a batch may have begun those of the next periods. */
static void stop_after(Round *round, int64_t period) {
  const DnnEntryPoint *train = round->run->train;
  int64_t begun = (period + train->lead + 1) * period_steps(train);
  if (begun < round->n) round->n = begun;
}

/* A rank that has no results of a step knows its number all the same. */
static void start_vote(Round *round, int64_t period, int64_t at, int64_t ns) {
  Run *run = round->run;
  bool is_good = round->data.code == STATUS_ok;
  int64_t k = period * period_steps(run->train) + at;
  recorder_note(&run->recorder, round->first + k, "vote", 0, "results");
  run->late = round->own[at];
  if (k >= 0 && k < round->n) {
    run->late.step = round->first + k;
    run->late.ns = ns;
  }
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
  stop_after(round, period);
  return EXIT_done;
}

/* ---- a round ---- */

/* Updates of so many units. */
static int64_t updates_of(const DnnEntryPoint *train, int64_t units) {
  int32_t i = 0;
  while (!is_update(train, i)) i++;
  int64_t group = group_of(train, i);
  return (units + group - 1) / group;
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

/* Takes votes until few enough are under way.  A failure stops the round, too.
 * *out_fails: it has. */
static int take_votes(Round *round, int64_t period, bool *out_fails) {
  int64_t late = votes_under_way(round->run);
  int code = EXIT_done;
  while (!*out_fails && round->n_votes - round->n_taken > late) {
    code = take_vote(round, period);
    *out_fails = code || round->run->stop == STOP_failed;
  }
  if (*out_fails) stop_after(round, period);
  return code;
}

/* After a failure all that has begun is drained, without a vote: a message may
 * be under way whose other side is of a later period. */
static int run_periods(Round *round) {
  Run *run = round->run;
  const DnnEntryPoint *train = run->train;
  int64_t steps = period_steps(train);
  bool fails = false;
  int code = EXIT_done;
  for (int64_t t = -train->lead; t * steps < round->n; t++) {
    int64_t begin = clock_ns();
    run_period(round, t);
    int64_t ns = (clock_ns() - begin) / steps;
    run_note_time(run, ns);
    for (int64_t i = 0; i < steps && !fails; i++) start_vote(round, t, i, ns);
    if (!fails) code = take_votes(round, t, &fails);
  }
  run_must(run, exec_finish(run->exec));
  return code;
}

int periods_train(Run *run, int64_t end) {
  Arena *scratch = arena_create(run->memory);
  Round round = {
      .run = run,
      .first = run->done + 1,
      .n = end - run->done,
      .data = STATUS_OK,
      .own = ARENA_ARRAY(scratch, LateResults, period_steps(run->train))};
  int code = run_periods(&round);
  while (!code && run->stop != STOP_failed && round.n_taken < round.n_votes)
    code = take_vote(&round, round.n);
  arena_destroy(scratch);
  if (code) return code;
  if (run->stop == STOP_failed) return run_agree(run, round.data);
  run_must(run, keep_newest(run, updates_of(run->train, units_of(&round))));
  run->done = round.first + round.n - 1;
  run->read_signals = 0;
  return EXIT_done;
}
