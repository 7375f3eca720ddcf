/*
 * figures.c -- turns counts into the figures of ir/work.h: the default is what
 * was counted, and each row of rules.def changes it by one function here.
 */
#include "tests/count/figures.h"

#include <string.h>

/* ---- the node at local sizes ---- */

/* The types of a region keep no splits; other operators ask for positions. */
static const Type *counted_type(const CountedNode *c, const Type *type) {
  Op op = c->graph->nodes.data[c->id]->op;
  if (op_is(op, OPCLASS_collective)) return type_logical(c->arena, type);
  const Type *local = type_local(c->arena, type, &c->graph->mesh);
  return op_is(op, OPCLASS_region) ? type_logical(c->arena, local) : local;
}

/* The graph with the types that are counted; ids stay. */
static Graph *local_graph(const CountedNode *c, const Graph *from) {
  Graph *graph = graph_create(from->module, from->name);
  for (int id = 0; id < from->nodes.n; id++) {
    const Node *node = from->nodes.data[id];
    const Type **types = ARENA_ARRAY(c->arena, const Type *, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      types[r] = counted_type(c, node->types[r]);
    if (node->op == OP_input) {
      int i = 0;
      while (from->inputs.data[i].value.node != id) i++;
      graph_input(graph, from->inputs.data[i].role, from->inputs.data[i].path,
                  types[0]);
      continue;
    }
    Attrs attrs = {.n = node->n_attrs};
    for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
    Graph *body = node->body ? local_graph(c, node->body) : NULL;
    graph_append_typed(graph, node->op, node->inputs, node->n_inputs, &attrs,
                       types, node->n_results, body);
  }
  for (int i = 0; i < from->outputs.n; i++)
    graph_output(graph, from->outputs.data[i].role, from->outputs.data[i].path,
                 from->outputs.data[i].value);
  return graph;
}

/* Positive floats; integers from 0 to 3. */
static Tensor made_up(const CountedNode *c, const Type *type, uint64_t key) {
  int64_t n = type_elements(type);
  double *data = ARENA_ARRAY(c->arena, double, n + 1);
  for (int64_t i = 0; i < n; i++) {
    double u = random_uniform(key, (uint64_t)i);
    data[i] = dtype_class(type->dtype) == CLASS_FLOAT ? 0.1 + u
              : dtype_class(type->dtype) == CLASS_BOOL
                  ? (double)(u < 0.5)
                  : (double)(int)(3.99 * u);
  }
  return (Tensor){.type = type, .data = data};
}

/* ---- figures without rules ---- */

static int64_t bytes_of(const Type *type, int64_t n) {
  return n * dtype_size_bytes(type->dtype);
}

static const Type *operand_type(const CountedNode *c, int i) {
  return c->inputs[i].type;
}

static bool is_repeated(const CountedNode *c, int i) {
  for (int k = 0; k < i; k++)
    if (value_equal(c->node->inputs[k], c->node->inputs[i])) return true;
  return false;
}

static int64_t read_elements(const CountedOperand *operand) {
  if (operand->n_read > 0) return operand->n_read;
  return operand->n_rows < operand->n_elements ? operand->n_rows
                                               : operand->n_elements;
}

static void count_again(CountedNode *c, const Node *node) {
  bool is_logical =
      op_is(node->op, OPCLASS_collective) || op_is(node->op, OPCLASS_region);
  count_node(c->local, node, is_logical ? NULL : &c->place, c->inputs,
             c->result_types, c->arena, &c->count);
  c->figures = (Figures){.flops = c->count.flops};
  for (int i = 0; i < node->n_inputs; i++)
    if (!is_repeated(c, i))
      c->figures.read +=
          bytes_of(operand_type(c, i), read_elements(&c->count.operands[i]));
  for (int r = 0; r < node->n_results; r++)
    c->figures.written +=
        bytes_of(c->result_types[r], c->count.results[r].n_written);
}

/* ---- rules ---- */

typedef void WorkRule(CountedNode *c);

static void rule_nothing(CountedNode *c) {
  c->figures = (Figures){0};
}

static void rule_padding(CountedNode *c) {
  c->figures.flops += c->count.padding;
}

static void rule_whole(CountedNode *c) {
  c->figures.read = 0;
  for (int i = 0; i < c->node->n_inputs; i++)
    c->figures.read +=
        bytes_of(operand_type(c, i), c->count.operands[i].n_elements);
}

static int64_t result_bytes(const CountedNode *c) {
  int64_t bytes = 0;
  for (int r = 0; r < c->node->n_results; r++)
    bytes += bytes_of(c->result_types[r], c->count.results[r].n_elements);
  return bytes;
}

static void rule_zeros(CountedNode *c) {
  c->figures.written = result_bytes(c);
}

static void rule_first(CountedNode *c) {
  c->figures.flops += (double)c->count.results[0].n_written;
}

static void rule_products(CountedNode *c) {
  double row_sums =
      c->node->op == OP_attention_grad ? c->count.n_products_with[3] : 0;
  c->figures.flops = 2 * (c->count.n_added_products - row_sums);
}

/* Without `causal`, and all keys count. */
static void rule_unmasked(CountedNode *c) {
  Node node = *c->node;
  Attr *attrs = ARENA_ARRAY(c->arena, Attr, node.n_attrs);
  node.n_attrs = 0;
  for (int i = 0; i < c->node->n_attrs; i++)
    if (c->node->attrs[i].key != ATTR_causal)
      attrs[node.n_attrs++] = c->node->attrs[i];
  node.attrs = attrs;
  int64_t n_keys = type_size(operand_type(c, 1), node_name(&node, ATTR_key));
  int n_tensors = node.op == OP_attention ? 3 : 6;
  if (node.n_inputs > n_tensors) {
    Tensor *counts = &c->inputs[n_tensors];
    for (int64_t i = 0; i < type_elements(counts->type); i++)
      counts->data[i] = (double)n_keys;
  }
  count_again(c, &node);
}

static void rule_weighted(CountedNode *c) {
  int n;
  bool has_weights = node_ints(c->node, ATTR_window, &n)[0] > 0;
  c->figures.flops = has_weights ? 2 * c->count.n_added_products : 0;
}

static void rule_row(CountedNode *c) {
  int64_t row = bytes_of(operand_type(c, 1), c->count.operands[1].n_moved);
  c->figures.written = row;
  c->figures.read =
      row + bytes_of(operand_type(c, 2), c->count.operands[2].n_read);
}

/* One comparison of a network, which leaves the smaller element first. */
static void exchange(double *row, int64_t n, int64_t first, int64_t second,
                     double *comparisons) {
  if (second >= n) return;
  double a = row[first], b = row[second];
  if (a > b) row[first] = b, row[second] = a;
  ++*comparisons;
}

/* Batcher's network with a mirror as the first stage of each merge. */
static void rule_network(CountedNode *c) {
  const Type *type = operand_type(c, 0);
  int64_t n = type_size(type, node_name(c->node, ATTR_dim));
  int64_t rows = type_elements(type) / n;
  double *row = c->inputs[0].data, comparisons = 0;
  for (int64_t run = 1; run < n; run *= 2) {
    for (int64_t i = 0; i < n; i++) {
      int64_t mirror = i / (2 * run) * (2 * run) + 2 * run - 1 - i % (2 * run);
      if (i < mirror) exchange(row, n, i, mirror, &comparisons);
    }
    for (int64_t d = run / 2; d >= 1; d /= 2)
      for (int64_t i = 0; i < n; i++)
        if (i % (2 * d) < d) exchange(row, n, i, i + d, &comparisons);
  }
  for (int64_t i = 1; i < n; i++) ASSERT(row[i - 1] <= row[i]);
  c->figures.flops = (double)rows * comparisons;
}

static void rule_decomposed(CountedNode *c) {
  Graph *graph = graph_create(c->graph->module, c->graph->name);
  Value inputs[COUNT_OPERANDS], results[COUNT_OPERANDS];
  for (int i = 0; i < c->node->n_inputs; i++)
    inputs[i] =
        graph_input(graph, ROLE_data, c->graph->name, operand_type(c, i));
  op_info(c->node->op)->decompose(graph, c->local, c->id, inputs, results);
  for (int r = 0; r < c->node->n_results; r++)
    graph_output(graph, ROLE_metric, c->graph->name, results[r]);
  c->figures.flops = count_graph_flops(graph, c->inputs, c->arena);
}

static bool is_held(const CountedNode *c, const Type *type, int64_t element) {
  return logical_to_local(&c->place, type, type, element) >= 0;
}

/* The elements of the logical values that the rank holds: of a group what it
 * sends and what it has in the end, otherwise what it moves. */
static void rule_shard(CountedNode *c) {
  const Node *placed = c->graph->nodes.data[c->id];
  bool is_group = op_has(placed->op, OP_FLAG_group);
  c->figures = (Figures){0};
  for (int r = 0; r < placed->n_results; r++) {
    const CountedResult *result = &c->count.results[r];
    for (int64_t k = 0; k < result->n_elements; k++) {
      ASSERT(result->from[k] >= 0);
      const Type *from = graph_type(c->graph, placed->inputs[result->from[k]]);
      bool has_source = is_held(c, from, result->at[k]);
      bool has_result = is_held(c, placed->types[r], k);
      if (has_source && (is_group || has_result))
        c->figures.read += bytes_of(from, 1);
      if (has_result && (is_group || has_source))
        c->figures.written += bytes_of(from, 1);
    }
  }
}

static void rule_added(CountedNode *c) {
  c->figures.flops +=
      (double)c->figures.written / dtype_size_bytes(c->result_types[0]->dtype);
  c->figures.read += c->figures.written;
}

static void rule_joined(CountedNode *c) {
  if (node_joins_microbatches(c->node)) c->figures.read += c->figures.written;
}

static void apply_rules(CountedNode *c) {
  static const struct {
    Op op;
    WorkRule *rule;
  } rules[] = {
#define WORK_RULE(op, rule, why) {OP_##op, rule_##rule},
#include "tests/count/rules.def"
  };
  for (int i = 0; i < ARRAY_LENGTH(rules); i++)
    if (rules[i].op == c->node->op) rules[i].rule(c);
}

CountedNode count_placed_node(const Graph *graph, int id, Arena *arena) {
  CountedNode c = {.graph = graph,
                   .id = id,
                   .place = mesh_place(&graph->mesh, 0, 0),
                   .arena = arena};
  c.local = local_graph(&c, graph);
  c.node = c.local->nodes.data[id];
  c.result_types = ARENA_ARRAY(arena, const Type *, c.node->n_results);
  for (int r = 0; r < c.node->n_results; r++)
    c.result_types[r] = c.node->types[r];
  c.inputs = ARENA_ARRAY(arena, Tensor, c.node->n_inputs);
  for (int i = 0; i < c.node->n_inputs; i++)
    c.inputs[i] = made_up(&c, graph_type(c.local, c.node->inputs[i]),
                          (uint64_t)(31 * id + i));
  count_again(&c, c.node);
  apply_rules(&c);
  return c;
}

/* ---- comparing ---- */

static bool is_figure(Text *out, const char *name, double got, double wanted) {
  if (got == wanted) return true;
  text_printf(out, "%s %.17g, counted %.17g; ", name, got, wanted);
  return false;
}

static double operand_elements(const CountedNode *c, int i) {
  return (double)c->count.operands[i].n_elements;
}

/* The three numbers of a contraction from the sizes of what it reads and
 * writes, and from its operations. */
static void check_shape(const CountedNode *c, const Work *work, Text *out) {
  double batch = (double)work->batch, m = (double)work->m, n = (double)work->n,
         k = (double)work->k;
  double y = (double)c->count.results[0].n_elements;
  bool is_contraction = op_is(c->node->op, OPCLASS_contraction);
  is_figure(out, "2 batch m n k", 2 * batch * m * n * k,
            is_contraction ? c->figures.flops : 0);
  is_figure(out, "padding", work->padding,
            is_contraction ? c->count.padding : 0);
  switch (c->node->op) {
  case OP_dot:
    is_figure(out, "batch m k", batch * m * k, operand_elements(c, 0));
    is_figure(out, "batch n k", batch * n * k, operand_elements(c, 1));
    is_figure(out, "batch m n", batch * m * n, y);
    break;
  case OP_conv:
    is_figure(out, "batch n k", batch * n * k, operand_elements(c, 1));
    is_figure(out, "batch m n", batch * m * n, y);
    break;
  case OP_conv_input_grad:
    is_figure(out, "batch m k", batch * m * k, operand_elements(c, 0));
    is_figure(out, "batch n k", batch * n * k, operand_elements(c, 1));
    break;
  case OP_conv_weight_grad:
    is_figure(out, "batch m k", batch * m * k, operand_elements(c, 1));
    is_figure(out, "batch m n", batch * m * n, y);
    break;
  case OP_attention:
  case OP_attention_grad:
    is_figure(out, "batch m n", batch * m * n, c->count.n_exponentials);
    break;
  default: break;
  }
}

const char *count_difference(const CountedNode *c, const Work *work) {
  Text out = text_create(c->arena);
  is_figure(&out, "flops", work->flops, c->figures.flops);
  is_figure(&out, "read", (double)work->read, (double)c->figures.read);
  is_figure(&out, "written", (double)work->written, (double)c->figures.written);
  check_shape(c, work, &out);
  return out.n > 0 ? text_string(&out) : NULL;
}
