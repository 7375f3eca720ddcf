/*
 * tables.h -- declares the enumerations that the compiler and its programs
 * share; each value is a row of a table.
 */
#ifndef SUPPORT_TABLES_H
#define SUPPORT_TABLES_H

typedef enum SourceKind {
#define SOURCE(name, word, formals) SOURCE_##name,
#include "support/sources.def"
  N_SOURCES
} SourceKind;

typedef enum ReduceKind {
#define REDUCTION(name, ...) REDUCE_##name,
#include "support/reductions.def"
  N_REDUCTIONS
} ReduceKind;

#endif
