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
 * grows by less than the weights.  Views of parameters stay views.  The stage
 * that reads a cache first has it.  What reads a weight of another stage gets a
 * copy, which becomes a cache too, so that no token waits for weights.
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
  uint16_t *stage; /* by node: that of the cache, as in Node */
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

/* Makes the value a decode cache of this stage: a node that depends on more
 * than weights reads it there. */
static void precompute_value(Precompute *p, PassContext *ctx, Value value,
                             uint16_t stage, int *count) {
  int id = viewed_node(p->graph, value.node);
  const Node *node = p->graph->nodes.data[id];
  if (!p->is_from_weights[id] || p->cache[id] || node->op == OP_input ||
      p->bytes[id] == 0 || type_bytes_of(node->types[0]) > p->bytes[id])
    return;
  p->cache[id] = name_format(ctx->module->names, "fixed/%d", (*count)++);
  p->stage[id] = stage;
}

static void find_all_weight_values(Precompute *p, PassContext *ctx,
                                   const Graph *graph) {
  int n = graph->nodes.n;
  p->graph = graph;
  p->is_from_weights = ARENA_ARRAY(ctx->scratch, bool, n);
  p->bytes = ARENA_ARRAY(ctx->scratch, int64_t, n);
  for (int id = 0; id < n; id++) find_weight_values(p, id);
}

/* ---- weights of other stages ---- */

typedef struct WeightCopies {
  Precompute p;
  PairMap *copies; /* by node and stage: node of the copy, plus 1 */
} WeightCopies;

/* Returns the copy of a weight, or of a view of one, in the stage of the walk.
 */
static Value copy_weight(Rewrite *rewrite, WeightCopies *c, Value value) {
  int stage = rewrite->to->stage; /* inputs and views have one result */
  intptr_t known = (intptr_t)pair_map_get(c->copies, value.node, stage);
  if (known) return (Value){(int)known - 1, 0};
  Value from = rewrite_get(rewrite, value);
  const Type *type = graph_type(rewrite->to, from);
  Value copy =
      graph_append_typed(rewrite->to, OP_copy, &from, 1, NULL, &type, 1, NULL);
  pair_map_put(c->copies, value.node, stage, (void *)(intptr_t)(copy.node + 1));
  return copy;
}

static bool copy_weights_rule(Rewrite *rewrite, int id, void *user) {
  WeightCopies *c = user;
  const Graph *graph = c->p.graph;
  const Node *node = graph->nodes.data[id];
  if (c->p.is_from_weights[id] || !node->stage) return false;
  rewrite_at(rewrite, id);
  Value *inputs = rewrite_inputs(rewrite, id);
  for (int i = 0; i < node->n_inputs; i++) {
    int weight = viewed_node(graph, node->inputs[i].node);
    if (c->p.is_from_weights[weight] && c->p.bytes[weight] > 0 &&
        graph->nodes.data[weight]->op == OP_input &&
        graph->nodes.data[weight]->stage != node->stage)
      inputs[i] = copy_weight(rewrite, c, node->inputs[i]);
  }
  Value first = graph_copy_node(rewrite->to, graph, id, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    rewrite_set(rewrite, (Value){id, r}, (Value){first.node, r});
  return true;
}

static Graph *copy_weights_of_others(PassContext *ctx, const Graph *graph) {
  WeightCopies copies = {.copies = pair_map_create(ctx->scratch)};
  find_all_weight_values(&copies.p, ctx, graph);
  return rewrite_graph(ctx, graph, copy_weights_rule, &copies);
}

/* ---- the pass ---- */

static bool weight_precompute_rule(Rewrite *rewrite, int id, void *user) {
  const Precompute *p = user;
  if (!p->cache[id]) return false;
  rewrite_at(rewrite, id);
  rewrite->to->stage = p->stage[id];
  const Type *type = p->graph->nodes.data[id]->types[0];
  rewrite_set(rewrite, (Value){id, 0},
              graph_input(rewrite->to, ROLE_decode_cache, p->cache[id], type));
  return true;
}

static void add_precomputed(const Precompute *p, PassContext *ctx, Graph *init,
                            int id) {
  const Type *type = p->graph->nodes.data[id]->types[0];
  FilledCache cache = {p->cache[id], type->dtype, p->stage[id]};
  weight_precompute_add(ctx, init, p->graph, (Value){id, 0}, &cache);
}

PassResult pass_weight_precompute(PassContext *ctx, const Graph *given) {
  int n, count = 0;
  Precompute p;
  if (!ctx->is_decode) return (PassResult){0};
  const Graph *graph = copy_weights_of_others(ctx, given);
  n = graph->nodes.n;
  p = (Precompute){.cache = ARENA_ARRAY(ctx->scratch, Name, n),
                   .stage = ARENA_ARRAY(ctx->scratch, uint16_t, n)};
  find_all_weight_values(&p, ctx, graph);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && !p.is_from_weights[id]; i++)
      precompute_value(&p, ctx, node->inputs[i], node->stage, &count);
  }
  Graph *rest = rewrite_graph(ctx, graph, weight_precompute_rule, &p);
  if (count == 0) return (PassResult){.graph = rest};
  Graph *init = graph_like(graph);
  for (int id = 0; id < n; id++)
    if (p.cache[id]) add_precomputed(&p, ctx, init, id);
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
    c->to->stage = node->stage;
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
                           Value value, const FilledCache *cache) {
  DecodeInitCopy c = {
      .to = init, .from = from, .done = map_create(ctx->scratch)};
  Value from_weights = copy_value(&c, ctx, value);
  init->stage = 0;
  Value now = graph_cast(init, from_weights, cache->dtype);
  init->stage = cache->stage;
  graph_input(init, ROLE_decode_cache, cache->path, graph_type(init, now));
  graph_output(init, ROLE_decode_cache, cache->path, now);
}
