/*
 * schedules.c -- finds schedules by name and makes pipelines of them.
 */
#include "ir/pipeline/schedules.h"

#include <string.h>

static const PipelineSchedule schedule_rows[] = {
#define SAVING_keep      false, false
#define SAVING_recompute true, false
#define SAVING_split     false, true
#define STATUS_compiled  true, false
#define STATUS_pinned    false, true
#define STATUS_later     false, false
#define UPDATE_early     true, false, false
#define UPDATE_versions  true, true, false
#define UPDATE_double    true, true, true
#define UPDATE_late      false, false, false
#define PIPELINE_SCHEDULE(name, function, placement, args, needs, saving,      \
                          update, status, meaning)                             \
  {name,                                                                       \
   meaning,                                                                    \
   PLACEMENT_##placement,                                                      \
   PIPELINE_ARGS_##args,                                                       \
   SAVING_##saving,                                                            \
   UPDATE_##update,                                                            \
   STATUS_##status,                                                            \
   schedule_needs_##needs,                                                     \
   schedule_##function},
#include "ir/pipeline/pipeline_schedules.def"
#undef SAVING_keep
#undef SAVING_recompute
#undef SAVING_split
#undef UPDATE_early
#undef UPDATE_versions
#undef UPDATE_double
#undef UPDATE_late
#undef STATUS_compiled
#undef STATUS_pinned
#undef STATUS_later
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

bool pipeline_has_chunks(const PipelineSchedule *schedule) {
  return schedule->placement == PLACEMENT_looped ||
         schedule->placement == PLACEMENT_vee;
}

int pipeline_rank_of_stage(const PipelineSchedule *schedule, int n_ranks,
                           int stage) {
  ASSERT(schedule->placement != PLACEMENT_halves);
  bool goes_back = schedule->placement == PLACEMENT_vee && stage >= n_ranks;
  return goes_back ? 2 * n_ranks - 1 - stage : stage % n_ranks;
}

const char *schedule_needs_any(Arena *arena, const PipelineShape *shape) {
  (void)arena;
  (void)shape;
  return NULL;
}

const char *pipeline_schedule_refuses(Arena *arena,
                                      const PipelineSchedule *schedule,
                                      const PipelineShape *shape) {
  int p = shape->ranks, s = shape->stages;
  const char *needed = NULL;
  if (schedule->placement == PLACEMENT_halves && s != p)
    needed = arena_printf(arena, "as many stages as ranks, not %d on %d", s, p);
  else if (schedule->placement == PLACEMENT_single && s != p)
    needed = arena_printf(arena, "one stage on each rank, not %d on %d", s, p);
  else if (schedule->placement == PLACEMENT_looped && s % p != 0)
    needed = arena_printf(
        arena, "equally many stages on each rank, not %d on %d", s, p);
  else if (schedule->placement == PLACEMENT_vee && s != 2 * p)
    needed = arena_printf(arena, "two stages on each rank, not %d on %d", s, p);
  else
    needed = schedule->needs(arena, shape);
  if (!needed) return NULL;
  return arena_printf(arena, "'%s' needs %s", schedule->name, needed);
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
