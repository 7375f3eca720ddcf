/*
 * paths.h -- declares how the paths of a plan are resolved, and how pins about
 * paths are printed.
 */
#ifndef FRONTEND_PLAN_PATHS_H
#define FRONTEND_PLAN_PATHS_H

#include "frontend/elaborate/elaborate.h"
#include "ir/model.h"
#include "ir/plan.h"

typedef struct PlanPaths PlanPaths;
typedef VEC(Name) PathList;
PlanPaths *plan_paths_create(Elab *e, const Model *model, const Elab *walk,
                             const Graph *graph);
/* Appends all paths that this expression means; false after a message. */
bool plan_paths_find(PlanPaths *paths, const Expr *x, PathList *out);
/* The same of a text, without messages. */
bool plan_paths_find_text(PlanPaths *paths, const char *text, PathList *out);
/* Whether the path ends in an operator after '!', as in PATH!dot. */
bool plan_path_is_operator(const Expr *x);
/* An operator without a name of its own, whose path means something else: only
 * '!' reaches it. */
bool plan_paths_is_hidden(const PlanPaths *paths, Name node_path);
/* The n-th path beside its own that a node has, or NULL. */
const char *plan_paths_other(const PlanPaths *paths, Name node_path, int n);
typedef struct PlanNode {
  const Graph *graph;
  const Node *node;
  Name path; /* an input: what it is of */
} PlanNode;
/* All that can be placed, in program order, what scans compute included. */
const PlanNode *plan_paths_nodes(const PlanPaths *paths, int *out_n);
/* Whether one of these values has the dim; reports where none has. */
bool plan_paths_have_dim(const PlanPaths *paths, const PathList *list,
                         const Expr *x, Name dim, Span span);

/* Whether one of these operators computes over the dim; reports where none
 * does, with all that they compute over. */
bool plan_paths_compute_over(const PlanPaths *paths, const PathList *list,
                             Name dim, Span span);

/* Whether the line gives no axis to two dims of one value; reports it. */
bool plan_paths_take_axes_once(const PlanPaths *paths, const PathList *list,
                               const PlanPlacement *line);

/* ---- lines.c ---- */

/* Warns of lines about paths that others imply. */
void plan_check_lines(Elab *e, const PlanPaths *paths, const Plan *plan);
/* The warning: the later line says what the earlier one does. */
void plan_line_repeats(Elab *e, Span later, Span earlier);
/* The path lines of the plan as it is printed (language.md 11). */
void plan_make_lines(Elab *e, PlanPaths *paths, Plan *plan);

/* ---- saving.c ---- */

typedef struct SavingLines {
  Elab *e;
  const Graph *graph;
  PlanPaths *paths;
  bool gathers_parameters;       /* ZeRO shards them: `keep` may name one */
  Map **saving;                  /* of the pins; NULL until a line needs it */
  VEC(const PlanSaving *) lines; /* in order */
} SavingLines;

/* A line `remat` or `keep`; a later one wins. */
void saving_read_line(SavingLines *lines, const Pin *pin);
/* The same for all executions of what an annotation stands before. */
void saving_read_annotation(SavingLines *lines, const Elab *walk,
                            const Annotation *annotation);
/* Reports a line to which later lines leave no value. */
void saving_check_lines(SavingLines *lines);

#endif
