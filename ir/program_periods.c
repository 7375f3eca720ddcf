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
 * Where a stage has r replicas, micro-batch k is of replica k mod r, there and
 * back.  The gradients of r micro-batches are added up, and their mean makes
 * one update.  The stage runs w = (ranks of this stage and later ones - 1) / r
 * ahead, rounded down.  A period has as many micro-batches as all replicas
 * divide, and each rank a list of its own.  Where micro-batches end inside of a
 * group, the gradients of replicas that have none are 0.  Where a batch has m
 * micro-batches, which r divides, these are the group: it is complete, and a
 * period is a batch.
 *
 * The orders of lists are found in program_period_lists.c.  The timelines that
 * are made of them are proved in program_period_proof.c.
 *
 * requires: stages on ranks of their own, no messages of the step
 * cost: O(stages * (calls + edges)) for each unrolled period
 */
#include "ir/program_periods.h"

#include "ir/place/mesh_place.h"

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

/* A state has one version, which forward passes ahead of its update would read
 * too early. */
static void check_states(Periods *p, const ProgramStage *stage) {
  const Graph *graph = stage->graph;
  for (int id = 0; id < graph->nodes.n && !p->is_refused; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      const GraphInput *input = input_of(graph, node->inputs[i]);
      if (!input || input->role != ROLE_state ||
          !graph_find_output(graph, ROLE_state, input->path) ||
          node->phase == PHASE_update)
        continue;
      Diag *d = diag(p->in->diags, DIAG_not_supported, node->span,
                     arena_printf(p->arena,
                                  "reading the state '%s' in a pass under a "
                                  "schedule that keeps versions of parameters",
                                  input->path));
      diag_note(d, p->in->span,
                "passes of later batches would read it before the update that "
                "writes it");
      diag_help(d, "a schedule that waits for updates, as 1f1b, allows it");
      p->is_refused = true;
      return;
    }
  }
}

/* Results are read at the end of the period of their update. */
static void check_roles(Periods *p, const ProgramStage *stage) {
  const Graph *graph = stage->graph;
  check_states(p, stage);
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

/* ---- ranks ---- */

static void find_ranks(Periods *p) {
  int n = p->in->n_stages;
  for (int s = 0; s < n; s++) p->n_ranks += p->stages[s].n_ranks;
  PeriodRank *ranks = ARENA_ARRAY(p->arena, PeriodRank, p->n_ranks);
  for (int s = 0; s < n; s++) {
    const ProgramStage *stage = &p->stages[s];
    for (int other = 0; other < n; other++)
      if (p->stages[other].first_rank < stage->first_rank)
        p->first_of[s] += p->stages[other].n_ranks;
    for (int i = 0; i < stage->n_ranks; i++)
      ranks[p->first_of[s] + i] = (PeriodRank){s, i};
  }
  p->ranks = ranks;
}

static int greatest_divisor(int a, int b) {
  return b == 0 ? a : greatest_divisor(b, a % b);
}

static void find_units(Periods *p) {
  p->m = mesh_microbatches(&p->stages[0].graph->mesh);
  p->n_units = p->m;
  for (int s = 0; s < p->in->n_stages; s++) {
    int n = p->stages[s].n_ranks;
    p->n_units *= n / greatest_divisor(p->n_units, n);
  }
}

/* Forward passes ahead keep all ranks of later stages at work. */
static void find_ahead(Periods *p) {
  int later = 0;
  for (int s = p->in->n_stages - 1; s >= 0; s--) {
    later += p->stages[s].n_ranks;
    p->stages[s].n_ahead = (later - 1) / p->stages[s].n_ranks;
  }
}

/* ---- entry points ---- */

static ProgramRing ring(int divisor, int shift, int factor, int n) {
  return (ProgramRing){divisor, shift, factor, n};
}

/* Frames and slots count the units of a replica, versions its updates. */
static void fill_rings(const Periods *p, int s, bool is_update,
                       ProgramRing *rings) {
  const ProgramStage *stage = &p->stages[s];
  int stride = period_stride(p, s), group = period_group(p, s);
  int first = p->in->is_vertical ? 0 : s, of_first = period_group(p, first);
  int stale = p->in->has_two ? 1 : p->stages[first].n_ahead;
  for (int r = REGISTER_frame; r < N_REGISTERS; r++)
    rings[r] = ring(stride, 0, 1, stage_places(stage, (ProgramRegister)r));
  rings[REGISTER_microbatch] = ring(1, 0, 1, p->m);
  rings[REGISTER_batch] = ring(p->m, 0, 1, stage_places(stage, REGISTER_batch));
  rings[REGISTER_version] =
      is_update ? ring(group, 0, 1, stage->n_versions)
                : ring(of_first, -stale, of_first / group, stage->n_versions);
  rings[REGISTER_new_version] = ring(group, 1, 1, stage->n_versions);
}

/* The first unit of a replica in a batch. */
static bool is_first_of_batch(const Periods *p, int stage, int unit) {
  return unit % p->m < period_stride(p, stage);
}

static ProgramCall make_call(const Periods *p, int rank, const Token *token) {
  const PeriodRank *of = &p->ranks[rank];
  bool is_update = token->kind == TOKEN_update;
  bool has_missing = period_has_missing(p, of->stage);
  ProgramCall call = {.segment = -1,
                      .edge = -1,
                      .is_first =
                          is_first_of_batch(p, of->stage, token->microbatch),
                      .unit = token->microbatch,
                      .replica = of->replica,
                      .begins = token->kind == TOKEN_once};
  if (is_update) call.when = PERIOD_group;
  if (token->kind == TOKEN_clear && has_missing) call.when = PERIOD_missing;
  fill_rings(p, of->stage, is_update, call.rings);
  return call;
}

static void add_segments(const Periods *p, int rank, const Token *token,
                         EntryPoint *out) {
  const ProgramStage *stage = &p->stages[token->stage];
  for (int i = 0; i < stage->segments.n; i++) {
    if (stage->segments.data[i].kind != token->kind) continue;
    ProgramCall call = make_call(p, rank, token);
    call.kind = CALL_segment;
    call.segment = i;
    vec_push(p->arena, &out->timeline, call);
  }
}

static int rank_of(const Periods *p, int rank) {
  return p->stages[p->ranks[rank].stage].first_rank + p->ranks[rank].replica;
}

static void add_message(const Periods *p, int rank, const Token *token,
                        EntryPoint *out) {
  bool is_send = token_info(token->kind)->role == TOKEN_ROLE_send;
  ProgramCall call = make_call(p, rank, token);
  call.kind = is_send ? CALL_send : CALL_receive;
  call.edge = token->edge;
  call.peer = rank_of(p, token->peer) - rank_of(p, rank);
  vec_push(p->arena, &out->timeline, call);
}

/* All segments read the registers: the update those of versions. */
static EntryPoint make_entry(Periods *p, int rank) {
  ProgramStage *stage = &p->stages[p->ranks[rank].stage];
  EntryPoint entry = {.id = p->in->id,
                      .name = entry_point_name(p->in->id),
                      .batch = p->in->batch,
                      .edges = *p->edges,
                      .is_period = true,
                      .lead = p->lead,
                      .n_units = p->n_units,
                      .batch_units = p->m};
  for (int i = 0; i < stage->segments.n; i++)
    stage->segments.data[i].n_registers = N_REGISTERS;
  vec_push(p->arena, &entry.stages, *stage);
  for (int i = 0; i < p->lists[rank].n; i++) {
    const Token *token = &p->lists[rank].data[i];
    if (token_info(token->kind)->role == TOKEN_ROLE_call)
      add_segments(p, rank, token, &entry);
    else
      add_message(p, rank, token, &entry);
  }
  return entry;
}

static void report(Periods *p, const EntryPoint *entries,
                   const PeriodFault *fault) {
  Diag *d = diag(p->in->diags, DIAG_stages_hang, p->in->span,
                 entry_point_name(p->in->id),
                 rendezvous_verdict_text(fault->verdict));
  for (int i = 0; i < fault->n_places; i++) {
    const PeriodFaultPlace *place = &fault->places[i];
    Text text = text_create(p->arena);
    if (place->call)
      program_call_print(&text, &entries[place->rank], place->call);
    diag_note(d, SPAN_NONE, "rank %d, micro-batch %lld: %s",
              rank_of(p, place->rank), (long long)place->unit,
              place->call ? text_string(&text) : "the end");
  }
}

static void check_parts(Periods *p) {
  check_edges(p);
  for (int s = 0; s < p->in->n_stages && !p->is_refused; s++) {
    check_segments(p, &p->stages[s]);
    check_roles(p, &p->stages[s]);
  }
}

bool program_periods(Arena *arena, const ProgramParts *parts,
                     ProgramStage *stages, ProgramEdges *edges,
                     EntryPoint *out_entries) {
  Periods p = {.arena = arena,
               .in = parts,
               .stages = stages,
               .edges = edges,
               .first_of = ARENA_ARRAY(arena, int, parts->n_stages)};
  find_ranks(&p);
  find_units(&p);
  find_ahead(&p);
  p.rules = (PeriodRules){parts->has_two, parts->is_vertical, p.m, stages};
  check_parts(&p);
  if (p.is_refused) return false;
  p.lists = ARENA_ARRAY(arena, Tokens, p.n_ranks);
  bool has_lists = period_lists(&p);
  ASSERT(has_lists); /* the edges of a pipeline have no circle */
  period_unroll(&p);
  period_places(&p);
  for (int rank = 0; rank < p.n_ranks; rank++)
    out_entries[rank] = make_entry(&p, rank);
  PeriodFault fault = period_prove(arena, out_entries, p.n_ranks, &p.rules);
  if (fault.verdict != RENDEZVOUS_fine) report(&p, out_entries, &fault);
  return fault.verdict == RENDEZVOUS_fine;
}
