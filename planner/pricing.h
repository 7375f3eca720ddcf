/*
 * pricing.h -- declares what the searches over candidates share: which
 * candidates have been priced, in which order they are, and how many more may
 * be.
 *
 * A candidate that fits goes before one that does not; those that fit are
 * ordered by their step, the others by the bytes that are missing.  Each
 * candidate is priced once.  The budget is a number of candidates, so the
 * result depends on no clock.
 */
#ifndef PLANNER_PRICING_H
#define PLANNER_PRICING_H

#include "planner/candidate.h"
#include "planner/solve/solve_pairs.h"

typedef struct Scored {
  Candidate candidate;
  CandidatePrice price;
  bool is_whole; /* the price is that of the whole program */
} Scored;

typedef VEC(Candidate) Candidates;

typedef struct Pricing {
  const SearchInput *input;
  Arena *arena;
  Space space;
  PairSolver *solver;   /* of the assignments of units */
  Names *texts;         /* of the candidates that are priced */
  Map *known;           /* text -> Scored */
  VEC(Scored *) scored; /* in the order in which they were priced */
  const Scored *best;
  int n_priced, most;
  bool prices_whole; /* not with fewer blocks */
  const char *units; /* words about the plans that place unit by unit */
  int n_staged;      /* as in SearchResult */
  bool ends_early;   /* the walk over stages, by its budget */
  bool is_timed;     /* stages are cut by simulated times (planner/timed) */
  const StagedChoice *staged;
} Pricing;

Pricing pricing_create(const SearchInput *input);

/* ---- order ---- */

/* Returns the bytes that a plan needs beyond those of a rank. */
Bytes price_missing(const CandidatePrice *price);
bool price_is_better(const CandidatePrice *a, const CandidatePrice *b);
/* Returns the better of two; of equal ones the first.  Either may be NULL. */
const Scored *scored_better(const Scored *a, const Scored *b);
/* Returns the best legal one of the list that is not in `taken`, and adds it
 * there. */
const Scored *scored_take_best(const Scored *const *list, int n, Map *taken);

/* ---- prices ---- */

/* Returns true after a signal, or if no more candidates may be priced. */
bool pricing_is_over(const Pricing *p);
/* Returns NULL if the candidate has not been priced. */
const Scored *pricing_known(const Pricing *p, const Candidate *candidate);
/* Prices those that are new, as far as the budget goes. */
void pricing_all(Pricing *p, const Candidates *list);
const Scored *pricing_one(Pricing *p, const Candidate *candidate);
/* Prices the list.  Returns the best of it and `from`. */
const Scored *pricing_best_of(Pricing *p, const Candidates *list,
                              const Scored *from);
void pricing_add(Pricing *p, Candidates *list, const Candidate *candidate);

/* ---- pins ---- */

/* Returns NULL if nobody wrote any. */
const Pins *pricing_pins(const Pricing *p);
/* Returns false if somebody wrote the mesh. */
bool pricing_mesh_is_open(const Pricing *p);
/* Sets what the pins fix. */
void pricing_pin(const Pricing *p, Candidate *c);

#endif
