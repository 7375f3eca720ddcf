/* second.c -- compiles exact mode (exact.h) for its second prime. */
#define SUFFIX second
#define EXACT_SECOND
#include "ir/interp/residue.inc"
#include "ir/interp/exact.inc"
