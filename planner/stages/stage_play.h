/*
 * stage_play.h -- declares how long a step takes whose stages cost so much, by
 * the calls of its schedule in order: an estimate without links that are shared
 * and launches between.
 */
#ifndef PLANNER_STAGES_STAGE_PLAY_H
#define PLANNER_STAGES_STAGE_PLAY_H

#include "ir/pipeline/pipeline.h"
#include "planner/stages/stage_costs.h"
#include "planner/stages/stage_lives.h"

/* A schedule of so many stages on so many groups of ranks. */
typedef struct StageShape {
  const PipelineSchedule *schedule;
  int groups, stages; /* stages: of all groups */
  int microbatches;
} StageShape;

typedef VEC(int) PlayEdges;

/* The calls of a shape, of as many micro-batches as show how it goes on. */
typedef struct StagePlay {
  StageShape shape;
  const Pipeline *pipeline;
  const Pipeline *lowered;         /* with its messages */
  const struct StagePlay *fewer;   /* with fewer micro-batches; NULL: all are
                                      played */
  const PlayEdges *read, *written; /* by kind and stage of a call */
  const StageLives *lives;
  const int *frames; /* by stage: micro-batches whose values it keeps */
  const StageFrames *frames_of; /* by stage */
} StagePlay;

/* Returns false if the schedule refuses the shape.  Shares the calls of a known
 * one that shows as many micro-batches of a like shape. */
bool stage_play_create(Arena *arena, const StageShape *shape,
                       const StagePlay *const *known, int n_known,
                       StagePlay *out);
/* `ends`: by stage, the piece behind its last one. */
Ps stage_play_step(Arena *arena, const StagePlay *play, const StageCosts *costs,
                   const int *ends);
/* Returns the bytes of the group of ranks that needs most. */
Bytes stage_play_peak(Arena *arena, const StagePlay *play,
                      const StageCosts *costs, const int *ends);

#endif
