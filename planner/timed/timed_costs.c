/*
 * timed_costs.c -- makes the costs of stages from simulated times of pieces:
 * what each rank computes of a micro-batch, the sums of gradients behind it,
 * the update, and bytes.
 *
 *     stage on r ranks, m micro-batches     sample of r m parts
 *     sums of gradients W                   2 (r - 1) / r W over its links
 */
#include "planner/timed/timed.h"

typedef struct TimedMaker {
  TimedNodes *nodes;
  const RankShape *shape;
  const RankSetting *setting;
  const TimedSample *sample;
  Bytes params;     /* of the model */
  MessageRate sums; /* of bytes that a rank sends */
} TimedMaker;

/* ---- sums of gradients ---- */

static Ps sum_time(const TimedMaker *m, Bytes sent) {
  SimTransfer t =
      price_message(m->nodes->search->arena, m->shape->model, m->shape->slice,
                    m->shape->mesh, OP_all_reduce, 1, sent);
  Ps busy = 0;
  for (int l = 0; l < t.n_loads; l++)
    if (t.loads[l].busy > busy) busy = t.loads[l].busy;
  return t.latency + busy;
}

static MessageRate sum_rate(const TimedMaker *m) {
  enum { FEW = 1 << 20, MANY = 1 << 24 };
  MessageRate *known = map_get(m->nodes->rates, m->shape);
  if (known) return *known;
  known = ARENA_NEW(m->nodes->search->arena, MessageRate);
  map_put(m->nodes->rates, m->shape, known);
  if (m->shape->ranks == 1) return *known;
  Ps few = sum_time(m, FEW);
  double per_byte = (double)(sum_time(m, MANY) - few) / (MANY - FEW);
  *known = (MessageRate){few - (Ps)(per_byte * FEW), per_byte};
  return *known;
}

/* Gradients of parameters are summed once a step, from ZeRO 2 on in each
 * micro-batch; from ZeRO 3 on parameters are gathered twice in each. */
static Ps sums_of(const TimedMaker *m, Bytes params) {
  int r = m->shape->ranks, zero = m->setting->zero;
  double once = 2.0 * (r - 1) / r * (double)params * m->sums.per_byte;
  int64_t n = zero >= 2 ? m->setting->microbatches : 1;
  return (Ps)(once * (double)n * (zero == 3 ? 1.5 : 1));
}

/* ---- pieces ---- */

static double share_of(const TimedMaker *m, int piece) {
  return m->params > 0 ? (double)m->nodes->of.params[piece] / (double)m->params
                       : 0;
}

static PieceBytes bytes_of(const TimedMaker *m, int piece) {
  int zero = m->setting->zero, r = m->shape->ranks;
  Bytes params = m->nodes->of.params[piece];
  Bytes state = (Bytes)((double)m->sample->persistent * share_of(m, piece));
  Bytes beside = state > params ? state - params : 0;
  PieceBytes out = {.step = zero >= 2 ? params / r : params};
  out.state =
      (zero == 3 ? params / r : params) + (zero >= 1 ? beside / r : beside);
  out.saved = m->setting->recomputes
                  ? m->nodes->of.sent[piece] / m->sample->parts
                  : m->sample->saved[piece];
  return out;
}

static StageCost cost_of(const TimedMaker *m, int piece) {
  const PieceTimes *times = &m->sample->pieces[piece];
  double update = (double)m->sample->update * share_of(m, piece);
  PieceBytes bytes = bytes_of(m, piece);
  return (StageCost){
      .forward = times->forward,
      .input_grad =
          times->input_grad + (m->setting->recomputes ? times->forward : 0),
      .weight_grad = times->weight_grad,
      .bulk = sums_of(m, m->nodes->of.params[piece]),
      .update = (Ps)(update / (m->setting->zero > 0 ? m->shape->ranks : 1)),
      .state = bytes.state,
      .gradient = bytes.step,
      .saved = bytes.saved};
}

static const StageBytes *stage_bytes(const TimedMaker *m) {
  Arena *arena = m->nodes->search->arena;
  int n = m->nodes->of.chain.n;
  PieceBytes *to = ARENA_ARRAY(arena, PieceBytes, n + 1);
  PieceScratch *scratch = ARENA_ARRAY(arena, PieceScratch, n);
  StageBytes *out = ARENA_NEW(arena, StageBytes);
  for (int i = 0; i < n; i++) {
    PieceBytes own = bytes_of(m, i);
    to[i + 1] = to[i];
    piece_bytes_add(&to[i + 1], &own);
    for (int c = 0; c < N_SCRATCH_CALLS; c++)
      for (int b = 0; b < N_BESIDES; b++)
        scratch[i].of[c][b] = m->sample->scratch;
  }
  *out = (StageBytes){.to = to, .scratch = scratch};
  return out;
}

/* ---- values between stages ---- */

/* By border: what a rank sends over it, and gets back. */
static const Bytes *sent_bytes(const TimedMaker *m) {
  int n = m->nodes->of.chain.n;
  Bytes *out = ARENA_ARRAY(m->nodes->search->arena, Bytes, n);
  for (int i = 0; i < n; i++) out[i] = m->nodes->of.sent[i] / m->sample->parts;
  return out;
}

static const SharedCost *shared_costs(const TimedMaker *m) {
  const TimedChain *of = &m->nodes->of;
  SharedCost *out =
      ARENA_ARRAY(m->nodes->search->arena, SharedCost, of->shared.n + 1);
  for (int i = 0; i < of->shared.n; i++) {
    const TimedShared *shared = &of->shared.data[i];
    int r = m->setting->zero > 0 ? m->shape->ranks : 1;
    out[i] = (SharedCost){.first = shared->first,
                          .last = shared->last,
                          .bytes = shared->bytes,
                          .shard = shared->bytes / r,
                          .gradient = shared->bytes};
  }
  return out;
}

const StageCosts *timed_costs(TimedNodes *nodes, const RankShape *shape,
                              const RankSetting *setting) {
  Arena *arena = nodes->search->arena;
  int n = nodes->of.chain.n;
  int64_t parts = (int64_t)shape->ranks * setting->microbatches;
  int64_t first = shape->slice->first - nodes->search->p->input->slice->first;
  TimedMaker m = {.nodes = nodes,
                  .shape = shape,
                  .setting = setting,
                  .sample = timed_sample(nodes, parts, first)};
  if (!m.sample) return NULL;
  TimedSample own = *m.sample;
  own.parts = parts;
  m.sample = &own;
  for (int i = 0; i < n; i++) m.params += nodes->of.params[i];
  m.sums = sum_rate(&m);
  StageCost *to = ARENA_ARRAY(arena, StageCost, n + 1);
  for (int i = 0; i < n; i++) {
    StageCost cost = cost_of(&m, i);
    to[i + 1] = to[i];
    stage_cost_add(&to[i + 1], &cost);
  }
  StageCosts *out = ARENA_NEW(arena, StageCosts);
  *out = (StageCosts){.n = n,
                      .to = to,
                      .bytes = stage_bytes(&m),
                      .transient = own.scratch,
                      .sent = sent_bytes(&m),
                      .sent_back = sent_bytes(&m),
                      .n_shared = nodes->of.shared.n,
                      .shared = shared_costs(&m)};
  return out;
}
