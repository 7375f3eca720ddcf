/*
 * launch_order.h -- declares the places that launch_order.c gives to nodes,
 * which hide_collectives.c moves.
 */
#ifndef PASSES_LAUNCH_ORDER_H
#define PASSES_LAUNCH_ORDER_H

#include "passes/buffers/list_schedule.h"

typedef struct Starts {
  int *places, n; /* ascending */
} Starts;

typedef struct LaunchOrder {
  const Graph *graph;
  Arena *arena;
  int n;
  const int *segment;
  int *place;     /* by node: the id of the node after which it comes */
  int *arrival;   /* by node: among those of one place, the order */
  int *root;      /* by node: the node whose bytes a view shares */
  int *continued; /* by node: see find_continued */
  int n_segments;
  Starts *starts; /* by segment */
} LaunchOrder;

/* ---- hide_collectives.c ---- */

/* Moves work beside blocking collectives, as far as the live bytes stay below
 * `limit`, and follows them in `live`. */
void hide_collectives(LaunchOrder *o, LiveBytes *live, int64_t limit);

#endif
