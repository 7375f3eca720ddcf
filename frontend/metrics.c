/*
 * metrics.c -- the loss and the metrics of a model: scalars that a graph puts
 * out.
 */
#include "frontend/internal.h"

#include <string.h>

static Val scalar(Elab *e, const Expr *x, Val val, const char *what) {
  if (val_is_poison(val)) return val;
  if (val_is_tensor(val) && elab_type(e, val)->rank == 0 &&
      dtype_class(elab_type(e, val)->dtype) == CLASS_REAL)
    return dtype_is_short(elab_type(e, val)->dtype) ? elab_cast(e, val, DT_f32)
                                                    : val;
  diag(e->diags, DIAG_not_scalar, x->span, what, val_describe(e, val));
  return POISON;
}

static Val eval_named(Elab *e, const Expr *x, const char *prefix,
                      const char *what) {
  Frame *frame = frame_push(e, NULL, name_intern(e->names, prefix));
  frame->labels = number_expr(e->program, x);
  Val val = eval(e, x);
  frame_pop(e);
  return scalar(e, x, val, what);
}

bool elab_loss(Elab *e, const Expr *loss) {
  Val val = eval_named(e, loss, "loss", "loss");
  for (int i = 0; i < e->extra_losses.n && !val_is_poison(val); i++) {
    e->graph->span = loss->span;
    e->graph->path = name_intern(e->names, "loss");
    val = pointwise2(e, OP_add, val, e->extra_losses.data[i]);
  }
  if (val_is_poison(val)) return false;
  graph_output(e->graph, ROLE_loss, name_intern(e->names, "loss"), val.tensor);
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

static bool is_call_of(const Expr *x, const char *name) {
  return x->kind == EXPR_call && x->a->kind == EXPR_name &&
         strcmp(x->a->name, name) == 0;
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
  out->metrics = ARENA_ARRAY(e->arena, Name, n);
  out->metric_is_exp = ARENA_ARRAY(e->arena, bool, n);
  out->n_metrics = n;
  for (int i = 0; i < n; i++) {
    Name name = metric_name(e, metrics, n, i);
    out->metrics[i] = name;
    out->metric_is_exp[i] = is_call_of(metrics[i], "perplexity");
    e->metric = metrics[i];
    Val val = eval_named(e, metrics[i], "", name);
    e->metric = NULL;
    if (!val_is_poison(val))
      graph_output(e->graph, ROLE_metric, name, val.tensor);
  }
}
