/*
 * simulator_state.h -- declares the state of a simulation, which simulate.c
 * moves from event to event and recurrence.c compares with an earlier one.
 */
#ifndef PRICE_SIMULATOR_STATE_H
#define PRICE_SIMULATOR_STATE_H

#include "price/simulate.h"

typedef struct Under Under;
typedef struct SimServing SimServing;

/* A class that has come to a transfer, and what is behind it in its queue. */
typedef struct Member {
  int class, queue;
  int id, step; /* number and step of its start */
  Under *next;
} Member;

/* One run of a transfer. */
struct Under {
  const SimTransfer *transfer;
  int id, n_first; /* number, and in how many queues it is the first */
  int number;      /* number in the key of a snapshot */
  bool has_begun;
  /* `since`: up to here what is left of the time that it takes alone is right.
   * `end`: end of the latency, then of the transfer. */
  Ps begin, latency_left, left, since, end;
  int64_t rate; /* its share of its own rate; 0: none yet */
  Ps alone;     /* time of its largest load */
  VEC(Member) members;
};

typedef struct SimQueue {
  Under *first, *last; /* NULL means that it is empty */
} SimQueue;

/* The state before an iteration.  Two states with equal keys go on alike, and
 * differ in the counters and in the iterations that loops have left. */
typedef struct Snapshot {
  VEC(int64_t) key;
  VEC(int64_t) counts; /* values of the counters */
  /* Iterations left of the loops around each class, in order. */
  VEC(int64_t)
  left;
} Snapshot;

typedef struct SimLoop {
  int at; /* index of its action */
  int64_t left;
  Snapshot *kept;       /* NULL means that iterations are not compared */
  int64_t since, until; /* iterations since then; when to keep a later one */
} SimLoop;

typedef struct Runner {
  const SimClass *class;
  SimQueue *queues;
  int at, step;
  VEC(SimLoop) loops; /* those around, the innermost last */
  /* Time left of the launch that runs, and begin of that launch or of a wait.
   */
  Ps left, begin;
  Ps since;        /* up to here `left` and the totals are right */
  Ps cut;          /* part of that launch that is behind the longest step */
  int64_t rate;    /* share of the stream that launches have */
  int64_t free;    /* that share, while transfers are added up */
  bool has_moving; /* one of its transfers moves bytes */
  Ps moved;        /* time at which it last had a transfer under way */
  bool is_running;
  /* A class has slots for those transfers alone that it starts or waits for:
   * of many classes each has few of all. */
  int n_slots;
  const int *slots;              /* by action that starts or waits */
  const int *transfers;          /* by slot */
  int64_t *n_started, *n_waited; /* by slot */
  int waits_for;                 /* the transfer, or -1 */
  int64_t waits_number;          /* number of ends that it waits for */
  Ps *totals;                    /* [N_TOTALS][n_terms], of all steps */
  Ps *before;                    /* totals at the begin of the step at hand */
  Ps *step_ends;
  int n_kept;          /* room in step_ends */
  SimServing *serving; /* the state of a class that serves, or NULL */
} Runner;

enum { TOTAL_compute, TOTAL_exposed, TOTAL_taken, N_TOTALS };

typedef VEC(int) Classes;

typedef struct Simulation {
  Arena *arena;
  const SimProgram *program;
  bool has_gaps;          /* some transfer takes less time after another one */
  bool has_servers;       /* some class serves */
  int n_steps, n_running; /* classes that are not at their end */
  Ps now, longest;        /* time at which the longest steps end */
  Runner *runners;
  Ps *ends;          /* by class: end of its launch, else INT64_MAX */
  uint8_t *is_ready; /* by class: it may go on now */
  Classes moving[2]; /* whose transfers move bytes: now, before rates changed */
  bool have_rates_changed;
  int64_t *n_ended; /* [n_transfers] */
  /* With classes that serve, by transfer: the class to which it is a push, or
   * -1, and the number of the worker there. */
  int *pushed_to, *pushed_by;
  VEC(Under *) open; /* come to, not begun */
  VEC(Under *) under_way;
  VEC(Under *) ended; /* transfers ended by the event at hand */
  VEC(Under *) unused;
  VEC(Snapshot *) unused_snapshots;
  Snapshot *step; /* the state in which the first class began the last step */
  VEC(int64_t *) counters; /* the time, and what only goes up */
  int64_t *demand;         /* [n_links] of SIM_ONE */
  SimTell *tell;
  void *user;
} Simulation;

/* Returns how long the class has had no transfer under way, at most SIM_REST.
 */
static inline Ps simulation_gap(const Simulation *s, const Runner *runner) {
  Ps gap = s->now - runner->moved;
  return gap < SIM_REST ? gap : SIM_REST;
}

/* Returns the class among those that have come to a transfer, or NULL. */
static inline Member *simulation_member(Under *under, int class) {
  for (int i = 0; i < under->members.n; i++)
    if (under->members.data[i].class == class) return &under->members.data[i];
  return NULL;
}

/* Returns the time at which the slowest class has taken SIM_LONGEST for each of
 * its steps. */
static inline Ps simulation_longest(const Simulation *s) {
  int least = s->n_steps - 1;
  for (int c = 0; c < s->program->n_classes; c++)
    if (s->runners[c].step < least && !s->program->classes[c].server)
      least = s->runners[c].step;
  return least < SIM_LONG_STEPS ? (least + 1) * SIM_LONGEST : INT64_MAX;
}

__extension__ typedef __int128 SimWide;

/* Returns a share of a time, to the nearest. */
static inline Ps simulation_share(Ps time, int64_t share) {
  if (share == SIM_ONE) return time;
  return (Ps)(((SimWide)time * share + SIM_ONE / 2) / SIM_ONE);
}

/* Brings what a class has left and its totals up to now.  Its rate has been the
 * same since then. */
static inline void simulation_settle(const Simulation *s, Runner *runner) {
  Ps time = s->now - runner->since;
  int n_terms = s->program->n_terms;
  runner->since = s->now;
  if (time == 0) return;
  if (runner->is_running) {
    const SimAction *action = &runner->class->actions[runner->at - 1];
    Ps done = simulation_share(time, runner->rate);
    if (done > runner->left) done = runner->left;
    runner->left -= done;
    runner->totals[TOTAL_compute * n_terms + action->term] += done;
    runner->totals[TOTAL_taken * n_terms + action->term] += time - done;
  } else if (runner->waits_for >= 0) {
    int term = s->program->transfers[runner->waits_for].term;
    runner->totals[TOTAL_exposed * n_terms + term] += time;
  }
}

/* Returns the slot of the action that a class is at. */
static inline int simulation_slot(const Runner *runner,
                                  const SimAction *action) {
  return runner->slots[action - runner->class->actions];
}

/* ---- simulator_servers.c ---- */

/* Finds the classes that serve, which have no steps of their own. */
void simulator_servers_prepare(Simulation *s);
/* Notes that a transfer has ended, which may be a push. */
void simulator_servers_note_end(Simulation *s, int transfer);
/* Returns the next action of a class that serves and runs nothing: an update,
 * or the start of a reply.  Returns NULL if it waits for pushes. */
const SimAction *simulator_servers_next(Simulation *s, int class);
/* Makes room for the end of one more step. */
void simulator_servers_grow(Simulation *s, Runner *runner);

/* ---- recurrence.c ---- */

/* Lists the counters of a simulation whose runners are made. */
void recurrence_prepare(Simulation *s);
/* Notes that the first class is before the first iteration of its innermost
 * loop. */
void recurrence_begin(Simulation *s);
/* Notes that it is before another one.  Where the state is that before an
 * earlier one, the iterations that are left are counted, but for a rest that
 * does not fill a cycle; none may be left after it. */
void recurrence_check(Simulation *s);
/* Notes that it leaves that loop. */
void recurrence_end(Simulation *s);
/* Notes that the first class begins a step.  Where the state is that in which
 * it began the step before, all steps but one are counted. */
void recurrence_step(Simulation *s);

/* ---- simulator_waits.c ---- */

/* Returns the class that has to go on before this one, which waits, can; -1
 * means none. */
int simulation_waits_on(const Simulation *s, int class);

/* Returns the time so long behind another one, or one later than any step. */
static inline Ps simulation_later(Ps time, Ps by) {
  return by < INT64_MAX - 1 - time ? time + by : INT64_MAX - 1;
}

#endif
