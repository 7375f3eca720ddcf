/*
 * group.c -- computes members of process groups from the digits of ranks.
 */
#include "runtime/comm/group.h"
#include "support/support.h"

bool group_equal(const DnnGroup *a, const DnnGroup *b) {
  if (a->first != b->first || a->ranks != b->ranks ||
      a->n_digits != b->n_digits)
    return false;
  for (int i = 0; i < a->n_digits; i++)
    if (a->digits[i].size != b->digits[i].size ||
        a->digits[i].stride != b->digits[i].stride)
      return false;
  return true;
}

/* Ranks that lie between two that form a group are of none. */
bool group_has(const DnnGroup *group, int rank) {
  int number = rank - group->first;
  if (number < 0 || number >= group->ranks) return false;
  for (int i = 0; i < group->n_digits; i++) {
    const DnnDigit *digit = &group->digits[i];
    int own = number / digit->stride % digit->size;
    number += (digit->size - 1 - own) * digit->stride;
  }
  return number < group->ranks;
}

int group_index(const DnnGroup *group, int rank) {
  int number = rank - group->first, index = 0;
  ASSERT(group_has(group, rank));
  for (int i = 0; i < group->n_digits; i++) {
    const DnnDigit *digit = &group->digits[i];
    index = index * digit->size + number / digit->stride % digit->size;
  }
  return index;
}

int group_rank(const DnnGroup *group, int rank, int index) {
  int number = rank - group->first;
  for (int i = group->n_digits - 1; i >= 0; i--) {
    const DnnDigit *digit = &group->digits[i];
    int own = number / digit->stride % digit->size;
    number += (index % digit->size - own) * digit->stride;
    index /= digit->size;
  }
  return group->first + number;
}

/* How many digits are more significant for the rank than digit `i`. */
static int digits_above(const DnnGroup *group, int i) {
  int n = 0;
  for (int k = 0; k < group->n_digits; k++)
    n += group->digits[k].stride > group->digits[i].stride;
  return n;
}

int group_ascending(const DnnGroup *group, int k) {
  int value[DNN_MAX_DIGITS] = {0}, index = 0;
  for (int above = group->n_digits - 1; above >= 0; above--)
    for (int i = 0; i < group->n_digits; i++) {
      if (digits_above(group, i) != above) continue;
      value[i] = k % group->digits[i].size;
      k /= group->digits[i].size;
    }
  for (int i = 0; i < group->n_digits; i++)
    index = index * group->digits[i].size + value[i];
  return index;
}

DnnGroup group_of_two(int a, int b) {
  int first = a < b ? a : b, last = a < b ? b : a;
  ASSERT(a != b);
  return (DnnGroup){.first = first,
                    .ranks = last - first + 1,
                    .size = 2,
                    .n_digits = 1,
                    .digits = {{2, last - first}}};
}

DnnGroup group_of_all(int first, int ranks) {
  return (DnnGroup){.first = first,
                    .ranks = ranks,
                    .size = ranks,
                    .n_digits = 1,
                    .digits = {{ranks, 1}}};
}
