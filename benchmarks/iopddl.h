/*
 * iopddl.h -- declares the reader of the problems of the contest on sharding
 * inside of operators (ASPLOS 2025): JSON, packed by gzip or not.
 */
#ifndef BENCHMARKS_IOPDDL_H
#define BENCHMARKS_IOPDDL_H

#include "planner/factor/factor.h"

/* Where the bytes come from: fills `bytes` and returns how many there are, 0 at
 * the end, -1 if they cannot be read. */
typedef int IopddlRead(void *user, char *bytes, int n);

/* Reads a problem.  A fault is "NAME:LINE:COLUMN: ...".  The memory that it
 * takes is at most a fixed multiple of the bytes read. */
Status iopddl_parse(Arena *arena, const char *name, IopddlRead *read,
                    void *user, FactorProblem **out, int *out_n_variables);
/* Reads a file, which may be packed. */
Status iopddl_read(Arena *arena, const char *path, FactorProblem **out,
                   int *out_n_variables);

#endif
