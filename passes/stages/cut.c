/*
 * cut.c -- cuts the joint graph of a plan with stages: one graph for each
 * stage, and the values that go from one to another.
 *
 *     %1 = input param "w"    stage 0        %1 = input param "w"
 *     %2 = dot %0, %1         stage 0 "a"    %2 = dot %0, %1 "a"
 *     %3 = input param "v"    stage 1   =>   output send "a" %2
 *     %4 = dot %2, %3         stage 1 "b"
 *     output loss "loss" %4                  %0 = input receive "a"
 *                                            %1 = input param "v"
 *                                            %2 = dot %0, %1 "b"
 *                                            output loss "loss" %2
 *
 * A stage runs the nodes that have it.  It also runs copies of what these and
 * its outputs read of two kinds of nodes: free ones, which follow from data,
 * step, seed, loss scale and constants, and scalars of the update, which have
 * no stage.  It receives all else that they read.
 *
 * A stage sends a value or its cast, whichever is smaller.  The reader runs a
 * cast, a broadcast or a view itself if that sends less, or if its operand is
 * sent anyway.  The stage that makes the operand runs a cast to fewer bytes.
 *
 * A value that has the batch dim under another name gets it back for the
 * message (batch_dims.c).
 *
 * Loss, norm and rate are outputs of every stage; where each stage has a norm
 * of its own, norms and the loss are outputs of the stages that make them.  The
 * dynamic loss scale is an output of every stage, too, but of stages on the
 * same ranks, which have one copy of it, the first one changes it and hands it
 * to the others before that.  Other outputs that replace an input belong to the
 * stage of that input, metrics and results to that of their value.
 *
 * Each graph keeps the order of the joint graph, where a received value stands
 * at the place of the node that makes it.  So stages that run as far as
 * received values allow, in turns, never wait for each other.
 *
 * cost: O(stages * (nodes + edges))
 */
#include "passes/stages/batch_dims.h"
#include "passes/stages/stages.h"

/* A value that crosses, before it has a path. */
typedef struct Crossing {
  Value value;          /* of the joint graph */
  const Type *type;     /* of the message */
  bool is_brought_back; /* it has its batch dim under another name */
  StageEdge edge;
} Crossing;

/* The nodes and values of the joint graph that one stage has. */
typedef struct Part {
  bool *runs;             /* by node */
  bool *reads, *receives; /* by value */
} Part;

typedef struct Cut {
  PassContext *ctx;
  const Graph *joint;
  int n_stages;
  bool has_own_norms;  /* of each stage, which updates its parameters early */
  int *first_value;    /* by node: number of its first result */
  bool *is_free;       /* by node */
  bool *is_back;       /* by node: of the backward pass of a micro-batch */
  uint16_t *stage;     /* by node: that which runs it, counted from 1, or 0 */
  HiddenBatch *hidden; /* by value */
  GraphPins pins;
  Part *parts; /* by stage */
  VEC(Crossing) crossings;
  Map *paths; /* those that edges have */
} Cut;

static const Node *node_at(const Cut *c, int id) {
  return c->joint->nodes.data[id];
}

static int number_of(const Cut *c, Value value) {
  return c->first_value[value.node] + value.result;
}

static const GraphInput *input_at(const Cut *c, int id) {
  return &c->joint->inputs.data[node_int(node_at(c, id), ATTR_index, 0)];
}

/* ---- what follows from data and constants ---- */

static bool is_free_input(Role role) {
  return role_is_of_step(role) || role == ROLE_loss_scale;
}

static void find_free(Cut *c) {
  for (int id = 0; id < c->joint->nodes.n; id++) {
    const Node *node = node_at(c, id);
    bool is_free = node->op != OP_input || is_free_input(input_at(c, id)->role);
    for (int i = 0; i < node->n_inputs; i++)
      is_free &= c->is_free[node->inputs[i].node];
    c->is_free[id] = is_free;
  }
}

/* ---- the stage of a node ---- */

/* Nodes that follow from the backward pass are of it: a scan that computes
 * values of its forward pass again has left nodes of that before it. */
static void find_back(Cut *c) {
  for (int id = 0; id < c->joint->nodes.n; id++) {
    const Node *node = node_at(c, id);
    c->is_back[id] = node->phase == PHASE_input_gradient ||
                     node->phase == PHASE_weight_gradient;
    for (int i = 0; i < node->n_inputs && node->phase == PHASE_forward; i++)
      c->is_back[id] |= c->is_back[node->inputs[i].node];
  }
}

/* The stage that has the loss scale of the ranks of this one. */
static int owner_of_scale(const Cut *c, int stage) {
  const Plan *plan = c->ctx->plan;
  int owner = 0;
  while (plan->stages.data[owner].first_rank !=
         plan->stages.data[stage].first_rank)
    owner++;
  return owner;
}

static bool is_scale(const Cut *c, int id) {
  return node_at(c, id)->op == OP_input &&
         input_at(c, id)->role == ROLE_loss_scale;
}

static bool has_stage(const Cut *c, int id, int stage) {
  return !c->is_free[id] && c->stage[id] == stage + 1;
}

static int64_t bytes_of(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

/* A cast of a part of a sum is none: the sum would be rounded. */
static bool is_cast(const Node *node) {
  return node->op == OP_cast && !node_has(node, ATTR_reduce);
}

/* Counts how often nodes of a stage read a value: by value and stage. */
static PairMap *count_readers(const Cut *c) {
  PairMap *counts = pair_map_create(c->ctx->scratch);
  for (int id = 0; id < c->joint->nodes.n; id++) {
    const Node *node = node_at(c, id);
    for (int i = 0; i < node->n_inputs; i++) {
      int value = number_of(c, node->inputs[i]), stage = c->stage[id];
      intptr_t n = (intptr_t)pair_map_get(counts, value, stage);
      pair_map_put(counts, value, stage, (void *)(n + 1));
    }
  }
  return counts;
}

static bool has_batch(const Cut *c, Value value) {
  const Type *type = graph_type(c->joint, value);
  Name batch_dim = c->ctx->plan->batch_dim;
  return batch_dim && (type_find(type, batch_dim) >= 0 ||
                       c->hidden[number_of(c, value)].dim);
}

/* In a micro-batch values of the forward pass go up in stage numbers and those
 * of the backward pass down.  A pass may have moved a node over one of another
 * stage, such as the choice of an element over a sum; it goes on to the stage
 * of its reader. */
static void keep_direction(Cut *c) {
  for (int id = c->joint->nodes.n - 1; id >= 0; id--) {
    const Node *node = node_at(c, id);
    for (int i = 0; i < node->n_inputs; i++) {
      Value from = node->inputs[i];
      const Node *maker = node_at(c, from.node);
      uint16_t own = c->stage[id], *of = &c->stage[from.node];
      if (maker->op == OP_input || !own || !*of || !has_batch(c, from))
        continue;
      bool is_back = c->is_back[id];
      bool is_one_pass = is_back == c->is_back[from.node] &&
                         node->phase != PHASE_update &&
                         maker->phase != PHASE_update;
      if (is_one_pass && (is_back ? own > *of : own < *of)) *of = own;
    }
  }
}

/* A cast to fewer bytes that is all that its stage reads of a value is run by
 * the stage that makes the value. */
static void find_stages(Cut *c) {
  for (int id = 0; id < c->joint->nodes.n; id++)
    c->stage[id] = node_at(c, id)->stage;
  keep_direction(c);
  const PairMap *counts = count_readers(c);
  for (int id = 0; id < c->joint->nodes.n; id++) {
    const Node *node = node_at(c, id);
    if (!is_cast(node) || c->is_free[id]) continue;
    Value from = node->inputs[0];
    bool is_only =
        (intptr_t)pair_map_get(counts, number_of(c, from), c->stage[id]) == 1;
    bool is_small =
        bytes_of(node->types[0]) < bytes_of(graph_type(c->joint, from));
    if (is_only && is_small && c->stage[id] && c->stage[from.node])
      c->stage[id] = c->stage[from.node];
  }
}

/* ---- what a stage runs, and what it receives ---- */

/* The stage of an output; -1: all have it. */
static int stage_of_output(const Cut *c, const InputIndex *inputs,
                           const GraphOutput *output) {
  bool is_result = output->role == ROLE_loss || output->role == ROLE_norm;
  if ((is_result && !c->has_own_norms) || output->role == ROLE_rate ||
      output->role == ROLE_loss_scale)
    return -1;
  Role role = output->role == ROLE_grad ? ROLE_param : output->role;
  const GraphInput *input = input_indexed(inputs, role, output->path);
  int id = input ? input->value.node : output->value.node;
  bool is_open = c->is_free[id] || c->stage[id] == 0;
  return is_open ? c->n_stages - 1 : c->stage[id] - 1;
}

static bool find_own_norms(const Cut *c) {
  for (int i = 0; i < c->joint->outputs.n; i++) {
    const GraphOutput *output = &c->joint->outputs.data[i];
    if (output->role == ROLE_norm) return c->stage[output->value.node] > 0;
  }
  return false;
}

static bool has_output(const Cut *c, const InputIndex *inputs,
                       const GraphOutput *output, int stage) {
  int of = stage_of_output(c, inputs, output);
  bool is_owner =
      output->role != ROLE_loss_scale || owner_of_scale(c, stage) == stage;
  return of == stage || (of < 0 && is_owner);
}

static void read_inputs(const Cut *c, Part *part, int id) {
  const Node *node = node_at(c, id);
  for (int i = 0; i < node->n_inputs; i++)
    part->reads[number_of(c, node->inputs[i])] = true;
}

static void run_nodes(const Cut *c, Part *part, int stage) {
  for (int id = c->joint->nodes.n - 1; id >= 0; id--) {
    const Node *node = node_at(c, id);
    bool is_read = false;
    if (pin_is_at(&c->pins, id)) continue;
    for (int r = 0; r < node->n_results; r++)
      is_read |= part->reads[c->first_value[id] + r];
    part->runs[id] = has_stage(c, id, stage) ||
                     (is_read && (c->is_free[id] || c->stage[id] == 0) &&
                      !(is_scale(c, id) && owner_of_scale(c, stage) != stage));
    if (part->runs[id]) read_inputs(c, part, id);
    for (int r = 0; r < node->n_results; r++) {
      int value = c->first_value[id] + r;
      part->receives[value] = part->reads[value] && !part->runs[id];
    }
  }
}

/* The reader of a value may run the node itself: it costs little. */
static bool is_light(const Cut *c, int id) {
  const Node *node = node_at(c, id);
  return node->n_inputs == 1 && node->n_results == 1 &&
         (is_cast(node) || node->op == OP_broadcast ||
          node_is_view(c->joint, id));
}

static bool reader_runs(const Cut *c, const Part *part, int id) {
  const Node *node = node_at(c, id);
  if (!part->receives[c->first_value[id]] || !is_light(c, id)) return false;
  Value from = node->inputs[0];
  bool is_here = part->runs[from.node] || part->receives[number_of(c, from)];
  if (is_here) return true;
  int64_t had = bytes_of(graph_type(c->joint, from)),
          has = bytes_of(node->types[0]);
  return c->stage[from.node] > 0 &&
         (had < has || (had == has && node_is_view(c->joint, id)));
}

static void move_light_nodes(const Cut *c, Part *part) {
  for (int id = c->joint->nodes.n - 1; id >= 0; id--) {
    if (!reader_runs(c, part, id)) continue;
    Value from = node_at(c, id)->inputs[0];
    part->runs[id] = true;
    part->receives[c->first_value[id]] = false;
    if (!part->runs[from.node]) part->receives[number_of(c, from)] = true;
  }
}

/* A pin stays beside the node that makes its value. */
static void keep_pins(const Cut *c, Part *part) {
  for (int id = 0; id < c->joint->nodes.n; id++)
    if (pin_is_at(&c->pins, id))
      part->runs[id] = part->runs[node_at(c, id)->inputs[0].node];
}

static Part find_part(const Cut *c, const InputIndex *inputs, int n_values,
                      int stage) {
  Arena *arena = c->ctx->scratch;
  Part part = {.runs = ARENA_ARRAY(arena, bool, c->joint->nodes.n),
               .reads = ARENA_ARRAY(arena, bool, n_values),
               .receives = ARENA_ARRAY(arena, bool, n_values)};
  for (int i = 0; i < c->joint->outputs.n; i++) {
    const GraphOutput *output = &c->joint->outputs.data[i];
    if (has_output(c, inputs, output, stage))
      part.reads[number_of(c, output->value)] = true;
  }
  run_nodes(c, &part, stage);
  move_light_nodes(c, &part);
  keep_pins(c, &part);
  return part;
}

/* ---- edges ---- */

static Name path_of_edge(Cut *c, Value value) {
  const Node *node = node_at(c, value.node);
  Name path = node->op == OP_input ? input_at(c, value.node)->path
                                   : graph_path(c->joint, value.node);
  Names *names = c->ctx->module->names;
  if (!*path) path = name_intern(names, op_info(node->op)->name);
  Name own = path;
  for (int i = 2; map_has(c->paths, own); i++)
    own = name_format(names, "%s#%d", path, i);
  map_put(c->paths, own, (void *)own);
  return own;
}

/* The backward pass of the stage reads the value, itself or through others. */
static bool is_read_back(const Cut *c, Value value, int stage) {
  bool *follows = ARENA_ARRAY(c->ctx->scratch, bool, c->joint->nodes.n);
  follows[value.node] = true;
  for (int id = value.node + 1; id < c->joint->nodes.n; id++) {
    const Node *node = node_at(c, id);
    for (int i = 0; i < node->n_inputs && c->parts[stage].runs[id]; i++)
      follows[id] |= follows[node->inputs[i].node];
    if (follows[id] && c->is_back[id]) return true;
  }
  return false;
}

/* A value without the batch dim, and without another one that has the batch, is
 * one of the step.  So is one that a later stage makes in its forward pass and
 * only the end of the step reads, such as a state. */
static bool is_of_step(const Cut *c, Value value, int to) {
  bool goes_down = c->stage[value.node] - 1 > to && !c->is_back[value.node];
  return !has_batch(c, value) || (goes_down && !is_read_back(c, value, to));
}

static void add_crossing(Cut *c, Value value, int to) {
  const Plan *plan = c->ctx->plan;
  Module *module = c->ctx->module;
  const Node *node = node_at(c, value.node);
  const Type *type = type_logical(module->arena, graph_type(c->joint, value));
  const HiddenBatch *hidden = &c->hidden[number_of(c, value)];
  bool is_shown = plan->batch_dim && type_find(type, plan->batch_dim) >= 0;
  Crossing crossing = {.value = value,
                       .type = type,
                       .edge = {.from = is_scale(c, value.node)
                                            ? owner_of_scale(c, to)
                                            : c->stage[value.node] - 1,
                                .to = to,
                                .path = path_of_edge(c, value),
                                .is_of_step = is_of_step(c, value, to)}};
  const Type *shown = NULL;
  if (!is_shown && hidden->dim)
    shown = batch_dims_shown(module->arena, type, hidden, plan->batch_dim);
  if (shown) {
    crossing.type = shown;
    crossing.is_brought_back = true;
  } else if (!is_shown && hidden->dim && plan_mesh(plan)->n_axes > 0) {
    diag(module->diags, DIAG_stage_batch, node->span, crossing.edge.path,
         plan->batch_dim, hidden->dim);
  }
  vec_push(c->ctx->scratch, &c->crossings, crossing);
}

/* The owner reads all that the others receive of it. */
static void run_scale(Cut *c) {
  for (int id = 0; id < c->joint->nodes.n; id++)
    for (int s = 0; s < c->n_stages && is_scale(c, id); s++)
      if (c->parts[s].receives[c->first_value[id]])
        c->parts[owner_of_scale(c, s)].runs[id] = true;
}

static void find_crossings(Cut *c) {
  for (int id = 0; id < c->joint->nodes.n; id++)
    for (int r = 0; r < node_at(c, id)->n_results; r++)
      for (int s = 0; s < c->n_stages; s++)
        if (c->parts[s].receives[c->first_value[id] + r])
          add_crossing(c, (Value){id, r}, s);
}

/* ---- graphs ---- */

/* The node of a stage graph is in no stage: the graph is all of one. */
static void leave_stage(Graph *graph, int id, bool is_back) {
  Node **node = &graph->nodes.data[id];
  bool is_moved = is_back && (*node)->phase == PHASE_forward;
  if ((*node)->stage == 0 && !is_moved) return;
  *node = arena_copy(graph->module->arena, *node, sizeof **node);
  (*node)->stage = 0;
  if (is_moved) (*node)->phase = PHASE_input_gradient;
}

static void set_place(Graph *to, const Cut *c, int id) {
  const Node *node = node_at(c, id);
  to->span = node->span;
  to->phase = (Phase)node->phase;
  if (c->is_back[id] && node->phase == PHASE_forward)
    to->phase = PHASE_input_gradient;
  to->path = graph_path(c->joint, id);
}

static Value append_receive(Graph *to, const Cut *c, const Crossing *crossing) {
  set_place(to, c, crossing->value.node);
  Value value =
      graph_input(to, ROLE_receive, crossing->edge.path, crossing->type);
  if (!crossing->is_brought_back) return value;
  return batch_dims_hide(to, value, &c->hidden[number_of(c, crossing->value)],
                         c->ctx->plan->batch_dim);
}

/* The value that a stage sends, behind the node that makes it. */
static Value append_sent(Graph *to, const Cut *c, const Crossing *crossing,
                         Value value) {
  if (!crossing->is_brought_back) return value;
  set_place(to, c, crossing->value.node);
  return batch_dims_show(to, value, &c->hidden[number_of(c, crossing->value)],
                         c->ctx->plan->batch_dim);
}

static void append_run(Graph *to, const Cut *c, int id, Value *now) {
  const Node *node = node_at(c, id);
  Value *inputs = ARENA_ARRAY(c->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = now[number_of(c, node->inputs[i])];
    ASSERT(value_is(inputs[i]));
  }
  Value first = graph_copy_node(to, c->joint, id, inputs, false);
  leave_stage(to, first.node, c->is_back[id]);
  for (int r = 0; r < node->n_results; r++)
    now[c->first_value[id] + r] = (Value){first.node, r};
}

/* Appends the outputs of a stage.  `now`: its values by those of the joint
 * graph; `sent`: by crossing. */
static void append_outputs(Graph *to, const Cut *c, const InputIndex *inputs,
                           int stage, const Value *now, const Value *sent) {
  for (int i = 0; i < c->joint->outputs.n; i++) {
    const GraphOutput *output = &c->joint->outputs.data[i];
    if (has_output(c, inputs, output, stage))
      graph_output(to, output->role, output->path,
                   now[number_of(c, output->value)]);
  }
  for (int i = 0; i < c->crossings.n; i++) {
    const Crossing *crossing = &c->crossings.data[i];
    if (crossing->edge.from == stage)
      graph_output(to, ROLE_send, crossing->edge.path, sent[i]);
  }
}

static Graph *build_stage(const Cut *c, const InputIndex *inputs, int n_values,
                          int stage) {
  Graph *to = graph_create(c->ctx->module, c->joint->name);
  Value *now = ARENA_ARRAY(c->ctx->scratch, Value, n_values);
  Value *sent = ARENA_ARRAY(c->ctx->scratch, Value, c->crossings.n);
  int begin = 0; /* of the crossings of a node */
  for (int v = 0; v < n_values; v++) now[v] = VALUE_NONE;
  for (int id = 0; id < c->joint->nodes.n; id++) {
    int end = begin;
    while (end < c->crossings.n && c->crossings.data[end].value.node == id)
      end++;
    for (int i = begin; i < end; i++)
      if (c->crossings.data[i].edge.to == stage)
        now[number_of(c, c->crossings.data[i].value)] =
            append_receive(to, c, &c->crossings.data[i]);
    if (c->parts[stage].runs[id]) append_run(to, c, id, now);
    for (int i = begin; i < end; i++)
      if (c->crossings.data[i].edge.from == stage)
        sent[i] = append_sent(to, c, &c->crossings.data[i],
                              now[number_of(c, c->crossings.data[i].value)]);
    begin = end;
  }
  append_outputs(to, c, inputs, stage, now, sent);
  return to;
}

/* Numbers the values and returns how many there are. */
static int number_values(Cut *c) {
  int n = 0;
  c->first_value = ARENA_ARRAY(c->ctx->scratch, int, c->joint->nodes.n);
  for (int id = 0; id < c->joint->nodes.n; id++) {
    c->first_value[id] = n;
    n += node_at(c, id)->n_results;
  }
  return n;
}

StageCut stages_cut(PassContext *ctx, const Graph *joint) {
  Arena *scratch = ctx->scratch;
  Cut c = {.ctx = ctx,
           .joint = joint,
           .n_stages = ctx->plan->stages.n,
           .pins = graph_pins(joint, scratch),
           .paths = map_create(scratch)};
  int n_values = number_values(&c);
  c.is_free = ARENA_ARRAY(scratch, bool, joint->nodes.n);
  c.stage = ARENA_ARRAY(scratch, uint16_t, joint->nodes.n);
  c.hidden = ARENA_ARRAY(scratch, HiddenBatch, n_values);
  c.parts = ARENA_ARRAY(scratch, Part, c.n_stages);
  c.is_back = ARENA_ARRAY(scratch, bool, joint->nodes.n);
  find_free(&c);
  find_back(&c);
  if (ctx->plan->batch_dim)
    batch_dims_find(joint, c.first_value, ctx->plan->batch_dim, c.hidden);
  find_stages(&c);
  c.has_own_norms = find_own_norms(&c);
  InputIndex inputs = graph_index_inputs(joint, scratch);
  for (int s = 0; s < c.n_stages; s++)
    c.parts[s] = find_part(&c, &inputs, n_values, s);
  run_scale(&c);
  find_crossings(&c);
  StageCut cut = {.splits_backward = ctx->is_training &&
                                     plan_splits_backward(scratch, ctx->plan),
                  .has_versions = ctx->is_training &&
                                  plan_has_versions(scratch, ctx->plan)};
  for (int s = 0; s < c.n_stages; s++) {
    Graph *graph = build_stage(&c, &inputs, n_values, s);
    if (cut.has_versions) stage_states_update(scratch, graph);
    vec_push(ctx->module->arena, &cut.graphs, graph);
  }
  for (int i = 0; i < c.crossings.n; i++)
    vec_push(ctx->module->arena, &cut.edges, c.crossings.data[i].edge);
  stages_find_levels(scratch, ctx->plan->batch_dim, &cut);
  return cut;
}
