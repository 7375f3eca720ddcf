/*
 * exact.h -- declares the numbers of exact mode: residues modulo a prime, in
 * which two programs that compute the same function over the reals agree
 * exactly.
 *
 * A number is v modulo p = 2^61 - 1 (or 2^61 - 31, a second opinion) and, for
 * some values, E, its exponential:
 *
 *   - neg, add, sub, mul, div and sums act on v.  A constant is the simplest
 *     fraction that rounds to it.
 *   - exp(x) is x's E if it has one, else G(v), a keyed random function.  The
 *     result has no E.
 *   - E begins in two places.  log(x) has a hash of x's v as v, and x's v as
 *     E.  A maximum or minimum is the element chosen, with E = G(v) where that
 *     had none.
 *   - add, sub and neg multiply E; the operand that has none is filled with
 *     G(v).  Moves and choices carry E, a sum carries it if all other terms
 *     are exact zeros; all else drops it.
 *   - Every other pointwise operator is a hash of its row and its operands' v.
 *     That of a root is chosen to be positive: where an optimizer asks whether
 *     a norm is above 0, it is.
 *   - The order is that of v as a signed integer, -inf (E = 0) before all: of
 *     comparisons, maxima, sort and topk.  It is not the order of the reals,
 *     but one order that both programs share, so they choose the same elements;
 *     other seeds choose others.  A maximum or minimum with `guard`
 *     (rows_guard) is its first operand, unless that is infinite or an exact
 *     zero.
 *   - NaN is what padding of uneven shards may hold.  All but moves, choices
 *     and comparisons make NaN of it, as in floats: of products with 0 too.
 *   - Casts among floats are the identity: roundings are not looked at.
 *   - No row of ops.def is without a rule: one that has no exact function fails
 *     the link.
 *
 * So exp(a + b) = exp(a) exp(b) where a or b comes from a log or a maximum:
 * softmax under any shift, partial softmaxes merged in any order, and the
 * gradient exp(s - lse) agree.  Elsewhere an exponent is complete in both
 * programs and G of it is equal.  A difference between two programs means that
 * they are not equal by these identities (random functions: Gulwani and Necula,
 * POPL 2003; without hashes Schwartz-Zippel bounds a false equality by degree /
 * p).
 */
#ifndef INTERP_EXACT_H
#define INTERP_EXACT_H

#include "interp/interp.h"

/* The prime is 2^61 - EXACT_BELOW.  second.c compiles exact mode again for
 * another one, where the functions have these other names. */
#ifdef EXACT_SECOND
#define EXACT_BELOW      31
#define residue_pow      second_residue_pow
#define residue_inverse  second_residue_inverse
#define exact_is_above   second_is_above
#define exact_is_below   second_is_below
#define exact_integer    second_integer
#define exact_constant   second_constant
#define exact_to_integer second_to_integer
#define exact_neg        second_neg
#define exact_add_e      second_add_e
#define exact_mul_e      second_mul_e
#define exact_div        second_div
#define exact_exp        second_exp
#define exact_log        second_log
#define exact_sqrt       second_sqrt
#define exact_rsqrt      second_rsqrt
#define exact_chosen     second_chosen
#define exact_guard      second_guard
#define exact_hash       second_hash
#define exact_point      second_point
#define exact_compare    second_compare
#else
#define EXACT_BELOW 1
#endif
#define EXACT_MASK  ((UINT64_C(1) << 61) - 1)
#define EXACT_PRIME (EXACT_MASK - EXACT_BELOW + 1)

/* E is kept so that zeroed memory is the number 0 without E: 0 is none, 1 to
 * p - 1 are residues, 2^61 - 1 stands for the residue 0 (the value is -inf),
 * 2^61 for its inverse (+inf), 2^61 + 1 for NaN.  Those three have v = 0. */
struct ExactNumber {
  uint64_t v;
  uint64_t e;
};
#define EXACT_MINUS_INF EXACT_MASK
#define EXACT_PLUS_INF  (EXACT_MASK + 1)
#define EXACT_NAN       (EXACT_MASK + 2)
#define EXACT_FROM_LOG  (UINT64_C(1) << 63) /* a flag of e */

__extension__ typedef unsigned __int128 ExactWide;

/* ---- residues ---- */

/* Returns an equal residue of about 61 bits less. */
static inline ExactWide exact_fold(ExactWide x) {
  return (x & EXACT_MASK) + (x >> 61) * EXACT_BELOW;
}
static inline uint64_t exact_reduce(ExactWide x) { /* x < 2^122 */
  if (EXACT_BELOW > 1) x = exact_fold(x);
  uint64_t sum = (uint64_t)exact_fold(x);
  return sum >= EXACT_PRIME ? sum - EXACT_PRIME : sum;
}
static inline uint64_t residue_add(uint64_t a, uint64_t b) {
  uint64_t sum = a + b;
  return sum >= EXACT_PRIME ? sum - EXACT_PRIME : sum;
}
static inline uint64_t residue_neg(uint64_t a) {
  return a == 0 ? 0 : EXACT_PRIME - a;
}
static inline uint64_t residue_mul(uint64_t a, uint64_t b) {
  return exact_reduce((ExactWide)a * b);
}
uint64_t residue_pow(uint64_t a, uint64_t n);
/* Returns the inverse; 0 for 0, because whoever divides by 0 selects something
 * else. */
uint64_t residue_inverse(uint64_t a);

/* ---- numbers ---- */

static inline uint64_t exact_e(ExactNumber a) {
  return a.e & ~EXACT_FROM_LOG;
}
static inline bool exact_is_infinite(ExactNumber a) { /* a number, or NaN */
  return exact_e(a) >= EXACT_MINUS_INF;
}
static inline bool exact_is_nan(ExactNumber a) {
  return exact_e(a) == EXACT_NAN;
}
static inline bool exact_is_zero(ExactNumber a) {
  return (a.v | a.e) == 0;
}
static inline bool exact_equal(ExactNumber a, ExactNumber b) {
  bool is_infinite = exact_is_infinite(a) || exact_is_infinite(b);
  return is_infinite ? exact_e(a) == exact_e(b) : a.v == b.v;
}
/* Returns whether a is above b in the order -inf, then v in (-p/2, p/2), then
 * +inf.  NaN is above every number and below every number, as in
 * interp_is_above: maxima and minima choose it. */
bool exact_is_above(ExactNumber a, ExactNumber b);
bool exact_is_below(ExactNumber a, ExactNumber b);

ExactNumber exact_integer(int64_t x);
/* Returns the simplest fraction a/b with |a| b < 2^40 that rounds to x in
 * double, or else the one that rounds to x in `dtype` (f64: as f32), or a hash
 * of the bits there.  The constant of -x is that of x negated, and that of 1/x
 * its inverse. */
ExactNumber exact_constant(DType dtype, double x);
/* Returns v as a signed integer if `dtype` holds it, else some integer that it
 * holds. */
double exact_to_integer(DType dtype, ExactNumber a);

ExactNumber exact_neg(ExactNumber a);
ExactNumber exact_add_e(uint64_t key, ExactNumber a, ExactNumber b);
static inline ExactNumber exact_add(uint64_t key, ExactNumber a,
                                    ExactNumber b) {
  if ((a.e | b.e) == 0) return (ExactNumber){residue_add(a.v, b.v), 0};
  return exact_add_e(key, a, b);
}
static inline ExactNumber exact_sub(uint64_t key, ExactNumber a,
                                    ExactNumber b) {
  if ((a.e | b.e) == 0)
    return (ExactNumber){residue_add(a.v, residue_neg(b.v)), 0};
  return exact_add_e(key, a, exact_neg(b));
}
ExactNumber exact_mul_e(ExactNumber a, ExactNumber b);
static inline ExactNumber exact_mul(ExactNumber a, ExactNumber b) {
  if ((a.e | b.e) == 0) return (ExactNumber){residue_mul(a.v, b.v), 0};
  return exact_mul_e(a, b);
}
ExactNumber exact_div(ExactNumber a, ExactNumber b);
/* Adds another term to a sum.  One whose residue is 0 loses its exponential:
 * two of them would make an exact 0, and a third would be kept. */
static inline ExactNumber exact_plus(ExactNumber sum, ExactNumber term) {
  if (exact_is_infinite(sum) && !exact_is_nan(term)) return sum;
  if (exact_is_infinite(term)) return term;
  if (term.v == 0) return sum;
  if (sum.v == 0) return term;
  return (ExactNumber){residue_add(sum.v, term.v), 0};
}

ExactNumber exact_exp(uint64_t key, ExactNumber a);
ExactNumber exact_log(uint64_t key, ExactNumber a);
ExactNumber exact_sqrt(uint64_t key, ExactNumber a);
ExactNumber exact_rsqrt(uint64_t key, ExactNumber a);
/* Returns the element that a maximum or minimum has chosen. */
ExactNumber exact_chosen(uint64_t key, ExactNumber a);
static inline ExactNumber exact_max(uint64_t key, ExactNumber a,
                                    ExactNumber b) {
  return exact_chosen(key, exact_is_above(b, a) ? b : a);
}
static inline ExactNumber exact_min(uint64_t key, ExactNumber a,
                                    ExactNumber b) {
  return exact_chosen(key, exact_is_below(b, a) ? b : a);
}
/* Returns a maximum or minimum of `a` and `b` that is a guard. */
ExactNumber exact_guard(Op op, ExactNumber a, ExactNumber b);
/* Returns a random residue: the number that `words` name under the key. */
uint64_t exact_hash(uint64_t key, const uint64_t *words, int n);
/* Returns the value of a row that has a float as result; `operands` are those
 * of the row, bools and integers as residues. */
ExactNumber exact_point(uint64_t key, Op op, ExactNumber a, ExactNumber b,
                        ExactNumber c);
/* Returns the result of an operator that compares, such as lt. */
bool exact_compare(Op op, ExactNumber a, ExactNumber b);

#endif
