// links: runtime support
/*
 * silence.c -- tests who is judged lost from reports of silence, and which
 * ranks exchange heartbeats.
 */
#include "runtime/comm/comm.h"
#include "runtime/recorder/silence.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* "0>3 1>3": rank 0 and rank 1 have heard nothing of rank 3. */
static void check(const char *reports, bool hears_all, const char *expected) {
  Silences silences = {0};
  char data[300];
  FixedText text = fixed_text(data, sizeof data);
  for (int by, of, n; sscanf(reports, "%d>%d %n", &by, &of, &n) == 2;
       reports += n)
    silence_add(&silences, by, of);
  Verdict verdict = silence_judge(&silences, hears_all);
  silence_describe(&text, &verdict);
  cr_assert_str_eq(data, expected, "%s: %s", reports, data);
}

Test(silence, a_rank_that_all_accuse_is_lost) {
  check("0>3 1>3 2>3", false,
        "lost rank 3: ranks 0, 1, 2 have heard nothing of it");
  check("2>0 1>0", false, "lost rank 0: ranks 1, 2 have heard nothing of it");
}

Test(silence, a_pair_that_accuses_itself_is_a_link) {
  check("0>3 3>0", false, "no contact between rank 0 and rank 3");
  check("5>2 2>5", true, "no contact between rank 2 and rank 5");
}

Test(silence, one_report_names_the_silent_rank_only_if_it_would_be_heard) {
  check("1>0", false, "no contact between rank 0 and rank 1");
  check("0>1", false, "no contact between rank 0 and rank 1");
  check("0>1", true, "lost rank 1: rank 0 has heard nothing of it");
}

/* The rank itself reports the pairs, then both sides do at once. */
Test(silence, a_rank_without_any_link_is_cut_off) {
  check("3>0 3>1 3>2", false, "no contact between rank 3 and ranks 0, 1, 2");
  check("3>0 0>3 1>3 3>1", false, "no contact between rank 3 and ranks 0, 1");
}

Test(silence, reports_count_once_and_have_an_end) {
  Silences silences = {0};
  cr_assert(silence_add(&silences, 0, 1));
  cr_assert_not(silence_add(&silences, 0, 1));
  for (int i = 2; i <= MOST_SILENCES; i++)
    cr_assert(silence_add(&silences, 0, i));
  cr_assert_not(silence_add(&silences, 0, 99));
}

/* ---- peers ---- */

static int count_peers(const DnnGroup *groups, int n_groups, int world,
                       unsigned char *is_peer) {
  int most = 0;
  memset(is_peer, 0, (size_t)world * (size_t)world);
  for (int rank = 0; rank < world; rank++) {
    for (int i = 0; i < n_groups; i++)
      comm_add_peers(&groups[i], rank, is_peer + rank * world);
    int n = 0;
    for (int i = 0; i < world; i++) n += is_peer[rank * world + i];
    if (n > most) most = n;
  }
  for (int a = 0; a < world; a++)
    for (int b = 0; b < world; b++)
      cr_assert_eq(is_peer[a * world + b], is_peer[b * world + a]);
  return most;
}

Test(peers, small_groups_are_complete) {
  static unsigned char is_peer[16 * 16];
  DnnGroup all = group_of_all(0, 16);
  cr_assert_eq(count_peers(&all, 1, 16, is_peer), 15);
}

/* 64 ranks, of which 8 and 8 are groups: 5 distances twice and one once around
 * the world, and the members of both groups. */
Test(peers, large_worlds_are_bounded) {
  static unsigned char is_peer[64 * 64];
  DnnGroup groups[3] = {group_of_all(0, 64)};
  int alone = count_peers(groups, 1, 64, is_peer);
  cr_assert_eq(alone, 11);
  groups[1] = (DnnGroup){.ranks = 64, .size = 8, .n_digits = 1};
  groups[1].digits[0] = (DnnDigit){8, 1};
  groups[2] = groups[1];
  groups[2].digits[0] = (DnnDigit){8, 8};
  int both = count_peers(groups, 3, 64, is_peer);
  cr_assert(both > alone && both <= alone + 14, "%d", both);
  for (int rank = 1; rank < 8; rank++) {
    cr_assert(is_peer[rank], "rank %d of the row", rank);
    cr_assert(is_peer[8 * rank], "rank %d of the column", rank);
  }
}
