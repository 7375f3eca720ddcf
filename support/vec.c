/*
 * vec.c -- makes room for one more item in an array of an arena.  The old
 * storage stays in the arena until the arena is destroyed; doubling bounds that
 * waste by the size of the array.
 */
#include "support/support.h"

#include <limits.h>
#include <string.h>

/* Most arrays of large items stay short. */
enum { FIRST_CAPACITY = 8, FIRST_BYTES = 128 };

void vec_grow(Arena *arena, void **data, int *capacity, int n,
              size_t item_bytes) {
  ASSERT(n >= *capacity && n <= INT_MAX / 2);
  int larger = 2 * n;
  if (n == 0)
    larger = item_bytes * FIRST_CAPACITY <= FIRST_BYTES ? FIRST_CAPACITY
             : item_bytes < FIRST_BYTES ? (int)(FIRST_BYTES / item_bytes)
                                        : 1;
  void *moved = arena_array(arena, larger, item_bytes);
  if (n) memcpy(moved, *data, (size_t)n * item_bytes);
  *data = moved;
  *capacity = larger;
}
