/*
 * program.h -- declares a program: what a rank executes, as the passes leave it
 * and before it becomes tables.
 *
 * A program has entry points, such as a training step.  An entry point has the
 * stages that the rank runs, and a timeline.  A stage is a final graph on its
 * mesh, with its instructions and the places of its values.  A segment is a
 * range of the instructions of a stage.  The timeline calls segments one after
 * the other, each time with the values of registers, such as the number of the
 * micro-batch.  So a segment stands in a program once, however many
 * micro-batches there are.
 *
 *     stage 0                             timeline
 *       segment 0                           call segment 0 of stage 0
 *         clear %9                          call segment 1, micro-batch 0
 *       segment 1, of a micro-batch         call segment 1, micro-batch 1
 *         run %5 dot                        call segment 2
 *         run %9 accumulate
 *       segment 2
 *         run %11 fused
 *
 * Today every rank runs one program, whose entry points have one stage on all
 * ranks.  Who relies on that asks entry_point_stage for the stage.
 */
#ifndef IR_PROGRAM_H
#define IR_PROGRAM_H

#include "ir/list/instructions.h"
#include "support/tables.h"

/* ---- places in memory ---- */

/* The places of values of a final graph in a rank's arena. */
typedef struct BufferAssignment {
  /* [n_values]: bytes; values are numbered first_value[node] + result. */
  int64_t *offset;
  int64_t *bytes;
  int *first_value;   /* [n_nodes] */
  int64_t *workspace; /* offset of library scratch by node; -1 means none */
  /* [n_nodes]: of a scan its body's, whose offsets count from the scan's
   * workspace; else NULL. */
  struct BufferAssignment **bodies;
  /* [n_values]: in a body, the scan's input whose bytes the value has, or the
   * number of inputs plus its result; else -1. */
  int *outside;
  int64_t persistent_bytes; /* bytes of the persistent buffers in use */
  int64_t arena_bytes;      /* highest byte this graph touches */
} BufferAssignment;

/* Memory that survives a training step, shared by all graphs of a model:
 * parameters, states, optimizer state, decode caches, step, seed. */
typedef struct PersistentBuffer {
  Role role;
  Name path;
  const Type *type;
  Init init;
  int64_t offset, bytes;
} PersistentBuffer;

typedef struct PersistentBuffers {
  VEC(PersistentBuffer) buffers;
  int64_t bytes;
  Map *by_path[N_ROLES]; /* index in buffers, plus 1; NULL means none */
  /* Caches come last: a graph that reads and fills none has its transient bytes
   * there. */
  int64_t bytes_but_caches;
} PersistentBuffers;

/* ---- stages ---- */

/* A number that a call hands to its segment. */
typedef enum ProgramRegister {
  REGISTER_microbatch, /* number of the micro-batch */
  N_REGISTERS
} ProgramRegister;

typedef struct ProgramSegment {
  /* Nodes of the stage's graph, inputs and views too. */
  int first_node, end_node;
  int begin, end;  /* instructions of the stage's list */
  int n_registers; /* it reads the first so many */
} ProgramSegment;
typedef VEC(ProgramSegment) ProgramSegments;

typedef struct ProgramStage {
  int first_rank;     /* rank 0 of the graph's mesh */
  const Graph *graph; /* after the last pass */
  const InstructionList *instructions;
  const BufferAssignment *assignment; /* NULL until it is packed */
  ProgramSegments segments;
} ProgramStage;

/* ---- entry points ---- */

typedef struct ProgramCall {
  int stage, segment;
  int registers[N_REGISTERS]; /* those that the segment does not read are 0 */
  bool is_first;              /* no call before it is of this segment */
} ProgramCall;

typedef struct EntryPoint {
  EntryPointId id;  /* of the plain program: that of training */
  const char *name; /* for messages */
  int64_t batch;
  VEC(ProgramStage) stages;
  VEC(ProgramCall) timeline;
} EntryPoint;

typedef struct RankProgram {
  int n_entry_points;
  EntryPoint entry_points[N_ENTRY_POINTS];
  EntryPoint plain; /* DnnPlain of runtime/program.h; without a stage: none */
  PersistentBuffers persistent;
} RankProgram;

/* ---- program.c ---- */

/* Divides the nodes of an ordered graph: every other segment is of a
 * micro-batch.  Instructions are not told. */
ProgramSegments graph_segments(Arena *arena, const Graph *ordered);
/* Returns an entry point of one stage on all ranks of the list's mesh.  Its
 * timeline calls what runs once, and the micro-batches in their order where the
 * list has their loop.  The assignment is still to be made. */
EntryPoint entry_point_of_list(Arena *arena, EntryPointId id,
                               const InstructionList *list);
/* Returns the stage of an entry point that has one. */
ProgramStage *entry_point_stage(const EntryPoint *entry);
const ProgramSegment *entry_point_segment(const EntryPoint *entry,
                                          const ProgramCall *call);
/* Returns one more than the highest byte that it touches. */
int64_t entry_point_arena_bytes(const EntryPoint *entry);
/* Returns how many calls, from the one at this place on, are of its segment, so
 * that they are a loop. */
int entry_point_repeats(const EntryPoint *entry, int at);
/* Returns the entry point with this id.  Returns NULL if there is none. */
const EntryPoint *rank_program_find(const RankProgram *program,
                                    EntryPointId id);

/* Appends (unless NULL) a line for each violation; true if there is none:
 *   - the segments of a stage are, one after the other, all its nodes, and all
 *     its instructions but for the brackets of the loop of micro-batches;
 *   - a segment is called once, or once for each micro-batch if it reads their
 *     number, the first of these calls marked;
 *   - of each micro-batch, and of what runs once, segments are called in their
 *     order, and what runs once after all micro-batches of the segments before.
 */
bool entry_point_check(const EntryPoint *entry, Text *out_errors);

#endif
