/*
 * scan_simplify.c -- hoist loop-invariant nodes out of scans and drop dead
 * carries.
 *
 *     %4, %5, %6 = scan %h0, %x, %w {          %3 = dot %x, %w {over = [I]}
 *       %0 = input carry "h"                   %4, %5 = scan %h0, %3 {
 *       %1 = input slice "x"                     %0 = input carry "h"
 *       %2 = input arg "w"                       %1 = input slice
 *       %3 = dot %1, %2 {over = [I]}     =>      %4 = add %0, %1
 *       %4 = add %0, %3                          ...
 *       ...
 *
 * The pass drops results without a user, then carries that feed only
 * themselves and inputs that only those carries read.
 *
 * A node that depends on no carry can be computed outside for all iterations:
 * operators address dims by name, so the scanned dim is one dim more.  It is
 * hoisted where that pays: loop-invariant nodes, dots and gathers with their
 * operands (one large operator in place of many small ones), and results that
 * need no loop.  Cheap operators on slices stay, because they fuse with their
 * users in the body; outside they would cost a pass through memory.
 *
 * Where a body contains scans, its users are known after it and its operands
 * before it: the pass simplifies the graph, then the bodies, then the graph
 * once more.
 *
 * requires: logical types     keeps: values     breaks: node ids, results
 * cost: O(nodes) for each level of scans
 */
#include "passes/rewrite.h"

typedef struct ScanBody {
  Rewrite *rewrite; /* of the enclosing graph */
  const Node *node;
  const Graph *graph; /* the body as it was */
  int id, n;
  const bool *is_used; /* by result of the scan */
  bool *is_live;       /* by node of the body */
  bool *needs_carry;   /* depends on a carry */
  bool *is_hoisted;    /* is computed outside of the scan */
  Value *hoisted; /* by node: its value for all iterations, or VALUE_NONE */
  Value *inside;  /* by node: in the new body, or VALUE_NONE */
  Graph *to;      /* the new body */
  VEC(Value) operands; /* inputs of the new scan */
} ScanBody;

/* ---- which nodes are needed ---- */

static void mark_live_operands(const Graph *body, bool *is_live) {
  for (int id = body->nodes.n - 1; id >= 0; id--) {
    const Node *node = body->nodes.data[id];
    for (int i = 0; is_live[id] && i < node->n_inputs; i++)
      is_live[node->inputs[i].node] = true;
  }
}

/* A carry is needed if its last value is needed, or a needed node reads it. */
static bool *find_live_nodes(Arena *arena, const Node *node,
                             const bool *is_used) {
  const Graph *body = node->body;
  bool *is_live = ARENA_ARRAY(arena, bool, body->nodes.n);
  for (int r = 0; r < node->n_results; r++)
    if (is_used[r]) is_live[body->outputs.data[r].value.node] = true;
  for (bool changed = true; changed;) {
    mark_live_operands(body, is_live);
    changed = false;
    for (int i = 0; i < scan_carries(node); i++) {
      int out = body->outputs.data[i].value.node;
      bool is_read = is_live[body->inputs.data[i].value.node] || is_used[i];
      if (!is_read || is_live[out]) continue;
      is_live[out] = changed = true;
    }
  }
  /* A carry whose last value is used stays, even if no iteration reads it. */
  for (int i = 0; i < scan_carries(node); i++)
    if (is_used[i]) is_live[body->inputs.data[i].value.node] = true;
  return is_live;
}

/* By node and result of the graph: some output depends on it. */
static bool **find_used_results(PassContext *ctx, const Graph *graph) {
  bool **is_used = ARENA_ARRAY(ctx->scratch, bool *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++)
    is_used[id] =
        ARENA_ARRAY(ctx->scratch, bool, graph->nodes.data[id]->n_results);
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    is_used[value.node][value.result] = true;
  }
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool any = false;
    for (int r = 0; r < node->n_results; r++) any |= is_used[id][r];
    if (!any) continue;
    const bool *is_live = node->op == OP_scan
                              ? find_live_nodes(ctx->scratch, node, is_used[id])
                              : NULL;
    for (int i = 0; i < node->n_inputs; i++)
      if (!is_live || is_live[node->body->inputs.data[i].value.node])
        is_used[node->inputs[i].node][node->inputs[i].result] = true;
  }
  return is_used;
}

/* ---- which nodes are hoisted ---- */

static bool is_worth_hoisting(Op op) {
  return op == OP_dot || op == OP_gather;
}

static void find_hoisted(ScanBody *b) {
  const Graph *body = b->graph;
  bool *varies = ARENA_ARRAY(b->rewrite->ctx->scratch, bool, b->n);
  bool *stays = ARENA_ARRAY(b->rewrite->ctx->scratch, bool, b->n);
  for (int i = 0; i < body->inputs.n; i++) {
    int id = body->inputs.data[i].value.node;
    b->needs_carry[id] = stays[id] = body->inputs.data[i].role == ROLE_carry;
    varies[id] = body->inputs.data[i].role != ROLE_arg;
  }
  for (int id = 0; id < b->n; id++) {
    const Node *node = body->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      b->needs_carry[id] |= b->needs_carry[from];
      varies[id] |= varies[from];
      stays[id] |= stays[from];
    }
    if (node->op == OP_input || node->op == OP_const) continue;
    stays[id] |= b->needs_carry[id] || node->n_results != 1 ||
                 (varies[id] && !op_has(node->op, OP_FLAG_by_name));
    b->is_hoisted[id] = !stays[id] && b->is_live[id] &&
                        (is_worth_hoisting(node->op) || !varies[id]);
  }
  for (int r = scan_carries(b->node); r < body->outputs.n; r++) {
    Value value = body->outputs.data[r].value;
    if (b->is_used[r] && !stays[value.node]) b->is_hoisted[value.node] = true;
  }
  for (int id = b->n - 1; id >= 0; id--) {
    const Node *node = body->nodes.data[id];
    for (int i = 0; b->is_hoisted[id] && i < node->n_inputs; i++)
      b->is_hoisted[node->inputs[i].node] = true;
  }
}

/* The value for all iterations, with the scanned dim if it varies. */
static Value hoist_value(ScanBody *b, Value value) {
  int id = value.node;
  if (value_is(b->hoisted[id])) return b->hoisted[id];
  const Node *node = b->graph->nodes.data[id];
  Graph *to = b->rewrite->to;
  ASSERT(node->n_results == 1);
  Value now;
  if (node->op == OP_input) {
    int64_t slot = node_int(node, ATTR_index, 0);
    now = rewrite_get(b->rewrite, b->node->inputs[slot]);
  } else if (node->op == OP_transpose) {
    now = hoist_value(b, node->inputs[0]);
  } else {
    Value *inputs =
        ARENA_ARRAY(b->rewrite->ctx->scratch, Value, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = hoist_value(b, node->inputs[i]);
    now = op_info(node->op)->infer
              ? graph_copy_node(to, b->graph, id, inputs, true)
              : VALUE_NONE;
    ASSERT(value_is(now));
  }
  return b->hoisted[id] = now;
}

/* ---- the new body ---- */

static Value add_body_input(ScanBody *b, Role role, Name path, const Type *type,
                            Value outer) {
  vec_push(b->rewrite->ctx->scratch, &b->operands, outer);
  return graph_input(b->to, role, path, type);
}

/* Puts the scanned dim before the dims that the value has in one iteration. */
static Value stack_value(ScanBody *b, Value outer, const Type *type) {
  Graph *to = b->rewrite->to;
  Arena *arena = to->module->arena;
  const Type *want = scan_stacked_type(
      arena, type, node_name(b->node, ATTR_dim), scan_steps(b->node));
  const Type *have = graph_type(to, outer);
  if (type_find(have, want->dims[0].name) < 0) {
    Attrs attrs = {0};
    attrs_names(&attrs, ATTR_to, &want->dims[0].name, 1);
    attrs_ints(&attrs, ATTR_sizes, &want->dims[0].size, 1);
    outer = graph_append(to, OP_broadcast, &outer, 1, &attrs);
  }
  return graph_transpose_to(to, outer, want);
}

static Value body_value(ScanBody *b, Value value) {
  if (value_is(b->inside[value.node]))
    return (Value){b->inside[value.node].node, value.result};
  const Node *node = b->graph->nodes.data[value.node];
  const Type *type = node->types[value.result];
  Graph *outer = b->rewrite->to;
  Value now;
  if (node->op == OP_const) {
    now = graph_copy_node(b->to, b->graph, value.node, NULL, false);
  } else if (b->is_hoisted[value.node] || node->op == OP_input) {
    now = hoist_value(b, value);
    bool varies =
        type_find(graph_type(outer, now), node_name(b->node, ATTR_dim)) >= 0;
    now = varies ? stack_value(b, now, type)
                 : graph_transpose_to(outer, now, type);
    now = add_body_input(b, varies ? ROLE_slice : ROLE_arg, node->path, type,
                         now);
  } else {
    Value *inputs =
        ARENA_ARRAY(b->rewrite->ctx->scratch, Value, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = body_value(b, node->inputs[i]);
    now = graph_copy_node(b->to, b->graph, value.node, inputs, false);
  }
  b->inside[value.node] = (Value){now.node, 0};
  return (Value){now.node, value.result};
}

static bool keeps_carry(const ScanBody *b, int i) {
  return b->is_live[b->graph->inputs.data[i].value.node];
}

static void add_carries(ScanBody *b) {
  for (int i = 0; i < scan_carries(b->node); i++) {
    const GraphInput *input = &b->graph->inputs.data[i];
    if (!keeps_carry(b, i)) continue;
    b->inside[input->value.node] = add_body_input(
        b, ROLE_carry, input->path, graph_type(b->graph, input->value),
        rewrite_get(b->rewrite, b->node->inputs[i]));
  }
}

/* Keeps the order of the nodes. */
static void build_body(ScanBody *b) {
  add_carries(b);
  bool *is_inside = ARENA_ARRAY(b->rewrite->ctx->scratch, bool, b->n);
  for (int r = 0; r < b->graph->outputs.n; r++) {
    Value value = b->graph->outputs.data[r].value;
    bool is_carry = r < scan_carries(b->node);
    is_inside[value.node] |= is_carry
                                 ? keeps_carry(b, r)
                                 : b->is_used[r] && !b->is_hoisted[value.node];
  }
  for (int id = b->n - 1; id >= 0; id--) {
    const Node *node = b->graph->nodes.data[id];
    for (int i = 0; is_inside[id] && !b->is_hoisted[id] && i < node->n_inputs;
         i++)
      is_inside[node->inputs[i].node] = true;
  }
  for (int id = 0; id < b->n; id++)
    if (is_inside[id]) body_value(b, (Value){id, 0});
}

static void replace_scan(ScanBody *b) {
  Rewrite *rewrite = b->rewrite;
  b->to = graph_like(b->graph);
  build_body(b);
  int n_results = 0;
  int *new_result =
      ARENA_ARRAY(rewrite->ctx->scratch, int, b->graph->outputs.n);
  for (int r = 0; r < b->graph->outputs.n; r++) {
    const GraphOutput *output = &b->graph->outputs.data[r];
    bool is_carry = r < scan_carries(b->node);
    new_result[r] = -1;
    if (is_carry ? !keeps_carry(b, r)
                 : !b->is_used[r] || b->is_hoisted[output->value.node])
      continue;
    new_result[r] = n_results++;
    graph_output(b->to, output->role, output->path,
                 body_value(b, output->value));
  }
  rewrite_at(rewrite, b->id);
  Value first = VALUE_NONE;
  if (n_results > 0)
    first =
        scan_append(rewrite->to, scan_form(b->node), b->operands.data, b->to);
  for (int r = 0; r < b->graph->outputs.n; r++) {
    Value value = b->graph->outputs.data[r].value;
    if (new_result[r] >= 0)
      rewrite_set(rewrite, (Value){b->id, r},
                  (Value){first.node, new_result[r]});
    else if (r >= scan_carries(b->node) && b->is_used[r])
      rewrite_set(
          rewrite, (Value){b->id, r},
          stack_value(b, hoist_value(b, value), graph_type(b->graph, value)));
  }
}

static Graph *simplify_scans(PassContext *ctx, const Graph *graph) {
  bool **is_used = find_used_results(ctx, graph);
  GraphPins pins = graph_pins(graph, ctx->scratch);
  Rewrite rewrite = rewrite_begin(ctx, graph);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool any = node->op == OP_input ||
               (pin_is_at(&pins, id) &&
                is_used[node->inputs[0].node][node->inputs[0].result]);
    for (int r = 0; r < node->n_results; r++) any |= is_used[id][r];
    if (!any) continue;
    rewrite_at(&rewrite, id);
    if (node->op != OP_scan) {
      rewrite_copy(&rewrite, id);
      continue;
    }
    Arena *scratch = ctx->scratch;
    ScanBody body = {.rewrite = &rewrite, .node = node, .graph = node->body};
    body.id = id;
    body.n = node->body->nodes.n;
    body.is_used = is_used[id];
    body.is_live = find_live_nodes(scratch, node, is_used[id]);
    body.needs_carry = ARENA_ARRAY(scratch, bool, body.n);
    body.is_hoisted = ARENA_ARRAY(scratch, bool, body.n);
    body.hoisted = ARENA_ARRAY(scratch, Value, body.n);
    body.inside = ARENA_ARRAY(scratch, Value, body.n);
    for (int i = 0; i < body.n; i++)
      body.hoisted[i] = body.inside[i] = VALUE_NONE;
    find_hoisted(&body);
    replace_scan(&body);
  }
  return rewrite_end(&rewrite);
}

Graph *pass_scan_simplify(PassContext *ctx, const Graph *from) {
  Graph *graph = simplify_scans(ctx, from);
  bool is_nested = false;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    if (node->op != OP_scan || !graph_has_op(node->body, OP_scan)) continue;
    node->body = pass_scan_simplify(ctx, node->body);
    is_nested = true;
  }
  return is_nested ? simplify_scans(ctx, graph) : graph;
}
