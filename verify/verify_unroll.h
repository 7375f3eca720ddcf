/*
 * verify_unroll.h -- compares the whole program with the one of three blocks
 * that is played in its place.
 */
#ifndef VERIFY_VERIFY_UNROLL_H
#define VERIFY_VERIFY_UNROLL_H

#include "ir/model/repeat.h"

/* Compares `whole` with `folded`, in which middle blocks of each run of equal
 * blocks are left out.  Returns NULL if repeating them gives `whole`: node for
 * node equal operators, attributes, types with placements, and operands.  Else
 * returns the path of the first node that differs, with the difference in
 * words.  All middle blocks of `whole` are compared with each other and with
 * the one of `folded`, and so is all that stands outside of blocks.  Sums count
 * as equal in any order and grouping.  The parts of a collective are compared
 * one by one, because buckets join neighbours. */
const char *unroll_difference(Arena *arena, const Graph *whole,
                              const Graph *folded, const Repeat *repeats,
                              int n);

#endif
