/*
 * dualpipev.c -- yields DualPipeV, the half of DualPipe (DeepSeek-AI 2024) that
 * needs one copy of the weights: rank r of p has the stages r and 2p - 1 - r.
 *
 * A rank runs the forward pass of one of its stages together with the backward
 * pass of the other: "(0F3;3B1)OVERLAP_F_B" is one action, whose messages and
 * computations hide each other.  With the first stage of a rank called down and
 * the second one up, rank r runs
 *
 *     2 (p - 1 - r)  times  F down
 *     r + 1          times  F down, F up
 *     p - 1 - r      times  I up, W, F up
 *     m - 2p + r + 1 times  F down with B up, F up with B down
 *     p - 1 - r      times  B up, F up with B down
 *     r + 1          times  B up, B down
 *     p - 1 - r      times  W, I down
 *     r + 1          times  W
 *
 * W is the oldest one that is left.  Half of the backward passes of the sixth
 * line leave their W to the last two.  The last rank begins the fourth line
 * with F and B one after the other.
 */
#include "ir/pipeline/schedules.h"

typedef struct Dual {
  Arena *arena;
  Tokens *list, weights; /* W that are left, `n_done` of which are made */
  int stages[2];         /* down, up */
  int n_forward[2], n_backward[2], n_done;
  bool divides; /* B is I, and W for later */
} Dual;

enum { DOWN, UP };

const char *schedule_needs_double(Arena *arena, const PipelineShape *shape) {
  int least = 2 * shape->ranks;
  if (shape->microbatches >= least) return NULL;
  return arena_printf(arena,
                      "at least %d micro-batches on %d ranks, two a rank; "
                      "there are %d",
                      least, shape->ranks, shape->microbatches);
}

static void add_forward(Dual *d, int chunk) {
  schedule_add(d->arena, d->list, TOKEN_forward, d->stages[chunk],
               d->n_forward[chunk]++);
}

static void add_backward(Dual *d, int chunk) {
  Token token = {.kind = d->divides ? TOKEN_input_grad : TOKEN_backward,
                 .stage = d->stages[chunk],
                 .microbatch = d->n_backward[chunk]++};
  vec_push(d->arena, d->list, token);
  token.kind = TOKEN_weight_grad;
  if (d->divides) vec_push(d->arena, &d->weights, token);
}

static void add_weights(Dual *d) {
  vec_push(d->arena, d->list, d->weights.data[d->n_done++]);
}

static void add_both(Dual *d, int forward, bool is_joined) {
  add_forward(d, forward);
  add_backward(d, !forward);
  d->list->data[d->list->n - 1].is_joined = is_joined;
}

/* The first four lines. */
static void add_beginning(Dual *d, int p, int m, int r) {
  for (int i = 0; i < 2 * (p - 1 - r); i++) add_forward(d, DOWN);
  for (int i = 0; i < r + 1; i++) {
    add_forward(d, DOWN);
    add_forward(d, UP);
  }
  d->divides = true;
  for (int i = 0; i < p - 1 - r; i++) {
    add_backward(d, UP);
    add_weights(d);
    add_forward(d, UP);
  }
  d->divides = false;
  for (int i = 0; i < m - 2 * p + r + 1; i++) {
    add_both(d, DOWN, i > 0 || r < p - 1);
    add_both(d, UP, true);
  }
}

static void add_end(Dual *d, int p, int r) {
  for (int i = 0; i < p - 1 - r; i++) {
    add_backward(d, UP);
    add_both(d, UP, true);
  }
  for (int i = 0; i < 2 * (r + 1); i++) {
    d->divides = i > r;
    add_backward(d, i % 2 == 0 ? UP : DOWN);
  }
  for (int i = 0; i < p - 1 - r; i++) {
    add_weights(d);
    add_backward(d, DOWN);
  }
  for (int i = 0; i < r + 1; i++) add_weights(d);
}

void schedule_dualpipev(Arena *arena, const PipelineShape *shape,
                        Tokens *lists) {
  int p = shape->ranks;
  for (int r = 0; r < p; r++) {
    Dual d = {.arena = arena, .list = &lists[r], .stages = {r, 2 * p - 1 - r}};
    add_beginning(&d, p, shape->microbatches, r);
    add_end(&d, p, r);
  }
}
