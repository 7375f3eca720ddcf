/*
 * servers.c -- joins workers and servers (`sync = server(...)` of a plan) by
 * messages, and checks before a run that no rank can wait for ever.
 *
 *     worker w                            server s
 *     push: clock, gradients of s    ->   takes it: adds up, or updates at once
 *                                    <-   reply: parameters of s, clocks in it
 *
 * A link has one push and one reply.  The pattern in which they are used:
 * a worker sends its push to each server, then takes the reply of each, then
 * computes, so it has at most one push open at a server.  A server has a
 * receive posted for each worker whose push it may get; a reply has a buffer of
 * its own for each worker and is not waited for before that worker's next
 * push.  A reply waits for other workers by the staleness rule alone, by which
 * the slowest worker is always answered.  A server ends a round after the last
 * clock of all workers.  So some rank can always go on, and all come to an end.
 * This file checks the tables: both ends of a link have the same
 * tensors, and each gradient and each parameter has one server, or rows of it
 * each server.
 *
 * With a staleness of 0 the update of a server may have collectives of all
 * servers, which tell each other the terms of a norm.  Workers send all pushes
 * of a step before they wait, so every server comes to its update, and all come
 * to the same collectives in one order: the tables are compared.
 */
#include "runtime/rank/servers.h"

#include "runtime/comm/group.h"
#include "support/file.h"

#include <string.h>

/* ---- what links carry ---- */

static const DnnProgram *program_of(const Run *run, int rank) {
  return bundle_program(run->bundle, rank);
}

static const DnnTensor *copy_of(const Run *run, int tensor) {
  return &program_of(run, 0)->tensors[tensor];
}

static const DnnEntryPoint *training_of(const Run *run, int rank) {
  return program_entry_point(program_of(run, rank), ENTRY_train);
}

static const DnnTensor *find_gradient(const DnnEntryPoint *entry,
                                      const char *path) {
  for (int i = 0; i < entry->n_tensors; i++)
    if (entry->tensors[i].role == DNN_GRADIENT &&
        strcmp(entry->tensors[i].path, path) == 0)
      return &entry->tensors[i];
  return NULL;
}

/* The bytes of a tensor of workers that a server has. */
typedef struct Share {
  int64_t at, bytes;
} Share;

/* A tensor of fewer bytes has rows of that of the workers, and the last server
 * may have fewer of them, and padding. */
static Share share_of(int server, const DnnTensor *all, const DnnTensor *own) {
  if (own->bytes == all->bytes) return (Share){0, all->bytes};
  int64_t at = server * own->bytes, left = all->bytes - at;
  return (Share){at, own->bytes < left ? own->bytes : left};
}

/* ---- checks ---- */

/* Returns whether one server has it in full, or each has rows of it.  `own` has
 * a tensor or NULL for each. */
static bool is_covered(const DnnTensor *all, const DnnTensor *const *own,
                       int n_servers) {
  int n_full = 0, n_parts = 0;
  int64_t bytes = 0;
  for (int s = 0; s < n_servers; s++) {
    if (!own[s]) continue;
    Share share = share_of(s, all, own[s]);
    n_full += own[s]->bytes == all->bytes;
    n_parts += own[s]->bytes < all->bytes;
    if (own[s]->dtype != all->dtype || share.bytes <= 0) return false;
    bytes += share.bytes;
  }
  return bytes == all->bytes &&
         (n_full == 1 ? n_parts == 0 : n_parts == n_servers);
}

static Status check_gradient(const Run *run, const DnnTensor *sent) {
  const DnnProgram *program = run->program;
  Arena *arena = run->arena;
  const DnnTensor **own =
      ARENA_ARRAY(arena, const DnnTensor *, program->n_servers);
  for (int s = 0; s < program->n_servers; s++)
    own[s] =
        find_gradient(training_of(run, program->first_server + s), sent->path);
  return is_covered(sent, own, program->n_servers)
             ? STATUS_OK
             : status_make(STATUS_invalid,
                           "the gradient '%s' has not one server", sent->path);
}

static Status check_parameter(const Run *run, int index) {
  const DnnProgram *program = run->program;
  const DnnTensor *copy = &program_of(run, 0)->tensors[index];
  const DnnTensor **own =
      ARENA_ARRAY(run->arena, const DnnTensor *, program->n_servers);
  int n = 0;
  for (int s = 0; s < program->n_servers; s++) {
    const DnnTensor *of =
        &program_of(run, program->first_server + s)->tensors[index];
    if (!servers_give(of, copy)) continue;
    own[s] = of;
    n++;
  }
  return n == 0 || (copy->offset >= 0 &&
                    is_covered(copy, own, program->n_servers))
             ? STATUS_OK
             : status_make(STATUS_invalid,
                           "the parameter '%s' has not one server", copy->path);
}

/* Returns the collective from instruction *at on, and goes behind it; NULL:
 * there is none. */
static const DnnCollective *next_collective(const DnnEntryPoint *entry,
                                            int *at) {
  while (*at < entry->n_instrs) {
    const DnnInstr *instr = &entry->instrs[(*at)++];
    if (instr->op == DNN_OP_COLLECTIVE) return instr->detail;
  }
  return NULL;
}

static bool is_same(const DnnCollective *a, const DnnCollective *b) {
  if (!a || !b) return a == b;
  return a->kind == b->kind && a->reduce == b->reduce && a->dtype == b->dtype &&
         a->queue == b->queue && a->id == b->id && a->n_parts == b->n_parts &&
         memcmp(a->counts, b->counts, sizeof *a->counts * (size_t)a->n_parts) ==
             0;
}

/* A collective of a server is one of all servers, each of which comes to it. */
static Status check_exchange(const Run *run, int server) {
  const DnnProgram *program = run->program;
  int first_server = program->first_server;
  DnnGroup group = group_of_all(first_server, program->n_servers);
  const DnnEntryPoint *first = training_of(run, first_server),
                      *own = training_of(run, server);
  const DnnCollective *what;
  int at = 0, at_first = 0;
  do {
    what = next_collective(own, &at);
    if (!is_same(what, next_collective(first, &at_first)))
      return status_make(
          STATUS_invalid,
          "the servers on ranks %d and %d have other collectives", first_server,
          server);
    if (what && program->staleness != 0)
      return status_make(STATUS_invalid,
                         "the server on rank %d would wait for other servers, "
                         "but a server with a staleness updates alone",
                         server);
    if (what && (!what->group || !group_equal(what->group, &group)))
      return status_make(STATUS_invalid,
                         "the server on rank %d has a collective that is not "
                         "one of all servers",
                         server);
  } while (what);
  return STATUS_OK;
}

/* Workers have none with servers, who come to no step of theirs. */
static Status check_workers(const Run *run) {
  const DnnEntryPoint *worker = training_of(run, 0);
  const DnnCollective *what;
  for (int at = 0; (what = next_collective(worker, &at)) != NULL;)
    if (!what->group ||
        what->group->first + what->group->ranks > run->program->first_server)
      return status_make(STATUS_invalid,
                         "the workers have a collective with a server");
  return STATUS_OK;
}

/* The rest of the pattern is in the code; see above. */
static Status check_pattern(const Run *run) {
  const DnnEntryPoint *worker = training_of(run, 0);
  const DnnProgram *program = run->program;
  TRY(check_workers(run));
  for (int i = 0; i < worker->n_tensors; i++)
    if (worker->tensors[i].role == DNN_GRADIENT)
      TRY(check_gradient(run, &worker->tensors[i]));
  for (int s = 0; s < program->n_servers; s++) {
    const DnnEntryPoint *server = training_of(run, program->first_server + s);
    TRY(check_exchange(run, program->first_server + s));
    for (int i = 0; i < server->n_tensors; i++)
      if (server->tensors[i].role == DNN_GRADIENT &&
          !find_gradient(worker, server->tensors[i].path))
        return status_make(STATUS_invalid,
                           "no worker sends the gradient '%s' that a server "
                           "takes",
                           server->tensors[i].path);
  }
  for (int i = 0; i < program->n_tensors; i++) TRY(check_parameter(run, i));
  return STATUS_OK;
}

static Status check_options(const Run *run) {
  const RunOptions *options = &run->options;
  const char *what = options->trace       ? "--trace"
                     : options->profile   ? "--profile"
                     : options->transfers ? "--transfers"
                     : options->sample    ? "--sample"
                     : options->predict   ? "--predict"
                                          : NULL;
  if (!run->comm->wait_any)
    return status_make(STATUS_unavailable,
                       "not supported yet: servers over the transport '%s'; "
                       "they take MPI on the CPU",
                       run->comm->name);
  if (!what) return STATUS_OK;
  return status_make(STATUS_unavailable,
                     "not supported yet: %s with a bundle of servers", what);
}

/* ---- links ---- */

static DnnCollective message(int kind, int id, int peer, int n_parts,
                             const int64_t *counts) {
  return (DnnCollective){.kind = (uint8_t)kind,
                         .dtype = DNN_u8,
                         .id = id,
                         .peer = peer,
                         .n_parts = n_parts,
                         .counts = counts};
}

static void add_part(CommPart *parts, int64_t *counts, int i, void *at,
                     int64_t bytes) {
  parts[i] = (CommPart){.from = at, .to = at, .count = bytes};
  counts[i] = bytes;
}

static unsigned char *address_of(const Run *run, const DnnTensor *tensor) {
  return run->device->address(run->device, tensor->offset);
}

/* The parts of a link of a worker are the tensors themselves. */
static void fill_worker_link(Run *run, ServerLink *link) {
  const DnnEntryPoint *server = training_of(run, link->peer);
  const DnnProgram *program = program_of(run, link->peer);
  int number = link->peer - run->program->first_server, n = 1;
  for (int i = 0; i < server->n_tensors; i++) {
    if (server->tensors[i].role != DNN_GRADIENT) continue;
    const DnnTensor *own = find_gradient(run->train, server->tensors[i].path);
    Share share = share_of(number, own, &server->tensors[i]);
    add_part(link->out_parts, link->out_counts, n++,
             address_of(run, own) + share.at, share.bytes);
  }
  link->out.n_parts = n;
  n = 1;
  for (int i = 0; i < program->n_tensors; i++) {
    const DnnTensor *own = &run->program->tensors[i];
    if (!servers_give(&program->tensors[i], own)) continue;
    Share share = share_of(number, own, &program->tensors[i]);
    add_part(link->in_parts, link->in_counts, n++,
             address_of(run, own) + share.at, share.bytes);
  }
  link->in.n_parts = n;
}

/* A server has buffers for each worker. */
static void fill_server_link(Run *run, Servers *servers, int worker) {
  ServerLink *link = &servers->links[worker];
  int number = run->comm->rank - run->program->first_server;
  int64_t bytes = 0;
  for (int i = 0; i < servers->n_gradients; i++)
    bytes += servers->gradients[i]->bytes;
  unsigned char *at = servers->received[worker] =
      ARENA_ARRAY(run->arena, unsigned char, bytes);
  for (int i = 0; i < servers->n_gradients; i++) {
    const DnnTensor *sent =
        find_gradient(training_of(run, 0), servers->gradients[i]->path);
    add_part(link->in_parts, link->in_counts, i + 1, at,
             share_of(number, sent, servers->gradients[i]).bytes);
    at += servers->gradients[i]->bytes;
  }
  link->in.n_parts = servers->n_gradients + 1;
  int n = 1;
  bytes = 0;
  for (int i = 0; i < run->program->n_tensors; i++)
    if (servers_give(&run->program->tensors[i], copy_of(run, i)))
      bytes += run->program->tensors[i].bytes;
  at = servers->replies[worker] = ARENA_ARRAY(run->arena, unsigned char, bytes);
  for (int i = 0; i < run->program->n_tensors; i++) {
    const DnnTensor *tensor = &run->program->tensors[i];
    if (!servers_give(tensor, copy_of(run, i))) continue;
    add_part(link->out_parts, link->out_counts, n++, at,
             share_of(number, copy_of(run, i), tensor).bytes);
    at += tensor->bytes;
  }
  link->out.n_parts = n;
}

static void make_link(Run *run, Servers *servers, int i) {
  Arena *arena = run->arena;
  ServerLink *link = &servers->links[i];
  int most = 1 + run->program->n_tensors;
  for (int s = 0; s < run->program->n_servers; s++)
    most += training_of(run, run->program->first_server + s)->n_tensors;
  int64_t push = sizeof(PushHeader), reply = servers->reply_header;
  link->peer = servers->is_server ? i : servers->n_workers + i;
  int distance = link->peer - run->comm->rank;
  link->out_parts = ARENA_ARRAY(arena, CommPart, most);
  link->in_parts = ARENA_ARRAY(arena, CommPart, most);
  link->out_counts = ARENA_ARRAY(arena, int64_t, most);
  link->in_counts = ARENA_ARRAY(arena, int64_t, most);
  link->out_header =
      ARENA_ARRAY(arena, int64_t, (servers->is_server ? reply : push) / 8);
  link->in_header =
      ARENA_ARRAY(arena, int64_t, (servers->is_server ? push : reply) / 8);
  link->out = message(DNN_SEND, 2 * i, distance, 0, link->out_counts);
  link->in = message(DNN_RECV, 2 * i + 1, distance, 0, link->in_counts);
  add_part(link->out_parts, link->out_counts, 0, link->out_header,
           servers->is_server ? reply : push);
  add_part(link->in_parts, link->in_counts, 0, link->in_header,
           servers->is_server ? push : reply);
  if (servers->is_server)
    fill_server_link(run, servers, i);
  else
    fill_worker_link(run, link);
}

static Status open_server(Run *run, Servers *servers) {
  const DnnEntryPoint *train = run->train;
  servers->gradients =
      ARENA_ARRAY(run->arena, const DnnTensor *, train->n_tensors);
  for (int i = 0; i < train->n_tensors; i++)
    if (train->tensors[i].role == DNN_GRADIENT)
      servers->gradients[servers->n_gradients++] = &train->tensors[i];
  servers->received =
      ARENA_ARRAY(run->arena, unsigned char *, servers->n_links);
  servers->replies = ARENA_ARRAY(run->arena, unsigned char *, servers->n_links);
  servers->clocks = ARENA_ARRAY(run->arena, int64_t, servers->n_workers);
  return server_log_open(run, run->comm->rank - servers->n_workers,
                         &servers->log);
}

Status servers_open(Run *run) {
  const DnnProgram *program = run->program;
  bool is_asked = run->options.server_log || run->options.replay;
  if (program->n_servers == 0 && is_asked)
    return status_make(STATUS_invalid,
                       "this program has no servers: --server-log and --replay "
                       "are for a plan with 'sync = server(...)'");
  if (program->n_servers == 0) return STATUS_OK;
  TRY(check_options(run));
  if (run->options.eval || !run->train) return STATUS_OK;
  TRY(check_pattern(run));
  Servers *servers = run->servers = ARENA_NEW(run->arena, Servers);
  servers->n_workers = program->first_server;
  servers->n_servers = program->n_servers;
  servers->staleness = program->staleness;
  servers->is_server = run->comm->rank >= program->first_server;
  servers->n_links =
      servers->is_server ? servers->n_workers : servers->n_servers;
  servers->reply_header = 8 * (1 + servers->n_workers);
  servers->links = ARENA_ARRAY(run->arena, ServerLink, servers->n_links);
  if (servers->is_server) TRY(open_server(run, servers));
  for (int i = 0; i < servers->n_links; i++) make_link(run, servers, i);
  return STATUS_OK;
}

/* ---- messages ---- */

void servers_send(Run *run, ServerLink *link, int64_t clock) {
  ASSERT(!link->sends); /* one push, or reply, is open at most */
  recorder_note(&run->recorder, clock, "train", link->peer,
                run->servers->is_server ? "reply" : "push");
  run_must(run, run->comm->start(run->comm, &link->out, link->out_parts));
  link->sends = true;
}

void servers_wait_sent(Run *run, ServerLink *link) {
  if (link->sends) run_must(run, run->comm->wait(run->comm, link->out.id));
  link->sends = false;
}

void servers_start_receive(Run *run, ServerLink *link, int64_t clock) {
  recorder_note(&run->recorder, clock, "train", link->peer,
                run->servers->is_server ? "push" : "reply");
  run_must(run, run->comm->start(run->comm, &link->in, link->in_parts));
}

void servers_wait_received(Run *run, ServerLink *link) {
  run_must(run, run->comm->wait(run->comm, link->in.id));
}

/* ---- the first parameters ---- */

/* `bytes` has room for what the server has, padding included. */
static void copy_parameter(Run *run, const DnnTensor *tensor, int server,
                           Share share, unsigned char *bytes) {
  Device *device = run->device;
  if (run->comm->rank == 0)
    run_must(run, device->read(device, tensor->offset + share.at, bytes,
                               share.bytes));
  run_must(run, run->comm->transfer(run->comm, bytes, share.bytes, 0, server));
  if (run->comm->rank == server)
    run_must(run, device->write(device, tensor->offset, bytes, tensor->bytes));
}

void servers_fill(Run *run) {
  const DnnProgram *program = run->program;
  Arena *scratch = arena_create(run->memory);
  for (int s = 0; run->servers && s < program->n_servers; s++) {
    int server = program->first_server + s;
    const DnnProgram *of = program_of(run, server);
    if (run->comm->rank != 0 && run->comm->rank != server) continue;
    for (int i = 0; i < of->n_tensors; i++)
      if (servers_give(&of->tensors[i], copy_of(run, i)))
        copy_parameter(
            run, &program->tensors[i], server,
            share_of(s, copy_of(run, i), &of->tensors[i]),
            ARENA_ARRAY(scratch, unsigned char, of->tensors[i].bytes));
  }
  arena_destroy(scratch);
}
