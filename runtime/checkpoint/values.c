/*
 * values.c -- warns about numbers of a checkpoint that training cannot use: NaN
 * and infinity, and numbers that exceed the dtype they are read into.  A
 * warning names the first tensor of each kind and counts the others.
 */
#include "runtime/checkpoint/checkpoint.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The count of a tensor, which may be new. */
static ValueCount *count_of(ValueReport *report, ValueCounts *counts,
                            const StoredTensor *tensor) {
  for (int i = counts->n - 1; i >= 0; i--)
    if (counts->data[i].tensor == tensor) return &counts->data[i];
  vec_push(report->arena, counts, (ValueCount){.tensor = tensor});
  return &counts->data[counts->n - 1];
}

static void note_value(ValueReport *report, ValueCounts *counts,
                       const StoredTensor *tensor, int64_t index,
                       const unsigned char *value, DnnDtype to) {
  ValueCount *count = count_of(report, counts, tensor);
  if (count->n++ > 0) return;
  floats_cast(tensor->dtype, value, DNN_f64, &count->value, 1);
  count->at = index;
  count->dtype = to;
}

ValueReport value_report_create(Arena *arena) {
  return (ValueReport){.arena = arena};
}

static bool has_count(const ValueCounts *counts, const StoredTensor *tensor) {
  for (int i = 0; i < counts->n; i++)
    if (counts->data[i].tensor == tensor) return true;
  return false;
}

void value_report_look(ValueReport *report, const StoredTensor *tensor,
                       int64_t first, int64_t n, const void *stored,
                       DnnDtype dtype, const void *read) {
  const unsigned char *in = stored, *out = read;
  FloatFormat in_format = dtype_float_format(tensor->dtype);
  FloatFormat out_format = dtype_float_format(dtype);
  /* A tensor that is read twice is told of once. */
  if (first == 0 &&
      (has_count(&report->odd, tensor) || has_count(&report->beyond, tensor)))
    return;
  for (int64_t i = 0; i < n; i++) {
    const unsigned char *value = in + i * in_format.bytes;
    if (float_kind(&out_format, out + i * out_format.bytes) == FLOAT_finite)
      continue;
    bool is_odd = float_kind(&in_format, value) != FLOAT_finite;
    note_value(report, is_odd ? &report->odd : &report->beyond, tensor,
               first + i, value, dtype);
  }
}

/* ---- the reports of several ranks ---- */

/* Adds up the counts of one kind over the ranks, tensor by tensor. */
static Status merge_counts(ValueReport *report, ValueCounts *counts, Comm *comm,
                           const StoredTensor *const *tensors, int n) {
  Arena *scratch = arena_beside(report->arena);
  ValueCount *own = ARENA_ARRAY(scratch, ValueCount, n);
  ValueCount *all = ARENA_ARRAY(scratch, ValueCount, (int64_t)n * comm->world);
  for (int i = 0; i < n; i++)
    if (has_count(counts, tensors[i]))
      own[i] = *count_of(report, counts, tensors[i]);
  Status status = comm->gather(comm, own, (int64_t)sizeof *own * n, all);
  counts->n = 0;
  for (int64_t i = 0; i < (int64_t)n * comm->world; i++) {
    const StoredTensor *tensor = tensors[i / comm->world];
    const ValueCount *count = &all[i % comm->world * n + i / comm->world];
    if (count->n == 0) continue;
    ValueCount *sum = count_of(report, counts, tensor);
    int64_t total = sum->n + count->n;
    if (sum->n == 0 || count->at < sum->at) *sum = *count;
    sum->tensor = tensor;
    sum->n = total;
  }
  arena_destroy(scratch);
  return status;
}

Status value_report_merge(ValueReport *report, Comm *comm,
                          const StoredTensor *const *tensors, int n) {
  if (comm->world == 1) return STATUS_OK;
  int32_t own = report->odd.n + report->beyond.n > 0, any = 0;
  int32_t *all = ARENA_ARRAY(report->arena, int32_t, comm->world);
  TRY(comm->gather(comm, &own, sizeof own, all));
  for (int i = 0; i < comm->world; i++) any |= all[i];
  if (!any) return STATUS_OK;
  TRY(merge_counts(report, &report->odd, comm, tensors, n));
  return merge_counts(report, &report->beyond, comm, tensors, n);
}

/* ---- warnings ---- */

static void print_more(int n, const char *what) {
  if (n > 1)
    message_print("; %d more tensor%s %s", n - 1, n == 2 ? "" : "s", what);
  fprintf(stderr, "\n");
}

void value_report_print(const ValueReport *report, const char *given) {
  if (report->odd.n > 0) {
    const ValueCount *odd = &report->odd.data[0];
    message_print(
        "warning: '%s': tensor '%.100s': %lld of %lld values are NaN or "
        "infinite, the first (%s) at index %lld",
        given, odd->tensor->name, (long long)odd->n,
        (long long)stored_elements(odd->tensor),
        isnan(odd->value) ? "NaN" : "infinite", (long long)odd->at);
    print_more(report->odd.n, "too");
  }
  if (report->beyond.n > 0) {
    const ValueCount *beyond = &report->beyond.data[0];
    message_print(
        "warning: '%s': tensor '%.100s': %lld of %lld values are beyond "
        "%s and became infinite, the first (%g) at index %lld",
        given, beyond->tensor->name, (long long)beyond->n,
        (long long)stored_elements(beyond->tensor), dtype_label(beyond->dtype),
        beyond->value, (long long)beyond->at);
    print_more(report->beyond.n, "too");
  }
}
