/*
 * peers.c -- chooses which ranks of a group exchange heartbeats.
 *
 * In a small group all do, because collectives exchange data between all of its
 * members: so a cut link between any two is noticed.  A large one would cost
 * too many messages: there the members at distance 1, 2, 4, ... do, so that
 * news of a lost rank reaches all members in few steps.
 */
#include "runtime/comm/comm.h"

enum { ALL_TO_ALL = 16 };

/* Distances are along the ring of indices. */
static bool are_peers(int a, int b, int size) {
  int distance = a < b ? b - a : a - b;
  if (distance > size - distance) distance = size - distance;
  return size <= ALL_TO_ALL || (distance & (distance - 1)) == 0;
}

void comm_add_pairs(const DnnPairs *pairs, int rank, unsigned char *is_peer) {
  int as_sender = rank - pairs->first, as_receiver = as_sender - pairs->peer;
  if (as_sender >= 0 && as_sender < pairs->ranks)
    is_peer[rank + pairs->peer] = 1;
  if (as_receiver >= 0 && as_receiver < pairs->ranks)
    is_peer[rank - pairs->peer] = 1;
}

void comm_add_peers(const DnnGroup *group, int rank, unsigned char *is_peer) {
  if (!group_has(group, rank)) return;
  int own = group_index(group, rank);
  for (int i = 0; i < group->size; i++)
    if (i != own && are_peers(own, i, group->size))
      is_peer[group_rank(group, rank, i)] = 1;
}
