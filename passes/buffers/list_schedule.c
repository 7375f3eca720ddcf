/*
 * list_schedule.c -- choose the order of launches, and insert the copies that
 * updates in place need.
 *
 * Nodes stay in their order as far as possible, except that
 *   - communication is started early and waited for late (launch_order.c);
 *   - with micro-batches, the nodes that run once before, for each, and once
 *     after them form three segments, and more in a stage (stage_order.c);
 *   - a node that overwrites a persistent buffer (a parameter, optimizer state)
 *     comes after all readers of the old value.
 *
 * Where the last is impossible, a copy at the end moves the new value into the
 * buffer:
 *
 *     %5 = ... "a"                %5 = ... "a"
 *     %6 = add %5, "a"      =>    %6 = add %5, "a"
 *     output state "a" %5         %7 = fused %5 { copy }
 *                                 output state "a" %7
 *
 * A collective overwrites its input, so an input with other readers is copied
 * before it in the same way.
 *
 * requires: fused graph     keeps: nodes     breaks: node ids
 * promises: an order in which buffer_assignment.c may update in place
 * cost: O(nodes + edges), and a search from each update
 */
#include "passes/buffers/list_schedule.h"

#include "passes/buffers/offload.h"
#include "passes/stages/stages.h"
#include "passes/topological.h"

typedef VEC(int) Ids;

/* From the reader of an old value to its overwriter. */
typedef struct OrderEdge {
  int to, next; /* edge of the same reader, plus 1 */
} OrderEdge;

typedef struct ListSchedule {
  PassContext *ctx;
  const Graph *graph;
  int n;
  int *user_begin, *users;
  int *root;         /* by node: the node whose bytes a view shares */
  int *replaces;     /* by output: see output_replaces */
  bool *is_output;   /* by root: an output has its bytes ... */
  bool *is_replaced; /* ... or an output has another value for it */
  VEC(OrderEdge) edges;
  int *first_edge;    /* by node, plus 1 */
  int *mark, *wanted; /* by node: `now` of the search that it belongs to */
  int search;
  Map *first_output; /* by address of a value's type: output, plus 1 */
} ListSchedule;

/* ---- users ---- */

static const void *output_key(const Graph *graph, int output) {
  Value value = graph->outputs.data[output].value;
  return &graph->nodes.data[value.node]->types[value.result];
}

static void index_schedule(ListSchedule *list, const Graph *graph) {
  Arena *arena = list->ctx->scratch;
  int n = graph->nodes.n;
  list->graph = graph;
  list->n = n;
  int *begin = ARENA_ARRAY(arena, int, n + 2);
  list->root = ARENA_ARRAY(arena, int, n);
  list->mark = ARENA_ARRAY(arena, int, n);
  list->wanted = ARENA_ARRAY(arena, int, n);
  list->first_edge = ARENA_ARRAY(arena, int, n);
  list->replaces = output_replaces(graph, arena);
  list->first_output = map_create(arena);
  for (int i = graph->outputs.n - 1; i >= 0; i--)
    map_put(list->first_output, output_key(graph, i),
            (void *)(intptr_t)(i + 1));
  list->search = 0;
  list->edges.n = 0;
  list->is_output = ARENA_ARRAY(arena, bool, n);
  list->is_replaced = ARENA_ARRAY(arena, bool, n);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    list->root[id] =
        node_is_view(graph, id) ? list->root[node->inputs[0].node] : id;
    for (int i = 0; i < node->n_inputs; i++) begin[node->inputs[i].node + 2]++;
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    int node = graph->outputs.data[i].value.node, replaced = list->replaces[i];
    list->is_output[list->root[node]] = true;
    if (replaced >= 0 && node != replaced) list->is_replaced[replaced] = true;
  }
  for (int id = 0; id < n; id++) begin[id + 2] += begin[id + 1];
  list->users = ARENA_ARRAY(arena, int, begin[n + 1] + 1);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++)
      list->users[begin[node->inputs[i].node + 1]++] = id;
  }
  list->user_begin = begin;
}

static int times_read(const Node *node, Value value) {
  int n = 0;
  for (int i = 0; i < node->n_inputs; i++)
    n += value_equal(node->inputs[i], value);
  return n;
}

/* Every read of the bytes of a value by a node, itself or through views.  A
 * collective that is not in place reads them until a reader of its results
 * waits. */
static void collect_readers(const ListSchedule *list, Value value,
                            Ids *readers) {
  int begin = list->user_begin[value.node];
  for (int u = begin; u < list->user_begin[value.node + 1]; u++) {
    int user = list->users[u];
    if (u > begin && list->users[u - 1] == user) continue;
    const Node *node = list->graph->nodes.data[user];
    int n = times_read(node, value);
    if (n == 0) continue;
    bool is_view = node_is_view(list->graph, user);
    for (int i = 0; i < n && !is_view; i++)
      vec_push(list->ctx->scratch, readers, user);
    if (is_view || (op_has(node->op, OP_FLAG_asynchronous) &&
                    !op_has(node->op, OP_FLAG_in_place)))
      for (int r = 0; r < node->n_results; r++)
        collect_readers(list, (Value){user, r}, readers);
  }
}

static void add_order_edge(ListSchedule *list, int from, int to) {
  vec_push(list->ctx->scratch, &list->edges,
           (OrderEdge){to, list->first_edge[from]});
  list->first_edge[from] = list->edges.n;
}

/* Comes across a node on the way; true if it is one of the wanted. */
static bool reach_node(ListSchedule *list, int id, Ids *stack) {
  if (list->wanted[id] == list->search) return true;
  if (list->mark[id] == list->search) return false;
  list->mark[id] = list->search;
  vec_push(list->ctx->scratch, stack, id);
  return false;
}

/* Is one of the nodes `wanted` now reachable from `from`? */
static bool reaches_wanted(ListSchedule *list, int from) {
  Ids stack = {0};
  vec_push(list->ctx->scratch, &stack, from);
  while (stack.n > 0) {
    int id = stack.data[--stack.n];
    for (int u = list->user_begin[id]; u < list->user_begin[id + 1]; u++)
      if (reach_node(list, list->users[u], &stack)) return true;
    for (int e = list->first_edge[id]; e; e = list->edges.data[e - 1].next)
      if (reach_node(list, list->edges.data[e - 1].to, &stack)) return true;
  }
  return false;
}

/* ---- copies ---- */

/* Can the output's value be computed into the input that it replaces? If so,
 * adds the edges that make this safe. */
static bool write_in_place(ListSchedule *list, int output_index, int replaced) {
  const Graph *graph = list->graph;
  Value value = graph->outputs.data[output_index].value;
  const Node *node = graph->nodes.data[value.node];
  if (node->op == OP_input || node_is_view(graph, value.node) ||
      op_is(node->op, OPCLASS_collective))
    return false;
  if (!type_equal(node->types[value.result],
                  graph->nodes.data[replaced]->types[0]))
    return false;
  intptr_t first =
      (intptr_t)map_get(list->first_output, output_key(graph, output_index));
  if (first != output_index + 1) return false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (list->root[node->inputs[i].node] != replaced) continue;
    if (node->inputs[i].node != replaced ||
        (!node_writes_over(node, i) &&
         !fused_may_overwrite(graph, value.node, value.result, i)))
      return false;
  }
  Ids readers = {0};
  collect_readers(list, (Value){replaced, 0}, &readers);
  int n_others = 0;
  list->search++;
  for (int i = 0; i < readers.n; i++) {
    if (readers.data[i] == value.node) continue;
    list->wanted[readers.data[i]] = list->search;
    n_others++;
  }
  if (n_others > 0 && reaches_wanted(list, value.node)) return false;
  for (int i = 0; i < readers.n; i++)
    if (readers.data[i] != value.node)
      add_order_edge(list, readers.data[i], value.node);
  return true;
}

/* A kernel that copies the value, into the dim order of `type`.  `repeats`: for
 * each micro-batch, though its type need not show it. */
static Value append_copy(Graph *to, Value value, const Type *type,
                         bool repeats) {
  Module *module = to->module;
  const Type *from = graph_type(to, value);
  Attrs attrs = {0}, own = {0};
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
  if (repeats) attrs_int(&own, ATTR_per_microbatch, 1);
  return graph_append_typed(to, OP_fused, &value, 1, &own, &type, 1, body);
}

/* Returns the value whose bytes a view shares. */
static Value stored_value(const Graph *graph, Value value) {
  while (node_is_view(graph, value.node))
    value = graph->nodes.data[value.node]->inputs[0];
  return value;
}

/* A reader other than this collective needs the bytes of its input. */
static bool input_is_shared(const ListSchedule *list, Value input) {
  const Graph *graph = list->graph;
  Value stored = stored_value(graph, input);
  if (graph->nodes.data[stored.node]->op == OP_input) return true;
  for (int i = 0; i < graph->outputs.n && list->is_output[stored.node]; i++)
    if (value_equal(stored_value(graph, graph->outputs.data[i].value), stored))
      return true;
  Ids readers = {0};
  collect_readers(list, stored, &readers);
  return readers.n > 1;
}

static bool copy_collective_inputs(Rewrite *rewrite, int id, void *user) {
  ListSchedule *list = user;
  const Node *node = list->graph->nodes.data[id];
  if (!op_is(node->op, OPCLASS_collective) ||
      !op_has(node->op, OP_FLAG_in_place))
    return false;
  Value *inputs = rewrite_inputs(rewrite, id);
  bool any = false;
  for (int i = 0; i < node->n_inputs; i++) {
    if (!input_is_shared(list, node->inputs[i])) continue;
    inputs[i] =
        append_copy(rewrite->to, inputs[i], graph_type(rewrite->to, inputs[i]),
                    node_has(node, ATTR_per_microbatch));
    any = true;
  }
  if (!any) return false;
  Value first = graph_copy_node(rewrite->to, list->graph, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  return true;
}

/* The output is the old value of a buffer that another output replaces, or what
 * a collective makes of it, which reads it until a launch waits. */
static bool outputs_old_value(const ListSchedule *list, int output_index) {
  const GraphOutput *output = &list->graph->outputs.data[output_index];
  int root = list->root[output->value.node];
  const Node *node = list->graph->nodes.data[root];
  bool is_old = list->is_replaced[root];
  if (op_has(node->op, OP_FLAG_asynchronous) &&
      !op_has(node->op, OP_FLAG_in_place))
    for (int i = 0; i < node->n_inputs; i++)
      is_old |= list->is_replaced[list->root[node->inputs[i].node]];
  return is_old && list->replaces[output_index] < 0;
}

/* The output is an input that persists in host memory, other than that input
 * itself: it is read from the device. */
static bool outputs_host_input(const ListSchedule *list, int output_index) {
  const Graph *graph = list->graph;
  const GraphOutput *output = &graph->outputs.data[output_index];
  const Node *node = graph->nodes.data[list->root[output->value.node]];
  return node->op == OP_input && list->replaces[output_index] < 0 &&
         offload_has_input(list->ctx,
                           &graph->inputs.data[node_int(node, ATTR_index, 0)]);
}

/* The graph with all copies that it needs. */
static Graph *append_copies(ListSchedule *list) {
  const Graph *graph = list->graph;
  Rewrite rewrite = rewrite_begin(list->ctx, graph);
  for (int id = 0; id < list->n; id++) {
    rewrite_at(&rewrite, id);
    if (!copy_collective_inputs(&rewrite, id, list)) rewrite_copy(&rewrite, id);
  }
  Graph *to = rewrite.to;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    Value value = rewrite_get(&rewrite, output->value);
    int replaced = list->replaces[i];
    bool is_same = replaced >= 0 && output->value.node == replaced;
    bool needs_copy =
        replaced >= 0 && !is_same && !write_in_place(list, i, replaced);
    bool is_sent = output->role == ROLE_send;
    if (needs_copy || outputs_old_value(list, i) ||
        outputs_host_input(list, i)) {
      rewrite_at(&rewrite, output->value.node);
      if (!is_sent) to->phase = PHASE_update;
      to->path = output->path;
      to->span = SPAN_NONE;
      value = append_copy(
          to, value,
          replaced >= 0 ? graph->nodes.data[replaced]->types[0]
                        : graph_type(to, value),
          is_sent && node_is_per_microbatch(graph, output->value.node));
    }
    graph_output(to, output->role, output->path, value);
  }
  return to;
}

/* ---- the schedule ---- */

/* Segment 0 runs once before the micro-batches, 1 for each, 2 once after.  What
 * is sent to another stage runs as early as it can. */
static void find_microbatch_segments(const ListSchedule *list, int *segment) {
  const Graph *graph = list->graph;
  bool *feeds = ARENA_ARRAY(list->ctx->scratch, bool, list->n);
  bool is_any = false;
  for (int id = 0; id < list->n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_per_microbatch = node_is_per_microbatch(graph, id);
    if (stage_receives_late(list->ctx->cut, graph, id)) segment[id] = 2;
    for (int i = 0; i < node->n_inputs; i++)
      if (segment[node->inputs[i].node] > 0) segment[id] = 2;
    if (is_per_microbatch) segment[id] = 1;
    is_any |= is_per_microbatch;
  }
  if (!is_any) return;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    int id = output->value.node;
    if (output->role == ROLE_send && segment[id] == 0) feeds[id] = true;
  }
  for (int id = list->n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool needed = feeds[id] || segment[id] == 1 || node->op == OP_input;
    if (!needed) segment[id] = 2;
    for (int i = 0; needed && i < node->n_inputs; i++)
      feeds[node->inputs[i].node] = true;
  }
}

/* The nodes in an order that keeps all edges; of those that are ready, the one
 * with the lowest key comes first. */
static int *order_nodes(const ListSchedule *list, const int64_t *key) {
  Arena *arena = list->ctx->scratch;
  const Graph *graph = list->graph;
  int n = list->n, n_done = 0;
  int *order = ARENA_ARRAY(arena, int, n);
  int *waiting = ARENA_ARRAY(arena, int, n);
  ReadyHeap heap = ready_heap(arena, n, key);
  for (int e = 0; e < list->edges.n; e++) waiting[list->edges.data[e].to]++;
  for (int id = 0; id < n; id++) waiting[id] += graph->nodes.data[id]->n_inputs;
  for (int id = 0; id < n; id++)
    if (waiting[id] == 0) ready_push(&heap, id);
  while (heap.n > 0) {
    int id = order[n_done++] = ready_pop(&heap);
    for (int u = list->user_begin[id]; u < list->user_begin[id + 1]; u++)
      if (--waiting[list->users[u]] == 0) ready_push(&heap, list->users[u]);
    for (int e = list->first_edge[id]; e; e = list->edges.data[e - 1].next) {
      int to = list->edges.data[e - 1].to;
      if (--waiting[to] == 0) ready_push(&heap, to);
    }
  }
  ASSERT(n_done == n);
  return order;
}

static bool has_blocking(const Graph *graph) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (op_has(node->op, OP_FLAG_asynchronous) && !node_has(node, ATTR_bucket))
      return true;
  }
  return false;
}

/* Work that is moved to hide a collective keeps values alive.  Each move is
 * judged by the order before all moves, so what they make together is looked at
 * once more: an eighth above the peak without any is the most. */
static int *choose_order(const ListSchedule *list) {
  Arena *arena = list->ctx->scratch;
  const Graph *graph = list->graph;
  int *segment = ARENA_ARRAY(arena, int, list->n);
  find_microbatch_segments(list, segment);
  if (list->ctx->cut) divide_segments(list->ctx, graph, segment);
  int *order =
      order_nodes(list, launch_order_keys(graph, segment, NULL, 0, arena));
  if (!has_blocking(graph)) return order;
  int64_t peak = live_bytes(graph, order, arena).peak;
  const int64_t limits[] = {peak + peak / 32, peak};
  for (int i = 0; i < ARRAY_LENGTH(limits); i++) {
    LiveBytes live = live_bytes(graph, order, arena);
    int *hidden = order_nodes(
        list, launch_order_keys(graph, segment, &live, limits[i], arena));
    if (live_bytes(graph, hidden, arena).peak <= peak + peak / 8) return hidden;
  }
  return order;
}

static Graph *schedule_nodes(const ListSchedule *list) {
  const int *order = choose_order(list);
  Rewrite rewrite = rewrite_begin(list->ctx, list->graph);
  for (int i = 0; i < list->n; i++) rewrite_copy(&rewrite, order[i]);
  return rewrite_end(&rewrite);
}

Graph *add_launch_copies(PassContext *ctx, const Graph *graph) {
  ListSchedule list = {.ctx = ctx};
  index_schedule(&list, graph);
  return append_copies(&list);
}

Graph *pass_list_schedule(PassContext *ctx, const Graph *graph) {
  ListSchedule list = {.ctx = ctx};
  Graph *copied = add_launch_copies(ctx, graph);
  /* Once more on the graph with copies, now for the edges. An update that fails
   * again reads a buffer whose update waits for this one. */
  index_schedule(&list, copied);
  for (int i = 0; i < copied->outputs.n; i++) {
    const GraphOutput *output = &copied->outputs.data[i];
    int replaced = list.replaces[i];
    if (replaced < 0 || output->value.node == replaced) continue;
    if (write_in_place(&list, i, replaced)) continue;
    diag(ctx->module->diags, DIAG_states_exchanged, SPAN_NONE, output->path);
    return copied;
  }
  return schedule_nodes(&list);
}
