/*
 * simulate.c -- runs instruction lists on virtual clocks, from event to event.
 *
 *     class 0:  run 5, start a, run 3, wait a
 *     class 1:  run 7, start a, wait a            a: latency 1, link 0 busy 4
 *
 *     0    5    7 8      12
 *     |run |run+|  |     |      `a` begins at 7, when both have come; class 0
 *     |run      |a........|     waits from 8, class 1 from 7, both until 12
 *
 * Between two events everything advances at a constant rate: a launch at what
 * transfers leave of its stream, a transfer at its part of the fullest of its
 * links.  The next event is the first end of a launch, a latency or a transfer.
 * A latency is shorter the less time has passed since the last transfer.
 *
 * A launch or a transfer is looked at when it ends or its rate changes, and
 * left alone in between.  So what is rounded does not depend on events
 * elsewhere, and micro-batches of many classes repeat to the picosecond
 * (recurrence.c).
 *
 * cost: O(events), with a look at one number of each class and transfer, and
 * O(transfers under way) where rates change
 */
#include "price/simulator_state.h"

#include <string.h>

/* How long `left` takes at this rate, rounded up. */
static Ps time_at(Ps left, int64_t rate) {
  if (rate == SIM_ONE) return left;
  SimWide time = ((SimWide)left * SIM_ONE + rate - 1) / rate;
  return time < INT64_MAX ? (Ps)time : INT64_MAX - 1;
}

/* Tells of what ends now. */
static void tell_span(const Simulation *s, int step, SimSpan span) {
  span.end = s->now;
  if (s->tell && step == s->n_steps - 1) s->tell(s->user, &span);
}

/* ---- transfers ---- */

static Under *new_under(Simulation *s, int id) {
  Under *under = s->unused.n > 0 ? s->unused.data[--s->unused.n]
                                 : ARENA_NEW(s->arena, Under);
  VEC(Member) members = {under->members.data, 0, under->members.capacity};
  *under = (Under){.id = id, .transfer = &s->program->transfers[id]};
  under->members.data = members.data;
  under->members.capacity = members.capacity;
  under->latency_left = under->transfer->latency;
  for (int i = 0; i < under->transfer->n_loads; i++)
    if (under->transfer->loads[i].busy > under->alone)
      under->alone = under->transfer->loads[i].busy;
  under->left = under->alone;
  vec_push(s->arena, &s->open, under);
  return under;
}

/* The oldest run of a transfer to which this class has not come. */
static Under *find_open(Simulation *s, int id, int class) {
  for (int i = 0; i < s->open.n; i++)
    if (s->open.data[i]->id == id && !simulation_member(s->open.data[i], class))
      return s->open.data[i];
  return new_under(s, id);
}

/* The part of the latency that is not needed because the classes had a transfer
 * shortly before: the class that has had none for longest counts. */
static Ps sooner_by(const Simulation *s, const Under *under) {
  Ps gap = 0;
  for (int i = 0; i < under->members.n; i++) {
    Ps own = simulation_gap(s, &s->runners[under->members.data[i].class]);
    if (own > gap) gap = own;
  }
  return (Ps)((SimWide)under->transfer->sooner * (SIM_REST - gap) / SIM_REST);
}

static void begin_if_ready(Simulation *s, Under *under) {
  if (under->has_begun || under->n_first < under->transfer->n_starts) return;
  s->have_rates_changed = true;
  under->has_begun = true;
  under->begin = s->now;
  if (s->has_gaps) under->latency_left -= sooner_by(s, under);
  under->since = s->now;
  under->end = simulation_later(s->now, under->latency_left);
  vec_push(s->arena, &s->under_way, under);
  int kept = 0;
  for (int i = 0; i < s->open.n; i++)
    if (s->open.data[i] != under) s->open.data[kept++] = s->open.data[i];
  s->open.n = kept;
}

static void start_transfer(Simulation *s, int class, const SimAction *action) {
  Runner *runner = &s->runners[class];
  Under *under = find_open(s, action->transfer, class);
  SimQueue *queue = &runner->queues[action->queue];
  vec_push(s->arena, &under->members,
           (Member){class, action->queue, action->id, runner->step, NULL});
  runner->n_started[simulation_slot(runner, action)]++;
  if (queue->first)
    simulation_member(queue->last, class)->next = under;
  else
    queue->first = under, under->n_first++;
  queue->last = under;
  begin_if_ready(s, under);
}

static void end_transfer(Simulation *s, Under *under) {
  s->have_rates_changed = true;
  s->n_ended[under->id]++;
  if (s->has_servers) simulator_servers_note_end(s, under->id);
  for (int i = 0; i < under->members.n; i++) {
    const Member *member = &under->members.data[i];
    int class = member->class;
    SimQueue *queue = &s->runners[class].queues[member->queue];
    ASSERT(queue->first == under);
    tell_span(s, member->step,
              (SimSpan){.class = class,
                        .queue = member->queue,
                        .id = member->id,
                        .begin = under->begin});
    queue->first = member->next;
    if (!queue->first) continue;
    queue->first->n_first++;
    begin_if_ready(s, queue->first);
  }
  vec_push(s->arena, &s->unused, under);
}

static bool is_beside_launch(const Simulation *s, const Under *under) {
  for (int k = 0; k < under->members.n; k++)
    if (s->runners[under->members.data[k].class].is_running) return true;
  return false;
}

/* The share of this transfer's own rate that its links, and the launches beside
 * it, leave. */
static int64_t transfer_rate(const Simulation *s, const Under *under) {
  int64_t most = SIM_ONE, beside = under->transfer->beside;
  for (int i = 0; i < under->transfer->n_loads; i++) {
    const SimLoad *load = &under->transfer->loads[i];
    if (load->busy > 0 && s->demand[load->link] > most)
      most = s->demand[load->link];
  }
  if (beside == 0 || !is_beside_launch(s, under)) beside = SIM_ONE;
  return SIM_ONE * beside / most;
}

/* Only links of transfers that are under way are looked at. */
static void count_demand(Simulation *s) {
  for (int i = 0; i < s->under_way.n; i++) {
    const SimTransfer *transfer = s->under_way.data[i]->transfer;
    for (int k = 0; k < transfer->n_loads; k++)
      s->demand[transfer->loads[k].link] = 0;
  }
  for (int i = 0; i < s->under_way.n; i++) {
    const Under *under = s->under_way.data[i];
    for (int k = 0; under->latency_left == 0 && k < under->transfer->n_loads;
         k++) {
      const SimLoad *load = &under->transfer->loads[k];
      if (load->busy == under->alone)
        s->demand[load->link] += load->busy > 0 ? SIM_ONE : 0;
      else
        s->demand[load->link] +=
            (int64_t)((SimWide)load->busy * SIM_ONE / under->alone);
    }
  }
}

/* ---- streams ---- */

/* Only the first class compares iterations: where it repeats, all do. */
static bool compares_iterations(const Simulation *s, const Runner *runner) {
  return runner == s->runners && !s->tell && !s->has_servers;
}

static void enter_loop(Simulation *s, Runner *runner) {
  const SimAction *action = &runner->class->actions[runner->at];
  vec_push(s->arena, &runner->loops,
           (SimLoop){.at = runner->at++, .left = action->trips});
  if (compares_iterations(s, runner)) recurrence_begin(s);
}

static void end_iteration(Simulation *s, Runner *runner) {
  ASSERT(runner->loops.n > 0);
  SimLoop *loop = &runner->loops.data[runner->loops.n - 1];
  int end = runner->at;
  loop->left--;
  runner->at = loop->at + 1;
  if (loop->left > 0 && compares_iterations(s, runner)) recurrence_check(s);
  if (loop->left > 0) return;
  if (compares_iterations(s, runner)) recurrence_end(s);
  runner->loops.n--;
  runner->at = end + 1;
}

/* Returns whether the class goes on at once. */
static bool wait_for(Simulation *s, Runner *runner, const SimAction *action) {
  int id = action->transfer, slot = simulation_slot(runner, action);
  int64_t number = runner->n_started[slot] > 0
                       ? runner->n_started[slot] - action->back
                       : ++runner->n_waited[slot];
  ASSERT(number > 0);
  runner->at++;
  if (s->n_ended[id] >= number) return true;
  runner->waits_for = id;
  runner->waits_number = number;
  runner->begin = runner->since = s->now;
  return false;
}

static int most_steps(const Simulation *s) {
  return s->has_servers ? SIM_MOST_CLOCKS : s->n_steps;
}

static void end_step(Simulation *s, Runner *runner) {
  ASSERT(runner->loops.n == 0);
  if (s->has_servers) simulator_servers_grow(s, runner);
  runner->step_ends[runner->step++] = s->now;
  runner->at = 0;
  s->longest = simulation_longest(s);
  if (runner->step == s->n_steps) s->n_running--;
  if (runner->step >= most_steps(s)) {
    if (s->has_servers) s->n_running = 0;
    return;
  }
  for (int i = 0; i < N_TOTALS * s->program->n_terms; i++)
    runner->before[i] = runner->totals[i];
  if (compares_iterations(s, runner)) recurrence_step(s);
}

static void begin_launch(Simulation *s, int class, Ps duration) {
  Runner *runner = &s->runners[class];
  runner->left = duration;
  runner->cut = 0;
  runner->begin = runner->since = s->now;
  runner->is_running = duration > 0;
  if (runner->is_running)
    s->ends[class] = simulation_later(s->now, time_at(duration, runner->rate));
  s->have_rates_changed |= runner->has_moving;
}

/* Runs a class up to a launch or a wait that takes time. */
static void advance_class(Simulation *s, int class) {
  Runner *runner = &s->runners[class];
  s->is_ready[class] = false;
  while (runner->step < most_steps(s) && !runner->is_running &&
         runner->waits_for < 0) {
    if (runner->at == runner->class->n_actions) {
      end_step(s, runner);
      continue;
    }
    const SimAction *action = &runner->class->actions[runner->at];
    switch (action->kind) {
    case SIM_run:
      runner->at++;
      begin_launch(s, class, action->duration);
      break;
    case SIM_start:
      runner->at++;
      if (runner->step >= action->from_step) start_transfer(s, class, action);
      break;
    case SIM_wait:
      if (runner->step < action->from_step)
        runner->at++;
      else if (!wait_for(s, runner, action))
        return;
      break;
    case SIM_loop: enter_loop(s, runner); break;
    case SIM_end: end_iteration(s, runner); break;
    }
  }
}

/* Serves pushes up to an update that takes time. */
static void advance_server(Simulation *s, int class) {
  Runner *runner = &s->runners[class];
  const SimAction *next;
  s->is_ready[class] = false;
  while (!runner->is_running && (next = simulator_servers_next(s, class)))
    if (next->kind == SIM_run)
      begin_launch(s, class, next->duration);
    else
      start_transfer(s, class, next);
}

/* ---- events ---- */

static void set_stream_rate(Simulation *s, int class, int64_t rate) {
  Runner *runner = &s->runners[class];
  if (rate == runner->rate) return;
  simulation_settle(s, runner);
  runner->rate = rate;
  if (runner->is_running)
    s->ends[class] = simulation_later(s->now, time_at(runner->left, rate));
}

static void set_transfer_rate(const Simulation *s, Under *under, int64_t rate) {
  if (rate == under->rate) return;
  Ps done = simulation_share(s->now - under->since, under->rate);
  under->left = done > under->left ? 0 : under->left - done;
  under->since = s->now;
  under->rate = rate;
  under->end = simulation_later(s->now, time_at(under->left, rate));
}

static void take_stream(Simulation *s, int class, int64_t takes) {
  Runner *runner = &s->runners[class];
  if (!runner->has_moving) {
    runner->has_moving = true;
    runner->free = SIM_ONE;
    vec_push(s->arena, &s->moving[0], class);
  }
  runner->free -= takes;
}

/* Transfers take a part of the streams of their classes, of which at least a
 * sixteenth is left. */
static void find_rates(Simulation *s) {
  Classes before = s->moving[0];
  s->moving[0] = s->moving[1];
  s->moving[1] = before;
  s->moving[0].n = 0;
  for (int i = 0; i < before.n; i++)
    s->runners[before.data[i]].has_moving = false;
  for (int i = 0; i < s->under_way.n; i++) {
    Under *under = s->under_way.data[i];
    if (under->latency_left > 0) continue;
    set_transfer_rate(s, under, transfer_rate(s, under));
    for (int k = 0; k < under->members.n; k++)
      take_stream(s, under->members.data[k].class, under->transfer->takes);
  }
  for (int i = 0; i < before.n; i++)
    if (!s->runners[before.data[i]].has_moving)
      set_stream_rate(s, before.data[i], SIM_ONE);
  for (int i = 0; i < s->moving[0].n; i++) {
    int64_t rate = s->runners[s->moving[0].data[i]].free;
    set_stream_rate(s, s->moving[0].data[i],
                    rate < SIM_ONE / 16 ? SIM_ONE / 16 : rate);
  }
  s->have_rates_changed = false;
}

static Ps next_event(const Simulation *s) {
  Ps end = INT64_MAX;
  for (int c = 0; c < s->program->n_classes; c++)
    if (s->ends[c] < end) end = s->ends[c];
  for (int i = 0; i < s->under_way.n; i++)
    if (s->under_way.data[i]->end < end) end = s->under_way.data[i]->end;
  return end == INT64_MAX ? end : end - s->now;
}

static void note_moved(Simulation *s) {
  for (int i = 0; i < s->under_way.n; i++) {
    const Under *under = s->under_way.data[i];
    for (int k = 0; k < under->members.n; k++)
      s->runners[under->members.data[k].class].moved = s->now;
  }
}

/* Ends all that runs or is under way. */
static void cut_what_is_left(Simulation *s) {
  for (int c = 0; c < s->program->n_classes; c++) {
    Runner *runner = &s->runners[c];
    simulation_settle(s, runner);
    if (!runner->is_running) continue;
    runner->cut = runner->left;
    runner->left = 0;
    s->ends[c] = s->now;
  }
  for (int i = 0; i < s->under_way.n; i++) {
    Under *under = s->under_way.data[i];
    under->latency_left = under->left = 0;
    under->end = s->now;
  }
}

static void end_launch(Simulation *s, int class) {
  Runner *runner = &s->runners[class];
  const SimAction *action = &runner->class->actions[runner->at - 1];
  simulation_settle(s, runner);
  runner->is_running = false;
  s->ends[class] = INT64_MAX;
  s->is_ready[class] = true;
  s->have_rates_changed |= runner->has_moving;
  tell_span(s, runner->step,
            (SimSpan){.class = class,
                      .queue = -1,
                      .id = action->id,
                      .term = action->term,
                      .begin = runner->begin,
                      .taken = s->now - runner->begin -
                               (action->duration - runner->cut)});
}

static void end_wait(Simulation *s, int class) {
  Runner *runner = &s->runners[class];
  int transfer = runner->waits_for;
  if (transfer < 0 || s->n_ended[transfer] < runner->waits_number) return;
  simulation_settle(s, runner);
  runner->waits_for = -1;
  s->is_ready[class] = true;
  if (s->now > runner->begin)
    tell_span(s, runner->step,
              (SimSpan){.class = class,
                        .queue = -1,
                        .id = runner->class->actions[runner->at - 1].id,
                        .term = s->program->transfers[transfer].term,
                        .is_wait = true,
                        .begin = runner->begin});
}

/* Its latency or its bytes are through. */
static bool is_at_end(Simulation *s, Under *under) {
  if (under->latency_left == 0 || under->left == 0) return true;
  under->latency_left = 0;
  under->since = s->now;
  s->have_rates_changed = true;
  return false;
}

static void end_what_is_done(Simulation *s) {
  for (int c = 0; c < s->program->n_classes; c++)
    if (s->ends[c] <= s->now) end_launch(s, c);
  int kept = 0, n = s->under_way.n;
  s->ended.n = 0;
  for (int i = 0; i < n; i++) {
    Under *under = s->under_way.data[i];
    if (under->end <= s->now && is_at_end(s, under))
      vec_push(s->arena, &s->ended, under);
    else
      s->under_way.data[kept++] = under;
  }
  s->under_way.n = kept;
  for (int i = 0; i < s->ended.n; i++) end_transfer(s, s->ended.data[i]);
  for (int c = 0; c < s->program->n_classes && s->ended.n > 0; c++)
    end_wait(s, c);
}

static void pass_event(Simulation *s, Ps time) {
  bool is_cut = time > s->longest - s->now;
  s->now += is_cut ? s->longest - s->now : time;
  if (s->has_gaps) note_moved(s);
  if (is_cut) cut_what_is_left(s);
  end_what_is_done(s);
}

static void advance_ready(Simulation *s) {
  size_t n = (size_t)s->program->n_classes;
  for (uint8_t *at = s->is_ready; (at = memchr(at, true, n));) {
    int class = (int)(at - s->is_ready);
    if (s->runners[class].serving)
      advance_server(s, class);
    else
      advance_class(s, class);
    n = (size_t)s->program->n_classes - (size_t)(++at - s->is_ready);
  }
}

/* ---- public ---- */

static Ps *new_totals(const Simulation *s) {
  return ARENA_ARRAY(s->arena, Ps, N_TOTALS * s->program->n_terms);
}

/* `slot_of` has -1 for each transfer, before and afterwards. */
static void make_slots(Simulation *s, Runner *runner, int *slot_of) {
  const SimClass *class = runner->class;
  int *slots = ARENA_ARRAY(s->arena, int, class->n_actions + 1);
  VEC(int) transfers = {0};
  for (int i = 0; i < class->n_actions; i++) {
    const SimAction *action = &class->actions[i];
    if (action->kind != SIM_start && action->kind != SIM_wait) continue;
    if (slot_of[action->transfer] < 0) {
      slot_of[action->transfer] = transfers.n;
      vec_push(s->arena, &transfers, action->transfer);
    }
    slots[i] = slot_of[action->transfer];
  }
  for (int i = 0; i < transfers.n; i++) slot_of[transfers.data[i]] = -1;
  runner->slots = slots;
  runner->n_slots = transfers.n;
  runner->transfers = transfers.data;
  runner->n_started = ARENA_ARRAY(s->arena, int64_t, transfers.n + 1);
  runner->n_waited = ARENA_ARRAY(s->arena, int64_t, transfers.n + 1);
}

static void make_runner(Simulation *s, Runner *runner, const SimClass *class,
                        int *slot_of) {
  *runner = (Runner){
      .class = class, .waits_for = -1, .moved = -SIM_REST, .rate = SIM_ONE};
  runner->queues = ARENA_ARRAY(s->arena, SimQueue, class->n_queues);
  make_slots(s, runner, slot_of);
  runner->totals = new_totals(s);
  runner->before = new_totals(s);
  runner->step_ends = ARENA_ARRAY(s->arena, Ps, s->n_steps);
  runner->n_kept = s->n_steps;
}

/* ---- results ---- */

static SimResult result_of(Simulation *s) {
  SimResult result = {.is_stuck = s->n_running > 0,
                      .is_idle = s->open.n + s->under_way.n == 0};
  int n = s->program->n_classes, n_terms = s->program->n_terms;
  result.classes = ARENA_ARRAY(s->arena, SimClassResult, n);
  for (int c = 0; c < n; c++) {
    const Runner *runner = &s->runners[c];
    result.classes[c] =
        (SimClassResult){.n_steps = runner->step,
                         .step_ends = runner->step_ends,
                         .compute = runner->totals + TOTAL_compute * n_terms,
                         .exposed = runner->totals + TOTAL_exposed * n_terms,
                         .taken = runner->totals + TOTAL_taken * n_terms,
                         .waits_for = runner->waits_for,
                         .waits_at = runner->at - 1,
                         .waits_on = simulation_waits_on(s, c)};
    if (result.is_stuck || runner->serving) continue;
    for (int i = 0; i < N_TOTALS * n_terms; i++)
      runner->totals[i] -= runner->before[i];
    if (runner->step < s->n_steps) continue;
    Ps before = s->n_steps > 1 ? runner->step_ends[s->n_steps - 2] : 0;
    Ps step = runner->step_ends[s->n_steps - 1] - before;
    if (step > result.step) result.step = step;
  }
  return result;
}

bool sim_has_gaps(const SimProgram *program) {
  for (int t = 0; t < program->n_transfers; t++)
    if (program->transfers[t].sooner > 0) return true;
  return false;
}

SimResult simulate(Arena *arena, const SimProgram *program, int n_steps,
                   SimTell *tell, void *user) {
  ASSERT(n_steps > 0 && n_steps <= SIM_MOST_STEPS && program->n_terms > 0);
  Simulation s = {.arena = arena,
                  .program = program,
                  .n_steps = n_steps,
                  .n_running = program->n_classes,
                  .tell = tell,
                  .user = user};
  s.runners = ARENA_ARRAY(arena, Runner, program->n_classes);
  s.n_ended = ARENA_ARRAY(arena, int64_t, program->n_transfers);
  s.demand = ARENA_ARRAY(arena, int64_t, program->n_links);
  int *slot_of = ARENA_ARRAY(arena, int, program->n_transfers + 1);
  for (int t = 0; t < program->n_transfers; t++) slot_of[t] = -1;
  for (int c = 0; c < program->n_classes; c++)
    make_runner(&s, &s.runners[c], &program->classes[c], slot_of);
  s.ends = ARENA_ARRAY(arena, Ps, program->n_classes);
  s.is_ready = ARENA_ARRAY(arena, uint8_t, program->n_classes + 1);
  for (int c = 0; c < program->n_classes; c++) s.ends[c] = INT64_MAX;
  memset(s.is_ready, true, (size_t)program->n_classes);
  s.has_gaps = sim_has_gaps(program);
  s.longest = simulation_longest(&s);
  simulator_servers_prepare(&s);
  recurrence_prepare(&s);
  for (;;) {
    advance_ready(&s);
    if (s.n_running <= 0) break;
    if (s.have_rates_changed) {
      count_demand(&s);
      find_rates(&s);
    }
    Ps time = next_event(&s);
    if (time == INT64_MAX) break;
    pass_event(&s, time);
  }
  return result_of(&s);
}
