/*
 * stage_peak.c -- adds up the arenas of the ranks of a plan with stages.
 *
 *     persistent | step | frames | messages | scratch
 *
 * These are the parts in which buffer_assign_stages divides an arena.  A rank
 * has those of all of its stages, and the scratch of one.
 */
#include "planner/stages/stage_peak.h"

#include "ir/plan/plan.h"

typedef struct PeakMaker {
  Arena *arena;
  const StagePlay *play;
  const StageCosts *costs;
  const StageBytes *bytes;
  const int *ends;
  const int *stage_of; /* by piece */
  PieceBytes *sums;    /* by stage */
  Bytes *sent;         /* by stage */
  Bytes *kept;         /* by stage: what it sends and does not compute again */
  ReceivedValues *received; /* by stage */
} PeakMaker;

static void raise(Bytes *to, Bytes bytes) {
  if (bytes > *to) *to = bytes;
}

static int group_of(const PeakMaker *m, int stage) {
  return pipeline_rank_of_stage(m->play->shape.schedule, m->play->shape.groups,
                                stage);
}

static int begin_of(const PeakMaker *m, int stage) {
  return stage > 0 ? m->ends[stage - 1] : 0;
}

/* ---- values that go to other stages ---- */

/* Returns whether a call of the stage reads the value. */
static bool is_kept(const PeakMaker *m, const CrossingValue *v, StageCall call,
                    int stage) {
  return v->first[call] >= 0 && (m->stage_of[v->first[call]] == stage ||
                                 m->stage_of[v->last[call]] == stage);
}

/* A value that no later call of its stage reads has one place, from which it is
 * sent. */
static void send(PeakMaker *m, const CrossingValue *v, int stage) {
  PieceBytes *sums = &m->sums[stage];
  Bytes saved = v->saved + v->early;
  bool is_for_weights = is_kept(m, v, CALL_W, stage);
  bool is_saved =
      is_for_weights || (!v->is_back && is_kept(m, v, CALL_I, stage));
  sums->saved -= v->saved;
  sums->early -= v->early;
  sums->late -= v->late;
  if (!is_saved)
    m->sent[stage] += v->sent;
  else if (m->play->shape.schedule->recomputes)
    m->kept[stage] += saved;
  else if (v->is_back)
    sums->late += v->late;
  else
    *(is_for_weights ? &sums->saved : &sums->early) += saved;
}

static void receive(PeakMaker *m, const CrossingValue *v, int from, int to) {
  ReceivedValue value = {from, v->is_back, CALL_F, v->sent};
  for (int c = 0; c < N_STAGE_CALLS; c++)
    if (is_kept(m, v, (StageCall)c, to)) value.last = (StageCall)c;
  /* A stage that reads a value in shards keeps these, unless it is computed
   * again from the whole value. */
  if (!m->play->shape.schedule->recomputes && !v->is_back &&
      value.last != CALL_F && v->read < v->sent) {
    PieceBytes *sums = &m->sums[to];
    *(value.last == CALL_W ? &sums->saved : &sums->early) += v->read;
    value.last = CALL_F;
  }
  vec_push(m->arena, &m->received[to], value);
}

static void cross(PeakMaker *m, const CrossingValue *v) {
  enum { MOST = 2 * N_STAGE_CALLS };
  int from = m->stage_of[v->piece], to[MOST], n = 0;
  for (int i = 0; i < MOST; i++) {
    int piece = i % 2 ? v->last[i / 2] : v->first[i / 2], k = 0;
    if (piece < 0 || m->stage_of[piece] == from) continue;
    while (k < n && to[k] != m->stage_of[piece]) k++;
    if (k == n) to[n++] = m->stage_of[piece];
  }
  if (n > 0) send(m, v, from);
  for (int i = 0; i < n; i++) receive(m, v, from, to[i]);
}

/* ---- stages ---- */

/* Returns the bytes of what the forward pass gathers last.  It stays for the
 * backward pass, as much as is gathered ahead (passes/remat/remat_places.c). */
static Bytes kept_gathers(const PeakMaker *m, int stage) {
  Bytes kept = 0;
  for (int i = m->ends[stage] - 1; i >= begin_of(m, stage); i--) {
    Bytes more = m->bytes->to[i + 1].gathered - m->bytes->to[i].gathered;
    if (kept + more > PLAN_PREFETCH_BYTES) break;
    kept += more;
  }
  return kept;
}

static Bytes frames_bytes(const PeakMaker *m, int stage) {
  const PieceBytes *sums = &m->sums[stage];
  const StageFrames *frames = &m->play->frames_of[stage];
  if (m->play->shape.schedule->recomputes) return 0;
  if (!m->play->shape.schedule->splits_backward)
    return (sums->saved + sums->early + kept_gathers(m, stage)) * frames->whole;
  return kept_gathers(m, stage) * frames->input + sums->saved * frames->whole +
         sums->early * frames->input + sums->late * frames->weight;
}

static Bytes scratch_bytes(const PeakMaker *m, int stage) {
  const PipelineSchedule *schedule = m->play->shape.schedule;
  int begin = begin_of(m, stage), end = m->ends[stage];
  Bytes most = stage_scratch(m->bytes, SCRATCH_forward, begin, end);
  for (ScratchCall call = SCRATCH_joint; call < N_SCRATCH_CALLS; call++) {
    if ((call != SCRATCH_joint) != schedule->splits_backward) continue;
    Bytes bytes = stage_scratch(m->bytes, call, begin, end);
    if (call != SCRATCH_input) bytes += m->sums[stage].summed;
    if (schedule->recomputes)
      bytes += m->sums[stage].saved + m->sums[stage].early;
    if (bytes > most) most = bytes;
  }
  return most;
}

/* The value that the loss reads or leaves, whichever is larger: no schedule
 * computes this again. */
static Bytes loss_bytes(const PeakMaker *m, int stage) {
  int n = m->costs->n;
  if (m->ends[stage] < n) return 0;
  Bytes most = m->bytes->to[n].saved - m->bytes->to[n - 1].saved;
  for (int i = 0; i < m->bytes->crossing.n; i++) {
    const CrossingValue *v = &m->bytes->crossing.data[i];
    bool is_read = !v->is_back && v->last[CALL_F] == n - 1;
    if (is_read && m->stage_of[v->piece] == stage)
      raise(&most, v->saved + v->early);
  }
  return most;
}

static void add_stage(const PeakMaker *m, int stage, ArenaParts *out) {
  const PieceBytes *sums = &m->sums[stage];
  out->persistent += sums->state;
  out->step += sums->step;
  out->frames += frames_bytes(m, stage);
  if (m->play->shape.schedule->recomputes)
    out->frames += (m->kept[stage] + loss_bytes(m, stage)) *
                   m->play->frames_of[stage].whole;
  out->messages += m->sent[stage];
  if (m->received[stage].n > 0)
    out->messages +=
        stage_received_bytes(m->arena, m->play->lives, stage,
                             m->play->shape.microbatches, &m->received[stage]);
  Bytes scratch = scratch_bytes(m, stage);
  if (scratch > out->scratch) out->scratch = scratch;
}

/* The first stage adds both gradients.  The norm of all gradients comes behind
 * that sum, of two stages in the same call.  A rank that has a shard gathers
 * its own gradient before. */
static void add_first(const PeakMaker *m, const SharedCost *shared,
                      ArenaParts *out) {
  bool is_sharded = shared->shard < shared->bytes;
  Bytes sum = is_sharded ? 2 * shared->bytes + shared->shard : shared->bytes;
  bool is_kept = m->play->shape.stages > 2 || shared->keeps_update;
  out->messages +=
      shared->bytes + (shared->cast ? shared->cast : shared->bytes);
  if (is_kept) out->step += shared->shard;
  if (is_sharded || !is_kept) raise(&out->scratch, sum);
}

/* The last stage has what it received, the part of it that a rank reads, in the
 * order of either pass, and a gradient, which it sends whole. */
static void add_last(const SharedCost *shared, ArenaParts *out) {
  Bytes received = shared->cast ? shared->cast : shared->bytes;
  out->messages += received;
  out->step += shared->gradient;
  if (shared->gradient == shared->bytes) return;
  out->messages += shared->bytes;
  out->step += 2 * received / (shared->bytes / shared->gradient);
}

static void add_shared(const PeakMaker *m, ArenaParts *out) {
  for (int i = 0; i < m->costs->n_shared; i++) {
    const SharedCost *shared = &m->costs->shared[i];
    int from = m->stage_of[shared->first], to = m->stage_of[shared->last];
    if (from == to) {
      out[group_of(m, from)].step += shared->cast;
      continue;
    }
    add_first(m, shared, &out[group_of(m, from)]);
    add_last(shared, &out[group_of(m, to)]);
  }
}

static int *find_stages(Arena *arena, int n, const int *ends) {
  int *stage_of = ARENA_ARRAY(arena, int, n);
  for (int i = 0, stage = 0; i < n; i++) {
    while (ends[stage] <= i) stage++;
    stage_of[i] = stage;
  }
  return stage_of;
}

ArenaParts *stage_arenas(Arena *arena, const StagePlay *play,
                         const StageCosts *costs, const int *ends) {
  int n = play->shape.stages;
  ArenaParts *out = ARENA_ARRAY(arena, ArenaParts, play->shape.groups);
  PeakMaker m = {.arena = arena,
                 .play = play,
                 .costs = costs,
                 .bytes = costs->bytes,
                 .ends = ends,
                 .stage_of = find_stages(arena, costs->n, ends),
                 .sums = ARENA_ARRAY(arena, PieceBytes, n),
                 .sent = ARENA_ARRAY(arena, Bytes, n),
                 .kept = ARENA_ARRAY(arena, Bytes, n),
                 .received = ARENA_ARRAY(arena, ReceivedValues, n)};
  for (int s = 0; s < n; s++) {
    const PieceBytes *to = &m.bytes->to[ends[s]],
                     *from = &m.bytes->to[begin_of(&m, s)];
    m.sums[s] = (PieceBytes){.state = to->state - from->state,
                             .step = to->step - from->step,
                             .saved = to->saved - from->saved,
                             .early = to->early - from->early,
                             .late = to->late - from->late,
                             .summed = to->summed - from->summed};
  }
  for (int i = 0; i < m.bytes->crossing.n; i++)
    cross(&m, &m.bytes->crossing.data[i]);
  for (int s = 0; s < n; s++) add_stage(&m, s, &out[group_of(&m, s)]);
  add_shared(&m, out);
  return out;
}
