/*
 * packing.c -- gives buffers offsets: best fit by decreasing size.
 *
 * The largest come first, each in the smallest hole that fits, mostly within a
 * few percent of the peak memory of graphs of models.  Where that leaves more
 * holes, as the long lives of values of micro-batches can, the order of live
 * ranges and that of bytes times live range are tried, too.
 *
 * Large graphs have thousands of small buffers, for which best fit would look
 * through hundreds of holes each, to save next to nothing.  So all but the
 * largest thousand, as far as these have at most a 2,000th of the peak
 * together, are small: they lie below the others, those of one size side by
 * side, where each takes the bytes of one that is no longer live.  For equal
 * buffers nothing needs less.
 *
 *     nodes        0 1 2 3 4 5
 *     bytes 0..1   d d d   e e       d, e: small
 *     bytes 1..5   a a b b b b
 *     bytes 5..7   c c c c
 */
#include "passes/buffers/packing.h"

#include "passes/buffers/live_memory.h"

#include <stdlib.h>

enum { SMALL_PART = 2000, LARGE_AT_LEAST = 1000 };

typedef struct Packer {
  Arena *scratch;
  PackedBuffer *buffers;
  int n, n_nodes;
  int64_t alignment, base;
} Packer;

static int64_t aligned_bytes(const Packer *packer, int64_t bytes) {
  return (bytes + packer->alignment - 1) / packer->alignment *
         packer->alignment;
}

int64_t most_live_bytes(Arena *scratch, const PackedBuffer *buffers, int n,
                        int n_nodes) {
  int64_t *change = ARENA_ARRAY(scratch, int64_t, n_nodes + 2);
  for (int i = 0; i < n; i++) {
    change[buffers[i].first] += buffers[i].bytes;
    change[buffers[i].last + 1] -= buffers[i].bytes;
  }
  int64_t alive = 0, most = 0;
  for (int id = 0; id <= n_nodes; id++) {
    alive += change[id];
    if (alive > most) most = alive;
  }
  return most;
}

/* ---- orders ---- */

typedef struct Item {
  int64_t key; /* the largest come first */
  int buffer;
} Item;

static int compare_items(const void *a, const void *b) {
  const Item *x = a, *y = b;
  if (x->key != y->key) return x->key > y->key ? -1 : 1;
  return x->buffer - y->buffer;
}

static void sort_items(Item *items, int n) {
  if (n > 1) qsort(items, (size_t)n, sizeof *items, compare_items);
}

/* The property by which buffers are ordered before they are placed. */
typedef enum PackingOrder {
  PACK_largest,
  PACK_longest, /* alive for the most nodes */
  PACK_area,    /* bytes times nodes */
  N_PACKING_ORDERS
} PackingOrder;

static int64_t packing_key(const PackedBuffer *buffer, PackingOrder order) {
  int64_t nodes = buffer->last - buffer->first + 1;
  if (order == PACK_largest) return buffer->bytes;
  return order == PACK_longest ? nodes : buffer->bytes / 64 * nodes;
}

/* ---- small buffers ---- */

/* `items` are all buffers, the largest first: the number that are not small. */
static int count_large(const Packer *packer, const Item *items,
                       int64_t most_live) {
  int n = packer->n;
  for (int64_t left = most_live / SMALL_PART; n > LARGE_AT_LEAST; n--) {
    left -= aligned_bytes(packer, items[n - 1].key);
    if (left < 0) break;
  }
  return n;
}

/* Buffers of one size; returns the end of their bytes. */
static int64_t pack_equal(Packer *packer, Item *items, int n, int64_t bytes,
                          int64_t base) {
  Item *by_last = ARENA_ARRAY(packer->scratch, Item, n);
  int64_t *unused = ARENA_ARRAY(packer->scratch, int64_t, n);
  int n_unused = 0, n_ended = 0;
  for (int i = 0; i < n; i++) {
    int buffer = items[i].buffer;
    items[i].key = -packer->buffers[buffer].first;
    by_last[i] = (Item){-packer->buffers[buffer].last, buffer};
  }
  sort_items(items, n);
  sort_items(by_last, n);
  for (int i = 0; i < n; i++) {
    PackedBuffer *buffer = &packer->buffers[items[i].buffer];
    for (; - by_last[n_ended].key < buffer->first; n_ended++)
      unused[n_unused++] = packer->buffers[by_last[n_ended].buffer].offset;
    if (n_unused == 0) unused[n_unused++] = base, base += bytes;
    buffer->offset = unused[--n_unused];
  }
  return base;
}

/* `items`, the largest first; returns the end of their bytes. */
static int64_t pack_small(Packer *packer, Item *items, int n) {
  int64_t base = packer->base;
  for (int begin = 0, end; begin < n; begin = end) {
    int64_t bytes = aligned_bytes(packer, items[begin].key);
    for (end = begin; end < n; end++)
      if (aligned_bytes(packer, items[end].key) != bytes) break;
    base = pack_equal(packer, items + begin, end - begin, bytes, base);
  }
  return base;
}

/* ---- best fit ---- */

static int64_t pack_items(Packer *packer, const Item *items, int n) {
  LiveMemory *live = live_memory_create(packer->scratch, packer->n_nodes + 1);
  int64_t top = packer->base;
  for (int i = 0; i < n; i++) {
    PackedBuffer *buffer = &packer->buffers[items[i].buffer];
    int64_t needed = aligned_bytes(packer, buffer->bytes);
    buffer->offset = live_memory_best_fit(live, buffer->first, buffer->last,
                                          needed, packer->base);
    live_memory_add(live, buffer->first, buffer->last,
                    (MemoryRange){buffer->offset, buffer->offset + needed});
    int64_t end = buffer->offset + buffer->bytes;
    if (end > top) top = end;
  }
  return top;
}

static int64_t pack_in_order(Packer *packer, Item *items, int n,
                             PackingOrder order) {
  for (int i = 0; i < n; i++)
    items[i].key = packing_key(&packer->buffers[items[i].buffer], order);
  sort_items(items, n);
  return pack_items(packer, items, n);
}

/* Another order is tried where the first leaves holes of more than a fiftieth.
 */
static int64_t pack_large(Packer *packer, Item *items, int n,
                          int64_t most_live) {
  int64_t enough = packer->base + most_live + most_live / 50;
  int64_t least = pack_in_order(packer, items, n, PACK_largest);
  PackingOrder best = PACK_largest, last = PACK_largest;
  for (int order = 1; order < N_PACKING_ORDERS && least > enough; order++) {
    int64_t top = pack_in_order(packer, items, n, (PackingOrder)order);
    last = (PackingOrder)order;
    if (top < least) least = top, best = last;
  }
  return best == last ? least : pack_in_order(packer, items, n, best);
}

int64_t pack_buffers(Arena *scratch, PackedBuffer *buffers, int n, int n_nodes,
                     int64_t alignment, int64_t base) {
  Packer packer = {scratch, buffers, n, n_nodes, alignment, base};
  Item *items = ARENA_ARRAY(scratch, Item, n);
  for (int i = 0; i < n; i++) items[i] = (Item){buffers[i].bytes, i};
  sort_items(items, n);
  int64_t most_live = most_live_bytes(scratch, buffers, n, n_nodes);
  int n_large = count_large(&packer, items, most_live);
  packer.base = pack_small(&packer, items + n_large, n - n_large);
  return pack_large(&packer, items, n_large, most_live);
}
