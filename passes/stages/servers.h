/*
 * servers.h -- declares what the files that cut off servers share.
 */
#ifndef PASSES_STAGES_SERVERS_H
#define PASSES_STAGES_SERVERS_H

#include "passes/stages/stages.h"

/* ---- server_tables.c ---- */

/* Returns, by node that a server needs, the dim of its result of which the
 * server has a part; NULL: it has all.  `out_mixed` is a node for which it
 * would need other rows, or -1. */
Name *server_row_dims(Arena *arena, const Graph *joint, const bool *needs,
                      const ServerDeal *deal, int n_servers, int *out_mixed);
/* Returns the type of the rows of a server. */
const Type *server_rows_type(Arena *arena, const Type *type, Name dim,
                             int n_servers);
/* Returns the type with this dim outermost. */
const Type *server_rows_first(Arena *arena, const Type *type, Name dim);

/* ---- server_norms.c ---- */

/* The terms of the norm that servers tell each other: nodes of the joint graph,
 * and the part whose gradient each is of (ServerDeal), plus 1. */
typedef struct ServerNorms {
  VEC(int) nodes;
  VEC(int) parts;
} ServerNorms;

/* Returns them; none where servers have norms of their own. */
ServerNorms server_norms(const PassContext *ctx, const Graph *joint,
                         const ServerDeal *deal);
/* Returns the part of a term, plus 1; 0: the node is none. */
int server_norm_part(const ServerNorms *norms, int node);
/* Returns, by node, whether it follows from a term. */
bool *server_norm_readers(Arena *arena, const Graph *joint,
                          const ServerNorms *norms);
/* Appends the sums over the servers of these terms, VALUE_NONE where the server
 * has none, as results of one node.  Gives the graph the mesh of servers. */
int server_norms_join(Graph *to, const Value *terms, int n, int n_servers);

/* ---- server_apart.c ---- */

/* Returns whether a worker knows a result of its own in place of this one. */
bool server_has_own(const Node *node);
/* Appends it for node `id`, from the term of the worker. */
Value server_own(Graph *to, const Graph *joint, int id, Value term);
/* Returns the gradient of a share as an estimate of that of the batch. */
Value server_estimate(Graph *to, Value sum, int workers);
/* Returns the next value of a state of a server. */
Value server_average(Graph *to, const GraphInput *state, const Type *type,
                     Name push, int workers);
/* Reports what joins workers that do not wait for each other. */
bool server_check_apart(const PassContext *ctx, const Graph *worker);

#endif
