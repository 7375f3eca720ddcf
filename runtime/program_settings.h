/*
 * program_settings.h -- declares what a program says beside its graphs: the
 * roles of its tensors, its data, metrics and settings, and the calls of its
 * segments.  It is the first part of program.h, through which everybody
 * includes it.
 *
 * In the copy of program.h that a bundle has, the members of
 * support/model_facts.def stand in place of its rows.
 */
#ifndef RUNTIME_PROGRAM_SETTINGS_H
#define RUNTIME_PROGRAM_SETTINGS_H

#include <stdint.h>

#define DNN_MAX_RANK 12

/* Values of dtype.def, in its order. */
typedef uint8_t DnnDtype;

typedef enum DnnRole {
  DNN_PARAM, /* trained; in checkpoints under its path */
  DNN_STATE, /* read and assigned, not trained; saved as parameters are */
  DNN_OPTIMIZER_STATE, /* state of the optimizer: "adamw.m/PATH"; not loaded by
                          --load */
  DNN_EMA,             /* "ema/PATH" */
  DNN_DECODE_CACHE,    /* cache of sampling; in no checkpoint */
  DNN_DATA,   /* a field of a data block, filled before each execution */
  DNN_STEP,   /* i32 scalar: t, counted from 1 */
  DNN_SEED,   /* i64 scalar */
  DNN_LOSS,   /* f32 scalar, mean over the batch, equal on all ranks that have
                 it */
  DNN_NORM,   /* f32 scalar: global gradient norm before clipping; "norm/3" is
                 that of the gradients of stage 3 alone */
  DNN_RATE,   /* f32 scalar: learning rate of this step */
  DNN_METRIC, /* sum that a metric adds up over the batches of an evaluation */
  DNN_RESULT, /* result of the net, which sampling reads */
  DNN_LOSS_SCALE, /* loss scale */
  DNN_EPOCH,      /* i64 scalar: steps in an epoch */
  DNN_BATCH_ROWS, /* input of an entry point with another batch: part of the
                     STATE of that path, or its initial value; filled before
                     each execution */
  DNN_GRADIENT,   /* what workers send to a server, the same paths in the same
                     order on both sides */
} DnnRole;

#define DNN_MEMBER_TEXT(name)         const char *name;
#define DNN_MEMBER_WORDS(name)        const char *const *name;
#define DNN_MEMBER_INT(name)          int64_t name;
#define DNN_MEMBER_COUNT(name)        int32_t name;
#define DNN_MEMBER_SEED(name)         uint64_t name;
#define DNN_MEMBER_REAL(name)         double name;
#define DNN_MEMBER_FLAG(name)         uint8_t name;
#define DNN_MEMBER_PROGRAM_FLAG(name) uint8_t name;
#define DNN_MEMBER_CHANNELS(name)     double name[3];
#define DNN_MEMBER_SIZES(name)        int64_t name[DNN_MAX_RANK];
#define DNN_MEMBER_SOURCE(name)       uint8_t name;
#define DNN_MEMBER_FORMULA(name)      uint8_t name;
#define DNN_MEMBER_AVERAGE(name)      uint8_t name;

/* A use of an integer field allows 0 <= value < below, or `ignored`, for these
 * elements of a sample. */
typedef struct DnnLimit {
#define LIMIT_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
} DnnLimit;

/* A field `block.name` of a data block.  A sample fills dims 1.. of the
 * tensors of that path; element value = (raw * scale + shift). */
typedef struct DnnField {
#define FIELD_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
  DnnDtype dtype;
  uint8_t rank; /* with the batch dim */
  int64_t size[DNN_MAX_RANK];
  int32_t n_limits;
  const DnnLimit *limits;
} DnnField;

typedef struct DnnData {
  const char *name;
  int32_t n_fields;
  const DnnField *fields;
#define DATA_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
} DnnData;

typedef struct DnnMetricPart {
#define PART_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
} DnnMetricPart;

/* A figure that is computed once, from sums over the entire evaluation. */
typedef struct DnnMetric {
#define METRIC_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
  const DnnMetricPart *parts;
} DnnMetric;

typedef struct DnnSettings {
#define TRAIN_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
  const char *items; /* what a sample counts as: "tok" or "samples" */
  int64_t items_per_sample;
  DnnMetric validation; /* the loss; no name: the program has none */
  int32_t n_metrics;
  const DnnMetric *metrics;
} DnnSettings;

typedef struct DnnSample {
#define SAMPLE_FACT(kind, name, meaning) DNN_MEMBER_##kind(name)
#include "support/model_facts.def"
} DnnSample;

/* Registers of a call: REGISTER_ of ir/program.h. */
#define DNN_REGISTER_MICROBATCH  0
#define DNN_REGISTER_FRAME       1
#define DNN_REGISTER_SLOT        2
#define DNN_REGISTER_NEW_VERSION 6
#define DNN_N_REGISTERS          8

/* A range of instructions.  A call of it runs them once. */
typedef struct DnnSegment {
  int32_t begin, n;    /* instructions */
  int32_t n_registers; /* the first so many of a call; they are the outermost
                          loops around its instructions */
  int32_t stage;       /* of the stages of the model */
} DnnSegment;

typedef struct DnnCall {
  int32_t segment;
  int32_t is_first; /* no call before it in the entry point is of the segment */
  int32_t registers[DNN_N_REGISTERS];
} DnnCall;

typedef enum DnnPeriodWhen {
  DNN_PERIOD_UNIT,   /* there is the unit */
  DNN_PERIOD_GROUP,  /* there is that of replica 0 */
  DNN_PERIOD_MISSING /* there is that of replica 0, and not its own */
} DnnPeriodWhen;

/* A call of an endless list: in period t it is for unit k = t * units of a
 * period + `unit`, and left out where there is no such one.  A register is
 * max(k / divisor + shift, 0) * factor % modulus. */
typedef struct DnnPeriodCall {
  int32_t unit, replica;
  int32_t when;   /* DnnPeriodWhen */
  int32_t begins; /* a batch, whose data is read before */
  int32_t divisors[DNN_N_REGISTERS], shifts[DNN_N_REGISTERS];
  int32_t factors[DNN_N_REGISTERS], moduli[DNN_N_REGISTERS];
} DnnPeriodCall;

#endif
