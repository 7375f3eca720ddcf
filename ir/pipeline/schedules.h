/*
 * schedules.h -- declares what the files of schedules share; only schedules.c
 * and these files include it.
 */
#ifndef IR_PIPELINE_SCHEDULES_H
#define IR_PIPELINE_SCHEDULES_H

#include "ir/pipeline/pipeline.h"

/* Appends a call to the list of a rank. */
void schedule_add(Arena *arena, Tokens *list, TokenKind kind, int stage,
                  int microbatch);

/* ---- interleaved.c ---- */

/* Returns the micro-batches of a group: there are as many equal groups as have
 * at least as many as there are ranks, or one. */
int schedule_group(const PipelineShape *shape);
/* Appends call `at` of a kind on a rank, which takes a group of micro-batches
 * through all of its stages before the next group. */
void schedule_add_grouped(Arena *arena, const PipelineShape *shape,
                          Tokens *list, int rank, TokenKind kind, int at);

#define PIPELINE_SCHEDULE(name, function, placement, args, needs, ...)         \
  void schedule_##function(Arena *arena, const PipelineShape *shape,           \
                           Tokens *lists);                                     \
  const char *schedule_needs_##needs(Arena *arena, const PipelineShape *shape);
#include "ir/pipeline/pipeline_schedules.def"

#endif
