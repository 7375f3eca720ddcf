/*
 * schedules.c -- finds schedules by name and makes pipelines of them.
 */
#include "ir/pipeline/schedules.h"

#include <string.h>

static const PipelineSchedule schedule_rows[] = {
#define SAVING_keep      false
#define SAVING_recompute true
#define PIPELINE_SCHEDULE(name, function, saving, meaning)                     \
  {name, meaning, SAVING_##saving, schedule_##function},
#include "ir/pipeline/pipeline_schedules.def"
#undef SAVING_keep
#undef SAVING_recompute
};

void schedule_add(Arena *arena, Tokens *list, TokenKind kind, int stage,
                  int microbatch) {
  vec_push(arena, list,
           (Token){.kind = kind, .stage = stage, .microbatch = microbatch});
}

int pipeline_schedule_count(void) {
  return ARRAY_LENGTH(schedule_rows);
}

const PipelineSchedule *pipeline_schedule(int index) {
  return &schedule_rows[index];
}

const PipelineSchedule *pipeline_schedule_find(const char *name) {
  for (int i = 0; i < ARRAY_LENGTH(schedule_rows); i++)
    if (strcmp(schedule_rows[i].name, name) == 0) return &schedule_rows[i];
  return NULL;
}

const char *pipeline_schedule_refuses(Arena *arena,
                                      const PipelineSchedule *schedule,
                                      const PipelineShape *shape) {
  if (shape->stages == shape->ranks) return NULL;
  return arena_printf(arena, "'%s' has one stage on each rank, not %d on %d",
                      schedule->name, shape->stages, shape->ranks);
}

Pipeline *pipeline_make(Arena *arena, const PipelineSchedule *schedule,
                        const PipelineShape *shape) {
  ASSERT(shape->ranks >= 1 && shape->stages >= 1 && shape->microbatches >= 1);
  ASSERT(!pipeline_schedule_refuses(arena, schedule, shape));
  Pipeline *pipeline = ARENA_NEW(arena, Pipeline);
  *pipeline = (Pipeline){.n_ranks = shape->ranks,
                         .n_stages = shape->stages,
                         .n_microbatches = shape->microbatches,
                         .lists = ARENA_ARRAY(arena, Tokens, shape->ranks)};
  pipeline->edges = pipeline_chain(arena, shape->stages, &pipeline->n_edges);
  schedule->fill(arena, shape, pipeline->lists);
  return pipeline;
}
