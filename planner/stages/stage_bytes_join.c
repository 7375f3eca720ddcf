/*
 * stage_bytes_join.c -- joins the bytes of stages that have an assignment each,
 * and finds the scratch of a stage.
 */
#include "planner/stages/stage_bytes.h"

Bytes stage_scratch(const StageBytes *bytes, ScratchCall call, int first,
                    int end) {
  Bytes most = 0;
  for (int i = first; i < end; i++) {
    int besides =
        (i > first ? BESIDE_before : 0) | (i + 1 < end ? BESIDE_behind : 0);
    Bytes more = bytes->scratch[i].of[call][besides];
    if (more > most) most = more;
  }
  return most;
}

/* ---- stages with assignments of their own ---- */

static int part_of(const BytesPart *parts, int piece) {
  int part = 0;
  while (parts[part].end <= piece) part++;
  return part;
}

static Bytes scaled(Bytes bytes, double scale) {
  return (Bytes)((double)bytes * scale);
}

static PieceBytes part_sums(const BytesPart *part, int first) {
  const PieceBytes *from = &part->bytes->to[first],
                   *to = &part->bytes->to[part->end];
  return (PieceBytes){.state = scaled(to->state - from->state, part->scale),
                      .step = scaled(to->step - from->step, part->scale),
                      .saved = scaled(to->saved - from->saved, part->scale),
                      .early = scaled(to->early - from->early, part->scale),
                      .late = scaled(to->late - from->late, part->scale),
                      .gathered =
                          scaled(to->gathered - from->gathered, part->scale),
                      .summed = scaled(to->summed - from->summed, part->scale)};
}

static void join_crossing(Arena *arena, const BytesPart *parts, int at,
                          StageBytes *out) {
  const StageBytes *from = parts[at].bytes;
  for (int i = 0; i < from->crossing.n; i++) {
    CrossingValue v = from->crossing.data[i];
    if (part_of(parts, v.piece) != at) continue;
    v.piece = at;
    for (int c = 0; c < N_STAGE_CALLS; c++) {
      if (v.first[c] >= 0) v.first[c] = part_of(parts, v.first[c]);
      if (v.last[c] >= 0) v.last[c] = part_of(parts, v.last[c]);
    }
    v.read = scaled(v.read, parts[at].scale);
    v.sent = scaled(v.sent, parts[at].scale);
    v.saved = scaled(v.saved, parts[at].scale);
    v.early = scaled(v.early, parts[at].scale);
    v.late = scaled(v.late, parts[at].scale);
    vec_push(arena, &out->crossing, v);
  }
}

StageBytes *stage_bytes_join(Arena *arena, const BytesPart *parts, int n) {
  StageBytes *out = ARENA_NEW(arena, StageBytes);
  PieceBytes *to = ARENA_ARRAY(arena, PieceBytes, n + 1);
  PieceScratch *scratch = ARENA_ARRAY(arena, PieceScratch, n);
  for (int i = 0; i < n; i++) {
    int first = i > 0 ? parts[i - 1].end : 0;
    PieceBytes own = part_sums(&parts[i], first);
    to[i + 1] = to[i];
    piece_bytes_add(&to[i + 1], &own);
    for (int c = 0; c < N_SCRATCH_CALLS; c++)
      for (int b = 0; b < N_BESIDES; b++)
        scratch[i].of[c][b] = scaled(
            stage_scratch(parts[i].bytes, (ScratchCall)c, first, parts[i].end),
            parts[i].scale);
    join_crossing(arena, parts, i, out);
  }
  out->to = to;
  out->scratch = scratch;
  return out;
}
