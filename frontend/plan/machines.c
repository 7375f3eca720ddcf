/*
 * machines.c -- checks clusters, devices and certificates: their settings must
 * exist and have values of the right kind. No pass reads them yet; `dnnc show`
 * prints them and reports their mistakes.
 */
#include "frontend/syntax/help.h"
#include "frontend/syntax/ast.h"

#include <string.h>

typedef enum Kind { COUNT, AMOUNT, RATIO, DEVICE, KIND, TEXT, ANY, BLOCK } Kind;

static const struct {
  const char *block, *name;
  Kind kind;
} rows[] = {
#define MACHINE(block, name, kind) {#block, #name, kind},
#include "frontend/plan/machines.def"
};

static const char *const kinds[] = {"switch",   "mesh", "ring",   "torus",
                                    "fat_tree", "pcie", "shared", "wan"};

typedef struct Check {
  Arena *arena;
  Diags *diags;
  const Ast *ast;
} Check;

static void machine_wrong(Check *c, const Setting *setting,
                          const char *wanted) {
  const Expr *x = setting->value;
  const char *what =
      arena_printf(c->arena, "%.*s", (int)(x->span.end - x->span.begin),
                   x->span.source->text + x->span.begin);
  diag(c->diags, DIAG_wrong_setting, x->span, setting->path.names[0], wanted,
       what);
}

static void machine_check_word(Check *c, const Setting *setting,
                               const char *wanted, const char *const *names,
                               int n) {
  const Expr *x = setting->value;
  for (int i = 0; x->kind == EXPR_name && i < n; i++)
    if (strcmp(x->name, names[i]) == 0) return;
  if (x->kind != EXPR_name) {
    machine_wrong(c, setting, wanted);
    return;
  }
  Diag *d = diag(c->diags, DIAG_wrong_setting, x->span, setting->path.names[0],
                 wanted, x->name);
  diag_choices(c->arena, d, x->name, names, n);
}

/* Presets, and the devices of the file. */
static void machine_check_device(Check *c, const Setting *setting) {
  VEC(const char *) names = {0};
#define DEVICE(name, f32, bf16, f16, memory, bandwidth)                        \
  vec_push(c->arena, &names, #name);
#include "ir/devices.def"
  for (int i = 0; i < c->ast->n_items; i++) {
    const Item *item = &c->ast->items[i];
    if (item->kind == ITEM_block && item->name &&
        strcmp(item->block, "device") == 0)
      vec_push(c->arena, &names, item->name);
  }
  machine_check_word(c, setting, "a preset or a 'device' of the file",
                     names.data, names.n);
}

static bool machine_number(const Expr *x, double *out) {
  if (x->kind == EXPR_int) *out = (double)x->integer;
  if (x->kind == EXPR_float) *out = x->real;
  return x->kind == EXPR_int || x->kind == EXPR_float;
}

static void check_number(Check *c, const Setting *setting, Kind kind) {
  double value = 0;
  bool is_number = machine_number(setting->value, &value);
  if (kind == COUNT && !(setting->value->kind == EXPR_int && value >= 1))
    machine_wrong(c, setting, "an integer of at least 1");
  else if (kind == AMOUNT && !(is_number && value > 0))
    machine_wrong(c, setting, "a number above 0");
  else if (kind == RATIO && !(is_number && value >= 1))
    machine_wrong(c, setting, "a number of at least 1");
}

static void machine_check_value(Check *c, const Setting *setting, Kind kind) {
  switch (kind) {
  case COUNT:
  case AMOUNT:
  case RATIO: check_number(c, setting, kind); break;
  case DEVICE: machine_check_device(c, setting); break;
  case KIND:
    machine_check_word(c, setting, "a kind of link", kinds,
                       ARRAY_LENGTH(kinds));
    break;
  case TEXT:
    if (setting->value->kind != EXPR_string)
      machine_wrong(c, setting, "a string");
    break;
  case ANY:
  case BLOCK: break;
  }
}

static void check_settings(Check *c, const char *block, const Setting *settings,
                           int n);

static void check_setting(Check *c, const char *block, const Setting *setting) {
  Name name = setting->path.names[0];
  const char *names[ARRAY_LENGTH(rows)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    if (strcmp(rows[i].block, block) != 0) continue;
    names[n++] = rows[i].name;
    if ((*rows[i].name && strcmp(rows[i].name, name) != 0) || setting->type ||
        (rows[i].kind == BLOCK) != setting->is_block)
      continue;
    if (setting->is_block)
      check_settings(c, name, setting->settings, setting->n_settings);
    else
      machine_check_value(c, setting, rows[i].kind);
    return;
  }
  Diag *d =
      diag(c->diags, DIAG_unknown_setting, setting->path.spans[0], block, name);
  diag_choices(c->arena, d, name, names, n);
}

static void check_settings(Check *c, const char *block, const Setting *settings,
                           int n) {
  for (int i = 0; i < n; i++) {
    const Setting *setting = &settings[i];
    for (int k = 0; k < i && !setting->is_block; k++) {
      if (settings[k].path.names[0] != setting->path.names[0]) continue;
      Diag *d = diag(c->diags, DIAG_given_twice, setting->path.spans[0],
                     setting->path.names[0]);
      diag_note(d, settings[k].path.spans[0], "it is given here first");
      break;
    }
    check_setting(c, block, setting);
  }
}

void machines_check(Arena *arena, Diags *diags, const Ast *ast) {
  Check c = {arena, diags, ast};
  for (int i = 0; i < ast->n_items; i++) {
    const Item *item = &ast->items[i];
    if (item->kind != ITEM_block) continue;
    for (int k = 0; k < ARRAY_LENGTH(rows); k++) {
      bool is_nested = strcmp(rows[k].block, "level") == 0 ||
                       strcmp(rows[k].block, "group") == 0 ||
                       strcmp(rows[k].block, "island") == 0;
      if (is_nested || strcmp(rows[k].block, item->block) != 0) continue;
      check_settings(&c, item->block, item->settings, item->n_settings);
      break;
    }
  }
}
