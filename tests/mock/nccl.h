/*
 * nccl.h -- declares communicators of the mock's NCCL and the rules that it
 * checks when they are used.
 */
#ifndef TESTS_MOCK_NCCL_H
#define TESTS_MOCK_NCCL_H

#include "tests/mock/mock.h"

#include <stdatomic.h>

#define CHUNK_BYTES   (1 << 18)
#define MAILBOX_BYTES (1 << 18)
#define MAX_RANKS     16
#define ORDER_ENTRIES 64

enum { NCCL_INVALID_ARGUMENT = 4, NCCL_INVALID_USAGE = 5 };

/* A message from one rank to another, in pieces. */
typedef struct Mailbox {
  _Atomic int is_full;
  size_t bytes, total; /* of this piece; of the message */
  char data[MAILBOX_BYTES];
} Mailbox;

/* The collective that a rank has begun. */
typedef struct Meaning {
  size_t count;
  CuEnum kind, dtype, reduce, root;
} Meaning;

/* A rank's n-th launch (from 1) that another rank takes part in, with a hash of
 * all launches of the two before it, on any communicator. */
typedef struct OrderEntry {
  _Atomic int64_t n;
  _Atomic uint64_t hash;
} OrderEntry;

/* A member of a communicator. */
typedef struct Member {
  int64_t process;
  uint64_t gpu; /* hash of host and device */
} Member;

/* All ranks pass point p once `arrived` is ranks * (p + 1). */
typedef struct Shared {
  _Atomic int64_t arrived;
  _Atomic int32_t attached;
  _Atomic int has_failed;
  Member members[MAX_RANKS];
  _Atomic bool has_messages[MAX_RANKS][MAX_RANKS]; /* of, with */
  Meaning meanings[MAX_RANKS];
  OrderEntry order[MAX_RANKS][MAX_RANKS][ORDER_ENTRIES]; /* of, with */
  char chunks[MAX_RANKS][CHUNK_BYTES];
  Mailbox mailboxes[MAX_RANKS][MAX_RANKS]; /* from, to */
} Shared;

typedef enum CommState { COMM_LIVE, COMM_ABORTED, COMM_DESTROYED } CommState;

/* Stays when it is destroyed, so that a later use is noticed. */
typedef struct MockComm {
  Shared *shared;
  int ranks, rank;
  uint64_t id;
  CommState state;
  bool is_checked, is_finalized;
  int64_t points;            /* where this rank has arrived */
  int64_t joined[MAX_RANKS]; /* launches that this rank takes part in */
  CuEnum error;              /* that ncclCommGetAsyncError was told to find */
  int n_enqueued;            /* operations that are not done */
  CuStream stream;           /* of its queue: the first that it was used on */
} MockComm;

typedef enum OperationKind {
  ALL_REDUCE,
  REDUCE_SCATTER,
  ALL_GATHER,
  BROADCAST,
  SEND,
  RECEIVE
} OperationKind;

typedef struct Operation {
  MockComm *comm;
  const char *from;
  char *to;
  size_t count, done; /* elements of each rank's share */
  CuEnum dtype, reduce;
  int peer;
  OperationKind kind;
  int stage; /* of the chunk at hand */
  bool is_over;
} Operation;

size_t nccl_dtype_bytes(CuEnum dtype);

/* ---- nccl_rules.c: each says on stderr which rule was broken ---- */

/* A new communicator is known to the rules. */
void rules_add(MockComm *comm);
/* The communicator, or NULL: it is none, or was aborted or destroyed. */
MockComm *rules_live(NcclComm handle, const char *function);
/* 0, or NCCL_INVALID_USAGE once all members have come and two of them are the
 * same GPU of the same host. */
CuEnum rules_members(const MockComm *comm);
/* Sources and destinations overlap only where NCCL calls it in place. */
CuEnum rules_overlap(const Operation *operation);
/* The operations of a group call are launched: writes them to the log, and
 * compares the order of launches with that of each other rank that takes
 * part. */
CuEnum rules_launch(const Operation *operations, int n, int stream);

#endif
