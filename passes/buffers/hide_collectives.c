/*
 * hide_collectives.c -- gives blocking collectives work that runs beside them.
 *
 * While a blocking collective is under way the stream runs, by an estimate, as
 * much as hides it and no more:
 *
 *   natural    What stands between its start and its first reader anyway.
 *   held back  Work before it that no blocking collective up to it needs, such
 *              as weight gradients, its own block's or those of other blocks:
 *              the nearest first.
 *   ahead      Work after its first reader whose operands are there, such as
 *              casts of weights and other branches.
 *
 *     %5 = dot ... @dgrad               %5 = dot ... @dgrad
 *     %6 = dot ... @wgrad               %7 = all_reduce %5
 *     %7 = all_reduce %5          =>    %6 = dot ... @wgrad     held back
 *     %8 = fused %7 ...                 %9 = fused "w" {cast}   ahead
 *     %9 = fused "w" {cast}             %8 = fused %7 ...
 *
 * Each piece of work hides one collective.  An estimate may be half or twice of
 * the time, so all of them get half of it, then all of it, then twice as much.
 *
 * Work that is held back keeps its operands alive, work ahead its results. Each
 * move is judged alone, by the bytes that are live where it adds to them, so
 * the order of one block does not depend on how many there are.  What raises
 * the peak is moved last, and from between two collectives alone.
 */
#include "ir/work.h"
#include "passes/buffers/launch_order.h"

/* Estimates of time are in operations, for devices of any speed: a byte of
 * memory costs as long as 100 of them and a byte sent as long as 2,000, which
 * lies between GPUs on NVLink (some 1,000) and on a network (8,000), and CPUs
 * on 1 Gbit/s (800).  A message costs 2e9 at least, some 10 to 100 us of a GPU.
 */
static const double byte_ops = 100, sent_byte_ops = 2000, message_ops = 2e9;

/* How far from a collective the work may stand that hides it, in nodes. */
enum { REACH = 1000, REACH_AHEAD = 200 };

typedef struct Hiding {
  LaunchOrder *o;
  LiveBytes *live;
  int *needed;    /* by node: the first blocking collective that needs it */
  int *next;      /* by node: the first blocking collective behind it */
  int *hides;     /* by node: the collective that it hides, or -1 */
  double *ops;    /* by node: estimate of its time; -1 is not estimated yet */
  int *held;      /* see list_held */
  double *hidden; /* by collective: what moved work hides of it */
  int64_t limit;
  double times;    /* how many times a message is hidden */
  bool stays_near; /* work between two collectives alone is held back */
} Hiding;

static const Node *node_of(const Hiding *h, int id) {
  return h->o->graph->nodes.data[id];
}

static bool is_blocking(const Node *node) {
  return op_has(node->op, OP_FLAG_asynchronous) && !node_has(node, ATTR_bucket);
}

static double launch_ops(Hiding *h, int id) {
  if (h->ops[id] < 0) {
    Work work = node_work(h->o->graph, id);
    h->ops[id] = work.flops + byte_ops * (double)(work.read + work.written);
  }
  return h->ops[id];
}

static double message_time(const Hiding *h, int id) {
  return message_ops + sent_byte_ops * (double)node_sent_bytes(h->o->graph, id);
}

/* It is launched and runs on the stream. */
static bool is_work(const Hiding *h, int id) {
  const Node *node = node_of(h, id);
  return node->op != OP_input && !node_is_view(h->o->graph, id) &&
         !op_has(node->op, OP_FLAG_asynchronous);
}

static void find_needed(Hiding *h) {
  int n = h->o->n, next = n;
  for (int id = 0; id < n; id++) h->needed[id] = n;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = node_of(h, id);
    int by = is_blocking(node) ? id : h->needed[id];
    h->next[id] = next;
    if (is_blocking(node)) next = id;
    for (int i = 0; i < node->n_inputs; i++) {
      int input = node->inputs[i].node;
      if (by < h->needed[input]) h->needed[input] = by;
    }
    /* A gather begins behind this node, which keeps its place. */
    if (node->op == OP_after) h->needed[node->inputs[1].node] = 0;
  }
}

/* ---- live bytes ---- */

static int root_of(const Hiding *h, Value value) {
  return h->live->root[h->live->first_value[value.node] + value.result];
}

static int64_t result_bytes(const Hiding *h, int id) {
  int64_t bytes = 0;
  for (int r = 0; r < node_of(h, id)->n_results; r++)
    bytes += h->live->size[h->live->first_value[id] + r];
  return bytes;
}

/* Lists the operands of a node that nothing needs at a place, each once. */
static int list_held(Hiding *h, const Node *node, int place) {
  int n = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    int root = root_of(h, node->inputs[i]);
    bool is_new = h->live->size[root] > 0 && h->live->last[root] < place;
    for (int k = 0; k < n; k++) is_new &= h->held[k] != root;
    if (is_new) h->held[n++] = root;
  }
  return n;
}

/* The bytes of the first `n` of `held` behind their last uses. */
static int64_t held_at(const Hiding *h, int n, int place) {
  int64_t bytes = 0;
  for (int k = 0; k < n; k++)
    if (h->live->last[h->held[k]] < place) bytes += h->live->size[h->held[k]];
  return bytes;
}

/* Keeps the operands of a node alive up to a later place, if there is room. */
static bool hold_operands(Hiding *h, int id, int to) {
  LiveBytes *live = h->live;
  int n = list_held(h, node_of(h, id), to), from = live->place[id];
  for (int at = from + 1; at <= to; at++)
    if (live->bytes[at] + held_at(h, n, at) > h->limit) return false;
  int64_t results = result_bytes(h, id);
  for (int at = from; at <= to; at++)
    live->bytes[at] += held_at(h, n, at) - (at < to ? results : 0);
  for (int k = 0; k < n; k++) live->last[h->held[k]] = to;
  live->place[id] = to;
  return true;
}

/* Makes the results of a node at an earlier place, if there is room. */
static bool make_earlier(Hiding *h, int id, int to) {
  LiveBytes *live = h->live;
  int64_t results = result_bytes(h, id);
  for (int at = to; at < live->place[id]; at++)
    if (live->bytes[at] + results > h->limit) return false;
  for (int at = to; at < live->place[id]; at++) live->bytes[at] += results;
  live->place[id] = to;
  return true;
}

/* ---- natural ---- */

static bool reads(const Hiding *h, int id, int collective) {
  const Node *node = node_of(h, id);
  if (node_is_view(h->o->graph, id)) return false;
  for (int i = 0; i < node->n_inputs; i++)
    if (h->o->root[node->inputs[i].node] == collective) return true;
  return false;
}

static bool is_free(const Hiding *h, int id, int collective) {
  return h->o->place[id] == id &&
         (h->hides[id] < 0 || h->hides[id] == collective);
}

/* It could hide a later collective as well. */
static bool is_movable(const Hiding *h, int id) {
  return h->needed[id] > h->next[id];
}

/* Returns the work that follows a collective before anybody waits for it, as
 * far as it hides none before; *out_reader is the node behind it.  Work that
 * stays in its place counts first, and movable work as far as it is missing. */
static double natural_work(Hiding *h, int id, double wanted, int *out_reader) {
  double ops = 0;
  int reader = id + 1;
  for (; reader < h->o->n && reader < id + REACH && ops < wanted; reader++) {
    if (h->o->segment[reader] != h->o->segment[id] || reads(h, reader, id))
      break;
    if (is_work(h, reader) && h->o->place[reader] == reader &&
        !is_movable(h, reader))
      ops += launch_ops(h, reader);
  }
  for (int at = id + 1; at < reader && ops < wanted; at++) {
    if (!is_work(h, at) || !is_movable(h, at) || !is_free(h, at, id)) continue;
    ops += launch_ops(h, at);
    h->hides[at] = id;
  }
  *out_reader = reader;
  return ops;
}

/* ---- held back, ahead ---- */

static bool may_move(const Hiding *h, int id, int collective) {
  return is_work(h, id) && h->o->place[id] == id && h->hides[id] < 0 &&
         h->o->segment[id] == h->o->segment[collective];
}

/* An operand is made before the start of the collective, and nobody has to wait
 * for it. */
static bool operands_are_there(const Hiding *h, int id, int collective) {
  const Node *node = node_of(h, id);
  for (int i = 0; i < node->n_inputs; i++) {
    int from = h->o->root[node->inputs[i].node];
    const Node *made = node_of(h, from);
    if (made->op == OP_input) continue;
    if (op_has(made->op, OP_FLAG_asynchronous) ||
        h->o->place[from] > collective)
      return false;
  }
  return true;
}

static bool operands_are_moved(const Hiding *h, int id, int collective) {
  const Node *node = node_of(h, id);
  for (int i = 0; i < node->n_inputs; i++)
    if (h->o->place[h->o->root[node->inputs[i].node]] > collective) return true;
  return false;
}

static void hide_behind(Hiding *h, int id, int collective, double *wanted) {
  h->o->place[id] = collective;
  h->hides[id] = collective;
  h->hidden[collective] += launch_ops(h, id);
  *wanted -= launch_ops(h, id);
}

static void hold_back(Hiding *h, int id, int before, double *wanted) {
  int first = id < REACH ? 0 : id - REACH;
  if (h->stays_near && first <= before) first = before + 1;
  for (int at = id - 1; at >= first && *wanted > 0; at--) {
    if (h->needed[at] <= id || !may_move(h, at, id) ||
        operands_are_moved(h, at, id))
      continue;
    if (hold_operands(h, at, h->live->place[id]))
      hide_behind(h, at, id, wanted);
  }
}

static void take_ahead(Hiding *h, int id, int reader, double *wanted) {
  int end = id + REACH_AHEAD < h->o->n ? id + REACH_AHEAD : h->o->n;
  for (int at = reader; at<end && * wanted> 0; at++) {
    if (!may_move(h, at, id) || !operands_are_there(h, at, id)) continue;
    if (make_earlier(h, at, h->live->place[id])) hide_behind(h, at, id, wanted);
  }
}

/* `before` is the blocking collective before this one. */
static void hide_collective(Hiding *h, int id, int before) {
  double wanted = h->times * message_time(h, id) - h->hidden[id];
  int reader = id + 1;
  if (wanted > 0) wanted -= natural_work(h, id, wanted, &reader);
  if (wanted > 0) hold_back(h, id, before, &wanted);
  if (wanted > 0) take_ahead(h, id, reader, &wanted);
}

static void hide_all(Hiding *h, double times, int64_t limit, bool stays_near) {
  h->times = times;
  h->limit = limit;
  h->stays_near = stays_near;
  int before = -1;
  for (int id = 0; id < h->o->n; id++) {
    if (!is_blocking(node_of(h, id))) continue;
    hide_collective(h, id, before);
    before = id;
  }
}

static int most_inputs(const Graph *graph) {
  int most = 0;
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->n_inputs > most)
      most = graph->nodes.data[id]->n_inputs;
  return most;
}

void hide_collectives(LaunchOrder *o, LiveBytes *live, int64_t limit) {
  Hiding h = {.o = o,
              .live = live,
              .needed = ARENA_ARRAY(o->arena, int, o->n),
              .next = ARENA_ARRAY(o->arena, int, o->n),
              .hides = ARENA_ARRAY(o->arena, int, o->n),
              .ops = ARENA_ARRAY(o->arena, double, o->n),
              .held = ARENA_ARRAY(o->arena, int, most_inputs(o->graph) + 1),
              .hidden = ARENA_ARRAY(o->arena, double, o->n)};
  for (int id = 0; id < o->n; id++) h.hides[id] = -1, h.ops[id] = -1;
  find_needed(&h);
  for (double times = 0.5; times <= 2; times *= 2) {
    hide_all(&h, times, live->peak, false);
    hide_all(&h, times, limit, true);
  }
}
