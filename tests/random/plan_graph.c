/*
 * plan_graph.c -- finds what the lines of a plan can be about: the dims, values
 * and operators of a graph, before all passes.
 */
#include "tests/random/plan_maker.h"

#include <string.h>

#include "ir/place/shardrule.h"

bool is_plan_name(const char *text) {
  return !strpbrk(text, "!~. ");
}

bool has_plan_dim(const Type *type, const char *dim) {
  for (int d = 0; d < type->rank; d++)
    if (!strcmp(type->dims[d].name, dim)) return true;
  return false;
}

const char *plan_path(const PlanMaker *m, int id) {
  const Node *node = m->graph->nodes.data[id];
  return node->op == OP_input
             ? m->graph->inputs.data[node_int(node, ATTR_index, 0)].path
             : node->path;
}

/* ---- dims ---- */

PlanDim *find_plan_dim(PlanMaker *m, const char *name) {
  for (int i = 0; i < m->dims.n; i++)
    if (!strcmp(m->dims.data[i].name, name)) return &m->dims.data[i];
  return NULL;
}

static void add_plan_dim(PlanMaker *m, const Dim *dim) {
  if (!strcmp(dim->name, m->subject->batch) || !is_plan_name(dim->name)) return;
  PlanDim *known = find_plan_dim(m, dim->name);
  if (known)
    known->size = common_divisor(known->size, dim->size);
  else
    vec_push(m->arena, &m->dims, ((PlanDim){dim->name, dim->size}));
}

static bool has_plain_dims(const Type *type) {
  for (int d = 0; d < type->rank; d++)
    if (!is_plan_name(type->dims[d].name)) return false;
  return type->rank > 0;
}

/* A sum over all samples that leaves a number is the loss, or a term of it;
 * unless the loss is divided by it, as by the number of targets that count. */
static void look_at_samples(PlanMaker *m, const Node *node) {
  bool is_loss = node->path && !strncmp(node->path, "loss", 4);
  m->needs_all_samples |= node->op == OP_batchnorm || node->op == OP_route;
  m->joins_samples |= node->op == OP_div &&
                      graph_type(m->graph, node->inputs[1])->rank == 0 &&
                      graph_node(m->graph, node->inputs[1])->n_inputs > 0;
  for (int i = 0; i < node->n_inputs && !is_loss; i++)
    m->joins_samples |= node->types[0]->rank > 0 &&
                        has_plan_dim(graph_type(m->graph, node->inputs[i]),
                                     m->subject->batch) &&
                        !has_plan_dim(node->types[0], m->subject->batch);
}

/* ---- values ---- */

/* Facts about the nodes of a graph, by number. */
typedef struct PlanNodes {
  bool *is_last;        /* of the nodes of its path, which pins place */
  bool *feeds_softmax;  /* through pointwise operators alone */
  bool *is_read_linear; /* it has readers, and all are linear */
  bool *depends;        /* on an input */
  bool *is_live;        /* an output depends on it */
} PlanNodes;

static bool is_linear_reader(const Graph *graph, const Node *reader) {
  ShardCall call = shard_call(graph, reader);
  return reader->op == OP_cast || op_has(reader->op, OP_FLAG_exact) ||
         shard_linearity(&call) != LINEAR_no;
}

/* Both products of attention become a part of it, and all between them. */
static bool may_be_attention(const Graph *graph, const PlanNodes *nodes,
                             int id) {
  const Node *node = graph->nodes.data[id];
  bool reads_softmax = false;
  for (int i = 0; i < node->n_inputs; i++)
    reads_softmax |= graph_node(graph, node->inputs[i])->op == OP_softmax;
  return reads_softmax || nodes->feeds_softmax[id];
}

static void look_at_readers(const Graph *graph, PlanNodes *nodes) {
  for (int i = 0; i < graph->outputs.n; i++)
    nodes->is_live[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool feeds = node->op == OP_softmax ||
                 (nodes->feeds_softmax[id] && op_info(node->op)->is_pointwise);
    bool is_linear =
        is_linear_reader(graph, node) && !may_be_attention(graph, nodes, id);
    for (int i = 0; i < node->n_inputs; i++) {
      int from = node->inputs[i].node;
      nodes->is_live[from] |= nodes->is_live[id];
      nodes->feeds_softmax[from] |= feeds;
      nodes->is_read_linear[from] &= is_linear;
    }
  }
}

static PlanNodes nodes_of(PlanMaker *m) {
  const Graph *graph = m->graph;
  PlanNodes nodes = {ARENA_ARRAY(m->arena, bool, graph->nodes.n),
                     ARENA_ARRAY(m->arena, bool, graph->nodes.n),
                     ARENA_ARRAY(m->arena, bool, graph->nodes.n),
                     ARENA_ARRAY(m->arena, bool, graph->nodes.n),
                     ARENA_ARRAY(m->arena, bool, graph->nodes.n)};
  Map *seen = map_create(m->arena);
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    nodes.is_last[id] = node->path && !map_has(seen, node->path);
    if (node->path) map_put(seen, node->path, (void *)node);
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    nodes.depends[id] = node->op == OP_input;
    for (int i = 0; i < node->n_inputs; i++) {
      nodes.depends[id] |= nodes.depends[node->inputs[i].node];
      nodes.is_read_linear[node->inputs[i].node] = true;
    }
  }
  look_at_readers(graph, &nodes);
  return nodes;
}

/* ---- operators ---- */

/* A product without a name: "block.attn.dot[0]" or "dot". */
static bool is_operator_path(Name path) {
  const char *dot = strrchr(path, '.');
  return !strncmp(dot ? dot + 1 : path, "dot", 3);
}

static bool has_plan_path(const PlanMaker *m, const PlanNodes *nodes, int id) {
  const Node *node = m->graph->nodes.data[id];
  const char *path = plan_path(m, id);
  return path && *path && !strchr(path, '!') &&
         (node->op == OP_input || nodes->is_last[id]) &&
         has_plain_dims(node->types[0]);
}

static void look_at_windows(PlanMaker *m, const PlanNodes *nodes,
                            const Node *node) {
  bool slides = node->op == OP_conv || node->op == OP_conv_input_grad ||
                node->op == OP_maxpool || node->op == OP_avgpool;
  int n = 0;
  if (!slides || !has_plan_path(m, nodes, node->inputs[0].node)) return;
  const Name *space = node_names(node, ATTR_space, &n);
  for (int i = 0; i < n; i++)
    if (has_plan_dim(graph_type(m->graph, node->inputs[0]), space[i]))
      vec_push(m->arena, &m->windows,
               ((PlanWindow){node->inputs[0].node, space[i]}));
}

static void look_at_node(PlanMaker *m, const PlanNodes *nodes, int id) {
  const Node *node = m->graph->nodes.data[id];
  const Type *type = node->types[0];
  for (int d = 0; d < type->rank; d++) add_plan_dim(m, &type->dims[d]);
  look_at_samples(m, node);
  if (!nodes->is_live[id]) return;
  look_at_windows(m, nodes, node);
  if (!has_plain_dims(type) || !node->path || !*node->path) return;
  if (strchr(node->path, '!')) return;
  if (node->op == OP_dot && is_operator_path(node->path) &&
      !may_be_attention(m->graph, nodes, id))
    vec_push(m->arena, &m->products, id);
  if (node->op != OP_input) {
    bool is_inside = nodes->feeds_softmax[id] || node->op == OP_softmax;
    if (m->subject->queries && is_inside) return;
    vec_push(m->arena, &m->values, id);
    if (nodes->is_last[id] && nodes->is_read_linear[id] && nodes->depends[id] &&
        dtype_class(type->dtype) == CLASS_FLOAT)
      vec_push(m->arena, &m->sums, id);
    return;
  }
  Role role = m->graph->inputs.data[node_int(node, ATTR_index, 0)].role;
  if (role == ROLE_param) vec_push(m->arena, &m->parameters, id);
}

void look_at_graph(PlanMaker *m) {
  PlanNodes nodes = nodes_of(m);
  for (int id = 0; id < m->graph->nodes.n; id++) look_at_node(m, &nodes, id);
}
