/*
 * search.h -- declares the search for a plan of one program on one mesh: what
 * it is given, what it asks a judge, and what it finds.
 *
 *     model, pins, cluster -> space -> candidates -> judge -> the best plan
 *
 * A candidate is the text of a plan.  Its price comes from a function of the
 * caller, which compiles and simulates it.
 */
#ifndef PLANNER_SEARCH_H
#define PLANNER_SEARCH_H

#include "planner/solve/solve_pairs.h"
#include "ir/cluster/cluster.h"
#include "ir/plan/pins.h"
#include "ir/target.h"
#include "planner/bound.h"
#include "planner/timed/node_times.h"
#include "price/cost.h"

/* The cost of a candidate.  The price of a program with fewer equal blocks
 * stands for that of the whole one, unless `is_whole`. */
typedef struct CandidatePrice {
  bool is_legal;
  Ps step;
  Bytes peak, memory; /* of a rank; that it may have */
} CandidatePrice;

typedef struct CandidateList {
  int n;
  const char *const *texts; /* of plan files */
  bool is_whole;
} CandidateList;

/* The caller's side.  Each function gets `user`. */
typedef struct SearchHost {
  /* Prices all candidates of the list. */
  void (*price)(void *user, const CandidateList *list, CandidatePrice *out);
  bool (*is_stopped)(void *user);
  /* How far the search is; or NULL. */
  void (*progress)(void *user, int n_priced, int of,
                   const CandidatePrice *best);
  /* How many plans with stages are estimated, the last ones on so many groups
   * of ranks; or NULL. */
  void (*estimated)(void *user, int64_t n_plans, int groups);
  /* Lists the plans of the bound of a step (bound.h); or NULL. */
  void (*bound)(void *user, Ps step, BoundPlans *out);
  /* Simulates one rank, at this one of the search, that has the whole batch in
   * so many micro-batches, and lists what its nodes take.  Returns false if
   * that is refused; or NULL. */
  bool (*times)(void *user, int64_t microbatches, int64_t rank, NodeTimes *out);
  void *user;
} SearchHost;

typedef struct SearchInput {
  Arena *arena;       /* has the result */
  const Graph *train; /* before all passes */
  const Pins *pins;
  const Cluster *cluster;
  int64_t ranks; /* the first ones of the cluster, all of which have work */
  int most_candidates;
  int search;        /* row of searches.def */
  bool is_lean;      /* for the fewest bytes, as in lean.c */
  bool lists_stages; /* `staged` of the result is filled in */
  const SearchHost *host;
  /* For a search over every operator, or NULL and 0: the final training graph
   * of one rank, the machines, the paths that lines can name, and the bytes
   * that a rank may have. */
  const Graph *kernels;
  UnitRepeats repeats; /* of the program, of which the graph has a part */
  const CostModel *model;
  const ClusterSlice *slice;
  const PlanPaths *paths;
  const Target *target; /* that the kernels are compiled for; or NULL */
  Bytes memory;
  int64_t most_microbatches; /* more are refused; 0: any number */
} SearchInput;

typedef struct FoundPlan {
  const char *text;
  const char *words;    /* "data 16 x tensor 8, ZeRO 1, 4 micro-batches" */
  CandidatePrice price; /* of the whole program */
} FoundPlan;

/* The best plan of a mesh. */
typedef struct MeshPlan {
  const char *mesh; /* "data 16 x tensor 8" */
  FoundPlan plan;
} MeshPlan;

/* The best plan of a number of groups of ranks with stages and a schedule: of
 * those that were priced and fit, else the one with the least estimate. */
typedef struct StagedChoice {
  int groups, stages;   /* 1 group: without stages, and without what follows */
  const char *schedule; /* as plans spell it */
  int64_t microbatches;
  const char *cuts; /* "block[3], block[7]" */
  FoundPlan plan;
  bool is_estimate; /* so is the price */
} StagedChoice;

typedef struct SearchResult {
  bool has_plan; /* that fits */
  bool is_stopped;
  bool has_stages; /* plans with stages were looked for, too */
  bool is_timed;  /* these by simulated times: nothing but the floor bounds them
                   */
  FoundPlan best; /* without one that fits: the one that misses least */
  CandidatePrice plain; /* of data parallelism, if that is legal */
  const char *plain_text;
  const char *first; /* text of the first candidate; NULL: there is none */
  int n_priced, n_legal, n_fit;
  /* Assignments of all units that were found by either method. */
  int n_solved[N_SOLVE_METHODS];
  const char *space; /* in words */
  /* From priced_plans_list: plans that fit, no two of one program, the best
   * first; the best plan of each mesh, the best mesh first.  The price of one
   * that was priced with fewer blocks alone is an estimate of the whole. */
  int n_found, n_meshes;
  const FoundPlan *found;
  const MeshPlan *meshes;
  int n_staged; /* from a search for stages that lists them, the best first */
  const StagedChoice *staged;
} SearchResult;

SearchResult plan_search(const SearchInput *input);

/* ---- lean.c ---- */

/* Searches for the plan with the fewest bytes on a rank, and ends early at one
 * that fits.  `limit` is the memory of a rank; 0 means what the host says. */
SearchResult plan_search_lean(const SearchInput *input, Bytes limit);

/* ---- searches.c: the rows of searches.def ---- */

typedef SearchResult SearchFunction(const SearchInput *input);
#define SEARCH(name, run, meaning) SearchFunction run;
#include "planner/searches.def"

typedef struct SearchInfo {
  const char *name;
  SearchFunction *run;
  const char *meaning;
} SearchInfo;

int search_count(void);
const SearchInfo *search_info(int row);
/* Returns the row of this name.  Returns -1 if there is none. */
int search_find(const char *name);

#endif
