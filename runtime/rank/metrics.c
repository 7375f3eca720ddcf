/*
 * metrics.c -- adds up the outputs of an evaluation and computes its metrics.
 *
 * The graphs of an evaluation output sums over a batch, the same on all ranks
 * that have them: a numerator and a denominator, counts of each class, a table
 * of pairs.  They are added up here in f64, in which counts are exact; at the
 * end ranks without a sum get it, and the formula of the metric
 * (support/formulas.def) is computed once.  So no value depends on how the
 * samples were divided into batches or over ranks, apart from rounding.
 */
#include "runtime/rank/run.h"

#include <math.h>
#include <string.h>

typedef enum FormulaKind { KIND_terms, KIND_classes, KIND_counts } FormulaKind;

typedef enum FormulaIndex {
#define FORMULA(name, kind, numerator, denominator) DNN_FORMULA_##name,
#include "support/formulas.def"
} FormulaIndex;

typedef enum AverageIndex {
#define AVERAGE(name) DNN_AVERAGE_##name,
#include "support/formulas.def"
} AverageIndex;

static FormulaKind kind_of(const DnnMetric *metric) {
  static const FormulaKind kinds[] = {
#define FORMULA(name, kind, numerator, denominator) KIND_##kind,
#include "support/formulas.def"
  };
  return kinds[metric->formula];
}

bool metric_is_table(const DnnMetric *metric) {
  return kind_of(metric) == KIND_counts;
}

bool metric_is_list(const DnnMetric *metric) {
  return kind_of(metric) == KIND_classes && metric->average == DNN_AVERAGE_none;
}

/* ---- sums ---- */

static const DnnTensor *find_part(const DnnEntryPoint *entry,
                                  const char *path) {
  for (int i = 0; entry && i < entry->n_tensors; i++)
    if ((entry->tensors[i].role == DNN_METRIC ||
         entry->tensors[i].role == DNN_LOSS) &&
        strcmp(entry->tensors[i].path, path) == 0)
      return &entry->tensors[i];
  return NULL;
}

/* That of the program of any rank. */
static const DnnTensor *part_of_bundle(const DnnBundle *bundle, EntryPointId id,
                                       const char *path) {
  const DnnTensor *part = NULL;
  for (int i = 0; i < bundle->n_programs && !part; i++)
    part = find_part(program_entry_point(&bundle->programs[i], id), path);
  return part;
}

/* The first rank that has it; *out_everywhere: all have. */
static int rank_with_part(const DnnBundle *bundle, EntryPointId id,
                          const char *path, bool *out_everywhere) {
  int found = -1;
  *out_everywhere = true;
  for (int i = bundle->n_rows - 1; i >= 0; i--) {
    const DnnProgram *program = &bundle->programs[bundle->rows[i].program];
    if (find_part(program_entry_point(program, id), path))
      found = bundle->rows[i].first;
    else
      *out_everywhere = false;
  }
  return found;
}

Figure *figures_create(Arena *arena, const DnnBundle *bundle,
                       const DnnMetric *metrics, int n, EntryPointId id) {
  Figure *figures = ARENA_ARRAY(arena, Figure, n);
  for (int i = 0; i < n; i++) {
    Figure *figure = &figures[i];
    figure->metric = &metrics[i];
    const DnnTensor *part =
        metrics[i].n_parts ? part_of_bundle(bundle, id, metrics[i].parts[0].sum)
                           : NULL;
    bool is_terms = kind_of(&metrics[i]) == KIND_terms;
    figure->n = is_terms || !part ? 1 : tensor_elements(part);
    figure->n_classes = is_terms || !part ? 0 : part->size[0];
    int64_t n_sums = figure->n * metrics[i].n_parts;
    figure->sums = ARENA_ARRAY(arena, double, n_sums);
    figure->counts = ARENA_ARRAY(arena, double, metrics[i].n_parts);
    figure->values = ARENA_ARRAY(arena, double, figure->n_classes);
    figure->value = NAN;
  }
  return figures;
}

void figures_clear(Figure *figures, int n) {
  for (int i = 0; i < n; i++) {
    int n_parts = figures[i].metric->n_parts;
    figures[i].has_value = false;
    figures[i].value = NAN;
    for (int64_t k = 0; k < figures[i].n * n_parts; k++) figures[i].sums[k] = 0;
    for (int k = 0; k < n_parts; k++) figures[i].counts[k] = 0;
  }
}

/* sums[i] += weight * element i, where this rank has the tensor */
static void add_tensor(Run *run, Arena *scratch, const DnnTensor *tensor,
                       double weight, double *sums) {
  if (!tensor) return;
  unsigned char *bytes = arena_alloc(scratch, (size_t)tensor->bytes);
  run_must(run, run->device->read(run->device, tensor->offset, bytes,
                                  tensor->bytes));
  for (int64_t i = 0; i < tensor_elements(tensor); i++)
    sums[i] += weight * number_load(tensor->dtype,
                                    bytes + i * dtype_bytes(tensor->dtype));
}

void figures_add(Run *run, Figure *figures, int n, const DnnEntryPoint *entry) {
  Arena *scratch = arena_create(run->memory);
  double samples = (double)entry->batch;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < figures[i].metric->n_parts; k++) {
      const DnnMetricPart *part = &figures[i].metric->parts[k];
      bool is_mean = kind_of(figures[i].metric) == KIND_terms && !part->count;
      add_tensor(run, scratch, find_part(entry, part->sum),
                 is_mean ? samples : 1, &figures[i].sums[k * figures[i].n]);
      if (part->count)
        add_tensor(run, scratch, find_part(entry, part->count), 1,
                   &figures[i].counts[k]);
      else
        figures[i].counts[k] += samples;
    }
  arena_destroy(scratch);
}

/* From a rank that has them to all others. */
static Status share_sums(Run *run, EntryPointId id, const char *path,
                         double *sums, int64_t n) {
  bool is_everywhere;
  int root = rank_with_part(run->bundle, id, path, &is_everywhere);
  ASSERT(root >= 0);
  if (is_everywhere) return STATUS_OK;
  return run->comm->broadcast(run->comm, sums, n * (int64_t)sizeof *sums, root);
}

Status figures_share(Run *run, Figure *figures, int n, EntryPointId id) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < figures[i].metric->n_parts; k++) {
      const DnnMetricPart *part = &figures[i].metric->parts[k];
      TRY(share_sums(run, id, part->sum, &figures[i].sums[k * figures[i].n],
                     figures[i].n));
      if (part->count)
        TRY(share_sums(run, id, part->count, &figures[i].counts[k], 1));
    }
  return STATUS_OK;
}

/* ---- formulas ---- */

static void finish_terms(Figure *figure) {
  const DnnMetric *metric = figure->metric;
  figure->value = 0;
  figure->has_value = true;
  for (int i = 0; i < metric->n_parts; i++) {
    if (figure->counts[i] == 0) figure->has_value = false;
    figure->value +=
        metric->parts[i].factor * (figure->sums[i] / figure->counts[i]);
  }
  if (metric->formula == DNN_FORMULA_perplexity)
    figure->value = exp(figure->value);
}

typedef struct Fraction {
  double numerator, denominator;
} Fraction;

static Fraction class_fraction(const DnnMetric *metric, double hits,
                               double predicted, double labels) {
  const double none = 0;
  switch ((FormulaIndex)metric->formula) {
#define FORMULA(name, kind, numerator, denominator)                            \
  case DNN_FORMULA_##name:                                                     \
    return (Fraction){numerator, denominator};
#include "support/formulas.def"
  }
  return (Fraction){none, none};
}

/* Nothing divided by nothing is 0 where the class occurs at all. */
static double fraction_value(Fraction f) {
  return f.denominator == 0 ? 0 : f.numerator / f.denominator;
}

static double average_of_classes(const Figure *figure, const double *labels,
                                 Fraction all) {
  double sum = 0, weights = 0;
  if (figure->metric->average == DNN_AVERAGE_micro) return fraction_value(all);
  bool is_weighted = figure->metric->average == DNN_AVERAGE_weighted;
  for (int64_t c = 0; c < figure->n_classes; c++) {
    if (isnan(figure->values[c])) continue;
    double weight = is_weighted ? labels[c] : 1;
    sum += weight * figure->values[c];
    weights += weight;
  }
  return sum / weights;
}

static void finish_classes(Figure *figure) {
  const DnnMetric *metric = figure->metric;
  const double *hits = figure->sums, *predicted = hits + figure->n,
               *labels = predicted + figure->n;
  Fraction all = {0, 0};
  figure->has_value = false;
  for (int64_t c = 0; c < figure->n_classes; c++) {
    Fraction f = class_fraction(metric, hits[c], predicted[c], labels[c]);
    bool occurs = predicted[c] + labels[c] > 0;
    figure->values[c] = occurs ? fraction_value(f) : (double)NAN;
    figure->has_value = figure->has_value || occurs;
    all.numerator += f.numerator;
    all.denominator += f.denominator;
  }
  if (metric->average == DNN_AVERAGE_single) {
    figure->value = figure->values[metric->single];
    figure->has_value = !isnan(figure->value);
  } else {
    figure->value = average_of_classes(figure, labels, all);
  }
}

void figures_finish(Figure *figures, int n) {
  for (int i = 0; i < n; i++) {
    switch (kind_of(figures[i].metric)) {
    case KIND_terms: finish_terms(&figures[i]); break;
    case KIND_classes: finish_classes(&figures[i]); break;
    case KIND_counts: figures[i].has_value = true; break;
    }
    if (!figures[i].has_value) figures[i].value = NAN;
  }
}
