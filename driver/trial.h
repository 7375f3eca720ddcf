/*
 * trial.h -- declares trials: other plans of a loaded model, compiled and
 * priced in memory of their own.
 *
 *     pins of a plan -> Plan -> final graphs and lists, arena -> price
 *
 * A trial changes nothing that another one sees, so several threads can try
 * plans of one model.
 */
#ifndef DRIVER_TRIAL_H
#define DRIVER_TRIAL_H

#include "driver/driver_price.h"

typedef struct Trial {
  Module module; /* module with the mistakes and all memory of the trial */
  Compilation c;
  Priced priced;
} Trial;

/* Reads a plan file.  Returns NULL after a mistake, which is in the diagnostics
 * of the module. */
const Source *driver_read_plan(const Compilation *loaded, const char *path);
/* Returns the pins of another plan of a loaded model, with those of its
 * options; NULL after mistakes, which are in `diags`.  No trial may run
 * meanwhile. */
const Pins *driver_read_pins(const Compilation *loaded, const PlanSource *from,
                             Diags *diags);

/* The plan that pins ask for, as it is printed (docs/plan.md, section 11), and
 * in words.  Read again, the text is the same plan and text. */
typedef struct PlanTexts {
  const char *text, *words;
} PlanTexts;
/* Prints the plan of these pins.  Returns false after mistakes, which are in
 * `diags`.  No trial may run meanwhile. */
bool driver_plan_texts(const Compilation *loaded, const Pins *pins,
                       Diags *diags, PlanTexts *out);

typedef struct TrialPlan {
  const Pins *pins;
  /* Each run of more equal blocks is cut to so many, 3 or more; 0: none is. */
  int blocks;
  bool is_training_only; /* no other entry point counts */
} TrialPlan;

/* Compiles a loaded model under a plan and prices it.  No other thread may use
 * `memory` meanwhile, nor make names of the loaded model.  Returns false after
 * mistakes.  The caller ends the trial in both cases. */
bool driver_try(const Compilation *loaded, Memory *memory,
                const TrialPlan *plan, const PriceRequest *request, Trial *out);
void driver_end_trial(Trial *trial);

typedef struct TrialList {
  int n;
  const TrialPlan *plans;
  const PriceRequest *request; /* of each */
  int most_threads;            /* 1 or more */
  bool (*is_stopped)(void);    /* no further trial begins; or NULL */
  /* Is called once for each trial, in any order and by one thread at a time,
   * before the trial ends. */
  void (*visit)(void *user, int i, const Trial *trial, bool is_priced);
  void *user;
} TrialList;

/* Tries all of them.  Ends the process where memory runs out. */
void driver_try_all(const Compilation *loaded, const TrialList *list);

#endif
