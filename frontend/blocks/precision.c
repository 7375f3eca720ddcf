/*
 * precision.c -- reads the precision block, dtypes of computation, and the
 * sample block, what `dnnc sample` writes.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"

#include <string.h>

/* ---- precision ---- */

static void precision_read_dtype(Elab *e, const Item *block, const char *name,
                                 DType *out) {
  *out = DT_f32;
  Span span = SPAN_NONE;
  Name text = setting_name(e, block, "precision", name, &span);
  DType dtype;
  if (!text) return;
  if (dtype_find(text, &dtype) && dtype_class(dtype) == CLASS_FLOAT) {
    *out = dtype;
    return;
  }
  const char *names[N_DTYPES];
  int n = 0;
  for (int i = 0; i < N_DTYPES; i++)
    if (dtype_class((DType)i) == CLASS_FLOAT && i != DT_f64)
      names[n++] = dtype_name((DType)i);
  Diag *d = diag(e->diags, DIAG_bad_precision, span, text);
  if (!foreign_help(d, FOREIGN_dtype, text))
    diag_choices(e->arena, d, text, names, n);
}

static bool is_path(const Expr *x) {
  while (x->kind == EXPR_field || x->kind == EXPR_bang || x->kind == EXPR_index)
    x = x->a;
  return x->kind == EXPR_name || x->kind == EXPR_string;
}

static void precision_read_paths(Elab *e, const Item *block, Precision *out) {
  SettingRef ref = setting_find(e, block, "precision", "f32");
  const Expr *x = setting_expr(e, &ref);
  if (!x) return;
  int n = x->kind == EXPR_list ? x->items.n : 1;
  out->f32_paths = ARENA_ARRAY(e->arena, const char *, n);
  out->f32_spans = ARENA_ARRAY(e->arena, Span, n);
  for (int i = 0; i < n; i++) {
    const Expr *item = x->kind == EXPR_list ? x->items.data[i] : x;
    if (!is_path(item)) {
      diag(e->diags, DIAG_not_a_path, item->span);
      continue;
    }
    out->f32_spans[out->n_f32_paths] = item->span;
    out->f32_paths[out->n_f32_paths++] = setting_path_text(e, item);
  }
}

static void read_loss_scale(Elab *e, const Item *block, Precision *out) {
  SettingRef ref = setting_find(e, block, "precision", "loss_scale");
  const Expr *x = setting_expr(e, &ref);
  if (!x) return;
  if (x->kind == EXPR_name && strcmp(x->name, "dynamic") == 0) {
    out->loss_scale = -1;
    return;
  }
  bool is_unknown = x->kind == EXPR_name && !scope_has_value(e, x->name);
  ExprValue val =
      is_unknown ? (ExprValue){.kind = EXPR_VALUE_none} : eval(e, x);
  if (expr_value_is_number(val) && expr_value_to_double(val) > 0)
    out->loss_scale = expr_value_to_double(val);
  else if (is_unknown)
    diag(e->diags, DIAG_wrong_setting, x->span, "loss_scale",
         "a number above 0 or dynamic", expr_describe(e, x));
  else if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_wrong_setting, x->span, "loss_scale",
         "a number above 0 or dynamic", expr_value_describe(e, val));
}

static void check_compiled(Elab *e, const Precision *p) {
  const struct {
    const char *name;
    DType dtype;
  } dtypes[] = {
      {"compute", p->compute}, {"master", p->master}, {"grads", p->grads}};
  for (int i = 0; i < ARRAY_LENGTH(dtypes); i++) {
    if (dtypes[i].dtype == DT_f32 || dtypes[i].dtype == DT_bf16 ||
        dtypes[i].dtype == DT_f16)
      continue;
    diag(e->diags, DIAG_precision_not_supported, p->span, dtypes[i].name,
         dtype_name(dtypes[i].dtype), dtypes[i].name);
  }
}

void precision_read(Elab *e, Model *model, const Item *block) {
  Precision *p = &model->precision;
  *p = (Precision){.loss_scale = 1};
  setting_check_names(e->tree, block, "precision");
  precision_read_dtype(e, block, "compute", &p->compute);
  precision_read_dtype(e, block, "master", &p->master);
  precision_read_dtype(e, block, "grads", &p->grads);
  precision_read_paths(e, block, p);
  read_loss_scale(e, block, p);
  p->span = setting_find(e, block, "precision", "compute").span;
  if (!p->span.source && block) p->span = block->name_span;
  if (!e->tree->options->check_only) check_compiled(e, p);
}

/* ---- what `f32` lists and is not there ---- */

typedef struct Called {
  Elab *e;
  Map *seen;
  VEC(const char *) names; /* operators; paths and their parts, no indices */
} Called;

static void add_name(Called *called, const char *text, size_t n) {
  Name name = name_format(called->e->names, "%.*s", (int)n, text);
  if (n == 0 || map_has(called->seen, name)) return;
  map_put(called->seen, name, called->seen);
  vec_push(called->e->arena, &called->names, name);
}

static void add_path(Called *called, const char *path) {
  Text whole = text_create(called->e->arena);
  for (const char *at = path; at && *at; at += *at != '\0') {
    size_t n = strcspn(at, ".![");
    add_name(called, at, n);
    text_printf(&whole, "%.*s", (int)n, at);
    at += strcspn(at, ".!");
    if (*at) text_printf(&whole, "%c", *at);
  }
  add_name(called, text_string(&whole), whole.n);
}

static void add_names(Called *called, const Graph *graph) {
  for (int id = 0; graph && id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const char *op = op_info(node->op)->name;
    if (node->op != OP_input) add_name(called, op, strlen(op));
    add_path(called, node->path);
    add_names(called, node->body);
  }
}

static bool is_called(const Graph *graph, const char *entry) {
  for (int id = 0; graph && id < graph->nodes.n; id++)
    if (node_is_called(graph->nodes.data[id], entry) ||
        is_called(graph->nodes.data[id]->body, entry))
      return true;
  return false;
}

void precision_check(Elab *e, const Model *model) {
  const Precision *p = &model->precision;
  const Graph *const graphs[] = {model->train, model->eval, model->forward,
                                 model->prefill};
  for (int i = 0; i < p->n_f32_paths; i++) {
    const char *entry = p->f32_paths[i];
    bool is_known = strcmp(entry, "loss") == 0;
    for (int g = 0; g < ARRAY_LENGTH(graphs); g++)
      is_known = is_known || is_called(graphs[g], entry);
    if (is_known) continue;
    Called called = {.e = e, .seen = map_create(e->arena)};
    for (int g = 0; g < ARRAY_LENGTH(graphs); g++)
      add_names(&called, graphs[g]);
    Diag *d = diag(e->diags, DIAG_precision_no_match, p->f32_spans[i], entry);
    diag_suggest(d, entry, called.names.data, called.names.n);
  }
}

/* ---- sample ---- */

static void precision_read_vocabulary(Elab *e, const Item *block,
                                      SampleSettings *s) {
  SettingRef ref = setting_find(e, block, "sample", "vocabulary");
  const Expr *x = setting_expr(e, &ref);
  if (!x || (x->kind == EXPR_name && strcmp(x->name, "bytes") == 0)) return;
  if (x->kind == EXPR_call && x->a->kind == EXPR_name &&
      strcmp(x->a->name, "bpe") == 0) {
    Builtin signature = {.name = x->a->name};
    builtin_parse_params(e->names, "file", &signature);
    BuiltinCall call;
    if (!builtin_match(e, x, &signature, &call)) return;
    if (call.args[0].kind != EXPR_VALUE_string) {
      arg_wrong(&call, 0, "the name of a file");
      return;
    }
    s->vocabulary = call.args[0].string;
    s->is_vocabulary_given = override_is_source(e->tree, x->span.source);
    if (!s->is_vocabulary_given)
      source_tree_check_path(e->tree, s->vocabulary, call.exprs[0]->span);
    return;
  }
  diag(e->diags, DIAG_bad_vocabulary, x->span);
}

void sample_read(Elab *e, Model *model, const Item *block) {
  SampleSettings *s = &model->sample_settings;
  *s = (SampleSettings){
      .prompt = "", .count = 200, .temperature = 0.8, .top_p = 1};
  setting_check_names(e->tree, block, "sample");
  setting_string(e, block, "sample", "prompt", &s->prompt);
  setting_int(e, block, "sample", "count", 0, &s->count);
  setting_int(e, block, "sample", "top_k", 0, &s->top_k);
  setting_float(e, block, "sample", "temperature", 0, &s->temperature);
  setting_share_of_one(e, block, "sample", "top_p", &s->top_p);
  precision_read_vocabulary(e, block, s);
}
