/*
 * program_timeline.c -- makes the timelines of an entry point of several
 * stages: which calls each rank makes, and which messages it exchanges, in
 * which order.
 *
 *     0F0 0SEND_F0 0RECV_B0 0B0 0UPDATE     call forward of stage 0, 0
 *     1RECV_F0 1F0 1B0 1SEND_B0 1UPDATE     send "y", 0
 *                                      =>   receive "grad/y", 0
 *                                           call backward of stage 0, 0
 *                                           call update of stage 0
 *
 * The schedule says in which order stages compute micro-batches; what they do
 * once a step stands around that, in parts.  Edges of the entry point take the
 * place of those of a chain, and pipeline_lower inserts their messages.
 * rendezvous_check proves that no rank of the result hangs, and that no frame
 * is used again too early.
 */
#include "ir/program_periods.h"

#include "ir/place/mesh_place.h"

typedef struct Timing {
  Arena *arena;
  const ProgramParts *in;
  int n_microbatches, n_classes;
  ProgramStage *stages; /* by number */
  ProgramEdges edges;
  int *class_of;            /* by stage */
  int *first_rank;          /* by class */
  const Pipeline *pipeline; /* with messages; its ranks are classes */
  /* By register, stage and micro-batch: frames and slots.  -1: none. */
  int **places[N_REGISTERS];
  bool is_refused;
} Timing;

enum { MOST_RUNS = 1 << 20 }; /* of all pieces of an edge */

/* ---- stages and edges ---- */

/* A period calls clears apart from what runs once for a batch. */
static void add_clears(Arena *arena, ProgramSegments *segments) {
  int at = 0;
  while (segments->data[at].kind == TOKEN_once) at++;
  int node = segments->data[at].first_node;
  vec_push(arena, segments, (ProgramSegment){0});
  for (int i = segments->n - 1; i > at; i--)
    segments->data[i] = segments->data[i - 1];
  segments->data[at] = (ProgramSegment){
      .kind = TOKEN_clear, .first_node = node, .end_node = node};
}

static ProgramStage make_stage(Timing *t, int number) {
  ProgramStage stage = t->in->stages[number];
  stage.number = number;
  stage.segments = stage_segments(t->arena, stage.graph, number, &t->in->edges,
                                  t->in->splits_backward);
  bool has_replicas = t->in->has_versions && stage.n_ranks > 1;
  ListClears clears = !has_replicas    ? CLEARS_sums
                      : t->in->has_two ? CLEARS_joined
                                       : CLEARS_left;
  if (t->in->has_two || has_replicas) add_clears(t->arena, &stage.segments);
  int n = stage.segments.n;
  ListSegment *places = ARENA_ARRAY(t->arena, ListSegment, n);
  for (int i = 0; i < n; i++) {
    const ProgramSegment *segment = &stage.segments.data[i];
    places[i] =
        (ListSegment){.first_node = segment->first_node,
                      .end_node = segment->end_node,
                      .is_of_microbatch = segment_is_of_microbatch(segment)};
  }
  stage.instructions = instructions_of_segments(
      t->arena, stage.graph, t->in->target, places, n, clears);
  for (int i = 0; i < n; i++) {
    stage.segments.data[i].begin = places[i].begin;
    stage.segments.data[i].end = places[i].end;
  }
  return stage;
}

static const ProgramSegment *segment_of_node(const ProgramStage *stage,
                                             int id) {
  int s = 0;
  while (id >= stage->segments.data[s].end_node) s++;
  return &stage->segments.data[s];
}

static Value sent_value(const ProgramStage *stage, Name path) {
  const Graph *graph = stage->graph;
  for (int i = 0; i < graph->outputs.n; i++)
    if (graph->outputs.data[i].role == ROLE_send &&
        graph->outputs.data[i].path == path)
      return graph->outputs.data[i].value;
  UNREACHABLE();
}

static Value received_value(const ProgramStage *stage, Name path) {
  const Graph *graph = stage->graph;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_receive &&
        graph->inputs.data[i].path == path)
      return graph->inputs.data[i].value;
  UNREACHABLE();
}

/* Bits by TokenKind: the segments that read an input, itself or through views.
 */
static unsigned find_readers(Arena *arena, const ProgramStage *stage,
                             Value input) {
  unsigned kinds = 0;
  int n = stage->graph->nodes.n;
  bool *shows = ARENA_ARRAY(arena, bool, n);
  shows[input.node] = true;
  for (int id = 0; id < n; id++) {
    const Node *node = stage->graph->nodes.data[id];
    bool reads = false;
    for (int i = 0; i < node->n_inputs; i++)
      reads |= shows[node->inputs[i].node];
    if (reads) kinds |= 1u << segment_of_node(stage, id)->kind;
    shows[id] |= reads && node_is_view(stage->graph, id);
  }
  return kinds;
}

/* A value that nothing before the micro-batches' end reads may come before them
 * all the same. */
static void fill_step_edge(ProgramEdge *edge, const ProgramSegment *writer,
                           unsigned readers) {
  bool is_before = writer->kind == TOKEN_once && !edge->is_after;
  bool is_read_early = readers & ~(1u << TOKEN_update);
  edge->from_kind = is_before ? TOKEN_once : TOKEN_update;
  edge->to_kind = is_before || is_read_early ? TOKEN_once : TOKEN_update;
  edge->from_part = edge->level - 1;
  if (writer->kind == edge->from_kind && writer->part > edge->from_part)
    edge->from_part = writer->part;
  edge->to_part = edge->level;
}

/* The most bytes that a rank has of a value. */
static int64_t local_bytes(const EdgeSide *side) {
  return type_local_elements(side->type, side->mesh) *
         dtype_size_bytes(side->type->dtype);
}

/* Their places stand in the tables of a program. */
static void refuse_runs(Timing *t, const ProgramEdge *edge) {
  Diag *d = diag(t->in->diags, DIAG_not_supported, t->in->span,
                 arena_printf(t->arena,
                              "the value '%s' goes from stage %d to stage %d "
                              "in more than %d runs of elements",
                              edge->path, edge->from, edge->to, MOST_RUNS));
  diag_help(d, "shard an outer dimension of it, or let both stages shard the "
               "inner one alike");
  t->is_refused = true;
}

static void find_pieces(Timing *t, ProgramEdge *edge, const Type *sent) {
  const ProgramStage *from = &t->stages[edge->from], *to = &t->stages[edge->to];
  EdgeSide sender = {sent, &from->graph->mesh, from->n_ranks},
           receiver = {edge->type, &to->graph->mesh, to->n_ranks};
  int64_t bytes = local_bytes(&sender);
  edge->n_ids = 1;
  edge->from_rank = from->first_rank;
  edge->to_rank = to->first_rank;
  edge->bytes = local_bytes(&receiver);
  if (t->in->has_versions || edge_sides_equal(&sender, &receiver)) return;
  if (edge_runs(t->arena, &sender, &receiver) > MOST_RUNS) {
    refuse_runs(t, edge);
    return;
  }
  edge->pieces = edge_pieces(t->arena, &sender, &receiver);
  edge->n_ids = edge_pieces_most(t->arena, &edge->pieces);
  if (bytes > edge->bytes) edge->bytes = bytes;
}

/* The segments that make and read a value of a micro-batch.  Passes may leave
 * one that nobody reads any more.  The forward pass may not wait for one of a
 * later stage, or of a backward pass. */
static void fill_kinds(const Timing *t, ProgramEdge *edge,
                       const ProgramSegment *writer, unsigned readers) {
  static const TokenKind back[] = {TOKEN_backward, TOKEN_input_grad,
                                   TOKEN_weight_grad};
  ASSERT(writer->kind != TOKEN_update); /* it would leave before it is made */
  edge->from_kind =
      token_info(writer->kind)->is_of_step ? TOKEN_forward : writer->kind;
  bool is_of_back = edge->from_kind != TOKEN_forward || edge->from > edge->to;
  bool is_read_forward = readers & 1u << TOKEN_forward;
  bool is_unread = true;
  edge->to_kind = edge->last_kind = TOKEN_forward;
  for (int i = 0; i < ARRAY_LENGTH(back); i++) {
    if (!(readers & 1u << back[i])) continue;
    if (is_unread && !is_read_forward) edge->to_kind = back[i];
    edge->last_kind = back[i];
    is_unread = false;
  }
  if (is_unread && !is_read_forward && is_of_back)
    edge->to_kind = edge->last_kind =
        t->in->splits_backward ? TOKEN_input_grad : TOKEN_backward;
}

static void fill_edge(Timing *t, int e) {
  ProgramEdge *edge = &t->edges.data[e];
  const ProgramStage *from = &t->stages[edge->from], *to = &t->stages[edge->to];
  Value sent = sent_value(from, edge->path);
  Value received = received_value(to, edge->path);
  const ProgramSegment *writer = segment_of_node(from, sent.node);
  unsigned readers = find_readers(t->arena, to, received);
  edge->type = graph_type(to->graph, received);
  edge->dtype = edge->type->dtype;
  find_pieces(t, edge, graph_type(from->graph, sent));
  edge->n_slots = 1;
  if (edge->is_of_step) {
    fill_step_edge(edge, writer, readers);
    return;
  }
  fill_kinds(t, edge, writer, readers);
}

/* ---- tokens ---- */

static void add_part(Timing *t, Tokens *list, TokenKind kind, int stage,
                     int part) {
  int at = 0;
  while (at < list->n && list->data[at].microbatch < part) at++;
  if (at < list->n && list->data[at].microbatch == part) return;
  vec_push(t->arena, list,
           (Token){.kind = kind, .stage = stage, .microbatch = part});
  for (int i = list->n - 1; i > at; i--) {
    Token token = list->data[i];
    list->data[i] = list->data[i - 1];
    list->data[i - 1] = token;
  }
}

/* The parts of a stage before or after the micro-batches, ascending: of its
 * segments, and those at the ends of which messages are. */
static Tokens list_parts(Timing *t, int stage, TokenKind kind) {
  Tokens list = {0};
  const ProgramSegments *segments = &t->stages[stage].segments;
  for (int s = 0; s < segments->n; s++)
    if (segments->data[s].kind == kind)
      add_part(t, &list, kind, stage, segments->data[s].part);
  for (int e = 0; e < t->edges.n; e++) {
    const ProgramEdge *edge = &t->edges.data[e];
    if (!edge->is_of_step) continue;
    if (edge->from == stage && edge->from_kind == kind)
      add_part(t, &list, kind, stage, edge->from_part);
    if (edge->to == stage && edge->to_kind == kind)
      add_part(t, &list, kind, stage, edge->to_part);
  }
  return list;
}

static void append(Timing *t, Tokens *list, const Tokens *more) {
  for (int i = 0; i < more->n; i++) vec_push(t->arena, list, more->data[i]);
}

/* Without a schedule: all forward passes.  Stages that share a rank without
 * being the chunks of one have lists of their own. */
static Pipeline *make_calls(Timing *t) {
  int n = t->in->n_stages;
  const PipelineSchedule *schedule = t->in->schedule;
  if (t->in->list)
    return arena_copy(t->arena, t->in->list, sizeof *t->in->list);
  if (schedule) {
    bool has_chunks = pipeline_has_chunks(schedule);
    PipelineShape shape = {has_chunks ? t->n_classes : n, n, t->n_microbatches,
                           t->in->times};
    return pipeline_make(t->arena, schedule, &shape);
  }
  Pipeline *pipeline = ARENA_NEW(t->arena, Pipeline);
  *pipeline = (Pipeline){.n_ranks = n,
                         .n_stages = n,
                         .n_microbatches = t->n_microbatches,
                         .lists = ARENA_ARRAY(t->arena, Tokens, n)};
  for (int s = 0; s < n; s++)
    for (int m = 0; m < t->n_microbatches; m++)
      vec_push(t->arena, &pipeline->lists[s],
               (Token){.kind = TOKEN_forward, .stage = s, .microbatch = m});
  return pipeline;
}

/* Puts I and W in the place of B, where their segments are apart. */
static Pipeline *split_tokens(Timing *t, Pipeline *pipeline) {
  if (!t->in->splits_backward) return pipeline;
  Tokens *lists = ARENA_ARRAY(t->arena, Tokens, pipeline->n_ranks);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      Token token = pipeline->lists[r].data[i];
      bool is_whole = token.kind == TOKEN_backward;
      if (is_whole) token.kind = TOKEN_input_grad;
      vec_push(t->arena, &lists[r], token);
      token.kind = TOKEN_weight_grad;
      token.is_joined = false;
      if (is_whole) vec_push(t->arena, &lists[r], token);
    }
  pipeline->lists = lists;
  return pipeline;
}

/* Calls of stages once a step, before the micro-batches or after them. */
static Pipeline *make_parts(Timing *t, TokenKind kind) {
  int n = t->in->n_stages;
  Pipeline *pipeline = ARENA_NEW(t->arena, Pipeline);
  *pipeline = (Pipeline){.n_ranks = n,
                         .n_stages = n,
                         .n_microbatches = t->n_microbatches,
                         .lists = ARENA_ARRAY(t->arena, Tokens, n)};
  for (int s = 0; s < n; s++) pipeline->lists[s] = list_parts(t, s, kind);
  return pipeline;
}

static const Pipeline *make_pipeline(Timing *t) {
  Pipeline *phases[] = {make_parts(t, TOKEN_once),
                        split_tokens(t, make_calls(t)),
                        make_parts(t, TOKEN_update)};
  const PipelineEdge *edges = program_pipeline_edges(t->arena, &t->edges);
  Pipeline *pipeline = NULL;
  for (int i = 0; i < ARRAY_LENGTH(phases); i++) {
    phases[i]->edges = edges;
    phases[i]->n_edges = t->edges.n;
    Pipeline *placed =
        pipeline_place(t->arena, phases[i], t->n_classes, t->class_of);
    for (int c = 0; pipeline && c < t->n_classes; c++)
      append(t, &pipeline->lists[c], &placed->lists[c]);
    if (!pipeline) pipeline = placed;
  }
  return pipeline_lower(t->arena, pipeline);
}

/* ---- frames ---- */

typedef struct Life {
  int begin, end; /* places in the list of the class; -1: none */
} Life;

static bool is_shared(const Timing *t, const ProgramEdge *edge) {
  return t->class_of[edge->from] == t->class_of[edge->to];
}

/* The token brings the value of an edge to its reader's rank: a receive, or the
 * call behind which it is passed on. */
static bool brings(const Timing *t, const Token *token, int e) {
  const ProgramEdge *edge = &t->edges.data[e];
  if (is_shared(t, edge))
    return token->kind == edge->from_kind && token->stage == edge->from;
  return token_info(token->kind)->role == TOKEN_ROLE_receive &&
         token->edge == e;
}

static Life *no_lives(const Timing *t) {
  Life *lives = ARENA_ARRAY(t->arena, Life, t->n_microbatches);
  for (int m = 0; m < t->n_microbatches; m++) lives[m] = (Life){-1, -1};
  return lives;
}

/* From the arrival of the value of a micro-batch to its last reader. */
static Life *edge_lives(Timing *t, int e) {
  const ProgramEdge *edge = &t->edges.data[e];
  const Tokens *list = &t->pipeline->lists[t->class_of[edge->to]];
  Life *lives = no_lives(t);
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    if (token_info(token->kind)->is_of_step) continue;
    if (brings(t, token, e)) lives[token->microbatch].begin = i;
    if (token->kind == edge->last_kind && token->stage == edge->to)
      lives[token->microbatch].end = i;
  }
  return lives;
}

/* Gives each life the lowest place that is free when it begins, and returns how
 * many places that takes. */
static int assign_places(const Timing *t, const Life *lives, int n_tokens,
                         int *out) {
  int n = t->n_microbatches, n_places = 0;
  int *begins = ARENA_ARRAY(t->arena, int, n_tokens);
  int *ends = ARENA_ARRAY(t->arena, int, n_tokens);
  bool *is_used = ARENA_ARRAY(t->arena, bool, n);
  for (int m = 0; m < n; m++) {
    out[m] = -1;
    if (lives[m].begin < 0) continue;
    begins[lives[m].begin] = m + 1;
    if (lives[m].end >= 0) ends[lives[m].end] = m + 1;
  }
  for (int i = 0; i < n_tokens; i++) {
    int m = begins[i] - 1, place = 0;
    if (m >= 0) {
      while (is_used[place]) place++;
      is_used[place] = true;
      out[m] = place;
      if (place >= n_places) n_places = place + 1;
    }
    int ended = ends[i] ? out[ends[i] - 1] : -1;
    if (ended >= 0) is_used[ended] = false; /* else read before it is there */
  }
  return n_places;
}

static bool is_training(const Timing *t) {
  return t->in->schedule || t->in->list;
}

/* From one token of a stage to another. */
static Life *frame_lives(const Timing *t, int stage, TokenKind first,
                         TokenKind last) {
  const Tokens *list = &t->pipeline->lists[t->class_of[stage]];
  Life *lives = no_lives(t);
  for (int i = 0; i < list->n; i++) {
    const Token *token = &list->data[i];
    if (token->stage != stage) continue;
    if (token->kind == first) lives[token->microbatch].begin = i;
    if (token->kind == last) lives[token->microbatch].end = i;
  }
  return lives;
}

/* From the first arrival of a micro-batch to the last reader, over all edges to
 * the stage that need several slots. */
static Life *slot_lives(Timing *t, int stage) {
  Life *lives = no_lives(t);
  for (int e = 0; e < t->edges.n; e++) {
    const ProgramEdge *edge = &t->edges.data[e];
    if (edge->to != stage || edge->n_slots <= 1) continue;
    const Life *more = edge_lives(t, e);
    for (int m = 0; m < t->n_microbatches; m++) {
      if (lives[m].begin < 0 || more[m].begin < lives[m].begin)
        lives[m].begin = more[m].begin;
      if (more[m].end > lives[m].end) lives[m].end = more[m].end;
    }
  }
  return lives;
}

typedef VEC(RendezvousUse) Uses;

static void add_uses(Timing *t, Uses *uses, int *n_places, const Life *lives,
                     const int *place_of, int n) {
  for (int m = 0; m < t->n_microbatches; m++)
    if (place_of[m] >= 0)
      vec_push(t->arena, uses,
               (RendezvousUse){.place = *n_places + place_of[m],
                               .first = lives[m].begin,
                               .last = lives[m].end});
  *n_places += n;
}

/* Places that are in use on the ranks of each class, for the proof. */
typedef struct Assigned {
  Uses *uses;
  int *n_places;
} Assigned;

/* Assigns the frames or slots of a register of a stage. */
static int assign_stage(Timing *t, int stage, ProgramRegister number,
                        const Life *lives, Assigned *assigned) {
  int class = t->class_of[stage], n_tokens = t->pipeline->lists[class].n;
  int *places = ARENA_ARRAY(t->arena, int, t->n_microbatches);
  int n = assign_places(t, lives, n_tokens, places);
  add_uses(t, &assigned->uses[class], &assigned->n_places[class], lives, places,
           n);
  t->places[number][stage] = places;
  return n > 1 ? n : 1;
}

static void assign_stage_frames(Timing *t, int s, Assigned *assigned) {
  ProgramStage *stage = &t->stages[s];
  bool is_split = t->in->splits_backward;
  TokenKind last = is_split         ? TOKEN_weight_grad
                   : is_training(t) ? TOKEN_backward
                                    : TOKEN_forward;
  stage->n_frames = assign_stage(
      t, s, REGISTER_frame, frame_lives(t, s, TOKEN_forward, last), assigned);
  stage->n_slots =
      assign_stage(t, s, REGISTER_slot, slot_lives(t, s), assigned);
  stage->n_input_frames = stage->n_weight_frames = 1;
  if (!is_split) return;
  stage->n_input_frames = assign_stage(
      t, s, REGISTER_input_frame,
      frame_lives(t, s, TOKEN_forward, TOKEN_input_grad), assigned);
  stage->n_weight_frames = assign_stage(
      t, s, REGISTER_weight_frame,
      frame_lives(t, s, TOKEN_input_grad, TOKEN_weight_grad), assigned);
}

/* An edge that needs one slot has it to itself. */
static void assign_frames(Timing *t, Uses *uses) {
  Assigned assigned = {uses, ARENA_ARRAY(t->arena, int, t->n_classes)};
  int *places = ARENA_ARRAY(t->arena, int, t->n_microbatches);
  for (int e = 0; e < t->edges.n; e++) {
    ProgramEdge *edge = &t->edges.data[e];
    int class = t->class_of[edge->to];
    if (edge->is_of_step) continue;
    const Life *lives = edge_lives(t, e);
    int n = assign_places(t, lives, t->pipeline->lists[class].n, places);
    edge->n_slots = n > 1 ? n : 1;
    if (n <= 1)
      add_uses(t, &uses[class], &assigned.n_places[class], lives, places, n);
  }
  for (int s = 0; s < t->in->n_stages; s++)
    assign_stage_frames(t, s, &assigned);
}

/* ---- calls ---- */

typedef struct Caller {
  Timing *t;
  int class;
  int *index;     /* by stage: in the entry point */
  bool **is_seen; /* by stage, and segment */
  bool *has_come; /* by edge */
  EntryPoint *out;
} Caller;

static void fill_registers(const Timing *t, ProgramCall *call, int stage,
                           int reader, int microbatch) {
  call->registers[REGISTER_microbatch] = microbatch;
  for (int r = REGISTER_microbatch + 1; r < N_REGISTERS; r++) {
    const int *places = t->places[r][r == REGISTER_slot ? reader : stage];
    int place = places ? places[microbatch] : -1;
    call->registers[r] = place < 0 ? 0 : place;
  }
}

static void add_message(Caller *c, ProgramCallKind kind, int e,
                        int microbatch) {
  Timing *t = c->t;
  const ProgramEdge *edge = &t->edges.data[e];
  int own = kind == CALL_receive ? edge->to : edge->from;
  int other = kind == CALL_receive ? edge->from : edge->to;
  ProgramCall call = {.kind = kind,
                      .stage = c->index[own],
                      .segment = -1,
                      .edge = e,
                      .peer = t->in->stages[other].first_rank -
                              t->in->stages[own].first_rank,
                      .is_first = !c->has_come[e]};
  if (!edge->is_of_step)
    fill_registers(t, &call, own, kind == CALL_pass ? other : own, microbatch);
  c->has_come[e] = true;
  vec_push(t->arena, &c->out->timeline, call);
}

/* A part may be there for its messages alone. */
static void add_call(Caller *c, const Token *token) {
  const Timing *t = c->t;
  const ProgramStage *stage = &t->stages[token->stage];
  bool is_of_step = token_info(token->kind)->is_of_step;
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    if (segment->kind != token->kind ||
        (is_of_step && segment->part != token->microbatch))
      continue;
    ProgramCall call = {.kind = CALL_segment,
                        .stage = c->index[token->stage],
                        .segment = s,
                        .edge = -1,
                        .is_first = !c->is_seen[token->stage][s]};
    if (!is_of_step)
      fill_registers(t, &call, token->stage, token->stage, token->microbatch);
    c->is_seen[token->stage][s] = true;
    vec_push(t->arena, &c->out->timeline, call);
  }
}

/* Values that this call leaves for stages of the same rank. */
static void add_passes(Caller *c, const Token *token) {
  const Timing *t = c->t;
  for (int e = 0; e < t->edges.n; e++) {
    const ProgramEdge *edge = &t->edges.data[e];
    bool is_left = edge->from == token->stage &&
                   edge->from_kind == token->kind && is_shared(t, edge);
    if (is_left && (!edge->is_of_step || edge->from_part == token->microbatch))
      add_message(c, CALL_pass, e, token->microbatch);
  }
}

static void add_token(Caller *c, const Token *token) {
  switch (token_info(token->kind)->role) {
  case TOKEN_ROLE_call:
    add_call(c, token);
    add_passes(c, token);
    return;
  case TOKEN_ROLE_send:
    add_message(c, CALL_send, token->edge, token->microbatch);
    return;
  case TOKEN_ROLE_receive:
    add_message(c, CALL_receive, token->edge, token->microbatch);
    return;
  case TOKEN_ROLE_move: UNREACHABLE();
  }
}

static EntryPoint make_entry(Timing *t, int class) {
  int n_stages = t->in->n_stages;
  EntryPoint entry = {.id = t->in->id,
                      .name = entry_point_name(t->in->id),
                      .batch = t->in->batch,
                      .edges = t->edges};
  Caller c = {.t = t,
              .class = class,
              .index = ARENA_ARRAY(t->arena, int, n_stages),
              .is_seen = ARENA_ARRAY(t->arena, bool *, n_stages),
              .has_come = ARENA_ARRAY(t->arena, bool, t->edges.n),
              .out = &entry};
  for (int s = 0; s < n_stages; s++) {
    if (t->class_of[s] != class) continue;
    c.index[s] = entry.stages.n;
    c.is_seen[s] = ARENA_ARRAY(t->arena, bool, t->stages[s].segments.n);
    vec_push(t->arena, &entry.stages, t->stages[s]);
  }
  const Tokens *list = &t->pipeline->lists[class];
  for (int i = 0; i < list->n; i++) add_token(&c, &list->data[i]);
  return entry;
}

/* ---- the proof ---- */

/* A token, and of a message the path of its value. */
static const char *action_text(const Timing *t, const Token *token) {
  TokenRole role = token_info(token->kind)->role;
  const char *text = token_text(t->arena, t->pipeline, token);
  if (role != TOKEN_ROLE_send && role != TOKEN_ROLE_receive) return text;
  return arena_printf(t->arena, "%s, '%s'", text,
                      t->edges.data[token->edge].path);
}

static void report(Timing *t, const RendezvousResult *result) {
  Diag *d = diag(t->in->diags, DIAG_stages_hang, t->in->span,
                 entry_point_name(t->in->id),
                 rendezvous_verdict_text(result->verdict));
  for (int i = 0; i < result->n_places; i++) {
    RendezvousPlace place = result->places[i];
    const Tokens *list = &t->pipeline->lists[place.class];
    bool is_end = place.action < 0 || place.action >= list->n;
    diag_note(d, SPAN_NONE, "rank %d: %s", t->first_rank[place.class],
              is_end ? "the end" : action_text(t, &list->data[place.action]));
  }
}

static bool prove(Timing *t, const Uses *uses) {
  const RendezvousProgram *program =
      pipeline_rendezvous(t->arena, t->pipeline, 1);
  RendezvousClass *classes =
      arena_copy(t->arena, program->classes,
                 (size_t)t->n_classes * sizeof *program->classes);
  for (int c = 0; c < t->n_classes; c++) {
    classes[c].uses = uses[c].data;
    classes[c].n_uses = uses[c].n;
  }
  RendezvousProgram with_uses = {t->n_classes, classes};
  RendezvousResult result =
      rendezvous_check(t->arena, &with_uses, RENDEZVOUS_all);
  if (result.verdict == RENDEZVOUS_fine) return true;
  report(t, &result);
  return false;
}

/* ---- all of it ---- */

int program_classes(Arena *arena, const ProgramStage *stages, int n_stages,
                    int *out_class_of, const int **out_first_ranks) {
  int *ranks = ARENA_ARRAY(arena, int, n_stages), n = 0;
  for (int s = 0; s < n_stages; s++) {
    int at = n, rank = stages[s].first_rank;
    for (int c = 0; c < n; c++)
      if (ranks[c] >= rank) {
        at = c;
        break;
      }
    if (at < n && ranks[at] == rank) continue;
    for (int c = n++; c > at; c--) ranks[c] = ranks[c - 1];
    ranks[at] = rank;
  }
  for (int s = 0; s < n_stages; s++)
    for (int c = 0; c < n; c++)
      if (ranks[c] == stages[s].first_rank) out_class_of[s] = c;
  *out_first_ranks = ranks;
  return n;
}

bool program_timeline(Arena *arena, const ProgramParts *parts,
                      EntryPoint *out_entries) {
  Timing t = {.arena = arena, .in = parts};
  int n = parts->n_stages;
  const int *first_rank;
  t.class_of = ARENA_ARRAY(arena, int, n);
  t.n_classes =
      program_classes(arena, parts->stages, n, t.class_of, &first_rank);
  t.first_rank = arena_copy(arena, first_rank, (size_t)n * sizeof *first_rank);
  t.n_microbatches = mesh_microbatches(&parts->stages[0].graph->mesh);
  t.stages = ARENA_ARRAY(arena, ProgramStage, n);
  for (int r = 0; r < N_REGISTERS; r++)
    t.places[r] = ARENA_ARRAY(arena, int *, n);
  for (int s = 0; s < n; s++) t.stages[s] = make_stage(&t, s);
  for (int e = 0; e < parts->edges.n; e++) {
    vec_push(arena, &t.edges, parts->edges.data[e]);
    fill_edge(&t, e);
  }
  if (t.is_refused) return false;
  if (parts->has_versions)
    return program_periods(arena, parts, t.stages, &t.edges, out_entries);
  t.pipeline = make_pipeline(&t);
  Uses *uses = ARENA_ARRAY(arena, Uses, t.n_classes);
  assign_frames(&t, uses);
  if (!prove(&t, uses)) return false;
  for (int c = 0; c < t.n_classes; c++) {
    out_entries[c] = make_entry(&t, c);
    ASSERT(entry_point_check(&out_entries[c], NULL));
  }
  return true;
}
