/*
 * command_check.c -- `dnnc check`: what a model is, in exact numbers.
 *
 * FLOPs: two per multiply-add of dots and convolutions, the batch as given,
 * causal attention as the full square.  A step is counted on the differentiated
 * graph.  Activation bytes are the values of the forward pass that the backward
 * pass reads, before packing.
 */
#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

typedef struct Figures {
  int64_t parameters, state;
  double flops_forward, flops_step, activation_bytes;
  Block *blocks;
  int n_blocks;
} Figures;

static bool is_contraction(Op op) {
  return op == OP_dot || op == OP_conv || op == OP_conv_input_grad ||
         op == OP_conv_weight_grad || op == OP_attention ||
         op == OP_attention_grad;
}

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

static double contraction_flops(const Graph *graph, Arena *arena) {
  const bool *needed = needed_nodes(graph, arena);
  double flops = 0;
  for (int i = 0; i < graph->nodes.n; i++)
    if (needed[i] && is_contraction(graph->nodes.data[i]->op))
      flops += node_flops(graph, i);
  return flops;
}

static int64_t input_elements(const Graph *graph, Role role) {
  int64_t elements = 0;
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == role)
      elements += type_elements(graph_type(graph, graph->inputs.data[i].value));
  return elements;
}

/* The value whose bytes are kept: a view keeps what it looks at. */
static Value storage_of(const Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  while (op_info(node->op)->is_view) {
    value = node->inputs[0];
    node = graph_node(graph, value);
  }
  return value;
}

static bool is_activation(const Node *node) {
  return node->phase == PHASE_forward && node->op != OP_input &&
         node->op != OP_const && node->op != OP_iota;
}

static double kept_bytes(const Graph *graph, Arena *arena, DType compute) {
  const bool *needed = needed_nodes(graph, arena);
  bool *kept = ARENA_ARRAY(arena, bool, graph->nodes.n);
  double bytes = 0;
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *user = graph->nodes.data[i];
    if (!needed[i] || user->phase == PHASE_forward) continue;
    for (int k = 0; k < user->n_inputs; k++) {
      Value value = storage_of(graph, user->inputs[k]);
      if (kept[value.node] || !is_activation(graph_node(graph, value)))
        continue;
      kept[value.node] = true;
      const Type *type = graph_type(graph, value);
      DType dtype = type->dtype == DT_f32 ? compute : type->dtype;
      bytes += (double)type_elements(type) * dtype_size_bytes(dtype);
    }
  }
  return bytes;
}

static int measure(Tool *tool, Compilation *c, Figures *out) {
  Model *model = c->model;
  const Graph *forward = model->has_train ? model->train : model->forward;
  out->parameters = input_elements(forward, ROLE_param);
  out->state = input_elements(forward, ROLE_state);
  out->flops_forward = contraction_flops(forward, tool->arena);
  out->flops_step = out->flops_forward;
  out->n_blocks = frontend_blocks(forward, tool->arena, &out->blocks);
  if (!model->has_train) return EXIT_done;
  tool->options.stop_after = "autodiff";
  Graph *trained = compile_graph(tool, c, model->train, true);
  if (tool_report(tool)) return EXIT_user;
  out->flops_step = contraction_flops(trained, tool->arena);
  out->activation_bytes =
      kept_bytes(trained, tool->arena, model->precision.compute);
  return EXIT_done;
}

static void print_json(Text *out, const Model *model, const Figures *figures) {
  text_add(out, "{\"model\":");
  text_add_json(out, model->name);
  text_printf(out,
              ",\"parameters\":%lld,\"state\":%lld,\"flops_forward\":%.0f,"
              "\"flops_step\":%.0f,\"activation_bytes\":%.0f,\"blocks\":[",
              (long long)figures->parameters, (long long)figures->state,
              figures->flops_forward, figures->flops_step,
              figures->activation_bytes);
  for (int i = 0; i < figures->n_blocks; i++) {
    const Block *block = &figures->blocks[i];
    text_add(out, i ? ",{\"path\":" : "{\"path\":");
    text_add_json(out, block->path);
    text_printf(out, ",\"parameters\":%lld,\"flops_forward\":%.0f}",
                (long long)block->parameters, block->flops_forward);
  }
  text_add(out, "]}\n");
}

/* 1234567 as "1,234,567". */
static const char *with_commas(Arena *arena, int64_t number) {
  char *digits = arena_printf(arena, "%lld", (long long)number);
  Text out = text_create(arena);
  int length = (int)strlen(digits);
  for (int i = 0; i < length; i++) {
    if (i && (length - i) % 3 == 0) text_add(&out, ",");
    text_add_n(&out, digits + i, 1);
  }
  return text_string(&out);
}

static const char *human(Arena *arena, double value, const char *unit) {
  static const char prefixes[] = " kMGTPE";
  int power = 0;
  while (value >= 1000 && power < 6) value /= 1000, power++;
  return power ? arena_printf(arena, "%.2f %c%s", value, prefixes[power], unit)
               : arena_printf(arena, "%.0f %s", value, unit);
}

static void print_table(Text *out, Arena *arena, const Model *model,
                        const Figures *figures) {
  text_printf(out, "%-28s %16s %16s\n", "block", "parameters", "forward");
  for (int i = 0; i < figures->n_blocks; i++) {
    const Block *block = &figures->blocks[i];
    text_printf(out, "%-28s %16s %16s\n", block->path,
                with_commas(arena, block->parameters),
                human(arena, block->flops_forward, "FLOP"));
  }
  text_printf(out, "%-28s %16s %16s\n\n", model->name,
              with_commas(arena, figures->parameters),
              human(arena, figures->flops_forward, "FLOP"));
  if (figures->state)
    text_printf(out, "state        %s\n", with_commas(arena, figures->state));
  text_printf(out,
              "forward      %s (2 per multiply-add of dots and "
              "convolutions)\n",
              human(arena, figures->flops_forward, "FLOP"));
  if (!model->has_train) return;
  text_printf(out, "step         %s (forward and backward)\n",
              human(arena, figures->flops_step, "FLOP"));
  text_printf(out,
              "activations  %s (kept for the backward pass, before "
              "packing)\n",
              human(arena, figures->activation_bytes, "B"));
}

int command_check(Tool *tool) {
  Compilation compilation = {0};
  Figures figures = {0};
  int code = compile_setup(tool, &compilation, true);
  if (code == EXIT_done) code = measure(tool, &compilation, &figures);
  if (code != EXIT_done) return code;
  Text out = text_create(tool->arena);
  if (tool->options.json)
    print_json(&out, compilation.model, &figures);
  else
    print_table(&out, tool->arena, compilation.model, &figures);
  tool_print(&out);
  return EXIT_done;
}
