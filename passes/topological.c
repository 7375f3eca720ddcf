/*
 * topological.c -- keeps the nodes that are ready in a binary heap.
 */
#include "passes/topological.h"

static bool comes_before(const ReadyHeap *heap, int a, int b) {
  if (!heap->key || heap->key[a] == heap->key[b]) return a < b;
  return heap->key[a] < heap->key[b];
}

ReadyHeap ready_heap(Arena *arena, int n, const int64_t *key) {
  return (ReadyHeap){.key = key, .ids = ARENA_ARRAY(arena, int, n)};
}

void ready_push(ReadyHeap *heap, int id) {
  int at = heap->n++;
  while (at > 0 && comes_before(heap, id, heap->ids[(at - 1) / 2])) {
    heap->ids[at] = heap->ids[(at - 1) / 2];
    at = (at - 1) / 2;
  }
  heap->ids[at] = id;
}

int ready_pop(ReadyHeap *heap) {
  int top = heap->ids[0], last = heap->ids[--heap->n], at = 0;
  for (;;) {
    int child = 2 * at + 1;
    if (child >= heap->n) break;
    if (child + 1 < heap->n &&
        comes_before(heap, heap->ids[child + 1], heap->ids[child]))
      child++;
    if (!comes_before(heap, heap->ids[child], last)) break;
    heap->ids[at] = heap->ids[child];
    at = child;
  }
  if (heap->n > 0) heap->ids[at] = last;
  return top;
}
