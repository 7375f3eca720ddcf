/*
 * model.h -- declares the output of a front end: the graphs of a model and its
 * settings, as data.  Numbers are in samples, steps, bytes, seconds.
 */
#ifndef IR_MODEL_MODEL_H
#define IR_MODEL_MODEL_H

#include "ir/ir.h"
#include "support/tables.h"

/* Members for the rows of support/model_facts.def. */
#define MODEL_MEMBER_TEXT(name)  const char *name;
#define MODEL_MEMBER_WORDS(name) const char *const *name;
#define MODEL_MEMBER_INT(name)   int64_t name;
#define MODEL_MEMBER_COUNT(name) int32_t name;
#define MODEL_MEMBER_SEED(name)  uint64_t name;
#define MODEL_MEMBER_REAL(name)  double name;
#define MODEL_MEMBER_FLAG(name)  bool name;
#define MODEL_MEMBER_PROGRAM_FLAG(name)
#define MODEL_MEMBER_CHANNELS(name) double name[3];
#define MODEL_MEMBER_SIZES(name)    int64_t name[MAX_RANK];
#define MODEL_MEMBER_SOURCE(name)   SourceKind name;
#define MODEL_MEMBER_FORMULA(name)  Formula name;
#define MODEL_MEMBER_AVERAGE(name)  ClassAverage name;

/* A use of an integer field allows 0 <= value < below, or `ignored`, for these
 * elements of a sample. */
typedef struct DataLimit {
#define LIMIT_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
} DataLimit;

typedef struct DataLimits {
  DataLimit *data;
  int n, capacity;
} DataLimits;

typedef struct DataField {
#define FIELD_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
  const Type *type; /* dims[0] counts samples */
  DataLimits limits;
  Span span;
} DataField;

typedef struct DataBlock {
  Name name;
  int n_fields;
  DataField *fields;
#define DATA_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
  Span span; /* of its name */
} DataBlock;

/* ---- optimizers.c: the rows of optimizers.def and schedules.def ---- */

enum { MOST_ARGUMENTS = 5 };

typedef enum ArgumentRange {
  RANGE_number,   /* a number of at least 0 */
  RANGE_positive, /* a number above 0 */
  RANGE_share,    /* a number of at least 0 and below 1 */
  RANGE_epochs,   /* a number of epochs above 0; formulas read it in steps */
  RANGE_flag,     /* true or false */
  RANGE_fixed     /* no call may give it */
} ArgumentRange;

/* An argument of an optimizer or a schedule.  A pair has two values. */
typedef struct FormulaArgument {
  const char *name; /* NULL means none */
  ArgumentRange range;
  /* Text of the default; NULL means that the argument is required. */
  const char *init;
  int n_values;
  const char *value_names[2]; /* names of values in formulas */
  double values[2];           /* the default */
} FormulaArgument;

int argument_count(const FormulaArgument *arguments);
/* Returns the index of an argument.  Returns -1 if there is none of this name.
 */
int argument_find(const FormulaArgument *arguments, const char *name);

typedef struct OptimizerInfo {
  const char *name;
  FormulaArgument arguments[MOST_ARGUMENTS];
} OptimizerInfo;

int optimizer_count(void);
const OptimizerInfo *optimizer_info(int row);
/* Returns the index of an optimizer.  Returns -1 if there is none of this name.
 */
int optimizer_find(const char *name);
/* Appends the call as "rmsprop(lr, alpha = 0.99, decay = 0)". */
void optimizer_print(Text *out, const OptimizerInfo *info);

typedef struct ScheduleInfo {
  const char *name;
  FormulaArgument arguments[MOST_ARGUMENTS];
  bool ends; /* its formula reads the number of steps */
  const char *formula;
} ScheduleInfo;

typedef enum RateKind {
#define SCHEDULE(name, arguments, end, formula) RATE_##name,
#include "ir/model/schedules.def"
  N_RATES
} RateKind;

const ScheduleInfo *schedule_info(RateKind kind);
void schedule_print(Text *out, const ScheduleInfo *info);

/* A learning rate: a number (RATE_constant) or the call of a schedule. */
typedef struct Rate {
  RateKind kind;
  /* Values in the order of the row's arguments. */
  double values[MOST_ARGUMENTS];
  const struct Rate *times; /* the other factor of a product; or NULL */
} Rate;

typedef struct OptimizerCall {
  Name name; /* a row of ir/model/optimizers.def */
  Rate lr;
  /* Values in the order of the row's arguments. */
  double values[MOST_ARGUMENTS][2];
  double lr_factor; /* of `lr`; 1 but in a group */
  bool is_of_group;
  double decay;
  bool decay_all;
  /* Calls for the parameters of each group: this one but for what it says. */
  const struct OptimizerCall *groups;
  int n_groups;
  Span span;
} OptimizerCall;

/* Returns the call for a parameter: that of its group, or this one. */
const OptimizerCall *optimizer_of(const OptimizerCall *call,
                                  const GraphInput *param);

/* Returns a call with the defaults of the row; without a row only the name. */
OptimizerCall optimizer_call(Name name);
/* Returns the first value of an argument of the call.  Returns NULL if it has
 * no such argument. */
double *optimizer_value(OptimizerCall *call, const char *argument);

typedef struct OptimizerFormula {
  const char *name, *states, *decay, *scalars, *update;
} OptimizerFormula;

const OptimizerFormula *optimizer_formulas(int *out_n);
/* Returns the formulas of a call for a parameter: those of the last row of the
 * name whose condition holds.  Returns NULL if none does. */
const OptimizerFormula *optimizer_formula(const OptimizerCall *call,
                                          bool matrix, bool excluded);

/* Returns whether the optimizer keeps state for this parameter, or may: its row
 * is not supported yet. */
bool optimizer_keeps_state(const OptimizerCall *call, const GraphInput *param);
/* Returns whether the new value of an element depends on the gradient and the
 * states of this element alone. */
bool optimizer_is_elementwise(const OptimizerCall *call);
/* Returns whether its update of a matrix multiplies matrices. */
bool optimizer_multiplies_matrices(const OptimizerCall *call);

typedef struct Precision {
  DType compute, master, grads;
  const char **f32_paths; /* operators, layers, paths and "loss" */
  Span *f32_spans;
  int n_f32_paths;
  double loss_scale; /* 1 means none, -1 a dynamic one */
  Span span;
} Precision;

/* Outputs of the evaluation graphs for a metric, by the paths of their
 * ROLE_metric outputs.  The run adds up each over all of the evaluation. */
typedef struct MetricPart {
#define PART_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
} MetricPart;

/* Rows of support/formulas.def. */
typedef enum Formula {
#define FORMULA(name, kind, numerator, denominator) FORMULA_##name,
#include "support/formulas.def"
  N_FORMULAS
} Formula;
typedef enum ClassAverage {
#define AVERAGE(name) AVERAGE_##name,
#include "support/formulas.def"
  N_AVERAGES
} ClassAverage;

typedef struct Metric {
#define METRIC_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
  MetricPart *parts;
} Metric;

typedef struct TrainSettings {
  OptimizerCall optimizer;
#define TRAIN_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
  Metric validation; /* the loss over the evaluation data */
  int n_metrics;
  Metric *metrics;
} TrainSettings;

typedef struct SampleSettings {
#define SAMPLE_FACT(kind, name, meaning) MODEL_MEMBER_##kind(name)
#include "support/model_facts.def"
} SampleSettings;

/* The figures of one block of a model, such as a layer of the net, which `dnnc
 * check` prints. */
typedef struct Block {
  Name path; /* "block[3]"; folded: "block[0..11]" */
  int count; /* blocks it stands for; the figures are of one */
  int64_t parameters, state;
  double flops_forward;    /* node_contraction_flops */
  double activation_bytes; /* saved for the backward pass */
} Block;

typedef struct Model {
  Module *module;
  Name name;        /* name of the net */
  const char *path; /* path of the file */
  /* Forward graphs.  `train`: training = true, outputs one loss.  `eval`:
   * training = false, outputs loss and metrics.  `eval_remainder`: eval with
   * the batch dim set to what the last batch holds; NULL if nothing remains or
   * the data sizes are not known.  `sample`: the net alone at batch 1, output
   * ROLE_result; NULL without a sample block.  `forward`: the net alone, for a
   * model without train.  `predict`: training = false, outputs ROLE_result with
   * the batch dim first, and no data input that these do not need; NULL where
   * it was not asked for or the net gives no row for each record. */
  Graph *train, *eval, *eval_remainder, *prefill, *forward, *predict;
  int64_t eval_remainder_batch; /* samples of eval_remainder */
  bool has_train, has_sample;
  TrainSettings settings;
  Precision precision;
  SampleSettings sample_settings;
  int n_data;
  DataBlock *data;
  /* Product of the first field's other dims where integer tokens, else 1. */
  int64_t items_per_sample;
  bool items_are_tokens;
} Model;

/* ---- report.c ---- */

/* Divides a forward graph by top-level blocks, in program order (a layer call
 * of the net is a block).  `kept` (or NULL) has the bytes of the saved
 * activations of each node of `trained`, a later graph of the same program. The
 * figures add up to those of the graph. */
int model_blocks(const Graph *graph, const Graph *trained, const double *kept,
                 Arena *arena, Block **out_blocks);
/* Joins neighbours that differ in their last index only, in place.  Returns how
 * many are left. */
int model_fold_blocks(Names *names, Block *blocks, int n);

/* ---- weights.c ---- */

/* Fills in three fields of each GraphInput that is a parameter: `has_decay`,
 * and the sets of its dims that products contract (`contracts`) or batch over
 * (`batches`). */
void weights_mark(Graph *graph, Arena *arena);

#endif
