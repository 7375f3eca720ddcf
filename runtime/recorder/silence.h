/*
 * silence.h -- judges from reports of silence who is lost: a rank, or the link
 * between two.
 */
#ifndef RUNTIME_RECORDER_SILENCE_H
#define RUNTIME_RECORDER_SILENCE_H

#include "support/support.h"

enum { MOST_SILENCES = 16 };

/* Rank `by` has heard nothing of rank `of`. */
typedef struct Silence {
  int32_t by, of;
} Silence;

typedef struct Silences {
  int32_t n;
  Silence at[MOST_SILENCES];
} Silences;

typedef struct Verdict {
  bool is_lost; /* `rank` is; else it has no contact with the others */
  int rank;
  int n_others, others[MOST_SILENCES]; /* ascending */
} Verdict;

/* Adds a pair of ranks.  Returns false if it is known, or there is no place
 * left. */
bool silence_add(Silences *silences, int by, int of);
/* Returns whether the rank has reported a pair: it lives. */
bool silence_is_by(const Silences *silences, int rank);
/* Judges; needs a report at least.  `hears_all` means that whoever lives has
 * had the time and the way to report. */
Verdict silence_judge(const Silences *silences, bool hears_all);
/* Describes a verdict: "lost rank 3: ranks 0, 1 have heard nothing of it" or
 * "no contact between rank 0 and rank 3". */
void silence_describe(FixedText *text, const Verdict *verdict);
/* Appends ranks as "rank 3" or "ranks 0, 1, 2 and 5 more". */
void silence_list(FixedText *text, const int *ranks, int n);

#endif
