/*
 * value.h -- a value of the elaborator: a compile-time value or a tensor of the
 * graph; its arithmetic, and how messages show it.
 */
#ifndef FRONTEND_ELABORATE_VALUE_H
#define FRONTEND_ELABORATE_VALUE_H

#include "frontend/syntax/ast.h"
#include "ir/ir.h"

typedef struct Elab Elab;

typedef enum ExprValueKind {
  EXPR_VALUE_poison, /* follows from a mistake that was reported */
  EXPR_VALUE_none,
  EXPR_VALUE_bool,
  EXPR_VALUE_int,
  EXPR_VALUE_float,
  EXPR_VALUE_string,
  EXPR_VALUE_list,
  EXPR_VALUE_tensor,
  EXPR_VALUE_gate /* a gate, which route makes */
} ExprValueKind;

typedef struct Gate Gate; /* operators/experts.c */

typedef struct ExprValue {
  ExprValueKind kind;
  bool is_weak; /* tensor: computed from numbers and iota only */
  union {
    bool boolean;
    int64_t integer;
    double floating;
    Name string;
    struct ExprValueList *list;
    Value tensor;
    const Gate *gate;
  };
  /* All dims of a tensor in the order of the result type that a layer or net
   * declares for it, which files have.  NULL means that none is
   * declared.  Operators make new values, so it is lost with the first of them.
   */
  const Name *order;
} ExprValue;

typedef struct ExprValueList {
  int n;
  int64_t n_all; /* elements of lists in it included */
  ExprValue items[];
} ExprValueList;

#define POISON ((ExprValue){.kind = EXPR_VALUE_poison})
static inline ExprValue expr_value_bool(bool boolean) {
  return (ExprValue){.kind = EXPR_VALUE_bool, .boolean = boolean};
}
static inline ExprValue expr_value_int(int64_t integer) {
  return (ExprValue){.kind = EXPR_VALUE_int, .integer = integer};
}
static inline ExprValue expr_value_float(double floating) {
  return (ExprValue){.kind = EXPR_VALUE_float, .floating = floating};
}
static inline ExprValue expr_value_tensor(Value value, bool is_weak) {
  return (ExprValue){
      .kind = EXPR_VALUE_tensor, .is_weak = is_weak, .tensor = value};
}
static inline bool expr_value_is_poison(ExprValue val) {
  return val.kind == EXPR_VALUE_poison;
}
static inline bool expr_value_is_tensor(ExprValue val) {
  return val.kind == EXPR_VALUE_tensor;
}
/* Returns whether the value is known at compile time and is no list, which may
 * hold tensors. */
static inline bool expr_value_is_static(ExprValue val) {
  return val.kind != EXPR_VALUE_tensor && val.kind != EXPR_VALUE_list;
}
/* Returns whether the value is an integer or a float. */
static inline bool expr_value_is_number(ExprValue val) {
  return val.kind == EXPR_VALUE_int || val.kind == EXPR_VALUE_float;
}
static inline double expr_value_to_double(ExprValue val) {
  return val.kind == EXPR_VALUE_int    ? (double)val.integer
         : val.kind == EXPR_VALUE_bool ? (double)val.boolean
                                       : val.floating;
}

/* ---- value.c: compile-time arithmetic, texts for messages ---- */

/* Returns the type of a tensor. */
const Type *elab_type(const Elab *e, ExprValue val);
/* Returns a list that is to be filled in. */
ExprValue expr_value_list(Elab *e, int n);
/* Returns a list that may hold lists, now filled in.  Since a list is walked as
 * a tree, shared elements count each time.  Returns poison after a message. */
ExprValue expr_value_list_nested(Elab *e, ExprValue list, Span span);
/* Charges a walk over a value to the budget. */
void expr_value_charge(Elab *e, ExprValue val);
/* Computes at compile time; `exprs` (or NULL) are the arguments in the source.
 */
ExprValue expr_value_compute(Elab *e, Op op, const ExprValue *args,
                             const Expr *const *exprs, int n);
bool expr_value_equal(ExprValue a, ExprValue b);
/* Returns a float with an integer value (20K, 1e3) as the integer that a place
 * requires, and any other value unchanged. */
ExprValue expr_value_whole(ExprValue val);
/* Returns a description of the value for messages, such as "an integer" or "a
 * tensor [B, T]". */
const char *expr_value_describe(Elab *e, ExprValue val);
/* Returns the dims of a tensor in the declared order, else in that of its type.
 */
const Type *elab_ordered_type(const Elab *e, ExprValue val);
/* Returns a name for the expression in messages: "'s'" for a name, the source
 * text if it is short, else "this value". */
const char *expr_describe(Elab *e, const Expr *x);
/* Returns such a name for a message that continues with the value: not "'3' is
 * 3". */
const char *expr_subject(Elab *e, const Expr *x);
/* Returns the dims of a type as "[B, T, H]". */
const char *type_describe(Elab *e, const Type *type);
Op operator_op(Operator op);
/* Returns how the language spells an operator: "+" for OP_add, else the
 * operator's name. */
const char *op_spelling(Op op);

#endif
