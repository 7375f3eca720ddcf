// links: passes ir support
/*
 * live_memory.c -- packs random buffers by best fit, and each time looks for
 * the same hole byte by byte among all buffers placed before.
 */
#include "passes/buffers/live_memory.h"
#include "tests/unit/values.h"

TestSuite(live_memory, .fini = modules_destroy);

enum { N_BUFFERS = 400, MAX_END = 1 << 16, BASE = 64 };

typedef struct PlacedBuffer {
  int first, last;
  MemoryRange range;
} PlacedBuffer;

/* The smallest hole, and of equal ones the lowest; else the end. */
static int64_t search_bytes(const PlacedBuffer *placed, int n, int first,
                            int last, int64_t bytes) {
  static bool used[MAX_END];
  memset(used, 0, sizeof used);
  int64_t end = BASE, best = -1, best_bytes = INT64_MAX;
  for (int i = 0; i < n; i++) {
    if (placed[i].last < first || placed[i].first > last) continue;
    MemoryRange range = placed[i].range;
    cr_assert_leq(range.end, MAX_END);
    memset(&used[range.offset], 1, (size_t)(range.end - range.offset));
    if (range.end > end) end = range.end;
  }
  for (int64_t at = BASE; at < end;) {
    int64_t begin = at;
    while (at < end && !used[at]) at++;
    if (at - begin >= bytes && at - begin < best_bytes)
      best = begin, best_bytes = at - begin;
    while (at < end && used[at]) at++;
  }
  return best >= 0 ? best : end;
}

/* Lives of a few nodes and of most of the graph alternate; sizes come from few,
 * so that some holes fit exactly. */
static void pack_random(uint64_t seed, int n_nodes) {
  Module *module = module_create();
  LiveMemory *live = live_memory_create(module->arena, n_nodes);
  PlacedBuffer placed[N_BUFFERS];
  int draw = 0;
  for (int i = 0; i < N_BUFFERS; i++) {
    int longest = random_below(seed, draw++, 4) == 0 ? n_nodes : 8;
    int first = (int)random_below(seed, draw++, n_nodes);
    int last = first + (int)random_below(seed, draw++, longest);
    if (last >= n_nodes) last = n_nodes - 1;
    int64_t bytes = 16 * (1 + (int64_t)random_below(seed, draw++, 8));
    int64_t offset = live_memory_best_fit(live, first, last, bytes, BASE);
    cr_assert_eq(offset, search_bytes(placed, i, first, last, bytes),
                 "buffer %d of %d nodes, seed %d", i, n_nodes, (int)seed);
    placed[i] = (PlacedBuffer){first, last, {offset, offset + bytes}};
    live_memory_add(live, first, last, placed[i].range);
  }
}

Test(live_memory, finds_the_best_hole) {
  static const int n_nodes[] = {1, 2, 7, 16, 100, 333, 1024};
  for (int i = 0; i < ARRAY_LENGTH(n_nodes); i++)
    for (uint64_t seed = 1; seed <= 5; seed++) pack_random(seed, n_nodes[i]);
}

Test(live_memory, takes_no_bytes_at_the_base) {
  Module *module = module_create();
  LiveMemory *live = live_memory_create(module->arena, 10);
  cr_expect_eq(live_memory_best_fit(live, 0, 9, 0, BASE), BASE);
  live_memory_add(live, 0, 9, (MemoryRange){BASE, BASE});
  cr_expect_eq(live_memory_best_fit(live, 0, 9, 8, BASE), BASE);
}
