/*
 * scan_hoist.c -- moves loop-invariant collectives out of scans.
 *
 *     %5 = scan %h, %x, %w {           %4 = all_gather %w
 *       %3 = all_gather %2             %5 = scan %h, %x, %4 {
 *       %4 = dot %0, %3           =>     %4 = dot %0, %3
 *       ...                              ...
 *
 * A body is placed like a graph, so an argument, which all iterations share, is
 * resharded in it, and again in each iteration.  With what they are computed
 * from, and with the views, copies and casts that follow them, the collectives
 * on arguments are appended to the enclosing graph, before the scan.  One of
 * them serves all readers there that want the placement, such as the forward
 * and the backward scan; `remat` gathers again for the latter.  An inner scan
 * is placed first, so its collectives leave one loop after the other.
 *
 * A line `remat` about a parameter keeps its collectives in the body, because
 * the result then lives for one iteration and not for the whole loop.
 */
#include "passes/spmd/resharding.h"
#include "passes/spmd/strategy.h"

typedef struct ScanHoist {
  Partition *p;
  const Graph *body;
  const Value *inputs; /* of the scan */
  bool *is_program;    /* by node: of the program, and not for a placement */
  bool *stays;         /* by node: it differs between iterations */
  bool *is_hoisted;    /* by node */
  Value *outside;      /* by node: in the enclosing graph, or VALUE_NONE */
  Value *inside;       /* by node: its value in the new body */
} ScanHoist;

typedef VEC(Value) ScanOperands;

/* ---- which nodes leave ---- */

static bool stays_for_line(const Partition *p, Value operand) {
  Name parameter = shown_parameter(p, operand);
  const PlanPin *line = parameter ? plan_find_saving(p->plan, parameter) : NULL;
  return line && line->says == SAYS_remat;
}

static void find_staying(ScanHoist *h) {
  const Graph *body = h->body;
  for (int i = 0; i < body->inputs.n; i++)
    h->stays[body->inputs.data[i].value.node] =
        body->inputs.data[i].role != ROLE_arg ||
        stays_for_line(h->p, h->inputs[i]);
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    h->stays[id] |= node->n_results != 1 || node->body;
    for (int i = 0; i < node->n_inputs; i++)
      h->stays[id] |= h->stays[node->inputs[i].node];
  }
}

static bool moves_or_rounds(const Node *node) {
  return node->n_inputs == 1 &&
         (node->op == OP_cast || op_is(node->op, OPCLASS_view) ||
          op_is(node->op, OPCLASS_data_movement));
}

/* False: none does. */
static bool find_hoisted(ScanHoist *h) {
  const Graph *body = h->body;
  bool is_any = false;
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (h->stays[id] || node->op == OP_input) continue;
    h->is_hoisted[id] =
        op_has(node->op, OP_FLAG_group) ||
        (moves_or_rounds(node) && h->is_hoisted[node->inputs[0].node]);
    is_any |= h->is_hoisted[id];
  }
  for (int id = body->nodes.n - 1; id >= 0; id--) {
    const Node *node = body->nodes.data[id];
    for (int i = 0; h->is_hoisted[id] && i < node->n_inputs; i++)
      h->is_hoisted[node->inputs[i].node] = true;
  }
  return is_any;
}

/* ---- the enclosing graph ---- */

static bool has_dims_of(const Type *a, const Type *b) {
  if (a->dtype != b->dtype || a->rank != b->rank) return false;
  for (int d = 0; d < a->rank; d++)
    if (a->dims[d].name != b->dims[d].name ||
        a->dims[d].size != b->dims[d].size)
      return false;
  return true;
}

/* The argument, as the enclosing graph has it, that a node shows in another
 * placement; VALUE_NONE: it is no resharding of one. */
static Value find_resharded(const ScanHoist *h, int id) {
  const Node *node = h->body->nodes.data[id];
  const Type *type = node->types[0];
  while (node->n_inputs == 1 && !h->is_program[id]) {
    id = node->inputs[0].node;
    node = h->body->nodes.data[id];
  }
  if (node->op != OP_input) return VALUE_NONE;
  Value value = h->inputs[node_int(node, ATTR_index, 0)];
  return has_dims_of(type, graph_type(h->p->rewrite.to, value)) ? value
                                                                : VALUE_NONE;
}

static Value hoist_node(ScanHoist *h, int id);

static Value append_hoisted(ScanHoist *h, int id) {
  const Node *node = h->body->nodes.data[id];
  Graph *to = h->p->rewrite.to;
  Value *inputs = ARENA_ARRAY(h->p->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = hoist_node(h, node->inputs[i].node);
  Attrs attrs = node_attrs(node);
  to->path = node->path;
  to->phase = node->phase;
  to->span = node->span;
  return graph_append_typed(to, node->op, inputs, node->n_inputs, &attrs,
                            node->types, 1, NULL);
}

static Value hoist_node(ScanHoist *h, int id) {
  const Node *node = h->body->nodes.data[id];
  if (node->op == OP_input) return h->inputs[node_int(node, ATTR_index, 0)];
  if (value_is(h->outside[id])) return h->outside[id];
  Value from = find_resharded(h, id), now = VALUE_NONE;
  if (value_is(from)) now = find_reshard(h->p, from, node->types[0]);
  if (!value_is(now)) {
    now = append_hoisted(h, id);
    if (value_is(from)) remember_reshard(h->p, from, now);
  }
  return h->outside[id] = now;
}

/* ---- the new body ---- */

static bool *find_needed(const ScanHoist *h) {
  const Graph *body = h->body;
  bool *is_needed = ARENA_ARRAY(h->p->ctx->scratch, bool, body->nodes.n);
  for (int i = 0; i < body->outputs.n; i++)
    is_needed[body->outputs.data[i].value.node] = true;
  for (int i = 0; i < body->inputs.n; i++)
    if (body->inputs.data[i].role != ROLE_arg)
      is_needed[body->inputs.data[i].value.node] = true;
  for (int id = body->nodes.n - 1; id >= 0; id--) {
    const Node *node = body->nodes.data[id];
    bool is_read = is_needed[id] && !h->is_hoisted[id];
    for (int i = 0; is_read && i < node->n_inputs; i++)
      is_needed[node->inputs[i].node] = true;
  }
  return is_needed;
}

/* Appends a node to the new body.  A hoisted one becomes an argument; constants
 * are cheaper made again. */
static Value keep_node(ScanHoist *h, Graph *to, int id,
                       ScanOperands *operands) {
  const Node *node = h->body->nodes.data[id];
  Arena *scratch = h->p->ctx->scratch;
  if (node->op == OP_input) {
    int64_t index = node_int(node, ATTR_index, 0);
    vec_push(scratch, operands, h->inputs[index]);
    return graph_copy_node(to, h->body, id, NULL, false);
  }
  if (h->is_hoisted[id] && node->op != OP_const) {
    vec_push(scratch, operands, hoist_node(h, id));
    to->path = node->path;
    to->phase = node->phase;
    to->span = node->span;
    return graph_input(to, ROLE_arg, node->path, node->types[0]);
  }
  Value *inputs = ARENA_ARRAY(scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    inputs[i] = h->inside[node->inputs[i].node];
    inputs[i].result = node->inputs[i].result;
  }
  return graph_copy_node(to, h->body, id, inputs, false);
}

static Graph *build_body(ScanHoist *h, ScanOperands *operands) {
  const Graph *body = h->body;
  const bool *is_needed = find_needed(h);
  Graph *to = graph_like(body);
  for (int id = 0; id < body->nodes.n; id++)
    if (is_needed[id]) h->inside[id] = keep_node(h, to, id, operands);
  for (int i = 0; i < body->outputs.n; i++) {
    const GraphOutput *output = &body->outputs.data[i];
    Value value = h->inside[output->value.node];
    value.result = output->value.result;
    graph_output(to, output->role, output->path, value);
  }
  return to;
}

static void find_program(ScanHoist *h, const Rewrite *rewrite) {
  for (int id = 0; id < rewrite->from->nodes.n; id++) {
    Value value = rewrite_find(rewrite, (Value){id, 0});
    if (value_is(value)) h->is_program[value.node] = true;
  }
}

Graph *hoist_collectives(Partition *p, const Partition *inner, Graph *body,
                         Value **inputs) {
  Arena *scratch = p->ctx->scratch;
  int n = body->nodes.n;
  ScanHoist h = {.p = p,
                 .body = body,
                 .inputs = *inputs,
                 .is_program = ARENA_ARRAY(scratch, bool, n),
                 .stays = ARENA_ARRAY(scratch, bool, n),
                 .is_hoisted = ARENA_ARRAY(scratch, bool, n),
                 .outside = ARENA_ARRAY(scratch, Value, n),
                 .inside = ARENA_ARRAY(scratch, Value, n)};
  ScanOperands operands = {0};
  find_program(&h, &inner->rewrite);
  find_staying(&h);
  if (!find_hoisted(&h)) return body;
  for (int id = 0; id < n; id++) h.outside[id] = VALUE_NONE;
  body = build_body(&h, &operands);
  *inputs = operands.data;
  return body;
}
