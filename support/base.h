/*
 * base.h -- declares our own mistakes, the machine's failures, memory, and what
 * is stored in it: growing arrays, names, maps.
 */
#ifndef SUPPORT_BASE_H
#define SUPPORT_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_LENGTH(array)      ((int)(sizeof(array) / sizeof((array)[0])))
#define PRINTF_LIKE(text, first) __attribute__((format(printf, text, first)))

/* ---- assert.c: our own mistakes; also in release builds, exit code 4 ---- */

#define ASSERT(condition)                                                      \
  ((condition) ? (void)0                                                       \
               : assert_failed(__FILE__, __LINE__, __func__, #condition))
#define UNREACHABLE() assert_failed(__FILE__, __LINE__, __func__, "unreachable")

_Noreturn void assert_failed(const char *file, int line, const char *function,
                             const char *condition);

/* ---- status.c: the machine's failures ---- */

typedef enum StatusCode {
  STATUS_ok = 0,
  STATUS_io,          /* a file or disk */
  STATUS_unavailable, /* a library, device or tool that is not there */
  STATUS_lost,        /* a rank that died or went silent */
  STATUS_invalid,     /* data from outside that is not what it must be */
  STATUS_stopped,     /* a signal asks for the end */
} StatusCode;

/* The message lives as long as the process (status_make keeps the last 64 per
 * thread); ok has none.  */
typedef struct Status {
  StatusCode code;
  const char *message;
} Status;

#define STATUS_OK ((Status){STATUS_ok, NULL})
#define TRY(call)                                                              \
  do {                                                                         \
    Status try_status = (call);                                                \
    if (try_status.code != STATUS_ok) return try_status;                       \
  } while (0)

Status status_make(StatusCode code, const char *format, ...) PRINTF_LIKE(2, 3);
/* Adds ": strerror(error)" to the formatted message. */
Status status_errno(int error, const char *format, ...) PRINTF_LIKE(2, 3);

/* ---- memory.c: the one allocator ---- */

typedef struct Memory Memory;
typedef struct Arena Arena;

/* Creates a memory.  `on_exhausted` must not return; it may call
 * memory_destroy. */
Memory *memory_create(void (*on_exhausted)(void *user), void *user);
/* Frees every arena made from it.  */
void memory_destroy(Memory *memory);
/* Ends as if a request had failed: for the owner of a thread whose own memory
 * has none left. */
_Noreturn void memory_exhausted(Memory *memory);
/* Gives what destroyed arenas had back to the system, where malloc can: other
 * threads have no use for it.  The first call of a process must come before it
 * starts threads: where another malloc is in use (AddressSanitizer's), it makes
 * glibc's own ready, which two threads cannot do at a time (glibc 2.36,
 * ptmalloc_init). */
void memory_trim(void);
/* Lets malloc keep what destroyed arenas had for the next ones, until
 * memory_trim: the system clears each page that it gives, which takes longer
 * than most passes.  For the whole process, and for programs that allocate all
 * they need through Memory. */
void memory_keep_freed(void);
/* Limits a memory to this many bytes at a time: a request beyond them fails. */
void memory_limit(Memory *memory, size_t bytes);
/* Returns whether a request has failed for that. */
bool memory_is_at_limit(const Memory *memory);
/* Makes, for tests, the nth chunk request from now fail (n = 0 is the next),
 * and every later one too if `forever`.  Negative n switches it off. */
void memory_fail_at(Memory *memory, int64_t n, bool forever);
/* Returns how many chunk requests were made so far. */
int64_t memory_requests(const Memory *memory);

Arena *arena_create(Memory *memory);
/* Creates another arena of the same memory. */
Arena *arena_beside(const Arena *arena);
/* Returns the memory that an arena is made from. */
Memory *arena_memory(const Arena *arena);
void arena_destroy(Arena *arena);
/* Frees all that it holds, and keeps a chunk for what comes next. */
void arena_clear(Arena *arena);
/* Gives the first arena all allocations of the second, which is destroyed. Both
 * are of the same memory. */
void arena_adopt(Arena *arena, Arena *from);
/* Returns the bytes of all allocations so far, and of unused ends of chunks but
 * the last. */
size_t arena_bytes(const Arena *arena);
/* Allocates zeroed memory, aligned to 16 bytes, never NULL; it lives until the
 * arena is destroyed.  Size 0 gives a valid pointer. */
void *arena_alloc(Arena *arena, size_t size_bytes);
void *arena_copy(Arena *arena, const void *data, size_t size_bytes);
char *arena_strdup(Arena *arena, const char *text);
char *arena_printf(Arena *arena, const char *format, ...) PRINTF_LIKE(2, 3);
char *arena_vprintf(Arena *arena, const char *format, va_list args);
#define ARENA_NEW(arena, type) ((type *)arena_alloc((arena), sizeof(type)))
#define ARENA_ARRAY(arena, type, n)                                            \
  ((type *)arena_array((arena), (int64_t)(n), sizeof(type)))
/* Asserts that n >= 0 and n * item_bytes does not overflow. */
void *arena_array(Arena *arena, int64_t n, size_t item_bytes);

/* ---- vec.c: growing arrays in an arena ---- */

/* `VEC(int) v = {0}; vec_push(arena, &v, 3); v.data[0]; v.n` */
#define VEC(type)                                                              \
  struct {                                                                     \
    type *data;                                                                \
    int n, capacity;                                                           \
  }
#define vec_push(arena, vec, ...)                                              \
  ((vec)->n < (vec)->capacity                                                  \
       ? (void)0                                                               \
       : vec_grow((arena), (void **)&(vec)->data, &(vec)->capacity, (vec)->n,  \
                  sizeof(*(vec)->data)),                                       \
   (vec)->data[(vec)->n++] = (__VA_ARGS__))
void vec_grow(Arena *arena, void **data, int *capacity, int n,
              size_t item_bytes);
/* Room for `wanted` items in all, of an array that is still empty. */
#define vec_reserve(arena, vec, wanted)                                        \
  (ASSERT((vec)->n == 0), (vec)->capacity = (wanted),                          \
   (vec)->data = arena_array((arena), (vec)->capacity, sizeof(*(vec)->data)))

/* ---- numbers ---- */

/* Returns the greatest common divisor; negative numbers may give a negative
 * one. */
static inline int64_t common_divisor(int64_t a, int64_t b) {
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* ---- names.c: interned strings, compared by address ---- */

typedef const char *Name; /* NUL-terminated; only ever from name_intern */
typedef struct Names Names;

Names *names_create(Arena *arena);
/* Holds the names of `base` too, which may get no new ones while this table is
 * in use.  So several threads can each intern names above one base. */
Names *names_create_above(Arena *arena, const Names *base);
Name name_intern(Names *names, const char *text);
Name name_intern_n(Names *names, const char *text, size_t length);
Name name_format(Names *names, const char *format, ...) PRINTF_LIKE(2, 3);
/* Joins at most four parts, one after the other, as paths are made. */
Name name_join(Names *names, const char *const *parts, int n);

/* ---- map.c: a hash table from 64-bit keys or pointers; insertion order is
 *      kept for iteration, so that walking one is deterministic ---- */

typedef struct Map Map;

Map *map_create(Arena *arena);
/* Puts a value; replaces the one that the key had. */
void map_put(Map *map, const void *key, void *value);
/* Returns the value of a key.  Returns NULL if it is absent. */
void *map_get(const Map *map, const void *key);
bool map_has(const Map *map, const void *key);
int map_size(const Map *map);
const void *map_key_at(const Map *map, int index);
void *map_value_at(const Map *map, int index);

/* A table from pairs of numbers, none negative, wherever pointers have 32
 * bits, too. */
typedef struct PairMap PairMap;

PairMap *pair_map_create(Arena *arena);
void pair_map_put(PairMap *map, int a, int b, void *value);
/* Returns the value of a pair.  Returns NULL if it is absent. */
void *pair_map_get(const PairMap *map, int a, int b);

#endif
