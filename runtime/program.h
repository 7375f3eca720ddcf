/*
 * program.h -- declares a program as data, which the compiler emits and the
 * runtime executes.
 *
 * It is the one header that codegen and runtime share.  A copy is written
 * beside the emitted sources, with program_settings.h in its place, so it
 * includes nothing else but <stdint.h>.  All of it is constant data: the
 * executable of a bundle is the runtime library, the emitted kernels and one
 * `const DnnBundle dnn_bundle`, which has a program for each set of ranks that
 * do the same.
 *
 * Memory: one arena per rank.  Every tensor lives at a byte offset in it that
 * was chosen at compile time: first the persistent buffers (parameters,
 * states, optimizer state, scalars), then what a step needs.  The entry points
 * (train, eval,
 * ...) share the persistent part and reuse the rest.  Nothing is allocated
 * while stepping.  A plan with `offload` has a second arena, in host memory,
 * whose places count from DNN_HOST_ORIGIN.
 */
#ifndef RUNTIME_PROGRAM_H
#define RUNTIME_PROGRAM_H

#include "runtime/program_settings.h"

#define DNN_ABI           21
#define DNN_MAX_DIGITS    4
#define DNN_CHECK_NUMBERS 5 /* in a row of DnnInstr.checks */
/* A place from here on is a byte of the arena in host memory. */
#define DNN_HOST_ORIGIN ((int64_t)1 << 48)
/* Around an instruction: the registers of its segment, then loops. */
#define DNN_MAX_LOOPS (DNN_N_REGISTERS + 8)

/* A digit of the number of a rank in its mesh: (number / stride) % size. */
typedef struct DnnDigit {
  int32_t size, stride;
} DnnDigit;

/* The division of a mesh into process groups by some axes.  The mesh has the
 * ranks [first, first + ranks), and a rank has the number rank - first in
 * it.  Ranks whose numbers differ in these digits only are one group.  The
 * digits of a rank, the most significant first, are its index in its group. */
typedef struct DnnGroup {
  int32_t first, ranks;
  int32_t size; /* members of a group: the product of the digits' sizes */
  int32_t n_digits;
  DnnDigit digits[DNN_MAX_DIGITS];
} DnnGroup;

typedef struct DnnTensor {
  const char *path;
  uint8_t role; /* DnnRole */
  DnnDtype dtype;
  uint8_t rank;
  const char *dim[DNN_MAX_RANK];
  int64_t size[DNN_MAX_RANK]; /* logical; row-major */
  /* The group that shards the dim: member i holds shard i, of ceil(size /
   * members) elements.  NULL means that the dim is replicated. */
  const DnnGroup *split[DNN_MAX_RANK];
  /* Its members hold terms, f32, whose sum is the tensor; NULL: none does. */
  const DnnGroup *terms;
  /* The ranks that hold it are [first, first + ranks): replicas, or shards of
   * a split, each of them at least once.  0 ranks means all. */
  int32_t first, ranks;
  /* DATA: where it is above 1, the batch has so many equal parts, and a rank
   * its shard of each, one after the other. */
  int32_t microbatches;
  /* Place of the local shard in the arena; the offset is -1 where the program
   * has none. */
  int64_t offset, bytes;
  /* Slots of it in an entry point of periods, and bytes from one to the next:
   * versions of a PARAM, batches of DATA; 0 slots mean one. */
  int32_t n_slots;
  int64_t slot_bytes;
  uint8_t init; /* InitKind of support.h */
  double init_a;
} DnnTensor;

typedef void DnnKernelFn(void *const *buffers, const int64_t *numbers);

typedef struct DnnKernel {
  const char *name;
  DnnKernelFn *function; /* CPU; NULL for CUDA */
  int32_t module;        /* CUDA: index into DnnProgram.modules */
  uint32_t grid[3], block[3], shared_bytes;
} DnnKernel;

/* One CUDA module: a cubin per target and a PTX text. */
typedef struct DnnImage {
  const char *arch; /* "sm_90a"; "compute_80" of PTX */
  const void *data;
  uint64_t bytes;
} DnnImage;

typedef struct DnnModule {
  int32_t n_images;
  const DnnImage *images;
} DnnModule;

typedef enum DnnOpcode {
  DNN_OP_KERNEL,     /* kernels[kernel](buffers, numbers) */
  DNN_OP_GEMM,       /* detail: DnnGemm; buffers: a b c [scratch] */
  DNN_OP_CONV,       /* detail: DnnConv; buffers: in0 in1 out [scratch] */
  DNN_OP_COPY,       /* buffers: from to; numbers: bytes */
  DNN_OP_ZERO,       /* buffers: to; numbers: bytes */
  DNN_OP_COLLECTIVE, /* detail: DnnCollective; starts it, does not wait */
  DNN_OP_WAIT,       /* numbers: id of the collective that must have ended, and
                        how many follow it if there are several; one that was
                        not started since is no wait */
  DNN_OP_LOOP,       /* numbers: how many instructions that follow, how often:
                        at iteration t their buffers lie t times their
                        `advances` further; what is started inside is waited
                        for there */
  DNN_OP_SWAP,       /* starts a copy between the arenas; buffers: from to;
                        numbers: bytes, id of the swap */
  DNN_OP_SWAP_WAIT,  /* numbers: id of the swap that must have ended */
} DnnOpcode;

/* The calls of its segment in which an instruction runs. */
typedef enum DnnWhen {
  DNN_ALWAYS,
  DNN_FIRST, /* in the first call of a step */
  DNN_LATER  /* in all but the first */
} DnnWhen;

/* For each batch dim, outermost first; then
 *   c[i, j] = sum_k a[i, k] b[k, j]  (+ c[i, j] if accumulate).
 * Strides are in elements.  One of (a_i, a_k), of (b_k, b_j) is 1 and
 * c_j is 1 wherever a library is to be used; the fallback takes any. */
typedef struct DnnGemm {
  DnnDtype dtype, c_dtype; /* dtype of a and b; that of c: the same or f32 */
  uint8_t accumulate;
  int64_t m, n, k;
  int64_t a_i, a_k, b_k, b_j, c_i, c_j;
  int64_t batch[2]; /* counts, 1 where absent */
  int64_t a_batch[2], b_batch[2], c_batch[2];
  int64_t scratch_bytes; /* bytes of the fourth buffer; 0 means none */
} DnnGemm;

typedef enum DnnConvKind {
  DNN_CONV_FORWARD,    /* buffers: x w -> y */
  DNN_CONV_INPUT_GRAD, /* buffers: dy w -> dx */
  DNN_CONV_WEIGHT_GRAD /* buffers: x dy -> dw */
} DnnConvKind;

/* Two slid dims; a one-dimensional convolution has size 1 in the first.
 * Strides in elements, of dims in the order named. */
typedef struct DnnConv {
  uint8_t kind; /* DnnConvKind */
  /* Dtype of the operands; that of the result, or f32. */
  DnnDtype dtype, out_dtype;
  int64_t batch, groups, in_channels, out_channels; /* channels: in total */
  int64_t in[2], out[2], window[2], stride[2], pad[2], dilate[2];
  int64_t x_stride[4]; /* n c y x */
  int64_t w_stride[5]; /* g o c y x */
  int64_t y_stride[4]; /* n o y x */
  int64_t scratch_bytes;
} DnnConv;

/* Each part of a collective is read at a source and written at a destination.
 * A part of `count` elements is divided into as many equal shards as the group
 * has members, end to end, by REDUCE_SCATTER, ALL_GATHER and ALL_TO_ALL.  "In
 * place" the destination is the source, or the smaller of the two is our shard
 * of the larger. */
typedef enum DnnCollectiveKind {
  DNN_ALL_REDUCE,     /* may be in place */
  DNN_REDUCE_SCATTER, /* the destination is one shard: ours of the reduction;
                         may be in place */
  DNN_ALL_GATHER, /* the source is one shard, and goes to all members; may be
                     in place */
  DNN_ALL_TO_ALL, /* shard i comes from member i, where it was our shard;
                     never in place */
  DNN_BROADCAST,  /* copies all from member `peer`; may be in place */
  DNN_SEND,       /* a message to the rank that is `peer` higher */
  DNN_RECV,       /* a message from that rank */
  DNN_PERMUTE, /* member i sends to member i + peer, modulo the members, or to
                  member targets[i]; one to which nobody sends keeps its
                  destination; never in place */
} DnnCollectiveKind;

/* Collectives of one queue run one after the other, in the order in which they
 * are started; those of different queues at the same time.  Messages are in no
 * queue: those from one rank to another meet in the order of their starts, and
 * must then have one edge, dtype and count. */
typedef enum DnnQueue {
  DNN_QUEUE_BLOCKING, /* the next operators wait for the result */
  DNN_QUEUE_BULK,     /* the rest */
  DNN_N_QUEUES
} DnnQueue;

/* The part of a message between stages of different placements that one rank
 * sends to another one, or receives from it: runs of elements of its buffer. */
typedef struct DnnPiece {
  int32_t rank, peer; /* of this rank; the other one minus it */
  int32_t n_runs;
  int64_t run;       /* elements of each run */
  const int64_t *at; /* [n_runs]: the first element */
} DnnPiece;

/* A bucket: several parts of memory that travel as one message, in this
 * order.  The instruction has a buffer for each part, in place, or the buffers
 * of all sources and then those of all destinations. */
typedef struct DnnCollective {
  uint8_t kind;   /* DnnCollectiveKind */
  uint8_t reduce; /* ReduceKind of support/tables.h */
  DnnDtype dtype;
  uint8_t queue; /* DnnQueue; of SEND and RECV no matter */
  /* Unique in its entry point; of collectives equal on all ranks.  Where the
   * instruction has a number, that is the id, which moves with registers. */
  int32_t id;
  int32_t peer; /* BROADCAST: index in the group; PERMUTE: shift; SEND, RECV:
                   the rank of the other minus our own */
  int32_t n_parts;
  int32_t edge; /* SEND, RECV: a number that both ranks give a message */
  /* SEND, RECV: where there are pieces, each one of a rank is a message with an
   * id of its own, from `id` on; the n_ids after it are those of this
   * collective. */
  int32_t n_ids, n_pieces;
  const DnnPiece *pieces; /* of all ranks; NULL: one message of all parts */
  /* A row of DnnProgram.groups; of SEND and RECV NULL. */
  const DnnGroup *group;
  const int64_t *counts; /* elements of each part */
  /* For PERMUTE, the member to which each one sends, no member twice, -1 to
   * none; NULL means by shift. */
  const int32_t *targets;
} DnnCollective;

/* Each rank of [first, first + ranks) sends messages to the rank that is `peer`
 * higher. */
typedef struct DnnPairs {
  int32_t first, ranks, peer;
} DnnPairs;

/* A number that depends on the rank: for each launch numbers[number] is raised
 * by factor * (index of the rank in its group). */
typedef struct DnnRankOffset {
  int32_t number;
  const DnnGroup *group;
  int64_t factor;
} DnnRankOffset;

typedef struct DnnInstr {
  uint8_t op; /* DnnOpcode */
  /* 0 forward, 1 input gradient, 2 weight gradient, 3 update, 4 communication.
   */
  uint8_t phase;
  uint16_t n_buffers, n_numbers;
  /* A run of a node is one launch or several, such as a copy and a kernel.  At
   * the first: how many, launch_key() or clear_key() of ir.h, and, in a paced
   * program, the picoseconds that the run takes; else 0. */
  uint16_t n_launches;
  int32_t kernel; /* OP_KERNEL; fallback of GEMM and CONV (or -1) */
  uint8_t when;   /* DnnWhen */
  uint64_t key;
  int64_t pace;
  const int64_t *buffers; /* arena offsets in bytes */
  const int64_t *numbers;
  /* The bytes that a buffer moves with an iteration of each loop around, or
   * with a register, outermost first, n_loops for each buffer; or NULL. */
  const int64_t *advances;
  /* Likewise how much a number grows, n_loops for each number; or NULL. */
  const int64_t *number_advances;
  const void *detail;
  const char *path;          /* path of the node, for messages and traces */
  double flops, bytes_moved; /* estimates by the operator's cost rule */
  /* The floats that this instruction wrote: n_checks rows of
   * DNN_CHECK_NUMBERS (offset, elements, DnnDtype: f32, f16 or bf16, the buffer
   * that it moves with, 1 if the program gave it infinities), for finding the
   * first value not finite.  A loop checks what it stacked. */
  uint16_t n_checks;
  const int64_t *checks;
  const int64_t *values;   /* of each check the DnnValue, in DnnProgram.plain */
  uint16_t n_rank_offsets; /* OP_KERNEL: 0 almost always */
  uint16_t n_loops;        /* registers of its segment and loops around it */
  const DnnRankOffset *rank_offsets;
} DnnInstr;

/* Path of the data input of `decode` that holds the token position: i32 scalar.
 */
#define DNN_POSITION                                                           \
  "sample.position" /* as in passes/decode/incremental_decoding.h */

typedef struct DnnEntryPoint {
  uint8_t id;       /* EntryPointId of support/tables.h */
  const char *name; /* for messages */
  int32_t n_instrs;
  const DnnInstr *instrs;
  int32_t n_segments, n_calls;
  const DnnSegment *segments;
  const DnnCall *calls; /* in the order in which a rank makes them */
  /* [n_calls]: they are a period, run once for each batch.  NULL: a step. */
  const DnnPeriodCall *periods;
  /* How many periods lie between the first call of a unit and its update, the
   * units of a period, and those of a batch. */
  int32_t lead, period_units, batch_units;
  /* Samples that all ranks together take in one execution; of `predict` each
   * rank takes as many. */
  int64_t batch;
  int64_t arena_bytes; /* highest that it touches, what persists included */
  int32_t n_tensors;
  /* Data, loss, norm, rate, metrics, result: those that are not persistent. */
  const DnnTensor *tensors;
} DnnEntryPoint;

typedef enum DnnValueKind {
  DNN_VALUE_LEAF,     /* a parameter, state or input */
  DNN_VALUE_PASSES,   /* shows other values: a view, a carry, a constant */
  DNN_VALUE_CHOOSES,  /* elements of its inputs and constants: a select */
  DNN_VALUE_COMPUTES, /* may be the first that is not finite */
} DnnValueKind;

/* A value of the plain program, in which every operator stands alone, in
 * program order. */
typedef struct DnnValue {
  const char *path;     /* path of the operator, or of the leaf */
  uint8_t kind;         /* DnnValueKind */
  uint8_t phase;        /* phase as in DnnInstr */
  uint8_t role;         /* DnnRole of a leaf */
  uint8_t has_infinity; /* a constant or initial value is infinite */
  DnnDtype dtype;       /* dtype of a leaf */
  int32_t n_inputs;
  const int32_t *inputs;    /* the values that it is computed from */
  int64_t offset, elements; /* place of a leaf */
} DnnValue;

typedef struct DnnProgram DnnProgram;

/* The forward and backward pass of training without fusion: it is run to find
 * the first value that is not finite, whose path is the same at every -O. */
typedef struct DnnPlain {
  /* One entry point; the persistent tensors lie as in the program that trains.
   */
  const DnnProgram *program;
  int32_t n_values;
  const DnnValue *values;
  int32_t loss; /* index of a value */
  int32_t n_gradients;
  const int32_t *gradients; /* indices of values */
} DnnPlain;

struct DnnProgram {
  /* Launches of `train` take the time of their pace and compute nothing. */
  uint8_t is_paced;
  const char *model, *model_dir, *target; /* "chargpt", folder, "cpu" */
  const char *stages; /* of its ranks, as "stages 1, 3"; NULL: there is one */
  const char *model_hash, *plan_hash, *compiler;
  int32_t world;       /* ranks */
  int64_t arena_bytes; /* bytes of all entry points but `predict` */
  int64_t persistent_bytes;
  int64_t host_bytes; /* of the arena in host memory, of all entry points */
  int32_t n_swaps;    /* ids of swaps of an entry point, at most */
  int64_t parameters; /* elements */
  /* Those of all collectives, the plain program's included, without
   * repetition and in one order on all ranks: communicators are made from it.
   */
  int32_t n_groups;
  const DnnGroup *groups;
  const uint8_t *group_queues; /* of each: bit q is set where any rank has a
                                  collective in queue q */
  /* Likewise who sends messages to whom. */
  int32_t n_pairs;
  const DnnPairs *pairs;
  /* Ranks behind the workers, which are all ranks before them: they have the
   * parameters and their optimizer state (runtime/rank/servers.c).  0: none. */
  int32_t first_server, n_servers;
  int64_t staleness; /* 0: BSP; -1: ASP */
  int32_t n_tensors;
  /* Those that persist on any rank, in one order in all programs. */
  const DnnTensor *tensors;
  int32_t n_kernels;
  const DnnKernel *kernels;
  int32_t n_modules;
  const DnnModule *modules;
  int32_t n_entry_points;
  const DnnEntryPoint *entry_points;
  int32_t n_data;
  const DnnData *data;
  DnnSettings settings;
  const DnnSample *sample; /* sampling, or NULL */
  const DnnPlain *plain;   /* plain program, or NULL */
};

/* The ranks from `first` on, below that of the next row, run a program. */
typedef struct DnnRankRow {
  int32_t first, program;
} DnnRankRow;

/* The programs of all ranks.  World, groups, kernels, modules, data, settings
 * and names are equal in all of them. */
typedef struct DnnBundle {
  int32_t abi; /* DNN_ABI */
  int32_t world;
  int32_t n_programs;
  const DnnProgram *programs;
  int32_t n_rows;
  const DnnRankRow *rows; /* ascending; the first begins at rank 0 */
} DnnBundle;

extern const DnnBundle dnn_bundle;

#endif
