/*
 * stage_inner.c -- counts what goes over a border inside of a kernel.
 *
 * The program of one rank never stores this value, so no edge and no value of
 * the units is it.  A cut there divides the kernel: its second part receives
 * the value for both passes.  Its gradient mostly is a value of the units.
 */
#include "planner/stages/stage_bytes.h"

/* A message is whole but for the batch. */
Bytes stage_inner_bytes(const StageChain *chain, int piece, const Units *units,
                        const Proposal *proposal) {
  const InnerBorder *border = &chain->inner[piece];
  const PlanUnit *unit = units->units.data[border->unit];
  const Assignment *assignment = &proposal->assignments[border->unit];
  const Mesh *mesh = proposal->place.mesh;
  int64_t parts = proposal->microbatches;
  for (int a = 0; a < mesh->n_axes; a++)
    if (assignment->loop[a] >= 0 && unit->batch >> assignment->loop[a] & 1)
      parts *= mesh->axes[a].size;
  int64_t elements = (type_elements(border->type) + parts - 1) / parts;
  return elements * dtype_size_bytes(border->type->dtype);
}

static void add_crossing(Arena *arena, int piece, Bytes bytes,
                         StageBytes *out) {
  CrossingValue v = {.piece = piece, .sent = bytes, .read = bytes};
  for (int c = 0; c < N_STAGE_CALLS; c++)
    v.first[c] = v.last[c] = c == CALL_W ? -1 : piece + 1;
  vec_push(arena, &out->crossing, v);
}

void stage_add_inner(Arena *arena, const StageBytesRequest *request,
                     const Proposal *proposal, StageBytes *out) {
  const StageChain *chain = request->chain;
  for (int i = 0; i + 1 < chain->n && chain->inner; i++) {
    if (!chain->inner[i].type) continue;
    Bytes bytes = stage_inner_bytes(chain, i, request->units, proposal);
    add_crossing(arena, i, bytes, out);
  }
}
