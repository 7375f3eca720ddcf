/*
 * exact.c -- the interpreter's operators in exact mode: pointwise rows by the
 * rules of exact.h, the others from the text that all number systems share.
 */
#include <math.h>
#include <string.h>

#include "ir/interp/exact.h"
#include "ir/interp/internal.h"

/* ---- pointwise rows ---- */

bool exact_compare(Op op, ExactNumber a, ExactNumber b) {
  if (exact_is_nan(a) || exact_is_nan(b)) return op == OP_ne;
  switch (op) {
  case OP_eq: return exact_equal(a, b);
  case OP_ne: return !exact_equal(a, b);
  case OP_lt: return exact_is_above(b, a);
  case OP_gt: return exact_is_above(a, b);
  case OP_le: return !exact_is_above(a, b);
  case OP_ge: return !exact_is_above(b, a);
  case OP_finite: return !exact_is_infinite(a);
  default: UNREACHABLE();
  }
}

/* One word that names a number; infinite ones lie beyond the residues. */
static uint64_t word_of(ExactNumber a) {
  return exact_is_infinite(a) ? exact_e(a) : a.v;
}

/* The row is named by its text, so that new rows change no number. */
static uint64_t hashed(uint64_t key, Op op, ExactNumber a, ExactNumber b,
                       ExactNumber c) {
  const OpInfo *info = op_info(op);
  uint64_t row = hash_bytes(info->name, strlen(info->name), 0);
  uint64_t words[] = {row, word_of(a), word_of(b), word_of(c)};
  return exact_hash(key, words, 1 + info->max_inputs);
}

ExactNumber exact_sqrt(uint64_t key, ExactNumber a) {
  if (exact_is_nan(a)) return a;
  return (ExactNumber){hashed(key, OP_sqrt, a, a, a), 0};
}

ExactNumber exact_rsqrt(uint64_t key, ExactNumber a) {
  ExactNumber root = exact_sqrt(key, a);
  return (ExactNumber){residue_inverse(root.v), root.e};
}

/* Integer powers are products. */
static ExactNumber power(uint64_t key, ExactNumber a, ExactNumber b) {
  enum { MOST = 64 };
  if (!exact_is_infinite(a) && b.e == 0 && b.v <= MOST)
    return (ExactNumber){residue_pow(a.v, b.v), 0};
  return (ExactNumber){hashed(key, OP_pow, a, b, b), 0};
}

ExactNumber exact_point(uint64_t key, Op op, ExactNumber a, ExactNumber b,
                        ExactNumber c) {
  bool is_nan = (a.e | b.e | c.e) != 0 &&
                (exact_is_nan(a) || exact_is_nan(b) || exact_is_nan(c));
  if (is_nan && op != OP_select) return (ExactNumber){0, EXACT_NAN};
  switch (op) {
  case OP_neg: return exact_neg(a);
  case OP_add: return exact_add(key, a, b);
  case OP_sub: return exact_sub(key, a, b);
  case OP_mul: return exact_mul(a, b);
  case OP_div: return exact_div(a, b);
  case OP_exp: return exact_exp(key, a);
  case OP_log: return exact_log(key, a);
  case OP_sqrt: return exact_sqrt(key, a);
  case OP_rsqrt: return exact_rsqrt(key, a);
  case OP_pow: return power(key, a, b);
  case OP_minimum: return exact_min(key, a, b);
  case OP_maximum: return exact_max(key, a, b);
  case OP_select: return exact_is_zero(a) ? c : b;
  case OP_stop_gradient: return a;
  default: return (ExactNumber){hashed(key, op, a, b, c), 0};
  }
}

ExactNumber exact_guard(Op op, ExactNumber a, ExactNumber b) {
  if (exact_is_nan(a) || exact_is_nan(b)) return (ExactNumber){0, EXACT_NAN};
  if (op == OP_minimum) return exact_e(a) == EXACT_PLUS_INF ? b : a;
  return exact_is_zero(a) || exact_e(a) == EXACT_MINUS_INF ? b : a;
}

/* Element `at` of an operand; bools and integers are residues here. */
static ExactNumber operand(const Tensor *x, int64_t at) {
  return x->exact ? x->exact[at] : exact_integer((int64_t)x->data[at]);
}

/* A divisor is often one number for many elements. */
typedef struct Divisor {
  uint64_t v, inverse;
} Divisor;

static ExactNumber divided(Divisor *last, ExactNumber a, ExactNumber b) {
  if ((a.e | b.e) != 0) return exact_div(a, b);
  if (b.v != last->v) *last = (Divisor){b.v, residue_inverse(b.v)};
  return (ExactNumber){residue_mul(a.v, last->inverse), 0};
}

void interp_pointwise_exact(const InterpCall *call) {
  const Tensor *y = &call->results[0];
  Op op = call->node->op;
  int n = call->node->n_inputs;
  uint64_t key = call->numbers->seed;
  bool is_guard = node_int(call->node, ATTR_guard, 0) != 0;
  Divisor last = {0};
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  for (int i = 0; i < n; i++) loops_bind(&loops, call->inputs[i].type);
  int64_t at = 0;
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    ExactNumber x[3] = {{0}};
    for (int i = 0; i < n; i++)
      x[i] = operand(&call->inputs[i], loops.offset[i]);
    if (!y->exact) {
      y->data[at++] = exact_compare(op, x[0], x[1]);
    } else if (is_guard) {
      y->exact[at++] = exact_guard(op, x[0], x[1]);
    } else if (op == OP_div) {
      y->exact[at++] = divided(&last, x[0], x[1]);
    } else {
      y->exact[at++] = exact_point(key, op, x[0], x[1], x[2]);
    }
  }
}

/* The identity among floats. */
void interp_cast_exact(const InterpCall *call) {
  const Tensor *x = &call->inputs[0], *y = &call->results[0];
  DType to = y->type->dtype;
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  loops_bind(&loops, x->type);
  int64_t at = 0;
  for (bool more = loops_start(&loops); more; more = loops_next(&loops), at++) {
    ExactNumber number = operand(x, loops.offset[0]);
    if (y->exact) {
      y->exact[at] = number;
    } else {
      y->data[at] = exact_to_integer(to, number);
    }
  }
}

/* ---- the others ---- */

#define SUFFIX             exact
#define NUM                ExactNumber
#define CELL               ExactNumber
#define CELLS(tensor)      ((tensor)->exact)
#define CONSTANT(dtype, x) exact_constant(dtype, x)
#define R(x)               exact_constant(DT_f64, (double)(x))
#define LOAD(x)            (x)
#define STORE(x)           (x)
#define ZERO               ((ExactNumber){0, 0})
#define MINUS_INF          ((ExactNumber){0, EXACT_MINUS_INF})
#define IS_ZERO(x)         exact_is_zero(x)
#define IS_MINUS_INF(x)    (exact_e(x) == EXACT_MINUS_INF)
#define IS_PLUS_INF(x)     (exact_e(x) == EXACT_PLUS_INF)
#define IS_ABOVE(a, b)     exact_is_above(a, b)
#define IS_BELOW(a, b)     exact_is_below(a, b)
#define CHOSEN(key, x)     exact_chosen(key, x)
#define ADD(key, a, b)     exact_add(key, a, b)
#define SUB(key, a, b)     exact_sub(key, a, b)
#define MUL(a, b)          exact_mul(a, b)
#define DIV(a, b)          exact_div(a, b)
#define PLUS(sum, term)    exact_plus(sum, term)
#define EXP_OF(key, x)     exact_exp(key, x)
#define LOG_OF(key, x)     exact_log(key, x)
#define RSQRT_OF(key, x)   exact_rsqrt(key, x)

/* Products are below 2^122, so 32 of them fit besides a reduced sum. */
static ExactNumber inner_product(const ExactNumber *a, const int64_t *a_at,
                                 const ExactNumber *b, const int64_t *b_at,
                                 int64_t n) {
  ExactWide sum = 0;
  bool is_nan = false;
  for (int64_t i = 0; i < n;) {
    int64_t end = i + 32 < n ? i + 32 : n;
    for (; i < end; i++) {
      ExactNumber x = a[a_at[i]], y = b[b_at[i]];
      sum += (ExactWide)x.v * y.v;
      is_nan |= exact_is_nan(x);
      is_nan |= exact_is_nan(y);
    }
    sum = (sum & EXACT_PRIME) + (sum >> 61);
  }
  if (is_nan) return (ExactNumber){0, EXACT_NAN};
  return (ExactNumber){exact_reduce(sum), 0};
}

#define FACTOR       uint64_t
#define NAN_FACTOR   (UINT64_C(1) << 63)
#define FACTOR_OF(x) ((x).v | (exact_is_nan(x) ? NAN_FACTOR : 0))

/* Joins the bits of all factors of each row or column of a tile.  Sums that
 * have a NaN among their factors wrap, and nobody reads them. */
static void join_factors(const uint64_t *factors, int64_t n,
                         uint64_t out[DOT_TILE]) {
  for (int64_t k = 0; k < n; k++)
    for (int i = 0; i < DOT_TILE; i++) out[i] |= factors[k * DOT_TILE + i];
}

static void tile_product(const uint64_t *rows, const uint64_t *columns,
                         int64_t n, ExactNumber out[DOT_TILE][DOT_TILE]) {
  ExactWide sums[DOT_TILE][DOT_TILE] = {{0}};
  for (int64_t begin = 0; begin < n; begin += 32) {
    int64_t end = begin + 32 < n ? begin + 32 : n;
    for (int i = 0; i < DOT_TILE; i++)
      for (int j = 0; j < DOT_TILE; j++) {
        ExactWide sum = sums[i][j];
        for (int64_t k = begin; k < end; k++)
          sum += (ExactWide)rows[k * DOT_TILE + i] * columns[k * DOT_TILE + j];
        sums[i][j] = (sum & EXACT_PRIME) + (sum >> 61);
      }
  }
  uint64_t of_rows[DOT_TILE] = {0}, of_columns[DOT_TILE] = {0};
  join_factors(rows, n, of_rows);
  join_factors(columns, n, of_columns);
  for (int i = 0; i < DOT_TILE; i++)
    for (int j = 0; j < DOT_TILE; j++)
      out[i][j] = (of_rows[i] | of_columns[j]) & NAN_FACTOR
                      ? (ExactNumber){0, EXACT_NAN}
                      : (ExactNumber){exact_reduce(sums[i][j]), 0};
}

#include "ir/interp/moves.inc"
#include "ir/interp/structured.inc"
