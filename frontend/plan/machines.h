/*
 * machines.h -- declares how the settings of clusters, devices and certificates
 * are checked and read.
 */
#ifndef FRONTEND_PLAN_MACHINES_H
#define FRONTEND_PLAN_MACHINES_H

#include "frontend/syntax/ast.h"
#include "ir/cluster/cluster.h"

/* ---- machines.c ---- */

/* Reads the number in this unit, rounded to an integer.  Returns false where
 * machines_check has reported or will report that it is none. */
bool machine_read_amount(const Expr *x, Unit unit, int64_t *out);
/* Reads a number of at least 1 with its first six decimals.  Returns false as
 * the function above. */
bool machine_read_ratio(const Expr *x, LinkRatio *out);

#endif
