/*
 * pins.h -- declares Pins: what a person wrote about the distribution of a
 * model, each pin with its place, and how a Plan is made of them.
 *
 * What no pin says is open: the size of an axis that is `auto`, a setting
 * without a value, the placement of a path without a line.  A planner chooses
 * what is open; `plan_close` takes the defaults.
 */
#ifndef IR_PLAN_PINS_H
#define IR_PLAN_PINS_H

#include "ir/plan/certificate.h"
#include "ir/plan/graph_paths.h"

typedef struct PinAxis {
  Name name;
  int64_t size;      /* 0 means auto */
  bool is_of_stages; /* meshes of stages alone have it, so it has no size */
  Span span;
} PinAxis;

/* A setting that is a number, or open. */
typedef struct PinNumber {
  bool is_set;
  int64_t value;
  /* Place of the line; without a source the command line says it. */
  Span span;
} PinNumber;

/* The names of a caller that stand for one dim of a generic layer. */
typedef struct DimNames {
  int n;
  const Name *names;
} DimNames;

/* A parameter or state, to which lines about the names of its layer's caller
 * reach. */
typedef struct PinTensor {
  Name path;
  const Type *type;
  const DimNames *stands_for; /* names by dim */
} PinTensor;

/* A pin about paths, or an annotation. */
typedef struct PathPin {
  PlanPin pin; /* as written: axes of size 1 are among its axes */
  /* Only `remat` and `keep` have these. */
  bool names_values; /* the pin means forward values, which its paths may all
                        leave out */
  PathList inputs;   /* saved, too, where ranks gather them */
  Span subject;      /* of its first path */
} PathPin;

/* A line `stage` or `cut after`. */
typedef struct PinStage {
  PlanStage stage; /* `stage`: has its ranks if the line names them, else 0 */
  bool is_cut;
  int64_t number; /* of `stage` */
  bool has_mesh;  /* `as`: the mesh of the stage is written */
  Span mesh_span;
} PinStage;

typedef struct Pins {
  Name model;
  bool is_given; /* something was written that asks for a plan */
  /* Place of the first block of lines; without a source there is none. */
  Span block_span;
  Span mesh_span;    /* place of the block; without a source there is none */
  VEC(PinAxis) axes; /* axes of the block; without one, "data" for all ranks */
  Span data_span;    /* place where a line first names this "data" */
  PinNumber ranks, microbatches, bucket_bytes, prefetch_bytes, memory_bytes;
  PinNumber zero;
  PlanShard zero_over;  /* no axes: the line names none */
  const char *schedule; /* as one writes it; NULL means open */
  const Pipeline *list; /* the calls of the file that it names, or NULL */
  Span schedule_span;
  PlanAttention attention;
  Span attention_span;
  bool reduces_bf16;
  PlanCompress compress;
  int64_t compress_rank; /* of COMPRESS_power */
  Span compress_span;
  bool has_sync;    /* a line `sync` is written */
  PlanShard border; /* axes of `sync = hierarchical`, or none */
  PlanServers servers;
  VEC(PlanShard) shards; /* of names; a later one wins */
  VEC(PathPin) of_paths; /* a later one wins, and any over `shards` */
  VEC(PinStage) stages;  /* either cuts, or stages by number */
  VEC(PlanStage) places; /* lines `place`, with their ranks */
  /* The model, which pins are about. */
  bool has_train;
  const Certificate *certificate; /* of the plan file; NULL: it has none */
  const PlanPaths *paths;         /* NULL means that no pin names a path */
  Name batch_dim;                 /* dim of the batch, or NULL */
  /* Size of the batch in training; 0 means that there is no training. */
  int64_t batch;
  VEC(PinTensor) tensors;
} Pins;

/* Returns true if somebody wrote a mesh; else `axes` is what is taken without
 * one. */
static inline bool pins_have_mesh(const Pins *pins) {
  return pins->mesh_span.source != NULL;
}
/* Returns true if lines give the model several stages. */
static inline bool pins_have_stages(const Pins *pins) {
  return pins->stages.n > 0 || pins->places.n > 0;
}
/* Returns whether lines change what is computed, by servers of parameters or by
 * the schedule: no search compares such plans. */
bool pins_change_results(Arena *arena, const Pins *pins);
/* The axis of this name, or NULL. */
const PinAxis *pins_find_axis(const Pins *pins, Name name);
/* Returns a pin as the command line sets it: it has no place. */
PinNumber pin_number(int64_t value);
/* Returns whether a model with these pins has a plan: else one rank computes it
 * in one micro-batch. */
bool pins_ask(const Pins *pins);
/* Makes a plan without a search, in the arena of the module: the batch takes
 * every axis that no `shard` line names, there is one micro-batch, nothing is
 * recomputed, buckets have the default size.  NULL after a message. */
Plan *plan_close(Module *module, const Pins *pins);

/* ---- plan_stages.c ---- */

/* The groups of ranks on which the stages are, all of one size. */
typedef struct RankGroups {
  int64_t n;     /* 1 without stages */
  int64_t ranks; /* of all groups; 0: nothing says it */
  int size; /* ranks of a group by the lines of stages; 0: they name none */
} RankGroups;

/* Returns whether the axis is that of stages, which no mesh of a stage has. */
bool axis_is_pipe(Name axis);
/* Counts the groups; false after a message. */
bool pins_count_groups(Module *module, const Pins *pins, RankGroups *out);
/* Returns the last node of a forward graph that the line `cut after` names.
 * Returns -1 if it names none that is computed. */
int plan_cut_end(Arena *arena, const Graph *graph, const PlanStage *stage);
/* Returns whether stages have meshes of their own. */
bool pins_have_stage_meshes(const Pins *pins);
/* Gives the plan its stages, whose mesh is known, or the meshes of the lines;
 * false after a message. */
bool plan_close_stages(Module *module, const Pins *pins, const Mesh *of_lines,
                       Plan *plan);

/* ---- close_axes.c ---- */

/* Finds the sizes of the axes of the block, without `pipe`, on so many ranks:
 * `auto` is what the others leave.  Axes of size 1 are left out. */
bool pins_close_axes(Module *module, const Pins *pins, int64_t ranks,
                     Mesh *out);

/* ---- stage_meshes.c ---- */

/* Finds the mesh of each line `stage`, and one that has the axes of all of
 * them, each of its greatest size, or that of all if they do not differ; false
 * after a message. */
bool pins_close_stage_meshes(Module *module, const Pins *pins, Mesh *out,
                             Mesh *out_of_lines, bool *out_differ);

/* ---- plan_schedule.c ---- */

/* Returns on how many groups of ranks stages are whose lines name none: by
 * their number, and that of the schedule for each rank.  Returns -1 after a
 * message. */
int plan_unnamed_groups(Module *module, const Pins *pins, int n_stages);
/* Returns the group of a stage, whose line names no ranks. */
int plan_unnamed_group(Arena *arena, const Plan *plan, int stage);
/* Returns whether the list of the plan's schedule has the calls of so many
 * stages; reports. */
bool plan_check_list_stages(Module *module, const Pins *pins, int n_stages);
/* Returns the list in which the stage is: the number of its rank. */
int plan_list_group(const Pipeline *list, int stage);
/* Returns whether the list suits stages, ranks and micro-batches; reports. */
bool plan_check_list(Module *module, const Pins *pins, const Plan *plan);
/* Returns whether the schedule suits stages, ranks and micro-batches: reports
 * mistakes. */
bool plan_check_schedule(Module *module, const Pins *pins, const Plan *plan);

/* ---- plan_places.c ---- */

/* Counts the groups of ranks of lines `place`; false after a message. */
bool pins_count_places(Module *module, const Pins *pins, RankGroups *out);
/* Gives the plan the stages of its lines `place`; false after a message. */
bool plan_close_places(Module *module, const Pins *pins, Plan *plan);

/* ---- plan_attention.c ---- */

/* Warns of attentions whose parts are in several stages. */
void plan_warn_attention(Module *module, const Pins *pins, const Plan *plan);

/* ---- plan_servers.c ---- */

/* Returns whether the servers suit the rest of the plan: reports mistakes. */
bool plan_check_servers(Module *module, const Plan *plan);

/* ---- plan_make.c ---- */

/* Closes the pins and makes the lines of the plan.  Warns of lines that others
 * imply, unless the certificate of the plan is of its lines.  Returns NULL
 * after a mistake; the lines may have one, too. */
Plan *plan_make(Module *module, const Pins *pins);
/* Finds the hash of the plan's lines as they are printed. */
void plan_lines_hash(Arena *arena, const Plan *plan, char out_hex[33]);

/* ---- plan_check.c ---- */

/* Returns whether the lines may stand in this plan, which was closed of the
 * pins: reports mistakes. */
bool plan_check(Module *module, const Pins *pins, const Plan *plan);
/* Warns of lines that others imply. */
void plan_warn_implied(Module *module, const Pins *pins, const Plan *plan);
/* Warns that the later line says what the earlier one does. */
void pin_warn_implied(Module *module, Span later, Span earlier);

#endif
