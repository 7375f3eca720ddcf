/*
 * point.c -- computes single elements of pointwise operators.
 */
#include "ir/point.inc"

double op_floordiv(double a, double b) {
  int64_t x = (int64_t)a, y = (int64_t)b;
  if (y == 0) return 0;
  if (y == -1) return -a; /* INT64_MIN / -1 traps */
  int64_t q = x / y;
  return (double)(x % y != 0 && (x < 0) != (y < 0) ? q - 1 : q);
}

double op_mod(double a, double b) {
  return b == 0 ? 0 : a - op_floordiv(a, b) * b;
}

double op_value(Op op, double a, double b, double c) {
  return point(op, a, b, c);
}
