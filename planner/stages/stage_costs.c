/*
 * stage_costs.c -- adds up what pieces cost.
 */
#include "planner/stages/stage_costs.h"

typedef struct CostMaker {
  Arena *arena;
  const StageCostsRequest *r;
  const Proposal *proposal;
  Loads *loads;
  StageCost *pieces;
  Bytes *sent, *sent_back; /* by piece: bytes of a rank */
} CostMaker;

static bool recomputes(const CostMaker *m, int unit) {
  return m->proposal->recomputes &&
         m->r->of->units->units.data[unit]->block >= 0;
}

/* ---- units ---- */

static void add_unit(CostMaker *m, int unit) {
  const UnitPieces *at = &m->r->chain->units[unit];
  Load load = loads_of_unit(m->loads, unit, m->proposal->assignments[unit]);
  const ZeroLoad *zero = &load.zero[m->proposal->zero];
  int64_t n = m->proposal->microbatches;
  bool again = recomputes(m, unit);
  StageCost own = {
      .forward = (load.forward - zero->less_cast + load.wait[0]) / n,
      .input_grad = (load.input_gradient + load.wait[1] +
                     (again ? load.forward - load.casts + load.wait[0] : 0)) /
                    n,
      .weight_grad = load.weight_gradient / n,
      .bulk = zero->bulk,
      .update = zero->update};
  for (int i = 0; i < at->n; i++) {
    StageCost *piece = &m->pieces[at->pieces[i]];
    piece->forward += own.forward;
    piece->input_grad += own.input_grad;
    piece->weight_grad += own.weight_grad;
    piece->bulk += own.bulk;
    piece->update += own.update;
  }
}

/* ---- edges ---- */

/* The bytes of a rank's shard. */
static Bytes shard_bytes(const CostMaker *m, const Type *type, int unit,
                         const DimMap *dims) {
  const Mesh *mesh = m->proposal->place.mesh;
  int64_t n = dtype_size_bytes(type->dtype);
  for (int d = 0; d < type->rank; d++) {
    AxisList list =
        assignment_axes(mesh, m->proposal->assignments[unit], dims->at[d]);
    int64_t shards = 1;
    for (int i = 0; i < axis_list_length(list); i++)
      shards *= mesh->axes[axis_list_at(list, i)].size;
    n *= (type->dims[d].size + shards - 1) / shards;
  }
  return n;
}

/* Returns the value that pieces behind that of a parameter read, or NULL. */
static const StageValue *shared_cast(const CostMaker *m, Name path) {
  const StageValues *values = m->r->values;
  for (int v = 0; v < values->values.n; v++)
    if (values->values.data[v].shared == path) return &values->values.data[v];
  return NULL;
}

static SharedCost shared_cost(const CostMaker *m, const SharedParam *shared) {
  const UnitParam *param = &m->r->of->units->params.data[shared->param];
  const StageValue *cast = shared_cast(m, param->path);
  int size = dtype_size_bytes(param->type->dtype);
  Bytes shard = shard_bytes(m, param->type, param->unit, &param->dims);
  SharedCost out = {.first = shared->first,
                    .last = shared->last,
                    .keeps_update = m->r->values->keeps_update[shared->param],
                    .bytes = type_elements(param->type) * size};
  out.shard = m->proposal->zero > 0 ? out.bytes / m->r->of->ranks : shard;
  out.gradient = out.bytes;
  if (!cast) return out;
  int cast_size = dtype_size_bytes(cast->type->dtype);
  out.cast = out.bytes / size * cast_size;
  out.gradient =
      shard_bytes(m, cast->type, cast->unit, &cast->dims) / cast_size * size;
  return out;
}

static const SharedCost *shared_costs(const CostMaker *m) {
  const StageChain *chain = m->r->chain;
  SharedCost *out = ARENA_ARRAY(m->arena, SharedCost, chain->shared.n + 1);
  for (int i = 0; i < chain->shared.n; i++)
    out[i] = shared_cost(m, &chain->shared.data[i]);
  return out;
}

/* A message has a value as a stage receives its data: whole but for the batch,
 * since no line says more of it. */
static Bytes message_bytes(const CostMaker *m, const UnitEdge *edge) {
  const PlanUnit *unit = m->r->of->units->units.data[edge->from];
  DimMap dims = edge->from_dims;
  for (int d = 0; d < edge->type->rank; d++)
    if (dims.at[d] >= 0 && !(unit->batch >> dims.at[d] & 1)) dims.at[d] = -1;
  return shard_bytes(m, edge->type, edge->from, &dims) /
         m->proposal->microbatches;
}

/* A value that goes on is the largest one that a unit of a later piece reads,
 * a gradient that goes back that of an earlier one. */
static void add_message(CostMaker *m, const UnitEdge *edge) {
  const UnitPieces *from = &m->r->chain->units[edge->from],
                   *to = &m->r->chain->units[edge->to];
  Bytes bytes = message_bytes(m, edge);
  for (int i = 0; i < from->n; i++) {
    int piece = from->pieces[i];
    if (!unit_edge_leaves(from, to, i)) continue;
    if (!edge->is_backward && bytes > m->sent[piece]) m->sent[piece] = bytes;
    if (edge->is_backward && piece > 0 && bytes > m->sent_back[piece - 1])
      m->sent_back[piece - 1] = bytes;
  }
}

static void add_edge(CostMaker *m, int at) {
  const Units *units = m->r->of->units;
  const UnitEdge *edge = &units->edges.data[at];
  const UnitPieces *to = &m->r->chain->units[edge->to];
  EdgeLoad load =
      loads_of_edge(m->loads, edge, m->proposal->assignments[edge->from],
                    m->proposal->assignments[edge->to]);
  Ps wait = load.wait / m->proposal->microbatches;
  for (int i = 0; i < to->n; i++) {
    StageCost *piece = &m->pieces[to->pieces[i]];
    if (!edge->is_backward) piece->forward += wait;
    if (edge->is_backward || recomputes(m, edge->to)) piece->input_grad += wait;
  }
  add_message(m, edge);
}

/* ---- messages ---- */

/* Borders inside of kernels, which no edge goes over. */
static void add_inner(CostMaker *m) {
  const StageChain *chain = m->r->chain;
  for (int i = 0; i + 1 < chain->n && chain->inner; i++)
    if (chain->inner[i].type)
      m->sent[i] = m->sent_back[i] =
          stage_inner_bytes(chain, i, m->r->of->units, m->proposal);
}

/* Each rank of a group sends to the rank of another one, all at a time. */
static Ps message_time(const CostMaker *m, int64_t from, int64_t to,
                       Bytes bytes) {
  const ClusterSlice *slice = m->r->slice;
  GroupLevel *levels =
      ARENA_ARRAY(m->arena, GroupLevel, cost_links(slice->cluster));
  int n_levels = cost_message_levels(
      slice, from, to, (RankRange){from, m->r->of->ranks}, levels);
  SimTransfer t = cost_transfer(m->arena, m->r->of->model, slice->cluster,
                                OP_permute, bytes, 2, levels, n_levels);
  Ps busy = 0;
  for (int l = 0; l < t.n_loads; l++)
    if (t.loads[l].busy > busy) busy = t.loads[l].busy;
  return t.latency + busy;
}

static const MessageRate *message_rates(const CostMaker *m) {
  enum { FEW = 1 << 20, MANY = 1 << 24 };
  int64_t n = m->r->of->ranks, groups = m->r->slice->n / n;
  MessageRate *rates = ARENA_ARRAY(m->arena, MessageRate, groups);
  for (int64_t g = 0; g < groups; g++) {
    int64_t from = g * n, to = (g + 1) % groups * n;
    if (from == to) continue;
    Ps few = message_time(m, from, to, FEW);
    double per_byte =
        (double)(message_time(m, from, to, MANY) - few) / (MANY - FEW);
    rates[g] = (MessageRate){few - (Ps)(per_byte * FEW), per_byte};
  }
  return rates;
}

Ps stage_message(const StageCosts *costs, int piece, bool is_back, int from,
                 int to) {
  Bytes bytes = (is_back ? costs->sent_back : costs->sent)[piece];
  bool is_first = from + 1 == to || (to == 0 && from > 1);
  const MessageRate *rate = &costs->rates[is_first ? from : to];
  return rate->latency + (Ps)(rate->per_byte * (double)bytes);
}

Ps stage_far_message(const StageCosts *costs, int groups, Bytes bytes) {
  Ps most = 0;
  for (int g = 0; g < groups; g++) {
    const MessageRate *rate = &costs->rates[g];
    Ps time = rate->latency + (Ps)(rate->per_byte * (double)bytes);
    if (time > most) most = time;
  }
  return most;
}

/* ---- sums ---- */

static void add(StageCost *sum, const StageCost *more, int sign) {
  sum->forward += sign * more->forward;
  sum->input_grad += sign * more->input_grad;
  sum->weight_grad += sign * more->weight_grad;
  sum->bulk += sign * more->bulk;
  sum->update += sign * more->update;
  sum->state += sign * more->state;
  sum->gradient += sign * more->gradient;
  sum->saved += sign * more->saved;
}

void stage_cost_add(StageCost *sum, const StageCost *more) {
  add(sum, more, 1);
}

StageCost stage_cost(const StageCosts *costs, int first, int end) {
  StageCost out = costs->to[end];
  add(&out, &costs->to[first], -1);
  return out;
}

/* Fills in the bytes, and returns the most that any piece needs beside. */
static Bytes add_bytes(const StageBytes *bytes, int n, StageCost *to) {
  Bytes most = 0;
  for (int i = 0; i <= n; i++) {
    to[i].state = bytes->to[i].state;
    to[i].gradient = bytes->to[i].step;
    to[i].saved = bytes->to[i].saved + bytes->to[i].early;
  }
  for (int i = 0; i < n; i++)
    for (int c = 0; c < N_SCRATCH_CALLS; c++)
      if (bytes->scratch[i].of[c][N_BESIDES - 1] > most)
        most = bytes->scratch[i].of[c][N_BESIDES - 1];
  return most;
}

StageCosts stage_costs_of(Arena *arena, const StageCostsRequest *request,
                          const Proposal *proposal) {
  const SpaceRequest *of = request->of;
  LoadRequest loads = {.units = of->units,
                       .mesh = proposal->place.mesh,
                       .slice = of->slice,
                       .model = of->model,
                       .microbatches = proposal->microbatches,
                       .chains = of->chains};
  int n = request->chain->n;
  CostMaker m = {.arena = arena,
                 .r = request,
                 .proposal = proposal,
                 .loads = loads_create(arena, &loads),
                 .pieces = ARENA_ARRAY(arena, StageCost, n),
                 .sent = ARENA_ARRAY(arena, Bytes, n),
                 .sent_back = ARENA_ARRAY(arena, Bytes, n)};
  for (int u = 0; u < of->units->units.n; u++) add_unit(&m, u);
  for (int i = 0; i < of->units->edges.n; i++) add_edge(&m, i);
  add_inner(&m);
  StageCost *to = ARENA_ARRAY(arena, StageCost, n + 1);
  for (int i = 0; i < n; i++) {
    to[i + 1] = to[i];
    add(&to[i + 1], &m.pieces[i], 1);
  }
  StageBytesRequest bytes_of = {request->chain, request->values, of->units,
                                request->target};
  const StageBytes *bytes = stage_bytes_of(arena, &bytes_of, proposal);
  return (StageCosts){.n = n,
                      .to = to,
                      .bytes = bytes,
                      .transient = add_bytes(bytes, n, to),
                      .sent = m.sent,
                      .sent_back = m.sent_back,
                      .rates = message_rates(&m),
                      .n_shared = request->chain->shared.n,
                      .shared = shared_costs(&m)};
}
