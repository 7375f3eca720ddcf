/*
 * train.c -- reads the settings of training: optimizer, learning rate, lengths
 * and intervals. metrics.c elaborates the loss.
 */
#include "frontend/syntax/help.h"
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"
#include "frontend/blocks/blocks.h"
#include "frontend/blocks/settings.h"

#include <math.h>
#include <string.h>

#define COMMON "decay = 0, decay_on:late = none"
#define BETAS  "lr:late, betas = none, eps = 1e-8, " COMMON

/* clang-format off */
static const struct {
  const char *name, *params;
  double momentum, beta1, beta2;
} optimizers[] = {
    {"sgd",       "lr:late, momentum = 0, nesterov = false, " COMMON,   0, 0, 0},
    {"adam",      BETAS,                                                0, 0.9, 0.999},
    {"adamw",     BETAS,                                                0, 0.9, 0.999},
    {"lamb",      BETAS,                                                0, 0.9, 0.999},
    {"lars",      "lr:late, momentum = 0.9, trust = 1e-3, " COMMON,     0, 0, 0},
    {"rmsprop",   "lr:late, alpha = 0.99, " COMMON,                     0, 0, 0},
    {"lion",      "lr:late, betas = none, " COMMON,                     0, 0.9, 0.99},
    {"muon",      "lr:late, momentum = 0.95, " COMMON,                  0, 0.9, 0.999}, /* of its adamw */
    {"adafactor", "lr:late, " COMMON,                                   0, 0, 0},
};

static const struct {
  const char *name, *params;
  RateKind kind;
} schedules[] = {
    {"cosine",       "peak, warmup = 0, floor = 0", RATE_cosine},
    {"linear_decay", "peak, warmup = 0, floor = 0", RATE_linear_decay},
    {"inverse_sqrt", "peak, warmup",                RATE_inverse_sqrt},
    {"steps",        "start, every, factor",        RATE_steps},
};
/* clang-format on */

static bool params_have(Names *names, const char *params, const char *name) {
  Builtin builtin = {0};
  builtin_parse_params(names, params, &builtin);
  for (int i = 0; i < builtin.n_params; i++)
    if (strcmp(builtin.params[i].name, name) == 0) return true;
  return false;
}

bool train_takes_argument(Names *names, const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(optimizers); i++)
    if (params_have(names, optimizers[i].params, name)) return true;
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    if (params_have(names, schedules[i].params, name)) return true;
  return false;
}

/* Prints a signature as a call is written; `betas` of the row. */
static void list_params(Text *out, const char *name, const char *text,
                        const double *betas) {
  Arena *arena = out->arena;
  Names *names = names_create(arena);
  Builtin signature = {0};
  builtin_parse_params(names, text, &signature);
  text_printf(out, "%s(", name);
  for (int i = 0; i < signature.n_params; i++) {
    if (strcmp(signature.params[i].name, "decay_on") == 0) continue;
    text_printf(out, "%s%s", i > 0 ? ", " : "", signature.params[i].name);
    if (betas && strcmp(signature.params[i].name, "betas") == 0)
      text_printf(out, " = (%g, %g)", betas[0], betas[1]);
    else if (signature.params[i].init)
      text_printf(out, " = %.*s", (int)signature.params[i].init_n,
                  signature.params[i].init);
  }
  text_add(out, ")");
}

void frontend_list_optimizers(Text *out) {
  for (int i = 0; i < ARRAY_LENGTH(optimizers); i++) {
    const double betas[] = {optimizers[i].beta1, optimizers[i].beta2};
    list_params(out, optimizers[i].name, optimizers[i].params, betas);
    text_add(out, "\n");
  }
  text_add(out, "\nlr: a number");
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++) {
    text_add(out, i + 1 < ARRAY_LENGTH(schedules) ? ", " : " or ");
    list_params(out, schedules[i].name, schedules[i].params, NULL);
  }
  text_add(out, "\ndecay: of what a dot, conv or gather reads; of every "
                "parameter with decay_on = all\n");
}

/* ---- the learning rate ---- */

static bool call_numbers(BuiltinCall *call, double *out) {
  for (int i = 0; i < call->builtin->n_params; i++) {
    if (!arg_float(call, i, &out[i])) return false;
    if (out[i] >= 0 && isfinite(out[i])) continue;
    arg_wrong(call, i, "a number of at least 0");
    return false;
  }
  return true;
}

static bool train_read_schedule(Elab *e, const Expr *x, int row, Rate *out) {
  Builtin signature = {.name = name_intern(e->names, schedules[row].name)};
  builtin_parse_params(e->names, schedules[row].params, &signature);
  BuiltinCall call;
  double numbers[MOST_FORMAL_PARAMS];
  if (!builtin_match(e, x, &signature, &call) || !call_numbers(&call, numbers))
    return false;
  *out = (Rate){.kind = schedules[row].kind, .peak = numbers[0]};
  if (out->kind == RATE_steps) {
    out->every = numbers[1];
    out->factor = numbers[2];
    if (out->every > 0) return true;
    arg_wrong(&call, 1, "a number above 0");
    return false;
  }
  out->warmup = numbers[1];
  if (out->kind == RATE_inverse_sqrt && out->warmup == 0) {
    arg_wrong(&call, 1, "a number above 0");
    return false;
  }
  if (signature.n_params > 2) out->floor = numbers[2];
  return true;
}

static bool read_rate(Elab *e, const Expr *x, Rate *out) {
  for (int i = 0; i < ARRAY_LENGTH(schedules); i++)
    if (x->kind == EXPR_name && strcmp(x->name, schedules[i].name) == 0 &&
        !scope_has_value(e, x->name))
      return train_read_schedule(e, x, i, out); /* its arguments are missing */
  if (x->kind == EXPR_call && x->a->kind == EXPR_name) {
    const char *names[ARRAY_LENGTH(schedules)];
    for (int i = 0; i < ARRAY_LENGTH(schedules); i++) {
      names[i] = schedules[i].name;
      if (strcmp(x->a->name, names[i]) == 0)
        return train_read_schedule(e, x, i, out);
    }
    if (!map_has(e->program->builtins, x->a->name)) {
      Diag *d = diag(e->diags, DIAG_unknown_schedule, x->a->span, x->a->name);
      diag_choices(e->arena, d, x->a->name, names, ARRAY_LENGTH(schedules));
      return false;
    }
  }
  ExprValue val = eval(e, x);
  if (expr_value_is_number(val) && expr_value_to_double(val) >= 0 &&
      isfinite(expr_value_to_double(val))) {
    *out = (Rate){.kind = RATE_constant, .peak = expr_value_to_double(val)};
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_wrong_setting, x->span, "lr",
         "a number of at least 0 or a schedule", expr_value_describe(e, val));
  return false;
}

/* ---- the optimizer ---- */

static bool take_betas(BuiltinCall *call, int i, OptimizerCall *out) {
  ExprValue val = call->args[i];
  if (val.kind == EXPR_VALUE_none) return true;
  bool is_pair = val.kind == EXPR_VALUE_list && val.list->n == 2;
  for (int j = 0; is_pair && j < 2; j++) {
    ExprValue item = val.list->items[j];
    is_pair = expr_value_is_number(item) && expr_value_to_double(item) >= 0 &&
              expr_value_to_double(item) < 1;
  }
  if (!is_pair) {
    arg_wrong(call, i, "two numbers of at least 0 and below 1");
    return false;
  }
  out->beta1 = expr_value_to_double(val.list->items[0]);
  out->beta2 = expr_value_to_double(val.list->items[1]);
  return true;
}

static bool take_decay_on(BuiltinCall *call, int i, OptimizerCall *out) {
  const Expr *x = call->exprs[i];
  if (!x) return true;
  out->decay_all = x->kind == EXPR_name && strcmp(x->name, "all") == 0;
  if (out->decay_all) return true;
  diag(call->e->diags, DIAG_decay_on, x->span);
  return false;
}

static bool take_option(BuiltinCall *call, int i, OptimizerCall *out) {
  const struct {
    const char *name;
    double *field;
  } numbers[] = {{"momentum", &out->momentum},
                 {"eps", &out->eps},
                 {"decay", &out->decay},
                 {"trust", &out->trust},
                 {"alpha", &out->alpha}};
  Name name = call->builtin->params[i].name;
  if (strcmp(name, "lr") == 0)
    return read_rate(call->e, call->exprs[i], &out->lr);
  if (strcmp(name, "betas") == 0) return take_betas(call, i, out);
  if (strcmp(name, "decay_on") == 0) return take_decay_on(call, i, out);
  if (strcmp(name, "nesterov") == 0) return arg_bool(call, i, &out->nesterov);
  for (int j = 0; j < ARRAY_LENGTH(numbers); j++) {
    if (strcmp(name, numbers[j].name) != 0) continue;
    if (!arg_float(call, i, numbers[j].field)) return false;
    bool is_share = !strcmp(name, "momentum") || !strcmp(name, "alpha");
    if (*numbers[j].field >= 0 && *numbers[j].field < (is_share ? 1 : INFINITY))
      return true;
    arg_wrong(call, i,
              is_share ? "a number of at least 0 and below 1"
                       : "a number of at least 0");
    return false;
  }
  UNREACHABLE();
}

static void read_optimizer(Elab *e, const Expr *x, OptimizerCall *out) {
  const Expr *callee = x->kind == EXPR_call ? x->a : x;
  const char *names[ARRAY_LENGTH(optimizers)];
  int row = -1;
  for (int i = 0; i < ARRAY_LENGTH(optimizers); i++) {
    names[i] = optimizers[i].name;
    if (callee->kind == EXPR_name && strcmp(callee->name, names[i]) == 0)
      row = i;
  }
  if (row < 0) {
    Diag *d = diag(e->diags, DIAG_unknown_optimizer, callee->span,
                   expr_describe(e, callee));
    diag_choices(e->arena, d, callee->kind == EXPR_name ? callee->name : NULL,
                 names, ARRAY_LENGTH(optimizers));
    return;
  }
  Builtin signature = {.name = name_intern(e->names, names[row])};
  builtin_parse_params(e->names, optimizers[row].params, &signature);
  *out = (OptimizerCall){.name = signature.name,
                         .momentum = optimizers[row].momentum,
                         .beta1 = optimizers[row].beta1,
                         .beta2 = optimizers[row].beta2,
                         .eps = 1e-8,
                         .span = x->span};
  BuiltinCall call;
  Expr empty = *x;
  if (x->kind != EXPR_call) empty.args.n = 0;
  if (!builtin_match(e, &empty, &signature, &call)) return;
  for (int i = 0; i < signature.n_params; i++) take_option(&call, i, out);
  if (out->nesterov && out->momentum == 0)
    diag(e->diags, DIAG_nesterov, x->span);
}

/* ---- the block ---- */

static void read_length(Elab *e, TrainSettings *s, const Item *block) {
  /* On the command line one replaces the other of the file. */
  bool steps_given = override_find(e->program, "train", "steps");
  bool epochs_given = override_find(e->program, "train", "epochs");
  SettingRef ref = setting_find(e, block, "train", "steps");
  bool steps = (steps_given || !epochs_given) && ref.is_given;
  bool epochs = (epochs_given || !steps_given) &&
                setting_find(e, block, "train", "epochs").is_given;
  if (steps) setting_int(e, block, "train", "steps", 1, &s->steps);
  if (epochs) setting_int(e, block, "train", "epochs", 1, &s->epochs);
  if (steps == epochs && (steps || setting_is_missing(&ref, block, "train")))
    diag(e->diags, DIAG_one_length, block->name_span,
         steps ? "both are given" : "none is given");
}

static void check_ratio(Elab *e, const Item *block, const char *name,
                        double value) {
  if (value < 1) return;
  SettingRef ref = setting_find(e, block, "train", name);
  diag(e->diags, DIAG_wrong_setting, ref.span, name, "below 1",
       expr_value_describe(e, expr_value_float(value)));
}

static void check_eval_every(Elab *e, const Model *model, const Item *block) {
  for (int i = 0; i < model->n_data; i++) {
    if (model->data[i].eval > 0) return;
    for (int j = 0; j < model->data[i].n_fields; j++)
      if (model->data[i].fields[j].eval_file) return;
  }
  SettingRef ref = setting_find(e, block, "train", "eval_every");
  Diag *d = diag(e->diags, DIAG_no_evaluation, ref.span);
  diag_help(d, "'eval = 0.1' in a data block keeps its last tenth for it");
}

void train_read(Elab *e, Model *model, const Item *block) {
  TrainSettings *s = &model->settings;
  int64_t seed = 1;
  *s = (TrainSettings){.keep = 2, .is_checked = e->program->options->checked};
  s->save = name_format(e->names, "%s.ckpt", model->name ? model->name : "");
  setting_check_names(e->program, block, "train");
  SettingRef optimizer = setting_find(e, block, "train", "optimizer");
  const Expr *x = setting_expr(e, &optimizer);
  if (x)
    read_optimizer(e, x, &s->optimizer);
  else if (setting_is_missing(&optimizer, block, "train"))
    diag(e->diags, DIAG_missing_setting, block->name_span, "train",
         "optimizer");
  read_length(e, s, block);
  setting_int(e, block, "train", "seed", 0, &seed);
  s->seed = (uint64_t)seed;
  setting_float(e, block, "train", "clip", 0, &s->clip);
  setting_float(e, block, "train", "ema", 0, &s->ema);
  check_ratio(e, block, "ema", s->ema);
  setting_int(e, block, "train", "eval_every", 0, &s->eval_every);
  if (s->eval_every > 0 && diags_errors(e->diags) == 0)
    check_eval_every(e, model, block);
  setting_int(e, block, "train", "eval_batches", 0, &s->eval_batches);
  setting_int(e, block, "train", "save_every", 0, &s->save_every);
  setting_int(e, block, "train", "keep", 1, &s->keep);
  SettingRef save = setting_find(e, block, "train", "save");
  if (setting_string(e, block, "train", "save", &s->save) && save.value)
    program_check_path(e->program, s->save, save.span);
  s->is_save_given = save.is_given && !save.value;
}
