/*
 * rendezvous_cycle.c -- finds a shortest cycle of the graph of calls and
 * messages.
 *
 * Nodes that wait for no other node are removed, again and again, in time
 * linear in the program.  The nodes that stay are on a cycle or wait for one.
 * A search begins at each of them, and goes no deeper than the shortest cycle
 * so far.
 */
#include "ir/pipeline/rendezvous_graph.h"

#include <string.h>

/* Searches end after so many edges, with the shortest cycle until then. */
#define MOST_STEPS ((int64_t)1 << 27)

/* Nodes are actions; a receive has the node of its send. */
typedef struct Net {
  const Matched *m;
  int *begin; /* [n + 1]: edges of a node in `to` */
  int *to;
  int *n_before; /* by node: edges that lead to it, from what is left */
} Net;

typedef void EdgeVisit(Net *net, int from, int to);

/* The node of each action. */
static int *find_nodes(Arena *arena, const Matched *m) {
  int *nodes = ARENA_ARRAY(arena, int, m->n);
  for (int c = 0; c < m->program->n_classes; c++)
    for (int i = 0; i < m->program->classes[c].n_actions; i++) {
      int action = m->first[c] + i;
      bool is_receive =
          m->program->classes[c].actions[i].kind == RENDEZVOUS_receive;
      nodes[action] = is_receive ? m->partner[action] : action;
    }
  return nodes;
}

static void visit_chain(Net *net, const int *node, const RendezvousClass *class,
                        RendezvousOrder order, EdgeVisit *visit) {
  int last[2] = {-1, -1}; /* calls apart from messages, unless all are one */
  for (int i = 0; i < class->n_actions; i++) {
    bool is_call = class->actions[i].kind == RENDEZVOUS_call;
    int *before = &last[order == RENDEZVOUS_messages && is_call];
    if (*before >= 0) visit(net, node[*before], node[i]);
    *before = i;
  }
}

/* Needs that the order of the list implies are no edges. */
static void visit_edges(Net *net, const int *nodes, RendezvousOrder order,
                        EdgeVisit *visit) {
  for (int c = 0; c < net->m->program->n_classes; c++) {
    const RendezvousClass *class = &net->m->program->classes[c];
    const int *node = nodes + net->m->first[c];
    visit_chain(net, node, class, order, visit);
    for (int i = 0; i < class->n_needs; i++) {
      const RendezvousNeed *need = &class->needs[i];
      bool is_implied = order == RENDEZVOUS_all && need->before < need->after;
      if (need->before >= 0 && !is_implied)
        visit(net, node[need->before], node[need->after]);
    }
  }
}

static void count_edge(Net *net, int from, int to) {
  net->begin[from]++;
  net->n_before[to]++;
}

static void add_edge(Net *net, int from, int to) {
  net->to[--net->begin[from]] = to;
}

static Net net_create(Arena *arena, const Matched *m, RendezvousOrder order) {
  Net net = {.m = m,
             .begin = ARENA_ARRAY(arena, int, m->n + 1),
             .n_before = ARENA_ARRAY(arena, int, m->n)};
  const int *nodes = find_nodes(arena, m);
  visit_edges(&net, nodes, order, count_edge);
  for (int i = 0; i < m->n; i++) net.begin[i + 1] += net.begin[i];
  net.to = ARENA_ARRAY(arena, int, net.begin[m->n]);
  visit_edges(&net, nodes, order, add_edge);
  return net;
}

/* Takes away what does not wait; returns how many nodes are left. */
static int take_away(Arena *arena, Net *net) {
  int *work = ARENA_ARRAY(arena, int, net->m->n), n_work = 0,
      n_left = net->m->n;
  for (int i = 0; i < net->m->n; i++)
    if (net->n_before[i] == 0) work[n_work++] = i;
  while (n_work > 0) {
    int node = work[--n_work];
    n_left--;
    for (int e = net->begin[node]; e < net->begin[node + 1]; e++)
      if (--net->n_before[net->to[e]] == 0) work[n_work++] = net->to[e];
  }
  return n_left;
}

/* ---- the shortest ---- */

typedef struct Search {
  Net *net;
  int *parent; /* by node */
  int *depth;
  int *seen; /* the search that came here last */
  int *queue;
  int n_searches;
  int64_t n_steps;
} Search;

/* Searches for a way from a node back to it of less than `limit` nodes. Returns
 * its last node, or -1. */
static int search_from(Search *s, int start, int limit) {
  const Net *net = s->net;
  int head = 0, n = 0;
  s->n_searches++;
  s->queue[n++] = start;
  s->depth[start] = 1;
  while (head < n) {
    int node = s->queue[head++];
    if (s->depth[node] >= limit) return -1;
    for (int e = net->begin[node]; e < net->begin[node + 1]; e++) {
      int to = net->to[e];
      s->n_steps++;
      if (to == start) return node;
      if (net->n_before[to] == 0 || s->seen[to] == s->n_searches) continue;
      s->seen[to] = s->n_searches;
      s->parent[to] = node;
      s->depth[to] = s->depth[node] + 1;
      s->queue[n++] = to;
    }
  }
  return -1;
}

/* Writes both actions of each node, in the order of the cycle. */
static Cycle cycle_of(Arena *arena, const Search *s, int last, int n) {
  const Matched *m = s->net->m;
  int *nodes = ARENA_ARRAY(arena, int, n), *actions, n_actions = 0;
  for (int i = n - 1, node = last; i >= 0; i--, node = s->parent[node])
    nodes[i] = node;
  actions = ARENA_ARRAY(arena, int, 2 * n);
  for (int i = 0; i < n; i++) {
    actions[n_actions++] = nodes[i];
    if (m->partner[nodes[i]] >= 0) actions[n_actions++] = m->partner[nodes[i]];
  }
  return (Cycle){n_actions, actions};
}

static Cycle find_shortest(Arena *arena, Net *net) {
  int n = net->m->n, shortest = n + 1;
  Search s = {.net = net,
              .parent = ARENA_ARRAY(arena, int, n),
              .depth = ARENA_ARRAY(arena, int, n),
              .seen = ARENA_ARRAY(arena, int, n),
              .queue = ARENA_ARRAY(arena, int, n)};
  Cycle cycle = {0};
  for (int i = 0; i < n; i++) {
    if (net->n_before[i] == 0) continue;
    if (cycle.n > 0 && s.n_steps > MOST_STEPS) break;
    int last = search_from(&s, i, shortest);
    if (last < 0) continue;
    shortest = s.depth[last];
    cycle = cycle_of(arena, &s, last, shortest);
  }
  ASSERT(cycle.n > 0);
  return cycle;
}

/* ---- values that never come ---- */

static bool find_never(Arena *arena, const Matched *m, Cycle *out) {
  for (int c = 0; c < m->program->n_classes; c++) {
    const RendezvousClass *class = &m->program->classes[c];
    for (int i = 0; i < class->n_needs; i++) {
      if (class->needs[i].before >= 0) continue;
      int action = m->first[c] + class->needs[i].after;
      *out = (Cycle){1, arena_copy(arena, &action, sizeof action)};
      return true;
    }
  }
  return false;
}

Cycle rendezvous_cycle(Arena *arena, const Matched *m, RendezvousOrder order) {
  Cycle cycle = {0};
  if (find_never(arena, m, &cycle)) return cycle;
  Net net = net_create(arena, m, order);
  if (take_away(arena, &net) == 0) return cycle;
  return find_shortest(arena, &net);
}
