/*
 * mpi.h -- declares what the files of the transport over Open MPI share.  Only
 * the communication thread calls it.
 */
#ifndef RUNTIME_COMM_MPI_H
#define RUNTIME_COMM_MPI_H

#include "runtime/comm/comm.h"

#include <pthread.h>

enum {
  MPI_SUCCESS = 0,
  MPI_MAX_JOBS = 256, /* in flight */
  MPI_LARGEST_CHUNK = 256 << 10,
  MPI_TICK_NS = 100000000 /* how often lost ranks are looked for */
};

typedef enum Phase {
  PHASE_scatter,
  PHASE_gather,
  PHASE_header
} Phase; /* < 4 */

typedef struct Api {
#define MPI(name, parameters) int(*name) parameters;
#include "runtime/comm/mpi.def"
  void *world, *byte, *errors_return;
} Api;

typedef enum JobKind {
  JOB_collective,
  JOB_broadcast,
  JOB_gather,
  JOB_vote,
  JOB_stop
} JobKind;

typedef struct Job {
  JobKind kind;
  bool is_done, is_free;
  const DnnCollective *what;
  const CommPart *parts;
  void *data, *all; /* of host-side jobs */
  int64_t bytes, value;
  int root;
} Job;

/* Sent along with a collective to the next of its group: both must mean the
 * same, or MPI would let one side pass with half of the data. */
typedef struct Header {
  int64_t id, kind, dtype, bytes, step;
} Header;

/* A heartbeat says where its sender is. */
typedef struct Heartbeat {
  int64_t step, instr;
} Heartbeat;

typedef struct Neighbour {
  int rank;
  Heartbeat in, out;
  void *receive, *send;
  int64_t heard_ns; /* 0: not yet */
} Neighbour;

/* Buffers of one round in flight, for group size W. */
typedef struct Slot {
  char *in, *out, *own; /* [W][chunk], [W][chunk], [chunk] */
  const void **members; /* [W]: what comm_combine reads */
  void **requests;      /* [2 W + 2] */
  int n_requests;
  int64_t begin, slice, end; /* flat elements of the round */
  int round;
} Slot;

typedef struct Mpi {
  Comm *comm;
  Api api;
  Dylib *dylib;
  RankPlace place;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t to_thread, to_main;
  Job jobs[MPI_MAX_JOBS]; /* a ring */
  int64_t n_posted, n_run;
  Job *vote;
  _Atomic bool main_waits;
  Status start_status;
  bool is_started;
  Slot slots[2];
  int64_t chunk_bytes;
  Header header_in, header_out;
  Neighbour neighbours[2];
  int n_neighbours;
  int64_t limit_ns; /* for all to join */
  int64_t last_tick_ns, last_heartbeat_ns, started_ns;
} Mpi;

/* A collective at work. */
typedef struct Reduction {
  Mpi *mpi;
  const DnnCollective *what;
  const CommPart *parts;
  CommGroup group;
  int64_t item, n;
} Reduction;

/* ---- mpi_messages.c ---- */

/* Waits for the next heartbeat of a neighbour. */
void mpi_listen_to(Mpi *mpi, Neighbour *neighbour);
/* Sends and receives heartbeats, and ends a run whose deadline has passed. */
void mpi_tick(Mpi *mpi);
/* Parts that follow each other in one tag; wraps around. */
int mpi_tag(const Reduction *r, const Slot *slot, Phase phase);
int mpi_member(const Reduction *r, int index); /* its rank */
/* Both begin; mpi_finish waits for n of them and sees to heartbeats meanwhile.
 */
void mpi_send(Mpi *mpi, const void *data, int64_t bytes, int to, int tag,
              void **request);
void mpi_receive(Mpi *mpi, void *data, int64_t bytes, int from, int tag,
                 void **request);
void mpi_finish(Mpi *mpi, void **requests, int n);
/* Tells the next of the group what this rank means; after mpi_finish of the
 * slot's requests the check ends a run where the one before means something
 * else. */
void mpi_exchange_headers(const Reduction *r, Slot *slot);
void mpi_check_header(const Reduction *r);

/* ---- daemon.c, mpi_reduce.c, mpi_moves.c ---- */

/* Before a rank that has lost another ends. */
void mpi_end_daemon(const RankPlace *place);
void mpi_run_all_reduce(Mpi *mpi, const DnnCollective *what,
                        const CommPart *parts);
/* Every collective but all-reduce. */
void mpi_run_moves(Mpi *mpi, const DnnCollective *what, const CommPart *parts);

#endif
