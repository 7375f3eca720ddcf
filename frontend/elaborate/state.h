/*
 * state.h -- declares the value that a state has at a place of the program.
 */
#ifndef FRONTEND_ELABORATE_STATE_H
#define FRONTEND_ELABORATE_STATE_H

#include "frontend/elaborate/elaborate.h"

/* Assigns a state: its name means this value from here on, and the last value
 * assigned is what the next step reads. */
void state_set(Elab *e, Name path, ExprValue val);
/* Its value at this place of the program; `initial` as long as nothing was
 * assigned. */
ExprValue state_value(const Elab *e, Name path, ExprValue initial);
/* The path of the state whose value this tensor is, or NULL. */
Name state_of_value(const Elab *e, ExprValue val);
/* `s = e` in the body that declares the state. */
void state_assign(Elab *e, const Local *state, ExprValue val, Span span);

#endif
