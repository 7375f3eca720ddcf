/*
 * plans.h -- declares random programs under random plans: their text, the check
 * that plays them, and the table of what a run has seen.
 */
#ifndef TESTS_RANDOM_PLANS_H
#define TESTS_RANDOM_PLANS_H

#include "ir/ir.h"
#include "tests/random/choices.h"

/* The kinds of lines that a random plan may have. */
typedef enum PlanLine {
#define LINE(name, about) LINE_##name,
#include "tests/random/plan_lines.def"
  N_LINES
} PlanLine;

/* ---- plans.c ---- */

/* A random program, or a small model of benchmarks/systems with random sizes,
 * and behind it a random mesh and plan.  Adds to `out_lines`, unless NULL, how
 * many lines of each kind the plan has. */
const char *planned_make(Choices *choices, int *out_lines);
/* Where the mesh of a text begins; NULL: it has none. */
const char *planned_mesh(const char *text);

/* ---- plan_check.c ---- */

/* The answers that are neither equality nor a fault. */
extern const char plan_refused[];      /* a message names the rule */
extern const char plan_not_compared[]; /* an output is not finite */
extern const char plan_identity[];     /* exact mode differs without a plan,
                                          too */
extern const char plan_noise[];        /* f64 differs, exact mode does not */

/* Compiles and plays the program on all ranks against one rank; a Check. */
const char *check_plan(Arena *arena, const char *text, const char *dnnc);

/* ---- plan_table.c ---- */

/* Counts of what a run has seen; memory that the processes of checks share. */
typedef struct PlanTable PlanTable;

/* The table of this process and of those that it starts. */
PlanTable *plan_table(void);
/* The plan has this many collectives of the kind. */
void plan_table_collectives(PlanTable *table, Op op, int n);
/* A plan ended so: with this answer of check_plan (NULL: equal), these lines
 * and this message. */
void plan_table_add(PlanTable *table, const char *answer,
                    const int lines[N_LINES], const char *message);
void plan_table_print(const PlanTable *table);

#endif
