/*
 * memory_play.h -- runs a final graph on tags instead of numbers: every byte of
 * the arena knows the value that was last written to it, so that a reader
 * whose value was overwritten too early is found.
 */
#ifndef TESTS_UNIT_MEMORY_PLAY_H
#define TESTS_UNIT_MEMORY_PLAY_H

#include "passes/passes.h"
#include "tests/unit/values.h"

typedef struct MemoryPlay {
  const Graph *graph;
  const BufferAssignment *layout;
  int *bytes; /* by arena byte: tag of the value that is there */
  int *tag;   /* by node: of its first result */
  AxisSet sequential;
  uint64_t seed;
} MemoryPlay;

static inline int value_at(const MemoryPlay *play, Value value) {
  return play->layout->first_value[value.node] + value.result;
}

static inline void write_value(MemoryPlay *play, Value value) {
  int v = value_at(play, value);
  for (int64_t b = 0; b < play->layout->bytes[v]; b++)
    play->bytes[play->layout->offset[v] + b] =
        play->tag[value.node] + value.result;
}

static inline void read_value(MemoryPlay *play, Value value) {
  int v = value_at(play, value);
  for (int64_t b = 0; b < play->layout->bytes[v]; b++)
    cr_assert_eq(play->bytes[play->layout->offset[v] + b],
                 play->tag[value.node] + value.result,
                 "seed %lu: %%%d (%s) is overwritten",
                 (unsigned long)play->seed, value.node,
                 op_info(play->graph->nodes.data[value.node]->op)->name);
}

static inline bool uses_axes(const Type *type, AxisSet axes) {
  AxisSet used = type->partial;
  for (int d = 0; d < type->rank; d++)
    used |= axis_list_set(type->dims[d].split);
  return used & axes;
}

static inline bool runs_often(const MemoryPlay *play, int id) {
  const Node *node = play->graph->nodes.data[id];
  if (node->op == OP_input) return false;
  for (int i = 0; i < node->n_inputs; i++)
    if (uses_axes(graph_type(play->graph, node->inputs[i]), play->sequential))
      return true;
  for (int r = 0; r < node->n_results; r++)
    if (uses_axes(node->types[r], play->sequential)) return true;
  return false;
}

static inline void play_once(MemoryPlay *play, int id) {
  const Node *node = play->graph->nodes.data[id];
  if (node->op == OP_input) return;
  for (int i = 0; i < node->n_inputs; i++) read_value(play, node->inputs[i]);
  if (node->op == OP_accumulate) read_value(play, (Value){id, 0});
  if (node_is_view(play->graph, id)) {
    play->tag[id] = play->tag[node->inputs[0].node] + node->inputs[0].result;
    return;
  }
  for (int r = 0; r < node->n_results; r++) write_value(play, (Value){id, r});
}

/* Runs the nodes from `begin` on that run for each micro-batch, once for each;
 * accumulated values are cleared before. */
static inline int play_loop(MemoryPlay *play, int begin) {
  const Graph *graph = play->graph;
  int end = begin, times = 1;
  while (end < graph->nodes.n && runs_often(play, end)) end++;
  for (int a = 0; a < graph->mesh.n_axes; a++)
    if (graph->mesh.axes[a].is_sequential) times *= graph->mesh.axes[a].size;
  for (int id = begin; id < end; id++)
    if (graph->nodes.data[id]->op == OP_accumulate)
      write_value(play, (Value){id, 0});
  for (int t = 0; t < times; t++)
    for (int id = begin; id < end; id++) play_once(play, id);
  return end;
}

static inline void check_memory(PassContext *ctx, const Graph *graph,
                                uint64_t seed) {
  Arena *arena = ctx->module->arena;
  PersistentBuffers persistent = {0};
  persistent_buffers_add(&persistent, arena, graph, ctx->target);
  BufferAssignment *layout = buffer_assign(ctx, graph, &persistent);
  cr_assert_leq(buffer_assignment_bound(graph, layout) + persistent.bytes,
                layout->arena_bytes);
  MemoryPlay play = {.graph = graph, .layout = layout, .seed = seed};
  play.bytes = ARENA_ARRAY(arena, int, layout->arena_bytes + 1);
  play.tag = ARENA_ARRAY(arena, int, graph->nodes.n);
  for (int a = 0; a < graph->mesh.n_axes; a++)
    if (graph->mesh.axes[a].is_sequential) play.sequential |= (AxisSet)(1 << a);
  for (int id = 0; id < graph->nodes.n; id++) {
    play.tag[id] = 64 * id + 1;
    if (graph->nodes.data[id]->op == OP_input)
      write_value(&play, (Value){id, 0});
  }
  bool was_looped = false;
  for (int id = 0; id < graph->nodes.n;) {
    if (!runs_often(&play, id)) {
      play_once(&play, id++);
      continue;
    }
    cr_assert(!was_looped, "seed %lu: two loops", (unsigned long)seed);
    was_looped = true;
    id = play_loop(&play, id);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    read_value(&play, output->value);
    const GraphInput *slot =
        graph_find_input(graph, output->role, output->path);
    if (slot == NULL) continue;
    cr_assert_eq(layout->offset[value_at(&play, slot->value)],
                 layout->offset[value_at(&play, output->value)]);
  }
}

#endif
