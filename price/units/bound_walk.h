/*
 * bound_walk.h -- declares the walk over settings and weights that bounds the
 * step of every plan of a space that fits.
 *
 * The walk decides which bounds are asked for, an evaluator what they are.  So
 * the search and those who check it walk the same space, each with tables and
 * sums of its own.
 */
#ifndef PRICE_UNITS_BOUND_WALK_H
#define PRICE_UNITS_BOUND_WALK_H

#include "price/price_list.h"
#include "price/units/assignment.h"
#include "price/units/bound_weights.h"
#include "price/units/stage_groups.h"
#include "price/units/units.h"

/* Devices of one kind, all of which a plan may use. */
typedef struct BoundKind {
  const ClusterGroup *group;
  const CostModel *model;
  int64_t ranks;
} BoundKind;

typedef struct BoundRequest {
  const Units *units;
  const ClusterSlice *slice;
  const CostModel *model;
  int64_t ranks, batch;
  const Mesh *mesh;          /* NULL: all of one or two axes on all ranks */
  int64_t microbatches;      /* 0: powers of two that divide the batch */
  int64_t most_microbatches; /* of these; 0: any number */
  unsigned zeros;            /* a bit for each level */
  bool may_recompute;        /* all blocks of repeats */
  Bytes memory;              /* of a rank */
  /* Numbers of groups of ranks with stages of their own: 0 and 0 are plans
   * without stages, which 1 has, too.  `crosses`: by edge, from
   * unit_edges_cross where there may be stages. */
  int least_groups, most_groups;
  const bool *crosses;
  const StageSpans *spans; /* from unit_stage_spans; or NULL */
  /* Where there are some, they share the work of plans on any ranks: with
   * stages if there may be groups, else each rank has as large a part. */
  int n_kinds;
  const BoundKind *kinds;
  /* One of the kinds where there are no such plans: loads are those of its
   * ranks, which run the program that all ranks run.  NULL: ranks are alike. */
  const BoundKind *of;
  Ps step; /* of a plan of the space; the bound is no higher */
  const BoundWeights *first; /* to be tried early for each setting; or NULL */
  bool (*is_stopped)(void *user); /* or NULL; if so there is no bound */
  void *user;
} BoundRequest;

/* Has many plans: each unit may have any assignment. */
typedef struct BoundSetting {
  const Mesh *mesh; /* of one group */
  int groups;       /* of ranks, which have stages; below 2: no stages */
  int64_t microbatches;
  int batch_axes; /* those that shard the batch of every unit, a bit each; or
                     ANY_AXES: each unit may differ */
  int zero;
  bool recomputes; /* all blocks of repeats */
} BoundSetting;

/* Plans of the search have no more. */
enum { MOST_STAGE_GROUPS = 64 };

/* Prints "mesh 2 x 4 on each of 8 groups of ranks, ZeRO 1, micro-batches 4". */
void bound_setting_print(Text *out, const BoundSetting *setting);

/* The load that a step takes at least as long as. */
typedef enum BoundBy {
  BOUND_BY_mean,     /* of the loads of the model; of all groups of ranks */
  BOUND_BY_operator, /* the loads of one, which one group has */
  BOUND_BY_chain,    /* one micro-batch through all stages and back */
  BOUND_BY_work      /* kernels of the model, on the devices of all ranks */
} BoundBy;

typedef struct Bound {
  const char *reason; /* why there is none; or NULL */
  const char *fault;  /* of what was given as its proof; or NULL */
  bool is_empty;      /* since no plan of the space fits */
  Ps time;
  BoundSetting setting; /* whose plans may be that fast; not by work */
  BoundWeights weights;
  BoundBy by;
} Bound;

/* Prints which load bounds the step, and the setting. */
void bound_print_limit(Text *out, const Bound *bound);

/* ---- bound_kinds.c ---- */

/* Returns the kinds of devices of the ranks, each group of the cluster as one.
 * Returns NULL if they are more than MOST_BOUND_KINDS. */
const BoundKind *bound_kinds(Arena *arena, const CostModel *model,
                             const ClusterSlice *ranks);
/* Returns the kind on which kernels of the whole model take longest. */
const BoundKind *bound_slowest_kind(const Units *units, const BoundKind *kinds,
                                    int n);
/* Prints ", on the devices 'v100_16g' of 'old'" if the loads are theirs. */
void bound_print_kind(Text *out, const BoundRequest *request);
/* Returns the models of all kinds, and which of them `of` is.  Returns NULL if
 * ranks are alike. */
const CostModel *bound_models(const BoundRequest *request, int *out_of);
/* Returns a model by which no kernel takes longer than parts of it that ranks
 * compute together: whatever it loses to tiles that are not full. */
CostModel bound_whole_model(const CostModel *model);

/* ---- evaluators ---- */

typedef struct BoundQuestion {
  const BoundSetting *setting;
  const void *tables; /* that `open` returned */
  BoundWeights weights;
} BoundQuestion;

typedef struct BoundAnswer {
  bool is_known; /* false: a table would be too large */
  Ps time;       /* below the step of all plans of the setting that fit */
  Bytes bytes;   /* of the plan whose mean of loads is the least; of its groups
                    on average */
  BoundBy by;
} BoundAnswer;

/* The extreme means of an assignment: every other mean is between them. */
typedef struct BoundLoads {
  double of[N_BOUND_EXTREMES], bytes;
} BoundLoads;

typedef struct BoundEvaluator {
  void *user;
  /* Returns tables for all levels of ZeRO, with and without recomputation.
   * Returns NULL if there is no plan, or if there are no tables for a reason,
   * which it fills in. */
  const void *(*open)(void *user, const BoundSetting *setting,
                      const char **out_reason);
  BoundAnswer (*answer)(void *user, const BoundQuestion *question);
  /* Returns no more bytes than each plan of the setting has, on average over
   * its groups. */
  Bytes (*least_bytes)(void *user, const BoundQuestion *question);
  /* Returns the loads of the assignment at which answer `at` of the setting was
   * the least, by link and split of the question.  Returns false if there are
   * not so many; or NULL. */
  bool (*loads)(void *user, const BoundQuestion *question, int at,
                BoundLoads *out);
  /* Returns false if no price of memory gives these weights a higher answer
   * than `worth`; or NULL. */
  bool (*may_pass)(void *user, const BoundQuestion *question, Ps worth);
  /* Returns weights that bound the setting well, to be tried first; NULL: none
   * are known; or NULL. */
  const BoundWeights *(*known)(void *user, const BoundSetting *setting);
} BoundEvaluator;

/* ---- bound_walk.c ---- */

Bound bound_walk(Arena *arena, const BoundRequest *request,
                 const BoundEvaluator *evaluator);

#endif
