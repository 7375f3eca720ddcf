/*
 * select.h -- the launches of a program as data, between the lists of
 * instructions (select.c makes launches of them) and the tables (program.c
 * prints them). Private to codegen.
 */
#ifndef CODEGEN_SELECT_H
#define CODEGEN_SELECT_H

#include "codegen/codegen.h"

/* One instruction, as data; the detail is the member that `op` needs. */
typedef struct Launch {
  DnnOpcode op;
  DnnWhen when;
  int phase, kernel; /* kernel: index into the set, or -1 */
  int n_loops;       /* as in DnnInstr */
  int n_launches;    /* launches, key and pace as in DnnInstr */
  uint64_t key;
  int64_t pace;
  VEC(int64_t) buffers;
  VEC(int64_t) advances; /* as in DnnInstr: n_loops for each buffer */
  VEC(int64_t) numbers;
  /* Those of DnnInstr, for the first numbers; the others do not grow. */
  VEC(int64_t) number_advances;
  VEC(int64_t) checks; /* rows as in DnnInstr */
  VEC(int64_t) values; /* those of DnnInstr */
  VEC(DnnRankOffset) rank_offsets;
  DnnGemm gemm;
  DnnConv conv;
  DnnCollective collective; /* n_parts counts */
  VEC(int64_t) counts;
  Name path;
  double flops, bytes_moved;
} Launch;

/* The launches of an entry point, its segments and the calls of them. */
typedef struct LaunchList {
  VEC(Launch *);
  VEC(DnnSegment) segments;
  VEC(DnnCall) calls;
  VEC(DnnPeriodCall) periods; /* beside calls, in an entry point of periods */
  int n_message_ids; /* ids below are those of messages between stages */
  int n_swaps;       /* ids of swaps */
} LaunchList;

/* The kernels of all entry points of a program; equal ones are one. */
typedef struct KernelSet {
  Module *module;
  const Backend *backend;
  VEC(KernelText) kernels;
  Map *by_name; /* Name -> index + 1 */
  Map *kinds;   /* kernel_key -> KernelKind */
  Map *sized;   /* name of a text that takes sizes -> SizedKernel */
} KernelSet;

/* The kernel of all nodes with one kernel key, lowered and emitted once. */
typedef struct KernelKind {
  int kernel;       /* -1 means that there is none */
  const Nest *nest; /* NULL means none, or an override */
  /* That of an override; its split is empty if it has none. */
  NestNumber number;
  const int64_t *sizes;
  int n_sizes; /* those of KernelText */
} KernelKind;

/* ---- kernel_set.c ---- */

KernelSet *kernel_set_create(Module *module, const Backend *backend);
/* Returns the index of the kernel of a nest or of an override, and emits it if
 * it is new.  Sizes are constants of it.  Returns -1 if the node has neither.
 */
int kernel_set_nest(KernelSet *set, const Nest *nest);
int kernel_set_override(KernelSet *set, const Graph *graph, int id);
/* Returns the override, else the nest, of a node.  Nests that differ in sizes
 * alone may have one kernel, which takes them; its text can change until all
 * are here. */
const KernelKind *kernel_set_kind(KernelSet *set, const Graph *graph, int id);

/* ---- select.c ---- */

/* Makes the launches of an entry point, in order; `values` (or NULL) gets a row
 * for each value.  `pacer` (or NULL) says how long runs take. */
typedef struct ValueTable ValueTable;
Status select_entry_point(KernelSet *set, const EntryPoint *entry_point,
                          ValueTable *values, const Pacer *pacer,
                          LaunchList *out);

/* ---- select_messages.c ---- */

/* Ids of the messages of an entry point: an edge has one for each slot. */
typedef struct MessageIds {
  int n, *first; /* by edge */
} MessageIds;
MessageIds *message_ids(Arena *arena, const EntryPoint *entry);
/* The waits for messages in the segments of a stage. */
typedef struct MessageWaits {
  Arena *arena;
  const EntryPoint *entry;
  const ProgramStage *stage;
  const MessageIds *ids;
  const ProgramSegment *segment; /* segment at hand */
  bool *is_waited;               /* by edge, in that segment */
} MessageWaits;
void message_waits_begin(MessageWaits *waits, const ProgramSegment *segment);
/* Adds waits for the messages whose bytes a node uses: a received value that it
 * reads, a sent one that it writes. */
void message_waits_add(MessageWaits *waits, int id, LaunchList *out);
/* Adds the segments of messages, and the calls of the timeline.
 * `first_segment` of each stage is its place in the list. */
void select_calls(Arena *arena, const EntryPoint *entry, const MessageIds *ids,
                  const int *first_segment, LaunchList *out);

/* ---- select_check.c ---- */

/* Fails where a stage has what launches cannot do. */
Status select_check(const ProgramStage *stage);

/* ---- select_values.c: from which values each value is computed ---- */

/* A row of DnnValue. */
typedef struct ValueRow {
  Name path;
  DnnValueKind kind;
  int phase;
  Role role; /* role of a leaf */
  bool has_infinity;
  DType dtype;
  VEC(int32_t) inputs;
  int64_t offset, elements;
} ValueRow;

struct ValueTable {
  Arena *arena;
  VEC(ValueRow) rows;
  Map *of_graphs; /* Graph -> row + 1 of its values, by first_value + result */
};

ValueTable *value_table_create(Arena *arena);
/* Returns whether the result has infinities that stand in the program, as that
 * of a mask. */
bool node_gives_infinity(const Graph *graph, int id);
/* Returns the rows + 1 of a graph's values, 0 where there is none yet. */
int32_t *value_table_rows(ValueTable *table, const Graph *graph);
/* Adds a row for a value of this node and returns its number. */
int32_t value_table_add(ValueTable *table, const Graph *graph, int id);
void value_table_link(ValueTable *table, int32_t row, int32_t input);

/* ---- select_contraction.c: library calls ---- */

/* Calls of a library for one matmul.  There are several where K is two dims
 * that do not collapse: each adds to the result of the one before. */
typedef struct GemmCalls {
  DnnGemm gemm;
  bool is_exchanged;      /* a is input 1 */
  int64_t n;              /* 1, or the size of the outer dim of K */
  int64_t a_step, b_step; /* elements from the operands of one to the next */
} GemmCalls;

/* Fills in a matmul or convolution of the local sizes.  Returns false where the
 * library cannot take its strides or dtypes, so that a loop nest must. */
bool select_gemm(const Graph *graph, int id, GemmCalls *out);
bool select_conv(const Graph *graph, int id, DnnConv *out);
/* Returns whether one stride of each operand is 1. */
bool has_unit_strides(const DnnGemm *gemm);
/* Returns the elements between neighbours along the dim in a rank's
 * part.  Returns 0 if the part has no such dim. */
int64_t local_stride(const Type *type, const Mesh *mesh, Name name);
/* Returns Target.workspace_bytes of a back end whose libraries want scratch
 * memory. */
int64_t select_workspace_bytes(const Target *target, const Graph *graph,
                               int id);

/* ---- rank_groups.c ---- */

/* Finds the groups along the rank axes of a list: member i has shard i of a dim
 * that the list shards.  The mesh has the ranks from `first_rank` on.  Returns
 * false if that takes more than DNN_MAX_DIGITS digits. */
bool mesh_group(const Mesh *mesh, int first_rank, AxisList list, DnnGroup *out);
/* Finds the same groups with their members in the order of ranks. */
bool mesh_group_ascending(const Mesh *mesh, int first_rank, AxisList list,
                          DnnGroup *out);
/* Returns how a collective, or a sum over micro-batches, reduces. */
ReduceKind collective_reduction(const Node *node);
/* Fails where mesh_group would, for any dim of any value. */
Status mesh_check_placements(const Graph *graph);

/* ---- bundle.c ---- */

/* The plain program of one that trains. */
typedef struct PlainInput {
  EntryPoint entry_point;
  LaunchList launches;
  ValueTable *values;
} PlainInput;

typedef struct ProgramInput {
  const RankProgram *program;
  LaunchList *launches; /* one list for each entry point */
  PlainInput *plain;    /* or NULL */
} ProgramInput;

/* Everything that becomes program.c of a bundle. */
typedef struct BundleInput {
  const Model *model;
  const RankPrograms *ranks;
  ProgramInput *programs;                   /* those of `ranks` */
  const KernelSet *kernels, *plain_kernels; /* of all programs */
  const DeviceCode *device, *plain_device;
  const BuildOptions *options;
  const char *model_dir;
} BundleInput;

/* The text, and the bytes that it includes from a file of this name. */
#define PROGRAM_TABLES "tables.bin"
typedef struct ProgramTables {
  const char *text, *bytes;
  size_t n;
  int64_t arena_bytes;
} ProgramTables;
ProgramTables bundle_tables(Arena *arena, const BundleInput *input);

#endif
