/*
 * setting_duals.h -- declares the duals of a bound: for a setting the mean that
 * bounds it, and why no assignments have a lower one.
 */
#ifndef PLANNER_RECHECK_SETTING_DUALS_H
#define PLANNER_RECHECK_SETTING_DUALS_H

#include "planner/recheck/duals.h"
#include "price/units/bound_walk.h"

typedef struct SettingDuals {
  BoundSetting setting;
  BoundWeights weights;
  FactorDuals duals; /* in parts of a picosecond, BOUND_PARTS of them */
} SettingDuals;

/* A file of duals; many settings of a space need none. */
typedef struct BoundDuals {
  int n;
  const SettingDuals *of;
} BoundDuals;

/* Reads what planner/solve/bound_duals.c wrote.  A fault is
 * "NAME:LINE:COLUMN: ...". */
Status bound_duals_read(Arena *arena, const char *name, const char *text,
                        size_t n, BoundDuals **out);
/* Returns NULL if there are none. */
const SettingDuals *bound_duals_find(const BoundDuals *duals,
                                     const BoundSetting *setting);
/* Returns whether these are the weights of the duals. */
bool bound_duals_have(const SettingDuals *duals, const BoundWeights *weights);

#endif
