/*
 * verify.c -- checks that a graph is as every pass may assume it to be.
 *
 * It runs between passes in tests and on graphs that were read from text.  It
 * assumes only that pointers are valid; every violation is one line of text.
 * Types are inferred anew and compared up to placement; dim order counts only
 * where an operator shares or defines storage.
 */
#include "ir/ir.h"

#include <stdarg.h>

typedef struct Verifier {
  const Graph *graph;
  Text *out;
  Arena *scratch;
  int n_errors;
} Verifier;

static void PRINTF_LIKE(3, 4)
    violated(Verifier *v, int id, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const char *text = arena_vprintf(v->scratch, format, args);
  va_end(args);
  v->n_errors++;
  text_printf(v->out, "graph %s", v->graph->name ? v->graph->name : "");
  if (id >= 0) {
    const Node *node = v->graph->nodes.data[id];
    text_printf(v->out, ", node %d, %s", id, op_info(node->op)->name);
    Name path = graph_path(v->graph, id);
    if (*path) {
      text_add(v->out, " ");
      text_add_json(v->out, path);
    }
  }
  text_printf(v->out, ": %s\n", text);
}

static const char *verifier_type_text(Verifier *v, const Type *type) {
  Text text = text_create(v->scratch);
  type_print(&text, type, &v->graph->mesh);
  return text_string(&text);
}

/* ---- types ---- */

/* An axis may stand once in a type, and must be one of the mesh. */
static bool placement_holds(const Mesh *mesh, const Type *type) {
  AxisSet used = type->partial;
  if (used >> mesh->n_axes) return false;
  for (int i = 0; i < type->rank; i++) {
    for (AxisList list = type->dims[i].split; list; list >>= 4) {
      int axis = (int)(list & 15) - 1;
      if (axis < 0 || axis >= mesh->n_axes || used >> axis & 1) return false;
      used |= (AxisSet)(1u << axis);
    }
  }
  return true;
}

static void verify_type(Verifier *v, int id, const Type *type) {
  if ((unsigned)type->dtype >= N_DTYPES || type->rank > MAX_RANK) {
    violated(v, id, "a type of unknown dtype or too many dims");
    return;
  }
  if (!placement_holds(&v->graph->mesh, type)) {
    violated(v, id, "a placement uses an axis twice or one that is not there");
    return;
  }
  for (int i = 0; i < type->rank; i++) {
    if (type->dims[i].size < 1) violated(v, id, "a dim of size 0 or less");
    if (type_find(type, type->dims[i].name) != i) {
      violated(v, id, "dim '%s' twice", type->dims[i].name);
    }
  }
}

/* ---- nodes ---- */

static bool verify_inputs(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  const OpInfo *info = op_info(node->op);
  int n = node->n_inputs;
  if (n < info->min_inputs || (info->max_inputs >= 0 && n > info->max_inputs)) {
    violated(v, id, "%d inputs", n);
    return false;
  }
  for (int i = 0; i < n; i++) {
    Value value = node->inputs[i];
    if (value.node < 0 || value.node >= id) {
      violated(v, id, "input %d comes from node %d, which is not earlier", i,
               value.node);
      return false;
    }
    if (value.result < 0 ||
        value.result >= v->graph->nodes.data[value.node]->n_results) {
      violated(v, id, "input %d is result %d of node %d, which has fewer", i,
               value.result, value.node);
      return false;
    }
  }
  return true;
}

static void verify_attrs(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  for (int i = 1; i < node->n_attrs; i++) {
    if (node->attrs[i - 1].key >= node->attrs[i].key) {
      violated(v, id, "attributes are not sorted or stand twice");
    }
  }
}

/* Views share bytes and a transpose says its order: there the order counts. */
static bool order_counts(Op op) {
  return op_is(op, OPCLASS_view) || op == OP_transpose;
}

static void verify_inferred(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  Attrs attrs = {.n = node->n_attrs};
  if (node->n_attrs > ARRAY_LENGTH(attrs.items)) {
    violated(v, id, "too many attributes");
    return;
  }
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  const Type **types = ARENA_ARRAY(v->scratch, const Type *, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    types[i] = graph_type(v->graph, node->inputs[i]);
  }
  OpCall call = {node->op, node->n_inputs, types, &attrs, NULL};
  const Type *inferred[8] = {0};
  Module *module = module_apart(v->graph->module, v->scratch);
  int n = op_infer(module, &call, SPAN_NONE, inferred);
  if (n < 0) {
    Text text = text_create(v->scratch);
    diags_print(module->diags, &text);
    violated(v, id, "its rule does not hold\n%s", text_string(&text));
  } else if (n != node->n_results) {
    violated(v, id, "%d results, not %d", node->n_results, n);
  }
  for (int i = 0; i < n && n == node->n_results; i++) {
    const Type *is = node->types[i], *must = inferred[i];
    bool agrees = order_counts(node->op) ? type_same_shape(is, must)
                                         : type_same_dims(is, must);
    if (!agrees || is->dtype != must->dtype) {
      violated(v, id, "result %d is %s, its rule says %s", i,
               verifier_type_text(v, is), verifier_type_text(v, must));
    }
  }
}

/* A collective changes placements and nothing else. */
static void verify_collective(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  if (node->n_results != node->n_inputs) {
    violated(v, id, "%d inputs but %d results", node->n_inputs,
             node->n_results);
    return;
  }
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *in = graph_type(v->graph, node->inputs[i]);
    const Type *out = node->types[i];
    bool agrees = op_has(node->op, OP_FLAG_moves_front)
                      ? type_same_dims(in, out)
                      : type_same_shape(in, out);
    if (!agrees || in->dtype != out->dtype) {
      violated(v, id, "input %d is %s, its result %s", i,
               verifier_type_text(v, in), verifier_type_text(v, out));
    }
  }
}

static void verify_input_node(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  int64_t slot = node_int(node, ATTR_index, -1);
  if (slot < 0 || slot >= v->graph->inputs.n) {
    violated(v, id, "slot %lld of %d", (long long)slot, v->graph->inputs.n);
  } else if (!value_equal(v->graph->inputs.data[slot].value, (Value){id, 0})) {
    violated(v, id, "slot %lld belongs to another node", (long long)slot);
  }
}

/* ---- regions ---- */

static void verify_same_type(Verifier *v, int id, const char *what, int index,
                             const Type *outside, const Type *inside) {
  if (type_same_shape(outside, inside) && outside->dtype == inside->dtype) {
    return;
  }
  violated(v, id, "%s %d is %s, in the body %s", what, index,
           verifier_type_text(v, outside), verifier_type_text(v, inside));
}

/* A slice or a stacked result has the scanned dim in front. */
static void verify_position(Verifier *v, int id, const char *what, int index,
                            const Type *outside, const Type *inside) {
  const Node *node = v->graph->nodes.data[id];
  if (type_find(inside, node_name(node, ATTR_dim)) >= 0) {
    violated(v, id, "%s %d has the scanned dim in the body", what, index);
    return;
  }
  verify_same_type(v, id, what, index, outside,
                   scan_stacked_type(v->scratch, inside,
                                     node_name(node, ATTR_dim),
                                     scan_steps(node)));
}

static void verify_carries(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  const Graph *body = node->body;
  int n = scan_carries(node);
  for (int i = 0; i < body->inputs.n; i++)
    if (body->inputs.data[i].role == ROLE_carry && i >= n)
      violated(v, id, "carry %d does not come first", i);
  for (int i = 0; i < body->outputs.n; i++) {
    const GraphOutput *output = &body->outputs.data[i];
    if ((output->role == ROLE_carry) != (i < n)) {
      violated(v, id, "result %d %s a carry", i, i < n ? "is not" : "is");
    } else if (i < n) {
      const GraphInput *input = &body->inputs.data[i];
      if (input->path != output->path)
        violated(v, id, "carry \"%s\" becomes \"%s\"", input->path,
                 output->path);
      verify_same_type(v, id, "carry", i, graph_type(body, input->value),
                       graph_type(body, output->value));
    }
  }
  if (body->outputs.n < n) violated(v, id, "fewer results than carries");
}

static void verify_scan(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  const Graph *body = node->body;
  int n_sizes = 0;
  if (node_has(node, ATTR_sizes)) node_ints(node, ATTR_sizes, &n_sizes);
  if (!node_has(node, ATTR_dim) || n_sizes != 1 || scan_steps(node) < 1) {
    violated(v, id, "no dim or no number of iterations");
    return;
  }
  int before = v->n_errors;
  verify_carries(v, id);
  if (v->n_errors > before) return;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *outside = graph_type(v->graph, node->inputs[i]);
    const Type *inside = graph_type(body, body->inputs.data[i].value);
    if (scan_input_role(node, i) == ROLE_slice)
      verify_position(v, id, "input", i, outside, inside);
    else
      verify_same_type(v, id, "input", i, outside, inside);
  }
  for (int i = 0; i < node->n_results; i++) {
    const Type *inside = graph_type(body, body->outputs.data[i].value);
    if (i < scan_carries(node))
      verify_same_type(v, id, "result", i, node->types[i], inside);
    else
      verify_position(v, id, "result", i, node->types[i], inside);
  }
}

static void verify_body(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  const Graph *body = node->body;
  bool is_region = node->op == OP_fused || node->op == OP_scan;
  if (is_region != (body != NULL)) {
    violated(v, id, body ? "a body" : "no body");
    return;
  }
  if (!body) return;
  if (!graph_verify(body, v->out)) {
    v->n_errors++;
    return;
  }
  if (body->inputs.n != node->n_inputs || body->outputs.n != node->n_results) {
    violated(v, id, "%d inputs and %d results, in the body %d and %d",
             node->n_inputs, node->n_results, body->inputs.n, body->outputs.n);
    return;
  }
  if (node->op == OP_scan) {
    verify_scan(v, id);
    return;
  }
  for (int i = 0; i < node->n_inputs; i++) {
    const GraphInput *input = &body->inputs.data[i];
    if (input->role != ROLE_arg) violated(v, id, "body input %d is no arg", i);
    verify_same_type(v, id, "input", i, graph_type(v->graph, node->inputs[i]),
                     graph_type(body, input->value));
  }
  for (int i = 0; i < node->n_results; i++) {
    verify_same_type(v, id, "result", i, node->types[i],
                     graph_type(body, body->outputs.data[i].value));
  }
}

static void verify_node(Verifier *v, int id) {
  const Node *node = v->graph->nodes.data[id];
  int before = v->n_errors;
  if ((unsigned)node->op >= N_OPS) {
    v->n_errors++;
    text_printf(v->out, "node %d: no such operator\n", id);
    return;
  }
  if (node->n_results < 1) violated(v, id, "no results");
  for (int i = 0; i < node->n_results; i++) verify_type(v, id, node->types[i]);
  verify_attrs(v, id);
  if (!verify_inputs(v, id) || v->n_errors > before) return;
  if (node->op == OP_input) verify_input_node(v, id);
  if (op_is(node->op, OPCLASS_collective)) verify_collective(v, id);
  if (op_info(node->op)->infer) verify_inferred(v, id);
  verify_body(v, id);
}

/* ---- the ends of the graph ---- */

static bool value_exists(const Graph *graph, Value value) {
  return value.node >= 0 && value.node < graph->nodes.n && value.result >= 0 &&
         value.result < graph->nodes.data[value.node]->n_results;
}

/* True if the path was seen before; one map a role. */
static bool seen_before(Verifier *v, Map **seen, Role role, Name path) {
  if (!seen[role]) seen[role] = map_create(v->scratch);
  if (map_has(seen[role], path)) return true;
  map_put(seen[role], path, v);
  return false;
}

/* Arguments and results of bodies go by their place, others by their path. */
static void verify_ends(Verifier *v) {
  const Graph *graph = v->graph;
  Map *inputs[N_ROLES] = {0}, *outputs[N_ROLES] = {0};
  for (int i = 0; i < graph->inputs.n; i++) {
    const GraphInput *input = &graph->inputs.data[i];
    if (!value_exists(graph, input->value) ||
        graph->nodes.data[input->value.node]->op != OP_input) {
      violated(v, -1, "input %d is no input node", i);
    }
    if (input->role != ROLE_arg && input->role != ROLE_slice &&
        seen_before(v, inputs, input->role, input->path)) {
      violated(v, -1, "%s \"%s\" twice among the inputs",
               role_name(input->role), input->path);
    }
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    if (!value_exists(graph, output->value)) {
      violated(v, -1, "output %d is no value", i);
    }
    if (output->role != ROLE_result &&
        seen_before(v, outputs, output->role, output->path)) {
      violated(v, -1, "%s \"%s\" twice among the outputs",
               role_name(output->role), output->path);
    }
  }
}

bool graph_verify(const Graph *graph, Text *out_errors) {
  Arena *scratch = arena_create(graph->module->memory);
  Verifier v = {.graph = graph, .out = out_errors, .scratch = scratch};
  for (int id = 0; id < graph->nodes.n && v.n_errors < 100; id++) {
    verify_node(&v, id);
  }
  verify_ends(&v);
  arena_destroy(scratch);
  return v.n_errors == 0;
}
