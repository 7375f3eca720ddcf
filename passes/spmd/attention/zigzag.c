/*
 * zigzag.c -- puts a causal sequence into an order in which every shard has an
 * early and a late part, so that ring attention is equal work for all ranks.
 *
 *     4 ranks, 8 chunks of T:   0 7 | 1 6 | 2 5 | 3 4
 *
 * Rank i has the chunks i and 2n - 1 - i (Llama team 2024, "The Llama 3 Herd of
 * Models", section 3.3.2).  The order of a sequence has no meaning for
 * operators that treat all its elements alike, so it changes where the sequence
 * comes from, and nowhere else:
 *
 *     %0 = input : i32[B, T] data "x"
 *     %1 = iota {dim = T} : i32[T]
 *  =>
 *     %0 = input : i32[B, T'] data "x"              replicated along T'
 *     %1 = split_dim %0 {dim = T', to = [T/2, T~, T^^]}
 *     %2 = select (T/2 == 0), %1, (reverse %1 {dim = T~})
 *     %3 = merge_dims %2 {from = [T~, T/2, T^^], dim = T}
 *
 * and alike for positions and for parameters with the dim.  No line is about
 * T', so each rank reads the full sequence of its samples from the files and
 * takes its part without a message.  Gradients that the update reads, and
 * outputs, get their own order back.
 *
 * requires: logical types, phases     keeps: the order of stored values
 * cost: O(nodes)
 */
#include "passes/spmd/attention/zigzag.h"

#include "ir/place/shardrule.h"
#include "passes/spmd/attention/attention.h"

bool zigzag_has(const Zigzag *zigzag, Name dim) {
  for (int i = 0; i < zigzag->n_names; i++)
    if (zigzag->names[i] == dim) return true;
  return false;
}

static bool type_has_sequence(const Zigzag *zigzag, const Type *type) {
  for (int d = 0; d < type->rank; d++)
    if (zigzag_has(zigzag, type->dims[d].name)) return true;
  return false;
}

/* ---- names ---- */

/* True: the name is new and there is room for it. */
static bool add_sequence_name(Zigzag *zigzag, Name name) {
  if (zigzag_has(zigzag, name) || zigzag->n_names == MOST_SEQUENCE_NAMES)
    return false;
  zigzag->names[zigzag->n_names++] = name;
  return true;
}

/* Two names of one sequence. */
static bool join_names(Zigzag *zigzag, Name a, Name b) {
  if (zigzag_has(zigzag, a)) return add_sequence_name(zigzag, b);
  return zigzag_has(zigzag, b) && add_sequence_name(zigzag, a);
}

static bool add_names_of_node(Zigzag *zigzag, const Node *node) {
  bool has_changed = false;
  int n, n_to;
  if (node->op == OP_rename) {
    const Name *from = node_names(node, ATTR_from, &n);
    const Name *to = node_names(node, ATTR_to, &n_to);
    for (int i = 0; i < n; i++)
      has_changed |= join_names(zigzag, from[i], to[i]);
  }
  if (node->op == OP_attention && node_int(node, ATTR_causal, 0))
    has_changed |= join_names(zigzag, node_name(node, ATTR_query),
                              node_name(node, ATTR_key));
  return has_changed;
}

static void find_names(Zigzag *zigzag, const Graph *graph) {
  for (bool has_changed = true; has_changed;) {
    has_changed = false;
    for (int id = 0; id < graph->nodes.n; id++)
      has_changed |= add_names_of_node(zigzag, graph->nodes.data[id]);
  }
}

/* ---- which operators see the order ---- */

typedef struct OrderCheck {
  PassContext *ctx;
  const Zigzag *zigzag;
  ShardRule *rule;
} OrderCheck;

static bool node_has_sequence(const Zigzag *zigzag, const Graph *graph,
                              const Node *node) {
  for (int i = 0; i < node->n_inputs; i++)
    if (type_has_sequence(zigzag, graph_type(graph, node->inputs[i])))
      return true;
  for (int r = 0; r < node->n_results; r++)
    if (type_has_sequence(zigzag, node->types[r])) return true;
  return false;
}

static bool body_has_sequence(const Zigzag *zigzag, const Graph *body) {
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    if (node_has_sequence(zigzag, body, node) ||
        (node->body && body_has_sequence(zigzag, node->body)))
      return true;
  }
  return false;
}

/* All dims of these names are the sequence. */
static bool has_sequence_sizes(const Zigzag *zigzag, const Node *node) {
  for (int r = 0; r < node->n_results; r++)
    for (int d = 0; d < node->types[r]->rank; d++) {
      const Dim *dim = &node->types[r]->dims[d];
      if (zigzag_has(zigzag, dim->name) && dim->size != zigzag->size)
        return false;
    }
  return true;
}

static bool attr_names_sequence(const Zigzag *zigzag, const Node *node,
                                AttrKey key) {
  int n = 0;
  if (!node_has(node, key)) return false;
  if (attr_kind(key) == ATTRKIND_NAME)
    return zigzag_has(zigzag, node_name(node, key));
  const Name *names = node_names(node, key, &n);
  for (int i = 0; i < n; i++)
    if (zigzag_has(zigzag, names[i])) return true;
  return false;
}

/* A sequence keeps its order under all of its names. */
static bool rename_keeps_order(const Zigzag *zigzag, const Node *node) {
  int n, n_to;
  const Name *from = node_names(node, ATTR_from, &n);
  const Name *to = node_names(node, ATTR_to, &n_to);
  for (int i = 0; i < n; i++)
    if (zigzag_has(zigzag, from[i]) != zigzag_has(zigzag, to[i])) return false;
  return true;
}

/* Queries along the sequence must have the shards of the ring. */
static bool attention_keeps_order(const OrderCheck *check, const Node *node) {
  const Zigzag *zigzag = check->zigzag;
  Name query = node_name(node, ATTR_query), key = node_name(node, ATTR_key);
  bool has_query = zigzag_has(zigzag, query), has_key = zigzag_has(zigzag, key);
  if (attr_names_sequence(zigzag, node, ATTR_over)) return false;
  if (!node_int(node, ATTR_causal, 0) || (!has_query && !has_key)) return true;
  if (!has_query || !has_key) return false;
  return sequence_shards(check->ctx->plan, query) == zigzag->ranks;
}

/* The sharding column says that each element is computed alone, or that all of
 * them are added up or compared. */
static bool rule_keeps_order(const OrderCheck *check, const Graph *graph,
                             const Node *node) {
  ShardCall call = shard_call(graph, node);
  shard_rule(&call, check->rule);
  for (int i = 0; i < check->rule->n; i++) {
    const ShardDim *dim = &check->rule->dims[i];
    bool counts =
        zigzag_has(check->zigzag, dim->name) ||
        (dim->result_name && zigzag_has(check->zigzag, dim->result_name));
    if (counts && dim->treatment != SHARD_pass &&
        dim->treatment != SHARD_pass_or_sum &&
        !shard_is_reduction(dim->treatment))
      return false;
  }
  return true;
}

static bool keeps_order(const OrderCheck *check, const Graph *graph,
                        const Node *node) {
  const Zigzag *zigzag = check->zigzag;
  if (node->phase == PHASE_update) return true;
  if (node->body && body_has_sequence(zigzag, node->body)) return false;
  if (!node_has_sequence(zigzag, graph, node)) return true;
  if (node->body || !has_sequence_sizes(zigzag, node)) return false;
  if (op_is(node->op, OPCLASS_source) || op_has(node->op, OP_FLAG_identity))
    return true;
  if (node->op == OP_rename) return rename_keeps_order(zigzag, node);
  if (op_has(node->op, OP_FLAG_attends))
    return attention_keeps_order(check, node);
  if (node->op == OP_split_dim || node->op == OP_merge_dims)
    return !attr_names_sequence(zigzag, node, ATTR_dim) &&
           !attr_names_sequence(zigzag, node, ATTR_from) &&
           !attr_names_sequence(zigzag, node, ATTR_to);
  return rule_keeps_order(check, graph, node);
}

bool zigzag_find(PassContext *ctx, const Graph *graph, const Node *node,
                 int64_t ranks, Zigzag *out, const char **out_reason,
                 const Node **out_at) {
  Name query = node_name(node, ATTR_query);
  *out = (Zigzag){.n_names = 1,
                  .names = {query},
                  .ranks = ranks,
                  .size = type_size(graph_type(graph, node->inputs[0]), query)};
  *out_at = NULL;
  if (out->size % (2 * ranks) != 0) {
    *out_reason = arena_printf(ctx->scratch, "%ld ranks do not divide it twice",
                               (long)ranks);
    return false;
  }
  find_names(out, graph);
  OrderCheck check = {ctx, out, ARENA_NEW(ctx->scratch, ShardRule)};
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *reader = graph->nodes.data[id];
    if (keeps_order(&check, graph, reader)) continue;
    *out_at = reader;
    *out_reason = arena_printf(ctx->scratch, "'%s' depends on its order",
                               op_info(reader->op)->name);
    return false;
  }
  return true;
}

/* ---- permuting chunks ---- */

/* The chunks of dim `from`, in zigzag order as dim `to`; or those in zigzag
 * order in their own. */
static Value permute_chunks(Graph *graph, const Zigzag *zigzag, Value value,
                            Name from, Name to, bool is_back) {
  Names *names = graph->module->names;
  Name half = name_format(names, "%s/2", to);
  Name shard = name_format(names, "%s~", to);
  Name element = name_format(names, "%s^^", to);
  int64_t n = zigzag->ranks, two = 2;
  Name natural[] = {half, shard, element}, mixed[] = {shard, half, element};
  int64_t natural_sizes[] = {2, n, zigzag->size / (2 * n)};
  int64_t mixed_sizes[] = {n, 2, zigzag->size / (2 * n)};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, from);
  attrs_names(&attrs, ATTR_to, is_back ? mixed : natural, 3);
  attrs_ints(&attrs, ATTR_sizes, is_back ? mixed_sizes : natural_sizes, 3);
  Value chunks = graph_append(graph, OP_split_dim, &value, 1, &attrs);
  attrs = (Attrs){0};
  attrs_name(&attrs, ATTR_dim, shard);
  Value reversed = graph_append(graph, OP_reverse, &chunks, 1, &attrs);
  attrs = (Attrs){0};
  attrs_name(&attrs, ATTR_dim, half);
  attrs_ints(&attrs, ATTR_sizes, &two, 1);
  Value is_early =
      graph_op2(graph, OP_eq, graph_append(graph, OP_iota, NULL, 0, &attrs),
                graph_const(graph, DT_i32, 0));
  Value all = graph_op3(graph, OP_select, is_early, chunks, reversed);
  all = graph_transpose_to(graph, all, graph_type(graph, chunks));
  attrs = (Attrs){0};
  attrs_names(&attrs, ATTR_from, is_back ? natural : mixed, 3);
  attrs_name(&attrs, ATTR_dim, to);
  return graph_append(graph, OP_merge_dims, &all, 1, &attrs);
}

/* Every dim of the sequence that the value has. */
static Value permute_value(Graph *graph, const Zigzag *zigzag, Value value,
                           bool is_back) {
  const Type *type = graph_type(graph, value);
  for (int d = 0; d < type->rank; d++) {
    Name dim = type->dims[d].name;
    if (zigzag_has(zigzag, dim))
      value = permute_chunks(graph, zigzag, value, dim, dim, is_back);
  }
  return graph_transpose_to(graph, value, type);
}

/* ---- the graph ---- */

typedef struct Reorder {
  Rewrite rewrite;
  const Zigzag *zigzag;
  bool *has_own_order; /* by old node: its results are in the stored order */
  Map *other;          /* a new value -> itself in the other order, plus 1 */
} Reorder;

/* A dim that no line names stands for a dim of the sequence. */
static Name stored_name(const Reorder *r, Name dim) {
  return zigzag_has(r->zigzag, dim)
             ? name_format(r->rewrite.ctx->module->names, "%s'", dim)
             : dim;
}

/* The sequence of a source has other names: it gets these and the order. */
static Value permute_source(const Reorder *r, Value value, const Type *type) {
  for (int d = 0; d < type->rank; d++) {
    Name dim = type->dims[d].name, stored = stored_name(r, dim);
    if (stored != dim)
      value =
          permute_chunks(r->rewrite.to, r->zigzag, value, stored, dim, false);
  }
  return graph_transpose_to(r->rewrite.to, value, type);
}

static Value permute_data(const Reorder *r, const GraphInput *input,
                          const Type *type) {
  Type *stored =
      type_create(r->rewrite.ctx->module->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    stored->dims[d] = type->dims[d];
    stored->dims[d].name = stored_name(r, type->dims[d].name);
  }
  Value value = rewrite_input(r->rewrite.to, input, stored);
  return permute_source(r, value, type);
}

static Value permute_iota(const Reorder *r, const Node *node) {
  Attrs attrs = node_attrs(node);
  attrs_name(&attrs, ATTR_dim, stored_name(r, node_name(node, ATTR_dim)));
  Value value = graph_append(r->rewrite.to, OP_iota, NULL, 0, &attrs);
  return permute_source(r, value, node->types[0]);
}

/* The value of the old graph in the order that a reader wants. */
static Value in_order(Reorder *r, Value old, bool wants_own_order) {
  Value now = rewrite_get(&r->rewrite, old);
  if (r->has_own_order[old.node] == wants_own_order ||
      !type_has_sequence(r->zigzag, graph_type(r->rewrite.to, now)))
    return now;
  intptr_t known = (intptr_t)map_get(r->other, value_key(now));
  if (known) return (Value){(int)known - 1, 0};
  rewrite_at(&r->rewrite, old.node);
  Value other = permute_value(r->rewrite.to, r->zigzag, now, wants_own_order);
  map_put(r->other, value_key(now), (void *)(intptr_t)(other.node + 1));
  return other;
}

static void reorder_node(Reorder *r, int id) {
  Rewrite *rewrite = &r->rewrite;
  const Node *node = rewrite->from->nodes.data[id];
  bool is_update = node->phase == PHASE_update;
  bool has_sequence = type_has_sequence(r->zigzag, node->types[0]);
  rewrite_at(rewrite, id);
  if (node->op == OP_input) {
    const GraphInput *input =
        &rewrite->from->inputs.data[node_int(node, ATTR_index, 0)];
    bool is_data = input->role == ROLE_data && has_sequence;
    r->has_own_order[id] = !is_data;
    rewrite_set(rewrite, (Value){id, 0},
                is_data ? permute_data(r, input, node->types[0])
                        : rewrite_input(rewrite->to, input, node->types[0]));
    return;
  }
  r->has_own_order[id] = is_update;
  if (node->op == OP_iota && has_sequence && !is_update) {
    rewrite_set(rewrite, (Value){id, 0}, permute_iota(r, node));
    return;
  }
  Value *inputs = ARENA_ARRAY(rewrite->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = in_order(r, node->inputs[i], is_update);
  rewrite_at(rewrite, id);
  Value first = graph_copy_node(rewrite->to, rewrite->from, id, inputs, false);
  for (int k = 0; k < node->n_results; k++)
    rewrite_set(rewrite, (Value){id, k}, (Value){first.node, k});
}

Graph *zigzag_graph(PassContext *ctx, const Graph *graph,
                    const Zigzag *zigzag) {
  Reorder r = {.rewrite = rewrite_begin(ctx, graph),
               .zigzag = zigzag,
               .has_own_order = ARENA_ARRAY(ctx->scratch, bool, graph->nodes.n),
               .other = map_create(ctx->scratch)};
  for (int id = 0; id < graph->nodes.n; id++) reorder_node(&r, id);
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    graph_output(r.rewrite.to, output->role, output->path,
                 in_order(&r, output->value, true));
  }
  return r.rewrite.to;
}
