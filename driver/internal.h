/*
 * internal.h -- declares the state of a compilation, which the files of the
 * driver share.
 */
#ifndef DRIVER_INTERNAL_H
#define DRIVER_INTERNAL_H

#include "driver/driver.h"
#include "passes/decode/incremental_decoding.h"

/* ---- sources.c ---- */

/* Returns the folder of a model file, absolute. */
const char *driver_model_folder(Arena *arena, const char *path);
/* Loads the model of the options, elaborated, with the pins of its plan file or
 * its own blocks.  Returns false after mistakes. */
bool driver_load_model(Compilation *c);

/* ---- data_files.c ---- */

/* Counts samples as the EvalSampleCounter of the front end, with the readers of
 * the runtime. */
bool driver_count_eval_samples(const Compilation *c, const Model *model,
                               int64_t *out_samples);

/* ---- pipeline.c ---- */

/* Returns the pins with those of the options, which go before lines of the
 * plan. */
const Pins *driver_add_options(const Compilation *c, const Pins *written);

/* ---- cluster.c ---- */

/* Returns whether the devices of the first ranks of the cluster compute in the
 * dtype of the model; mistakes are printed. */
bool driver_check_devices(const Compilation *c);

/* ---- target.c ---- */

/* Finds the back end that the options name, with the libraries of this machine.
 */
Status driver_read_target(Compilation *c);

/* ---- run_passes.c ---- */

typedef struct PassRun {
  const char *name;     /* name of the entry point */
  const Plan *plan;     /* NULL means one rank and one micro-batch */
  const Plan *compared; /* as in PassContext */
  bool is_training, is_decode, keeps_gradients;
  bool is_plain; /* for the plain program: nothing is printed or dumped */
  bool leaves_out_updates;
  const StageCut *cut; /* of the graph of a stage; else NULL */
  int begin, end;      /* as in PassOptions */
} PassRun;

/* Runs passes; mistakes are in the diagnostics of `module`. */
PassResult driver_passes(const Compilation *c, Module *module,
                         const PassRun *run, Graph *graph);
/* Returns the context that the decode passes and buffer assignment need; its
 * scratch memory is the caller's to destroy. */
PassContext driver_pass_context(const Compilation *c, const Plan *plan);

/* ---- stages.c ---- */

/* Does what driver_compile_stages does, in a run that the caller describes. */
bool driver_run_stages(const Compilation *c, const PassRun *of, Graph *graph,
                       StageGraphs *out);

/* ---- programs.c ---- */

/* An entry point of a plan of several stages: that of each class of ranks. */
typedef struct StageEntries {
  int n;                 /* classes */
  const int *n_ranks;    /* ranks of each */
  const int *first_rank; /* by class, ascending */
  EntryPoint *entries;   /* by class; not yet packed */
} StageEntries;

/* Makes it from the final graphs of the stages.  Returns false after mistakes,
 * such as an order in which ranks may hang. */
bool driver_stage_entries(const Compilation *c, EntryPointId id,
                          const StageGraphs *graphs, StageEntries *out);

/* ---- servers.c ---- */

/* Returns whether a run of passes makes graphs of workers and servers. */
bool driver_has_servers(const PassRun *run);
/* Makes the graph of the workers, and then that of each server; false after
 * mistakes. */
bool driver_run_servers(const Compilation *c, const PassRun *of, Graph *graph,
                        StageGraphs *out);
/* Makes their programs, which train with these graphs. */
void driver_add_servers(Compilation *c, const StageGraphs *graphs);
/* Says of optimizer state of which a server has rows that it is a shard, once
 * the buffers have their places. */
void driver_place_tables(Compilation *c);
/* Gives servers the other entry points, without instructions. */
void driver_add_idle_entries(Compilation *c);

/* ---- entry_points.c ---- */

/* Returns the program of all ranks, or of the workers, to be filled in; it is
 * made when it is first asked for. */
RankProgram *driver_program(Compilation *c);
/* Returns the model's own graph for an entry point.  Returns NULL if it has
 * none. */
Graph *driver_model_graph(const Model *model, EntryPointId id);
/* A model with graphs of its own, in this module; see TrialPlan. */
const Model *driver_copy_model(Module *module, const Model *model, int blocks);
/* The plan for this entry point; NULL: it is not partitioned. */
/* Returns the samples in the batch of an entry point. */
int64_t driver_entry_point_batch(const Model *model, EntryPointId id);
const Plan *driver_entry_point_plan(const Compilation *c, EntryPointId id);
/* All passes over a graph of this entry point, or its rows before `end`,
 * if that is not 0.
 * False after mistakes, which are printed. */
bool driver_compile_graph(const Compilation *c, EntryPointId id, Graph *graph,
                          int end, PassResult *out);
/* The passes over the graph of an entry point: its rows before `end`. */
PassRun driver_pass_run(const Compilation *c, EntryPointId id, int end);
/* Compiles this entry point of the model and adds it, where the model has it
 * and the purpose wants it.  False after mistakes. */
bool driver_add_entry_point(Compilation *c, EntryPointId id);
/* Adds an entry point from this graph; NULL adds none.  `out` has the graphs
 * after the last pass; it may be NULL. */
bool driver_add_graph(Compilation *c, EntryPointId id, Graph *graph,
                      StageGraphs *out);
/* Compiles training without adding it where other entry points need to know
 * which averages of parameters it stores. */
bool driver_compile_averages(Compilation *c);
/* Adds the plain program, which finds the first value that is not finite: the
 * loss and its gradients without fusion.  If that fails, the bundle has none.
 */
void driver_add_plain(Compilation *c);

/* ---- decode.c ---- */

/* Adds prefill and, where the net allows it, decode and decode_init. */
bool driver_add_decoding(Compilation *c);

/* ---- buffers.c ---- */

/* Assigns persistent buffers, then an arena for each entry point.  A checkpoint
 * holds all that training has, so does a bundle that reads one. */
void driver_assign_buffers(Compilation *c);
/* Assigns the buffers of the stages of an entry point. */
void driver_assign_entry_point(const Compilation *c, EntryPoint *entry,
                               const PersistentBuffers *persistent);
/* Returns whether the program keeps the pin `memory` of the plan; else prints a
 * mistake. */
bool driver_fits_memory(const Compilation *c);

#endif
