/*
 * hoist_renames.c -- hoist renames above pointwise operators so that chains
 * fuse.
 *
 *     %2 = add %0, %1 : f32[B, O]           %2 = rename %0 {O -> F}
 *     %3 = rename %2 {O -> F}          =>   %3 = rename %1 {O -> F}
 *     %4 = relu %3 : f32[B, F]              %4 = add %2, %3 : f32[B, F]
 *                                           %5 = relu %4
 *
 * A rename costs nothing, but the loops of a kernel have names, so values with
 * other dim names do not fuse.  Generic layers rename their arguments and
 * results.  An operator whose only user is a rename can compute under the new
 * names.  Its inputs are renamed in its place, up to a library call, a graph
 * input or a value with other users: there the rename stays, as a view.
 *
 * requires: logical types     keeps: values, result types of outputs
 * breaks: node ids            cost: O(nodes)
 */
#include "passes/rewrite.h"

typedef struct Renaming { /* NULL: none */
  int n;
  Name from[MAX_RANK], to[MAX_RANK];
} Renaming;

typedef struct Hoist {
  Rewrite rewrite;
  const int *uses;
  bool *has_kernel_user; /* by node: a pointwise operator reads it */
  const Renaming **want; /* by old node: new names of its result */
  GraphPins pins;
} Hoist;

static Name renamed_by(const Renaming *renaming, Name dim) {
  for (int i = 0; renaming && i < renaming->n; i++)
    if (renaming->from[i] == dim) return renaming->to[i];
  return dim;
}

/* A new name is taken, unless the dim that has it is renamed as well. */
static bool is_name_taken(const Type *type, const Renaming *renaming,
                          int index) {
  return type_find(type, renaming->to[index]) >= 0 &&
         renamed_by(renaming, renaming->to[index]) == renaming->to[index];
}

/* The new names are free in everything that the operator sees; a rename gives
 * its input's dims new names anyway. */
static bool may_rename(const Graph *graph, const Node *node,
                       const Renaming *renaming) {
  for (int k = 0; k < renaming->n; k++) {
    if (is_name_taken(node->types[0], renaming, k)) return false;
    for (int i = 0; i < node->n_inputs && node->op != OP_rename; i++)
      if (is_name_taken(graph_type(graph, node->inputs[i]), renaming, k))
        return false;
  }
  return true;
}

/* The part of a renaming that concerns this type; NULL if none. */
static const Renaming *restricted_renaming(Arena *arena,
                                           const Renaming *renaming,
                                           const Type *type,
                                           const Type *result) {
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

/* The renaming of a rename node, followed by `after`. */
static const Renaming *composed_renaming(Arena *arena, const Graph *graph,
                                         const Node *node,
                                         const Renaming *after) {
  const Type *type = graph_type(graph, node->inputs[0]);
  Renaming *all = ARENA_NEW(arena, Renaming);
  for (int d = 0; d < type->rank; d++) {
    Name from = type->dims[d].name;
    Name to = renamed_by(after, node->types[0]->dims[d].name);
    if (from == to) continue;
    all->from[all->n] = from;
    all->to[all->n++] = to;
  }
  return all->n ? all : NULL;
}

static void find_wanted_names(Hoist *hoist) {
  const Graph *graph = hoist->rewrite.from;
  Arena *arena = hoist->rewrite.ctx->scratch;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    const Renaming *want = hoist->want[id];
    bool is_rename = node->op == OP_rename;
    if (is_rename ? !hoist->has_kernel_user[id] && !want : !want) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      const Node *input = graph->nodes.data[from];
      if (hoist->uses[from] != 1 ||
          (!op_has(input->op, OP_FLAG_renames) && input->op != OP_rename))
        continue;
      const Renaming *part =
          is_rename ? composed_renaming(arena, graph, node, want)
                    : restricted_renaming(arena, want, input->types[0],
                                          node->types[0]);
      if (part && may_rename(graph, input, part)) hoist->want[from] = part;
    }
  }
}

static Value add_rename(Graph *to, Value value, const Renaming *renaming) {
  if (!renaming) return value;
  const Type *type = graph_type(to, value);
  Type *result = type_create(to->module->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    result->dims[d] = type->dims[d];
    result->dims[d].name = renamed_by(renaming, type->dims[d].name);
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
    if (attr->key == ATTR_dim) attr->name = renamed_by(renaming, attr->name);
    if (attr->key != ATTR_order && attr->key != ATTR_to) continue;
    Name *list = ARENA_ARRAY(arena, Name, attr->n);
    for (int k = 0; k < attr->n; k++)
      list[k] = renamed_by(renaming, attr->names[k]);
    attr->names = list;
  }
  return attrs;
}

static void emit_renamed(Hoist *hoist, int id) {
  Rewrite *rewrite = &hoist->rewrite;
  const Graph *graph = rewrite->from;
  const Node *node = graph->nodes.data[id];
  const Renaming *want = hoist->want[id];
  Arena *arena = rewrite->ctx->scratch;
  Value *inputs = rewrite_inputs(rewrite, id);
  for (int i = 0; i < node->n_inputs; i++)
    if (!hoist->want[node->inputs[i].node])
      inputs[i] = add_rename(
          rewrite->to, inputs[i],
          restricted_renaming(arena, want, graph_type(graph, node->inputs[i]),
                              node->types[0]));
  Attrs attrs = rename_attrs(arena, node, want);
  Type *type = type_create(rewrite->to->module->arena, node->types[0]->dtype,
                           node->types[0]->rank);
  for (int d = 0; d < type->rank; d++) {
    type->dims[d] = node->types[0]->dims[d];
    type->dims[d].name = renamed_by(want, type->dims[d].name);
  }
  const Type *types[1] = {type};
  rewrite_set(rewrite, (Value){id, 0},
              graph_append_typed(rewrite->to, node->op, inputs, node->n_inputs,
                                 &attrs, types, 1, NULL));
}

static bool hoist_renames_rule(Rewrite *rewrite, int id, void *user) {
  Hoist *hoist = user;
  const Node *node = rewrite->from->nodes.data[id];
  hoist->rewrite = *rewrite;
  if (node->op == OP_rename) {
    Value input = rewrite_get(rewrite, node->inputs[0]);
    bool is_done = hoist->want[node->inputs[0].node] != NULL;
    if (!is_done && !hoist->want[id]) return false;
    if (!is_done)
      input = add_rename(rewrite->to, input,
                         composed_renaming(rewrite->ctx->scratch, rewrite->from,
                                           node, hoist->want[id]));
    rewrite_set(rewrite, (Value){id, 0}, input);
    return true;
  }
  /* A pin places the value under the names that it has now. */
  if (pin_is_at(&hoist->pins, id))
    hoist->want[id] = hoist->want[node->inputs[0].node];
  if (!hoist->want[id]) return false;
  emit_renamed(hoist, id);
  return true;
}

Graph *pass_hoist_renames(PassContext *ctx, const Graph *graph) {
  int n = graph->nodes.n;
  Hoist hoist = {.uses = graph_reader_counts(graph, ctx->scratch),
                 .pins = graph_pins(graph, ctx->scratch)};
  hoist.rewrite = (Rewrite){.ctx = ctx, .from = graph};
  hoist.has_kernel_user = ARENA_ARRAY(ctx->scratch, bool, n);
  hoist.want = ARENA_ARRAY(ctx->scratch, const Renaming *, n);
  for (int id = 0; id < n; id++) {
    const Node *node = graph->nodes.data[id];
    bool fuses = op_has(node->op, OP_FLAG_renames) &&
                 !op_is(node->op, OPCLASS_reduction);
    for (int i = 0; fuses && i < node->n_inputs; i++)
      hoist.has_kernel_user[node->inputs[i].node] = true;
  }
  find_wanted_names(&hoist);
  return rewrite_graph(ctx, graph, hoist_renames_rule, &hoist);
}
