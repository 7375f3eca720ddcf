/* f64.c -- compiles the interpreter's arithmetic (number.inc) for double. */
#define SUFFIX f64
#include "ir/interp/number.inc"
#include "ir/interp/moves.inc"
