/*
 * grad_scan.c -- builds the gradient of a scan, which is a scan in the other
 * direction.
 *
 *     forward    h(t) = tanh(u(t) + h(t-1) w)
 *     backward   z(t) = (dy(t) + dh(t)) (1 - h(t)^2)
 *                dh(t-1) = z(t) w                     the carry
 *                du(t) = z(t)                         stacked
 *     outside    dw = sum over t and the batch of h(t-1) z(t)
 *
 * The body is differentiated as a graph of its own: its nodes, inputs for the
 * cotangents of its results, then what the walk of adjoint.c appends (`both`
 * below).  The forward scan must stack the forward values that the appended
 * nodes read.  Views, constants and single cheap operations are recomputed
 * instead, and so are nodes with the attribute `recompute`.  A carry that is
 * read is the result of the iteration before, so it needs no stack of its own.
 *
 * The gradient of a loop-invariant value is a sum over the iterations.  A
 * contraction there does not run in each iteration: its operands are stacked,
 * and one contraction after the loop sums over the iterations too, because one
 * large contraction is faster than many small ones.  Sums and scatter_adds are
 * treated likewise.  All other values are added up in a carry.
 *
 * A scan in the body is an operator like others, once it stacks the values that
 * its own gradient reads.  It does so in `both` and in the scan that replaces
 * this one.
 */
#include "ir/ops/grad.h"

typedef VEC(Value) Values;

typedef struct Backward {
  Arena *arena;
  Graph *graph; /* that the scan stands in, as node `id` */
  int id;
  const Node *node;
  const Graph *body;
  Name dim;
  int n_carries, n_body;
  Graph *both;
  bool *varies; /* by node of `both`: differs between iterations */
  Value *seeds; /* by result: the cotangent's input in `both`, or none */
  Value *roots; /* by input of the body: its cotangent in `both`, or none */
  Values saved; /* values of the body that are read again */
  bool *reads_carry;
  /* The backward scan. */
  Graph *back;
  Value **copies; /* by node and result of `both`: its copy in `back` */
  Values inputs;  /* of the scan, in the order of back->inputs */
  Values stacked; /* values of `both` that the scan stacks */
  Values sums;    /* values of `both` that it adds up */
  const Value *cotangents;
  Value scan; /* VALUE_NONE while it is being planned */
  int n_adjoints;
} Backward;

static bool value_is_float(const Type *type) {
  return dtype_class(type->dtype) == CLASS_FLOAT;
}

static int find_value(const Values *values, Value value) {
  for (int i = 0; i < values->n; i++)
    if (value_equal(values->data[i], value)) return i;
  return -1;
}

static int add_value(Arena *arena, Values *values, Value value) {
  int at = find_value(values, value);
  if (at >= 0) return at;
  vec_push(arena, values, value);
  return values->n - 1;
}

static int carry_of(const Backward *b, int id) {
  for (int i = 0; i < b->n_carries; i++)
    if (b->body->inputs.data[i].value.node == id) return i;
  return -1;
}

static int input_of(const Backward *b, int id) {
  for (int i = 0; i < b->body->inputs.n; i++)
    if (b->body->inputs.data[i].value.node == id) return i;
  return -1;
}

static int seed_of(const Backward *b, int id) {
  for (int r = 0; r < b->body->outputs.n; r++)
    if (b->seeds[r].node == id) return r;
  return -1;
}

static Value zeros_like(Graph *graph, const Type *type) {
  Value zero = graph_const(graph, type->dtype, 0);
  return graph_transpose_to(graph, grad_broadcast_to(graph, zero, type), type);
}

/* ---- the body and its derivative in one graph ---- */

static void add_seeds(Backward *b, Adjoint *adjoint) {
  const Graph *body = b->body;
  b->seeds = ARENA_ARRAY(b->arena, Value, body->outputs.n);
  for (int r = 0; r < body->outputs.n; r++) {
    const GraphOutput *output = &body->outputs.data[r];
    const Type *type = graph_type(body, output->value);
    b->seeds[r] = VALUE_NONE;
    bool is_carry = r < b->n_carries;
    if (!value_is_float(type) ||
        (!is_carry && b->cotangents && !value_is(b->cotangents[r])))
      continue;
    b->seeds[r] = graph_input(b->both, is_carry ? ROLE_carry : ROLE_slice,
                              output->path, type);
    adjoint_add(adjoint, output->value, b->seeds[r]);
  }
}

static void find_varying(Backward *b) {
  const Graph *both = b->both;
  b->varies = ARENA_ARRAY(b->arena, bool, both->nodes.n);
  for (int id = 0; id < both->nodes.n; id++) {
    const Node *node = both->nodes.data[id];
    if (node->op == OP_input)
      b->varies[id] =
          both->inputs.data[node_int(node, ATTR_index, 0)].role != ROLE_arg;
    for (int i = 0; i < node->n_inputs; i++)
      b->varies[id] |= b->varies[node->inputs[i].node];
  }
}

/* Cotangents of the body's inputs; those of carries in the types of the
 * carries. */
static void find_roots(Backward *b, const Adjoint *adjoint) {
  const Graph *body = b->body;
  b->roots = ARENA_ARRAY(b->arena, Value, body->inputs.n);
  for (int i = 0; i < body->inputs.n; i++) {
    const Type *type = graph_type(body, body->inputs.data[i].value);
    Value root = adjoint_get(adjoint, body->inputs.data[i].value);
    if (i < b->n_carries && !value_is(root) && value_is(b->seeds[i]))
      root = zeros_like(b->both, type);
    if (value_is(root)) {
      root = graph_cast(b->both, root, type->dtype);
      if (body->inputs.data[i].role != ROLE_arg)
        root = graph_transpose_to(b->both, root, type);
    }
    b->roots[i] = root;
  }
}

/* A node of a body, with its id; a scan also stacks the values that its
 * gradient reads, if it does not yet. */
static void copy_saving(Graph *to, const Graph *body, int id) {
  const Node *node = body->nodes.data[id];
  if (node->op != OP_scan) {
    graph_copy_node(to, body, id, node->inputs, false);
    return;
  }
  to->span = node->span;
  to->path = node->path;
  to->phase = node->phase;
  scan_append_saving(to, node, node->inputs);
}

/* `cotangents` NULL: of all results. */
static Backward differentiate_body(Graph *graph, const Node *node,
                                   const Value *cotangents) {
  Backward b = {.arena = graph->module->arena,
                .graph = graph,
                .node = node,
                .body = node->body,
                .dim = node_name(node, ATTR_dim),
                .n_carries = scan_carries(node),
                .n_body = node->body->nodes.n,
                .both = graph_like(node->body),
                .cotangents = cotangents,
                .scan = VALUE_NONE};
  for (int id = 0; id < b.n_body; id++) copy_saving(b.both, b.body, id);
  Adjoint adjoint = adjoint_begin(b.arena, b.both);
  for (int i = 0; i < b.body->inputs.n; i++) {
    Value input = b.body->inputs.data[i].value;
    adjoint.is_wanted[input.node] = value_is_float(graph_type(b.body, input));
  }
  adjoint_spread(&adjoint);
  add_seeds(&b, &adjoint);
  adjoint_walk(&adjoint, b.arena);
  find_roots(&b, &adjoint);
  find_varying(&b);
  return b;
}

/* ---- saved activations ---- */

static bool value_is_const(const Graph *graph, Value value) {
  return graph_node(graph, value)->op == OP_const;
}

/* Cheaper to recompute than to save. */
static bool is_done_again(const Backward *b, int id) {
  const Node *node = b->both->nodes.data[id];
  const OpInfo *info = op_info(node->op);
  bool is_move =
      info->class == OPCLASS_view || info->class == OPCLASS_data_movement;
  if (!b->varies[id] || (is_move && !info->cost)) return true;
  if (node_has(node, ATTR_recompute))
    return node_int(node, ATTR_recompute, 0) != 0;
  if (!info->is_pointwise || info->flops > 1) return false;
  int n_values = 0;
  for (int i = 0; i < node->n_inputs; i++)
    n_values += !value_is_const(b->both, node->inputs[i]);
  return n_values <= 1;
}

static bool is_saved(const Backward *b, int id) {
  return id < b->n_body && b->both->nodes.data[id]->op != OP_input &&
         !is_done_again(b, id);
}

static void find_saved(Backward *b) {
  const Graph *both = b->both;
  bool *is_read = ARENA_ARRAY(b->arena, bool, both->nodes.n);
  b->reads_carry = ARENA_ARRAY(b->arena, bool, b->n_carries);
  for (int i = 0; i < b->body->inputs.n; i++)
    if (value_is(b->roots[i])) is_read[b->roots[i].node] = true;
  for (int id = both->nodes.n - 1; id >= 0; id--) {
    if (!is_read[id]) continue;
    const Node *node = both->nodes.data[id];
    int carry = id < b->n_body ? carry_of(b, id) : -1;
    if (carry >= 0) b->reads_carry[carry] = true;
    if (is_saved(b, id)) continue;
    for (int i = 0; i < node->n_inputs; i++) {
      Value input = node->inputs[i];
      is_read[input.node] = true;
      if (is_saved(b, input.node)) add_value(b->arena, &b->saved, input);
    }
  }
  for (int i = 0; i < b->body->inputs.n; i++)
    if (value_is(b->roots[i]) && is_saved(b, b->roots[i].node))
      add_value(b->arena, &b->saved, b->roots[i]);
  for (int i = 0; i < b->n_carries; i++)
    if (b->reads_carry[i])
      add_value(b->arena, &b->saved, b->body->outputs.data[i].value);
}

/* The stacked result that is this value of the body, or -1. */
static int find_result(const Backward *b, Value value) {
  for (int r = b->n_carries; r < b->body->outputs.n; r++)
    if (value_equal(b->body->outputs.data[r].value, value)) return r;
  return -1;
}

Value scan_append_saving(Graph *graph, const Node *node, const Value *inputs) {
  Backward b = differentiate_body(graph, node, NULL);
  find_saved(&b);
  Graph *body = graph_like(b.body);
  for (int id = 0; id < b.n_body; id++)
    graph_copy_node(body, b.both, id, b.both->nodes.data[id]->inputs, false);
  for (int r = 0; r < b.body->outputs.n; r++) {
    const GraphOutput *output = &b.body->outputs.data[r];
    graph_output(body, output->role, output->path, output->value);
  }
  for (int i = 0; i < b.saved.n; i++)
    if (find_result(&b, b.saved.data[i]) < 0)
      graph_output(body, ROLE_result, graph_node(body, b.saved.data[i])->path,
                   b.saved.data[i]);
  return scan_append(graph, scan_form(node), inputs, body);
}

/* ---- values for all iterations, outside the scan ---- */

static Value result_of(const Backward *b, int result) {
  ASSERT(result >= 0);
  return (Value){b->id, result};
}

static Value append_concat(Graph *graph, Name dim, Value a, Value b) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  return graph_append(graph, OP_concat, (Value[]){a, b}, 2, &attrs);
}

/* The value of a carry at the start of each iteration: the initial value, then
 * all results but the last. */
static Value carries_before(const Backward *b, int carry) {
  Graph *graph = b->graph;
  int64_t steps = scan_steps(b->node), rest = steps - 1;
  Value stack =
      result_of(b, find_result(b, b->body->outputs.data[carry].value));
  const Type *type = graph_type(graph, stack);
  Type *one = type_create(b->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) one->dims[d] = type->dims[d];
  one->dims[0].size = 1;
  Value first = grad_broadcast_to(graph, b->node->inputs[carry], one);
  if (steps == 1) return first;
  bool is_reversed = scan_is_reversed(b->node);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, b->dim);
  attrs_int(&attrs, ATTR_start, is_reversed ? 1 : 0);
  attrs_ints(&attrs, ATTR_sizes, &rest, 1);
  Value others = graph_append(graph, OP_slice, &stack, 1, &attrs);
  Value all = is_reversed ? append_concat(graph, b->dim, others, first)
                          : append_concat(graph, b->dim, first, others);
  return graph_transpose_to(graph, all, type);
}

static Value cotangent_outside(const Backward *b, int result) {
  const Type *type = b->node->types[result];
  Value value = b->cotangents[result];
  if (!value_is(value)) return zeros_like(b->graph, type);
  return graph_transpose_to(b->graph, graph_cast(b->graph, value, type->dtype),
                            type);
}

/* A value of `both` that is an input or saved, for all iterations with the dim
 * in front; VALUE_NONE if the backward scan computes it. */
static Value value_outside(Backward *b, Value value) {
  int input = value.node < b->n_body ? input_of(b, value.node) : -1;
  int seed = seed_of(b, value.node);
  if (seed >= 0)
    return seed < b->n_carries ? VALUE_NONE : cotangent_outside(b, seed);
  if (input >= 0 && input < b->n_carries) return carries_before(b, input);
  if (input >= 0) return b->node->inputs[input];
  if (is_saved(b, value.node)) return result_of(b, find_result(b, value));
  return VALUE_NONE;
}

/* ---- sums over the iterations ---- */

static bool is_built(const Backward *b) {
  return value_is(b->scan);
}

/* The order of dims has no meaning: a value and its transpose are one. */
static Value untransposed(const Graph *graph, Value value) {
  while (graph_node(graph, value)->op == OP_transpose)
    value = graph_node(graph, value)->inputs[0];
  return value;
}

static Value stack_of(Backward *b, Value value) {
  int at = 0;
  while (at < b->stacked.n &&
         !value_equal(untransposed(b->both, b->stacked.data[at]),
                      untransposed(b->both, value)))
    at++;
  if (at == b->stacked.n) vec_push(b->arena, &b->stacked, value);
  if (!is_built(b)) return VALUE_NONE;
  int first = b->n_adjoints + b->sums.n;
  return (Value){b->scan.node, first + at};
}

static Value sum_in_loop(Backward *b, Value value) {
  int at = add_value(b->arena, &b->sums, value);
  if (!is_built(b)) return VALUE_NONE;
  return (Value){b->scan.node, b->n_adjoints + at};
}

static Value append_like(Backward *b, const Node *node, const Value *inputs) {
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  return graph_append(b->graph, node->op, inputs, node->n_inputs, &attrs);
}

/* An operator over its dims and, if `is_longer`, the scanned one. */
static Value append_over(Backward *b, const Node *node, const Value *inputs,
                         bool is_longer) {
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  Name over[MAX_RANK + 1];
  int n = 0;
  const Name *names =
      node_has(node, ATTR_over) ? node_names(node, ATTR_over, &n) : NULL;
  for (int i = 0; i < n; i++) over[i] = names[i];
  if (is_longer) over[n++] = b->dim;
  attrs_names(&attrs, ATTR_over, over, n);
  return graph_append(b->graph, node->op, inputs, node->n_inputs, &attrs);
}

/* A value that does not vary, computed outside. */
static Value only_position(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  if (node->op == OP_input) return value_outside(b, value);
  Value *inputs = ARENA_ARRAY(b->arena, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = only_position(b, node->inputs[i]);
  Value copy = graph_copy_node(b->graph, b->both, value.node, inputs, false);
  return (Value){copy.node, value.result};
}

/* A value for all iterations, or the one value where it does not vary; stacked
 * by the backward scan if nothing else has it. */
static Value all_positions(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  if (!b->varies[value.node])
    return is_built(b) ? only_position(b, value) : VALUE_NONE;
  if (node->op == OP_transpose) return all_positions(b, node->inputs[0]);
  if (node->op == OP_rename && !is_saved(b, value.node)) {
    Value input = all_positions(b, node->inputs[0]);
    return is_built(b) ? append_like(b, node, &input) : VALUE_NONE;
  }
  bool is_given = node->op == OP_input || is_saved(b, value.node);
  int seed = seed_of(b, value.node);
  if (seed >= 0 && seed < b->n_carries) is_given = false;
  if (!is_given) return stack_of(b, value);
  return is_built(b) ? value_outside(b, value) : VALUE_NONE;
}

/* The sum over the iterations of a value that varies. */
static Value sum_of(Backward *b, Value value);

static Value sum_of_product(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  bool varies[2];
  Value operands[2];
  for (int i = 0; i < 2; i++) varies[i] = b->varies[node->inputs[i].node];
  bool both = varies[0] && varies[1];
  for (int i = 0; i < 2; i++)
    operands[i] = both || !varies[i] ? all_positions(b, node->inputs[i])
                                     : sum_of(b, node->inputs[i]);
  if (!is_built(b)) return VALUE_NONE;
  return append_over(b, node, operands, both);
}

/* A loop-invariant factor is hoisted out of the sum. */
static Value sum_of_scaled(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  Value operands[2];
  for (int i = 0; i < 2; i++)
    operands[i] = b->varies[node->inputs[i].node]
                      ? sum_of(b, node->inputs[i])
                      : all_positions(b, node->inputs[i]);
  return is_built(b) ? append_like(b, node, operands) : VALUE_NONE;
}

static bool both_vary(const Backward *b, const Node *node) {
  return b->varies[node->inputs[0].node] && b->varies[node->inputs[1].node];
}

static Value sum_of_terms(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  Value inputs[2];
  if (!both_vary(b, node)) return sum_in_loop(b, value);
  for (int i = 0; i < 2; i++) inputs[i] = sum_of(b, node->inputs[i]);
  return is_built(b) ? append_like(b, node, inputs) : VALUE_NONE;
}

static Value sum_of_operand(Backward *b, Value value) {
  return sum_of(b, graph_node(b->both, value)->inputs[0]);
}

static Value sum_of_one(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  Value input = sum_of(b, node->inputs[0]);
  return is_built(b) ? append_like(b, node, &input) : VALUE_NONE;
}

static Value sum_of_sum(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  Value input = all_positions(b, node->inputs[0]);
  return is_built(b) ? append_over(b, node, &input, true) : VALUE_NONE;
}

static Value sum_of_scatter(Backward *b, Value value) {
  const Node *node = graph_node(b->both, value);
  Value inputs[2];
  if (!both_vary(b, node)) return sum_in_loop(b, value);
  for (int i = 0; i < 2; i++) inputs[i] = all_positions(b, node->inputs[i]);
  return is_built(b) ? append_over(b, node, inputs, true) : VALUE_NONE;
}

static Value sum_of_factors(Backward *b, Value value) {
  return both_vary(b, graph_node(b->both, value)) ? sum_in_loop(b, value)
                                                  : sum_of_scaled(b, value);
}

typedef Value SumFunction(Backward *b, Value value);
static SumFunction *const sum_functions[N_OPS] = {
    [OP_add] = sum_of_terms,
    [OP_sub] = sum_of_terms,
    [OP_neg] = sum_of_one,
    [OP_rename] = sum_of_one,
    [OP_transpose] = sum_of_operand,
    [OP_sum] = sum_of_sum,
    [OP_scatter_add] = sum_of_scatter,
    [OP_dot] = sum_of_product,
    [OP_mul] = sum_of_factors,
};

static Value sum_of(Backward *b, Value value) {
  SumFunction *function = sum_functions[graph_node(b->both, value)->op];
  bool stays = !b->varies[value.node] || value.node < b->n_body;
  return stays || !function ? sum_in_loop(b, value) : function(b, value);
}

/* ---- the backward scan ---- */

static Value back_input(Backward *b, Role role, Name path, const Type *type,
                        Value given) {
  vec_push(b->arena, &b->inputs, given);
  return graph_input(b->back, role, path, type);
}

static Value import_value(Backward *b, Value value) {
  Value *known = &b->copies[value.node][value.result];
  if (value_is(*known)) return *known;
  const Node *node = graph_node(b->both, value);
  if (node->op == OP_input || is_saved(b, value.node)) {
    bool is_arg = node->op == OP_input && !b->varies[value.node];
    return *known =
               back_input(b, is_arg ? ROLE_arg : ROLE_slice, node->path,
                          node->types[value.result], value_outside(b, value));
  }
  Value *inputs = ARENA_ARRAY(b->arena, Value, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = import_value(b, node->inputs[i]);
  Value copy = graph_copy_node(b->back, b->both, value.node, inputs, false);
  for (int r = 0; r < node->n_results; r++)
    b->copies[value.node][r] = (Value){copy.node, r};
  return *known;
}

static void begin_back(Backward *b, Value *sums) {
  Names *names = b->graph->module->names;
  b->back = graph_like(b->both);
  b->copies = ARENA_ARRAY(b->arena, Value *, b->both->nodes.n);
  for (int id = 0; id < b->both->nodes.n; id++) {
    int n = b->both->nodes.data[id]->n_results;
    b->copies[id] = ARENA_ARRAY(b->arena, Value, n);
    for (int r = 0; r < n; r++) b->copies[id][r] = VALUE_NONE;
  }
  for (int i = 0; i < b->n_carries; i++) {
    if (!value_is(b->seeds[i])) continue;
    const GraphInput *input = &b->body->inputs.data[i];
    b->copies[b->seeds[i].node][0] =
        back_input(b, ROLE_carry, name_format(names, "grad.%s", input->path),
                   graph_type(b->body, input->value), cotangent_outside(b, i));
    b->n_adjoints++;
  }
  for (int i = 0; i < b->sums.n; i++) {
    const Type *type = graph_type(b->both, b->sums.data[i]);
    sums[i] = back_input(b, ROLE_carry, name_format(names, "sum.%d", i), type,
                         zeros_like(b->graph, type));
  }
}

static void end_back(Backward *b, const Value *sums) {
  Names *names = b->graph->module->names;
  for (int i = 0; i < b->n_carries; i++) {
    if (!value_is(b->seeds[i])) continue;
    graph_output(b->back, ROLE_carry,
                 name_format(names, "grad.%s", b->body->inputs.data[i].path),
                 import_value(b, b->roots[i]));
  }
  for (int i = 0; i < b->sums.n; i++) {
    Value more = import_value(b, b->sums.data[i]);
    graph_output(b->back, ROLE_carry, name_format(names, "sum.%d", i),
                 graph_op2(b->back, OP_add, sums[i], more));
  }
  for (int i = 0; i < b->stacked.n; i++)
    graph_output(b->back, ROLE_result,
                 graph_node(b->both, b->stacked.data[i])->path,
                 import_value(b, b->stacked.data[i]));
}

/* The gradients of values that are not carried: planned once, to find out what
 * the scan must give, and built when it is there. */
static void other_gradients(Backward *b, Value *out) {
  for (int i = b->n_carries; i < b->body->inputs.n; i++)
    if (value_is(b->roots[i]) && b->body->inputs.data[i].role == ROLE_slice)
      out[i] = stack_of(b, b->roots[i]);
  for (int i = b->n_carries; i < b->body->inputs.n; i++)
    if (value_is(b->roots[i]) && b->body->inputs.data[i].role == ROLE_arg)
      out[i] = sum_of(b, b->roots[i]);
}

void grad_scan(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  Backward b = differentiate_body(graph, node, cotangents);
  b.id = id;
  find_saved(&b);
  other_gradients(&b, out);
  Value *sums = ARENA_ARRAY(b.arena, Value, b.sums.n);
  begin_back(&b, sums);
  end_back(&b, sums);
  if (b.back->outputs.n == 0) return;
  ScanForm form = scan_form(node);
  form.is_reversed = !form.is_reversed;
  b.scan = scan_append(graph, form, b.inputs.data, b.back);
  other_gradients(&b, out);
  for (int i = 0, n = 0; i < b.n_carries; i++)
    if (value_is(b.seeds[i])) out[i] = (Value){b.scan.node, n++};
}
