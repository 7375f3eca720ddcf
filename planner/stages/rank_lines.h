/*
 * rank_lines.h -- declares the lines of a plan about stages of their own ranks
 * and meshes.
 */
#ifndef PLANNER_STAGES_RANK_LINES_H
#define PLANNER_STAGES_RANK_LINES_H

#include "planner/stages/rank_options.h"

typedef struct PlacedStage {
  int end; /* the piece of the chain behind its last one */
  int64_t first_rank;
  const RankOption *option;
} PlacedStage;

/* Returns whether some ranks of the stage shard operators. */
bool rank_option_shards(const RankOption *option);
/* Returns lines `stage`, and those about operators of stages that shard some.
 * Returns NULL if no paths name the stages. */
const char *rank_lines(const StageSearch *search, const PlacedStage *stages,
                       int n);
/* Returns "stages of 8-2x2 ranks": of data x tensor where ranks shard
 * operators. */
const char *rank_words(Arena *arena, const PlacedStage *stages, int n);

#endif
