/*
 * verify.h -- plays a compiled model on all ranks of its plan and compares it
 * with the same model on one rank without a plan.
 */
#ifndef VERIFY_VERIFY_H
#define VERIFY_VERIFY_H

#include "driver/driver.h"

/* The answer to one question of the report. */
typedef enum Answer { ANSWER_no, ANSWER_yes, ANSWER_not_checked } Answer;

typedef struct VerifyReport {
  /* `equal` is not_checked where all that was compared is equal and something
   * could not be compared. */
  Answer equal, placement_ok, hang_free, messages_match, memory_ok;
  /* Largest error in f64, relative to the largest element of its tensor, or to
   * 1e-3 if that is larger. */
  double max_rel_error;
  double loss_error; /* error of losses alone, those of `n_more_steps` too */
  double limit;      /* limit up to which it counts as equal */
  /* The greatest limit of an output that f64 tells less of, because terms
   * cancel in what it is computed from, and its path.  NULL means that there is
   * none. */
  double widest_limit;
  const char *widest_path;
  int ranks, stages;
  int servers; /* of the ranks: servers of parameters */
  /* The schedule whose versions of parameters the reference reads, or NULL. */
  const char *versions;
  int64_t microbatches;
  int played_microbatches; /* fewer than that; 0 means all */
  int n_compared;          /* outputs, each on every rank, in each run */
  /* Outputs that differ. */
  int n_f64_different, n_exact_different;
  int64_t n_collectives; /* collectives that were played */
  int64_t n_messages;    /* messages between stages, sent on one rank each */
  int64_t batch_shards;  /* shards over ranks and micro-batches */
  int64_t contents;      /* number of them that are different in a step */
  /* Clip below the first gradient norm; 0 means that of the model. */
  double clip;
  const char *steps; /* list of the steps that were played */
  /* Dims with their new sizes, as a list, and large ones that keep theirs. NULL
   * means none. */
  const char *sizes, *kept_sizes;
  bool has_single_elements; /* dims of many shards have one element a shard */
  /* Runs of equal blocks that were played as three, as a list; or NULL. */
  const char *repeats;
  /* Entry points of the program that were not played.  NULL means none. */
  const char *not_played;
  /* The first output that could not be compared, and why.  NULL means none. */
  const char *not_compared;
  /* The first difference, in the order of the steps.  NULL means that there is
   * none. */
  const char *numbers, *step, *kind, *path;
  int rank;
  int stage; /* that has the output; -1 means that there is one stage */
  int64_t element;
  /* First faults; NULL means none. */
  const char *placement_fault, *memory_fault, *message_fault;
} VerifyReport;

/* Compiles the loaded model and plays gradients, a training step, an
 * evaluation and a second training step, whichever it has.  `c` is what
 * driver_load made. */
CompileResult driver_verify(Compilation *c, uint64_t seed, VerifyReport *out);

#endif
