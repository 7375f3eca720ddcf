/*
 * lower.c -- inserts the messages of a pipeline, and merges stages that share a
 * rank.
 *
 *     0F0 0F1 0B0 0B1         0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 ...
 *     1F0 1B0 1F1 1B1    =>   1RECV_F0 1RECV_F1 1F0 1B0 1SEND_B0 ...
 *
 * All ranks follow one sequence: a message goes to the ends of the lists of
 * both of its ranks when its value is there.  So the first message of that
 * sequence that has not passed is the next one of both of its ranks.
 */
#include "ir/pipeline/links.h"

#include <string.h>

typedef struct Lowering {
  Arena *arena;
  const Pipeline *from;
  Pipeline *to;
  const int *rank_of_stage; /* place: of each stage */
  const CallLink **held;    /* links of an action that has more parts */
  int n_held, capacity;
  /* By rank and call: when the call begins at the earliest, and how far the
   * rank is. */
  int64_t **begins, *now;
} Lowering;

static Pipeline *copy_without_lists(Arena *arena, const Pipeline *pipeline,
                                    int n_ranks) {
  Pipeline *copy = ARENA_NEW(arena, Pipeline);
  *copy = *pipeline;
  copy->n_ranks = n_ranks;
  copy->lists = ARENA_ARRAY(arena, Tokens, n_ranks);
  return copy;
}

static Pipeline *copy_of_calls(Arena *arena, const Pipeline *pipeline) {
  Pipeline *copy = copy_without_lists(arena, pipeline, pipeline->n_ranks);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      const Token *token = &pipeline->lists[r].data[i];
      if (token_info(token->kind)->role == TOKEN_ROLE_call)
        vec_push(arena, &copy->lists[r], *token);
    }
  return copy;
}

/* ---- messages ---- */

static void message_kinds(const PipelineEdge *edge, TokenKind *send,
                          TokenKind *receive) {
  *send = TOKEN_send_backward;
  *receive = TOKEN_receive_backward;
  if (token_info(edge->from)->is_of_step) {
    *send = TOKEN_send_step;
    *receive = TOKEN_receive_step;
  } else if (edge->from == TOKEN_forward) {
    *send = TOKEN_send_forward;
    *receive = TOKEN_receive_forward;
  }
}

static void add_message(Lowering *l, const CallLink *link) {
  if (link->edge < 0 || link->from.rank == link->to.rank) return;
  const PipelineEdge *edge = &l->from->edges[link->edge];
  Token send = {.stage = edge->from_stage,
                .microbatch = link->microbatch,
                .edge = link->edge,
                .peer = link->to.rank};
  Token receive = send;
  receive.stage = edge->to_stage;
  receive.peer = link->from.rank;
  message_kinds(edge, &send.kind, &receive.kind);
  vec_push(l->arena, &l->to->lists[link->from.rank], send);
  vec_push(l->arena, &l->to->lists[link->to.rank], receive);
}

/* ---- times ---- */

/* In the time of a forward pass. */
static int64_t duration_of(TokenKind kind) {
  if (token_info(kind)->is_of_step) return 0;
  return kind == TOKEN_backward ? 2 : 1;
}

static void begin_times(Lowering *l) {
  int n = l->from->n_ranks;
  l->now = ARENA_ARRAY(l->arena, int64_t, n);
  l->begins = ARENA_ARRAY(l->arena, int64_t *, n);
  for (int r = 0; r < n; r++)
    l->begins[r] = ARENA_ARRAY(l->arena, int64_t, l->from->lists[r].n + 1);
}

/* Messages take no time.  Calls before it have told when what it reads is
 * there. */
static void note_times(Lowering *l, TokenPlace call, const CallLink *const *out,
                       int n_out) {
  int64_t *now = &l->now[call.rank], *begin = &l->begins[call.rank][call.at];
  if (*begin < *now) *begin = *now;
  *now = *begin + duration_of(l->from->lists[call.rank].data[call.at].kind);
  for (int i = 0; i < n_out; i++) {
    int64_t *reader = &l->begins[out[i]->to.rank][out[i]->to.at];
    if (*reader < *now) *reader = *now;
  }
}

/* ---- lowering ---- */

/* Messages of an action follow its last part. */
static void visit_to_lower(void *user, TokenPlace call,
                           const CallLink *const *out, int n_out) {
  Lowering *l = user;
  const Tokens *list = &l->from->lists[call.rank];
  note_times(l, call, out, n_out);
  vec_push(l->arena, &l->to->lists[call.rank], list->data[call.at]);
  VEC(const CallLink *) held = {l->held, l->n_held, l->capacity};
  for (int i = 0; i < n_out; i++) vec_push(l->arena, &held, out[i]);
  bool has_more = call.at + 1 < list->n && list->data[call.at + 1].is_joined;
  for (int i = 0; !has_more && i < held.n; i++) add_message(l, held.data[i]);
  l->held = held.data;
  l->n_held = has_more ? held.n : 0;
  l->capacity = held.capacity;
}

Pipeline *pipeline_lower(Arena *arena, const Pipeline *pipeline) {
  Lowering l = {.arena = arena, .from = copy_of_calls(arena, pipeline)};
  l.to = copy_without_lists(arena, pipeline, pipeline->n_ranks);
  begin_times(&l);
  pipeline_sweep(arena, l.from, visit_to_lower, &l);
  pipeline_delay_receives(arena, l.to, (const int64_t *const *)l.begins);
  return l.to;
}

/* ---- stages that share a rank ---- */

static void visit_to_place(void *user, TokenPlace call,
                           const CallLink *const *out, int n_out) {
  (void)out;
  (void)n_out;
  Lowering *l = user;
  const Token *token = &l->from->lists[call.rank].data[call.at];
  vec_push(l->arena, &l->to->lists[l->rank_of_stage[token->stage]], *token);
}

Pipeline *pipeline_place(Arena *arena, const Pipeline *pipeline, int n_ranks,
                         const int *rank_of_stage) {
  Lowering l = {.arena = arena,
                .from = copy_of_calls(arena, pipeline),
                .to = copy_without_lists(arena, pipeline, n_ranks),
                .rank_of_stage = rank_of_stage};
  pipeline_sweep(arena, l.from, visit_to_place, &l);
  return l.to;
}
