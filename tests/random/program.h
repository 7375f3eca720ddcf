/*
 * program.h -- generates random valid programs of the language as text.
 */
#ifndef TESTS_RANDOM_PROGRAM_H
#define TESTS_RANDOM_PROGRAM_H

#include "tests/random/choices.h"

/* A model with layers, a net, synthetic data and a train block. */
const char *program_make(Choices *choices);

#endif
