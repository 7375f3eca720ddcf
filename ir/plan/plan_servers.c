/*
 * plan_servers.c -- checks the servers of a plan, and deals parameters to them.
 *
 *     mesh { data = 6 }                                     workers 0..5
 *     plan { sync = server(ranks = 6..7, staleness = 0) }   servers 6 and 7
 *
 * Parameters are dealt in full, the largest ones first, each to the server that
 * has the fewest bytes so far (Graham's LPT rule).  While the fullest server
 * has more than 1.3 times the mean, the largest table on it is divided, so that
 * each server has as many rows of it, and the rest is dealt again.
 */
#include "ir/plan/pins.h"

int plan_world(const Plan *plan) {
  return plan->ranks + plan->servers.n;
}

const PlanServers *plan_servers(const Plan *plan) {
  return plan && plan->servers.n > 0 ? &plan->servers : NULL;
}

const char *plan_servers_text(Arena *arena, const PlanServers *servers) {
  Text out = text_create(arena);
  text_printf(&out, "server(ranks = %d..%d, staleness = ", servers->first_rank,
              servers->first_rank + servers->n - 1);
  if (servers->staleness < 0)
    text_add(&out, "none)");
  else
    text_printf(&out, "%lld)", (long long)servers->staleness);
  return text_string(&out);
}

/* ---- checks ---- */

/* All ranks divide the batch, and hold the same otherwise. */
static bool shards_batch_alone(const Plan *plan) {
  const PlanShard *batch = plan_find_shard(plan, plan->batch_dim);
  for (int i = 0; i < plan->shards.n; i++)
    if (plan->shards.data[i].dim != plan->batch_dim &&
        plan->shards.data[i].n_axes > 0)
      return false;
  for (int i = 0; i < plan->pins.n; i++)
    if (pin_is_placement(&plan->pins.data[i])) return false;
  return batch && batch->n_axes == plan->mesh.n_axes;
}

/* Returns what servers cannot stand beside yet.  Returns NULL if there is
 * nothing. */
static const char *find_unsupported(const Plan *plan) {
  if (plan->stages.n > 0) return "servers for a plan of stages";
  if (plan->compress) return "'compress' beside servers";
  if (plan->reduces_bf16) return "'reduce = bf16' beside servers";
  if (plan->ranks == 1) return "servers for one worker";
  return shards_batch_alone(plan)
             ? NULL
             : "servers for a plan that shards more than the batch";
}

enum { MOST_SERVERS = 1024 }; /* each has a program of its own */

bool plan_check_servers(Module *module, const Plan *plan) {
  const PlanServers *servers = plan_servers(plan);
  if (!servers) return true;
  if (servers->first_rank != plan->ranks) {
    Diag *d = diag(module->diags, DIAG_server_ranks, servers->span,
                   servers->first_rank, servers->first_rank + servers->n - 1,
                   plan->ranks - 1, plan->ranks);
    if (servers->n <= INT32_MAX - plan->ranks)
      diag_help(d, "write 'ranks = %d..%d'", plan->ranks,
                plan->ranks + servers->n - 1);
    return false;
  }
  if (plan->zero > 0) {
    diag(module->diags, DIAG_server_setting, servers->span, "zero");
    return false;
  }
  if (servers->n > MOST_SERVERS) {
    diag_help(diag(module->diags, DIAG_not_supported, servers->span,
                   "more than 1,024 servers"),
              "a server holds whole parameters or rows of a large one: a few "
              "are enough");
    return false;
  }
  const char *what = find_unsupported(plan);
  if (what)
    diag_help(diag(module->diags, DIAG_not_supported, servers->span, what),
              "servers are for two or more workers that share the batch alone; "
              "other plans take 'sync = all_reduce'");
  return !what;
}

/* ---- parameters ---- */

typedef struct Dealt {
  Name path;
  int64_t bytes;
  int64_t rows, row_bytes; /* 0: no table */
  bool is_divided, is_dealt;
  int server; /* where it is not divided */
} Dealt;

static bool is_trained(const GraphOutput *output) {
  return output->role == ROLE_grad || output->role == ROLE_param;
}

/* Returns the largest that is not dealt, of equal ones the first. */
static Dealt *next_largest(Dealt *all, int n) {
  Dealt *found = NULL;
  for (int i = 0; i < n; i++)
    if (!all[i].is_dealt && (!found || all[i].bytes > found->bytes))
      found = &all[i];
  return found;
}

/* Returns the parameters that are trained, in the order of the outputs. */
static Dealt *find_trained(Arena *arena, const Graph *graph, int *out_n) {
  Dealt *all = ARENA_ARRAY(arena, Dealt, graph->outputs.n);
  int n = 0;
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *param = graph_find_input(graph, ROLE_param, output->path);
    if (!is_trained(output) || !param) continue;
    const Type *type = graph_type(graph, param->value);
    all[n++] =
        (Dealt){.path = output->path,
                .bytes = type_elements(type) * dtype_size_bytes(type->dtype),
                .rows = type->rank > 1 ? type->dims[0].size : 0};
    if (all[n - 1].rows > 0)
      all[n - 1].row_bytes = all[n - 1].bytes / all[n - 1].rows;
  }
  *out_n = n;
  return all;
}

/* Returns the rows of a divided table on a server: the last may have fewer. */
static int64_t rows_on(const Dealt *table, int server, int n_servers) {
  int64_t most = (table->rows + n_servers - 1) / n_servers;
  int64_t left = table->rows - server * most;
  return left < most ? left : most;
}

/* Deals in full what is not divided.  Returns the fullest server. */
static int deal_rest(Dealt *all, int n, int n_servers, int64_t *bytes) {
  int fullest = 0;
  for (int s = 0; s < n_servers; s++) bytes[s] = 0;
  for (int i = 0; i < n; i++) {
    all[i].is_dealt = all[i].is_divided;
    for (int s = 0; s < n_servers && all[i].is_divided; s++)
      bytes[s] += rows_on(&all[i], s, n_servers) * all[i].row_bytes;
  }
  for (Dealt *next; (next = next_largest(all, n));) {
    int least = 0;
    for (int s = 1; s < n_servers; s++)
      if (bytes[s] < bytes[least]) least = s;
    bytes[least] += next->bytes;
    next->is_dealt = true;
    next->server = least;
  }
  for (int s = 1; s < n_servers; s++)
    if (bytes[s] > bytes[fullest]) fullest = s;
  return fullest;
}

/* Returns the largest table on a server that has rows for each; NULL: there is
 * none. */
static Dealt *find_table(Dealt *all, int n, int server, int n_servers) {
  Dealt *found = NULL;
  for (int i = 0; i < n; i++)
    if (!all[i].is_divided && all[i].server == server && all[i].rows > 1 &&
        rows_on(&all[i], n_servers - 1, n_servers) > 0 &&
        (!found || all[i].bytes > found->bytes))
      found = &all[i];
  return found;
}

ServerDeal plan_deal_parameters(Arena *arena, const Graph *graph, int n_servers,
                                bool divides) {
  ServerDeal deal = {.of_param = map_create(arena), .n_parts = n_servers};
  int64_t *bytes = ARENA_ARRAY(arena, int64_t, n_servers), all_bytes = 0;
  int n;
  Dealt *all = find_trained(arena, graph, &n);
  for (int i = 0; i < n; i++) all_bytes += all[i].bytes;
  int fullest = deal_rest(all, n, n_servers, bytes);
  while (divides && n_servers > 1 &&
         (double)bytes[fullest] * n_servers > 1.3 * (double)all_bytes) {
    Dealt *table = find_table(all, n, fullest, n_servers);
    if (!table) break;
    table->is_divided = true;
    fullest = deal_rest(all, n, n_servers, bytes);
  }
  for (int i = 0; i < n; i++) {
    intptr_t part = all[i].is_divided ? ++deal.n_parts : all[i].server + 1;
    map_put(deal.of_param, all[i].path, (void *)part);
  }
  return deal;
}
