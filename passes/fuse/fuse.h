/*
 * fuse.h -- groups of nodes that become one kernel, shared by the files of the
 * pass fuse.
 */
#ifndef PASSES_FUSE_H
#define PASSES_FUSE_H

#include "passes/rewrite.h"

#define MAX_SPACE 12 /* loops of a kernel */

/* Node ids that become one kernel, ascending. */
typedef struct Group {
  VEC(int) members;
  int64_t position;   /* ascends along the list of groups: see fuse_order.c */
  int previous, next; /* neighbours in that list; -1 means none */
  bool is_fusable;    /* the nodes of the group may stand in a body */
  int merge_class;    /* groups merge only within: phase, micro-batch, part */
  /* For a group without reductions and lookups, a type whose dims are its
   * loops; else NULL. */
  const Type *plain;
  /* The least number of its distinct inputs, free ones apart; 0 of a single
   * node that is not plain. */
  int n_inputs;
  double repeated; /* cost of a plain group, see FuseSummary */
} Group;

/* The place of a group in the list. */
typedef struct GroupPlace {
  int64_t position;
  int group;
} GroupPlace;

typedef struct Fusion {
  PassContext *ctx;
  const Graph *graph;
  Arena *arena; /* scratch */
  int n;        /* nodes, and groups: group i began as node i */
  Group *groups;
  int *group_of; /* group by node; -1 means not stored: every user has a copy */
  bool *is_free; /* costs nothing: copied into every body that uses it */
  /* By node, or NULL: a clone for its users, which must not merge with its
   * producers. */
  bool *is_clone;
  /* Ends of the list of groups in topological order; -1 means none. */
  int first, last;
  int64_t *elements; /* elements of its first result, by node */
  int *user_begin;   /* users of node i: users[user_begin[i]..[i + 1]) */
  int *users;
  bool *is_output;
  int *group_mark, *node_mark, mark; /* visited: group_mark[g] == mark */
  /* Work space. */
  int *ids, *stage; /* [max_nodes] */
  Value *seen;      /* [max_inputs] */
  VEC(int) stack;   /* stack of groups */
  VEC(GroupPlace) places;
  int max_nodes, max_inputs;
} Fusion;

/* Facts about a set of nodes as one body. */
typedef struct FuseSummary {
  int n_space, n_inner;
  Dim space[MAX_SPACE];  /* S */
  Name inner[MAX_SPACE]; /* R */
  bool is_row_like, has_reduction, has_lookup;
  /* Operations on values that have fewer elements than the loops, which are
   * done again for each of the others. */
  double repeated;
  int n_inputs; /* distinct values from outside, free ones apart */
} FuseSummary;

/* ---- fuse_groups.c ---- */

/* Returns one group a node, in memory of its own.  `is_clone` may be NULL. */
Fusion *fusion_create(PassContext *ctx, const Graph *graph, bool *is_clone);
void fusion_destroy(Fusion *fusion);
/* Merges two groups if the result keeps the contract and no path leads from
 * one to the other through a third.  Returns the group that remains, or -1. */
int fusion_merge(Fusion *fusion, int a, int b);
/* Returns whether the value is needed outside of its group. */
bool fusion_escapes(const Fusion *fusion, int id);

/* ---- fuse_order.c ---- */

/* Appends a group to the list in topological order. */
void fusion_order_append(Fusion *fusion, int group);
/* Returns whether no path leads from group `first` to group `last`, which
 * stands behind it, through a third.  Then takes `first` out of the list, and
 * moves those behind `last` that follow `first` and stood before `last`. */
bool fusion_order_join(Fusion *fusion, int first, int last);

/* ---- fuse_check.c ---- */

/* Returns false if nodes `ids` (ascending) as one body broke the contract at
 * the head of fuse.c, or computed small expensive values again and again. */
bool fuse_check(Fusion *fusion, const int *ids, int n, FuseSummary *out);
/* Answers as fuse_check for the members of two plain groups with the same
 * loops, where it follows from what is known of each: nothing that leaves the
 * union did not leave one of them.  Returns false if fuse_check must be asked.
 */
bool fuse_check_plain(const Fusion *fusion, const Group *a, const Group *b);
/* Notes the facts of a group whose members passed fuse_check with this summary.
 */
void fuse_note_plain(const Fusion *fusion, Group *group,
                     const FuseSummary *summary);

/* ---- fuse_clone.c ---- */

/* Returns the graph with cheap values computed again for the groups that need
 * them, where that saves storing them; fills out_is_clone by node.  Returns
 * NULL if there are no such values. */
Graph *fusion_clone(Fusion *fusion, bool **out_is_clone);

/* ---- fuse_share.c ---- */

/* The bodies of a graph so far. */
typedef struct BodyShare {
  Module *module;
  Module trial; /* module of the body that is being built */
  Map *known;   /* bodies that differ, by hash */
} BodyShare;

BodyShare *body_share_begin(const Fusion *fusion);
/* Returns the body as part of the module of the graph, with the nodes of an
 * equal one if there is one; `body` is of the module `trial`, and is gone after
 * it. */
Graph *body_share_keep(BodyShare *share, Graph *body);
void body_share_end(BodyShare *share);

/* ---- fuse_emit.c ---- */

Graph *fusion_emit(Fusion *fusion);

#endif
