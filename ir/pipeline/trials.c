/*
 * trials.c -- plays orders of calls on ranks, where messages take no time, and
 * keeps the shortest.
 *
 *     0F0 0F1 0I0 0F2 0I1 0I2        0F0 0F1 0W0 ...
 *     1F0 1I0 1F1 1I1 1F2 1I2   =>   1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2
 *
 * Each rank takes the next call of its order when that has what it reads. Where
 * it would wait, or has no memory for the next F, it computes the oldest W that
 * is left.  Time is counted from one end of a call to the next.
 */
#include "ir/pipeline/trials.h"

#include <string.h>

#define NEVER INT64_MAX

enum {
  LONGEST = 1000000,      /* time of a call */
  MOST_STEPS = 1 << 23,   /* of all trials: about 0.2 s */
  MOST_CALLS_A_BATCH = 3, /* F, I and W */
};

/* The state of a rank in a trial. */
typedef struct Player {
  const Tokens *order;
  bool *is_taken;        /* by place in the order */
  int head;              /* the first one that is not */
  Token *made, *weights; /* calls in order; W of each I, in its order */
  int n_made, n_weights, n_weights_made;
  int live;  /* F whose W is not made */
  int begun; /* on a V: micro-batches between F of its first and second stage */
  int64_t begin, now;
  int64_t left; /* time of the calls that are not made */
} Player;

struct Trials {
  Arena *arena;
  const PipelineShape *shape;
  int most_live, n_calls; /* of a rank */
  int64_t durations[N_TOKENS];
  Player *players;
  int64_t *ends[2]; /* of F and I by stage and micro-batch; NEVER: not made */
  TrialRules rules;
  int64_t time;
  int64_t n_steps;
  Token **best; /* by rank */
  int64_t best_step, best_span;
};

/* ---- times ---- */

static void set_durations(Trials *t, const PipelineTimes *times) {
  int64_t of[3] = {times->forward, times->input_grad, times->weight_grad};
  int64_t longest = 0;
  for (int i = 0; i < 3; i++)
    if (of[i] > longest) longest = of[i];
  for (int i = 0; i < 3; i++) {
    if (longest > LONGEST)
      of[i] = (int64_t)((double)of[i] / (double)longest * LONGEST);
    if (of[i] < 1) of[i] = 1; /* so that time goes on */
  }
  t->durations[TOKEN_forward] = of[0];
  t->durations[TOKEN_input_grad] = of[1];
  t->durations[TOKEN_weight_grad] = of[2];
}

Trials *trials_begin(Arena *arena, const PipelineShape *shape, int most_live) {
  int p = shape->ranks, n = shape->stages * shape->microbatches;
  Trials *t = ARENA_NEW(arena, Trials);
  *t = (Trials){.arena = arena,
                .shape = shape,
                .most_live = most_live,
                .n_calls = MOST_CALLS_A_BATCH * n / p,
                .players = ARENA_ARRAY(arena, Player, p),
                .best = ARENA_ARRAY(arena, Token *, p),
                .best_step = NEVER,
                .best_span = NEVER};
  set_durations(t, &shape->times);
  for (int i = 0; i < 2; i++) t->ends[i] = ARENA_ARRAY(arena, int64_t, n);
  for (int r = 0; r < p; r++) {
    Player *player = &t->players[r];
    player->is_taken = ARENA_ARRAY(arena, bool, t->n_calls);
    player->made = ARENA_ARRAY(arena, Token, t->n_calls);
    player->weights = ARENA_ARRAY(arena, Token, t->n_calls);
    t->best[r] = ARENA_ARRAY(arena, Token, t->n_calls);
  }
  return t;
}

/* Calls of a rank: as many of each kind. */
static int64_t time_of_rank(const Trials *t) {
  return (t->durations[TOKEN_forward] + t->durations[TOKEN_input_grad] +
          t->durations[TOKEN_weight_grad]) *
         (t->n_calls / MOST_CALLS_A_BATCH);
}

static void reset(Trials *t, const Tokens *order) {
  int n = t->shape->stages * t->shape->microbatches;
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < n; k++) t->ends[i][k] = NEVER;
  for (int r = 0; r < t->shape->ranks; r++) {
    Player *player = &t->players[r];
    *player = (Player){.order = &order[r],
                       .is_taken = player->is_taken,
                       .made = player->made,
                       .weights = player->weights,
                       .begin = NEVER,
                       .left = time_of_rank(t)};
    memset(player->is_taken, 0, (size_t)t->n_calls * sizeof(bool));
  }
  t->time = 0;
}

/* ---- calls ---- */

static int64_t *end_of(const Trials *t, TokenKind kind, int stage,
                       int microbatch) {
  return &t->ends[kind == TOKEN_input_grad]
                 [stage * t->shape->microbatches + microbatch];
}

static bool has_ended(const Trials *t, TokenKind kind, int stage,
                      int microbatch) {
  return *end_of(t, kind, stage, microbatch) <= t->time;
}

static bool is_ready(const Trials *t, const Token *token) {
  int stage = token->stage, m = token->microbatch;
  switch (token->kind) {
  case TOKEN_forward:
    return stage == 0 || has_ended(t, TOKEN_forward, stage - 1, m);
  case TOKEN_input_grad:
    return has_ended(t, TOKEN_forward, stage, m) &&
           (stage == t->shape->stages - 1 ||
            has_ended(t, TOKEN_input_grad, stage + 1, m));
  default: return has_ended(t, TOKEN_input_grad, stage, m);
  }
}

static bool is_vee(const Trials *t) {
  return t->shape->stages > t->shape->ranks;
}

static bool is_first_of_two(const Trials *t, const Token *token) {
  return is_vee(t) && token->stage < t->shape->ranks;
}

/* An F that comes early must leave what the calls before it need: F of its
 * micro-batch through the rank's other stage, and the reserve. */
static bool has_memory(const Trials *t, const Player *player,
                       const Token *token, bool is_early) {
  int live = player->live, most = t->most_live;
  if (token->kind != TOKEN_forward) return true;
  if (is_early) most -= t->rules.reserve;
  if (is_early && is_first_of_two(t, token)) live += player->begun;
  return live < most;
}

/* Returns the place of a call that can be made now, or -1.  Calls of one kind
 * and stage keep their order. */
static int find_call(Trials *t, const Player *player) {
  const Tokens *order = player->order;
  unsigned passed = 0;
  int n_seen = 0;
  for (int i = player->head; i < order->n && n_seen <= t->rules.window; i++) {
    const Token *token = &order->data[i];
    if (player->is_taken[i]) continue;
    unsigned bit = 1u << (2 * (token->kind == TOKEN_forward) +
                          (token->stage >= t->shape->ranks));
    if (!(passed & bit) && is_ready(t, token)) {
      if (has_memory(t, player, token, n_seen > 0)) return i;
      if (n_seen == 0) return -1; /* W frees what it needs */
    }
    passed |= bit;
    n_seen++;
  }
  return -1;
}

static void make(Trials *t, Player *player, Token token) {
  player->made[player->n_made++] = token;
  if (player->begin == NEVER) player->begin = t->time;
  player->now = t->time + t->durations[token.kind];
  player->left -= t->durations[token.kind];
  switch (token.kind) {
  case TOKEN_forward:
    player->live++;
    player->begun += is_first_of_two(t, &token) ? 1 : -1;
    break;
  case TOKEN_weight_grad: player->live--; return;
  default: break;
  }
  *end_of(t, token.kind, token.stage, token.microbatch) = player->now;
  if (token.kind == TOKEN_input_grad && t->rules.weights != TRIAL_given) {
    token.kind = TOKEN_weight_grad;
    player->weights[player->n_weights++] = token;
  }
}

static void step(Trials *t, Player *player) {
  bool has_weights = player->n_weights > player->n_weights_made;
  t->n_steps++;
  int at = has_weights && t->rules.weights == TRIAL_early
               ? -1
               : find_call(t, player);
  if (at >= 0) {
    player->is_taken[at] = true;
    while (player->head < player->order->n && player->is_taken[player->head])
      player->head++;
    make(t, player, player->order->data[at]);
  } else if (has_weights) {
    make(t, player, player->weights[player->n_weights_made++]);
  }
}

/* ---- trials ---- */

/* A rank that waits now takes longer than the best trial did. */
static bool is_late(const Trials *t, const Player *player) {
  return player->now <= t->time && player->left > 0 &&
         t->best_step - player->left < t->time;
}

/* Returns false if the ranks came to a stand before all was made, or are slower
 * than in the best trial. */
static bool play(Trials *t) {
  int64_t next = 0;
  while (next != NEVER) {
    t->time = next;
    next = NEVER;
    for (int r = 0; r < t->shape->ranks; r++) {
      Player *player = &t->players[r];
      if (player->now <= t->time) step(t, player);
      if (is_late(t, player)) return false;
      if (player->now > t->time && player->now < next) next = player->now;
    }
  }
  for (int r = 0; r < t->shape->ranks; r++)
    if (t->players[r].n_made < t->n_calls) return false;
  return true;
}

static void keep_if_better(Trials *t) {
  int64_t last = 0, span = 0;
  for (int r = 0; r < t->shape->ranks; r++) {
    const Player *player = &t->players[r];
    if (player->now > last) last = player->now;
    if (player->now - player->begin > span) span = player->now - player->begin;
  }
  if (last > t->best_step || (last == t->best_step && span >= t->best_span))
    return;
  t->best_step = last;
  t->best_span = span;
  for (int r = 0; r < t->shape->ranks; r++) {
    Token *made = t->best[r];
    t->best[r] = t->players[r].made;
    t->players[r].made = made;
  }
}

static bool is_tired(const Trials *t) {
  return t->best_step != NEVER && t->n_steps > MOST_STEPS;
}

void trials_play(Trials *t, const Tokens *order, TrialRules rules) {
  if (is_tired(t)) return;
  t->rules = rules;
  reset(t, order);
  if (play(t)) keep_if_better(t);
}

void trials_end(Trials *t, Tokens *lists) {
  ASSERT(t->best_step != NEVER);
  for (int r = 0; r < t->shape->ranks; r++)
    for (int i = 0; i < t->n_calls; i++)
      vec_push(t->arena, &lists[r], t->best[r][i]);
}

/* ---- patterns ---- */

enum { MOST_PASSES = 4, MOST_PACE = 3 };

/* A pass of micro-batches over the ranks: of F or I through the first or the
 * second stages. */
typedef struct Pass {
  TokenKind kind;
  bool goes_down; /* towards rank 0 */
  int chunk;
  int64_t begin,
      pace; /* of micro-batch 0 at its first rank; a rank to the next */
} Pass;

/* The times by which calls are ordered, which need not be those of the calls.
 */
typedef struct Clock {
  int64_t forward, input_grad, period;
} Clock;

/* Times are those of micro-batch 0 where ranks never wait for memory; `paces`
 * are multiples of the time of a call. */
static int make_passes(const Trials *t, const Clock *clock, const int *paces,
                       Pass *passes) {
  int n = is_vee(t) ? 4 : 2;
  int64_t begin = 0;
  for (int i = 0; i < n; i++) {
    TokenKind kind = i < n / 2 ? TOKEN_forward : TOKEN_input_grad;
    int64_t duration =
        kind == TOKEN_forward ? clock->forward : clock->input_grad;
    passes[i] = (Pass){.kind = kind,
                       .goes_down = i % 2 == 1,
                       .chunk = n == 4 && (i == 1 || i == 2),
                       .begin = begin,
                       .pace = paces[i] * duration};
    begin += passes[i].pace * (t->shape->ranks - 1) + duration;
  }
  return n;
}

static int64_t pass_time(const Trials *t, const Pass *pass, int64_t period,
                         int rank, int microbatch) {
  int p = t->shape->ranks, hops = pass->goes_down ? p - 1 - rank : rank;
  return pass->begin + hops * pass->pace + microbatch * period;
}

/* Merges the passes of a rank by their times; of equal ones backward passes
 * come first, which free memory, and those of the second stages before those of
 * the first ones. */
static void merge_passes(const Trials *t, const Pass *passes, int n,
                         int64_t period, int rank, Tokens *list) {
  static const int turns[MOST_PASSES] = {2, 3, 1, 0};
  int at[MOST_PASSES] = {0}, p = t->shape->ranks;
  list->n = 0;
  for (;;) {
    int next = -1;
    int64_t least = NEVER;
    for (int k = 0; k < MOST_PASSES; k++) {
      int i = turns[k];
      if (i >= n || at[i] == t->shape->microbatches) continue;
      int64_t time = pass_time(t, &passes[i], period, rank, at[i]);
      if (time >= least) continue;
      least = time;
      next = i;
    }
    if (next < 0) return;
    schedule_add(t->arena, list, passes[next].kind,
                 passes[next].chunk ? 2 * p - 1 - rank : rank, at[next]++);
  }
}

static void play_pattern(Trials *t, const Clock *clock, const int *paces,
                         Tokens *order) {
  static const TrialRules rules[] = {
      {TRIAL_late, 0, 0}, {TRIAL_late, 3, 0}, {TRIAL_late, 3, 1}};
  Pass passes[MOST_PASSES];
  int n = make_passes(t, clock, paces, passes);
  for (int r = 0; r < t->shape->ranks; r++)
    merge_passes(t, passes, n, clock->period, r, &order[r]);
  for (int i = 0; i < ARRAY_LENGTH(rules); i++) trials_play(t, order, rules[i]);
}

static void play_clock(Trials *t, const Clock *clock) {
  Tokens *order = ARENA_ARRAY(t->arena, Tokens, t->shape->ranks);
  int n = is_vee(t) ? 4 : 2, n_all = 1;
  for (int i = 0; i < n; i++) n_all *= MOST_PACE;
  for (int k = 0; k < n_all && !is_tired(t); k++) {
    int paces[MOST_PASSES];
    for (int i = 0, rest = k; i < n; i++, rest /= MOST_PACE)
      paces[i] = 1 + rest % MOST_PACE;
    play_pattern(t, clock, paces, order);
  }
}

/* With equal times and paces of 1 no pattern needs more memory than vmin has,
 * so there is one that ends. */
void trials_play_patterns(Trials *t) {
  int chunks = t->shape->stages / t->shape->ranks;
  int64_t f = t->durations[TOKEN_forward], i = t->durations[TOKEN_input_grad],
          w = t->durations[TOKEN_weight_grad];
  play_clock(t, &(Clock){1, 1, 3 * chunks});
  if (f != i || i != w) play_clock(t, &(Clock){f, i, chunks * (f + i + w)});
}
