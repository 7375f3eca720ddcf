/*
 * loop_time.h -- declares the time of a scan, of whose loop dims a rank has
 * parts.
 */
#ifndef PRICE_UNITS_LOOP_TIME_H
#define PRICE_UNITS_LOOP_TIME_H

#include "price/cost.h"
#include "price/units/kernel_dims.h"

/* Returns the time of all launches of all iterations.  `parts`: by loop dim of
 * the kernel, into how many parts it is divided. */
Ps loop_time(Arena *scratch, const CostModel *model, const Node *scan,
             const LoopBody *body, const int64_t *parts);

#endif
