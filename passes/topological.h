/*
 * topological.h -- declares the walk by which passes that reorder nodes take
 * them: of all nodes whose predecessors are done, the one with the lowest key.
 */
#ifndef PASSES_TOPOLOGICAL_H
#define PASSES_TOPOLOGICAL_H

#include "passes/rewrite.h"

/* The items that are ready, the lowest key first, among equals the lowest id.
 */
typedef struct ReadyHeap {
  const int64_t *key; /* key by id; NULL means the id */
  int *ids, n;
} ReadyHeap;

/* Returns a heap with room for `n` items; `key` stays the caller's. */
ReadyHeap ready_heap(Arena *arena, int n, const int64_t *key);
void ready_push(ReadyHeap *heap, int id);
int ready_pop(ReadyHeap *heap);

#endif
