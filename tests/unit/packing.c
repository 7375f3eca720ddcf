// links: passes ir support
/*
 * packing.c -- packs random buffers, and looks at every pair of them.
 */
#include "passes/buffers/packing.h"
#include "tests/unit/values.h"

TestSuite(packing, .fini = modules_destroy);

enum { MAX_BUFFERS = 3000, ALIGNMENT = 64, BASE = 128 };

static bool are_apart(const PackedBuffer *a, const PackedBuffer *b) {
  return a->last < b->first || b->last < a->first ||
         a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
}

/* Offsets are aligned, buffers that are live at once lie apart, and the end is
 * that of the highest. */
static void check_packed(const PackedBuffer *buffers, int n, int64_t top) {
  int64_t end = BASE;
  for (int i = 0; i < n; i++) {
    const PackedBuffer *buffer = &buffers[i];
    cr_assert(buffer->offset >= BASE && buffer->offset % ALIGNMENT == 0,
              "buffer %d", i);
    if (buffer->offset + buffer->bytes > end)
      end = buffer->offset + buffer->bytes;
    for (int k = 0; k < i; k++)
      cr_assert(are_apart(buffer, &buffers[k]), "buffers %d and %d", k, i);
  }
  cr_expect_eq(top, end);
}

/* Returns a buffer like those of a graph of many layers: of every three buffers
 * one lives to the mirror image of its birth, and two of three are small. */
static PackedBuffer random_buffer(uint64_t seed, int i, int n_nodes) {
  int first = (int)random_below(seed, 4 * i, n_nodes);
  int last = first + (int)random_below(seed, 4 * i + 1, 8);
  if (i % 3 == 0 && first < n_nodes / 2) last = n_nodes - 1 - first;
  int64_t bytes = (int64_t)random_below(seed, 4 * i + 2, 300);
  if (random_below(seed, 4 * i + 3, 3) == 0) bytes *= 1 << 16;
  return (PackedBuffer){
      .bytes = bytes, .first = first, .last = last < n_nodes ? last : n_nodes};
}

Test(packing, keeps_live_buffers_apart) {
  static PackedBuffer buffers[MAX_BUFFERS];
  static const int sizes[] = {0, 1, 2, 50, 1000, 1001, MAX_BUFFERS};
  for (int s = 0; s < ARRAY_LENGTH(sizes); s++) {
    Module *module = module_create();
    int n = sizes[s], n_nodes = n / 2 + 1;
    for (int i = 0; i < n; i++)
      buffers[i] = random_buffer((uint64_t)s + 1, i, n_nodes);
    int64_t top =
        pack_buffers(module->arena, buffers, n, n_nodes, ALIGNMENT, BASE);
    check_packed(buffers, n, top);
    cr_expect(top - BASE >=
              most_live_bytes(module->arena, buffers, n, n_nodes));
  }
}

/* Small buffers of one size take what is live of them at once, and lie below
 * the large ones. */
Test(packing, small_buffers_take_turns) {
  Module *module = module_create();
  static PackedBuffer buffers[MAX_BUFFERS];
  int64_t large = INT64_C(1) << 30;
  for (int i = 0; i < 1000; i++)
    buffers[i] = (PackedBuffer){.bytes = large, .first = i, .last = i + 1};
  for (int i = 1000; i < MAX_BUFFERS; i++)
    buffers[i] = (PackedBuffer){
        .bytes = 4, .first = (i * 7) % 1000, .last = (i * 7) % 1000 + 2};
  int64_t small =
      most_live_bytes(module->arena, buffers + 1000, MAX_BUFFERS - 1000, 1002);
  cr_assert_eq(small, 6 * 4); /* two are born at each node */
  int64_t top =
      pack_buffers(module->arena, buffers, MAX_BUFFERS, 1002, ALIGNMENT, BASE);
  check_packed(buffers, MAX_BUFFERS, top);
  cr_expect_eq(top, BASE + small / 4 * ALIGNMENT + 2 * large);
  for (int i = 1000; i < MAX_BUFFERS; i++)
    cr_expect(buffers[i].offset < BASE + small / 4 * ALIGNMENT);
}
