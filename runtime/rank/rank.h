/*
 * rank.h -- the main program of a rank executable.
 */
#ifndef RUNTIME_RANK_RANK_H
#define RUNTIME_RANK_RANK_H

#include "runtime/program.h"

/* Trains, samples, evaluates or predicts, as the arguments say; returns the
 * exit code. */
int rank_main(int argc, char **argv, const DnnBundle *bundle);

#endif
