/*
 * verify_periods.h -- declares the steps of plans whose stages keep versions of
 * their parameters, and what verify_play.c does for them.
 */
#ifndef VERIFY_VERIFY_PERIODS_H
#define VERIFY_VERIFY_PERIODS_H

#include "verify/verify_steps.h"

/* The ranks of a class, at a step. */
typedef struct PlayClass {
  int index;
  Player *player;
  const VerifyClass *of;
  const ProgramCall *call; /* of a period: the call at hand; or NULL */
} PlayClass;

/* ---- verify_periods.c ---- */

/* Returns whether training runs in periods that can be played. */
bool verify_has_periods(const Compilation *c);
/* Returns how many batches are played: two periods are neither of filling nor
 * of draining. */
int verify_period_batches(const EntryPoint *entry);
/* Returns the outputs of the reference for each batch, one after the other. */
Tensor *verify_period_reference(VerifyRun *v, const VerifyStep *step,
                                int number);
/* Plays all batches and compares the outputs of each stage after each of its
 * updates. */
void verify_play_periods(VerifyRun *v, PlayClass *classes,
                         Player *const *players, const VerifyStep *step,
                         int number, const Tensor *wanted,
                         const Tensor *shaken);

/* ---- verify_play.c ---- */

/* Returns the number that an input of the reference has in a step. */
Tensor verify_reference_input(VerifyRun *v, const VerifyStep *step, int number,
                              const GraphInput *input);
/* Likewise of an input of a graph that is played. */
Tensor verify_played_input(VerifyRun *v, const VerifyStep *step, int number,
                           const Graph *graph, const GraphInput *input);
/* Compares the outputs of a stage with those of the reference. */
void verify_compare_stage(VerifyRun *v, const PlayClass *class,
                          const VerifyStep *step, int stage,
                          const Tensor *wanted, const Tensor *shaken);

#endif
