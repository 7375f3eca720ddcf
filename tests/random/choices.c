/*
 * choices.c -- answers the questions of a generator, and searches for a shorter
 * list of answers; see choices.h.
 */
#include "tests/random/choices.h"

#include <string.h>

Choices *choices_random(Arena *arena, uint64_t seed) {
  Choices *choices = ARENA_NEW(arena, Choices);
  choices->arena = arena;
  choices->key = random_key(seed, "program");
  return choices;
}

Choices *choices_replay(Arena *arena, const IntList *given) {
  Choices *choices = ARENA_NEW(arena, Choices);
  choices->arena = arena;
  choices->is_replay = true;
  choices->given = *given;
  return choices;
}

int choose(Choices *choices, int n) {
  int index = choices->made.n, answer = 0;
  if (!choices->is_replay)
    answer = (int)random_below(choices->key, (uint64_t)index, (uint64_t)n);
  else if (index < choices->given.n)
    answer = choices->given.data[index] % n;
  vec_push(choices->arena, &choices->made, answer);
  return answer;
}

int piece_begin(const Choices *choices) {
  return choices->made.n;
}

void piece_end(Choices *choices, int begin) {
  Piece piece = {begin, choices->made.n};
  if (piece.end > begin) vec_push(choices->arena, &choices->pieces, piece);
}

/* ---- shrinking ---- */

typedef struct Shrink {
  Arena *arena;
  int trials;
  Retry *retry;
  void *user;
  const Choices *best;
} Shrink;

static bool attempt(Shrink *shrink, const IntList *given) {
  if (shrink->trials == 0) return false;
  shrink->trials--;
  const Choices *failing = shrink->retry(shrink->user, given);
  if (failing) shrink->best = failing;
  return failing != NULL;
}

/* Without the answers of [begin, end). */
static bool cut(Shrink *shrink, int begin, int end) {
  const IntList *made = &shrink->best->made;
  IntList rest = {0};
  for (int i = 0; i < made->n; i++)
    if (i < begin || i >= end) vec_push(shrink->arena, &rest, made->data[i]);
  return attempt(shrink, &rest);
}

static bool lower(Shrink *shrink, int index, int answer) {
  const IntList *made = &shrink->best->made;
  IntList changed = {0};
  for (int i = 0; i < made->n; i++)
    vec_push(shrink->arena, &changed, i == index ? answer : made->data[i]);
  return attempt(shrink, &changed);
}

/* Whole statements, layers and blocks, the last first: what it makes is not
 * needed by what is before. */
static bool cut_pieces(Shrink *shrink) {
  bool any = false;
  for (int i = shrink->best->pieces.n - 1; i >= 0; i--) {
    if (i >= shrink->best->pieces.n) continue;
    Piece piece = shrink->best->pieces.data[i];
    any |= cut(shrink, piece.begin, piece.end);
  }
  return any;
}

static bool lower_all(Shrink *shrink) {
  bool any = false;
  for (int i = 0; i < shrink->best->made.n; i++) {
    if (shrink->best->made.data[i] > 0) any |= lower(shrink, i, 0);
    if (i < shrink->best->made.n && shrink->best->made.data[i] > 1)
      any |= lower(shrink, i, shrink->best->made.data[i] / 2);
  }
  return any;
}

const Choices *choices_shrink(Arena *arena, const Choices *failing, int trials,
                              Retry *retry, void *user) {
  Shrink shrink = {.arena = arena,
                   .trials = trials,
                   .retry = retry,
                   .user = user,
                   .best = failing};
  bool any = true;
  while (any && shrink.trials > 0) {
    any = cut_pieces(&shrink);
    any |= lower_all(&shrink);
  }
  return shrink.best;
}
