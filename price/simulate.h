/*
 * simulate.h -- declares the simulator: how long the instruction lists of rank
 * classes take, on virtual clocks, when the time of each launch and transfer is
 * known (docs/inside/prices.md).
 *
 * All ranks of a class run one list.  A class has one stream, which runs its
 * actions in order, and queues, each of which runs its transfers in the order
 * of their starts.  A transfer begins when every class that starts it has come
 * to its start and it is the first in their queues.  Transfers that move bytes
 * over one link at a time share it.  Times are integers, so equal input gives
 * equal output on every machine.
 */
#ifndef PRICE_SIMULATE_H
#define PRICE_SIMULATE_H

#include "ir/cluster/cluster.h"
#include "support/support.h"

/* A step that takes longer is said to take so long (13 days).  The clock of
 * SIM_LONG_STEPS such steps stays below INT64_MAX. */
#define SIM_LONGEST (INT64_MAX / 8)
/* Steps that a simulation may run. */
enum { SIM_MOST_STEPS = 128, SIM_LONG_STEPS = 7 };
/* Steps of the fastest class beside one that serves. */
enum { SIM_MOST_CLOCKS = 1 << 14 };

/* A share of 1 of a link or of a stream. */
#define SIM_ONE ((int64_t)1 << 20)

typedef enum SimKind {
  SIM_run,   /* computes */
  SIM_start, /* puts a transfer into a queue and goes on */
  SIM_wait,  /* A wait for the end of a run of a transfer: of those that this
                class has started the last one, or the one `back` before it;
                where it starts none, the next one. */
  SIM_loop,  /* a loop: what follows, up to its end, runs `trips` times */
  SIM_end,
} SimKind;

typedef struct SimAction {
  SimKind kind;
  int transfer;  /* start, wait: index into transfers */
  int queue;     /* start: of this class */
  int64_t trips; /* loop */
  int64_t back;  /* wait */
  int from_step; /* start, wait: left out in steps before, from 0 on */
  Ps duration;   /* run: where nothing is taken from the stream */
  int term;      /* run: what its time is counted as */
  int id;        /* what a span says of it */
} SimAction;

/* A class that serves takes pushes, one after the other, in the order of their
 * ends.  For each it runs its first action, and then starts the reply to each
 * worker that may have one: the action behind that, plus the number of the
 * worker. */
typedef struct SimServer {
  int n_workers;
  const int *pushes; /* by worker: a transfer that it starts once in a step */
  /* A reply waits until the slowest worker has pushed this many clocks less; -1
   * means that it waits for none. */
  int64_t staleness;
} SimServer;

typedef struct SimClass {
  int n_actions, n_queues;
  const SimAction *actions;
  const SimServer *server; /* NULL: its actions are a list */
} SimClass;

/* The time that a transfer keeps a link busy when it has the link for itself.
 */
typedef struct SimLoad {
  int link;
  Ps busy;
} SimLoad;

/* After so long without a transfer a class is at rest. */
#define SIM_REST ((Ps)DNN_REST_NS * 1000)

/* A collective, or a message, in one run of it; all runs of it are in one queue
 * of a class.  It takes `latency` and then the largest of its loads, or longer
 * where links are shared.  `latency` is that from rest: right after another
 * transfer it is `sooner` less, and in between it rises with the gap. */
typedef struct SimTransfer {
  Ps latency;
  Ps sooner; /* reduction of the latency, at most `latency` */
  int n_loads;
  const SimLoad *loads;
  int n_starts; /* classes that start it */
  /* The part of the stream of each class that starts it, which it takes while
   * its bytes move; SIM_ONE is all of it. */
  int64_t takes;
  /* Its own rate while one of these classes runs a launch, in parts of SIM_ONE;
   * 0 means that it is not slower then. */
  int64_t beside;
  int term; /* term as which the wait for it is counted */
} SimTransfer;

typedef VEC(SimTransfer) SimTransfers;

typedef struct SimProgram {
  int n_classes, n_transfers, n_links, n_terms;
  const SimClass *classes;
  const SimTransfer *transfers;
} SimProgram;

/* A launch, a wait that takes time, or a transfer while it is the first in its
 * queue. */
typedef struct SimSpan {
  int class, queue; /* queue -1: the stream */
  int id;           /* of its action */
  int term;         /* stream: what its time is counted as */
  bool is_wait;
  Ps begin, end;
  Ps taken; /* launch: part of it that transfers take */
} SimSpan;

/* Is told of spans, those of a stream or a queue in their order. */
typedef void SimTell(void *user, const SimSpan *span);

typedef struct SimClassResult {
  int n_steps;   /* that it has made: more than were asked for beside servers */
  Ps *step_ends; /* [n_steps] */
  Ps *compute;   /* [n_terms]: of the last step, as if nothing were taken */
  Ps *exposed;   /* [n_terms]: the stream waits for transfers */
  Ps *taken;     /* [n_terms]: launches take longer beside a transfer */
  int waits_for; /* the transfer that never ends; -1 means none */
  int waits_at;  /* index of that action */
  /* The class that has to go on first: it has not come to that transfer, or to
   * one that is before it in a queue.  -1: it waits for nothing. */
  int waits_on;
} SimClassResult;

typedef struct SimResult {
  bool is_stuck; /* a deadlock: some class waits for ever */
  bool is_idle;  /* no transfer is under way at the end */
  Ps step;       /* end of the last step but one to the end of the last */
  SimClassResult *classes;
} SimResult;

/* Returns whether some transfer takes less time after another one, so that a
 * step depends on how the one before it ends. */
bool sim_has_gaps(const SimProgram *program);

/* Runs the list of each class `n_steps` times; compute + exposed + taken of a
 * class are the time of its last step.  Iterations of a loop that repeat are
 * counted and not run, unless there is a `tell`, which is told of all that the
 * last step starts; the result is the same.  What a class still has to do after
 * SIM_LONGEST of a step takes no time.  Where some class serves, which has no
 * steps, all others go on until each has made `n_steps`, or one of them has
 * made SIM_MOST_CLOCKS; the times of the last step are then not those of one
 * step. Allocates the result in `arena`. */
SimResult simulate(Arena *arena, const SimProgram *program, int n_steps,
                   SimTell *tell, void *user);

#endif
