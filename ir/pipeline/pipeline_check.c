/*
 * pipeline_check.c -- reports what is wrong with the calls and the messages of
 * a list that a person wrote; whether its ranks hang is left to rendezvous.c.
 */
#include "ir/pipeline/links.h"

typedef struct Checker {
  Arena *arena;
  Diags *diags;
  const Pipeline *pipeline;
  PipelineCalls *calls;
} Checker;

static void reject(Checker *c, const Token *token, const char *fact) {
  diag(c->diags, DIAG_schedule_cell, token->span,
       span_text(c->arena, token->span), fact);
}

/* ---- calls ---- */

static void check_need(Checker *c, TokenPlace place, TokenKind kind, int stage,
                       const char *text) {
  const Token *token = &c->pipeline->lists[place.rank].data[place.at];
  TokenPlace found;
  bool is_there =
      pipeline_find_call(c->calls, kind, stage, token->microbatch, &found);
  if (is_there && (found.rank != place.rank || found.at < place.at)) return;
  const char *name =
      arena_printf(c->arena, "%d%s%d", stage, text, token->microbatch);
  reject(c, token,
         arena_printf(c->arena,
                      is_there ? "it runs before %s, which it needs"
                               : "no rank runs %s, which it needs",
                      name));
}

static void check_call(Checker *c, TokenPlace place) {
  const Token *token = &c->pipeline->lists[place.rank].data[place.at];
  TokenKind own;
  if (token_reads_own(token->kind, &own))
    check_need(c, place, own, token->stage, token_info(own)->text);
  if (token->kind == TOKEN_forward && token->stage > 0)
    check_need(c, place, TOKEN_forward, token->stage - 1, "F");
  bool goes_back =
      token->kind == TOKEN_backward || token->kind == TOKEN_input_grad;
  if (goes_back && token->stage + 1 < c->pipeline->n_stages)
    check_need(c, place, TOKEN_input_grad, token->stage + 1, "B");
}

void pipeline_check_calls(Arena *arena, Diags *diags,
                          const Pipeline *pipeline) {
  Checker c = {arena, diags, pipeline, pipeline_calls(arena, pipeline)};
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++)
      check_call(&c, (TokenPlace){r, i});
}

/* ---- messages ---- */

/* Returns -1 if there is no such edge of the chain. */
static int find_edge(const Pipeline *pipeline, const Token *token) {
  bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
  int up, other;
  switch (token->kind) {
  case TOKEN_send_forward:
  case TOKEN_receive_forward: up = 1; break;
  case TOKEN_send_backward:
  case TOKEN_receive_backward: up = -1; break;
  default: return -1;
  }
  other = token->stage + (is_send ? up : -up);
  return pipeline_chain_edge(pipeline->n_stages, is_send ? token->stage : other,
                             is_send ? other : token->stage);
}

/* The rank of the other stage: that of the call there. */
static void find_peer(Checker *c, int rank, Token *token) {
  const PipelineEdge *edge = &c->pipeline->edges[token->edge];
  bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
  TokenKind kinds[2] = {edge->from, edge->to};
  int stages[2] = {edge->from_stage, edge->to_stage};
  TokenPlace own, other;
  if (!pipeline_find_call(c->calls, kinds[!is_send], stages[!is_send],
                          token->microbatch, &own) ||
      own.rank != rank) {
    reject(c, token, "this rank does not compute that");
  } else if (!pipeline_find_call(c->calls, kinds[is_send], stages[is_send],
                                 token->microbatch, &other)) {
    reject(c, token, "no rank computes the other stage of it");
  } else if (other.rank == rank) {
    reject(c, token, "both stages of it are on this rank");
  } else {
    token->peer = other.rank;
  }
}

static void find_message(Checker *c, int rank, Token *token, PairMap *seen) {
  TokenRole role = token_info(token->kind)->role;
  if (role != TOKEN_ROLE_send && role != TOKEN_ROLE_receive) return;
  token->edge = find_edge(c->pipeline, token);
  if (token->edge < 0 || token->microbatch >= c->pipeline->n_microbatches) {
    reject(c, token, "there is no such message between the stages");
    return;
  }
  int row = token_row(token->kind, token->stage);
  if (pair_map_get(seen, row, token->microbatch)) {
    reject(c, token, "it is there twice");
    return;
  }
  pair_map_put(seen, row, token->microbatch, token);
  find_peer(c, rank, token);
}

/* A rank keeps what the calls of a stage leave for each other. */
static void check_own_rank(Checker *c, TokenPlace place) {
  const Token *token = &c->pipeline->lists[place.rank].data[place.at];
  TokenKind own;
  TokenPlace found;
  if (token_reads_own(token->kind, &own) &&
      pipeline_find_call(c->calls, own, token->stage, token->microbatch,
                         &found) &&
      found.rank != place.rank)
    reject(c, token,
           arena_printf(c->arena, "rank %d runs %d%s%d, which it needs",
                        found.rank, token->stage, token_info(own)->text,
                        token->microbatch));
}

void pipeline_find_messages(Arena *arena, Diags *diags, Pipeline *pipeline) {
  Checker c = {arena, diags, pipeline, pipeline_calls(arena, pipeline)};
  PairMap *seen = pair_map_create(arena);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      check_own_rank(&c, (TokenPlace){r, i});
      find_message(&c, r, &pipeline->lists[r].data[i], seen);
    }
}
