/*
 * liveness.c -- the most bytes that are live at once: a lower bound on the
 * arena that needs no offsets.
 *
 *     %1 = exp %0     100 bytes, live 1..2      after %2: 100 + 100
 *     %2 = sum %1     100 bytes, live 2..3  =>  the arena has 200 or more
 *     %3 = exp %2     100 bytes, live 3..4
 *
 * Live ranges, and which values share bytes, are those of buffer assignment.
 * Buffers begin at multiples of the alignment, so at any time those that are
 * live fill whole units of it, but for the end of the last one.  The workspace
 * of a scan is what its body has live, that of a library call as large as the
 * target says.
 */
#include "planner/liveness.h"

#include "passes/buffers/memory_peak.h"

typedef struct LiveBytes {
  int64_t exact, aligned;
} LiveBytes;

typedef struct LiveChanges {
  const PassContext *ctx;
  const Graph *graph;
  Arena *arena;
  int64_t alignment;
  LiveBytes *change; /* by node: what becomes live before it runs */
} LiveChanges;

static int64_t round_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

static void add_range(LiveChanges *c, int64_t bytes, int first, int last) {
  int64_t aligned = round_up(bytes, c->alignment);
  c->change[first].exact += bytes;
  c->change[first].aligned += aligned;
  c->change[last + 1].exact -= bytes;
  c->change[last + 1].aligned -= aligned;
}

/* By buffer: the enclosing graph has the bytes of what goes into a body and
 * comes out of it. */
static bool *find_enclosing(const LiveChanges *c, const int *buffer_of, int n) {
  const Graph *graph = c->graph;
  bool *is_enclosing = ARENA_ARRAY(c->arena, bool, n);
  int *first_value = ARENA_ARRAY(c->arena, int, graph->nodes.n + 1);
  for (int id = 0; id < graph->nodes.n; id++)
    first_value[id + 1] = first_value[id] + graph->nodes.data[id]->n_results;
  for (int i = 0; i < graph->inputs.n; i++)
    is_enclosing[buffer_of[first_value[graph->inputs.data[i].value.node]]] =
        true;
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    is_enclosing[buffer_of[first_value[value.node] + value.result]] = true;
  }
  return is_enclosing;
}

static int64_t most_live(const PassContext *ctx, const Graph *graph,
                         Arena *arena, bool is_body);

static void add_workspaces(LiveChanges *c) {
  const Target *target = c->ctx->target;
  for (int id = 0; id < c->graph->nodes.n; id++) {
    const Node *node = c->graph->nodes.data[id];
    int64_t bytes = 0;
    if (node->op == OP_scan)
      bytes = most_live(c->ctx, node->body, c->arena, true);
    else if (target && target->workspace_bytes)
      bytes = target->workspace_bytes(target, c->graph, id);
    if (bytes > 0) add_range(c, bytes, id, id);
  }
}

static int64_t most_live(const PassContext *ctx, const Graph *graph,
                         Arena *arena, bool is_body) {
  int n_ranges, n = graph->nodes.n;
  const int *buffer_of;
  const LiveRange *ranges =
      buffer_live_ranges(arena, graph, &n_ranges, &buffer_of);
  int64_t alignment = ctx->target ? ctx->target->alignment_bytes : 0;
  LiveChanges c = {.ctx = ctx,
                   .graph = graph,
                   .arena = arena,
                   .alignment = alignment > 0 ? alignment : 1,
                   .change = ARENA_ARRAY(arena, LiveBytes, n + 2)};
  const bool *is_enclosing =
      is_body ? find_enclosing(&c, buffer_of, n_ranges) : NULL;
  for (int i = 0; i < n_ranges; i++)
    if (!ranges[i].is_persistent && !(is_body && is_enclosing[i]))
      add_range(&c, ranges[i].bytes, ranges[i].first, ranges[i].last);
  add_workspaces(&c);
  LiveBytes live = {0};
  int64_t most = 0;
  for (int id = 0; id <= n; id++) {
    live.exact += c.change[id].exact;
    live.aligned += c.change[id].aligned;
    int64_t least = live.aligned - (c.alignment - 1);
    if (least < live.exact) least = live.exact;
    if (least > most) most = least;
  }
  return most;
}

int64_t plan_live_bytes(const PassContext *ctx, const Graph *ordered) {
  Arena *arena = arena_beside(ctx->scratch);
  PersistentBuffers persistent = {0};
  persistent_buffers_add(&persistent, arena, ordered, ctx->target);
  int64_t alignment = ctx->target ? ctx->target->alignment_bytes : 0;
  int64_t bytes = round_up(persistent.bytes, alignment > 0 ? alignment : 64) +
                  most_live(ctx, ordered, arena, false);
  arena_destroy(arena);
  return bytes;
}
