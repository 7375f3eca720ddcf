/*
 * tables.h -- enumerations that the compiler and the programs it makes share, a
 * row of a table each.
 */
#ifndef SUPPORT_TABLES_H
#define SUPPORT_TABLES_H

typedef enum SourceKind {
#define SOURCE(name, word, formals) SOURCE_##name,
#include "support/sources.def"
  N_SOURCES
} SourceKind;

typedef enum ReduceKind {
#define REDUCTION(name, nccl) REDUCE_##name,
#include "support/reductions.def"
  N_REDUCTIONS
} ReduceKind;

#endif
