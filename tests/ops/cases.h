/*
 * cases.h -- a few graphs for every operator, that back ends are checked with
 * against the interpreter.  Pointwise operators come from the table of ops.def
 * and need no row here; a structured operator without a row fails the test.
 *
 * Sizes are chosen for what kernels do differently: whole rows of a warp and of
 * a block, columns, one number out of many, odd sizes, views.
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
    {"const", "value=2.5 dtype=TYPE", {NULL}},
    {"iota", "dim=T sizes=70", {NULL}},
    {"rename", "from=B,C to=X,Y", {"TYPE B:20 C:33"}},
    {"split_dim", "dim=C to=H,D sizes=2,3", {"TYPE B:2 C:6"}},
    {"merge_dims", "from=H,D dim=C", {"TYPE B:2 H:2 D:3"}},
    {"merge_dims", "from=D,H dim=C", {"TYPE H:2 B:2 D:3"}},
    {"transpose", "order=C,A,B", {"TYPE A:4 B:5 C:12"}},
    {"broadcast", "to=X,Y sizes=3,5", {"TYPE B:8"}},
    {"copy", "", {"TYPE B:300 C:3"}},
    {"cast", "dtype=f32", {"TYPE B:300"}},
    {"cast", "dtype=f64", {"TYPE B:30"}},
    {"cast", "dtype=i64", {"TYPE B:300"}},
    {"cast", "dtype=i32", {"TYPE B:300"}},
    {"cast", "dtype=i16", {"TYPE B:300"}},
    {"cast", "dtype=i8", {"TYPE B:300"}},
    {"cast", "dtype=u8", {"TYPE B:300"}},
    {"cast", "dtype=bool", {"TYPE B:300"}},
    {"sum", "over=B", {"TYPE A:2 B:3 C:2"}},
    {"sum", "over=C", {"TYPE A:40 C:70"}},
    {"sum", "over=C", {"TYPE A:5 C:700"}},
    {"sum", "over=A", {"TYPE A:300 C:40"}},
    {"sum", "over=A", {"TYPE A:1000 C:7"}},
    {"sum", "over=A,B", {"TYPE A:70 B:90"}},
    {"sum", "over=A,C", {"TYPE A:30 B:5 C:33"}},
    {"max", "over=C", {"TYPE A:17 C:70"}},
    {"max", "over=C,A", {"TYPE A:2 B:3 C:4"}},
    {"min", "over=A", {"TYPE A:33 B:40"}},
    {"argmax", "dim=C", {"TYPE A:12 C:70"}},
    {"argmax", "dim=A", {"TYPE A:70 C:12"}},
    {"argmax", "dim=A", {"TYPE A:9"}},
    {"logsumexp", "over=C", {"TYPE B:9 C:50"}},
    {"logsumexp", "over=C,A", {"TYPE A:2 B:3 C:10"}},
    {"softmax", "over=C", {"TYPE B:20 C:65"}},
    {"softmax", "over=B,C", {"TYPE B:2 A:3 C:30"}},
    {"softmax", "over=A", {"TYPE A:64 C:20"}},
    {"softmax", "over=", {"TYPE B:3"}},
    {"log_softmax", "over=C", {"TYPE C:5 B:2"}},
    {"layernorm", "over=C eps=1e-3", {"TYPE B:10 C:96"}},
    {"layernorm", "over=C eps=1e-3", {"TYPE B:2 C:1"}},
    {"rmsnorm", "over=C eps=1e-3", {"TYPE B:6 C:300"}},
    {"rmsnorm", "over= eps=1e-3", {"TYPE B:3"}},
    {"batchnorm",
     "over=N,Y eps=1e-3 momentum=0.1",
     {"TYPE N:6 C:9 Y:7", "TYPE C:9", "TYPE C:9"}},
    {"batchnorm",
     "over=N,Y eps=1e-3 momentum=0.3 group=4",
     {"TYPE N:12 Y:5 C:40", "TYPE C:40", "TYPE C:40"}},
    {"batchnorm",
     "over=N eps=1e-3 momentum=0.3 group=3",
     {"TYPE D:2 N:6 C:3", "TYPE C:3 D:2", "TYPE D:2 C:3"}},
    {"dot", "over=K", {"TYPE M:12 K:13", "TYPE K:13 N:14"}},
    {"dot", "over=K,L", {"TYPE B:2 K:3 M:1 L:2", "TYPE L:2 B:2 K:3 N:2"}},
    {"dot", "over=", {"TYPE M:2", "TYPE N:3"}},
    {"dot", "over=K", {"TYPE K:600", "TYPE K:600"}},
    {"dot", "over=K", {"TYPE M:6 K:7 Z:5", "TYPE K:7 N:4 Z:5"}},
    {"dot", "over=K", {"TYPE M:300 K:9", "TYPE K:9 N:200"}},
    {"sum", "over=A", {"TYPE A:20000 B:3"}},
    {"conv",
     "dim=C space=Y,X stride=1,1 pad=1,1 dilate=1,1",
     {"TYPE N:2 C:2 Y:4 X:3", "TYPE O:3 C:2 Y:3 X:3"}},
    {"conv",
     "dim=C space=Y,X stride=2,1 pad=0,2 dilate=1,2",
     {"TYPE N:1 C:2 Y:6 X:3", "TYPE O:1 C:2 Y:3 X:2"}},
    {"conv",
     "dim=C space=X stride=2 pad=0 dilate=1",
     {"TYPE N:2 G:2 C:1 X:6", "TYPE G:2 O:2 C:1 X:3"}},
    {"conv_input_grad",
     "dim=C space=X stride=2 pad=1 dilate=1 sizes=5 to=O",
     {"TYPE N:2 X:3 O:2", "TYPE O:2 C:3 X:3"}},
    {"conv_weight_grad",
     "dim=C space=X stride=2 pad=1 dilate=1 window=3 to=O over=N",
     {"TYPE N:2 C:3 X:5", "TYPE N:2 X:3 O:2"}},
    {"maxpool",
     "space=Y,X window=2,2 stride=2,2 pad=0,0",
     {"TYPE N:2 Y:4 X:4 C:2"}},
    {"maxpool", "space=X window=3 stride=1 pad=1", {"TYPE N:2 X:5"}},
    {"maxpool_grad",
     "space=X window=3 stride=1 pad=1",
     {"TYPE N:2 X:5", "TYPE N:2 X:5", "TYPE N:2 X:5"}},
    {"avgpool",
     "space=Y,X window=2,3 stride=2,1 pad=0,1",
     {"TYPE N:2 Y:4 X:4"}},
    {"avgpool", "space=X window=3 stride=2 pad=1 causal=0", {"TYPE X:5 C:2"}},
    {"avgpool_grad",
     "space=X window=3 stride=2 pad=1 causal=0 sizes=5",
     {"TYPE X:3 C:2"}},
    {"adaptive_avgpool", "space=Y,X sizes=2,3", {"TYPE N:1 Y:5 X:4"}},
    {"adaptive_avgpool_grad", "space=Y,X sizes=5,4", {"TYPE N:1 Y:2 X:3"}},
    {"gather", "dim=V", {"TYPE V:4 C:70", "i32 B:2 T:30"}},
    {"gather", "dim=V", {"TYPE V:4 B:2", "i32 B:2 T:3"}},
    {"gather", "dim=V", {"TYPE V:4", "i32"}},
    {"scatter_add",
     "over=T dim=V sizes=4",
     {"TYPE B:2 T:30 C:20", "i32 B:2 T:30"}},
    {"scatter_add",
     "over=B,T dim=V sizes=4",
     {"TYPE B:2 T:30 C:20", "i32 B:2 T:30"}},
    {"update_slice", "dim=S", {"TYPE B:2 S:9 C:40", "TYPE C:40 B:2", "i32"}},
    {"update_slice", "dim=C", {"TYPE A:7 C:5", "TYPE A:7", "i32"}},
    {"one_hot", "dim=V sizes=7", {"i32 B:3 T:5"}},
    {"slice", "dim=C start=1 sizes=2", {"TYPE B:2 C:4"}},
    {"reverse", "dim=C", {"TYPE B:7 C:33"}},
    {"reverse", "dim=B", {"TYPE A:3 B:9 C:16"}},
    {"pad", "dim=C pad=1,2 value=7", {"TYPE B:2 C:3"}},
    {"concat", "dim=C", {"TYPE B:20 C:30", "TYPE B:20", "TYPE C:2"}},
    {"topk", "dim=E to=J sizes=1", {"TYPE B:3 T:20 E:7"}},
    {"topk", "dim=E to=J sizes=3", {"TYPE B:3 E:5 T:7"}},
    {"topk", "dim=E to=J sizes=40", {"TYPE B:2 E:40"}},
    {"topk", "dim=E to=J sizes=2", {"TYPE E:70"}},
    {"route", "over=J,T to=E,S sizes=4,5", {"i32 B:3 T:20 J:2"}},
    {"route", "over=T to=E,S sizes=4,1", {"i32 T:300"}},
    {"route", "over=T,B to=E,S sizes=4,90", {"i32 B:3 T:70"}},
    {"route_inverse", "over=J,T to=E,S sizes=2,2", {"i32 B:3 T:1 J:2"}},
    {"route_inverse", "over=T to=E,S sizes=4,70", {"i32 T:300"}},
    {"dispatch",
     "over=J,T to=E,S",
     {"TYPE B:3 T:10 C:33", "i32 B:3 T:10 J:2", "i32 E:4 S:3 B:3"}},
    {"dispatch",
     "over=T,B to=E,S",
     {"TYPE B:2 C:3 T:9", "i32 B:2 T:9", "i32 E:3 S:70"}},
    {"combine",
     "over=J,T to=E,S",
     {"TYPE E:4 B:3 S:3 C:33", "i32 B:3 T:10 J:2", "i32 E:4 S:3 B:3"}},
    {"combine", "over=T to=E,S", {"TYPE E:4 S:1", "i32 T:70", "i32 E:4 S:1"}},
    {"random_keep",
     "to=B,T sizes=9,8 value=0.3 stream=block.drop",
     {"i64", "i32"}},
    {"attention",
     "over=D query=T key=S scale=0.5 causal=1",
     {"TYPE B:2 T:70 D:12", "TYPE B:2 S:70 D:12", "TYPE B:2 S:70 D:12"}},
    {"attention",
     "over=D query=T key=S scale=0.7 causal=0",
     {"TYPE T:20 H:4 D:33", "TYPE S:37 H:4 D:33", "TYPE S:37 H:4 E:5"}},
    {"attention",
     "over=D query=T key=S scale=0.7 causal=1",
     {"TYPE B:2 G:2 T:33 D:8", "TYPE B:2 S:33 D:8", "TYPE B:2 S:33 D:8"}},
    {"attention_grad",
     "over=D query=T key=S scale=0.5 causal=1",
     {"TYPE B:2 T:40 D:8", "TYPE B:2 S:40 D:8", "TYPE B:2 S:40 D:8",
      "TYPE B:2 T:40 D:8", "f32 B:2 T:40", "TYPE B:2 T:40 D:8"}},
    {"attention_grad",
     "over=D query=T key=S scale=0.5 causal=0",
     {"TYPE B:2 G:3 T:20 D:8", "TYPE B:2 S:35 D:8", "TYPE B:2 S:35 D:20",
      "TYPE B:2 G:3 T:20 D:20", "f32 B:2 G:3 T:20", "TYPE B:2 G:3 T:20 D:20"}},
};

/* Operators that are no computation of one rank. */
static inline bool op_case_exempt(Op op) {
  return op == OP_input || op_is(op, OPCLASS_collective) ||
         op_is(op, OPCLASS_region);
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
  OpCall call = {op, n, types, &attrs};
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

/* As its dtype holds it. */
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
  return op == OP_one_hot || op == OP_route || op == OP_route_inverse ||
         op == OP_random_keep;
}

/* What a kernel finds in the bytes of its result: `put` writes one row. */
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
