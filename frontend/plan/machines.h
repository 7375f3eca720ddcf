/*
 * machines.h -- declares how the settings of clusters, devices and certificates
 * are checked and read.
 */
#ifndef FRONTEND_PLAN_MACHINES_H
#define FRONTEND_PLAN_MACHINES_H

#include "frontend/syntax/ast.h"
#include "ir/cluster/cluster.h"
#include "ir/plan/certificate.h"

/* ---- machines.c ---- */

/* Reads the number in this unit, rounded to an integer.  Returns false where
 * machines_check has reported or will report that it is none. */
bool machine_read_amount(const Expr *x, Unit unit, int64_t *out);
/* Reads a time, which may be longer than those of a cluster, in picoseconds;
 * one above 9000 seconds is rounded to 53 bits. */
bool machine_read_duration(const Expr *x, int64_t *out);
/* Reads a number of at least 0. */
bool machine_read_number(const Expr *x, double *out);
/* Reads a number of at least 1 with its first six decimals.  Returns false as
 * the function above. */
bool machine_read_ratio(const Expr *x, LinkRatio *out);

/* ---- certificates.c ---- */

/* Reads the block `certificate` of a plan file, without the settings that
 * machines_check reports.  Returns NULL if there is no such block. */
const Certificate *certificate_read(Arena *arena, const Ast *ast);

#endif
