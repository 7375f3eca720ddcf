/*
 * conflicts.h -- declares the search for a smallest set of pins and limits that
 * no plan keeps together, and for the changes after which there is a plan.
 *
 *     pins, memory, ranks -> demands -> a conflict -> relaxations
 *
 * The oracle is the search itself, so "no plan" means that none was found.
 */
#ifndef PLANNER_CONFLICTS_H
#define PLANNER_CONFLICTS_H

#include "planner/search.h"

typedef enum DemandKind {
  DEMAND_lines, /* lines of a plan or annotations of a model */
  DEMAND_microbatches,
  DEMAND_zero,
  DEMAND_attention,
  DEMAND_bucket,
  DEMAND_prefetch,
  DEMAND_schedule,
  DEMAND_stages, /* all lines `stage` */
  DEMAND_mesh,   /* with the lines that name its axes */
  DEMAND_ranks,
  DEMAND_memory
} DemandKind;

/* A pin that a person wrote, or a limit. */
typedef struct Demand {
  DemandKind kind;
  const char *text; /* "zero = 0", "--ranks 8" */
  VEC(Span) spans;  /* none: of the command line or of the cluster */
  bool takes_lines; /* lines cannot stay without this mesh */
} Demand;

typedef uint32_t DemandSet; /* a bit for each demand */

/* A search without some demands. */
typedef struct ConflictCase {
  DemandSet dropped;
  const Pins *pins;    /* without these demands */
  const Span *without; /* annotations among them */
  int n_without;
  bool has_no_microbatches, has_no_bucket; /* of the command line */
  int64_t ranks;                           /* 0: as the pins say */
  Bytes memory;                            /* of a rank; 0: as it is */
} ConflictCase;

typedef struct ConflictInput {
  Arena *arena; /* has the result */
  Names *names; /* of the model */
  const Pins *pins;
  Demand memory; /* the limit that a rank has; without a text: none */
  bool has_ranks_option;
  int64_t ranks, most_ranks; /* as they are; of the cluster */
  int64_t unit_ranks;        /* of the innermost level of the cluster */
  /* The smallest plan that keeps all other demands; without a text: none is
   * legal. */
  FoundPlan smallest;
  /* Bytes that the ranks of every plan store together, those of a rank; 0 and
   * 0: not known. */
  Bytes stored, limit;
  /* Plans that searches may price to find the conflict; 0: any number. */
  int64_t most_priced;
  /* Searches for the fewest bytes, as plan_search_lean does. */
  SearchResult (*lean)(void *user, const ConflictCase *the_case, Bytes limit);
  /* Searches for the shortest step. */
  SearchResult (*best)(void *user, const ConflictCase *the_case);
  /* Returns a plan as `best` has it. */
  FoundPlan (*printed)(void *user, const FoundPlan *plan);
  bool (*is_stopped)(void *user);
  void *user;
} ConflictInput;

/* A change after which there is a plan. */
typedef struct Relaxation {
  DemandSet dropped;
  int64_t ranks; /* the least number that fits, if ranks are dropped; or 0 */
  Bytes memory;  /* the least that suffices, if memory is dropped; or 0 */
  FoundPlan plan;
} Relaxation;

enum { MOST_DEMANDS = 16 };

typedef struct Conflict {
  int n_demands;
  Demand demands[MOST_DEMANDS];
  DemandSet members;
  bool is_each_enough; /* without any one member there is a plan */
  bool is_cut;         /* by most_priced: fewer members may be in conflict */
  int n_relaxations;   /* the shortest step first */
  Relaxation relaxations[MOST_DEMANDS];
} Conflict;

/* Returns false if a stop came first, or if nothing can be dropped. */
bool conflict_find(const ConflictInput *input, Conflict *out);

/* ---- demands.c ---- */

/* Fills in the pins and limits; neighbouring lines share a demand where there
 * are many. */
void demands_of(const ConflictInput *input, Conflict *out);
/* Returns the case in which these demands are dropped. */
ConflictCase demands_without(const ConflictInput *input,
                             const Conflict *conflict, DemandSet dropped);

#endif
