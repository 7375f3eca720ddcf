/*
 * map.c -- a hash table over addresses that remembers insertion order.
 *
 * Entries lie in an array in order of insertion; the hash table holds indices
 * into it.  Addresses differ from run to run, so only the order of insertion
 * may ever be visible.
 */
#include "support/support.h"

typedef struct Entry {
  const void *key;
  void *value;
} Entry;

struct Map {
  Arena *arena;
  VEC(Entry) entries;
  int *slots; /* index + 1 of an entry; 0: empty */
  size_t n_slots;
};

enum { FIRST_SLOTS = 16 };

Map *map_create(Arena *arena) {
  Map *map = ARENA_NEW(arena, Map);
  map->arena = arena;
  map->n_slots = FIRST_SLOTS;
  map->slots = ARENA_ARRAY(arena, int, FIRST_SLOTS);
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

static int *find(const Map *map, const void *key) {
  size_t mask = map->n_slots - 1;
  for (size_t i = (size_t)mix(key) & mask;; i = (i + 1) & mask) {
    int *slot = &map->slots[i];
    if (*slot == 0 || map->entries.data[*slot - 1].key == key) return slot;
  }
}

static void grow(Map *map) {
  map->n_slots *= 2;
  map->slots = ARENA_ARRAY(map->arena, int, map->n_slots);
  for (int i = 0; i < map->entries.n; i++)
    *find(map, map->entries.data[i].key) = i + 1;
}

void map_put(Map *map, const void *key, void *value) {
  int *slot = find(map, key);
  if (*slot) {
    map->entries.data[*slot - 1].value = value;
    return;
  }
  vec_push(map->arena, &map->entries, (Entry){key, value});
  *slot = map->entries.n;
  if ((size_t)map->entries.n * 2 > map->n_slots) grow(map);
}

void *map_get(const Map *map, const void *key) {
  int index = *find(map, key);
  return index ? map->entries.data[index - 1].value : NULL;
}

bool map_has(const Map *map, const void *key) {
  return *find(map, key) != 0;
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
