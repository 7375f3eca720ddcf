/*
 * run.h -- declares one run of a rank and the parts of its main program.
 */
#ifndef RUNTIME_RUN_H
#define RUNTIME_RUN_H

#include "runtime/checkpoint/checkpoint.h"
#include "runtime/data/data.h"
#include "runtime/exec/exec.h"
#include "runtime/params/params.h"

#include <pthread.h>

typedef enum ExitCode {
  EXIT_done = 0,
  EXIT_mistake = 1,
  EXIT_machine = 3,
  EXIT_fault = 4,
  EXIT_stopped = 143 /* the code of SIGTERM */
} ExitCode;

/* A request of one rank to all ranks; the greatest is carried out. */
typedef enum Stop {
  STOP_none,
  STOP_user1,
  STOP_terminate,
  STOP_interrupt,
  STOP_failed /* its data cannot be read */
} Stop;

enum { MOST_RUN_TEXTS = 64 };

typedef struct RunTexts { /* of an option that may be repeated */
  const char *items[MOST_RUN_TEXTS];
  int n;
} RunTexts;

#define RUN_FIELD_FLAG(field)  bool field;
#define RUN_FIELD_TEXT(field)  const char *field; /* NULL means not given */
#define RUN_FIELD_INT(field)   int64_t field;
#define RUN_FIELD_BYTES(field) int64_t field;
#define RUN_FIELD_LIST(field)  RunTexts field;

typedef struct RunOptions {
#define RUN_OPTION(kind, field, name, argument, least, otherwise, ranks,       \
                   commands, help)                                             \
  RUN_FIELD_##kind(field)
#define RANK_OPTION(kind, field, name, argument, ranks, help)                  \
  RUN_FIELD_##kind(field)
#include "runtime/launch/run_options.def"
} RunOptions;

/* Reads the arguments (options.c).  Result: -1 to continue, else the exit
 * code. */
int run_read_options(int argc, char **argv, RunOptions *out);

enum { N_TIMES = 31 };

/* A metric, or the loss, over an evaluation. */
typedef struct Figure {
  const DnnMetric *metric;
  int64_t n, n_classes; /* elements of a part; of these along labels, or 0 */
  double *sums;         /* [n_parts, n] */
  double *counts;       /* [n_parts] */
  bool has_value;       /* something was counted */
  double value;
  double *values; /* [n_classes]: NaN where a class does not occur */
} Figure;

/* The part of a rank in the results of a step, which all ranks have only after
 * the next vote. */
typedef struct LateResults {
  bool are_on;  /* stages update their parameters alone */
  int64_t step; /* 0: none */
  int64_t ns;
  double squares, loss; /* of its own stages: squares of norms; 0: no loss */
  float rate;
} LateResults;

typedef struct BestLoss {
  int64_t step;
  double loss;
} BestLoss;

/* The validation losses until now, on rank 0, and what all know of them. */
typedef struct Best {
  VEC(BestLoss) losses;
  double loss;
  int64_t step;   /* of the lowest loss; -1 means none */
  int64_t since;  /* evaluations after it */
  bool has_ended; /* the run ends by `patience` */
} Best;

typedef struct RunLog RunLog;   /* log.c */
typedef struct Servers Servers; /* servers.h */

typedef struct Run {
  const DnnBundle *bundle;
  const DnnProgram *program; /* that of this rank, as far as it is run */
  RunOptions options;
  Memory *memory;
  Arena *arena;
  Device *device;
  Comm *comm;
  FlightRecorder recorder;
  Exec *exec;
  Data *data;
  StoredText *data_files; /* texts about the data files, on rank 0 */
  int n_data_files;
  Saver *saver;
  Trace *trace;
  Profiler *profiler;
  const DnnEntryPoint *train, *eval, *eval_remainder, *prefill;
  int signals; /* a signalfd */
  /* The signals, until a step is to be saved, then 0: a read that ends early
   * would lose the steps since the checkpoint. */
  int read_signals;
  uint64_t seed;
  int64_t total, last; /* steps of the schedule, and of this run */
  int64_t done;        /* steps made */
  int64_t saved;       /* step of the newest checkpoint; -1 means none */
  int64_t compared;    /* step after which replicas were compared; -1 */
  int n_failed_saves;  /* number of failures in a row */
  float loss, norm, rate;
  float scale; /* dynamic loss scale after the last step; 0 means none */
  bool has_norm, has_validation;
  LateResults late;
  Servers *servers;   /* NULL: the program has none */
  Figure *validation; /* the loss of the last evaluation */
  Figure *metrics;    /* metrics of the last evaluation, [settings.n_metrics] */
  int64_t evaluated;  /* step of that evaluation; -1 means never */
  Best best;
  RunLog *log;        /* on rank 0; NULL: none */
  int64_t printed_ns; /* when a step was printed, and which; 0: none was */
  int64_t printed_step;
  int64_t times[N_TIMES]; /* ns of the last steps */
  int64_t n_times;
  Stop stop;
  bool has_signal_thread; /* a thread ends the process on a signal */
  pthread_t signal_thread;
  const char *_Atomic leftover; /* a file to remove when a signal comes */
  int failure; /* exit code, with STOP_failed in an evaluation */
  /* End of the bytes of the arena in use, with $DNN_POISON. */
  int64_t poison_top, host_poison_top;
} Run;

/* ---- run.c ---- */

/* Collects the status of all ranks; the first failure is printed once, and all
 * get the exit code that belongs to it (0 means none). */
int run_agree(Run *run, Status status);
int status_exit_code(Status status);
Stop run_pending_stop(Run *run);
/* Returns where input files are, and the signals that end their reading. */
InputSearch run_search(const Run *run);
/* Ends the process at once after a failure inside a step. */
void run_must(Run *run, Status status);
/* Reads a float scalar of the arena; false without a tensor. */
bool run_read_scalar(Run *run, const DnnTensor *tensor, float *out);
/* Returns whether the loss or the gradient norm of the last step is not finite;
 * a paced program has neither. */
bool run_step_failed(const Run *run);
/* Writes the number of a step where the arena has it. */
void run_write_step(Run *run, int64_t t);
/* Writes in its place a negative number for a batch of an evaluation or a
 * prediction, by its first record: random numbers differ between batches, are
 * none of training, and are the same each time. */
void run_write_batch(Run *run, int64_t first);
/* Notes how long a step took: waiting for much longer is a hang. */
void run_note_time(Run *run, int64_t ns);

/* ---- replicas.c: called by all ranks; exit code, 0 if equal ---- */

/* Compares program and options with those of rank 0. */
int replicas_check_builds(Run *run);
/* Compares all tensors that are saved; called once after each step. */
int replicas_compare(Run *run);

/* ---- train.c ---- */

int run_train(Run *run);

/* ---- periods.c ---- */

/* Trains up to step `end`, or to a stop, where the stages of a program keep
 * versions of their parameters.  At its end nothing is under way, and the
 * newest version has the place of the parameter.  Returns the exit code. */
int periods_train(Run *run, int64_t end);

/* ---- servers.c ---- */

/* Checks and opens the messages between workers and servers, if there are any.
 */
Status servers_open(Run *run);

/* Gives servers the parameters that the workers have: a checkpoint is loaded by
 * those who hold a tensor, and these are the workers. */
void servers_fill(Run *run);

/* ---- servers_train.c ---- */

/* With a staleness of 0: does the part of this rank in step t, after the step
 * of a worker has run. */
void servers_step(Run *run, int64_t t);
/* Else: trains up to step `end`, or to a stop.  At its end workers have the
 * parameters of the servers.  Returns the exit code. */
int servers_train(Run *run, int64_t end);
/* Ends the logs, and says how stale an answer was.  Returns the exit code. */
int servers_close(Run *run);

/* ---- late_results.c ---- */

/* Returns whether stages of the programs have norms of their own. */
bool late_results_are_in(const DnnBundle *bundle);
/* Keeps what this rank knows of a step, which took so long. */
void late_results_keep(Run *run, int64_t step, int64_t ns);
/* Returns the vote of this rank, with what was kept. */
CommVote late_results_vote(const Run *run, Stop stop);
/* Takes loss and norm of the step that was kept from the vote of all. */
void late_results_take(Run *run, const CommVote *vote);
/* Reports the step that was taken.  Returns the exit code, which is not 0 where
 * it was not finite; all ranks get it. */
int late_results_report(Run *run);
/* Votes at once, and reports; all ranks call it. */
int late_results_settle(Run *run);

/* ---- explain.c ---- */

/* Runs step `t`, whose inputs are in place, as the plain program and finds the
 * first value that is not finite (NULL means none).  False if there is no
 * such program or no memory for it. */
bool explain_step(Run *run, int64_t t, const DnnValue **out_value);
/* Returns the place of a value as "'block[3].mlp.log' (forward)" or "the
 * parameter 'wte'".  `updated` is the last step that this run made, 0 if there
 * is none. */
const char *explain_place(Arena *arena, const DnnValue *value, int64_t updated);

enum { HAS_INFINITY = 1, HAS_NAN = 2 };
enum { MARKS_CHUNK = 1 << 18 };
/* Looks at n floats of a device by way of a buffer of MARKS_CHUNK bytes. */
Status explain_marks(Device *device, void *buffer, int64_t offset, int64_t n,
                     DnnDtype dtype, int *out_marks);

/* ---- explain_launches.c ---- */

/* Runs step `t` again where there is no plain program, or no memory for it.
 * Returns the place, with its stage, of the first value that is not finite
 * among the leaves and results of launches on all ranks, or NULL. */
const char *explain_launches(Run *run, Arena *arena, int64_t t);

/* ---- evaluate.c ---- */

int run_evaluate(Run *run);

/* ---- metrics.c ---- */

/* Creates figures; `id` is an entry point that outputs their parts, on some of
 * the ranks at least. */
Figure *figures_create(Arena *arena, const DnnBundle *bundle,
                       const DnnMetric *metrics, int n, EntryPointId id);
void figures_clear(Figure *figures, int n);
/* Adds the outputs of an entry point for a batch. */
void figures_add(Run *run, Figure *figures, int n, const DnnEntryPoint *entry);
/* Gives what was added to the ranks whose programs do not have it; all ranks
 * call it. */
Status figures_share(Run *run, Figure *figures, int n, EntryPointId id);
/* Computes the values from what was added. */
void figures_finish(Figure *figures, int n);
/* Returns whether the value is a list by class, or a table of counts: labels,
 * predictions. */
bool metric_is_list(const DnnMetric *metric);
bool metric_is_table(const DnnMetric *metric);

/* ---- report_metrics.c ---- */

/* Prints a number; null where it is not finite. */
void report_json_number(double value);
/* Prints a number, a list or a list of rows; null where there is no value. */
void report_json_figure(const Figure *figure);
/* Prints a figure as " | f1_score 0.8125". */
void report_figure(const Figure *figure);
/* Prints the lines of a table; nothing for other metrics. */
void report_table(const Figure *figure);

/* ---- best.c ---- */

/* Reads the losses of the run that is continued; all ranks call it.  Returns
 * the exit code. */
int best_begin(Run *run);
/* Returns whether the run that is continued lacks the evaluation after its last
 * step; all ranks call it. */
bool best_is_behind(Run *run);
/* Notes the loss of an evaluation that was just made, if one was and it counts:
 * `is_due` by the schedule of evaluations.  All ranks learn whether it is the
 * lowest and whether the run ends. */
int best_note(Run *run, bool is_due, bool *out_is_lowest);
/* Lets `best` name the checkpoint of this step; after a save. */
int best_point(Run *run);
/* Says why a run ended early. */
void best_report(const Run *run);

/* ---- log.c ---- */

/* Opens the file of --log on rank 0. */
Status log_open(Run *run);
void log_step(const Run *run, int64_t step, int64_t ns);
void log_evaluation(const Run *run);
/* Returns why the log is not complete. */
Status log_close(Run *run);

/* ---- states.c ---- */

/* Keeps the states of training in the arena and sets those with the batch dim
 * to their initial value; `end` puts all back. */
Status states_begin(Run *run, Arena *arena, unsigned char **out_saved);
Status states_end(Run *run, unsigned char *saved);
/* Fills the BATCH_ROWS of an entry point with another batch, before it runs,
 * from the states as they are or with initial values. */
Status states_fill_batch_rows(Run *run, const DnnEntryPoint *entry,
                              bool from_states);

/* ---- stop.c ---- */

/* Lets a signal end the process at once, without `leftover`, until the watching
 * ends. */
void stop_at_once(Run *run);
void stop_signal_thread(Run *run);

/* ---- predict_program.c, predict.c ---- */

/* Makes the part of a program that a prediction needs. */
Status predict_program(Arena *arena, const DnnBundle *bundle,
                       const DnnProgram *program, const RunOptions *options,
                       const DnnProgram **out);
int run_predict(Run *run);

/* ---- links.c ---- */

/* Returns the program with more of an arena, for what is sent, and with process
 * groups of 2, 4, ... neighbours. */
const DnnProgram *links_program(Arena *arena, const DnnProgram *program);
/* Measures its links; all ranks call it together, rank 0 writes the table. */
int run_measure_links(Run *run);

/* ---- sample.c ---- */

int run_sample(Run *run);

/* ---- report.c ---- */

void report_start(const Run *run);
/* Returns the most bytes in memory so far. */
int64_t report_peak_resident(void);
/* Flushes standard output.  If nobody reads it any more, all ranks end at once,
 * as SIGPIPE ends a single rank. */
void report_flush(const Run *run);
void report_step(Run *run, int64_t step, int64_t ns);
void report_evaluation(const Run *run, int64_t n_samples);
int report_end(Run *run);
/* Fills the arena with bytes that show who has not been written. */
Status poison_arena(Run *run);
void poison_look(Run *run);

#endif
