/*
 * stage_bytes.c -- adds up the bytes of pieces.
 */
#include "planner/stages/stage_bytes.h"

typedef struct BytesMaker {
  Arena *arena;
  const StageBytesRequest *r;
  const Proposal *proposal;
  Bytes *bytes; /* by value: of a rank; of data all micro-batches */
  Bytes *again; /* by piece: what it computes again, that is saved then */
  PieceBytes *pieces;
  PieceScratch *scratch;
  struct Gathers *forward, *backward; /* by piece */
  StageBytes *out;
} BytesMaker;

/* ---- sizes ---- */

static int64_t shards_of(const BytesMaker *m, int unit, int loop) {
  const Mesh *mesh = m->proposal->place.mesh;
  const Assignment *assignment = &m->proposal->assignments[unit];
  int64_t n = 1;
  for (int a = 0; a < mesh->n_axes && loop >= 0; a++)
    if (assignment->loop[a] == loop) n *= mesh->axes[a].size;
  return n;
}

/* Buffers begin at multiples of it. */
static Bytes align_up(const BytesMaker *m, Bytes bytes) {
  const Target *target = m->r->target;
  Bytes unit = target ? target->alignment_bytes : 0;
  if (unit <= 0) unit = 64;
  return (bytes + unit - 1) / unit * unit;
}

/* `is_sent`: no dim is sharded but the batch. */
static Bytes local_bytes(const BytesMaker *m, int unit, const Type *type,
                         const DimMap *dims, bool is_sent) {
  const PlanUnit *u = m->r->units->units.data[unit];
  Bytes n = dtype_size_bytes(type->dtype);
  for (int d = 0; d < type->rank; d++) {
    int loop = dims->at[d];
    bool is_batch = loop >= 0 && u->batch >> loop & 1;
    int64_t shards = is_sent && !is_batch ? 1 : shards_of(m, unit, loop);
    if (is_batch) shards *= m->proposal->microbatches;
    n *= (type->dims[d].size + shards - 1) / shards;
  }
  return align_up(m, n);
}

static void find_sizes(BytesMaker *m) {
  const StageValues *values = m->r->values;
  for (int v = 0; v < values->values.n; v++) {
    const StageValue *value = &values->values.data[v];
    m->bytes[v] =
        local_bytes(m, value->unit, value->type, &value->dims, false) *
        (value->is_data ? m->proposal->microbatches : 1);
  }
}

/* ---- values ---- */

static bool is_read(const StageValue *v, StageCall call) {
  return v->read >> call & 1;
}

static bool is_again(const BytesMaker *m, const StageValue *v) {
  return m->proposal->recomputes && v->is_inside;
}

static const StageValue *value_at(const BytesMaker *m, int at) {
  return &m->r->values->values.data[at];
}

/* A gradient that takes the bytes of a value of the forward pass.  It does not
 * where a later call reads that. */
static bool takes_saved(const BytesMaker *m, const StageValue *v,
                        bool is_split) {
  if (v->overwrites < 0 || v->made == CALL_F) return false;
  const StageValue *over = value_at(m, v->overwrites);
  return over->made == CALL_F && !(is_split && is_read(over, CALL_W));
}

/* A gradient takes the bytes of the value, and weight gradients read it. */
static bool is_taken_for_weights(const BytesMaker *m, int at) {
  const StageValue *v = value_at(m, at);
  if (v->taken_by < 0) return false;
  const StageValue *by = value_at(m, v->taken_by);
  return takes_saved(m, by, true) && is_read(by, CALL_W);
}

/* Returns what a value adds to the sums of its piece.  A block that is computed
 * again begins with values of others, which stay. */
static PieceBytes sums_of(const BytesMaker *m, int at) {
  const StageValue *v = &m->r->values->values.data[at];
  Bytes bytes = m->bytes[at];
  PieceBytes out = {0};
  if (v->is_data || v->of_params) {
    if (v->is_data || (m->proposal->zero < 3 && !v->shared)) out.step = bytes;
    return out;
  }
  bool is_for_weights = is_read(v, CALL_W) || is_taken_for_weights(m, at);
  bool is_saved =
      v->made == CALL_F && (is_read(v, CALL_I) || is_read(v, CALL_W));
  if (is_saved && !is_again(m, v))
    *(is_for_weights ? &out.saved : &out.early) = bytes;
  if (!is_saved && v->made == CALL_F && v->feeds_block &&
      m->proposal->recomputes)
    out.early = bytes;
  if (is_for_weights && (v->made == CALL_I || (is_saved && is_again(m, v))) &&
      !takes_saved(m, v, true))
    out.late = bytes;
  return out;
}

void piece_bytes_add(PieceBytes *sum, const PieceBytes *more) {
  sum->state += more->state;
  sum->step += more->step;
  sum->saved += more->saved;
  sum->early += more->early;
  sum->late += more->late;
  sum->gathered += more->gathered;
  sum->summed += more->summed;
}

static int bounded(const BytesMaker *m, int piece) {
  if (piece < 0) return 0;
  return piece < m->r->chain->n ? piece : m->r->chain->n - 1;
}

/* The piece of copy `i` of what a unit makes. */
static int shifted(const BytesMaker *m, int unit, int shift, int i) {
  return bounded(m, m->r->chain->units[unit].pieces[i] + shift);
}

static Bytes read_bytes(const BytesMaker *m, const StageValue *v) {
  if (v->reader < 0) return local_bytes(m, v->unit, v->type, &v->dims, true);
  return local_bytes(m, v->reader, v->reader_type, &v->reader_dims, false);
}

static void add_crossing(BytesMaker *m, int at, const PieceBytes *own) {
  const StageValue *v = &m->r->values->values.data[at];
  const UnitPieces *pieces = &m->r->chain->units[v->unit];
  bool is_back = v->made != CALL_F;
  if (v->is_of_step || (is_back ? v->first_piece == 0 : v->last_piece == 0))
    return;
  CrossingValue out = {.is_back = is_back,
                       .sent = local_bytes(m, v->unit, v->type, &v->dims, true),
                       .read = read_bytes(m, v),
                       .saved = own->saved,
                       .early = own->early,
                       .late = own->late};
  for (int i = 0; i < pieces->n; i++) {
    out.piece = shifted(m, v->unit, v->shift, i);
    for (int c = 0; c < N_STAGE_CALLS; c++) {
      bool is_one = is_read(v, (StageCall)c);
      out.first[c] = is_one ? bounded(m, out.piece + v->first_of[c]) : -1;
      out.last[c] = is_one ? bounded(m, out.piece + v->last_of[c]) : -1;
    }
    vec_push(m->arena, &m->out->crossing, out);
  }
}

static void add_values(BytesMaker *m) {
  for (int v = 0; v < m->r->values->values.n; v++) {
    const StageValue *value = &m->r->values->values.data[v];
    const UnitPieces *pieces = &m->r->chain->units[value->unit];
    PieceBytes own = sums_of(m, v);
    bool is_saved = is_read(value, CALL_I) || is_read(value, CALL_W);
    for (int i = 0; i < pieces->n; i++) {
      int piece = shifted(m, value->unit, value->shift, i);
      piece_bytes_add(&m->pieces[piece], &own);
      if (value->made == CALL_F && is_saved && is_again(m, value))
        m->again[piece] += m->bytes[v];
    }
    if (!value->is_data && !value->of_params) add_crossing(m, v, &own);
  }
}

/* ---- parameters ---- */

static void raise(Bytes *to, Bytes bytes) {
  if (bytes > *to) *to = bytes;
}

/* The two largest parameters that a pass gathers: one is gathered while the
 * kernel before its reader runs. */
typedef struct Gathers {
  Bytes largest, second;
} Gathers;

static void raise_gathers(Gathers *to, Bytes bytes) {
  raise(&to->second, bytes < to->largest ? bytes : to->largest);
  raise(&to->largest, bytes);
}

static void gather(BytesMaker *m, int piece, const UnitParam *param,
                   Bytes bytes) {
  raise_gathers(&m->forward[piece], bytes);
  if (param->passes == 1) return;
  raise_gathers(&m->backward[piece], bytes);
  m->pieces[piece].gathered += bytes;
}

/* How a parameter lies on the ranks of a stage. */
typedef struct ParamShards {
  int64_t elements; /* of a rank, before ZeRO */
  int64_t own;      /* ranks that share it out */
  int64_t copies;   /* ranks that have a copy */
  int64_t summed;   /* ranks that add up their gradients */
} ParamShards;

static ParamShards shards_of_param(const BytesMaker *m,
                                   const UnitParam *param) {
  const Mesh *mesh = m->proposal->place.mesh;
  const PlanUnit *unit = m->r->units->units.data[param->unit];
  ParamShards out = {1, 1, 1, 1};
  for (int d = 0; d < param->type->rank; d++) {
    int64_t shards = shards_of(m, param->unit, param->dims.at[d]);
    out.elements *= (param->type->dims[d].size + shards - 1) / shards;
    out.own *= shards;
  }
  for (int a = 0; a < mesh->n_axes; a++) out.copies *= mesh->axes[a].size;
  for (int d = 0; d < unit->n_dims; d++)
    out.summed *= shards_of(m, param->unit, d);
  out.copies /= out.own;
  out.summed /= out.own;
  return out;
}

/* A rank has a buffer for its shard of each part of the state. */
static Bytes state_bytes(const BytesMaker *m, const UnitParam *param,
                         const ParamShards *at) {
  Bytes size =
      type_elements(param->type) * dtype_size_bytes(param->type->dtype);
  Bytes shard = size / at->own / (m->proposal->zero > 0 ? at->copies : 1);
  int64_t n = param->state / size; /* of its size */
  return n * align_up(m, shard) +
         align_up(m, (param->state - n * size) * shard / size);
}

/* The gradient, which is a shard from level 2 on where ranks sum it, and beside
 * it that of the rank; with levels 1 and 2 the gathered parameter; its cast, of
 * the shard with ZeRO; an update whose norm is needed. */
static Bytes step_bytes(const BytesMaker *m, const UnitParam *param,
                        const ParamShards *at) {
  int zero = m->proposal->zero;
  bool has_shards = zero > 0 && at->copies > 1;
  Bytes gradient = at->elements * 4;
  Bytes whole = align_up(m, at->elements * dtype_size_bytes(param->read_as));
  int64_t parts = zero >= 2 ? at->summed : 1;
  Bytes out = align_up(m, gradient / parts);
  if (zero > 0 && at->copies > parts) out += align_up(m, gradient / at->copies);
  if (has_shards && zero < 3 && param->cast < 0) out += whole;
  if (has_shards && param->read_as != param->type->dtype)
    out += align_up(m, whole / at->copies);
  if (m->r->values->keeps_update[param - m->r->units->params.data])
    out += align_up(m, gradient / (zero > 0 ? at->copies : 1));
  return out;
}

/* Level 3 gathers a parameter for each pass of each micro-batch; levels 2 and 3
 * sum its gradients then. */
static void add_param(BytesMaker *m, const UnitParam *param) {
  const UnitPieces *pieces = &m->r->chain->units[param->unit];
  ParamShards at = shards_of_param(m, param);
  PieceBytes sums = {.state = state_bytes(m, param, &at),
                     .step = step_bytes(m, param, &at)};
  Bytes gradient = at.elements * 4;
  if (m->proposal->zero >= 2 && at.summed > 1)
    sums.summed = gradient + gradient / at.summed;
  for (int i = 0; i < pieces->n; i++) {
    int piece = pieces->pieces[i];
    piece_bytes_add(&m->pieces[piece], &sums);
    if (m->proposal->zero == 3 && at.copies > 1)
      gather(m, piece, param,
             align_up(m, at.elements * dtype_size_bytes(param->read_as)));
  }
}

/* ---- scratch ---- */

typedef struct Sweep {
  BytesMaker *m;
  ScratchCall call;
  VEC(int) live;
} Sweep;

static bool has_call(ScratchCall call, StageCall of) {
  switch (call) {
  case SCRATCH_forward: return of == CALL_F;
  case SCRATCH_joint: return of != CALL_F;
  case SCRATCH_input: return of == CALL_I;
  default: return of == CALL_W;
  }
}

/* Where it dies; -1 where it is no scratch of the call. */
static int end_of(const Sweep *s, int at) {
  const StageValue *v = &s->m->r->values->values.data[at];
  bool is_saved = is_read(v, CALL_I) || is_read(v, CALL_W);
  int end = v->first;
  bool is_split = s->call != SCRATCH_joint;
  if (v->of_params || v->is_data || !has_call(s->call, v->made) ||
      takes_saved(s->m, v, is_split))
    return -1;
  if (v->made == CALL_F) {
    if (is_saved && !is_again(s->m, v)) return -1;
    return v->last[CALL_F] > end ? v->last[CALL_F] : end;
  }
  if (s->call == SCRATCH_input && is_read(v, CALL_W)) return -1;
  if (v->is_of_step && v->first_piece != 0) return end;
  for (int c = 0; c < N_STAGE_CALLS; c++)
    if (v->last[c] > end && has_call(s->call, (StageCall)c)) end = v->last[c];
  return end;
}

/* A product adds to the gradient of its parameter. */
static bool is_added(const Sweep *s, const StageKernel *k, int at) {
  const StageValue *v = &s->m->r->values->values.data[at];
  return v->is_of_step && (v->read == 0 || v->first_piece != 0) &&
         s->m->r->units->graph->nodes.data[k->node]->op == OP_dot;
}

/* The neighbours that a value comes from or goes to, beside the piece. */
static int besides_of(const Sweep *s, const StageValue *v, int piece) {
  int own = s->m->r->chain->units[v->unit].pieces[0] + v->shift;
  int first = own + v->first_piece, last = own + v->last_piece;
  return (first < piece ? BESIDE_before : 0) |
         (last > piece ? BESIDE_behind : 0);
}

/* ---- scratch of libraries ---- */

/* Micro-batches are shards over an axis behind those of the mesh. */
static const Type *placed_type(const BytesMaker *m, const StageKernel *k,
                               const DimMap *map, const Type *type) {
  const PlanUnit *u = m->r->units->units.data[k->unit];
  const Mesh *mesh = m->proposal->place.mesh;
  Type *placed = type_copy_logical(m->arena, type);
  for (int d = 0; d < type->rank; d++) {
    int loop = map->at[d] < 0 ? NO_LOOP : k->own->loop[map->at[d]];
    AxisList list =
        assignment_axes(mesh, m->proposal->assignments[k->unit], loop);
    if (loop >= 0 && u->batch >> loop & 1)
      list = axis_list_append(list, mesh->n_axes);
    placed->dims[d].split = list;
  }
  return placed;
}

/* Asks the target for the node alone. */
static Bytes ask_target(const BytesMaker *m, const StageKernel *k) {
  const Graph *graph = m->r->units->graph;
  const Node *node = graph->nodes.data[k->node];
  Graph alone = {.module = graph->module,
                 .name = graph->name,
                 .mesh = *m->proposal->place.mesh};
  Node *own = arena_copy(m->arena, node, sizeof *node);
  Value *inputs = ARENA_ARRAY(m->arena, Value, node->n_inputs);
  const Type **results = ARENA_ARRAY(m->arena, const Type *, node->n_results);
  alone.mesh.axes[alone.mesh.n_axes++] = (MeshAxis){
      .size = (int32_t)m->proposal->microbatches, .is_sequential = true};
  for (int i = 0; i < node->n_inputs; i++) {
    const Type **type = ARENA_ARRAY(m->arena, const Type *, 1);
    Node *input = ARENA_NEW(m->arena, Node);
    *type = placed_type(m, k, &k->own->dims->inputs[i],
                        graph_type(graph, node->inputs[i]));
    *input = (Node){.op = OP_input, .n_results = 1, .types = type};
    inputs[i] = (Value){alone.nodes.n, 0};
    vec_push(m->arena, &alone.nodes, input);
  }
  for (int r = 0; r < node->n_results; r++)
    results[r] = placed_type(m, k, &k->own->dims->results[r], node->types[r]);
  own->inputs = inputs;
  own->types = results;
  vec_push(m->arena, &alone.nodes, own);
  return m->r->target->workspace_bytes(m->r->target, &alone, node->n_inputs);
}

static Bytes library_bytes(const BytesMaker *m, const StageKernel *k) {
  const Graph *graph = m->r->units->graph;
  const PlanUnit *u = m->r->units->units.data[k->unit];
  const Node *node = graph->nodes.data[k->node];
  if (!m->r->target || !m->r->target->workspace_bytes || node->body) return 0;
  uint64_t hash =
      hash_mix(kernel_key(graph, k->node), (uint64_t)m->proposal->microbatches);
  for (int d = 0; d < k->own->dims->n; d++)
    hash = hash_mix(hash, (uint64_t)shards_of(m, k->unit, k->own->loop[d]) * 2 +
                              (u->batch >> k->own->loop[d] & 1));
  const void *key = (const void *)(uintptr_t)(hash ? hash : 1);
  intptr_t known = (intptr_t)map_get(m->r->values->scratch, key);
  if (!known) {
    known = (intptr_t)ask_target(m, k) + 1;
    map_put(m->r->values->scratch, key, (void *)known);
  }
  return known - 1;
}

/* ---- what is live ---- */

static void note_live(Sweep *s, const StageKernel *k) {
  const BytesMaker *m = s->m;
  const UnitPieces *pieces = &m->r->chain->units[k->unit];
  Bytes sums[N_BESIDES] = {0}, own = library_bytes(m, k);
  for (int i = 0; i < s->live.n; i++) {
    const StageValue *v = &m->r->values->values.data[s->live.data[i]];
    sums[besides_of(s, v, pieces->pieces[0] + k->shift)] +=
        m->bytes[s->live.data[i]];
  }
  for (int b = 0; b < N_BESIDES; b++) {
    Bytes bytes = own;
    for (int part = 0; part < N_BESIDES; part++)
      if ((part & b) == part) bytes += sums[part];
    for (int i = 0; i < pieces->n; i++)
      raise(&m->scratch[shifted(m, k->unit, k->shift, i)].of[s->call][b],
            bytes);
  }
}

static void drop(Sweep *s, int value) {
  for (int i = 0; i < s->live.n; i++)
    if (s->live.data[i] == value) s->live.data[i--] = s->live.data[--s->live.n];
}

static void visit_kernel(Sweep *s, int at) {
  const StageValues *values = s->m->r->values;
  const StageKernel *k = &values->kernels.data[at];
  for (int i = 0; i < k->n_made; i++) {
    int v = k->made[i], over = values->values.data[v].overwrites;
    if (end_of(s, v) < 0 || is_added(s, k, v)) continue;
    if (over >= 0 && s->m->bytes[over] >= s->m->bytes[v]) drop(s, over);
    vec_push(s->m->arena, &s->live, v);
  }
  note_live(s, k);
  for (int i = 0; i < s->live.n; i++)
    if (end_of(s, s->live.data[i]) <= at)
      s->live.data[i--] = s->live.data[--s->live.n];
}

static void find_scratch(BytesMaker *m) {
  Sweep s = {.m = m};
  const StageValues *values = m->r->values;
  for (s.call = 0; s.call < N_SCRATCH_CALLS; s.call++) {
    s.live.n = 0;
    for (int k = 0; k < values->kernels.n; k++)
      if (has_call(s.call, values->kernels.data[k].call)) visit_kernel(&s, k);
  }
}

/* Adds values that blocks compute again, up to the piece, and parameters that
 * are whole for a while. */
static void add_beside(BytesMaker *m) {
  for (int i = 0; i < m->r->chain->n; i++) {
    for (int b = 0; b < N_BESIDES; b++) {
      Bytes *of[N_SCRATCH_CALLS];
      for (int c = 0; c < N_SCRATCH_CALLS; c++) {
        of[c] = &m->scratch[i].of[c][b];
        const Gathers *gathers =
            c == SCRATCH_forward ? &m->forward[i] : &m->backward[i];
        *of[c] += gathers->largest + gathers->second;
      }
      *of[SCRATCH_joint] += m->again[i];
      *of[SCRATCH_input] += m->again[i];
    }
  }
}

StageBytes *stage_bytes_of(Arena *arena, const StageBytesRequest *request,
                           const Proposal *proposal) {
  int n = request->chain->n;
  PieceBytes *to = ARENA_ARRAY(arena, PieceBytes, n + 1);
  BytesMaker m = {.arena = arena,
                  .r = request,
                  .proposal = proposal,
                  .bytes =
                      ARENA_ARRAY(arena, Bytes, request->values->values.n + 1),
                  .again = ARENA_ARRAY(arena, Bytes, n),
                  .pieces = ARENA_ARRAY(arena, PieceBytes, n),
                  .scratch = ARENA_ARRAY(arena, PieceScratch, n),
                  .forward = ARENA_ARRAY(arena, Gathers, n),
                  .backward = ARENA_ARRAY(arena, Gathers, n),
                  .out = ARENA_NEW(arena, StageBytes)};
  find_sizes(&m);
  add_values(&m);
  stage_add_inner(arena, request, proposal, m.out);
  for (int p = 0; p < request->units->params.n; p++)
    add_param(&m, &request->units->params.data[p]);
  find_scratch(&m);
  add_beside(&m);
  for (int i = 0; i < n; i++) {
    to[i + 1] = to[i];
    piece_bytes_add(&to[i + 1], &m.pieces[i]);
  }
  m.out->to = to;
  m.out->scratch = m.scratch;
  return m.out;
}
