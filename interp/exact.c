/* exact.c -- compiles exact mode (exact.h) for its first prime. */
#define SUFFIX exact
#include "interp/residue.inc"
#include "interp/exact.inc"
