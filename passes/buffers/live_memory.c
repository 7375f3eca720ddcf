/*
 * live_memory.c -- the bytes that are in use, in a binary tree over time.
 *
 * The root stands for all nodes of a graph, in the order in which they run, its
 * children for half of them each, a leaf for a few.  A buffer that is in use
 * through a whole subtree stands at the root of the largest such one, and every
 * subtree above it knows that these bytes are in use at some time below.  One
 * that begins or ends inside a leaf stands in a list of that leaf.
 *
 *     nodes        0 1 2 3 4 5 6 7       leaves of two nodes
 *     bytes 0..8       a a a a a a       0..7  below: 0..12
 *     bytes 8..12  b b   c c             0..3  below: 0..12
 *                                        4..7  below: 8..12   whole: 0..8
 *                                        0..1  whole: 8..12
 *                                        2..3  whole: 0..8    part: c from 3
 *                                        4..5                 part: c to 4
 *
 * A buffer or a request meets O(log nodes) subtrees.  Packed buffers leave few
 * holes, so a union of ranges is short however many buffers it is of.
 */
#include "passes/buffers/live_memory.h"

#include <string.h>

enum { LEAF_NODES = 64 };

/* Ascending; neither overlapping nor next to each other. */
typedef VEC(MemoryRange) MemoryRanges;

/* Nodes from `first` to `last`, both included. */
typedef struct NodeRange {
  int first, last;
} NodeRange;

typedef struct LiveBuffer {
  NodeRange live;
  MemoryRange range;
} LiveBuffer;

typedef struct Subtree {
  MemoryRanges whole;   /* in use all the time, but not in all of the parent */
  MemoryRanges below;   /* in use in some of its subtrees; not of a leaf */
  VEC(LiveBuffer) part; /* of a leaf: they begin or end in it; by offset */
} Subtree;

struct LiveMemory {
  Arena *arena;
  int n_leaves;                    /* a power of two */
  Subtree *subtrees;               /* 1: all; below i: 2 i and 2 i + 1 */
  MemoryRanges used, merged, part; /* of a request */
};

LiveMemory *live_memory_create(Arena *arena, int n_nodes) {
  LiveMemory *memory = ARENA_NEW(arena, LiveMemory);
  memory->arena = arena;
  memory->n_leaves = 1;
  while ((int64_t)memory->n_leaves * LEAF_NODES < n_nodes)
    memory->n_leaves *= 2;
  memory->subtrees = ARENA_ARRAY(arena, Subtree, 2 * memory->n_leaves);
  return memory;
}

/* ---- unions ---- */

/* Joins the range with those that it overlaps or lies next to. */
static void add_range(Arena *arena, MemoryRanges *ranges, MemoryRange range) {
  int low = 0, high = ranges->n;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (ranges->data[middle].end < range.offset)
      low = middle + 1;
    else
      high = middle;
  }
  while (high < ranges->n && ranges->data[high].offset <= range.end) {
    const MemoryRange *other = &ranges->data[high++];
    if (other->offset < range.offset) range.offset = other->offset;
    if (other->end > range.end) range.end = other->end;
  }
  int n_behind = ranges->n - high;
  if (high == low) vec_push(arena, ranges, range);
  if (high != low + 1)
    memmove(&ranges->data[low + 1], &ranges->data[high],
            (size_t)n_behind * sizeof range);
  ranges->data[low] = range;
  ranges->n = low + 1 + n_behind;
}

/* Appends a range that does not begin before the last one. */
static MemoryRange *append_range(MemoryRange *last, MemoryRange range) {
  if (last->end < range.offset)
    *++last = range;
  else if (last->end < range.end)
    last->end = range.end;
  return last;
}

/* The union of two that are not empty, in `to`, which has room for both. */
static void merge_ranges(const MemoryRanges *a, const MemoryRanges *b,
                         MemoryRanges *to) {
  const MemoryRange *next_a = a->data, *end_a = next_a + a->n;
  const MemoryRange *next_b = b->data, *end_b = next_b + b->n;
  MemoryRange *last = to->data;
  *last = next_a->offset < next_b->offset ? *next_a : *next_b;
  while (next_a < end_a && next_b < end_b) {
    bool takes_a = next_a->offset < next_b->offset;
    last = append_range(last, *(takes_a ? next_a : next_b));
    next_a += takes_a;
    next_b += !takes_a;
  }
  while (next_a < end_a) last = append_range(last, *next_a++);
  while (next_b < end_b) last = append_range(last, *next_b++);
  to->n = (int)(last - to->data) + 1;
}

/* Adds them to what is in use during the request. */
static void use_ranges(LiveMemory *memory, const MemoryRanges *more) {
  MemoryRanges *used = &memory->used;
  if (more->n <= used->n / 16) {
    for (int m = 0; m < more->n; m++)
      add_range(memory->arena, used, more->data[m]);
    return;
  }
  if (memory->merged.capacity < used->n + more->n) {
    memory->merged = (MemoryRanges){0};
    vec_reserve(memory->arena, &memory->merged, 2 * (used->n + more->n));
  }
  if (used->n == 0) {
    memcpy(memory->merged.data, more->data,
           (size_t)more->n * sizeof *more->data);
    memory->merged.n = more->n;
  } else {
    merge_ranges(used, more, &memory->merged);
  }
  MemoryRanges merged = memory->merged;
  memory->merged = *used;
  *used = merged;
}

/* ---- subtrees ---- */

static NodeRange all_nodes(const LiveMemory *memory) {
  return (NodeRange){0, memory->n_leaves * LEAF_NODES - 1};
}

static NodeRange half_of(NodeRange nodes, int half) {
  int n = (nodes.last + 1 - nodes.first) / 2;
  return half == 0 ? (NodeRange){nodes.first, nodes.last - n}
                   : (NodeRange){nodes.first + n, nodes.last};
}

static bool contains(NodeRange outer, NodeRange inner) {
  return outer.first <= inner.first && inner.last <= outer.last;
}

static bool overlaps(NodeRange a, NodeRange b) {
  return a.first <= b.last && b.first <= a.last;
}

static void insert_part(Arena *arena, Subtree *leaf, LiveBuffer buffer) {
  vec_push(arena, &leaf->part, buffer);
  int at = leaf->part.n - 1;
  LiveBuffer *part = leaf->part.data;
  for (; at > 0 && part[at - 1].range.offset > buffer.range.offset; at--)
    part[at] = part[at - 1];
  part[at] = buffer;
}

static void add_buffer(LiveMemory *memory, int index, NodeRange nodes,
                       const LiveBuffer *buffer) {
  Subtree *subtree = &memory->subtrees[index];
  if (contains(buffer->live, nodes)) {
    add_range(memory->arena, &subtree->whole, buffer->range);
  } else if (index >= memory->n_leaves) {
    insert_part(memory->arena, subtree, *buffer);
  } else {
    add_range(memory->arena, &subtree->below, buffer->range);
    for (int half = 0; half < 2; half++)
      if (overlaps(half_of(nodes, half), buffer->live))
        add_buffer(memory, 2 * index + half, half_of(nodes, half), buffer);
  }
}

void live_memory_add(LiveMemory *memory, int first, int last,
                     MemoryRange range) {
  NodeRange live = {first, last};
  ASSERT(first <= last && contains(all_nodes(memory), live));
  if (range.offset == range.end) return;
  add_buffer(memory, 1, all_nodes(memory), &(LiveBuffer){live, range});
}

static void use_part(LiveMemory *memory, const Subtree *leaf, NodeRange asked) {
  MemoryRanges *part = &memory->part;
  part->n = 0;
  for (int i = 0; i < leaf->part.n; i++) {
    const LiveBuffer *buffer = &leaf->part.data[i];
    if (!overlaps(buffer->live, asked)) continue;
    MemoryRange *last = part->n > 0 ? &part->data[part->n - 1] : NULL;
    if (!last || last->end < buffer->range.offset)
      vec_push(memory->arena, part, buffer->range);
    else
      append_range(last, buffer->range);
  }
  use_ranges(memory, part);
}

/* Adds what is in use in the subtree while the asked nodes run: that of small
 * subtrees first, so that the union is short for longer. */
static void use_subtree(LiveMemory *memory, int index, NodeRange nodes,
                        NodeRange asked) {
  const Subtree *subtree = &memory->subtrees[index];
  if (index >= memory->n_leaves) {
    use_part(memory, subtree, asked);
  } else if (contains(asked, nodes)) {
    use_ranges(memory, &subtree->below);
  } else if (subtree->below.n > 0) {
    for (int half = 0; half < 2; half++)
      if (overlaps(half_of(nodes, half), asked))
        use_subtree(memory, 2 * index + half, half_of(nodes, half), asked);
  }
  use_ranges(memory, &subtree->whole);
}

int64_t live_memory_best_fit(LiveMemory *memory, int first, int last,
                             int64_t bytes, int64_t base) {
  memory->used.n = 0;
  use_subtree(memory, 1, all_nodes(memory), (NodeRange){first, last});
  int64_t best = -1, best_bytes = INT64_MAX, end = base;
  for (int i = 0; i < memory->used.n && best_bytes > bytes; i++) {
    const MemoryRange *range = &memory->used.data[i];
    int64_t hole = range->offset - end;
    if (hole >= bytes && hole < best_bytes) best = end, best_bytes = hole;
    end = range->end;
  }
  return best >= 0 ? best : end;
}
