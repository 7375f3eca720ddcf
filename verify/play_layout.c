/*
 * play_layout.c -- hands a buffer assignment to the player, which knows no
 * passes.
 */
#include "verify/play_layout.h"

const PlayLayout *play_layout(Arena *arena, const Graph *graph,
                              const BufferAssignment *assignment,
                              const Target *target) {
  int n = graph->nodes.n;
  bool *is_view = ARENA_ARRAY(arena, bool, n);
  int64_t *bytes = ARENA_ARRAY(arena, int64_t, n);
  const PlayLayout **bodies = ARENA_ARRAY(arena, const PlayLayout *, n);
  for (int id = 0; id < n; id++) {
    const BufferAssignment *body = assignment->bodies[id];
    is_view[id] = node_is_view(graph, id);
    if (body)
      bodies[id] =
          play_layout(arena, graph->nodes.data[id]->body, body, target);
    bytes[id] = body ? body->arena_bytes
                : target && target->workspace_bytes
                    ? target->workspace_bytes(target, graph, id)
                    : 0;
  }
  PlayLayout *layout = ARENA_NEW(arena, PlayLayout);
  *layout =
      (PlayLayout){.offset = assignment->offset,
                   .bytes = assignment->bytes,
                   .first_value = assignment->first_value,
                   .workspace = assignment->workspace,
                   .workspace_bytes = bytes,
                   .is_view = is_view,
                   .outside = assignment->outside,
                   .move_bytes = assignment->move_bytes,
                   .moves_with = assignment->moves_with,
                   .bodies = bodies,
                   .persistent_bytes = assignment->persistent_bytes,
                   .arena_bytes = assignment->arena_bytes,
                   .persistent_host_bytes = assignment->persistent_host_bytes,
                   .host_bytes = assignment->host_bytes};
  return layout;
}

/* Versions and batches have copies, too. */
static int most_copies(const ProgramStage *stage) {
  int most = stage_most_places(stage);
  for (int r = REGISTER_version; r < N_REGISTERS; r++)
    if (stage_places(stage, (ProgramRegister)r) > most)
      most = stage_places(stage, (ProgramRegister)r);
  return most;
}

const PlayLayout *const *play_layouts(Arena *arena, const EntryPoint *entry,
                                      const Target *target) {
  int n = entry->stages.n;
  const PlayLayout **layouts = ARENA_ARRAY(arena, const PlayLayout *, n);
  for (int s = 0; s < n; s++) {
    const ProgramStage *stage = &entry->stages.data[s];
    PlayLayout *layout = arena_copy(
        arena, play_layout(arena, stage->graph, stage->assignment, target),
        sizeof *layout);
    layout->n_copies = most_copies(stage);
    layouts[s] = layout;
  }
  return layouts;
}
