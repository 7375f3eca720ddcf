/*
 * zbv.c -- yields schedules on a V (Qi et al. 2024): rank r of p has the stages
 * r and 2p - 1 - r, so that the last stage, whose backward pass begins first,
 * is on rank 0 with the first one.
 *
 *     0F0,0F1,0F2,3F0,3I0,3W0,3F1,3I1,3W1,0F3,0I0,0W0,...     zbv of 2 ranks
 *     1F0,2F0,1F1,2F1,2I0,2W0,1F2,1I0,1W0,...
 *
 * A schedule is bounded by the micro-batches of stages that a rank keeps from F
 * to W.  zbv keeps 2p, as many activations as 1f1b, and does not wait between
 * the first and the last call of a rank if F, I and W take equally long.  vhalf
 * keeps p + 2 and vmin 2 ceil((p + 2) / 3), which is about a half and a third
 * of that, and they wait longer.
 *
 * Each is the shortest, under the times of F, I and W, of orders that keep this
 * bound: the published order of zbv, and patterns in which each micro-batch
 * takes its way through the V at the pace of those before it.
 */
#include "ir/pipeline/trials.h"

enum { DOWN, UP };

/* ---- the published order ---- */

typedef struct Vee {
  Arena *arena;
  Tokens *list;
  int n_microbatches, stages[2];
  int counts[2][N_TOKENS]; /* calls so far, by chunk and kind */
} Vee;

/* The next call of a kind; those of micro-batches that there are not are left
 * out. */
static void add(Vee *v, TokenKind kind, int chunk) {
  int m = v->counts[chunk][kind]++;
  if (m < v->n_microbatches)
    schedule_add(v->arena, v->list, kind, v->stages[chunk], m);
}

static void add_back(Vee *v, int chunk) {
  add(v, TOKEN_input_grad, chunk);
  add(v, TOKEN_weight_grad, chunk);
}

static void add_forward_and_back(Vee *v, int chunk) {
  add(v, TOKEN_forward, chunk);
  add_back(v, chunk);
}

static void add_rank(Vee *v, int p, int r, int n) {
  const int *downs = &v->counts[DOWN][TOKEN_forward],
            *ups = &v->counts[UP][TOKEN_forward];
  for (int i = 0; i < 2 * (p - r) - 1; i++) add(v, TOKEN_forward, DOWN);
  for (int i = 0; i < r; i++) {
    add(v, TOKEN_forward, UP);
    add(v, TOKEN_forward, DOWN);
  }
  for (int i = 0; i < p - r; i++) add_forward_and_back(v, UP);
  while (*ups < *downs || *downs < n) {
    if (*downs < n) add(v, TOKEN_forward, DOWN);
    add_back(v, DOWN);
    add_forward_and_back(v, UP);
  }
  for (int i = 0; i < r; i++) {
    add(v, TOKEN_input_grad, DOWN);
    add(v, TOKEN_input_grad, UP);
  }
  for (int i = 0; i < p - r; i++) add_back(v, DOWN);
  while (v->counts[UP][TOKEN_weight_grad] < n) add(v, TOKEN_weight_grad, UP);
  while (v->counts[DOWN][TOKEN_weight_grad] < n)
    add(v, TOKEN_weight_grad, DOWN);
}

static Tokens *published_order(Arena *arena, const PipelineShape *shape) {
  int p = shape->ranks, m = shape->microbatches;
  Tokens *order = ARENA_ARRAY(arena, Tokens, p);
  for (int r = 0; r < p; r++) {
    Vee v = {.arena = arena,
             .list = &order[r],
             .n_microbatches = m,
             .stages = {r, 2 * p - 1 - r}};
    add_rank(&v, p, r, m > 2 * p - 1 ? m : 2 * p - 1);
  }
  return order;
}

/* ---- the schedules ---- */

void schedule_zbv(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  Trials *trials = trials_begin(arena, shape, 2 * shape->ranks);
  trials_play(trials, published_order(arena, shape),
              (TrialRules){.weights = TRIAL_given});
  trials_play_patterns(trials);
  trials_end(trials, lists);
}

static void play_bounded(Arena *arena, const PipelineShape *shape,
                         int most_live, Tokens *lists) {
  int zbv = 2 * shape->ranks;
  Trials *trials =
      trials_begin(arena, shape, most_live < zbv ? most_live : zbv);
  trials_play_patterns(trials);
  trials_end(trials, lists);
}

void schedule_vhalf(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  play_bounded(arena, shape, shape->ranks + 2, lists);
}

void schedule_vmin(Arena *arena, const PipelineShape *shape, Tokens *lists) {
  play_bounded(arena, shape, (shape->ranks + 4) / 3 * 2, lists);
}
