/*
 * paths.h -- declares how the paths of a plan are read, and the lines about
 * what the backward pass finds stored.
 */
#ifndef FRONTEND_PLAN_PATHS_H
#define FRONTEND_PLAN_PATHS_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model.h"
#include "ir/plan_paths.h"

typedef struct PathReader {
  Elab *e;
  const Model *model;
  const Graph *graph;
  PlanPaths *paths; /* of the graph */
} PathReader;

/* Appends all paths that this expression means; false after a message. */
bool paths_read(const PathReader *reader, const Expr *x, PathList *out);
/* Whether the path ends in an operator after '!', as in PATH!dot. */
bool path_is_operator(const Expr *x);
/* Whether one of these values has the dim; reports where none has. */
bool paths_have_dim(const PathReader *reader, const PathList *list,
                    const Expr *x, Name dim, Span span);
/* Whether one of these operators computes over the dim; reports where none
 * does, with all that they compute over. */
bool paths_compute_over(const PathReader *reader, const PathList *list,
                        Name dim, Span span);
/* Whether the line gives no axis to two dims of one value; reports it. */
bool paths_take_axes_once(const PathReader *reader, const PathList *list,
                          const PlanPlacement *line);

/* ---- repeats.c ---- */

/* Warns of lines about paths that others imply. */
void plan_check_lines(Elab *e, const PlanPaths *paths, const Plan *plan);
/* The warning: the later line says what the earlier one does. */
void plan_line_repeats(Elab *e, Span later, Span earlier);

/* ---- saving.c ---- */

typedef struct SavingLines {
  Elab *e;
  const Graph *graph;
  const PathReader *paths;
  bool gathers_parameters;       /* ZeRO shards them: lines may name one */
  Map **saving;                  /* of the pins; NULL until a line needs it */
  VEC(const PlanSaving *) lines; /* in order */
  Map *inputs;  /* their paths; NULL until a line needs them, as is */
  Map *results; /* number of names + 1 -> the layers' results: see saving.c */
} SavingLines;

/* A line `remat` or `keep`; a later one wins. */
void saving_read_line(SavingLines *lines, const Pin *pin);
/* The same for all executions of what an annotation stands before. */
void saving_read_annotation(SavingLines *lines, const Elab *walk,
                            const Annotation *annotation);
/* Reports a line to which later lines leave no value. */
void saving_check_lines(SavingLines *lines);

#endif
