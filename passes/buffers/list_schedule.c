/*
 * list_schedule.c -- orders the launches, with copies where in-place needs it.
 *
 * Nodes stay in their order as far as possible, except that
 *   - a collective goes right behind its last input, for it runs beside what
 *     follows, and what waits for one goes to the end;
 *   - with micro-batches, what runs once before, what runs for each, and what
 *     runs once after stand together;
 *   - a node whose result takes the place of a slot (a parameter, a moment)
 *     comes after all who read the old value.
 *
 * Where the last is impossible, a copy is appended that moves the new value
 * into its slot at the end:
 *
 *     %5 = ... slot a             %5 = ... slot a
 *     %6 = add %5, a        =>    %6 = add %5, a
 *     output state "a" %5         %7 = fused %5 { stop }
 *                                 output state "a" %7
 *
 * A collective overwrites its input, so an input that others need is copied
 * in the same way before it.
 *
 * requires: fused graph     keeps: nodes     promises: what memory.c relies on
 * cost: O(nodes + edges), and a search from each update
 */
#include "passes/buffers/list_schedule.h"

typedef VEC(int) Ids;

/* From the reader of an old value to its overwriter. */
typedef struct Edge {
  int to, next; /* edge of the same reader, plus 1 */
} Edge;

typedef struct Order {
  PassContext *ctx;
  const Graph *graph;
  int n;
  int *user_begin, *users;
  int *root;  /* by node: the node whose bytes a view shares */
  int *slots; /* by output: see output_slots */
  VEC(Edge) edges;
  int *first_edge;    /* by node, plus 1 */
  int *mark, *wanted; /* by node: `now` of the search that it belongs to */
  int now;
  Map *first_output; /* by address of a value's type: output, plus 1 */
} Order;

/* ---- what a slot output needs (also asked by memory.c) ---- */

int *output_slots(const Graph *graph, Arena *arena) {
  InputIndex inputs = graph_index_inputs(graph, arena);
  int *slots = ARENA_ARRAY(arena, int, graph->outputs.n);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *slot =
        output->role == ROLE_data
            ? NULL
            : input_indexed(&inputs, output->role, output->path);
    slots[i] = slot ? slot->value.node : -1;
  }
  return slots;
}

bool node_writes_over(const Node *node, int input) {
  return op_has(node->op, OP_FLAG_in_place) &&
         (op_is(node->op, OPCLASS_collective) || input == 0);
}

bool fused_is_elementwise(const Node *node) {
  if (node->op != OP_fused) return false;
  for (int i = 0; i < node->body->nodes.n; i++)
    if (op_is(node->body->nodes.data[i]->op, OPCLASS_reduction)) return false;
  return true;
}

bool fused_may_overwrite(const Graph *graph, int id, int result, int input) {
  const Node *node = graph->nodes.data[id];
  if (!fused_is_elementwise(node)) return false;
  const Type *from = graph_type(graph, node->inputs[input]);
  const Type *to = node->types[result];
  if (!type_same_shape(from, to) ||
      dtype_size_bytes(from->dtype) != dtype_size_bytes(to->dtype))
    return false;
  for (int d = 0; d < to->rank; d++)
    if (from->dims[d].split != to->dims[d].split) return false;
  int arg = node->body->inputs.data[input].value.node;
  for (int i = 0; i < node->body->nodes.n; i++) {
    const Node *inner = node->body->nodes.data[i];
    if (op_has(inner->op, OP_FLAG_lookup) && inner->inputs[0].node == arg)
      return false;
  }
  return true;
}

/* ---- users ---- */

static const void *output_key(const Graph *graph, int output) {
  Value value = graph->outputs.data[output].value;
  return &graph->nodes.data[value.node]->types[value.result];
}

static void index_graph(Order *order, const Graph *graph) {
  Arena *arena = order->ctx->scratch;
  int n = graph->nodes.n;
  order->graph = graph;
  order->n = n;
  int *begin = ARENA_ARRAY(arena, int, n + 2);
  order->root = ARENA_ARRAY(arena, int, n);
  order->mark = ARENA_ARRAY(arena, int, n);
  order->wanted = ARENA_ARRAY(arena, int, n);
  order->first_edge = ARENA_ARRAY(arena, int, n);
  order->slots = output_slots(graph, arena);
  order->first_output = map_create(arena);
  for (int i = graph->outputs.n - 1; i >= 0; i--)
    map_put(order->first_output, output_key(graph, i),
            (void *)(intptr_t)(i + 1));
  order->now = 0;
  order->edges.n = 0;
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    order->root[id] =
        node_is_view(graph, id) ? order->root[node->inputs[0].node] : id;
    for (int i = 0; i < node->n_inputs; i++) begin[node->inputs[i].node + 2]++;
  }
  for (int id = 0; id < n; id++) begin[id + 2] += begin[id + 1];
  order->users = ARENA_ARRAY(arena, int, begin[n + 1] + 1);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      order->users[begin[node->inputs[i].node + 1]++] = id;
  }
  order->user_begin = begin;
}

/* Every node that reads the bytes of `id`, itself or through views. */
static void collect_readers(const Order *order, int id, Ids *readers) {
  for (int u = order->user_begin[id]; u < order->user_begin[id + 1]; u++) {
    int user = order->users[u];
    if (node_is_view(order->graph, user))
      collect_readers(order, user, readers);
    else
      vec_push(order->ctx->scratch, readers, user);
  }
}

static void add_edge(Order *order, int from, int to) {
  vec_push(order->ctx->scratch, &order->edges,
           (Edge){to, order->first_edge[from]});
  order->first_edge[from] = order->edges.n;
}

/* Comes across a node on the way; true if it is one of the wanted. */
static bool visit(Order *order, int id, Ids *stack) {
  if (order->wanted[id] == order->now) return true;
  if (order->mark[id] == order->now) return false;
  order->mark[id] = order->now;
  vec_push(order->ctx->scratch, stack, id);
  return false;
}

/* Is one of the nodes `wanted` now reachable from `from`? */
static bool reaches(Order *order, int from) {
  Ids stack = {0};
  vec_push(order->ctx->scratch, &stack, from);
  while (stack.n > 0) {
    int id = stack.data[--stack.n];
    for (int u = order->user_begin[id]; u < order->user_begin[id + 1]; u++)
      if (visit(order, order->users[u], &stack)) return true;
    for (int e = order->first_edge[id]; e; e = order->edges.data[e - 1].next)
      if (visit(order, order->edges.data[e - 1].to, &stack)) return true;
  }
  return false;
}

/* ---- copies ---- */

/* Can the output's value be computed right into the slot?  Then adds the edges
 * that make it safe. */
static bool write_in_place(Order *order, int output_index, int slot) {
  const Graph *graph = order->graph;
  Value value = graph->outputs.data[output_index].value;
  const Node *node = graph->nodes.data[value.node];
  if (node->op == OP_input || node_is_view(graph, value.node) ||
      op_is(node->op, OPCLASS_collective))
    return false;
  if (!type_equal(node->types[value.result], graph->nodes.data[slot]->types[0]))
    return false;
  intptr_t first =
      (intptr_t)map_get(order->first_output, output_key(graph, output_index));
  if (first != output_index + 1) return false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (order->root[node->inputs[i].node] != slot) continue;
    if (node->inputs[i].node != slot ||
        (!node_writes_over(node, i) &&
         !fused_may_overwrite(graph, value.node, value.result, i)))
      return false;
  }
  Ids readers = {0};
  collect_readers(order, slot, &readers);
  int n_others = 0;
  order->now++;
  for (int i = 0; i < readers.n; i++) {
    if (readers.data[i] == value.node) continue;
    order->wanted[readers.data[i]] = order->now;
    n_others++;
  }
  if (n_others > 0 && reaches(order, value.node)) return false;
  for (int i = 0; i < readers.n; i++)
    if (readers.data[i] != value.node)
      add_edge(order, readers.data[i], value.node);
  return true;
}

/* A kernel that copies the value, into the dim order of `type`. */
static Value append_copy(Graph *to, Value value, const Type *type) {
  Module *module = to->module;
  const Type *from = graph_type(to, value);
  Attrs attrs = {0};
  Name *dims = ARENA_ARRAY(module->arena, Name, type->rank);
  for (int d = 0; d < type->rank; d++) dims[d] = type->dims[d].name;
  bool is_same = type_same_shape(from, type);
  if (!is_same) attrs_names(&attrs, ATTR_order, dims, type->rank);
  Name nothing = name_intern(module->names, "");
  Graph *body = graph_create(module, name_intern(module->names, "body"));
  body->mesh = to->mesh;
  body->path = nothing;
  Value arg = graph_input(body, ROLE_arg, nothing, from);
  Value copy = graph_append_typed(body, is_same ? OP_copy : OP_transpose, &arg,
                                  1, &attrs, &type, 1, NULL);
  graph_output(body, ROLE_result, nothing, copy);
  return graph_append_typed(to, OP_fused, &value, 1, NULL, &type, 1, body);
}

/* Something else than this collective needs the bytes of its input. */
static bool is_shared(const Order *order, int id) {
  const Graph *graph = order->graph;
  int root = order->root[id];
  if (graph->nodes.data[root]->op == OP_input) return true;
  for (int i = 0; i < graph->outputs.n; i++)
    if (order->root[graph->outputs.data[i].value.node] == root) return true;
  Ids readers = {0};
  collect_readers(order, root, &readers);
  return readers.n > 1;
}

static bool copy_collective_inputs(Rewrite *rewrite, int id, void *user) {
  Order *order = user;
  const Node *node = order->graph->nodes.data[id];
  if (!op_is(node->op, OPCLASS_collective) ||
      !op_has(node->op, OP_FLAG_in_place))
    return false;
  Value *inputs = rewrite_inputs(rewrite, id);
  bool any = false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!is_shared(order, node->inputs[i].node)) continue;
    inputs[i] =
        append_copy(rewrite->to, inputs[i], graph_type(rewrite->to, inputs[i]));
    any = true;
  }
  if (!any) return false;
  Value first = graph_copy_node(rewrite->to, order->graph, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  return true;
}

/* The output shows what a slot holds before the step, but another output
 * replaces that. */
static bool shows_replaced(const Order *order, int output_index) {
  const Graph *graph = order->graph;
  const GraphOutput *output = &graph->outputs.data[output_index];
  int root = order->root[output->value.node];
  if (order->slots[output_index] >= 0) return false;
  for (int i = 0; i < graph->outputs.n; i++)
    if (i != output_index && order->slots[i] == root &&
        graph->outputs.data[i].value.node != root)
      return true;
  return false;
}

/* The graph with all copies that it needs. */
static Graph *with_copies(Order *order) {
  const Graph *graph = order->graph;
  Rewrite rewrite = rewrite_begin(order->ctx, graph);
  for (int id = 0; id < order->n; id++) {
    rewrite_at(&rewrite, id);
    if (!copy_collective_inputs(&rewrite, id, order))
      rewrite_copy(&rewrite, id);
  }
  Graph *to = rewrite.to;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Value value = rewrite_get(&rewrite, output->value);
    int slot = order->slots[i];
    bool is_same = slot >= 0 && output->value.node == slot;
    bool needs_copy = slot >= 0 && !is_same && !write_in_place(order, i, slot);
    if (needs_copy || shows_replaced(order, i)) {
      to->phase = PHASE_update;
      to->path = output->path;
      to->span = SPAN_NONE;
      value = append_copy(to, value,
                          slot >= 0 ? graph->nodes.data[slot]->types[0]
                                    : graph_type(to, value));
    }
    graph_output(to, output->role, output->path, value);
  }
  return to;
}

/* ---- the schedule ---- */

/* 0: once before the micro-batches, 1: for each, 2: once after. */
static void find_segments(const Order *order, int *segment) {
  const Graph *graph = order->graph;
  bool *feeds = ARENA_ARRAY(order->ctx->scratch, bool, order->n);
  for (int id = 0; id < order->n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_timed = node_is_per_microbatch(graph, id);
    for (int i = 0; i < node->n_inputs; i++)
      if (segment[node->inputs[i].node] > 0) segment[id] = 2;
    if (is_timed) segment[id] = 1;
  }
  if (!mesh_sequential(&graph->mesh)) return;
  for (int id = order->n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool needed = feeds[id] || segment[id] == 1 || node->op == OP_input;
    if (!needed) segment[id] = 2;
    for (int i = 0; needed && i < node->n_inputs; i++)
      feeds[node->inputs[i].node] = true;
  }
}

static int64_t *find_keys(const Order *order) {
  const Graph *graph = order->graph;
  Arena *arena = order->ctx->scratch;
  int64_t *key = ARENA_ARRAY(arena, int64_t, order->n);
  int *segment = ARENA_ARRAY(arena, int, order->n);
  bool *waits = ARENA_ARRAY(arena, bool, order->n);
  find_segments(order, segment);
  int64_t n = order->n;
  for (int id = 0; id < order->n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      waits[id] |= waits[from] ||
                   op_has(graph->nodes.data[from]->op, OP_FLAG_asynchronous);
    }
    key[id] = id + segment[id] * 4 * n;
    if (waits[id]) key[id] += 2 * n;
    if (op_has(node->op, OP_FLAG_asynchronous))
      key[id] = segment[id] * 4 * n - 1;
    if (node->op == OP_input) key[id] = id - n;
  }
  return key;
}

typedef struct Heap {
  const int64_t *key;
  int *ids, n;
} Heap;

static bool heap_before(const Heap *heap, int a, int b) {
  return heap->key[a] != heap->key[b] ? heap->key[a] < heap->key[b] : a < b;
}

static void heap_push(Heap *heap, int id) {
  int at = heap->n++;
  while (at > 0 && heap_before(heap, id, heap->ids[(at - 1) / 2])) {
    heap->ids[at] = heap->ids[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap->ids[at] = id;
}

static int heap_pop(Heap *heap) {
  int top = heap->ids[0], last = heap->ids[--heap->n], at = 0;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= heap->n) break;
    if (child + 1 < heap->n &&
        heap_before(heap, heap->ids[child + 1], heap->ids[child]))
      child++;
    if (!heap_before(heap, heap->ids[child], last)) break;
    heap->ids[at] = heap->ids[child];
    at = child;
  }
  if (heap->n > 0) heap->ids[at] = last;
  return top;
}

static Graph *schedule(Order *order) {
  Arena *arena = order->ctx->scratch;
  const Graph *graph = order->graph;
  int n = order->n, n_done = 0;
  Heap heap = {.key = find_keys(order), .ids = ARENA_ARRAY(arena, int, n)};
  int *waiting = ARENA_ARRAY(arena, int, n);
  for (int e = 0; e < order->edges.n; e++) waiting[order->edges.data[e].to]++;
  for (int id = 0; id < n; id++) waiting[id] += graph->nodes.data[id]->n_inputs;
  for (int id = 0; id < n; id++)
    if (waiting[id] == 0) heap_push(&heap, id);
  Rewrite rewrite = rewrite_begin(order->ctx, graph);
  while (heap.n > 0) {
    int id = heap_pop(&heap);
    rewrite_copy(&rewrite, id);
    n_done++;
    for (int u = order->user_begin[id]; u < order->user_begin[id + 1]; u++)
      if (--waiting[order->users[u]] == 0) heap_push(&heap, order->users[u]);
    for (int e = order->first_edge[id]; e; e = order->edges.data[e - 1].next) {
      int to = order->edges.data[e - 1].to;
      if (--waiting[to] == 0) heap_push(&heap, to);
    }
  }
  ASSERT(n_done == n);
  return rewrite_end(&rewrite);
}

Graph *pass_list_schedule(PassContext *ctx, const Graph *graph) {
  Order order = {.ctx = ctx};
  index_graph(&order, graph);
  Graph *copied = with_copies(&order);
  /* Once more on the graph with copies, now for the edges.  What fails again
   * reads a slot that waits for this one. */
  index_graph(&order, copied);
  for (int i = 0; i < copied->outputs.n; i++) {
    const GraphOutput *output = &copied->outputs.data[i];
    int slot = order.slots[i];
    if (slot < 0 || output->value.node == slot) continue;
    if (write_in_place(&order, i, slot)) continue;
    diag(ctx->module->diags, DIAG_slots_exchanged, SPAN_NONE, output->path);
    return copied;
  }
  return schedule(&order);
}
