/*
 * constrain.c -- puts a `constraint` beside every value that a pin places.
 *
 *     plan: shard y: B over data, T over tensor
 *     %3 = add %1, %2          %3 = add %1, %2
 *     %4 = exp %3        =>    %4 = constraint %3 {axes = [data, tensor],
 *                                                  sizes = [1, 1], to = [B, T]}
 *                              %5 = exp %3
 *
 * No node reads the constraint, and the passes up to `partition` do with the
 * value what they do without it: they carry it along as long as they keep the
 * value, under another name of a dim, or rounded, if they make it so.  So a pin
 * that says what holds anyway changes nothing.  A constraint between a value
 * and its readers would stop cse, canonicalize and attention there.
 *
 * The gradient of a value has the same constraint: Xu et al. 2021, "GSPMD:
 * General and Scalable Parallelization for ML Computation Graphs", section 3.6.
 * The pass runs before all others, when the paths of nodes are those that the
 * user knows; `partition` reshards the operand of a constraint for all that
 * read the operand, and drops the node.  The nodes of one path are parts of one
 * operator, of which the user knows the last one's results.  A value that is
 * computed from nothing stored has no placement: each reader computes its
 * shard.
 *
 * requires: any graph     keeps: values     breaks: node ids
 * cost: O(nodes)
 */
#include "passes/spmd/constrain.h"
#include "passes/spmd/resharding.h"

/* The axes of each dim of the value, as attributes. */
static Attrs constraint_attrs(PassContext *ctx, const PlanPin *placement,
                              const Type *type, Name path) {
  const PlanShard *pins[MAX_RANK];
  Name *dims = ARENA_ARRAY(ctx->scratch, Name, MAX_RANK);
  Name *axes = ARENA_ARRAY(ctx->scratch, Name, MAX_RANK * MAX_AXES);
  int64_t *sizes = ARENA_ARRAY(ctx->scratch, int64_t, MAX_RANK);
  int n_dims = 0, n_axes = 0;
  for (int d = 0; d < type->rank; d++)
    pins[d] = plan_placed_dim(placement, type->dims[d].name);
  for (int d = 0; d < type->rank; d++) {
    int before = n_axes;
    for (int i = 0; pins[d] && i < pins[d]->n_axes; i++) {
      Name axis = pins[d]->axes[i];
      int by = plan_axis_taken(pins, type->rank, d, axis);
      if (by >= 0)
        diag(ctx->module->diags, DIAG_axis_taken, pins[d]->span,
             type->dims[d].name, type->dims[by].name, path, axis);
      else
        axes[n_axes++] = axis;
    }
    if (n_axes == before) continue;
    sizes[n_dims] = n_axes - before;
    dims[n_dims++] = type->dims[d].name;
  }
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, dims, n_dims);
  attrs_ints(&attrs, ATTR_sizes, sizes, n_dims);
  attrs_names(&attrs, ATTR_axes, axes, n_axes);
  if (placement->n_partial)
    attrs_names(&attrs, ATTR_partial, placement->partial, placement->n_partial);
  return attrs;
}

Value constraint_append(PassContext *ctx, Graph *to, Value value,
                        const PlanPin *line, Name path) {
  Span span = to->span;
  to->span = line->span;
  Attrs attrs = constraint_attrs(ctx, line, graph_type(to, value), path);
  value = graph_append(to, OP_constraint, &value, 1, &attrs);
  to->span = span;
  return value;
}

typedef struct Constrain {
  const Map *last; /* path -> node, plus 1 */
  bool is_body;
} Constrain;

/* In a body, whose gradient and whose hoisted part are made of what results
 * need, readers read the constraint. */
static bool constrain_rule(Rewrite *rewrite, int id, void *user) {
  const Constrain *constrain = user;
  const Node *node = rewrite->from->nodes.data[id];
  if ((intptr_t)map_get(constrain->last, node->path) != id + 1) return false;
  const PlanPin *placement =
      plan_find_placement(rewrite->ctx->plan, node->path);
  Value first = rewrite_copy(rewrite, id);
  for (int r = 0; r < node->n_results; r++) {
    Value value = {first.node, r};
    if (is_computed(rewrite->to, value)) continue;
    Value placed = constraint_append(rewrite->ctx, rewrite->to, value,
                                     placement, node->path);
    if (constrain->is_body) rewrite_set(rewrite, (Value){id, r}, placed);
  }
  return true;
}

static Graph *constrain_graph(PassContext *ctx, const Graph *graph,
                              bool is_body) {
  const Plan *plan = ctx->plan;
  Map *last = map_create(ctx->scratch);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_input && plan_find_placement(plan, node->path))
      map_put(last, node->path, (void *)(intptr_t)(id + 1));
  }
  Constrain constrain = {last, is_body};
  Graph *to = rewrite_graph(ctx, graph, constrain_rule, &constrain);
  for (int id = 0; id < to->nodes.n; id++) {
    Node *node = to->nodes.data[id];
    if (node->op == OP_scan)
      node->body = constrain_graph(ctx, node->body, true);
  }
  return to;
}

Graph *pass_constrain(PassContext *ctx, const Graph *graph) {
  const Plan *plan = ctx->plan;
  if (!plan || !plan->placed || plan->replicates_data ||
      (plan->ranks <= 1 && plan->microbatches <= 1))
    return rewrite_graph(ctx, graph, NULL, NULL);
  return constrain_graph(ctx, graph, false);
}
