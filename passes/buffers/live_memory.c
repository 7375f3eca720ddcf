/*
 * live_memory.c -- the bytes that are in use, by slots of time.
 *
 * The nodes of a graph, in the order in which they run, are cut into slots of
 * equal length.  A buffer that is live through a whole slot belongs to the
 * union of such buffers; one that begins or ends inside it stands in a list,
 * with its live range.  Packed buffers leave few holes, so a union is short
 * however many buffers are live, and the list is short because a slot is.
 *
 *     nodes        0 1 2 3 | 4 5 6 7 | 8 9
 *     bytes 0..8       a a | a a a a | a        slot 0: a from 2 to 3 in part
 *     bytes 8..12    b b   |   c c   |          slot 1: 0..8 whole, c in part
 *
 * A binary tree over the slots holds the union of all that is in use at some
 * time, so that a live range of many slots reads few unions, too.
 */
#include "passes/buffers/live_memory.h"

#include <string.h>

/* Ascending; neither overlapping nor next to each other. */
typedef VEC(MemoryRange) MemoryRanges;

typedef struct LiveBuffer {
  int first, last;
  MemoryRange range;
} LiveBuffer;

typedef struct Slot {
  MemoryRanges whole;
  VEC(LiveBuffer) part; /* by offset */
} Slot;

struct LiveMemory {
  Arena *arena;
  int slot_nodes; /* in a slot */
  int n_slots;    /* a power of two */
  Slot *slots;
  /* In use at some time.  1: in all slots, below i: 2 i and 2 i + 1, and from
   * n_slots on: in one slot each. */
  MemoryRanges *any;
  MemoryRanges used, merged, part; /* of a request */
};

/* With n nodes there are sqrt(n) slots at most, to which a buffer is added, and
 * a request looks through the buffers that begin or end in two of them. */
LiveMemory *live_memory_create(Arena *arena, int n_nodes) {
  LiveMemory *memory = ARENA_NEW(arena, LiveMemory);
  memory->arena = arena;
  memory->n_slots = 1;
  while (4 * memory->n_slots * memory->n_slots <= n_nodes) memory->n_slots *= 2;
  memory->slot_nodes = n_nodes / memory->n_slots + 1;
  memory->slots = ARENA_ARRAY(arena, Slot, memory->n_slots);
  memory->any = ARENA_ARRAY(arena, MemoryRanges, 2 * memory->n_slots);
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
static void append_range(Arena *arena, MemoryRanges *ranges,
                         MemoryRange range) {
  MemoryRange *last = ranges->n > 0 ? &ranges->data[ranges->n - 1] : NULL;
  if (!last || last->end < range.offset)
    vec_push(arena, ranges, range);
  else if (last->end < range.end)
    last->end = range.end;
}

/* Makes `used` the union of itself and `more`. */
static void use_ranges(LiveMemory *memory, const MemoryRanges *more) {
  if (more->n == 0) return;
  MemoryRanges from = memory->used, *to = &memory->merged;
  to->n = 0;
  for (int f = 0, m = 0; f < from.n || m < more->n;) {
    bool takes_more = f == from.n || (m < more->n && more->data[m].offset <
                                                         from.data[f].offset);
    append_range(memory->arena, to,
                 takes_more ? more->data[m++] : from.data[f++]);
  }
  memory->used = *to;
  *to = from;
}

/* ---- slots ---- */

static void insert_part(Arena *arena, Slot *slot, LiveBuffer buffer) {
  vec_push(arena, &slot->part, buffer);
  int at = slot->part.n - 1;
  LiveBuffer *part = slot->part.data;
  for (; at > 0 && part[at - 1].range.offset > buffer.range.offset; at--)
    part[at] = part[at - 1];
  part[at] = buffer;
}

void live_memory_add(LiveMemory *memory, int first, int last,
                     MemoryRange range) {
  if (range.offset == range.end) return;
  int nodes = memory->slot_nodes, begin = first / nodes, end = last / nodes;
  ASSERT(0 <= begin && begin <= end && end < memory->n_slots);
  for (int s = begin; s <= end; s++) {
    Slot *slot = &memory->slots[s];
    if (first <= s * nodes && (s + 1) * nodes <= last + 1)
      add_range(memory->arena, &slot->whole, range);
    else
      insert_part(memory->arena, slot, (LiveBuffer){first, last, range});
  }
  begin += memory->n_slots, end += memory->n_slots;
  for (; begin > 0; begin /= 2, end /= 2)
    for (int i = begin; i <= end; i++)
      add_range(memory->arena, &memory->any[i], range);
}

/* Adds to `used` what is in use from node `first` to node `last`, which may lie
 * before and behind the slot. */
static void use_slot(LiveMemory *memory, const Slot *slot, int first,
                     int last) {
  MemoryRanges *part = &memory->part;
  part->n = 0;
  for (int i = 0; i < slot->part.n; i++) {
    const LiveBuffer *buffer = &slot->part.data[i];
    if (buffer->first <= last && first <= buffer->last)
      append_range(memory->arena, part, buffer->range);
  }
  use_ranges(memory, &slot->whole);
  use_ranges(memory, part);
}

static void find_used(LiveMemory *memory, int first, int last) {
  int begin = first / memory->slot_nodes, end = last / memory->slot_nodes;
  memory->used.n = 0;
  int low = memory->n_slots + begin + 1, high = memory->n_slots + end - 1;
  for (; low <= high; low /= 2, high /= 2) {
    if (low % 2 == 1) use_ranges(memory, &memory->any[low++]);
    if (high % 2 == 0) use_ranges(memory, &memory->any[high--]);
  }
  use_slot(memory, &memory->slots[begin], first, last);
  if (begin < end) use_slot(memory, &memory->slots[end], first, last);
}

int64_t live_memory_best_fit(LiveMemory *memory, int first, int last,
                             int64_t bytes, int64_t base) {
  find_used(memory, first, last);
  int64_t best = -1, best_bytes = INT64_MAX, end = base;
  for (int i = 0; i < memory->used.n && best_bytes > bytes; i++) {
    const MemoryRange *range = &memory->used.data[i];
    int64_t hole = range->offset - end;
    if (hole >= bytes && hole < best_bytes) best = end, best_bytes = hole;
    end = range->end;
  }
  return best >= 0 ? best : end;
}
