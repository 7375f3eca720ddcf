/*
 * simulator_servers.c -- runs the classes that serve: each takes the pushes of
 * workers in the order of their ends, one after the other, and replies.
 *
 *     worker 0   run, push ....            run, push ...
 *     worker 1   run ..., push ....        waits          run
 *     server                update 0 reply, update 1, reply
 *
 * A reply starts once the staleness rule allows it: after each update all
 * pushes that have no reply yet are looked at.
 */
#include "price/simulator_state.h"

struct SimServing {
  VEC(int) line; /* workers whose pushes have ended, in that order */
  int next;      /* of `line` */
  int worker;    /* the one whose push is being served; -1: none */
  int64_t *clocks;
  bool *waits; /* by worker: its push is served and has no reply */
  /* Behind an update: the workers that have been looked at since. */
  int looked_at;
  int64_t slowest; /* clock */
};

static const SimServer *server_of(const Simulation *s, int class) {
  return s->program->classes[class].server;
}

void simulator_servers_prepare(Simulation *s) {
  for (int c = 0; c < s->program->n_classes; c++) {
    const SimServer *server = server_of(s, c);
    if (!server) continue;
    if (!s->has_servers) {
      int n = s->program->n_transfers;
      s->pushed_to = ARENA_ARRAY(s->arena, int, n);
      s->pushed_by = ARENA_ARRAY(s->arena, int, n);
      for (int t = 0; t < n; t++) s->pushed_to[t] = -1;
    }
    s->has_servers = true;
    s->n_running--;
    for (int w = 0; w < server->n_workers; w++) {
      s->pushed_to[server->pushes[w]] = c;
      s->pushed_by[server->pushes[w]] = w;
    }
    SimServing *serving = s->runners[c].serving =
        ARENA_NEW(s->arena, SimServing);
    serving->worker = -1;
    serving->looked_at = server->n_workers;
    serving->clocks = ARENA_ARRAY(s->arena, int64_t, server->n_workers);
    serving->waits = ARENA_ARRAY(s->arena, bool, server->n_workers);
    s->runners[c].at = 1; /* behind the action of an update */
  }
}

void simulator_servers_note_end(Simulation *s, int transfer) {
  int class = s->pushed_to[transfer];
  if (class < 0) return;
  SimServing *serving = s->runners[class].serving;
  vec_push(s->arena, &serving->line, s->pushed_by[transfer]);
  s->is_ready[class] = true;
}

static int64_t slowest_clock(const SimServer *server,
                             const SimServing *serving) {
  int64_t slowest = INT64_MAX;
  for (int w = 0; w < server->n_workers; w++)
    if (serving->clocks[w] < slowest) slowest = serving->clocks[w];
  return slowest;
}

static void end_update(const SimServer *server, SimServing *serving) {
  serving->clocks[serving->worker]++;
  serving->waits[serving->worker] = true;
  serving->worker = -1;
  serving->looked_at = 0;
  serving->slowest = slowest_clock(server, serving);
}

static bool may_reply(const SimServer *server, const SimServing *serving,
                      int worker) {
  return serving->waits[worker] &&
         (server->staleness < 0 ||
          serving->slowest >= serving->clocks[worker] - server->staleness);
}

const SimAction *simulator_servers_next(Simulation *s, int class) {
  const SimServer *server = server_of(s, class);
  SimServing *serving = s->runners[class].serving;
  const SimAction *actions = s->program->classes[class].actions;
  if (serving->worker >= 0) end_update(server, serving);
  while (serving->looked_at < server->n_workers) {
    int worker = serving->looked_at++;
    if (!may_reply(server, serving, worker)) continue;
    serving->waits[worker] = false;
    return &actions[1 + worker];
  }
  if (serving->next == serving->line.n) return NULL;
  serving->worker = serving->line.data[serving->next++];
  if (serving->next == serving->line.n) serving->next = serving->line.n = 0;
  return &actions[0];
}

/* Classes that do not serve go on until each has made its steps. */
void simulator_servers_grow(Simulation *s, Runner *runner) {
  if (runner->step < runner->n_kept) return;
  Ps *more = ARENA_ARRAY(s->arena, Ps, 2 * runner->n_kept);
  for (int i = 0; i < runner->n_kept; i++) more[i] = runner->step_ends[i];
  runner->step_ends = more;
  runner->n_kept *= 2;
}
