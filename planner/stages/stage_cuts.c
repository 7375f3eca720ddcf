/*
 * stage_cuts.c -- cuts a chain of pieces by two dynamic programs over the
 * pieces before a border and the stages that have them: the first one finds the
 * least time of the slowest stage, the second one, among cuts that keep it, the
 * least sum of squares.
 */
#include "planner/stages/stage_cuts.h"

#define NEVER ((double)INT64_MAX)

/* The sums over pieces before a place. */
typedef struct CutSum {
  Ps time, once; /* of a micro-batch; of a step */
  Bytes state, saved;
} CutSum;

typedef struct Cutter {
  const StagePlay *play;
  int n_pieces;
  const CutSum *to;  /* by end */
  Bytes memory;      /* of a stage */
  const int *pinned; /* by end: the last place before it where one has to end */
  int n_stages;
  double *best; /* [stage * (n + 1) + end] */
  int *before;  /* the same: the end of the stage before */
} Cutter;

static const CutSum *cut_sums(Arena *arena, const StageCosts *costs,
                              bool recomputes) {
  CutSum *sums = ARENA_ARRAY(arena, CutSum, costs->n + 1);
  for (int i = 0; i <= costs->n; i++) {
    const StageCost *to = &costs->to[i];
    Ps again = recomputes ? to->forward : 0;
    sums[i] =
        (CutSum){to->forward + again + to->input_grad + to->weight_grad,
                 to->bulk + to->update, to->state + to->gradient, to->saved};
  }
  return sums;
}

/* The time of pieces `first` to before `end`; NEVER if they do not fit, or if a
 * stage has to end between. */
static double stage_time(const Cutter *c, int stage, int first, int end) {
  if (first < c->pinned[end]) return NEVER;
  const CutSum *from = &c->to[first], *to = &c->to[end];
  Bytes saved = (to->saved - from->saved) * c->play->frames[stage];
  if (to->state - from->state + saved > c->memory) return NEVER;
  return (double)(to->time - from->time) +
         (double)(to->once - from->once) / c->play->shape.microbatches;
}

/* The best value of the stages before, which have all pieces before `first`. */
static double before(const Cutter *c, int stage, int first) {
  if (stage == 0) return first == 0 ? 0 : NEVER;
  return c->best[(stage - 1) * (c->n_pieces + 1) + first];
}

static void take(Cutter *c, int stage, int end, int first, double all) {
  int at = stage * (c->n_pieces + 1) + end;
  if (all >= c->best[at]) return;
  c->best[at] = all;
  c->before[at] = first;
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* The later the stage begins, the less it has, and the more the others: the
 * best begin is where both cross. */
static void cut_slowest(Cutter *c, int stage, int end) {
  int low = stage, high = stage == 0 ? 0 : end - 1;
  while (low < high) {
    int middle = (low + high) / 2;
    if (before(c, stage, middle) >= stage_time(c, stage, middle, end))
      high = middle;
    else
      low = middle + 1;
  }
  for (int first = low > stage ? low - 1 : low; first <= low; first++)
    take(c, stage, end, first,
         larger(before(c, stage, first), stage_time(c, stage, first, end)));
}

/* Cuts whose slowest stage is no slower. */
static void cut_equal(Cutter *c, int stage, int end, double slowest) {
  for (int first = end - 1; first >= 0; first--) {
    double time = stage_time(c, stage, first, end);
    double so_far = before(c, stage, first);
    if (time > slowest) return; /* and with more pieces, too */
    if (so_far < NEVER) take(c, stage, end, first, so_far + time * time);
  }
}

static double cut(Cutter *c, double slowest) {
  int n = c->n_pieces;
  for (int i = 0; i < c->n_stages * (n + 1); i++) c->best[i] = NEVER;
  for (int stage = 0; stage < c->n_stages; stage++)
    for (int end = stage + 1; end <= n - (c->n_stages - 1 - stage); end++)
      if (slowest == 0)
        cut_slowest(c, stage, end);
      else
        cut_equal(c, stage, end, slowest);
  return c->best[(c->n_stages - 1) * (n + 1) + n];
}

static const int *last_pinned(Arena *arena, const bool *is_pinned, int n) {
  int *out = ARENA_ARRAY(arena, int, n + 1);
  for (int end = 1; end <= n && is_pinned; end++)
    out[end] = end > 1 && is_pinned[end - 2] ? end - 1 : out[end - 1];
  return out;
}

bool stage_cuts(Arena *arena, const StagePlay *play, const StageCosts *costs,
                const bool *is_pinned, Bytes memory, int *out_ends) {
  int n = costs->n, n_stages = play->shape.stages;
  if (n < n_stages) return false;
  Arena *own = arena_beside(arena);
  Cutter c = {.play = play,
              .n_pieces = n,
              .to = cut_sums(own, costs, play->shape.schedule->recomputes),
              .memory =
                  (memory - costs->transient) / (n_stages / play->shape.groups),
              .pinned = last_pinned(own, is_pinned, n),
              .n_stages = n_stages,
              .best = ARENA_ARRAY(own, double, n_stages *(n + 1)),
              .before = ARENA_ARRAY(own, int, n_stages *(n + 1))};
  double slowest = cut(&c, 0);
  bool is_cut = slowest < NEVER;
  if (is_cut) cut(&c, slowest * (1 + 1e-3) + 1);
  for (int stage = n_stages - 1, end = n; is_cut && stage >= 0; stage--) {
    out_ends[stage] = end;
    end = c.before[stage * (n + 1) + end];
  }
  arena_destroy(own);
  return is_cut;
}
