/*
 * operator_lines.c -- computes operators as lines about them ask for.
 *
 *     dot x [B, F@t], w [F@t, C]          plan: shard mlp!dot[1]: F over t
 *     => [B, C; sum@t], which a reader reduces
 *
 * The line names all dims that the ranks share out, so it fixes the placements
 * of the operands (ir/place/strategies.h).  An operator of the language may
 * have become several nodes of one path: each follows for the dims that it has,
 * and every dim of the line must reach one of them.
 *
 *     dgrad  [B, C@] . w^T  =>  [B, F@t]     wgrad  x^T . dy  =>  [F@t, C]
 *
 * The gradients of an operator, which have its path, are computed over the same
 * dims, each over those that it has.  Casts, moves and sums among them belong
 * to no operator: a sum may add gradients of several.  Where a gradient cannot
 * be computed so, the best strategy is taken.
 */
#include "ir/place/strategies.h"
#include "passes/spmd/placement.h"
#include "passes/spmd/strategy.h"

#include <string.h>

static bool is_gradient(const Node *node) {
  return node->phase == PHASE_input_gradient ||
         node->phase == PHASE_weight_gradient;
}

/* The node computes a gradient, and not only moves, rounds or adds some. */
static bool computes_gradient(const Partition *p, const Node *node) {
  ShardCall call = shard_call(p->rewrite.from, node);
  return is_gradient(node) && node->op != OP_cast &&
         !op_is(node->op, OPCLASS_view) &&
         !op_is(node->op, OPCLASS_data_movement) &&
         shard_linearity(&call) != LINEAR_all;
}

/* "grad.PATH" -> PATH; or NULL. */
static Name path_of_operator(const Partition *p, Name path) {
  static const char prefix[] = "grad.";
  size_t n = sizeof prefix - 1;
  return path && strncmp(path, prefix, n) == 0
             ? name_intern(p->ctx->module->names, path + n)
             : NULL;
}

const PlanPin *find_operator_line(const Partition *p, const Node *node) {
  if (!p->plan->computed || p->plan->replicates_data || node->op == OP_input ||
      !op_info(node->op)->infer)
    return NULL;
  if (node->phase == PHASE_forward)
    return plan_find_operator(p->plan, node->path);
  return computes_gradient(p, node)
             ? plan_find_operator(p->plan, path_of_operator(p, node->path))
             : NULL;
}

/* Without one the operator computes on all elements. */
static bool shards_any(const PlanPin *line) {
  for (int i = 0; i < line->n_shards; i++)
    if (line->shards[i].n_axes > 0) return true;
  return false;
}

/* Those that the line shards of the dims over which the node computes. */
static int node_dims(const Partition *p, const ShardCall *call,
                     const PlanPin *line, DimAxes *out) {
  ShardRule *rule = ARENA_NEW(p->ctx->scratch, ShardRule);
  int n = 0;
  shard_rule(call, rule);
  for (int i = 0; i < line->n_shards; i++) {
    const PlanShard *shard = &line->shards[i];
    if (shard->n_axes == 0 || shard_rule_input(rule, shard->dim) < 0) continue;
    AxisList axes = 0;
    for (int k = 0; k < shard->n_axes; k++)
      axes = axis_list_append(axes, mesh_find(p->mesh, shard->axes[k]));
    out[n++] = (DimAxes){shard->dim, axes};
  }
  return n;
}

/* The dims that it may share out, "B, H"; "": none. */
static const char *shared_dims(const Partition *p, const Node *node) {
  ShardRule *rule = ARENA_NEW(p->ctx->scratch, ShardRule);
  ShardCall call = shard_call(p->rewrite.from, node);
  Text out = text_create(p->ctx->scratch);
  shard_rule(&call, rule);
  for (int i = 0; i < rule->n; i++)
    if (rule->dims[i].treatment != SHARD_replicate)
      text_printf(&out, "%s%s", out.n ? ", " : "", rule->dims[i].name);
  return text_string(&out);
}

static void report_line(Partition *p, const Node *node, const PlanPin *line,
                        const char *reason) {
  Diag *d = diag(p->ctx->module->diags, DIAG_operator_line, line->span,
                 node->path, reason);
  diag_note(d, node->span, "it is computed here");
  const char *dims = shared_dims(p, node);
  if (*dims) diag_help(d, "it can share out %s", dims);
}

/* Micro-batches have one size. */
static bool has_even_microbatches(const Partition *p, const Type *type) {
  AxisSet sequential = mesh_sequential(p->mesh);
  for (int d = 0; d < type->rank; d++)
    if (axis_list_set(type->dims[d].split) & sequential &&
        dim_is_uneven(p, &type->dims[d]))
      return false;
  return true;
}

bool place_by_operator_line(Partition *p, int id, const Type *const *have,
                            const Type **wanted, AxisSet *out_positions) {
  const Node *node = p->rewrite.from->nodes.data[id];
  const PlanPin *line = find_operator_line(p, node);
  if (!line) return false;
  DimAxes *dims = ARENA_ARRAY(p->ctx->scratch, DimAxes, line->n_shards + 1);
  ShardCall call = shard_call(p->rewrite.from, node);
  int n = node_dims(p, &call, line, dims);
  if (n == 0 && shards_any(line)) return false; /* of another node */
  const char *reason;
  const Strategy *strategy =
      strategy_for(p->mesh, &call, dims, n, p->ctx->module->arena, &reason);
  if (strategy && strategy->positions && !range_is_supported(node->op))
    reason = "not supported yet over ranges of indices";
  const Type **by_line =
      ARENA_ARRAY(p->ctx->scratch, const Type *, node->n_inputs);
  for (int i = 0; i < node->n_inputs && !reason; i++) {
    by_line[i] =
        with_microbatches(p, have[i], strategy->inputs[i], wanted[i]->partial);
    if (!has_even_microbatches(p, by_line[i]))
      reason = "not supported yet with micro-batches of unequal size";
  }
  if (reason) {
    if (!is_gradient(node)) report_line(p, node, line, reason);
    return false;
  }
  for (int i = 0; i < node->n_inputs; i++) wanted[i] = by_line[i];
  *out_positions = strategy->positions;
  return true;
}

/* ---- lines that reach nothing ---- */

static bool line_reaches(const Partition *p, const Node *node,
                         const PlanPin *line, Name dim) {
  if (is_gradient(node) || find_operator_line(p, node) != line) return false;
  ShardRule *rule = ARENA_NEW(p->ctx->scratch, ShardRule);
  ShardCall call = shard_call(p->rewrite.from, node);
  shard_rule(&call, rule);
  return shard_rule_input(rule, dim) >= 0;
}

/* Passes before this one may have renamed the dim or made the operator a part
 * of another one. */
static void check_line_dim(Partition *p, const PlanPin *line, Name dim) {
  const Graph *graph = p->rewrite.from;
  const Node *at = NULL;
  for (int id = 0; id < graph->nodes.n; id++) {
    if (line_reaches(p, graph->nodes.data[id], line, dim)) return;
    const Node *node = graph->nodes.data[id];
    if (!is_gradient(node) && find_operator_line(p, node) == line) at = node;
  }
  Arena *scratch = p->ctx->scratch;
  if (at)
    report_line(p, at, line,
                arena_printf(scratch,
                             "simplified, it does not compute over '%s'", dim));
  else if (!p->ctx->cut) /* or it is of another stage */
    diag_help(diag(p->ctx->module->diags, DIAG_operator_gone, line->span,
                   line->paths[0]),
              "pin the values around it");
}

/* Heads that only training has are in no evaluation: the training graph
 * answers for these lines. */
static bool has_training_graph(const PassContext *ctx) {
  return !ctx->is_training && ctx->model && ctx->model->train;
}

void check_operator_lines(Partition *p) {
  if (has_training_graph(p->ctx)) return;
  for (int i = 0; i < p->plan->pins.n; i++) {
    const PlanPin *line = &p->plan->pins.data[i];
    if (line->about != ABOUT_operator) continue;
    bool is_used = false;
    for (int k = 0; k < line->n_paths; k++)
      is_used |= plan_find_operator(p->plan, line->paths[k]) == line;
    for (int d = 0; d < line->n_shards && is_used; d++)
      if (line->shards[d].n_axes > 0)
        check_line_dim(p, line, line->shards[d].dim);
  }
}
