/*
 * builtins.c -- makes the table of operators that a model calls by name from
 * the rows of builtins.def; a program holds it, and a call reaches the function
 * of a row through it.
 */
#include "frontend/operators/operators.h"

#define BUILTIN(name, params, mapped, function) BuiltinFn builtin_##function;
#include "frontend/operators/builtins.def"

static const struct {
  const char *name, *params;
  int n_mapped;
  BuiltinFn *function;
} rows[] = {
#define BUILTIN(name, params, mapped, function)                                \
  {#name, params, mapped, builtin_##function},
#include "frontend/operators/builtins.def"
};

/* Returns whether the operator is written with a symbol such as +. */
static bool is_spelled(Op op) {
  for (int i = 0; i <= OPERATOR_neg; i++)
    if (operator_op((Operator)i) == op) return op != OP_neg;
  return false;
}

Map *builtins_create(Module *m) {
  Map *map = map_create(m->arena);
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Builtin *builtin = ARENA_NEW(m->arena, Builtin);
    *builtin = (Builtin){.name = name_intern(m->names, rows[i].name),
                         .n_mapped = rows[i].n_mapped,
                         .function = rows[i].function};
    if (!op_find(rows[i].name, &builtin->op)) builtin->op = N_OPS;
    builtin_parse_params(m->names, rows[i].params, builtin);
    map_put(map, builtin->name, builtin);
  }
  static const char *const params[] = {"", "x", "a, b", "c, a, b"};
  for (int op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info((Op)op);
    Name name = name_intern(m->names, info->name);
    if (!info->is_pointwise || is_spelled((Op)op) || map_has(map, name))
      continue;
    Builtin *builtin = ARENA_NEW(m->arena, Builtin);
    *builtin =
        (Builtin){.name = name, .op = (Op)op, .function = builtin_pointwise};
    builtin_parse_params(m->names, params[info->min_inputs], builtin);
    map_put(map, name, builtin);
  }
  return map;
}

ExprValue builtin_not_supported(BuiltinCall *call) {
  elab_not_supported(call->e, call->x->span, call->builtin->name);
  return POISON;
}
