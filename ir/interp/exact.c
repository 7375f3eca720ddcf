/* exact.c -- compiles exact mode (exact.h) for its first prime. */
#define SUFFIX exact
#include "ir/interp/residue.inc"
#include "ir/interp/exact.inc"
