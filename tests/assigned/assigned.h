/*
 * assigned.h -- declares what compares the loads of units and edges under a
 * random assignment with the program that its plan compiles to.
 *
 *     seed -> mesh, settings, assignment -> loads of units and edges ----+
 *                                |                                       |
 *                                +-> plan text -> trial -> its list -----+
 *                                                                        |
 *                                                                   Comparison
 */
#ifndef TESTS_ASSIGNED_ASSIGNED_H
#define TESTS_ASSIGNED_ASSIGNED_H

#include "driver/trial.h"
#include "planner/propose.h"
#include "price/units/bound_weights.h"
#include "tests/random/choices.h"

/* ---- subjects.c ---- */

typedef struct Subject {
  const char *name, *path, *cluster;
  int n_overrides;
  Override overrides[6];
  int most_log_ranks; /* 2: 2 or 4 ranks */
} Subject;

extern const Subject assigned_subjects[];
extern const int n_assigned_subjects;

/* Options that bench_units and bench_stages have. */
typedef struct AssignedOptions {
  int64_t plans;
  const char *state, *model; /* or NULL */
} AssignedOptions;
/* Reads --plans, --state or --model.  Returns false for another name. */
bool assigned_option(AssignedOptions *options, const char *name,
                     const char *value);

/* A model whose plans are compared, as it is on one rank. */
typedef struct Program {
  const Subject *subject;
  Module *module;
  Compilation loaded;
  Trial trial;
  const Units *units;
  const PlanPaths *paths;
  PriceRequest request;
} Program;

/* Returns NULL after a mistake. */
Program *assigned_load(Memory *memory, const Subject *subject);
/* Returns NULL after a mistake. */
const Pins *assigned_read(const Program *program, Arena *arena,
                          const char *text);

/* ---- drawn.c ---- */

typedef struct Drawn {
  ClusterSlice slice;
  CostModel model;
  Loads *loads;
  const UnitTables *tables;
  const int *values; /* by unit: which of its assignments */
  Proposal proposal;
  const char *text; /* of its plan */
} Drawn;

/* Returns false if the sizes allow no plan, or no space has the assignment. */
bool assigned_draw(const Program *program, Arena *arena, uint64_t seed,
                   Drawn *out);
/* Returns the load of a unit under its assignment. */
const Load *assigned_load_of(const Drawn *drawn, int unit);
const EdgeLoad *assigned_edge_of(const Program *program, const Drawn *drawn,
                                 int edge);

/* ---- placed.c ---- */

/* Puts the assignment that the program of the plan has in the place of the
 * drawn one.  Returns how many units differ.  Returns -1, and changes nothing,
 * if no assignment of the space says how the program is placed: kernels or
 * parameters of a unit that is not placed as drawn differ. */
int assigned_placed(const Program *program, Arena *arena, const Trial *trial,
                    Drawn *drawn);

/* ---- means.c: what a bound says of one assignment ---- */

/* A mean of loads of the assignment, which no step may be below. */
double assigned_mean(const Program *program, const Drawn *drawn,
                     const BoundWeights *weights);
/* Bytes that no arena may be below. */
Bytes assigned_live_bytes(const Program *program, const Drawn *drawn);
/* The largest mean of one load of each pass, and which it is. */
double assigned_largest_mean(const Program *program, const Drawn *drawn,
                             BoundWeights *out);

/* ---- compared.c ---- */

/* Work of a rank in a step: from the tables, and from the list. */
typedef struct Sums {
  Ps launches[N_PHASES];
  Ps products, attention;
  /* Transfers before the update, by the pass that waits for them. */
  Ps links[N_PHASES][N_LOAD_LINKS];
  Bytes bytes; /* estimated; packed */
} Sums;

typedef struct Comparison {
  bool is_legal;
  int n_other_units; /* that the program places otherwise than was drawn; -1:
                        no assignment says how */
  Sums tables, list;
  int n_products, n_other_products; /* paths; those whose time differs */
  int n_attention, n_other_attention;
  const char *worst;    /* path of the launch that differs most */
  Ps worst_of[2];       /* from tables, from the list */
  Bytes live;           /* below the packed arena, says the bound */
  Ps step, mean;        /* simulated; the largest mean of loads, also of
                           the recheck */
  BoundWeights weights; /* of the mean of the tables */
  Ps bound;             /* of all plans of the mesh and settings */
} Comparison;

Comparison assigned_compare(const Program *program, Arena *arena,
                            const Drawn *drawn);

#endif
