/*
 * server_tables.c -- finds which values of the update of a divided table
 * (plan_deal_parameters) a server has rows of.
 *
 *     %8 = all_reduce %7 : f32[V:10, C]         V    server 0 of 2 has
 *     %9 = mul %8, %8    : f32[V:10, C]         V        f32[V:5, C]
 *     %10 = sum %9 {over = [V, C]} : f32[]      -
 *     %11 = sub %w, %8   : f32[V:10, C]         V
 *
 * The update of an element depends on that element alone, so each row of the
 * update is that of the same row of the table: the dim goes from the new values
 * to what they are made of, and from there to all that reads it.  Sums over it
 * are those of a server.
 */
#include "passes/stages/servers.h"

#include <string.h>

/* Returns the dim of an operand that becomes `dim` of the result. */
static Name dim_before(const Node *node, Name dim) {
  int n;
  const Name *from, *to;
  if (node->op != OP_rename) return dim;
  from = node_names(node, ATTR_from, &n);
  to = node_names(node, ATTR_to, &n);
  for (int i = 0; i < n; i++)
    if (to[i] == dim) return from[i];
  return dim;
}

static Name dim_after(const Node *node, Name dim) {
  int n;
  const Name *from, *to;
  if (node->op != OP_rename) return dim;
  from = node_names(node, ATTR_from, &n);
  to = node_names(node, ATTR_to, &n);
  for (int i = 0; i < n; i++)
    if (from[i] == dim) return to[i];
  return dim;
}

static bool has_dim(const Graph *graph, Value value, Name dim) {
  return type_find(graph_type(graph, value), dim) >= 0;
}

/* Returns whether rows of the result are made of the same rows alone. */
static bool keeps_rows(const Node *node) {
  switch (node->op) {
  case OP_input:
  case OP_all_reduce:
  case OP_sum:
  case OP_cast:
  case OP_copy:
  case OP_rename:
  case OP_transpose: return true;
  default: return op_info(node->op)->is_pointwise;
  }
}

static void go_back(const Graph *joint, const bool *needs, Name *dims) {
  for (int id = joint->nodes.n - 1; id >= 0; id--) {
    const Node *node = joint->nodes.data[id];
    if (!needs[id] || !dims[id] || node->op == OP_all_reduce) continue;
    Name dim = dim_before(node, dims[id]);
    for (int i = 0; i < node->n_inputs; i++)
      if (has_dim(joint, node->inputs[i], dim))
        dims[node->inputs[i].node] = dim;
  }
}

/* Returns a node that has no rows by themselves; -1: there is none. */
static int go_on(const Graph *joint, const bool *needs, Name *dims) {
  for (int id = 0; id < joint->nodes.n; id++) {
    const Node *node = joint->nodes.data[id];
    bool has_rows = dims[id] != NULL;
    if (!needs[id]) continue;
    for (int i = 0; i < node->n_inputs && node->op != OP_all_reduce; i++) {
      Name dim = dims[node->inputs[i].node];
      has_rows |= dim != NULL;
      if (!dim || dims[id]) continue;
      dim = dim_after(node, dim);
      if (has_dim(joint, (Value){id, 0}, dim)) dims[id] = dim;
    }
    if (has_rows && !keeps_rows(node)) return id;
  }
  return -1;
}

/* Returns the part (ServerDeal) of a new parameter or average, plus 1; 0: it is
 * none of them, or of none. */
static int part_of(const Graph *joint, const ServerDeal *deal,
                   const GraphOutput *output) {
  Name path = output->path;
  if (output->role != ROLE_param && output->role != ROLE_ema) return 0;
  if (output->role == ROLE_ema)
    path = name_intern(joint->module->names, path + strlen("ema/"));
  return (int)(intptr_t)map_get(deal->of_param, path);
}

Name *server_row_dims(Arena *arena, const Graph *joint, const bool *needs,
                      const ServerDeal *deal, int n_servers, int *out_mixed) {
  Name *dims = ARENA_ARRAY(arena, Name, joint->nodes.n);
  for (int i = 0; i < joint->outputs.n; i++) {
    const GraphOutput *output = &joint->outputs.data[i];
    if (part_of(joint, deal, output) > n_servers)
      dims[output->value.node] = graph_type(joint, output->value)->dims[0].name;
  }
  go_back(joint, needs, dims);
  *out_mixed = go_on(joint, needs, dims);
  for (int i = 0; i < joint->outputs.n; i++) {
    const GraphOutput *output = &joint->outputs.data[i];
    int part = part_of(joint, deal, output);
    if (part > 0 && part <= n_servers && needs[output->value.node] &&
        dims[output->value.node])
      *out_mixed = output->value.node;
  }
  return dims;
}

const Type *server_rows_type(Arena *arena, const Type *type, Name dim,
                             int n_servers) {
  Type *rows = type_copy_logical(arena, type);
  Dim *at = &rows->dims[type_find(type, dim)];
  at->size = (at->size + n_servers - 1) / n_servers;
  return rows;
}

const Type *server_rows_first(Arena *arena, const Type *type, Name dim) {
  Type *rows = type_copy_logical(arena, type);
  int at = type_find(type, dim);
  Dim first = rows->dims[at];
  memmove(&rows->dims[1], &rows->dims[0], (size_t)at * sizeof first);
  rows->dims[0] = first;
  return rows;
}

ServerDeal servers_deal(const PassContext *ctx, const Graph *graph) {
  bool divides =
      ctx->model && optimizer_is_elementwise(&ctx->model->settings.optimizer);
  return plan_deal_parameters(ctx->scratch, graph, plan_servers(ctx->plan)->n,
                              divides);
}
