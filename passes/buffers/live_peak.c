/*
 * live_peak.c -- the bytes that are live at once in an order of launches, by
 * which list_schedule compares orders before any is packed.
 *
 * Liveness is that of buffer_assignment.c: a view shares the bytes of its
 * operand, an all-reduce works in place, and what a collective sends stays
 * until the first reader of its result.  Persistent buffers and workspaces of
 * scans do not depend on the order and are left out.
 */
#include "passes/buffers/list_schedule.h"

static int value_of(const LiveBytes *live, Value value) {
  return live->first_value[value.node] + value.result;
}

static void find_roots(LiveBytes *live) {
  const Graph *graph = live->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_in_place = op_is(node->op, OPCLASS_collective) &&
                       op_has(node->op, OP_FLAG_in_place);
    for (int r = 0; r < node->n_results; r++) {
      int v = live->first_value[id] + r;
      live->root[v] = v;
      if (node_is_view(graph, id))
        live->root[v] = live->root[value_of(live, node->inputs[0])];
      else if (is_in_place)
        live->root[v] = live->root[value_of(live, node->inputs[r])];
    }
  }
}

static void use_at(LiveBytes *live, Value value, int place) {
  int *last = &live->last[live->root[value_of(live, value)]];
  if (place > *last) *last = place;
}

/* By node: the place of the first reader that is no view. */
static int *find_first_readers(const LiveBytes *live, Arena *arena) {
  const Graph *graph = live->graph;
  int n = graph->nodes.n;
  int *first = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) first[id] = n;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    int at = node_is_view(graph, id) ? first[id] : live->place[id];
    for (int i = 0; i < node->n_inputs; i++)
      if (at < first[node->inputs[i].node]) first[node->inputs[i].node] = at;
  }
  return first;
}

static void find_last_uses(LiveBytes *live, Arena *arena) {
  const Graph *graph = live->graph;
  int n = graph->nodes.n;
  const int *first_reader = find_first_readers(live, arena);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_async = op_has(node->op, OP_FLAG_asynchronous);
    for (int r = 0; r < node->n_results; r++)
      use_at(live, (Value){id, r}, live->place[id]);
    for (int i = 0; i < node->n_inputs; i++) {
      use_at(live, node->inputs[i], live->place[id]);
      if (is_async) use_at(live, node->inputs[i], first_reader[id]);
    }
  }
  for (int i = 0; i < graph->outputs.n; i++)
    use_at(live, graph->outputs.data[i].value, n);
}

static int64_t value_bytes(const Graph *graph, const Type *type) {
  return type_local_elements(type, &graph->mesh) *
         dtype_size_bytes(type->dtype);
}

static void add_values(LiveBytes *live, const int *order, Arena *arena) {
  const Graph *graph = live->graph;
  int n = graph->nodes.n;
  int64_t *freed = ARENA_ARRAY(arena, int64_t, n + 1); /* after a place */
  int64_t bytes = 0;
  for (int i = 0; i < n; i++) {
    const Node *node = graph->nodes.data[order[i]];
    for (int r = 0; r < node->n_results && node->op != OP_input; r++) {
      int v = live->first_value[order[i]] + r;
      if (live->root[v] != v) continue;
      live->size[v] = value_bytes(graph, node->types[r]);
      bytes += live->size[v];
      freed[live->last[v]] += live->size[v];
    }
    live->bytes[i] = bytes;
    if (bytes > live->peak) live->peak = bytes;
    bytes -= freed[i];
  }
}

LiveBytes live_bytes(const Graph *graph, const int *order, Arena *arena) {
  int n = graph->nodes.n, n_values = 0;
  LiveBytes live = {.graph = graph,
                    .first_value = ARENA_ARRAY(arena, int, n),
                    .place = ARENA_ARRAY(arena, int, n),
                    .bytes = ARENA_ARRAY(arena, int64_t, n)};
  for (int i = 0; i < n; i++) live.place[order[i]] = i;
  for (int id = 0; id < n; id++) {
    live.first_value[id] = n_values;
    n_values += graph->nodes.data[id]->n_results;
  }
  live.root = ARENA_ARRAY(arena, int, n_values);
  live.last = ARENA_ARRAY(arena, int, n_values);
  live.size = ARENA_ARRAY(arena, int64_t, n_values);
  find_roots(&live);
  find_last_uses(&live, arena);
  add_values(&live, order, arena);
  return live;
}
