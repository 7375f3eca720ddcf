/*
 * count.c -- compiles the interpreter's text for numbers that count: count.h
 * says what.
 *
 * A cell is an ExactNumber, so that memory, views, fused regions and scans of
 * INTERP_exact serve it: v has the bits of a double, e says where it comes
 * from.  Zeroed memory is a cell that nobody wrote.
 */
#include "tests/count/count.h"

#include <math.h>
#include <string.h>

#include "interp/exact.h"
#include "interp/internal.h"

/* ---- cells ---- */

enum { NOT_WRITTEN, COMPUTED, PRODUCT };
#define ORIGIN       (UINT64_C(1) << 62) /* an element of an operand */
#define ORIGIN_SHIFT 40 /* the operand; below it, the element */

/* The count of the run that goes on: the macros below have no other way to it.
 */
static Count *count;
static const double *operand_arrays[COUNT_OPERANDS]; /* of integers */

static double cell_value(ExactNumber cell) {
  double x;
  memcpy(&x, &cell.v, sizeof x);
  return x;
}

static ExactNumber cell_make(double x, uint64_t e) {
  ExactNumber cell = {.e = e};
  memcpy(&cell.v, &x, sizeof x);
  return cell;
}

static int cell_operand(ExactNumber cell) {
  return cell.e & ORIGIN ? (int)((cell.e & ~ORIGIN) >> ORIGIN_SHIFT) : -1;
}

static int64_t cell_element(ExactNumber cell) {
  return (int64_t)(cell.e & ((UINT64_C(1) << ORIGIN_SHIFT) - 1));
}

static ExactNumber cell_read(ExactNumber cell) {
  if (cell.e & ORIGIN)
    count->operands[cell_operand(cell)].is_read[cell_element(cell)] = true;
  return cell;
}

/* ---- operations ---- */

static ExactNumber operation(double price, double x) {
  count->flops += price;
  return cell_make(x, COMPUTED);
}

static ExactNumber multiplied(ExactNumber a, ExactNumber b) {
  operation(1, 0);
  return cell_make(cell_value(a) * cell_value(b), PRODUCT);
}

static ExactNumber summed(ExactNumber sum, ExactNumber term) {
  count->n_added_products += term.e == PRODUCT;
  return operation(1, cell_value(sum) + cell_value(term));
}

static bool compared(ExactNumber a, ExactNumber b, double sign) {
  cell_read(a), cell_read(b);
  operation(1, 0);
  return interp_is_above(sign * cell_value(a), sign * cell_value(b));
}

static ExactNumber exponential(ExactNumber a) {
  count->n_exponentials++;
  return operation(op_info(OP_exp)->flops, exp(cell_value(a)));
}

static ExactNumber inner_product(const ExactNumber *a, const int64_t *a_at,
                                 const ExactNumber *b, const int64_t *b_at,
                                 int64_t n) {
  ExactNumber sum = cell_make(0, COMPUTED);
  for (int64_t i = 0; i < n; i++) {
    ExactNumber x = a[a_at[i]], y = b[b_at[i]];
    if (cell_operand(x) >= 0) count->n_products_with[cell_operand(x)]++;
    if (cell_operand(y) >= 0) count->n_products_with[cell_operand(y)]++;
    sum = summed(sum, multiplied(cell_read(x), cell_read(y)));
  }
  return sum;
}

/* A factor is the place of a cell: those beyond the last row have none, and no
 * two rows have equal ones. */
typedef const ExactNumber *Factor;

static void tile_product(const Factor *rows, const Factor *columns, int64_t n,
                         ExactNumber out[DOT_TILE][DOT_TILE]) {
  for (int i = 0; i < DOT_TILE; i++)
    for (int j = 0; j < DOT_TILE; j++) {
      out[i][j] = cell_make(0, COMPUTED);
      for (int64_t k = 0; k < n * DOT_TILE; k += DOT_TILE)
        if (rows[k + i] && columns[k + j])
          out[i][j] = summed(out[i][j], multiplied(cell_read(*rows[k + i]),
                                                   cell_read(*columns[k + j])));
    }
}

/* ---- padding ---- */

static bool in_bounds(const ConvLoops *conv) {
  bool is_inside = conv_in_bounds(conv);
  if (!is_inside) count->padding += 2 * (double)loops_count(&conv->channels);
  return is_inside;
}

static PoolWindow clipped_window(const Node *node, const Type *x, const Type *y,
                                 const Loops *loops) {
  PoolWindow window = pool_window(node, x, y, loops);
  if (!node_has(node, ATTR_window)) return window;
  int n;
  const int64_t *widths = node_ints(node, ATTR_window, &n);
  double taps = 1, inside = 1;
  for (int i = 0; i < n; i++) {
    taps *= (double)widths[i];
    inside *= (double)(window.end[i] - window.begin[i]);
  }
  count->padding += taps - inside;
  return window;
}

/* ---- the interpreter's text ---- */

#define SUFFIX             count
#define NUM                ExactNumber
#define CELL               ExactNumber
#define CELLS(tensor)      ((tensor)->exact)
#define CONSTANT(dtype, x) ((void)(dtype), cell_make((double)(x), COMPUTED))
#define R(x)               cell_make((double)(x), COMPUTED)
#define LOAD(x)            cell_read(x)
#define STORE(x)           cell_make(cell_value(x), COMPUTED)
#define ZERO               cell_make(0, COMPUTED)
#define MINUS_INF          cell_make(-INFINITY, COMPUTED)
#define IS_ZERO(x)         (cell_value(x) == 0)
#define IS_MINUS_INF(x)    (cell_value(x) == -INFINITY)
#define IS_PLUS_INF(x)     (cell_value(x) == INFINITY)
#define IS_ABOVE(a, b)     compared(a, b, 1)
#define IS_BELOW(a, b)     compared(a, b, -1)
/* The first element of a row is compared too, with -inf. */
#define CHOSEN(key, x) ((void)(key), operation(1, cell_value(cell_read(x))))
#define ADD(key, a, b)                                                         \
  ((void)(key), operation(1, cell_value(a) + cell_value(b)))
#define SUB(key, a, b)                                                         \
  ((void)(key), operation(1, cell_value(a) - cell_value(b)))
#define MUL(a, b)       multiplied(a, b)
#define DIV(a, b)       operation(1, cell_value(a) / cell_value(b))
#define PLUS(sum, term) summed(sum, term)
#define EXP_OF(key, x)  ((void)(key), exponential(x))
#define LOG_OF(key, x)                                                         \
  ((void)(key), operation(op_info(OP_log)->flops, log(cell_value(x))))
#define RSQRT_OF(key, x)                                                       \
  ((void)(key), operation(op_info(OP_rsqrt)->flops, 1 / sqrt(cell_value(x))))
#define FACTOR         Factor
#define FACTOR_OF(x)   (&(x))
#define conv_in_bounds in_bounds
#define pool_window    clipped_window

#include "interp/moves.inc"
#include "interp/structured.inc"

/* ---- pointwise rows and casts ---- */

static double operand(const Tensor *x, int64_t at) {
  if (x->exact) return cell_value(cell_read(x->exact[at]));
  for (int i = 0; i < COUNT_OPERANDS; i++)
    if (operand_arrays[i] == x->data) count->operands[i].is_read[at] = true;
  return x->data[at];
}

static void store(const Tensor *y, int64_t at, double x) {
  if (y->exact)
    y->exact[at] = cell_make(x, COMPUTED);
  else
    y->data[at] = x;
}

static void interp_pointwise_count(const InterpCall *call) {
  const Tensor *y = &call->results[0];
  const Node *node = call->node;
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  for (int i = 0; i < node->n_inputs; i++)
    loops_bind(&loops, call->inputs[i].type);
  int64_t at = 0;
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    double x[3] = {0};
    for (int i = 0; i < node->n_inputs; i++)
      x[i] = operand(&call->inputs[i], loops.offset[i]);
    count->flops += op_info(node->op)->flops;
    store(y, at++, op_value(node->op, x[0], x[1], x[2]));
  }
}

static void interp_cast_count(const InterpCall *call) {
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  loops_bind(&loops, x->type);
  int64_t at = 0;
  for (bool more = loops_start(&loops); more; more = loops_next(&loops))
    store(y, at++, operand(x, loops.offset[0]));
}

/* ---- look-ups ---- */

/* Which elements of the table the result has; one that no index asks for would
 * have been read.  What reads the result reads no table. */
static void count_rows(const InterpCall *call) {
  const Tensor *table = &call->inputs[0], *y = &call->results[0];
  int64_t n = type_elements(y->type);
  int from = type_elements(table->type) ? cell_operand(table->exact[0]) : -1;
  for (int64_t i = 0; i < n; i++) {
    if (from >= 0) count->operands[from].n_rows++;
    if (y->exact[i].e) y->exact[i].e = COMPUTED;
  }
}

/* ---- the table of functions ---- */

static InterpKernel *const kernels[N_OPS] = {
#define MOVED(op, name) [OP_##op] = interp_##name##_count,
#define TYPED(op, name) [OP_##op] = interp_##name##_count,
#include "ir/ops.def"
};

static void look_up(const InterpCall *call) {
  kernels[call->node->op](call);
  count_rows(call);
}

/* Calls without floats have no cells; what they compute is counted in
 * pointwise rows alone. */
static InterpKernel *kernel_of_call(const InterpCall *call) {
  Op op = call->node->op;
  bool has_cells = false;
  for (int i = 0; i < call->node->n_inputs; i++)
    has_cells |= call->inputs[i].exact != NULL;
  for (int r = 0; r < call->node->n_results; r++)
    has_cells |= call->results[r].exact != NULL;
  if (!has_cells && !op_info(op)->is_pointwise) return NULL;
  return has_cells && op_has(op, OP_FLAG_lookup) ? look_up : kernels[op];
}

static const Numbers counting = {.number = INTERP_exact,
                                 .kernel = kernel_of_call};

/* ---- one run ---- */

typedef struct CountRun {
  const Graph *graph;
  const Node *node;
  const MeshPlace *place;
  const Tensor *inputs; /* doubles */
  const Type *const *result_types;
  Arena *arena;
} CountRun;

/* Operand `i` as cells that name it. */
static Tensor cells_of(const Tensor *input, int i, Arena *arena) {
  Tensor tensor = numbers_create(&counting, arena, input->type);
  int64_t n = type_elements(input->type);
  for (int64_t k = 0; k < n; k++) {
    uint64_t e = ORIGIN | (uint64_t)i << ORIGIN_SHIFT | (uint64_t)k;
    if (tensor.exact)
      tensor.exact[k] = cell_make(input->data[k], e);
    else
      tensor.data[k] = input->data[k];
  }
  return tensor;
}

/* The first operand of the same value. */
static int first_operand(const Node *node, int i) {
  int first = 0;
  while (!value_equal(node->inputs[first], node->inputs[i])) first++;
  return first;
}

/* Integers of results are `before` at first. */
static Tensor *run_node(const CountRun *run, Arena *arena, double before,
                        Count *into) {
  const Node *node = run->node;
  Tensor *inputs = ARENA_ARRAY(arena, Tensor, node->n_inputs);
  Tensor *results = ARENA_ARRAY(arena, Tensor, node->n_results);
  for (int i = 0; i < node->n_inputs; i++) {
    int first = first_operand(node, i);
    inputs[i] = first < i ? inputs[first] : cells_of(&run->inputs[i], i, arena);
  }
  for (int r = 0; r < node->n_results; r++) {
    results[r] = numbers_create(&counting, arena, run->result_types[r]);
    int64_t n = type_elements(results[r].type);
    for (int64_t k = 0; k < n && !results[r].exact; k++)
      results[r].data[k] = before;
  }
  for (int i = 0; i < COUNT_OPERANDS; i++)
    operand_arrays[i] = i < node->n_inputs && first_operand(node, i) == i
                            ? inputs[i].data
                            : NULL;
  count = into;
  interp_node(run->graph, node, &counting, run->place, inputs, results, arena);
  count = NULL;
  return results;
}

static void count_begin(Count *out, const Tensor *inputs, int n, Arena *arena) {
  *out = (Count){0};
  ASSERT(n <= COUNT_OPERANDS);
  for (int i = 0; i < n; i++) {
    CountedOperand *operand = &out->operands[i];
    operand->n_elements = type_elements(inputs[i].type);
    operand->is_read = ARENA_ARRAY(arena, bool, operand->n_elements + 1);
  }
}

/* ---- results ---- */

static void count_cells(const Tensor *result, CountedResult *out,
                        Count *counted) {
  for (int64_t k = 0; k < out->n_elements; k++) {
    ExactNumber cell = result->exact[k];
    out->n_written += cell.e != NOT_WRITTEN;
    int from = cell_operand(cell);
    out->from[k] = from;
    if (from < 0) continue;
    out->at[k] = cell_element(cell);
    counted->operands[from].n_moved++;
    counted->operands[from].is_read[out->at[k]] = true;
  }
}

/* An integer that is what it was, whatever that was, is not written. */
static void count_results(const CountRun *run, Count *out) {
  Count other;
  count_begin(&other, run->inputs, run->node->n_inputs, run->arena);
  Tensor *results = run_node(run, run->arena, 0, out);
  Tensor *again = run_node(run, run->arena, 1, &other);
  for (int r = 0; r < run->node->n_results; r++) {
    CountedResult *result = &out->results[r];
    int64_t n = type_elements(results[r].type);
    *result = (CountedResult){.n_elements = n,
                              .from = ARENA_ARRAY(run->arena, int32_t, n + 1),
                              .at = ARENA_ARRAY(run->arena, int64_t, n + 1)};
    if (results[r].exact) count_cells(&results[r], result, out);
    for (int64_t k = 0; k < n && !results[r].exact; k++) {
      result->from[k] = -1;
      result->n_written += results[r].data[k] == again[r].data[k];
    }
  }
}

/* ---- integers that are read ---- */

static bool is_same_tensor(const Tensor *a, const Tensor *b) {
  size_t n = (size_t)type_elements(a->type);
  size_t size = numbers_size_bytes(&counting, a->type->dtype);
  return memcmp(tensor_array(a), tensor_array(b), n * size) == 0;
}

/* Some other value of the element gives other results. */
static bool is_sensitive(const CountRun *run, const Tensor *results,
                         double *element) {
  static const double values[] = {0, 1, -1, 2, 3, 4, 5, 6, 40};
  double before = *element;
  bool is_read = false;
  for (int i = 0; i < ARRAY_LENGTH(values) && !is_read; i++) {
    if (values[i] == before) continue;
    Arena *arena = arena_beside(run->arena);
    Count other;
    count_begin(&other, run->inputs, run->node->n_inputs, arena);
    *element = values[i];
    Tensor *changed = run_node(run, arena, 0, &other);
    for (int r = 0; r < run->node->n_results; r++)
      is_read |= !is_same_tensor(&changed[r], &results[r]);
    arena_destroy(arena);
  }
  *element = before;
  return is_read;
}

static void count_integers(const CountRun *run, Count *out) {
  Count other;
  count_begin(&other, run->inputs, run->node->n_inputs, run->arena);
  Tensor *results = run_node(run, run->arena, 0, &other);
  for (int i = 0; i < run->node->n_inputs; i++) {
    CountedOperand *operand = &out->operands[i];
    DType dtype = run->inputs[i].type->dtype;
    if (dtype_class(dtype) == CLASS_FLOAT || first_operand(run->node, i) < i)
      continue;
    for (int64_t k = 0; k < operand->n_elements; k++)
      if (!operand->is_read[k])
        operand->is_read[k] =
            is_sensitive(run, results, &run->inputs[i].data[k]);
  }
}

/* ---- public ---- */

void count_node(const Graph *graph, const Node *node, const MeshPlace *place,
                const Tensor *inputs, const Type *const *result_types,
                Arena *arena, Count *out) {
  CountRun run = {graph, node, place, inputs, result_types, arena};
  count_begin(out, inputs, node->n_inputs, arena);
  count_results(&run, out);
  count_integers(&run, out);
  for (int i = 0; i < node->n_inputs; i++)
    for (int64_t k = 0; k < out->operands[i].n_elements; k++)
      out->operands[i].n_read += out->operands[i].is_read[k];
}

double count_graph_flops(const Graph *graph, const Tensor *inputs,
                         Arena *arena) {
  Count counted;
  int n = graph->inputs.n;
  Tensor *cells = ARENA_ARRAY(arena, Tensor, n);
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, graph->outputs.n);
  count_begin(&counted, inputs, n, arena);
  for (int i = 0; i < n; i++) cells[i] = cells_of(&inputs[i], i, arena);
  count = &counted;
  interp_run_in(graph, &counting, arena, cells, outputs, NULL);
  count = NULL;
  return counted.flops;
}
