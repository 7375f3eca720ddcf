/*
 * data.c -- reads data blocks: fields with a type and a source, which
 * expressions of `train` read as BLOCK.FIELD.
 *
 * The compiler opens no data file: it passes on what the runtime needs to fill
 * the graph input of that path. Arithmetic on a source becomes a factor and an
 * offset.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *name, *params;
  SourceKind kind;
} sources[] = {
#define SOURCE(name, word, formals) {word, formals, SOURCE_##name},
#include "support/sources.def"
};

/* ---- fields, for expressions to read ---- */

static const Item *data_find_block(const SourceTree *tree, Name name) {
  for (int i = 0; i < tree->blocks.n; i++) {
    const Item *item = tree->blocks.data[i];
    if (strcmp(item->block, "data") == 0 && item->name == name) return item;
  }
  return NULL;
}

static const Setting *data_find_field(const Item *block, Name name) {
  for (int i = 0; i < block->n_settings; i++)
    if (block->settings[i].type && block->settings[i].path.names[0] == name)
      return &block->settings[i];
  return NULL;
}

static FieldDecl data_declare_field(SourceTree *tree, const Item *block,
                                    const Setting *setting) {
  Module *m = tree->module;
  FieldDecl out = {.name = setting->path.names[0],
                   .type = setting->type,
                   .span = setting->path.spans[0]};
  if (!out.type)
    out.help = setting_field_help(m->arena, out.name);
  else if (block->name)
    out.path = name_format(m->names, "%s.%s", block->name, out.name);
  return out;
}

void data_register(SourceTree *tree) {
  Arena *arena = tree->module->arena;
  for (int i = 0; i < tree->blocks.n; i++) {
    const Item *item = tree->blocks.data[i];
    if (strcmp(item->block, "data") != 0) continue;
    DataDecl block = {.name = item->name, .span = item->name_span};
    for (int k = 0; k < item->n_settings; k++) {
      const Setting *setting = &item->settings[k];
      if (setting->type || !setting_is_known("data", setting->path.names[0]))
        vec_push(arena, &block.fields, data_declare_field(tree, item, setting));
    }
    vec_push(arena, &tree->data, block);
  }
}

static Name field_batch_dim(const SourceTree *tree, const Expr *x) {
  const Item *block = data_find_block(tree, x->a->name);
  const Setting *field = block ? data_find_field(block, x->name) : NULL;
  return field && field->type->n_dims > 0 ? field->type->dims[0].name : NULL;
}

Name data_batch_dim(const SourceTree *tree, const Expr *loss) {
  Name first = NULL; /* further left is earlier */
  for (const Expr *x = loss; x; x = x->a) {
    bool is_field = x->kind == EXPR_field && x->a->kind == EXPR_name;
    Name found =
        is_field ? field_batch_dim(tree, x) : data_batch_dim(tree, x->b);
    for (int i = 0; i < x->args.n && !found; i++)
      found = data_batch_dim(tree, x->args.items[i].value);
    for (int i = 0; i < x->items.n && !found; i++)
      found = data_batch_dim(tree, x->items.data[i]);
    if (found) first = found;
  }
  return first;
}

/* ---- sources ---- */

static int data_find_source(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(sources); i++)
    if (sources[i].name && strcmp(sources[i].name, name) == 0) return i;
  return -1;
}

static bool check_path(Elab *e, const BuiltinCall *call, int i,
                       const char *path) {
  return override_is_source(e->tree, call->x->span.source) ||
         source_tree_check_path(e->tree, path, call->exprs[i]->span);
}

static bool data_take_file(Elab *e, const BuiltinCall *call, int i,
                           const char **out) {
  ExprValue val = call->args[i];
  if (val.kind == EXPR_VALUE_none) return true;
  if (val.kind != EXPR_VALUE_string) {
    arg_wrong((BuiltinCall *)call, i, "the name of a file");
    return false;
  }
  *out = val.string;
  return check_path(e, call, i, val.string);
}

/* One name or a list of names, each of which may be a pattern. */
static bool data_take_files(Elab *e, BuiltinCall *call, int i, int32_t *out_n,
                            const char *const **out) {
  ExprValue val = call->args[i];
  if (val.kind == EXPR_VALUE_none) return true;
  bool is_list = val.kind == EXPR_VALUE_list;
  const ExprValue *items = is_list ? val.list->items : &val;
  int n = is_list ? val.list->n : 1;
  const char **names = ARENA_ARRAY(e->arena, const char *, n + 1);
  bool is_good = n > 0, is_inside = true;
  for (int k = 0; k < n; k++) {
    is_good = is_good && items[k].kind == EXPR_VALUE_string;
    if (!is_good) break;
    names[k] = items[k].string;
    is_inside = is_inside && check_path(e, call, i, names[k]);
  }
  if (!is_good) arg_wrong(call, i, "the name of a file or a list of names");
  *out_n = n;
  *out = names;
  return is_good && is_inside;
}

enum { CSV_header = 2, CSV_classes = 4, TOKENS_dtype = 2, LABELS_classes = 2 };

/* Names of columns stand in the last line of the header. */
static bool csv_take_names(Elab *e, BuiltinCall *call, ExprValue first,
                           ExprValue last, DataField *out) {
  if (last.kind != EXPR_VALUE_string) {
    diag(e->diags, DIAG_bad_columns, call->exprs[1]->span);
    return false;
  }
  out->first_name = first.string;
  out->last_name = last.string;
  out->header_lines = 1;
  if (!call->exprs[CSV_header] ||
      (arg_int(call, CSV_header, 0, &out->header_lines) &&
       out->header_lines > 0))
    return true;
  if (out->header_lines == 0)
    arg_wrong(call, CSV_header, "1 or more where columns have names");
  return false;
}

static bool csv_take_columns(Elab *e, BuiltinCall *call, DataField *out) {
  const Expr *x = call->exprs[1];
  bool is_range = x->kind == EXPR_range;
  ExprValue first = eval(e, is_range ? x->a : x);
  if (first.kind == EXPR_VALUE_string)
    return csv_take_names(e, call, first, is_range ? eval(e, x->b) : first,
                          out);
  if (expr_value_is_poison(first)) return false;
  if (!eval_int(e, is_range ? x->a : x, &out->first_column)) return false;
  out->last_column = out->first_column;
  if (is_range && !eval_int(e, x->b, &out->last_column)) return false;
  if (out->first_column < 0 || out->last_column < out->first_column) {
    diag(e->diags, DIAG_bad_columns, x->span);
    return false;
  }
  return arg_int(call, CSV_header, 0, &out->header_lines);
}

/* The words of a column, in the order of their integers. */
static bool take_classes(Elab *e, BuiltinCall *call, int at, DataField *out) {
  ExprValue val = call->args[at];
  if (val.kind == EXPR_VALUE_none) return true;
  if (val.kind == EXPR_VALUE_string && at == CSV_classes)
    return data_take_file(e, call, at, &out->classes_file);
  int n = val.kind == EXPR_VALUE_list ? val.list->n : 0;
  const char **words = ARENA_ARRAY(e->arena, const char *, n);
  bool is_good = n > 0;
  for (int i = 0; i < n && is_good; i++) {
    is_good = val.list->items[i].kind == EXPR_VALUE_string;
    if (is_good) words[i] = val.list->items[i].string;
    for (int k = 0; k < i && is_good; k++) is_good = words[k] != words[i];
  }
  if (!is_good)
    arg_wrong(call, at,
              at == CSV_classes
                  ? "a list of different words or the name of a file of them"
                  : "a list of different words");
  out->classes = words;
  out->n_classes = n;
  return is_good;
}

static bool data_take_next(Elab *e, const Item *block, const BuiltinCall *call,
                           DataField *out) {
  const Expr *x = call->exprs[0];
  int index = 0;
  if (x->kind == EXPR_name)
    for (int i = 0; i < block->n_settings; i++) {
      if (!block->settings[i].type) continue;
      if (block->settings[i].path.names[0] == x->name) {
        out->next_of = index;
        return true;
      }
      index++;
    }
  diag(e->diags, DIAG_unknown_field, x->span, block->name,
       x->kind == EXPR_name ? x->name : "this");
  return false;
}

static bool data_take_synthetic(BuiltinCall *call, DataField *out) {
  if (!arg_int(call, 1, 1, &out->records)) return false;
  if (call->args[0].kind != EXPR_VALUE_none)
    return arg_int(call, 0, 1, &out->below);
  out->source = SOURCE_synthetic_floats;
  return true;
}

static int find_param(const Builtin *signature, const char *name) {
  for (int i = 0; i < signature->n_params; i++)
    if (strcmp(signature->params[i].name, name) == 0) return i;
  UNREACHABLE();
}

/* Tokens end to end, without a header. */
static bool tokens_take_number(BuiltinCall *call, DataField *out) {
  static const char *const words[] = {"u8", "u16", "u32", "i32", "i64"};
  ExprValue val = call->args[TOKENS_dtype];
  if (val.kind == EXPR_VALUE_none) return true;
  for (int i = 0; i < ARRAY_LENGTH(words) && val.kind == EXPR_VALUE_string; i++)
    if (strcmp(words[i], val.string) == 0) return out->number = words[i], true;
  arg_wrong(call, TOKENS_dtype, "\"u8\", \"u16\", \"u32\", \"i32\" or \"i64\"");
  return false;
}

static bool data_take_source(Elab *e, const Item *block, const Expr *x,
                             DataField *out) {
  const Expr *callee = x->kind == EXPR_call ? x->a : x;
  int row = callee->kind == EXPR_name ? data_find_source(callee->name) : -1;
  if (row < 0 || x->kind != EXPR_call) {
    const char *names[ARRAY_LENGTH(sources)];
    int n = 0;
    for (int i = 0; i < ARRAY_LENGTH(sources); i++)
      if (sources[i].name) names[n++] = sources[i].name;
    Diag *d = diag(e->diags, DIAG_not_a_source, callee->span,
                   expr_describe(e, callee));
    if (row >= 0)
      diag_help(d, "'%s' is called, as in %s(...)", callee->name, callee->name);
    else
      diag_choices(e->arena, d, callee->kind == EXPR_name ? callee->name : NULL,
                   names, n);
    return false;
  }
  Builtin signature = {.name = name_intern(e->names, sources[row].name)};
  builtin_parse_params(e->names, sources[row].params, &signature);
  BuiltinCall call;
  if (!builtin_match(e, x, &signature, &call)) return false;
  out->source = sources[row].kind;
  switch (out->source) {
  case SOURCE_next: return data_take_next(e, block, &call, out);
  case SOURCE_synthetic_ints: return data_take_synthetic(&call, out);
  case SOURCE_images:
    if (!images_take(e, &call, out)) return false;
    break;
  case SOURCE_labels:
    if (out->type->rank != 1 || dtype_class(out->type->dtype) == CLASS_FLOAT) {
      diag(e->diags, DIAG_label_type, x->span, out->path);
      return false;
    }
    if (!take_classes(e, &call, LABELS_classes, out)) return false;
    break;
  case SOURCE_tokens:
    if (!tokens_take_number(&call, out)) return false;
    break;
  case SOURCE_csv:
    if (!csv_take_columns(e, &call, out) ||
        !take_classes(e, &call, CSV_classes, out))
      return false;
    break;
  case SOURCE_safetensors:
    if (call.args[1].kind != EXPR_VALUE_string) {
      arg_wrong(&call, 1, "the name of a tensor");
      return false;
    }
    out->tensor = call.args[1].string;
    break;
  default: break;
  }
  int eval = find_param(&signature, "eval");
  return data_take_files(e, &call, 0, &out->n_files, &out->files) &&
         data_take_files(e, &call, eval, &out->n_eval_files, &out->eval_files);
}

/* ---- arithmetic: element = raw * scale + shift ---- */

/* The call of a source in it, or NULL. */
static const Expr *source_in(const Expr *x) {
  const Expr *first = NULL; /* further left is earlier */
  for (; x; x = x->a) {
    bool is_call = x->kind == EXPR_call && x->a->kind == EXPR_name;
    if (is_call) return data_find_source(x->a->name) >= 0 ? x : first;
    const Expr *found = source_in(x->b);
    if (found) first = found;
  }
  return first;
}

static bool affine_number(Elab *e, const Expr *x, double *out) {
  ExprValue val =
      source_in(x) ? (ExprValue){.kind = EXPR_VALUE_none} : eval(e, x);
  if (expr_value_is_number(val)) return *out = expr_value_to_double(val), true;
  if (!expr_value_is_poison(val)) diag(e->diags, DIAG_data_arithmetic, x->span);
  return false;
}

static bool apply_number(DataField *out, Operator op, double number,
                         bool number_first) {
  switch (op) {
  case OPERATOR_add: out->shift += number; return true;
  case OPERATOR_sub:
    out->shift -= number;
    if (number_first) out->scale = -out->scale, out->shift = -out->shift;
    return true;
  case OPERATOR_mul: out->scale *= number, out->shift *= number; return true;
  case OPERATOR_div:
    if (number_first || number == 0) return false;
    out->scale /= number, out->shift /= number;
    return true;
  default: return false;
  }
}

static bool apply_operator(Elab *e, const Expr *x, bool number_first,
                           DataField *out) {
  if (x->kind == EXPR_unary) {
    out->scale = -out->scale, out->shift = -out->shift;
    return true;
  }
  double number;
  if (!affine_number(e, number_first ? x->a : x->b, &number)) return false;
  if (apply_number(out, x->op, number, number_first)) return true;
  diag(e->diags, DIAG_data_arithmetic, x->span);
  return false;
}

/* Down to the source, then its operators from the inside out. */
static bool take_affine(Elab *e, const Item *block, const Expr *x,
                        DataField *out) {
  const Expr *source = source_in(x);
  VEC(const Expr *) way = {0};
  while (x->kind == EXPR_binary ||
         (x->kind == EXPR_unary && x->op == OPERATOR_neg)) {
    vec_push(e->arena, &way, x);
    bool is_left = !x->b || (source && source->serial <= x->a->serial);
    x = is_left ? x->a : x->b;
  }
  if (!data_take_source(e, block, x, out)) return false;
  for (int i = way.n - 1; i >= 0; i--) {
    const Expr *inner = i + 1 < way.n ? way.data[i + 1] : x;
    if (!apply_operator(e, way.data[i], way.data[i]->b == inner, out))
      return false;
  }
  return true;
}

/* ---- blocks ---- */

static bool data_check_field(Elab *e, const DataField *field, Span span) {
  bool is_real = dtype_class(field->type->dtype) == CLASS_FLOAT;
  if (field->source == SOURCE_images) return true;
  if (field->type->rank == 0) {
    diag(e->diags, DIAG_no_samples, span, field->path);
    return false;
  }
  if (!is_real && (field->scale != 1 || field->shift != 0)) {
    diag(e->diags, DIAG_scaled_integers, span, field->path);
    return false;
  }
  if (is_real && (field->n_classes || field->classes_file)) {
    diag(e->diags, DIAG_float_classes, span, field->path);
    return false;
  }
  if (is_real == (field->source != SOURCE_synthetic_ints) ||
      field->source < SOURCE_synthetic_ints)
    return true;
  diag(e->diags, DIAG_synthetic_dtype, span, field->path);
  return false;
}

static bool data_read_field(Elab *e, const Item *block, const Setting *setting,
                            DataField *out) {
  *out = (DataField){.path = name_format(e->names, "%s.%s", block->name,
                                         setting->path.names[0]),
                     .next_of = -1,
                     .scale = 1,
                     .span = setting->path.spans[0]};
  out->type = elab_type_expr(e, setting->type);
  SettingRef given =
      setting_find(e, block, block->name, setting->path.names[0]);
  const Expr *source = setting_expr(e, &given);
  out->is_given = given.is_given && !given.value;
  return out->type && source && take_affine(e, block, source, out) &&
         data_check_field(e, out, setting->path.spans[0]);
}

static void data_check_fields(Elab *e, const DataBlock *block) {
  for (int i = 0; i < block->n_fields; i++) {
    const DataField *field = &block->fields[i], *first = &block->fields[0];
    if (!field->type || !first->type || !field->type->rank ||
        !first->type->rank)
      continue;
    if (field->type->dims[0].name != first->type->dims[0].name) {
      Diag *d = diag(e->diags, DIAG_samples_differ, field->span, field->path,
                     field->type->dims[0].name, first->type->dims[0].name);
      diag_note(d, first->span, "the first field is here");
    }
    if (field->source != SOURCE_next) continue;
    const DataField *of = &block->fields[field->next_of];
    if (of == field || of->source == SOURCE_next || !of->type ||
        !type_same_shape(of->type, field->type))
      diag(e->diags, DIAG_next_differs, field->span, field->path, of->path);
  }
}

/* Values end to end: of a file that has no records, or that next() reads on. */
static bool data_is_stream(const DataBlock *block, int field) {
  SourceKind source = block->fields[field].source;
  bool is = source == SOURCE_bytes || source == SOURCE_tokens;
  for (int i = 0; i < block->n_fields; i++)
    is = is || (block->fields[i].source == SOURCE_next &&
                block->fields[i].next_of == field);
  return is;
}

/* A window of one and a record of another are no sample. */
static void data_find_stream(Elab *e, DataBlock *block) {
  const DataField *stream = NULL;
  for (int i = 0; i < block->n_fields && !stream; i++)
    if (data_is_stream(block, i)) stream = &block->fields[i];
  block->is_stream = stream != NULL;
  for (int i = 0; stream && i < block->n_fields; i++) {
    const DataField *field = &block->fields[i];
    bool has_records =
        field->source >= SOURCE_idx && field->source <= SOURCE_safetensors;
    if (!has_records || data_is_stream(block, i)) continue;
    Diag *d = diag(e->diags, DIAG_stream_and_records, field->span, stream->path,
                   field->path);
    diag_note(d, stream->span, "the stream is here");
  }
}

static bool data_is_synthetic(const DataField *field) {
  return field->source == SOURCE_synthetic_ints ||
         field->source == SOURCE_synthetic_floats;
}

/* Noise beside records is often meant to be new in each step. */
static void data_warn_synthetic(Elab *e, const DataBlock *block) {
  const DataField *with_file = NULL;
  for (int i = 0; i < block->n_fields && !with_file; i++)
    if (block->fields[i].n_files) with_file = &block->fields[i];
  for (int i = 0; with_file && i < block->n_fields; i++) {
    const DataField *field = &block->fields[i];
    if (!data_is_synthetic(field)) continue;
    Diag *d = diag(e->diags, DIAG_synthetic_repeats, field->span, field->path,
                   with_file->path);
    diag_help(d,
              "in a net, %s(x) gives a new number for each element of x in "
              "each step",
              field->source == SOURCE_synthetic_ints ? "uniform" : "normal");
  }
}

static void data_check_eval_files(Elab *e, const Item *item,
                                  const DataBlock *block) {
  const DataField *with = NULL, *without = NULL;
  for (int i = 0; i < block->n_fields; i++) {
    const DataField *field = &block->fields[i];
    if (field->n_eval_files)
      with = field;
    else if (field->n_files)
      without = field;
  }
  if (with && without) {
    Diag *d = diag(e->diags, DIAG_eval_files, without->span, with->path,
                   without->path);
    diag_note(d, with->span, "the other field is here");
  }
  if (with && block->eval > 0)
    diag(e->diags, DIAG_eval_and_files,
         setting_find(e, item, item->name, "eval").span, with->path);
}

/* Records that the command line gives to a prediction are all predicted. */
static bool data_predicts_all(const Elab *e, const DataBlock *block) {
  bool is_given = false;
  for (int i = 0; i < block->n_fields; i++)
    is_given = is_given || block->fields[i].is_given;
  return is_given && e->tree->options->predicting == PREDICTING_wanted &&
         !override_find(e->tree, block->name, "eval");
}

static void data_read_block(Elab *e, const Item *item, DataBlock *out) {
  setting_check_names(e->tree, item, "data");
  *out = (DataBlock){.name = item->name, .span = item->name_span};
  out->fields = ARENA_ARRAY(e->arena, DataField, item->n_settings);
  bool is_good = true; /* an error of a type may have been reported before */
  for (int i = 0; i < item->n_settings; i++)
    if (item->settings[i].type &&
        !data_read_field(e, item, &item->settings[i],
                         &out->fields[out->n_fields++]))
      is_good = false;
  int errors = diags_errors(e->diags);
  if (is_good) data_check_fields(e, out);
  is_good = is_good && diags_errors(e->diags) == errors;
  if (is_good) data_find_stream(e, out);
  if (is_good) data_warn_synthetic(e, out);
  setting_float(e, item, item->name, "eval", 0, &out->eval);
  setting_bool(e, item, item->name, "cycle", &out->cycles);
  bool predicts = data_predicts_all(e, out);
  if (predicts) out->eval = 0;
  if (is_good && !predicts && diags_errors(e->diags) == errors)
    data_check_eval_files(e, item, out);
  if (out->eval > 1 && out->eval != floor(out->eval))
    diag(e->diags, DIAG_bad_eval, item->name_span, item->name);
  Span span = item->name_span;
  Name order = setting_name(e, item, item->name, "order", &span);
  out->is_sequential = order && strcmp(order, "sequential") == 0;
  if (order && !out->is_sequential && strcmp(order, "shuffle") != 0)
    diag(e->diags, DIAG_bad_order, span, order);
}

static bool data_is_used(const Elab *e, const Item *block) {
  for (int i = 0; i < map_size(e->data); i++) {
    Name path = map_key_at(e->data, i);
    size_t n = strlen(block->name);
    if (strncmp(path, block->name, n) == 0 && path[n] == '.') return true;
  }
  return false;
}

static bool data_is_evaluated(const DataBlock *block) {
  for (int i = 0; i < block->n_fields; i++)
    if (block->fields[i].n_eval_files) return true;
  return block->eval > 0;
}

/* An evaluation reads all blocks, so one without records for it ends it. */
static void data_check_eval(Elab *e, const Model *model, const Span *spans) {
  int with = -1, without = -1;
  for (int i = 0; i < model->n_data; i++)
    *(data_is_evaluated(&model->data[i]) ? &with : &without) = i;
  if (with < 0 || without < 0) return;
  Diag *d = diag(e->diags, DIAG_no_eval, spans[without], model->data[with].name,
                 model->data[without].name);
  diag_help(d, "'eval = 0.1' in '%s' reserves the last tenth",
            model->data[without].name);
}

void data_read(Elab *e, Model *model, const Elab *read) {
  const SourceTree *tree = e->tree;
  Span *spans = ARENA_ARRAY(e->arena, Span, tree->blocks.n);
  model->data = ARENA_ARRAY(e->arena, DataBlock, tree->blocks.n);
  for (int i = 0; i < tree->blocks.n; i++) {
    const Item *item = tree->blocks.data[i];
    if (strcmp(item->block, "data") != 0) continue;
    if (!item->name) scope_unnamed_data(e, item->name_span);
    if (!item->name || !data_is_used(read, item)) continue;
    spans[model->n_data] = item->name_span;
    data_read_block(e, item, &model->data[model->n_data++]);
  }
  data_check_eval(e, model, spans);
}
