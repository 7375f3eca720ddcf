/*
 * staged.h -- declares the search for plans with stages of equal meshes: their
 * number, the mesh of each, cuts, schedule, micro-batches, ZeRO, recomputation
 * and the assignment of all units inside.
 *
 *     groups x mesh x micro-batches    propose (propose.h): assignments
 *     each assignment                  costs of pieces (stage_costs.h)
 *     each schedule                    cuts (stage_cuts.h), step (stage_play.h)
 *     the fastest of these             priced whole, then plans beside the best
 */
#ifndef PLANNER_STAGES_STAGED_H
#define PLANNER_STAGES_STAGED_H

#include "planner/pricing.h"
#include "planner/stages/stage_cuts.h"
#include "planner/stages/stage_pins.h"

/* A plan with stages, by estimates. */
typedef struct StagedPlan {
  const Proposal *proposal; /* on the mesh of a stage */
  const StageCosts *costs;
  StageShape shape;
  int chunks;      /* stages of each group */
  const int *ends; /* by stage: the piece behind its last one */
  Ps step;
  Bytes peak;
} StagedPlan;

typedef VEC(StagedPlan) StagedPlans;

typedef struct StageSearch {
  Pricing *p;
  Arena *arena;
  const Units *units;
  StageChain chain;
  const StageValues *values; /* of a micro-batch */
  StagePins pins;
  StageEnds ends;
  Bytes memory;           /* of a rank, as plans are estimated to fit */
  SpaceRequest of;        /* of one number of groups */
  StagedPlans plans;      /* that are estimated to fit */
  VEC(StagePlay *) plays; /* that are known */
  int64_t n_estimates;    /* of all walks */
  Ps best;                /* the least step that is estimated */
  bool takes_all_cuts;    /* of each assignment, whatever their bytes, */
  int64_t most_estimates; /* up to about this number of estimates */
  double least_over;      /* bytes of a price over its estimate; 0: none was */
  /* Costs of pieces of a model without units (planner/timed); or NULL. */
  struct TimedNodes *timed;
} StageSearch;

/* Prices plans with stages, after those without, if any.  Returns why none is
 * looked for, or NULL. */
const char *price_staged(Pricing *p);
/* Finds the units and borders of a search that has its pricing and arena.
 * Returns why no plan with stages is looked for, or NULL. */
const char *stage_begin(StageSearch *search);

/* ---- stage_walk.c ---- */

/* Fills in the plans. */
void stage_walk(StageSearch *search);
/* Estimates a plan with its shape; cuts it unless it has `ends`.  Returns false
 * if the schedule refuses the shape, or nothing fits. */
bool stage_estimate(StageSearch *search, StagedPlan *plan);

const StagePlay *stage_play_of(StageSearch *search, const StageShape *shape);

/* ---- stage_all_cuts.c ---- */

/* Adds the smallest plans of an assignment and schedule, under all cuts. */
void stage_add_cuts(StageSearch *search, const StagePlay *play,
                    const StagedPlan *like);

/* ---- stage_lean.c ---- */

/* No estimate of a small program is as many times what its arena packs. */
enum { MOST_TIMES_OVER = 2 };

/* Returns whether plans of the program are so cheap to price that many may be.
 */
bool stage_is_small(const Pricing *p);
/* Prices the smallest plans with assignments in about so much memory, of all
 * borders.  Returns the first one that fits, or NULL. */
const StagedPlan *stage_price_small(StageSearch *search, Bytes memory);

/* Prices the smallest plans, whatever their steps. */
void price_staged_lean(StageSearch *search);

/* ---- stage_moves.c ---- */

/* Goes from a priced plan to faster ones beside it: other cuts, schedules,
 * micro-batches. */
void stage_climb(StageSearch *search, const StagedPlan *from, int most);
Candidate stage_candidate(const StageSearch *search, const StagedPlan *plan);

/* ---- stage_list.c ---- */

/* Lists the best plan of each number of groups and schedule, for
 * SearchResult. */
void stage_list(StageSearch *search);

#endif
