/*
 * tune.h -- declares the parts of `dnnc tune`.
 *
 * Times of kernels come from probes: plans that tune writes itself, one for
 * each way in which a named dim of the model can be sharded over the ranks of
 * this machine.  Each runs in a process of its own, so that one which fails
 * ends nothing.
 */
#ifndef TOOLS_TUNE_TUNE_H
#define TOOLS_TUNE_TUNE_H

#include "driver/detect.h"
#include "tools/commands/child.h"
#include "tools/commands/tools.h"

/* A plan whose kernels are measured. */
typedef struct Probe {
  const char *what;     /* "B over 2 ranks, 2 micro-batches" */
  const char *text;     /* text of its plan file */
  const char *override; /* override of a dim of the model, "B=24", or NULL */
  int ranks;
} Probe;
typedef VEC(Probe) Probes;

/* The measurement by one run of a probe, while cores were so far apart; 0 means
 * unknown. */
typedef struct TuneTime {
  int64_t ps, apart_ns;
} TuneTime;

/* A row of a table: its fields but for the last ones, and what was measured. */
typedef struct TuneRow {
  const char *fields;
  VEC(TuneTime) times; /* one of each run of a probe that had it */
  int64_t runs;        /* their sum */
} TuneRow;

typedef struct TuneTable {
  const char *header, *ending; /* ending of its file's name: ".profile" */
  bool has_runs;               /* the last field is the number of runs */
  VEC(TuneRow) rows;
  Map *at; /* interned key -> index + 1 */
} TuneTable;

/* A probe that can run. */
typedef struct BuiltProbe {
  /* Names of its folder and of the file of its kernels' work. */
  const char *bundle, *works;
  int steps;
  int64_t took_ms;        /* time of its last run */
  VEC(int64_t) aparts_ns; /* core_distance_ns of each run */
} BuiltProbe;

typedef struct Tuning {
  Tool *tool;
  Arena *arena;
  const char *name;         /* begins the names of all results */
  const char *folder;       /* folder for temporary files */
  const char *prices;       /* begins the names of files that price plans */
  int64_t budget_ms;        /* all of it */
  int64_t until_ms;         /* end of the budget, by child_now_ms */
  int most_ranks;           /* ranks that this machine has cores or GPUs for */
  const Compilation *model; /* loaded, not compiled */
  VEC(const char *) held_out; /* kernels of plans that no probe may be */
  TuneTable profile, kernels;
  VEC(BuiltProbe) built;
  bool has_links;
  const char *unknown_gpu; /* a GPU that no preset has, or NULL */
  /* core_distance_ns: the least so far; while links were measured. */
  int64_t least_apart_ns, links_apart_ns;
  int64_t links_took_ms;
  /* The longest build of a probe; 0 means that none has ended. */
  int64_t build_ms;
  bool is_late; /* a child was ended because the budget was used up */
  bool is_slow; /* the last probe was ended while it ran */
  int n_measured, n_rejected;
  int code; /* exit code of writing the cluster, once there are kernels */
} Tuning;

/* ---- tune_state.c ---- */

/* Prints to standard error, unless it is quiet. */
void tune_say(const Tuning *tuning, const char *format, ...) PRINTF_LIKE(2, 3);
/* Returns whether so much of the budget is left. */
bool tune_has_left(const Tuning *tuning, int64_t ms);
/* Returns how long a child may run: the rest of the budget. */
int64_t tune_left_ms(const Tuning *tuning);
/* Returns why a child failed: its code, or the first line that it wrote to this
 * file, without "dnnc: error: ". */
const char *tune_why(const Tuning *tuning, int code, const char *path);
/* Returns whether a kernel or a link was measured. */
bool tune_has_measured(const Tuning *tuning);
/* Says that nothing could be measured, and which budget should be enough.
 * Returns an exit code. */
int tune_report_nothing(const Tuning *tuning);
/* Appends the words of the model: its path and overrides. */
void tune_model_words(const Tuning *tuning, Words *words);
/* Appends the options of commands that build. */
void tune_build_words(const Tuning *tuning, Words *words);

/* ---- tune_probes.c ---- */

enum { TUNE_STEPS = 3 }; /* steps of a probe at first */

/* Returns the probes, the most important first. */
Probes tune_probes(Tuning *tuning, int ranks);
/* Makes a probe like this one with a batch that is far smaller than that of the
 * model.  Returns false if there is none. */
bool tune_smaller_batch(Tuning *tuning, const Probe *probe, Probe *out);

/* ---- tune_measure.c ---- */

/* Runs a probe and adds what it measured to the tables, which are written
 * anew.  Returns false if it cannot run, *out_why says why. */
bool tune_measure(Tuning *tuning, const Probe *probe, const char **out_why);
/* Runs those probes once more that have too few runs while cores were as near
 * as ever.  Returns false if none has, the budget is used up, or one fails. */
bool tune_measure_again(Tuning *tuning);
/* Counts how many runs of the probes had cores as near, and how many had not.
 */
void tune_count_runs(const Tuning *tuning, int *out_near, int *out_far);
/* Returns core_distance_ns, of which the least is kept.  Returns 0 where a GPU
 * computes. */
int64_t tune_core_distance(Tuning *tuning);
/* Returns whether cores that were so far apart were as near as ever. */
bool tune_is_near(const Tuning *tuning, int64_t apart_ns);
/* Waits until cores are as near as ever.  Returns false if less of the budget
 * is left then than is needed. */
bool tune_wait_until_near(Tuning *tuning, int64_t needed_ms);
/* Builds the bundle of a probe. */
bool tune_build(Tuning *tuning, const Probe *probe, const char *bundle,
                const char **out_why);
/* Measures collectives between the ranks of a probe, on this machine. */
bool tune_measure_links(Tuning *tuning, const Probe *probe,
                        const char **out_why);

/* ---- tune_job.c ---- */

/* Returns whether this process is a rank of a job. */
bool tune_is_job(int *out_rank);
/* Returns whether the ranks of the job are on several machines. */
bool tune_spans_machines(void);
/* Measures collectives between the ranks of the job; all of them call it. */
bool tune_measure_job(Tuning *tuning, const char **out_why);

/* ---- tune_cluster.c ---- */

/* Writes the cluster file that prices plans.  Returns an exit code. */
int tune_write_cluster(Tuning *tuning);

/* ---- tune_search.c ---- */

/* A plan to be compared. */
typedef struct TunePlan {
  const char *name; /* the path, or what it is in words */
  const char *path; /* its file */
  bool is_found;    /* by the search */
} TunePlan;
typedef VEC(TunePlan) TunePlans;

/* Adds the plans of the command line; without any, and for "auto", the best
 * plans of a search for the machines that were measured, and data parallelism.
 * Returns an exit code. */
int tune_plans(Tuning *tuning, TunePlans *out);

/* ---- tune_compare.c ---- */

/* Runs the plans and compares their steps with what simulate predicts from the
 * files written so far; writes the fastest as NAME.plan.  Returns an exit code.
 */
int tune_compare(Tuning *tuning, const TunePlans *plans);

#endif
