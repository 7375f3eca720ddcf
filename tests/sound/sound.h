/*
 * sound.h -- declares what tries to catch the search for a plan lying: small
 * random cases, all plans that the language can say for one of them, their
 * prices, and the comparison with what `dnnc plan` claims.
 *
 *     seed -> model, machines, pins -> space -> plans as text -> prices
 *                        |                                         |
 *                        +----> dnnc plan --json ----> claim ------+
 *                                                                  |
 *                                                               findings
 *
 * Nothing here includes a header of the search: the compiler alone says which
 * text is a plan.
 */
#ifndef TESTS_SOUND_SOUND_H
#define TESTS_SOUND_SOUND_H

#include "driver/trial.h"
#include "tests/random/choices.h"

typedef VEC(const char *) SoundWords;

/* ---- space.c: plans as numbers, and as text ---- */

enum {
  SOUND_AXES = 3,
  SOUND_MESHES = 64,
  SOUND_DIMS = 24,
  SOUND_OPERATORS = 32,
  SOUND_REMATS = 4,
  SOUND_MICROBATCHES = 64,
  SOUND_SETTINGS = 4, /* digits before those of dims */
  SOUND_DIGITS = SOUND_SETTINGS + SOUND_DIMS + SOUND_OPERATORS
};

typedef struct SoundMesh {
  int n_axes;
  int64_t sizes[SOUND_AXES]; /* of the axes a, b, c */
} SoundMesh;

/* An operator that a line can be about, and the dims that it works on. */
typedef struct SoundOperator {
  const char *text; /* "mlp!dot[0]" */
  int n_dims;
  const char *dims[2 * MAX_RANK];
} SoundOperator;

/* Everything that lines may say about a model on some ranks.  A pin takes away
 * what it fixes, and adds its line to `pinned`. */
typedef struct SoundSpace {
  Arena *arena;
  int64_t ranks, batch; /* samples of a step */
  int n_meshes, n_zeros, n_microbatches, n_dims, n_operators, n_remats;
  SoundMesh meshes[SOUND_MESHES];
  int zeros[4];
  int64_t microbatches[SOUND_MICROBATCHES];
  const char *dims[SOUND_DIMS]; /* the batch is the first, unless pinned */
  const char *batch_dim;
  SoundOperator operators[SOUND_OPERATORS];
  const char *remats[SOUND_REMATS]; /* "block", "block[0]" */
  bool is_mesh_pinned;
  const char *pinned; /* lines of a plan; "": none */
} SoundSpace;

/* A plan: a mesh, and a digit for each choice, below its radix. */
typedef struct SoundPlan {
  int mesh;
  int digits[SOUND_DIGITS];
} SoundPlan;

/* The space of a loaded model without pins. */
SoundSpace sound_space(Arena *arena, const Compilation *loaded, int64_t ranks);
/* Returns how many plans the space has; INT64_MAX: more than can be counted. */
int64_t sound_count(const SoundSpace *space);
/* Sets the next plan after `plan`, which is {0} before the first.  Returns
 * false after the last. */
bool sound_next(const SoundSpace *space, SoundPlan *plan);
/* Returns any plan. */
SoundPlan sound_random(const SoundSpace *space, Choices *choices);
/* Returns a plan that has another answer to one or two of the choices. */
SoundPlan sound_neighbour(const SoundSpace *space, Choices *choices,
                          const SoundPlan *plan);
/* Returns the plan as a file. */
const char *sound_text(const SoundSpace *space, const SoundPlan *plan);

/* Fix one answer by a line: how many numbers of them there are follows from the
 * space.  A line about dims needs a mesh that is pinned. */
void sound_pin_mesh(SoundSpace *space, int mesh);
void sound_pin_zero(SoundSpace *space, int zero);
void sound_pin_microbatches(SoundSpace *space, int64_t microbatches);
/* `axes`: a bit for each axis. */
void sound_pin_dim(SoundSpace *space, int dim, unsigned axes);
/* `digit`: as in a plan. */
void sound_pin_operator(SoundSpace *space, int product, int digit);
void sound_pin_remat(SoundSpace *space, int remat, bool is_computed_again);
/* "mesh { a = 2 }", or "". */
const char *sound_mesh_text(const SoundSpace *space, const SoundMesh *mesh);

/* ---- models.c, machines.c: random files ---- */

/* A model of at most so many operators. */
const char *sound_model(Choices *choices, int most_operators);

typedef struct SoundMachines {
  const char *text; /* of a cluster file */
  int ranks;        /* that are used; the cluster may have more */
  int all_ranks;
  bool are_unequal;
} SoundMachines;

/* `has_halves`: two groups of unlike devices. */
SoundMachines sound_machines(Choices *choices, int ranks, bool has_halves);

/* Returns the cluster with devices of which a rank may use so many bytes. */
const char *sound_limit_devices(Arena *arena, const char *cluster,
                                Bytes usable);

/* ---- cases.c ---- */

typedef struct SoundLimits {
  int64_t least, most; /* plans of a case */
  int threads;
} SoundLimits;

typedef struct SoundCase {
  uint64_t seed;
  const char *folder; /* which has the files, and what was found */
  const char *model_path, *cluster_path;
  const char *pins_path; /* or NULL */
  const char *model, *cluster;
  const char *pins;  /* text of a plan file, or NULL */
  const char *lines; /* that every plan must have */
  int ranks;
  bool says_ranks;  /* on the command line */
  bool are_unequal; /* devices */
  bool has_limit;   /* of memory */
  SoundSpace space;
  Compilation loaded;
} SoundCase;

/* Makes the case of a seed, writes its files into `folder` and loads them. */
SoundCase *sound_case(Arena *arena, uint64_t seed, const char *folder,
                      const SoundLimits *limits);
/* Loads the files of a case as `dnnc plan` does.  Returns false after messages.
 */
bool sound_load(Arena *arena, SoundCase *of);

/* ---- prices.c ---- */

typedef struct SoundPrice {
  bool is_legal;
  Ps step;
  Bytes peak, memory; /* of a rank; that it may have */
} SoundPrice;

static inline bool sound_fits(const SoundPrice *price) {
  return price->is_legal && price->peak <= price->memory;
}

/* Prices whole programs of these plan files. */
void sound_price(const Compilation *loaded, const char *const *texts, int n,
                 int threads, SoundPrice *out);

/* ---- claim.c: what `dnnc plan` says ---- */

typedef struct SoundClaim {
  int exit_code; /* -1: a signal or a time limit ended it */
  const char *messages;
  const char *plan; /* the file that it wrote, certificate included; or NULL */
  Ps step, floor, bound;
  bool has_bound, has_gap;
  double gap;
  double seconds; /* of processor time */
} SoundClaim;

/* Runs `dnnc plan` on the files of a case. */
SoundClaim sound_ask(Arena *arena, const char *dnnc, const SoundCase *of,
                     const char *const *options, int n_options);
/* Reads the object that `dnnc plan --json` prints. */
void sound_read_claim(const char *json, SoundClaim *out);
/* Runs a command.  Returns its exit code, or -1; *out_messages is what it
 * printed to standard error. */
int sound_run(Arena *arena, const char *const *words, const char *folder,
              const char **out_output, const char **out_messages);

/* ---- compare.c ---- */

typedef enum SoundFault {
#define FAULT(name, what) FAULT_##name,
#include "tests/sound/faults.def"
  N_FAULTS
} SoundFault;

const char *sound_fault_name(SoundFault fault);
const char *sound_fault_text(SoundFault fault);

typedef struct SoundFinding {
  SoundFault fault;
  int plan; /* the offending one of all plans; -1: the one that was found */
} SoundFinding;

/* All plans of a case, and the one that was found. */
typedef struct SoundEvidence {
  const SoundPrice *prices;
  int n;
  SoundPrice found; /* the price of the text that was written */
  SoundPrice again; /* ... with the lines of the case written once more */
} SoundEvidence;

/* Returns the fastest plan that fits.  Returns -1 if there is none. */
int sound_best(const SoundPrice *prices, int n);
/* Returns how many claims are not true; `out` gets each kind at most once. */
int sound_compare(const SoundClaim *claim, const SoundEvidence *evidence,
                  SoundFinding out[N_FAULTS]);

/* ---- table.c: what a run has seen ---- */

/* The answer of `dnnc verify` about the plan that was found. */
typedef enum SoundVerified {
  VERIFIED_not_asked,
  VERIFIED_equal,
  VERIFIED_refused, /* at the small sizes that can be played */
  VERIFIED_wrong
} SoundVerified;

/* A case that has ended.  Steps are 0 where there is none. */
typedef struct SoundRow {
  unsigned long long seed;
  int ranks, has_pins, has_limit, are_unequal;
  int exit_code;
  int n, n_legal, n_fitting; /* plans */
  long long found, best, floor, bound;
  int n_outside, n_outside_fitting;
  long long outside; /* the fastest that fits */
  int verified;
  unsigned faults; /* a bit for each */
  double seconds;  /* of the search */
} SoundRow;

typedef VEC(SoundRow) SoundRows;

/* A row as a line of a file of results.  Reading returns false if the line is
 * none. */
void sound_write_row(Text *out, const SoundRow *row);
bool sound_read_row(const char *line, SoundRow *out);
/* The names of the columns, as a line. */
extern const char sound_columns[];
void sound_print_table(Text *out, const SoundRows *rows);
void sound_print_json(Text *out, const SoundRows *rows);

/* ---- outside.c ---- */

/* Returns a random plan of the case that has lines of other kinds: about
 * values, parameters, gradients, optimizer state, partial sums, or axes of
 * ZeRO.  Returns NULL where none was made. */
const char *sound_outside(const SoundCase *of, Choices *choices);

/* ---- full.c: models of full size ---- */

typedef struct SoundFull {
  const char *dnnc, *folder, *model, *cluster, *effort; /* effort may be NULL */
  int ranks, threads;
  int64_t plans;  /* random ones */
  double seconds; /* of local search from the best of them */
} SoundFull;

/* Prices random plans, and searches from the best of them; prints what is below
 * the bound or the floor of the plan that `dnnc plan` finds.  Returns an exit
 * code. */
int sound_full(Arena *arena, const SoundFull *settings);

#endif
