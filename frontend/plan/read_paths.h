/*
 * read_paths.h -- declares how the paths of a plan are read, and the lines
 * about what the backward pass finds stored.
 */
#ifndef FRONTEND_PLAN_READ_PATHS_H
#define FRONTEND_PLAN_READ_PATHS_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model/model.h"
#include "ir/plan/pins.h"

typedef struct PathReader {
  Elab *e;
  const Model *model;
  const Graph *graph;
  PlanPaths *paths; /* paths of the graph */
} PathReader;

/* Reads an expression as a pattern that means something; false after a message.
 */
bool paths_read_pattern(const PathReader *reader, const Expr *x,
                        PathPattern *out);
/* Appends all paths that this expression means; false after a message. */
bool paths_read(const PathReader *reader, const Expr *x, PathList *out);
/* Returns whether the path ends in an operator after '!', as in PATH!dot. */
bool path_is_operator(const Expr *x);
/* Returns whether one of these values has the dim; else reports it. */
bool paths_have_dim(const PathReader *reader, const PathList *list,
                    const Expr *x, Name dim, Span span);
/* Returns whether one of these operators computes over the dim.  If none does,
 * reports this with all dims that they compute over. */
bool paths_compute_over(const PathReader *reader, const PathList *list,
                        Name dim, Span span);
/* ---- saving.c ---- */

typedef struct SavingLines {
  Elab *e;
  const Graph *graph;
  const PathReader *paths;
  Pins *pins; /* pins to which lines are added */
} SavingLines;

/* Reads a line `remat` or `keep`; a later one wins. */
void saving_read_line(SavingLines *lines, const Pin *pin);
/* Reads an annotation `remat` or `keep` for all executions of the code behind
 * it. */
void saving_read_annotation(SavingLines *lines, const Elab *walk,
                            const Annotation *annotation);

#endif
