/*
 * values.c -- warns about numbers of a checkpoint that training cannot use: NaN
 * and infinity, and numbers that exceed the dtype they are read into.  A
 * warning names the first tensor of each kind and counts the others.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void note_odd(ValueReport *report, const StoredTensor *tensor,
                     int64_t index, const unsigned char *value) {
  double wide = 0;
  map_put(report->odd, tensor, report);
  if (!report->first_odd) {
    floats_cast(tensor->dtype, value, DNN_f64, &wide, 1);
    report->first_odd = tensor;
    report->odd_at = index;
    report->odd_is_nan = isnan(wide);
  }
  report->n_odd += report->first_odd == tensor;
}

static void note_beyond(ValueReport *report, const StoredTensor *tensor,
                        int64_t index, const unsigned char *value,
                        DnnDtype to) {
  map_put(report->beyond, tensor, report);
  if (!report->first_beyond) {
    floats_cast(tensor->dtype, value, DNN_f64, &report->beyond_value, 1);
    report->first_beyond = tensor;
    report->beyond_at = index;
    report->beyond_dtype = to;
  }
  report->n_beyond += report->first_beyond == tensor;
}

ValueReport value_report_create(Arena *arena) {
  return (ValueReport){.odd = map_create(arena), .beyond = map_create(arena)};
}

void value_report_look(ValueReport *report, const StoredTensor *tensor,
                       int64_t first, int64_t n, const void *stored,
                       DnnDtype dtype, const void *read) {
  const unsigned char *in = stored, *out = read;
  FloatFormat in_format = dtype_float_format(tensor->dtype);
  FloatFormat out_format = dtype_float_format(dtype);
  /* A tensor that is read twice is told of once. */
  if (first == 0 &&
      (map_has(report->odd, tensor) || map_has(report->beyond, tensor)))
    return;
  for (int64_t i = 0; i < n; i++) {
    const unsigned char *value = in + i * in_format.bytes;
    if (float_kind(&out_format, out + i * out_format.bytes) == FLOAT_finite)
      continue;
    if (float_kind(&in_format, value) != FLOAT_finite)
      note_odd(report, tensor, first + i, value);
    else
      note_beyond(report, tensor, first + i, value, dtype);
  }
}

static void print_more(int n, const char *what) {
  if (n > 1)
    message_print("; %d more tensor%s %s", n - 1, n == 2 ? "" : "s", what);
  fprintf(stderr, "\n");
}

void value_report_print(const ValueReport *report, const char *given) {
  const StoredTensor *odd = report->first_odd, *beyond = report->first_beyond;
  if (odd) {
    message_print(
        "warning: '%s': tensor '%.100s': %lld of %lld values are NaN or "
        "infinite, the first (%s) at index %lld",
        given, odd->name, (long long)report->n_odd,
        (long long)stored_elements(odd),
        report->odd_is_nan ? "NaN" : "infinite", (long long)report->odd_at);
    print_more(map_size(report->odd), "too");
  }
  if (beyond) {
    message_print(
        "warning: '%s': tensor '%.100s': %lld of %lld values are beyond "
        "%s and became infinite, the first (%g) at index %lld",
        given, beyond->name, (long long)report->n_beyond,
        (long long)stored_elements(beyond), dtype_label(report->beyond_dtype),
        report->beyond_value, (long long)report->beyond_at);
    print_more(map_size(report->beyond), "too");
  }
}
