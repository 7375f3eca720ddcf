/*
 * report_metrics.c -- prints the values of an evaluation, for people and in
 * JSON.
 *
 * A missing value is `-` for people and null in JSON.  Lists and tables are
 * cut: of many classes, the pairs of label and prediction that differ and are
 * counted most are printed.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHOWN = 20 };

void report_json_number(double value) {
  if (isfinite(value))
    printf("%.9g", value);
  else
    printf("null");
}

/* Counts are integers, exact up to 2^53. */
static void json_rows(const Figure *figure) {
  for (int64_t row = 0; row < figure->n_classes; row++) {
    printf("%s", row ? ",[" : "[");
    for (int64_t k = 0; k < figure->n_classes; k++)
      printf("%s%.0f", k ? "," : "", figure->sums[row * figure->n_classes + k]);
    printf("]");
  }
}

void report_json_figure(const Figure *figure) {
  bool is_table = metric_is_table(figure->metric);
  if (!figure->has_value || (!is_table && !metric_is_list(figure->metric))) {
    report_json_number(figure->value);
    return;
  }
  printf("[");
  for (int64_t i = 0; !is_table && i < figure->n_classes; i++) {
    if (i) printf(",");
    report_json_number(figure->values[i]);
  }
  if (is_table) json_rows(figure);
  printf("]");
}

/* The last word of a path: accuracy of "train.accuracy". */
static const char *last_word(const char *path) {
  const char *dot = strrchr(path, '.');
  return dot ? dot + 1 : path;
}

static void print_number(bool has_value, double value) {
  if (has_value)
    printf(" %.4f", value);
  else
    printf(" -");
}

void report_figure(const Figure *figure) {
  printf(" %s", last_word(figure->metric->name));
  if (!figure->has_value || !metric_is_list(figure->metric)) {
    print_number(figure->has_value, figure->value);
    return;
  }
  int64_t n = figure->n_classes;
  for (int64_t i = 0; i < n && i < MOST_SHOWN; i++)
    print_number(!isnan(figure->values[i]), figure->values[i]);
  if (n > MOST_SHOWN) printf(" and %lld more", (long long)(n - MOST_SHOWN));
}

/* ---- tables ---- */

static int digits_of(double count) {
  char text[32];
  return snprintf(text, sizeof text, "%.0f", count);
}

static void print_rows(const Figure *figure) {
  int64_t n = figure->n_classes;
  int width = digits_of((double)(n - 1));
  for (int64_t i = 0; i < n * n; i++)
    if (digits_of(figure->sums[i]) > width) width = digits_of(figure->sums[i]);
  int first = digits_of((double)(n - 1));
  printf("  %*s", first, "");
  for (int64_t k = 0; k < n; k++) printf("  %*lld", width, (long long)k);
  printf("\n");
  for (int64_t row = 0; row < n; row++) {
    printf("  %*lld", first, (long long)row);
    for (int64_t k = 0; k < n; k++)
      printf("  %*.0f", width, figure->sums[row * n + k]);
    printf("\n");
  }
}

typedef struct Pair {
  int64_t label, predicted;
  double count;
} Pair;

static int by_count(const void *a, const void *b) {
  const Pair *x = a, *y = b;
  if (x->count != y->count) return x->count < y->count ? 1 : -1;
  if (x->label != y->label) return x->label < y->label ? -1 : 1;
  return (x->predicted > y->predicted) - (x->predicted < y->predicted);
}

/* The greatest so far stay sorted at the front: one insertion for each pair. */
static void print_pairs(const Figure *figure) {
  Pair most[MOST_SHOWN + 1];
  int64_t n = figure->n_classes, n_pairs = 0;
  int n_most = 0;
  for (int64_t i = 0; i < n * n; i++) {
    if (i / n == i % n || figure->sums[i] == 0) continue;
    n_pairs++;
    most[n_most] = (Pair){i / n, i % n, figure->sums[i]};
    if (n_most < MOST_SHOWN || by_count(&most[n_most], &most[n_most - 1]) < 0)
      qsort(most, (size_t)n_most + 1, sizeof *most, by_count);
    if (n_most < MOST_SHOWN) n_most++;
  }
  for (int i = 0; i < n_most; i++)
    printf("  label %lld predicted as %lld: %.0f\n", (long long)most[i].label,
           (long long)most[i].predicted, most[i].count);
  if (n_pairs > n_most)
    printf("  and %lld more pairs\n", (long long)(n_pairs - n_most));
}

void report_table(const Figure *figure) {
  if (!figure->has_value || !metric_is_table(figure->metric)) return;
  const char *name = last_word(figure->metric->name);
  bool is_complete = figure->n_classes <= MOST_SHOWN;
  printf("%s: %s\n", name,
         is_complete ? "a row for each label, a column for each prediction"
                     : "predictions that differ from the label, by count");
  if (is_complete)
    print_rows(figure);
  else
    print_pairs(figure);
}
