/*
 * attention_heads.c -- computes attention over a sharded sequence by heads: the
 * ranks exchange their shards of the sequence for shards of the heads.
 *
 *     plan: shard T over seq, attention = ulysses
 *
 *     q, k, v [B, T@seq, H, D]
 *     all_to_all of each         -> [B, T, H@seq, D]
 *     o, lse = attention q, k, v
 *     all_to_all of o            -> [B, T@seq, H, D]
 *
 * The gradient exchanges do, dq, dk and dv alike and reads q, k, v and o as
 * they were (Jacobs et al. 2023, "DeepSpeed Ulysses").  Where the ranks do not
 * divide the heads of keys but those of queries, keys and values are gathered.
 */
#include "passes/spmd/attention/attention.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/resharding.h"

typedef struct Heads {
  Name query, key, dim; /* `dim`: the heads that the ranks share out */
  AxisList axes;        /* that leave the sequence for the heads */
} Heads;

static bool is_head_dim(const Partition *p, const Node *node, Name dim) {
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  return dim != node_name(node, ATTR_query) && dim != p->plan->batch_dim &&
         (n == 0 || dim != over[0]);
}

/* The heads that the axes divide, those of keys before others; NULL: none, and
 * *out_heads is their number on a rank. */
static Name find_heads(const Partition *p, const Node *node, const Type *q,
                       const Type *k, AxisList axes, int64_t *out_heads) {
  Name of_queries = NULL;
  *out_heads = 1;
  for (int d = 0; d < q->rank; d++) {
    const Dim *dim = &q->dims[d];
    if (!is_head_dim(p, node, dim->name)) continue;
    AxisList split = axis_list_join(dim->split, axes);
    *out_heads *= dim->size / axis_list_shards(dim->split, p->mesh);
    if (dim->size % axis_list_shards(split, p->mesh) != 0) continue;
    if (type_find(k, dim->name) >= 0) return dim->name;
    if (!of_queries) of_queries = dim->name;
  }
  return of_queries;
}

static void report_heads(const Partition *p, const Node *node, int64_t ranks,
                         int64_t heads) {
  Diag *d = diag(p->ctx->module->diags,
                 heads < ranks ? DIAG_attention_heads : DIAG_attention_shares,
                 p->plan->attention_span, (long)ranks, (long)heads);
  diag_note(d, node->span, "the attention is here");
}

/* ---- placements ---- */

/* The sequence in full and the heads in shards, or the other way round. */
static const Type *type_by(const Partition *p, const Heads *heads,
                           const Type *have, bool is_by_heads) {
  AxisSet set = axis_list_set(heads->axes);
  Type *type = type_copy(p->ctx->module->arena, have);
  for (int d = 0; d < type->rank; d++) {
    Dim *dim = &type->dims[d];
    bool is_position = dim->name == heads->query || dim->name == heads->key;
    dim->split = axis_list_without(dim->split, set);
    if (is_by_heads ? dim->name == heads->dim : is_position)
      dim->split = axis_list_join(dim->split, heads->axes);
  }
  type->partial &= mesh_sequential(p->mesh);
  if (!type->partial) type->partial_kind = REDUCE_sum;
  return type;
}

/* The value as attention made it, if it has been brought back since. */
static Value as_made(const Partition *p, Value value) {
  intptr_t made = (intptr_t)map_get(p->by_heads, value_key(value));
  return made ? (Value){(int)made - 1, 0} : value;
}

/* ---- nodes ---- */

/* An operator without a kernel is written out and placed node by node. */
static void place_decomposed(Partition *p, int id, const Value *inputs,
                             Value *out) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Arena *arena = p->ctx->module->arena;
  Graph *whole = graph_create(p->ctx->module, node->path);
  Value given[6], made[3];
  ASSERT(node->n_inputs <= ARRAY_LENGTH(given));
  for (int i = 0; i < node->n_inputs; i++)
    given[i] =
        graph_input(whole, ROLE_arg, node->path,
                    type_logical(arena, graph_type(p->rewrite.to, inputs[i])));
  op_info(node->op)->decompose(whole, p->rewrite.from, id, given, made);
  Value *now = ARENA_ARRAY(p->ctx->scratch, Value, whole->nodes.n);
  for (int at = 0; at < whole->nodes.n; at++) {
    const Node *part = whole->nodes.data[at];
    if (part->op == OP_input) {
      now[at] = inputs[node_int(part, ATTR_index, 0)];
      continue;
    }
    Value operands[4];
    ASSERT(part->n_inputs <= ARRAY_LENGTH(operands) && part->n_results == 1);
    for (int i = 0; i < part->n_inputs; i++)
      operands[i] = now[part->inputs[i].node];
    Attrs attrs = node_attrs(part);
    now[at] = place_call(p, id, part->op, &attrs, operands, part->n_inputs,
                         part->types, 1);
  }
  for (int r = 0; r < node->n_results; r++) out[r] = now[made[r].node];
}

static bool has_kernel(const Partition *p, int id) {
  const Target *target = p->ctx->target;
  return !target || !target->has_kernel ||
         target->has_kernel(target, p->rewrite.from, id);
}

static void place_results(Partition *p, int id, const Value *inputs,
                          Value *out) {
  const Node *node = p->rewrite.from->nodes.data[id];
  if (!has_kernel(p, id)) {
    place_decomposed(p, id, inputs, out);
    return;
  }
  Attrs attrs = node_attrs(node);
  Value first = place_call(p, id, node->op, &attrs, inputs, node->n_inputs,
                           node->types, node->n_results);
  for (int r = 0; r < node->n_results; r++) out[r] = (Value){first.node, r};
}

static void bring_back(Partition *p, int id, const Heads *heads,
                       const Value *made) {
  const Node *node = p->rewrite.from->nodes.data[id];
  bool is_forward = node->op == OP_attention;
  for (int r = 0; r < node->n_results; r++) {
    bool stays = is_forward && r == 1; /* lse: only the gradient reads it */
    const Type *type = graph_type(p->rewrite.to, made[r]);
    Value back = reshard(p, made[r], type_by(p, heads, type, stays), id);
    if (is_forward && r == 0)
      map_put(p->by_heads, value_key(back),
              (void *)(intptr_t)(made[0].node + 1));
    rewrite_set(&p->rewrite, (Value){id, r}, back);
  }
}

/* The axes that leave the sequence, and the heads that take them; false after a
 * report. */
static bool choose_heads(Partition *p, const Node *node, const Type *q,
                         const Type *k, Heads *out) {
  *out = (Heads){.query = node_name(node, ATTR_query),
                 .key = node_name(node, ATTR_key)};
  out->axes = axis_list_without(q->dims[type_find(q, out->query)].split,
                                mesh_sequential(p->mesh));
  if (!out->axes) return true;
  int64_t n_heads;
  out->dim = find_heads(p, node, q, k, out->axes, &n_heads);
  p->has_heads |= out->dim != NULL;
  if (!out->dim)
    report_heads(p, node, axis_list_shards(out->axes, p->mesh), n_heads);
  return out->dim;
}

bool place_by_heads(Partition *p, int id, Value *inputs) {
  const Node *node = p->rewrite.from->nodes.data[id];
  Graph *to = p->rewrite.to;
  bool is_forward = node->op == OP_attention;
  Heads heads;
  if (p->plan->attention != ATTENTION_ulysses || p->plan->replicates_data ||
      !op_has(node->op, OP_FLAG_attends))
    return false;
  if (!choose_heads(p, node, graph_type(to, inputs[0]),
                    graph_type(to, inputs[1]), &heads) ||
      (!heads.axes && has_kernel(p, id)))
    return false;
  if (!is_forward) inputs[3] = as_made(p, inputs[3]);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = reshard(
        p, inputs[i], type_by(p, &heads, graph_type(to, inputs[i]), true), id);
  Value made[3];
  rewrite_at(&p->rewrite, id);
  place_results(p, id, inputs, made);
  bring_back(p, id, &heads, made);
  return true;
}
