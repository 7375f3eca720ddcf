/*
 * shared_links.h -- declares which links of the cluster several programs share:
 * the links of a program of the simulator.
 */
#ifndef PRICE_SHARED_LINKS_H
#define PRICE_SHARED_LINKS_H

#include "price/cost.h"

typedef enum LinkDirection {
  LINK_out,
  LINK_in,
  N_LINK_DIRECTIONS
} LinkDirection;

typedef struct SharedLinks {
  int n_cluster, n_programs, n_queues;
  bool are_shared; /* else each queue has links of its own */
  int *of; /* [program * n_cluster + link]: the first program that shares it */
} SharedLinks;

/* Finds the programs that share links; each runs on ranks of its own and has at
 * most so many queues. */
SharedLinks shared_links_of(Arena *arena, const ClusterSlice *slice,
                            const RankRange *ranks, int n_programs,
                            int n_queues, bool are_shared);
int shared_links_count(const SharedLinks *links);
/* Returns the link of the simulator for one of the cluster (cost_links), in one
 * direction, as a queue of a program uses it. */
int shared_link(const SharedLinks *links, int program, int queue, int link,
                LinkDirection direction);
/* The first program that has a link of the simulator, and the direction. */
typedef struct SharedLinkOwner {
  int program;
  LinkDirection direction;
} SharedLinkOwner;

SharedLinkOwner shared_link_owner(const SharedLinks *links, int link);
/* Returns how many directions of a link a collective uses: with one program
 * both are alike, and one stands for them. */
int shared_link_directions(const SharedLinks *links);

#endif
