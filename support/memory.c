/*
 * memory.c -- the one allocator: arenas of zeroed chunks.
 *
 * An arena hands out parts of its newest chunk and gets a larger chunk from the
 * Memory when that is full; nothing is freed alone.  All requests for chunks
 * pass through one function, which holds a test's countdown and the handler of
 * exhaustion.  Under AddressSanitizer the rest of a chunk is poisoned, so that
 * reading past an allocation is found, and each allocation counts as a request.
 */
#include "support/support.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#define IS_CHECKED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define IS_CHECKED 1
#endif
#endif
#ifdef IS_CHECKED
#include <sanitizer/asan_interface.h>
#else
#define IS_CHECKED                            0
#define ASAN_POISON_MEMORY_REGION(at, size)   ((void)(at), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) ((void)(at), (void)(size))
#endif

enum { ALIGNMENT = 16, FIRST_CHUNK = 4096, LARGEST_CHUNK = 1 << 20 };

typedef struct Chunk {
  struct Chunk *next;
  size_t size_bytes; /* keeps the payload aligned */
} Chunk;

_Static_assert(sizeof(Chunk) % ALIGNMENT == 0 || sizeof(void *) < 8,
               "the payload of a chunk must be aligned");
/* On 32-bit machines the two words are padded. */
enum { CHUNK_HEADER = (sizeof(Chunk) + ALIGNMENT - 1) & ~(ALIGNMENT - 1) };

struct Arena {
  Memory *memory;
  Arena *previous, *next; /* all arenas of the memory */
  Chunk *chunks;          /* newest first */
  Chunk *current;         /* where `free` is; NULL: nowhere yet */
  char *free;
  size_t n_free, next_chunk;
  size_t n_bytes; /* of all chunks */
};

struct Memory {
  void (*on_exhausted)(void *user);
  void *user;
  Arena *arenas;
  int64_t n_requests, fail_after;
  bool fail_forever;
  size_t n_bytes, most_bytes; /* in use; 0: no limit */
  bool is_at_limit;
};

static bool must_fail(Memory *memory) {
  if (memory->fail_after < 0) return false;
  if (memory->fail_after > 0) {
    memory->fail_after--;
    return false;
  }
  if (!memory->fail_forever) memory->fail_after = -1;
  return true;
}

static _Noreturn void exhausted(void (*handler)(void *), void *user) {
  handler(user);
  assert_failed(__FILE__, __LINE__, __func__, "on_exhausted returned");
}

/* Does not return if this one must fail. */
static void count_request(Memory *memory) {
  memory->n_requests++;
  if (must_fail(memory)) exhausted(memory->on_exhausted, memory->user);
}

static bool exceeds_limit(Memory *memory, size_t size_bytes) {
  if (memory->most_bytes == 0) return false;
  memory->is_at_limit |= size_bytes > memory->most_bytes - memory->n_bytes;
  return memory->is_at_limit;
}

/* Zeroed bytes from the system; does not return without them. */
static void *request(Memory *memory, size_t size_bytes) {
  count_request(memory);
  void *bytes =
      exceeds_limit(memory, size_bytes) ? NULL : calloc(1, size_bytes);
  if (!bytes) exhausted(memory->on_exhausted, memory->user);
  memory->n_bytes += size_bytes;
  return bytes;
}

Memory *memory_create(void (*on_exhausted)(void *user), void *user) {
  ASSERT(on_exhausted);
  Memory *memory = calloc(1, sizeof *memory);
  if (!memory) exhausted(on_exhausted, user);
  memory->on_exhausted = on_exhausted;
  memory->user = user;
  memory->fail_after = -1;
  return memory;
}

void memory_destroy(Memory *memory) {
  if (!memory) return;
  while (memory->arenas) arena_destroy(memory->arenas);
  free(memory);
}

void memory_fail_at(Memory *memory, int64_t n, bool forever) {
  memory->fail_after = n < 0 ? -1 : n;
  memory->fail_forever = forever;
}

void memory_exhausted(Memory *memory) {
  exhausted(memory->on_exhausted, memory->user);
}

void memory_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void memory_keep_freed(void) {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 32 << 20); /* the most that it takes */
  mallopt(M_TRIM_THRESHOLD, INT_MAX);
  mallopt(M_TOP_PAD, 4 << 20);
#endif
}

void memory_limit(Memory *memory, size_t bytes) {
  ASSERT(bytes >= memory->n_bytes);
  memory->most_bytes = bytes;
}

bool memory_is_at_limit(const Memory *memory) {
  return memory->is_at_limit;
}

int64_t memory_requests(const Memory *memory) {
  return memory->n_requests;
}

Arena *arena_create(Memory *memory) {
  Arena *arena = request(memory, sizeof *arena);
  arena->memory = memory;
  arena->next_chunk = FIRST_CHUNK;
  arena->next = memory->arenas;
  if (arena->next) arena->next->previous = arena;
  memory->arenas = arena;
  return arena;
}

Memory *arena_memory(const Arena *arena) {
  return arena->memory;
}

Arena *arena_beside(const Arena *arena) {
  return arena_create(arena->memory);
}

/* All but one. */
static void free_chunks(Arena *arena, const Chunk *kept) {
  for (Chunk *chunk = arena->chunks, *next; chunk; chunk = next) {
    next = chunk->next;
    if (chunk == kept) continue;
    ASAN_UNPOISON_MEMORY_REGION(chunk, CHUNK_HEADER + chunk->size_bytes);
    arena->memory->n_bytes -= CHUNK_HEADER + chunk->size_bytes;
    free(chunk);
  }
}

void arena_destroy(Arena *arena) {
  if (!arena) return;
  if (arena->previous)
    arena->previous->next = arena->next;
  else
    arena->memory->arenas = arena->next;
  if (arena->next) arena->next->previous = arena->previous;
  free_chunks(arena, NULL);
  arena->memory->n_bytes -= sizeof *arena;
  free(arena);
}

void arena_clear(Arena *arena) {
  Chunk *kept = arena->current;
  free_chunks(arena, kept);
  arena->chunks = kept;
  arena->n_bytes = 0;
  if (!kept) return;
  char *payload = (char *)kept + CHUNK_HEADER;
  ASAN_UNPOISON_MEMORY_REGION(payload, kept->size_bytes);
  memset(payload, 0, kept->size_bytes - arena->n_free);
  ASAN_POISON_MEMORY_REGION(payload, kept->size_bytes);
  kept->next = NULL;
  arena->free = payload;
  arena->n_free = arena->n_bytes = kept->size_bytes;
}

size_t arena_bytes(const Arena *arena) {
  return arena->n_bytes - arena->n_free;
}

void arena_adopt(Arena *arena, Arena *from) {
  ASSERT(arena->memory == from->memory && arena != from);
  if (from->chunks) {
    Chunk *oldest = from->chunks;
    while (oldest->next) oldest = oldest->next;
    oldest->next = arena->chunks;
    arena->chunks = from->chunks;
  }
  arena->n_bytes += from->n_bytes - from->n_free;
  from->chunks = NULL;
  arena_destroy(from);
}

static void *add_chunk(Arena *arena, size_t size_bytes) {
  Chunk *chunk = request(arena->memory, CHUNK_HEADER + size_bytes);
  chunk->size_bytes = size_bytes;
  chunk->next = arena->chunks;
  arena->chunks = chunk;
  arena->n_bytes += size_bytes;
  char *payload = (char *)chunk + CHUNK_HEADER;
  ASAN_POISON_MEMORY_REGION(payload, size_bytes);
  return payload;
}

/* `size_bytes` of a chunk, aligned. */
static char *take(Arena *arena, size_t size_bytes) {
  if (size_bytes > arena->n_free) {
    /* A large one gets a chunk of its own, so that the rest of the current
     * chunk stays in use. */
    if (size_bytes > arena->next_chunk / 4) return add_chunk(arena, size_bytes);
    arena->n_free = arena->next_chunk - CHUNK_HEADER;
    arena->free = add_chunk(arena, arena->n_free);
    arena->current = arena->chunks;
    if (arena->next_chunk < LARGEST_CHUNK) arena->next_chunk *= 2;
  }
  char *result = arena->free;
  arena->free += size_bytes;
  arena->n_free -= size_bytes;
  return result;
}

void *arena_alloc(Arena *arena, size_t size_bytes) {
  enum { GAP = IS_CHECKED ? ALIGNMENT : 0 };
  if (size_bytes > SIZE_MAX / 2)
    exhausted(arena->memory->on_exhausted, arena->memory->user);
  if (IS_CHECKED) count_request(arena->memory);
  size_t rounded = (size_bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
  if (rounded == 0) rounded = ALIGNMENT;
  char *result = take(arena, rounded + GAP);
  ASAN_UNPOISON_MEMORY_REGION(result, size_bytes);
  return result;
}

void *arena_array(Arena *arena, int64_t n, size_t item_bytes) {
  ASSERT(n >= 0);
  ASSERT(item_bytes == 0 || (uint64_t)n <= SIZE_MAX / 2 / item_bytes);
  return arena_alloc(arena, (size_t)n * item_bytes);
}

void *arena_copy(Arena *arena, const void *data, size_t size_bytes) {
  void *copy = arena_alloc(arena, size_bytes);
  if (size_bytes) memcpy(copy, data, size_bytes);
  return copy;
}

char *arena_strdup(Arena *arena, const char *text) {
  return arena_copy(arena, text, strlen(text) + 1);
}

char *arena_vprintf(Arena *arena, const char *format, va_list args) {
  ASSERT(format);
  va_list again;
  va_copy(again, args);
  int n = vsnprintf(NULL, 0, format, again);
  va_end(again);
  ASSERT(n >= 0);
  char *text = arena_alloc(arena, (size_t)n + 1);
  vsnprintf(text, (size_t)n + 1, format, args);
  return text;
}

char *arena_printf(Arena *arena, const char *format, ...) {
  va_list args;
  va_start(args, format);
  char *text = arena_vprintf(arena, format, args);
  va_end(args);
  return text;
}
