/*
 * units.c -- finds the units of a training step.
 *
 * A forward kernel opens a unit; products of one path share theirs.  A kernel
 * of the backward pass belongs to the unit that has most of the paths in it,
 * without their "grad.".  What depends on parameters alone, and views, go to
 * their readers.  Loop dims of kernels are one loop dim of the unit if they are
 * a dim of the same value, or have a name that only one dim of the unit has.
 */
#include "price/units/units.h"

#include <string.h>

#include "ir/list/instructions.h"
#include "ir/work.h"

enum { NO_UNIT = -1 };

typedef struct UnitFinder {
  Arena *arena;
  const Graph *graph;
  Name batch_dim;
  Units *units;
  int *unit;           /* by node */
  bool *of_params;     /* by node: it depends on parameters alone */
  bool *read_backward; /* by node: the backward pass reads it, cast or not */
  Map *by_path;        /* path -> unit + 1 */
  KernelDimsTable *dims;
  const char *reason;
} UnitFinder;

/* ---- which unit ---- */

static const char *own_path(const char *path) {
  static const char prefix[] = "grad.";
  while (strncmp(path, prefix, sizeof prefix - 1) == 0)
    path += sizeof prefix - 1;
  return path;
}

static Name own_name(const UnitFinder *f, Name path) {
  const char *own = own_path(path);
  return own == path ? path : name_intern(f->graph->module->names, own);
}

static int open_unit(UnitFinder *f) {
  vec_push(f->arena, &f->units->units, ARENA_NEW(f->arena, PlanUnit));
  return f->units->units.n - 1;
}

static int unit_of_path(const UnitFinder *f, Name path) {
  return (int)(intptr_t)map_get(f->by_path, path) - 1;
}

static void name_unit(UnitFinder *f, Name path, int unit) {
  if (path[0] && !map_has(f->by_path, path))
    map_put(f->by_path, path, (void *)(intptr_t)(unit + 1));
}

static void name_kernel(UnitFinder *f, int id, int unit) {
  const Node *node = f->graph->nodes.data[id];
  name_unit(f, own_name(f, node->path), unit);
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    if (node->body->nodes.data[i]->op != OP_input)
      name_unit(f, own_name(f, graph_path(node->body, i)), unit);
}

/* The unit that has most paths of a kernel of the backward pass. */
static int most_named(const UnitFinder *f, int id) {
  enum { MOST_VOTED = 16 };
  const Node *node = f->graph->nodes.data[id];
  int voted[MOST_VOTED], votes[MOST_VOTED], n = 0, best = -1;
  if (!node->body) return unit_of_path(f, own_name(f, node->path));
  for (int i = 0; i < node->body->nodes.n; i++) {
    if (node->body->nodes.data[i]->op == OP_input) continue;
    int at = unit_of_path(f, own_name(f, graph_path(node->body, i))), k = 0;
    if (at < 0) continue;
    while (k < n && voted[k] != at) k++;
    if (k == MOST_VOTED) continue;
    if (k == n) voted[n] = at, votes[n++] = 0;
    votes[k]++;
  }
  for (int k = 0; k < n; k++)
    if (best < 0 || votes[k] > votes[best]) best = k;
  return best < 0 ? NO_UNIT : voted[best];
}

static bool is_of_params(const UnitFinder *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  if (node->op == OP_input) {
    const GraphInput *input =
        &f->graph->inputs.data[node_int(node, ATTR_index, 0)];
    return input->role != ROLE_data && input->role != ROLE_batch_rows;
  }
  for (int i = 0; i < node->n_inputs; i++)
    if (!f->of_params[node->inputs[i].node]) return false;
  return node->phase == PHASE_forward;
}

static int unit_of_kernel(UnitFinder *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  bool is_product = op_is(node->op, OPCLASS_contraction);
  int at = NO_UNIT;
  if (node->phase != PHASE_forward)
    at = most_named(f, id);
  else if (is_product)
    at = unit_of_path(f, node->path);
  if (at < 0) at = open_unit(f);
  name_kernel(f, id, at);
  return at;
}

static void find_units(UnitFinder *f) {
  const Graph *graph = f->graph;
  f->of_params = ARENA_ARRAY(f->arena, bool, graph->nodes.n);
  f->unit = ARENA_ARRAY(f->arena, int, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    f->unit[id] = NO_UNIT;
    f->of_params[id] = is_of_params(f, id);
    if (f->of_params[id] || node->op == OP_input || node->phase == PHASE_update)
      continue;
    f->unit[id] = node_is_launched(graph, id) || node->n_inputs == 0
                      ? unit_of_kernel(f, id)
                      : f->unit[node->inputs[0].node];
  }
  /* Nodes without a unit go to that of their first reader. */
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    if (node->phase == PHASE_update || f->unit[id] < 0) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      const Node *made = graph->nodes.data[from];
      if (made->op == OP_input || made->phase == PHASE_update) continue;
      if (f->of_params[from] || f->unit[from] < 0) f->unit[from] = f->unit[id];
    }
  }
}

/* ---- loop dims ---- */

static const UnitValue *find_value(const PlanUnit *unit, Value value) {
  for (int i = 0; i < unit->values.n; i++)
    if (value_equal(unit->values.data[i].value, value))
      return &unit->values.data[i];
  return NULL;
}

/* A dim of a value that the unit has already. */
static void claim(UnitKernel *k, const DimMap *own, const UnitValue *known,
                  int rank) {
  for (int d = 0; known && d < rank; d++)
    if (own->at[d] >= 0 && k->loop[own->at[d]] < 0)
      k->loop[own->at[d]] = known->dims.at[d];
}

static bool is_claimed(const UnitKernel *k, int loop) {
  for (int i = 0; i < k->dims->n; i++)
    if (k->loop[i] == loop) return true;
  return false;
}

/* A dim of the unit with this name and size. */
static int find_named(const PlanUnit *unit, const UnitKernel *k,
                      const LoopDim *dim) {
  for (int i = 0; i < unit->n_dims; i++)
    if (unit->dims[i].name == dim->name && unit->dims[i].size == dim->size &&
        !is_claimed(k, i))
      return i;
  return -1;
}

static int64_t stricter(int64_t even, int64_t other) {
  if (even == 0 || other == 0) return even + other;
  return even < other ? even : other;
}

static bool place_dims(UnitFinder *f, PlanUnit *unit, UnitKernel *k) {
  for (int i = 0; i < k->dims->n; i++) {
    const LoopDim *dim = &k->dims->dims[i];
    if (k->loop[i] < 0) k->loop[i] = (int8_t)find_named(unit, k, dim);
    if (k->loop[i] < 0) {
      if (unit->n_dims == MOST_LOOP_DIMS) return false;
      k->loop[i] = (int8_t)unit->n_dims;
      if (dim->name == f->batch_dim)
        unit->batch |= (LoopSet)(1u << unit->n_dims);
      unit->dims[unit->n_dims++] = *dim;
      continue;
    }
    LoopDim *of = &unit->dims[k->loop[i]];
    if (dim->size < of->size) of->size = dim->size;
    of->is_whole |= dim->is_whole;
    of->even = stricter(of->even, dim->even);
  }
  return true;
}

static DimMap unit_map(const UnitKernel *k, const DimMap *own) {
  DimMap out;
  for (int d = 0; d < MAX_RANK; d++)
    out.at[d] = own->at[d] < 0 ? (int8_t)-1 : k->loop[own->at[d]];
  return out;
}

static void know_value(UnitFinder *f, PlanUnit *unit, const UnitKernel *k,
                       Value value, const DimMap *own, LoopSet partial) {
  if (!find_value(unit, value))
    vec_push(f->arena, &unit->values,
             ((UnitValue){value, unit_map(k, own), partial}));
}

static LoopSet unit_loops(const UnitKernel *k, LoopSet own) {
  LoopSet out = 0;
  for (int i = 0; i < k->dims->n; i++)
    if (own >> i & 1) out |= (LoopSet)(1u << k->loop[i]);
  return out;
}

/* Readers of a view read the bytes of its operand. */
Value units_stored_value(const Graph *graph, Value value) {
  while (graph->nodes.data[value.node]->op != OP_input &&
         graph->nodes.data[value.node]->n_inputs > 0 &&
         !node_is_launched(graph, value.node))
    value = graph->nodes.data[value.node]->inputs[0];
  return value;
}

static UnitSum *find_sum(const PlanUnit *unit, Value value) {
  for (int i = 0; i < unit->sums.n; i++)
    if (value_equal(unit->sums.data[i].value, value))
      return &unit->sums.data[i];
  return NULL;
}

static void add_sum(UnitFinder *f, PlanUnit *unit, int id, UnitSum sum) {
  sum.kernel = id;
  sum.is_backward = f->graph->nodes.data[id]->phase != PHASE_forward;
  sum.readers = 1;
  vec_push(f->arena, &unit->sums, sum);
}

/* Adds the sums inside of a kernel, and those of partial values of its own unit
 * that it reads: ranks reduce a value once for all kernels.  A view of such a
 * value is partial itself: returns over which dims. */
static LoopSet add_sums(UnitFinder *f, PlanUnit *unit, const UnitKernel *k) {
  const Node *node = f->graph->nodes.data[k->id];
  LoopSet viewed = 0;
  for (int i = 0; i < k->dims->n_sums; i++) {
    const InnerSum *sum = &k->dims->sums[i];
    add_sum(f, unit, k->id,
            (UnitSum){.value = {k->id, -1},
                      .before = k->id,
                      .over = unit_loops(k, sum->over),
                      .type = sum->type,
                      .dims = unit_map(k, &sum->dims)});
  }
  for (int i = 0; i < node->n_inputs; i++) {
    const UnitValue *value = find_value(unit, node->inputs[i]);
    if (!value || !value->partial) continue;
    Value bytes = units_stored_value(f->graph, value->value);
    if (!node_is_launched(f->graph, k->id))
      viewed |= value->partial;
    else if (!find_sum(unit, bytes))
      add_sum(f, unit, k->id,
              (UnitSum){.value = bytes,
                        .before = bytes.node,
                        .over = value->partial,
                        .type = graph_type(f->graph, value->value),
                        .dims = value->dims});
  }
  return viewed;
}

static bool add_kernel(UnitFinder *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  PlanUnit *unit = f->units->units.data[f->unit[id]];
  UnitKernel k = {.id = id, .dims = kernel_dims_of(f->dims, f->graph, id)};
  if (!k.dims) {
    f->reason = arena_printf(f->arena, "'%s' (%s) has no loop dims", node->path,
                             op_info(node->op)->name);
    return false;
  }
  memset(k.loop, -1, sizeof k.loop);
  for (int i = 0; i < node->n_inputs; i++)
    claim(&k, &k.dims->inputs[i], find_value(unit, node->inputs[i]),
          graph_type(f->graph, node->inputs[i])->rank);
  if (!place_dims(f, unit, &k)) {
    f->reason = arena_printf(f->arena, "'%s' has too many dims", node->path);
    return false;
  }
  LoopSet viewed = add_sums(f, unit, &k);
  for (int i = 0; i < node->n_inputs; i++)
    know_value(f, unit, &k, node->inputs[i], &k.dims->inputs[i], 0);
  for (int r = 0; r < node->n_results; r++)
    know_value(f, unit, &k, (Value){id, r}, &k.dims->results[r],
               viewed | unit_loops(&k, k.dims->partial[r]));
  vec_push(f->arena, &unit->kernels, k);
  return true;
}

static bool add_kernels(UnitFinder *f) {
  for (int id = 0; id < f->graph->nodes.n; id++)
    if (f->unit[id] >= 0 && f->graph->nodes.data[id]->op != OP_input &&
        !add_kernel(f, id))
      return false;
  return true;
}

/* ---- edges and parameters ---- */

static int64_t bytes_of(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

static int64_t state_bytes(const Graph *graph, Name path) {
  int64_t bytes = 0;
  for (int i = 0; i < graph->inputs.n; i++) {
    const char *name = graph->inputs.data[i].path;
    const char *slash = strchr(name, '/');
    if (strcmp(slash ? slash + 1 : name, path) == 0)
      bytes += bytes_of(graph_type(graph, graph->inputs.data[i].value));
  }
  return bytes;
}

/* The kernel that reads nothing but the parameter; -1: there is none. */
static int find_cast(const UnitFinder *f, const PlanUnit *unit, Value param) {
  for (int i = 0; i < unit->kernels.n; i++) {
    int id = unit->kernels.data[i].id;
    const Node *node = f->graph->nodes.data[id];
    if (node->phase == PHASE_forward && node->n_inputs == 1 &&
        value_equal(node->inputs[0], param) && node_is_launched(f->graph, id))
      return i;
  }
  return -1;
}

/* The first layer has no input gradient, so only the forward pass reads its
 * weights. */
static void find_read_backward(UnitFinder *f) {
  f->read_backward = ARENA_ARRAY(f->arena, bool, f->graph->nodes.n);
  for (int id = f->graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = f->graph->nodes.data[id];
    bool is_backward = node->phase == PHASE_input_gradient ||
                       node->phase == PHASE_weight_gradient;
    if (!is_backward && !(f->of_params[id] && f->read_backward[id])) continue;
    for (int i = 0; i < node->n_inputs; i++)
      f->read_backward[node->inputs[i].node] = true;
  }
}

static void add_param(UnitFinder *f, const UnitValue *value, int unit) {
  const Node *node = f->graph->nodes.data[value->value.node];
  const GraphInput *input =
      &f->graph->inputs.data[node_int(node, ATTR_index, 0)];
  if (input->role != ROLE_param) return;
  for (int i = 0; i < f->units->params.n; i++)
    if (f->units->params.data[i].path == input->path) return;
  const PlanUnit *u = f->units->units.data[unit];
  int cast = find_cast(f, u, value->value);
  const Node *made =
      cast < 0 ? node : f->graph->nodes.data[u->kernels.data[cast].id];
  vec_push(f->arena, &f->units->params,
           ((UnitParam){.path = input->path,
                        .type = node->types[0],
                        .unit = unit,
                        .dims = value->dims,
                        .cast = cast,
                        .read_as = made->types[0]->dtype,
                        .passes = 1 + f->read_backward[value->value.node],
                        .state = state_bytes(f->graph, input->path)}));
}

static bool is_for_weights(const UnitFinder *f, const PlanUnit *unit,
                           Value value) {
  for (int i = 0; i < unit->kernels.n; i++) {
    int id = unit->kernels.data[i].id;
    const Node *node = f->graph->nodes.data[id];
    if (node->phase == PHASE_weight_gradient) continue;
    for (int k = 0; k < node->n_inputs; k++)
      if (value_equal(node->inputs[k], value)) return false;
  }
  return true;
}

static void add_edge(UnitFinder *f, const UnitValue *value, int to) {
  const Graph *graph = f->graph;
  int id = value->value.node, from = f->unit[id];
  const Node *node = graph->nodes.data[id];
  const Type *type = graph_type(graph, value->value);
  if (node->phase == PHASE_update || from < 0 || from == to || type->rank == 0)
    return;
  const UnitValue *made = find_value(f->units->units.data[from], value->value);
  ASSERT(made);
  vec_push(f->arena, &f->units->edges,
           ((UnitEdge){.from = from,
                       .to = to,
                       .value = value->value,
                       .type = type,
                       .from_dims = made->dims,
                       .to_dims = value->dims,
                       .partial = made->partial,
                       .is_backward = node->phase != PHASE_forward,
                       .only_weights = is_for_weights(
                           f, f->units->units.data[to], value->value)}));
}

static void find_edges(UnitFinder *f) {
  int *readers = ARENA_ARRAY(f->arena, int, f->graph->nodes.n);
  for (int u = 0; u < f->units->units.n; u++) {
    const PlanUnit *unit = f->units->units.data[u];
    for (int i = 0; i < unit->values.n; i++) {
      const UnitValue *value = &unit->values.data[i];
      if (f->graph->nodes.data[value->value.node]->op == OP_input)
        add_param(f, value, u);
      else
        add_edge(f, value, u);
    }
  }
  for (int i = 0; i < f->units->edges.n; i++)
    readers[f->units->edges.data[i].value.node]++;
  for (int i = 0; i < f->units->edges.n; i++) {
    UnitEdge *edge = &f->units->edges.data[i];
    UnitSum *sum = find_sum(f->units->units.data[edge->from],
                            units_stored_value(f->graph, edge->value));
    edge->readers = readers[edge->value.node];
    edge->from_sums = sum != NULL;
    if (sum && edge->readers >= sum->readers) sum->readers = edge->readers + 1;
  }
}

/* The bytes that updates move are shared out by the size of the state. */
static void find_updates(UnitFinder *f) {
  const Graph *graph = f->graph;
  int64_t moved = 0, state = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    if (graph->nodes.data[id]->phase != PHASE_update ||
        !node_is_launched(graph, id))
      continue;
    Work work = node_work(graph, id);
    moved += work.read + work.written;
  }
  for (int i = 0; i < f->units->params.n; i++)
    state += f->units->params.data[i].state;
  for (int i = 0; i < f->units->params.n && state > 0; i++)
    f->units->params.data[i].updated =
        (int64_t)((double)moved * (double)f->units->params.data[i].state /
                  (double)state);
}

typedef struct ValueReaders {
  bool backward, elsewhere; /* elsewhere: another block of the forward pass */
} ValueReaders;

static void note_readers(UnitFinder *f, ValueReaders **readers, int id) {
  const Graph *graph = f->graph;
  const Node *node = graph->nodes.data[id];
  if (node->phase == PHASE_update || f->unit[id] < 0 ||
      !node_is_launched(graph, id))
    return;
  int block = f->units->units.data[f->unit[id]]->block;
  for (int i = 0; i < node->n_inputs; i++) {
    Value v = units_stored_value(graph, node->inputs[i]);
    ValueReaders *of = &readers[v.node][v.result];
    of->backward |= node->phase != PHASE_forward;
    of->elsewhere |= node->phase == PHASE_forward && f->unit[v.node] >= 0 &&
                     f->units->units.data[f->unit[v.node]]->block != block;
  }
}

static void find_saved(UnitFinder *f) {
  const Graph *graph = f->graph;
  ValueReaders **readers =
      ARENA_ARRAY(f->arena, ValueReaders *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++)
    readers[id] = ARENA_ARRAY(f->arena, ValueReaders,
                              graph->nodes.data[id]->n_results + 1);
  for (int id = 0; id < graph->nodes.n; id++) note_readers(f, readers, id);
  for (int u = 0; u < f->units->units.n; u++) {
    PlanUnit *unit = f->units->units.data[u];
    for (int i = 0; i < unit->values.n; i++) {
      const UnitValue *value = &unit->values.data[i];
      Value v = value->value;
      const Node *node = graph->nodes.data[v.node];
      if (f->unit[v.node] != u || node->op == OP_input ||
          node->phase != PHASE_forward || !readers[v.node][v.result].backward)
        continue;
      vec_push(f->arena, &unit->saved,
               ((UnitSaved){v, graph_type(graph, v), value->dims,
                            f->of_params[v.node],
                            readers[v.node][v.result].elsewhere}));
    }
  }
}

/* ---- blocks ---- */

/* "block[3]" of "block[3].mlp.dot[0]"; NULL: in no repeat. */
static Name block_of(const UnitFinder *f, const char *path) {
  const char *open = strchr(path, '['),
             *close = open ? strchr(open, ']') : NULL;
  if (!close || close[1] != '.') return NULL;
  return name_intern_n(f->graph->module->names, path,
                       (size_t)(close + 1 - path));
}

static bool is_cut(const UnitRepeats *repeats, const Repeat *repeat) {
  return repeat->last - repeat->first >= repeats->kept;
}

PathRange unit_blocks(const UnitRepeats *repeats, const Repeat *repeat,
                      int64_t index) {
  int64_t at = index - repeat->first, last = repeat->last;
  int64_t left_out = last - repeat->first + 1 - repeats->kept;
  if (!is_cut(repeats, repeat) || at < STANDS_FOR_MANY || index == last)
    return (PathRange){index, index, SPAN_NONE};
  if (at == STANDS_FOR_MANY)
    return (PathRange){index, index + left_out, SPAN_NONE};
  return (PathRange){index + left_out, index + left_out, SPAN_NONE};
}

/* Returns of how many blocks of the program a unit stands for one. */
static int64_t times_of(const UnitFinder *f, const char *path) {
  const UnitRepeats *repeats = f->units->repeats;
  for (int r = 0; r < repeats->n; r++) {
    int index = repeat_index(&repeats->repeats[r], path);
    if (index < 0) continue;
    PathRange blocks = unit_blocks(repeats, &repeats->repeats[r], index);
    return blocks.last - blocks.first + 1;
  }
  return 1;
}

static void find_blocks(UnitFinder *f) {
  Map *blocks = map_create(f->arena);
  for (int u = 0; u < f->units->units.n; u++) {
    PlanUnit *unit = f->units->units.data[u];
    Name block = NULL;
    unit->block = -1;
    unit->times = 1;
    for (int i = 0; i < unit->kernels.n && !block; i++) {
      Name path = f->graph->nodes.data[unit->kernels.data[i].id]->path;
      block = block_of(f, path);
      if (block) unit->times = times_of(f, path);
    }
    if (!block) continue;
    if (!map_has(blocks, block))
      map_put(blocks, block, (void *)(intptr_t)map_size(blocks));
    unit->block = (int)(intptr_t)map_get(blocks, block);
  }
}

/* Gradients of one value are added before they are summed. */
static void join_edges(UnitFinder *f) {
  for (int i = 0; i < f->units->edges.n; i++) {
    UnitEdge *edge = &f->units->edges.data[i];
    edge->joined = 0;
    for (int k = 0; k < f->units->edges.n; k++) {
      const UnitEdge *other = &f->units->edges.data[k];
      edge->joined += other->to == edge->to && other->partial &&
                      other->is_backward == edge->is_backward;
    }
    if (!edge->partial) edge->joined = 1;
  }
}

/* An edge between two blocks counts with the block before. */
static void count_edges(UnitFinder *f) {
  for (int i = 0; i < f->units->edges.n; i++) {
    UnitEdge *edge = &f->units->edges.data[i];
    const PlanUnit *from = f->units->units.data[edge->from];
    const PlanUnit *to = f->units->units.data[edge->to];
    const PlanUnit *before = edge->is_backward ? to : from;
    edge->times = from->block == to->block ? from->times : before->times;
    if (from->block < 0 || to->block < 0) edge->times = 1;
  }
}

Units *units_of(Arena *arena, const Graph *kernels, Name batch_dim,
                const UnitRepeats *repeats, const char **out_reason) {
  UnitFinder f = {.arena = arena,
                  .graph = kernels,
                  .batch_dim = batch_dim,
                  .units = ARENA_NEW(arena, Units),
                  .by_path = map_create(arena),
                  .dims = kernel_dims_create(arena)};
  f.units->graph = kernels;
  f.units->batch_dim = batch_dim;
  f.units->repeats = repeats;
  find_units(&f);
  bool is_done = add_kernels(&f);
  *out_reason = f.reason;
  if (!is_done) return NULL;
  find_read_backward(&f);
  find_edges(&f);
  find_updates(&f);
  find_blocks(&f);
  count_edges(&f);
  join_edges(&f);
  find_saved(&f);
  units_find_cuts(arena, f.units);
  return f.units;
}

const char *units_loop(Arena *arena, const Units *units) {
  for (int id = 0; id < units->graph->nodes.n; id++) {
    const Node *node = units->graph->nodes.data[id];
    if (node->op == OP_scan)
      return arena_printf(arena, "'%s' is a loop", node->path);
  }
  return NULL;
}
