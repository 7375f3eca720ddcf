/*
 * descent.h -- declares the walks from candidates to better ones: a descent
 * over all coordinates from several starts, and climbs to neighbours.
 */
#ifndef PLANNER_DESCENT_DESCENT_H
#define PLANNER_DESCENT_DESCENT_H

#include "planner/pricing.h"

/* Adds the candidates that differ from `from` in one coordinate. */
typedef void VaryFn(Pricing *p, const Candidate *from, Candidates *out);

/* Prices them.  Returns the best of them and `at`. */
const Scored *try_moves(Pricing *p, VaryFn *vary, const Scored *at);

/* ---- coordinates.c ---- */

VaryFn vary_zero_and_remat, vary_layers, vary_batch, vary_microbatches,
    vary_attention, vary_sizes, vary_border, vary_mesh;
/* The dims of one axis. */
void vary_dims(Pricing *p, const Candidate *from, int axis, Candidates *out);

/* ---- starts.c ---- */

/* Adds each mesh of one or two axes with each set of dims, once lean in memory
 * and once not.  The first one is data parallelism. */
void descent_starts(Pricing *p, Candidates *list);
/* Returns the mesh that a person wrote, with the batch over all axes; without
 * one all ranks on one axis. */
Candidate plain_candidate(const Pricing *p);

/* Prices data parallelism that keeps the fewest bytes: ZeRO 3, the largest
 * number of micro-batches, repeats computed again unless it fits without; then
 * with as few micro-batches as fit. */
void price_lean_start(Pricing *p);

/* ---- descent.c ---- */

/* Settles the best starts, and descends from the best of these. */
void descend_from(Pricing *p, const Candidates *starts);

/* ---- neighbours.c ---- */

/* Goes from the best candidates that were priced to better neighbours. */
void climb_from_best(Pricing *p);

#endif
