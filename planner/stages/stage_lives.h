/*
 * stage_lives.h -- declares how many micro-batches have a value at once on a
 * rank: frames and slots, as the timeline of a program counts them.
 */
#ifndef PLANNER_STAGES_STAGE_LIVES_H
#define PLANNER_STAGES_STAGE_LIVES_H

#include "ir/pipeline/pipeline.h"
#include "price/price_list.h"
#include "planner/stages/stage_values.h"

/* Micro-batches that have values of a stage from one kind of call to another.
 */
typedef struct StageFrames {
  int whole;  /* F to B, or W */
  int input;  /* F to I */
  int weight; /* I to W */
} StageFrames;

/* A value that a stage receives. */
typedef struct ReceivedValue {
  int from; /* stage */
  bool is_back;
  StageCall last; /* that reads it */
  Bytes bytes;
} ReceivedValue;
typedef VEC(ReceivedValue) ReceivedValues;

/* Where the calls of a schedule stand. */
typedef struct StageLives StageLives;

/* The pipeline without messages, and with them. */
StageLives *stage_lives_of(Arena *arena, const Pipeline *pipeline,
                           const Pipeline *lowered,
                           const PipelineSchedule *schedule);
/* `microbatches`: those of the step; the pipeline may show fewer. */
StageFrames stage_frames(Arena *arena, const StageLives *lives, int stage,
                         int microbatches);
/* Returns the bytes of all that a stage receives, in its slots. */
Bytes stage_received_bytes(Arena *arena, const StageLives *lives, int stage,
                           int microbatches, const ReceivedValues *values);

#endif
