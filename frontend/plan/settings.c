/*
 * settings.c -- reads the lines NAME = VALUE of a plan.
 *
 *     zero      = 3 over data      Pins.zero 3, zero_over data
 *     attention = ring             Pins.attention
 *     schedule  = zb1p             "not supported yet: schedule = zb1p"
 *
 * The words that a setting accepts are rows of values.def, schedules those of
 * pipeline_schedules.def.
 */
#include "frontend/elaborate/eval.h"
#include "frontend/elaborate/match.h"
#include "frontend/plan/read.h"
#include "frontend/syntax/help.h"

#include <string.h>

static bool read_bytes(PinReader *r, const Expr *x, const char *name,
                       int64_t *out) {
  ExprValue val = eval(r->e, x);
  double bytes = expr_value_is_number(val) ? expr_value_to_double(val) : 0;
  if (bytes >= 1 && bytes < 9e18) {
    *out = (int64_t)bytes;
    return true;
  }
  if (!expr_value_is_poison(val))
    diag(r->e->diags, DIAG_wrong_setting, x->span, name, "a size as in 25MB",
         expr_value_describe(r->e, val));
  return false;
}

/* ---- name = value ---- */

enum { compiled, pinned, later };

static const struct {
  const char *setting, *name, *params;
  int status;
} values[] = {
#define PARAMS_none     ""
#define PARAMS_chunks   "v = 2"
#define PARAMS_times    "times = none"
#define PARAMS_vertical "vertical = false"
#define PIPELINE_SCHEDULE(name, function, placement, args, needs, saving,      \
                          update, status, meaning)                             \
  {"schedule", name, PARAMS_##args, status},
#include "ir/pipeline/pipeline_schedules.def"
#undef PARAMS_none
#undef PARAMS_chunks
#undef PARAMS_times
#undef PARAMS_vertical
#define PLAN_VALUE(setting, name, params, status)                              \
  {#setting, name, params, status},
#include "frontend/plan/values.def"
};

static bool good_argument(BuiltinCall *call, int i) {
  const char *name = call->builtin->params[i].name;
  bool is_staleness = strcmp(name, "staleness") == 0, truth;
  int64_t n, times[3];
  if (call->builtin->params[i].kind == FORMAL_PARAM_late) return true;
  if (strcmp(name, "times") == 0)
    return call->args[i].kind == EXPR_VALUE_none ||
           arg_ints(call, i, ARRAY_LENGTH(times), 1, times);
  if (strcmp(name, "vertical") == 0) return arg_bool(call, i, &truth);
  if (is_staleness && call->args[i].kind == EXPR_VALUE_none) return true;
  return arg_int(call, i, !is_staleness, &n);
}

/* Reports a `v` of a schedule whose stages on a rank are no choice. */
static bool takes_chunks(Elab *e, const Expr *x, const Expr *callee) {
  const PipelineSchedule *schedule = pipeline_schedule_find(callee->name);
  if (!schedule || schedule->args == PIPELINE_ARGS_chunks) return true;
  for (int i = 0; i < x->args.n; i++) {
    const Arg *arg = &x->args.items[i];
    if (!arg->name || strcmp(arg->name, "v") != 0) continue;
    Diag *d = diag(e->diags, DIAG_schedule_argument, arg->name_span,
                   pipeline_schedule_takes_no_chunks(e->arena, schedule));
    if (schedule->placement == PLACEMENT_single)
      diag_help(d, "interleaved(v = 2) has two stages on each rank");
    else
      diag_help(d, "it is written %s",
                pipeline_schedule_call(e->arena, schedule));
    return false;
  }
  return true;
}

/* The row that `x` names, its arguments checked, or -1; reports.  `call` gets
 * the arguments, if `x` has any. */
static int plan_find_value(PinReader *r, const char *setting, const Expr *x,
                           BuiltinCall *call, Builtin *signature) {
  Elab *e = r->e;
  const Expr *callee = x->kind == EXPR_call ? x->a : x;
  const char *names[ARRAY_LENGTH(values)];
  int n = 0;
  for (int i = 0; i < ARRAY_LENGTH(values); i++) {
    if (strcmp(values[i].setting, setting) != 0) continue;
    names[n++] = values[i].name;
    if (!reader_is_word(callee, values[i].name)) continue;
    if (x->kind != EXPR_call) return i;
    *signature = (Builtin){.name = callee->name};
    builtin_parse_params(e->names, values[i].params, signature);
    if (!takes_chunks(e, x, callee) || !builtin_match(e, x, signature, call))
      return -1;
    for (int k = 0; k < signature->n_params; k++)
      if (!good_argument(call, k)) return -1;
    return i;
  }
  Diag *d = diag(e->diags, DIAG_plan_value, callee->span, setting,
                 expr_describe(e, callee));
  diag_choices(e->arena, d, callee->kind == EXPR_name ? callee->name : NULL,
               names, n);
  return -1;
}

/* A word of the table above, of which `later` ones are not done yet. */
static const char *read_value_call(PinReader *r, const Pin *pin,
                                   BuiltinCall *call, Builtin *signature) {
  int row = plan_find_value(r, pin->name, pin->value, call, signature);
  if (row < 0) return NULL;
  if (values[row].status != later) return values[row].name;
  elab_not_supported(
      r->e, pin->value->span,
      arena_printf(r->e->arena, "%s = %s", pin->name, values[row].name));
  return NULL;
}

static const char *plan_read_value(PinReader *r, const Pin *pin) {
  BuiltinCall call = {0};
  Builtin signature;
  return read_value_call(r, pin, &call, &signature);
}

/* A schedule with the arguments that the line has, as plans print it. */
static const char *spell_schedule(PinReader *r, const char *name,
                                  BuiltinCall *call) {
  Arena *arena = r->e->arena;
  int64_t n, times[3];
  bool is_vertical = false;
  if (!call->builtin || call->builtin->n_params == 0 || !call->exprs[0])
    return name;
  if (strcmp(call->builtin->params[0].name, "vertical") == 0) {
    arg_bool(call, 0, &is_vertical);
    return is_vertical ? arena_printf(arena, "%s(vertical = true)", name)
                       : name;
  }
  if (strcmp(call->builtin->params[0].name, "times") != 0) {
    arg_int(call, 0, 1, &n);
    return arena_printf(arena, "%s(v = %lld)", name, (long long)n);
  }
  if (call->args[0].kind == EXPR_VALUE_none) return name;
  arg_ints(call, 0, ARRAY_LENGTH(times), 1, times);
  return arena_printf(arena, "%s(times = (%lld, %lld, %lld))", name,
                      (long long)times[0], (long long)times[1],
                      (long long)times[2]);
}

/* Axes of links between islands: only sums in turns have some, and need them.
 */
static void read_border(PinReader *r, const Pin *pin) {
  PlanShard over = {.span = pin->span};
  if (pin->axes.n == 0)
    diag_help(diag(r->e->diags, DIAG_plan_no_border, pin->value->span),
              "name the axes whose neighbours are on both sides of the slow "
              "links, as in 'sync = hierarchical over island'");
  else if (reader_read_axes(r, &pin->axes, &over.n_axes, over.axes))
    r->pins->border = over;
}

/* Ranks behind those of the mesh. */
static void read_servers(PinReader *r, const Pin *pin, BuiltinCall *call) {
  PlanStage on;
  if (!call->builtin) {
    Builtin signature = {0};
    builtin_parse_params(r->e->names, "ranks:late, staleness = 0", &signature);
    signature.name = pin->value->name;
    builtin_help_call(r->e,
                      diag(r->e->diags, DIAG_wrong_setting, pin->value->span,
                           "sync", "ranks of servers", "'server' alone"),
                      &signature);
    return;
  }
  if (!reader_read_stage_ranks(r, call->exprs[0], &on)) return;
  PlanServers *servers = &r->pins->servers;
  *servers = (PlanServers){
      .n = on.n_ranks, .first_rank = on.first_rank, .span = pin->value->span};
  if (call->args[1].kind == EXPR_VALUE_none)
    servers->staleness = -1;
  else
    arg_int(call, 1, 0, &servers->staleness);
}

static void plan_read_sync(PinReader *r, const Pin *pin) {
  BuiltinCall call = {0};
  Builtin signature;
  const char *name = read_value_call(r, pin, &call, &signature);
  if (!name) return;
  r->pins->has_sync = true;
  if (strcmp(name, "hierarchical") == 0)
    read_border(r, pin);
  else if (pin->axes.n > 0)
    diag(r->e->diags, DIAG_plan_over, pin->axes.spans[0],
         arena_printf(r->e->arena, "sync = %s", name));
  else if (strcmp(name, "server") == 0)
    read_servers(r, pin, &call);
}

static void plan_read_schedule(PinReader *r, const Pin *pin) {
  BuiltinCall call = {0};
  Builtin signature;
  r->pins->schedule_span = pin->value->span;
  if (pin->value->kind == EXPR_string) {
    r->pins->schedule = arena_printf(r->e->arena, "\"%s\"", pin->value->name);
    r->pins->list = reader_read_list(r, pin->value);
    return;
  }
  const char *name = read_value_call(r, pin, &call, &signature);
  if (!name) return;
  PipelineSpelling spelling;
  const char *text = spell_schedule(r, name, &call);
  const char *wrong = pipeline_spelling_read(r->e->arena, text, &spelling);
  if (wrong)
    diag(r->e->diags, DIAG_schedule_argument, pin->value->span, wrong);
  else
    r->pins->schedule = text;
}

static void read_count(PinReader *r, const Pin *pin, PinNumber *count) {
  *count = (PinNumber){true, 0, pin->span};
  reader_read_int(r, pin->value, pin->name, 1, &count->value);
}

static void read_ranks(PinReader *r, const Pin *pin) {
  read_count(r, pin, &r->pins->ranks);
}

static void read_microbatches(PinReader *r, const Pin *pin) {
  read_count(r, pin, &r->pins->microbatches);
}

static void plan_read_attention(PinReader *r, const Pin *pin) {
  const char *name = plan_read_value(r, pin);
  r->pins->attention_span = pin->value->span;
  for (int i = ATTENTION_gather; name && i <= ATTENTION_ulysses; i++)
    if (strcmp(plan_attention_name((PlanAttention)i), name) == 0)
      r->pins->attention = (PlanAttention)i;
}

/* Sums of f32 values would lose what the model asks for. */
static void plan_read_reduce(PinReader *r, const Pin *pin) {
  const char *name = plan_read_value(r, pin);
  const Precision *precision = &r->model->precision;
  r->pins->reduces_bf16 = name && strcmp(name, "bf16") == 0;
  if (r->pins->reduces_bf16 && precision->compute != DT_bf16)
    diag_help(diag(r->e->diags, DIAG_plan_reduce, pin->value->span,
                   dtype_name(precision->compute)),
              "write 'precision { compute = bf16 }' in the model, or leave "
              "the line out");
}

static void plan_read_compress(PinReader *r, const Pin *pin) {
  BuiltinCall call = {0};
  Builtin signature;
  const char *name = read_value_call(r, pin, &call, &signature);
  for (int i = COMPRESS_none; name && i <= COMPRESS_power; i++)
    if (strcmp(plan_compress_name((PlanCompress)i), name) == 0)
      r->pins->compress = (PlanCompress)i;
  r->pins->compress_rank = 4;
  r->pins->compress_span = pin->span;
  if (name && call.builtin && call.exprs[0])
    arg_int(&call, 0, 1, &r->pins->compress_rank);
}

static void read_zero(PinReader *r, const Pin *pin) {
  int64_t level = 0;
  PlanShard over = {.span = pin->span};
  if (!reader_read_int(r, pin->value, "zero", 0, &level) ||
      (pin->axes.n > 0 &&
       !reader_read_axes(r, &pin->axes, &over.n_axes, over.axes)))
    return;
  if (level > 3)
    diag(r->e->diags, DIAG_wrong_setting, pin->value->span, "zero",
         "an integer from 0 to 3",
         arena_printf(r->e->arena, "%lld", (long long)level));
  else if (pin->axes.n > 0 && over.n_axes == 0)
    r->pins->zero = (PinNumber){true, 0, pin->span}; /* over one rank */
  else
    r->pins->zero = (PinNumber){true, level, pin->span};
  r->pins->zero_over = over;
}

static void read_bytes_pin(PinReader *r, const Pin *pin, PinNumber *bytes) {
  *bytes = (PinNumber){true, 0, pin->span};
  read_bytes(r, pin->value, pin->name, &bytes->value);
}

static void read_bucket(PinReader *r, const Pin *pin) {
  read_bytes_pin(r, pin, &r->pins->bucket_bytes);
}

static void read_prefetch(PinReader *r, const Pin *pin) {
  read_bytes_pin(r, pin, &r->pins->prefetch_bytes);
}

static void read_memory(PinReader *r, const Pin *pin) {
  read_bytes_pin(r, pin, &r->pins->memory_bytes);
}

void reader_read_setting(PinReader *r, const Pin *pin) {
  static const struct {
    const char *name;
    void (*read)(PinReader *r, const Pin *pin);
    bool may_be_auto; /* then the line says nothing */
  } rows[] = {{"schedule", plan_read_schedule, true},
              {"microbatches", read_microbatches, true},
              {"zero", read_zero, true},
              {"sync", plan_read_sync, false},
              {"bucket", read_bucket, true},
              {"prefetch", read_prefetch, true},
              {"compress", plan_read_compress, false},
              {"memory", read_memory, false},
              {"ranks", read_ranks, true},
              {"attention", plan_read_attention, true},
              {"reduce", plan_read_reduce, false}};
  const char *names[ARRAY_LENGTH(rows)];
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    names[i] = rows[i].name;
    if (strcmp(rows[i].name, pin->name) != 0) continue;
    if (pin->axes.n > 0 && rows[i].read != read_zero &&
        rows[i].read != plan_read_sync)
      diag(r->e->diags, DIAG_plan_over, pin->axes.spans[0], pin->name);
    else if (rows[i].may_be_auto && reader_is_word(pin->value, "auto"))
      return;
    else if (pin == reader_find_set(r, pin->name))
      rows[i].read(r, pin);
    else if (!strcmp(span_text(r->e->arena, pin->value->span),
                     span_text(r->e->arena,
                               reader_find_set(r, pin->name)->value->span)))
      pin_warn_implied(r->e->module, reader_find_set(r, pin->name)->span,
                       pin->span);
    return;
  }
  Diag *d = diag(r->e->diags, DIAG_unknown_pin, pin->span, pin->name);
  if (!foreign_help(d, FOREIGN_plan, pin->name))
    diag_choices(r->e->arena, d, pin->name, names, ARRAY_LENGTH(names));
}
