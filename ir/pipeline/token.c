/*
 * token.c -- prints tokens, finds the calls of a pipeline, and knows the edges
 * of a chain of stages.
 */
#include "ir/pipeline/links.h"

static const TokenInfo token_rows[] = {
#define PERIOD_microbatch false
#define PERIOD_step       true
#define TOKEN(name, text, role, period)                                        \
  {text, TOKEN_ROLE_##role, PERIOD_##period},
#include "ir/pipeline/tokens.def"
#undef PERIOD_microbatch
#undef PERIOD_step
};

const TokenInfo *token_info(TokenKind kind) {
  return &token_rows[kind];
}

bool token_reads_own(TokenKind kind, TokenKind *out) {
  switch (kind) {
  case TOKEN_backward:
  case TOKEN_input_grad: *out = TOKEN_forward; return true;
  case TOKEN_weight_grad: *out = TOKEN_input_grad; return true;
  default: return false;
  }
}

bool pipeline_splits_backward(const Pipeline *pipeline) {
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      TokenKind kind = pipeline->lists[r].data[i].kind;
      if (kind == TOKEN_input_grad || kind == TOKEN_weight_grad) return true;
    }
  return false;
}

/* ---- text ---- */

/* The stages of a message are neighbours: forward it goes up, backward down. */
static bool is_of_chain(const PipelineEdge *edge) {
  int up = edge->to_stage - edge->from_stage;
  return up == (edge->from == TOKEN_forward ? 1 : -1);
}

void token_print(Text *out, const Pipeline *pipeline, const Token *token) {
  const TokenInfo *info = token_info(token->kind);
  text_printf(out, "%d%s", token->stage, info->text);
  if (!info->is_of_step)
    text_printf(out, "%d", token->microbatch);
  else if (token->microbatch > 0)
    text_printf(out, ".%d", token->microbatch);
  bool is_send = info->role == TOKEN_ROLE_send;
  if (!is_send && info->role != TOKEN_ROLE_receive) return;
  const PipelineEdge *edge = &pipeline->edges[token->edge];
  if (!is_of_chain(edge))
    text_printf(out, "%c%d", is_send ? '>' : '<',
                is_send ? edge->to_stage : edge->from_stage);
}

const char *token_text(Arena *arena, const Pipeline *pipeline,
                       const Token *token) {
  Text text = text_create(arena);
  token_print(&text, pipeline, token);
  return text_string(&text);
}

/* Tokens that are joined stand in brackets. */
static void print_list(Text *out, const Pipeline *pipeline,
                       const Tokens *list) {
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    bool joins_next = i + 1 < list->n && list->data[i + 1].is_joined;
    text_add(out, i == 0 ? "" : token->is_joined ? ";" : ",");
    if (joins_next && !token->is_joined) text_add(out, "(");
    token_print(out, pipeline, token);
    if (token->is_joined && !joins_next) text_add(out, ")OVERLAP_F_B");
  }
}

void pipeline_print(Text *out, const Pipeline *pipeline) {
  for (int r = 0; r < pipeline->n_ranks; r++) {
    print_list(out, pipeline, &pipeline->lists[r]);
    text_add(out, "\n");
  }
}

bool pipeline_has_messages(const Pipeline *pipeline) {
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      TokenRole role = token_info(pipeline->lists[r].data[i].kind)->role;
      if (role == TOKEN_ROLE_send || role == TOKEN_ROLE_receive) return true;
    }
  return false;
}

/* ---- calls ---- */

struct PipelineCalls {
  PairMap *places; /* by kind, stage and micro-batch */
};

static void add_call(Arena *arena, PipelineCalls *calls, const Token *token,
                     TokenPlace place) {
  int row = token_row(token->kind, token->stage);
  if (token_info(token->kind)->role != TOKEN_ROLE_call ||
      pair_map_get(calls->places, row, token->microbatch))
    return;
  pair_map_put(calls->places, row, token->microbatch,
               arena_copy(arena, &place, sizeof place));
}

PipelineCalls *pipeline_calls(Arena *arena, const Pipeline *pipeline) {
  PipelineCalls *calls = ARENA_NEW(arena, PipelineCalls);
  calls->places = pair_map_create(arena);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++)
      add_call(arena, calls, &pipeline->lists[r].data[i], (TokenPlace){r, i});
  return calls;
}

bool pipeline_find_call(const PipelineCalls *calls, TokenKind kind, int stage,
                        int microbatch, TokenPlace *out) {
  const TokenPlace *place =
      pair_map_get(calls->places, token_row(kind, stage), microbatch);
  bool is_part = kind == TOKEN_input_grad || kind == TOKEN_weight_grad;
  if (!place && is_part)
    place = pair_map_get(calls->places, token_row(TOKEN_backward, stage),
                         microbatch);
  if (place) *out = *place;
  return place != NULL;
}

/* ---- edges ---- */

/* Two for each pair of neighbours: up, then down. */
int pipeline_chain_edge(int n_stages, int from_stage, int to_stage) {
  int lower = from_stage < to_stage ? from_stage : to_stage;
  bool is_up = from_stage < to_stage;
  if (lower < 0 || lower + 1 >= n_stages) return -1;
  return 2 * lower + !is_up;
}

const PipelineEdge *pipeline_chain(Arena *arena, int n_stages, int *out_n) {
  int n = n_stages > 1 ? 2 * (n_stages - 1) : 0;
  PipelineEdge *edges = ARENA_ARRAY(arena, PipelineEdge, n);
  for (int s = 0; s + 1 < n_stages; s++) {
    edges[2 * s] = (PipelineEdge){.from = TOKEN_forward,
                                  .to = TOKEN_forward,
                                  .from_stage = s,
                                  .to_stage = s + 1,
                                  .dtype = DT_f32};
    edges[2 * s + 1] = (PipelineEdge){.from = TOKEN_input_grad,
                                      .to = TOKEN_input_grad,
                                      .from_stage = s + 1,
                                      .to_stage = s,
                                      .dtype = DT_f32};
  }
  *out_n = n;
  return edges;
}
