/*
 * shards.c -- the numbers in the arenas of all ranks: one array for each class
 * of ranks that hold the same, and which bytes of an arena they stand for.
 *
 * All ranks run one program at the same addresses, so one list of extents says
 * what lies where on all of them.  A write replaces what it covers and leaves
 * the rest; a read of what several writes have left joins them.
 */
#include "verify/play/internal.h"

#include <string.h>

/* ---- arrays ---- */

/* Four capacities for each power of two. */
static size_t capacity_bytes(int capacity) {
  return (size_t)(4 + capacity % 4) << (4 + capacity / 4);
}

/* Memory of shards that nobody uses is used again, if it is not twice as large.
 */
static Shards *take_shards(Player *player, size_t bytes) {
  int capacity = 0;
  while (capacity_bytes(capacity) < bytes) capacity++;
  ASSERT(capacity + 4 <= SHARD_CAPACITIES);
  for (int i = capacity; i < capacity + 4; i++) {
    Shards *shards = player->unused[i];
    if (!shards) continue;
    player->unused[i] = shards->next;
    memset(shards->data, 0, bytes);
    return shards;
  }
  Shards *shards = ARENA_NEW(player->arena, Shards);
  shards->capacity = capacity;
  shards->data = arena_alloc(player->arena, capacity_bytes(capacity));
  return shards;
}

Shards *shards_create(Player *player, const RankClasses *classes, DType dtype,
                      int64_t n) {
  size_t size = numbers_size_bytes(player->options.numbers, dtype);
  Shards *shards = take_shards(player, (size_t)(n * classes->n) * size);
  shards->classes = classes;
  shards->dtype = dtype;
  shards->n_users = 1;
  shards->n = n;
  shards->size_bytes = size;
  return shards;
}

void shards_release(Player *player, Shards *shards) {
  if (--shards->n_users > 0) return;
  ASSERT(shards->n_users == 0);
  shards->next = player->unused[shards->capacity];
  player->unused[shards->capacity] = shards;
}

void *shards_of_class(const Shards *shards, int of_class) {
  return shards->data + (size_t)(of_class * shards->n) * shards->size_bytes;
}

/* The first class with the bits of this one. */
static int first_equal(const Shards *shards, const uint64_t *hashes,
                       int of_class) {
  size_t bytes = (size_t)shards->n * shards->size_bytes;
  for (int c = 0; c < of_class; c++)
    if (hashes[c] == hashes[of_class] &&
        !memcmp(shards_of_class(shards, c), shards_of_class(shards, of_class),
                bytes))
      return c;
  return of_class;
}

Shards *shards_merged(Player *player, Shards *shards) {
  const RankClasses *classes = shards->classes;
  size_t bytes = (size_t)shards->n * shards->size_bytes;
  Arena *scratch = arena_beside(player->arena);
  uint64_t *hashes = ARENA_ARRAY(scratch, uint64_t, classes->n);
  uint64_t *keys = ARENA_ARRAY(scratch, uint64_t, player->options.ranks);
  int *equal = ARENA_ARRAY(scratch, int, classes->n);
  for (int c = 0; c < classes->n; c++) {
    hashes[c] = hash_bytes(shards_of_class(shards, c), bytes, 0);
    equal[c] = first_equal(shards, hashes, c);
  }
  for (int rank = 0; rank < player->options.ranks; rank++)
    keys[rank] = (uint64_t)equal[classes->of_rank[rank]];
  const RankClasses *fewer = classes_of_keys(player, keys);
  arena_destroy(scratch);
  if (fewer == classes) return shards;
  Shards *merged = shards_create(player, fewer, shards->dtype, shards->n);
  for (int c = 0; c < fewer->n; c++)
    memcpy(shards_of_class(merged, c),
           shards_of_class(shards, classes->of_rank[fewer->first[c]]), bytes);
  shards_release(player, shards);
  return merged;
}

void play_poison(Player *player, DType dtype, void *to, int64_t n) {
  uint64_t key = hash_bytes(&player->n_random, sizeof player->n_random,
                            player->options.seed);
  player->n_random++;
  numbers_poison(player->options.numbers, dtype, to, n, key);
}

/* ---- extents ---- */

static int64_t item_bytes(const Extent *extent) {
  return dtype_size_bytes(extent->shards->dtype);
}

/* The first extent that ends after an address. */
static int find_extent(const Player *player, int64_t at) {
  int low = 0, high = player->extents.n;
  while (low < high) {
    int middle = (low + high) / 2;
    if (player->extents.data[middle].end > at)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

/* The complete elements of an extent before, and from, an address inside it.
 */
static Extent extent_before(Extent extent, int64_t at) {
  extent.end = at - (at - extent.begin) % item_bytes(&extent);
  return extent;
}

static Extent extent_from(Extent extent, int64_t at) {
  int64_t item = item_bytes(&extent);
  int64_t n = (at - extent.begin + item - 1) / item;
  extent.begin += n * item;
  extent.first += n;
  return extent;
}

/* Extents [from, to) become these, which have their users already. */
static void replace_extents(Player *player, int from, int to,
                            const Extent *with, int n) {
  for (int i = from; i < to; i++)
    shards_release(player, player->extents.data[i].shards);
  int n_after = player->extents.n - to;
  for (int i = player->extents.n; i < from + n + n_after; i++)
    vec_push(player->arena, &player->extents, (Extent){0});
  if (n_after > 0)
    memmove(&player->extents.data[from + n], &player->extents.data[to],
            (size_t)n_after * sizeof(Extent));
  for (int i = 0; i < n; i++) player->extents.data[from + i] = with[i];
  player->extents.n = from + n + n_after;
}

static int add_extent(Extent *list, int n, Extent extent) {
  if (extent.begin >= extent.end) return n;
  extent.shards->n_users++;
  list[n] = extent;
  return n + 1;
}

/* The extents at [begin, end) make room for `new`, unless that is empty. */
static void put_extent(Player *player, int64_t begin, int64_t end, Extent new) {
  int from = find_extent(player, begin), to = from, n = 0;
  Extent list[3];
  while (to < player->extents.n && player->extents.data[to].begin < end) to++;
  if (from < to && player->extents.data[from].begin < begin)
    n = add_extent(list, n, extent_before(player->extents.data[from], begin));
  n = add_extent(list, n, new);
  if (from < to && player->extents.data[to - 1].end > end)
    n = add_extent(list, n, extent_from(player->extents.data[to - 1], end));
  replace_extents(player, from, to, list, n);
}

void extents_clear(Player *player, int64_t begin, int64_t end) {
  put_extent(player, begin, end, (Extent){0});
}

void extents_put(Player *player, int64_t at, ShardView view, int64_t n) {
  ASSERT(view.first + n <= view.shards->n);
  if (n == 0) return;
  int64_t end = at + n * dtype_size_bytes(view.shards->dtype);
  put_extent(player, at, end, (Extent){at, end, view.shards, view.first});
}

/* ---- reading ---- */

/* A read of n elements of a dtype at an address. */
typedef struct ExtentRead {
  Player *player;
  int64_t at, item, n;
  DType dtype;
  size_t size_bytes;
} ExtentRead;

/* Returns whether the extent holds element i of what is read. */
static bool holds_element(const ExtentRead *read, const Extent *extent,
                          int64_t i) {
  int64_t at = read->at + i * read->item;
  return item_bytes(extent) == read->item &&
         extent->shards->size_bytes == read->size_bytes &&
         extent->begin <= at && at + read->item <= extent->end &&
         (at - extent->begin) % read->item == 0;
}

/* The extent with element i, or NULL; out_end: up to which element that is
 * so. */
static const Extent *extent_of_element(const ExtentRead *read, int64_t i,
                                       int64_t *out_end) {
  const Player *player = read->player;
  int64_t at = read->at + i * read->item;
  int k = find_extent(player, at);
  const Extent *extent =
      k < player->extents.n ? &player->extents.data[k] : NULL;
  *out_end = read->n;
  if (!extent) return NULL;
  bool is_held = holds_element(read, extent, i);
  int64_t until = is_held || extent->begin <= at ? extent->end : extent->begin;
  int64_t end = i + (until - at + (is_held ? 0 : read->item - 1)) / read->item;
  if (end <= i) end = i + 1;
  if (end < read->n) *out_end = end;
  return is_held ? extent : NULL;
}

static int64_t element_in_shards(const ExtentRead *read, const Extent *extent,
                                 int64_t i) {
  return extent->first +
         (read->at + i * read->item - extent->begin) / read->item;
}

/* Copies elements [begin, end) for each class. */
static void copy_piece(const ExtentRead *read, const Extent *extent,
                       int64_t begin, int64_t end, Shards *to) {
  size_t bytes = (size_t)(end - begin) * read->size_bytes;
  int64_t first = element_in_shards(read, extent, begin);
  for (int c = 0; c < to->classes->n; c++) {
    int from = extent->shards->classes->of_rank[to->classes->first[c]];
    memcpy((char *)shards_of_class(to, c) + (size_t)begin * read->size_bytes,
           (const char *)shards_of_class(extent->shards, from) +
               (size_t)first * read->size_bytes,
           bytes);
  }
}

/* Writes equal poison on all ranks. */
static void poison_piece(const ExtentRead *read, int64_t begin, int64_t end,
                         Shards *to) {
  size_t offset = (size_t)begin * read->size_bytes;
  size_t bytes = (size_t)(end - begin) * read->size_bytes;
  char *first = (char *)shards_of_class(to, 0) + offset;
  play_poison(read->player, read->dtype, first, end - begin);
  for (int c = 1; c < to->classes->n; c++)
    memcpy((char *)shards_of_class(to, c) + offset, first, bytes);
}

static Shards *join_pieces(const ExtentRead *read) {
  Player *player = read->player;
  const RankClasses *classes = classes_of_all(player);
  int64_t end;
  for (int64_t i = 0; i < read->n; i = end) {
    const Extent *extent = extent_of_element(read, i, &end);
    if (extent)
      classes = classes_join(player, classes, extent->shards->classes);
  }
  Shards *joined = shards_create(player, classes, read->dtype, read->n);
  for (int64_t i = 0; i < read->n; i = end) {
    const Extent *extent = extent_of_element(read, i, &end);
    if (extent)
      copy_piece(read, extent, i, end, joined);
    else
      poison_piece(read, i, end, joined);
  }
  return joined;
}

/* The joined elements lie there from now on, so that poison stays what it is.
 */
ShardView extents_read(Player *player, int64_t at, DType dtype, int64_t n) {
  size_t size_bytes = numbers_size_bytes(player->options.numbers, dtype);
  ExtentRead read = {.player = player,
                     .at = at,
                     .item = dtype_size_bytes(dtype),
                     .n = n,
                     .dtype = dtype,
                     .size_bytes = size_bytes};
  int64_t end = 0;
  const Extent *extent = n > 0 ? extent_of_element(&read, 0, &end) : NULL;
  if (extent && end == n) {
    extent->shards->n_users++;
    return (ShardView){extent->shards, element_in_shards(&read, extent, 0)};
  }
  ShardView view = {join_pieces(&read), 0};
  extents_put(player, at, view, n);
  return view;
}
