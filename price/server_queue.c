/*
 * server_queue.c -- runs workers and servers of parameters on the simulator
 * until their clocks are steady.
 *
 *     worker          computes, pushes to each server, takes the replies
 *     server, BSP     takes the push of each worker, updates, replies to all
 *     server, SSP(s)  serves one push after the other (simulator_servers.c)
 *
 * With a staleness of 0 a server has a list, as any class has: a step takes as
 * long as the one before.  Else what comes first is served first, and the
 * clocks of the first steps are left out.
 */
#include "price/price_servers.h"

/* Clocks that the slowest worker makes; those before the steady ones.  Of many
 * messages fewer are enough: each clock has as many. */
enum {
  CLOCKS = 32,
  CLOCKS_BEFORE = 8,
  FEW_CLOCKS = 8,
  FEW_BEFORE = 3,
  MANY_MESSAGES = 1024
};

/* Transfers are the pushes, and then the replies. */
static int push_of(const ServerQueue *q, int worker, int server) {
  return worker * q->servers + server;
}

static int reply_of(const ServerQueue *q, int worker, int server) {
  return q->workers * q->servers + push_of(q, worker, server);
}

static SimClass worker_class(Arena *arena, const ServerQueue *q, int worker) {
  int n = 0;
  SimAction *actions = ARENA_ARRAY(arena, SimAction, 1 + 2 * q->servers);
  actions[n++] = (SimAction){.kind = SIM_run, .duration = q->compute[worker]};
  for (int s = 0; s < q->servers; s++)
    actions[n++] = (SimAction){
        .kind = SIM_start, .transfer = push_of(q, worker, s), .queue = s};
  for (int s = 0; s < q->servers; s++)
    actions[n++] =
        (SimAction){.kind = SIM_wait, .transfer = reply_of(q, worker, s)};
  return (SimClass){.n_actions = n, .n_queues = q->servers, .actions = actions};
}

static SimAction service_of(const ServerQueue *q, int server) {
  return (SimAction){.kind = SIM_run, .duration = q->service[server]};
}

static SimAction start_reply(const ServerQueue *q, int worker, int server) {
  return (SimAction){.kind = SIM_start,
                     .transfer = reply_of(q, worker, server),
                     .queue = worker};
}

/* Waits for all workers. */
static SimClass listed_server(Arena *arena, const ServerQueue *q, int server) {
  int n = 0;
  SimAction *actions = ARENA_ARRAY(arena, SimAction, 1 + 3 * q->workers);
  for (int w = 0; w < q->workers; w++)
    actions[n++] =
        (SimAction){.kind = SIM_wait, .transfer = push_of(q, w, server)};
  actions[n++] = service_of(q, server);
  for (int w = 0; w < q->workers; w++) actions[n++] = start_reply(q, w, server);
  for (int w = 0; w < q->workers; w++)
    actions[n++] =
        (SimAction){.kind = SIM_wait, .transfer = reply_of(q, w, server)};
  return (SimClass){.n_actions = n, .n_queues = q->workers, .actions = actions};
}

static SimClass queueing_server(Arena *arena, const ServerQueue *q,
                                int server) {
  int n = q->workers;
  SimAction *actions = ARENA_ARRAY(arena, SimAction, 1 + n);
  int *pushes = ARENA_ARRAY(arena, int, n);
  SimServer *own = ARENA_NEW(arena, SimServer);
  actions[0] = service_of(q, server);
  for (int w = 0; w < n; w++) {
    actions[1 + w] = start_reply(q, w, server);
    pushes[w] = push_of(q, w, server);
  }
  *own =
      (SimServer){.n_workers = n, .pushes = pushes, .staleness = q->staleness};
  return (SimClass){
      .n_actions = 1 + n, .n_queues = n, .actions = actions, .server = own};
}

static SimProgram program_of(Arena *arena, const ServerQueue *q) {
  int n = q->workers + q->servers, n_pushes = q->workers * q->servers;
  SimClass *classes = ARENA_ARRAY(arena, SimClass, n);
  SimTransfer *transfers = ARENA_ARRAY(arena, SimTransfer, 2 * n_pushes);
  for (int w = 0; w < q->workers; w++) classes[w] = worker_class(arena, q, w);
  for (int s = 0; s < q->servers; s++)
    classes[q->workers + s] = q->staleness == 0 ? listed_server(arena, q, s)
                                                : queueing_server(arena, q, s);
  for (int i = 0; i < n_pushes; i++) {
    transfers[i] = q->pushes[i];
    transfers[n_pushes + i] = q->replies[i];
    transfers[i].term = transfers[n_pushes + i].term = 0;
  }
  return (SimProgram){.n_classes = n,
                      .n_transfers = 2 * n_pushes,
                      .n_links = q->n_links,
                      .n_terms = 1,
                      .classes = classes,
                      .transfers = transfers};
}

/* ---- steady clocks ---- */

/* All workers have made `before` clocks at its begin, and go on at its end. */
typedef struct Window {
  Ps begin, end;
} Window;

static Window window_of(const SimResult *result, int workers, int before) {
  Window window = {0, INT64_MAX};
  for (int w = 0; w < workers; w++) {
    const SimClassResult *of = &result->classes[w];
    int first = before < of->n_steps ? before : of->n_steps;
    Ps end = of->n_steps > 0 ? of->step_ends[of->n_steps - 1] : 0;
    if (first > 0 && of->step_ends[first - 1] > window.begin)
      window.begin = of->step_ends[first - 1];
    if (of->n_steps > 1 && end < window.end) window.end = end;
  }
  return window;
}

/* Between the first and the last clock that end in the window; of a worker that
 * has no two there, of all that it has made. */
static Ps mean_clock(const SimClassResult *of, Window window) {
  int first = 0, last = of->n_steps - 1;
  while (first < last && of->step_ends[first] < window.begin) first++;
  while (last > first && of->step_ends[last] > window.end) last--;
  if (last > first)
    return (of->step_ends[last] - of->step_ends[first]) / (last - first);
  return of->n_steps > 0 ? of->step_ends[of->n_steps - 1] / of->n_steps
                         : SIM_LONGEST;
}

void server_queue_clocks(Arena *arena, const ServerQueue *queue, Ps *out) {
  SimProgram program = program_of(arena, queue);
  bool is_long = queue->workers * queue->servers > MANY_MESSAGES;
  SimResult result =
      simulate(arena, &program, is_long ? FEW_CLOCKS : CLOCKS, NULL, NULL);
  ASSERT(!result.is_stuck);
  Window window =
      window_of(&result, queue->workers, is_long ? FEW_BEFORE : CLOCKS_BEFORE);
  for (int w = 0; w < queue->workers; w++)
    out[w] = mean_clock(&result.classes[w], window);
}
