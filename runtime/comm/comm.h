/*
 * comm.h -- collectives between ranks: the interface of a transport, and the
 * groups and arithmetic that transports share.
 */
#ifndef RUNTIME_COMM_COMM_H
#define RUNTIME_COMM_COMM_H

#include "runtime/comm/group.h"
#include "runtime/device/device.h"
#include "runtime/recorder/recorder.h"
#include "runtime/tensor/tensor.h"
#include "support/tables.h"

/* A part of a collective: `count` elements where source or destination is
 * larger (DnnCollectiveKind). */
typedef struct CommPart {
  const void *from;
  void *to;
  int64_t count;
} CommPart;

/* Filled by the transport while `on`; read between steps. */
typedef struct CommEvent {
  int32_t id;
  int64_t begin_ns, end_ns;
  int64_t bytes; /* those of comm_payload */
} CommEvent;

typedef struct CommEvents {
  CommEvent *data;
  int32_t capacity;
  _Atomic int32_t n;
} CommEvents;

/* The vote of a rank, or the result of all. */
enum { COMM_VOTE_SUMS = 2, COMM_MOST_VOTES = 32 };
typedef struct CommVote {
  int64_t greatest;            /* of the values of all ranks */
  double sums[COMM_VOTE_SUMS]; /* over all ranks, in ascending order */
} CommVote;

typedef struct Comm Comm;
struct Comm {
  const char *name; /* self local mpi nccl */
  int rank, world, local_rank, local_world;
  /* Starts; returns at once; the parts must stay until the wait.  Collectives
   * of one queue run in the order of start, which is the same on all ranks.
   * Sums are made in ascending rank order, each by one rank: replicas are equal
   * bit for bit.  SEND may end only when its RECV has started; messages between
   * two ranks must be started in orders that agree. */
  Status (*start)(Comm *comm, const DnnCollective *what, const CommPart *parts);
  /* Blocks until collective `id` has ended.  Returns STATUS_lost when a rank is
   * gone or the deadline has passed (with what it waits for). */
  Status (*wait)(Comm *comm, int32_t id);
  /* Blocks until one of these collectives has ended, and finds which: it is
   * still to be waited for.  NULL where the transport cannot. */
  Status (*wait_any)(Comm *comm, const int32_t *ids, int n, int *out);
  /* Waits until all ranks are here.  It and the next ones are small blocking
   * helpers of the host, for agreement outside the step. */
  Status (*barrier)(Comm *comm);
  Status (*broadcast)(Comm *comm, void *data, int64_t bytes, int root);
  Status (*gather)(Comm *comm, const void *data, int64_t bytes, void *all);
  /* Sends bytes from one rank to another; these two call it, with their own
   * `data`.  NULL where there is one rank. */
  Status (*transfer)(Comm *comm, void *data, int64_t bytes, int from, int to);
  /* Starts to find the greatest and the sums of the votes of all ranks, and
   * returns at once, so that they are exchanged while the step runs.
   * vote_wait blocks until the result is there: of the first of those that have
   * started, at most COMM_MOST_VOTES. */
  Status (*vote_start)(Comm *comm, const CommVote *own);
  Status (*vote_wait)(Comm *comm, CommVote *out);
  /* Looks for lost ranks also among the peers (comm_add_peers) in the groups
   * and pairs of a program.  NULL means that the transport looks for none. */
  void (*watch)(Comm *comm, const DnnProgram *program);
  /* Tells a transport with a virtual clock that this rank has run an
   * instruction.  NULL means that the transport has no such clock. */
  void (*computed)(Comm *comm, const DnnInstr *instr);
  void (*close)(Comm *comm);
  /* Recorder, which may be set after creation; or NULL. */
  FlightRecorder *recorder;
  CommEvents *events;   /* times of collectives, for traces; or NULL */
  int64_t buffer_bytes; /* bytes that the transport allocated itself */
  void *state;
};

/* The rank of this process and the number of ranks, from DNN_RANK, RANK,
 * OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID and their companions; else one
 * rank. */
typedef struct RankPlace {
  int rank, world, local_rank, local_world;
} RankPlace;
RankPlace comm_place(void);

/* Creates the transport for this environment: of the rows of transports.def the
 * last that takes no more ranks.  It brings all ranks together within `limit_s`
 * seconds. */
Status comm_create(Arena *arena, int64_t limit_s, Comm **out);
/* Creates the transport between the addresses of `device`, which is open: a row
 * of transports.def, or `host` itself.  The result owns `host`. */
Status comm_for_device(Arena *arena, Comm *host, Device *device, Comm **out);
#define TRANSPORT(name, least_ranks)                                           \
  Status comm_##name##_create(Arena *arena, RankPlace place, int64_t limit_s,  \
                              Comm **out);
#define DEVICE_TRANSPORT(name, device)                                         \
  Status comm_##name##_create(Arena *arena, Comm *host, Device *over,          \
                              Comm **out);
#include "runtime/comm/transports.def"
/* The way in which ranks that are threads of this process are joined; all zero
 * means at once. */
typedef struct LocalOptions {
  uint64_t seed;
  /* A start returns only when all of its group have started (zero buffers). */
  bool rendezvous;
  /* Links: a message takes latency + bytes / bandwidth; a bandwidth of 0 means
   * that bytes take no time.  `link` (or NULL) says it for each pair of ranks.
   */
  int64_t latency_ns;
  double bytes_per_ns;
  void (*link)(void *user, int from, int to, int64_t *latency_ns,
               double *bytes_per_ns);
  /* A collective ends later by less than this, as the seed says. */
  int64_t jitter_ns;
  /* Returns how long an instruction takes on a rank.  NULL means that
   * instructions take no time. */
  int64_t (*compute_ns)(void *user, int rank, const DnnInstr *instr);
  void *user;
} LocalOptions;
/* Creates `world` ranks as threads of this process, *out_ranks an array of
 * them.  Every rank has a virtual clock, which computing moves and waiting
 * moves to the end of what it waits for; times depend on the options alone, not
 * on threads.  The seed also says which collectives take effect as late as they
 * may, at the first wait.  When every rank waits for what cannot come, all get
 * STATUS_lost at once. */
Status comm_local_create(Arena *arena, int world, const LocalOptions *options,
                         Comm **out_ranks);
/* Returns this rank's virtual clock. */
int64_t comm_local_now(Comm *comm);
/* The ranks that a collective joins, for one of them. */
typedef struct CommGroup {
  DnnGroup digits;
  int rank, size, index; /* ours; of the group; ours in it */
} CommGroup;
bool comm_is_message(const DnnCollective *what); /* SEND or RECV */
/* Adds the vote of the next rank to those of the ranks before it. */
void comm_add_vote(CommVote *all, const CommVote *next);
/* Returns the group of `what`; of SEND and RECV the two ranks that it joins,
 * the lower one first. */
CommGroup comm_group(const DnnCollective *what, int rank);
/* Returns the rank of a member. */
int comm_member(const CommGroup *group, int index);
/* Marks the ranks that `rank` exchanges heartbeats with because they are in one
 * group; a is marked for b where b is for a. */
void comm_add_peers(const DnnGroup *group, int rank, unsigned char *is_peer);
/* Likewise those that `rank` exchanges messages with. */
void comm_add_pairs(const DnnPairs *pairs, int rank, unsigned char *is_peer);
/* Returns the elements in all parts. */
int64_t comm_count(const DnnCollective *what);
/* Returns the bytes of these: of sources or destinations, whichever are larger.
 */
int64_t comm_payload(const DnnCollective *what);
/* Fails for a dtype that cannot be reduced yet. */
Status comm_check(const DnnCollective *what);
/* Reduces n elements of all members, which lie at members[index], in ascending
 * rank order; the result may lie where those of one of them do. */
void comm_combine(const DnnCollective *what, const void *const *members,
                  void *to, int64_t n);
/* Returns the part that lies at `data`, in place on this rank. */
CommPart comm_in_place(const DnnCollective *what, int rank, void *data,
                       int64_t count);
/* Executes a collective of a group of one. */
void comm_alone(const DnnCollective *what, const CommPart *parts);
/* Finds the member to which `index` sends in a PERMUTE, and the one from which
 * it receives. -1 means that there is none. */
int comm_target(const DnnCollective *what, int index);
int comm_origin(const DnnCollective *what, int index);
/* Returns where the flat elements [begin, begin + n) of the sources or the
 * destinations lie.  Returns NULL where they are not contiguous; then comm_copy
 * moves them. */
const void *comm_source(const DnnCollective *what, const CommPart *parts,
                        int64_t begin, int64_t n);
void *comm_destination(const DnnCollective *what, const CommPart *parts,
                       int64_t begin, int64_t n);
void comm_copy_out(const DnnCollective *what, const CommPart *parts,
                   int64_t begin, int64_t n, void *flat);
void comm_copy_in(const DnnCollective *what, const CommPart *parts,
                  int64_t begin, int64_t n, const void *flat);

#endif
