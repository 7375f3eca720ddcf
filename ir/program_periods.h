/*
 * program_periods.h -- declares the timelines of periods: their calls, what the
 * files that make them share, and the proof of finished ones.
 */
#ifndef IR_PROGRAM_PERIODS_H
#define IR_PROGRAM_PERIODS_H

#include "ir/pipeline/rendezvous.h"
#include "ir/program.h"

/* Returns the register that a ring makes of a unit, which is 0 or more. */
static inline int64_t program_ring_at(const ProgramRing *ring, int64_t unit) {
  int64_t at = unit / ring->divisor + ring->shift;
  return (at > 0 ? at : 0) * ring->factor % ring->n;
}

/* Returns whether a call of a period is made for a unit, of so many. */
static inline bool program_call_is_due(const ProgramCall *call, int64_t unit,
                                       int64_t n_units) {
  bool is_there = unit >= 0 && unit < n_units;
  int64_t first = unit - call->replica;
  bool has_group = first >= 0 && first < n_units;
  if (call->when == PERIOD_unit) return is_there;
  return call->when == PERIOD_group ? has_group : has_group && !is_there;
}

/* ---- program_periods.c ---- */

/* Does the same where the schedule has versions of parameters: `stages` have
 * their segments and `edges` are filled in.  The entry points are those of all
 * ranks of stages, ascending. */
bool program_periods(Arena *arena, const ProgramParts *parts,
                     ProgramStage *stages, ProgramEdges *edges,
                     EntryPoint *out_entries);

/* A rank, with a list of its own. */
typedef struct PeriodRank {
  int stage, replica;
} PeriodRank;

/* The versions that a schedule asks for. */
typedef struct PeriodRules {
  bool has_two;     /* for all micro-batches of a batch, else one for each */
  bool is_vertical; /* all stages read one version */
  int m;            /* units of a batch */
  const ProgramStage *stages; /* by number: their ranks and `n_ahead` */
} PeriodRules;

/* Returns the units that share an update of the stage. */
static inline int period_group_of(const PeriodRules *rules, int stage) {
  return rules->has_two ? rules->m : rules->stages[stage].n_ranks;
}

/* Units are numbered from 0 on: a micro-batch, which is a batch but where all
 * of a batch have one update.  Unit k is of replica k mod r of a stage. */
typedef struct Periods {
  Arena *arena;
  const ProgramParts *in;
  ProgramStage *stages; /* by number */
  ProgramEdges *edges;
  int m;       /* units of a batch */
  int n_units; /* of a period */
  int lead;    /* periods */
  int n_ranks;
  const PeriodRank *ranks; /* ascending */
  int *first_of;           /* by stage: index of its first rank */
  /* By rank: tokens of a period, whose micro-batch is their unit minus the
   * first one of the period. */
  Tokens *lists;
  const Pipeline *all; /* unrolled, without tokens of the step */
  PeriodRules rules;
  bool is_refused;
} Periods;

/* Returns the index of the rank of a stage that has a unit. */
static inline int period_rank(const Periods *p, int stage, int unit) {
  return p->first_of[stage] + unit % p->stages[stage].n_ranks;
}
/* Returns the units from one of a replica to its next one. */
static inline int period_stride(const Periods *p, int stage) {
  return p->stages[stage].n_ranks;
}
/* Returns the units that share an update of the stage. */
static inline int period_group(const Periods *p, int stage) {
  return period_group_of(&p->rules, stage);
}
/* Returns whether the last group of the stage may lack a unit: a batch has all
 * of its micro-batches. */
static inline bool period_has_missing(const Periods *p, int stage) {
  return !p->in->has_two && period_stride(p, stage) > 1;
}

/* ---- program_period_lists.c ---- */

/* Fills in the lists of ranks.  Returns false if no order suits all of them. */
bool period_lists(Periods *p);
/* Unrolls the lists from filling to draining. */
void period_unroll(Periods *p);

/* ---- program_period_places.c ---- */

/* Counts frames, slots and versions. */
void period_places(Periods *p);

/* ---- program_period_proof.c ---- */

/* Returns the version that a unit reads in a stage, as the number of updates
 * that have made it. */
int64_t period_version(const PeriodRules *rules, int stage, int64_t unit);

enum { PERIOD_FAULT_PLACES = 8 };

/* A call of an unrolled timeline; NULL: its end. */
typedef struct PeriodFaultPlace {
  int rank; /* index of the entry point */
  const ProgramCall *call;
  int64_t unit;
} PeriodFaultPlace;

/* The verdict and places of rendezvous_check; clash: the first call that finds
 * something else in a place than it should. */
typedef struct PeriodFault {
  RendezvousVerdict verdict;
  int n_places;
  PeriodFaultPlace places[PERIOD_FAULT_PLACES];
} PeriodFault;

/* Proves the entry points of all ranks of stages, ascending, unrolled from
 * filling to draining. */
PeriodFault period_prove(Arena *arena, const EntryPoint *entries, int n,
                         const PeriodRules *rules);

#endif
