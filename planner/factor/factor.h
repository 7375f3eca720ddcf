/*
 * factor.h -- declares the general engine: the least sum of costs over
 * variables and pairs of them, under a limit of memory.
 *
 * A problem has variables with values, a cost for each value, costs for pairs
 * of variables, and usages: what each value of a variable takes at all times of
 * an interval.  At no time may the usages sum to more than the limit.  A cost
 * of FACTOR_FORBIDDEN or more forbids its value or pair.
 *
 * All arithmetic on costs is in 64-bit integers, and what is done next depends
 * on counts of work alone, so that the same problem and budget give the same
 * bytes everywhere.  A clock can only stop it.  Threads are the
 * caller's, and change nothing of the result.
 */
#ifndef PLANNER_FACTOR_FACTOR_H
#define PLANNER_FACTOR_FACTOR_H

#include "support/base.h"
#include "support/text.h"

typedef int64_t FactorCost;

/* Costs that forbid, and the sum at which sums saturate. */
#define FACTOR_FORBIDDEN ((FactorCost)100000000000000000)
#define FACTOR_MOST_SUM  ((FactorCost)1 << 62)
/* Sums inside of the engine stay below this one: where the ranges of all
 * variables and pairs sum to more, differences above a common limit count as
 * the limit.  Bounds hold all the same; a cost is summed in full. */
#define FACTOR_MOST_COST ((FactorCost)1 << 57)

/* ---- problem.c: what is to be solved ---- */

typedef struct FactorProblem FactorProblem;

/* The arrays that are passed must outlive the problem. */
FactorProblem *factor_create(Arena *arena);
/* Appends a variable and returns its number. */
int factor_add_variable(FactorProblem *problem, int n_values,
                        const FactorCost *costs);
/* Adds costs [values of a][values of b] of two different variables. A pair may
 * have several. */
void factor_add_pair(FactorProblem *problem, int a, int b,
                     const FactorCost *costs);
/* Adds usages, none negative, on the times from begin to end - 1. A variable
 * may have several. */
void factor_add_usage(FactorProblem *problem, int variable, int64_t begin,
                      int64_t end, const int64_t *usages);
/* Limits the usages at all times; without a call there is no limit. */
void factor_limit(FactorProblem *problem, int64_t limit);
/* Reads a problem again. */
int factor_n_variables(const FactorProblem *problem);
const FactorCost *factor_variable(const FactorProblem *problem, int variable,
                                  int *out_n_values);
int factor_n_pairs(const FactorProblem *problem);
const FactorCost *factor_pair(const FactorProblem *problem, int pair,
                              int out_of[2]);
int factor_n_usages(const FactorProblem *problem);
const int64_t *factor_usage(const FactorProblem *problem, int usage,
                            int *out_variable, int64_t out_times[2]);
int64_t factor_limit_of(const FactorProblem *problem);
/* Returns the sum of costs; it saturates at FACTOR_MOST_SUM and at its
 * negative. A forbidden value or pair gives FACTOR_MOST_SUM, too. */
FactorCost factor_cost(const FactorProblem *problem, const int *values);
/* Returns the most that the values take at any time. */
int64_t factor_peak(const FactorProblem *problem, const int *values);

/* ---- duals: why no values cost less than the bound ---- */

/* A step that shrinks a problem.  Values are numbered as in the problem. */
typedef enum FactorStepKind {
#define STEP(name, arguments, text) FACTOR_STEP_##name,
#include "planner/factor/steps.def"
  N_FACTOR_STEPS
} FactorStepKind;

typedef struct FactorStep {
  FactorStepKind kind;
  int variable, value, other;
  int64_t time;
} FactorStep;

/* Prices and messages, and what goes because of them. */
typedef struct FactorStage {
  const int64_t *prices; /* by time, of 2^-32 units of cost */
  const FactorCost *moved;
  int n_removed;
  const int (*removed)[2]; /* variables and values that cost `best` or more */
} FactorStage;

/* Each assignment that is allowed costs at least `bound`. */
typedef struct FactorDuals {
  FactorCost bound; /* FACTOR_MOST_SUM: there is none */
  FactorCost best;  /* the cost of values; FACTOR_MOST_SUM: none are known */
  int n_steps;
  const FactorStep *steps;
  int n_times; /* those that have a price */
  const int64_t *times;
  int n_pairs; /* what the steps leave, in the order of messages */
  const int (*pairs)[2];
  int n_moved; /* in a stage: of each pair, for the values that are left of
                  its first and second variable, what is added to its costs and
                  taken from the variable's */
  int n_stages;
  const FactorStage *stages;
} FactorDuals;

const char *factor_step_name(FactorStepKind kind);
/* Returns a letter for each argument, as in steps.def. */
const char *factor_step_arguments(FactorStepKind kind);
/* Appends duals as text; planner/recheck/duals_text.c reads them. */
void factor_duals_print(Text *text, const FactorDuals *duals);

/* ---- solve.c ---- */

/* Parts that can be left out. */
typedef enum FactorPart {
#define PART(name, text) FACTOR_##name,
#include "planner/factor/parts.def"
  N_FACTOR_PARTS
} FactorPart;

const char *factor_part_name(FactorPart part);

typedef struct FactorBudget {
  int64_t nodes;     /* at most; 0: no such limit */
  bool has_duals;    /* duals are wanted */
  bool is_rough;     /* costs are not exact: no pair counts as a sum
                        of two functions */
  FactorCost enough; /* duals of a bound as high as this are enough; 0: as high
                        as they become */
  bool without[N_FACTOR_PARTS]; /* parts that are left out */
  bool (*stop)(void *user);     /* a clock; NULL: none */
  void (*better)(void *user, FactorCost cost, FactorCost bound); /* or NULL;
                         called when either has become better; not where sums
                         saturate */
  /* Does work(of, 0) to work(of, n - 1), in any order and at the same time if
   * it likes, and returns when all are done; NULL: one after the other.  `stop`
   * is then called by several threads; the result is the same.  Where memory
   * ends, its handler may be called by any of them, and must end the process.
   */
  void (*side_by_side)(void *user, int n, void (*work)(void *of, int i),
                       void *of);
  void *user;
} FactorBudget;

typedef enum FactorOutcome {
  FACTOR_proved,  /* the values have the least cost */
  FACTOR_found,   /* values are there, and a bound */
  FACTOR_none,    /* proved: no values keep to the limit and the pairs */
  FACTOR_unknown, /* no values were found; the bound holds */
} FactorOutcome;

typedef struct FactorResult {
  FactorOutcome outcome;
  FactorCost cost, bound;           /* cost: FACTOR_FORBIDDEN without values */
  const int *values;                /* by variable; NULL: none */
  int64_t nodes;                    /* sweeps, neighbourhoods and branches */
  int n_variables, n_pairs, n_rows; /* after reduction */
  const FactorDuals *duals; /* NULL: none are wanted, or sums saturate; their
                               bound has nothing from branches */
} FactorResult;

/* Solves a problem; the values live in `arena`. */
FactorResult factor_solve(Arena *arena, const FactorProblem *problem,
                          const FactorBudget *budget);

#endif
