/*
 * rank_options.h -- declares the ranks that a stage of its own number of ranks
 * may be on: of one kind of device, of one island, each a range.
 *
 *     4 servers of 4     15 ranks   from 0 or 1 on
 *                         2 ranks   of one server; of two
 *
 * Ranges that the levels of links divide alike are one shape, since what is on
 * them costs the same.
 */
#ifndef PLANNER_STAGES_RANK_OPTIONS_H
#define PLANNER_STAGES_RANK_OPTIONS_H

#include "planner/stages/rank_cuts.h"
#include "planner/stages/staged.h"

enum { MOST_SHARDING = 8 };

typedef struct RankShape {
  int ranks;
  const ClusterSlice *slice; /* of the first such range */
  const CostModel *model;
  const Mesh *mesh;
  /* By ranks that shard operators, in the number of its ranks: a mesh of those
   * that share the batch, around these. */
  const Mesh *tensor[MOST_SHARDING + 1];
  MeshChains *chains;
  Map *proposals; /* that are known of these meshes */
  Bytes memory;
  bool *may_begin; /* [rank] */
  bool *turned;    /* the same, ranks counted from the last one down */
} RankShape;

typedef VEC(RankShape) RankShapes;

/* Lists the shapes that divide the batch. */
void rank_shapes_list(const StageSearch *search, RankShapes *out);

/* Where options differ: micro-batches, ZeRO, recomputation of blocks. */
typedef struct RankSetting {
  int microbatches, zero;
  bool recomputes;
  bool is_turned; /* the first stage has the last ranks */
  bool shards;    /* some ranks of a stage may shard operators */
} RankSetting;

/* The borders at which stages of a search may end: the chain's, without those
 * inside of a unit, and of many only some. */
typedef struct RankBorders {
  int n;             /* pieces between these */
  const int *pieces; /* [n]: of the chain, before the end of each */
} RankBorders;
RankBorders rank_borders(const StageSearch *search);

typedef VEC(RankOption) RankOptions;
/* Lists the shapes on which each micro-batch is divided evenly, with what
 * pieces cost if all ranks of a stage share the batch; and if some of them
 * shard operators, as `propose` assigns these. */
void rank_options_list(const StageSearch *search, const RankShapes *shapes,
                       const RankBorders *borders, const RankSetting *setting,
                       RankOptions *out);
/* Returns whether some ranks may shard operators so that the others divide each
 * micro-batch. */
bool rank_shape_may_shard(const StageSearch *search, const RankShape *shape,
                          int microbatches, int sharding);

/* The messages between ranges, each computed once. */
typedef struct RankLinks {
  const StageSearch *s;
  Map *known;
} RankLinks;

typedef struct RankRanges {
  int64_t from, n_from, to, n_to; /* first ranks, numbers of ranks */
} RankRanges;

/* Returns what a message takes while each rank of the smaller range sends one,
 * or gets one. */
const MessageRate *rank_message_rate(RankLinks *links,
                                     const RankRanges *ranges);

#endif
