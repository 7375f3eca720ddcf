/*
 * choices.h -- declares a random program as the list of choices that made it.
 *
 * The generator asks `choose` for every decision, and 0 is always the plainest
 * answer.  The answers are kept, with the pieces of the program that they made
 * (a statement, a layer, a block).  The same answers make the same program; a
 * list with a piece cut out or an answer lowered makes a smaller program that
 * is valid too, for it comes from the same generator.  Shrinking is therefore a
 * search over lists of choices and never sees text.
 */
#ifndef TESTS_RANDOM_CHOICES_H
#define TESTS_RANDOM_CHOICES_H

#include "support/support.h"

typedef struct Piece {
  int begin, end; /* of `made` */
} Piece;

typedef VEC(int) IntList;

typedef struct Choices {
  Arena *arena;
  uint64_t key;   /* of random answers */
  bool is_replay; /* else answers come from `given`, then are 0 */
  IntList given;
  IntList made;
  VEC(Piece) pieces;
} Choices;

Choices *choices_random(Arena *arena, uint64_t seed);
Choices *choices_replay(Arena *arena, const IntList *given);
/* 0 .. n - 1. */
int choose(Choices *choices, int n);
/* A piece is open between the two. */
int piece_begin(const Choices *choices);
void piece_end(Choices *choices, int begin);

/* Makes the program of these answers; NULL if it does not fail, else its
 * choices. */
typedef const Choices *Retry(void *user, const IntList *given);
/* The smallest failing program found in at most so many trials. */
const Choices *choices_shrink(Arena *arena, const Choices *failing, int trials,
                              Retry *retry, void *user);

#endif
