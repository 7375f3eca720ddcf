/*
 * bound_weights.h -- declares the weights of the loads whose mean bounds a step
 * from below, and how a certificate spells them.
 *
 *     forward_stream 64, backward_stream 48, backward_link 16, link 1
 *     forward_stream 64, backward_stream 64, split 3, per_byte 0.5
 *     kind_0 1, kind_1 0.0625
 *
 * Weights are in parts of 64, or of BOUND_ONE where they have smaller ones.
 */
#ifndef PRICE_UNITS_BOUND_WEIGHTS_H
#define PRICE_UNITS_BOUND_WEIGHTS_H

#include "support/support.h"

typedef enum BoundWeight {
#define BOUND_WEIGHT(name, meaning) BOUND_##name,
#include "price/units/bound_weights.def"
  N_BOUND_WEIGHTS
} BoundWeight;

enum {
  BOUND_ONE = 1024,
  BOUND_PARTS = 64, /* of a picosecond: what costs of a mean are counted in */
  MOST_BOUND_KINDS = 8
};

typedef struct BoundWeights {
  int of[N_BOUND_WEIGHTS]; /* parts of BOUND_ONE */
  int link;                /* index of SimLoad.link */
  int split; /* of the backward pass, as in Units; -1: none.  The stream is then
                the chain of the head and the stream of the rest */
  double per_byte; /* the price of memory: picoseconds for a byte more */
  /* Where the devices of all ranks share the work: what a second of a device of
   * each kind is worth, as a ratio; then there are no other weights. */
  int n_kinds;
  double of_kind[MOST_BOUND_KINDS];
} BoundWeights;

/* Two weights that add up to one: every other mean of loads without a price of
 * memory is between the means of these. */
enum { N_BOUND_EXTREMES = 7 };
extern const BoundWeight bound_extremes[N_BOUND_EXTREMES][2];
/* Leaves link and split as they are; memory has no price. */
void bound_set_extreme(BoundWeights *weights, int extreme);
/* Returns whether a mean with these weights bounds plans on `groups` groups of
 * ranks.  In a plan with stages the forward pass of a micro-batch may send
 * while the backward pass of another one computes. */
bool bound_weights_suit(const BoundWeights *weights, int64_t groups);

const char *bound_weight_name(BoundWeight weight);
const char *bound_weight_meaning(BoundWeight weight);

/* Prints the meaning of the largest weight. */
void bound_limit_print(Text *out, const BoundWeights *weights);
void bound_weights_print(Text *out, const BoundWeights *weights);
/* Reads what bound_weights_print wrote.  Returns false if it is anything else,
 * or if the weights do not add up. */
bool bound_weights_read(const char *text, BoundWeights *out);

/* ---- what all plans of the space have in common ---- */

typedef enum Restriction {
#define RESTRICTION(name, is_in_all, meaning) RESTRICTION_##name,
#include "price/units/restrictions.def"
  N_RESTRICTIONS
} Restriction;

const char *restriction_name(Restriction restriction);
const char *restriction_meaning(Restriction restriction);
/* Which plans with stages a bound is of. */
typedef enum BoundStages {
  STAGES_none,
  STAGES_equal, /* on equal groups of ranks */
  STAGES_any
} BoundStages;

/* Returns a bit for each restriction that every bound of such plans has. */
unsigned restrictions_of_all(BoundStages stages);
/* Returns of which plans a bound with these restrictions is. */
BoundStages restrictions_stages(unsigned restrictions);
/* Returns whether a bound holds under these alone. */
bool restrictions_suffice(unsigned restrictions);
/* Returns a bit for each name in the text, which are separated by spaces.
 * Returns false if there is another one. */
bool restrictions_read(const char *text, unsigned *out);

#endif
