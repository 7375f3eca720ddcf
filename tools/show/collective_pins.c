/*
 * collective_pins.c -- finds the lines of a plan that are the reason for a
 * collective.
 *
 *     zero = 3                  all_gather of 'wte' over data, a parameter
 *     shard H, F over tensor    all_reduce of 'attn.dot', a sum over H
 *
 * A plan has no line for each collective.  The first of these that finds lines
 * which name axes of the collective says the reason:
 *
 *   1. the line of its value;
 *   2. ZeRO, for what it brings together: parameters, gradients, the update;
 *   3. the lines of the operator that made the sum, of what it reads, and of
 *      the dims that it sums over; of a gather, the lines of the dims that it
 *      gathers;
 *   4. the line of the forward value, for its gradient;
 *   5. any line of a dim, then of paths.
 *
 * Two spellings of one plan give the same answers: the axes of ZeRO are those
 * that it takes, and lines that say equally much come by mesh axis, then by
 * text, whatever their order in the file.
 */
#include <string.h>

#include "tools/commands/tools.h"

typedef struct FoundPin {
  int axis; /* of the mesh: the outermost that it names */
  const char *text;
  Span span;
} FoundPin;

typedef struct PinSearch {
  Arena *arena;
  const Plan *plan;
  const Graph *graph;
  const Node *node;
  AxisSet axes; /* of the collective */
  VEC(FoundPin) found;
} PinSearch;

/* ---- lines that name axes ---- */

/* The outermost axis of the collective that the line names, or -1. */
static int named_axis(const PinSearch *s, const PlanShard *shard) {
  int least = -1;
  for (int i = 0; shard && i < shard->n_axes; i++) {
    int axis = mesh_find(&s->graph->mesh, shard->axes[i]);
    if (axis >= 0 && s->axes >> axis & 1 && (least < 0 || axis < least))
      least = axis;
  }
  return least;
}

static bool is_before(const FoundPin *a, const FoundPin *b) {
  if (a->axis != b->axis) return a->axis < b->axis;
  return strcmp(a->text, b->text) < 0;
}

/* A line without a source is no line of a person. */
static void add_pin(PinSearch *s, const PlanShard *shard, Span span) {
  int axis = named_axis(s, shard);
  if (axis < 0 || !span.source) return;
  FoundPin pin = {axis, span_text(s->arena, span), span};
  for (int i = 0; i < s->found.n; i++)
    if (strcmp(s->found.data[i].text, pin.text) == 0) return;
  vec_push(s->arena, &s->found, pin);
  for (int i = s->found.n - 1; i > 0 && is_before(&pin, &s->found.data[i - 1]);
       i--) {
    s->found.data[i] = s->found.data[i - 1];
    s->found.data[i - 1] = pin;
  }
}

static void add_placement(PinSearch *s, const PlanPin *placement) {
  for (int i = 0; placement && i < placement->n_shards; i++)
    add_pin(s, &placement->shards[i], placement->span);
}

Name written_dim(Names *names, Name dim) {
  size_t n = strcspn(dim, "~");
  return dim[n] ? name_intern_n(names, dim, n) : dim;
}

static void add_dim(PinSearch *s, Name path, Name dim) {
  Name written = written_dim(s->graph->module->names, dim);
  const PlanShard *shard = plan_named_dim(s->plan, path, written);
  if (shard) add_pin(s, shard, shard->span);
}

/* ---- ZeRO ---- */

/* A gather of parameters has the path of one.  Without ZeRO the ranks of its
 * axes add gradients with an all_reduce, and update alike. */
static void add_zero(PinSearch *s) {
  const Node *node = s->node;
  bool is_parameter =
      node->path && graph_find_input(s->graph, ROLE_param, node->path);
  bool is_gradient =
      node->phase == PHASE_weight_gradient && node->op != OP_all_reduce;
  if (s->plan->zero > 0 &&
      (is_parameter || is_gradient || node->phase == PHASE_update))
    add_pin(s, plan_zero_shard(s->plan), s->plan->zero_over.span);
}

/* ---- where a placement comes from ---- */

static const GraphInput *input_of(const Graph *graph, Value value) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (value_equal(graph->inputs.data[i].value, value))
      return &graph->inputs.data[i];
  return NULL;
}

/* Returns the input at the begin of a chain of casts, views and gathers. */
static const GraphInput *begin_of(const Graph *graph, Value value) {
  for (;;) {
    const Node *node = graph_node(graph, value);
    bool is_by_result = node->op == OP_all_gather || node->op == OP_after;
    if (node->op == OP_input) return input_of(graph, value);
    if (node->op == OP_scan || (node->n_inputs != 1 && !is_by_result))
      return NULL;
    value = node->inputs[is_by_result ? value.result : 0];
  }
}

static AxisSet partial_axes(const PinSearch *s, Value value) {
  return graph_type(s->graph, value)->partial & s->axes;
}

/* The operator that made the partial sum. */
static const Node *maker_of_sum(const PinSearch *s, Value value) {
  for (;;) {
    const Node *node = graph_node(s->graph, value);
    int i = 0;
    while (i < node->n_inputs && !partial_axes(s, node->inputs[i])) i++;
    if (i == node->n_inputs) return node;
    value = node->inputs[i];
  }
}

static bool keeps_dim(const Node *node, const Dim *dim) {
  for (int r = 0; r < node->n_results; r++) {
    int d = type_find(node->types[r], dim->name);
    if (d >= 0 && node->types[r]->dims[d].split == dim->split) return true;
  }
  return false;
}

static void add_dims_of(PinSearch *s, const Node *node, Value operand) {
  const Type *type = graph_type(s->graph, operand);
  const GraphInput *input = begin_of(s->graph, operand);
  for (int d = 0; d < type->rank; d++)
    if (axis_list_set(type->dims[d].split) & s->axes &&
        !keeps_dim(node, &type->dims[d]))
      add_dim(s, input ? input->path : node->path, type->dims[d].name);
}

/* The path of the forward value or operator of a gradient, or NULL. */
static Name forward_path(const PinSearch *s, const Node *node) {
  static const char prefix[] = "grad.";
  size_t n = sizeof prefix - 1;
  return node->path && strncmp(node->path, prefix, n) == 0
             ? name_intern(s->graph->module->names, node->path + n)
             : NULL;
}

/* The line that says how the node, or the operator of a gradient, computes. */
static const PlanPin *line_of_operator(const PinSearch *s, const Node *node) {
  const PlanPin *line = plan_find_operator(s->plan, node->path);
  return line ? line : plan_find_operator(s->plan, forward_path(s, node));
}

static void add_origin(PinSearch *s, Value operand) {
  const Node *maker = s->node;
  if (partial_axes(s, operand)) {
    maker = maker_of_sum(s, operand);
    add_placement(s, line_of_operator(s, maker));
    for (int i = 0; i < maker->n_inputs && s->found.n == 0; i++) {
      const GraphInput *input = begin_of(s->graph, maker->inputs[i]);
      if (input) add_placement(s, plan_find_placement(s->plan, input->path));
    }
    for (int i = 0; i < maker->n_inputs && s->found.n == 0; i++)
      add_dims_of(s, maker, maker->inputs[i]);
  } else {
    add_dims_of(s, maker, operand);
  }
}

/* ---- all together ---- */

static void add_forward_value(PinSearch *s) {
  add_placement(s, plan_find_placement(s->plan, forward_path(s, s->node)));
}

/* A later line about a dim wins. */
static void add_any_dim(PinSearch *s) {
  for (int i = 0; i < s->plan->shards.n; i++) {
    const PlanShard *shard = &s->plan->shards.data[i];
    if (plan_find_shard(s->plan, shard->dim) == shard)
      add_pin(s, shard, shard->span);
  }
}

static void find_pins(PinSearch *s) {
  add_placement(s, plan_find_placement(s->plan, s->node->path));
  if (s->found.n == 0) add_zero(s);
  if (s->found.n == 0 && s->node->phase == PHASE_weight_gradient)
    add_pin(s, &s->plan->border, s->plan->border.span);
  for (int i = 0; i < s->node->n_inputs && s->found.n == 0; i++)
    add_origin(s, s->node->inputs[i]);
  if (s->found.n == 0) add_forward_value(s);
  if (s->found.n == 0) add_any_dim(s);
  if (s->found.n > 0) return;
  for (int i = 0; i < s->plan->pins.n; i++)
    if (pin_is_placement(&s->plan->pins.data[i]))
      add_placement(s, &s->plan->pins.data[i]);
}

CollectivePins collective_pins(Arena *arena, const Plan *plan,
                               const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  PinSearch search = {
      .arena = arena, .plan = plan, .graph = graph, .node = node};
  int n = 0;
  const Name *axes = node_names(node, ATTR_axes, &n);
  for (int i = 0; i < n; i++) {
    int axis = mesh_find(&graph->mesh, axes[i]);
    if (axis >= 0) search.axes |= (AxisSet)(1 << axis);
  }
  if (plan) find_pins(&search);
  Text text = text_create(arena);
  for (int i = 0; i < search.found.n; i++)
    text_printf(&text, "%s%s", i ? "; " : "", search.found.data[i].text);
  if (search.found.n == 0)
    return (CollectivePins){.text = "the batch takes open axes"};
  return (CollectivePins){search.found.data[0].span, text_string(&text)};
}
