/*
 * infer.h -- declares the helpers that infer rules share: they read and check
 * attributes, check operands, build the result's dims and report every mistake.
 * Calls come from a user's program (through a front end) or from IR text, so
 * nothing about them may be assumed but that the number of operands is right.
 */
#ifndef IR_OPS_INFER_H
#define IR_OPS_INFER_H

#include "ir/ops/rules.h"

/* One call of a rule.  Once `failed`, the rule continues as far as it can and
 * reports further mistakes. */
typedef struct Infer {
  Module *module;
  const OpCall *call;
  Span span;
  const char *op;
  bool failed;
} Infer;

/* The dims of a result under construction. */
typedef struct Dims {
  int n;
  bool is_full; /* more were added than any result may have */
  Dim items[MAX_RANK + 1];
} Dims;

typedef struct NameSpan { /* an attribute that lists names */
  const Name *items;
  int n;
} NameSpan;

Infer infer_begin(Module *module, const OpCall *call, Span span);

/* ---- attributes; required ones are reported when absent ---- */

bool infer_has(const Infer *in, AttrKey key);
NameSpan infer_names(Infer *in, AttrKey key, bool is_required);
/* Returns the name that an attribute holds, and "" after a report. */
Name infer_name(Infer *in, AttrKey key);
int64_t infer_int(Infer *in, AttrKey key, int64_t if_absent);
double infer_real(const Infer *in, AttrKey key, double if_absent);
/* Copies the `n` values of the attribute, each within [low, high], or
 * `if_absent` n times; if_absent < low: the attribute is required. */
void infer_ints(Infer *in, AttrKey key, int n, int64_t low, int64_t high,
                int64_t if_absent, int64_t *out);
/* Returns the dtype that the attribute names, or `if_absent`. */
DType infer_dtype_attr(Infer *in, DType if_absent);

/* ---- operands, numbered from 0 ---- */

const Type *infer_type(const Infer *in, int operand);
/* Returns the size of a dim that the operand must have, and 1 after a report.
 */
int64_t infer_size(Infer *in, int operand, Name dim);
void infer_lacks(Infer *in, int operand, Name dim);
/* Checks that the sizes of a dim which both operands have are equal. */
void infer_agree(Infer *in, int a, int b, Name dim);
void infer_mismatch(Infer *in, int a, int b, Name dim, int64_t size_a,
                    int64_t size_b);
/* Reports positions 0..n - 1 along a dim that the dtype does not hold. */
void infer_positions(Infer *in, Name dim, int64_t n, DType dtype);
/* Checks that other numbers are equal; the texts say what they are, with a note
 * and a help. */
void infer_numbers(Infer *in, const char *what, int64_t n, DType dtype,
                   const char *note, const char *help);
void infer_want(Infer *in, int operand, const char *wanted);
void infer_want_real(Infer *in, int operand);
void infer_want_number(Infer *in, int operand);
void infer_want_integer(Infer *in, int operand);
/* Names and sizes of the two operands must be the same, in any order. */
void infer_want_same_dims(Infer *in, int a, int b);

/* ---- results ---- */

bool names_have(NameSpan names, Name name);
/* Returns the place of a dim.  Returns -1 if it is absent. */
int dims_find(const Dims *dims, Name name);
void dims_add(Dims *dims, Name name, int64_t size);
/* Adds the operand's dims but those listed. */
void dims_add_type(Dims *dims, const Type *type, NameSpan but);
/* Adds a dim, unless it is there already, where it must have the same size. */
void dims_union(Infer *in, Dims *dims, int operand, NameSpan but);
/* Returns the type of a result.  Returns NULL after a report: a dim twice, too
 * many dims or elements. */
const Type *infer_result(Infer *in, DType dtype, const Dims *dims);
/* Sets the type of the only result of a rule.  Returns the number of results,
 * 1, or -1 after a report. */
int infer_one(Infer *in, DType dtype, const Dims *dims, const Type **out_types);

#endif
