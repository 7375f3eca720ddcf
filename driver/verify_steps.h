/*
 * verify_steps.h -- declares what the files of verification tell each other:
 * the graphs that are played, with their references and their sizes.
 */
#ifndef DRIVER_VERIFY_STEPS_H
#define DRIVER_VERIFY_STEPS_H

#include "driver/internal.h"
#include "driver/verify.h"
#include "driver/verify_unroll.h"
#include "ir/resize.h"

/* A final graph with its memory, and the graph that it must equal. */
typedef struct VerifyStep {
  const char *name;
  const Graph *played, *reference;
  const PlayProgram *program;
} VerifyStep;

/* Steps that share the arenas of the ranks, as those of a run do. */
typedef struct StepList {
  VerifyStep list[3];
  int n;
  int64_t arena_bytes;
} StepList;

typedef struct VerifySteps {
  StepList gradients, program;
  const Resizing *resizing; /* of all graphs; NULL: they have their sizes */
  const char *not_played;   /* entry points, as a list; or NULL */
  /* Runs of equal blocks that are played as three. */
  int n_repeats;
  Repeat repeats[MOST_REPEATS];
  /* Where the whole program is not the unrolling of what is played, and which
   * step it is; NULL: nowhere. */
  const char *unroll_fault, *unroll_step;
} VerifySteps;

/* ---- verify_steps.c ---- */

/* Compiles the loaded model for its plan and, as the reference, for one rank:
 * the gradients alone, then a training step, an evaluation and a second
 * training step, whichever it has.  A draft leaves the whole program out where
 * blocks are folded.  Mistakes are printed; `module` is a copy of
 * the compilation's whose diagnostics nobody reads. */
CompileResult verify_compile(Compilation *c, Module *module, bool is_draft,
                             VerifySteps *out);

/* ---- verify_inputs.c ---- */

typedef struct VerifyInputs {
  const Model *model;
  const Numbers *numbers;
  const Resizing *resizing; /* or NULL */
  int step;
  int64_t shards; /* of the batch */
} VerifyInputs;

/* Numbers for a graph input that hide no mistake: no zeros where the program
 * begins with zeros, other data in each step, indices in range.  A logical
 * tensor in `arena`. */
Tensor verify_input(const VerifyInputs *inputs, const GraphInput *input,
                    const Type *type, Arena *arena);

#endif
