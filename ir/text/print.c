/*
 * print.c -- prints graphs as text (the head of ir.h describes the form).
 *
 * Everything that graph_parse needs to build the same graph is printed, but
 * spans: they point into a source that the text does not have.
 */
#include "ir/ir.h"

static void print_list_of_names(Text *out, const Attr *attr) {
  text_add(out, "[");
  for (int i = 0; i < attr->n; i++) {
    if (i) text_add(out, ", ");
    name_print(out, attr->names[i]);
  }
  text_add(out, "]");
}

static void print_list_of_integers(Text *out, const Attr *attr) {
  text_add(out, "[");
  for (int i = 0; i < attr->n; i++) {
    text_printf(out, "%s%lld", i ? ", " : "", (long long)attr->integers[i]);
  }
  text_add(out, "]");
}

static void print_attr(Text *out, const Attr *attr) {
  text_printf(out, "%s = ", attr_name(attr->key));
  switch (attr_kind(attr->key)) {
  case ATTRKIND_NAME: name_print(out, attr->name); break;
  case ATTRKIND_TEXT: text_add_json(out, attr->name); break;
  case ATTRKIND_NAMES: print_list_of_names(out, attr); break;
  case ATTRKIND_INT: text_printf(out, "%lld", (long long)attr->integer); break;
  case ATTRKIND_INTS: print_list_of_integers(out, attr); break;
  case ATTRKIND_FLOAT: text_add_real(out, attr->real); break;
  }
}

static void print_attrs(Text *out, const Node *node) {
  if (!node->n_attrs) return;
  text_add(out, " {");
  for (int i = 0; i < node->n_attrs; i++) {
    if (i) text_add(out, ", ");
    print_attr(out, &node->attrs[i]);
  }
  text_add(out, "}");
}

const char *init_name(InitKind kind) {
  switch (kind) {
  case INIT_zeros: return "zeros";
  case INIT_constant: return "constant";
  case INIT_normal: return "normal";
  case INIT_trunc_normal: return "trunc_normal";
  case INIT_uniform: return "uniform";
  case INIT_orthogonal: return "orthogonal";
  case INIT_eye: return "eye";
  }
  UNREACHABLE();
}

/* " matrix(C, X)": the dims of a set of bits; nothing for none. */
static void print_dims(Text *out, const char *word, const Type *type,
                       uint16_t dims) {
  const char *before = "(";
  if (!dims) return;
  text_printf(out, " %s", word);
  for (int i = 0; i < type->rank; i++) {
    if (!(dims >> i & 1)) continue;
    text_add(out, before);
    name_print(out, type->dims[i].name);
    before = ", ";
  }
  text_add(out, ")");
}

static void print_input(Text *out, const GraphInput *input, const Type *type) {
  text_printf(out, " %s ", role_name(input->role));
  text_add_json(out, input->path);
  if (input->init.kind != INIT_zeros || input->init.a != 0) {
    text_printf(out, " %s(", init_name(input->init.kind));
    text_add_real(out, input->init.a);
    text_add(out, ")");
  }
  if (input->is_frozen) text_add(out, " frozen");
  if (input->has_decay) text_add(out, " decay");
  if (input->group) text_printf(out, " group(%d)", input->group);
  if (input->is_on_host) text_add(out, " host");
  print_dims(out, "matrix", type, input->contracts);
  print_dims(out, "batch", type, input->batches);
}

const char *phase_name(Phase phase) {
  static const char *const names[N_PHASES] = {
#define PHASE(name, spelling, words) spelling,
#include "support/phases.def"
  };
  ASSERT((unsigned)phase < N_PHASES);
  return names[phase];
}

static void print_mesh(Text *out, const Mesh *mesh) {
  if (!mesh->n_axes) return;
  text_add(out, " mesh(");
  for (int i = 0; i < mesh->n_axes; i++) {
    const MeshAxis *axis = &mesh->axes[i];
    if (i) text_add(out, ", ");
    name_print(out, axis->name);
    text_printf(out, " = %d%s", axis->size, axis->is_sequential ? "~" : "");
  }
  text_add(out, ")");
}

static void print_body(Text *out, const Graph *graph, int indent);

/* `first` is the number of each node's first result. */
static void print_node(Text *out, const Graph *graph, int id, const int *first,
                       int indent) {
  const Node *node = graph->nodes.data[id];
  text_printf(out, "%*s", indent, "");
  for (int i = 0; i < node->n_results; i++) {
    text_printf(out, "%s%%%d", i ? ", " : "", first[id] + i);
  }
  text_printf(out, " = %s", op_info(node->op)->name);
  for (int i = 0; i < node->n_inputs; i++) {
    Value value = node->inputs[i];
    text_printf(out, "%s%%%d", i ? ", " : " ",
                first[value.node] + value.result);
  }
  print_attrs(out, node);
  text_add(out, " : ");
  for (int i = 0; i < node->n_results; i++) {
    if (i) text_add(out, ", ");
    type_print(out, node->types[i], &graph->mesh);
  }
  if (node->op == OP_input) {
    print_input(out, &graph->inputs.data[node_int(node, ATTR_index, 0)],
                node->types[0]);
  }
  if (node->phase) text_printf(out, " @%s", phase_name(node->phase));
  if (node->stage) text_printf(out, " stage %d", node->stage - 1);
  Name path = graph_path(graph, id);
  if (*path) {
    text_add(out, " ");
    text_add_json(out, path);
  }
  if (node->body) {
    text_add(out, " {\n");
    print_body(out, node->body, indent + 2);
    text_printf(out, "%*s}", indent, "");
  }
  text_add(out, "\n");
}

static void print_body(Text *out, const Graph *graph, int indent) {
  int *first = ARENA_ARRAY(out->arena, int, graph->nodes.n);
  int n = 0;
  for (int id = 0; id < graph->nodes.n; id++) {
    first[id] = n;
    n += graph->nodes.data[id]->n_results;
    print_node(out, graph, id, first, indent);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    text_printf(out, "%*soutput %s ", indent, "", role_name(output->role));
    text_add_json(out, output->path);
    text_printf(out, " %%%d\n",
                first[output->value.node] + output->value.result);
  }
}

void graph_print(Text *out, const Graph *graph) {
  text_add(out, "graph ");
  name_print(out, graph->name ? graph->name : "");
  print_mesh(out, &graph->mesh);
  text_add(out, " {\n");
  print_body(out, graph, 2);
  text_add(out, "}\n");
}
