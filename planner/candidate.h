/*
 * candidate.h -- declares a point of the space.
 */
#ifndef PLANNER_CANDIDATE_H
#define PLANNER_CANDIDATE_H

#include "planner/space.h"

typedef struct Candidate {
  int n_axes;
  int64_t sizes[MAX_AXES]; /* outermost first, as in the mesh */
  DimSet dims[MAX_AXES];   /* that the axis shards; none: the batch */
  bool has_batch_line; /* `batch` are the axes that shard the batch, if any */
  AxisSet batch;
  int zero;
  AxisSet zero_axes; /* over which ZeRO shards; none: all those of a candidate
                        with lines about paths, else those of the batch */
  int64_t microbatches;
  PlanAttention attention;
  uint32_t remats; /* a bit for each repeat */
  uint32_t layers; /* that are computed again: a bit for each other layer */
  int bucket, prefetch;
  AxisSet border; /* axes of `sync = hierarchical` */
  /* Lines about paths, in place of `dims`, and the names of the axes; or
   * NULL. */
  const char *lines;
  const char *const *axis_names;
  const struct Proposal *proposal; /* that the lines say; or NULL */
  /* Groups of ranks with stages, each of which has the axes; 0: one program.
   * The schedule as plans spell it, and lines `cut after`. */
  int groups;
  const char *schedule, *cuts;
  const char *stages; /* words about stages of their own meshes; or NULL.  The
                         cuts are lines `stage` then. */
} Candidate;

/* Returns the candidate with one axis for neighbours that shard the same dims,
 * unless somebody wrote the mesh. */
Candidate candidate_merged(const Space *space, const Candidate *candidate);
/* The plan file. */
const char *candidate_text(const Space *space, const Candidate *candidate);
/* "data 16 x tensor 8, ZeRO 1, 4 micro-batches, block recomputed" */
const char *candidate_words(const Space *space, const Candidate *candidate);
/* Over how many shards the batch is divided. */
int64_t candidate_batch_shards(const Candidate *candidate);
/* Returns false if the micro-batches of a rank would have different numbers of
 * samples: no such plan is legal.  Ranks may have different numbers. */
bool candidate_is_even(const Space *space, const Candidate *candidate);

/* Returns the name of an axis by what it shards: "tensor", or "tensor_outer"
 * and "tensor_outermost" where one and two axes inside of it have its role. */
const char *mesh_axis_name(Arena *arena, const char *role, int n_inside);

#endif
