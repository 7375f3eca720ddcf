/*
 * rendezvous_pipeline.c -- says what the ranks of a pipeline do, for the proof.
 */
#include "ir/pipeline/links.h"
#include "ir/pipeline/rendezvous.h"

typedef VEC(RendezvousNeed) Needs;

typedef struct Builder {
  Arena *arena;
  const Pipeline *pipeline;
  PairMap *receives; /* place of the first one of a message on a rank, plus 1 */
  Needs *needs;      /* by rank */
} Builder;

static int64_t message_number(const Pipeline *pipeline, int edge,
                              int microbatch) {
  return (int64_t)edge * pipeline->n_microbatches + microbatch;
}

static int receive_row(const Builder *b, int rank, int edge) {
  return edge * b->pipeline->n_ranks + rank;
}

static RendezvousAction action_of(Builder *b, int rank, int at) {
  const Token *token = &b->pipeline->lists[rank].data[at];
  TokenRole role = token_info(token->kind)->role;
  bool is_receive = role == TOKEN_ROLE_receive;
  if (role != TOKEN_ROLE_send && !is_receive)
    return (RendezvousAction){.kind = RENDEZVOUS_call};
  const PipelineEdge *edge = &b->pipeline->edges[token->edge];
  int64_t message = message_number(b->pipeline, token->edge, token->microbatch);
  int row = receive_row(b, rank, token->edge);
  if (is_receive && !pair_map_get(b->receives, row, token->microbatch))
    pair_map_put(b->receives, row, token->microbatch,
                 (void *)(intptr_t)(at + 1));
  return (RendezvousAction){.kind = is_receive ? RENDEZVOUS_receive
                                               : RENDEZVOUS_send,
                            .peer = token->peer,
                            .message = message,
                            .bytes = edge->bytes,
                            .dtype = edge->dtype};
}

static void add_need(Builder *b, int rank, int before, int after) {
  vec_push(b->arena, &b->needs[rank], (RendezvousNeed){before, after});
}

/* A message that is nowhere leaves its reader without a value. */
static void add_link(Builder *b, const CallLink *link) {
  int rank = link->to.rank, before = -1;
  if (link->from.rank == rank)
    before = link->from.at;
  else if (link->edge >= 0)
    before = (int)(intptr_t)pair_map_get(b->receives,
                                         receive_row(b, rank, link->edge),
                                         link->microbatch) -
             1;
  add_need(b, rank, before, link->to.at);
}

/* A send needs the call of its rank. */
static void add_sends(Builder *b, const PipelineCalls *calls, int rank) {
  const Tokens *list = &b->pipeline->lists[rank];
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    TokenPlace from;
    if (token_info(token->kind)->role != TOKEN_ROLE_send) continue;
    const PipelineEdge *edge = &b->pipeline->edges[token->edge];
    bool is_here =
        pipeline_find_call(calls, edge->from, edge->from_stage,
                           edge_writer(edge, token->microbatch), &from) &&
        from.rank == rank;
    add_need(b, rank, is_here ? from.at : -1, i);
  }
}

RendezvousProgram *pipeline_rendezvous(Arena *arena, const Pipeline *pipeline,
                                       int n_ranks) {
  Builder b = {.arena = arena,
               .pipeline = pipeline,
               .receives = pair_map_create(arena),
               .needs = ARENA_ARRAY(arena, Needs, pipeline->n_ranks)};
  RendezvousProgram *program = ARENA_NEW(arena, RendezvousProgram);
  RendezvousClass *classes =
      ARENA_ARRAY(arena, RendezvousClass, pipeline->n_ranks);
  for (int r = 0; r < pipeline->n_ranks; r++) {
    int n = pipeline->lists[r].n;
    RendezvousAction *actions = ARENA_ARRAY(arena, RendezvousAction, n);
    for (int i = 0; i < n; i++) actions[i] = action_of(&b, r, i);
    classes[r] = (RendezvousClass){
        .n_ranks = n_ranks, .n_actions = n, .actions = actions};
  }
  CallLinks links = pipeline_links(arena, pipeline);
  const PipelineCalls *calls = pipeline_calls(arena, pipeline);
  for (int i = 0; i < links.n; i++) add_link(&b, &links.data[i]);
  for (int r = 0; r < pipeline->n_ranks; r++) add_sends(&b, calls, r);
  for (int r = 0; r < pipeline->n_ranks; r++) {
    classes[r].needs = b.needs[r].data;
    classes[r].n_needs = b.needs[r].n;
  }
  *program = (RendezvousProgram){pipeline->n_ranks, classes};
  return program;
}
