/*
 * state.h -- declares the value that a state has at a place of the program.
 */
#ifndef FRONTEND_ELABORATE_STATE_H
#define FRONTEND_ELABORATE_STATE_H

#include "frontend/elaborate/elaborate.h"

/* Assigns a state: its name means this value from here on, and the last value
 * assigned is what the next step reads. */
void state_set(Elab *e, Name path, ExprValue val);
/* Returns its value at this place of the program: `initial` as long as nothing
 * was assigned. */
ExprValue state_value(const Elab *e, Name path, ExprValue initial);
/* Returns the path of the state whose value this tensor is.  Returns NULL if it
 * is of none. */
Name state_of_value(const Elab *e, ExprValue val);
/* Assigns `s = e` in the body that declares the state. */
void state_assign(Elab *e, const Local *state, ExprValue val, Span span);

#endif
