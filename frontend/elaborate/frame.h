/*
 * frame.h -- names, sizes and paths of one call of a layer.
 */
#ifndef FRONTEND_ELABORATE_FRAME_H
#define FRONTEND_ELABORATE_FRAME_H

#include "frontend/elaborate/elaborate.h"

Frame *frame_push(Elab *e, const Callable *callable, Name prefix);
void frame_pop(Elab *e);
Local *frame_local(Frame *frame, Name name);
/* Makes a local that the frame does not have yet. */
void frame_add(Elab *e, Local local);
void frame_set(Elab *e, Name name, ExprValue val, Span span);
Size *frame_size(Frame *frame, Name name);
void frame_add_size(Elab *e, Size size);
/* Returns, by dim of the type, the names that a generic dim has at the
 * callers.  If two generics have one name, only the first one has it. */
const DimNames *scope_stands_for(Elab *e, const Type *type);
/* Returns the path of an operator, call or value in the current frame. */
Name scope_path(Elab *e, const void *place, const char *fallback);
Name scope_join(Elab *e, Name prefix, const char *label, const char *indices);

/* ---- numbering.c: labels of calls, values and operators in one body ---- */

Map *number_item(SourceTree *tree, const Item *item);
Map *number_expr(SourceTree *tree, const Expr *x);

#endif
