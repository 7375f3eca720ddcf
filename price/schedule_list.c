/*
 * schedule_list.c -- turns the calls of a pipeline into a program of the
 * simulator.  A message passes between two actions where one needs what another
 * rank made.
 */
#include "price/schedule_list.h"

typedef struct Maker {
  Arena *arena;
  const Pipeline *pipeline;
  const ScheduleTimes *times;
  ScheduleList *list;
  PipelineCalls *calls;
  int *first;     /* [n_ranks]: number of its first token */
  int *action_of; /* by token; -1: none */
  VEC(ScheduleAction) actions;
  VEC(SimTransfer) transfers;
  VEC(int) senders; /* of the transfers */
} Maker;

typedef VEC(SimAction) SimActions;

static Ps duration_of(const ScheduleTimes *times, TokenKind kind) {
  switch (kind) {
  case TOKEN_forward: return times->forward;
  case TOKEN_input_grad: return times->input_grad;
  case TOKEN_weight_grad: return times->weight_grad;
  default: return times->input_grad + times->weight_grad;
  }
}

static bool is_timed(const Token *token) {
  const TokenInfo *info = token_info(token->kind);
  return info->role == TOKEN_ROLE_call && !info->is_of_step;
}

static void find_actions(Maker *m, int rank) {
  const Tokens *tokens = &m->pipeline->lists[rank];
  bool has_action = false;
  for (int i = 0; i < tokens->n; i++) {
    const Token *token = &tokens->data[i];
    m->action_of[m->first[rank] + i] = -1;
    if (!is_timed(token)) continue;
    if (!token->is_joined || !has_action)
      vec_push(m->arena, &m->actions,
               (ScheduleAction){.rank = rank, .first = i});
    has_action = true;
    ScheduleAction *action = &m->actions.data[m->actions.n - 1];
    action->end = i + 1;
    action->duration += duration_of(m->times, token->kind);
    m->action_of[m->first[rank] + i] = m->actions.n - 1;
  }
}

/* ---- what actions need ---- */

/* A message from the action that makes something to the one that needs it. */
static void add_message(Maker *m, int from, SimActions *after,
                        SimActions *before) {
  int id = m->transfers.n;
  vec_push(m->arena, &m->transfers, (SimTransfer){.n_starts = 1});
  vec_push(m->arena, &m->senders, from);
  vec_push(m->arena, &after[from],
           (SimAction){.kind = SIM_start, .transfer = id});
  vec_push(m->arena, before, (SimAction){.kind = SIM_wait, .transfer = id});
}

static void add_need(Maker *m, int reader, TokenKind kind, int stage,
                     int microbatch, SimActions *after, SimActions *before) {
  TokenPlace place;
  if (!pipeline_find_call(m->calls, kind, stage, microbatch, &place)) return;
  int from = m->action_of[m->first[place.rank] + place.at];
  if (place.rank != m->actions.data[reader].rank)
    add_message(m, from, after, &before[reader]);
}

static void add_needs(Maker *m, int reader, const Token *token,
                      SimActions *after, SimActions *before) {
  int stage = token->stage, microbatch = token->microbatch;
  TokenKind own;
  if (token->kind == TOKEN_forward && stage > 0)
    add_need(m, reader, TOKEN_forward, stage - 1, microbatch, after, before);
  if (token_reads_own(token->kind, &own))
    add_need(m, reader, own, stage, microbatch, after, before);
  if (token->kind == TOKEN_backward || token->kind == TOKEN_input_grad)
    add_need(m, reader, TOKEN_input_grad, stage + 1, microbatch, after, before);
}

/* ---- the program ---- */

static void make_program(Maker *m) {
  ScheduleList *list = m->list;
  int n = m->actions.n;
  SimActions *before = ARENA_ARRAY(m->arena, SimActions, n),
             *after = ARENA_ARRAY(m->arena, SimActions, n),
             *of_rank = ARENA_ARRAY(m->arena, SimActions, list->n_ranks);
  for (int i = 0; i < n; i++) {
    const ScheduleAction *action = &m->actions.data[i];
    for (int t = action->first; t < action->end; t++)
      if (m->action_of[m->first[action->rank] + t] == i)
        add_needs(m, i, &m->pipeline->lists[action->rank].data[t], after,
                  before);
  }
  for (int i = 0; i < n; i++) {
    const ScheduleAction *action = &m->actions.data[i];
    SimActions *to = &of_rank[action->rank];
    for (int k = 0; k < before[i].n; k++)
      vec_push(m->arena, to, before[i].data[k]);
    vec_push(
        m->arena, to,
        (SimAction){.kind = SIM_run, .duration = action->duration, .id = i});
    for (int k = 0; k < after[i].n; k++)
      vec_push(m->arena, to, after[i].data[k]);
    list->work[action->rank] += action->duration;
  }
  SimClass *classes = ARENA_ARRAY(m->arena, SimClass, list->n_ranks);
  for (int c = 0; c < list->n_ranks; c++)
    classes[c] = (SimClass){
        .n_actions = of_rank[c].n, .n_queues = 1, .actions = of_rank[c].data};
  list->program = (SimProgram){.n_classes = list->n_ranks,
                               .n_transfers = m->transfers.n,
                               .n_terms = 1,
                               .classes = classes,
                               .transfers = m->transfers.data};
}

static void count_live(const Maker *m, int rank) {
  int live = 0, *peak = &m->list->peak_live[rank];
  for (int i = 0; i < m->pipeline->lists[rank].n; i++) {
    TokenKind kind = m->pipeline->lists[rank].data[i].kind;
    if (kind == TOKEN_forward && ++live > *peak) *peak = live;
    if (kind == TOKEN_backward || kind == TOKEN_weight_grad) live--;
  }
}

ScheduleList *schedule_list_make(Arena *arena, const Pipeline *pipeline,
                                 const ScheduleTimes *times) {
  int n_ranks = pipeline->n_ranks, n_tokens = 0;
  Maker m = {.arena = arena,
             .pipeline = pipeline,
             .times = times,
             .list = ARENA_NEW(arena, ScheduleList),
             .calls = pipeline_calls(arena, pipeline),
             .first = ARENA_ARRAY(arena, int, n_ranks)};
  for (int r = 0; r < n_ranks; r++) {
    m.first[r] = n_tokens;
    n_tokens += pipeline->lists[r].n;
  }
  m.action_of = ARENA_ARRAY(arena, int, n_tokens);
  for (int r = 0; r < n_ranks; r++) find_actions(&m, r);
  *m.list = (ScheduleList){.pipeline = pipeline,
                           .n_ranks = n_ranks,
                           .n_stages = pipeline->n_stages,
                           .n_microbatches = pipeline->n_microbatches,
                           .n_actions = m.actions.n,
                           .actions = m.actions.data,
                           .work = ARENA_ARRAY(arena, Ps, n_ranks),
                           .peak_live = ARENA_ARRAY(arena, int, n_ranks)};
  make_program(&m);
  m.list->senders = m.senders.data;
  for (int r = 0; r < n_ranks; r++) count_live(&m, r);
  return m.list;
}

ScheduleList *schedule_list_read(Arena *arena, Diags *diags,
                                 const Source *source,
                                 const ScheduleTimes *times) {
  int n_errors = diags_errors(diags);
  Pipeline *pipeline = pipeline_read(arena, diags, source);
  if (!pipeline) return NULL;
  pipeline_check_calls(arena, diags, pipeline);
  if (diags_errors(diags) > n_errors) return NULL;
  return schedule_list_make(arena, pipeline, times);
}
