/*
 * verify_unroll.h -- compares the whole program with the one of three blocks
 * that is played in its place.
 */
#ifndef VERIFY_VERIFY_UNROLL_H
#define VERIFY_VERIFY_UNROLL_H

#include "ir/model/repeat.h"

/* Checks that `folded`, which keeps one middle block of each run of equal
 * blocks, gives `whole` when that block is repeated.  Two nodes are equal if
 * they have the same operator, attributes, types with placements, and operands;
 * the operands of a sum may stand in any order and grouping.  A collective that
 * sends several values in one message is compared value by value.  Returns NULL
 * if all nodes are equal, else the path of the first one that differs, with the
 * difference in words. */
const char *unroll_difference(Arena *arena, const Graph *whole,
                              const Graph *folded, const Repeat *repeats,
                              int n);

#endif
