/*
 * server_norms.c -- lets servers that wait for all workers have the norm of all
 * gradients, for `clip`.
 *
 *     %9 = cast %8 : f64[]     |g|^2 of a      server 0 has it
 *     %14 = cast %13 : f64[]   |g|^2 of b      server 1
 *
 *     server 0                                 server 1
 *     %4 = rename %3 : f64[; sum@server]       %4 = broadcast 0
 *     %5 = broadcast 0                         %5 = rename %3
 *     %6, %7 = all_reduce %4, %5               %6, %7 = all_reduce %4, %5
 *     %8 = add %6, %7                          %8 = add %6, %7
 *
 * The terms of the norm are outputs of the joint graph of role `push`, with the
 * paths "norm/a" and "norm/b".  Each is a sum over one tensor; the server that
 * has it adds nothing but zeros to it, so it keeps its bits, and all servers
 * add the terms up in the order in which one rank does.  Each server has a term
 * of a table that is divided: its rows.
 *
 * The servers are a mesh whose axis is `server`, so this is a collective as
 * those of workers are.
 */
#include "passes/stages/servers.h"

#include <string.h>

static const char prefix[] = "norm/";

ServerNorms server_norms(const PassContext *ctx, const Graph *joint,
                         const ServerDeal *deal) {
  ServerNorms norms = {0};
  for (int i = 0; i < joint->outputs.n; i++) {
    const GraphOutput *output = &joint->outputs.data[i];
    size_t n = strlen(prefix);
    if (output->role != ROLE_push || strncmp(output->path, prefix, n) != 0)
      continue;
    /* Equal gradients have one node. */
    if (server_norm_part(&norms, output->value.node) > 0) continue;
    Name path = name_intern(joint->module->names, output->path + n);
    int part = (int)(intptr_t)map_get(deal->of_param, path);
    ASSERT(part > 0);
    vec_push(ctx->scratch, &norms.nodes, output->value.node);
    vec_push(ctx->scratch, &norms.parts, part);
  }
  return norms;
}

int server_norm_part(const ServerNorms *norms, int node) {
  for (int i = 0; i < norms->nodes.n; i++)
    if (norms->nodes.data[i] == node) return norms->parts.data[i];
  return 0;
}

bool *server_norm_readers(Arena *arena, const Graph *joint,
                          const ServerNorms *norms) {
  int n = joint->nodes.n;
  bool *reads = ARENA_ARRAY(arena, bool, n);
  bool *is_term = ARENA_ARRAY(arena, bool, n);
  for (int i = 0; i < norms->nodes.n; i++) is_term[norms->nodes.data[i]] = true;
  for (int id = 0; id < n; id++)
    for (int i = 0; i < joint->nodes.data[id]->n_inputs; i++) {
      int from = joint->nodes.data[id]->inputs[i].node;
      reads[id] |= reads[from] || is_term[from];
    }
  return reads;
}

/* The number of this server, or zero, as a term of a sum over servers. */
static Value make_term(Graph *to, Value own) {
  Attrs attrs = {0};
  Type *type = type_create(to->module->arena, DT_f64, 0);
  const Type *types[1] = {type};
  type->partial = 1;
  type->partial_kind = REDUCE_sum;
  if (value_is(own)) {
    attrs_names(&attrs, ATTR_from, NULL, 0);
    attrs_names(&attrs, ATTR_to, NULL, 0);
    return graph_append_typed(to, OP_rename, &own, 1, &attrs, types, 1, NULL);
  }
  Value zero = graph_const(to, DT_f64, 0);
  attrs_names(&attrs, ATTR_to, NULL, 0);
  attrs_ints(&attrs, ATTR_sizes, NULL, 0);
  return graph_append_typed(to, OP_broadcast, &zero, 1, &attrs, types, 1, NULL);
}

int server_norms_join(Graph *to, const Value *terms, int n, int n_servers) {
  Arena *arena = to->module->arena;
  Name axis = name_intern(to->module->names, "server");
  Value *inputs = ARENA_ARRAY(arena, Value, n);
  const Type **types = ARENA_ARRAY(arena, const Type *, n);
  Attrs attrs = {0};
  to->mesh = (Mesh){.n_axes = 1, .axes = {{.name = axis, .size = n_servers}}};
  to->phase = PHASE_update;
  to->path = name_intern(to->module->names, "optimizer.norm");
  for (int i = 0; i < n; i++) {
    inputs[i] = make_term(to, terms[i]);
    types[i] = type_scalar(arena, DT_f64);
  }
  attrs_names(&attrs, ATTR_axes, arena_copy(arena, &axis, sizeof axis), 1);
  attrs_name(&attrs, ATTR_reduce, name_intern(to->module->names, "sum"));
  return graph_append_typed(to, OP_all_reduce, inputs, n, &attrs, types, n,
                            NULL)
      .node;
}
