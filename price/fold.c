/*
 * fold.c -- makes loops of equal segments that follow each other in a list.
 *
 *     run 3, run 80, start 0, run 20, wait 0        loop 96
 *     run 3, run 80, start 0, run 20, wait 0   =>     run 3, run 80, start 0,
 *     ...                             (96 times)      run 20, wait 0
 *                                                   end
 *
 * Layers of a model give such runs, in the forward pass, the backward pass and
 * the update, whatever their nodes are called: two actions are equal when the
 * simulator cannot tell them from each other.  A wait says how many starts of
 * its transfer lie between, and not which node it waits for, so that it is the
 * same in each segment.  The loop runs the same actions in the same order, so
 * folding changes no time.
 *
 * Each place of the list is looked at once.  The next places where the same
 * WINDOW actions follow give the candidates for the length of a segment, and
 * the one that spares the most actions wins.  What is left is folded again:
 * layers whose experts are a run of their own became equal that way.
 *
 * cost: O(actions x CANDIDATES) a round
 */
#include "price/fold.h"

#include <string.h>

enum {
  WINDOW = 6,
  CANDIDATES = 8,
  LEAST_SEGMENTS = 4, /* the simulator runs two or three before they repeat */
  LEAST_SPARED = 12, /* actions, which a state to compare costs about as much as
                      */
  MOST_ROUNDS = 3
};

typedef struct Folding {
  Arena *scratch;
  const SimAction *actions;
  int n;
  int *letters;  /* equal numbers for equal actions */
  int *next;     /* by place: the next with an equal window, or n */
  int *equal_to; /* by length of a segment: up to here each action is equal to
                    the one so far behind it, as far as that is known */
} Folding;

/* ---- equal actions, equal windows ---- */

typedef struct ActionKey { /* all that the simulator reads, without padding */
  int64_t values[8];
} ActionKey;

static ActionKey key_of(const SimAction *action) {
  return (ActionKey){{action->kind, action->transfer, action->queue,
                      action->trips, action->back, action->duration,
                      action->term, action->from_step}};
}

/* Places in a table of twice as many slots; -1: empty. */
typedef struct Slots {
  int *slots;
  int mask;
} Slots;

static Slots new_slots(Arena *arena, int n) {
  int size = 16;
  while (size < 2 * n) size *= 2;
  Slots slots = {ARENA_ARRAY(arena, int, size), size - 1};
  memset(slots.slots, -1, (size_t)size * sizeof *slots.slots);
  return slots;
}

static void number_actions(Folding *f) {
  Slots slots = new_slots(f->scratch, f->n);
  for (int i = 0; i < f->n; i++) {
    ActionKey key = key_of(&f->actions[i]);
    uint64_t at = hash_bytes(&key, sizeof key, 0);
    for (;; at++) {
      int *slot = &slots.slots[at & (uint64_t)slots.mask];
      if (*slot < 0) *slot = i;
      ActionKey other = key_of(&f->actions[*slot]);
      if (memcmp(&key, &other, sizeof key) != 0) continue;
      f->letters[i] = *slot;
      break;
    }
  }
}

/* From the end, so that a table of the last place seen gives the next one. */
static void link_windows(Folding *f) {
  Slots slots = new_slots(f->scratch, f->n);
  for (int i = f->n - 1; i >= 0; i--) {
    f->next[i] = f->n;
    if (i + WINDOW > f->n) continue;
    size_t bytes = WINDOW * sizeof *f->letters;
    uint64_t at = hash_bytes(&f->letters[i], bytes, 0);
    for (;; at++) {
      int *slot = &slots.slots[at & (uint64_t)slots.mask];
      bool is_new = *slot < 0;
      if (!is_new && memcmp(&f->letters[i], &f->letters[*slot], bytes) != 0)
        continue;
      if (!is_new) f->next[i] = *slot;
      *slot = i;
      break;
    }
  }
}

/* ---- runs ---- */

typedef struct Segments {
  int length, n;
} Segments;

/* A segment is a list of its own: its loops begin and end in it. */
static bool is_closed(const Folding *f, int begin, int length) {
  int depth = 0;
  for (int i = begin; i < begin + length && depth >= 0; i++) {
    SimKind kind = f->actions[i].kind;
    depth += (kind == SIM_loop) - (kind == SIM_end);
  }
  return depth == 0;
}

/* How many segments of this length follow each other from here on. */
static int segments_at(Folding *f, int begin, int length) {
  int end = f->equal_to[length];
  if (end < begin) end = begin;
  while (end + length < f->n && f->letters[end] == f->letters[end + length])
    end++;
  f->equal_to[length] = end;
  return (end - begin) / length + 1;
}

static Segments best_segments(Folding *f, int begin) {
  Segments best = {0};
  int spared = LEAST_SPARED - 1, second = f->next[begin];
  for (int i = 0; i < CANDIDATES && second < f->n; i++) {
    Segments found = {.length = second - begin};
    found.n = segments_at(f, begin, found.length);
    int spares = (found.n - LEAST_SEGMENTS + 1) * found.length;
    if (spares > spared && is_closed(f, begin, found.length)) {
      spared = spares;
      best = found;
    }
    second = f->next[second];
  }
  return best;
}

typedef VEC(SimAction) Actions;

/* Returns whether it has folded anything. */
static bool fold_once(Folding *f, Arena *arena, Actions *out) {
  bool has_folded = false;
  f->letters = ARENA_ARRAY(f->scratch, int, f->n);
  f->next = ARENA_ARRAY(f->scratch, int, f->n);
  f->equal_to = ARENA_ARRAY(f->scratch, int, f->n + 1);
  number_actions(f);
  link_windows(f);
  for (int i = 0; i < f->n;) {
    Segments segments = best_segments(f, i);
    if (segments.n == 0) {
      vec_push(arena, out, f->actions[i++]);
      continue;
    }
    has_folded = true;
    vec_push(arena, out, (SimAction){.kind = SIM_loop, .trips = segments.n});
    for (int k = 0; k < segments.length; k++)
      vec_push(arena, out, f->actions[i + k]);
    vec_push(arena, out, (SimAction){.kind = SIM_end});
    i += segments.length * segments.n;
  }
  return has_folded;
}

const SimAction *fold_actions(Arena *arena, const SimAction *actions, int n,
                              int *out_n) {
  Folding f = {.actions = actions, .n = n};
  for (int round = 0; round < MOST_ROUNDS; round++) {
    Actions folded = {0};
    f.scratch = arena_beside(arena);
    bool has_folded = fold_once(&f, arena, &folded);
    arena_destroy(f.scratch);
    if (!has_folded) break;
    f.actions = folded.data;
    f.n = folded.n;
  }
  *out_n = f.n;
  return f.actions;
}
