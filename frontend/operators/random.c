/*
 * random.c -- builds the operators that draw random numbers: dropout, normal,
 * uniform, bernoulli.
 *
 *     e = normal(m)    =>    %2 = random_normal %seed, %step {to = [B, Z], ...}
 *
 * The dims are those of the argument, whose elements no number depends on, and
 * so no gradient passes.  The step is that of training; evaluation and
 * `predict` number their batches (run_write_batch).  Dropout keeps everything
 * there.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/eval.h"
#include "frontend/operators/operators.h"

#include <math.h>
#include <string.h>

static ExprValue random_input(Elab *e, Role role, const char *name, DType dtype,
                              Value *value) {
  if (!value_is(*value))
    *value = graph_input(e->graph, role, name_intern(e->names, name),
                         type_scalar(e->arena, dtype));
  return expr_value_tensor(*value, false);
}

static Attrs random_attrs(const Elab *e, const Name *dims, const int64_t *sizes,
                          int n) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_to, dims, n);
  attrs_ints(&attrs, ATTR_sizes, sizes, n);
  attrs_name(&attrs, ATTR_stream, e->graph->path);
  return attrs;
}

static ExprValue emit_random(Elab *e, Op op, const Attrs *attrs) {
  ExprValue inputs[] = {random_input(e, ROLE_seed, "seed", DT_i64, &e->seed),
                        random_input(e, ROLE_step, "step", DT_i32, &e->step)};
  return elab_emit(e, op, inputs, 2, attrs);
}

ExprValue builtin_dropout(BuiltinCall *call) {
  Elab *e = call->e;
  double p;
  if (!arg_float_tensor(call, 0) || !arg_float(call, 1, &p) ||
      !arg_dims(call, 2, 0, false))
    return POISON;
  if (!(p >= 0 && p < 1)) return arg_wrong(call, 1, "at least 0 and below 1");
  if (!e->is_training || p == 0) return call->args[0];
  const Type *type = elab_type(e, call->args[0]);
  const DimArg *over = &call->dims[2];
  int64_t *sizes = ARENA_ARRAY(e->arena, int64_t, over->n);
  for (int i = 0; i < over->n; i++) sizes[i] = type_size(type, over->names[i]);
  Attrs attrs = random_attrs(e, over->names, sizes, over->n);
  attrs_float(&attrs, ATTR_value, p);
  ExprValue keep = emit_random(e, OP_random_keep, &attrs);
  ExprValue scaled =
      pointwise2(e, OP_mul, call->args[0], expr_value_float(1 / (1 - p)));
  return pointwise3(e, OP_select, keep, scaled, expr_value_float(0));
}

/* ---- numbers ---- */

/* A number has no dims, and normal(0.02) looks like an initial value. */
static bool arg_gives_dims(BuiltinCall *call, const char *expected) {
  if (expr_value_is_poison(call->args[0])) return false;
  if (expr_value_is_tensor(call->args[0]))
    return arg_class(call, 0, CLASS_FLOAT);
  Diag *d = arg_report_wrong(call, 0, expected);
  const char *name = call->builtin->name;
  if (strcmp(name, "bernoulli") != 0)
    diag_help(d,
              "'%s(x)' gives a random number for each element of x; as an "
              "initial value, %s stands right of the = of a param or state",
              name, name);
  else
    diag_help(d, "'bernoulli(0 * x + 0.5)' has the dims of x");
  return false;
}

/* In the dtype of the argument. */
static ExprValue random_like(Elab *e, Op op, ExprValue x) {
  const Type *type = elab_type(e, x);
  Name names[MAX_RANK];
  int64_t sizes[MAX_RANK];
  for (int i = 0; i < type->rank; i++) {
    names[i] = type->dims[i].name;
    sizes[i] = type->dims[i].size;
  }
  Attrs attrs = random_attrs(e, names, sizes, type->rank);
  return emit_random(e, op, &attrs);
}

ExprValue builtin_random(BuiltinCall *call) {
  Elab *e = call->e;
  bool is_normal = strcmp(call->builtin->name, "normal") == 0;
  if (!arg_gives_dims(call, "a tensor, whose dims the random numbers have"))
    return POISON;
  Op op = is_normal ? OP_random_normal : OP_random_uniform;
  DType dtype = elab_type(e, call->args[0])->dtype;
  return elab_cast(e, random_like(e, op, call->args[0]), dtype);
}

/* p (1 - p) is negative where p is no probability, and NaN where p is. */
ExprValue builtin_bernoulli(BuiltinCall *call) {
  Elab *e = call->e;
  if (!arg_gives_dims(call, "a tensor of probabilities")) return POISON;
  ExprValue p = call->args[0];
  DType dtype = elab_type(e, p)->dtype;
  ExprValue is_one =
      pointwise2(e, OP_lt, random_like(e, OP_random_uniform, p), p);
  ExprValue both =
      pointwise2(e, OP_mul, p, pointwise2(e, OP_sub, expr_value_float(1), p));
  ExprValue is_probability = pointwise2(e, OP_ge, both, expr_value_float(0));
  return pointwise3(e, OP_select, is_probability, elab_cast(e, is_one, dtype),
                    expr_value_float(NAN));
}
