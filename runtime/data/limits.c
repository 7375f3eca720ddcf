/*
 * limits.c -- decides whether a field accepts a value of a data file.
 *
 * An integer must be in the range of its dtype and of its uses (an index, a
 * label); a float must be finite.  Values are checked when they are read: rows
 * of text at the start, the others a sample at a time.
 */
#include "runtime/data/reader.h"

#include <math.h>

/* Element `item` of a sample is inside the box of the limit. */
static bool is_inside(const DnnField *field, const DnnLimit *limit,
                      int64_t item) {
  for (int d = field->rank - 1; d >= 1; d--) {
    int64_t at = item % field->size[d];
    item /= field->size[d];
    if (at < limit->begin[d] || at >= limit->begin[d] + limit->size[d])
      return false;
  }
  return true;
}

static bool is_everywhere(const DnnField *field, const DnnLimit *limit) {
  for (int d = 1; d < field->rank; d++)
    if (limit->size[d] != field->size[d]) return false;
  return true;
}

/* The limit that the value is beyond, or NULL. */
static const DnnLimit *find_broken(const DnnField *field, int64_t item,
                                   double value) {
  for (int i = 0; i < field->n_limits; i++) {
    const DnnLimit *limit = &field->limits[i];
    if (value >= 0 && value < (double)limit->below) continue;
    if (limit->has_ignored && value == (double)limit->ignored) continue;
    if (item < 0 ? is_everywhere(field, limit) : is_inside(field, limit, item))
      return limit;
  }
  return NULL;
}

bool value_is_right(const DnnField *field, int64_t item, double value) {
  if (dtype_is_float(field->dtype))
    return fabs(value * field->scale + field->shift) <=
           dtype_greatest(field->dtype);
  return number_fits(field->dtype, value) && !find_broken(field, item, value);
}

int64_t values_find_wrong(const DnnField *field, const double *values,
                          int64_t n) {
  int64_t i = 0;
  if (dtype_is_float(field->dtype)) {
    double greatest = dtype_greatest(field->dtype);
    double scale = field->scale, shift = field->shift;
    while (i < n && fabs(values[i] * scale + shift) <= greatest) i++;
  } else {
    while (i < n && value_is_right(field, i, values[i])) i++;
  }
  return i;
}

Status value_wrong(const DnnField *field, int64_t item, double value,
                   const char *where) {
  bool is_finite = fabs(value) <= dtype_greatest(DNN_f64);
  const char *type = dtype_label(field->dtype);
  if (!is_finite)
    return status_make(STATUS_invalid,
                       "%s: '%s' is %s, but data is finite numbers", where,
                       field->path, isnan(value) ? "NaN" : "infinite");
  if (dtype_is_float(field->dtype))
    return status_make(STATUS_invalid, "%s: '%s' is %s, which %.15g exceeds",
                       where, field->path, type, value);
  if (!number_fits(field->dtype, value))
    return status_make(
        STATUS_invalid, "%s: '%s' is %s, not %.15g%s", where, field->path, type,
        value,
        fabs(value) >= 0x1p53 ? " (integers of data are below 2^53)" : "");
  const DnnLimit *limit = find_broken(field, item, value);
  ASSERT(limit);
  if (limit->has_ignored)
    return status_make(STATUS_invalid,
                       "%s: '%s' is %.15g, but '%s' takes 0 to %lld, or %lld, "
                       "which it ignores",
                       where, field->path, value, limit->use,
                       (long long)limit->below - 1, (long long)limit->ignored);
  return status_make(
      STATUS_invalid, "%s: '%s' is %.15g, but '%s' takes 0 to %lld", where,
      field->path, value, limit->use, (long long)limit->below - 1);
}
