/*
 * stage_values.c -- finds the values of a micro-batch by the calls that make
 * and read them.
 *
 * The program of one rank has them as a stage will have them, but that passes
 * joined kernels which stages have apart.
 */
#include "planner/stages/stage_values.h"

#include <string.h>

#include "ir/list/instructions.h"
#include "passes/buffers/list_schedule.h"

typedef struct ValueFinder {
  Arena *arena;
  const Units *units;
  const StageChain *chain;
  const Graph *graph;
  int *kernel_of;            /* by node: its kernel, or -1 */
  bool *of_params, *is_free; /* by node: it depends on these alone; on data */
  int **value_of;            /* by node and result: its value, or -1 */
  StageValues *out;
} ValueFinder;

/* ---- kernels ---- */

/* By node: a kernel that is no weight gradient reads it, in the backward pass.
 */
static bool *find_needed(const ValueFinder *f) {
  const Graph *graph = f->graph;
  bool *is_needed = ARENA_ARRAY(f->arena, bool, graph->nodes.n);
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    is_needed[id] |= node->phase == PHASE_input_gradient;
    for (int i = 0; is_needed[id] && i < node->n_inputs; i++)
      is_needed[node->inputs[i].node] = true;
  }
  return is_needed;
}

static StageCall call_of(const Node *node, bool is_needed) {
  if (node->phase == PHASE_forward) return CALL_F;
  return node->phase == PHASE_weight_gradient && !is_needed ? CALL_W : CALL_I;
}

static void find_kernels(ValueFinder *f) {
  const Graph *graph = f->graph;
  const bool *is_needed = find_needed(f);
  int *unit_of = ARENA_ARRAY(f->arena, int, graph->nodes.n);
  const UnitKernel **own =
      ARENA_ARRAY(f->arena, const UnitKernel *, graph->nodes.n);
  f->kernel_of = ARENA_ARRAY(f->arena, int, graph->nodes.n);
  for (int u = 0; u < f->units->units.n; u++) {
    const PlanUnit *unit = f->units->units.data[u];
    for (int i = 0; i < unit->kernels.n; i++) {
      unit_of[unit->kernels.data[i].id] = u + 1;
      own[unit->kernels.data[i].id] = &unit->kernels.data[i];
    }
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    f->kernel_of[id] = -1;
    if (unit_of[id] == 0 || !node_is_launched(graph, id)) continue;
    StageKernel kernel = {.unit = unit_of[id] - 1,
                          .node = id,
                          .own = own[id],
                          .call =
                              call_of(graph->nodes.data[id], is_needed[id])};
    f->kernel_of[id] = f->out->kernels.n;
    vec_push(f->arena, &f->out->kernels, kernel);
  }
}

/* ---- values ---- */

static Value bytes_of_view(const Graph *graph, Value value) {
  while (graph->nodes.data[value.node]->op != OP_input &&
         graph->nodes.data[value.node]->n_inputs > 0 &&
         !node_is_launched(graph, value.node))
    value = graph->nodes.data[value.node]->inputs[0];
  return value;
}

static const UnitValue *find_in_unit(const PlanUnit *unit, Value value) {
  for (int i = 0; i < unit->values.n; i++)
    if (value_equal(unit->values.data[i].value, value))
      return &unit->values.data[i];
  return NULL;
}

/* Returns the piece of a path, counted from that of its unit on. */
static int shift_of(const ValueFinder *f, int unit, Name path) {
  int piece = stage_chain_piece(f->chain, path);
  return piece < 0 ? 0 : piece - f->chain->units[unit].pieces[0];
}

/* A cast is done where its value is made. */
static int before_casts(const Graph *body, int id) {
  while (body->nodes.data[id]->op == OP_cast ||
         op_is(body->nodes.data[id]->op, OPCLASS_view))
    id = body->nodes.data[id]->inputs[0].node;
  return id;
}

static Name path_of_result(const ValueFinder *f, int id, int result) {
  const Graph *body = f->graph->nodes.data[id]->body;
  if (!body || f->graph->nodes.data[id]->op != OP_fused)
    return graph_path(f->graph, id);
  int made = before_casts(body, body->outputs.data[result].value.node);
  return graph_path(body, made);
}

/* The path of the first operator that reads the operand, through casts. */
static Name path_of_operand(const ValueFinder *f, int id, int operand) {
  const Graph *body = f->graph->nodes.data[id]->body;
  if (!body || f->graph->nodes.data[id]->op != OP_fused)
    return graph_path(f->graph, id);
  int arg = body->inputs.data[operand].value.node;
  for (int i = 0; i < body->nodes.n; i++)
    for (int k = 0; k < body->nodes.data[i]->n_inputs; k++)
      if (before_casts(body, body->nodes.data[i]->inputs[k].node) == arg &&
          before_casts(body, i) == i)
        return graph_path(body, i);
  return graph_path(f->graph, id);
}

/* Returns how many pieces the reader of a value is behind its maker.  A unit
 * that stands for many has its neighbours before its first copy and behind its
 * last one. */
static int distance(const ValueFinder *f, const StageValue *v, int reader) {
  const UnitPieces *from = &f->chain->units[v->unit],
                   *to = &f->chain->units[reader];
  if (from->n == to->n) return to->pieces[0] - from->pieces[0];
  bool is_back = v->made != CALL_F;
  return to->pieces[is_back ? to->n - 1 : 0] -
         from->pieces[is_back ? 0 : from->n - 1];
}

static int add_value(ValueFinder *f, Value value, int unit, StageCall made,
                     int kernel) {
  const UnitValue *own = find_in_unit(f->units->units.data[unit], value);
  StageValue v = {.unit = unit,
                  .type = graph_type(f->graph, value),
                  .made = made,
                  .first = kernel,
                  .reader = -1,
                  .overwrites = -1,
                  .taken_by = -1};
  if (!own) return -1;
  v.dims = own->dims;
  for (int c = 0; c < N_STAGE_CALLS; c++) v.last[c] = -1;
  vec_push(f->arena, &f->out->values, v);
  return f->out->values.n - 1;
}

static bool is_data(const ValueFinder *f, int id) {
  const Node *node = f->graph->nodes.data[id];
  return node->op == OP_input &&
         f->graph->inputs.data[node_int(node, ATTR_index, 0)].role == ROLE_data;
}

static int data_piece(const ValueFinder *f, int at) {
  const StageValue *v = &f->out->values.data[at];
  return f->chain->units[v->unit].pieces[0] + v->shift;
}

/* Each piece that reads data has it, for all micro-batches. */
static void read_data(ValueFinder *f, int kernel, int at) {
  const StageKernel *k = &f->out->kernels.data[kernel];
  Value operand = f->graph->nodes.data[k->node]->inputs[at];
  Value value = bytes_of_view(f->graph, operand);
  int piece = f->chain->units[k->unit].pieces[0];
  int shift = shift_of(f, k->unit, path_of_operand(f, k->node, at));
  int *known = &f->value_of[value.node][0];
  if (*known >= 0 && data_piece(f, *known) == piece + shift) return;
  int v = add_value(f, operand, k->unit, CALL_F, kernel);
  if (v < 0) return;
  f->out->values.data[v].is_data = true;
  f->out->values.data[v].shift = shift;
  *known = v;
}

/* "block[3]" of "block[3].mlp.dot[0]", by its length. */
static size_t block_length(const char *path) {
  const char *open = strchr(path, '['),
             *close = open ? strchr(open, ']') : NULL;
  return close && close[1] == '.' ? (size_t)(close + 1 - path) : 0;
}

static bool is_same_block(Name a, Name b) {
  size_t n = a ? block_length(a) : 0;
  return n > 0 && b && block_length(b) == n && !strncmp(a, b, n);
}

/* The operand as its reader has it: the value itself or a view of it. */
static bool find_reader_dims(const ValueFinder *f, StageValue *v, int kernel,
                             int operand) {
  const StageKernel *k = &f->out->kernels.data[kernel];
  Value value = f->graph->nodes.data[k->node]->inputs[operand];
  const UnitValue *own = find_in_unit(f->units->units.data[k->unit], value);
  if (!own) return false;
  v->reader_type = graph_type(f->graph, value);
  v->reader_dims = own->dims;
  return true;
}

static void note_reader(ValueFinder *f, StageValue *v, int kernel, int operand,
                        StageCall call) {
  const StageKernel *k = &f->out->kernels.data[kernel];
  const PlanUnit *made = f->units->units.data[v->unit];
  int at = distance(f, v, k->unit) - v->shift +
           shift_of(f, k->unit, path_of_operand(f, k->node, operand));
  bool is_first = !(v->read >> call & 1);
  if (at > 0 && v->reader < 0 && find_reader_dims(f, v, kernel, operand))
    v->reader = k->unit;
  v->read |= 1u << call;
  v->last[call] = kernel;
  if (is_first || at < v->first_of[call]) v->first_of[call] = at;
  if (is_first || at > v->last_of[call]) v->last_of[call] = at;
  if (at < v->first_piece) v->first_piece = at;
  if (at > v->last_piece) v->last_piece = at;
  if (call != CALL_F) return;
  bool is_elsewhere = f->units->units.data[k->unit]->block != made->block;
  v->feeds_block |= is_elsewhere && f->units->units.data[k->unit]->block >= 0;
  if (is_elsewhere ||
      !is_same_block(v->path, path_of_operand(f, k->node, operand)))
    v->is_inside = false;
}

/* A kernel of gradients of inputs that makes one of a parameter, too: where
 * weight gradients are calls of their own there is another one for these. */
static bool is_for_both(const ValueFinder *f, const StageKernel *k) {
  const Node *node = f->graph->nodes.data[k->node];
  const PlanUnit *unit = f->units->units.data[k->unit];
  if (k->call != CALL_I) return false;
  for (int r = 0; r < node->n_results; r++) {
    const UnitValue *own = find_in_unit(unit, (Value){k->node, r});
    bool is_in_batch = !own;
    for (int d = 0; own && d < node->types[r]->rank; d++)
      is_in_batch |= own->dims.at[d] >= 0 && unit->batch >> own->dims.at[d] & 1;
    if (!is_in_batch) return true;
  }
  return false;
}

static void read_inputs(ValueFinder *f, int kernel) {
  const Node *node = f->graph->nodes.data[f->out->kernels.data[kernel].node];
  for (int i = 0; i < node->n_inputs; i++) {
    Value value = bytes_of_view(f->graph, node->inputs[i]);
    if (is_data(f, value.node)) read_data(f, kernel, i);
    int v = f->value_of[value.node][value.result];
    if (v >= 0 && !f->out->values.data[v].is_data)
      note_reader(f, &f->out->values.data[v], kernel, i,
                  f->out->kernels.data[kernel].call);
    if (v >= 0 && !f->out->values.data[v].is_data &&
        is_for_both(f, &f->out->kernels.data[kernel]))
      note_reader(f, &f->out->values.data[v], kernel, i, CALL_W);
  }
}

static int last_reader(const StageValue *v) {
  int last = -1;
  for (int c = 0; c < N_STAGE_CALLS; c++)
    if (v->last[c] > last) last = v->last[c];
  return last;
}

/* Wherever the model is cut: either neither of them is a message, or one is
 * sent where the other is, and both are. */
static bool are_cut_alike(const ValueFinder *f, const StageValue *over,
                          const StageValue *made) {
  int behind = distance(f, over, made->unit) + made->shift - over->shift;
  if (over->of_params) return false;
  if (behind == 0) return over->first_piece == 0 && over->last_piece == 0;
  if (behind < 0 || made->read == 0) return false;
  for (int c = 0; c < N_STAGE_CALLS; c++)
    if (made->read >> c & 1 && made->last_of[c] > -behind) return false;
  return true;
}

/* A pointwise kernel may write over an operand that nobody reads later. */
static void find_overwritten(ValueFinder *f, int kernel) {
  const StageKernel *k = &f->out->kernels.data[kernel];
  const Node *node = f->graph->nodes.data[k->node];
  if (node->op != OP_fused || !fused_is_elementwise(node)) return;
  unsigned taken = 0;
  for (int r = 0; r < k->n_made; r++) {
    StageValue *made = &f->out->values.data[k->made[r]];
    for (int i = 0; i < node->n_inputs && i < 32; i++) {
      Value value = bytes_of_view(f->graph, node->inputs[i]);
      int v = f->value_of[value.node][value.result];
      if (v < 0 || taken >> i & 1 || f->out->values.data[v].is_data ||
          last_reader(&f->out->values.data[v]) != kernel ||
          !fused_may_overwrite(f->graph, k->node, r, i) ||
          !are_cut_alike(f, &f->out->values.data[v], made))
        continue;
      made->overwrites = v;
      f->out->values.data[v].taken_by = k->made[r];
      taken |= 1u << i;
      break;
    }
  }
}

static bool has_batch(const PlanUnit *unit, const StageValue *v) {
  for (int d = 0; d < v->type->rank; d++)
    if (v->dims.at[d] >= 0 && unit->batch >> v->dims.at[d] & 1) return true;
  return false;
}

/* The parameter that the kernel casts and another piece has, or NULL. */
static Name shared_param(const ValueFinder *f, const StageKernel *k) {
  const Node *node = f->graph->nodes.data[k->node];
  if (node->n_inputs != 1) return NULL;
  Value from = bytes_of_view(f->graph, node->inputs[0]);
  const Node *input = f->graph->nodes.data[from.node];
  if (input->op != OP_input) return NULL;
  Name path = f->graph->inputs.data[node_int(input, ATTR_index, 0)].path;
  for (int i = 0; i < f->chain->shared.n; i++) {
    const UnitParam *param =
        &f->units->params.data[f->chain->shared.data[i].param];
    if (param->path == path && param->unit != k->unit) return path;
  }
  return NULL;
}

static void make_results(ValueFinder *f, int kernel) {
  StageKernel *k = &f->out->kernels.data[kernel];
  const Node *node = f->graph->nodes.data[k->node];
  const PlanUnit *unit = f->units->units.data[k->unit];
  k->made = ARENA_ARRAY(f->arena, int, node->n_results);
  for (int r = 0; r < node->n_results; r++) {
    int v = add_value(f, (Value){k->node, r}, k->unit, k->call, kernel);
    f->value_of[k->node][r] = v;
    if (v < 0) continue;
    Name path = path_of_result(f, k->node, r);
    int shift = shift_of(f, k->unit, path);
    f->out->values.data[v].path = path;
    f->out->values.data[v].shift = shift;
    if (k->call != CALL_F && (k->n_made == 0 || shift > k->shift))
      k->shift = shift;
    f->out->values.data[v].of_params = f->of_params[k->node];
    f->out->values.data[v].is_of_step =
        k->call == CALL_W && !has_batch(unit, &f->out->values.data[v]);
    if (f->of_params[k->node])
      f->out->values.data[v].shared = shared_param(f, k);
    f->out->values.data[v].is_inside = unit->block >= 0;
    k->made[k->n_made++] = v;
  }
}

static bool *find_of_params(const ValueFinder *f) {
  const Graph *graph = f->graph;
  bool *out = ARENA_ARRAY(f->arena, bool, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    out[id] = node->phase == PHASE_forward && !is_data(f, id);
    for (int i = 0; i < node->n_inputs; i++)
      out[id] &= out[node->inputs[i].node];
  }
  return out;
}

/* ---- updates ---- */

static int param_of_update(const ValueFinder *f, const char *path) {
  static const char prefix[] = "optimizer.";
  size_t n = sizeof prefix - 1;
  for (int p = 0; path && p < f->units->params.n; p++)
    if (!strncmp(path, prefix, n) &&
        !strcmp(path + n, f->units->params.data[p].path))
      return p;
  return -1;
}

/* A reduction and another kernel read the result. */
static bool is_reduced_and_read(const Graph *graph, int id) {
  bool is_reduced = false, is_read = false;
  for (int n = id + 1; n < graph->nodes.n; n++) {
    const Node *node = graph->nodes.data[n];
    for (int i = 0; i < node->n_inputs && node_is_launched(graph, n); i++) {
      if (bytes_of_view(graph, node->inputs[i]).node != id) continue;
      bool is_scalar = type_elements(node->types[0]) == 1;
      *(is_scalar ? &is_reduced : &is_read) = true;
    }
  }
  return is_reduced && is_read;
}

static const bool *find_kept_updates(const ValueFinder *f) {
  const Graph *graph = f->graph;
  bool *out = ARENA_ARRAY(f->arena, bool, f->units->params.n + 1);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->phase != PHASE_update || node->op == OP_input ||
        !node_is_launched(graph, id))
      continue;
    int p = param_of_update(f, node->path);
    if (p >= 0 && type_elements(node->types[0]) > 1 && !out[p])
      out[p] = is_reduced_and_read(graph, id);
  }
  return out;
}

StageValues *stage_values_of(Arena *arena, const Units *units,
                             const StageChain *chain) {
  ValueFinder f = {.arena = arena,
                   .units = units,
                   .chain = chain,
                   .graph = units->graph,
                   .out = ARENA_NEW(arena, StageValues)};
  int n = units->graph->nodes.n;
  f.out->scratch = map_create(arena);
  f.of_params = find_of_params(&f);
  f.value_of = ARENA_ARRAY(arena, int *, n);
  for (int id = 0; id < n; id++) {
    int n_results = units->graph->nodes.data[id]->n_results;
    f.value_of[id] = ARENA_ARRAY(arena, int, n_results + 1);
    for (int r = 0; r <= n_results; r++) f.value_of[id][r] = -1;
  }
  find_kernels(&f);
  for (int k = 0; k < f.out->kernels.n; k++) {
    read_inputs(&f, k);
    make_results(&f, k);
  }
  for (int k = 0; k < f.out->kernels.n; k++) find_overwritten(&f, k);
  f.out->keeps_update = find_kept_updates(&f);
  return f.out;
}
