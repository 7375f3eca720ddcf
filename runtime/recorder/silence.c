/*
 * silence.c -- judges from reports of silence who is lost.
 *
 *     0>3 1>3 2>3          lost rank 3: all others accuse it, it accuses none
 *     0>3 3>0              no contact between rank 0 and rank 3
 *     0>3 1>3 3>0 3>1      no contact between rank 3 and ranks 0, 1
 *
 * A rank that reports is alive.  So the rank with the most silent pairs is
 * lost if it has reported nothing, and is cut off if it has.  One silent pair
 * alone does not say which of the two is at fault, unless the one that lives
 * would have been heard.
 */
#include "runtime/recorder/silence.h"

enum { MOST_LISTED = 8 };

bool silence_add(Silences *silences, int by, int of) {
  for (int i = 0; i < silences->n; i++)
    if (silences->at[i].by == by && silences->at[i].of == of) return false;
  if (silences->n == MOST_SILENCES) return false;
  silences->at[silences->n++] = (Silence){by, of};
  return true;
}

bool silence_is_by(const Silences *silences, int rank) {
  for (int i = 0; i < silences->n; i++)
    if (silences->at[i].by == rank) return true;
  return false;
}

static void insert(Verdict *verdict, int other) {
  int at = 0;
  while (at < verdict->n_others && verdict->others[at] < other) at++;
  if (at < verdict->n_others && verdict->others[at] == other) return;
  for (int i = verdict->n_others++; i > at; i--)
    verdict->others[i] = verdict->others[i - 1];
  verdict->others[at] = other;
}

/* Those that `rank` is in a silent pair with. */
static Verdict pairs_of(const Silences *silences, int rank) {
  Verdict verdict = {.rank = rank};
  for (int i = 0; i < silences->n; i++) {
    const Silence *one = &silences->at[i];
    if (one->by == rank) insert(&verdict, one->of);
    if (one->of == rank) insert(&verdict, one->by);
  }
  return verdict;
}

/* More pairs count, then having said nothing, then the lower number. */
static bool is_worse(const Silences *silences, const Verdict *a,
                     const Verdict *b) {
  bool a_said = silence_is_by(silences, a->rank);
  bool b_said = silence_is_by(silences, b->rank);
  if (a->n_others != b->n_others) return a->n_others > b->n_others;
  if (a_said != b_said) return b_said;
  return a->rank < b->rank;
}

Verdict silence_judge(const Silences *silences, bool hears_all) {
  Verdict worst = {.rank = -1};
  for (int i = 0; i < 2 * silences->n; i++) {
    const Silence *one = &silences->at[i / 2];
    Verdict next = pairs_of(silences, i % 2 ? one->of : one->by);
    if (worst.rank < 0 || is_worse(silences, &next, &worst)) worst = next;
  }
  worst.is_lost =
      !silence_is_by(silences, worst.rank) && (worst.n_others > 1 || hears_all);
  bool is_pair = worst.n_others == 1 && !worst.is_lost;
  if (is_pair && worst.others[0] < worst.rank) {
    int other = worst.others[0];
    worst.others[0] = worst.rank;
    worst.rank = other;
  }
  return worst;
}

void silence_list(FixedText *text, const int *ranks, int n) {
  fixed_printf(text, n == 1 ? "rank" : "ranks");
  for (int i = 0; i < n && i < MOST_LISTED; i++)
    fixed_printf(text, i ? ", %d" : " %d", ranks[i]);
  if (n > MOST_LISTED) fixed_printf(text, " and %d more", n - MOST_LISTED);
}

void silence_describe(FixedText *text, const Verdict *verdict) {
  if (verdict->is_lost) {
    fixed_printf(text, "lost rank %d: ", verdict->rank);
    silence_list(text, verdict->others, verdict->n_others);
    fixed_printf(text, " %s heard nothing of it",
                 verdict->n_others == 1 ? "has" : "have");
  } else {
    fixed_printf(text, "no contact between rank %d and ", verdict->rank);
    silence_list(text, verdict->others, verdict->n_others);
  }
}
