/*
 * passes.h -- the pass list and what passes are given.  A pass reads one graph
 * and returns the next; it does no I/O and names no back end.
 */
#ifndef PASSES_PASSES_H
#define PASSES_PASSES_H

#include "ir/model/model.h"
#include "ir/place/mesh_place.h"
#include "ir/plan/plan.h"
#include "ir/program.h"
#include "ir/target.h"

typedef struct PassContext {
  Module *module;     /* results live in its arena */
  Arena *scratch;     /* freed after the pass */
  const Model *model; /* settings of train; NULL for a bare graph */
  const Plan *plan;   /* NULL means one rank */
  /* The plan of the program that is compared with this reference on one rank;
   * NULL: it is none. */
  const Plan *compared;
  const Target *target;
  bool is_training; /* the graph will be differentiated and updated */
  bool is_trial; /* nobody reads warnings: those that take long are left out */
  bool keeps_gradients; /* the update leaves them among the outputs */
  /* The graph runs once for every token, and what depends on weights alone is
   * stored: see weight_precompute.c. */
  bool is_decode;
  int level; /* -O; set by passes_run */
  /* The cut that the graph of a stage is of (stages/stages.h).  NULL means that
   * the graph is no such one. */
  const struct StageCut *cut;
} PassContext;

/* All that a pass makes of a graph. */
typedef struct PassResult {
  /* The next graph; NULL of a pass means that it changes nothing. */
  Graph *graph;
  /* Graph of what a decode graph needs done once before its first token; NULL
   * means nothing. */
  Graph *decode_init;
} PassResult;

/* Returns the plan whose stages nodes have, also in a reference. */
const Plan *pass_stage_plan(const PassContext *ctx);

/* Is the function pass_NAME of a row of passes.def: one that returns the next
 * graph, or NULL if it changes nothing, or one that splits the graph in two. */
typedef Graph *PassFunction(PassContext *ctx, const Graph *graph);
typedef PassResult PassSplitFunction(PassContext *ctx, const Graph *graph);
#define RUN(name, phase, level, training_only, bodies, only, does, why)        \
  PassFunction pass_##name;
#define RUN_SPLIT(name, phase, level, training_only, bodies, only, does, why)  \
  PassSplitFunction pass_##name;
#include "passes/passes.def"

/* A phase of the list: its rows stand together, in this order. */
typedef enum PassPhase {
  PASSES_forward,   /* the operators that the user wrote */
  PASSES_gradients, /* appends their gradients */
  PASSES_precision, /* casts to the final dtypes */
  PASSES_updates,   /* appends the updates of parameters */
  PASSES_lowering,  /* writes operators in those that have kernels */
  PASSES_local,     /* the final operators, of one rank */
  PASSES_partition, /* makes it the graph of a rank of many */
  PASSES_merging,   /* joins what several users placed alike */
  PASSES_kernels,   /* decides what each kernel computes */
  PASSES_order      /* orders the kernels */
} PassPhase;

typedef struct PassInfo {
  const char *name;
  PassFunction *run;
  PassSplitFunction *split; /* instead of `run`, or NULL */
  PassPhase phase;
  int level; /* lowest -O level at which it runs */
  bool training_only;
  bool walks_bodies;      /* the pass enters bodies of scans, after the graph */
  int only;               /* an Op without which it changes nothing, or -1 */
  const char *does, *why; /* does: "" in later rows of a pass */
} PassInfo;

int pass_count(void);
const PassInfo *pass_info(int index);
/* Returns the row of "cse", its first, or of "cse@2", its second.  Returns -1
 * if there is none. */
int pass_find(const char *wanted);
/* The row behind the one that pass_find gives; 0, as in PassOptions, for NULL.
 */
int pass_end(const char *wanted);
/* The first row of a phase. */
int pass_phase(PassPhase phase);
/* Whether "cse", any of its rows, or "cse@2" names this row. */
bool pass_is_named(int index, const char *wanted);
/* Returns the name of a row: "fuse", or "cse@2" where a pass has several rows.
 */
const char *pass_label(Arena *arena, int index);

typedef struct PassOptions {
  int level;               /* -O0..-O2 */
  bool is_plain;           /* instead: up to the gradients, what level 0 runs */
  bool leaves_out_updates; /* of parameters */
  int begin;               /* row: the graph comes from those before it */
  int end;                 /* the first row that does not run; 0: all run */
  const char *const *disabled; /* as in pass_is_named */
  int n_disabled;
  /* Graphs are verified between passes; a violation is our mistake. */
  bool verify;
  /* Called after each pass with the index of its row, the graph, which is there
   * until the call returns, and the seconds it took; or NULL. */
  void (*after)(void *user, int index, const Graph *graph, double seconds);
  /* Returns the time in seconds.  The caller gives it, because passes read no
   * clock themselves. */
  double (*clock)(void);
  void *user;
} PassOptions;

/* Runs the list of passes.def in order.  The manager fills in `scratch` and
 * `level` of `ctx`. */
PassResult passes_run(const PassContext *ctx, const PassOptions *options,
                      Graph *graph);
/* Runs one pass on this graph alone, not on the bodies of its scans. */
PassResult pass_run(PassContext *ctx, const PassInfo *pass, Graph *graph);

/* ---- train/ema_weights.c ---- */

/* Returns the graph of evaluation or sampling, with the moving averages that
 * the final graph `trained` stores ("ema/PATH") in place of parameters. */
Graph *ema_weights_read(PassContext *ctx, const Graph *graph,
                        const Graph *trained);

/* ---- fuse/accumulate_matmuls.c ---- */

/* Returns how many users and outputs each node has. */
int *graph_count_uses(const Graph *graph, Arena *arena);
/* Returns whether a product may add up the micro-batches itself, because the
 * `accumulate` that reads its result is the only user. */
bool matmul_can_add(const Graph *graph, int id, const int *n_uses);

/* ---- buffers/offload.c ---- */

/* Warns about lines `offload` of the plan that have no effect in any of these
 * final graphs of training, those of all stages. */
void offload_report(Module *module, const Plan *plan,
                    const Graph *const *graphs, int n);

/* ---- buffers/buffer_assignment.c (the last step before codegen) ---- */

void persistent_buffers_add(PersistentBuffers *layout, Arena *arena,
                            const Graph *graph, const Target *target);
/* Likewise with slots for versions of the parameters that the graph updates. */
void persistent_buffers_add_versions(PersistentBuffers *layout, Arena *arena,
                                     const Graph *graph, int n_versions,
                                     const Target *target);
/* Adds the buffers of ROLE_decode_cache after the other buffers of all graphs.
 */
void persistent_buffers_add_caches(PersistentBuffers *layout, Arena *arena,
                                   const Graph *graph, const Target *target);
/* Assigns the buffers of a stage after all passes; what its segments for
 * micro-batches read from outside is live through all calls of them.  Views
 * share their input's bytes.  An output that replaces a persistent buffer is
 * written in place where no later node reads the old value (else list_schedule
 * has appended a copy).
 */
BufferAssignment *buffer_assign(PassContext *ctx, const ProgramStage *stage,
                                const PersistentBuffers *persistent);
/* Assigns the buffers of all stages of an entry point that program_timeline
 * made, with the parts of its arena.  What several segments use has bytes of
 * its own, and one for each frame where that is the forward and the backward
 * pass; what is sent or received likewise.  Segments share the rest. */
void buffer_assign_stages(PassContext *ctx, EntryPoint *entry,
                          const PersistentBuffers *persistent);
/* Returns a lower bound on the transient bytes: the largest sum of values alive
 * at once.  It is printed beside the packed size. */
int64_t buffer_assignment_bound(const Graph *graph,
                                const BufferAssignment *layout);

#endif
