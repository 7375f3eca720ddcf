/*
 * numbers.c -- arrays of numbers in the number systems of the interpreter:
 * numbers.h says what each function does.
 */
#include "ir/interp/numbers.h"

#include <math.h>
#include <string.h>

/* ---- arrays and tensors ---- */

bool numbers_are_exact(const Numbers *numbers, DType dtype) {
  return numbers->number == INTERP_exact && dtype_class(dtype) == CLASS_FLOAT;
}

size_t numbers_size_bytes(const Numbers *numbers, DType dtype) {
  ASSERT(!numbers_are_exact(numbers, dtype));
  return sizeof(double);
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

/* As f32 where every result is rounded. */
static double rounded(const Numbers *numbers, DType dtype, double x) {
  bool is_rounded =
      numbers->number == INTERP_f32 && dtype_class(dtype) == CLASS_FLOAT;
  return is_rounded ? dtype_round(dtype, x) : x;
}

void numbers_from_doubles(const Numbers *numbers, DType dtype, void *to,
                          const double *from, int64_t n) {
  double *data = to;
  for (int64_t i = 0; i < n; i++) data[i] = rounded(numbers, dtype, from[i]);
}

void numbers_fill(const Numbers *numbers, DType dtype, void *to, int64_t n,
                  double value) {
  size_t size = numbers_size_bytes(numbers, dtype);
  for (int64_t i = 0; i < n; i++)
    numbers_from_doubles(numbers, dtype, (char *)to + (size_t)i * size, &value,
                         1);
}

/* ---- random numbers ---- */

/* Integers of every dtype but bool and the bytes hold these. */
#define POISON_RANGE 100

static double random_double(DType dtype, uint64_t key, uint64_t index,
                            double low, double high) {
  double x = low + random_uniform(key, index) * (high - low);
  return dtype_class(dtype) == CLASS_FLOAT ? x : floor(x);
}

void numbers_poison(const Numbers *numbers, DType dtype, void *to, int64_t n,
                    uint64_t seed) {
  double low = dtype_class(dtype) == CLASS_FLOAT ? -POISON_RANGE : 0;
  double high = dtype == DT_bool ? 2 : POISON_RANGE;
  uint64_t key = random_key(seed, "poison");
  double *data = to;
  for (int64_t i = 0; i < n; i++)
    data[i] = rounded(numbers, dtype,
                      random_double(dtype, key, (uint64_t)i, low, high));
}

void numbers_random(const Numbers *numbers, DType dtype, const char *path,
                    int64_t first_index, double low, double high, void *to,
                    int64_t n) {
  uint64_t key = random_key(numbers->seed, path);
  double *data = to;
  for (int64_t i = 0; i < n; i++) {
    uint64_t index = (uint64_t)(first_index + i);
    data[i] =
        rounded(numbers, dtype, random_double(dtype, key, index, low, high));
  }
}

/* ---- reducing ---- */

/* As `maximum`: the first NaN wins. */
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
  if (difference <= 1e-12) return 0;
  if (!isfinite(difference)) return INFINITY;
  return largest > 0 ? difference / largest : INFINITY;
}

NumbersDifference numbers_compare(const Numbers *numbers, DType dtype,
                                  const void *a, const void *b, int64_t n,
                                  double largest) {
  NumbersDifference worst = {0, -1};
  (void)numbers;
  bool is_float = dtype_class(dtype) == CLASS_FLOAT;
  const double *x = a, *y = b;
  for (int64_t i = 0; i < n; i++) {
    double error =
        is_float ? float_error(x[i], y[i], largest) : (double)(x[i] != y[i]);
    if (error > worst.error) worst = (NumbersDifference){error, i};
  }
  return worst;
}
