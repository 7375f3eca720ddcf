/*
 * unroll.c -- repeats the units of the block that stands for many.
 *
 *     2 -> 3 (times 3) -> 4        2 -> 3 -> 3' -> 3'' -> 4
 *
 * Blocks are equal, so an edge from 3 to 3' is one from 2 to 3.  A unit of
 * block 2 and the unit of block 3 at the same place in theirs are alike.
 */
#include "planner/unroll.h"

/* A unit in a block that stands for many, or beside it. */
typedef struct Unrolling {
  Arena *arena;
  const Units *units;
  int *first;  /* by unit: its first copy; the others follow */
  int *inside; /* by unit: how many units of its block come before it */
  VEC(int) unit;
  VEC(UnrolledEdge) edges;
  bool has_far_edge;
} Unrolling;

static int64_t times_of(const Unrolling *u, int unit) {
  return u->units->units.data[unit]->times;
}

static int block_of(const Unrolling *u, int unit) {
  return u->units->units.data[unit]->block;
}

static void add_units(Unrolling *u) {
  const Units *units = u->units;
  u->first = ARENA_ARRAY(u->arena, int, units->units.n + 1);
  u->inside = ARENA_ARRAY(u->arena, int, units->units.n + 1);
  for (int i = 0; i < units->units.n; i++) {
    for (int k = 0; k < i && block_of(u, i) >= 0; k++)
      u->inside[i] += block_of(u, k) == block_of(u, i);
    u->first[i] = u->unit.n;
    for (int64_t t = 0; t < times_of(u, i); t++)
      vec_push(u->arena, &u->unit, i);
  }
}

static void put(Unrolling *u, int edge, int from, int to) {
  vec_push(u->arena, &u->edges, ((UnrolledEdge){from, to, edge}));
}

/* The unit at the same place of another block.  Returns -1 if it is none. */
static int same_place(const Unrolling *u, int unit, int block) {
  for (int i = 0; i < u->units->units.n; i++)
    if (block_of(u, i) == block && u->inside[i] == u->inside[unit]) return i;
  return -1;
}

/* An edge into or out of the block that stands for many, from or to the block
 * before: it is there between all copies, too. */
static void add_between(Unrolling *u, int i, int many, int before,
                        bool is_from_many) {
  int like = same_place(u, before, block_of(u, many));
  int first = u->first[many];
  if (like < 0 || times_of(u, like) != times_of(u, many)) {
    u->has_far_edge = true;
    return;
  }
  for (int t = 0; t < times_of(u, many); t++) {
    int other = t == 0 ? u->first[before] : u->first[like] + t - 1;
    if (is_from_many)
      put(u, i, first + t, other);
    else
      put(u, i, other, first + t);
  }
}

/* Each copy has the edge. */
static void put_all(Unrolling *u, int edge, int from, int to) {
  int64_t na = times_of(u, from), nb = times_of(u, to);
  for (int t = 0; t < (na > nb ? na : nb); t++)
    put(u, edge, u->first[from] + (na > 1 ? t : 0),
        u->first[to] + (nb > 1 ? t : 0));
}

static void add_edge(Unrolling *u, int i) {
  const UnitEdge *edge = &u->units->edges.data[i];
  int from = edge->from, to = edge->to;
  int a = block_of(u, from), b = block_of(u, to);
  int64_t na = times_of(u, from), nb = times_of(u, to);
  if (na == 1 && nb == 1) {
    put(u, i, u->first[from], u->first[to]);
  } else if (a == b || a < 0 || b < 0) {
    put_all(u, i, from, to);
  } else if (na > 1 && nb > 1) {
    u->has_far_edge = true;
  } else if (na > 1 && b == a + 1) {
    put(u, i, u->first[from] + (int)na - 1, u->first[to]);
  } else if (nb > 1 && a == b + 1) {
    put(u, i, u->first[from], u->first[to] + (int)nb - 1);
  } else if (nb > 1 && b == a + 1) {
    add_between(u, i, to, from, false);
  } else if (na > 1 && a == b + 1) {
    add_between(u, i, from, to, true);
  } else {
    /* A far block makes it for all blocks. */
    put_all(u, i, from, to);
  }
}

const Unrolled *unroll(Arena *arena, const Units *units) {
  Unrolling u = {.arena = arena, .units = units};
  add_units(&u);
  for (int i = 0; i < units->edges.n; i++) add_edge(&u, i);
  if (u.has_far_edge) return NULL;
  Unrolled *out = ARENA_NEW(arena, Unrolled);
  *out = (Unrolled){u.unit.n, u.unit.data, u.edges.n, u.edges.data};
  return out;
}
