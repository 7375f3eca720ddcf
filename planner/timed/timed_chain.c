/*
 * timed_chain.c -- cuts a forward graph where few values go on, and finds what
 * goes over each border and which parameters lie between.
 *
 *     m = lstm[2] | x = lstm[3], c = look(x, m) | x = lstm[4](x, c) | ...
 *     sent: m       x, c                          x, c
 *
 * A value that is read behind several borders counts at each of them.
 */
#include "planner/timed/timed.h"

#include <string.h>

enum { MOST_OPEN_VALUES = 4 };

typedef struct ChainReader {
  Arena *arena;
  const Graph *graph;
  TimedChain *out;
  int *piece;        /* by node */
  int *value;        /* by node: number of its first result */
  int *first, *last; /* by value: pieces that read it; -1: none */
  bool *is_trained;  /* by node: parameters have a part in it */
} ChainReader;

static Bytes type_bytes(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

static bool is_param(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  return node->op == OP_input &&
         graph->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_param;
}

static void read_nodes(ChainReader *r) {
  int at = 0, n = r->graph->nodes.n;
  const StageChain *chain = &r->out->chain;
  for (int id = 0; id < n; id++) {
    const Node *node = r->graph->nodes.data[id];
    while (at + 1 < chain->n && id > chain->nodes[at]) at++;
    r->piece[id] = at;
    r->value[id + 1] = r->value[id] + node->n_results;
    r->is_trained[id] = is_param(r->graph, id);
    for (int i = 0; i < node->n_results; i++)
      r->first[r->value[id] + i] = r->last[r->value[id] + i] = -1;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = r->value[node->inputs[i].node] + node->inputs[i].result;
      r->is_trained[id] |= r->is_trained[node->inputs[i].node];
      if (r->first[from] < 0) r->first[from] = at;
      r->last[from] = at;
    }
  }
}

/* A parameter is in the first piece that reads it. */
static void add_param(const ChainReader *r, int id, Bytes *params) {
  Bytes bytes = type_bytes(r->graph->nodes.data[id]->types[0]);
  int first = r->first[r->value[id]], last = r->last[r->value[id]];
  if (first < 0) return;
  params[first] += bytes;
  if (last > first)
    vec_push(r->arena, &r->out->shared, ((TimedShared){first, last, bytes}));
}

/* Each result goes to the last piece that reads it. */
static void add_sent(const ChainReader *r, int id, Bytes *sent) {
  const Node *node = r->graph->nodes.data[id];
  for (int k = 0; k < node->n_results; k++)
    for (int i = r->piece[id]; i < r->last[r->value[id] + k]; i++)
      sent[i] += type_bytes(node->types[k]);
}

static int count_values(const Graph *graph) {
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    n += graph->nodes.data[id]->n_results;
  return n;
}

TimedChain timed_chain_of(Arena *arena, const PlanPaths *paths,
                          const UnitRepeats *repeats) {
  TimedChain out = {
      .chain = stage_chain_of_forward(arena, paths, repeats, MOST_OPEN_VALUES)};
  const Graph *graph = plan_paths_graph(paths);
  int n = graph->nodes.n, n_values = count_values(graph);
  ChainReader r = {.arena = arena,
                   .graph = graph,
                   .out = &out,
                   .piece = ARENA_ARRAY(arena, int, n + 1),
                   .value = ARENA_ARRAY(arena, int, n + 1),
                   .first = ARENA_ARRAY(arena, int, n_values + 1),
                   .last = ARENA_ARRAY(arena, int, n_values + 1),
                   .is_trained = ARENA_ARRAY(arena, bool, n + 1)};
  Bytes *sent = ARENA_ARRAY(arena, Bytes, out.chain.n);
  Bytes *params = ARENA_ARRAY(arena, Bytes, out.chain.n);
  read_nodes(&r);
  for (int id = 0; id < n; id++) {
    bool is_input = graph->nodes.data[id]->op == OP_input;
    if (is_param(graph, id)) add_param(&r, id, params);
    if (!is_input && r.is_trained[id]) add_sent(&r, id, sent);
  }
  out.sent = sent;
  out.params = params;
  return out;
}

/* ---- fewer borders ---- */

static void thin_pieces(Arena *arena, TimedChain *c, const int *to, int n) {
  Bytes *sent = ARENA_ARRAY(arena, Bytes, n);
  Bytes *params = ARENA_ARRAY(arena, Bytes, n);
  const char **ends = ARENA_ARRAY(arena, const char *, n);
  int *nodes = ARENA_ARRAY(arena, int, n);
  for (int i = 0; i < c->chain.n; i++) {
    params[to[i]] += c->params[i];
    sent[to[i]] = c->sent[i]; /* of its last piece */
    if (i + 1 == c->chain.n) break;
    ends[to[i]] = c->chain.ends[i];
    nodes[to[i]] = c->chain.nodes[i];
  }
  for (int i = 0; i < c->shared.n; i++) {
    c->shared.data[i].first = to[c->shared.data[i].first];
    c->shared.data[i].last = to[c->shared.data[i].last];
  }
  c->sent = sent;
  c->params = params;
  c->chain.ends = ends;
  c->chain.nodes = nodes;
}

void timed_chain_thin(Arena *arena, TimedChain *c, const bool *is_kept) {
  int *to = ARENA_ARRAY(arena, int, c->chain.n), n = 0;
  for (int i = 0; i < c->chain.n; i++) {
    to[i] = n;
    n += i + 1 == c->chain.n || is_kept[i];
  }
  thin_pieces(arena, c, to, n);
  for (int i = 0; i < map_size(c->chain.named); i++) {
    int piece = (int)(intptr_t)map_value_at(c->chain.named, i) - 1;
    map_put(c->chain.named, map_key_at(c->chain.named, i),
            (void *)(intptr_t)(to[piece] + 1));
  }
  c->chain.n = n;
}

int timed_chain_piece(const TimedChain *c, const char *path) {
  for (size_t n = strlen(path); n > 0;) {
    Name name = name_intern_n(c->chain.names, path, n);
    int piece = stage_chain_piece(&c->chain, name);
    if (piece >= 0) return piece;
    for (n--; n > 0 && path[n] != '.' && path[n] != '!'; n--) continue;
  }
  return -1;
}
