/*
 * hoist_renames.c -- a rename between two pointwise operators moves up, out of
 * the way.
 *
 *     %2 = add %0, %1 : f32[B, O]           %2 = rename %0 {O -> F}
 *     %3 = rename %2 {O -> F}          =>   %3 = rename %1 {O -> F}
 *     %4 = relu %3 : f32[B, F]              %4 = add %2, %3 : f32[B, F]
 *                                           %5 = relu %4
 *
 * A rename costs nothing, but a kernel's loops are named, so values of
 * different names do not fuse.  Generic layers rename what goes in and comes
 * out.  An operator whose only user is a rename can as well compute under the
 * new names; its inputs are renamed instead, up to where a library call, a
 * slot or a value with other users makes the rename a view for good.
 *
 * requires: whole types     keeps: meaning     cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct Renaming { /* NULL: none */
  int n;
  Name from[MAX_RANK], to[MAX_RANK];
} Renaming;

typedef struct Raise {
  Rewrite rewrite;
  const int *uses;
  bool *has_kernel_user; /* by node: a pointwise operator reads it */
  const Renaming **want; /* by old node: new names of its result */
} Raise;

static Name renamed(const Renaming *renaming, Name dim) {
  for (int i = 0; renaming && i < renaming->n; i++)
    if (renaming->from[i] == dim) return renaming->to[i];
  return dim;
}

/* A new name is taken, unless the dim that has it is renamed as well. */
static bool is_taken(const Type *type, const Renaming *renaming, int index) {
  return type_find(type, renaming->to[index]) >= 0 &&
         renamed(renaming, renaming->to[index]) == renaming->to[index];
}

/* The new names are free in everything that the operator sees; a rename gives
 * its input's dims new names anyway. */
static bool may_rename(const Graph *graph, const Node *node,
                       const Renaming *renaming) {
  for (int k = 0; k < renaming->n; k++) {
    if (is_taken(node->types[0], renaming, k)) return false;
    for (int i = 0; i < node->n_inputs && node->op != OP_rename; i++)
      if (is_taken(graph_type(graph, node->inputs[i]), renaming, k))
        return false;
  }
  return true;
}

/* The part of a renaming that concerns this type; NULL if none. */
static const Renaming *restricted(Arena *arena, const Renaming *renaming,
                                  const Type *type, const Type *result) {
  Renaming *part = ARENA_NEW(arena, Renaming);
  for (int i = 0; i < renaming->n; i++) {
    if (type_find(type, renaming->from[i]) < 0 ||
        type_find(result, renaming->from[i]) < 0)
      continue;
    part->from[part->n] = renaming->from[i];
    part->to[part->n++] = renaming->to[i];
  }
  return part->n ? part : NULL;
}

/* What a rename does, and then `after`. */
static const Renaming *composed(Arena *arena, const Graph *graph,
                                const Node *node, const Renaming *after) {
  const Type *type = graph_type(graph, node->inputs[0]);
  Renaming *all = ARENA_NEW(arena, Renaming);
  for (int d = 0; d < type->rank; d++) {
    Name from = type->dims[d].name;
    Name to = renamed(after, node->types[0]->dims[d].name);
    if (from == to) continue;
    all->from[all->n] = from;
    all->to[all->n++] = to;
  }
  return all->n ? all : NULL;
}

static void find_wants(Raise *raise) {
  const Graph *graph = raise->rewrite.from;
  Arena *arena = raise->rewrite.ctx->scratch;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    const Renaming *want = raise->want[id];
    bool is_rename = node->op == OP_rename;
    if (is_rename ? !raise->has_kernel_user[id] && !want : !want) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      const Node *input = graph->nodes.data[from];
      if (raise->uses[from] != 1 ||
          (!op_has(input->op, OP_FLAG_renames) && input->op != OP_rename))
        continue;
      const Renaming *part =
          is_rename ? composed(arena, graph, node, want)
                    : restricted(arena, want, input->types[0], node->types[0]);
      if (part && may_rename(graph, input, part)) raise->want[from] = part;
    }
  }
}

static Value add_rename(Graph *to, Value value, const Renaming *renaming) {
  if (!renaming) return value;
  const Type *type = graph_type(to, value);
  Type *result = type_create(to->module->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    result->dims[d] = type->dims[d];
    result->dims[d].name = renamed(renaming, type->dims[d].name);
  }
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, renaming->from, renaming->n);
  attrs_names(&attrs, ATTR_to, renaming->to, renaming->n);
  const Type *types[1] = {result};
  return graph_append_typed(to, OP_rename, &value, 1, &attrs, types, 1, NULL);
}

static Attrs rename_attrs(Arena *arena, const Node *node,
                          const Renaming *renaming) {
  Attrs attrs = node_attrs(node);
  for (int i = 0; i < attrs.n; i++) {
    Attr *attr = &attrs.items[i];
    if (attr->key == ATTR_dim) attr->name = renamed(renaming, attr->name);
    if (attr->key != ATTR_order && attr->key != ATTR_to) continue;
    Name *list = ARENA_ARRAY(arena, Name, attr->n);
    for (int k = 0; k < attr->n; k++)
      list[k] = renamed(renaming, attr->names[k]);
    attr->names = list;
  }
  return attrs;
}

static void emit_renamed(Raise *raise, int id) {
  Rewrite *rewrite = &raise->rewrite;
  const Graph *graph = rewrite->from;
  const Node *node = graph->nodes.data[id];
  const Renaming *want = raise->want[id];
  Arena *arena = rewrite->ctx->scratch;
  Value *inputs = rewrite_inputs(rewrite, id);
  for (int i = 0; i < node->n_inputs; i++)
    if (!raise->want[node->inputs[i].node])
      inputs[i] =
          add_rename(rewrite->to, inputs[i],
                     restricted(arena, want, graph_type(graph, node->inputs[i]),
                                node->types[0]));
  Attrs attrs = rename_attrs(arena, node, want);
  Type *type = type_create(rewrite->to->module->arena, node->types[0]->dtype,
                           node->types[0]->rank);
  for (int d = 0; d < type->rank; d++) {
    type->dims[d] = node->types[0]->dims[d];
    type->dims[d].name = renamed(want, type->dims[d].name);
  }
  const Type *types[1] = {type};
  rewrite_set(rewrite, (Value){id, 0},
              graph_append_typed(rewrite->to, node->op, inputs, node->n_inputs,
                                 &attrs, types, 1, NULL));
}

static bool rule(Rewrite *rewrite, int id, void *user) {
  Raise *raise = user;
  const Node *node = rewrite->from->nodes.data[id];
  raise->rewrite = *rewrite;
  if (node->op == OP_rename) {
    Value input = rewrite_get(rewrite, node->inputs[0]);
    bool is_done = raise->want[node->inputs[0].node] != NULL;
    if (!is_done && !raise->want[id]) return false;
    if (!is_done)
      input = add_rename(rewrite->to, input,
                         composed(rewrite->ctx->scratch, rewrite->from, node,
                                  raise->want[id]));
    rewrite_set(rewrite, (Value){id, 0}, input);
    return true;
  }
  if (!raise->want[id]) return false;
  emit_renamed(raise, id);
  return true;
}

Graph *pass_hoist_renames(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n;
  Raise raise = {.uses = graph_use_counts(graph, ctx->scratch)};
  raise.rewrite = (Rewrite){.ctx = ctx, .from = graph};
  raise.has_kernel_user = ARENA_ARRAY(ctx->scratch, bool, n);
  raise.want = ARENA_ARRAY(ctx->scratch, const Renaming *, n);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    bool fuses = op_has(node->op, OP_FLAG_renames) &&
                 !op_is(node->op, OPCLASS_reduction);
    for (int i = 0; fuses && i < node->n_inputs; i++)
      raise.has_kernel_user[node->inputs[i].node] = true;
  }
  find_wants(&raise);
  return rewrite_graph(ctx, graph, rule, &raise);
}
