/*
 * command_check.c -- implements `dnnc check`, which prints the exact sizes and
 * costs of a model.
 *
 * FLOPs: two per multiply-add of dots and convolutions, the batch as given,
 * causal attention as the full square.  A step is counted on the differentiated
 * graph.  Activation bytes are the values of the forward pass that the backward
 * pass reads, before packing.  Equal blocks of a repeat are one line of the
 * table, whose figures are of one of them; JSON lists every block.
 */
#include "tools/commands/tools.h"

#include <stdio.h>
#include <string.h>

typedef struct Figures {
  int64_t parameters, state;
  int64_t active; /* parameters at work on one token; fewer with experts */
  double flops_forward, flops_step, activation_bytes;
  const BufferAssignment *assignment; /* of a training step; NULL: none */
  int64_t transient_bound_bytes;
  Block *blocks;
  int n_blocks;
} Figures;

/* Which nodes some output needs: gradient rules also append what nobody asked
 * for, such as the gradient of the data. */
static bool *needed_nodes(const Graph *graph, Arena *arena) {
  bool *needed = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++)
    needed[graph->outputs.data[i].value.node] = true;
  for (int i = graph->nodes.n - 1; i >= 0; i--) {
    const Node *node = graph->nodes.data[i];
    for (int k = 0; needed[i] && k < node->n_inputs; k++)
      needed[node->inputs[k].node] = true;
  }
  return needed;
}

double graph_product_flops(const Graph *graph, Arena *arena) {
  const bool *needed = needed_nodes(graph, arena);
  double flops = 0;
  for (int i = 0; i < graph->nodes.n; i++)
    if (needed[i]) flops += node_contraction_flops(graph, i);
  return flops;
}

/* A gradient of attention computes the scores again. */
static double recomputed_flops(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  double flops = 0;
  if (node->op == OP_attention_grad)
    return 2 * (double)type_elements(graph_type(graph, node->inputs[0])) *
           (double)type_size(graph_type(graph, node->inputs[1]),
                             node_name(node, ATTR_key));
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    flops += recomputed_flops(node->body, i);
  return node->op == OP_scan ? flops * (double)scan_steps(node) : flops;
}

double graph_model_flops(const Graph *graph, Arena *arena) {
  const bool *needed = needed_nodes(graph, arena);
  double flops = graph_product_flops(graph, arena);
  for (int i = 0; i < graph->nodes.n; i++)
    if (needed[i]) flops -= recomputed_flops(graph, i);
  return flops;
}

static int64_t input_elements(const Graph *graph, Role role) {
  int64_t elements = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == role)
      elements += type_elements(graph_type(graph, graph->inputs.data[i].value));
  return elements;
}

/* The value whose bytes are stored: a view shares those of its operand. */
static Value storage_of(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  while (op_is(node->op, OPCLASS_view)) {
    value = node->inputs[0];
    node = graph_node(graph, value);
  }
  return value;
}

static bool is_activation(const Node *node) {
  return node->phase == PHASE_forward && !op_is(node->op, OPCLASS_source);
}

/* The input that a parameter was before casts and renames, else the node. */
static int source_of(const Graph *graph, int id) {
  for (;;) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_cast && !op_is(node->op, OPCLASS_view)) return id;
    id = node->inputs[0].node;
  }
}

/* Parameters that are not at work on a token: what is between `dispatch` and
 * `combine` has each token at `top` of E experts, so of a parameter that has E
 * and is read there, top / E works. */
static int64_t idle_parameters(const Graph *graph, Arena *arena) {
  typedef struct Experts {
    Name dim; /* NULL: outside */
    int64_t n, top;
  } Experts;
  Experts *at = ARENA_ARRAY(arena, Experts, graph->nodes.n);
  bool *counted = ARENA_ARRAY(arena, bool, graph->nodes.n);
  int64_t idle = 0;
  int n;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; i < node->n_inputs && node->op != OP_combine; i++)
      if (at[node->inputs[i].node].dim) at[id] = at[node->inputs[i].node];
    if (node->op == OP_dispatch) {
      Name expert = node_names(node, ATTR_to, &n)[0];
      Name choice = node_names(node, ATTR_over, &n)[0];
      const Type *slots = graph_type(graph, node->inputs[1]);
      at[id] = (Experts){expert, type_size(node->types[0], expert),
                         type_size(slots, choice)};
    }
    for (int i = 0; i < node->n_inputs && at[id].dim; i++) {
      int source = source_of(graph, node->inputs[i].node);
      const Node *param = graph->nodes.data[source];
      if (param->op != OP_input || counted[source] ||
          type_find(param->types[0], at[id].dim) < 0)
        continue;
      counted[source] = true;
      idle +=
          type_elements(param->types[0]) / at[id].n * (at[id].n - at[id].top);
    }
  }
  return idle;
}

/* Bytes of each node's values that the backward pass reads. */
static double *kept_bytes(const Graph *graph, Arena *arena, DType compute) {
  const bool *needed = needed_nodes(graph, arena);
  double *kept = ARENA_ARRAY(arena, double, graph->nodes.n);
  Map *seen = map_create(arena); /* values */
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *user = graph->nodes.data[i];
    if (!needed[i] || user->phase == PHASE_forward) continue;
    for (int k = 0; k < user->n_inputs; k++) {
      Value value = storage_of(graph, user->inputs[k]);
      const void *key =
          (const void *)(intptr_t)((int64_t)value.node * 16 + value.result + 1);
      if (map_has(seen, key) || !is_activation(graph_node(graph, value)))
        continue;
      map_put(seen, key, (void *)(intptr_t)1);
      const Type *type = graph_type(graph, value);
      DType dtype = type->dtype == DT_f32 ? compute : type->dtype;
      kept[value.node] += (double)type_elements(type) * dtype_size_bytes(dtype);
    }
  }
  return kept;
}

/* The arena of a training step on one rank, as it is packed, and the least that
 * any packing takes. */
static bool measure_memory(const Compilation *c, Figures *out) {
  Graph *final = driver_run_passes(c, ENTRY_train, c->model->train, 0);
  if (!final) return false;
  out->assignment = driver_assign_alone(c, ENTRY_train, final);
  out->transient_bound_bytes = buffer_assignment_bound(final, out->assignment);
  return true;
}

static int measure_model(Tool *tool, Compilation *c, Figures *out) {
  const Model *model = c->model;
  Arena *arena = tool->arena;
  const Graph *forward = model->has_train ? model->train : model->forward;
  const Graph *trained = NULL;
  const double *kept = NULL;
  out->parameters = input_elements(forward, ROLE_param);
  out->active = out->parameters - idle_parameters(forward, arena);
  out->state = input_elements(forward, ROLE_state);
  out->flops_forward = graph_product_flops(forward, arena);
  out->flops_step = out->flops_forward;
  if (model->has_train) {
    trained = driver_run_passes(c, ENTRY_train, model->train,
                                pass_phase(PASSES_precision));
    if (!trained) return EXIT_user;
    out->flops_step = graph_product_flops(trained, arena);
    kept = kept_bytes(trained, arena, model->precision.compute);
    if (tool->options.json && !measure_memory(c, out)) return EXIT_user;
  }
  for (int i = 0; kept && i < trained->nodes.n; i++)
    out->activation_bytes += kept[i];
  out->n_blocks = model_blocks(forward, trained, kept, arena, &out->blocks);
  return EXIT_done;
}

static double bytes_of(int64_t elements, DType dtype) {
  return (double)elements * dtype_size_bytes(dtype);
}

static void print_memory_json(Text *out, const Figures *figures) {
  const BufferAssignment *assignment = figures->assignment;
  if (!assignment) return;
  text_printf(
      out,
      ",\"persistent_bytes\":%lld,\"transient_bytes\":%lld,"
      "\"transient_bytes_bound\":%lld,\"bound_formula\":"
      "\"largest sum of bytes of transient values that are alive at one "
      "launch of a training step\"",
      (long long)assignment->persistent_bytes,
      (long long)(assignment->arena_bytes - assignment->persistent_bytes),
      (long long)figures->transient_bound_bytes);
}

static void print_json(Text *out, const Model *model, const Figures *figures) {
  const Precision *precision = &model->precision;
  text_add(out, "{\"model\":");
  text_add_json(out, model->name);
  text_printf(
      out,
      ",\"parameters\":%lld,\"active_parameters\":%lld,\"state\":%lld,"
      "\"flops_forward\":%.0f,\"flops_step\":%.0f,\"activation_bytes\":%.0f,"
      "\"parameter_bytes\":%.0f,\"master_bytes\":%.0f",
      (long long)figures->parameters, (long long)figures->active,
      (long long)figures->state, figures->flops_forward, figures->flops_step,
      figures->activation_bytes,
      bytes_of(figures->parameters, precision->compute),
      bytes_of(figures->parameters, precision->master));
  print_memory_json(out, figures);
  text_add(out, ",\"blocks\":[");
  for (int i = 0; i < figures->n_blocks; i++) {
    const Block *block = &figures->blocks[i];
    text_add(out, i ? ",{\"path\":" : "{\"path\":");
    text_add_json(out, block->path);
    text_printf(out,
                ",\"parameters\":%lld,\"state\":%lld,\"flops_forward\":%.0f,"
                "\"activation_bytes\":%.0f}",
                (long long)block->parameters, (long long)block->state,
                block->flops_forward, block->activation_bytes);
  }
  text_add(out, "]}\n");
}

static void print_row(Text *out, Arena *arena, const Figures *figures,
                      const char *name, const Block *row) {
  const char *count =
      row->count > 1 ? arena_printf(arena, " x%d", row->count) : "";
  text_printf(out, "%-28s %15s", arena_printf(arena, "%s%s", name, count),
              text_with_commas(arena, row->parameters));
  if (figures->state)
    text_printf(out, " %11s", text_with_commas(arena, row->state));
  text_printf(out, " %14s", text_quantity(arena, row->flops_forward, "FLOP"));
  if (figures->activation_bytes > 0)
    text_printf(out, " %12s", text_quantity(arena, row->activation_bytes, "B"));
  text_add(out, "\n");
}

static void print_totals(Text *out, Arena *arena, const Model *model,
                         const Figures *figures) {
  DType compute = model->precision.compute, master = model->precision.master;
  text_printf(out, "\nparameters   %s in %s",
              text_quantity(arena, bytes_of(figures->parameters, compute), "B"),
              dtype_name(compute));
  if (master != compute)
    text_printf(
        out, ", %s more in %s for the update",
        text_quantity(arena, bytes_of(figures->parameters, master), "B"),
        dtype_name(master));
  if (figures->active != figures->parameters)
    text_printf(out, "\nat work      %s parameters on each token",
                text_with_commas(arena, figures->active));
  text_printf(out,
              "\nforward      %s (2 per multiply-add of dots and "
              "convolutions; attention as the full square)\n",
              text_quantity(arena, figures->flops_forward, "FLOP"));
  if (!model->has_train) return;
  text_printf(out, "step         %s (forward and backward)\n",
              text_quantity(arena, figures->flops_step, "FLOP"));
  text_printf(out,
              "activations  %s (saved for the backward pass, before "
              "packing)\n",
              text_quantity(arena, figures->activation_bytes, "B"));
}

static void print_table(Text *out, Arena *arena, const Model *model,
                        const Figures *figures) {
  text_printf(out, "%-28s %15s", "block", "parameters");
  if (figures->state) text_printf(out, " %11s", "state");
  text_printf(out, " %14s", "forward");
  if (figures->activation_bytes > 0) text_printf(out, " %12s", "activations");
  text_add(out, "\n");
  for (int i = 0; i < figures->n_blocks; i++)
    print_row(out, arena, figures, figures->blocks[i].path,
              &figures->blocks[i]);
  Block whole = {.count = 1,
                 .parameters = figures->parameters,
                 .state = figures->state,
                 .flops_forward = figures->flops_forward,
                 .activation_bytes = figures->activation_bytes};
  print_row(out, arena, figures, model->name, &whole);
  print_totals(out, arena, model, figures);
}

int command_check(Tool *tool) {
  Compilation compilation;
  Figures figures = {0};
  int code = tool_load(tool, &compilation);
  const Model *model = compilation.model;
  if (code == EXIT_done && tool->options.parameters)
    return check_parameters(tool, model,
                            model->has_train ? model->train : model->forward);
  if (code == EXIT_done) code = measure_model(tool, &compilation, &figures);
  if (code != EXIT_done) return code;
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    print_json(&out, compilation.model, &figures);
  } else {
    figures.n_blocks =
        model_fold_blocks(tool->module.names, figures.blocks, figures.n_blocks);
    print_table(&out, tool->arena, compilation.model, &figures);
  }
  tool_print(&out);
  return EXIT_done;
}
