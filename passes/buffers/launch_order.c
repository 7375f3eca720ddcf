/*
 * launch_order.c -- the order that list_schedule would like launches to have.
 *
 * Nodes keep the order of the graph, which is good for memory: the backward
 * pass frees activations as it goes.  They leave it for communication, by the
 * contract of docs/inside/launches.md:
 *
 *   start early   A collective starts as soon as its operands are made.  One
 *                 whose operand is the result of another collective would make
 *                 the stream wait, so it keeps its place.
 *   hide          Work that a blocking collective does not need comes after its
 *                 start, as much of it as hides the message, and no more,
 *                 because waiting work keeps its operands alive.
 *   feed bulk     What brings a gradient into the form in which it is reduced
 *                 comes right after the gradient.
 *   read late     A copy of what a collective brought comes right before its
 *                 reader, so that a gather that began ahead is not waited for.
 *   by arrival    The update reads gradients in the order of their buckets.
 *   read early    What a reduce-scatter sends is freed when its result is read:
 *                 by the norm and by sums of micro-batches, when two more
 *                 buckets have started.
 *   chains        A bulk collective that continues another one starts when the
 *                 next bucket has started.
 *
 *     %5 = dot ... @dgrad               %5 = dot ... @dgrad
 *     %6 = dot ... @wgrad               %7 = all_reduce %5
 *     %7 = all_reduce %5          =>    %6 = dot ... @wgrad     hides %7
 *     %8 = fused %7 ...                 %8 = fused %7 ...
 */
#include "ir/work.h"
#include "passes/buffers/list_schedule.h"

#include <stdlib.h>

/* Estimates of time are in operations, for devices of any speed: a byte of
 * memory costs as long as 100 of them and a byte sent as long as 2,000, which
 * lies between GPUs on NVLink (some 1,000) and on a network (8,000), and CPUs
 * on 1 Gbit/s (800).  A message costs 1e7 at least. */
static const double byte_ops = 100, sent_byte_ops = 2000, message_ops = 1e7;
enum { N_SEGMENTS = 3 };

typedef struct Starts {
  int *places, n; /* ascending */
} Starts;

typedef struct LaunchOrder {
  const Graph *graph;
  Arena *arena;
  int n;
  const int *segment;
  double hiding;
  int *place;   /* by node: the id of the node after which it comes */
  int *arrival; /* by node: among those of one place, the order */
  int *root;    /* by node: the node whose bytes a view shares */
  bool *mark;
  int *continued; /* by node: see find_continued */
  Starts starts[N_SEGMENTS];
} LaunchOrder;

static const Node *node_at(const LaunchOrder *o, int id) {
  return o->graph->nodes.data[id];
}

static bool is_async(const Node *node) {
  return op_has(node->op, OP_FLAG_asynchronous);
}

static bool is_bulk(const Node *node) {
  return is_async(node) && node_has(node, ATTR_bucket);
}

static double launch_ops(const LaunchOrder *o, int id) {
  if (node_is_view(o->graph, id)) return 0;
  Work work = node_work(o->graph, id);
  return work.flops + byte_ops * (double)(work.read + work.written);
}

static double message_time(const LaunchOrder *o, int id) {
  return message_ops + sent_byte_ops * (double)node_sent_bytes(o->graph, id);
}

/* An operand is the result of a collective, itself or through views. */
static bool reads_collective(const LaunchOrder *o, int id) {
  const Node *node = node_at(o, id);
  for (int i = 0; i < node->n_inputs; i++)
    if (is_async(node_at(o, o->root[node->inputs[i].node]))) return true;
  return false;
}

/* ---- hide ---- */

/* The work that follows collective `id` before anybody waits for it. */
static double work_before_wait(LaunchOrder *o, int id, double limit) {
  double ops = 0;
  for (int next = id + 1; next < o->n && ops < limit; next++) {
    const Node *node = node_at(o, next);
    if (o->segment[next] != o->segment[id]) break;
    for (int i = 0; i < node->n_inputs; i++)
      if (o->root[node->inputs[i].node] == id && !node_is_view(o->graph, next))
        return ops;
    if (!is_async(node) && node->op != OP_input) ops += launch_ops(o, next);
  }
  return ops;
}

/* Marks what collective `id` needs of the nodes from `first` on. */
static void mark_needed(LaunchOrder *o, int first, int id) {
  for (int i = first; i < id; i++) o->mark[i] = false;
  o->mark[id] = true;
  for (int at = id; at >= first; at--) {
    const Node *node = node_at(o, at);
    for (int i = 0; i < node->n_inputs && o->mark[at]; i++)
      o->mark[node->inputs[i].node] |= node->inputs[i].node >= first;
  }
}

/* From the nearest back, nodes since the blocking collective before come after
 * this one, until they hide it. */
static void hide_collective(LaunchOrder *o, int first, int id) {
  double wanted = o->hiding * message_time(o, id);
  wanted -= work_before_wait(o, id, wanted);
  if (wanted <= 0) return;
  mark_needed(o, first, id);
  for (int at = id - 1; at >= first && wanted > 0; at--) {
    const Node *node = node_at(o, at);
    if (o->mark[at] || is_async(node) || node->op == OP_input ||
        o->segment[at] != o->segment[id])
      continue;
    o->place[at] = id;
    wanted -= launch_ops(o, at);
  }
}

static void hide_collectives(LaunchOrder *o) {
  int first = 0;
  for (int id = 0; id < o->n; id++) {
    const Node *node = node_at(o, id);
    if (!is_async(node) || is_bulk(node)) continue;
    hide_collective(o, first, id);
    first = id + 1;
  }
}

/* ---- feed bulk ---- */

/* It costs little and makes of gradients what is sent. */
static bool is_preparation(const LaunchOrder *o, int id) {
  const Node *node = node_at(o, id);
  return node->phase == PHASE_weight_gradient && node->op != OP_input &&
         !is_async(node) && !op_is(node->op, OPCLASS_contraction) &&
         node->op != OP_scan;
}

static void feed_bulk(LaunchOrder *o) {
  bool *feeds = ARENA_ARRAY(o->arena, bool, o->n);
  for (int id = o->n - 1; id >= 0; id--) {
    const Node *node = node_at(o, id);
    bool is_on_way = is_bulk(node) || (feeds[id] && is_preparation(o, id));
    feeds[id] &= is_on_way;
    for (int i = 0; i < node->n_inputs && is_on_way; i++)
      feeds[node->inputs[i].node] = true;
  }
  for (int id = 0; id < o->n; id++) {
    const Node *node = node_at(o, id);
    if (!feeds[id] && !is_bulk(node)) continue;
    int place = -1;
    for (int i = 0; i < node->n_inputs; i++)
      if (o->place[node->inputs[i].node] > place &&
          node_at(o, node->inputs[i].node)->op != OP_input)
        place = o->place[node->inputs[i].node];
    if (place >= 0 && place < o->place[id]) o->place[id] = place;
  }
}

/* ---- read late ---- */

/* It only puts elsewhere, or rounds, what a blocking collective brought. */
static bool is_copy_of_collective(const LaunchOrder *o, int id) {
  const Node *node = node_at(o, id);
  if (node_is_view(o->graph, id) || node->n_inputs != 1 || is_async(node) ||
      node->phase == PHASE_update || node->phase == PHASE_weight_gradient)
    return false;
  const Node *from = node_at(o, o->root[node->inputs[0].node]);
  return is_async(from) && !is_bulk(from) &&
         (op_is(node->op, OPCLASS_data_movement) || node->op == OP_cast ||
          fused_is_elementwise(node));
}

static void read_late(LaunchOrder *o) {
  int *first = ARENA_ARRAY(o->arena, int, o->n); /* place of the first reader */
  for (int id = 0; id < o->n; id++) first[id] = o->n;
  for (int id = o->n - 1; id >= 0; id--) {
    const Node *node = node_at(o, id);
    if (is_copy_of_collective(o, id) && first[id] < o->n &&
        first[id] > o->place[id])
      o->place[id] = first[id];
    int place = node_is_view(o->graph, id) ? first[id] : o->place[id];
    for (int i = 0; i < node->n_inputs; i++)
      if (place < first[node->inputs[i].node])
        first[node->inputs[i].node] = place;
  }
}

/* ---- by arrival, chains ---- */

/* By node: the bulk collective that starts latest of those whose results its
 * operands are made of without further work; -1: none. */
static void find_continued(LaunchOrder *o) {
  int *continued = o->continued = ARENA_ARRAY(o->arena, int, o->n);
  for (int id = 0; id < o->n; id++) {
    const Node *node = node_at(o, id);
    continued[id] = -1;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = o->root[node->inputs[i].node];
      if (!is_bulk(node_at(o, from)))
        from = is_preparation(o, from) ? continued[from] : -1;
      if (from >= 0 &&
          (continued[id] < 0 || o->place[from] > o->place[continued[id]]))
        continued[id] = from;
    }
  }
}

static int compare_places(const void *a, const void *b) {
  const int *x = a, *y = b;
  return *x < *y ? -1 : *x > *y;
}

/* By segment: where buckets start, but for those that continue one. */
static void list_starts(LaunchOrder *o) {
  for (int s = 0; s < N_SEGMENTS; s++) {
    Starts *starts = &o->starts[s];
    starts->places = ARENA_ARRAY(o->arena, int, o->n);
    for (int id = 0; id < o->n; id++)
      if (o->segment[id] == s && is_bulk(node_at(o, id)) &&
          o->continued[id] < 0)
        starts->places[starts->n++] = o->place[id];
    if (starts->n > 1)
      qsort(starts->places, (size_t)starts->n, sizeof(int), compare_places);
  }
}

/* Where the next bucket starts after one that starts at `place`; after the last
 * one, the end. */
static int next_start(const LaunchOrder *o, int segment, int place) {
  const Starts *starts = &o->starts[segment];
  int low = 0, high = starts->n;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (starts->places[middle] > place)
      high = middle;
    else
      low = middle + 1;
  }
  return low < starts->n ? starts->places[low] : o->n;
}

static void delay_chains(LaunchOrder *o) {
  for (int id = 0; id < o->n; id++) {
    const Node *node = node_at(o, id);
    if ((!is_bulk(node) && !is_preparation(o, id)) || o->continued[id] < 0)
      continue;
    int place = next_start(o, o->segment[id], o->place[o->continued[id]]);
    if (o->place[id] < place) o->place[id] = place;
  }
}

/* Its result is small, or replaces what it read. */
static bool may_read_early(const Node *node) {
  if (node->op == OP_accumulate) return true;
  bool is_scalar = node->phase == PHASE_update && !is_async(node);
  for (int r = 0; r < node->n_results; r++)
    is_scalar &= node->types[r]->rank == 0;
  return is_scalar;
}

/* A reduce-scatter keeps its operand alive until its result is read. */
static void read_early(LaunchOrder *o) {
  for (int id = 0; id < o->n; id++) {
    const Node *node = node_at(o, id);
    int from = o->continued[id];
    if (from < 0 || op_has(node_at(o, from)->op, OP_FLAG_in_place) ||
        node_is_view(o->graph, id) || !may_read_early(node))
      continue;
    int segment = o->segment[from];
    int place = next_start(o, segment, next_start(o, segment, o->place[from]));
    if (o->segment[id] == segment && place < o->place[id]) {
      o->place[id] = place;
      o->arrival[id] = 0;
    }
  }
}

/* Nodes of the update that wait for no more than bulk collectives come in the
 * order in which these start. */
static void order_by_arrival(LaunchOrder *o) {
  int *start = ARENA_ARRAY(o->arena, int, o->n); /* of the latest, plus 1 */
  bool *waits = ARENA_ARRAY(o->arena, bool, o->n);
  int first = -1;
  for (int id = 0; id < o->n; id++) {
    const Node *node = node_at(o, id);
    if (is_bulk(node)) start[id] = o->place[id] + 1;
    waits[id] = is_async(node) && !is_bulk(node);
    for (int i = 0; i < node->n_inputs && !is_bulk(node); i++) {
      int from = node->inputs[i].node;
      if (start[from] > start[id]) start[id] = start[from];
      waits[id] |= waits[from] && node_at(o, from)->phase == PHASE_update;
    }
    if (node->phase != PHASE_update || node->op == OP_input || waits[id] ||
        start[id] == 0)
      continue;
    if (first < 0) first = id;
    if (o->segment[id] != o->segment[first]) continue;
    o->place[id] = first;
    o->arrival[id] = start[id];
  }
}

/* ---- keys ---- */

static int64_t key_of(const LaunchOrder *o, int id) {
  const Node *node = node_at(o, id);
  int64_t n = o->n + 2;
  if (node->op == OP_input) return id - n;
  int64_t begin = o->segment[id] * n * n * n;
  if (node_is_view(o->graph, id)) return begin - 1; /* costs nothing */
  bool starts_at_once = is_async(node) && !reads_collective(o, id);
  if (starts_at_once) return begin;
  return begin + ((o->place[id] + 1) * n + o->arrival[id]) * n + id;
}

int64_t *launch_order_keys(const Graph *graph, const int *segment,
                           double hiding, Arena *arena) {
  int n = graph->nodes.n;
  LaunchOrder order = {.graph = graph,
                       .arena = arena,
                       .n = n,
                       .segment = segment,
                       .hiding = hiding,
                       .place = ARENA_ARRAY(arena, int, n),
                       .arrival = ARENA_ARRAY(arena, int, n),
                       .root = ARENA_ARRAY(arena, int, n),
                       .mark = ARENA_ARRAY(arena, bool, n)};
  for (int id = 0; id < n; id++) {
    order.place[id] = id;
    order.root[id] = node_is_view(graph, id)
                         ? order.root[graph->nodes.data[id]->inputs[0].node]
                         : id;
  }
  if (hiding > 0) hide_collectives(&order);
  feed_bulk(&order);
  read_late(&order);
  find_continued(&order);
  list_starts(&order);
  delay_chains(&order);
  order_by_arrival(&order);
  read_early(&order);
  int64_t *key = ARENA_ARRAY(arena, int64_t, n);
  for (int id = 0; id < n; id++) key[id] = key_of(&order, id);
  return key;
}
