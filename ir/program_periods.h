/*
 * program_periods.h -- declares what the files about timelines of periods
 * share; only they include it.
 */
#ifndef IR_PROGRAM_PERIODS_H
#define IR_PROGRAM_PERIODS_H

#include "ir/pipeline/rendezvous.h"
#include "ir/program.h"

/* A rank, with a list of its own. */
typedef struct PeriodRank {
  int stage, replica;
} PeriodRank;

/* In the unrolled lists: replicas add up gradients before this token. */
typedef struct PeriodSum {
  int rank, at;
  int group; /* number of the update */
} PeriodSum;

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
  VEC(PeriodSum) sums;
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
  return p->in->has_two ? p->m : p->stages[stage].n_ranks;
}

/* ---- program_period_lists.c ---- */

/* Fills in the lists of ranks.  Returns false if no order suits all of them. */
bool period_lists(Periods *p);
/* Unrolls the lists from filling to draining. */
void period_unroll(Periods *p);

/* ---- program_period_places.c ---- */

/* Returns the version that a unit reads in a stage, as the number of updates
 * that have made it. */
int period_version(const Periods *p, int stage, int unit);
/* Counts frames, slots and versions. */
void period_places(Periods *p);
/* Reports what may hang, or is used again too early. */
bool period_prove(Periods *p);

#endif
