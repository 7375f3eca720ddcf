/*
 * self.c -- implements the transport of a single rank, which has nothing to
 * send.
 */
#include "runtime/comm/comm.h"

#include <string.h>

static Status self_start(Comm *comm, const DnnCollective *what,
                         const CommPart *parts) {
  (void)comm;
  ASSERT(what->group->size == 1);
  TRY(comm_check(what));
  comm_alone(what, parts);
  return STATUS_OK;
}

static Status self_wait(Comm *comm, int32_t id) {
  (void)comm, (void)id;
  return STATUS_OK;
}

static Status self_barrier(Comm *comm) {
  (void)comm;
  return STATUS_OK;
}

static Status self_broadcast(Comm *comm, void *data, int64_t bytes, int root) {
  (void)comm, (void)data, (void)bytes;
  ASSERT(root == 0);
  return STATUS_OK;
}

static Status self_gather(Comm *comm, const void *data, int64_t bytes,
                          void *all) {
  (void)comm;
  memmove(all, data, (size_t)bytes);
  return STATUS_OK;
}

static Status self_vote_start(Comm *comm, const CommVote *own) {
  *(CommVote *)comm->state = *own;
  return STATUS_OK;
}

static Status self_vote_wait(Comm *comm, CommVote *out) {
  *out = *(CommVote *)comm->state;
  return STATUS_OK;
}

static void self_close(Comm *comm) {
  (void)comm;
}

Status comm_self_create(Arena *arena, RankPlace place, int64_t limit_s,
                        Comm **out) {
  (void)place, (void)limit_s; /* a single rank waits for nobody */
  Comm *comm = ARENA_NEW(arena, Comm);
  *comm = (Comm){.name = "self",
                 .world = 1,
                 .local_world = 1,
                 .start = self_start,
                 .wait = self_wait,
                 .barrier = self_barrier,
                 .broadcast = self_broadcast,
                 .gather = self_gather,
                 .vote_start = self_vote_start,
                 .vote_wait = self_vote_wait,
                 .close = self_close,
                 .state = ARENA_NEW(arena, CommVote)};
  *out = comm;
  return STATUS_OK;
}
