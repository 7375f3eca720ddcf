/*
 * plan.h -- declares a Plan: how a model is distributed, as data with names and
 * paths and without node numbers.  It is closed: every decision is taken.
 * `plan_close` (pins.h) makes one of what a person wrote, `partition` acts on
 * it.
 */
#ifndef IR_PLAN_PLAN_H
#define IR_PLAN_PLAN_H

#include "ir/ir.h"
#include "ir/pipeline/pipeline.h"

/* `shard NAME over AXES`: every dim of this name in every tensor that has it.
 */
typedef struct PlanShard {
  Name dim;
  int n_axes;
  Name axes[MAX_AXES]; /* outermost first */
  Span span;
} PlanShard;

/* The things that the paths of a pin name. */
typedef enum PinAbout {
  ABOUT_value,    /* parameters, states, data fields and computed values */
  ABOUT_operator, /* operators of the language */
  ABOUT_gradient, /* parameters: these paths are keys, see plan_update_key */
  ABOUT_optimizer /* the same, for their optimizer state */
} PinAbout;

/* The decision of a pin about its paths. */
typedef enum PinSays {
  SAYS_placement,
  SAYS_remat,  /* the backward pass computes these forward values again */
  SAYS_keep,   /* they are stored for it */
  SAYS_offload /* they, parameters or optimizer state are in host memory */
} PinSays;

/* A pin about paths.  A placement is the full one of what they name;
 * `replicate` is one without shards.  For an operator, it has the dims over
 * which the operator computes in shards, those that it sums over included, and
 * no others. */
typedef struct PlanPin {
  PinAbout about;
  PinSays says;
  bool is_annotation; /* of the model: any pin of the plan wins */
  int n_paths;
  const Name *paths; /* all that the pin means */
  int n_shards;
  const PlanShard *shards;
  int n_partial;
  Name partial[MAX_AXES]; /* axes over which the value stays partial */
  Span span;
} PlanPin;

/* A parameter or state of a generic layer, whose dims stand for others: the
 * pin, or NULL, by dim. */
typedef struct PlanReached {
  int n;
  Name dims[MAX_RANK];
  const PlanShard *lines[MAX_RANK]; /* lines of `shards`, by dim */
  bool is_batch[MAX_RANK];          /* stands for the batch dim */
} PlanReached;

/* How attention sees a sequence whose queries are sharded. */
typedef enum PlanAttention {
  ATTENTION_open,   /* no line of the plan says it: gather */
  ATTENTION_gather, /* each rank gets all keys and values */
  ATTENTION_ring,   /* keys and values turn past the queries of each rank */
  ATTENTION_ulysses /* ranks exchange shards of the sequence for heads */
} PlanAttention;

/* How ranks send sums of gradients (`compress`). */
typedef enum PlanCompress {
  COMPRESS_none, /* in the dtype that the model gives them */
  COMPRESS_bf16, /* each rank rounds its term, the sum is rounded once */
  COMPRESS_f16,
  COMPRESS_power /* as products of low rank (passes/train/low_rank.h) */
} PlanCompress;

/* A path of a line `stage`, `cut after` or `place`. */
typedef struct StagePath {
  const char *text; /* as written */
  int n_paths;
  const Name *paths; /* all that it means */
  Span span;
} StagePath;

/* A stage of a pipeline. */
typedef struct PlanStage {
  int first_rank, n_ranks;
  Mesh mesh;            /* where stages have meshes of their own */
  VEC(StagePath) paths; /* those of its line; of a cut: after which it ends */
  Span span;
} PlanStage;

/* Ranks outside of the mesh that have the parameters and their optimizer state
 * (`sync = server(...)`), the first ones behind it.  The ranks of the mesh are
 * workers: they send gradients and get parameters. */
typedef struct PlanServers {
  int n; /* 0: there are none */
  int first_rank;
  /* Clocks that a worker may be ahead of the slowest one: 0 is BSP.  -1: any
   * number, ASP. */
  int64_t staleness;
  Span span;
} PlanServers;

/* `prefetch_bytes` where no line says any. */
#define PLAN_PREFETCH_BYTES 25000000

typedef struct Plan {
  Name name;
  /* Mesh of a stage: rank axes, then the sequential one if microbatches > 1.
   * Where stages have meshes of their own: the axes of all, each of its
   * greatest size. */
  Mesh mesh;
  VEC(PlanStage) stages; /* none: one on all ranks that has everything */
  bool has_cuts;         /* lines `cut after` give the stages */
  bool has_ranks;        /* lines `stage` name their ranks */
  bool has_meshes;       /* stages have meshes of their own */
  /* In the plan of a stage, where stages have different numbers of shards of
   * the batch: ranks divide the samples of a micro-batch, not micro-batches the
   * samples of a rank, so that a micro-batch has the same samples in all
   * stages. */
  bool divides_microbatches;
  VEC(PlanStage)
  places;                /* lines `place` give the stages: what each names, and
                            its ranks */
  Map *stage_of;         /* path -> number + 1; NULL: there are no stages */
  int ranks;             /* of all stages */
  int64_t microbatches;  /* 1: no sequential axis */
  Name batch_dim;        /* that the sequential axis divides; or NULL */
  VEC(PlanShard) shards; /* of names; a later one wins */
  VEC(PlanPin) pins; /* about paths; a later one wins, and any over `shards` */
  /* path -> the pin that wins, NULL where there is none; plan_index makes them:
   * placements of values, gradients and optimizer state; those of operators;
   * `remat` and `keep`; `offload`. */
  Map *placed, *computed, *saved, *offloaded;
  Map *reached;           /* path -> PlanReached; NULL: none */
  VEC(Name) lines;        /* of paths, as they are printed */
  int64_t bucket_bytes;   /* gradients are reduced in buckets of this size */
  int64_t prefetch_bytes; /* gathers that begin ahead of their readers have at
                             most this size together, or are two */
  int64_t memory_bytes;   /* of a rank at most; 0: no limit */
  int zero;               /* level, 0 to 3 */
  PlanShard zero_over;    /* its axes; none: those of the batch */
  const char *schedule;   /* as one writes it, "interleaved(v = 2)", or NULL:
                             one stage has no timeline */
  const Pipeline *list;   /* the calls of the file that it names, or NULL */
  PlanAttention attention;
  Span attention_span;
  bool reduces_bf16; /* sums of values between ranks are sent in bf16 */
  PlanCompress compress;
  int64_t compress_rank; /* of COMPRESS_power */
  Span compress_span;
  /* Axes of `sync = hierarchical`, or none: sums of gradients over one of them
   * and others are made inside first (passes/spmd/border.c). */
  PlanShard border;
  PlanServers servers;
  /* Each rank computes the batch in full; parameters stay where they are. */
  bool replicates_data;
  /* The certificate of the plan file is of these lines: nobody asks why the
   * planner wrote them. */
  bool is_certified;
  Span memory_span;
} Plan;

/* Returns the plan of plain data parallelism: the batch dim over an axis
 * "data". */
Plan *plan_data_parallel(Module *module, Name model, Name batch_dim, int ranks,
                         int64_t microbatches);
/* Returns a plan of one rank and one micro-batch, with nothing pinned and the
 * default bucket. */
Plan *plan_create(Module *module, Name model);
/* Returns the plan of one of its stages: for the ranks of that stage alone.
 * Lines lose the axes that the mesh of the stage does not have. */
Plan *plan_of_stage(Module *module, const Plan *plan, int stage);
/* Returns the mesh of each stage, or the axes of all of them. */
const Mesh *plan_mesh(const Plan *plan);
/* Adds an axis to the mesh of a stage.  Axes come outermost first; one of size
 * 1 is left out. */
void plan_add_axis(Plan *plan, Name axis, int64_t size);
/* Appends the sequential axis; called after all other axes. */
void plan_set_microbatches(Module *module, Plan *plan, int64_t microbatches);
/* Lets pins about paths be found; called after the last one. */
void plan_index(Arena *arena, Plan *plan);
/* Returns the last pin that shards this dim by name.  Returns NULL if there is
 * none. */
const PlanShard *plan_find_shard(const Plan *plan, Name dim);
/* Returns the pin that shards the batch dim.  Returns NULL if there is none. */
const PlanShard *plan_batch_shard(const Plan *plan);
/* Returns how many shards of the batch the ranks of a stage have that has a
 * mesh of its own. */
int64_t plan_batch_shards(const Plan *plan, int stage);
/* Returns the axes of ZeRO: of its line, else of the batch.  Returns NULL if
 * there is no ZeRO. */
const PlanShard *plan_zero_shard(const Plan *plan);
/* Returns the shard without the axes that a mesh does not have. */
PlanShard plan_shard_on(const Mesh *mesh, const PlanShard *shard);
/* Does so for the shards of a placement. */
PlanPin plan_pin_on(Arena *arena, const Mesh *mesh, const PlanPin *pin);
/* The pin that places this value or key, or NULL. */
const PlanPin *plan_find_placement(const Plan *plan, Name path);
/* The pin about the gradient or the optimizer state of a parameter, or NULL. */
const PlanPin *plan_find_update(const Plan *plan, Names *names, PinAbout about,
                                const char *parameter);
/* The pin that says how the operator of this path computes, or NULL. */
const PlanPin *plan_find_operator(const Plan *plan, Name path);
/* The pin that recomputes or stores this forward value, or NULL. */
const PlanPin *plan_find_saving(const Plan *plan, Name path);
/* The pin that keeps this value, parameter or key in host memory, or NULL. */
const PlanPin *plan_find_offload(const Plan *plan, Name path);
/* Returns true if the pin is a line `remat` or `keep`. */
bool pin_is_saving(const PlanPin *pin);
/* Returns whether its schedule computes the forward pass of a stage again, but
 * for what a line keeps. */
bool plan_recomputes(const Plan *plan);
/* Returns whether its schedule calls input and weight gradients apart. */
bool plan_splits_backward(Arena *arena, const Plan *plan);
/* Returns whether its schedule lets a stage update its parameters before all
 * stages have their gradients. */
bool plan_updates_early(Arena *arena, const Plan *plan);
/* Returns whether each of several stages updates its parameters once for each
 * batch, and keeps versions of them (ir/program_periods.c). */
bool plan_has_versions(Arena *arena, const Plan *plan);
/* Returns true if the pin places values, gradients or optimizer state. */
bool pin_is_placement(const PlanPin *pin);
/* Returns true if the pin is about gradients or optimizer state. */
bool pin_is_of_update(const PlanPin *pin);
/* The key under which a plan has the gradient or the optimizer state of a
 * parameter, "grad/PATH" or "optimizer/PATH". */
Name plan_update_key(Names *names, PinAbout about, const char *parameter);
/* Returns ABOUT_gradient or ABOUT_optimizer for such a key, with its parameter,
 * else ABOUT_value. */
PinAbout plan_path_about(const char *path, const char **out_parameter);
bool plan_path_is_of_update(const char *path);
/* The pin that shards a dim of this value by name, or NULL. */
const PlanShard *plan_named_dim(const Plan *plan, Name path, Name dim);
/* Returns whether a dim is the batch dim, also under another name. */
bool plan_is_batch(const Plan *plan, Name path, Name dim);
/* The shard that a pin about paths gives a dim, or NULL: it is replicated. */
const PlanShard *plan_placed_dim(const PlanPin *pin, Name dim);
/* The dim of a tensor that takes the axis which `lines[d]` gives dim `d`, or
 * -1.  Lines, or NULL, are by dim and of one list; the later one wins. */
int plan_axis_taken(const PlanShard *const *lines, int n, int d, Name axis);
/* Returns whether a pin may shard parameters or states: any but one of the
 * batch dim, or of the update. */
bool plan_shards_parameters(const Plan *plan);
/* Takes the sequential axis out (evaluation does the batch at once). */
void plan_drop_time(Plan *plan);
/* Returns the word that a plan has for this way to place attention, such as
 * "ring".  Returns NULL for the open choice, which has no word. */
const char *plan_attention_name(PlanAttention attention);
/* Returns the word that a plan has for this way to send gradients: "bf16". */
const char *plan_compress_name(PlanCompress compress);
/* Returns the value of the line, as one writes it: "power(rank = 4)". */
const char *plan_compress_text(Arena *arena, PlanCompress compress,
                               int64_t rank);
/* Returns the dtype in which sums of gradients of `dtype` are sent. */
DType plan_compressed_dtype(const Plan *plan, DType dtype);
/* Returns the ranks of the plan, servers included. */
int plan_world(const Plan *plan);
/* Returns the servers of a plan, or NULL: it is NULL, or has none. */
const PlanServers *plan_servers(const Plan *plan);
/* Returns the value of the line, as one writes it. */
const char *plan_servers_text(Arena *arena, const PlanServers *servers);
/* Which server has what.  A part is what a server has in full, by its number;
 * those behind the servers are tables of which each server has rows. */
typedef struct ServerDeal {
  Map *of_param; /* path -> number of the part, plus 1 */
  int n_parts;
} ServerDeal;

/* Deals the parameters that a graph trains, which has gradients or new values
 * of them among its outputs, to so many servers, of about equal bytes.
 * `divides`: a large table may be divided, as the update of a row depends on
 * that row alone. */
ServerDeal plan_deal_parameters(Arena *arena, const Graph *graph, int n_servers,
                                bool divides);
/* Prints the text of section 11 of docs/plan.md. */
void plan_print(Text *out, const Plan *plan);

/* Prints the line of a stage, with one more path or NULL. */
void plan_print_stage(Text *out, const Plan *plan, int stage, const char *more,
                      bool has_ranks);

/* Returns "data 16 x tensor 8, ZeRO 1, 4 micro-batches", with what its lines
 * say beside. */
const char *plan_describe(Arena *arena, const Plan *plan);

/* ---- plan_schedule.c ---- */

/* Returns the schedule with its arguments; without one its name is NULL. */
PipelineSpelling plan_spelling(Arena *arena, const char *schedule);

/* ---- plan_classes.c ---- */

/* Finds the class of each stage: those on the same ranks have one, numbered in
 * the order of ranks.  Returns how many there are. */
int plan_classes(Arena *arena, const Plan *plan, int *out_class_of);
/* Returns whether meshes of stages have the same axes, in the same order. */
bool stage_meshes_equal(const Mesh *a, const Mesh *b);

/* ---- stage_labels.c ---- */

/* A node whose value goes back from its stage to that of a reader. */
typedef struct StageFault {
  int value, reader;             /* nodes */
  int value_stage, reader_stage; /* counted from 1 */
} StageFault;
/* Returns the stage of each node of a forward graph, counted from 1; 0 means
 * that it belongs to none.  Where a value goes back, `out_fault` says so, and
 * the value is NULL. */
const uint16_t *stage_labels(Arena *arena, const Graph *graph,
                             const Map *stage_of, StageFault *out_fault);

#endif
