/*
 * elimination.h -- declares the search that assigns every unit of a program by
 * elimination, over meshes, ZeRO, micro-batches and recomputation.
 */
#ifndef PLANNER_ELIMINATION_H
#define PLANNER_ELIMINATION_H

#include "planner/pricing.h"
#include "planner/propose.h"

typedef struct EliminationSearch EliminationSearch;

/* A plan that elimination found, by its estimates. */
typedef struct EliminatedPlan {
  Ps step;
  Bytes peak;
  bool fits; /* into the memory that was asked for */
  /* Equal for plans whose estimates err alike: of one mesh whose axes shard the
   * batch alike, with equal ZeRO and recomputation, and with both. */
  uint64_t kind, setting, form;
} EliminatedPlan;

typedef struct EliminatedPlans {
  const char *reason; /* why there are none; or NULL */
  bool is_too_large;  /* no rank has memory for its part of the parameters */
  VEC(EliminatedPlan) list;
  EliminationSearch *search;
} EliminatedPlans;

/* Returns plans of all settings, the most of which are estimated to fit into
 * `memory`.  Those that need more time than `worth` are left out. */
EliminatedPlans eliminate_plans(const Pricing *p, Bytes memory, Ps worth);
/* Adds plans with the settings of plan `at` that are estimated to fit into less
 * memory. */
void eliminate_in_less(EliminatedPlans *plans, int at, Bytes memory);
Candidate eliminated_candidate(const EliminatedPlans *plans, int at);
/* Writes a proposal that was made otherwise. */
Candidate proposal_candidate(const EliminatedPlans *plans,
                             const Proposal *proposal);
const Units *eliminated_units(const EliminatedPlans *plans);
/* Returns the tables of the place of a proposal, with other micro-batches;
 * NULL if some unit cannot be assigned. */
const UnitTables *eliminated_tables(const EliminatedPlans *plans,
                                    const Proposal *proposal,
                                    int64_t microbatches);

/* ---- descent/unit_moves.c ---- */

/* Goes from a plan, if it is of a proposal, to faster ones that place one unit
 * otherwise.  Prices so many of them in a round.  Returns the best. */
const Scored *climb_units(Pricing *p, const EliminatedPlans *plans,
                          const Scored *at, int most);

/* ---- bounded.c ---- */

/* Prices the plans of the bound, as far as the budget goes.  Returns the best
 * one of those that were not priced before; or NULL. */
const Scored *price_bounded(Pricing *p, const EliminatedPlans *plans);

/* ---- eliminated.c ---- */

/* Prices plans that elimination finds, and better neighbours of the best.  The
 * bytes of proposals are estimates: where none fits, they are asked to fit into
 * less.  Returns false if no plan fits, `out_is_too_large`: since parameters
 * alone do not. */
bool price_eliminated(Pricing *p, const Candidates *starts,
                      bool *out_is_too_large);

#endif
