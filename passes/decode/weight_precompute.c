/*
 * weight_precompute.c -- compute values that depend on weights alone once, in
 * decode_init.
 *
 *     decode:
 *     %1 = input param "w"           %1 = input cache "fixed/0"
 *     %2 = cast %1 : bf16       =>   %3 = dot %0, %1
 *     %3 = dot %0, %2
 *                                    decode_init:
 *                                    %0 = input param "w"
 *                                    %1 = cast %0 : bf16
 *                                    output cache "fixed/0" %1
 *
 * The entry point `decode` runs for every token and spends most of its time
 * reading weights.  To round them for each token would read and write more than
 * the contractions do.  Values that depend on weights and on nothing else of a
 * run become decode caches, which `decode_init` fills before the first token.
 * A value qualifies only if it is no larger than its largest weight, so memory
 * grows by less than the weights.  Views of parameters stay views.
 *
 * requires: decomposed, every value used; it does nothing unless ctx->is_decode
 * keeps: values     breaks: node ids     cost: O(nodes + copied nodes)
 */
#include "passes/decode/weight_precompute.h"

#include "passes/rewrite.h"

typedef struct Precompute {
  const Graph *graph;
  bool *is_from_weights; /* by node: depends on weights and constants alone */
  int64_t *bytes;        /* by node: of the largest weight in it; 0: none */
  Name *cache; /* by node: path of the decode cache that it becomes, or NULL */
} Precompute;

static bool role_is_weight(Role role) {
  return role == ROLE_param || role == ROLE_ema || role == ROLE_state;
}

static int64_t type_bytes_of(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

static void find_weight_values(Precompute *p, int id) {
  const Node *node = p->graph->nodes.data[id];
  if (node->op == OP_input) {
    Role role = p->graph->inputs.data[node_int(node, ATTR_index, 0)].role;
    p->is_from_weights[id] = role_is_weight(role);
    p->bytes[id] = p->is_from_weights[id] ? type_bytes_of(node->types[0]) : 0;
    return;
  }
  p->is_from_weights[id] = node->n_results == 1 && !node->body;
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    p->is_from_weights[id] &= p->is_from_weights[from];
    if (p->bytes[from] > p->bytes[id]) p->bytes[id] = p->bytes[from];
  }
}

/* The node whose bytes a view reads. */
static int viewed_node(const Graph *graph, int id) {
  while (node_is_view(graph, id)) id = graph->nodes.data[id]->inputs[0].node;
  return id;
}

/* Makes the value a decode cache: a node that depends on more than weights
 * reads it. */
static void precompute_value(Precompute *p, PassContext *ctx, Value value,
                             int *count) {
  int id = viewed_node(p->graph, value.node);
  const Node *node = p->graph->nodes.data[id];
  if (!p->is_from_weights[id] || p->cache[id] || node->op == OP_input ||
      p->bytes[id] == 0 || type_bytes_of(node->types[0]) > p->bytes[id])
    return;
  p->cache[id] = name_format(ctx->module->names, "fixed/%d", (*count)++);
}

static bool weight_precompute_rule(Rewrite *rewrite, int id, void *user) {
  const Precompute *p = user;
  if (!p->cache[id]) return false;
  rewrite_at(rewrite, id);
  const Type *type = p->graph->nodes.data[id]->types[0];
  rewrite_set(rewrite, (Value){id, 0},
              graph_input(rewrite->to, ROLE_decode_cache, p->cache[id], type));
  return true;
}

PassResult pass_weight_precompute(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n, count = 0;
  if (!ctx->is_decode) return (PassResult){0};
  Precompute p = {.graph = graph,
                  .is_from_weights = ARENA_ARRAY(ctx->scratch, bool, n),
                  .bytes = ARENA_ARRAY(ctx->scratch, int64_t, n),
                  .cache = ARENA_ARRAY(ctx->scratch, Name, n)};
  for (int id = 0; id < n; id++) {
    find_weight_values(&p, id);
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !p.is_from_weights[id]; i++)
      precompute_value(&p, ctx, node->inputs[i], &count);
  }
  Graph *rest = rewrite_graph(ctx, graph, weight_precompute_rule, &p);
  if (count == 0) return (PassResult){.graph = rest};
  Graph *init = graph_like(graph);
  for (int id = 0; id < n; id++)
    if (p.cache[id])
      weight_precompute_add(ctx, init, graph, (Value){id, 0}, p.cache[id],
                            graph->nodes.data[id]->types[0]->dtype);
  return (PassResult){
      .graph = pass_dce(ctx, rest), /* drop the nodes that caches replaced */
      .decode_init = init};
}

/* ---- the graph of decode_init ---- */

typedef struct DecodeInitCopy {
  Graph *to;
  const Graph *from;
  Map *done; /* value_key -> node + 1 */
} DecodeInitCopy;

static Value copy_value(DecodeInitCopy *c, PassContext *ctx, Value value) {
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
      inputs[i] = copy_value(c, ctx, node->inputs[i]);
    now = graph_copy_node(c->to, c->from, value.node, inputs, false);
  }
  map_put(c->done, value_key((Value){value.node, 0}),
          (void *)(intptr_t)(now.node + 1));
  return (Value){now.node, value.result};
}

void weight_precompute_add(PassContext *ctx, Graph *init, const Graph *from,
                           Value value, Name path, DType dtype) {
  DecodeInitCopy c = {
      .to = init, .from = from, .done = map_create(ctx->scratch)};
  Value now = graph_cast(init, copy_value(&c, ctx, value), dtype);
  graph_input(init, ROLE_decode_cache, path, graph_type(init, now));
  graph_output(init, ROLE_decode_cache, path, now);
}
