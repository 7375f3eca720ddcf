/*
 * interp.c -- runs a graph node by node on tensors of doubles: the slow and
 * obvious reference that every back end is compared with.
 *
 * The number type is a parameter.  In INTERP_f64 floats are not rounded,
 * whatever their dtype; in INTERP_f32 every result is rounded to its dtype and
 * values of dtype f32 and narrower are computed in float.  In INTERP_exact
 * floats are ExactNumber (exact.h).  Integers are computed in double, which is
 * exact below 2^53, and wrap to their dtype.
 */
#include <math.h>
#include <string.h>

#include "interp/internal.h"
#include "interp/numbers.h"

/* ---- rounding to a dtype ---- */

static double wrap_integer(DType dtype, double x) {
  if (isnan(x)) return 0;
  if (x >= 9223372036854775807.0) return 9223372036854775807.0;
  if (x <= -9223372036854775808.0) return -9223372036854775808.0;
  int64_t value = (int64_t)x;
  switch (dtype) {
  case DT_u8: return (uint8_t)value;
  case DT_i8: return (int8_t)value;
  case DT_i16: return (int16_t)value;
  case DT_i32: return (int32_t)value;
  default: return (double)value;
  }
}

static double stored_number(const Numbers *numbers, DType dtype, double x) {
  switch (dtype_class(dtype)) {
  case CLASS_BOOL: return x != 0;
  case CLASS_INT: return wrap_integer(dtype, x);
  case CLASS_FLOAT:
    return numbers->number == INTERP_f64 ? x : dtype_round(dtype, x);
  }
  UNREACHABLE();
}

static void round_all(const Numbers *numbers, Tensor tensor) {
  if (dtype_class(tensor.type->dtype) == CLASS_FLOAT &&
      numbers->number != INTERP_f32)
    return;
  int64_t n = type_elements(tensor.type);
  for (int64_t i = 0; i < n; i++) {
    tensor.data[i] = stored_number(numbers, tensor.type->dtype, tensor.data[i]);
  }
}

/* ---- memory: buffers of values that nobody will read are used again ---- */

typedef struct Buffer {
  void *data;
  size_t bytes;
} Buffer;

typedef struct Pool {
  Arena *arena;
  const Numbers *numbers;
  VEC(Buffer) free;
} Pool;

static size_t bytes_of(const Numbers *numbers, const Type *type) {
  return (size_t)type_elements(type) * numbers_size_bytes(numbers, type->dtype);
}

/* A tensor of zeros. */
static Tensor pool_take(Pool *pool, const Type *type) {
  size_t bytes = bytes_of(pool->numbers, type);
  for (int i = pool->free.n - 1; i >= 0; i--) {
    if (pool->free.data[i].bytes != bytes) continue;
    void *data = pool->free.data[i].data;
    pool->free.data[i] = pool->free.data[--pool->free.n];
    memset(data, 0, bytes);
    return numbers_tensor(pool->numbers, type, data);
  }
  return numbers_create(pool->numbers, pool->arena, type);
}

static void pool_give(Pool *pool, Tensor tensor) {
  Buffer buffer = {tensor_array(&tensor), bytes_of(pool->numbers, tensor.type)};
  vec_push(pool->arena, &pool->free, buffer);
}

/* ---- running ---- */

typedef struct Run {
  const Graph *graph;
  const Numbers *numbers;
  Pool *pool;
  const MeshPlace *place; /* NULL: tensors are logical */
  Arena *scratch;   /* of all nodes, in a body; NULL: each node has its own */
  Tensor **results; /* [node][result] */
} Run;

static void run_graph(const Graph *graph, const Run *like, const Tensor *inputs,
                      Tensor *outputs, Arena *out_arena, Tensor *values);

/* One function for each number type; inputs have none. */
typedef struct InterpRow {
  InterpKernel *f64, *f32, *exact, *second;
} InterpRow;

static const InterpRow interp_rows[N_OPS] = {
#define PLAIN(op, name)                                                        \
  [OP_##op] = {interp_##name, interp_##name, interp_##name, interp_##name},
#define MOVED(op, name)                                                        \
  [OP_##op] = {interp_##name##_f64, interp_##name##_f64,                       \
               interp_##name##_exact, interp_##name##_second},
#define TYPED(op, name)                                                        \
  [OP_##op] = {interp_##name##_f64, interp_##name##_f32,                       \
               interp_##name##_exact, interp_##name##_second},
#include "ir/ops.def"
};

static bool call_has_floats(const InterpCall *call) {
  for (int i = 0; i < call->node->n_inputs; i++)
    if (dtype_class(call->inputs[i].type->dtype) == CLASS_FLOAT) return true;
  for (int i = 0; i < call->node->n_results; i++)
    if (dtype_class(call->results[i].type->dtype) == CLASS_FLOAT) return true;
  return false;
}

/* Integers are computed exactly, floats in the wider dtype of the operands. */
static InterpKernel *kernel_of(const Run *run, const InterpCall *call) {
  const Node *node = call->node;
  const InterpRow *row = &interp_rows[node->op];
  InterpKernel *other =
      run->numbers->kernel ? run->numbers->kernel(call) : NULL;
  if (other) return other;
  if (run->numbers->number == INTERP_f64) return row->f64;
  if (run->numbers->number == INTERP_exact) {
    if (!call_has_floats(call)) return row->f64;
    return run->numbers->has_second_prime ? row->second : row->exact;
  }
  DType dtype = call->results[0].type->dtype;
  const OpInfo *info = op_info(node->op);
  for (int i = 0; i < node->n_inputs && info->is_pointwise; i++) {
    DType input = call->inputs[i].type->dtype;
    dtype = i == 0 && dtype_class(dtype) == CLASS_BOOL
                ? input
                : dtype_promote(dtype, input);
  }
  bool is_single = dtype_class(dtype) == CLASS_FLOAT && dtype != DT_f64;
  return is_single ? row->f32 : row->f64;
}

static void tensor_copy(const Numbers *numbers, const Tensor *to,
                        const Tensor *from) {
  numbers_copy(numbers, from->type->dtype, tensor_array(to), tensor_array(from),
               type_elements(to->type));
}

void interp_fused(const InterpCall *call) {
  Run inner = *call->run;
  const Graph *body = call->node->body;
  Tensor *outputs = ARENA_ARRAY(call->arena, Tensor, body->outputs.n);
  inner.scratch = call->arena;
  run_graph(body, &inner, call->inputs, outputs, call->arena, NULL);
  for (int i = 0; i < call->node->n_results; i++) {
    tensor_copy(inner.numbers, &call->results[i], &outputs[i]);
  }
}

/* One iteration of a value that has the scanned dim in front. */
static Tensor position_of(const Numbers *numbers, const Tensor *whole,
                          const Type *type, int64_t at) {
  void *first = numbers_at(numbers, type->dtype, tensor_array(whole),
                           at * type_elements(type));
  return numbers_tensor(numbers, type, first);
}

void interp_scan(const InterpCall *call) {
  const Run *run = call->run;
  const Node *node = call->node;
  const Graph *body = node->body;
  int n_carries = scan_carries(node);
  int64_t steps = scan_steps(node);
  Tensor *given = ARENA_ARRAY(call->arena, Tensor, node->n_inputs);
  Tensor *made = ARENA_ARRAY(call->arena, Tensor, node->n_results);
  for (int i = 0; i < node->n_inputs; i++) given[i] = call->inputs[i];
  for (int i = 0; i < n_carries; i++) {
    given[i] = call->results[i];
    given[i].type = call->inputs[i].type;
    tensor_copy(run->numbers, &given[i], &call->inputs[i]);
  }
  for (int64_t step = 0; step < steps; step++) {
    int64_t at = scan_is_reversed(node) ? steps - 1 - step : step;
    Arena *scratch = arena_beside(call->arena);
    for (int i = n_carries; i < node->n_inputs; i++)
      if (scan_input_role(node, i) == ROLE_slice)
        given[i] =
            position_of(run->numbers, &call->inputs[i],
                        graph_type(body, body->inputs.data[i].value), at);
    Run inner = *run;
    inner.scratch = scratch;
    run_graph(body, &inner, given, made, scratch, NULL);
    for (int i = 0; i < node->n_results; i++) {
      Tensor to = position_of(run->numbers, &call->results[i], made[i].type,
                              i < n_carries ? 0 : at);
      tensor_copy(run->numbers, &to, &made[i]);
    }
    arena_destroy(scratch);
  }
}

/* The results are zeroed. */
static void call_kernel(Run *run, const Node *node, const Tensor *inputs,
                        Tensor *results, Arena *scratch) {
  InterpCall call = {node,         inputs,     results, scratch,
                     run->numbers, run->place, run};
  kernel_of(run, &call)(&call);
  for (int i = 0; i < node->n_results; i++) round_all(run->numbers, results[i]);
}

static void run_node(Run *run, int id) {
  const Node *node = run->graph->nodes.data[id];
  Arena *own = run->scratch ? NULL : arena_beside(run->pool->arena);
  Arena *scratch = own ? own : run->scratch;
  Tensor *inputs = ARENA_ARRAY(scratch, Tensor, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    Value value = node->inputs[i];
    inputs[i] = run->results[value.node][value.result];
  }
  for (int i = 0; i < node->n_results; i++) {
    run->results[id][i] = pool_take(run->pool, node->types[i]);
  }
  call_kernel(run, node, inputs, run->results[id], scratch);
  arena_destroy(own);
}

static Tensor copied_tensor(const Numbers *numbers, Tensor tensor,
                            Arena *arena) {
  void *copy =
      arena_copy(arena, tensor_array(&tensor), bytes_of(numbers, tensor.type));
  return numbers_tensor(numbers, tensor.type, copy);
}

/* Frees the values that node `id` was the last to read. */
static void release_inputs(Run *run, int id, int *uses) {
  const Node *node = run->graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    int from = node->inputs[i].node;
    if (--uses[from] > 0) continue;
    const Node *source = run->graph->nodes.data[from];
    for (int r = 0; r < source->n_results; r++) {
      pool_give(run->pool, run->results[from][r]);
    }
  }
}

/* With the number system, memory and place of `like`. */
static void run_graph(const Graph *graph, const Run *like, const Tensor *inputs,
                      Tensor *outputs, Arena *out_arena, Tensor *values) {
  Run run = *like;
  Pool *pool = run.pool;
  run.graph = graph;
  run.results = ARENA_ARRAY(pool->arena, Tensor *, graph->nodes.n);
  int *uses = graph_use_counts(graph, pool->arena);
  for (int id = 0; id < graph->nodes.n; id++) {
    int n = graph->nodes.data[id]->n_results;
    run.results[id] = ARENA_ARRAY(pool->arena, Tensor, n);
  }
  for (int i = 0; i < graph->inputs.n; i++) {
    Value value = graph->inputs.data[i].value;
    const Type *type = graph_type(graph, value);
    ASSERT(type_elements(type) == type_elements(inputs[i].type));
    ASSERT((inputs[i].exact != NULL) ==
           numbers_are_exact(run.numbers, type->dtype));
    Tensor tensor = pool_take(pool, type);
    tensor_copy(run.numbers, &tensor, &inputs[i]);
    round_all(run.numbers, tensor);
    run.results[value.node][0] = tensor;
  }
  for (int id = 0; id < graph->nodes.n; id++) {
    if (graph->nodes.data[id]->op != OP_input) run_node(&run, id);
    if (values != NULL)
      values[id] = copied_tensor(run.numbers, run.results[id][0], out_arena);
    release_inputs(&run, id, uses);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    Value value = graph->outputs.data[i].value;
    outputs[i] = copied_tensor(
        run.numbers, run.results[value.node][value.result], out_arena);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    int id = graph->outputs.data[i].value.node;
    if (--uses[id] > 0) continue;
    for (int r = 0; r < graph->nodes.data[id]->n_results; r++) {
      pool_give(pool, run.results[id][r]);
    }
  }
}

void interp_run_in(const Graph *graph, const Numbers *numbers, Arena *arena,
                   const Tensor *inputs, Tensor *out_outputs, Tensor *values) {
  Pool pool = {.arena = arena_beside(arena), .numbers = numbers};
  Run run = {.numbers = numbers, .pool = &pool};
  run_graph(graph, &run, inputs, out_outputs, arena, values);
  arena_destroy(pool.arena);
}

void interp_run(const Graph *graph, InterpNumber number, Arena *arena,
                const Tensor *inputs, Tensor *out_outputs, Tensor *values) {
  Numbers numbers = {.number = number};
  interp_run_in(graph, &numbers, arena, inputs, out_outputs, values);
}

void interp_node(const Graph *graph, const Node *node, const Numbers *numbers,
                 const MeshPlace *place, const Tensor *inputs, Tensor *results,
                 const Arena *beside) {
  Arena *scratch = arena_beside(beside);
  Pool pool = {.arena = scratch, .numbers = numbers};
  Run run = {.graph = graph, .numbers = numbers, .pool = &pool, .place = place};
  call_kernel(&run, node, inputs, results, scratch);
  arena_destroy(scratch);
}

Tensor interp_initial(const Graph *graph, int input_index, uint64_t seed,
                      Arena *arena) {
  const GraphInput *input = &graph->inputs.data[input_index];
  const Type *type = graph_type(graph, input->value);
  uint64_t key = random_key(seed, input->path);
  int64_t n = type_elements(type);
  Tensor tensor = {.type = type, .data = ARENA_ARRAY(arena, double, n)};
  int64_t sizes[MAX_RANK];
  for (int d = 0; d < type->rank; d++) sizes[d] = type->dims[d].size;
  init_fill(arena, input->init, key, sizes, type->rank, tensor.data);
  round_all(&(Numbers){.number = INTERP_f32}, tensor);
  return tensor;
}
