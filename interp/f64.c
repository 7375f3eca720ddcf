/* f64.c -- compiles the interpreter's arithmetic (number.inc) for double. */
#define SUFFIX f64
#include "interp/number.inc"
#include "interp/moves.inc"
