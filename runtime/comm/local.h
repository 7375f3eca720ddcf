/*
 * local.h -- declares what the files of the transport between threads share.
 */
#ifndef RUNTIME_COMM_LOCAL_H
#define RUNTIME_COMM_LOCAL_H

#include "runtime/comm/comm.h"

#include <pthread.h>

typedef enum MeetingKind {
  MEETING_collective,
  MEETING_message,
  MEETING_broadcast,
  MEETING_gather,
  MEETING_vote
} MeetingKind;

/* Votes and the like are in a queue of their own, so that no collective waits
 * for them. */
enum { LOCAL_HOST = DNN_N_QUEUES, LOCAL_N_QUEUES };

typedef struct Visit {
  bool has_come, has_left;
  const DnnCollective *what; /* ours; NULL: a meeting of the host */
  const CommPart *parts;
  void *data, *all;
  CommVote vote;
  int64_t start_ns; /* time by the clock of the rank */
} Visit;

typedef struct Meeting {
  MeetingKind kind;
  const DnnCollective *what; /* collective of the first to come */
  CommGroup group;
  int queue;
  int64_t bytes;
  CommVote vote; /* of all */
  int root;
  /* The index of the sender of a message, and how many it had sent before. */
  int sender;
  int64_t number;
  int n_come, n_left;
  bool has_run; /* its times are known */
  bool is_late, has_worked;
  int64_t begin_ns, end_ns;
  Visit *visits; /* [world] */
} Meeting;

/* A chunk of what comm_combine adds up. */
enum { LOCAL_BLOCK_BYTES = 8192 };

/* ---- local_work.c ---- */

/* Moves and adds up what all have brought.  `members` has room for all ranks,
 * `block` for LOCAL_BLOCK_BYTES. */
void local_work(Meeting *meeting, const void **members, char *block);
/* Returns how long a meeting takes over the links. */
int64_t local_duration(const Meeting *meeting, const LocalOptions *options);

#endif
