/*
 * cases.h -- graphs and inputs of the cases of cases.def, for the suites that
 * compare back ends with the interpreter.
 */
#ifndef TESTS_OPS_CASES_H
#define TESTS_OPS_CASES_H

#include "tests/ops/experts.h"
#include "tests/ops/tolerance.h"
#include "tests/unit/values.h"

typedef struct OpCase {
  const char *op, *attrs;
  const char *inputs[6]; /* types, with TYPE for the number under test */
} OpCase;

static const OpCase op_cases[] = {
#define CASE(op, attrs, ...)       {op, attrs, {__VA_ARGS__}},
#define SMALL_CASE(op, attrs, ...) {op, attrs, {__VA_ARGS__}},
#include "tests/ops/cases.def"
};

/* Operators that are no computation of one rank. */
static inline bool op_case_exempt(Op op) {
  return op == OP_input || op == OP_swapped || op_is(op, OPCLASS_collective) ||
         op_is(op, OPCLASS_swap) || op_is(op, OPCLASS_region);
}

static inline const char *op_case_text(char *out, size_t n, const char *text,
                                       const char *number) {
  const char *at = strstr(text, "TYPE");
  if (at) {
    snprintf(out, n, "%.*s%s%s", (int)(at - text), text, number, at + 4);
  } else {
    snprintf(out, n, "%s", text);
  }
  return out;
}

/* Does the operator's rule take this number? */
static inline bool op_case_takes(const OpCase *item, const char *number) {
  Module *module = module_create();
  char text[300];
  const Type *types[6], *results[8];
  Op op;
  int n = 0;
  bool has_number = strstr(item->attrs, "TYPE") != NULL;
  for (; n < 6 && item->inputs[n] != NULL; n++) {
    has_number = has_number || strstr(item->inputs[n], "TYPE");
    op_case_text(text, sizeof text, item->inputs[n], number);
    types[n] = make_type(module, text);
  }
  if (!has_number) return number[0] == 'f';
  cr_assert(op_find(item->op, &op));
  op_case_text(text, sizeof text, item->attrs, number);
  Attrs attrs = make_attrs(module, text);
  OpCall call = {op, n, types, &attrs, NULL};
  return op_infer(module, &call, SPAN_NONE, results) >= 0;
}

/* The graph of one case: inputs are ROLE_data, results ROLE_metric. */
static inline Graph *op_case_graph(Module *module, const OpCase *item,
                                   const char *number) {
  Graph *graph = make_graph(module);
  Value inputs[6];
  char text[300];
  int n = 0;
  for (; n < 6 && item->inputs[n] != NULL; n++) {
    char path[] = {(char)('a' + n), '\0'};
    op_case_text(text, sizeof text, item->inputs[n], number);
    inputs[n] = make_input(graph, ROLE_data, path, text);
  }
  op_case_text(text, sizeof text, item->attrs, number);
  Value y = make(graph, item->op, text, inputs, n);
  for (int r = 0; r < graph_node(graph, y)->n_results; r++) {
    char path[] = {(char)('r' + r), '\0'};
    make_output(graph, ROLE_metric, path, (Value){y.node, r});
  }
  return graph;
}

/* y = op(a, b, c) over broadcast dims of one of the shapes; operand types by
 * the operator's class. NULL if the operator does not take this number. */
#define POINTWISE_SHAPES 4
static inline Graph *pointwise_case_graph(Module *module, Op op,
                                          const char *number, int shape) {
  static const char *const all_shapes[POINTWISE_SHAPES][3] = {
      {"A:6 B:8", "B:8", "A:6 B:8"},        /* vectors end to end */
      {"A:3 B:1", "A:3", "C:1 B:1"},        /* sizes of 1 */
      {"", "B:33", "A:5"},                  /* nothing shared */
      {"A:71 B:129", "B:129 A:71", "A:71"}, /* over tiles, and transposed */
  };
  const char *const *shapes = all_shapes[shape];
  const OpInfo *info = op_info(op);
  DType dtype;
  cr_assert(dtype_find(number, &dtype));
  bool is_real = dtype_class(dtype) == CLASS_FLOAT;
  bool is_bool_taken = info->pw_class == PW_LOGIC ||
                       info->pw_class == PW_COMPARE ||
                       info->pw_class == PW_SELECT;
  if (dtype == DT_bool && !is_bool_taken) return NULL;
  if (info->pw_class == PW_FLOAT && !is_real) return NULL;
  if (info->pw_class == PW_INTEGER && dtype_class(dtype) != CLASS_INT)
    return NULL;
  Graph *graph = make_graph(module);
  Value inputs[3];
  for (int i = 0; i < info->max_inputs; i++) {
    bool is_bool =
        info->pw_class == PW_LOGIC || (info->pw_class == PW_SELECT && i == 0);
    char path[] = {(char)('a' + i), '\0'}, text[60];
    snprintf(text, sizeof text, "%s %s", is_bool ? "bool" : number, shapes[i]);
    inputs[i] = make_input(graph, ROLE_data, path, text);
  }
  Value y = make(graph, info->name, "", inputs, info->max_inputs);
  make_output(graph, ROLE_metric, "r", y);
  return graph;
}

/* Rounds a tensor to its dtype. */
static inline void op_case_round(Tensor *tensor) {
  if (dtype_class(tensor->type->dtype) != CLASS_FLOAT) return;
  for (int64_t k = 0; k < type_elements(tensor->type); k++)
    tensor->data[k] = dtype_round(tensor->type->dtype, tensor->data[k]);
}

/* The results of `op` on the first inputs take the place of later ones. */
static inline void op_case_forward(const Graph *graph, Op op, int n_inputs,
                                   int n_results, Tensor *inputs) {
  const Node *last = graph_node(graph, graph->outputs.data[0].value);
  Graph *forward = graph_like(graph);
  Name none = name_intern(graph->module->names, "");
  Value values[3];
  for (int i = 0; i < n_inputs; i++)
    values[i] = graph_input(forward, ROLE_data, graph->inputs.data[i].path,
                            inputs[i].type);
  Attrs attrs = {.n = last->n_attrs};
  for (int i = 0; i < last->n_attrs; i++) attrs.items[i] = last->attrs[i];
  Value y = graph_append(forward, op, values, n_inputs, &attrs);
  for (int r = 0; r < n_results; r++)
    graph_output(forward, ROLE_metric, none, (Value){y.node, r});
  Tensor *results = run(forward, INTERP_f64, inputs);
  for (int r = 0; r < n_results; r++) {
    inputs[n_inputs + r].data = results[r].data;
    op_case_round(&inputs[n_inputs + r]);
  }
}

/* Positions and choices count from 0. */
static inline bool op_case_is_index(Op op, int input) {
  if (op == OP_gather || op == OP_scatter_add || op == OP_dispatch ||
      op == OP_combine)
    return input > 0;
  if (op == OP_update_slice) return input == 2;
  if (op == OP_attention) return input == 3;
  return op == OP_one_hot || op == OP_route || op == OP_route_inverse ||
         op_is(op, OPCLASS_random);
}

/* The bytes that a kernel finds in its result: `update_slice` writes one
 * row. */
static inline void op_case_prefill(const Node *node, const void *input,
                                   void *result) {
  if (node->op == OP_update_slice)
    memcpy(result, input,
           (size_t)(type_elements(node->types[0]) *
                    dtype_size_bytes(node->types[0]->dtype)));
}

/* Among reals that become integers are some far beyond all of these. */
static inline void op_case_spread(const Node *node, Tensor *input) {
  static const double factors[] = {1, 100, 1e5, 1e10, 1e20};
  if (node->op != OP_cast || dtype_class(input->type->dtype) != CLASS_FLOAT ||
      dtype_class(node->types[0]->dtype) != CLASS_INT)
    return;
  for (int64_t k = 0; k < type_elements(input->type); k++)
    input->data[k] *= factors[k % 5];
  input->data[0] = NAN;
}

/* Data for every input.  Gradients are given what their operator computed. */
static inline Tensor *op_case_inputs(const Graph *graph, uint64_t key) {
  Arena *arena = graph->module->arena;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, graph->inputs.n);
  const Node *last = graph_node(graph, graph->outputs.data[0].value);
  Op op = last->op;
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    bool is_real = dtype_class(type->dtype) == CLASS_FLOAT;
    inputs[i] =
        tensor_random(arena, type, key + (uint64_t)i, -2, is_real ? 2 : 4);
    if (dtype_class(type->dtype) == CLASS_INT && type->dtype != DT_u8 &&
        !op_case_is_index(op, i))
      for (int64_t k = 0; k < type_elements(type); k++) inputs[i].data[k] -= 5;
    op_case_spread(last, &inputs[i]);
    op_case_round(&inputs[i]);
  }
  if (op_has_slots(op))
    expert_indices(graph, last, &inputs[1], &inputs[2], key);
  if (op == OP_attention_grad)
    op_case_forward(graph, OP_attention, 3, 2, inputs);
  if (op == OP_maxpool_grad) op_case_forward(graph, OP_maxpool, 1, 1, inputs);
  return inputs;
}

/* How far a result may be from the interpreter in f64, relative to the larger
 * of one and the value: by the least precise of the dtypes at work (lse is f32
 * in attention of f64 too). */
static inline double op_case_tolerance(const Graph *graph, DType result) {
  double most = tolerance(result);
  if (dtype_class(result) != CLASS_FLOAT) return most;
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    most = fmax(most, tolerance(type->dtype));
  }
  return most;
}

#endif
