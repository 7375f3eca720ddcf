/*
 * servers.c -- cuts a training graph into those of the workers and of the
 * servers of a plan (`sync = server(...)`).
 *
 *     %7 = dot ...  ; sum@data              workers   output push "...:0" %7
 *     %8 = all_reduce %7              =>
 *     %9 = sub %w, %8                       server    %1 = input push "...:0"
 *     output param "w" %9                             %2 = sub %w, %1
 *                                                     output param "w" %2
 *
 * A server has the parameters that servers_deal gives it, with their
 * optimizer state, and what follows from these and from sums of gradients over
 * the workers.  The sums are inputs of its graph: the runtime adds up what
 * workers send (runtime/rank/servers.c).  Workers have the rest.  Their
 * parameters are inputs that the runtime fills.
 *
 * Each server has rows of a table that is divided (server_tables.c).  Workers
 * send its gradient with the rows outermost, and the runtime gives each server
 * its own.
 *
 * Where `clip` needs the norm of all gradients, servers tell each other its
 * terms (server_norms.c).
 *
 * Where workers do not wait for each other, what a worker sends is an update of
 * its own.  It estimates the gradient of the batch by the share of the worker:
 * so it is multiplied by the number of workers, and so is the loss
 * (server_apart.c).  The factor of `clip`, an output of the joint graph of role
 * `push`, is a scalar of the worker that it sends too; so are its states.
 *
 * requires: a graph behind `merging`, before `bucket`     keeps: values
 * cost: O(servers * nodes)
 */
#include "passes/stages/servers.h"

#include <stdlib.h>
#include <string.h>

/* A sum of gradients on its way to a server. */
typedef struct Push {
  int server;              /* -1: all, to each its rows */
  Value term;              /* that a worker sends */
  Name rows;               /* the dim of these rows, or NULL */
  const GraphInput *state; /* that it is the new value of, or NULL */
  Name path;
} Push;

typedef struct Split {
  PassContext *ctx;
  const Graph *joint;
  const PlanServers *servers;
  ServerDeal deal;
  bool is_async;
  int factor; /* node of the factor of `clip`; -1: servers get none */
  ServerNorms norms;
  bool *follows; /* by node: from a term of the norm of all */
  VEC(Push) pushes;
  bool *needs;  /* by node: the server at hand has it */
  int *push_of; /* by node, of a sum: its push, plus 1 */
  Name *rows;   /* by node: see server_row_dims */
} Split;

static const Node *node_at(const Split *s, int id) {
  return s->joint->nodes.data[id];
}

static bool is_sum(const Node *node) {
  Name reduce = node->op == OP_all_reduce ? node_name(node, ATTR_reduce) : NULL;
  return reduce && strcmp(reduce, "sum") == 0 && node->n_inputs == 1;
}

/* Returns whether workers send what this node makes, or the terms of it. */
static bool is_pushed(const Split *s, int id) {
  return id == s->factor || is_sum(node_at(s, id));
}

/* Returns the part (ServerDeal) of "w", "adam.m/w" or "ema/w", plus 1; 0: of
 * none. */
static int part_of(const Split *s, Role role, Name path) {
  const char *slash = strchr(path, '/');
  Names *names = s->ctx->module->names;
  if (role == ROLE_param) return (int)(intptr_t)map_get(s->deal.of_param, path);
  while ((role == ROLE_optimizer_state || role == ROLE_ema) && slash) {
    intptr_t found =
        (intptr_t)map_get(s->deal.of_param, name_intern(names, slash + 1));
    if (found) return (int)found;
    slash = strchr(slash + 1, '/');
  }
  return 0;
}

/* Returns the part of an output, plus 1; 0: workers have it.  Of one norm all
 * servers have a copy. */
static int part_of_output(const Split *s, const GraphOutput *output) {
  if (output->role == ROLE_norm && s->norms.nodes.n > 0)
    return s->servers->n + 1;
  if (output->role == ROLE_norm) return atoi(output->path + 5) + 1;
  return part_of(s, output->role, output->path);
}

/* Returns whether a server has this part, or rows of it. */
static bool has_part(const Split *s, int server, int part) {
  return part == server + 1 || part > s->servers->n;
}

/* Returns whether other servers alone compute this term of the norm. */
static bool is_told(const Split *s, int server, int id) {
  int part = server_norm_part(&s->norms, id);
  return part > 0 && !has_part(s, server, part);
}

/* Returns whether workers send this state, for servers to average. */
static bool is_sent_state(const Split *s, const GraphOutput *output) {
  return s->is_async && output->role == ROLE_state &&
         graph_find_input(s->joint, ROLE_state, output->path);
}

/* ---- what a server needs ---- */

static void add_push(Split *s, int server, int id) {
  Value term = id == s->factor ? (Value){id, 0} : node_at(s, id)->inputs[0];
  Name rows = s->rows[id];
  if (rows) server = -1;
  for (int i = 0; i < s->pushes.n; i++) {
    const Push *push = &s->pushes.data[i];
    if (push->server != server || !value_equal(push->term, term)) continue;
    s->push_of[id] = i + 1;
    return;
  }
  Name path = name_format(s->ctx->module->names, "%s:%d",
                          graph_path(s->joint, id), s->pushes.n);
  vec_push(s->ctx->scratch, &s->pushes, (Push){server, term, rows, NULL, path});
  s->push_of[id] = s->pushes.n;
}

/* Returns a parameter of the server whose new value follows from this node. */
static Name find_reader(const Split *s, int server, int id) {
  bool *follows = ARENA_ARRAY(s->ctx->scratch, bool, s->joint->nodes.n);
  follows[id] = true;
  for (int k = id + 1; k < s->joint->nodes.n; k++)
    for (int i = 0; i < node_at(s, k)->n_inputs; i++)
      follows[k] |= follows[node_at(s, k)->inputs[i].node];
  for (int i = 0; i < s->joint->outputs.n; i++) {
    const GraphOutput *output = &s->joint->outputs.data[i];
    if (output->role == ROLE_param && follows[output->value.node] &&
        has_part(s, server, part_of_output(s, output)))
      return output->path;
  }
  return graph_path(s->joint, id);
}

/* Reports an input of the graph that no server has. */
static bool has_input(Split *s, int server, int id) {
  const GraphInput *input =
      &s->joint->inputs.data[node_int(node_at(s, id), ATTR_index, 0)];
  bool is_scalar = input->role == ROLE_step || input->role == ROLE_epoch ||
                   input->role == ROLE_seed;
  if (is_scalar || has_part(s, server, part_of(s, input->role, input->path)))
    return true;
  diag(s->ctx->module->diags, DIAG_server_gradient, s->servers->span,
       find_reader(s, server, id), input->path);
  return false;
}

static bool add_pushes(Split *s, int server) {
  for (int id = s->joint->nodes.n - 1; id >= 0; id--)
    if (s->needs[id] && is_pushed(s, id)) add_push(s, server, id);
  return true;
}

static bool find_rows(Split *s) {
  int mixed;
  s->rows = server_row_dims(s->ctx->scratch, s->joint, s->needs, &s->deal,
                            s->servers->n, &mixed);
  if (mixed < 0) return true;
  diag(s->ctx->module->diags, DIAG_not_supported, s->servers->span,
       name_format(s->ctx->module->names,
                   "'%s' where servers divide a table of this gradient",
                   graph_path(s->joint, mixed)));
  return false;
}

static bool find_needs(Split *s, int server) {
  int n = s->joint->nodes.n;
  bool is_good = true;
  s->needs = ARENA_ARRAY(s->ctx->scratch, bool, n);
  s->push_of = ARENA_ARRAY(s->ctx->scratch, int, n);
  for (int i = 0; i < s->joint->outputs.n; i++) {
    const GraphOutput *output = &s->joint->outputs.data[i];
    if (has_part(s, server, part_of_output(s, output)))
      s->needs[output->value.node] = true;
  }
  for (int id = n - 1; id >= 0 && is_good; id--) {
    const Node *node = node_at(s, id);
    if (!s->needs[id]) continue;
    if (is_pushed(s, id) || is_told(s, server, id)) continue;
    if (node->op == OP_input) is_good = has_input(s, server, id);
    for (int i = 0; i < node->n_inputs; i++)
      s->needs[node->inputs[i].node] = true;
  }
  return is_good && find_rows(s) && add_pushes(s, server);
}

/* ---- graphs ---- */

/* The values of a graph that is made, by those of the joint one. */
typedef struct Copies {
  Graph *to;
  Value **now; /* [n_nodes][n_results] */
} Copies;

static Copies begin_copies(const Split *s) {
  Copies copies = {graph_create(s->ctx->module, s->joint->name),
                   ARENA_ARRAY(s->ctx->scratch, Value *, s->joint->nodes.n)};
  return copies;
}

static Value copy_of(const Copies *copies, Value old) {
  ASSERT(copies->now[old.node]);
  return copies->now[old.node][old.result];
}

/* Copies a node of which a server has rows. */
static Value copy_rows(const Split *s, Graph *to, int id, const Value *inputs) {
  const Node *node = node_at(s, id);
  const Type *type = server_rows_type(s->ctx->module->arena, node->types[0],
                                      s->rows[id], s->servers->n);
  if (node->op != OP_input)
    return graph_copy_node_as(to, s->joint, id, inputs, &type);
  GraphInput input = s->joint->inputs.data[node_int(node, ATTR_index, 0)];
  to->span = node->span;
  to->phase = node->phase;
  to->path = graph_path(s->joint, id);
  input.value = graph_input(to, input.role, input.path, type);
  to->inputs.data[to->inputs.n - 1] = input;
  return input.value;
}

static void copy_node(const Split *s, Copies *copies, int id, bool has_rows) {
  const Node *node = node_at(s, id);
  Value *inputs = ARENA_ARRAY(s->ctx->scratch, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = copy_of(copies, node->inputs[i]);
  Value first = has_rows
                    ? copy_rows(s, copies->to, id, inputs)
                    : graph_copy_node(copies->to, s->joint, id, inputs, false);
  copies->now[id] = ARENA_ARRAY(s->ctx->scratch, Value, node->n_results);
  for (int r = 0; r < node->n_results; r++)
    copies->now[id][r] = (Value){first.node, r};
}

/* Returns the input for the sum that a node makes; two may be of one push. */
static Value append_sum(const Split *s, Graph *to, int id, Value *of_push) {
  int number = s->push_of[id] - 1;
  const Push *push = &s->pushes.data[number];
  if (value_is(of_push[number])) return of_push[number];
  to->span = node_at(s, id)->span;
  to->phase = PHASE_update;
  to->path = graph_path(s->joint, id);
  const Type *type =
      type_logical(s->ctx->module->arena, graph_type(s->joint, push->term));
  if (push->rows) {
    type = server_rows_first(s->ctx->module->arena, type, push->rows);
    type = server_rows_type(s->ctx->module->arena, type, push->rows,
                            s->servers->n);
  }
  Value value = graph_input(to, ROLE_push, push->path, type);
  value = graph_transpose_to(to, value, graph_type(s->joint, push->term));
  if (s->is_async && id != s->factor)
    value = server_estimate(to, value, mesh_ranks(&s->joint->mesh));
  return of_push[number] = value;
}

/* Appends the states of a server, and what it gets for them. */
static void average_states(const Split *s, Graph *to, int server) {
  Arena *arena = s->ctx->module->arena;
  for (int i = 0; i < s->pushes.n; i++) {
    const Push *push = &s->pushes.data[i];
    if (!push->state || push->server != server) continue;
    const Type *type = type_logical(arena, graph_type(s->joint, push->term));
    Value next = server_average(to, push->state, type, push->path,
                                mesh_ranks(&s->joint->mesh));
    graph_output(to, ROLE_state, push->state->path, next);
  }
}

/* Copies what does not follow from the norm of all, or what does. */
static void copy_nodes(const Split *s, Copies *copies, int server,
                       Value *of_push, bool follows) {
  for (int id = 0; id < s->joint->nodes.n; id++) {
    if (s->follows[id] != follows || is_told(s, server, id)) continue;
    if (s->push_of[id] > 0) {
      copies->now[id] = ARENA_NEW(s->ctx->scratch, Value);
      *copies->now[id] = append_sum(s, copies->to, id, of_push);
    } else if (s->needs[id]) {
      copy_node(s, copies, id, s->rows[id] != NULL);
    }
  }
}

/* From here on the terms of the norm are those of all servers. */
static void join_norms(const Split *s, Copies *copies) {
  int n = s->norms.nodes.n;
  Value *terms = ARENA_ARRAY(s->ctx->scratch, Value, n + 1);
  for (int i = 0; i < n; i++) {
    const Value *own = copies->now[s->norms.nodes.data[i]];
    terms[i] = own ? own[0] : VALUE_NONE;
  }
  int sums = n > 0 ? server_norms_join(copies->to, terms, n, s->servers->n) : 0;
  for (int i = 0; i < n; i++) {
    Value **now = &copies->now[s->norms.nodes.data[i]];
    *now = ARENA_NEW(s->ctx->scratch, Value);
    **now = (Value){sums, i};
  }
}

/* The norm that is that of all counts once (runtime/rank/late_results.c). */
static Name output_path(const Split *s, const GraphOutput *output, int server) {
  bool is_copy =
      output->role == ROLE_norm && s->norms.nodes.n > 0 && server > 0;
  return is_copy ? name_intern(s->ctx->module->names, "norm") : output->path;
}

static Graph *build_server(const Split *s, int server) {
  Copies copies = begin_copies(s);
  Value *of_push = ARENA_ARRAY(s->ctx->scratch, Value, s->pushes.n + 1);
  for (int i = 0; i < s->pushes.n; i++) of_push[i] = VALUE_NONE;
  copy_nodes(s, &copies, server, of_push, false);
  join_norms(s, &copies);
  copy_nodes(s, &copies, server, of_push, true);
  for (int i = 0; i < s->joint->outputs.n; i++) {
    const GraphOutput *output = &s->joint->outputs.data[i];
    if (has_part(s, server, part_of_output(s, output)))
      graph_output(copies.to, output->role, output_path(s, output, server),
                   copy_of(&copies, output->value));
  }
  average_states(s, copies.to, server);
  return copies.to;
}

/* Returns, by node, what workers run: they have no optimizer state. */
static bool *find_worker_needs(const Split *s) {
  bool *needs = ARENA_ARRAY(s->ctx->scratch, bool, s->joint->nodes.n);
  for (int i = 0; i < s->joint->outputs.n; i++) {
    const GraphOutput *output = &s->joint->outputs.data[i];
    if (part_of_output(s, output) == 0 && output->role != ROLE_push)
      needs[output->value.node] = true;
  }
  for (int i = 0; i < s->pushes.n; i++)
    needs[s->pushes.data[i].term.node] = true;
  for (int id = s->joint->nodes.n - 1; id >= 0; id--)
    for (int i = 0; needs[id] && i < node_at(s, id)->n_inputs; i++)
      needs[node_at(s, id)->inputs[i].node] = true;
  return needs;
}

/* Returns what workers send, rows outermost. */
static Value term_of(const Split *s, const Copies *copies, const Push *push) {
  Value term = copy_of(copies, push->term);
  const Type *type = graph_type(copies->to, term);
  if (!push->rows) return term;
  return graph_transpose_to(
      copies->to, term,
      server_rows_first(s->ctx->module->arena, type, push->rows));
}

static Graph *build_worker(const Split *s) {
  Copies copies = begin_copies(s);
  const bool *needs = find_worker_needs(s);
  copies.to->mesh = s->joint->mesh;
  for (int id = 0; id < s->joint->nodes.n; id++) {
    const Node *node = node_at(s, id);
    if (!needs[id]) continue;
    if (s->is_async && server_has_own(node)) {
      copies.now[id] = ARENA_NEW(s->ctx->scratch, Value);
      *copies.now[id] = server_own(copies.to, s->joint, id,
                                   copy_of(&copies, node->inputs[0]));
    } else {
      copy_node(s, &copies, id, false);
    }
  }
  for (int i = 0; i < s->joint->outputs.n; i++) {
    const GraphOutput *output = &s->joint->outputs.data[i];
    if (part_of_output(s, output) > 0) continue;
    if (output->role == ROLE_push || is_sent_state(s, output)) continue;
    graph_output(copies.to, output->role, output->path,
                 copy_of(&copies, output->value));
  }
  for (int i = 0; i < s->pushes.n; i++)
    graph_output(copies.to, ROLE_push, s->pushes.data[i].path,
                 term_of(s, &copies, &s->pushes.data[i]));
  return copies.to;
}

/* Deals the states that workers change to the servers, in turn. */
static bool add_states(Split *s) {
  int n = 0;
  for (int i = 0; i < s->joint->outputs.n; i++) {
    const GraphOutput *output = &s->joint->outputs.data[i];
    if (!is_sent_state(s, output)) continue;
    const Type *type = graph_type(s->joint, output->value);
    Name path =
        name_format(s->ctx->module->names, "%s:%d", output->path, s->pushes.n);
    if (dtype_class(type->dtype) != CLASS_FLOAT) {
      diag(s->ctx->module->diags, DIAG_not_supported, s->servers->span,
           name_format(s->ctx->module->names,
                       "the state '%s' beside servers that do not wait: it is "
                       "no float",
                       output->path));
      return false;
    }
    vec_push(s->ctx->scratch, &s->pushes,
             (Push){n++ % s->servers->n, output->value, NULL,
                    graph_find_input(s->joint, ROLE_state, output->path),
                    path});
  }
  return true;
}

/* Returns the node of the factor of `clip`; -1: there is none. */
static int find_factor(const Graph *joint) {
  for (int i = 0; i < joint->outputs.n; i++)
    if (joint->outputs.data[i].role == ROLE_push)
      return joint->outputs.data[i].value.node;
  return -1;
}

ServerCut servers_cut(PassContext *ctx, const Graph *joint) {
  ServerCut cut = {0};
  const PlanServers *servers = plan_servers(ctx->plan);
  bool is_async = servers->staleness != 0;
  Split s = {.ctx = ctx,
             .joint = joint,
             .servers = servers,
             .is_async = is_async,
             .factor = is_async ? find_factor(joint) : -1,
             .deal = servers_deal(ctx, joint)};
  if (!is_async) s.norms = server_norms(ctx, joint, &s.deal);
  s.follows = server_norm_readers(ctx->scratch, joint, &s.norms);
  if (!add_states(&s)) return cut;
  for (int server = 0; server < servers->n; server++) {
    if (!find_needs(&s, server)) return cut;
    vec_push(ctx->module->arena, &cut.servers, build_server(&s, server));
  }
  Graph *worker = build_worker(&s);
  if (!s.is_async || server_check_apart(ctx, worker)) cut.worker = worker;
  return cut;
}
