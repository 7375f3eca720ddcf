/*
 * optimizers.c -- reads the tables of optimizers and learning-rate schedules
 * (optimizers.def, schedules.def) for the front end, the pass `optimizer` and
 * the tests.
 */
#include "ir/model/model.h"

#include <string.h>

/* The number of values is 1, that of a pair 2. */
#define ONE(name, range, text, value)                                          \
  {                                                                            \
#name, RANGE_##range, text, 1, {#name }, {                                 \
      value                                                                    \
    }                                                                          \
  }
#define TWO(name, range, x, dx, y, dy)                                         \
  {                                                                            \
#name, RANGE_##range, "(" #dx ", " #dy ")", 2, {#x, #y }, {                \
      dx, dy                                                                   \
    }                                                                          \
  }

#define NUMBER(name, init)             ONE(name, number, #init, init)
#define SHARE(name, init)              ONE(name, share, #init, init)
#define FLAG(name, init)               ONE(name, flag, #init, init)
#define FIXED(name, value)             ONE(name, fixed, #value, value)
#define REQUIRED(name)                 ONE(name, number, NULL, 0)
#define POSITIVE(name)                 ONE(name, positive, NULL, 0)
#define EPOCHS(name)                   ONE(name, epochs, NULL, 0)
#define SHARES(name, x, dx, y, dy)     TWO(name, share, x, dx, y, dy)
#define FIXED_PAIR(name, x, vx, y, vy) TWO(name, fixed, x, vx, y, vy)
#define ARGUMENTS(...)                                                         \
  { __VA_ARGS__ }
#define NO_ARGUMENTS ARGUMENTS({0})

static const OptimizerInfo optimizers[] = {
#define OPTIMIZER(name, arguments, ...) {#name, arguments},
#include "ir/model/optimizers.def"
};

enum { schedule_endless = false, schedule_ends = true };

static const ScheduleInfo schedules[] = {
#define SCHEDULE(name, arguments, end, formula)                                \
  {#name, arguments, schedule_##end, formula},
#include "ir/model/schedules.def"
};

/* ---- optimizers ---- */

int optimizer_count(void) {
  return ARRAY_LENGTH(optimizers);
}

const OptimizerInfo *optimizer_info(int row) {
  ASSERT(row >= 0 && row < optimizer_count());
  return &optimizers[row];
}

int optimizer_find(const char *name) {
  for (int i = 0; i < optimizer_count(); i++)
    if (strcmp(optimizers[i].name, name) == 0) return i;
  return -1;
}

OptimizerCall optimizer_call(Name name) {
  OptimizerCall call = {.name = name, .lr_factor = 1};
  int row = optimizer_find(name);
  for (int i = 0; row >= 0 && i < MOST_ARGUMENTS; i++)
    memcpy(call.values[i], optimizers[row].arguments[i].values,
           sizeof call.values[i]);
  return call;
}

const OptimizerCall *optimizer_of(const OptimizerCall *call,
                                  const GraphInput *param) {
  ASSERT(param->group <= call->n_groups);
  return param->group ? &call->groups[param->group - 1] : call;
}

double *optimizer_value(OptimizerCall *call, const char *argument) {
  int row = optimizer_find(call->name);
  int i = row < 0 ? -1 : argument_find(optimizers[row].arguments, argument);
  return i < 0 ? NULL : call->values[i];
}

/* The value of an argument in a condition of optimizers.def. */
static double condition_value(const OptimizerCall *call, const char *argument) {
  OptimizerCall copy = *call;
  const double *value = optimizer_value(&copy, argument);
  ASSERT(value != NULL);
  return *value;
}

#define COUPLED   "g = g + d * w"
#define DECOUPLED "w = w - lr * d * w"
#define INSIDE    ""

static const OptimizerFormula formulas[] = {
#define OPTIMIZER(name, arguments, ...) {#name, __VA_ARGS__},
#define VARIANT(name, condition, ...)   {#name, __VA_ARGS__},
#include "ir/model/optimizers.def"
};

const OptimizerFormula *optimizer_formulas(int *out_n) {
  *out_n = ARRAY_LENGTH(formulas);
  return formulas;
}

const OptimizerFormula *optimizer_formula(const OptimizerCall *call,
                                          bool matrix, bool excluded) {
  int last = -1, row = 0;
#define ARG(argument) condition_value(call, #argument)
#define OPTIMIZER(name_, ...)                                                  \
  if (strcmp(call->name, #name_) == 0) last = row;                             \
  row++;
#define VARIANT(name_, condition, ...)                                         \
  if (strcmp(call->name, #name_) == 0 && (condition)) last = row;              \
  row++;
#include "ir/model/optimizers.def"
  return last < 0 ? NULL : &formulas[last];
}

bool optimizer_keeps_state(const OptimizerCall *call, const GraphInput *param) {
  call = optimizer_of(call, param);
  bool is_excluded = !param->has_decay && !call->decay_all;
  const OptimizerFormula *formula =
      optimizer_formula(call, param->contracts != 0, is_excluded);
  return !formula || *formula->states;
}

bool optimizer_is_elementwise(const OptimizerCall *call) {
  for (int i = 0; i < ARRAY_LENGTH(formulas); i++)
    if (strcmp(formulas[i].name, call->name) == 0 &&
        (strstr(formulas[i].update, "NORM(") ||
         strstr(formulas[i].update, "MEAN(") ||
         strstr(formulas[i].update, "SUM(") ||
         strstr(formulas[i].update, "ORTH(") ||
         strchr(formulas[i].states, ':')))
      return false;
  return true;
}

bool optimizer_multiplies_matrices(const OptimizerCall *call) {
  const OptimizerFormula *formula = optimizer_formula(call, true, false);
  return formula && strstr(formula->update, "ORTH(");
}

/* ---- schedules ---- */

const ScheduleInfo *schedule_info(RateKind kind) {
  ASSERT((int)kind < ARRAY_LENGTH(schedules));
  return &schedules[kind];
}

/* ---- arguments ---- */

int argument_count(const FormulaArgument *arguments) {
  int n = 0;
  while (n < MOST_ARGUMENTS && arguments[n].name) n++;
  return n;
}

int argument_find(const FormulaArgument *arguments, const char *name) {
  for (int i = 0; i < argument_count(arguments); i++)
    if (strcmp(arguments[i].name, name) == 0) return i;
  return -1;
}

/* The arguments as a call would give them: "eps = 1e-8". */
static void print_arguments(Text *out, const FormulaArgument *arguments,
                            const char *separator) {
  for (int i = 0; i < argument_count(arguments); i++) {
    if (arguments[i].range == RANGE_fixed) continue;
    text_printf(out, "%s%s", separator, arguments[i].name);
    if (arguments[i].init) text_printf(out, " = %s", arguments[i].init);
    separator = ", ";
  }
}

void optimizer_print(Text *out, const OptimizerInfo *info) {
  text_printf(out, "%s(lr", info->name);
  print_arguments(out, info->arguments, ", ");
  text_add(out, ", decay = 0)");
}

void schedule_print(Text *out, const ScheduleInfo *info) {
  text_printf(out, "%s(", info->name);
  print_arguments(out, info->arguments, "");
  text_add(out, ")");
}
