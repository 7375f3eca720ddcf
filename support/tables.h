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

/* Which part of a picture becomes a record. */
typedef enum PictureCrop {
  CROP_none,
  CROP_center,
  CROP_random, /* in training; in the middle otherwise */
  CROP_scaled  /* likewise a part of random size, resized */
} PictureCrop;

typedef enum ReduceKind {
#define REDUCTION(name, ...) REDUCE_##name,
#include "support/reductions.def"
  N_REDUCTIONS
} ReduceKind;

typedef enum EntryPointId {
#define ENTRY_POINT(name, purpose, placement, about) ENTRY_##name,
#include "support/entry_points.def"
  N_ENTRY_POINTS
} EntryPointId;

const char *entry_point_name(EntryPointId id);
/* Returns N_ENTRY_POINTS if there is none of this name. */
EntryPointId entry_point_find(const char *name);

#endif
