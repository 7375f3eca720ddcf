/*
 * program_periods.c -- makes the timelines of stages that keep versions of
 * their parameters: a period of an endless list for each rank.
 *
 *     period t, stage 0 of 3        period t, stage 1        stage 2
 *       forward  t + 2                forward  t + 1           forward  t
 *       send     t + 2                send     t + 1           receive  t + 1
 *       receive  t                    receive  t + 2           backward t
 *       backward t                    receive  t               send     t
 *       update   t                    backward t               update   t
 *                                     send     t
 *                                     update   t
 *
 * Micro-batches are numbered from 0 on and never flushed: each is a batch with
 * an update of its own, or m of them are.  A call has a lag, the number of its
 * batch minus that of the period.  Where a batch is below 0 or above the last,
 * the call is left out, and so is the message on the other rank: both sides of
 * a message have one lag.  So one list fills the pipeline, runs it and drains
 * it.
 *
 * Stage s runs w forward passes ahead, so batch k of one micro-batch reads the
 * parameters after max(k - w, 0) updates, in its forward and in its backward
 * pass, and update k makes version k + 1 out of version k.  The stage keeps
 * w + 1 versions: version v is in slot v mod (w + 1).
 *
 * Where all stages read one version, it is that of the first stage, whose w is
 * the greatest: each stage keeps as many versions.
 *
 * With m micro-batches, at least as many as stages, w of the next batch run
 * before the update of a batch, so batch k reads the version after max(k - 1,
 * 0) updates in all stages, and each stage keeps two.
 *
 * Messages of a period follow each other as no rank can hang: those of forward
 * passes from the last stage to the first, then those of backward passes.  A
 * rank receives the input of a forward pass in an earlier period, behind its
 * own forward pass.  The lists, unrolled from the first call to the last, are
 * proved by rendezvous_check, frames and slots included.
 *
 * requires: stages of one rank each, no messages of the step
 * cost: O(stages * (calls + edges)) for each unrolled period
 */
#include "ir/pipeline/rendezvous.h"
#include "ir/place/mesh_place.h"
#include "ir/program.h"

typedef struct Periods {
  Arena *arena;
  const ProgramParts *in;
  ProgramStage *stages; /* by number */
  ProgramEdges *edges;
  int *class_of; /* by stage */
  int m;         /* micro-batches of a batch */
  int lead;      /* batches */
  /* By stage: the tokens of a period.  Those of a micro-batch count from its
   * first one, those of the step in batches. */
  Tokens *lists;
  const Pipeline *all; /* unrolled */
  bool is_refused;
} Periods;

static void refuse(Periods *p, const char *what) {
  diag(p->in->diags, DIAG_not_supported, p->in->span,
       arena_printf(p->arena, "%s under a schedule that keeps versions", what));
  p->is_refused = true;
}

/* ---- what it is for ---- */

static const GraphInput *input_of(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  return node->op == OP_input
             ? &graph->inputs.data[node_int(node, ATTR_index, 0)]
             : NULL;
}

/* A value that is computed once a period would be computed again before its
 * last reader. */
static void check_once(Periods *p, const ProgramStage *stage) {
  const Graph *graph = stage->graph;
  const ProgramSegment *once = &stage->segments.data[0];
  for (int id = once->first_node; id < once->end_node; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_input) continue;
    for (int i = 0; i < node->n_inputs; i++)
      if (input_of(graph, node->inputs[i])) {
        refuse(p, arena_printf(p->arena, "'%s' once for all passes of a batch",
                               graph_path(graph, id)));
        return;
      }
  }
}

/* Nodes before the passes read the version of the batch, and those after them
 * the newest one. */
static void check_readers(Periods *p, const ProgramStage *stage,
                          const ProgramSegment *segment) {
  const Graph *graph = stage->graph;
  bool is_update = segment->kind == TOKEN_update;
  for (int id = segment->first_node; id < segment->end_node; id++) {
    const Node *node = graph->nodes.data[id];
    bool updates = node->phase == PHASE_update;
    for (int i = 0; i < node->n_inputs && updates != is_update; i++) {
      const GraphInput *input = input_of(graph, node->inputs[i]);
      if (!input || !graph_find_output(graph, input->role, input->path))
        continue;
      refuse(p, arena_printf(p->arena, "'%s' of '%s' %s", graph_path(graph, id),
                             input->path,
                             is_update ? "after all passes of a batch"
                                       : "before the passes of a batch"));
      return;
    }
  }
}

/* Sums are cleared behind the first forward passes that run ahead. */
static void check_sums(Periods *p, const ProgramStage *stage,
                       const ProgramSegment *segment) {
  const Graph *graph = stage->graph;
  for (int id = segment->first_node; id < segment->end_node; id++)
    if (node_joins_microbatches(graph->nodes.data[id]) && stage->n_ahead > 0) {
      refuse(p, arena_printf(p->arena, "'%s' over forward passes in stage %d",
                             graph_path(graph, id), stage->number));
      return;
    }
}

static void check_segments(Periods *p, const ProgramStage *stage) {
  if (!p->in->has_two) {
    check_once(p, stage);
    return;
  }
  for (int i = 0; i < stage->segments.n && !p->is_refused; i++) {
    const ProgramSegment *segment = &stage->segments.data[i];
    if (segment->kind == TOKEN_once || segment->kind == TOKEN_update)
      check_readers(p, stage, segment);
    if (segment->kind == TOKEN_forward) check_sums(p, stage, segment);
  }
}

/* Results are read at the end of the period of their update. */
static void check_roles(Periods *p, const ProgramStage *stage) {
  const Graph *graph = stage->graph;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_state)
      refuse(p, arena_printf(p->arena, "the state '%s'",
                             graph->inputs.data[i].path));
  for (int i = 0; i < graph->outputs.n; i++) {
    Role role = graph->outputs.data[i].role;
    if (stage->n_ahead > 0 && (role == ROLE_loss || role == ROLE_metric))
      refuse(p,
             arena_printf(p->arena, "'%s' in stage %d, which is not the last",
                          graph->outputs.data[i].path, stage->number));
  }
}

static void check_edges(Periods *p) {
  for (int e = 0; e < p->edges->n; e++) {
    const ProgramEdge *edge = &p->edges->data[e];
    bool is_forward = edge->from_kind == TOKEN_forward && edge->from < edge->to;
    bool is_back = edge->from_kind == TOKEN_backward &&
                   edge->to_kind == TOKEN_backward && edge->from > edge->to;
    if (!edge->is_of_step && (is_forward || is_back)) continue;
    refuse(p, arena_printf(p->arena, "the value '%s' from stage %d to stage %d",
                           edge->path, edge->from, edge->to));
  }
}

/* Each stage is a class of its own; classes are in the order of their ranks. */
static void find_classes(Periods *p) {
  for (int s = 0; s < p->in->n_stages; s++)
    for (int other = 0; other < p->in->n_stages; other++) {
      int first = p->stages[other].first_rank;
      ASSERT(other == s || first != p->stages[s].first_rank);
      p->class_of[s] += first < p->stages[s].first_rank;
    }
}

/* Batches of which a stage has begun a forward pass before the first backward
 * pass of the batch of a period ends. */
static int batches_ahead(const Periods *p, const ProgramStage *stage) {
  return (p->m - 1 + stage->n_ahead) / p->m;
}

/* Forward passes before the first backward pass, but for the one right before
 * it, in a list that is long enough. */
static void find_ahead(Periods *p) {
  int n = p->in->n_stages;
  PipelineShape shape = {n, n, n + 1, p->in->times};
  const Pipeline *calls = pipeline_make(p->arena, p->in->schedule, &shape);
  for (int s = 0; s < n; s++) {
    int n_forward = 0;
    while (calls->lists[s].data[n_forward].kind == TOKEN_forward) n_forward++;
    p->stages[s].n_ahead = n_forward - 1;
    int lead = batches_ahead(p, &p->stages[s]);
    if (lead > p->lead) p->lead = lead;
  }
}

/* ---- the lists ---- */

static void add(Periods *p, int stage, TokenKind kind, int lag, int e) {
  Token token = {.kind = kind, .stage = stage, .microbatch = lag, .edge = e};
  if (token_info(kind)->role == TOKEN_ROLE_send)
    token.peer = p->class_of[p->edges->data[e].to];
  if (token_info(kind)->role == TOKEN_ROLE_receive)
    token.peer = p->class_of[p->edges->data[e].from];
  vec_push(p->arena, &p->lists[stage], token);
}

/* The lag of both sides of a message: that of the call that makes it. */
static int edge_lag(const Periods *p, const ProgramEdge *edge) {
  return edge->from_kind == TOKEN_forward ? p->stages[edge->from].n_ahead : 0;
}

/* Messages of micro-batch `at` of the period. */
static void add_sends(Periods *p, int stage, TokenKind from, int at) {
  for (int e = 0; e < p->edges->n; e++) {
    const ProgramEdge *edge = &p->edges->data[e];
    if (edge->from != stage || edge->from_kind != from) continue;
    add(p, stage,
        from == TOKEN_forward ? TOKEN_send_forward : TOKEN_send_backward,
        at + edge_lag(p, edge), e);
  }
}

/* Later stages send first. */
static void add_receives(Periods *p, int stage, TokenKind from, int at) {
  for (int sender = p->in->n_stages - 1; sender >= 0; sender--)
    for (int e = 0; e < p->edges->n; e++) {
      const ProgramEdge *edge = &p->edges->data[e];
      if (edge->to != stage || edge->from != sender || edge->from_kind != from)
        continue;
      add(p, stage,
          from == TOKEN_forward ? TOKEN_receive_forward
                                : TOKEN_receive_backward,
          at + edge_lag(p, edge), e);
    }
}

static void add_microbatch(Periods *p, int stage, int at) {
  int next = at + p->stages[stage].n_ahead;
  if (next % p->m == 0) add(p, stage, TOKEN_once, next / p->m, -1);
  add(p, stage, TOKEN_forward, next, -1);
  add_sends(p, stage, TOKEN_forward, at);
  add_receives(p, stage, TOKEN_forward, at);
  add_receives(p, stage, TOKEN_backward, at);
  add(p, stage, TOKEN_backward, at, -1);
  add_sends(p, stage, TOKEN_backward, at);
}

static void make_list(Periods *p, int stage) {
  if (p->in->has_two) add(p, stage, TOKEN_clear, 0, -1);
  for (int at = 0; at < p->m; at++) add_microbatch(p, stage, at);
  add(p, stage, TOKEN_update, 0, -1);
}

enum { PERIODS_PROVED = 3 }; /* two between filling and draining, at least */

/* All calls and messages of micro-batches, from filling to draining. */
static Pipeline *unroll(const Periods *p) {
  int n = p->in->n_stages, n_batches = 2 * p->lead + PERIODS_PROVED;
  Pipeline *all = ARENA_NEW(p->arena, Pipeline);
  *all = (Pipeline){.n_ranks = n,
                    .n_stages = n,
                    .n_microbatches = n_batches * p->m,
                    .n_edges = p->edges->n,
                    .edges = program_pipeline_edges(p->arena, p->edges),
                    .lists = ARENA_ARRAY(p->arena, Tokens, n)};
  for (int s = 0; s < n; s++)
    for (int t = -p->lead; t < n_batches; t++)
      for (int i = 0; i < p->lists[s].n; i++) {
        Token token = p->lists[s].data[i];
        token.microbatch += t * p->m;
        if (token_info(token.kind)->is_of_step || token.microbatch < 0 ||
            token.microbatch >= all->n_microbatches)
          continue;
        vec_push(p->arena, &all->lists[p->class_of[s]], token);
      }
  return all;
}

/* ---- frames, slots, versions ---- */

/* By micro-batch: the place of its token in the list of the stage. */
static int *places_of(const Periods *p, int stage, TokenKind kind, int edge) {
  const Tokens *list = &p->all->lists[p->class_of[stage]];
  int *places = ARENA_ARRAY(p->arena, int, p->all->n_microbatches);
  for (int k = 0; k < p->all->n_microbatches; k++) places[k] = -1;
  for (int i = 0; i < list->n; i++)
    if (list->data[i].kind == kind && (edge < 0 || list->data[i].edge == edge))
      places[list->data[i].microbatch] = i;
  return places;
}

/* Places of a ring that has the value of each micro-batch from one token to
 * another. */
static int count_alive(const Periods *p, const int *first, const int *last) {
  int m = p->all->n_microbatches, n = 1;
  for (int k = 0; k < m; k++)
    while (k + n < m && first[k + n] < last[k]) n++;
  return n;
}

static TokenKind receive_kind(const ProgramEdge *edge) {
  return edge->from_kind == TOKEN_forward ? TOKEN_receive_forward
                                          : TOKEN_receive_backward;
}

/* A batch of which several micro-batches run ahead has its data, and what runs
 * once for it, beside those of the one before. */
static void count_places(Periods *p, int s) {
  ProgramStage *stage = &p->stages[s];
  stage->n_input_frames = stage->n_weight_frames = stage->n_slots = 1;
  stage->n_versions = (p->in->is_vertical ? p->lead : stage->n_ahead) + 1;
  if (p->in->has_two) {
    stage->n_versions = 2;
    stage->n_batches = stage->n_ahead > 0 ? 2 : 1;
  }
  stage->n_frames = count_alive(p, places_of(p, s, TOKEN_forward, -1),
                                places_of(p, s, TOKEN_backward, -1));
  for (int e = 0; e < p->edges->n; e++) {
    ProgramEdge *edge = &p->edges->data[e];
    if (edge->to != s) continue;
    edge->n_slots = count_alive(p, places_of(p, s, receive_kind(edge), e),
                                places_of(p, s, edge->last_kind, -1));
    if (edge->n_slots > stage->n_slots) stage->n_slots = edge->n_slots;
  }
}

/* ---- the proof ---- */

typedef VEC(RendezvousUse) Uses;

/* Uses of places of a ring, from `base` on: micro-batch k has place k mod n. */
static void add_uses(const Periods *p, const int *first, const int *last,
                     int base, int n, Uses *uses) {
  for (int k = 0; k < p->all->n_microbatches; k++)
    vec_push(p->arena, uses,
             (RendezvousUse){
                 .place = base + k % n, .first = first[k], .last = last[k]});
}

static Uses find_uses(const Periods *p, int s) {
  const ProgramStage *stage = &p->stages[s];
  Uses uses = {0};
  int base = 0;
  add_uses(p, places_of(p, s, TOKEN_forward, -1),
           places_of(p, s, TOKEN_backward, -1), 0, stage->n_frames, &uses);
  base += stage->n_frames;
  for (int e = 0; e < p->edges->n; e++) {
    const ProgramEdge *edge = &p->edges->data[e];
    int n = edge->n_slots > 1 ? stage->n_slots : 1;
    if (edge->to != s) continue;
    add_uses(p, places_of(p, s, receive_kind(edge), e),
             places_of(p, s, edge->last_kind, -1), base, n, &uses);
    base += n;
  }
  return uses;
}

/* Batch k reads the version after max(k - n_versions + 1, 0) updates, which its
 * first forward pass finds made.  Those from it to the newest that is made
 * before its last backward pass ends have slots of their own. */
static bool keeps_versions(const Periods *p, const ProgramStage *stage) {
  int stale = stage->n_versions - 1;
  if (stale < batches_ahead(p, stage)) return false;
  for (int k = 0; k < p->all->n_microbatches / p->m; k++) {
    int read = k > stale ? k - stale : 0;
    for (int v = read + 1; v <= k; v++)
      if (v % stage->n_versions == read % stage->n_versions) return false;
  }
  return true;
}

static bool prove(Periods *p) {
  int n = p->in->n_stages;
  const Pipeline *all = p->all;
  RendezvousProgram *program =
      pipeline_rendezvous(p->arena, all, p->stages[0].n_ranks);
  RendezvousClass *classes = arena_copy(p->arena, program->classes,
                                        (size_t)n * sizeof *program->classes);
  for (int s = 0; s < n; s++) {
    Uses uses = find_uses(p, s);
    classes[p->class_of[s]].uses = uses.data;
    classes[p->class_of[s]].n_uses = uses.n;
    ASSERT(keeps_versions(p, &p->stages[s]));
  }
  RendezvousProgram with_uses = {n, classes};
  RendezvousResult result =
      rendezvous_check(p->arena, &with_uses, RENDEZVOUS_all);
  if (result.verdict == RENDEZVOUS_fine) return true;
  Diag *d = diag(p->in->diags, DIAG_stages_hang, p->in->span,
                 entry_point_name(p->in->id),
                 rendezvous_verdict_text(result.verdict));
  for (int i = 0; i < result.n_places; i++) {
    const Token *token = rendezvous_token(all, result.places[i]);
    diag_note(d, SPAN_NONE, "rank %d: %s", result.places[i].class,
              token ? token_text(p->arena, all, token) : "the end");
  }
  return false;
}

/* ---- entry points ---- */

/* Calls of micro-batch 0 of a batch are the first of it. */
static ProgramCall make_call(const Periods *p, const Token *token) {
  bool is_of_step = token_info(token->kind)->is_of_step;
  int m = is_of_step ? 1 : p->m;
  ProgramCall call = {.segment = -1,
                      .edge = -1,
                      .is_first = token->microbatch % m == 0,
                      .lag = token->microbatch / m};
  bool is_update = token->kind == TOKEN_update;
  call.registers[REGISTER_microbatch] = token->microbatch % m;
  call.registers[REGISTER_version] =
      is_update ? 0 : 1 - p->stages[token->stage].n_versions;
  call.registers[REGISTER_new_version] = 1;
  return call;
}

static void add_segments(const Periods *p, const Token *token,
                         EntryPoint *out) {
  const ProgramStage *stage = &p->stages[token->stage];
  for (int i = 0; i < stage->segments.n; i++) {
    if (stage->segments.data[i].kind != token->kind) continue;
    ProgramCall call = make_call(p, token);
    call.kind = CALL_segment;
    call.segment = i;
    vec_push(p->arena, &out->timeline, call);
  }
}

static void add_message(const Periods *p, const Token *token, EntryPoint *out) {
  const ProgramEdge *edge = &p->edges->data[token->edge];
  bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
  int other = is_send ? edge->to : edge->from;
  ProgramCall call = make_call(p, token);
  call.kind = is_send ? CALL_send : CALL_receive;
  call.edge = token->edge;
  call.peer = p->stages[other].first_rank - p->stages[token->stage].first_rank;
  vec_push(p->arena, &out->timeline, call);
}

/* All segments read the registers: the update those of versions. */
static EntryPoint make_entry(Periods *p, int s) {
  ProgramStage *stage = &p->stages[s];
  EntryPoint entry = {.id = p->in->id,
                      .name = entry_point_name(p->in->id),
                      .batch = p->in->batch,
                      .edges = *p->edges,
                      .is_period = true,
                      .lead = p->lead};
  for (int i = 0; i < stage->segments.n; i++)
    stage->segments.data[i].n_registers = N_REGISTERS;
  vec_push(p->arena, &entry.stages, *stage);
  for (int i = 0; i < p->lists[s].n; i++) {
    const Token *token = &p->lists[s].data[i];
    if (token_info(token->kind)->role == TOKEN_ROLE_call)
      add_segments(p, token, &entry);
    else
      add_message(p, token, &entry);
  }
  return entry;
}

bool program_periods(Arena *arena, const ProgramParts *parts,
                     ProgramStage *stages, ProgramEdges *edges,
                     EntryPoint *out_entries) {
  int n = parts->n_stages;
  Periods p = {.arena = arena,
               .in = parts,
               .stages = stages,
               .edges = edges,
               .m = mesh_microbatches(&stages[0].graph->mesh),
               .class_of = ARENA_ARRAY(arena, int, n),
               .lists = ARENA_ARRAY(arena, Tokens, n)};
  find_classes(&p);
  find_ahead(&p);
  check_edges(&p);
  for (int s = 0; s < n && !p.is_refused; s++) {
    check_segments(&p, &stages[s]);
    check_roles(&p, &stages[s]);
  }
  if (p.is_refused) return false;
  for (int s = 0; s < n; s++) make_list(&p, s);
  p.all = unroll(&p);
  for (int s = 0; s < n; s++) count_places(&p, s);
  if (!prove(&p)) return false;
  for (int s = 0; s < n; s++) out_entries[p.class_of[s]] = make_entry(&p, s);
  return true;
}
