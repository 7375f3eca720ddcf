/*
 * stage_lives.c -- counts frames and slots of a schedule.
 *
 *     1RECV_F0 1F0 1RECV_F1 1B0 1F1 1B1      F0 lives 0..3, F1 2..5: two slots
 *
 * The lists have messages between neighbours.  A gradient that passes a stage
 * is received where one between neighbours would be: as late as its reader
 * allows, but before calls that begin when its sender makes the next one
 * (ir/pipeline/delay.c).
 */
#include "planner/stages/stage_lives.h"

#include "ir/pipeline/links.h"

struct StageLives {
  const Pipeline *pipeline, *lowered;
  const PipelineSchedule *schedule;
  bool is_split;
  int *call;       /* [token_row * n + micro-batch]: place in its list, or -1 */
  int *arrival;    /* [edge * n + micro-batch]: of the receive, or -1 */
  int64_t *begins; /* as `call`: when it begins */
};

typedef struct Life {
  int begin, end; /* places in the list; -1: none */
} Life;

static int group_of(const StageLives *l, int stage) {
  return pipeline_rank_of_stage(l->schedule, l->pipeline->n_ranks, stage);
}

static int call_index(const StageLives *l, TokenKind kind, int stage, int m) {
  return token_row(kind, stage) * l->pipeline->n_microbatches + m;
}

/* I and W mean B where the schedule has that, in some calls or all. */
static int find_call(const StageLives *l, TokenKind kind, int stage, int m) {
  int at = call_index(l, kind, stage, m);
  bool is_part = kind == TOKEN_input_grad || kind == TOKEN_weight_grad;
  return is_part && l->call[at] < 0 ? call_index(l, TOKEN_backward, stage, m)
                                    : at;
}

/* ---- places and times ---- */

static void find_places(StageLives *l) {
  int n = l->pipeline->n_microbatches;
  for (int r = 0; r < l->lowered->n_ranks; r++)
    for (int i = 0; i < l->lowered->lists[r].n; i++) {
      const Token *token = &l->lowered->lists[r].data[i];
      TokenRole role = token_info(token->kind)->role;
      if (token_info(token->kind)->is_of_step) continue;
      if (role == TOKEN_ROLE_call)
        l->call[call_index(l, token->kind, token->stage, token->microbatch)] =
            i;
      if (role == TOKEN_ROLE_receive)
        l->arrival[token->edge * n + token->microbatch] = i;
    }
}

typedef struct Timer {
  StageLives *l;
  int *at;       /* by rank: place in its list */
  int64_t *now;  /* by rank */
  int64_t *ends; /* as `begins`; -1: not yet */
} Timer;

static bool wait_for(const Timer *t, TokenKind kind, int stage, int m,
                     int64_t *begin) {
  if (stage < 0 || stage >= t->l->pipeline->n_stages) return true;
  int64_t end = t->ends[find_call(t->l, kind, stage, m)];
  if (end < 0) return false;
  if (end > *begin) *begin = end;
  return true;
}

/* In the time of a forward pass; messages take none. */
static bool run_call(Timer *t, int rank, const Token *token) {
  int at = call_index(t->l, token->kind, token->stage, token->microbatch);
  int64_t begin = t->now[rank];
  bool is_forward = token->kind == TOKEN_forward;
  if (token->kind != TOKEN_weight_grad &&
      !wait_for(t, is_forward ? TOKEN_forward : TOKEN_input_grad,
                token->stage + (is_forward ? -1 : 1), token->microbatch,
                &begin))
    return false;
  t->l->begins[at] = begin;
  t->now[rank] = t->ends[at] = begin + (token->kind == TOKEN_backward ? 2 : 1);
  return true;
}

static void find_times(Arena *arena, StageLives *l) {
  const Pipeline *p = l->pipeline;
  int n = p->n_stages * N_TOKENS * p->n_microbatches;
  Timer t = {.l = l,
             .at = ARENA_ARRAY(arena, int, p->n_ranks),
             .now = ARENA_ARRAY(arena, int64_t, p->n_ranks),
             .ends = ARENA_ARRAY(arena, int64_t, n)};
  for (int i = 0; i < n; i++) t.ends[i] = -1;
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (int r = 0; r < p->n_ranks; r++)
      while (t.at[r] < p->lists[r].n) {
        const Token *token = &p->lists[r].data[t.at[r]];
        if (!token_info(token->kind)->is_of_step && !run_call(&t, r, token))
          break;
        t.at[r]++;
        has_moved = true;
      }
  }
}

StageLives *stage_lives_of(Arena *arena, const Pipeline *pipeline,
                           const Pipeline *lowered,
                           const PipelineSchedule *schedule) {
  StageLives *l = ARENA_NEW(arena, StageLives);
  int n = pipeline->n_microbatches, n_calls = pipeline->n_stages * N_TOKENS * n;
  *l =
      (StageLives){.pipeline = pipeline,
                   .lowered = lowered,
                   .schedule = schedule,
                   .is_split = schedule->splits_backward,
                   .call = ARENA_ARRAY(arena, int, n_calls),
                   .arrival = ARENA_ARRAY(arena, int, pipeline->n_edges *n + 1),
                   .begins = ARENA_ARRAY(arena, int64_t, n_calls)};
  for (int i = 0; i < n_calls; i++) l->call[i] = -1;
  for (int i = 0; i < pipeline->n_edges * n; i++) l->arrival[i] = -1;
  find_places(l);
  find_times(arena, l);
  return l;
}

/* ---- counting ---- */

/* Returns how many of them are alive at a time. */
static int most_alive(Arena *arena, const Life *lives, int n, int n_places) {
  int *change = ARENA_ARRAY(arena, int, n_places + 2);
  int alive = 0, most = 0;
  for (int m = 0; m < n; m++) {
    if (lives[m].begin < 0 || lives[m].end < lives[m].begin) continue;
    change[lives[m].begin]++;
    change[lives[m].end + 1]--;
  }
  for (int i = 0; i <= n_places; i++) {
    alive += change[i];
    if (alive > most) most = alive;
  }
  return most;
}

/* Values of all micro-batches that are shown are those of all of the step. */
static int places_of(Arena *arena, const StageLives *l, int stage,
                     const Life *lives, int microbatches) {
  int n = l->pipeline->n_microbatches;
  int most =
      most_alive(arena, lives, n, l->lowered->lists[group_of(l, stage)].n);
  if (most >= n) return microbatches;
  return most > 1 ? most : 1;
}

static int frames_between(Arena *arena, const StageLives *l, int stage,
                          TokenKind first, TokenKind last, int microbatches) {
  int n = l->pipeline->n_microbatches;
  Life *lives = ARENA_ARRAY(arena, Life, n);
  for (int m = 0; m < n; m++)
    lives[m] = (Life){l->call[find_call(l, first, stage, m)],
                      l->call[find_call(l, last, stage, m)]};
  return places_of(arena, l, stage, lives, microbatches);
}

StageFrames stage_frames(Arena *arena, const StageLives *l, int stage,
                         int microbatches) {
  Arena *own = arena_beside(arena);
  StageFrames out = {.whole = frames_between(own, l, stage, TOKEN_forward,
                                             TOKEN_weight_grad, microbatches),
                     .input = frames_between(own, l, stage, TOKEN_forward,
                                             TOKEN_input_grad, microbatches),
                     .weight = frames_between(own, l, stage, TOKEN_input_grad,
                                              TOKEN_weight_grad, microbatches)};
  arena_destroy(own);
  return out;
}

/* ---- slots ---- */

/* The place of the first call that begins when the sender makes the value of
 * the next micro-batch, if that is before the reader. */
static int delayed_arrival(const StageLives *l, const ReceivedValue *v,
                           int stage, int m, int reader) {
  const Tokens *list = &l->lowered->lists[group_of(l, stage)];
  TokenKind kind = v->is_back ? TOKEN_input_grad : TOKEN_forward;
  int at = reader;
  if (m + 1 == l->pipeline->n_microbatches) return reader;
  int64_t next = l->begins[find_call(l, kind, v->from, m + 1)];
  for (int i = reader - 1; i >= 0; i--) {
    const Token *token = &list->data[i];
    if (token_info(token->kind)->role != TOKEN_ROLE_call ||
        token_info(token->kind)->is_of_step)
      continue;
    if (l->begins[call_index(l, token->kind, token->stage, token->microbatch)] <
        next)
      break;
    at = i;
  }
  return at;
}

static Life life_of(const StageLives *l, const ReceivedValue *v, int stage,
                    int m) {
  static const TokenKind kinds[N_STAGE_CALLS] = {[CALL_F] = TOKEN_forward,
                                                 [CALL_I] = TOKEN_input_grad,
                                                 [CALL_W] = TOKEN_weight_grad};
  int n = l->pipeline->n_microbatches;
  TokenKind from = v->is_back ? TOKEN_input_grad : TOKEN_forward;
  Life life = {.end = l->call[find_call(l, kinds[v->last], stage, m)]};
  int reader = l->call[find_call(l, from, stage, m)];
  bool is_next = v->from + 1 == stage || v->from == stage + 1;
  int edge =
      is_next ? pipeline_chain_edge(l->pipeline->n_stages, v->from, stage) : -1;
  if (group_of(l, v->from) == group_of(l, stage))
    life.begin = l->call[find_call(l, from, v->from, m)];
  else if (edge >= 0)
    life.begin = l->arrival[edge * n + m];
  else
    life.begin = delayed_arrival(l, v, stage, m, reader);
  return life;
}

static void join(Life *to, const Life *more, int n) {
  for (int m = 0; m < n; m++) {
    if (to[m].begin < 0 || more[m].begin < to[m].begin)
      to[m].begin = more[m].begin;
    if (more[m].end > to[m].end) to[m].end = more[m].end;
  }
}

/* A value that needs one slot has it to itself; others have slots from the
 * first arrival of any of them to the last reader. */
Bytes stage_received_bytes(Arena *arena, const StageLives *l, int stage,
                           int microbatches, const ReceivedValues *values) {
  Arena *own = arena_beside(arena);
  int n = l->pipeline->n_microbatches;
  Life *all = ARENA_ARRAY(own, Life, n), *lives = ARENA_ARRAY(own, Life, n);
  Bytes one = 0, many = 0;
  for (int m = 0; m < n; m++) all[m] = (Life){-1, -1};
  for (int i = 0; i < values->n; i++) {
    const ReceivedValue *v = &values->data[i];
    for (int m = 0; m < n; m++) lives[m] = life_of(l, v, stage, m);
    bool is_one = places_of(own, l, stage, lives, microbatches) == 1;
    *(is_one ? &one : &many) += v->bytes;
    if (!is_one) join(all, lives, n);
  }
  if (many > 0) many *= places_of(own, l, stage, all, microbatches);
  arena_destroy(own);
  return one + many;
}
