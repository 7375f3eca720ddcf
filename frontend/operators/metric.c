/*
 * metric.c -- builds metrics of logits x over V and integer labels y: shares of
 * hits, and counts from which a run computes precision, recall and the like
 * once (support/formulas.def).
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/output.h"
#include "frontend/operators/operators.h"

#include <string.h>

enum { MOST_PAIRED = 1024 }; /* classes of a table of pairs */

/* Returns whether the call is an entire metric, not part of an expression; else
 * reports. */
static bool is_metric(BuiltinCall *call) {
  if (call->x == call->e->metric) return true;
  diag(call->e->diags, DIAG_only_metric, call->x->span, call->builtin->name);
  return false;
}

/* The runtime takes exp of the mean over the entire evaluation; exp of the mean
 * over a batch would differ. */
ExprValue builtin_perplexity(BuiltinCall *call) {
  if (!is_metric(call) || !loss_check_classes(call) || !arg_ignore(call, 3))
    return POISON;
  return loss_cross_entropy(call, 0, (ExprValue){.kind = EXPR_VALUE_none});
}

/* Returns whether i32 holds the number of labels and of classes; else reports
 * it. */
static bool metric_can_count(BuiltinCall *call) {
  Elab *e = call->e;
  const Type *x = elab_type(e, call->args[0]);
  const Type *y = elab_type(e, call->args[1]);
  Name names[MAX_RANK];
  for (int i = 0; i < y->rank; i++) names[i] = y->dims[i].name;
  return elab_counts_fit(e, call->exprs[1], y, names, y->rank,
                         "evaluate fewer labels in a batch") &&
         elab_counts_fit(e, call->exprs[0], x, call->dims[2].names, 1,
                         "use fewer classes");
}

/* ---- accuracy ---- */

/* How many logits come before the one at y: they are larger, or equal with a
 * lower index; all of them where y is no index. */
static ExprValue metric_place_of(Elab *e, ExprValue x, ExprValue y, Name dim) {
  int64_t size = type_size(elab_type(e, x), dim);
  ExprValue at = loss_indices(e, x, dim), own = loss_gather(e, x, y, dim);
  ExprValue later = pointwise2(e, OP_and, pointwise2(e, OP_eq, x, own),
                               pointwise2(e, OP_ge, at, y));
  ExprValue after = pointwise2(e, OP_or, pointwise2(e, OP_lt, x, own), later);
  ExprValue before = elab_cast(e, pointwise1(e, OP_not, after), DT_i32);
  ExprValue is_position =
      pointwise2(e, OP_and, pointwise2(e, OP_ge, y, expr_value_int(0)),
                 pointwise2(e, OP_lt, y, expr_value_int(size)));
  return pointwise3(e, OP_select, is_position,
                    elab_reduce(e, OP_sum, before, &dim, 1),
                    expr_value_int(size));
}

/* Share of the hits among the counted labels (none: all); 0 without any. */
static ExprValue metric_share_of(Elab *e, ExprValue hits, ExprValue keep) {
  bool has_keep = keep.kind != EXPR_VALUE_none;
  if (!expr_value_is_tensor(hits)) return POISON;
  double all = (double)type_elements(elab_type(e, hits));
  if (has_keep) hits = pointwise2(e, OP_and, hits, keep);
  ExprValue n = has_keep
                    ? elab_reduce_all(e, OP_sum, elab_cast(e, keep, DT_i32))
                    : elab_number(e, DT_i32, all);
  ExprValue sum = elab_reduce_all(e, OP_sum, elab_cast(e, hits, DT_i32));
  ExprValue divisor =
      has_keep ? elab_cast(e, pointwise2(e, OP_maximum, n, expr_value_int(1)),
                           DT_f32)
               : expr_value_float(all);
  ExprValue share = pointwise2(e, OP_div, elab_cast(e, sum, DT_f32), divisor);
  return elab_ratio(e, share, sum, n);
}

ExprValue builtin_accuracy(BuiltinCall *call) {
  Elab *e = call->e;
  int64_t top;
  if (!loss_check_classes(call) || !arg_int(call, 3, 1, &top) ||
      !arg_ignore(call, 4) || !metric_can_count(call))
    return POISON;
  ExprValue x = call->args[0], y = call->args[1], ignore = call->args[4];
  Name dim = call->dims[2].names[0];
  ExprValue hits = top == 1
                       ? pointwise2(e, OP_eq, elab_argmax(e, x, dim), y)
                       : pointwise2(e, OP_lt, metric_place_of(e, x, y, dim),
                                    expr_value_int(top));
  ExprValue keep =
      ignore.kind == EXPR_VALUE_none ? ignore : pointwise2(e, OP_ne, y, ignore);
  return metric_share_of(e, hits, keep);
}

/* ---- counts of classes ---- */

/* The class of each label, and the predicted class: two tensors
 * of bool with the dims of x, false where the label is ignored. */
typedef struct Classes {
  ExprValue is_label, is_predicted;
} Classes;

static Classes classes_of(BuiltinCall *call, int ignore_at) {
  Elab *e = call->e;
  ExprValue x = call->args[0], y = call->args[1],
            ignore = call->args[ignore_at];
  Name dim = call->dims[2].names[0];
  ExprValue at = loss_indices(e, x, dim);
  Classes classes = {pointwise2(e, OP_eq, y, at),
                     pointwise2(e, OP_eq, elab_argmax(e, x, dim), at)};
  if (ignore.kind == EXPR_VALUE_none) return classes;
  ExprValue keep = pointwise2(e, OP_ne, y, ignore);
  classes.is_label = pointwise2(e, OP_and, classes.is_label, keep);
  classes.is_predicted = pointwise2(e, OP_and, classes.is_predicted, keep);
  return classes;
}

/* The dims of the labels. */
static int dims_of_labels(Elab *e, ExprValue y, Name *names) {
  const Type *type = elab_type(e, y);
  for (int i = 0; i < type->rank; i++) names[i] = type->dims[i].name;
  return type->rank;
}

static ExprValue count_true(Elab *e, ExprValue val, ExprValue y) {
  Name names[MAX_RANK];
  int n = dims_of_labels(e, y, names);
  return elab_reduce(e, OP_sum, elab_cast(e, val, DT_i32), names, n);
}

/* `average`, or the one class that `class` names. */
static bool arg_average(BuiltinCall *call, MetricCounts *out) {
  static const char *const names[] = {
#define AVERAGE(name) #name,
#include "support/formulas.def"
  };
  int64_t size =
      type_size(elab_type(call->e, call->args[0]), call->dims[2].names[0]);
  if (call->args[4].kind != EXPR_VALUE_none) {
    if (!arg_int(call, 4, 0, &out->single)) return false;
    out->average = AVERAGE_single;
    if (out->single < size) return true;
    diag(call->e->diags, DIAG_out_of_range, call->exprs[4]->span,
         expr_describe(call->e, call->exprs[4]), (long long)size - 1,
         call->dims[2].names[0]);
    return false;
  }
  const char *given =
      call->args[3].kind == EXPR_VALUE_string ? call->args[3].string : "";
  for (int i = 0; i < AVERAGE_single; i++)
    if (strcmp(given, names[i]) == 0) {
      out->average = (ClassAverage)i;
      return true;
    }
  arg_wrong(call, 3, "\"macro\", \"micro\", \"weighted\" or \"none\"");
  return false;
}

/* precision recall f1_score mean_iou */
ExprValue builtin_classes(BuiltinCall *call) {
  Elab *e = call->e;
  MetricCounts counts = {0};
  if (!is_metric(call) || !loss_check_classes(call) || !arg_ignore(call, 5) ||
      !arg_average(call, &counts) || !metric_can_count(call))
    return POISON;
  ExprValue y = call->args[1];
  Classes classes = classes_of(call, 5);
  ExprValue hits =
      pointwise2(e, OP_and, classes.is_label, classes.is_predicted);
  counts.parts[0] = count_true(e, hits, y);
  counts.parts[1] = count_true(e, classes.is_predicted, y);
  counts.parts[2] = count_true(e, classes.is_label, y);
  for (int i = 0; i < 3; i++)
    if (expr_value_is_poison(counts.parts[i])) return POISON;
  counts.n = 3;
  e->counts = counts;
  return (ExprValue){.kind = EXPR_VALUE_none};
}

/* Both multiplied, summed over the labels; f32 holds counts up to 2^24
 * in a batch, and 0 and 1 in any float dtype. */
ExprValue builtin_confusion(BuiltinCall *call) {
  Elab *e = call->e;
  if (!is_metric(call) || !loss_check_classes(call) || !arg_ignore(call, 3))
    return POISON;
  Name dim = call->dims[2].names[0], names[MAX_RANK];
  int64_t size = type_size(elab_type(e, call->args[0]), dim);
  if (size > MOST_PAIRED) {
    diag(e->diags, DIAG_too_many_classes, call->dims[2].spans[0], MOST_PAIRED,
         dim, (long long)size);
    return POISON;
  }
  Classes classes = classes_of(call, 3);
  Name predicted = name_format(e->names, "%s.predicted", dim);
  ExprValue both[] = {elab_cast(e, classes.is_label, DT_f32),
                      elab_rename(e, elab_cast(e, classes.is_predicted, DT_f32),
                                  &dim, &predicted, 1)};
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, names,
              dims_of_labels(e, call->args[1], names));
  ExprValue table = elab_keep_f32(e, elab_emit(e, OP_dot, both, 2, &attrs));
  if (!expr_value_is_tensor(table)) return POISON;
  Type *order = type_create(e->arena, DT_f32, 2);
  order->dims[0] = (Dim){.name = dim, .size = size};
  order->dims[1] = (Dim){.name = predicted, .size = size};
  table.tensor = graph_transpose_to(e->graph, table.tensor, order);
  e->counts = (MetricCounts){.n = 1, .parts = {table}};
  return (ExprValue){.kind = EXPR_VALUE_none};
}
