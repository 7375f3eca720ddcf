/*
 * runtime.h -- the thin runtime: executes a DnnProgram on one rank.  It knows
 * no graph.  Device and comm are small interfaces, each a table of functions.
 */
#ifndef RUNTIME_RUNTIME_H
#define RUNTIME_RUNTIME_H

#include "runtime/program.h"
#include "support/support.h"

/* ---- device: where the arena lives and instructions run ---- */

typedef struct Device Device;
struct Device {
  const char *name;
  /* Makes the arena (arena_bytes, aligned to 4096) and loads the kernels. */
  Status (*open)(Device *device, const DnnProgram *program, int local_rank);
  /* Enqueues one instruction of kind KERNEL, GEMM, CONV, COPY or ZERO. */
  Status (*launch)(Device *device, const DnnInstr *instr);
  /* Host <-> arena; wait for what was enqueued before. */
  Status (*write)(Device *device, int64_t offset, const void *from,
                  int64_t bytes);
  Status (*read)(Device *device, int64_t offset, void *to, int64_t bytes);
  Status (*wait)(Device *device);
  /* Address of an arena byte as the comm needs it. */
  void *(*address)(Device *device, int64_t offset);
  void (*close)(Device *device);
  const DnnProgram *program;
  void *state;
};
Status device_create(const char *target, Arena *arena, Device **out);

/* ---- comm: collectives between ranks ---- */

typedef struct CommPart { void *data; int64_t count; } CommPart;

typedef struct Comm Comm;
struct Comm {
  const char *name; /* self local mpi nccl */
  int rank, world, local_rank, local_world;
  /* Starts; returns at once.  Collectives of one group run in the order of
   * start, which is the same on all ranks.  All-reduce is reduce-scatter in
   * ascending rank order, then all-gather: replicas are equal bit for bit. */
  Status (*start)(Comm *comm, const DnnCollective *what, const CommPart *parts);
  /* Blocks until collective `id` has ended; STATUS_lost when a rank is gone or
   * the deadline has passed (with what it waits for). */
  Status (*wait)(Comm *comm, int32_t id);
  /* Small host-side helpers, blocking, for agreement outside the step. */
  Status (*barrier)(Comm *comm);
  Status (*broadcast)(Comm *comm, void *data, int64_t bytes, int root);
  Status (*gather)(Comm *comm, const void *data, int64_t bytes, void *all);
  void (*close)(Comm *comm);
  void *state;
};
/* By environment: one rank is `self`; else MPI (dlopen). */
Status comm_create(Arena *arena, Comm **out);
/* `world` ranks as threads of this process; `rendezvous`: sends wait for their
 * receive (zero buffers). seed orders deliveries. */
Status comm_local_create(Arena *arena, int world, bool rendezvous,
                         uint64_t seed, Comm **out_ranks);

/* ---- libraries of the CPU ---- */

/* Scratch that the library asks for; 0 without one. */
int64_t cpu_gemm_scratch(const DnnGemm *gemm);
int64_t cpu_conv_scratch(const DnnConv *conv);

/* ---- main of a rank executable: bundle's run options ---- */
int rank_main(int argc, char **argv, const DnnProgram *program);

#endif
