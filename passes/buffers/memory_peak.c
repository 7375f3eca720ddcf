/*
 * memory_peak.c -- says what the transient bytes of a rank's arena are made of.
 *
 *     %3 saved       live 2..9           at %5: saved 40, gathered 8, forward 4
 *     %4 gathered    live 4..6     =>    gathered at most 16, at %8
 *     %5 forward     live 5..6
 *
 * A buffer is of one kind for all of its life.  The kind follows from the node
 * that writes it first, from the phases of all nodes that read its bytes, and
 * from whether it depends on persistent buffers alone.  The sum of the buffers
 * that are live at a node is largest at the peak; packing may need more than
 * that, because holes between buffers are not always filled.
 *
 * cost: O(nodes + buffers)
 */
#include "passes/buffers/memory_peak.h"

static const char *const peak_names[] = {
#define PEAK(name, words) #name,
#include "passes/buffers/peak_kinds.def"
};

static const char *const peak_words[] = {
#define PEAK(name, words) words,
#include "passes/buffers/peak_kinds.def"
};

const char *peak_kind_name(PeakKind kind) {
  ASSERT(kind < N_PEAK_KINDS);
  return peak_names[kind];
}

const char *peak_kind_words(PeakKind kind) {
  ASSERT(kind < N_PEAK_KINDS);
  return peak_words[kind];
}

/* ---- what is known of a buffer ---- */

typedef struct BufferUse {
  const Node *writer; /* the first; NULL: none yet */
  int writer_id;
  bool is_read_backward, is_read_before_update, is_weight_gradient;
} BufferUse;

typedef struct Peak {
  const Graph *graph;
  const BufferAssignment *assignment;
  Arena *arena;
  LiveRange *ranges;
  int n_ranges;
  const int *buffer_of; /* by value */
  BufferUse *uses;      /* by buffer */
  bool *is_stored;      /* by node: follows from persistent buffers alone */
  bool *is_gathered;    /* by node: and a collective is on the way */
} Peak;

static bool is_backward(Phase phase) {
  return phase == PHASE_input_gradient || phase == PHASE_weight_gradient;
}

static bool role_is_stored(Role role) {
  return role == ROLE_param || role == ROLE_state || role == ROLE_ema ||
         role == ROLE_step || role == ROLE_seed;
}

static void find_stored(Peak *peak) {
  const Graph *graph = peak->graph;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_stored =
        node->op != OP_input ||
        role_is_stored(graph->inputs.data[node_int(node, ATTR_index, 0)].role);
    bool is_gathered = op_is(node->op, OPCLASS_collective);
    /* The second operand of `after` is no value of it. */
    int n = node->op == OP_after ? 1 : node->n_inputs;
    for (int i = 0; i < n; i++) {
      is_stored &= peak->is_stored[node->inputs[i].node];
      is_gathered |= peak->is_gathered[node->inputs[i].node];
    }
    peak->is_stored[id] = is_stored;
    peak->is_gathered[id] = is_stored && is_gathered;
  }
}

static BufferUse *use_of(const Peak *peak, Value value) {
  int v = peak->assignment->first_value[value.node] + value.result;
  return &peak->uses[peak->buffer_of[v]];
}

static void note_uses(const Peak *peak, int id) {
  const Graph *graph = peak->graph;
  const Node *node = graph->nodes.data[id];
  bool is_view = node_is_view(graph, id);
  for (int r = 0; r < node->n_results; r++) {
    BufferUse *use = use_of(peak, (Value){id, r});
    if (!use->writer) use->writer = node, use->writer_id = id;
    use->is_weight_gradient |= node->phase == PHASE_weight_gradient && !is_view;
  }
  for (int i = 0; i < node->n_inputs && !is_view; i++) {
    BufferUse *use = use_of(peak, node->inputs[i]);
    use->is_read_backward |= is_backward(node->phase);
    use->is_read_before_update |= node->phase != PHASE_update &&
                                  !op_is(node->op, OPCLASS_collective) &&
                                  node->op != OP_accumulate;
  }
}

static PeakKind kind_of_buffer(const Peak *peak, const BufferUse *use) {
  const Node *node = use->writer;
  if (peak->is_gathered[use->writer_id]) return PEAK_gathered;
  if (peak->is_stored[use->writer_id]) return PEAK_weights;
  if (node->op == OP_input) return PEAK_data;
  if (node->phase == PHASE_forward)
    return use->is_read_backward ? PEAK_saved : PEAK_forward;
  if (node->phase == PHASE_update) return PEAK_update;
  return use->is_weight_gradient || !use->is_read_before_update ? PEAK_gradients
                                                                : PEAK_backward;
}

/* ---- sums ---- */

typedef struct Change {
  int64_t bytes[N_PEAK_KINDS];
} Change;

static void add_value(Change *changes, const MemoryValue *value) {
  changes[value->first].bytes[value->kind] += value->bytes;
  changes[value->last + 1].bytes[value->kind] -= value->bytes;
}

static MemoryPeak sum_changes(const Change *changes, int n) {
  MemoryPeak out = {.node = -1};
  int64_t alive[N_PEAK_KINDS] = {0};
  for (int id = 0; id < n; id++) {
    int64_t sum = 0;
    for (int k = 0; k < N_PEAK_KINDS; k++) {
      alive[k] += changes[id].bytes[k];
      sum += alive[k];
      if (alive[k] > out.most[k]) out.most[k] = alive[k];
    }
    if (sum <= out.live) continue;
    out.live = sum, out.node = id;
    for (int k = 0; k < N_PEAK_KINDS; k++) out.bytes[k] = alive[k];
  }
  return out;
}

/* ---- public ---- */

static int add_workspaces(const Peak *peak, const Target *target,
                          MemoryValue *out) {
  int n = 0;
  for (int id = 0; id < peak->graph->nodes.n; id++) {
    const BufferAssignment *body = peak->assignment->bodies[id];
    int64_t bytes = 0;
    if (peak->assignment->workspace[id] < 0) continue;
    if (body)
      bytes = body->arena_bytes;
    else if (target && target->workspace_bytes)
      bytes = target->workspace_bytes(target, peak->graph, id);
    out[n++] = (MemoryValue){PEAK_workspace, bytes, id, id, id};
  }
  return n;
}

MemoryValue *memory_values(Arena *arena, const Graph *graph,
                           const BufferAssignment *assignment,
                           const Target *target, int *out_n) {
  int n = graph->nodes.n;
  Peak peak = {.graph = graph,
               .assignment = assignment,
               .arena = arena,
               .is_stored = ARENA_ARRAY(arena, bool, n),
               .is_gathered = ARENA_ARRAY(arena, bool, n)};
  peak.ranges =
      buffer_live_ranges(arena, graph, &peak.n_ranges, &peak.buffer_of);
  peak.uses = ARENA_ARRAY(arena, BufferUse, peak.n_ranges);
  find_stored(&peak);
  for (int id = 0; id < n; id++) note_uses(&peak, id);
  MemoryValue *out = ARENA_ARRAY(arena, MemoryValue, peak.n_ranges + n);
  *out_n = 0;
  for (int i = 0; i < peak.n_ranges; i++) {
    const LiveRange *range = &peak.ranges[i];
    if (range->is_persistent) continue;
    out[(*out_n)++] =
        (MemoryValue){kind_of_buffer(&peak, &peak.uses[i]), range->bytes,
                      range->first, range->last, peak.uses[i].writer_id};
  }
  *out_n += add_workspaces(&peak, target, out + *out_n);
  return out;
}

MemoryPeak memory_peak(const Graph *graph, const BufferAssignment *assignment,
                       const Target *target) {
  Arena *arena = arena_create(graph->module->memory);
  int n = graph->nodes.n, n_values;
  const MemoryValue *values =
      memory_values(arena, graph, assignment, target, &n_values);
  Change *changes = ARENA_ARRAY(arena, Change, n + 2);
  for (int i = 0; i < n_values; i++) add_value(changes, &values[i]);
  MemoryPeak out = sum_changes(changes, n);
  out.packed = assignment->arena_bytes - assignment->persistent_bytes;
  arena_destroy(arena);
  return out;
}
