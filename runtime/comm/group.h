/*
 * group.h -- process groups: which ranks are in the group of a rank, and where.
 *
 * The mesh of `group` is made of some ranks; group_has says whether a rank is
 * in one of its groups, and every other function asks for such a rank.
 */
#ifndef RUNTIME_COMM_GROUP_H
#define RUNTIME_COMM_GROUP_H

#include "runtime/program.h"

#include <stdbool.h>

bool group_equal(const DnnGroup *a, const DnnGroup *b);
bool group_has(const DnnGroup *group, int rank);
/* Returns the index of the rank in its group: its digits, the first the most
 * significant. */
int group_index(const DnnGroup *group, int rank);
/* Returns the rank of member `index` of the group of `rank`. */
int group_rank(const DnnGroup *group, int rank, int index);
/* Returns the index of the member whose rank is the k-th lowest of its group (k
 * from 0). */
int group_ascending(const DnnGroup *group, int k);
/* Returns the group of two that the ranks `a` and `b` form, the lower one
 * first. */
DnnGroup group_of_two(int a, int b);
/* Returns the one group of the ranks [first, first + ranks), in their order. */
DnnGroup group_of_all(int first, int ranks);

#endif
