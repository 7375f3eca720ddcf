/*
 * copies.c -- writes out the blocks of a program, of which a graph keeps a few.
 *
 *     blocks of the graph      0 1 2 3     4 5
 *     blocks of the program    0 1 2 3 3 3 4 5
 *
 * A block of the graph that stands for many is there as often.  Neighbours in
 * the program that are both this block are joined as it is with the block
 * before it, since all of these are equal.
 */
#include "planner/recheck/copies.h"

typedef struct Copying {
  Arena *arena;
  const Units *units;
  int *first; /* by unit: its first copy; the others follow */
  VEC(int) unit;
  VEC(EdgeCopy) edges;
} Copying;

static const PlanUnit *unit_at(const Copying *c, int unit) {
  return c->units->units.data[unit];
}

/* Returns the last copy of a unit. */
static int last_copy(const Copying *c, int unit) {
  return c->first[unit] + (int)unit_at(c, unit)->times - 1;
}

/* Returns the unit of `block` before which the block has as many units as that
 * of `unit` has before it.  Returns -1 if there is none. */
static int counterpart(const Copying *c, int unit, int block) {
  int place = 0;
  for (int i = 0; i < unit; i++)
    place += unit_at(c, i)->block == unit_at(c, unit)->block;
  for (int i = 0; i < c->units->units.n; i++)
    if (unit_at(c, i)->block == block && place-- == 0) return i;
  return -1;
}

/* Joins a copy of each end; `is_turned`: the edge leads from b to a. */
static void join(Copying *c, int edge, int a, int b, bool is_turned) {
  vec_push(c->arena, &c->edges,
           ((EdgeCopy){is_turned ? b : a, is_turned ? a : b, edge}));
}

/* An edge of one block, of a block and none, or of blocks far from each other:
 * each copy of either end has one. */
static void join_all(Copying *c, int i, int from, int to) {
  int64_t n_from = unit_at(c, from)->times, n_to = unit_at(c, to)->times;
  int64_t n = n_from > n_to ? n_from : n_to;
  for (int64_t t = 0; t < n; t++)
    join(c, i, c->first[from] + (int)(n_from > 1 ? t : 0),
         c->first[to] + (int)(n_to > 1 ? t : 0), false);
}

/* An edge between a block and the next one.  Returns false if copies of the
 * next one are not joined as the two are. */
static bool join_neighbours(Copying *c, int i, int block, int next,
                            bool is_turned) {
  int64_t n = unit_at(c, next)->times;
  join(c, i, last_copy(c, block), c->first[next], is_turned);
  if (n == 1) return true;
  int like = counterpart(c, block, unit_at(c, next)->block);
  if (like < 0 || unit_at(c, like)->times != n) return false;
  for (int t = 0; t + 1 < n; t++)
    join(c, i, c->first[like] + t, c->first[next] + t + 1, is_turned);
  return true;
}

static bool copy_edge(Copying *c, int i) {
  const UnitEdge *edge = &c->units->edges.data[i];
  const PlanUnit *from = unit_at(c, edge->from), *to = unit_at(c, edge->to);
  bool are_many = from->times > 1 && to->times > 1;
  int apart = to->block - from->block;
  if (from->block < 0 || to->block < 0 || apart == 0) {
    join_all(c, i, edge->from, edge->to);
    return true;
  }
  if (are_many) return false;
  if (apart == 1) return join_neighbours(c, i, edge->from, edge->to, false);
  if (apart == -1) return join_neighbours(c, i, edge->to, edge->from, true);
  join_all(c, i, edge->from, edge->to);
  return true;
}

const Copies *copies_of(Arena *arena, const Units *units) {
  Copying c = {.arena = arena, .units = units};
  c.first = ARENA_ARRAY(arena, int, units->units.n + 1);
  for (int u = 0; u < units->units.n; u++) {
    c.first[u] = c.unit.n;
    for (int64_t t = 0; t < unit_at(&c, u)->times; t++)
      vec_push(arena, &c.unit, u);
  }
  for (int i = 0; i < units->edges.n; i++)
    if (!copy_edge(&c, i)) return NULL;
  Copies *out = ARENA_NEW(arena, Copies);
  *out = (Copies){c.unit.n, c.unit.data, c.edges.n, c.edges.data};
  return out;
}
