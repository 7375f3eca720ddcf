/*
 * dot_tiles.c -- finds rows of a matmul that were computed before: equal
 * samples make equal rows, and verification has many of them.  Equality is that
 * of bits.
 */
#include <string.h>

#include "interp/internal.h"

DotTiles dot_tiles(Arena *arena, const void *factors, int64_t n_rows,
                   size_t row_bytes) {
  DotTiles tiles = {.factors = factors, .row_bytes = row_bytes, .n_slots = 1};
  while (tiles.n_slots * DOT_TILE < 2 * n_rows) tiles.n_slots *= 2;
  tiles.slots = ARENA_ARRAY(arena, int64_t, tiles.n_slots);
  return tiles;
}

void dot_tiles_forget(DotTiles *tiles) {
  memset(tiles->slots, 0, (size_t)tiles->n_slots * sizeof *tiles->slots);
}

int64_t dot_tiles_find(DotTiles *tiles, int64_t r) {
  size_t bytes = tiles->row_bytes * DOT_TILE;
  const char *tile = tiles->factors + (size_t)r * tiles->row_bytes;
  uint64_t at = hash_bytes(tile, bytes, 0);
  for (;; at++) {
    int64_t *slot = &tiles->slots[at & (uint64_t)(tiles->n_slots - 1)];
    if (*slot == 0) {
      *slot = r + 1;
      return r;
    }
    int64_t first = *slot - 1;
    if (!memcmp(tiles->factors + (size_t)first * tiles->row_bytes, tile, bytes))
      return first;
  }
}
