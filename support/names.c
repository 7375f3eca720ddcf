/*
 * names.c -- interns strings: equal texts have equal addresses.  The entries of
 * the open hash table hold the hash, so that growing never reads a string
 * again.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

typedef struct Slot {
  Name name; /* NULL: empty */
  uint32_t hash, length;
} Slot;

struct Names {
  Arena *arena;
  const Names *base; /* or NULL */
  Slot *slots;
  size_t n, capacity; /* capacity: a power of two */
};

enum { FIRST_CAPACITY = 256 };

Names *names_create(Arena *arena) {
  Names *names = ARENA_NEW(arena, Names);
  names->arena = arena;
  names->capacity = FIRST_CAPACITY;
  names->slots = ARENA_ARRAY(arena, Slot, FIRST_CAPACITY);
  return names;
}

Names *names_create_above(Arena *arena, const Names *base) {
  Names *names = names_create(arena);
  names->base = base;
  return names;
}

/* The slot that holds the text, or the empty one where it belongs. */
static Slot *find(const Names *names, uint32_t hash, const char *text,
                  size_t length) {
  size_t mask = names->capacity - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot *slot = &names->slots[i];
    if (!slot->name) return slot;
    if (slot->hash == hash && slot->length == length &&
        memcmp(slot->name, text, length) == 0)
      return slot;
  }
}

static void grow(Names *names) {
  Slot *old = names->slots;
  size_t n_old = names->capacity;
  names->capacity *= 2;
  names->slots = ARENA_ARRAY(names->arena, Slot, names->capacity);
  size_t mask = names->capacity - 1;
  for (size_t i = 0; i < n_old; i++) {
    if (!old[i].name) continue;
    size_t place = old[i].hash & mask;
    while (names->slots[place].name) place = (place + 1) & mask;
    names->slots[place] = old[i];
  }
}

/* `may_keep`: the text is in the arena and becomes the name if it is new. */
static Name intern(Names *names, const char *text, size_t length,
                   bool may_keep) {
  ASSERT(length <= UINT32_MAX);
  uint32_t hash = (uint32_t)hash_bytes(text, length, 0);
  for (const Names *base = names->base; base; base = base->base) {
    const Slot *known = find(base, hash, text, length);
    if (known->name) return known->name;
  }
  Slot *slot = find(names, hash, text, length);
  if (slot->name) return slot->name;
  Name name = text;
  if (!may_keep) {
    char *copy = arena_alloc(names->arena, length + 1);
    if (length) memcpy(copy, text, length);
    name = copy;
  }
  *slot = (Slot){name, hash, (uint32_t)length};
  if (++names->n * 2 > names->capacity) grow(names);
  return name;
}

Name name_intern_n(Names *names, const char *text, size_t length) {
  return intern(names, text, length, false);
}

Name name_intern(Names *names, const char *text) {
  return name_intern_n(names, text, strlen(text));
}

/* Most names are short, and most are known already. */
Name name_format(Names *names, const char *format, ...) {
  char buffer[256];
  va_list args;
  va_start(args, format);
  int n = vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  ASSERT(n >= 0);
  if ((size_t)n < sizeof buffer) return name_intern_n(names, buffer, (size_t)n);
  va_start(args, format);
  char *text = arena_vprintf(names->arena, format, args);
  va_end(args);
  return intern(names, text, (size_t)n, true);
}

Name name_join(Names *names, const char *const *parts, int n) {
  enum { MOST_PARTS = 4 };
  ASSERT(n <= MOST_PARTS);
  size_t lengths[MOST_PARTS], length = 0;
  for (int i = 0; i < n; i++) length += lengths[i] = strlen(parts[i]);
  char buffer[256];
  bool fits = length < sizeof buffer;
  char *text = fits ? buffer : arena_alloc(names->arena, length + 1),
       *at = text;
  for (int i = 0; i < n; at += lengths[i++]) memcpy(at, parts[i], lengths[i]);
  *at = 0;
  return intern(names, text, length, !fits);
}
