/*
 * weight_precompute.c -- what sampling computes from weights alone is computed
 * once.
 *
 *     decode:                            decode:
 *       %1 = input param "w"               %1 = input decode_cache "fixed/0"
 *       %2 = cast %1 : bf16         =>     %2 = dot %0, %1
 *       %3 = dot %0, %2                  decode_init:
 *                                          %0 = input param "w"
 *                                          %1 = cast %0 : bf16
 *                                          output decode_cache "fixed/0" %1
 *
 * The entry point `decode` runs for every token, and most of its time goes into
 * reading weights: rounding them each time would read and write more than the
 * matmuls do.  Values that depend on weights and on nothing else of a run
 * become persistent buffers that the entry point `decode_init` fills before the
 * first token.  Only where the value is no larger than the largest weight that
 * it is computed from, so that memory grows by less than the weights.  Views of
 * persistent buffers stay views.
 *
 * requires: decomposed, every value used     does nothing unless ctx->is_decode
 * cost: O(nodes + copied nodes)
 */
#include "passes/decode/weight_precompute.h"

#include "passes/rewrite.h"

typedef struct Prepare {
  const Graph *graph;
  bool *is_fixed; /* by node: from weights and numbers alone */
  int64_t *bytes; /* by node: of the largest weight in it; 0: none */
  Name *slot;     /* by node: NULL, or it becomes this slot */
} Prepare;

static bool role_is_weight(Role role) {
  return role == ROLE_param || role == ROLE_ema || role == ROLE_state;
}

static int64_t type_bytes_of(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

static void find_fixed(Prepare *p, int id) {
  const Node *node = p->graph->nodes.data[id];
  if (node->op == OP_input) {
    Role role = p->graph->inputs.data[node_int(node, ATTR_index, 0)].role;
    p->is_fixed[id] = role_is_weight(role);
    p->bytes[id] = p->is_fixed[id] ? type_bytes_of(node->types[0]) : 0;
    return;
  }
  p->is_fixed[id] = node->n_results == 1 && !node->body;
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    p->is_fixed[id] &= p->is_fixed[from];
    if (p->bytes[from] > p->bytes[id]) p->bytes[id] = p->bytes[from];
  }
}

/* What a view shows. */
static int shown(const Graph *graph, int id) {
  while (node_is_view(graph, id)) id = graph->nodes.data[id]->inputs[0].node;
  return id;
}

/* The value is read where more than weights are known. */
static void wanted(Prepare *p, PassContext *ctx, Value value, int *count) {
  int id = shown(p->graph, value.node);
  const Node *node = p->graph->nodes.data[id];
  if (!p->is_fixed[id] || p->slot[id] || node->op == OP_input ||
      p->bytes[id] == 0 || type_bytes_of(node->types[0]) > p->bytes[id])
    return;
  p->slot[id] = name_format(ctx->module->names, "fixed/%d", (*count)++);
}

static bool rule(Rewrite *rewrite, int id, void *user) {
  const Prepare *p = user;
  if (!p->slot[id]) return false;
  rewrite_at(rewrite, id);
  const Type *type = p->graph->nodes.data[id]->types[0];
  rewrite_set(rewrite, (Value){id, 0},
              graph_input(rewrite->to, ROLE_decode_cache, p->slot[id], type));
  return true;
}

PassResult pass_weight_precompute(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n, count = 0;
  Prepare p = {.graph = graph,
               .is_fixed = ARENA_ARRAY(ctx->scratch, bool, n),
               .bytes = ARENA_ARRAY(ctx->scratch, int64_t, n),
               .slot = ARENA_ARRAY(ctx->scratch, Name, n)};
  for (int id = 0; id < n && ctx->is_decode; id++) {
    find_fixed(&p, id);
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !p.is_fixed[id]; i++)
      wanted(&p, ctx, node->inputs[i], &count);
  }
  Graph *rest = rewrite_graph(ctx, graph, rule, &p);
  if (count == 0) return (PassResult){.graph = rest};
  Graph *init = graph_like(graph);
  for (int id = 0; id < n; id++)
    if (p.slot[id])
      weight_precompute_add(ctx, init, graph, (Value){id, 0}, p.slot[id],
                            graph->nodes.data[id]->types[0]->dtype);
  return (PassResult){.graph = pass_dce(ctx, rest), /* what slots replaced */
                      .decode_init = init};
}

/* ---- the graph of decode_init ---- */

typedef struct Copying {
  Graph *to;
  const Graph *from;
  Map *done; /* value_key -> node + 1 */
} Copying;

static Value copied(Copying *c, PassContext *ctx, Value value) {
  intptr_t known =
      (intptr_t)map_get(c->done, value_key((Value){value.node, 0}));
  if (known) return (Value){(int)known - 1, value.result};
  const Node *node = graph_node(c->from, value);
  Value now;
  if (node->op == OP_input) {
    const GraphInput *input =
        &c->from->inputs.data[node_int(node, ATTR_index, 0)];
    const GraphInput *there = graph_find_input(c->to, input->role, input->path);
    now = there ? there->value : rewrite_input(c->to, input, node->types[0]);
  } else {
    Value *inputs = ARENA_ARRAY(ctx->scratch, Value, node->n_inputs);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = copied(c, ctx, node->inputs[i]);
    now = graph_copy_node(c->to, c->from, value.node, inputs, false);
  }
  map_put(c->done, value_key((Value){value.node, 0}),
          (void *)(intptr_t)(now.node + 1));
  return (Value){now.node, value.result};
}

void weight_precompute_add(PassContext *ctx, Graph *init, const Graph *from,
                           Value value, Name path, DType dtype) {
  Copying c = {.to = init, .from = from, .done = map_create(ctx->scratch)};
  Value now = graph_cast(init, copied(&c, ctx, value), dtype);
  graph_input(init, ROLE_decode_cache, path, graph_type(init, now));
  graph_output(init, ROLE_decode_cache, path, now);
}
