/*
 * server_apart.c -- makes workers independent of each other, for servers that
 * do not wait for all of them.
 *
 *     %7 = sum %6 {over = [B]}; sum@data         %7 = sum %6 {over = [B]}
 *     %8 = all_reduce %7               =>        %8 = mul %7, workers
 *
 * A worker computes as if the others had shares of the batch equal to its own.
 * So a sum over the workers is its own term times their number, and a maximum
 * is its own: loss, counts of `ignore`, statistics of `batchnorm` and the norm
 * of `clip` are those of the share.  What moves data between workers has no
 * such meaning and is reported.
 *
 * A worker sends its new states with the gradients.  A server moves a state by
 * the part 1 / workers of the way to that which comes, in order of arrival.
 */
#include "passes/stages/servers.h"

#include <string.h>

static bool is_reduction(const Node *node, const char *kind) {
  Name reduce = node->op == OP_all_reduce && node->n_inputs == 1
                    ? node_name(node, ATTR_reduce)
                    : NULL;
  return reduce && strcmp(reduce, kind) == 0;
}

bool server_has_own(const Node *node) {
  return is_reduction(node, "sum") || is_reduction(node, "max") ||
         is_reduction(node, "min");
}

static Value times(Graph *to, Value value, double factor, const Type *type) {
  Value inputs[2] = {value, graph_const(to, type->dtype, factor)};
  return graph_append_typed(to, OP_mul, inputs, 2, NULL, &type, 1, NULL);
}

Value server_own(Graph *to, const Graph *joint, int id, Value term) {
  int n, workers = 1;
  const Node *node = joint->nodes.data[id];
  const Name *axes = node_names(node, ATTR_axes, &n);
  if (!is_reduction(node, "sum")) return term;
  for (int i = 0; i < n; i++)
    workers *= joint->mesh.axes[mesh_find(&joint->mesh, axes[i])].size;
  to->span = node->span;
  to->phase = node->phase;
  to->path = graph_path(joint, id);
  return times(to, term, workers, node->types[0]);
}

Value server_estimate(Graph *to, Value sum, int workers) {
  return times(to, sum, workers, graph_type(to, sum));
}

Value server_average(Graph *to, const GraphInput *state, const Type *type,
                     Name push, int workers) {
  to->phase = PHASE_update;
  to->path = state->path;
  Value old = graph_input(to, ROLE_state, state->path, type);
  GraphInput *input = &to->inputs.data[to->inputs.n - 1];
  Value kept = input->value;
  *input = *state;
  input->value = kept;
  Value own = graph_input(to, ROLE_push, push, type);
  Value way = graph_op2(to, OP_sub, own, old);
  way = graph_op2(to, OP_mul, way, graph_const(to, type->dtype, 1.0 / workers));
  Value next = graph_op2(to, OP_add, old, way);
  return graph_op3(to, OP_select, graph_op1(to, OP_finite, own), next, old);
}

/* Returns the first node that joins workers, in a loop too; NULL: none does. */
static const Node *find_joining(const Graph *graph, const bool *needs) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (needs && !needs[id]) continue;
    if (op_has(node->op, OP_FLAG_group)) return node;
    if (node->body && find_joining(node->body, NULL)) return node;
  }
  return NULL;
}

bool server_check_apart(const PassContext *ctx, const Graph *worker) {
  bool *needs = ARENA_ARRAY(ctx->scratch, bool, worker->nodes.n);
  const PlanServers *servers = plan_servers(ctx->plan);
  for (int i = 0; i < worker->outputs.n; i++)
    needs[worker->outputs.data[i].value.node] = true;
  for (int id = worker->nodes.n - 1; id >= 0; id--)
    for (int i = 0; needs[id] && i < worker->nodes.data[id]->n_inputs; i++)
      needs[worker->nodes.data[id]->inputs[i].node] = true;
  const Node *node = find_joining(worker, needs);
  if (!node) return true;
  Diag *d = diag(
      ctx->module->diags, DIAG_server_collective, node->span, node->path,
      servers->staleness < 0 ? "none"
                             : arena_printf(ctx->module->arena, "%lld",
                                            (long long)servers->staleness));
  diag_note(d, servers->span, "the servers are here");
  diag_help(d,
            "with 'staleness = 0' workers may join; where the operator takes "
            "a 'group', one of samples of one worker joins none");
  return false;
}
