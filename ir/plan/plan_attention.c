/*
 * plan_attention.c -- warns of an attention that a plan cuts in the middle.
 *
 *     %3 = dot %q, %k     stage 0: all T x S scores are sent
 *     %4 = softmax %3     stage 1
 *     %5 = dot %4, %v     stage 1
 *
 * An attention in one stage is one operator that stores no scores; one in
 * several stages is computed as it is written.  If queries, keys and values all
 * come from projections in other stages, three values are sent where one would
 * do.
 */
#include "ir/plan/pins.h"

#include <string.h>

typedef struct Attentions {
  Module *module;
  const Plan *plan;
  const Graph *graph;
  const uint16_t *stages; /* by node, counted from 1; 0: none */
  const bool *is_data;    /* by node: follows from data */
} Attentions;

static const Node *node_at(const Attentions *a, int id) {
  return a->graph->nodes.data[id];
}

/* Returns the product that a value follows from, itself or through pointwise
 * nodes and renames.  Returns -1 if there is none. */
static int product_of(const Attentions *a, int id) {
  const Node *node = node_at(a, id);
  bool goes_on = op_info(node->op)->is_pointwise || node->op == OP_rename ||
                 node->op == OP_cast;
  if (node->op == OP_dot) return id;
  for (int i = 0; i < node->n_inputs && goes_on; i++) {
    int from = node->inputs[i].node;
    int product = a->is_data[from] ? product_of(a, from) : -1;
    if (product >= 0) return product;
  }
  return -1;
}

/* Both operands follow from data: neither is a parameter. */
static bool is_of_data(const Attentions *a, int id) {
  const Node *node = node_at(a, id);
  return a->is_data[node->inputs[0].node] && a->is_data[node->inputs[1].node];
}

/* The softmax of an operand, itself or through pointwise nodes; -1: none. */
static int softmax_of(const Attentions *a, int id) {
  const Node *node = node_at(a, id);
  while (node->op != OP_softmax) {
    bool goes_on = op_info(node->op)->is_pointwise || node->op == OP_cast;
    if (!goes_on) return -1;
    int data = 0;
    while (data < node->n_inputs && !a->is_data[node->inputs[data].node])
      data++;
    if (data == node->n_inputs) return -1;
    id = node->inputs[data].node;
    node = node_at(a, id);
  }
  return id;
}

/* The line at which one of two stages ends or begins. */
static Span line_between(const Attentions *a, int one, int other) {
  const Plan *plan = a->plan;
  int low = one < other ? one : other, high = one < other ? other : one;
  bool is_rest =
      plan->places.n > 0 && plan->stages.data[high - 1].first_rank == 0;
  return plan->stages.data[(plan->has_cuts || is_rest ? low : high) - 1].span;
}

/* The layer of a node: its path without the last part. */
static const char *layer_of(const Attentions *a, int id) {
  Name path = graph_path(a->graph, id);
  const char *dot = strrchr(path, '.');
  return dot ? arena_printf(a->module->arena, "%.*s", (int)(dot - path), path)
             : path;
}

static void warn(const Attentions *a, int result, int from, DiagId kind) {
  int own = a->stages[result], other = a->stages[from];
  Diag *d = diag(a->module->diags, kind, line_between(a, own, other),
                 layer_of(a, result), other - 1, own - 1);
  diag_help(d, "put all of '%s' into one stage", layer_of(a, result));
}

/* Returns whether the queries, keys and values come from products in other
 * stages than `own`; `out` is the one of the values. */
static bool are_sent(const Attentions *a, int scores, int value, int own,
                     int *out) {
  const Node *node = node_at(a, scores);
  int from[3] = {product_of(a, node->inputs[0].node),
                 product_of(a, node->inputs[1].node), product_of(a, value)};
  for (int i = 0; i < 3; i++)
    if (from[i] < 0 || a->stages[from[i]] == own || is_of_data(a, from[i]))
      return false;
  *out = from[2];
  return true;
}

static void check_product(const Attentions *a, int id) {
  const Node *node = node_at(a, id);
  for (int i = 0; i < 2; i++) {
    int softmax = softmax_of(a, node->inputs[i].node);
    int scores =
        softmax < 0 ? -1 : product_of(a, node_at(a, softmax)->inputs[0].node);
    int own = a->stages[id], projection;
    if (scores < 0 || !is_of_data(a, scores)) continue;
    if (a->stages[softmax] != own)
      warn(a, id, softmax, DIAG_attention_cut);
    else if (a->stages[scores] != own)
      warn(a, id, scores, DIAG_attention_cut);
    else if (are_sent(a, scores, node->inputs[1 - i].node, own, &projection))
      warn(a, id, projection, DIAG_attention_apart);
    return;
  }
}

void plan_warn_attention(Module *module, const Pins *pins, const Plan *plan) {
  if (plan->stages.n <= 1) return;
  const Graph *graph = plan_paths_graph(pins->paths);
  StageFault fault;
  Attentions a = {module, plan, graph,
                  stage_labels(module->arena, graph, plan->stage_of, &fault),
                  graph_data_nodes(graph, module->arena)};
  for (int id = 0; id < graph->nodes.n && a.stages; id++)
    if (node_at(&a, id)->op == OP_dot && is_of_data(&a, id))
      check_product(&a, id);
}
