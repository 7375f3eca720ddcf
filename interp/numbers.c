/*
 * numbers.c -- arrays of numbers in the number systems of the interpreter:
 * numbers.h says what each function does.
 */
#include "interp/numbers.h"

#include <math.h>
#include <string.h>

#include "interp/exact.h"
#include "interp/internal.h"

/* ---- arrays and tensors ---- */

bool numbers_are_exact(const Numbers *numbers, DType dtype) {
  return numbers->number == INTERP_exact && dtype_class(dtype) == CLASS_FLOAT;
}

size_t numbers_size_bytes(const Numbers *numbers, DType dtype) {
  return numbers_are_exact(numbers, dtype) ? sizeof(ExactNumber)
                                           : sizeof(double);
}

Tensor numbers_tensor(const Numbers *numbers, const Type *type,
                      void *elements) {
  if (numbers_are_exact(numbers, type->dtype))
    return (Tensor){.type = type, .exact = elements};
  return (Tensor){.type = type, .data = elements};
}

Tensor numbers_create(const Numbers *numbers, Arena *arena, const Type *type) {
  size_t n = (size_t)type_elements(type);
  size_t bytes = n * numbers_size_bytes(numbers, type->dtype);
  return numbers_tensor(numbers, type, arena_alloc(arena, bytes));
}

void *tensor_array(const Tensor *tensor) {
  return tensor->exact ? (void *)tensor->exact : (void *)tensor->data;
}

void *numbers_at(const Numbers *numbers, DType dtype, void *array,
                 int64_t index) {
  return (char *)array + index * (int64_t)numbers_size_bytes(numbers, dtype);
}

void numbers_copy(const Numbers *numbers, DType dtype, void *to,
                  const void *from, int64_t n) {
  if (n > 0) memcpy(to, from, (size_t)n * numbers_size_bytes(numbers, dtype));
}

/* Rounds as f32 does where every result is rounded. */
static double rounded(const Numbers *numbers, DType dtype, double x) {
  bool is_rounded =
      numbers->number == INTERP_f32 && dtype_class(dtype) == CLASS_FLOAT;
  return is_rounded ? dtype_round(dtype, x) : x;
}

void numbers_from_doubles(const Numbers *numbers, DType dtype, void *to,
                          const double *from, int64_t n) {
  double *data = to;
  if (numbers_are_exact(numbers, dtype)) {
    (numbers->has_second_prime ? interp_constants_second
                               : interp_constants_exact)(dtype, to, from, n);
    return;
  }
  for (int64_t i = 0; i < n; i++) data[i] = rounded(numbers, dtype, from[i]);
}

void numbers_fill(const Numbers *numbers, DType dtype, void *to, int64_t n,
                  double value) {
  if (n == 0) return;
  numbers_from_doubles(numbers, dtype, to, &value, 1);
  size_t size = numbers_size_bytes(numbers, dtype);
  for (int64_t i = 1; i < n; i++)
    memcpy((char *)to + (size_t)i * size, to, size);
}

/* ---- random numbers ---- */

/* Every integer dtype holds 0 .. POISON_RANGE - 1. */
#define POISON_RANGE 100

typedef struct Range {
  double low, high;
} Range;

static void random_numbers(const Numbers *numbers, DType dtype, uint64_t key,
                           uint64_t first, Range range, void *to, int64_t n) {
  bool is_float = dtype_class(dtype) == CLASS_FLOAT;
  double *data = to, width = range.high - range.low;
  if (numbers_are_exact(numbers, dtype)) {
    (numbers->has_second_prime
         ? interp_random_numbers_second
         : interp_random_numbers_exact)(key, first, to, n);
    return;
  }
  for (int64_t i = 0; i < n; i++) {
    double x = range.low + random_uniform(key, first + (uint64_t)i) * width;
    data[i] = is_float ? rounded(numbers, dtype, x) : floor(x);
  }
}

void numbers_poison(const Numbers *numbers, DType dtype, void *to, int64_t n,
                    uint64_t seed) {
  Range range = {dtype_class(dtype) == CLASS_FLOAT ? -POISON_RANGE : 0,
                 dtype == DT_bool ? 2 : POISON_RANGE};
  random_numbers(numbers, dtype, random_key(seed, "poison"), 0, range, to, n);
}

void numbers_random(const Numbers *numbers, DType dtype, const char *path,
                    int64_t first_index, double low, double high, void *to,
                    int64_t n) {
  random_numbers(numbers, dtype, random_key(numbers->seed, path),
                 (uint64_t)first_index, (Range){low, high}, to, n);
}

/* ---- reducing ---- */

/* Reduces as `maximum` does: the first NaN wins. */
static double reduced(ReduceKind kind, double a, double b) {
  switch (kind) {
  case REDUCE_sum: return a + b;
  case REDUCE_max: return b > a || (isnan(b) && !isnan(a)) ? b : a;
  case REDUCE_min: return b < a || (isnan(b) && !isnan(a)) ? b : a;
  default: UNREACHABLE();
  }
}

void numbers_reduce(const Numbers *numbers, DType dtype, ReduceKind kind,
                    void *into, const void *other, int64_t n) {
  if (numbers_are_exact(numbers, dtype)) {
    (numbers->has_second_prime ? interp_reduce_second : interp_reduce_exact)(
        numbers->seed, kind, into, other, n);
    return;
  }
  double *a = into;
  const double *b = other;
  for (int64_t i = 0; i < n; i++)
    a[i] = rounded(numbers, dtype, reduced(kind, a[i], b[i]));
}

/* ---- comparing ---- */

double numbers_largest(const Numbers *numbers, DType dtype, const void *array,
                       int64_t n, double least) {
  if (numbers_are_exact(numbers, dtype)) return least;
  const double *data = array;
  for (int64_t i = 0; i < n; i++)
    if (isfinite(data[i]) && fabs(data[i]) > least) least = fabs(data[i]);
  return least;
}

/* Infinities of one sign are equal, NaN is equal to NaN. */
static double float_error(double a, double b, double largest) {
  if (a == b || (isnan(a) && isnan(b))) return 0;
  double difference = fabs(a - b);
  if (!isfinite(difference)) return INFINITY;
  return largest > 0 ? difference / largest : INFINITY;
}

static bool exact_differ(ExactNumber a, ExactNumber b) {
  return (a.e | b.e) & EXACT_FROM_LOG ? exact_e(a) != exact_e(b)
                                      : !exact_equal(a, b);
}

static NumbersDifference first_difference(const ExactNumber *a,
                                          const ExactNumber *b, int64_t n) {
  for (int64_t i = 0; i < n; i++)
    if (exact_differ(a[i], b[i])) return (NumbersDifference){1, i};
  return (NumbersDifference){0, -1};
}

NumbersDifference numbers_compare(const Numbers *numbers, DType dtype,
                                  const void *a, const void *b, int64_t n,
                                  double largest) {
  if (numbers_are_exact(numbers, dtype)) return first_difference(a, b, n);
  NumbersDifference worst = {0, -1};
  bool is_float = dtype_class(dtype) == CLASS_FLOAT;
  const double *x = a, *y = b;
  for (int64_t i = 0; i < n; i++) {
    double error =
        is_float ? float_error(x[i], y[i], largest) : (double)(x[i] != y[i]);
    if (error > worst.error) worst = (NumbersDifference){error, i};
  }
  return worst;
}
