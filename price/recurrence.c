/*
 * recurrence.c -- skips iterations of loops that a simulation has seen before.
 *
 *     loop 96: run 5, start a, run 3, wait a
 *
 *     iteration   0  1  2  3 .. 95          after iteration 2 the same is under
 *     takes       9  8  8  (8 each)         way, with the same time left, as
 *                                           after 1: so 3 to 95 are as 2
 *
 * The state alone decides what happens next: where each class is in its
 * list, what runs and for how long, the transfers in its queues, and how long
 * ago the last one was, up to where that has no effect.  Time and
 * the counts of ended transfers do not matter themselves, only what lies
 * between them.  So when the state at the end of an iteration is equal to an
 * earlier one, the iterations between them repeat until some class leaves its
 * loop, and skipping them is exact, to the picosecond.
 *
 * Rounding can give a cycle of several iterations.  The state that is kept is
 * replaced after 1, 2, 4, ... iterations, so each cycle is found (Brent, "An
 * improved Monte Carlo factorization algorithm", 1980).  Where a queue grows
 * with each iteration no state recurs, and all are run.
 *
 * cost: O(classes x transfers) an iteration that is run
 */
#include "price/simulator_state.h"

#include <string.h>

/* A queue that is longer grows. */
enum { MOST_PENDING = 256 };

/* ---- snapshots ---- */

static void add_key(Simulation *s, Snapshot *snapshot, int64_t value) {
  vec_push(s->arena, &snapshot->key, value);
}

static void add_runner(Simulation *s, Snapshot *snapshot,
                       const Runner *runner) {
  int waits_for = runner->waits_for;
  add_key(s, snapshot, runner->step - s->runners->step);
  add_key(s, snapshot, runner->at);
  add_key(s, snapshot, runner->is_running ? runner->left : -1);
  add_key(s, snapshot, runner->is_running ? s->now - runner->since : 0);
  add_key(s, snapshot, runner->rate);
  if (s->has_gaps) add_key(s, snapshot, simulation_gap(s, runner));
  add_key(s, snapshot, waits_for);
  if (waits_for >= 0)
    add_key(s, snapshot, runner->waits_number - s->n_ended[waits_for]);
  for (int i = 0; i < runner->n_slots; i++) {
    int64_t n_ended = s->n_ended[runner->transfers[i]];
    add_key(s, snapshot, runner->n_started[i] - n_ended);
    /* Waits for what the class starts itself are not counted. */
    add_key(s, snapshot,
            runner->n_waited[i] ? runner->n_waited[i] - n_ended : 0);
  }
  add_key(s, snapshot, runner->loops.n);
  for (int i = 0; i < runner->loops.n; i++) {
    add_key(s, snapshot, runner->loops.data[i].at);
    vec_push(s->arena, &snapshot->left, runner->loops.data[i].left);
  }
}

static Under *pending_at(const Simulation *s, int i) {
  int n = s->under_way.n;
  return i < n ? s->under_way.data[i] : s->open.data[i - n];
}

/* In their order, which decides what comes first where several end at one
 * time. */
static void add_pending(Simulation *s, Snapshot *snapshot) {
  int n = s->under_way.n + s->open.n;
  for (int i = 0; i < n; i++) pending_at(s, i)->number = i;
  add_key(s, snapshot, s->under_way.n);
  for (int i = 0; i < n; i++) {
    const Under *under = pending_at(s, i);
    add_key(s, snapshot, under->id);
    add_key(s, snapshot, under->latency_left);
    add_key(s, snapshot, under->left);
    add_key(s, snapshot, under->has_begun ? s->now - under->since : 0);
    add_key(s, snapshot, under->rate);
    add_key(s, snapshot, under->n_first);
    add_key(s, snapshot, under->members.n);
    for (int k = 0; k < under->members.n; k++) {
      const Member *member = &under->members.data[k];
      add_key(s, snapshot, member->class);
      add_key(s, snapshot, member->queue);
      add_key(s, snapshot, member->next ? member->next->number : -1);
    }
  }
}

static Snapshot *take_snapshot(Simulation *s) {
  Snapshot *snapshot = s->unused_snapshots.n > 0
                           ? s->unused_snapshots.data[--s->unused_snapshots.n]
                           : ARENA_NEW(s->arena, Snapshot);
  snapshot->key.n = snapshot->counts.n = snapshot->left.n = 0;
  for (int c = 0; c < s->program->n_classes; c++) {
    /* A launch with a part of its stream would be rounded otherwise. */
    Runner *runner = &s->runners[c];
    if (!runner->is_running || runner->rate == SIM_ONE)
      simulation_settle(s, runner);
    add_runner(s, snapshot, runner);
  }
  add_pending(s, snapshot);
  for (int i = 0; i < s->counters.n; i++)
    vec_push(s->arena, &snapshot->counts, *s->counters.data[i]);
  return snapshot;
}

static void drop_snapshot(Simulation *s, Snapshot *snapshot) {
  if (snapshot) vec_push(s->arena, &s->unused_snapshots, snapshot);
}

static bool keys_are_equal(const Snapshot *a, const Snapshot *b) {
  return a->key.n == b->key.n &&
         memcmp(a->key.data, b->key.data,
                (size_t)a->key.n * sizeof *a->key.data) == 0;
}

/* ---- what is skipped ---- */

/* How often the iterations between two states fit into those that a class has
 * left: the outermost of its loops that has moved decides.  0: they do not
 * repeat. */
static int64_t cycles_of_class(const Runner *runner, const int64_t *before,
                               bool is_between_iterations) {
  int64_t cycles = INT64_MAX;
  for (int i = 0; i < runner->loops.n; i++) {
    int64_t left = runner->loops.data[i].left, moved = before[i] - left;
    if (moved == 0) continue;
    if (moved < 0 || cycles != INT64_MAX) return 0;
    cycles = (is_between_iterations ? left : left - 1) / moved;
  }
  return cycles;
}

static int64_t cycles_left(const Simulation *s, const Snapshot *before) {
  int64_t least = INT64_MAX;
  const int64_t *left = before->left.data;
  for (int c = 0; c < s->program->n_classes; c++) {
    const Runner *runner = &s->runners[c];
    int64_t cycles = cycles_of_class(runner, left, c == 0);
    if (cycles < least) least = cycles;
    left += runner->loops.n;
  }
  return least;
}

/* Those that end within the longest step; the others run to it. */
static int64_t cycles_in_time(const Simulation *s, const Snapshot *before,
                              int64_t cycles) {
  Ps each = s->now - before->counts.data[0];
  if (each == 0) return cycles;
  int64_t most = (simulation_longest(s) - s->now) / each;
  return most < cycles ? most : cycles;
}

static void skip_cycles(Simulation *s, const Snapshot *before, int64_t cycles) {
  Ps now = s->now;
  for (int i = 0; i < s->counters.n; i++) {
    int64_t *counter = s->counters.data[i];
    *counter += cycles * (*counter - before->counts.data[i]);
  }
  for (int i = 0; i < s->under_way.n; i++) {
    s->under_way.data[i]->since += s->now - now;
    s->under_way.data[i]->begin += s->now - now;
    s->under_way.data[i]->end =
        simulation_later(s->under_way.data[i]->end, s->now - now);
  }
  const int64_t *left = before->left.data;
  for (int c = 0; c < s->program->n_classes; c++) {
    Runner *runner = &s->runners[c];
    runner->moved += s->now - now; /* the gap is as it was */
    runner->since += s->now - now;
    if (s->ends[c] != INT64_MAX)
      s->ends[c] = simulation_later(s->ends[c], s->now - now);
    for (int i = 0; i < runner->loops.n; i++) {
      SimLoop *loop = &runner->loops.data[i];
      loop->left -= cycles * (*left++ - loop->left);
    }
  }
}

/* ---- loops ---- */

static SimLoop *innermost_loop(Simulation *s) {
  Runner *runner = &s->runners[0];
  return &runner->loops.data[runner->loops.n - 1];
}

static void add_counters(Simulation *s, int64_t *counters, int n) {
  for (int i = 0; i < n; i++) vec_push(s->arena, &s->counters, &counters[i]);
}

void recurrence_prepare(Simulation *s) {
  add_counters(s, &s->now, 1); /* the first one */
  add_counters(s, s->n_ended, s->program->n_transfers);
  for (int c = 0; c < s->program->n_classes; c++) {
    Runner *runner = &s->runners[c];
    add_counters(s, runner->n_started, runner->n_slots);
    add_counters(s, runner->n_waited, runner->n_slots);
    add_counters(s, runner->totals, N_TOTALS * s->program->n_terms);
    add_counters(s, &runner->waits_number, 1);
  }
}

void recurrence_begin(Simulation *s) {
  SimLoop *loop = innermost_loop(s);
  if (loop->left < 2) return;
  loop->kept = take_snapshot(s);
  loop->until = 1;
}

void recurrence_check(Simulation *s) {
  SimLoop *loop = innermost_loop(s);
  if (!loop->kept || s->open.n + s->under_way.n > MOST_PENDING) return;
  Snapshot *now = take_snapshot(s);
  int64_t cycles =
      keys_are_equal(now, loop->kept) ? cycles_left(s, loop->kept) : 0;
  if (cycles > 0) cycles = cycles_in_time(s, loop->kept, cycles);
  if (cycles > 0) {
    skip_cycles(s, loop->kept, cycles);
    recurrence_end(s);
  } else if (++loop->since == loop->until) {
    drop_snapshot(s, loop->kept);
    loop->kept = now;
    loop->until *= 2;
    loop->since = 0;
    return;
  }
  drop_snapshot(s, now);
}

void recurrence_end(Simulation *s) {
  SimLoop *loop = innermost_loop(s);
  drop_snapshot(s, loop->kept);
  loop->kept = NULL;
}

/* ---- steps ---- */

/* Steps that all classes may be moved on, so that the first one begins its last
 * step.  0: the state does not repeat, or some class has ended no step yet. */
static int steps_to_skip(const Simulation *s, const Snapshot *now) {
  int skipped = s->n_steps - 1 - s->runners->step;
  bool is_equal =
      s->step && keys_are_equal(now, s->step) && now->left.n == s->step->left.n;
  for (int i = 0; is_equal && i < now->left.n; i++)
    is_equal &= now->left.data[i] == s->step->left.data[i];
  for (int c = 0; c < s->program->n_classes; c++) {
    int step = s->runners[c].step;
    is_equal &= step > 0 && step + skipped < s->n_steps;
  }
  return is_equal ? (int)cycles_in_time(s, s->step, skipped) : 0;
}

static void skip_steps(Simulation *s, const Snapshot *before, int steps) {
  Ps each = s->now - before->counts.data[0];
  int n_totals = N_TOTALS * s->program->n_terms;
  for (int c = 0; c < s->program->n_classes; c++)
    for (int i = 0; i < n_totals; i++) /* of the step at hand */
      s->runners[c].before[i] -= s->runners[c].totals[i];
  skip_cycles(s, before, steps);
  for (int c = 0; c < s->program->n_classes; c++) {
    Runner *runner = &s->runners[c];
    for (int i = 0; i < n_totals; i++) runner->before[i] += runner->totals[i];
    for (int k = 0; k < steps; k++, runner->step++)
      runner->step_ends[runner->step] =
          runner->step_ends[runner->step - 1] + each;
  }
  s->longest = simulation_longest(s);
}

void recurrence_step(Simulation *s) {
  if (s->runners->step >= s->n_steps - 1) return;
  Snapshot *now = take_snapshot(s);
  int steps = steps_to_skip(s, now);
  if (steps > 0) skip_steps(s, s->step, steps);
  drop_snapshot(s, s->step);
  s->step = now;
}
