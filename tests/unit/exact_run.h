/*
 * exact_run.h -- runs graphs in exact mode on random residues and compares
 * tensors of exact numbers, for the tests of exact mode.
 */
#ifndef TESTS_UNIT_EXACT_RUN_H
#define TESTS_UNIT_EXACT_RUN_H

#include "interp/exact.h"
#include "interp/numbers.h"
#include "tests/unit/values.h"

static const uint64_t exact_seeds[] = {1, 20260730};
#define EXACT_SEEDS ((int)(sizeof exact_seeds / sizeof *exact_seeds))

static inline Numbers exact_numbers(uint64_t seed) {
  return (Numbers){.number = INTERP_exact, .seed = seed};
}

/* Floats are any residues, integers 0 to 2, the step 1 or 2 by the seed; the
 * same for equal paths. */
static inline Tensor exact_input(const Graph *graph, int i, uint64_t seed) {
  Numbers numbers = exact_numbers(seed);
  const GraphInput *input = &graph->inputs.data[i];
  const Type *type = graph_type(graph, input->value);
  Tensor tensor = numbers_create(&numbers, graph->module->arena, type);
  double high = type->dtype == DT_bool ? 2 : 3;
  numbers_random(&numbers, type->dtype, input->path, 0, 0, high,
                 tensor_array(&tensor), type_elements(type));
  if (input->role == ROLE_step) tensor.data[0] = 1 + (double)(seed % 2);
  return tensor;
}

static inline Tensor *exact_all_inputs(const Graph *graph, uint64_t seed) {
  Tensor *inputs = ARENA_ARRAY(graph->module->arena, Tensor, graph->inputs.n);
  for (int i = 0; i < graph->inputs.n; i++)
    inputs[i] = exact_input(graph, i, seed);
  return inputs;
}

static inline Tensor *exact_outputs(const Graph *graph, const Tensor *inputs,
                                    uint64_t seed) {
  Numbers numbers = exact_numbers(seed);
  Arena *arena = graph->module->arena;
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  interp_run_in(graph, &numbers, arena, inputs, outputs, NULL);
  return outputs;
}

static inline Tensor *exact_run(const Graph *graph, uint64_t seed) {
  return exact_outputs(graph, exact_all_inputs(graph, seed), seed);
}

/* The first element that differs, -1 if none does. */
static inline int64_t exact_difference(const Tensor *a, const Tensor *b) {
  Numbers numbers = exact_numbers(0);
  int64_t n = type_elements(a->type);
  cr_assert_eq(n, type_elements(b->type));
  return numbers_compare(&numbers, a->type->dtype, tensor_array(a),
                         tensor_array(b), n, 1)
      .index;
}

/* A copy of the graph in which `change` has replaced nodes: given the copied
 * operands it returns a value in place of the node's result, or VALUE_NONE. */
typedef Value ExactChange(Graph *to, const Node *node, const Value *inputs);
static inline Graph *exact_changed(const Graph *graph, int first, int end,
                                   ExactChange *change) {
  Graph *to = graph_like(graph);
  Arena *arena = graph->module->arena;
  Value **map = ARENA_ARRAY(arena, Value *, graph->nodes.n);
  for (int i = 0; i < graph->nodes.n; i++) {
    const Node *node = graph->nodes.data[i];
    Value *inputs = ARENA_ARRAY(arena, Value, node->n_inputs);
    for (int k = 0; k < node->n_inputs; k++)
      inputs[k] = map[node->inputs[k].node][node->inputs[k].result];
    Value value = VALUE_NONE;
    if (i >= first && i < end) value = change(to, node, inputs);
    if (!value_is(value)) value = graph_copy_node(to, graph, i, inputs, false);
    map[i] = ARENA_ARRAY(arena, Value, node->n_results);
    map[i][0] = value;
    for (int r = 1; r < node->n_results; r++)
      map[i][r] = (Value){value.node, r};
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    graph_output(to, output->role, output->path,
                 map[output->value.node][output->value.result]);
  }
  return to;
}

typedef struct ExactComparison {
  int n, n_differing;
  const char *first; /* the path of the first output that differs */
} ExactComparison;

/* Returns the elements in the order of the dims of `type`. */
static inline Tensor exact_in_order(const Graph *graph, Tensor from,
                                    const Type *type) {
  if (type_same_shape(from.type, type)) return from;
  Graph *turn = make_graph(graph->module);
  Value in = graph_input(turn, ROLE_data,
                         name_intern(graph->module->names, "x"), from.type);
  make_output(turn, ROLE_result, "y", graph_transpose_to(turn, in, type));
  return exact_outputs(turn, &from, 0)[0];
}

/* The outputs of `a` that `b` has too. */
static inline ExactComparison exact_compare_outputs(const Graph *a,
                                                    const Tensor *x,
                                                    const Graph *b,
                                                    const Tensor *y) {
  ExactComparison result = {0, 0, ""};
  for (int i = 0; i < a->outputs.n; i++) {
    const GraphOutput *output = &a->outputs.data[i];
    const GraphOutput *same = graph_find_output(b, output->role, output->path);
    if (!same) continue;
    result.n++;
    Tensor other = exact_in_order(a, y[same - b->outputs.data], x[i].type);
    if (exact_difference(&x[i], &other) < 0) continue;
    if (result.n_differing++ == 0) result.first = output->path;
  }
  return result;
}

static inline ExactComparison
exact_compare_graphs(const Graph *a, const Graph *b, uint64_t seed) {
  return exact_compare_outputs(a, exact_run(a, seed), b, exact_run(b, seed));
}

/* Compares a graph after each pass with the graph before it. */
typedef struct ExactWalk {
  uint64_t seed;
  const Graph *last;
  Tensor *outputs;   /* of `last` */
  int n_compared;    /* outputs */
  int n_graphs;      /* that differ from the one before */
  int wrong;         /* the first row of passes.def that changes a value */
  const char *first; /* the path of that value; NULL: there is none */
} ExactWalk;

static inline ExactWalk exact_walk(const Graph *graph, uint64_t seed) {
  return (ExactWalk){
      .seed = seed, .last = graph, .outputs = exact_run(graph, seed)};
}

/* For PassOptions.after. */
static inline void exact_walk_on(void *user, int index, const Graph *graph,
                                 double seconds) {
  (void)seconds;
  ExactWalk *walk = user;
  if (graph_hash(graph) == graph_hash(walk->last)) return;
  graph = graph_copy(walk->last->module, graph); /* it is freed */
  Tensor *outputs = exact_run(graph, walk->seed);
  ExactComparison got =
      exact_compare_outputs(walk->last, walk->outputs, graph, outputs);
  walk->n_compared += got.n;
  walk->n_graphs++;
  if (got.n_differing > 0 && walk->first == NULL) {
    walk->wrong = index;
    walk->first = got.first;
  }
  walk->last = graph;
  walk->outputs = outputs;
}

#endif
