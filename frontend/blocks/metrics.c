/*
 * metrics.c -- elaborates the loss and the metrics of a model: the outputs of a
 * graph for them, and the formula by which a run computes each from sums over
 * an entire evaluation (Metric of ir/model/model.h).
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/frame.h"
#include "frontend/elaborate/output.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"

#include <string.h>

static ExprValue metric_scalar(Elab *e, const Expr *x, ExprValue val,
                               const char *what) {
  if (expr_value_is_poison(val)) return val;
  if (expr_value_is_tensor(val) && elab_type(e, val)->rank == 0 &&
      dtype_class(elab_type(e, val)->dtype) == CLASS_FLOAT)
    return dtype_is_16bit(elab_type(e, val)->dtype) ? elab_cast(e, val, DT_f32)
                                                    : val;
  diag(e->diags, DIAG_not_scalar, x->span, what, expr_value_describe(e, val));
  return POISON;
}

static ExprValue eval_in_frame(Elab *e, const Expr *x, const char *prefix) {
  Frame *frame = frame_push(e, NULL, name_intern(e->names, prefix));
  frame->labels = number_expr(e->tree, x);
  ExprValue val = eval(e, x);
  frame_pop(e);
  return val;
}

bool elab_loss(Elab *e, const Expr *loss, Metric *out) {
  ExprValue val =
      metric_scalar(e, loss, eval_in_frame(e, loss, "loss"), "loss");
  for (int i = 0; i < e->extra_losses.n && !expr_value_is_poison(val); i++) {
    e->graph->span = loss->span;
    e->graph->path = name_intern(e->names, "loss");
    val = pointwise2(e, OP_add, val, e->extra_losses.data[i]);
  }
  if (expr_value_is_poison(val)) return false;
  Name name = name_intern(e->names, "loss");
  graph_output(e->graph, ROLE_loss, name, val.tensor);
  if (out) elab_terms(e, name, val, true, out);
  return true;
}

static Name metric_name(Elab *e, const Expr *const *metrics, int n, int at) {
  const char *names[2] = {"metric", "metric"};
  int before = 0, same = 0;
  for (int i = 0; i < n; i++) {
    for (int side = 0; side < 2; side++) {
      const Expr *x = metrics[side ? at : i];
      bool is_call = x->kind == EXPR_call && x->a->kind == EXPR_name;
      names[side] = is_call ? x->a->name : "metric";
    }
    if (strcmp(names[0], names[1]) != 0) continue;
    same++;
    before += i < at;
  }
  return same == 1 ? name_intern(e->names, names[1])
                   : name_format(e->names, "%s[%d]", names[1], before);
}

/* ---- metrics ---- */

static Formula formula_of(const Expr *x) {
  static const char *const names[] = {
#define FORMULA(name, kind, numerator, denominator) #name,
#include "support/formulas.def"
  };
  bool is_call = x->kind == EXPR_call && x->a->kind == EXPR_name;
  for (int i = FORMULA_mean + 1; is_call && i < N_FORMULAS; i++)
    if (strcmp(x->a->name, names[i]) == 0) return (Formula)i;
  return FORMULA_mean;
}

static void put_out_counts(Elab *e, Metric *out) {
  static const char *const of_classes[] = {"hits", "predicted", "labels"};
  out->n_parts = e->counts.n;
  out->average = e->counts.average;
  out->single = e->counts.single;
  out->parts = ARENA_ARRAY(e->arena, MetricPart, out->n_parts);
  for (int i = 0; i < out->n_parts; i++) {
    Name path = name_format(e->names, "%s.%s", out->name,
                            out->n_parts == 1 ? "counts" : of_classes[i]);
    out->parts[i] = (MetricPart){.sum = path, .factor = 1};
    graph_output(e->graph, ROLE_metric, path, e->counts.parts[i].tensor);
  }
}

static void metric_add(Elab *e, const Expr *x, Name name, Metric *out) {
  *out = (Metric){.name = name, .formula = formula_of(x)};
  e->metric = x;
  e->counts = (MetricCounts){0};
  ExprValue val = eval_in_frame(e, x, "");
  e->metric = NULL;
  if (expr_value_is_poison(val)) return;
  if (e->counts.n) {
    put_out_counts(e, out);
    return;
  }
  val = metric_scalar(e, x, val, name);
  if (!expr_value_is_poison(val)) elab_terms(e, name, val, false, out);
}

void elab_metrics(Elab *e, Elab *settings, const Item *train_block,
                  TrainSettings *out) {
  SettingRef ref = setting_find(settings, train_block, "train", "metrics");
  const Expr *list = setting_expr(settings, &ref);
  if (!list) return;
  bool is_list = list->kind == EXPR_list;
  int n = is_list ? list->items.n : 1;
  const Expr **metrics = ARENA_ARRAY(e->arena, const Expr *, n);
  for (int i = 0; i < n; i++) metrics[i] = is_list ? list->items.data[i] : list;
  out->metrics = ARENA_ARRAY(e->arena, Metric, n);
  out->n_metrics = n;
  for (int i = 0; i < n; i++)
    metric_add(e, metrics[i], metric_name(e, metrics, n, i), &out->metrics[i]);
}
