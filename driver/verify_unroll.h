/*
 * verify_unroll.h -- compares the whole program with the one of three blocks
 * that is played in its place.
 */
#ifndef DRIVER_VERIFY_UNROLL_H
#define DRIVER_VERIFY_UNROLL_H

#include "ir/repeat.h"

/* Whether `whole` is `folded` with the middle blocks of its runs repeated: node
 * for node equal operators, attributes, types with placements, and operands.
 * All middle blocks of `whole` are compared with each other and with that of
 * `folded`, and so is all that stands outside of them.  Sums count as equal in
 * any order and grouping, and the parts of a collective one by one, because
 * buckets join neighbours.  NULL: it is; else the path of the first node that
 * differs, with what it is. */
const char *unroll_difference(Arena *arena, const Graph *whole,
                              const Graph *folded, const Repeat *repeats,
                              int n);

#endif
