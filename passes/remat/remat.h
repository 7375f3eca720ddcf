/*
 * remat.h -- declares the parts of the pass `remat`: which forward values the
 * backward pass computes again, and from where on it may.
 */
#ifndef PASSES_REMAT_REMAT_H
#define PASSES_REMAT_REMAT_H

#include "passes/rewrite.h"

/* The ways in which the backward pass gets a value of the forward pass. */
typedef enum Saving {
  SAVING_default, /* stored */
  SAVING_kept,    /* stored, because a line or the level of ZeRO says so */
  SAVING_again,   /* computed again */
} Saving;

/* A node that is computed before an old node, and for which readers. */
typedef struct RematEvent {
  int id; /* the old node that is computed */
  /* The node is a clone for the backward pass, else it is for all readers. */
  bool is_clone;
  int next; /* event at the same place, plus 1 */
} RematEvent;

typedef struct Remat {
  PassContext *ctx;
  const Graph *graph;
  int n;
  int first_backward;    /* the first node of the backward pass, or n */
  bool keeps_parameters; /* gathered ones stay until the step ends */
  Saving *saving;        /* saving by node */
  bool *is_kept;         /* gathers that need not be made again, by node */
  /* Nodes that follow from parameters and constants alone, by node. */
  bool *is_stored;
  int *reader; /* first backward reader of the clone, by node; n means none */
  int *place;  /* the old node that the clone comes before, by node */
  int *anchor; /* by place: what a value there waits for, or -1 ... */
  int first_data; /* ... then an input that micro-batches divide, or -1 */
  VEC(RematEvent) events;
  int *first_event; /* first event by place, plus 1 */
} Remat;

/* ---- remat.c ---- */

/* Decides what is computed again, and where it and gathers of parameters are.
 * Reports nothing; all that it allocates is scratch. */
Remat remat_decide(PassContext *ctx, const Graph *graph);

/* ---- remat_places.c ---- */

/* Sets `is_kept` of the gathers of parameters that the end of the forward pass
 * and the begin of the backward pass both read.  Returns false if there is
 * none. */
bool remat_keep_last_gathers(Remat *r);
/* Fills in `anchor`. */
void remat_find_anchors(Remat *r);
/* Chooses the places of all clones, and of gathers in the forward pass. */
void remat_find_places(Remat *r);

#endif
