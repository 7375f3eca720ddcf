/*
 * plan_lines.h -- declares the lines of paths while a printed plan is made of
 * decisions: plan_lines.c chooses them, line_ranges.c folds neighbours.
 */
#ifndef IR_PLAN_PLAN_LINES_H
#define IR_PLAN_PLAN_LINES_H

#include "ir/plan/graph_paths.h"

/* Kinds of lines, in the order in which they are printed. */
typedef enum LineKind {
  LINE_value, /* places values, gradients and optimizer state */
  LINE_operator,
  LINE_remat,
  LINE_keep,
  LINE_offload,
  N_LINE_KINDS
} LineKind;

/* One dim with the axes that shard it, or "partial" with the axes over which
 * the value is a partial sum. */
typedef struct LinePlace {
  Name dim;
  int n_axes;
  Name axes[MAX_AXES];
} LinePlace;
typedef VEC(LinePlace) LinePlaces;

typedef struct PathLine {
  LineKind kind;
  const char *path; /* its text, without quotes */
  LinePlaces places;
} PathLine;
typedef VEC(PathLine) PathLines;

typedef struct LineMaker {
  Module *module;
  Arena *arena;
  const PlanPaths *paths;
  Plan *plan;
  Map *meanings[N_LINE_KINDS]; /* text -> PathList */
} LineMaker;

/* ---- line_meaning.c ---- */

/* Returns the paths that a line of this kind decides.  Empty: there are none.
 */
const PathList *line_meaning(LineMaker *maker, LineKind kind, const char *text);

/* ---- plan_text.c ---- */

/* Returns "B over data, T over (seq, tensor)", or "" without places. */
const char *line_places_text(Arena *arena, const LinePlaces *places);
/* Returns the line as it is printed. */
const char *line_text(LineMaker *maker, const PathLine *line);

/* ---- line_ranges.c ---- */

/* Folds lines that differ by indices alone into ranges, and leaves an index out
 * where the line is about all of them.  Together the lines mean the same. */
PathLines line_ranges(LineMaker *maker, const PathLines *lines);

#endif
