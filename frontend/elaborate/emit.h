/*
 * emit.h -- functions that append nodes: one node of any operator, pointwise
 * operators, reductions, moves; dtypes and dims of their operands.
 */
#ifndef FRONTEND_ELABORATE_EMIT_H
#define FRONTEND_ELABORATE_EMIT_H

#include "frontend/elaborate/elaborate.h"

/* ---- emit.c ---- */

/* Makes the nodes that follow belong to this expression. */
void elab_at(Elab *e, const Expr *x);
/* Appends a node after asking its rule; poison after a message. */
ExprValue elab_emit(Elab *e, Op op, const ExprValue *inputs, int n,
                    const Attrs *attrs);
/* Returns the second result of the node whose first result is `first`. */
ExprValue elab_second_result(ExprValue first);
ExprValue elab_number(Elab *e, DType dtype, double value);
/* Returns whether this dtype holds the number or boolean. */
bool elab_fits(DType dtype, ExprValue val);
/* Returns a scalar of this dtype for a number that fits, and any other value
 * unchanged. */
ExprValue elab_scalar(Elab *e, DType dtype, ExprValue val);
/* Finds the dtype of this name in the language.  Returns false, and reports the
 * name at `span`, if there is none. */
bool elab_dtype(Elab *e, Name name, Span span, DType *out);
ExprValue elab_cast(Elab *e, ExprValue val, DType dtype);
/* Returns whether a value may be declared with this dtype.  A float that the
 * program did not type, f32 until `precision` decides, takes the declared one;
 * a typed float may be widened. */
bool elab_takes(DType dtype, DType has);
/* Returns the value in the dtype that the program declares.  A value declared
 * f32 stays f32 where `precision` rounds; a cast from f32 to f32 marks
 * it.  Lists and other values are returned unchanged. */
ExprValue elab_typed(Elab *e, const TypeExpr *type, ExprValue val);
ExprValue elab_keep_f32(Elab *e, ExprValue val);

/* ---- dims.c ---- */

Diag *elab_no_dim(Elab *e, const Expr *x, const Type *type, Name dim,
                  Span span);
/* Checks that shared dims agree; `a` and `b` (or NULL) are shown in the note.
 */
bool elab_unify(Elab *e, const Type *a, const Type *b, const Expr *ax,
                const Expr *bx, Name except, Name except2);

/* ---- pointwise.c ---- */

/* Computes a pointwise operator on any mixture of numbers, tensors and lists;
 * `exprs` may hold NULLs. */
ExprValue pointwise(Elab *e, Op op, const ExprValue *args,
                    const Expr *const *exprs, int n);
ExprValue pointwise1(Elab *e, Op op, ExprValue a);
ExprValue pointwise2(Elab *e, Op op, ExprValue a, ExprValue b);
ExprValue pointwise3(Elab *e, Op op, ExprValue a, ExprValue b, ExprValue c);

/* ---- tensor.c ---- */

ExprValue elab_reduce(Elab *e, Op op, ExprValue val, const Name *dims, int n);
/* Reduces over all dims. */
ExprValue elab_reduce_all(Elab *e, Op op, ExprValue val);
/* Returns the elements that these dims have together. */
double elab_count(const Type *type, const Name *dims, int n);
ExprValue elab_mean(Elab *e, ExprValue val, const Name *dims, int n);
ExprValue elab_mean_all(Elab *e, ExprValue val);
/* Returns whether i32 holds the number of elements along these dims of a tensor
 * of booleans, which the call at hand counts; else reports it.  `of` is the
 * argument that the note shows. */
bool elab_counts_fit(Elab *e, const Expr *of, const Type *type,
                     const Name *dims, int n, const char *help);
ExprValue elab_argmax(Elab *e, ExprValue val, Name dim);
ExprValue elab_pad(Elab *e, ExprValue val, Name dim, int64_t before,
                   int64_t after, double value);
/* Adds (in front) the dims that `val` lacks. */
ExprValue elab_broadcast(Elab *e, ExprValue val, const Name *dims,
                         const int64_t *sizes, int n);
ExprValue elab_rename(Elab *e, ExprValue val, const Name *from, const Name *to,
                      int n);
ExprValue elab_slice(Elab *e, ExprValue val, Name dim, int64_t start,
                     int64_t size);
ExprValue elab_drop(Elab *e, ExprValue val,
                    Name dim); /* a dim of size 1 vanishes */
/* Returns the index along a dim, in i64 where i32 does not hold it. */
ExprValue elab_positions(Elab *e, Name dim, int64_t size);
/* Returns x where 0 <= index < n, else NaN; without --checked x.  Integers have
 * no NaN, so an integer x makes the loss NaN.  Inside a scan, which adds to no
 * loss, it is not checked. */
ExprValue elab_checked(Elab *e, ExprValue x, ExprValue index, int64_t n);

#endif
