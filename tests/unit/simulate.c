// links: price passes ir support
/*
 * simulate.c -- tests the simulator of instruction lists: small lists whose
 * times are known, and random ones against a slower simulator that moves in
 * single ticks.
 */
#include "price/simulate.h"
#include "tests/unit/values.h"

#include <string.h>

TestSuite(simulate, .fini = modules_destroy);

enum { MOST_CLASSES = 3, MOST_ACTIONS = 64, MOST_TRANSFERS = 8, QUEUES = 2 };

/* ---- lists as text ---- */

/* "r5" runs 5, "s0.1" starts transfer 0 on queue 1, "w0" waits for it, "l3"
 * begins a loop of three iterations, "e" ends it.  "w0@1" waits from the second
 * step on. */
typedef struct List {
  SimAction actions[MOST_ACTIONS];
  int n;
} List;

static List read_list(const char *text) {
  List list = {0};
  while (*text) {
    SimAction action = {0};
    char kind = *text;
    char *end;
    int64_t number = strtol(text + 1, &end, 10);
    if (kind == 'r') action.kind = SIM_run, action.duration = number;
    if (kind == 's') action.kind = SIM_start, action.transfer = (int)number;
    if (kind == 'w') action.kind = SIM_wait, action.transfer = (int)number;
    if (kind == 'l') action.kind = SIM_loop, action.trips = number;
    if (kind == 'e') action.kind = SIM_end;
    if (*end == '@') action.from_step = (int)strtol(end + 1, &end, 10);
    if (*end == '.') action.queue = (int)strtol(end + 1, &end, 10);
    cr_assert(list.n < MOST_ACTIONS);
    list.actions[list.n++] = action;
    text = *end == ' ' ? end + 1 : end;
  }
  return list;
}

typedef struct Case {
  const char *name, *lists[MOST_CLASSES + 1];
  SimTransfer transfers[3];
  Ps step, compute, exposed, taken; /* the last three: of class 0 */
} Case;

#define LOADS(...)                                                             \
  .loads = (const SimLoad[]){__VA_ARGS__},                                     \
  .n_loads = (int)(sizeof((SimLoad[]){__VA_ARGS__}) / sizeof(SimLoad))

static const Case cases[] = {
    {"nothing runs", {""}, {{0}}, 0, 0, 0, 0},
    {"launches follow each other", {"r5 r7"}, {{0}}, 12, 12, 0, 0},
    {"computation hides a transfer",
     {"s0 r9 w0"},
     {{.latency = 1, .n_starts = 1, LOADS({0, 4})}},
     9,
     9,
     0,
     0},
    {"what it does not hide is exposed",
     {"s0 r3 w0 r1"},
     {{.latency = 1, .n_starts = 1, LOADS({0, 4})}},
     6,
     4,
     2,
     0},
    {"a transfer is slower beside a launch",
     {"s0 r4 w0"},
     {{.n_starts = 1, .beside = SIM_ONE / 2, LOADS({0, 6})}},
     /* it moves 2 of 6 until 4 */
     8,
     4,
     4,
     0},
    {"the largest load counts",
     {"s0 w0"},
     {{.latency = 1, .n_starts = 1, LOADS({0, 4}, {1, 9})}},
     10,
     0,
     10,
     0},
    {"a queue runs one after the other",
     {"s0 s1 w0 w1"},
     {{.n_starts = 1, LOADS({0, 4})}, {.n_starts = 1, LOADS({1, 4})}},
     8,
     0,
     8,
     0},
    {"queues on different links run beside each other",
     {"s0 s1.1 w0 w1"},
     {{.n_starts = 1, LOADS({0, 4})}, {.n_starts = 1, LOADS({1, 4})}},
     4,
     0,
     4,
     0},
    {"queues on one link share it",
     {"s0 s1.1 w0 w1"},
     {{.n_starts = 1, LOADS({0, 4})}, {.n_starts = 1, LOADS({0, 10})}},
     14,
     0,
     14,
     0},
    {"half a link is left for another",
     {"s0 s1.1 w0 w1"},
     {{.n_starts = 1, LOADS({0, 4}, {1, 8})}, {.n_starts = 1, LOADS({0, 4})}},
     /* 1.5 of the link are asked for: 6 for the second, which has moved 4 of
      * the first's 8 by then */
     10,
     0,
     10,
     0},
    {"a latency shares nothing",
     {"s0 s1.1 w0 w1"},
     {{.latency = 4, .n_starts = 1, LOADS({0, 4})},
      {.n_starts = 1, LOADS({0, 4})}},
     8,
     0,
     8,
     0},
    {"a transfer takes a quarter of the stream",
     {"s0 r9 w0"},
     {{.n_starts = 1, .takes = SIM_ONE / 4, LOADS({0, 8})}},
     11,
     9,
     0,
     2},
    {"a loop",
     {"l3 r2 s0 r1 w0 e r1"},
     {{.n_starts = 1, LOADS({0, 2})}},
     13,
     10,
     3,
     0},
    {"a loop in a loop", {"l3 l4 r2 e r1 e"}, {{0}}, 27, 27, 0, 0},
    {"ten loops, one in the other",
     {"l2 l2 l2 l2 l2 l2 l2 l2 l2 l2 r1 e e e e e e e e e e"},
     {{0}},
     1024,
     1024,
     0,
     0},
    {"a transfer from before the loop ends in it",
     {"s0 l4 r3 e w0"},
     {{.n_starts = 1, .takes = SIM_ONE / 2, LOADS({0, 4})}},
     14,
     12,
     0,
     2},
    {"a transfer from rest, and one right after it",
     {"s0 w0 s0 w0"},
     {{.latency = 6, .sooner = 4, .n_starts = 1, LOADS({0, 4})}},
     16,
     0,
     16,
     0},
    {"half of the time to rest has passed",
     {"s0 w0 r500000000 s0 w0"},
     {{.latency = 6, .sooner = 4, .n_starts = 1, LOADS({0, 4})}},
     500000018,
     500000000,
     18,
     0},
    {"a transfer of another queue keeps the class from rest",
     {"s0 r2000000000 s1.1 w1 w0"},
     {{.n_starts = 1, LOADS({0, 3000000000})},
      {.latency = 6, .sooner = 4, .n_starts = 1, LOADS({1, 4})}},
     3000000000,
     2000000000,
     1000000000,
     0},
    {"the class that is at rest counts",
     {"s0 w0 s1 w1", "s1 w1"},
     {{.latency = 6, .n_starts = 1, LOADS({0, 4})},
      {.latency = 6, .sooner = 4, .n_starts = 2, LOADS({0, 4})}},
     20,
     0,
     20,
     0},
    {"a collective begins when both have come",
     {"r5 s0 r3 w0", "r7 s0 w0"},
     {{.latency = 1, .n_starts = 2, LOADS({0, 4})}},
     12,
     8,
     4,
     0},
    {"a message waits for its sender alone",
     {"r5 s0 r9", "r1 w0 r2"},
     {{.n_starts = 1, LOADS({0, 3})}},
     14,
     14,
     0,
     0},
};

static SimResult run_told(Arena *arena, const Case *c, List *lists, int n_steps,
                          SimTell *tell, void *user) {
  SimClass *classes = ARENA_ARRAY(arena, SimClass, MOST_CLASSES);
  SimProgram *program = ARENA_NEW(arena, SimProgram);
  *program = (SimProgram){.n_transfers = 3,
                          .n_links = 4,
                          .n_terms = 1,
                          .classes = classes,
                          .transfers = c->transfers};
  for (; c->lists[program->n_classes]; program->n_classes++) {
    List *list = &lists[program->n_classes];
    *list = read_list(c->lists[program->n_classes]);
    classes[program->n_classes] = (SimClass){
        .n_actions = list->n, .n_queues = QUEUES, .actions = list->actions};
  }
  return simulate(arena, program, n_steps, tell, user);
}

static SimResult run_case(Arena *arena, const Case *c, List *lists, int n_steps,
                          SimTell *tell) {
  return run_told(arena, c, lists, n_steps, tell, NULL);
}

static void no_span(void *user, const SimSpan *span) {
  (void)user;
  cr_expect_leq(span->begin, span->end);
}

Test(simulate, known_times) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    const Case *c = &cases[i];
    /* With a span no iteration is left out: the same times. */
    for (int spans = 0; spans < 2; spans++) {
      SimResult result =
          run_case(module->arena, c, lists, 1, spans ? no_span : NULL);
      cr_expect(!result.is_stuck, "%s", c->name);
      cr_expect_eq(result.step, c->step, "%s: %lld", c->name,
                   (long long)result.step);
      SimClassResult first = result.classes[0];
      cr_expect_eq(*first.compute, c->compute, "%s: compute %lld", c->name,
                   (long long)*first.compute);
      cr_expect_eq(*first.exposed, c->exposed, "%s: exposed %lld", c->name,
                   (long long)*first.exposed);
      cr_expect_eq(*first.taken, c->taken, "%s: taken %lld", c->name,
                   (long long)*first.taken);
    }
  }
}

/* Whatever the times are, a step takes SIM_LONGEST at most, its parts add up to
 * it, and so do spans. */
static const Case long_cases[] = {
    {"a launch", {"r9000000000000000000"}, {{0}}, 0, 0, 0, 0},
    {"a sum of launches",
     {"r2000000000000000000 r2000000000000000000 r2000000000000000000 "
      "r2000000000000000000 r2000000000000000000"},
     {{0}},
     0,
     0,
     0,
     0},
    {"a loop", {"l1000000 r900000000000000 e r5"}, {{0}}, 0, 0, 0, 0},
    {"a transfer",
     {"r4 s0 r1000 w0", "s0 w0 r3"},
     {{.latency = INT64_MAX / 4, .n_starts = 2, LOADS({0, INT64_MAX / 4})}},
     0,
     0,
     0,
     0},
    {"a slow transfer beside a slow launch",
     {"s0 r2000000000000000000 w0 r1"},
     {{.takes = SIM_ONE / 2, .n_starts = 1, LOADS({0, INT64_MAX / 4})}},
     0,
     0,
     0,
     0},
};

typedef struct SpanSums {
  Ps now, taken; /* of the stream of class 0 */
  bool has_gap;
} SpanSums;

static void add_span(void *user, const SimSpan *span) {
  SpanSums *sums = user;
  if (span->class != 0 || span->queue >= 0) return;
  sums->has_gap |= sums->now > 0 && span->begin != sums->now;
  sums->now = span->end;
  sums->taken += span->taken;
}

/* A wait that the first step leaves out is for the transfer of the step before.
 */
Test(simulate, from_step) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  Case c = {"", {"r5 s0", "w0@1 r6"}, {{.n_starts = 1, LOADS({0, 1})}}, 0, 0, 0,
            0};
  SimResult result = run_case(module->arena, &c, lists, 5, NULL);
  cr_expect_eq(result.classes[1].step_ends[0], 6);
  cr_expect_eq(result.classes[1].step_ends[1], 12);
  cr_expect_eq(result.step, 6, "%lld", (long long)result.step);
}

Test(simulate, too_long) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  for (int i = 0; i < (int)(sizeof long_cases / sizeof *long_cases); i++) {
    const Case *c = &long_cases[i];
    for (int n_steps = 1; n_steps < SIM_LONG_STEPS; n_steps++) {
      SimResult result = run_case(module->arena, c, lists, n_steps, NULL);
      SimClassResult first = result.classes[0];
      Ps end = first.step_ends[n_steps - 1];
      Ps begin = n_steps > 1 ? first.step_ends[n_steps - 2] : 0;
      cr_expect_eq(result.step, SIM_LONGEST, "%s: %lld", c->name,
                   (long long)result.step);
      cr_expect_eq(end, n_steps * SIM_LONGEST, "%s", c->name);
      cr_expect_eq(*first.compute + *first.exposed + *first.taken, end - begin,
                   "%s", c->name);
    }
  }
}

Test(simulate, spans_of_what_is_too_long) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  for (int i = 0; i < (int)(sizeof long_cases / sizeof *long_cases); i++) {
    const Case *c = &long_cases[i];
    if (strcmp(c->name, "a loop") == 0) continue; /* a span for each trip */
    SpanSums sums = {0};
    SimResult result = run_told(module->arena, c, lists, 1, add_span, &sums);
    cr_expect(!sums.has_gap, "%s", c->name);
    cr_expect_eq(sums.now, SIM_LONGEST, "%s", c->name);
    cr_expect_eq(sums.taken, *result.classes[0].taken, "%s", c->name);
  }
}

/* The second class of a pipeline is behind in the first step alone. */
Test(simulate, steady_state) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  Case c = {"", {"r5 s0", "w0 r6"}, {{.n_starts = 1, LOADS({0, 1})}}, 0, 0, 0,
            0};
  SimResult result = run_case(module->arena, &c, lists, 5, NULL);
  cr_expect_eq(result.classes[1].step_ends[0], 12);
  cr_expect_eq(result.step, 6, "%lld", (long long)result.step);
}

/* The first transfer of a step follows the last one of the step before. */
Test(simulate, steps_follow_each_other) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  Case c = {"",
            {"s0 w0 r250000000"},
            {{.latency = 8, .sooner = 4, .n_starts = 1, LOADS({0, 2})}},
            0,
            0,
            0,
            0};
  SimResult result = run_case(module->arena, &c, lists, 3, NULL);
  cr_expect_eq(result.classes[0].step_ends[0], 250000010);
  cr_expect_eq(result.classes[0].step_ends[1], 2 * 250000010 - 3);
  cr_expect_eq(result.step, 250000007);
}

Test(simulate, deadlocks) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  Case c = {"",
            {"r2 s0 w0 s1 w1", "s1 w1 s0 w0"},
            {{.n_starts = 2, LOADS({0, 1})}, {.n_starts = 2, LOADS({0, 1})}},
            0,
            0,
            0,
            0};
  SimResult result = run_case(module->arena, &c, lists, 1, NULL);
  cr_assert(result.is_stuck);
  cr_expect_eq(result.classes[0].waits_for, 0);
  cr_expect_eq(result.classes[0].waits_at, 2);
  cr_expect_eq(result.classes[1].waits_for, 1);
  cr_expect_eq(result.classes[0].waits_on, 1);
  cr_expect_eq(result.classes[1].waits_on, 0);
}

/* The last class never starts what the second waits for, and the first waits
 * behind it in a queue. */
Test(simulate, the_class_that_has_to_go_on) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  Case c = {"",
            {"s0 w0", "s1 s0 w0 w1", "w2 s1 s2"},
            {{.n_starts = 2, LOADS({0, 1})},
             {.n_starts = 2, LOADS({0, 1})},
             {.n_starts = 1, LOADS({0, 1})}},
            0,
            0,
            0,
            0};
  SimResult result = run_case(module->arena, &c, lists, 1, NULL);
  cr_assert(result.is_stuck);
  cr_expect_eq(result.classes[0].waits_on, 2);
  cr_expect_eq(result.classes[1].waits_on, 2);
  cr_expect_eq(result.classes[2].waits_on, 2);
}

/* ---- random lists against single ticks ---- */

typedef struct Tick {
  int at, left, waits;             /* of a class; waits: a transfer or -1 */
  int queue[QUEUES][MOST_ACTIONS]; /* transfers, in order */
  int first[QUEUES], n[QUEUES];
} Tick;

/* Each transfer is started once by each class, and moves over a link that no
 * other has: its rate is 1. */
static Ps tick_until_done(const SimProgram *program) {
  Tick ticks[MOST_CLASSES] = {0};
  int left[MOST_TRANSFERS];
  bool done[MOST_TRANSFERS] = {false};
  for (int t = 0; t < program->n_transfers; t++)
    left[t] = (int)(program->transfers[t].latency +
                    program->transfers[t].loads->busy);
  for (int c = 0; c < program->n_classes; c++) ticks[c].waits = -1;
  for (Ps now = 0;; now++) {
    int n_done = 0;
    /* An end lets classes go on, which may end nothing more: starts and
     * transfers of no length are not made. */
    for (int c = 0; c < program->n_classes; c++) {
      Tick *tick = &ticks[c];
      const SimClass *class = &program->classes[c];
      while (tick->left == 0 && (tick->waits < 0 || done[tick->waits])) {
        tick->waits = -1;
        if (tick->at == class->n_actions) break;
        const SimAction *action = &class->actions[tick->at++];
        if (action->kind == SIM_run) tick->left = (int)action->duration;
        if (action->kind == SIM_wait) tick->waits = action->transfer;
        if (action->kind == SIM_start)
          tick->queue[action->queue][tick->n[action->queue]++] =
              action->transfer;
      }
      n_done += tick->at == class->n_actions && tick->left == 0 &&
                (tick->waits < 0 || done[tick->waits]);
    }
    if (n_done == program->n_classes) return now;
    for (int t = 0; t < program->n_transfers; t++) {
      int n_first = 0;
      for (int c = 0; c < program->n_classes; c++)
        for (int q = 0; q < QUEUES; q++)
          n_first += ticks[c].first[q] < ticks[c].n[q] &&
                     ticks[c].queue[q][ticks[c].first[q]] == t;
      if (n_first == program->n_classes && !done[t]) left[t]--;
    }
    for (int t = 0; t < program->n_transfers; t++) {
      if (left[t] > 0 || done[t]) continue;
      done[t] = true;
      for (int c = 0; c < program->n_classes; c++)
        for (int q = 0; q < QUEUES; q++)
          if (ticks[c].first[q] < ticks[c].n[q] &&
              ticks[c].queue[q][ticks[c].first[q]] == t)
            ticks[c].first[q]++;
    }
    for (int c = 0; c < program->n_classes; c++)
      if (ticks[c].left > 0) ticks[c].left--;
  }
}

/* A number below n; each call another. */
static int draw(uint64_t *calls, int n) {
  return (int)random_below(20261125, (*calls)++, (uint64_t)n);
}

/* All classes start the transfers in one order and on one queue each, so none
 * waits for ever. */
static int random_list(uint64_t *calls, int n_transfers, const int *queue_of,
                       SimAction *actions) {
  int n = 0;
  bool is_awaited[MOST_TRANSFERS] = {false};
  for (int t = 0; t < n_transfers; t++) {
    for (int k = draw(calls, 3); k > 0; k--)
      actions[n++] =
          (SimAction){.kind = SIM_run, .duration = draw(calls, 9) + 1};
    actions[n++] =
        (SimAction){.kind = SIM_start, .transfer = t, .queue = queue_of[t]};
    int waits = draw(calls, t + 1);
    if (draw(calls, 2) && !is_awaited[waits]) {
      is_awaited[waits] = true;
      actions[n++] = (SimAction){.kind = SIM_wait, .transfer = waits};
    }
  }
  for (int t = 0; t < n_transfers; t++)
    if (!is_awaited[t])
      actions[n++] = (SimAction){.kind = SIM_wait, .transfer = t};
  return n;
}

Test(simulate, random_lists_take_as_long_in_single_ticks) {
  Module *module = module_create();
  uint64_t calls = 0;
  for (int round = 0; round < 2000; round++) {
    SimTransfer transfers[MOST_TRANSFERS];
    SimLoad loads[MOST_TRANSFERS];
    SimClass classes[MOST_CLASSES];
    SimAction actions[MOST_CLASSES][MOST_ACTIONS];
    int queue_of[MOST_TRANSFERS];
    SimProgram program = {.n_classes = 1 + draw(&calls, 3),
                          .n_transfers = 1 + draw(&calls, 8),
                          .n_links = MOST_TRANSFERS,
                          .n_terms = 1,
                          .classes = classes,
                          .transfers = transfers};
    for (int t = 0; t < program.n_transfers; t++) {
      queue_of[t] = draw(&calls, QUEUES);
      loads[t] = (SimLoad){t, draw(&calls, 12) + 1};
      transfers[t] = (SimTransfer){.latency = draw(&calls, 3),
                                   .n_loads = 1,
                                   .loads = &loads[t],
                                   .n_starts = program.n_classes};
    }
    for (int c = 0; c < program.n_classes; c++)
      classes[c] =
          (SimClass){.n_actions = random_list(&calls, program.n_transfers,
                                              queue_of, actions[c]),
                     .n_queues = QUEUES,
                     .actions = actions[c]};
    SimResult result = simulate(module->arena, &program, 1, NULL, NULL);
    Ps expected = tick_until_done(&program);
    cr_assert_eq(result.step, expected, "round %d: %lld, in ticks %lld", round,
                 (long long)result.step, (long long)expected);
    cr_assert(result.is_idle);
    for (int c = 0; c < program.n_classes; c++) {
      SimClassResult *of = &result.classes[c];
      cr_assert_eq(*of->compute + *of->exposed + *of->taken, *of->step_ends);
    }
    if (program.n_classes > 1) continue;
    /* One class waits for all that it has started, so its steps are equal. */
    result = simulate(module->arena, &program, 4, NULL, NULL);
    for (int k = 0; k < 4; k++)
      cr_assert_eq(result.classes->step_ends[k], (k + 1) * expected);
  }
}

/* ---- iterations that are counted and not run ---- */

/* "b1" after a wait: it waits for the run before the last. */
Test(simulate, waits_for_an_earlier_run) {
  SimAction actions[] = {{.kind = SIM_start},
                         {.kind = SIM_start},
                         {.kind = SIM_wait, .back = 1},
                         {.kind = SIM_run, .duration = 1},
                         {.kind = SIM_wait}};
  SimTransfer transfer = {.n_starts = 1, LOADS({0, 4})};
  SimClass class = {.n_actions = 5, .n_queues = 1, .actions = actions};
  SimProgram program = {.n_classes = 1,
                        .n_transfers = 1,
                        .n_links = 1,
                        .n_terms = 1,
                        .classes = &class,
                        .transfers = &transfer};
  SimResult result = simulate(module_create()->arena, &program, 1, NULL, NULL);
  cr_expect_eq(result.step, 8);
  cr_expect_eq(*result.classes->exposed, 7);
}

/* A transfer is always under way at the end of an iteration; without a state
 * that recurs this would take hours. */
Test(simulate, long_loops_repeat) {
  Module *module = module_create();
  List lists[MOST_CLASSES];
  Case c = {"",
            {"s0 l1000000000 r20 w0 s0 r12 e w0"},
            {{.n_starts = 1, .takes = SIM_ONE / 4, LOADS({0, 12})}},
            0,
            0,
            0,
            0};
  SimResult result = run_case(module->arena, &c, lists, 1, NULL);
  /* The last transfer is waited for, the one before the loop takes its part. */
  cr_expect_eq(*result.classes->compute, 32000000000);
  cr_expect_eq(*result.classes->taken, 3000000003);
  cr_expect_eq(result.step, 35000000003, "%lld", (long long)result.step);
}

/* Classes in a row: each receives from the one before, sums gradients beside a
 * launch over a link that its message needs, too, and sends on. */
static int chain_list(int class, int n, SimAction *actions) {
  enum { SECOND = 1000000007 };
  int k = 0, sum = n + class;
  actions[k++] = (SimAction){.kind = SIM_loop, .trips = 100000000};
  if (class > 0) {
    actions[k++] = (SimAction){.kind = SIM_start, .transfer = class - 1};
    actions[k++] = (SimAction){.kind = SIM_wait, .transfer = class - 1};
  }
  actions[k++] = (SimAction){.kind = SIM_start, .transfer = sum, .queue = 1};
  actions[k++] = (SimAction){.duration = SECOND + 77777 * (class % 3)};
  if (class + 1 < n)
    actions[k++] =
        (SimAction){.kind = SIM_start, .transfer = class, .queue = 2};
  for (int i = 1; i < 8; i++)
    actions[k++] =
        (SimAction){.duration = SECOND / (10 + i) + 1234567 / i * class};
  actions[k++] = (SimAction){.kind = SIM_wait, .transfer = sum};
  if (class + 1 < n)
    actions[k++] = (SimAction){.kind = SIM_wait, .transfer = class};
  actions[k++] = (SimAction){.kind = SIM_end};
  return k;
}

/* Launches that others slow and transfers that share links are rounded, but not
 * by what goes on elsewhere: else no state would recur. */
Test(simulate, loops_of_many_classes_repeat) {
  enum { N = 24 };
  Module *module = module_create();
  static SimAction actions[N][24];
  SimClass classes[N];
  SimTransfer transfers[2 * N];
  SimLoad loads[2 * N][2];
  for (int c = 0; c < N; c++) {
    classes[c] = (SimClass){.n_actions = chain_list(c, N, actions[c]),
                            .n_queues = 3,
                            .actions = actions[c]};
    loads[c][0] = (SimLoad){c, 100000019};
    loads[c][1] = (SimLoad){(c + 1) % N, 70000001};
    loads[N + c][0] = (SimLoad){c, 700000013};
    transfers[c] = (SimTransfer){1001, 0, 2, loads[c], 2, SIM_ONE / 11, 0, 0};
    transfers[N + c] =
        (SimTransfer){1003, 0, 1, loads[N + c], 1, SIM_ONE / 7, 0, 0};
  }
  SimProgram program = {.n_classes = N,
                        .n_transfers = 2 * N,
                        .n_links = N,
                        .n_terms = 1,
                        .classes = classes,
                        .transfers = transfers};
  SimResult result = simulate(module->arena, &program, 1, NULL, NULL);
  cr_expect(!result.is_stuck);
  for (int c = 0; c < N; c++)
    cr_expect_eq(*result.classes[c].compute + *result.classes[c].exposed +
                     *result.classes[c].taken,
                 *result.classes[c].step_ends);
}

enum { LOOP_QUEUES = 2, LOOP_KINDS = 4 };

/* One list in which what is started is waited for some time later, in the loop
 * or after it, by classes of different speed. */
static int random_loop_list(uint64_t *calls, SimAction *actions) {
  int n = 0, depth = 0, pending = 0;
  int64_t back[LOOP_KINDS] = {0};
  for (int i = 0; i < 24; i++) {
    int kind = draw(calls, LOOP_KINDS);
    switch (draw(calls, 7)) {
    case 0:
      if (depth == 2) break;
      depth++;
      actions[n++] =
          (SimAction){.kind = SIM_loop, .trips = draw(calls, 16) + 1};
      break;
    case 1:
      if (depth == 0 || actions[n - 1].kind == SIM_loop) break;
      depth--;
      actions[n++] = (SimAction){.kind = SIM_end};
      break;
    case 2:
    case 3:
      actions[n++] = (SimAction){
          .kind = SIM_start, .transfer = kind, .queue = kind % LOOP_QUEUES};
      pending |= 1 << kind;
      back[kind]++;
      break;
    case 4:
      if (!(pending >> kind & 1)) break;
      actions[n++] = (SimAction){.kind = SIM_wait,
                                 .transfer = kind,
                                 .back = draw(calls, (int)back[kind])};
      break;
    default:
      actions[n++] =
          (SimAction){.kind = SIM_run, .duration = draw(calls, 90) + 1};
    }
  }
  while (depth-- > 0) actions[n++] = (SimAction){.kind = SIM_end};
  return n;
}

static void expect_equal_results(const SimProgram *program, const SimResult *a,
                                 const SimResult *b, int n_steps, int round) {
  cr_assert_eq(a->is_stuck, b->is_stuck);
  cr_assert_eq(a->step, b->step, "round %d: %lld, run in full %lld", round,
               (long long)a->step, (long long)b->step);
  for (int c = 0; c < program->n_classes; c++) {
    const SimClassResult *x = &a->classes[c], *y = &b->classes[c];
    for (int k = 0; k < n_steps; k++)
      cr_assert_eq(x->step_ends[k], y->step_ends[k], "round %d", round);
    cr_assert_eq(*x->compute, *y->compute, "round %d", round);
    cr_assert_eq(*x->exposed, *y->exposed, "round %d", round);
    cr_assert_eq(*x->taken, *y->taken, "round %d", round);
  }
}

Test(simulate, loops_take_as_long_as_run_in_full) {
  uint64_t calls = 1000000;
  for (int round = 0; round < 300; round++) {
    Module *module = module_create();
    int n_steps = 3 + round % 4; /* of five and more some are counted */
    SimAction actions[MOST_CLASSES][MOST_ACTIONS];
    SimClass classes[MOST_CLASSES];
    SimTransfer transfers[LOOP_KINDS];
    SimLoad loads[LOOP_KINDS];
    /* Every other list has gaps that count. */
    Ps scale = round % 2 ? SIM_REST / 100 : 1;
    int n = random_loop_list(&calls, actions[0]);
    for (int i = 0; i < n; i++) actions[0][i].duration *= scale;
    SimProgram program = {.n_classes = 1 + draw(&calls, MOST_CLASSES),
                          .n_transfers = LOOP_KINDS,
                          .n_links = 2,
                          .n_terms = 1,
                          .classes = classes,
                          .transfers = transfers};
    for (int t = 0; t < LOOP_KINDS; t++) {
      loads[t] = (SimLoad){draw(&calls, 2), (draw(&calls, 60) + 1) * scale};
      transfers[t] = (SimTransfer){.latency = draw(&calls, 9) * scale,
                                   .n_loads = 1,
                                   .loads = &loads[t],
                                   .n_starts = program.n_classes,
                                   .takes = draw(&calls, 3) * SIM_ONE / 7};
      if (scale > 1)
        transfers[t].sooner = transfers[t].latency * draw(&calls, 5) / 4;
    }
    for (int c = 0; c < program.n_classes; c++) {
      for (int i = 0; c > 0 && i < n; i++) {
        actions[c][i] = actions[0][i];
        if (actions[c][i].kind == SIM_run)
          actions[c][i].duration += draw(&calls, 20);
      }
      classes[c] = (SimClass){
          .n_actions = n, .n_queues = LOOP_QUEUES, .actions = actions[c]};
    }
    SimResult result = simulate(module->arena, &program, n_steps, NULL, NULL);
    SimResult full = simulate(module->arena, &program, n_steps, no_span, NULL);
    expect_equal_results(&program, &result, &full, n_steps, round);
    modules_destroy();
  }
}

/* ---- many classes ---- */

/* Each class waits for a message from the one before it and sends one on. */
static size_t bytes_of_chain(int n) {
  Module *module = module_create();
  Arena *arena = module->arena;
  SimClass *classes = ARENA_ARRAY(arena, SimClass, n);
  SimTransfer *transfers = ARENA_ARRAY(arena, SimTransfer, n);
  static const SimLoad load = {0, 1};
  for (int c = 0; c < n; c++) {
    SimAction *actions = ARENA_ARRAY(arena, SimAction, 3);
    int k = 0;
    if (c > 0) actions[k++] = (SimAction){.kind = SIM_wait, .transfer = c - 1};
    actions[k++] = (SimAction){.kind = SIM_run, .duration = 1};
    if (c + 1 < n) actions[k++] = (SimAction){.kind = SIM_start, .transfer = c};
    transfers[c] = (SimTransfer){.n_starts = 1, .n_loads = 1, .loads = &load};
    classes[c] = (SimClass){.n_actions = k, .n_queues = 1, .actions = actions};
  }
  SimProgram program = {.n_classes = n,
                        .n_transfers = n - 1,
                        .n_links = 1,
                        .n_terms = 1,
                        .classes = classes,
                        .transfers = transfers};
  size_t before = arena_bytes(arena);
  SimResult result = simulate(arena, &program, 1, NULL, NULL);
  cr_assert(!result.is_stuck);
  cr_expect_eq(result.step, 2 * n - 1);
  return arena_bytes(arena) - before;
}

Test(simulate, memory_is_linear_in_classes) {
  size_t few = bytes_of_chain(1000), many = bytes_of_chain(4000);
  cr_expect_lt(many, 6 * few, "%zu and %zu bytes", few, many);
}
