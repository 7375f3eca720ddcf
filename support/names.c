/*
 * names.c -- interned strings: equal text, equal address.  An open hash table
 * whose slots hold the full hash, so that growing never reads a string again.
 */
#include "support/support.h"

#include <stdio.h>
#include <string.h>

typedef struct Slot {
  uint64_t hash;
  Name name; /* NULL: empty */
  size_t length;
} Slot;

struct Names {
  Arena *arena;
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

/* The slot that holds the text, or the empty one where it belongs. */
static Slot *find(const Names *names, uint64_t hash, const char *text,
                  size_t length) {
  size_t mask = names->capacity - 1;
  for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
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
    size_t place = (size_t)old[i].hash & mask;
    while (names->slots[place].name) place = (place + 1) & mask;
    names->slots[place] = old[i];
  }
}

Name name_intern_n(Names *names, const char *text, size_t length) {
  uint64_t hash = hash_bytes(text, length, 0);
  Slot *slot = find(names, hash, text, length);
  if (slot->name) return slot->name;
  char *copy = arena_alloc(names->arena, length + 1);
  if (length) memcpy(copy, text, length);
  *slot = (Slot){hash, copy, length};
  if (++names->n * 2 > names->capacity) grow(names);
  return copy;
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
  return name_intern(names, text);
}
