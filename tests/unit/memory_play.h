/*
 * memory_play.h -- plays a final graph on all ranks at packed offsets: a reader
 * whose value was overwritten too early is found, and what comes out can be
 * compared.
 */
#ifndef TESTS_UNIT_MEMORY_PLAY_H
#define TESTS_UNIT_MEMORY_PLAY_H

#include "tests/unit/values.h"
#include "verify/play_layout.h"

static inline const Numbers *played_numbers(void) {
  static const Numbers numbers = {.number = INTERP_f64, .seed = 1};
  return &numbers;
}

/* The outputs are in the player until the next program begins; `inputs` are
 * logical, in the order of the graph's. */
static inline Player *play_graph(PassContext *ctx, const Graph *graph,
                                 const Tensor *inputs, uint64_t seed) {
  Arena *arena = ctx->module->arena;
  PersistentBuffers persistent = {0};
  persistent_buffers_add(&persistent, arena, graph, ctx->target);
  EntryPoint entry = entry_point_of_list(
      arena, ENTRY_train, instructions_of(arena, graph, ctx->target));
  const BufferAssignment *layout =
      buffer_assign(ctx, entry_point_stage(&entry), &persistent);
  cr_assert_leq(buffer_assignment_bound(graph, layout) + persistent.bytes,
                layout->arena_bytes);
  PlayOptions options = {.numbers = played_numbers(),
                         .ranks = mesh_ranks(&graph->mesh),
                         .arena_bytes = layout->arena_bytes,
                         .seed = seed};
  Player *player = player_create(arena, &options);
  player_begin(player,
               play_program(arena, &entry,
                            play_layout(arena, graph, layout, ctx->target)));
  for (int i = 0; i < graph->inputs.n; i++) player_write(player, i, &inputs[i]);
  player_run(player);
  cr_assert_null(player_memory_fault(player), "seed %lu: %s",
                 (unsigned long)seed, player_memory_fault(player));
  cr_assert_null(player_message_fault(player));
  cr_assert_leq(player_touched_bytes(player), layout->arena_bytes);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *input =
        graph_find_input(graph, output->role, output->path);
    if (input == NULL) continue;
    int from = layout->first_value[input->value.node] + input->value.result;
    int to = layout->first_value[output->value.node] + output->value.result;
    cr_assert_eq(layout->offset[from], layout->offset[to]);
  }
  return player;
}

/* On random numbers. */
static inline void check_memory(PassContext *ctx, const Graph *graph,
                                uint64_t seed) {
  Arena *arena = ctx->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = tensor_random(
        arena,
        type_logical(arena, graph_type(graph, graph->inputs.data[i].value)),
        seed + (uint64_t)i, -1, 1);
  play_graph(ctx, graph, inputs, seed);
}

#endif
