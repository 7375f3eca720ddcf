/*
 * settings.c -- reads one setting of a block: from the command line, else from
 * the file; an absent one has its default.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/eval.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"

#include <math.h>
#include <string.h>

static const struct {
  const char *block, *name;
} rows[] = {
#define SETTING(block, name, init, meaning) {#block, #name},
#include "frontend/blocks/settings.def"
};

bool setting_is_known(const char *block, const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (!strcmp(rows[i].block, block) && !strcmp(rows[i].name, name))
      return true;
  return false;
}

/* The settings of this kind of block; returns how many. */
static int settings_of(const char *kind, const char **names) {
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    if (strcmp(rows[i].block, kind) == 0) names[n++] = rows[i].name;
  return n;
}

const char *setting_field_help(Arena *arena, Name name) {
  const char *names[ARRAY_LENGTH(rows)];
  const char *nearest = text_nearest(name, names, settings_of("data", names));
  if (nearest) return arena_printf(arena, "did you mean '%s'?", nearest);
  return "there are eval and order, and fields, which have a type: "
         "'x: f32[B] = ...'";
}

void setting_unknown(SourceTree *tree, const Setting *setting,
                     const char *kind) {
  Name name = setting->path.names[0];
  const char *names[ARRAY_LENGTH(rows)];
  int n = settings_of(kind, names);
  Diag *d = diag(tree->module->diags, DIAG_unknown_setting,
                 setting->path.spans[0], kind, name);
  if (strcmp(kind, "train") == 0 && !text_nearest(name, names, n) &&
      train_takes_argument(tree->module->names, name))
    diag_help(d, "it is an argument of the optimizer or of its schedule");
  else if (strcmp(kind, "data") == 0)
    diag_help(d, "%s", setting_field_help(tree->module->arena, name));
  else
    diag_choices(tree->module->arena, d, name, names, n);
}

bool setting_is_group(const Setting *setting, const char *kind) {
  return setting->is_block && strcmp(kind, "train") == 0 &&
         strcmp(setting->path.names[0], "group") == 0;
}

void setting_check_names(SourceTree *tree, const Item *block,
                         const char *kind) {
  Diags *diags = tree->module->diags;
  for (int i = 0; block && i < block->n_settings; i++) {
    const Setting *setting = &block->settings[i];
    Name name = setting->path.names[0];
    Span span = setting->path.spans[0];
    if (setting_is_group(setting, kind)) continue;
    for (int j = 0; j < i; j++)
      if (block->settings[j].path.names[0] == name) {
        Diag *d = diag(diags, DIAG_given_twice, span, name);
        diag_note(d, block->settings[j].path.spans[0],
                  "it is given here first");
      }
    if (setting->type && strcmp(kind, "data") == 0) continue;
    if (setting_is_known(kind, name) && !setting->is_block && !setting->type)
      continue;
    setting_unknown(tree, setting, kind);
  }
}

bool setting_is_missing(const SettingRef *ref, const Item *block,
                        const char *kind) {
  if (ref->is_given) return false;
  for (int i = 0; block && i < block->n_settings; i++)
    if (!setting_is_known(kind, block->settings[i].path.names[0]) &&
        !setting_is_group(&block->settings[i], kind))
      return false;
  return true;
}

SettingRef setting_find(Elab *e, const Item *block, const char *block_name,
                        const char *name) {
  const SettingOverride *override = override_find(e->tree, block_name, name);
  if (override)
    return (SettingRef){
        .is_given = true,
        .text = override->text,
        .source = override->source,
        .span = {override->source, 0, (uint32_t) override->source->n}};
  for (int i = 0; block && i < block->n_settings; i++) {
    const Setting *setting = &block->settings[i];
    if (strcmp(setting->path.names[0], name) != 0 || !setting->value) continue;
    return (SettingRef){.is_given = true,
                        .value = setting->value,
                        .span = setting->value->span};
  }
  return (SettingRef){0};
}

const Expr *setting_expr(Elab *e, const SettingRef *ref) {
  if (!ref->is_given || ref->value) return ref->value;
  return ast_parse_expr(e->arena, e->names, e->diags, ref->source);
}

ExprValue setting_value(Elab *e, const SettingRef *ref) {
  const Expr *x = setting_expr(e, ref);
  if (!x) return POISON;
  return eval(e, x);
}

static void setting_wrong(Elab *e, const SettingRef *ref, const char *name,
                          const char *wanted, ExprValue val) {
  if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_wrong_setting, ref->span, name, wanted,
         expr_value_describe(e, val));
}

bool setting_int(Elab *e, const Item *block, const char *block_name,
                 const char *name, int64_t least, int64_t *out) {
  SettingRef ref = setting_find(e, block, block_name, name);
  if (!ref.is_given) return false;
  ExprValue val = setting_value(e, &ref);
  ExprValue whole = expr_value_whole(val);
  bool is_good = whole.kind == EXPR_VALUE_int && whole.integer >= least;
  if (is_good)
    *out = whole.integer;
  else
    setting_wrong(
        e, &ref, name,
        arena_printf(e->arena, "an integer of at least %lld", (long long)least),
        val);
  return is_good;
}

bool setting_float(Elab *e, const Item *block, const char *block_name,
                   const char *name, double least, double *out) {
  SettingRef ref = setting_find(e, block, block_name, name);
  if (!ref.is_given) return false;
  ExprValue val = setting_value(e, &ref);
  bool is_good = expr_value_is_number(val) &&
                 expr_value_to_double(val) >= least &&
                 isfinite(expr_value_to_double(val));
  if (is_good)
    *out = expr_value_to_double(val);
  else
    setting_wrong(e, &ref, name,
                  arena_printf(e->arena, "a number of at least %g", least),
                  val);
  return is_good;
}

bool setting_share_of_one(Elab *e, const Item *block, const char *block_name,
                          const char *name, double *out) {
  SettingRef ref = setting_find(e, block, block_name, name);
  if (!ref.is_given) return false;
  ExprValue val = setting_value(e, &ref);
  double value = expr_value_is_number(val) ? expr_value_to_double(val) : 0;
  bool is_good = value > 0 && value <= 1;
  if (is_good)
    *out = value;
  else
    setting_wrong(e, &ref, name, "a number above 0 and at most 1", val);
  return is_good;
}

bool setting_bool(Elab *e, const Item *block, const char *block_name,
                  const char *name, bool *out) {
  SettingRef ref = setting_find(e, block, block_name, name);
  if (!ref.is_given) return false;
  ExprValue val = setting_value(e, &ref);
  bool is_digit = !ref.value && val.kind == EXPR_VALUE_int &&
                  (val.integer == 0 || val.integer == 1);
  if (val.kind == EXPR_VALUE_bool || is_digit)
    return *out = expr_value_to_double(val) != 0, true;
  setting_wrong(e, &ref, name, "true or false", val);
  return false;
}

bool setting_string(Elab *e, const Item *block, const char *block_name,
                    const char *name, const char **out) {
  SettingRef ref = setting_find(e, block, block_name, name);
  if (!ref.is_given) return false;
  if (ref.text && ref.text[0] != '"') {
    *out = ref.text;
    return true;
  }
  ExprValue val = setting_value(e, &ref);
  if (val.kind == EXPR_VALUE_string)
    *out = val.string;
  else
    setting_wrong(e, &ref, name, "a string", val);
  return val.kind == EXPR_VALUE_string;
}

const char *setting_path_text(Elab *e, const Expr *x) {
  if (x->kind == EXPR_string) return x->name;
  return arena_printf(e->arena, "%.*s", (int)(x->span.end - x->span.begin),
                      x->span.source->text + x->span.begin);
}

Name setting_name(Elab *e, const Item *block, const char *block_name,
                  const char *name, Span *out_span) {
  SettingRef ref = setting_find(e, block, block_name, name);
  const Expr *x = setting_expr(e, &ref);
  if (!x) return NULL;
  *out_span = x->span;
  if (x->kind == EXPR_name) return x->name;
  diag(e->diags, DIAG_setting_name, x->span, name);
  return NULL;
}
