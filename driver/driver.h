/*
 * driver.h -- compiles a model file to a bundle.  The three functions of
 * pipeline.c are called in this order: load, compile, build.
 *
 * Nothing is printed: mistakes of the user, and what of the machine fails, are
 * left in the diagnostics of the module.
 */
#ifndef DRIVER_DRIVER_H
#define DRIVER_DRIVER_H

#include "codegen/codegen.h"
#include "frontend/frontend.h"
#include "passes/stages/stages.h"
#include "price/cost.h"

/* ---- what is asked for ---- */

/* The purpose of the bundle: to train, with every entry point that the model
 * has, or to read a checkpoint, with the entry points that this needs alone. */
typedef enum Purpose {
  PURPOSE_train,
  PURPOSE_evaluate,
  PURPOSE_predict,
  PURPOSE_sample
} Purpose;

/* Facts that the data files of a model give at compile time: the size of the
 * last batch of an evaluation. */
typedef enum DataFiles {
  DATA_FILES_unread,
  DATA_FILES_read,    /* a file that does not fit the model says nothing */
  DATA_FILES_checked, /* such a file is a mistake, a missing one a note */
  DATA_FILES_needed   /* a missing file is a mistake too */
} DataFiles;

/* A pass over the graph of an entry point has run. */
typedef struct WatchedPass {
  const char *entry_point;
  int row; /* row of passes.def */
  const Graph *graph;
  double seconds; /* CPU time */
} WatchedPass;

/* Functions that see a compilation on its way; each may be NULL.  The plain
 * program is not shown. */
typedef struct CompileWatch {
  void *user;
  void (*pass)(void *user, const WatchedPass *pass);
  /* Is told that a station beside the passes has ended. */
  void (*station)(void *user, const char *name, double seconds);
} CompileWatch;

typedef struct CompileOptions {
  Purpose purpose;
  const char *path; /* path of the model file */
  /* The folder in which imports are looked for that are not beside it: that of
   * the models that come with dnnc; or NULL. */
  const char *library;
  const char *net; /* instead of the one that the model trains; or NULL */
  Predicting predicting;
  /* Path of the value to predict; NULL means the net's result. */
  const char *value;
  const Override *overrides; /* NAME=VALUE */
  int n_overrides;
  bool is_checked;    /* check computed indices too */
  bool is_model_only; /* no plan and no bundle follow: see FrontendOptions */
  bool takes_cluster; /* all its ranks, unless somebody says how many */
  bool leaves_open;   /* a plan is searched: pins are not closed */
  bool has_whole_windows; /* compile no `decode` */
  bool explains_windows;  /* note why there can be no `decode` */

  const char *plan;    /* path of the plan file, or NULL */
  const char *cluster; /* path of the cluster file, or NULL */
  /* Texts that are in no file, each instead of the file of its path; or NULL.
   */
  const Source *found_plan, *detected_cluster;
  int64_t ranks;        /* 0 means as the plan says */
  int64_t microbatches; /* 0 means as the plan says */
  int64_t bucket_bytes; /* 0 means as the plan says */
  const char *target;   /* NULL means that of the cluster, or cpu */

  DataFiles data_files;
  const char *data_folder; /* the folder to look in first, or NULL */
  bool follows_links;      /* out of the folders of model, data and run */

  int level;                   /* -O0..-O2 */
  bool verifies;               /* graphs between passes */
  const char *const *disabled; /* passes */
  int n_disabled;
  CompileWatch watch;
  /* Further steps that driver_verify makes to compare their losses. */
  int n_more_steps;
} CompileOptions;

/* ---- what comes out ---- */

typedef struct EntryPointInfo {
  Purpose purpose;             /* besides training */
  bool is_sharded, is_derived; /* is_derived: by decode.c, from prefill */
  const char *about;
} EntryPointInfo;

const EntryPointInfo *entry_point_info(EntryPointId id);

/* The result of the passes under a plan: one graph, or those of its stages. */
typedef struct StageGraphs {
  VEC(Graph *) graphs; /* by stage */
  /* The cut that the graphs come from.  One graph has no edges. */
  StageCut cut;
  Graph *decode_init; /* as in PassResult */
} StageGraphs;

typedef struct Compilation {
  Module *module;
  const CompileOptions *options;
  const char *model_folder; /* absolute folder of the model file */
  const Model *model;
  /* Pins with those of the options; NULL means that no plan is read. */
  const Pins *pins;
  PlanReader *plans;      /* NULL like `pins` */
  const Plan *plan;       /* NULL means one rank and one micro-batch */
  const Cluster *cluster; /* NULL means that the options name none */
  bool is_trial;          /* nobody reads its warnings */
  BuildTarget target;
  int ranks; /* ranks of the bundle */
  VEC(ProgramClass)
  classes;                    /* in the order of their ranks; none: nothing is
                                 compiled yet */
  const Graph *trained;       /* final graph of training, once it is compiled */
  StageGraphs trained_stages; /* those of its stages instead, if it has some */
  char model_hash[33];
} Compilation;

/* The point up to which a model is compiled. */
typedef enum Station {
  STATION_ordered, /* training: its final graph and list of instructions */
  STATION_packed,  /* station with all entry points, in the arena of a rank */
  STATION_program  /* station with what a bundle has, and whether it fits */
} Station;

typedef enum CompileResult {
  COMPILE_done,
  COMPILE_mistake, /* a mistake that is in the diagnostics */
  COMPILE_no_plan  /* the program does not fit the plan's memory, as they say */
} CompileResult;

/* ---- pipeline.c ---- */

/* Makes forward graphs, pins and plan from a source.  `module` and `options`
 * live as long as the compilation. */
CompileResult driver_load(Module *module, const CompileOptions *options,
                          Compilation *out);
/* Returns the plan that the pins ask for.  Returns NULL for one rank without a
 * plan, or after a mistake, which is in the diagnostics. */
const Plan *driver_close(const Compilation *c, const Pins *pins);
/* Makes entry points from graphs, as far as the station. */
CompileResult driver_compile(Compilation *c, Station station);
/* Returns the model to be compiled under another plan (NULL means one rank),
 * with mistakes in the diagnostics of `module`, which may be a copy of the
 * other one's.  Nobody watches it. */
Compilation driver_replan(const Compilation *c, Module *module,
                          const Plan *plan);
/* Returns the program of all ranks, where they run the same one.  It is empty
 * if nothing is compiled yet. */
const RankProgram *driver_only_program(const Compilation *c);
/* Returns the training step.  Returns NULL if the program has none. */
const EntryPoint *driver_training_step(const Compilation *c);
/* Returns the entry point with the largest arena, which decides what a rank
 * needs, and the bytes of this arena.  Returns NULL if there is no entry point.
 */
const EntryPoint *driver_largest(const Compilation *c);
const EntryPoint *driver_largest_of(const RankProgram *program);
int64_t driver_arena_bytes(const Compilation *c);
/* Returns the bytes of the arena in host memory that its ranks have. */
int64_t driver_host_bytes_of(const RankProgram *program);
/* Returns the outputs for which this entry point does its batch at once,
 * although training has micro-batches, such as "'metric', 'std'".  Returns NULL
 * if there are none. */
const char *driver_whole_batch(const Compilation *c, const EntryPoint *entry);
/* Makes a bundle from entry points.  `host` has what the caller knows: folders,
 * C compiler, runtime, progress; the rest is filled in here. */
Status driver_build(const Compilation *c, const BuildOptions *host,
                    BuildReport *out);

/* ---- program_hash.c ---- */

/* Hashes the model that a plan with these pins is for: its graphs with sizes
 * and paths, its annotations, and settings on which a plan may depend. */
void driver_program_hash(const Model *model, const Pins *pins,
                         char out_hex[33]);

/* ---- remat_check.c ---- */

/* Warns where the lines `remat` of the plan do not lower the peak memory. */
void driver_check_remat(const Compilation *c);

/* ---- cluster.c ---- */

/* Loads a cluster file.  Returns NULL after mistakes. */
const Cluster *driver_load_cluster(Module *module, const char *path);
/* Returns the cluster that the options name, or detected one.  Returns NULL
 * after mistakes. */
const Cluster *driver_chosen_cluster(Module *module,
                                     const CompileOptions *options);
/* Loads the curves that a cluster file names.  Returns false after mistakes. */
bool driver_load_curves(Module *module, const Cluster *cluster,
                        const char *cluster_path, Curves *out);
/* Returns whether the cluster has so many ranks; else reports a mistake that
 * names who asks for them. */
bool driver_check_ranks(Module *module, const Cluster *cluster, int64_t ranks,
                        const char *asker);
/* Likewise, at the line of a plan that says so; `pins` may be NULL. */
bool driver_check_plan_ranks(Module *module, const Cluster *cluster,
                             const Pins *pins, int64_t ranks);
/* Returns whether it has as many ranks as are compiled; else reports it. */
bool driver_check_compiled_ranks(const Compilation *c);
/* Fills in the model of the first group of devices of these ranks, with the
 * curves that the file of its cluster names; keeps profile, terms, and curves
 * if there are any.  Returns false after mistakes. */
bool driver_cost_model(const Compilation *c, const ClusterSlice *slice,
                       CostModel *out);
/* Returns the back end of the devices of its first ranks (0 means all). Returns
 * NULL if they have different ones. */
const char *driver_cluster_target(const Cluster *cluster, int64_t ranks);
/* Returns whether the devices of those ranks that the options name have one
 * back end; else reports that this is not supported yet. */
bool driver_check_one_target(const Compilation *c);
/* Reports that what is asked for is not supported yet where stages keep
 * versions of their parameters; false if they do not. */
bool driver_refuse_versions(const Compilation *c, const char *what);
/* Does so where the plan has servers. */
bool driver_refuse_servers(const Compilation *c, const char *what);

/* ---- for a look inside ---- */

/* Returns one graph of the loaded model before all passes.  Returns NULL if the
 * model has none, or if a note has said why. */
Graph *driver_graph(const Compilation *c, EntryPointId id);
/* All passes over that graph, or its rows before `end`, if that is not 0.
 * NULL after mistakes, one of which is a plan with stages. */
Graph *driver_run_passes(const Compilation *c, EntryPointId id, Graph *graph,
                         int end);
/* Runs all passes over that graph, or its rows before `end`, if that is not 0.
 * Up to `partition` there is one graph for all stages.  Returns false after
 * mistakes. */
bool driver_compile_stages(const Compilation *c, EntryPointId id, Graph *graph,
                           int end, StageGraphs *out);
/* The instructions of a rank for a graph after all passes. */
const InstructionList *driver_instructions(const Compilation *c,
                                           const Graph *graph);
/* Returns an entry point of this final graph, not yet packed. */
EntryPoint driver_entry_point(const Compilation *c, EntryPointId id,
                              const Graph *graph);
/* Returns the buffers of the final graph of this entry point alone. */
const BufferAssignment *
driver_assign_alone(const Compilation *c, EntryPointId id, const Graph *graph);

/* Returns the CPU time of this thread. */
double driver_seconds(void);
/* Tells the watch of the options that a station has ended, which began at
 * `begin`. */
void driver_end_station(const CompileOptions *options, const char *station,
                        double begin);

#endif
