/*
 * mpi.h -- declares what the files of the transport over Open MPI share.  Only
 * the communication thread calls it.
 */
#ifndef RUNTIME_COMM_MPI_H
#define RUNTIME_COMM_MPI_H

#include "runtime/comm/comm.h"
#include "runtime/recorder/silence.h"

#include <pthread.h>

enum {
  MPI_SUCCESS = 0,
  MPI_LARGEST_CHUNK = 128 << 10,
  MPI_LARGEST_HEADER = 4 << 10, /* bytes that Open MPI adds to a message */
  MPI_TICK_NS = 100000000, /* interval at which lost ranks are looked for */
  MPI_N_SLOTS = 4          /* rounds of a collective in flight */
};

typedef enum Phase { PHASE_scatter, PHASE_gather } Phase; /* < 4 */

typedef struct Api {
#define MPI(name, parameters) int(*name) parameters;
#include "runtime/comm/mpi.def"
  void *world, *byte, *errors_return;
} Api;

/* A collective or message that was started.  The host-side helpers are
 * collectives of the job's own. */
typedef struct Job {
  const DnnCollective *what;
  const CommPart *parts;
  bool is_done, is_stop;
  /* Path of the instruction that started it; NULL means the host. */
  const char *path;
  int32_t instr, microbatch; /* microbatch as in FlightRecorder */
  int64_t step;              /* that of the rank when it starts */
  DnnCollective own;
  CommPart own_part;
  int64_t own_count;
  struct Job *next; /* next job of its queue, or of the unused ones */
} Job;

/* A rank sends it along with a collective to the next rank of its group, and
 * before a message to the one that receives it: both must have begun the same,
 * or MPI would let one side pass with half of the data. */
typedef struct Header {
  int64_t id, kind, dtype, bytes, step; /* of a message the id is the edge */
  int64_t microbatch;                   /* as in FlightRecorder */
  char path[96];                        /* of the instruction; may be cut */
} Header;

/* A heartbeat says where its sender is, and who is silent as far as it knows.
 */
typedef struct Heartbeat {
  int64_t step, instr;
  Silences silences;
  bool is_told; /* a rank has said who is lost */
} Heartbeat;

/* A rank that this one exchanges heartbeats with. */
typedef struct Peer {
  int rank;
  Heartbeat in, out;
  void *receive, *send;
  int64_t heard_ns; /* time on the clock `ran_ns` */
  bool is_heard;    /* once at least */
  bool is_silent;
} Peer;

/* Buffers of one round in flight, for group size W. */
typedef struct Slot {
  char *in, *out, *own; /* [W][chunk], [W][chunk], [chunk] */
  const void **members; /* [W]: what comm_combine reads */
  void **requests;      /* [2 W] */
  int n_requests;
  int64_t begin, slice, end; /* flat elements of the round */
  int64_t round;
  int part;      /* part of a move */
  int64_t at, n; /* elements of each shard of that part; n = 0 means none */
} Slot;

/* The queues of collectives, of what ranks agree upon, and then one for the
 * messages to each rank and one for those from it. */
enum { WORK_HOST = DNN_N_QUEUES, WORK_MESSAGES };

/* A queue: its jobs, and the one at work. */
typedef struct Work {
  struct Mpi *mpi;
  int queue;
  Job *first, *last; /* guarded by the mutex */
  Job *taken;        /* the next one at work */
  Job *job;          /* job at work, or NULL */
  const DnnCollective *what;
  const CommPart *parts;
  CommGroup group;
  int64_t item, n; /* bytes of an element, elements in all parts */
  int64_t step, n_rounds;
  int64_t n_scattered, n_gathered, n_finished; /* rounds of an all-reduce */
  int part;   /* part of a move: the chunk that is next */
  int64_t at; /* elements of each shard */
  Slot slots[MPI_N_SLOTS];
  Header header_in, header_out;
  void *headers[2]; /* their requests */
  int n_headers;
  bool has_header; /* it is checked */
  int64_t begin_ns;
} Work;

typedef struct Mpi {
  Comm *comm;
  Api api;
  Dylib *dylib;
  RankPlace place;
  Arena *arena; /* memory of jobs; only the main thread uses it */
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t to_thread, to_main;
  Work *_Atomic
      *works; /* [WORK_MESSAGES + 2 W]; NULL: no message was started yet */
  _Atomic int n_works;
  Job *unused; /* jobs of the main thread, as are: */
  Job **by_id; /* collectives that nobody has waited for yet */
  int32_t n_ids;
  Job *vote_jobs[COMM_MOST_VOTES];
  CommVote *votes; /* [COMM_MOST_VOTES, W] */
  int64_t n_votes, n_waited;
  unsigned char *marks; /* [W], of barriers */
  DnnGroup all;
  _Atomic bool main_waits;
  bool shares_cores; /* this machine has more ranks than cores */
  Status start_status;
  bool is_started;
  int64_t chunk_bytes;   /* bytes of a slot's buffer for one member */
  int64_t message_bytes; /* the largest message */
  Peer *peers;           /* [W] */
  int n_peers;
  unsigned char *is_peer;   /* [W] */
  unsigned char *is_wanted; /* [W], of the main thread until: */
  _Atomic bool has_wanted;
  int64_t limit_ns; /* limit of the time for all to join */
  int64_t last_tick_ns, last_heartbeat_ns;
  int64_t ran_ns; /* time in which this thread was not kept from running */
  Silences silences;
  /* Time at which the first of them was known; 0 means none. */
  int64_t silent_since_ns;
  bool has_ended_daemon; /* the daemon will end after this rank */
  bool is_told;          /* a rank has said who is lost */
  /* The launcher where this rank is; that it waits. */
  bool has_told, has_told_wait;
} Mpi;

/* The result of a step of a collective. */
typedef enum Progress {
  PROGRESS_none, /* messages of the step are on their way */
  PROGRESS_some,
  PROGRESS_done
} Progress;

/* ---- mpi_heartbeats.c ---- */

/* Prints why, and ends this process. */
_Noreturn void mpi_give_up(Mpi *mpi, const char *why);
/* Checks that MPI has done so; else this is the end. */
void mpi_check(Mpi *mpi, int code, const char *doing);
/* Begins heartbeats, before all have joined. */
void mpi_begin_heartbeats(Mpi *mpi);
/* Ends the long patience of the start: all have joined. */
void mpi_expect_heartbeats(Mpi *mpi);
/* Sends and receives heartbeats, and ends a run whose deadline has passed. */
void mpi_tick(Mpi *mpi);

/* ---- mpi_messages.c ---- */

/* Sleeps after so many polls that found nothing. */
void mpi_pause(Mpi *mpi, int n_polls);
/* Begins to send; it and mpi_receive join the requests of the slot. */
void mpi_send(Work *work, Slot *slot, const void *data, int64_t n, int member,
              Phase phase);
void mpi_receive(Work *work, Slot *slot, void *data, int64_t n, int member,
                 Phase phase);
/* Returns whether all messages of the slot have arrived. */
bool mpi_is_over(Work *work, Slot *slot);
/* Tells the next of the group, or the receiver of a message, what this rank has
 * begun, and ends a run where the one before, or the sender, has begun another;
 * true once that is known.  Collectives of the host-side helpers have no
 * header.
 */
void mpi_exchange_headers(Work *work);
bool mpi_check_header(Work *work);

/* ---- mpi_queues.c ---- */

/* Makes all MPI calls, as the thread that does not return before a stop. */
void *mpi_run_thread(void *mpi);

/* ---- daemon.c, mpi_reduce.c, mpi_moves.c ---- */

/* Ends the daemon before a rank that has lost another ends, by itself or by
 * Open MPI. */
void mpi_end_daemon(const RankPlace *place);
void mpi_begin_all_reduce(Work *work);
Progress mpi_step_all_reduce(Work *work);
/* Begins every collective but all-reduce. */
void mpi_begin_moves(Work *work);
Progress mpi_step_moves(Work *work);

#endif
