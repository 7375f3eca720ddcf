/* second.c -- compiles exact mode (exact.h) for its second prime. */
#define SUFFIX second
#define EXACT_SECOND
#include "interp/residue.inc"
#include "interp/exact.inc"
