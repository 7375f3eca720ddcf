/*
 * fuse_order.c -- keeps groups of nodes in topological order while they merge.
 *
 * To merge P and C makes a cycle exactly if a path leads from P to C through a
 * third group.  Groups are a list in topological order, so such a path lies
 * between the two, and the search stays there.  What the search has found
 * follows P, so it moves behind the merged group (Pearce and Kelly 2006); all
 * others stay:
 *
 *     P a b c C   with P -> b   =>   a c (PC) b
 *
 * Each group has a number that ascends along the list, with gaps for those that
 * move.  Only when a gap is full, all groups get new numbers.
 */
#include "passes/fuse/fuse.h"

#include <stdlib.h>

#define POSITION_GAP (INT64_C(1) << 32)

void fusion_order_append(Fusion *fusion, int group) {
  Group *g = &fusion->groups[group];
  g->next = -1;
  g->previous = fusion->last;
  if (fusion->last >= 0) {
    g->position = fusion->groups[fusion->last].position + POSITION_GAP;
    fusion->groups[fusion->last].next = group;
  } else {
    fusion->first = group;
  }
  fusion->last = group;
}

static void order_remove(Fusion *fusion, int group) {
  const Group *g = &fusion->groups[group];
  if (g->previous >= 0)
    fusion->groups[g->previous].next = g->next;
  else
    fusion->first = g->next;
  if (g->next >= 0)
    fusion->groups[g->next].previous = g->previous;
  else
    fusion->last = g->previous;
}

static void order_number(Fusion *fusion) {
  int64_t position = 0;
  for (int g = fusion->first; g >= 0; g = fusion->groups[g].next)
    fusion->groups[g].position = position += POSITION_GAP;
}

static void order_insert_behind(Fusion *fusion, int before, int group,
                                int64_t position) {
  Group *g = &fusion->groups[group];
  g->previous = before;
  g->next = fusion->groups[before].next;
  fusion->groups[before].next = group;
  if (g->next >= 0)
    fusion->groups[g->next].previous = group;
  else
    fusion->last = group;
  g->position = position;
}

/* Behind `before`, in this order. */
static void order_move_behind(Fusion *fusion, int before,
                              const GroupPlace *moved, int n) {
  for (int i = 0; i < n; i++) order_remove(fusion, moved[i].group);
  const Group *at = &fusion->groups[before];
  int64_t step = POSITION_GAP, begin = at->position;
  if (at->next >= 0)
    step = (fusion->groups[at->next].position - begin) / (n + 1);
  for (int i = 0; i < n; i++) {
    int behind = i > 0 ? moved[i - 1].group : before;
    order_insert_behind(fusion, behind, moved[i].group, begin + (i + 1) * step);
  }
  if (n > 0 && step == 0) order_number(fusion);
}

/* Fills fusion->places with the groups that follow `first` and stand before
 * `last`; false: one of them leads to `last`. */
static bool find_between(Fusion *fusion, int first, int last) {
  int mark = ++fusion->mark;
  int64_t limit = fusion->groups[last].position;
  fusion->places.n = fusion->stack.n = 0;
  vec_push(fusion->arena, &fusion->stack, first);
  while (fusion->stack.n > 0) {
    int g = fusion->stack.data[--fusion->stack.n];
    const Group *group = &fusion->groups[g];
    for (int m = 0; m < group->members.n; m++) {
      int id = group->members.data[m];
      for (int u = fusion->user_begin[id]; u < fusion->user_begin[id + 1];
           u++) {
        int next = fusion->group_of[fusion->users[u]];
        if (next < 0 || next == first) continue;
        if (next == last) {
          if (g != first) return false;
          continue;
        }
        int64_t position = fusion->groups[next].position;
        if (fusion->group_mark[next] == mark || position > limit) continue;
        fusion->group_mark[next] = mark;
        vec_push(fusion->arena, &fusion->places,
                 ((GroupPlace){position, next}));
        vec_push(fusion->arena, &fusion->stack, next);
      }
    }
  }
  return true;
}

static int compare_places(const void *a, const void *b) {
  int64_t x = ((const GroupPlace *)a)->position;
  int64_t y = ((const GroupPlace *)b)->position;
  return (x > y) - (x < y);
}

bool fusion_order_join(Fusion *fusion, int first, int last) {
  if (!find_between(fusion, first, last)) return false;
  GroupPlace *places = fusion->places.data;
  int n = fusion->places.n;
  order_remove(fusion, first);
  if (n > 1) qsort(places, (size_t)n, sizeof *places, compare_places);
  order_move_behind(fusion, last, places, n);
  return true;
}
