/*
 * bound_planes.h -- declares the weights at which the means of known
 * assignments bound a setting highest.
 */
#ifndef PRICE_UNITS_BOUND_PLANES_H
#define PRICE_UNITS_BOUND_PLANES_H

#include "price/units/bound_walk.h"

typedef struct BoundPlanes {
  const BoundSetting *setting;
  Bytes memory;
  VEC(BoundLoads) list; /* of known assignments */
} BoundPlanes;

/* Fills in weights, and the price of memory if an assignment fits into it; link
 * and split stay.  Returns the least mean of the assignments there: no weights
 * of this link and split give the setting a higher bound. */
double bound_planes_best(Arena *arena, const BoundPlanes *planes,
                         BoundWeights *out);

#endif
