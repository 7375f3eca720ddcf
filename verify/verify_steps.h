/*
 * verify_steps.h -- declares what the files of verification tell each other:
 * the graphs that are played, with their references and their sizes.
 */
#ifndef VERIFY_VERIFY_STEPS_H
#define VERIFY_VERIFY_STEPS_H

#include "driver/internal.h"
#include "verify/play/play.h"
#include "verify/resize.h"
#include "verify/verify.h"
#include "verify/verify_unroll.h"

/* Up to which a difference in f64 counts as none. */
#define VERIFY_F64_LIMIT 1e-9
/* Bytes that a number system may take for the ranks and the reference. */
#define VERIFY_MOST_BYTES ((size_t)4 << 30)

/* The ranks that run one program in a step. */
typedef struct VerifyClass {
  EntryPoint entry;
  const PlayProgram *program;
} VerifyClass;

typedef struct VerifyServers VerifyServers; /* verify_servers.h */

/* The final graphs of the stages with their memory, and the graph that they
 * must equal. */
typedef struct VerifyStep {
  const char *name;
  EntryPointId id;
  StageGraphs played;
  const Graph *reference;
  VerifyClass *classes;
  int64_t batch_shards;
  bool has_gradients; /* gradients are compared, and nothing is updated */
  bool is_resumed;    /* the run was saved and loaded before this step */
  int n_batches;      /* of a step of periods; else 0 */
  /* Messages of workers, whose graph is the first one, and servers; or NULL. */
  VerifyServers *servers;
} VerifyStep;

/* Steps that share the arenas of the ranks, as those of a run do. */
typedef struct StepList {
  VerifyStep list[3];
  int n;
  int64_t *arena_bytes, *host_bytes; /* by class */
} StepList;

typedef struct VerifySteps {
  StepList gradients, program;
  /* Where fewer micro-batches are played: the steps of all of them, whose
   * tables are checked, and how many are played; else empty and 0. */
  StepList whole;
  int n_microbatches;
  int n_classes;                   /* classes of ranks */
  const int *n_ranks, *first_rank; /* by class */
  /* New sizes of all graphs; NULL means that they keep theirs. */
  const Resizing *resizing;
  bool has_single_elements; /* many shards of a dim have one element each */
  const char *not_played;   /* entry points, as a list; or NULL */
  /* Runs of equal blocks that are played as three. */
  int n_repeats;
  Repeat repeats[MOST_REPEATS];
  /* The first node by which the whole program is no unrolling of them, so that
   * all blocks are played.  NULL means that there is none. */
  const char *other_block;
} VerifySteps;

/* ---- verify_steps.c ---- */

/* Compiles the loaded model for its plan and, as the reference, for one rank:
 * the gradients alone, then a training step, whose reference is theirs too, an
 * evaluation and a second training step, whichever it has.  A draft leaves the
 * whole program out where blocks are folded.  Mistakes are printed; `module` is
 * a copy of the compilation's whose diagnostics nobody reads. */
CompileResult verify_compile(Compilation *c, Module *module, bool is_draft,
                             VerifySteps *out);

/* ---- verify_microbatches.c ---- */

/* Leaves out micro-batches of a plan of several stages that use again what
 * others have used. */
void verify_fold_microbatches(const Compilation *c, Arena *arena,
                              VerifySteps *steps);

/* ---- verify_sizes.c ---- */

/* Gives the graphs of all steps smaller sizes.  Returns false if no size
 * changes. */
bool verify_shrink(Arena *arena, VerifySteps *steps);

/* ---- verify_inputs.c ---- */

typedef struct VerifyInputs {
  const Model *model;
  const Numbers *numbers;
  const Resizing *resizing; /* new sizes, or NULL */
  int step;
  int64_t shards; /* shards of the batch */
} VerifyInputs;

/* Returns how many different shards of the batch a step has. */
int64_t verify_contents(int64_t shards);

/* Returns numbers for a graph input that hide no mistake: no zeros where the
 * program begins with zeros, other data in each step, indices in range.  The
 * result is a logical tensor in `arena`. */
Tensor verify_input(const VerifyInputs *inputs, const GraphInput *input,
                    const Type *type, Arena *arena);

/* ---- verify_play.c ---- */

/* The persistent buffers of the reference, by role and path. */
typedef struct Stored {
  Map *by_path[N_ROLES]; /* Name -> Tensor * */
} Stored;

/* One number system. */
typedef struct VerifyRun {
  const Compilation *c;
  const VerifySteps *steps;
  Arena *arena; /* arena of all that it makes */
  Numbers numbers;
  VerifyReport report;    /* report of this run */
  Stored stored, initial; /* now, and when the run began */
  /* In f64: a run of the references alone, whose parameters are others in their
   * last bits.  By how much an output changes is what f64 can tell of it. */
  struct VerifyRun *shaken;
  bool is_shaken; /* the run is one with changed parameters */
  /* Outputs of the reference in the first training step. */
  Tensor *first_outputs;
  /* With servers: averages that a training step does not read, by path. */
  Map *averages;
  /* By class: persistent buffers, by path, that its ranks have. */
  Map **written;
  PlayMessages *messages; /* by class: gets those of all steps; or NULL */
} VerifyRun;

/* Plays all steps; touches nothing that another run does. */
void verify_play(VerifyRun *run);
/* Notes that playing takes more memory than VERIFY_MOST_BYTES. */
void verify_note_size(VerifyRun *run);
/* Returns the gradient norm of the first training step.  Returns infinity if
 * the program computes none. */
double verify_norm(VerifyRun *run);
/* Plays the steps of the program and this many training steps more.  Returns
 * the largest difference of a loss, relative to it. */
double verify_losses(VerifyRun *run, int n_steps);

/* ---- verify_messages.c ---- */

/* Compares the collectives and the messages between stages in the tables of all
 * programs, for every rank, with those that were played (by class), and the
 * groups of persistent buffers with their placements. */
void verify_messages(const Compilation *c, const VerifySteps *steps,
                     const PlayMessages *played, VerifyReport *report);

/* ---- verify_edges.c ---- */

/* Compares the messages between stages in the tables of a class, whose first
 * rank is given, with those that were played from place `*at` on. */
void verify_edges(VerifyReport *report, const VerifyStep *step, int first_rank,
                  const ProgramMessages *tables, const PlayMessages *played,
                  int *at, Arena *arena);
/* Lets all classes send and receive what their tables say, with no buffers, and
 * reports who waits for ever (`tables` by class). */
void verify_order(VerifyReport *report, const VerifySteps *steps,
                  const VerifyStep *step, const ProgramMessages *tables,
                  Arena *arena);

#endif
