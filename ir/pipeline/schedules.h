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

#define PIPELINE_SCHEDULE(name, function, saving, meaning)                     \
  void schedule_##function(Arena *arena, const PipelineShape *shape,           \
                           Tokens *lists);
#include "ir/pipeline/pipeline_schedules.def"

#endif
