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
 * micro-batches there are.  Between segments the timeline sends and receives
 * the values of edges, which one stage makes and another one reads.
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
 * Ranks that run the same stages are a class and have one program.  Who can
 * deal with one stage on all ranks alone asks entry_point_stage for it.
 */
#ifndef IR_PROGRAM_H
#define IR_PROGRAM_H

#include "ir/list/instructions.h"
#include "ir/pipeline/pipeline.h"
#include "ir/place/edge_pieces.h"
#include "support/tables.h"

/* A number that a call hands to its segment. */
typedef enum ProgramRegister {
  REGISTER_microbatch, /* number of the micro-batch */
  /* Frame of the micro-batch in the stage of the call, from its forward pass to
   * its backward pass, or its weight gradients where they are apart. */
  REGISTER_frame,
  REGISTER_slot, /* slot of what its stage receives, of a pass the stage that
                    reads */
  /* Where input and weight gradients are apart: its frame from the forward pass
   * to the input gradients, and from these to the weight gradients. */
  REGISTER_input_frame,
  REGISTER_weight_frame,
  /* In an entry point of periods: slots of the version of the parameters that
   * the segment reads, and of the one that it makes. */
  REGISTER_version,
  REGISTER_new_version,
  REGISTER_batch, /* there, where a batch has several micro-batches: place of
                     its data and of what runs once for it */
  N_REGISTERS
} ProgramRegister;

/* ---- places in memory ---- */

/* A place from here on is a byte of the arena in host memory. */
#define HOST_ORIGIN ((int64_t)1 << 48)

/* The places of values of a final graph in a rank's arenas. */
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
  /* [n_values]: bytes by which a value of a micro-batch moves with a register
   * of the call, which is a frame or the slot; NULL: none moves. */
  int64_t *move_bytes;
  ProgramRegister *moves_with;
  int64_t persistent_bytes; /* bytes of the persistent buffers in use */
  int64_t arena_bytes;      /* highest byte this graph touches */
  int64_t persistent_host_bytes, host_bytes; /* likewise on the host */
} BufferAssignment;

/* The arena of an entry point of several stages: these parts follow each other,
 * each of them with what its stages have in it. */
typedef struct ArenaParts {
  int64_t persistent;
  int64_t step;     /* data, and what several segments use once a step */
  int64_t frames;   /* of micro-batches, from forward to backward pass */
  int64_t messages; /* values that are sent and received */
  int64_t scratch;  /* of one segment at a time: the largest */
} ArenaParts;

/* Memory that survives a training step, shared by all graphs of a model:
 * parameters, states, optimizer state, decode caches, step, seed. */
typedef struct PersistentBuffer {
  Role role;
  Name path;
  const Type *type;
  Init init;
  int64_t offset, bytes;
  /* Slots of a parameter in an entry point of periods, one for each version,
   * and the bytes from one to the next. */
  int n_versions;
  int64_t slot_bytes;
} PersistentBuffer;

typedef struct PersistentBuffers {
  VEC(PersistentBuffer) buffers;
  int64_t bytes;
  Map *by_path[N_ROLES]; /* index in buffers, plus 1; NULL means none */
  /* Caches come last: a graph that reads and fills none has its transient bytes
   * there. */
  int64_t bytes_but_caches;
  int64_t host_bytes; /* of those in host memory */
} PersistentBuffers;

/* ---- stages ---- */

/* A segment has all nodes of its stage that run once before the micro-batches
 * (TOKEN_once), of an entry point of periods no node but the clears of sums
 * (TOKEN_clear), the nodes for each micro-batch (TOKEN_forward,
 * TOKEN_backward), or once after them (TOKEN_update).  Where the schedule calls
 * input and weight gradients apart, TOKEN_input_grad and TOKEN_weight_grad take
 * the place of TOKEN_backward.  Where values of the step are received in
 * between, it has those of one part: a part follows the messages that it needs.
 * The stage of an entry point that has one has both passes in one segment,
 * which is TOKEN_forward. */
typedef struct ProgramSegment {
  TokenKind kind;
  int part; /* of the step: level of the last message that it needs */
  /* Nodes of the stage's graph, inputs and views too. */
  int first_node, end_node;
  int begin, end;  /* instructions of the stage's list */
  int n_registers; /* it reads the first so many */
} ProgramSegment;
typedef VEC(ProgramSegment) ProgramSegments;

typedef struct ProgramStage {
  int number;         /* of the stages of the model */
  int first_rank;     /* rank 0 of the graph's mesh */
  int n_ranks;        /* that run it, each rank of the mesh or one mesh each */
  const Graph *graph; /* after the last pass */
  const InstructionList *instructions;
  const BufferAssignment *assignment; /* NULL until it is packed */
  ProgramSegments segments;
  /* Micro-batches whose values a rank has at a time, from their forward pass
   * to their backward pass: each has a frame.  See ProgramRegister. */
  int n_frames, n_input_frames, n_weight_frames;
  /* Likewise those whose received values it has, if there are several of one
   * edge: each has a slot. */
  int n_slots;
  /* In an entry point of periods: forward passes that the stage runs ahead, and
   * versions of its parameters that it keeps; else 0. */
  int n_ahead, n_versions;
  /* There, with several micro-batches: batches at a time; else 0. */
  int n_batches;
} ProgramStage;

/* A value that one stage makes, an output ROLE_send of its graph, and another
 * one reads: the input ROLE_receive with the same path.  It is sent once a
 * step, or for each micro-batch. */
typedef struct ProgramEdge {
  int from, to; /* numbers of the stages */
  Name path;
  bool is_of_step;
  bool is_after; /* of the step: it is sent after the micro-batches */
  /* Number of messages of the step in the longest chain of them that ends with
   * this one, each of which follows from the one before; else 0. */
  int level;
  /* Filled in by program_timeline.  The segments that make and read it; a
   * segment of the step may be missing, if nothing else is in it. */
  TokenKind from_kind, to_kind;
  int from_part, to_part;
  TokenKind last_kind; /* of a micro-batch: the last segment that reads it */
  const Type *type;    /* of the input */
  DType dtype;
  int64_t bytes; /* of the messages of a rank, at most */
  /* Rank i of one stage exchanges the message with rank i of the other one.
   * Where their placements differ, it goes in these pieces, each of which is a
   * message of its own; the call of a rank exchanges its pieces by the number
   * of the other rank. */
  EdgePieces pieces;
  int n_ids;              /* the most pieces of a rank, or 1 */
  int from_rank, to_rank; /* first ranks of both stages */
  /* Micro-batches of it that the reading rank has at a time.  If there are
   * several it lies in slots of the reading stage. */
  int n_slots;
} ProgramEdge;
typedef VEC(ProgramEdge) ProgramEdges;

/* ---- entry points ---- */

typedef enum ProgramCallKind {
  CALL_segment,
  CALL_send,    /* sends the value of an edge */
  CALL_receive, /* receives it */
  CALL_pass     /* copies it: this rank has both stages */
} ProgramCallKind;

/* A register of a call of a period for unit k: max(k / divisor + shift, 0) *
 * factor mod n. */
typedef struct ProgramRing {
  int divisor, shift, factor, n;
} ProgramRing;

/* The units for which a call of a period is made. */
typedef enum ProgramPeriodWhen {
  PERIOD_unit,   /* those that there are */
  PERIOD_group,  /* where there is the one of the first replica */
  PERIOD_missing /* where there is that one, and not the own one */
} ProgramPeriodWhen;

typedef struct ProgramCall {
  ProgramCallKind kind;
  int stage;   /* index in `stages`; of a pass: that which makes the value */
  int segment; /* else -1 */
  int edge;    /* index in `edges`; of a segment -1 */
  int peer;    /* of a message: rank of the other side minus own rank */
  /* Those that the call does not read are 0. */
  int registers[N_REGISTERS];
  /* In a period: unit of the call minus the first one of the period, the
   * replica that it is of, and registers by unit. */
  int unit, replica;
  ProgramPeriodWhen when;
  bool begins; /* a batch, whose data is read before */
  ProgramRing rings[N_REGISTERS];
  bool is_first; /* no call before it is of this segment, or message */
} ProgramCall;

typedef struct EntryPoint {
  EntryPointId id;  /* of the plain program: that of training */
  const char *name; /* for messages */
  int64_t batch;
  VEC(ProgramStage) stages;
  ProgramEdges edges; /* of all ranks, in one order */
  ArenaParts arena;   /* zero where one stage packs all of its values */
  /* The timeline is a period of an endless list: see program_periods.c. */
  bool is_period;
  int lead; /* periods between the first call of a unit and its update */
  int n_units, batch_units; /* of a period, and of a batch */
  VEC(ProgramCall) timeline;
} EntryPoint;

typedef struct RankProgram {
  /* Names its ranks in messages, as "server 0" does; NULL: its stages do. */
  const char *title;
  bool is_server; /* it has parameters of which the workers have copies */
  int n_entry_points;
  EntryPoint entry_points[N_ENTRY_POINTS];
  EntryPoint plain; /* DnnPlain of runtime/program.h; without a stage: none */
  PersistentBuffers persistent;
} RankProgram;

/* Ranks that run one program. */
typedef struct ProgramClass {
  int first_rank, n_ranks;
  RankProgram program;
} ProgramClass;

/* ---- program_segments.c ---- */

/* Divides the nodes of the graph of a stage of several, after list_schedule:
 * what runs once before the micro-batches, in parts, the forward and the
 * backward pass of one, and what runs once after them, in parts.  `stage` is
 * its number. */
ProgramSegments stage_segments(Arena *arena, const Graph *ordered, int stage,
                               const ProgramEdges *edges, bool splits_backward);
/* Returns by node: the segment of a micro-batch that it is of, TOKEN_once where
 * it is of none.  Where the backward pass is split `is_sent` has, by node,
 * whether it makes a value that is sent for each micro-batch; else NULL. */
TokenKind *microbatch_kinds(Arena *arena, const Graph *graph,
                            const bool *is_sent);

/* ---- program_timeline.c ---- */

/* Stages and edges from which the timelines of an entry point are made. */
typedef struct ProgramParts {
  EntryPointId id;
  int64_t batch;
  int n_stages;
  const ProgramStage *stages; /* by number: graph and first rank are known */
  ProgramEdges edges;         /* without what program_timeline fills in */
  /* Order of a training step.  NULL: forward passes alone, in order. */
  const PipelineSchedule *schedule;
  PipelineTimes times;  /* of the schedule */
  bool splits_backward; /* it has I and W: B of it is both */
  bool has_versions;    /* its timelines are periods */
  bool has_two;         /* of these, for all micro-batches of a batch */
  bool is_vertical;     /* all stages read one version */
  const Pipeline *list; /* calls that a person wrote, or NULL: of `schedule` */
  const Target *target; /* as in instructions_of */
  Diags *diags;
  Span span; /* of the plan, for mistakes */
} ProgramParts;

/* Finds the class of ranks of each stage; stages with the same first rank share
 * one.  Returns how many there are, with their first ranks, ascending. */
int program_classes(Arena *arena, const ProgramStage *stages, int n_stages,
                    int *out_class_of, const int **out_first_ranks);
/* Makes the entry point of each class, or of each rank where it is of periods.
 * Assignments follow.  Returns false, with a mistake, if it cannot be proved
 * that all ranks end. */
bool program_timeline(Arena *arena, const ProgramParts *parts,
                      EntryPoint *out_entries);

/* ---- program.c ---- */

/* Returns the edges of a program as those of its calls and messages, for the
 * proof that no rank waits for ever. */
const PipelineEdge *program_pipeline_edges(Arena *arena,
                                           const ProgramEdges *edges);
/* Divides the nodes of an ordered graph: every other segment is of a
 * micro-batch.  Instructions are not told. */
ProgramSegments graph_segments(Arena *arena, const Graph *ordered);
bool segment_is_of_microbatch(const ProgramSegment *segment);
/* Returns the place of a kind of segments among those of a stage, ascending. */
int segment_order(TokenKind kind);
/* Returns how many registers the calls and messages of micro-batches read, in a
 * stage of several. */
int stage_registers(const ProgramStage *stage);
/* Returns how many frames or slots of a register the stage has. */
int stage_places(const ProgramStage *stage, ProgramRegister number);
/* Returns the most of them. */
int stage_most_places(const ProgramStage *stage);
/* Returns the bytes by which one more in a register moves a value, by its
 * number; 0 in a graph that is no stage of several. */
int64_t assignment_advance(const BufferAssignment *assignment, int value,
                           ProgramRegister number);
/* Returns how often a timeline calls the segment of a stage. */
int segment_calls(const ProgramStage *stage, const ProgramSegment *segment);
/* Returns whether a segment of a stage is the first to read what an edge
 * brings: where nothing but the edge would be in the segment that reads it the
 * stage has none, and each one may be. */
bool segment_reads_edge(const ProgramStage *stage,
                        const ProgramSegment *segment, const ProgramEdge *edge);
/* Returns whether it makes the value of an edge, or, once buffers are assigned,
 * writes its bytes: a gradient may lie where the forward pass of the next
 * micro-batch writes an activation. */
bool segment_writes_edge(const ProgramStage *stage,
                         const ProgramSegment *segment,
                         const ProgramEdge *edge);
/* Returns an entry point of one stage on all ranks of the list's mesh.  Its
 * timeline calls what runs once, and the micro-batches in their order where the
 * list has their loop.  The assignment is still to be made. */
EntryPoint entry_point_of_list(Arena *arena, EntryPointId id,
                               const InstructionList *list);
/* Returns the stage of an entry point that has one. */
ProgramStage *entry_point_stage(const EntryPoint *entry);
/* Returns the segment of a CALL_segment. */
const ProgramSegment *entry_point_segment(const EntryPoint *entry,
                                          const ProgramCall *call);
/* Returns one more than the highest byte that it touches. */
int64_t entry_point_arena_bytes(const EntryPoint *entry);
int64_t entry_point_host_bytes(const EntryPoint *entry); /* likewise */
/* Returns how many calls, from the one at this place on, are of its segment, so
 * that they are a loop.  A message is one. */
int entry_point_repeats(const EntryPoint *entry, int at);
/* Returns the entry point with this id.  Returns NULL if there is none. */
const EntryPoint *rank_program_find(const RankProgram *program,
                                    EntryPointId id);

/* ---- program_text.c ---- */

/* Appends the stages, the edges and the timeline of an entry point as text:
 *
 *     program train {
 *       stage 0 on 0..1, frames 2, slots 1
 *         once.0 nodes 0..4
 *         forward nodes 4..9
 *       edge 0 "y" forward of 0 -> forward of 1, 64 bytes
 *       call forward of 0, micro-batch 1, frame 1, slot 0
 *       send 0 to +2, micro-batch 1, frame 1, slot 0
 *     }
 */
void entry_point_print(Text *out, const EntryPoint *entry);
/* Appends a call without its registers: "call forward of 0", "send 1 to +2". */
void program_call_print(Text *out, const EntryPoint *entry,
                        const ProgramCall *call);

/* ---- program_check.c ---- */

/* Appends (unless NULL) a line for each violation; true if there is none:
 *   - the segments of a stage are, one after the other, all its nodes, and all
 *     its instructions but for the brackets of the loop of micro-batches;
 *   - a segment is called once, or once for each micro-batch if it reads their
 *     number, the first of these calls marked;
 *   - of each micro-batch, and of what runs once, segments are called in their
 *     order, and what runs once after all micro-batches of the segments before;
 *   - each message of an edge is sent and received, or passed, once, after what
 *     makes it and before what reads it;
 *   - calls of one micro-batch have one frame and one slot, which no other one
 *     has at the same time. */
bool entry_point_check(const EntryPoint *entry, Text *out_errors);

#endif
