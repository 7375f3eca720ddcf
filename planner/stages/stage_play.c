/*
 * stage_play.c -- plays the calls of a schedule with the times of its stages.
 *
 * Few micro-batches of many are played.  Each further one takes as long as the
 * busiest group of ranks computes for one, or as later ones take on the way.
 */
#include "planner/stages/stage_play.h"

#include "ir/pipeline/links.h"

/* ---- shapes ---- */

static bool has_shape(Arena *arena, const StageShape *shape, int microbatches,
                      PipelineShape *out) {
  *out = (PipelineShape){.ranks = shape->groups,
                         .stages = shape->stages,
                         .microbatches = microbatches,
                         .times = {1, 1, 1}};
  return !pipeline_schedule_refuses(arena, shape->schedule, out);
}

/* At least so many that the first group computes without a break.  Returns 0 if
 * the schedule refuses the shape. */
static int shown(Arena *arena, const StageShape *shape, PipelineShape *out) {
  if (!has_shape(arena, shape, shape->microbatches, out)) return 0;
  for (int n = 2 * shape->stages; n < shape->microbatches; n++)
    if (has_shape(arena, shape, n, out)) return n;
  has_shape(arena, shape, shape->microbatches, out);
  return shape->microbatches;
}

static int group_of(const StagePlay *play, int stage) {
  return pipeline_rank_of_stage(play->shape.schedule, play->shape.groups,
                                stage);
}

/* The call of a rank that reads what a token receives. */
static bool reads(const Pipeline *pipeline, const Token *receive,
                  const Token *call) {
  const PipelineEdge *edge = &pipeline->edges[receive->edge];
  return call->kind == edge->to && call->stage == edge->to_stage &&
         call->microbatch == edge_reader(edge, receive->microbatch);
}

/* By group and call: how many calls stand before the last receive of what it
 * reads.  The rest of those before it run beside the message. */
static const int *const *find_receives(Arena *arena, const Pipeline *pipeline) {
  const Pipeline *lowered = pipeline_lower(arena, pipeline);
  const int **at = ARENA_ARRAY(arena, const int *, pipeline->n_ranks);
  for (int r = 0; r < pipeline->n_ranks; r++) {
    const Tokens *list = &lowered->lists[r];
    int *before = ARENA_ARRAY(arena, int, pipeline->lists[r].n + 1), n = 0;
    VEC(int) open = {0};
    VEC(int) calls = {0}; /* by receive that is open: those before it */
    for (int i = 0; i < list->n; i++) {
      const Token *token = &list->data[i];
      TokenRole role = token_info(token->kind)->role;
      if (role == TOKEN_ROLE_receive) {
        vec_push(arena, &open, i);
        vec_push(arena, &calls, n);
      }
      if (role != TOKEN_ROLE_call) continue;
      int kept = 0;
      for (int k = 0; k < open.n; k++)
        if (reads(pipeline, &list->data[open.data[k]], token)) {
          before[n] = calls.data[k];
        } else {
          open.data[kept] = open.data[k];
          calls.data[kept++] = calls.data[k];
        }
      open.n = calls.n = kept;
      n++;
    }
    at[r] = before;
  }
  return at;
}

/* Schedules that keep all micro-batches that are shown keep all. */
static const int *find_frames(Arena *arena, const StagePlay *play) {
  int *frames = ARENA_ARRAY(arena, int, play->shape.stages);
  for (int s = 0; s < play->shape.stages; s++) {
    FrameClass class = {s, TOKEN_forward, TOKEN_weight_grad, -1};
    frames[s] =
        pipeline_frames(arena, play->pipeline, group_of(play, s), &class, NULL);
    if (frames[s] == play->pipeline->n_microbatches)
      frames[s] = play->shape.microbatches;
  }
  return frames;
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

bool stage_play_create(Arena *arena, const StageShape *shape,
                       const StagePlay *const *known, int n_known,
                       StagePlay *out) {
  PipelineShape made;
  int n = shown(arena, shape, &made);
  if (n == 0) return false;
  const StagePlay *like = known_calls(shape, n, known, n_known);
  *out = (StagePlay){.shape = *shape};
  out->pipeline =
      like ? like->pipeline : pipeline_make(arena, shape->schedule, &made);
  out->receives = like ? like->receives : find_receives(arena, out->pipeline);
  out->frames = find_frames(arena, out);
  return true;
}

/* ---- times ---- */

typedef struct Player {
  const StagePlay *play;
  const StageCosts *costs;
  const int *ends;
  StageCost *stages;
  Ps *free, *computed; /* by group */
  Ps *last;            /* by stage: end of its last call */
  Ps *ended;           /* by micro-batch: end of its calls of stage 0 */
  /* By group and place in its list: the end of the call; when the last message
   * is sent that it reads, from which group, and how long that takes. */
  Ps **ends_of, **sent, **message;
  int **sender;
  Ps *link; /* [from * groups + to]: end of the last message */
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
static Ps message_time(const Player *p, const CallLink *link) {
  if (link->edge < 0 || link->from.rank == link->to.rank) return 0;
  const PipelineEdge *edge = &p->play->pipeline->edges[link->edge];
  int low =
      edge->from_stage < edge->to_stage ? edge->from_stage : edge->to_stage;
  return stage_message(p->costs, p->ends[low] - 1, low == edge->to_stage,
                       link->from.rank, link->to.rank);
}

static void raise(Ps *to, Ps time) {
  if (time > *to) *to = time;
}

/* When the message that a call reads has come.  It begins when both ranks have
 * come to it and the one before it is through. */
static Ps arrival(Player *p, TokenPlace call) {
  Ps begin = p->sent[call.rank][call.at];
  int before = p->play->receives[call.rank][call.at];
  if (begin == 0) return 0;
  if (before > 0) raise(&begin, p->ends_of[call.rank][before - 1]);
  Ps *link = &p->link[p->sender[call.rank][call.at] * p->play->shape.groups +
                      call.rank];
  raise(&begin, *link);
  return *link = begin + p->message[call.rank][call.at];
}

static void visit_call(void *user, TokenPlace call, const CallLink *const *out,
                       int n_out) {
  Player *p = user;
  const Token *token = &p->play->pipeline->lists[call.rank].data[call.at];
  Ps begin = arrival(p, call), time = call_time(p, token);
  raise(&begin, p->free[call.rank]);
  Ps end = p->free[call.rank] = p->ends_of[call.rank][call.at] = begin + time;
  raise(&p->last[token->stage], end);
  p->computed[call.rank] += time;
  if (token->stage == 0) p->ended[token->microbatch] = end;
  for (int i = 0; i < n_out; i++) {
    TokenPlace to = out[i]->to;
    if (to.rank == call.rank) continue;
    raise(&p->sent[to.rank][to.at], end);
    raise(&p->message[to.rank][to.at], message_time(p, out[i]));
    p->sender[to.rank][to.at] = call.rank;
  }
}

static Player player_create(Arena *arena, const StagePlay *play,
                            const StageCosts *costs, const int *ends) {
  int n = play->shape.groups;
  Player p = {.play = play,
              .costs = costs,
              .ends = ends,
              .stages = ARENA_ARRAY(arena, StageCost, play->shape.stages),
              .free = ARENA_ARRAY(arena, Ps, n),
              .computed = ARENA_ARRAY(arena, Ps, n),
              .last = ARENA_ARRAY(arena, Ps, play->shape.stages),
              .ended = ARENA_ARRAY(arena, Ps, play->pipeline->n_microbatches),
              .ends_of = ARENA_ARRAY(arena, Ps *, n),
              .sent = ARENA_ARRAY(arena, Ps *, n),
              .message = ARENA_ARRAY(arena, Ps *, n),
              .sender = ARENA_ARRAY(arena, int *, n),
              .link = ARENA_ARRAY(arena, Ps, n * n)};
  for (int s = 0; s < play->shape.stages; s++)
    p.stages[s] = cost_of(costs, ends, s);
  for (int g = 0; g < n; g++) {
    int n_calls = play->pipeline->lists[g].n + 1;
    p.ends_of[g] = ARENA_ARRAY(arena, Ps, n_calls);
    p.sent[g] = ARENA_ARRAY(arena, Ps, n_calls);
    p.message[g] = ARENA_ARRAY(arena, Ps, n_calls);
    p.sender[g] = ARENA_ARRAY(arena, int, n_calls);
  }
  return p;
}

/* The time of micro-batches that are not played. */
static Ps further(const Player *p, Ps busiest) {
  int n = p->play->pipeline->n_microbatches, half = n / 2;
  int left = p->play->shape.microbatches - n;
  if (left == 0) return 0;
  Ps each = (p->ended[n - 1] - p->ended[half]) / (n - 1 - half);
  return left * (each > busiest / n ? each : busiest / n);
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
  Ps end = 0, most = 0, update = 0;
  for (int g = 0; g < shape->groups; g++) {
    Ps own = 0;
    for (int s = 0; s < shape->stages; s++)
      if (group_of(p->play, s) == g) own += p->stages[s].update;
    raise(&end, sums_end(p, g));
    raise(&update, own);
    raise(&most, p->computed[g]);
  }
  return end + update + further(p, most) + shared_time(p);
}

Ps stage_play_step(Arena *arena, const StagePlay *play, const StageCosts *costs,
                   const int *ends) {
  Arena *own = arena_beside(arena);
  Player p = player_create(own, play, costs, ends);
  pipeline_sweep(own, play->pipeline, visit_call, &p);
  Ps step = end_of(&p);
  arena_destroy(own);
  return step;
}

/* ---- bytes ---- */

/* The value that the loss reads or leaves, whichever is larger: no schedule
 * computes this again. */
static Bytes loss_bytes(const StageCosts *costs, int end) {
  int n = costs->n;
  if (end < n) return 0;
  Bytes left = stage_cost(costs, n - 1, n).saved;
  Bytes read = n > 1 ? costs->sent[n - 2] : 0;
  return left > read ? left : read;
}

/* The bytes that a rank of the stage keeps in a step.  A value that goes on is
 * saved where it is read, one for each frame; it and its gradient have a place
 * each on both sides. */
static Bytes kept_bytes(const StagePlay *play, const StageCosts *costs,
                        const int *ends, int stage) {
  StageCost cost = cost_of(costs, ends, stage);
  Bytes in = stage > 0 ? costs->sent[ends[stage - 1] - 1] : 0;
  Bytes out = ends[stage] < costs->n ? costs->sent[ends[stage] - 1] : 0;
  Bytes saved = cost.saved > out ? cost.saved - out : 0;
  Bytes frames = play->frames[stage];
  Bytes held = play->shape.schedule->recomputes
                   ? saved + (in + loss_bytes(costs, ends[stage])) * frames
                   : (saved + in) * frames;
  return cost.state + cost.gradient + held + in + 2 * out;
}

/* The most that a unit of the stage needs beside. */
static Bytes transient_bytes(const StageCosts *costs, const int *ends,
                             int stage) {
  Bytes most = 0;
  for (int i = stage > 0 ? ends[stage - 1] : 0; i < ends[stage]; i++)
    if (costs->transients[i] > most) most = costs->transients[i];
  return most;
}

/* A parameter of two groups is sent, and its gradient received, by the one that
 * has it; the other one has a copy and a sum of its own. */
static void add_shared(const StagePlay *play, const StageCosts *costs,
                       const int *ends, Bytes *bytes) {
  for (int i = 0; i < costs->n_shared; i++) {
    const SharedCost *shared = &costs->shared[i];
    int first = 0, last = 0;
    while (ends[first] <= shared->first) first++;
    while (ends[last] <= shared->last) last++;
    if (group_of(play, first) == group_of(play, last)) continue;
    bytes[group_of(play, first)] += shared->bytes;
    bytes[group_of(play, last)] += 2 * shared->bytes;
  }
}

Bytes stage_play_peak(Arena *arena, const StagePlay *play,
                      const StageCosts *costs, const int *ends) {
  int n = play->shape.groups;
  Bytes *bytes = ARENA_ARRAY(arena, Bytes, n), peak = 0;
  Bytes *transients = ARENA_ARRAY(arena, Bytes, n);
  for (int s = 0; s < play->shape.stages; s++) {
    int group = group_of(play, s);
    Bytes transient = transient_bytes(costs, ends, s);
    bytes[group] += kept_bytes(play, costs, ends, s);
    if (transient > transients[group]) transients[group] = transient;
  }
  add_shared(play, costs, ends, bytes);
  for (int g = 0; g < n; g++)
    if (bytes[g] + transients[g] > peak) peak = bytes[g] + transients[g];
  return peak;
}
