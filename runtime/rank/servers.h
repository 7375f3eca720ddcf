/*
 * servers.h -- declares what the files about servers share: messages between
 * workers and servers (servers.c), what each of them does
 * (servers_train.c), and the logs (server_log.c).
 */
#ifndef RUNTIME_RANK_SERVERS_H
#define RUNTIME_RANK_SERVERS_H

#include "runtime/rank/run.h"

#include <stdio.h>

/* The header in front of the gradients of a worker. */
typedef struct PushHeader {
  int64_t clock;
  int64_t stop;         /* Stop: all are to end this round */
  int64_t is_last;      /* of this round */
  int64_t has_gradient; /* 0: its data could not be read */
} PushHeader;

/* The messages between this rank and another one: gradients one way, parameters
 * the other way, each after a header. */
typedef struct ServerLink {
  int peer;              /* the other rank */
  DnnCollective out, in; /* SEND and RECV of bytes */
  CommPart *out_parts, *in_parts;
  int64_t *out_counts, *in_counts;
  void *out_header, *in_header;
  bool sends; /* started and not waited for */
} ServerLink;

typedef struct ServerLog ServerLog;

struct Servers {
  int n_workers, n_servers;
  bool is_server;
  int64_t staleness; /* as in DnnProgram */
  int n_links;
  ServerLink *links;    /* of a worker to servers, of a server to workers */
  int64_t reply_header; /* bytes: a stop, and a clock of each worker */
  /* A worker has none of these. */
  int n_gradients;
  const DnnTensor **gradients;
  unsigned char **received, **replies; /* [n_links]: all tensors, end to end */
  int64_t *clocks; /* [n_workers]: last clock of each, that was taken */
  int64_t n_updates, largest_staleness;
  Stop stop;
  ServerLog *log;
};

/* Returns whether workers get a tensor of a server, of which theirs is `copy`:
 * a parameter, an average that an entry point of theirs reads, or a state where
 * they do not wait for each other. */
static inline bool servers_give(const DnnTensor *tensor,
                                const DnnTensor *copy) {
  return tensor->offset >= 0 &&
         (tensor->role == DNN_PARAM || tensor->role == DNN_STATE ||
          (tensor->role == DNN_EMA && copy->offset >= 0));
}

/* ---- servers.c ---- */

void servers_send(Run *run, ServerLink *link, int64_t clock);
void servers_wait_sent(Run *run, ServerLink *link);
void servers_start_receive(Run *run, ServerLink *link, int64_t clock);
void servers_wait_received(Run *run, ServerLink *link);

/* ---- server_log.c ---- */

/* Opens the log of this server, or that which it repeats. */
Status server_log_open(Run *run, int number, ServerLog **out);
/* Notes that a push was taken, and what an answer has in it. */
void server_log_push(ServerLog *log, int worker, int64_t clock);
void server_log_reply(ServerLog *log, int worker, int64_t clock,
                      const int64_t *versions, int n);
/* Returns the worker whose push comes next.  Returns -1 where no log is
 * repeated; fails where the log ends. */
Status server_log_next(ServerLog *log, int *out_worker);
Status server_log_close(ServerLog *log);

#endif
