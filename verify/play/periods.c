/*
 * periods.c -- plays programs whose timeline is a period of an endless list,
 * from filling to draining: each call that is made, with its unit, becomes a
 * call of its own.
 *
 *     period   -1   0      1                    3 units
 *     rank 0   F0   F1 B0  F2 B1   B2     =>    F0 F1 B0 F2 B1 B2
 *
 * A parameter has a copy for each version.  What an update writes as a new
 * value is what the segments after it read as that version, at the same bytes.
 */
#include "verify/play/internal.h"

#include <string.h>

#include "ir/program_periods.h"

/* A call of a unit: its registers are those that its rings make. */
static ProgramCall call_of_unit(const ProgramCall *call, int64_t unit) {
  ProgramCall made = *call;
  made.unit = (int)unit;
  for (int r = 0; r < N_REGISTERS; r++)
    made.registers[r] = (int)program_ring_at(&call->rings[r], unit);
  return made;
}

PlayProgram *play_program_of_periods(Arena *arena, const EntryPoint *entry,
                                     const PlayLayout *const *layouts,
                                     int64_t n_units) {
  EntryPoint flat = *entry;
  int first_listed = 0, end_listed = 0;
  memset(&flat.timeline, 0, sizeof flat.timeline);
  for (int64_t t = -entry->lead; t * entry->n_units < n_units; t++) {
    if (t == 0) first_listed = flat.timeline.n;
    for (int i = 0; i < entry->timeline.n; i++) {
      const ProgramCall *call = &entry->timeline.data[i];
      int64_t unit = t * entry->n_units + call->unit;
      if (program_call_is_due(call, unit, n_units))
        vec_push(arena, &flat.timeline, call_of_unit(call, unit));
    }
    if (t == 0) end_listed = flat.timeline.n;
  }
  PlayProgram *program = play_program_of_stages(arena, &flat, layouts);
  program->first_listed = first_listed;
  program->end_listed = end_listed;
  return program;
}

/* The number of the write that made an output is that of the input which has
 * its bytes from now on. */
static void hand_over_output(Player *player, const GraphOutput *output) {
  const Frame *frame = player->frame;
  const GraphInput *input =
      graph_find_input(frame->graph, output->role, output->path);
  if (output->role == ROLE_send || !input ||
      value_equal(input->value, output->value))
    return;
  int stamp = frame->stamp[play_copy_of(frame, output->value)];
  int read = player->registers[REGISTER_version];
  player->registers[REGISTER_version] = player->registers[REGISTER_new_version];
  frame->stamp[play_copy_of(frame, input->value)] = stamp;
  player->registers[REGISTER_version] = read;
}

void play_hand_over(Player *player) {
  const Graph *graph = player->frame->graph;
  for (int i = 0; i < graph->outputs.n; i++)
    hand_over_output(player, &graph->outputs.data[i]);
}

void player_enter(Player *player, const ProgramCall *call) {
  play_set_registers(player, call->stage, call->registers);
}

void player_fill(Player *player, int input, const Tensor *logical) {
  const Frame *frame = player->frame;
  Value value = frame->graph->inputs.data[input].value;
  int microbatch = player->microbatch, stamp = ++player->last_stamp;
  player->microbatch = 0;
  frame->stamp[play_copy_of(frame, value)] = stamp;
  play_stamp_bytes(player, play_address(player, frame, value),
                   frame->layout->bytes[play_value(frame, value)], stamp);
  player_write(player, input, logical);
  player->microbatch = microbatch;
}

void player_keep_version(Player *player, int input, int version, Arena *arena) {
  int registers[N_REGISTERS] = {[REGISTER_version] = version};
  int stage = (int)(player->stage - player->program->stages);
  play_set_registers(player, stage, registers);
  Tensor newest = player_save(player, input, arena);
  player_select(player, stage);
  player_fill(player, input, &newest);
}
