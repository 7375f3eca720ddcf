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

/* Every optimizer takes these beside the arguments of its row. */
#define FIRST_PARAMS "lr:late"
#define LAST_PARAMS  "decay = 0, decay_on:late = none"

/* Formal parameters as the table of operators has them.  The default of a pair
 * is read from the row, because a default there is one value. */
static void add_params(Names *names, const FormulaArgument *arguments,
                       Builtin *out) {
  for (int i = 0; i < argument_count(arguments); i++) {
    const FormulaArgument *argument = &arguments[i];
    if (argument->range == RANGE_fixed) continue;
    const char *init = argument->n_values > 1 ? "none" : argument->init;
    int at = out->n_params++;
    out->params[at].name = name_intern(names, argument->name);
    out->params[at].init = init;
    out->params[at].init_n = init ? strlen(init) : 0;
  }
}

static Builtin optimizer_signature(Names *names, const OptimizerInfo *info) {
  Builtin out = {.name = name_intern(names, info->name)};
  builtin_parse_params(names, FIRST_PARAMS, &out);
  add_params(names, info->arguments, &out);
  builtin_parse_params(names, LAST_PARAMS, &out);
  return out;
}

/* A model calls every schedule but the first, which stands for a number. */
enum { FIRST_SCHEDULE = RATE_constant + 1 };

static Builtin schedule_signature(Names *names, const ScheduleInfo *info) {
  Builtin out = {.name = name_intern(names, info->name)};
  add_params(names, info->arguments, &out);
  return out;
}

static bool signature_has(const Builtin *builtin, const char *name) {
  for (int i = 0; i < builtin->n_params; i++)
    if (strcmp(builtin->params[i].name, name) == 0) return true;
  return false;
}

bool train_takes_argument(Names *names, const char *name) {
  for (int i = 0; i < optimizer_count(); i++) {
    Builtin signature = optimizer_signature(names, optimizer_info(i));
    if (signature_has(&signature, name)) return true;
  }
  for (int i = FIRST_SCHEDULE; i < N_RATES; i++) {
    Builtin signature = schedule_signature(names, schedule_info((RateKind)i));
    if (signature_has(&signature, name)) return true;
  }
  return false;
}

void frontend_list_optimizers(Text *out) {
  for (int i = 0; i < optimizer_count(); i++) {
    optimizer_print(out, optimizer_info(i));
    text_add(out, "\n");
  }
  text_add(out, "\nlr: a number");
  for (int i = FIRST_SCHEDULE; i < N_RATES; i++) {
    text_add(out, i + 1 < N_RATES ? ", " : " or ");
    schedule_print(out, schedule_info((RateKind)i));
  }
  text_add(out, "\ndecay: of what a dot, conv or gather reads; of every "
                "parameter with decay_on = all\n");
}

/* ---- arguments ---- */

static bool in_range(double value, ArgumentRange range) {
  if (!isfinite(value) || value < 0) return false;
  if (range == RANGE_share) return value < 1;
  return value > 0 || (range != RANGE_positive && range != RANGE_epochs);
}

static const char *range_text(ArgumentRange range) {
  switch (range) {
  case RANGE_share: return "a number of at least 0 and below 1";
  case RANGE_positive:
  case RANGE_epochs: return "a number above 0";
  default: return "a number of at least 0";
  }
}

static bool take_pair(BuiltinCall *call, int i, const FormulaArgument *argument,
                      double *out) {
  ExprValue val = call->args[i];
  if (val.kind == EXPR_VALUE_none) return true; /* the default */
  bool is_pair = val.kind == EXPR_VALUE_list && val.list->n == 2;
  for (int j = 0; is_pair && j < 2; j++) {
    ExprValue item = val.list->items[j];
    is_pair = expr_value_is_number(item) &&
              in_range(expr_value_to_double(item), argument->range);
    if (is_pair) out[j] = expr_value_to_double(item);
  }
  if (!is_pair) arg_wrong(call, i, "two numbers of at least 0 and below 1");
  return is_pair;
}

/* Reads argument `i` of the call by its row into `out`, which has the default;
 * false after a message. */
static bool take_argument(BuiltinCall *call, int i,
                          const FormulaArgument *argument, double *out) {
  if (argument->n_values > 1) return take_pair(call, i, argument, out);
  if (argument->range == RANGE_flag) {
    bool flag;
    if (!arg_bool(call, i, &flag)) return false;
    *out = flag;
    return true;
  }
  if (!arg_float(call, i, out)) return false;
  if (in_range(*out, argument->range)) return true;
  arg_wrong(call, i, range_text(argument->range));
  return false;
}

/* ---- the learning rate ---- */

static bool read_schedule(Elab *e, const Expr *x, RateKind kind, Rate *out) {
  const ScheduleInfo *info = schedule_info(kind);
  Builtin signature = schedule_signature(e->names, info);
  BuiltinCall call;
  *out = (Rate){.kind = kind};
  if (!builtin_match(e, x, &signature, &call)) return false;
  for (int i = 0; i < signature.n_params; i++)
    if (!take_argument(&call, i, &info->arguments[i], &out->values[i]))
      return false;
  return true;
}

/* N_RATES: none has this name. */
static RateKind find_schedule(const char *name) {
  for (int i = FIRST_SCHEDULE; i < N_RATES; i++)
    if (strcmp(name, schedule_info((RateKind)i)->name) == 0) return (RateKind)i;
  return N_RATES;
}

static bool is_schedule(const Expr *x) {
  return x->kind == EXPR_call && x->a->kind == EXPR_name &&
         find_schedule(x->a->name) != N_RATES;
}

static bool is_product(const Expr *x) {
  return x->kind == EXPR_binary && x->op == OPERATOR_mul;
}

/* Returns how many factors a product has if one is a schedule, else 0. */
static int count_factors(const Expr *x) {
  bool has_schedule = false;
  int n = 1;
  for (; is_product(x); x = x->a, n++) has_schedule |= is_schedule(x->b);
  return has_schedule || is_schedule(x) ? n : 0;
}

static bool read_factor(Elab *e, const Expr *x, Rate *out);

static bool read_rate(Elab *e, const Expr *x, Rate *out) {
  int n = is_product(x) ? count_factors(x) : 0;
  if (n == 0) return read_factor(e, x, out);
  Rate times;
  if (n > 2) {
    diag(e->diags, DIAG_wrong_setting, x->span, "lr",
         "a number, a schedule or a product of two",
         arena_printf(e->arena, "one of %d", n));
    return false;
  }
  if (!read_factor(e, x->a, out) || !read_factor(e, x->b, &times)) return false;
  out->times = arena_copy(e->arena, &times, sizeof times);
  return true;
}

/* A number or a schedule. */
static bool read_factor(Elab *e, const Expr *x, Rate *out) {
  RateKind kind = x->kind == EXPR_name ? find_schedule(x->name) : N_RATES;
  if (kind != N_RATES && !scope_has_value(e, x->name))
    return read_schedule(e, x, kind, out); /* its arguments are missing */
  if (x->kind == EXPR_call && x->a->kind == EXPR_name) {
    kind = find_schedule(x->a->name);
    if (kind != N_RATES) return read_schedule(e, x, kind, out);
    if (!map_has(e->tree->builtins, x->a->name)) {
      Diag *d = diag(e->diags, DIAG_unknown_schedule, x->a->span, x->a->name);
      const char *names[N_RATES];
      int n = 0;
      for (int i = FIRST_SCHEDULE; i < N_RATES; i++)
        names[n++] = schedule_info((RateKind)i)->name;
      diag_choices(e->arena, d, x->a->name, names, n);
      return false;
    }
  }
  ExprValue val = eval(e, x);
  if (expr_value_is_number(val) && expr_value_to_double(val) >= 0 &&
      isfinite(expr_value_to_double(val))) {
    *out = (Rate){.kind = RATE_constant, .values = {expr_value_to_double(val)}};
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(e->diags, DIAG_wrong_setting, x->span, "lr",
         "a number of at least 0 or a schedule", expr_value_describe(e, val));
  return false;
}

/* ---- the optimizer ---- */

static void take_decay_on(BuiltinCall *call, int i, OptimizerCall *out) {
  const Expr *x = call->exprs[i];
  if (!x) return;
  out->decay_all = x->kind == EXPR_name && strcmp(x->name, "all") == 0;
  if (!out->decay_all) diag(call->e->diags, DIAG_decay_on, x->span);
}

/* In a group a factor is of the rate of the others. */
static void take_rate(Elab *e, const Expr *x, OptimizerCall *out) {
  if (x->kind == EXPR_factor && out->is_of_group) {
    out->lr_factor = x->real;
    return;
  }
  read_rate(e, x, &out->lr);
}

static void take_option(BuiltinCall *call, int i, OptimizerCall *out) {
  static const FormulaArgument decay = {.range = RANGE_number, .n_values = 1};
  const FormulaArgument *arguments =
      optimizer_info(optimizer_find(out->name))->arguments;
  Name name = call->builtin->params[i].name;
  int at = argument_find(arguments, name);
  if (strcmp(name, "lr") == 0)
    take_rate(call->e, call->exprs[i], out);
  else if (strcmp(name, "decay") == 0)
    take_argument(call, i, &decay, &out->decay);
  else if (strcmp(name, "decay_on") == 0)
    take_decay_on(call, i, out);
  else
    take_argument(call, i, &arguments[at], out->values[at]);
}

static void check_nesterov(Elab *e, OptimizerCall *call) {
  const double *nesterov = optimizer_value(call, "nesterov");
  if (nesterov && *nesterov && *optimizer_value(call, "momentum") == 0)
    diag(e->diags, DIAG_nesterov, call->span);
}

static int find_optimizer(Elab *e, const Expr *callee) {
  Name name = callee->kind == EXPR_name ? callee->name : NULL;
  int row = name ? optimizer_find(name) : -1;
  if (row >= 0) return row;
  const char **names = ARENA_ARRAY(e->arena, const char *, optimizer_count());
  for (int i = 0; i < optimizer_count(); i++)
    names[i] = optimizer_info(i)->name;
  Diag *d = diag(e->diags, DIAG_unknown_optimizer, callee->span,
                 expr_describe(e, callee));
  diag_choices(e->arena, d, name, names, optimizer_count());
  return -1;
}

static void read_optimizer(Elab *e, const Expr *x, OptimizerCall *out) {
  int row = find_optimizer(e, x->kind == EXPR_call ? x->a : x);
  if (row < 0) return;
  Builtin signature = optimizer_signature(e->names, optimizer_info(row));
  *out = optimizer_call(signature.name);
  out->span = x->span;
  BuiltinCall call;
  Expr empty = *x;
  if (x->kind != EXPR_call) empty.args.n = 0;
  if (!builtin_match(e, &empty, &signature, &call)) return;
  for (int i = 0; i < signature.n_params; i++) take_option(&call, i, out);
  check_nesterov(e, out);
}

/* ---- groups of parameters ---- */

/* A group has the arguments of the optimizer, and all have a default. */
static Builtin group_signature(Names *names, const char *optimizer) {
  Builtin out =
      optimizer_signature(names, optimizer_info(optimizer_find(optimizer)));
  for (int i = 0; i < out.n_params; i++) {
    out.params[i].init = "none";
    out.params[i].init_n = strlen(out.params[i].init);
  }
  return out;
}

/* The settings of a group as the arguments of a call. */
static bool group_arguments(Elab *e, const Setting *group, Expr *out) {
  *out = (Expr){.kind = EXPR_call, .span = group->span};
  out->args.items = ARENA_ARRAY(e->arena, Arg, group->n_settings);
  for (int i = 0; i < group->n_settings; i++) {
    const Setting *setting = &group->settings[i];
    Span span = setting->path.spans[0];
    if (setting->is_block || setting->type) {
      diag(e->diags, DIAG_group_setting, span, setting->path.names[0]);
      return false;
    }
    out->args.items[out->args.n++] =
        (Arg){setting->path.names[0], setting->value, setting->span, span};
  }
  return true;
}

static void read_group(Elab *e, const Setting *group, OptimizerCall *out) {
  BuiltinCall call;
  Expr x;
  Builtin signature = group_signature(e->names, out->name);
  out->span = group->span;
  out->is_of_group = true;
  if (!group_arguments(e, group, &x) ||
      !builtin_match(e, &x, &signature, &call))
    return;
  for (int i = 0; i < signature.n_params; i++)
    if (call.exprs[i]) take_option(&call, i, out);
  check_nesterov(e, out);
}

static void suggest_parameters(Elab *e, Diag *d, const Graph *graph,
                               const char *wanted) {
  VEC(const char *) names = {0};
  for (int i = 0; i < graph->inputs.n; i++)
    if (graph->inputs.data[i].role == ROLE_param &&
        !graph->inputs.data[i].is_frozen)
      vec_push(e->arena, &names, graph->inputs.data[i].path);
  diag_suggest(d, wanted, names.data, names.n);
}

/* Puts the parameters of a path into group `number`; `of` has the place of the
 * path that each parameter is in a group by. */
static void take_members(Elab *e, Graph *graph, const Expr *path, int number,
                         Span *of) {
  const char *text = setting_path_text(e, path);
  bool is_found = false;
  for (int i = 0; i < graph->inputs.n; i++) {
    GraphInput *input = &graph->inputs.data[i];
    if (input->role != ROLE_param || input->is_frozen ||
        !path_has(input->path, text))
      continue;
    is_found = true;
    if (input->group && input->group != number) {
      Diag *d = diag(e->diags, DIAG_group_overlap, path->span, input->path);
      diag_note(d, of[i], "it is in a group by this path");
      return;
    }
    input->group = (uint8_t)number;
    of[i] = path->span;
  }
  if (is_found) return;
  Diag *d = diag(e->diags, DIAG_group_no_match, path->span, text);
  suggest_parameters(e, d, graph, text);
}

static void read_groups(Elab *e, Model *model, const Item *block) {
  OptimizerCall *call = &model->settings.optimizer;
  Graph *graph = model->train;
  int n = 0;
  for (int i = 0; i < block->n_settings; i++)
    n += setting_is_group(&block->settings[i], "train");
  if (n > MOST_GROUPS)
    diag(e->diags, DIAG_most_groups, block->name_span, MOST_GROUPS, n);
  if (n == 0 || n > MOST_GROUPS || !graph || !call->name) return;
  OptimizerCall *groups = ARENA_ARRAY(e->arena, OptimizerCall, n);
  Span *of = ARENA_ARRAY(e->arena, Span, graph->inputs.n);
  for (int i = 0; i < block->n_settings; i++) {
    const Setting *group = &block->settings[i];
    if (!setting_is_group(group, "train")) continue;
    int number = ++call->n_groups;
    groups[number - 1] = *call;
    groups[number - 1].n_groups = 0;
    read_group(e, group, &groups[number - 1]);
    if (group->paths.n == 0)
      diag_help(
          diag(e->diags, DIAG_group_paths, group->span),
          "write 'group PATHS { ... }', as in 'group head, b { lr = 2x }'");
    for (int p = 0; p < group->paths.n; p++)
      take_members(e, graph, group->paths.data[p], number, of);
  }
  call->groups = groups;
}

/* ---- the block ---- */

static void read_length(Elab *e, TrainSettings *s, const Item *block) {
  /* On the command line one replaces the other of the file. */
  bool steps_given = override_find(e->tree, "train", "steps");
  bool epochs_given = override_find(e->tree, "train", "epochs");
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

static bool has_evaluation(const Model *model) {
  for (int i = 0; i < model->n_data; i++) {
    if (model->data[i].eval > 0) return true;
    for (int j = 0; j < model->data[i].n_fields; j++)
      if (model->data[i].fields[j].n_eval_files) return true;
  }
  return false;
}

static void check_evaluation(Elab *e, const Model *model, const Item *block) {
  const TrainSettings *s = &model->settings;
  if (diags_errors(e->diags) > 0) return;
  if (s->patience > 0 && s->eval_every == 0)
    diag(e->diags, DIAG_missing_setting,
         setting_find(e, block, "train", "patience").span, "patience",
         "eval_every");
  if (has_evaluation(model)) return;
  const char *needs = s->save_best ? "save_best" : s->patience ? "patience" : 0;
  const char *name = needs ? needs : "eval_every";
  SettingRef ref = setting_find(e, block, "train", name);
  if (!needs && s->eval_every == 0) return;
  Diag *d = needs ? diag(e->diags, DIAG_not_validated, ref.span, name)
                  : diag(e->diags, DIAG_no_evaluation, ref.span);
  diag_help(d, "'eval = 0.1' in a data block reserves its last tenth for it");
}

void train_read(Elab *e, Model *model, const Item *block) {
  TrainSettings *s = &model->settings;
  int64_t seed = 1;
  *s = (TrainSettings){.keep = 2, .is_checked = e->tree->options->checked};
  s->save = name_format(e->names, "%s.ckpt", model->name ? model->name : "");
  setting_check_names(e->tree, block, "train");
  SettingRef optimizer = setting_find(e, block, "train", "optimizer");
  const Expr *x = setting_expr(e, &optimizer);
  if (x)
    read_optimizer(e, x, &s->optimizer);
  else if (setting_is_missing(&optimizer, block, "train"))
    diag(e->diags, DIAG_missing_setting, block->name_span, "train",
         "optimizer");
  read_groups(e, model, block);
  read_length(e, s, block);
  setting_int(e, block, "train", "seed", 0, &seed);
  s->seed = (uint64_t)seed;
  setting_float(e, block, "train", "clip", 0, &s->clip);
  setting_float(e, block, "train", "ema", 0, &s->ema);
  check_ratio(e, block, "ema", s->ema);
  setting_int(e, block, "train", "eval_every", 0, &s->eval_every);
  setting_bool(e, block, "train", "save_best", &s->save_best);
  setting_int(e, block, "train", "patience", 0, &s->patience);
  check_evaluation(e, model, block);
  setting_int(e, block, "train", "eval_batches", 0, &s->eval_batches);
  setting_int(e, block, "train", "save_every", 0, &s->save_every);
  setting_int(e, block, "train", "keep", 1, &s->keep);
  SettingRef save = setting_find(e, block, "train", "save");
  if (setting_string(e, block, "train", "save", &s->save) && save.value)
    source_tree_check_path(e->tree, s->save, save.span);
  s->is_save_given = save.is_given && !save.value;
}
