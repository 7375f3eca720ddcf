/*
 * stage_play.c -- plays the calls of a schedule with the times of its stages.
 *
 * Two numbers of few micro-batches are played.  Each further one takes as long
 * as each of those between both.
 */
#include "planner/stages/stage_peak.h"

#include "ir/pipeline/links.h"

#define NEVER (INT64_MAX / 4)

/* ---- shapes ---- */

static bool has_shape(Arena *arena, const StageShape *shape, int microbatches,
                      PipelineShape *out) {
  *out = (PipelineShape){.ranks = shape->groups,
                         .stages = shape->stages,
                         .microbatches = microbatches,
                         .times = {1, 1, 1}};
  return !pipeline_schedule_refuses(arena, shape->schedule, out);
}

/* The first number of micro-batches from `least` on that the schedule takes; at
 * most those of the shape. */
static int shown(Arena *arena, const StageShape *shape, int least,
                 PipelineShape *out) {
  for (int n = least; n < shape->microbatches; n++)
    if (has_shape(arena, shape, n, out)) return n;
  has_shape(arena, shape, shape->microbatches, out);
  return shape->microbatches;
}

static int group_of(const StagePlay *play, int stage) {
  return pipeline_rank_of_stage(play->shape.schedule, play->shape.groups,
                                stage);
}

/* By stage and kind of call: the edges whose messages it reads, or writes. */
static const PlayEdges *find_edges(Arena *arena, const StagePlay *play,
                                   bool are_read) {
  const Pipeline *pipeline = play->pipeline;
  PlayEdges *out =
      ARENA_ARRAY(arena, PlayEdges, pipeline->n_stages * (int)N_TOKENS);
  for (int e = 0; e < pipeline->n_edges; e++) {
    const PipelineEdge *edge = &pipeline->edges[e];
    if (group_of(play, edge->from_stage) == group_of(play, edge->to_stage))
      continue;
    int row = are_read ? token_row(edge->to, edge->to_stage)
                       : token_row(edge->from, edge->from_stage);
    vec_push(arena, &out[row], e);
  }
  return out;
}

static void find_frames(Arena *arena, StagePlay *play) {
  int n = play->shape.stages;
  StageFrames *frames_of = ARENA_ARRAY(arena, StageFrames, n);
  int *frames = ARENA_ARRAY(arena, int, n);
  for (int s = 0; s < n; s++) {
    frames_of[s] =
        stage_frames(arena, play->lives, s, play->shape.microbatches);
    frames[s] = frames_of[s].whole;
  }
  play->frames_of = frames_of;
  play->frames = frames;
}

static const StagePlay *known_calls(const StageShape *shape, int microbatches,
                                    const StagePlay *const *known, int n) {
  for (int i = 0; i < n; i++)
    if (known[i]->pipeline && known[i]->shape.schedule == shape->schedule &&
        known[i]->shape.groups == shape->groups &&
        known[i]->shape.stages == shape->stages &&
        known[i]->pipeline->n_microbatches == microbatches)
      return known[i];
  return NULL;
}

static void make_calls(Arena *arena, StagePlay *play,
                       const PipelineShape *shape) {
  play->pipeline = pipeline_make(arena, play->shape.schedule, shape);
  play->lowered = pipeline_lower(arena, play->pipeline);
  play->read = find_edges(arena, play, true);
  play->written = find_edges(arena, play, false);
}

/* In fewer the first group does not compute without a break. */
static const StagePlay *fewer_calls(Arena *arena, const StageShape *shape,
                                    const PipelineShape *made) {
  StagePlay *fewer = ARENA_NEW(arena, StagePlay);
  *fewer = (StagePlay){.shape = *shape};
  make_calls(arena, fewer, made);
  return fewer;
}

bool stage_play_create(Arena *arena, const StageShape *shape,
                       const StagePlay *const *known, int n_known,
                       StagePlay *out) {
  PipelineShape less, more;
  if (!has_shape(arena, shape, shape->microbatches, &more)) return false;
  int few = shown(arena, shape, 2 * shape->stages, &less);
  int n = shown(arena, shape, few + shape->groups, &more);
  const StagePlay *like = known_calls(shape, n, known, n_known);
  *out = like ? *like : (StagePlay){0};
  out->shape = *shape;
  if (!like) make_calls(arena, out, &more);
  if (n == shape->microbatches)
    out->fewer = NULL;
  else if (!out->fewer)
    out->fewer = fewer_calls(arena, shape, &less);
  if (!like)
    out->lives =
        stage_lives_of(arena, out->pipeline, out->lowered, shape->schedule);
  find_frames(arena, out);
  return true;
}

/* ---- times ---- */

enum { NOT_YET = -1 };

/* When each side comes to it, and when it is through. */
typedef struct PlayMessage {
  Ps sent, received, end;
} PlayMessage;

typedef struct Player {
  const StagePlay *play;
  const StageCosts *costs;
  const int *ends;
  StageCost *stages;
  int *at;               /* by group: place in its list */
  Ps *free;              /* by group: end of its last call */
  Ps *last;              /* by stage: end of its last call */
  PlayMessage *messages; /* [edge * micro-batches + micro-batch] */
  PlayMessage **before;  /* by edge: the last one that is sent, or NULL */
  Ps *link;              /* [from * groups + to]: end of the last message */
} Player;

static StageCost cost_of(const StageCosts *costs, const int *ends, int stage) {
  return stage_cost(costs, stage > 0 ? ends[stage - 1] : 0, ends[stage]);
}

static Ps call_time(const Player *p, const Token *token) {
  const StageCost *cost = &p->stages[token->stage];
  const PipelineSchedule *schedule = p->play->shape.schedule;
  Ps again = schedule->recomputes ? cost->forward : 0;
  switch (token->kind) {
  case TOKEN_forward: return cost->forward;
  case TOKEN_input_grad: return cost->input_grad;
  case TOKEN_weight_grad: return cost->weight_grad;
  case TOKEN_backward: return cost->input_grad + cost->weight_grad + again;
  default: return 0;
  }
}

/* A message goes on at the border behind the lower of two stages. */
static Ps message_time(const Player *p, const PipelineEdge *edge, int from,
                       int to) {
  bool is_back = edge->to_stage < edge->from_stage;
  int low = is_back ? edge->to_stage : edge->from_stage;
  return stage_message(p->costs, p->ends[low] - 1, is_back, from, to);
}

static void raise(Ps *to, Ps time) {
  if (time > *to) *to = time;
}

static PlayMessage *message_of(const Player *p, int edge, int microbatch) {
  return &p->messages[edge * p->play->pipeline->n_microbatches + microbatch];
}

/* It begins when both groups have come to it and the one before it is through.
 */
static void come_to_message(Player *p, int group, const Token *token) {
  const PipelineEdge *edge = &p->play->pipeline->edges[token->edge];
  PlayMessage *message = message_of(p, token->edge, token->microbatch);
  bool is_sent = token_info(token->kind)->role == TOKEN_ROLE_send;
  int from = is_sent ? group : token->peer, to = is_sent ? token->peer : group;
  *(is_sent ? &message->sent : &message->received) = p->free[group];
  if (is_sent) p->before[token->edge] = message;
  if (message->sent == NOT_YET || message->received == NOT_YET) return;
  Ps *link = &p->link[from * p->play->shape.groups + to];
  Ps begin = message->sent;
  raise(&begin, message->received);
  raise(&begin, *link);
  *link = message->end = begin + message_time(p, edge, from, to);
}

/* A call waits for what it reads, and for the last message of what it writes,
 * whose memory it needs.  Returns false if one of them has not begun. */
static bool has_messages(const Player *p, int row, int microbatch, Ps *begin) {
  const PlayEdges *read = &p->play->read[row],
                  *written = &p->play->written[row];
  for (int i = 0; i < read->n; i++) {
    Ps end = message_of(p, read->data[i], microbatch)->end;
    if (end == NOT_YET) return false;
    raise(begin, end);
  }
  for (int i = 0; i < written->n; i++) {
    const PlayMessage *before = p->before[written->data[i]];
    if (before && before->end == NOT_YET) return false;
    if (before) raise(begin, before->end);
  }
  return true;
}

/* Edges of B are those of I and W. */
static bool is_ready(const Player *p, const Token *token, Ps *begin) {
  int stage = token->stage, microbatch = token->microbatch;
  if (token->kind != TOKEN_backward)
    return has_messages(p, token_row(token->kind, stage), microbatch, begin);
  return has_messages(p, token_row(TOKEN_input_grad, stage), microbatch,
                      begin) &&
         has_messages(p, token_row(TOKEN_weight_grad, stage), microbatch,
                      begin);
}

/* Returns whether the group has come further. */
static bool advance(Player *p, int group) {
  const Tokens *list = &p->play->lowered->lists[group];
  int first = p->at[group];
  for (; p->at[group] < list->n; p->at[group]++) {
    const Token *token = &list->data[p->at[group]];
    Ps begin = p->free[group], time = call_time(p, token);
    if (token_info(token->kind)->role != TOKEN_ROLE_call) {
      come_to_message(p, group, token);
      continue;
    }
    if (!is_ready(p, token, &begin)) break;
    p->free[group] = p->last[token->stage] = begin + time;
  }
  return p->at[group] > first;
}

/* Returns false if groups wait for each other. */
static bool play_all(Player *p) {
  bool goes_on = true, is_over = true;
  while (goes_on) {
    goes_on = false;
    for (int g = 0; g < p->play->shape.groups; g++) goes_on |= advance(p, g);
  }
  for (int g = 0; g < p->play->shape.groups; g++)
    is_over &= p->at[g] == p->play->lowered->lists[g].n;
  return is_over;
}

static Player player_create(Arena *arena, const StagePlay *play,
                            const StageCosts *costs, const int *ends) {
  int n = play->shape.groups, n_edges = play->pipeline->n_edges;
  int n_messages = n_edges * play->pipeline->n_microbatches;
  Player p = {.play = play,
              .costs = costs,
              .ends = ends,
              .stages = ARENA_ARRAY(arena, StageCost, play->shape.stages),
              .at = ARENA_ARRAY(arena, int, n),
              .free = ARENA_ARRAY(arena, Ps, n),
              .last = ARENA_ARRAY(arena, Ps, play->shape.stages),
              .messages = ARENA_ARRAY(arena, PlayMessage, n_messages + 1),
              .before = ARENA_ARRAY(arena, PlayMessage *, n_edges + 1),
              .link = ARENA_ARRAY(arena, Ps, n * n)};
  for (int s = 0; s < play->shape.stages; s++)
    p.stages[s] = cost_of(costs, ends, s);
  for (int i = 0; i < n_messages; i++)
    p.messages[i] = (PlayMessage){NOT_YET, NOT_YET, NOT_YET};
  return p;
}

static int stage_of(const Player *p, int piece) {
  int stage = 0;
  while (p->ends[stage] <= piece) stage++;
  return stage;
}

/* Parameters of several stages: they go up before the step, and their gradients
 * back behind it. */
static Ps shared_time(const Player *p) {
  Ps time = 0;
  for (int i = 0; i < p->costs->n_shared; i++) {
    const SharedCost *shared = &p->costs->shared[i];
    int first = group_of(p->play, stage_of(p, shared->first));
    int last = group_of(p->play, stage_of(p, shared->last));
    if (first != last)
      time +=
          2 * stage_far_message(p->costs, p->play->shape.groups, shared->bytes);
  }
  return time;
}

/* Gradients of a stage are summed behind its last call, those of the stage that
 * ends first before others. */
static Ps sums_end(const Player *p, int group) {
  Ps end = p->free[group], sums = 0, done = -1;
  for (;;) {
    int next = -1;
    for (int s = 0; s < p->play->shape.stages; s++)
      if (group_of(p->play, s) == group && p->last[s] > done &&
          (next < 0 || p->last[s] < p->last[next]))
        next = s;
    if (next < 0) return end > sums ? end : sums;
    done = p->last[next];
    raise(&sums, done);
    sums += p->stages[next].bulk;
  }
}

/* No group updates before all have their gradients. */
static Ps end_of(const Player *p) {
  const StageShape *shape = &p->play->shape;
  Ps end = 0, update = 0;
  for (int g = 0; g < shape->groups; g++) {
    Ps own = 0;
    for (int s = 0; s < shape->stages; s++)
      if (group_of(p->play, s) == g) own += p->stages[s].update;
    raise(&end, sums_end(p, g));
    raise(&update, own);
  }
  return end + update + shared_time(p);
}

static Ps played_step(Arena *arena, const StagePlay *play,
                      const StageCosts *costs, const int *ends) {
  Player p = player_create(arena, play, costs, ends);
  return play_all(&p) ? end_of(&p) : NEVER;
}

Ps stage_play_step(Arena *arena, const StagePlay *play, const StageCosts *costs,
                   const int *ends) {
  Arena *own = arena_beside(arena);
  Ps step = played_step(own, play, costs, ends);
  int n = play->pipeline->n_microbatches;
  if (play->fewer && step < NEVER) {
    Ps more = step - played_step(own, play->fewer, costs, ends);
    step += more * (play->shape.microbatches - n) /
            (n - play->fewer->pipeline->n_microbatches);
  }
  arena_destroy(own);
  return step;
}

/* ---- bytes ---- */

Bytes stage_play_peak(Arena *arena, const StagePlay *play,
                      const StageCosts *costs, const int *ends) {
  Arena *own = arena_beside(arena);
  Bytes peak = 0;
  const ArenaParts *of = stage_arenas(own, play, costs, ends);
  for (int g = 0; g < play->shape.groups; g++) {
    Bytes bytes = of[g].persistent + of[g].step + of[g].frames +
                  of[g].messages + of[g].scratch;
    if (bytes > peak) peak = bytes;
  }
  arena_destroy(own);
  return peak;
}
