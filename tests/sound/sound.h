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
#include "ir/pipeline/pipeline.h"
#include "tests/random/choices.h"

typedef VEC(const char *) SoundWords;

/* ---- space.c: plans as numbers, and as text ---- */

enum {
  SOUND_AXES = 3,
  SOUND_MESHES = 256,
  SOUND_GROUPS = 6,     /* of ranks, which have stages */
  SOUND_BORDERS = 28,   /* after which a stage may end */
  SOUND_SCHEDULES = 40, /* with their numbers of chunks */
  SOUND_DIMS = 24,
  SOUND_OPERATORS = 32,
  SOUND_REMATS = 4,
  SOUND_MICROBATCHES = 64,
  SOUND_SETTINGS = 6, /* digits before those of dims */
  SOUND_DIGITS = SOUND_SETTINGS + SOUND_DIMS + SOUND_OPERATORS
};

/* Groups of ranks, one after the other, that have stages. */
typedef struct SoundGroups {
  int n;
  bool are_equal; /* one mesh is written for all of them */
  int64_t ranks[SOUND_GROUPS];
  int64_t sizes[SOUND_GROUPS][SOUND_AXES]; /* 0: its mesh has no such axis */
} SoundGroups;

typedef struct SoundMesh {
  int n_axes;                /* that lines name */
  int64_t sizes[SOUND_AXES]; /* of the axes a, b, c */
  const SoundGroups *groups; /* NULL: no stages */
} SoundMesh;

typedef struct SoundSchedule {
  const PipelineSchedule *of;
  int chunks; /* stages of each group */
  const char *text;
} SoundSchedule;

/* Where a stage may end. */
typedef struct SoundBorder {
  const char *path;  /* of the value that is read behind it */
  const char *after; /* paths of all operators between it and the end */
} SoundBorder;

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
  int n_borders, n_schedules;       /* 0: plans have no stages */
  SoundBorder borders[SOUND_BORDERS];
  SoundSchedule schedules[SOUND_SCHEDULES];
  bool is_mesh_pinned, is_schedule_pinned, are_cuts_pinned;
  bool pins_stages;   /* pins may be about these */
  const char *pinned; /* lines of a plan; "": none */
} SoundSpace;

/* A plan: a mesh, and a digit for each choice, below its radix. */
typedef struct SoundPlan {
  int mesh;
  int digits[SOUND_DIGITS];
} SoundPlan;

/* The answers of a plan beside its lines about dims. */
typedef struct SoundChoice {
  int64_t microbatches;
  unsigned remats; /* a bit for each of the space */
  bool has_operator_lines;
  bool is_batch_shared; /* an axis of the batch shards another dim, too */
} SoundChoice;

SoundChoice sound_choice(const SoundSpace *space, const SoundPlan *plan);

/* The space of a loaded model without pins. */
SoundSpace sound_space(Arena *arena, const Compilation *loaded, int64_t ranks);
/* Leaves no more than so many dims, beside that of the batch, and remats, and
 * no lines about operators. */
void sound_narrow(SoundSpace *space, int n_dims, int n_remats);
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

/* ---- stages.c: what plans with stages have beside ---- */

/* Adds the borders of the model, groups of ranks with equal and other meshes,
 * and all schedules.  Without a border the space stays as it is. */
void sound_add_stages(SoundSpace *space, const Compilation *loaded);
/* Returns whether a plan of the space has stages. */
bool sound_has_stages(const SoundSpace *space);
/* Returns how many schedules groups of a mesh may have: one, which says
 * nothing, without stages. */
int sound_n_schedules(const SoundSpace *space, const SoundMesh *mesh);
/* Returns one of them.  Returns NULL without stages. */
const SoundSchedule *sound_schedule(const SoundSpace *space,
                                    const SoundMesh *mesh, int digit);
/* Returns how many ways there are to cut the model for it. */
int64_t sound_n_cuts(const SoundSpace *space, const SoundMesh *mesh,
                     const SoundSchedule *schedule);
/* Appends the lines of stages; `cuts` is the number of one of these ways. */
void sound_stage_lines(Text *out, const SoundSpace *space,
                       const SoundMesh *mesh, const SoundSchedule *schedule,
                       int64_t cuts);
/* Returns a plan in few words without blanks, from its text:
 * "pipe=2,a=2,1f1b,m=4,zero=1". */
const char *sound_words(Arena *arena, const char *text);
/* Pins one of `schedules`, which leaves the meshes that it suits.  Returns
 * false if there is none: nothing is pinned then. */
bool sound_pin_schedule(SoundSpace *space, int schedule);
/* Pins all cuts, by number; the space has one mesh and one schedule. */
void sound_pin_cuts(SoundSpace *space, int64_t cuts);

/* ---- models.c, machines.c: random files ---- */

/* A model of `fewest` to `most` operators or so; of a large batch where stages
 * are compared. */
const char *sound_model(Choices *choices, int fewest, int most,
                        bool has_stages);

typedef struct SoundMachines {
  const char *text; /* of a cluster file */
  int ranks;        /* that are used; the cluster may have more */
  int all_ranks;
  bool are_unequal; /* devices or links */
} SoundMachines;

typedef enum SoundUnequal {
  UNEQUAL_none,
  UNEQUAL_devices, /* two groups of them, of unlike links too */
  UNEQUAL_links,   /* ... of one device */
} SoundUnequal;

/* `are_slow`: links, behind which stages pay. */
SoundMachines sound_machines(Choices *choices, int ranks, SoundUnequal unequal,
                             bool are_slow);

/* Returns the cluster with devices of which a rank may use so many bytes. */
const char *sound_limit_devices(Arena *arena, const char *cluster,
                                Bytes usable);

/* ---- cases.c ---- */

typedef struct SoundLimits {
  int64_t least, most; /* plans of a case */
  int threads;
  bool has_stages;  /* plans with stages are compared, too */
  bool pins_stages; /* ... and pins are about these, too */
  bool are_unlike;  /* devices or links of two groups, in each case */
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
  bool are_unequal; /* devices or links */
  bool has_limit;   /* of memory */
  bool has_stages;
  bool is_early; /* stages may update before others, under some schedules */
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

/* ---- restrictions.c ---- */

/* Returns the restrictions of a certificate that a plan does not keep: a bit
 * for each.  Those that no line of these plans breaks have none. */
unsigned sound_breaks(const SoundSpace *space, const SoundPlan *plan);
/* Returns the bits of the restrictions that a plan file states. */
unsigned sound_restrictions(const char *text);

/* ---- draw.c: plans of a case ---- */

typedef struct SoundPlans {
  int n;
  bool are_all; /* of the space */
  const char **texts;
  SoundPrice *prices;
  unsigned *breaks; /* see sound_breaks */
  bool *has_stages;
} SoundPlans;

typedef void SoundPriceFn(void *user, const char *const *texts, int n,
                          SoundPrice *out);

/* Prices all plans of the case, or `most` by its seed: half of them at random,
 * half beside the best so far. */
SoundPlans sound_plans(const SoundCase *of, int64_t most, SoundPriceFn *price,
                       void *user);

/* ---- claim.c: what `dnnc plan` says ---- */

typedef struct SoundClaim {
  int exit_code; /* -1: a signal or a time limit ended it */
  const char *messages;
  const char *plan; /* the file that it wrote, certificate included; or NULL */
  Ps step, floor, bound;
  bool has_bound, has_gap;
  bool is_unsupported;        /* a message says "not supported yet" */
  int n_eliminated, n_engine; /* sums of tables that each method solved */
  unsigned restrictions;      /* of the bound */
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
  const unsigned *breaks; /* restrictions, by plan; NULL: none */
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

enum { SOUND_WORDS = 96 };

/* A case that has ended.  Steps are 0 where there is none. */
typedef struct SoundRow {
  unsigned long long seed;
  int ranks, has_pins, has_limit, are_unequal;
  int exit_code;
  int n, n_legal, n_fitting; /* plans */
  long long found, best, floor, bound;
  int n_outside, n_outside_fitting;
  long long outside;          /* the fastest that fits */
  int is_full, is_early;      /* of a case with stages */
  int n_staged;               /* plans with stages that fit */
  int is_unsupported;         /* the search does not take the pins */
  int n_eliminated, n_engine; /* sums of tables that each method solved */
  char found_words[SOUND_WORDS], best_words[SOUND_WORDS]; /* "-": none */
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
