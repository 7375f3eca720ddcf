/*
 * map.c -- a hash table over addresses that remembers insertion order.
 *
 * Entries lie in an array in order of insertion; the hash table holds indices
 * into it.  A map of a few entries has no table.  Addresses differ from run to
 * run, so only the order of insertion may ever be visible.
 */
#include "support/support.h"

typedef struct Entry {
  const void *key;
  void *value;
} Entry;

struct Map {
  Arena *arena;
  VEC(Entry) entries;
  int *slots;     /* index + 1 of an entry; 0: empty */
  size_t n_slots; /* 0: every entry is looked at */
};

enum { FEW_ENTRIES = 8, FIRST_SLOTS = 32 };

Map *map_create(Arena *arena) {
  Map *map = ARENA_NEW(arena, Map);
  map->arena = arena;
  return map;
}

/* Finalizer of MurmurHash3: neighbouring addresses differ in few bits. */
static uint64_t mix(const void *key) {
  uint64_t h = (uint64_t)(uintptr_t)key;
  h ^= h >> 33;
  h *= UINT64_C(0xff51afd7ed558ccd);
  h ^= h >> 33;
  h *= UINT64_C(0xc4ceb9fe1a85ec53);
  return h ^ (h >> 33);
}

/* Where the table has the entry of this key, or would have it. */
static int *find_slot(const Map *map, const void *key) {
  size_t mask = map->n_slots - 1;
  for (size_t i = (size_t)mix(key) & mask;; i = (i + 1) & mask) {
    int *slot = &map->slots[i];
    if (*slot == 0 || map->entries.data[*slot - 1].key == key) return slot;
  }
}

static Entry *find(const Map *map, const void *key) {
  if (map->n_slots > 0) {
    int index = *find_slot(map, key);
    return index ? &map->entries.data[index - 1] : NULL;
  }
  for (int i = 0; i < map->entries.n; i++)
    if (map->entries.data[i].key == key) return &map->entries.data[i];
  return NULL;
}

/* A table of twice the size, with the entries that there are. */
static void grow(Map *map) {
  map->n_slots = map->n_slots ? map->n_slots * 2 : FIRST_SLOTS;
  map->slots = ARENA_ARRAY(map->arena, int, map->n_slots);
  for (int i = 0; i < map->entries.n; i++)
    *find_slot(map, map->entries.data[i].key) = i + 1;
}

void map_put(Map *map, const void *key, void *value) {
  Entry *known = find(map, key);
  if (known) {
    known->value = value;
    return;
  }
  vec_push(map->arena, &map->entries, (Entry){key, value});
  size_t n = (size_t)map->entries.n;
  if (n > FEW_ENTRIES && n * 2 > map->n_slots)
    grow(map);
  else if (map->n_slots > 0)
    *find_slot(map, key) = map->entries.n;
}

void *map_get(const Map *map, const void *key) {
  const Entry *entry = find(map, key);
  return entry ? entry->value : NULL;
}

bool map_has(const Map *map, const void *key) {
  return find(map, key) != NULL;
}

int map_size(const Map *map) {
  return map->entries.n;
}

const void *map_key_at(const Map *map, int index) {
  ASSERT(index >= 0 && index < map->entries.n);
  return map->entries.data[index].key;
}

void *map_value_at(const Map *map, int index) {
  ASSERT(index >= 0 && index < map->entries.n);
  return map->entries.data[index].value;
}

/* ---- pairs ---- */

struct PairMap {
  Arena *arena;
  Map *rows; /* by the first number: a map by the second */
};

static const void *number_key(int number) {
  return (const void *)((uintptr_t)number + 1);
}

PairMap *pair_map_create(Arena *arena) {
  PairMap *map = ARENA_NEW(arena, PairMap);
  *map = (PairMap){arena, map_create(arena)};
  return map;
}

void pair_map_put(PairMap *map, int a, int b, void *value) {
  Map *row = map_get(map->rows, number_key(a));
  if (!row) {
    row = map_create(map->arena);
    map_put(map->rows, number_key(a), row);
  }
  map_put(row, number_key(b), value);
}

void *pair_map_get(const PairMap *map, int a, int b) {
  const Map *row = map_get(map->rows, number_key(a));
  return row ? map_get(row, number_key(b)) : NULL;
}
