/*
 * program_text.c -- prints an entry point of a program.
 */
#include "ir/program.h"

static const char *segment_text(TokenKind kind) {
  switch (kind) {
  case TOKEN_once: return "once";
  case TOKEN_clear: return "clear";
  case TOKEN_forward: return "forward";
  case TOKEN_backward: return "backward";
  case TOKEN_input_grad: return "input_grad";
  case TOKEN_weight_grad: return "weight_grad";
  case TOKEN_update: return "update";
  default: UNREACHABLE();
  }
}

static void print_segment_name(Text *out, TokenKind kind, int part) {
  text_add(out, segment_text(kind));
  if (token_info(kind)->is_of_step) text_printf(out, ".%d", part);
}

static void print_stage(Text *out, const ProgramStage *stage) {
  text_printf(out, "  stage %d on %d..%d, frames %d, slots %d", stage->number,
              stage->first_rank, stage->first_rank + stage->n_ranks - 1,
              stage->n_frames, stage->n_slots);
  if (stage_registers(stage) > REGISTER_weight_frame)
    text_printf(out, ", input frames %d, weight frames %d",
                stage->n_input_frames, stage->n_weight_frames);
  text_add(out, "\n");
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    text_add(out, "    ");
    print_segment_name(out, segment->kind, segment->part);
    text_printf(out, " nodes %d..%d\n", segment->first_node, segment->end_node);
  }
}

static void print_edge(Text *out, const ProgramEdge *edge, int number) {
  text_printf(out, "  edge %d ", number);
  text_add_json(out, edge->path);
  text_add(out, " ");
  print_segment_name(out, edge->from_kind, edge->from_part);
  text_printf(out, " of %d -> ", edge->from);
  print_segment_name(out, edge->to_kind, edge->to_part);
  text_printf(out, " of %d, %lld bytes", edge->to, (long long)edge->bytes);
  if (edge->n_slots > 1) text_printf(out, ", %d slots", edge->n_slots);
  text_add(out, "\n");
  for (int i = 0; i < edge->pieces.n; i++) {
    const EdgePiece *piece = &edge->pieces.data[i];
    text_printf(out, "    rank %d to %d: %lld elements\n",
                edge->from_rank + piece->from, edge->to_rank + piece->to,
                (long long)edge_piece_elements(piece));
  }
}

static void print_registers(Text *out, const ProgramStage *stage,
                            const ProgramCall *call) {
  text_printf(out, ", micro-batch %d, frame %d, slot %d",
              call->registers[REGISTER_microbatch],
              call->registers[REGISTER_frame], call->registers[REGISTER_slot]);
  if (stage_registers(stage) > REGISTER_weight_frame)
    text_printf(out, ", input frame %d, weight frame %d",
                call->registers[REGISTER_input_frame],
                call->registers[REGISTER_weight_frame]);
}

void program_call_print(Text *out, const EntryPoint *entry,
                        const ProgramCall *call) {
  if (call->kind == CALL_segment) {
    const ProgramSegment *segment = entry_point_segment(entry, call);
    text_add(out, "call ");
    print_segment_name(out, segment->kind, segment->part);
    text_printf(out, " of %d", entry->stages.data[call->stage].number);
    return;
  }
  static const char *const words[] = {
      [CALL_send] = "send", [CALL_receive] = "receive", [CALL_pass] = "pass"};
  text_printf(out, "%s %d", words[call->kind], call->edge);
  if (call->kind != CALL_pass)
    text_printf(out, " %s %+d", call->kind == CALL_send ? "to" : "from",
                call->peer);
}

static void print_call(Text *out, const EntryPoint *entry,
                       const ProgramCall *call) {
  bool has_microbatch =
      call->kind == CALL_segment
          ? segment_is_of_microbatch(entry_point_segment(entry, call))
          : !entry->edges.data[call->edge].is_of_step;
  text_add(out, "  ");
  program_call_print(out, entry, call);
  if (has_microbatch)
    print_registers(out, &entry->stages.data[call->stage], call);
  text_add(out, "\n");
}

void entry_point_print(Text *out, const EntryPoint *entry) {
  text_printf(out, "program %s {\n", entry->name);
  for (int s = 0; s < entry->stages.n; s++)
    print_stage(out, &entry->stages.data[s]);
  for (int e = 0; e < entry->edges.n; e++)
    print_edge(out, &entry->edges.data[e], e);
  for (int i = 0; i < entry->timeline.n; i++)
    print_call(out, entry, &entry->timeline.data[i]);
  text_add(out, "}\n");
}
