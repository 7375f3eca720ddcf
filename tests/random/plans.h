/*
 * plans.h -- declares random programs under random plans: their text, the check
 * that plays them, and the table of what a run has seen.
 */
#ifndef TESTS_RANDOM_PLANS_H
#define TESTS_RANDOM_PLANS_H

#include "ir/model/model.h"
#include "tests/random/choices.h"

/* The kinds of lines that a random plan may have. */
typedef enum PlanLine {
#define LINE(name, about) LINE_##name,
#include "tests/random/plan_lines.def"
  N_LINES
} PlanLine;

/* ---- plans.c ---- */

/* A program that gets a plan. */
typedef struct PlanSubject {
  const Graph *graph; /* of training, before all passes */
  const OptimizerCall *optimizer;
  const char *batch; /* the dim of samples */
  int64_t samples;   /* in a batch; 0: as many as the plan needs */
  /* Attention that dnnc recognises: the dims of its queries, keys and heads;
   * NULL: the program has none that is known. */
  const char *queries, *keys, *heads;
  int most_ranks;
  /* Sizes of the axes a, b, c of the mesh; no axes: a random one. */
  int n_axes;
  const int64_t *axes;
  bool computes_bf16; /* so that a plan may reduce in it */
  bool has_stages;    /* the plan has several */
} PlanSubject;

/* A random mesh and plan as text.  Adds to `out_lines`, unless NULL, how many
 * lines of each kind the plan has, and sets the samples of a batch. */
const char *plan_draw(Choices *choices, const PlanSubject *subject,
                      int *out_lines, int64_t *out_samples);

/* ---- plan_models.c ---- */

/* A random program, or a small model of benchmarks/systems with random sizes,
 * and behind it a random mesh and plan, of several stages if that is asked for;
 * lines are counted as above. */
const char *planned_make(Choices *choices, bool has_stages, int *out_lines);
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
/* The plan of a seed ended so: with this answer of check_plan (NULL: equal),
 * these lines and this message. */
void plan_table_add(PlanTable *table, uint64_t seed, const char *answer,
                    const int lines[N_LINES], const char *message);
void plan_table_print(const PlanTable *table);
/* Returns whether the run has seen enough to count as one of 1,000 plans: at
 * least 90 % were accepted, and every kind of line and of collective was seen
 * ten times.  Says what is missing. */
bool plan_table_is_complete(const PlanTable *table);

#endif
