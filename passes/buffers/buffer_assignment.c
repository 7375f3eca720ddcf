/*
 * buffer_assignment.c -- choose the arena offset of every value: first those of
 * persistent buffers, then those of transient values in the order of the graph.
 *
 *     %1 = exp %0     live 1..2          %1 at 0
 *     %2 = sum %1     live 2..3     =>   %2 at 4096
 *     %3 = exp %2     live 3..4          %3 at 0
 *
 * Values that share bytes are one buffer: a view and its input, a collective
 * and its input, a persistent buffer and the result that replaces it, and a
 * fused result that takes the bytes of an input whose live range ends there.  A
 * buffer is live from its first writer to its last reader, and two buffers that
 * are live at once may not overlap; packing.c chooses their offsets.
 *
 * A scan has one workspace for the values of one iteration.  The body is packed
 * like a graph, from offset 0; the enclosing graph assigns the values that it
 * shares with the body (arguments, slices, carries, stacked outputs).  A carry
 * is a persistent buffer of the body: list_schedule makes sure that its new
 * value is written where, or after, nobody reads the old one.
 *
 * A segment of micro-batches is called repeatedly: the values that it reads
 * from outside are live to the end of the last call, and an accumulator is live
 * from the beginning of the first.
 *
 * In an entry point of several stages, what several segments use has bytes of
 * its own for the whole step, and what the forward pass leaves for the backward
 * pass has them once for each frame.  The values of one segment are packed, and
 * all segments of a rank share that scratch.
 *
 *     persistent | step | frames | messages | scratch
 *
 * Values in host memory have an arena of their own there, packed alike, with
 * the same parts.
 *
 * requires: a graph from list_schedule     keeps: the graph
 * cost: O(nodes), and packing.c
 */
#include "passes/buffers/list_schedule.h"
#include "passes/buffers/memory_peak.h"
#include "passes/buffers/packing.h"

/* A part of the arena of several stages. */
typedef enum BufferHome {
  HOME_scratch, /* packed with others by live ranges */
  HOME_step,
  HOME_frames,
  HOME_messages,
  N_HOMES
} BufferHome;

typedef struct Buffer {
  int64_t bytes, offset;
  int first, last;   /* node ids, both included */
  int input_index;   /* index of the graph input it is, or -1 */
  bool is_enclosing; /* body: the enclosing graph assigns its bytes */
  bool is_on_host;   /* it is in the arena in host memory */
  BufferHome home;
  ProgramRegister moves_with; /* frame or slot; else REGISTER_microbatch */
  int n_copies;               /* one for each frame or slot; else 0 */
} Buffer;

typedef struct Packing {
  const Graph *graph;
  Arena *arena;
  int64_t alignment;
  int *first_value; /* by node */
  int n_values;
  int *buffer_of; /* by value */
  VEC(Buffer) buffers;
  int *workspace; /* by node: buffer or -1; NULL: none asked for */
} Packing;

static int64_t align_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

static int64_t target_alignment(const Target *target) {
  return target && target->alignment_bytes > 0 ? target->alignment_bytes : 64;
}

static bool role_persists(Role role) {
  return role == ROLE_param || role == ROLE_state ||
         role == ROLE_optimizer_state || role == ROLE_ema ||
         role == ROLE_step || role == ROLE_seed || role == ROLE_epoch ||
         role == ROLE_loss_scale || role == ROLE_decode_cache;
}

/* An output replaces an input of this role: a persistent buffer of a graph, a
 * carry of a body. */
static bool role_is_replaced(Role role) {
  return role_persists(role) || role == ROLE_carry;
}

/* Inputs of a body. */
static bool role_is_enclosing(Role role) {
  return role == ROLE_carry || role == ROLE_slice || role == ROLE_arg;
}

/* Bytes of a rank's shard.  That of an input holds all micro-batches, unless
 * another stage sends each of them. */
static int64_t value_bytes(const Graph *graph, Value value) {
  const Type *type = graph_type(graph, value);
  int64_t n = type_local_elements(type, &graph->mesh);
  const Node *node = graph_node(graph, value);
  if (node->op == OP_input &&
      graph->inputs.data[node_int(node, ATTR_index, 0)].role != ROLE_receive) {
    AxisSet sequential = mesh_sequential(&graph->mesh);
    for (int d = 0; d < type->rank; d++)
      for (int i = 0; i < axis_list_length(type->dims[d].split); i++) {
        int axis = axis_list_at(type->dims[d].split, i);
        if (sequential >> axis & 1) n *= graph->mesh.axes[axis].size;
      }
  }
  return n * dtype_size_bytes(type->dtype);
}

/* ---- buffers ---- */

static int value_index(const Packing *packing, Value value) {
  return packing->first_value[value.node] + value.result;
}

static Buffer *buffer_of(const Packing *packing, Value value) {
  return &packing->buffers
              .data[packing->buffer_of[value_index(packing, value)]];
}

static int new_buffer(Packing *packing, int id, int64_t bytes) {
  vec_push(
      packing->arena, &packing->buffers,
      (Buffer){.bytes = bytes, .first = id, .last = id, .input_index = -1});
  return packing->buffers.n - 1;
}

/* By value: the graph input that it replaces, or -1. */
static int *find_replaced_inputs(const Packing *packing) {
  const Graph *graph = packing->graph;
  int *replaces_of = ARENA_ARRAY(packing->arena, int, packing->n_values);
  const int *replaces = output_replaces(graph, packing->arena);
  for (int v = 0; v < packing->n_values; v++) replaces_of[v] = -1;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (replaces[i] >= 0 && role_is_replaced(output->role))
      replaces_of[value_index(packing, output->value)] = replaces[i];
  }
  return replaces_of;
}

/* A view keeps its input alive, and so does a collective that is not in place:
 * it reads it until the first reader of its result waits. */
static bool keeps_input(const Graph *graph, int id) {
  Op op = graph->nodes.data[id]->op;
  return node_is_view(graph, id) ||
         (op_has(op, OP_FLAG_asynchronous) && !op_has(op, OP_FLAG_in_place));
}

/* By node: the first launch that reads one of its results, itself or through
 * views, and so waits for it if it is a collective. */
static int *find_first_readers(const Packing *packing) {
  const Graph *graph = packing->graph;
  int n = graph->nodes.n;
  int *first = ARENA_ARRAY(packing->arena, int, n);
  for (int id = 0; id < n; id++) first[id] = n;
  for (int id = n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool is_view = node_is_view(graph, id) && node->op != OP_swapped;
    int reader = is_view ? first[id] : id;
    for (int i = 0; i < (is_view ? 1 : node->n_inputs); i++) {
      int *of_input = &first[node->inputs[i].node];
      if (reader < *of_input) *of_input = reader;
    }
  }
  return first;
}

static int *find_last_uses(const Packing *packing) {
  const Graph *graph = packing->graph;
  const int *first_reader = find_first_readers(packing);
  int *last = ARENA_ARRAY(packing->arena, int, packing->n_values);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++)
      last[packing->first_value[id] + r] = id;
    for (int i = 0; i < node->n_inputs; i++)
      last[value_index(packing, node->inputs[i])] = id;
    /* Started here, waited for by the first reader; without one, at the end. */
    bool is_started = op_has(node->op, OP_FLAG_asynchronous);
    for (int r = 0; is_started && r < node->n_results; r++)
      last[packing->first_value[id] + r] = graph->nodes.n;
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int v = value_index(packing, node->inputs[i]);
      Op op = graph_node(graph, node->inputs[i])->op;
      if (op_has(op, OP_FLAG_asynchronous)) last[v] = id;
    }
  }
  for (int i = 0; i < graph->outputs.n; i++)
    last[value_index(packing, graph->outputs.data[i].value)] = graph->nodes.n;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    if (!keeps_input(graph, id)) continue;
    const Node *node = graph->nodes.data[id];
    bool is_view = node_is_view(graph, id);
    for (int i = 0; i < (is_view ? 1 : node->n_inputs); i++) {
      int v = value_index(packing, node->inputs[i]);
      int until = is_view ? last[packing->first_value[id]] : first_reader[id];
      if (last[v] < until) last[v] = until;
    }
  }
  return last;
}

/* An input of a fused node that dies there and whose bytes this result can
 * take, or -1. */
static int dying_input(const Packing *packing, int id, int result,
                       const int *last) {
  const Graph *graph = packing->graph;
  const Node *node = graph->nodes.data[id];
  if (node->op != OP_fused || !fused_is_elementwise(node)) return -1;
  for (int i = 0; i < node->n_inputs; i++) {
    const Buffer *buffer = buffer_of(packing, node->inputs[i]);
    Value value = node->inputs[i];
    if (buffer->input_index >= 0 || buffer->is_enclosing || buffer->last > id ||
        last[value_index(packing, value)] != id ||
        graph_node(graph, value)->op == OP_input ||
        node_is_view(graph, value.node) ||
        node_is_per_microbatch(graph, value.node) !=
            node_is_per_microbatch(graph, id) ||
        !fused_may_overwrite(graph, id, result, i))
      continue;
    /* Not twice, for two results of the same node. */
    bool is_taken = false;
    for (int r = 0; r < result; r++)
      is_taken |= packing->buffer_of[packing->first_value[id] + r] ==
                  buffer - packing->buffers.data;
    /* Another input may be a view of the same bytes. */
    for (int k = 0; k < node->n_inputs; k++)
      is_taken |= k != i && buffer_of(packing, node->inputs[k]) == buffer;
    if (!is_taken) return i;
  }
  return -1;
}

static void assign_node(Packing *packing, int id, const int *replaces_of,
                        const int *last) {
  const Graph *graph = packing->graph;
  const Node *node = graph->nodes.data[id];
  for (int r = 0; r < node->n_results; r++) {
    int v = packing->first_value[id] + r, from = -1;
    if (node_is_view(graph, id))
      from = 0;
    else if (op_is(node->op, OPCLASS_collective) &&
             op_has(node->op, OP_FLAG_in_place))
      from = r;
    int buffer;
    if (replaces_of[v] >= 0 && replaces_of[v] != id) {
      buffer = packing->buffer_of[packing->first_value[replaces_of[v]]];
    } else if (from >= 0) {
      buffer = packing->buffer_of[value_index(packing, node->inputs[from])];
    } else if ((from = dying_input(packing, id, r, last)) >= 0) {
      buffer = packing->buffer_of[value_index(packing, node->inputs[from])];
    } else {
      buffer = new_buffer(packing, id, value_bytes(graph, (Value){id, r}));
    }
    packing->buffer_of[v] = buffer;
    Buffer *b = &packing->buffers.data[buffer];
    if (value_is_on_host(graph, (Value){id, r})) b->is_on_host = true;
    if (last[v] > b->last) b->last = last[v];
    if (node->op == OP_input) {
      const GraphInput *input =
          &graph->inputs.data[node_int(node, ATTR_index, 0)];
      b->first = 0;
      if (role_persists(input->role))
        b->input_index = (int)(input - graph->inputs.data);
      b->is_enclosing = role_is_enclosing(input->role);
    }
  }
}

/* Extends live ranges over all calls of the segments of micro-batches. */
static void extend_over_calls(Packing *packing,
                              const ProgramSegments *segments) {
  const Graph *graph = packing->graph;
  int begin = -1, end = -1;
  for (int s = 0; s < segments->n; s++) {
    if (segments->data[s].n_registers <= REGISTER_microbatch) continue;
    if (begin < 0) begin = segments->data[s].first_node;
    end = segments->data[s].end_node - 1;
  }
  if (begin < 0) return;
  for (int i = 0; i < packing->buffers.n; i++) {
    Buffer *buffer = &packing->buffers.data[i];
    if (buffer->first < begin && buffer->last >= begin && buffer->last < end)
      buffer->last = end;
  }
  for (int id = begin; id <= end; id++) {
    const Node *node = graph->nodes.data[id];
    bool joins = node_joins_microbatches(node);
    for (int r = 0; joins && r < node->n_results; r++) {
      Buffer *buffer = buffer_of(packing, (Value){id, r});
      buffer->first = begin;
      if (buffer->last < end) buffer->last = end;
    }
  }
}

static Packing make_buffers(Arena *arena, const Graph *graph,
                            const ProgramSegments *segments) {
  Packing packing = {.graph = graph, .arena = arena};
  int n = graph->nodes.n;
  packing.first_value = ARENA_ARRAY(arena, int, n);
  for (int id = 0; id < n; id++) {
    packing.first_value[id] = packing.n_values;
    packing.n_values += graph->nodes.data[id]->n_results;
  }
  packing.buffer_of = ARENA_ARRAY(arena, int, packing.n_values);
  const int *replaces_of = find_replaced_inputs(&packing);
  const int *last = find_last_uses(&packing);
  for (int id = 0; id < n; id++) assign_node(&packing, id, replaces_of, last);
  extend_over_calls(&packing, segments);
  return packing;
}

static Packing make_buffers_of_graph(Arena *arena, const Graph *graph) {
  ProgramSegments segments = graph_segments(arena, graph);
  return make_buffers(arena, graph, &segments);
}

/* ---- packing ---- */

static bool is_transient(const Buffer *buffer) {
  return buffer->input_index < 0 && !buffer->is_on_host;
}

/* Returns whether a swap to the host makes it. */
static bool is_swapped_out(const Buffer *buffer) {
  return buffer->input_index < 0 && buffer->is_on_host;
}

static bool is_packed_on_host(const Buffer *buffer) {
  return is_swapped_out(buffer) && buffer->home == HOME_scratch;
}

/* Those of a body that the enclosing graph assigns are its own. */
static bool is_packed(const Buffer *buffer) {
  return is_transient(buffer) && !buffer->is_enclosing &&
         buffer->home == HOME_scratch;
}

static PackedBuffer *select_buffers(const Packing *packing,
                                    bool (*is_selected)(const Buffer *),
                                    int *out_n) {
  int n = 0;
  PackedBuffer *selected =
      ARENA_ARRAY(packing->arena, PackedBuffer, packing->buffers.n);
  for (int i = 0; i < packing->buffers.n; i++) {
    const Buffer *buffer = &packing->buffers.data[i];
    if (is_selected(buffer))
      selected[n++] = (PackedBuffer){
          .bytes = buffer->bytes, .first = buffer->first, .last = buffer->last};
  }
  *out_n = n;
  return selected;
}

/* Places the buffers that are selected from byte `base` on, which is byte
 * `origin` of all memories, and returns the highest byte. */
static int64_t place_buffers(Packing *packing,
                             bool (*is_selected)(const Buffer *), int64_t base,
                             int64_t origin) {
  int n;
  PackedBuffer *packed = select_buffers(packing, is_selected, &n);
  int64_t top = pack_buffers(packing->arena, packed, n, packing->graph->nodes.n,
                             packing->alignment, base);
  for (int i = packing->buffers.n - 1; i >= 0; i--)
    if (is_selected(&packing->buffers.data[i]))
      packing->buffers.data[i].offset = origin + packed[--n].offset;
  return top;
}

static const PersistentBuffer *
find_persistent(const PersistentBuffers *persistent, Role role, Name path) {
  const Map *map = persistent->by_path[role];
  intptr_t found = map ? (intptr_t)map_get(map, path) : 0;
  return found ? &persistent->buffers.data[found - 1] : NULL;
}

static void place_persistent(Packing *packing,
                             const PersistentBuffers *persistent) {
  for (int i = 0; i < packing->buffers.n; i++) {
    Buffer *buffer = &packing->buffers.data[i];
    if (buffer->input_index < 0) continue;
    const GraphInput *input = &packing->graph->inputs.data[buffer->input_index];
    const PersistentBuffer *input_index =
        find_persistent(persistent, input->role, input->path);
    ASSERT(input_index && input_index->bytes == buffer->bytes &&
           (input_index->offset >= HOST_ORIGIN) == input->is_on_host);
    buffer->offset = input_index->offset;
  }
}

static BufferAssignment *pack_body(PassContext *ctx, const Graph *body);

static int64_t workspace_bytes(PassContext *ctx, const Graph *graph, int id,
                               BufferAssignment *body) {
  const Target *target = ctx->target;
  if (body) return body->arena_bytes;
  if (!target || !target->workspace_bytes) return 0;
  return target->workspace_bytes(target, graph, id);
}

static void add_workspaces(PassContext *ctx, Packing *packing,
                           BufferAssignment **bodies) {
  const Graph *graph = packing->graph;
  int n = graph->nodes.n;
  packing->workspace = ARENA_ARRAY(packing->arena, int, n);
  for (int id = 0; id < n; id++) {
    packing->workspace[id] = -1;
    if (graph->nodes.data[id]->op == OP_scan)
      bodies[id] = pack_body(ctx, graph->nodes.data[id]->body);
    int64_t bytes = workspace_bytes(ctx, graph, id, bodies[id]);
    if (bytes <= 0) continue;
    packing->workspace[id] = new_buffer(packing, id, bytes);
  }
}

/* ---- public ---- */

/* A parameter that the graph updates: frozen ones have one version. */
static bool is_updated(const Graph *graph, const GraphInput *input) {
  const GraphOutput *output =
      input->role == ROLE_param
          ? graph_find_output(graph, ROLE_param, input->path)
          : NULL;
  return output && output->value.node != input->value.node;
}

/* It has as many slots as there are versions of it. */
static void add_persistent(PersistentBuffers *assignment, Arena *arena,
                           const Graph *graph, int n_versions,
                           const Target *target, bool are_caches) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (!role_persists(input->role) ||
        (input->role == ROLE_decode_cache) != are_caches ||
        find_persistent(assignment, input->role, input->path))
      continue;
    const Type *type = graph_type(graph, input->value);
    PersistentBuffer input_index = {
        .role = input->role, .path = input->path, .type = type};
    input_index.init = input->init;
    input_index.bytes = value_bytes(graph, input->value);
    int64_t *end =
        input->is_on_host ? &assignment->host_bytes : &assignment->bytes;
    input_index.offset = align_up(*end, target_alignment(target));
    if (is_updated(graph, input)) input_index.n_versions = n_versions;
    input_index.slot_bytes =
        align_up(input_index.bytes, target_alignment(target));
    *end = input_index.offset + input_index.bytes;
    if (input_index.n_versions > 1)
      *end += (input_index.n_versions - 1) * input_index.slot_bytes;
    if (input->is_on_host) input_index.offset += HOST_ORIGIN;
    vec_push(arena, &assignment->buffers, input_index);
    Map **map = &assignment->by_path[input_index.role];
    if (!*map) *map = map_create(arena);
    map_put(*map, input_index.path, (void *)(intptr_t)assignment->buffers.n);
  }
}

void persistent_buffers_add(PersistentBuffers *assignment, Arena *arena,
                            const Graph *graph, const Target *target) {
  persistent_buffers_add_versions(assignment, arena, graph, 1, target);
}

void persistent_buffers_add_versions(PersistentBuffers *assignment,
                                     Arena *arena, const Graph *graph,
                                     int n_versions, const Target *target) {
  add_persistent(assignment, arena, graph, n_versions, target, false);
  assignment->bytes_but_caches = assignment->bytes;
}

void persistent_buffers_add_caches(PersistentBuffers *assignment, Arena *arena,
                                   const Graph *graph, const Target *target) {
  add_persistent(assignment, arena, graph, 1, target, true);
}

static bool has_caches(const Graph *graph) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_decode_cache) return true;
  return false;
}

/* Bytes of the persistent buffers that a graph has before its own. */
typedef struct PersistentBytes {
  int64_t bytes, host_bytes;
} PersistentBytes;

static PersistentBytes persistent_bytes(const PersistentBuffers *persistent,
                                        bool has_caches) {
  return (PersistentBytes){has_caches ? persistent->bytes
                                      : persistent->bytes_but_caches,
                           persistent->host_bytes};
}

static BufferAssignment *begin_assignment(PassContext *ctx, Packing *packing) {
  Arena *arena = ctx->module->arena;
  BufferAssignment *assignment = ARENA_NEW(arena, BufferAssignment);
  assignment->bodies =
      ARENA_ARRAY(arena, BufferAssignment *, packing->graph->nodes.n);
  add_workspaces(ctx, packing, assignment->bodies);
  return assignment;
}

/* Packs what is packed, from byte `base` on, and `host_base` of host memory. */
static void end_assignment(PassContext *ctx, Packing *packing,
                           BufferAssignment *assignment,
                           const PersistentBytes *persistent, int64_t base,
                           int64_t host_base) {
  const Graph *graph = packing->graph;
  Arena *arena = ctx->module->arena;
  int n = graph->nodes.n;
  assignment->offset = ARENA_ARRAY(arena, int64_t, packing->n_values);
  assignment->bytes = ARENA_ARRAY(arena, int64_t, packing->n_values);
  assignment->outside = ARENA_ARRAY(arena, int, packing->n_values);
  assignment->workspace = ARENA_ARRAY(arena, int64_t, n);
  assignment->first_value = arena_copy(
      arena, packing->first_value, (size_t)n * sizeof *packing->first_value);
  assignment->persistent_bytes = persistent->bytes;
  assignment->persistent_host_bytes = persistent->host_bytes;
  assignment->arena_bytes = place_buffers(packing, is_packed, base, 0);
  assignment->host_bytes =
      place_buffers(packing, is_packed_on_host, host_base, HOST_ORIGIN);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      Value value = {id, r};
      int v = value_index(packing, value);
      assignment->offset[v] = buffer_of(packing, value)->offset;
      assignment->bytes[v] = value_bytes(graph, value);
      assignment->outside[v] = -1;
    }
    int workspace = packing->workspace[id];
    assignment->workspace[id] =
        workspace < 0 ? -1 : packing->buffers.data[workspace].offset;
  }
}

/* Where the buffers that are selected begin: without any, at the end of what is
 * before them. */
static int64_t packed_base(const Packing *packing,
                           bool (*is_selected)(const Buffer *), int64_t at) {
  for (int b = 0; b < packing->buffers.n; b++)
    if (is_selected(&packing->buffers.data[b]))
      return align_up(at, packing->alignment);
  return at;
}

static BufferAssignment *make_assignment(PassContext *ctx, Packing *packing,
                                         PersistentBytes persistent) {
  BufferAssignment *assignment = begin_assignment(ctx, packing);
  end_assignment(
      ctx, packing, assignment, &persistent,
      align_up(persistent.bytes, packing->alignment),
      packed_base(packing, is_packed_on_host, persistent.host_bytes));
  return assignment;
}

/* Marks every value that shares the bytes of `value`. */
static void set_enclosing(const Packing *packing, BufferAssignment *assignment,
                          Value value, int place) {
  int buffer = packing->buffer_of[value_index(packing, value)];
  for (int v = 0; v < packing->n_values; v++)
    if (packing->buffer_of[v] == buffer) assignment->outside[v] = place;
}

static BufferAssignment *pack_body(PassContext *ctx, const Graph *body) {
  Packing packing = make_buffers_of_graph(ctx->scratch, body);
  packing.alignment = target_alignment(ctx->target);
  for (int i = 0; i < body->outputs.n; i++)
    buffer_of(&packing, body->outputs.data[i].value)->is_enclosing = true;
  BufferAssignment *assignment =
      make_assignment(ctx, &packing, (PersistentBytes){0});
  for (int i = 0; i < body->inputs.n; i++)
    set_enclosing(&packing, assignment, body->inputs.data[i].value, i);
  for (int i = 0; i < body->outputs.n; i++)
    set_enclosing(&packing, assignment, body->outputs.data[i].value,
                  body->inputs.n + i);
  return assignment;
}

BufferAssignment *buffer_assign(PassContext *ctx, const ProgramStage *stage,
                                const PersistentBuffers *persistent) {
  const Graph *graph = stage->graph;
  Packing packing = make_buffers(ctx->scratch, graph, &stage->segments);
  packing.alignment = target_alignment(ctx->target);
  place_persistent(&packing, persistent);
  return make_assignment(ctx, &packing,
                         persistent_bytes(persistent, has_caches(graph)));
}

/* ---- several stages ---- */

/* The segments that use a buffer: those of its stage from `first` to `last`. */
typedef struct BufferUse {
  int first, last;
  bool is_kept;     /* an input, an output, or a sum over micro-batches */
  bool is_data;     /* an input ROLE_data */
  bool is_sent;     /* an output ROLE_send */
  bool is_received; /* an input ROLE_receive */
  int n_slots;      /* of the edge by which it is received */
} BufferUse;

typedef struct StagePacking {
  ProgramStage *stage;
  const EntryPoint *entry;
  Packing packing;
  BufferAssignment *assignment;
  BufferUse *uses; /* by buffer */
} StagePacking;

static int segment_of(const ProgramStage *stage, int id) {
  int s = 0;
  while (id >= stage->segments.data[s].end_node) s++;
  return s;
}

static TokenKind kind_of(const StagePacking *p, int segment) {
  return p->stage->segments.data[segment].kind;
}

static void add_use(BufferUse *use, int segment) {
  if (use->first < 0 || segment < use->first) use->first = segment;
  if (segment > use->last) use->last = segment;
}

static BufferUse *use_of(const StagePacking *p, Value value) {
  return &p->uses[buffer_of(&p->packing, value) - p->packing.buffers.data];
}

static void add_node_uses(StagePacking *p, int id) {
  const Node *node = p->stage->graph->nodes.data[id];
  int segment = segment_of(p->stage, id);
  for (int i = 0; i < node->n_inputs; i++)
    add_use(use_of(p, node->inputs[i]), segment);
  for (int r = 0; r < node->n_results; r++) {
    BufferUse *use = use_of(p, (Value){id, r});
    add_use(use, segment);
    use->is_kept |= node_joins_microbatches(node);
  }
  int workspace = p->packing.workspace[id];
  if (workspace >= 0) add_use(&p->uses[workspace], segment);
}

static int slots_of(const StagePacking *p, Name path) {
  for (int e = 0; e < p->entry->edges.n; e++) {
    const ProgramEdge *edge = &p->entry->edges.data[e];
    if (edge->to == p->stage->number && edge->path == path)
      return edge->n_slots;
  }
  UNREACHABLE();
}

static void find_uses(StagePacking *p, Arena *arena) {
  const Graph *graph = p->stage->graph;
  p->uses = ARENA_ARRAY(arena, BufferUse, p->packing.buffers.n);
  for (int b = 0; b < p->packing.buffers.n; b++)
    p->uses[b] = (BufferUse){.first = -1, .last = -1};
  for (int id = 0; id < graph->nodes.n; id++) add_node_uses(p, id);
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    BufferUse *use = use_of(p, input->value);
    use->is_received |= input->role == ROLE_receive;
    use->is_data |= input->role == ROLE_data;
    use->is_kept |= input->role != ROLE_receive;
    if (input->role == ROLE_receive) use->n_slots = slots_of(p, input->path);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    BufferUse *use = use_of(p, graph->outputs.data[i].value);
    use->is_sent |= graph->outputs.data[i].role == ROLE_send;
    use->is_kept |= graph->outputs.data[i].role != ROLE_send;
  }
  /* A collective keeps what it reads until somebody waits for it: the end of
   * the step, where nothing does, but one of a micro-batch ends in its segment.
   */
  for (int b = 0; b < p->packing.buffers.n; b++) {
    const Buffer *buffer = &p->packing.buffers.data[b];
    BufferUse *use = &p->uses[b];
    bool is_last = buffer->last >= graph->nodes.n;
    if (!is_last) add_use(use, segment_of(p->stage, buffer->last));
    if (is_last && use->last >= 0)
      use->is_kept |=
          !use->is_sent && token_info(kind_of(p, use->last))->is_of_step;
  }
}

/* In a period the update is of a micro-batch, too, and data is there from the
 * forward pass on.  What runs once is the same for all.  Where a batch has
 * several micro-batches, both are of the batch. */
static ProgramRegister frame_of_period(const StagePacking *p,
                                       const BufferUse *use) {
  bool has_batches = p->stage->n_batches > 0;
  if (use->is_data) return has_batches ? REGISTER_batch : REGISTER_frame;
  if (use->is_kept || use->first >= use->last) return REGISTER_microbatch;
  TokenKind first = kind_of(p, use->first);
  if (first == TOKEN_forward) return REGISTER_frame;
  bool is_left =
      has_batches && first == TOKEN_once && kind_of(p, use->last) != TOKEN_once;
  return is_left ? REGISTER_batch : REGISTER_microbatch;
}

/* The frame of what one segment of a micro-batch leaves for another one.
 * Returns REGISTER_microbatch if there is none. */
static ProgramRegister frame_of(const StagePacking *p, const BufferUse *use) {
  if (p->entry->is_period) return frame_of_period(p, use);
  if (use->is_kept || use->first >= use->last) return REGISTER_microbatch;
  TokenKind first = kind_of(p, use->first), last = kind_of(p, use->last);
  if (token_info(first)->is_of_step || token_info(last)->is_of_step)
    return REGISTER_microbatch;
  if (first == TOKEN_input_grad) return REGISTER_weight_frame;
  return last == TOKEN_input_grad ? REGISTER_input_frame : REGISTER_frame;
}

static void find_home(const StagePacking *p, Buffer *buffer,
                      const BufferUse *use) {
  ProgramRegister frame = frame_of(p, use);
  buffer->home = HOME_step;
  if (use->is_received) {
    buffer->home = HOME_messages;
    buffer->moves_with = use->n_slots > 1 ? REGISTER_slot : 0;
    buffer->n_copies = use->n_slots > 1 ? p->stage->n_slots : 0;
  } else if (frame != REGISTER_microbatch) {
    buffer->home = HOME_frames;
    buffer->moves_with = frame;
    buffer->n_copies = stage_places(p->stage, frame);
  } else if (use->is_sent && !use->is_kept) {
    buffer->home = HOME_messages;
  } else if (!use->is_kept && use->first == use->last) {
    buffer->home = HOME_scratch;
  }
}

static bool has_versions(const StagePacking *p, const Buffer *buffer) {
  return p->stage->n_versions > 1 && buffer->input_index >= 0 &&
         is_updated(p->stage->graph,
                    &p->stage->graph->inputs.data[buffer->input_index]);
}

static StagePacking begin_stage(PassContext *ctx, const EntryPoint *entry,
                                ProgramStage *stage,
                                const PersistentBuffers *persistent) {
  const ProgramSegments undivided = {0};
  StagePacking p = {.stage = stage, .entry = entry};
  p.packing = make_buffers(ctx->scratch, stage->graph, &undivided);
  p.packing.alignment = target_alignment(ctx->target);
  place_persistent(&p.packing, persistent);
  p.assignment = begin_assignment(ctx, &p.packing);
  find_uses(&p, ctx->scratch);
  for (int b = 0; b < p.packing.buffers.n; b++) {
    Buffer *buffer = &p.packing.buffers.data[b];
    if (buffer->input_index < 0) find_home(&p, buffer, &p.uses[b]);
    if (has_versions(&p, buffer)) buffer->n_copies = stage->n_versions;
  }
  return p;
}

/* Places the buffers of a stage that are selected and in this part, from `at`
 * on, which is byte `origin` of all memories, and returns the end of the last
 * byte. */
static int64_t place_part(StagePacking *p, BufferHome home,
                          bool (*is_selected)(const Buffer *), int64_t at,
                          int64_t origin) {
  Packing *packing = &p->packing;
  for (int b = 0; b < packing->buffers.n; b++) {
    Buffer *buffer = &packing->buffers.data[b];
    if (!is_selected(buffer) || buffer->home != home) continue;
    int copies = buffer->n_copies > 0 ? buffer->n_copies : 1;
    at = align_up(at, packing->alignment);
    buffer->offset = origin + at;
    at += align_up(buffer->bytes, packing->alignment) * (copies - 1) +
          buffer->bytes;
  }
  return at;
}

/* The input, and views of it, are the version that a segment reads; all other
 * values with its bytes are the one that it makes. */
static void fill_versions(StagePacking *p) {
  const Graph *graph = p->stage->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++) {
      Value value = {id, r}, from = value;
      if (!has_versions(p, buffer_of(&p->packing, value))) continue;
      while (node_is_view(graph, from.node))
        from = graph->nodes.data[from.node]->inputs[0];
      p->assignment->moves_with[value_index(&p->packing, value)] =
          graph_node(graph, from)->op == OP_input ? REGISTER_version
                                                  : REGISTER_new_version;
    }
  }
}

static void fill_moves(PassContext *ctx, StagePacking *p) {
  Arena *arena = ctx->module->arena;
  const Packing *packing = &p->packing;
  int n = packing->n_values;
  p->assignment->move_bytes = ARENA_ARRAY(arena, int64_t, n);
  p->assignment->moves_with = ARENA_ARRAY(arena, ProgramRegister, n);
  for (int v = 0; v < n; v++) {
    const Buffer *buffer = &packing->buffers.data[packing->buffer_of[v]];
    if (buffer->n_copies == 0) continue;
    p->assignment->move_bytes[v] = align_up(buffer->bytes, packing->alignment);
    p->assignment->moves_with[v] = buffer->moves_with;
  }
  fill_versions(p);
}

/* Places the parts of an arena from `at` on, and returns the end of the last
 * byte.  What aligns a part belongs to the one before it. */
static int64_t place_parts(StagePacking *stages, int n, int64_t alignment,
                           int64_t at, ArenaParts *out) {
  int64_t *sizes[N_HOMES] = {
      [HOME_step] = &out->step,
      [HOME_frames] = &out->frames,
      [HOME_messages] = &out->messages,
  };
  int64_t *before = &out->persistent;
  *out = (ArenaParts){.persistent = at};
  for (BufferHome home = HOME_step; home < N_HOMES; home++) {
    int64_t begin = align_up(at, alignment), end = begin;
    for (int s = 0; s < n; s++)
      end = place_part(&stages[s], home, is_transient, end, 0);
    if (end == begin) continue;
    *before += begin - at;
    before = sizes[home];
    *before = end - begin;
    at = end;
  }
  return at;
}

/* Likewise of the arena in host memory, which nothing is sent from. */
static int64_t place_host_parts(StagePacking *stages, int n, int64_t at) {
  for (BufferHome home = HOME_step; home < N_HOMES; home++)
    for (int s = 0; s < n; s++)
      at = place_part(&stages[s], home, is_swapped_out, at, HOST_ORIGIN);
  return at;
}

void buffer_assign_stages(PassContext *ctx, EntryPoint *entry,
                          const PersistentBuffers *persistent) {
  int n = entry->stages.n;
  /* A text goes on after prefill, also where other ranks have its caches. */
  int64_t at = entry->id == ENTRY_prefill ? persistent->bytes
                                          : persistent->bytes_but_caches;
  StagePacking *stages = ARENA_ARRAY(ctx->scratch, StagePacking, n);
  for (int s = 0; s < n; s++) {
    stages[s] = begin_stage(ctx, entry, &entry->stages.data[s], persistent);
    if (has_caches(stages[s].stage->graph)) at = persistent->bytes;
  }
  PersistentBytes before = {at, persistent->host_bytes};
  at = place_parts(stages, n, target_alignment(ctx->target), at, &entry->arena);
  int64_t on_host = place_host_parts(stages, n, persistent->host_bytes);
  for (int s = 0; s < n; s++) {
    StagePacking *p = &stages[s];
    end_assignment(ctx, &p->packing, p->assignment, &before,
                   packed_base(&p->packing, is_packed, at),
                   packed_base(&p->packing, is_packed_on_host, on_host));
    fill_moves(ctx, p);
    p->stage->assignment = p->assignment;
    int64_t scratch = p->assignment->arena_bytes - at;
    if (scratch > entry->arena.scratch) entry->arena.scratch = scratch;
  }
}

/* ---- live ranges ---- */

LiveRange *buffer_live_ranges(Arena *arena, const Graph *graph, int *out_n,
                              const int **out_buffer_of) {
  Packing packing = make_buffers_of_graph(arena, graph);
  LiveRange *ranges = ARENA_ARRAY(arena, LiveRange, packing.buffers.n);
  for (int i = 0; i < packing.buffers.n; i++) {
    const Buffer *buffer = &packing.buffers.data[i];
    ranges[i] = (LiveRange){.bytes = buffer->bytes,
                            .first = buffer->first,
                            .last = buffer->last,
                            .is_persistent = !is_transient(buffer)};
  }
  *out_n = packing.buffers.n;
  *out_buffer_of = packing.buffer_of;
  return ranges;
}

int64_t buffer_assignment_bound(const Graph *graph,
                                const BufferAssignment *assignment) {
  Arena *arena = arena_create(graph->module->memory);
  Packing packing = make_buffers_of_graph(arena, graph);
  int n;
  PackedBuffer *transient = select_buffers(&packing, is_transient, &n);
  int64_t most = most_live_bytes(arena, transient, n, graph->nodes.n);
  ASSERT(assignment->persistent_bytes + most <= assignment->arena_bytes);
  arena_destroy(arena);
  return most;
}
