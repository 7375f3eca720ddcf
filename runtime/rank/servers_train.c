/*
 * servers_train.c -- trains with servers: the steps of workers, and what
 * servers do with the gradients that come.
 *
 *     staleness 0     a step of all ranks: a server adds up the gradients in
 *                     the order of workers, updates once, and answers all
 *     staleness s     a server updates with each push when it comes; it answers
 *                     a push of clock c once the slowest worker is at c - s
 *     none            it answers at once
 *
 * With staleness a round lasts until the next evaluation or checkpoint.  In its
 * end each worker gets the parameters that have all updates.
 */
#include "runtime/comm/group.h"
#include "runtime/rank/servers.h"

#include <math.h>
#include <string.h>

/* ---- a worker ---- */

static void push_all(Run *run, int64_t clock, PushHeader header) {
  Servers *servers = run->servers;
  header.clock = clock;
  for (int i = 0; i < servers->n_links; i++) {
    memcpy(servers->links[i].out_header, &header, sizeof header);
    servers_send(run, &servers->links[i], clock);
  }
}

/* Takes the parameters of each server.  Returns whether one asks to end the
 * round. */
static bool pull_all(Run *run, int64_t clock) {
  Servers *servers = run->servers;
  bool stops = false;
  for (int i = 0; i < servers->n_links; i++)
    servers_wait_sent(run, &servers->links[i]);
  for (int i = 0; i < servers->n_links; i++)
    servers_start_receive(run, &servers->links[i], clock);
  for (int i = 0; i < servers->n_links; i++) {
    ServerLink *link = &servers->links[i];
    servers_wait_received(run, link);
    stops |= *(const int64_t *)link->in_header != 0;
  }
  return stops;
}

/* ---- a server ---- */

/* Copies the parameters as they are, and sends them. */
static void reply(Run *run, int worker, int64_t clock) {
  Servers *servers = run->servers;
  ServerLink *link = &servers->links[worker];
  int64_t *header = link->out_header, slowest = clock;
  servers_wait_sent(run, link);
  header[0] = servers->stop;
  for (int w = 0; w < servers->n_workers; w++) {
    header[1 + w] = servers->clocks[w];
    if (servers->clocks[w] < slowest) slowest = servers->clocks[w];
  }
  unsigned char *at = servers->replies[worker];
  for (int i = 0; i < run->program->n_tensors; i++) {
    const DnnTensor *tensor = &run->program->tensors[i];
    if (!servers_give(tensor, &bundle_program(run->bundle, 0)->tensors[i]))
      continue;
    run_must(run,
             run->device->read(run->device, tensor->offset, at, tensor->bytes));
    at += tensor->bytes;
  }
  if (clock - slowest > servers->largest_staleness)
    servers->largest_staleness = clock - slowest;
  server_log_reply(servers->log, worker, clock, header + 1, servers->n_workers);
  servers_send(run, link, clock);
}

/* Adds up what came from some workers, in their order, as the gradients of the
 * update. */
static void take_gradients(Run *run, int first, int n) {
  Servers *servers = run->servers;
  DnnGroup group = group_of_all(0, n);
  Arena *scratch = arena_create(run->memory);
  const void **members = ARENA_ARRAY(scratch, const void *, n);
  int64_t at = 0;
  for (int i = 0; i < servers->n_gradients; i++) {
    const DnnTensor *tensor = servers->gradients[i];
    void *to = run->device->address(run->device, tensor->offset);
    DnnCollective what = {.kind = DNN_ALL_REDUCE,
                          .reduce = REDUCE_sum,
                          .dtype = tensor->dtype,
                          .group = &group};
    for (int k = 0; k < n; k++) members[k] = servers->received[first + k] + at;
    comm_combine(&what, members, to,
                 tensor->bytes / dtype_bytes(tensor->dtype));
    at += tensor->bytes;
  }
  arena_destroy(scratch);
}

static void serve_step(Run *run, int64_t t) {
  Servers *servers = run->servers;
  int n = servers->n_workers;
  for (int w = 0; w < n; w++) servers_start_receive(run, &servers->links[w], t);
  for (int w = 0; w < n; w++) {
    servers_wait_received(run, &servers->links[w]);
    server_log_push(servers->log, w, t);
  }
  take_gradients(run, 0, n);
  run_must(run, exec_run(run->exec, run->train, t));
  for (int w = 0; w < n; w++) servers->clocks[w] = t;
  for (int w = 0; w < n; w++) reply(run, w, t);
  for (int w = 0; w < n; w++) servers_wait_sent(run, &servers->links[w]);
}

void servers_step(Run *run, int64_t t) {
  if (run->servers->is_server) {
    serve_step(run, t);
    return;
  }
  push_all(run, t, (PushHeader){.has_gradient = 1});
  pull_all(run, t);
}

/* ---- rounds without steps of all ranks ---- */

/* A round of a server. */
typedef struct ServerRound {
  Run *run;
  bool *waits; /* by worker: its push has no answer yet */
  bool *ended; /* by worker */
  int n_ended;
} ServerRound;

/* Returns the worker whose push is next: one that is there, or that of the log
 * which is repeated. */
static int next_push(const ServerRound *round) {
  Run *run = round->run;
  Servers *servers = run->servers;
  Arena *scratch = arena_create(run->memory);
  int32_t *ids = ARENA_ARRAY(scratch, int32_t, servers->n_workers);
  int n = 0, found, next;
  run_must(run, server_log_next(servers->log, &next));
  for (int w = 0; w < servers->n_workers; w++)
    if (!round->waits[w] && !round->ended[w] && (next < 0 || next == w))
      ids[n++] = servers->links[w].in.id;
  if (n == 0)
    run_must(run, status_make(STATUS_invalid,
                              "the log has a push of worker %d where that "
                              "worker waits: it is of another run",
                              next));
  run_must(run, run->comm->wait_any(run->comm, ids, n, &found));
  int id = ids[found];
  arena_destroy(scratch);
  return (id - 1) / 2;
}

/* The step of an update is the clock of its push.  What the first step of an
 * optimizer sets, as a momentum, is set once. */
static int64_t step_of(const Servers *servers, int64_t clock) {
  return clock == 1 && servers->n_updates > 0 ? 2 : clock;
}

static void take_push(ServerRound *round, int worker) {
  Run *run = round->run;
  Servers *servers = run->servers;
  ServerLink *link = &servers->links[worker];
  servers_wait_received(run, link);
  const PushHeader *header = link->in_header;
  recorder_note(&run->recorder, header->clock, "train", worker, "update");
  Stop own = run_pending_stop(run);
  if (own > servers->stop) servers->stop = own;
  if (header->stop > (int64_t)servers->stop) servers->stop = (Stop)header->stop;
  if (header->has_gradient) {
    take_gradients(run, worker, 1);
    run_write_step(run, step_of(servers, header->clock));
    run_must(run, exec_run(run->exec, run->train, header->clock));
    servers->n_updates++;
  }
  servers->clocks[worker] = header->clock;
  server_log_push(servers->log, worker, header->clock);
  round->waits[worker] = !header->is_last;
  round->ended[worker] = header->is_last != 0;
  round->n_ended += header->is_last != 0;
}

/* Returns the clock of the slowest worker that goes on. */
static int64_t slowest_clock(const ServerRound *round) {
  const Servers *servers = round->run->servers;
  int64_t slowest = INT64_MAX;
  for (int w = 0; w < servers->n_workers; w++)
    if (!round->ended[w] && servers->clocks[w] < slowest)
      slowest = servers->clocks[w];
  return slowest;
}

/* The staleness rule. */
static bool may_reply(const ServerRound *round, int worker) {
  const Servers *servers = round->run->servers;
  return servers->staleness < 0 ||
         slowest_clock(round) >= servers->clocks[worker] - servers->staleness;
}

static void reply_to_all(ServerRound *round) {
  Run *run = round->run;
  Servers *servers = run->servers;
  for (int w = 0; w < servers->n_workers; w++) {
    if (!round->waits[w] || !may_reply(round, w)) continue;
    reply(run, w, servers->clocks[w]);
    round->waits[w] = false;
    servers_start_receive(run, &servers->links[w], servers->clocks[w] + 1);
  }
}

static void serve_round(Run *run) {
  Servers *servers = run->servers;
  int n = servers->n_workers;
  Arena *scratch = arena_create(run->memory);
  ServerRound round = {.run = run,
                       .waits = ARENA_ARRAY(scratch, bool, n),
                       .ended = ARENA_ARRAY(scratch, bool, n)};
  if (run->done > 0) servers->n_updates++;
  for (int w = 0; w < n; w++) {
    servers->clocks[w] = run->done;
    servers_start_receive(run, &servers->links[w], run->done + 1);
  }
  while (round.n_ended < n) {
    take_push(&round, next_push(&round));
    reply_to_all(&round);
  }
  for (int w = 0; w < n; w++) reply(run, w, servers->clocks[w]);
  for (int w = 0; w < n; w++) servers_wait_sent(run, &servers->links[w]);
  arena_destroy(scratch);
}

/* The result of the round of a rank. */
typedef struct RoundEnd {
  int64_t clock;
  int32_t stop, is_finite;
} RoundEnd;

static void read_own_results(Run *run) {
  const DnnProgram *program = run->program;
  run->has_norm = false;
  run_read_scalar(run, program_tensor(program, run->train, DNN_LOSS),
                  &run->loss);
  run_read_scalar(run, program_tensor(program, run->train, DNN_RATE),
                  &run->rate);
}

/* A step of a worker, which goes on at once where the answers allow it.
 * Returns whether the round goes on. */
static bool work_step(Run *run, int64_t t, int64_t end, RoundEnd *out,
                      Status *data) {
  int64_t begin = clock_ns();
  *data = data_fill_train(run->data, run->device, run->train, t);
  bool is_good = data->code == STATUS_ok;
  run_write_step(run, t);
  if (is_good) run_must(run, exec_run(run->exec, run->train, t));
  if (is_good) read_own_results(run);
  out->clock = t;
  out->is_finite = !is_good || isfinite(run->loss);
  Stop stop = is_good ? run_pending_stop(run) : STOP_failed;
  if ((int32_t)stop > out->stop) out->stop = (int32_t)stop;
  if (!out->is_finite && !out->stop) out->stop = STOP_user1;
  bool is_last = t == end || out->stop != STOP_none;
  push_all(run, t,
           (PushHeader){
               .stop = out->stop, .is_last = is_last, .has_gradient = is_good});
  bool stops = pull_all(run, t);
  int64_t ns = clock_ns() - begin;
  run_note_time(run, ns);
  if (is_good) report_step(run, t, ns);
  if (stops && !is_last) out->stop = STOP_user1; /* others say which */
  return !is_last;
}

static Status work_round(Run *run, int64_t end, RoundEnd *out) {
  Status data = STATUS_OK;
  bool goes_on = true;
  for (int64_t t = run->done + 1; t <= end && goes_on; t++)
    goes_on = work_step(run, t, end, out, &data);
  return data;
}

/* All ranks learn how far the workers came, and why they ended.  Result: exit
 * code. */
static int end_round(Run *run, const RoundEnd *own, Status data) {
  Servers *servers = run->servers;
  Arena *scratch = arena_create(run->memory);
  RoundEnd *all = ARENA_ARRAY(scratch, RoundEnd, run->comm->world);
  run_must(run, run->comm->gather(run->comm, own, sizeof *own, all));
  int lost = -1;
  for (int w = 0; w < servers->n_workers; w++) {
    if (all[w].clock > run->done) run->done = all[w].clock;
    if (!all[w].is_finite && lost < 0) lost = w;
  }
  for (int rank = 0; rank < run->comm->world; rank++)
    if (all[rank].stop > (int32_t)run->stop) run->stop = (Stop)all[rank].stop;
  if (lost >= 0 && run->comm->rank == 0)
    message_print("error: step %lld: the loss of worker %d is not finite\n"
                  "help: lower the learning rate, or check its inputs\n",
                  (long long)all[lost].clock, lost);
  arena_destroy(scratch);
  run->read_signals = 0;
  if (lost >= 0) return EXIT_mistake;
  return run->stop == STOP_failed ? run_agree(run, data) : EXIT_done;
}

int servers_train(Run *run, int64_t end) {
  RoundEnd own = {.is_finite = 1};
  Status data = STATUS_OK;
  if (run->servers->is_server) {
    serve_round(run);
    own.stop = (int32_t)run->servers->stop;
  } else {
    data = work_round(run, end, &own);
  }
  return end_round(run, &own, data);
}

int servers_close(Run *run) {
  Servers *servers = run->servers;
  int64_t own = 0, largest = 0;
  if (!servers) return EXIT_done;
  Status status = STATUS_OK;
  if (servers->is_server) {
    own = servers->largest_staleness;
    status = server_log_close(servers->log);
  }
  int code = run_agree(run, status);
  if (code) return code;
  Arena *scratch = arena_create(run->memory);
  int64_t *all = ARENA_ARRAY(scratch, int64_t, run->comm->world);
  run_must(run, run->comm->gather(run->comm, &own, sizeof own, all));
  for (int i = 0; i < run->comm->world; i++)
    if (all[i] > largest) largest = all[i];
  bool prints = run->comm->rank == 0 && servers->staleness != 0;
  if (prints && (!run->options.quiet || run->options.replay))
    fprintf(stderr, "largest staleness: %lld\n", (long long)largest);
  arena_destroy(scratch);
  return EXIT_done;
}
