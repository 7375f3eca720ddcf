/*
 * servers.h -- declares what servers.c and server_tables.c share.
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

#endif
