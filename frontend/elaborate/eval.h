/*
 * eval.h -- the functions that call each other down a program: expressions,
 * names, calls, statements.
 */
#ifndef FRONTEND_ELABORATE_EVAL_H
#define FRONTEND_ELABORATE_EVAL_H

#include "frontend/elaborate/elaborate.h"

/* ---- expression.c ---- */

ExprValue eval(Elab *e, const Expr *x);
/* Evaluates a compile-time integer.  Returns false after a message. */
bool eval_int(Elab *e, const Expr *x, int64_t *out);

/* ---- bracket.c ---- */

ExprValue eval_index(Elab *e, const Expr *x);

/* ---- scope.c: what a name means ---- */

ExprValue global_value(Elab *e, Global *global, Span use);
/* Returns the size of a dim name in scope.  Returns 0 if it has none, -1 if it
 * has a bad one that was reported. */
int64_t scope_size(Elab *e, Name name, Span use);
/* Returns the size of a dim name in scope; having none is reported. */
int64_t scope_need_size(Elab *e, Name name, Span use, bool in_type);
bool scope_has_value(Elab *e, Name name);
bool scope_is_predefined(Name name);
ExprValue scope_lookup(Elab *e, const Expr *x);
/* Returns the graph input of a data field, BLOCK.FIELD. */
ExprValue scope_field(Elab *e, const Expr *x);
/* Reports a data block without a name, which cannot be read. */
void scope_unnamed_data(Elab *e, Span span);

/* ---- statement.c, parameter.c ---- */

/* Reports unknown ones; whether @frozen is among them. */
bool elab_annotations(Elab *e, const AnnotationList *list, bool is_scan);
/* Executes statements.  Returns true if a `return` was reached. */
bool exec_body(Elab *e, const StmtList *body);
/* Executes a `param` or `state` statement. */
void exec_param(Elab *e, const Stmt *stmt);
/* Returns whether no dim occurs twice in the type; else reports it. */
bool elab_dims_differ(Elab *e, const TypeExpr *type);
/* Returns the dims, sizes and dtype of a parameter, field or net input. Returns
 * NULL after a message. */
const Type *elab_type_expr(Elab *e, const TypeExpr *type);

/* Assigns to the i-th name of a statement: a local, or a state. */
void elab_assign(Elab *e, const Stmt *stmt, int i, ExprValue val);
/* Returns whether a carry or counter has the name of a state, which it must
 * not; reports it. */
bool elab_hides_state(Elab *e, Name name, Span span);

/* ---- pinned.c: @shard, @keep, @remat and @stage become pins of a plan ---- */

/* Notes the annotations of a statement, or of a layer (NULL), after it: for the
 * values that it assigned, or the nodes from `first_node` on that it computed.
 */
void elab_note_pins(Elab *e, const AnnotationList *list, const Stmt *stmt,
                    int first_node);

/* ---- call.c ---- */

ExprValue eval_call(Elab *e, const Expr *x);
/* Elaborates a net on given arguments, outside any expression. */
ExprValue elab_net(Elab *e, Callable *net, const ExprValue *args, int n,
                   Span span);

#endif
