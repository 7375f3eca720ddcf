/*
 * stage_pins.h -- declares what pins say about stages: how many groups of
 * ranks, which mesh each has, the schedule, and where stages end.
 *
 *     mesh { pipe = 4; data = 2 }     4 groups, the mesh of each
 *     schedule = zbh1                 only this one
 *     cut after block[3]              a stage ends there, others may elsewhere
 *     stage 0: wte, block[0]          all stages
 */
#ifndef PLANNER_STAGES_STAGE_PINS_H
#define PLANNER_STAGES_STAGE_PINS_H

#include "planner/search.h"
#include "planner/stages/stage_chain.h"

typedef struct StagePins {
  const Pins *pins;                 /* or NULL */
  bool needs_stages;                /* no plan of one program keeps them */
  int64_t groups;                   /* of ranks; 0: open */
  const PipelineSchedule *schedule; /* NULL: open */
  int chunks;                       /* stages of a group under this schedule */
  int n_cuts;                       /* lines `cut after` */
  int n_stages;                     /* by lines `stage`; 0: there are none */
  const Pins *of_stage; /* what they say about the ranks of one group; its mesh
                           is open where only `pipe` is written */
} StagePins;

StagePins stage_pins_of(Arena *arena, const Pins *pins);
/* Returns the ranks of a plan by its lines about stages and the written mesh.
 * Returns 0 if they leave it open. */
int64_t stage_pins_ranks(Arena *arena, const Pins *pins);
/* Returns whether so many ranks can be so many groups, of the written mesh. */
bool stage_pins_allow_groups(const StagePins *pins, int64_t ranks,
                             int64_t groups);
/* Returns whether a schedule with so many stages on each group keeps the lines
 * about the schedule and the number of stages. */
bool stage_pins_allow_schedule(const StagePins *pins,
                               const PipelineSchedule *schedule, int groups,
                               int chunks);

/* Where lines let stages end in a chain. */
typedef struct StageEnds {
  const bool *is_pinned; /* by piece: a stage ends behind it; NULL: of none */
  const char *const *texts; /* by piece: as the line has it, or NULL */
  const int *of_stages;     /* by stage, of lines `stage`: the piece behind its
                               last one; NULL: open */
  /* A line `cut after` that stands beside another one in one piece, or a line
   * `stage` that has no border; NULL: none. */
  const PinStage *lost;
} StageEnds;

StageEnds stage_ends_of(Arena *arena, const StagePins *pins,
                        const StageChain *chain);
/* Returns the chain of borders between kernels, or of all borders where lines
 * need these: a cut inside of a kernel, or more stages than there are pieces.
 */
StageChain stage_pins_chain(Arena *arena, const StagePins *pins,
                            const PlanPaths *paths, const Units *units);
/* Returns the lines `stage` as a plan has them. */
const char *stage_pins_lines(Arena *arena, const StagePins *pins);

/* ---- stage_refusals.c ---- */

/* Returns whether some plan with stages may keep the pins: reports those that
 * cannot be kept.  True, too, where they ask for no stages. */
bool stage_pins_check(Module *module, const SearchInput *input);

#endif
