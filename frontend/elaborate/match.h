/*
 * match.h -- calls whose formal parameters are written as text: operators,
 * initialisers, optimizers, sources of data.
 */
#ifndef FRONTEND_ELABORATE_MATCH_H
#define FRONTEND_ELABORATE_MATCH_H

#include "frontend/elaborate/elaborate.h"

enum { MOST_FORMAL_PARAMS = 8 };

typedef enum FormalParamKind {
  FORMAL_PARAM_value,
  FORMAL_PARAM_dims, /* a dim name or a list of them, not evaluated */
  FORMAL_PARAM_late, /* an expression that the function evaluates */
} FormalParamKind;

typedef struct DimArg {
  /* Number of dim names; -1 means that the call does not give the argument. */
  int n;
  Name *names;
  Span *spans;
} DimArg;

typedef struct BuiltinCall {
  Elab *e;
  const struct Builtin *builtin;
  const Expr *x;
  ExprValue args[MOST_FORMAL_PARAMS];
  DimArg dims[MOST_FORMAL_PARAMS];
  const Expr *exprs[MOST_FORMAL_PARAMS]; /* NULL means the default */
} BuiltinCall;

typedef ExprValue BuiltinFn(BuiltinCall *call);

typedef struct Builtin {
  Name name;
  int n_params;
  struct {
    Name name;
    FormalParamKind kind;
    const char *init; /* text of the default or NULL */
    size_t init_n;
  } params[MOST_FORMAL_PARAMS];
  int n_mapped; /* leading formal parameters over whose lists the call maps */
  BuiltinFn *function;
  /* Operator of a pointwise one and of those that share a function. */
  Op op;
} Builtin;

/* Reads a dim name or a list of distinct ones.  Returns false after a message.
 */
bool dim_arg_read(Elab *e, const Expr *x, DimArg *out);
ExprValue builtin_call(Elab *e, const Expr *x, const Builtin *builtin);
/* Matches and evaluates; false after a message.  Also for the calls in
 * settings, whose formal parameters are not those of an operator. */
void builtin_parse_params(Names *names, const char *text, Builtin *out);
bool builtin_match(Elab *e, const Expr *x, const Builtin *builtin,
                   BuiltinCall *out_call);

/* ---- arguments.c ---- */

/* Adds the help "it is called as softmax(x, D)". */
void builtin_help_call(Elab *e, Diag *d, const Builtin *builtin);
/* Reports that an argument is not what it must be; arg_wrong returns poison. */
Diag *arg_report_wrong(const BuiltinCall *call, int i, const char *wanted);
ExprValue arg_wrong(BuiltinCall *call, int i, const char *wanted);
/* Checks that an argument is a tensor.  All checks report and return false. */
bool arg_tensor(BuiltinCall *call, int i); /* numbers become scalars */
bool arg_float_tensor(BuiltinCall *call, int i);
bool arg_class(BuiltinCall *call, int i, DTypeClass class); /* of a tensor */
bool arg_dims(BuiltinCall *call, int i, int of, bool is_single);
bool arg_int(BuiltinCall *call, int i, int64_t least, int64_t *out);
bool arg_ints(BuiltinCall *call, int i, int n, int64_t least, int64_t *out);
bool arg_float(BuiltinCall *call, int i, double *out);
bool arg_bool(BuiltinCall *call, int i, bool *out);

/* ---- limits.c: which integers of data the operators allow ---- */

/* Notes that the call takes `index` below `below`, or the integer of its
 * argument 'ignore'. */
void limits_note(BuiltinCall *call, ExprValue index, int64_t below);
/* Moves the limits that an elaboration has noted to the fields of the model. */
void limits_take(Model *model, const Elab *from);

#endif
