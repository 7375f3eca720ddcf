/*
 * planning.h -- declares the search for a plan as commands use it.
 *
 *     planning_load -> planning_search -> planning_choose
 */
#ifndef TOOLS_COMMANDS_PLANNING_H
#define TOOLS_COMMANDS_PLANNING_H

#include "driver/trial.h"
#include "planner/bound.h"
#include "planner/priced_plans.h"
#include "tools/plan/plan_load.h"
#include "tools/show/inspect.h"

/* The best step after so many priced plans, of those that fit. */
typedef struct StepFall {
  int n_priced;
  Ps step;
} StepFall;

typedef struct Planning {
  Tool *tool;
  Compilation loaded;
  PriceRequest request;
  int n_blocks;      /* of the longest run of equal ones */
  int search;        /* row of searches.def */
  bool lists_stages; /* as in SearchInput */
  /* Prices small plans too where the search has a plan that fits. */
  bool looks_for_fewest_bytes;
  PricedPlans priced; /* by the search */
  /* Annotations of the model that candidates leave out. */
  const Span *without;
  int n_without;
  /* Prices of earlier searches with the same pins and machines; or NULL.
   * `cases` has those of each case of pins that are left out. */
  Map *known, *cases;
  int n_priced;
  VEC(StepFall) falls; /* each time that the best step was beaten */
  int64_t until_ms;    /* end of the search, by child_now_ms; 0: none */
  SearchHost host;
  SearchInput input;       /* of planning_search */
  BoundRequest space;      /* that a bound is of; its step is of the last one */
  const char *no_space;    /* why there is none; or NULL */
  Bound bound;             /* of the last step, which is above 0 */
  const BoundMeans *means; /* of the bound; or NULL */
  SearchResult result;
  Diags *refusal;        /* of pins that no search can keep; or
                            NULL */
  double search_seconds; /* processor time, without that of prices */
} Planning;

/* Loads the model and the cluster of the options.  Returns an exit code, after
 * messages unless it is EXIT_done. */
int planning_load(Planning *planning);
/* Prepares a planning whose model was loaded otherwise. */
void planning_begin(Planning *planning);
/* Returns how many candidates a search may price: fewer of a larger program. */
int planning_most_candidates(const Planning *planning);
/* Returns the cluster after --what-if. */
const Cluster *planning_cluster(const Planning *planning);
/* Returns what the search is given.  It points to `host`, which is filled in.
 */
SearchInput planning_input(Planning *planning, SearchHost *host);
/* Searches with progress on a terminal.  Signals are held from then on:
 * the caller ends with tool_end_as_signalled. */
void planning_search(Planning *planning);
/* Searches for the plan with the fewest bytes, or for any plan of `limit`
 * bytes; 0 means what a rank has. */
SearchResult planning_lean(Planning *planning, Bytes limit);

/* Reads the text of a plan with the options of the command line.  Returns NULL
 * after mistakes, which are in `diags`. */
const Pins *planning_read(Planning *planning, const char *text, Diags *diags);

/* Prices plans of the search as whole programs. */
void planning_price_whole(Planning *planning, int n, const char *const *texts,
                          CandidatePrice *out);

/* Returns a hash of what the ranks of all stages execute. */
uint64_t planning_program(const Priced *priced);

/* Returns a plan of the search as plans are printed, in text and words. */
FoundPlan planning_printed(Planning *planning, const FoundPlan *found);

/* ---- node_times.c ---- */

/* Lists what the nodes of a plan of one rank take, at this one of the ranks. */
bool planning_node_times(Planning *planning, const Pins *pins, int64_t rank,
                         NodeTimes *out);

/* ---- plan_words.c ---- */

/* Returns "data 2 x tensor 4".  NULL stands for the plan of one rank. */
const char *plan_mesh_words(Arena *arena, const Plan *plan);

/* ---- tools/plan/plan_choose.c ---- */

/* The whole program of a plan. */
typedef struct Chosen {
  Trial trial;
  const char *text, *words; /* as plans are printed; in words */
  Ps floor;
  Inspection rates;
} Chosen;

/* Prints the plan of a candidate of the search, without lines that change
 * nothing, then compiles and prices this text.  Returns false after mistakes,
 * which are in `diags`. */
bool planning_choose(Planning *planning, const char *candidate, Diags **diags,
                     Chosen *out);

/* ---- tools/plan/plan_bound.c ---- */

typedef struct PlanBound {
  Bound bound;   /* below the step of every plan of the searched space */
  PlanLoad load; /* of the chosen plan; only where there is a bound */
  bool has_space;
  BoundRequest space;
  const char *duals; /* text: the proof of a wide program; or NULL */
} PlanBound;

/* Fills in `space` or `no_space`. */
void planning_find_space(Planning *planning);
/* Bounds this step.  Lists the plans of the bound, unless `out` is NULL. */
void planning_bound_step(Planning *planning, Ps step, BoundPlans *out);
/* Bounds the step of the plans that planning_search looked at and that fit; the
 * bound is no longer than the step of the chosen one. */
PlanBound planning_bound(Planning *planning, const Chosen *chosen);
/* Returns a bit for each restriction of these plans. */
unsigned planning_restrictions(const Planning *planning);

/* ---- tools/plan/fewer_ranks.c ---- */

/* Prints a line if data parallelism on the first kinds of machines alone takes
 * less than this step, and no number of ranks was asked for. */
void planning_print_fewer(Planning *planning, Ps step, Text *out);

/* ---- tools/plan/plan_simplify.c ---- */

/* Returns the printed plan without lines about paths that change nothing. */
const char *planning_simplify(Planning *planning, const char *text);

/* ---- tools/plan/plan_floor.c ---- */

/* Returns a time below the step of every plan of the model on these ranks.
 * Returns 0 if none is known. */
Ps planning_floor(const Priced *priced);
/* Prints it as a field of an object, after a comma. */
void plan_print_floor_json(Text *out, const Priced *priced);

#endif
