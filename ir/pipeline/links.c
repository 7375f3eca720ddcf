/*
 * links.c -- finds what calls leave for others, and visits calls in an order in
 * which each finds what it reads.
 */
#include "ir/pipeline/links.h"

#include <string.h>

/* ---- links ---- */

typedef struct Linker {
  Arena *arena;
  const Pipeline *pipeline;
  PipelineCalls *calls;
  CallLinks links;
} Linker;

static const TokenPlace nowhere = {-1, -1};

static void link_own(Linker *l, TokenPlace to, const Token *token) {
  TokenKind kind;
  CallLink link = {
      .to = to, .from = nowhere, .edge = -1, .microbatch = token->microbatch};
  if (!token_reads_own(token->kind, &kind)) return;
  pipeline_find_call(l->calls, kind, token->stage, token->microbatch,
                     &link.from);
  vec_push(l->arena, &l->links, link);
}

static void link_edge(Linker *l, int e) {
  const PipelineEdge *edge = &l->pipeline->edges[e];
  bool is_of_step = token_info(edge->from)->is_of_step;
  ASSERT(is_of_step == token_info(edge->to)->is_of_step);
  int n = is_of_step ? 1 : l->pipeline->n_microbatches;
  for (int m = 0; m < n; m++) {
    CallLink link = {.from = nowhere, .edge = e, .microbatch = m};
    if (!pipeline_find_call(l->calls, edge->to, edge->to_stage,
                            edge_reader(edge, m), &link.to))
      continue; /* as in an evaluation, which has no backward pass */
    pipeline_find_call(l->calls, edge->from, edge->from_stage,
                       edge_writer(edge, m), &link.from);
    bool is_one = link.from.rank == link.to.rank && link.from.at == link.to.at;
    if (!is_one) vec_push(l->arena, &l->links, link);
  }
}

CallLinks pipeline_links(Arena *arena, const Pipeline *pipeline) {
  Linker l = {.arena = arena,
              .pipeline = pipeline,
              .calls = pipeline_calls(arena, pipeline)};
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++)
      link_own(&l, (TokenPlace){r, i}, &pipeline->lists[r].data[i]);
  for (int e = 0; e < pipeline->n_edges; e++) link_edge(&l, e);
  return l.links;
}

/* ---- sweep ---- */

typedef struct Sweep {
  const Pipeline *pipeline;
  int *first;   /* [n_ranks]: number of its first token */
  int *n_waits; /* by token: calls that it waits for */
  int *at;      /* [n_ranks]: tokens that are done */
  int *begin;   /* by token: its links in `out` */
  const CallLink **out;
} Sweep;

static int token_number(const Sweep *s, TokenPlace place) {
  return s->first[place.rank] + place.at;
}

/* One more than the last token that is joined with the one at `at`. */
static int end_of_action(const Tokens *list, int at) {
  do at++;
  while (at < list->n && list->data[at].is_joined);
  return at;
}

/* Parts of one action do not wait for each other. */
static bool is_in_one_action(const Pipeline *pipeline, const CallLink *link) {
  if (link->from.rank != link->to.rank || link->from.at > link->to.at)
    return false;
  const Tokens *list = &pipeline->lists[link->to.rank];
  for (int i = link->from.at + 1; i <= link->to.at; i++)
    if (!list->data[i].is_joined) return false;
  return true;
}

static Sweep sweep_begin(Arena *arena, const Pipeline *pipeline) {
  Sweep s = {.pipeline = pipeline};
  int n_tokens = 0;
  s.first = ARENA_ARRAY(arena, int, pipeline->n_ranks);
  s.at = ARENA_ARRAY(arena, int, pipeline->n_ranks);
  for (int r = 0; r < pipeline->n_ranks; r++) {
    s.first[r] = n_tokens;
    n_tokens += pipeline->lists[r].n;
  }
  s.n_waits = ARENA_ARRAY(arena, int, n_tokens);
  s.begin = ARENA_ARRAY(arena, int, n_tokens + 1);
  CallLinks links = pipeline_links(arena, pipeline);
  s.out = ARENA_ARRAY(arena, const CallLink *, links.n);
  for (int i = 0; i < links.n; i++) {
    const CallLink *link = &links.data[i];
    if (link->from.rank < 0) continue;
    s.begin[token_number(&s, link->from)]++;
    if (!is_in_one_action(pipeline, link))
      s.n_waits[token_number(&s, link->to)]++;
  }
  for (int i = 0; i < n_tokens; i++) s.begin[i + 1] += s.begin[i];
  for (int i = links.n - 1; i >= 0; i--) /* the order of links is kept */
    if (links.data[i].from.rank >= 0)
      s.out[--s.begin[token_number(&s, links.data[i].from)]] = &links.data[i];
  return s;
}

static bool is_ready(const Sweep *s, int rank) {
  const Tokens *list = &s->pipeline->lists[rank];
  int end = end_of_action(list, s->at[rank]);
  for (int i = s->at[rank]; i < end; i++)
    if (s->n_waits[s->first[rank] + i] > 0) return false;
  return true;
}

/* Does the next action of a rank. */
static void take(Sweep *s, int rank, SweepVisit *visit, void *user) {
  int end = end_of_action(&s->pipeline->lists[rank], s->at[rank]);
  for (; s->at[rank] < end; s->at[rank]++) {
    TokenPlace place = {rank, s->at[rank]};
    int number = token_number(s, place), begin = s->begin[number];
    int n = s->begin[number + 1] - begin;
    for (int i = 0; i < n; i++)
      if (!is_in_one_action(s->pipeline, s->out[begin + i]))
        s->n_waits[token_number(s, s->out[begin + i]->to)]--;
    visit(user, place, &s->out[begin], n);
  }
}

void pipeline_sweep(Arena *arena, const Pipeline *pipeline, SweepVisit *visit,
                    void *user) {
  Sweep s = sweep_begin(arena, pipeline);
  for (;;) {
    int n_taken = 0, waiting = -1;
    for (int r = pipeline->n_ranks - 1; r >= 0; r--)
      if (s.at[r] < pipeline->lists[r].n) waiting = r;
    if (waiting < 0) return;
    for (int r = waiting; r < pipeline->n_ranks; r++) {
      if (s.at[r] >= pipeline->lists[r].n || !is_ready(&s, r)) continue;
      take(&s, r, visit, user);
      n_taken++;
    }
    if (n_taken == 0) take(&s, waiting, visit, user);
  }
}
