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
  int n_rejected;
} Checker;

static void reject(Checker *c, const Token *token, const char *fact) {
  diag(c->diags, DIAG_schedule_cell, token->span,
       span_text(c->arena, token->span), fact);
  c->n_rejected++;
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
  Checker c = {.arena = arena,
               .diags = diags,
               .pipeline = pipeline,
               .calls = pipeline_calls(arena, pipeline)};
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++)
      check_call(&c, (TokenPlace){r, i});
}

/* ---- what is missing ---- */

/* The calls of a micro-batch through a stage; NULL: there is none. */
typedef struct OwnCalls {
  const Token *of[N_TOKENS];
} OwnCalls;

static void check_parts(Checker *c, const OwnCalls *own) {
  const Token *input = own->of[TOKEN_input_grad],
              *weight = own->of[TOKEN_weight_grad];
  const Token *part = input ? input : weight;
  if (own->of[TOKEN_backward] && part)
    reject(c, part,
           arena_printf(c->arena, "%dB%d is in the schedule and has it, too",
                        part->stage, part->microbatch));
  else if (input && !weight)
    reject(c, input,
           arena_printf(c->arena, "no rank runs %dW%d", input->stage,
                        input->microbatch));
}

static void check_own_calls(Checker *c, const OwnCalls *own, int microbatch,
                            const Token *of_stage, bool goes_back) {
  const Token *forward = own->of[TOKEN_forward];
  bool has_back = own->of[TOKEN_backward] || own->of[TOKEN_input_grad];
  if (!forward && !has_back)
    reject(c, of_stage,
           arena_printf(c->arena, "its stage has no %dF%d", of_stage->stage,
                        microbatch));
  if (forward && !has_back && goes_back)
    reject(c, forward,
           arena_printf(c->arena, "no rank runs %dB%d, or %dI%d and %dW%d",
                        forward->stage, microbatch, forward->stage, microbatch,
                        forward->stage, microbatch));
  check_parts(c, own);
}

/* Collects the calls of micro-batches by token_row.  Returns whether any goes
 * back; writes the first of each stage. */
static bool collect_calls(const Pipeline *pipeline, PairMap *calls,
                          const Token **of_stage) {
  bool goes_back = false;
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      Token *token = &pipeline->lists[r].data[i];
      const TokenInfo *info = token_info(token->kind);
      if (info->role != TOKEN_ROLE_call || info->is_of_step) continue;
      pair_map_put(calls, token_row(token->kind, token->stage),
                   token->microbatch, token);
      if (!of_stage[token->stage]) of_stage[token->stage] = token;
      goes_back |= token->kind != TOKEN_forward;
    }
  return goes_back;
}

void pipeline_check_complete(Arena *arena, Diags *diags,
                             const Pipeline *pipeline) {
  enum { ENOUGH = 20 }; /* a list of one large number lacks millions */
  Checker c = {.arena = arena, .diags = diags, .pipeline = pipeline};
  PairMap *calls = pair_map_create(arena);
  const Token **of_stage =
      ARENA_ARRAY(arena, const Token *, pipeline->n_stages);
  bool goes_back = collect_calls(pipeline, calls, of_stage);
  for (int s = 0; s < pipeline->n_stages; s++)
    /* The next stage needs one that has no call at all. */
    for (int m = 0; of_stage[s] && m < pipeline->n_microbatches; m++) {
      OwnCalls own;
      if (c.n_rejected >= ENOUGH) return;
      for (int kind = 0; kind < N_TOKENS; kind++)
        own.of[kind] = pair_map_get(calls, token_row((TokenKind)kind, s), m);
      check_own_calls(&c, &own, m, of_stage[s], goes_back);
    }
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
  Checker c = {.arena = arena,
               .diags = diags,
               .pipeline = pipeline,
               .calls = pipeline_calls(arena, pipeline)};
  PairMap *seen = pair_map_create(arena);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      check_own_rank(&c, (TokenPlace){r, i});
      find_message(&c, r, &pipeline->lists[r].data[i], seen);
    }
}
