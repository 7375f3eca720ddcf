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
 *                 start (hide_collectives.c).
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
#include "passes/buffers/launch_order.h"

#include <stdlib.h>

static const Node *node_at(const LaunchOrder *o, int id) {
  return o->graph->nodes.data[id];
}

static bool is_async(const Node *node) {
  return op_has(node->op, OP_FLAG_asynchronous);
}

static bool is_bulk(const Node *node) {
  return is_async(node) && node_has(node, ATTR_bucket);
}

/* An operand is the result of a collective, itself or through views. */
static bool reads_collective(const LaunchOrder *o, int id) {
  const Node *node = node_at(o, id);
  for (int i = 0; i < node->n_inputs; i++)
    if (is_async(node_at(o, o->root[node->inputs[i].node]))) return true;
  return false;
}

/* ---- feed bulk ---- */

/* It costs little and makes of gradients what is sent: also the product of a
 * gradient and a factor of low rank. */
static bool is_preparation(const LaunchOrder *o, int id) {
  const Node *node = node_at(o, id);
  bool is_product =
      op_is(node->op, OPCLASS_contraction) && !node_has(node, ATTR_terms);
  return node->phase == PHASE_weight_gradient && node->op != OP_input &&
         !is_async(node) && !is_product && node->op != OP_scan;
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

/* A bucket starts behind moved work that feeds it, directly or not. */
static void follow_operands(LaunchOrder *o) {
  int *ready = ARENA_ARRAY(o->arena, int, o->n); /* by node: its real place */
  for (int id = 0; id < o->n; id++) {
    const Node *node = o->graph->nodes.data[id];
    ready[id] = o->place[id];
    for (int i = 0; i < node->n_inputs; i++)
      if (ready[node->inputs[i].node] > ready[id])
        ready[id] = ready[node->inputs[i].node];
    if (is_bulk(node)) o->place[id] = ready[id];
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
  for (int id = 0; id < o->n; id++)
    if (o->segment[id] >= o->n_segments) o->n_segments = o->segment[id] + 1;
  o->starts = ARENA_ARRAY(o->arena, Starts, o->n_segments);
  for (int s = 0; s < o->n_segments; s++) {
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
                           LiveBytes *live, int64_t limit, Arena *arena) {
  int n = graph->nodes.n;
  LaunchOrder order = {
      .graph = graph,
      .arena = arena,
      .n = n,
      .segment = segment,
      .place = ARENA_ARRAY(arena, int, n),
      .arrival = ARENA_ARRAY(arena, int, n),
      .root = ARENA_ARRAY(arena, int, n),
  };
  for (int id = 0; id < n; id++) {
    order.place[id] = id;
    order.root[id] = node_is_view(graph, id)
                         ? order.root[graph->nodes.data[id]->inputs[0].node]
                         : id;
  }
  if (live) hide_collectives(&order, live, limit);
  feed_bulk(&order);
  if (live) follow_operands(&order);
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
