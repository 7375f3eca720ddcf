// links: price passes ir support
/*
 * server_queue.c -- tests workers and servers as a queue: small ones whose
 * clocks are known, and random ones against a simulator that moves in single
 * ticks.
 */
#include "price/price_servers.h"
#include "tests/unit/values.h"

TestSuite(server_queue, .fini = modules_destroy);

enum { MOST_WORKERS = 4, MOST_SERVERS = 3, INTO_SERVER = 0, OUT_OF_SERVER = 1 };

/* One server; all pushes share one link, and all replies another one. */
typedef struct Case {
  const char *name;
  int64_t staleness;
  int workers;
  Ps compute[MOST_WORKERS], service, latency, push, reply;
  Ps clocks[MOST_WORKERS];
} Case;

static const Case cases[] = {
    /* 100, 3 and two pushes of 10 that share a link, 5, 3 and two replies */
    {"BSP", 0, 2, {100, 100}, 5, 3, 10, 10, {151, 151}},
    /* The slower worker pushes alone: 100 + 13 + 5 + 23. */
    {"BSP waits for the slowest worker",
     0,
     2,
     {100, 60},
     5,
     3,
     10,
     10,
     {141, 141}},
    {"BSP of nothing but a service", 0, 2, {0, 0}, 7, 0, 0, 0, {7, 7}},
    /* Each worker waits for the update of the other one. */
    {"the server is what takes longest",
     -1,
     2,
     {10, 10},
     50,
     0,
     0,
     0,
     {100, 100}},
    {"SSP, too", 1, 2, {10, 10}, 50, 0, 0, 0, {100, 100}},
    {"three workers", -1, 3, {10, 10, 10}, 50, 2, 0, 0, {150, 150, 150}},
    /* The services are 1 after the other, so are the next pushes: one is alone
     * for 1 and half as fast for 118. */
    {"the link is what takes longest",
     -1,
     2,
     {10, 10},
     1,
     0,
     60,
     0,
     {130, 130}},
    /* Once apart, workers meet nobody: 1000 + 2 + 10 + 5 + 2 + 10. */
    {"workers are what takes longest",
     -1,
     2,
     {1000, 700},
     5,
     2,
     0,
     0,
     {1009, 709}},
    {"one worker has the server for itself",
     -1,
     1,
     {1000},
     5,
     2,
     10,
     10,
     {1029}},
    /* The fast worker ends when the slow one has its reply, and is ready again
     * before that. */
    {"SSP(1) holds a fast worker", 1, 2, {10, 100}, 5, 0, 0, 0, {105, 105}},
    {"SSP(3), too", 3, 2, {10, 100}, 5, 1, 0, 0, {107, 107}},
};

static ServerQueue queue_of(Arena *arena, const Case *c) {
  SimTransfer *messages = ARENA_ARRAY(arena, SimTransfer, 2 * c->workers);
  SimLoad *loads = ARENA_ARRAY(arena, SimLoad, 2);
  loads[INTO_SERVER] = (SimLoad){INTO_SERVER, c->push};
  loads[OUT_OF_SERVER] = (SimLoad){OUT_OF_SERVER, c->reply};
  for (int i = 0; i < 2 * c->workers; i++)
    messages[i] = (SimTransfer){
        .n_starts = 1,
        .latency = c->latency,
        .n_loads = 1,
        .loads = &loads[i < c->workers ? INTO_SERVER : OUT_OF_SERVER]};
  return (ServerQueue){.workers = c->workers,
                       .servers = 1,
                       .staleness = c->staleness,
                       .compute = c->compute,
                       .service = &c->service,
                       .n_links = 2,
                       .pushes = messages,
                       .replies = messages + c->workers};
}

Test(server_queue, known_clocks) {
  Module *module = module_create();
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    const Case *c = &cases[i];
    ServerQueue queue = queue_of(module->arena, c);
    Ps clocks[MOST_WORKERS];
    server_queue_clocks(module->arena, &queue, clocks);
    for (int w = 0; w < c->workers; w++)
      cr_expect_eq(clocks[w], c->clocks[w], "%s: worker %d: %lld", c->name, w,
                   (long long)clocks[w]);
  }
}

/* Without a bound a fast worker goes on beside a slow one, and each update of
 * the other one holds it up for a service at most. */
Test(server_queue, asp_holds_no_worker) {
  Module *module = module_create();
  Case c = {"ASP", -1, 2, {10, 100}, 5, 0, 0, 0, {0}};
  ServerQueue queue = queue_of(module->arena, &c);
  Ps clocks[MOST_WORKERS];
  server_queue_clocks(module->arena, &queue, clocks);
  cr_expect(clocks[0] >= 15 && clocks[0] <= 16, "%lld", (long long)clocks[0]);
  cr_expect(clocks[1] >= 105 && clocks[1] <= 110, "%lld", (long long)clocks[1]);
}

/* The staleness rule with 0 is lock-step as BSP is, but for updates: a server
 * that serves each push as it comes has done that of a fast worker before the
 * slow one pushes.  Where all push at once it has as many as there are workers,
 * one after the other, as one service of BSP that is so long. */
Test(server_queue, ssp_of_0_is_lock_step) {
  static const struct {
    Ps compute[2], step;
  } rows[] = {{{10, 100}, 105}, {{100, 98}, 108}, {{100, 100}, 110}};
  Arena *arena = module_create()->arena;
  static const int pushes[2] = {0, 1};
  static const SimServer server = {.n_workers = 2, .pushes = pushes};
  SimTransfer messages[4];
  for (int i = 0; i < 4; i++) messages[i] = (SimTransfer){.n_starts = 1};
  for (int i = 0; i < (int)(sizeof rows / sizeof *rows); i++) {
    SimAction lists[3][3] = {0};
    SimClass classes[3] = {0};
    for (int w = 0; w < 2; w++) {
      lists[w][0] =
          (SimAction){.kind = SIM_run, .duration = rows[i].compute[w]};
      lists[w][1] = (SimAction){.kind = SIM_start, .transfer = w};
      lists[w][2] = (SimAction){.kind = SIM_wait, .transfer = 2 + w};
      lists[2][1 + w] =
          (SimAction){.kind = SIM_start, .transfer = 2 + w, .queue = w};
    }
    lists[2][0] = (SimAction){.kind = SIM_run, .duration = 5};
    for (int c = 0; c < 3; c++)
      classes[c] =
          (SimClass){.n_actions = 3, .n_queues = 2, .actions = lists[c]};
    classes[2].server = &server;
    SimProgram program = {.n_classes = 3,
                          .n_transfers = 4,
                          .n_terms = 1,
                          .classes = classes,
                          .transfers = messages};
    SimResult result = simulate(arena, &program, 12, NULL, NULL);
    cr_assert(!result.is_stuck);
    for (int w = 0; w < 2; w++) {
      const SimClassResult *of = &result.classes[w];
      cr_expect_eq(of->step_ends[11] - of->step_ends[10], rows[i].step,
                   "row %d: worker %d: %lld", i, w,
                   (long long)(of->step_ends[11] - of->step_ends[10]));
    }
  }
}

/* ---- against ticks ---- */

/* As CLOCKS and CLOCKS_BEFORE of server_queue.c. */
enum { CLOCKS = 32, BEFORE = 8, MOST_CLOCKS = 4096 };

typedef struct Line {
  int workers[MOST_WORKERS], n, worker; /* worker: is served; -1 */
  int64_t until, clocks[MOST_WORKERS];
  bool waits[MOST_WORKERS];
} Line;

typedef struct Ticks {
  const ServerQueue *q;
  Ps latency;
  Line lines[MOST_SERVERS];
  int64_t pushes[MOST_WORKERS]; /* time at which its pushes come; -1 */
  int64_t replies[MOST_WORKERS][MOST_SERVERS];
  int64_t ends[MOST_WORKERS][MOST_CLOCKS];
  int n[MOST_WORKERS];
} Ticks;

static void reply_where_allowed(Ticks *t, int server, int64_t now) {
  Line *line = &t->lines[server];
  int64_t slowest = INT64_MAX;
  for (int w = 0; w < t->q->workers; w++)
    if (line->clocks[w] < slowest) slowest = line->clocks[w];
  for (int w = 0; w < t->q->workers; w++)
    if (line->waits[w] &&
        (t->q->staleness < 0 || line->clocks[w] - slowest <= t->q->staleness)) {
      line->waits[w] = false;
      t->replies[w][server] = now + t->latency;
    }
}

static void tick_server(Ticks *t, int server, int64_t now) {
  Line *line = &t->lines[server];
  for (int w = 0; w < t->q->workers; w++)
    if (t->pushes[w] == now) line->workers[line->n++] = w;
  if (line->worker >= 0 && line->until == now) {
    line->clocks[line->worker]++;
    line->waits[line->worker] = true;
    line->worker = -1;
    reply_where_allowed(t, server, now);
  }
  if (line->worker >= 0 || line->n == 0) return;
  line->worker = line->workers[0];
  line->until = now + t->q->service[server];
  line->n--;
  for (int i = 0; i < line->n; i++) line->workers[i] = line->workers[i + 1];
}

static void tick_worker(Ticks *t, int worker, int64_t now) {
  int64_t last = 0;
  for (int s = 0; s < t->q->servers; s++) {
    if (t->replies[worker][s] < 0) return;
    if (t->replies[worker][s] > last) last = t->replies[worker][s];
  }
  if (last != now) return;
  for (int s = 0; s < t->q->servers; s++) t->replies[worker][s] = -1;
  t->ends[worker][t->n[worker]++] = now;
  t->pushes[worker] = now + t->q->compute[worker] + t->latency;
}

/* Runs until the slowest worker has made CLOCKS. */
static void run_ticks(Ticks *t) {
  int least = 0;
  for (int w = 0; w < t->q->workers; w++) {
    t->pushes[w] = t->q->compute[w] + t->latency;
    for (int s = 0; s < t->q->servers; s++) t->replies[w][s] = -1;
  }
  for (int s = 0; s < t->q->servers; s++) t->lines[s].worker = -1;
  for (int64_t now = 0; least < CLOCKS; now++) {
    for (int s = 0; s < t->q->servers; s++) tick_server(t, s, now);
    for (int w = 0; w < t->q->workers; w++) tick_worker(t, w, now);
    least = CLOCKS;
    for (int w = 0; w < t->q->workers; w++)
      if (t->n[w] < least) least = t->n[w];
  }
}

static int64_t mean_of_ticks(const Ticks *t, int worker) {
  int64_t begin = 0, end = INT64_MAX;
  for (int w = 0; w < t->q->workers; w++) {
    if (t->ends[w][BEFORE - 1] > begin) begin = t->ends[w][BEFORE - 1];
    if (t->ends[w][t->n[w] - 1] < end) end = t->ends[w][t->n[w] - 1];
  }
  int first = 0, last = t->n[worker] - 1;
  while (t->ends[worker][first] < begin) first++;
  while (t->ends[worker][last] > end) last--;
  cr_assert(last > first);
  return (t->ends[worker][last] - t->ends[worker][first]) / (last - first);
}

static Ps drawn(uint64_t *seed, int64_t least, int64_t most) {
  *seed = *seed * 6364136223846793005u + 1442695040888963407u;
  return least + (int64_t)(*seed >> 33) % (most - least + 1);
}

static ServerQueue drawn_queue(Arena *arena, uint64_t *seed, Ps *latency) {
  ServerQueue q = {.workers = (int)drawn(seed, 1, MOST_WORKERS),
                   .servers = (int)drawn(seed, 1, MOST_SERVERS),
                   .staleness = drawn(seed, -1, 3)};
  if (q.staleness == 0) q.staleness = 1;
  Ps *compute = ARENA_ARRAY(arena, Ps, q.workers),
     *service = ARENA_ARRAY(arena, Ps, q.servers);
  SimTransfer *messages =
      ARENA_ARRAY(arena, SimTransfer, q.workers * q.servers);
  *latency = drawn(seed, 1, 9);
  for (int w = 0; w < q.workers; w++) compute[w] = drawn(seed, 1, 60);
  for (int s = 0; s < q.servers; s++) service[s] = drawn(seed, 1, 12);
  for (int i = 0; i < q.workers * q.servers; i++)
    messages[i] = (SimTransfer){.n_starts = 1, .latency = *latency};
  q.compute = compute;
  q.service = service;
  q.pushes = q.replies = messages;
  return q;
}

Test(server_queue, as_in_single_ticks) {
  Arena *arena = module_create()->arena;
  uint64_t seed = 1;
  for (int i = 0; i < 2000; i++) {
    Ps latency, clocks[MOST_WORKERS];
    ServerQueue queue = drawn_queue(arena, &seed, &latency);
    Ticks *ticks = ARENA_NEW(arena, Ticks);
    ticks->q = &queue;
    ticks->latency = latency;
    run_ticks(ticks);
    server_queue_clocks(arena, &queue, clocks);
    for (int w = 0; w < queue.workers; w++)
      cr_assert_eq(clocks[w], mean_of_ticks(ticks, w),
                   "queue %d: worker %d: %lld, in ticks %lld", i, w,
                   (long long)clocks[w], (long long)mean_of_ticks(ticks, w));
  }
}

/* ---- bounds ---- */

static double rate_of(const Ps *clocks, int n) {
  double rate = 0;
  for (int w = 0; w < n; w++) rate += 1 / (double)clocks[w];
  return rate;
}

/* A worker without a bound is held up by one update of each other one at most,
 * and with a bound by a slower worker besides.  With 0 all of that is between
 * two clocks.  A mean is rounded down. */
Test(server_queue, more_staleness_is_no_slower) {
  Arena *arena = module_create()->arena;
  uint64_t seed = 7;
  for (int i = 0; i < 500; i++) {
    Ps latency, bsp[MOST_WORKERS], asp[MOST_WORKERS];
    ServerQueue queue = drawn_queue(arena, &seed, &latency);
    Ps each[MOST_SERVERS], all[MOST_SERVERS];
    for (int s = 0; s < queue.servers; s++) {
      each[s] = queue.service[s];
      all[s] = queue.workers * each[s];
    }
    queue.staleness = -1;
    queue.service = each;
    server_queue_clocks(arena, &queue, asp);
    queue.staleness = 0;
    queue.service = all;
    server_queue_clocks(arena, &queue, bsp);
    Ps slowest = 0, update = 0;
    for (int w = 0; w < queue.workers; w++)
      if (queue.compute[w] > slowest) slowest = queue.compute[w];
    for (int s = 0; s < queue.servers; s++)
      if (all[s] > update) update = all[s];
    for (int w = 0; w < queue.workers; w++)
      cr_assert_eq(bsp[w], slowest + update + 2 * latency);
    cr_assert(rate_of(asp, queue.workers) >= rate_of(bsp, queue.workers),
              "queue %d", i);
  }
}
