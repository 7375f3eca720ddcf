/*
 * verify_unroll.h -- compares the whole program with the one of three blocks
 * that is played in its place.
 */
#ifndef VERIFY_VERIFY_UNROLL_H
#define VERIFY_VERIFY_UNROLL_H

#include "ir/model/repeat.h"

/* Compares `whole` with `folded`.  Of each run of equal blocks (`repeats`),
 * `folded` has the first block, the last, and one for all blocks between them.
 * The graphs agree if repeating that one gives `whole`: equal operators,
 * attributes, types with placements, and operands; the operands of a sum may
 * stand in any order and grouping.  A collective that sends several values in
 * one message is compared value by value.  Returns NULL if the graphs agree,
 * else the path of the first node that differs, with the difference in words.
 */
const char *unroll_difference(Arena *arena, const Graph *whole,
                              const Graph *folded, const Repeat *repeats,
                              int n);

#endif
