/*
 * override.c -- applies NAME=VALUE of the command line.
 *
 *     B=8  train.steps=10  steps=10  precision.compute=f32
 *
 * A dim or const is replaced before anything is computed; a setting is stored
 * until its block is read. A value is an expression of literals; where a
 * setting is text, the value is the text itself, with or without quotes.
 */
#include "frontend/syntax/help.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"

#include <string.h>

static const Source *value_source(SourceTree *tree, const char *name,
                                  const char *value) {
  Arena *arena = tree->module->arena;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){arena_printf(arena, "command line, %s", name), value,
                     strlen(value)};
  vec_push(arena, &tree->override_sources, source);
  return source;
}

/* ---- globals ---- */

static bool is_literal(const Expr *x) {
  for (; x; x = x->a) {
    if (x->kind == EXPR_name)
      return !strcmp(x->name, "true") || !strcmp(x->name, "false") ||
             !strcmp(x->name, "none") || !strcmp(x->name, "inf");
    if (x->kind == EXPR_call || x->kind == EXPR_field || x->kind == EXPR_bang)
      return false;
    for (int i = 0; i < x->items.n; i++)
      if (!is_literal(x->items.data[i])) return false;
    if (!is_literal(x->b)) return false;
  }
  return true;
}

static bool is_bool_literal(const Expr *x) {
  return x && x->kind == EXPR_name &&
         (strcmp(x->name, "true") == 0 || strcmp(x->name, "false") == 0);
}

static void override_global(SourceTree *tree, Global *global,
                            const char *value) {
  Module *m = tree->module;
  const Source *source = value_source(tree, global->name, value);
  Expr *x = ast_parse_expr(m->arena, m->names, m->diags, source);
  if (!x) return;
  if (!is_literal(x)) {
    Diag *d = diag(m->diags, DIAG_override_value, x->span, global->name);
    if (global->value && global->value->kind == EXPR_string)
      diag_help(d, "a string is quoted, for the shell too: '%s=\"text\"'",
                global->name);
    return;
  }
  global->is_number_bool = is_bool_literal(global->value);
  global->value = x;
}

/* ---- settings ---- */

static bool has_block(const SourceTree *tree, const char *block) {
  return strcmp(block, "precision") == 0 || source_tree_block(tree, block);
}

static const Item *data_block(const SourceTree *tree, const char *name) {
  for (int i = 0; i < tree->blocks.n; i++) {
    const Item *item = tree->blocks.data[i];
    if (strcmp(item->block, "data") == 0 && item->name &&
        strcmp(item->name, name) == 0)
      return item;
  }
  return NULL;
}

/* A field keeps its type and takes another source. */
static bool has_field(const Item *data, const char *name) {
  for (int i = 0; i < data->n_settings; i++)
    if (data->settings[i].type &&
        strcmp(data->settings[i].path.names[0], name) == 0)
      return true;
  return false;
}

static void override_setting(SourceTree *tree, const char *block,
                             const char *name, const char *value) {
  vec_push(tree->module->arena, &tree->overrides,
           (SettingOverride){.block = block,
                             .name = name,
                             .text = value,
                             .source = value_source(tree, name, value)});
}

typedef VEC(const char *) NameChoice;

/* Settings of data blocks are reached by the names of the blocks. */
static void add_choices(SourceTree *tree, const char *block, const char *name,
                        NameChoice *out) {
  Arena *arena = tree->module->arena;
  bool is_data = strcmp(block, "data") == 0;
  for (int i = 0; i < tree->blocks.n && is_data; i++) {
    const Item *item = tree->blocks.data[i];
    if (strcmp(item->block, "data") == 0 && item->name)
      vec_push(arena, out, arena_printf(arena, "%s.%s", item->name, name));
  }
  if (is_data || !has_block(tree, block)) return;
  vec_push(arena, out, arena_printf(arena, "%s.%s", block, name));
  if (strcmp(block, "train") == 0) vec_push(arena, out, name);
}

static void unknown_override(SourceTree *tree, const char *name) {
  Module *m = tree->module;
  Diag *d = diag(m->diags, DIAG_unknown_override, SPAN_NONE, name);
  NameChoice names = {0};
  for (int i = 0; i < map_size(tree->globals); i++)
    vec_push(m->arena, &names, map_key_at(tree->globals, i));
#define SETTING(b, n, init, meaning) add_choices(tree, #b, #n, &names);
#include "frontend/blocks/settings.def"
  for (int i = 0; i < tree->blocks.n; i++) {
    const Item *item = tree->blocks.data[i];
    if (strcmp(item->block, "data") != 0 || !item->name) continue;
    for (int k = 0; k < item->n_settings; k++)
      if (item->settings[k].type)
        vec_push(m->arena, &names,
                 arena_printf(m->arena, "%s.%s", item->name,
                              item->settings[k].path.names[0]));
  }
  if (train_takes_argument(m->names, name))
    diag_help(d,
              "'%s' is an argument of an optimizer or its rate, which one "
              "override replaces, as in 'optimizer=adamw(lr = 1e-3)'",
              name);
  else
    diag_suggest(d, name, names.data, names.n);
  for (int i = 0; i < names.n; i++) { /* of a block that was not named */
    const char *dot = strchr(names.data[i], '.');
    if (dot && strcmp(dot + 1, name) == 0)
      diag_help(d, "there is '%s'", names.data[i]);
  }
}

static void override_apply_one(SourceTree *tree, const Override *override) {
  Module *m = tree->module;
  Global *global =
      map_get(tree->globals, name_intern(m->names, override->name));
  if (global) {
    override_global(tree, global, override->value);
    return;
  }
  const char *dot = strrchr(override->name, '.');
  const char *block = dot ? name_intern_n(m->names, override->name,
                                          (size_t)(dot - override->name))
                          : "train";
  const char *name = dot ? dot + 1 : override->name;
  if (strncmp(block, "data.", 5) == 0) block += 5;
  const Item *data = data_block(tree, block);
  if (data ? setting_is_known("data", name) || has_field(data, name)
           : setting_is_known(block, name) && has_block(tree, block))
    override_setting(tree, block, name, override->value);
  else
    unknown_override(tree, override->name);
}

void override_apply(SourceTree *tree) {
  const FrontendOptions *options = tree->options;
  for (int i = 0; i < options->n_overrides; i++)
    override_apply_one(tree, &options->overrides[i]);
}
