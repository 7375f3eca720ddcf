/*
 * live_memory.h -- which bytes of an arena are in use while which nodes run.
 */
#ifndef PASSES_LIVE_MEMORY_H
#define PASSES_LIVE_MEMORY_H

#include "support/support.h"

/* Bytes from `offset` to `end`, without it. */
typedef struct MemoryRange {
  int64_t offset, end;
} MemoryRange;

typedef struct LiveMemory LiveMemory;

/* Returns a memory of which nothing is in use while nodes 0 to n_nodes - 1 run.
 */
LiveMemory *live_memory_create(Arena *arena, int n_nodes);
/* Marks the range as in use from node `first` to node `last`, both included. */
void live_memory_add(LiveMemory *memory, int first, int last,
                     MemoryRange range);
/* Returns the lowest offset of the smallest hole from `base` on that is free
 * all the time from node `first` to node `last`, both included, and takes
 * `bytes`.  Without such a hole, returns the end of what is in use. */
int64_t live_memory_best_fit(LiveMemory *memory, int first, int last,
                             int64_t bytes, int64_t base);

#endif
