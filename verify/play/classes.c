/*
 * classes.c -- groups of ranks, and which ranks hold the same numbers.
 *
 * On a large mesh most ranks hold what many others hold: replicas, and all that
 * is computed from replicas alone.  The player keeps and computes one copy for
 * each class of ranks.  That two ranks are of one class is never assumed: it
 * follows from the places that they were given shards for, from equal bits, and
 * from equal operands of the same node.  So replicas that a fault makes
 * different are of different classes.
 *
 *     x[B over data]             ranks with equal coordinates on data
 *     y = x w, w[F over tensor]  those that are equal in x and in w
 *     all_reduce of y            those whose groups are equal, member by member
 */
#include "verify/play/internal.h"

#include <string.h>

/* ---- groups ---- */

static int64_t group_number(const MeshPlace *place, AxisSet axes) {
  int64_t number = 0;
  for (int a = 0; a < place->mesh->n_axes; a++)
    if (!(axes >> a & 1) && !place->mesh->axes[a].is_sequential)
      number = number * place->mesh->axes[a].size + place->at[a];
  return number;
}

static PlayGroups *make_groups(const Player *player, AxisSet axes) {
  Arena *arena = player->arena;
  const PlayProgram *program = player->program;
  int ranks = player->options.ranks;
  PlayGroups *groups = ARENA_NEW(arena, PlayGroups);
  int *n_members = ARENA_ARRAY(arena, int, ranks);
  groups->of_rank = ARENA_ARRAY(arena, int, ranks);
  groups->members = ARENA_ARRAY(arena, int, ranks);
  for (int rank = 0; rank < ranks; rank++) {
    int g = program->n_ranks == 1
                ? rank
                : (int)group_number(&player->stage->places[rank], axes);
    groups->of_rank[rank] = g;
    n_members[g]++;
    if (g >= groups->n) groups->n = g + 1;
  }
  groups->size = ranks / groups->n;
  for (int g = 0; g < groups->n; g++) {
    ASSERT(n_members[g] == groups->size);
    n_members[g] = 0;
  }
  for (int rank = 0; rank < ranks; rank++) {
    int g = groups->of_rank[rank];
    groups->members[g * groups->size + n_members[g]++] = rank;
  }
  return groups;
}

const PlayGroups *play_groups(Player *player, AxisSet axes) {
  PlayGroups **groups = &player->groups[axes];
  if (!*groups) *groups = make_groups(player, axes);
  return *groups;
}

/* ---- classes ---- */

/* Gives equal keys equal numbers, from 0 on in the order in which they come
 * first; `first` gets the index of the first key of each number.  Returns how
 * many there are. */
static int number_keys(Arena *scratch, const uint64_t *keys, int n,
                       int *out_numbers, int *out_first) {
  size_t n_slots = 16;
  int n_numbers = 0;
  while (n_slots < 2 * (size_t)n) n_slots *= 2;
  int *slots = ARENA_ARRAY(scratch, int, n_slots); /* a number + 1 */
  for (int i = 0; i < n; i++) {
    uint64_t mixed = keys[i] * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(mixed >> 32) & (n_slots - 1);
    while (slots[at] && keys[out_first[slots[at] - 1]] != keys[i])
      at = (at + 1) & (n_slots - 1);
    if (!slots[at]) {
      out_first[n_numbers] = i;
      slots[at] = ++n_numbers;
    }
    out_numbers[i] = slots[at] - 1;
  }
  return n_numbers;
}

static const void *map_key(uint64_t key) {
  return (const void *)(uintptr_t)key;
}

/* The one object of this division. */
static const RankClasses *known_classes(Player *player, const int *of_rank,
                                        const int *first, int n) {
  size_t bytes = (size_t)player->options.ranks * sizeof(int);
  const void *key = map_key(hash_bytes(of_rank, bytes, 1));
  const RankClasses *same_hash = map_get(player->classes, key);
  for (const RankClasses *c = same_hash; c; c = c->next)
    if (!memcmp(c->of_rank, of_rank, bytes)) return c;
  Arena *arena = player->arena;
  RankClasses *made = ARENA_NEW(arena, RankClasses);
  *made =
      (RankClasses){.id = player->n_classes++,
                    .n = n,
                    .of_rank = arena_copy(arena, of_rank, bytes),
                    .first = arena_copy(arena, first, (size_t)n * sizeof(int)),
                    .next = same_hash};
  map_put(player->classes, key, made);
  return made;
}

const RankClasses *classes_of_keys(Player *player, const uint64_t *keys) {
  int ranks = player->options.ranks;
  Arena *scratch = arena_beside(player->arena);
  int *of_rank = ARENA_ARRAY(scratch, int, ranks);
  int *first = ARENA_ARRAY(scratch, int, ranks);
  int n = number_keys(scratch, keys, ranks, of_rank, first);
  const RankClasses *classes = known_classes(player, of_rank, first, n);
  arena_destroy(scratch);
  return classes;
}

const RankClasses *classes_of_axes(Player *player, AxisSet axes) {
  const PlayProgram *program = player->program;
  const RankClasses **known = &player->of_axes[axes];
  int ranks = player->options.ranks;
  if (*known) return *known;
  Arena *scratch = arena_beside(player->arena);
  uint64_t *keys = ARENA_ARRAY(scratch, uint64_t, ranks);
  for (int rank = 0; rank < ranks && program->n_ranks > 1; rank++)
    keys[rank] =
        (uint64_t)group_number(&player->stage->places[rank], (AxisSet)~axes);
  *known = classes_of_keys(player, keys);
  arena_destroy(scratch);
  return *known;
}

const RankClasses *classes_of_all(Player *player) {
  return classes_of_axes(player, 0);
}

/* ---- memos ---- */

/* The classes that follow from two numbers. */
typedef struct ClassesMemo {
  int a, b;
  const RankClasses *classes;
  struct ClassesMemo *next; /* of the same key */
} ClassesMemo;

static const void *memo_key(int a, int b) {
  return map_key((uint64_t)(unsigned)a << 32 | ((unsigned)b + 1));
}

static const RankClasses *memo_find(const Map *memos, int a, int b) {
  const ClassesMemo *memo = map_get(memos, memo_key(a, b));
  while (memo && (memo->a != a || memo->b != b)) memo = memo->next;
  return memo ? memo->classes : NULL;
}

static void memo_add(Player *player, Map *memos, int a, int b,
                     const RankClasses *classes) {
  ClassesMemo *memo = ARENA_NEW(player->arena, ClassesMemo);
  *memo = (ClassesMemo){a, b, classes, map_get(memos, memo_key(a, b))};
  map_put(memos, memo_key(a, b), memo);
}

static uint64_t pair_key(int a, int b) {
  return (uint64_t)(unsigned)a << 32 | (unsigned)b;
}

const RankClasses *classes_join(Player *player, const RankClasses *a,
                                const RankClasses *b) {
  int ranks = player->options.ranks;
  if (a == b || b->n == 1) return a;
  if (a->n == 1) return b;
  const RankClasses *known = memo_find(player->joined, a->id, b->id);
  if (known) return known;
  Arena *scratch = arena_beside(player->arena);
  uint64_t *keys = ARENA_ARRAY(scratch, uint64_t, ranks);
  for (int rank = 0; rank < ranks; rank++)
    keys[rank] = pair_key(a->of_rank[rank], b->of_rank[rank]);
  known = classes_of_keys(player, keys);
  memo_add(player, player->joined, a->id, b->id, known);
  arena_destroy(scratch);
  return known;
}

/* Numbers the groups by their first members, then by the number so far and the
 * next member. */
static const RankClasses *members_of(Player *player, const PlayGroups *groups,
                                     const RankClasses *classes) {
  int ranks = player->options.ranks;
  Arena *scratch = arena_beside(player->arena);
  int *numbers = ARENA_ARRAY(scratch, int, groups->n);
  int *first = ARENA_ARRAY(scratch, int, groups->n);
  uint64_t *keys = ARENA_ARRAY(scratch, uint64_t, ranks);
  for (int i = 0; i < groups->size; i++) {
    Arena *inner = arena_beside(scratch);
    for (int g = 0; g < groups->n; g++) {
      int member = groups->members[g * groups->size + i];
      keys[g] = pair_key(numbers[g], classes->of_rank[member]);
    }
    number_keys(inner, keys, groups->n, numbers, first);
    arena_destroy(inner);
  }
  for (int rank = 0; rank < ranks; rank++)
    keys[rank] = (uint64_t)numbers[groups->of_rank[rank]];
  const RankClasses *made = classes_of_keys(player, keys);
  arena_destroy(scratch);
  return made;
}

const RankClasses *classes_of_members(Player *player, AxisSet axes,
                                      const RankClasses *classes) {
  const PlayGroups *groups = play_groups(player, axes);
  if (groups->size == 1 || classes->n == 1) return classes;
  const RankClasses *known = memo_find(player->grouped, classes->id, axes);
  if (known) return known;
  known = members_of(player, groups, classes);
  memo_add(player, player->grouped, classes->id, axes, known);
  return known;
}
