/*
 * two_stages.h -- makes by hand a bundle of two programs, as codegen would emit
 * it: stage 0 multiplies by a parameter, stage 1 adds another one, has the loss
 * and sends gradients back, in two micro-batches.  Or one program of both
 * stages on one rank, which computes the same bits.
 */
#ifndef TESTS_UNIT_TWO_STAGES_H
#define TESTS_UNIT_TWO_STAGES_H

#include "runtime/exec/exec.h"
#include "support/support.h"

#include <signal.h>
#include <stdlib.h>

enum {
  TWO_BATCH = 16,
  TWO_MICROBATCHES = 2,
  TWO_ROWS = TWO_BATCH / TWO_MICROBATCHES,
  TWO_INPUTS = 4,
  TWO_EVAL = 64,
  TWO_TENSORS = 6,
  IN_w = 0,
  IN_mw = 64,
  IN_b = 128,
  IN_mb = 192,
  IN_step = 256,
  IN_seed = 320,
  IN_loss = 384,
  IN_x = 512,
  IN_h = 1024,
  IN_dh = 1280,
  IN_gw = 1536,
  IN_gb = 1600,
  TWO_ARENA = 4096
};

/* A fault of stage 1, by its number in $TWO_FAULT. */
typedef enum TwoFault {
  TWO_FINE,
  TWO_OTHER_EDGE,
  TWO_OTHER_COUNT,
  TWO_DIES
} TwoFault;

/* ---- kernels ---- */

/* Numbers: rows. */
static void two_forward(void *const *buffers, const int64_t *numbers) {
  const float *x = buffers[0], *w = buffers[1];
  float *h = buffers[2];
  for (int64_t r = 0; r < numbers[0]; r++) {
    h[r] = 0;
    for (int i = 0; i < TWO_INPUTS; i++) h[r] += x[r * TWO_INPUTS + i] * w[i];
  }
}

/* Adds to the loss and the gradient of b.  Numbers: rows, batch. */
static void two_loss(void *const *buffers, const int64_t *numbers) {
  const float *x = buffers[0], *h = buffers[1], *b = buffers[2];
  float *dh = buffers[3], *gradient = buffers[4], *loss = buffers[5];
  float scale = 1.0f / (float)numbers[1];
  for (int64_t r = 0; r < numbers[0]; r++) {
    float wanted = 0.5f;
    for (int i = 0; i < TWO_INPUTS; i++) wanted += x[r * TWO_INPUTS + i];
    float error = h[r] + *b - wanted;
    *loss += error * error * scale;
    dh[r] = 2 * error * scale;
    *gradient += dh[r];
  }
}

/* Adds to the gradient of w.  Numbers: rows. */
static void two_backward(void *const *buffers, const int64_t *numbers) {
  const float *x = buffers[0], *dh = buffers[1];
  float *gradient = buffers[2];
  for (int64_t r = 0; r < numbers[0]; r++)
    for (int i = 0; i < TWO_INPUTS; i++)
      gradient[i] += dh[r] * x[r * TWO_INPUTS + i];
}

/* Numbers: elements. */
static void two_update(void *const *buffers, const int64_t *numbers) {
  float *to = buffers[0], *m = buffers[1];
  const float *gradient = buffers[2];
  for (int64_t i = 0; i < numbers[0]; i++) {
    m[i] = 0.9f * m[i] + gradient[i];
    to[i] -= 0.02f * m[i];
  }
}

static void two_die(void *const *buffers, const int64_t *numbers) {
  static int n;
  if (++n == 7) raise(SIGKILL);
  two_loss(buffers, numbers);
}

static const DnnKernel two_kernels[] = {
    {.name = "forward", .function = two_forward},
    {.name = "loss", .function = two_loss},
    {.name = "backward", .function = two_backward},
    {.name = "update", .function = two_update},
    {.name = "dies", .function = two_die}};

/* ---- instructions ---- */

enum { TWO_INSTRS = 24, TWO_CALLS = 8, TWO_SEGMENTS = 4 };

typedef struct TwoCode {
  DnnInstr instrs[TWO_INSTRS];
  DnnCall calls[TWO_CALLS];
  DnnSegment segments[TWO_SEGMENTS];
  DnnCollective messages[4];
  int64_t numbers[TWO_INSTRS][2], advances[TWO_INSTRS][6];
  DnnEntryPoint entry;
  int n_messages;
} TwoCode;

typedef struct TwoStages {
  DnnBundle bundle;
  DnnProgram programs[2];
  DnnEntryPoint entries[2][2]; /* by program: train, eval */
  DnnTensor tensors[2][TWO_TENSORS], train[2][2], eval[2][2];
  TwoCode train_code[2], eval_code[2];
  DnnRankRow rows[2];
  DnnPairs pairs[2];
  DnnField field;
  DnnData block;
  TwoFault fault;
} TwoStages;

static const int64_t two_at_forward[] = {IN_x, IN_w, IN_h},
                     two_at_loss[] = {IN_x, IN_h, IN_b, IN_dh, IN_gb, IN_loss},
                     two_at_backward[] = {IN_x, IN_dh, IN_gw},
                     two_at_update_w[] = {IN_w, IN_mw, IN_gw},
                     two_at_update_b[] = {IN_b, IN_mb, IN_gb},
                     two_at_h[] = {IN_h}, two_at_dh[] = {IN_dh},
                     two_at_gw[] = {IN_gw}, two_at_gb[] = {IN_gb},
                     two_at_scalar[] = {IN_loss};
static const int64_t two_rows[] = {TWO_ROWS}, two_batch[] = {TWO_BATCH},
                     two_one[] = {1}, two_less[] = {TWO_ROWS - 1};

/* Buffers of rows move with the micro-batch. */
static inline DnnInstr *two_add(TwoCode *code, DnnOpcode op, const char *path,
                                const int64_t *buffers, int n_buffers,
                                int64_t first, int64_t second) {
  int i = code->entry.n_instrs++;
  DnnInstr *instr = &code->instrs[i];
  code->numbers[i][0] = first;
  code->numbers[i][1] = second;
  for (int k = 0; k < n_buffers; k++)
    code->advances[i][k] = buffers[k] == IN_x ? TWO_ROWS * TWO_INPUTS * 4
                           : buffers[k] == IN_h || buffers[k] == IN_dh
                               ? TWO_ROWS * 4
                               : 0;
  *instr = (DnnInstr){.op = (uint8_t)op,
                      .path = path,
                      .kernel = -1,
                      .n_buffers = (uint16_t)n_buffers,
                      .buffers = buffers,
                      .n_numbers = 2,
                      .numbers = code->numbers[i],
                      .advances = code->advances[i],
                      .n_loops = 1};
  return instr;
}

static inline void two_kernel(TwoCode *code, int kernel, const char *path,
                              const int64_t *buffers, int n_buffers,
                              int64_t first, int64_t second) {
  two_add(code, DNN_OP_KERNEL, path, buffers, n_buffers, first, second)
      ->kernel = kernel;
}

static inline void two_zero(TwoCode *code, const int64_t *buffer,
                            int64_t bytes) {
  two_add(code, DNN_OP_ZERO, "zero", buffer, 1, bytes, 0)->when = DNN_FIRST;
}

/* Ids of messages, which their slot raises. */
enum { ID_h = 1, ID_dh = 3, ID_loss = 5 };
static const int64_t two_id_advance[] = {1, 0}, two_no_advance[] = {0, 0};

static inline void two_wait(TwoCode *code, int id, bool has_slot) {
  DnnInstr *instr = two_add(code, DNN_OP_WAIT, "wait", NULL, 0, id, 0);
  instr->n_numbers = 1;
  instr->number_advances = has_slot ? two_id_advance : two_no_advance;
}

static inline void two_message(TwoCode *code, DnnCollectiveKind kind, int peer,
                               int id, bool has_slot, const char *path,
                               const int64_t *buffer, const int64_t *count) {
  DnnCollective *what = &code->messages[code->n_messages++];
  *what = (DnnCollective){.kind = (uint8_t)kind,
                          .dtype = DNN_f32,
                          .id = id,
                          .peer = peer,
                          .n_parts = 1,
                          .edge = id,
                          .counts = count};
  DnnInstr *instr = two_add(code, DNN_OP_COLLECTIVE, path, buffer, 1, id, 0);
  instr->n_numbers = 1;
  instr->number_advances = has_slot ? two_id_advance : two_no_advance;
  instr->detail = what;
}

static inline void two_segment(TwoCode *code, int begin, bool has_microbatch) {
  code->segments[code->entry.n_segments++] =
      (DnnSegment){.begin = begin,
                   .n = code->entry.n_instrs - begin,
                   .n_registers = has_microbatch};
}

static inline void two_call(TwoCode *code, int segment, int microbatch) {
  bool is_first = true;
  for (int i = 0; i < code->entry.n_calls; i++)
    is_first = is_first && code->calls[i].segment != segment;
  code->calls[code->entry.n_calls++] = (DnnCall){
      .segment = segment, .is_first = is_first, .registers = {microbatch}};
}

/* ---- entry points: of stage 0, of stage 1, of both on one rank ---- */

static inline void two_train_first(TwoCode *code) {
  two_wait(code, ID_h, true); /* for the message before in this slot */
  two_kernel(code, 0, "first", two_at_forward, 3, TWO_ROWS, 0);
  two_message(code, DNN_SEND, 1, ID_h, true, "first.h", two_at_h, two_rows);
  two_segment(code, 0, true);
  int begin = code->entry.n_instrs;
  two_message(code, DNN_RECV, 1, ID_dh, true, "first.dh", two_at_dh, two_rows);
  two_wait(code, ID_dh, true);
  two_zero(code, two_at_gw, TWO_INPUTS * 4);
  two_kernel(code, 2, "first", two_at_backward, 3, TWO_ROWS, 0);
  two_segment(code, begin, true);
  begin = code->entry.n_instrs;
  two_message(code, DNN_RECV, 1, ID_loss, false, "loss", two_at_scalar,
              two_one);
  two_wait(code, ID_loss, false);
  two_kernel(code, 3, "update", two_at_update_w, 3, TWO_INPUTS, 0);
  two_segment(code, begin, false);
  for (int m = 0; m < TWO_MICROBATCHES; m++) {
    two_call(code, 0, m);
    two_call(code, 1, m);
  }
  two_call(code, 2, 0);
}

static inline void two_train_second(TwoCode *code, TwoFault fault) {
  two_message(code, DNN_RECV, -1, ID_h, true, "second.h", two_at_h, two_rows);
  two_wait(code, ID_h, true);
  two_zero(code, two_at_gb, 4);
  two_zero(code, two_at_scalar, 4);
  two_kernel(code, fault == TWO_DIES ? 4 : 1, "second", two_at_loss, 6,
             TWO_ROWS, TWO_BATCH);
  two_wait(code, ID_dh, true);
  two_message(code, DNN_SEND, -1, ID_dh, true, "second.dh", two_at_dh,
              fault == TWO_OTHER_COUNT ? two_less : two_rows);
  if (fault == TWO_OTHER_EDGE) code->messages[1].edge = ID_loss;
  two_segment(code, 0, true);
  int begin = code->entry.n_instrs;
  two_message(code, DNN_SEND, -1, ID_loss, false, "loss", two_at_scalar,
              two_one);
  two_kernel(code, 3, "update", two_at_update_b, 3, 1, 0);
  two_segment(code, begin, false);
  for (int m = 0; m < TWO_MICROBATCHES; m++) two_call(code, 0, m);
  two_call(code, 1, 0);
}

static inline void two_train_both(TwoCode *code) {
  two_kernel(code, 0, "first", two_at_forward, 3, TWO_ROWS, 0);
  two_zero(code, two_at_gb, 4);
  two_zero(code, two_at_scalar, 4);
  two_kernel(code, 1, "second", two_at_loss, 6, TWO_ROWS, TWO_BATCH);
  two_zero(code, two_at_gw, TWO_INPUTS * 4);
  two_kernel(code, 2, "first", two_at_backward, 3, TWO_ROWS, 0);
  two_segment(code, 0, true);
  two_kernel(code, 3, "update", two_at_update_w, 3, TWO_INPUTS, 0);
  two_kernel(code, 3, "update", two_at_update_b, 3, 1, 0);
  two_segment(code, 6, false);
  for (int m = 0; m < TWO_MICROBATCHES; m++) two_call(code, 0, m);
  two_call(code, 1, 0);
}

/* A batch at once. */
static inline void two_eval(TwoCode *code, bool is_first, bool is_second) {
  if (is_first) two_kernel(code, 0, "first", two_at_forward, 3, TWO_BATCH, 0);
  if (is_first && !is_second)
    two_message(code, DNN_SEND, 1, ID_h, false, "first.h", two_at_h, two_batch);
  if (is_second && !is_first) {
    two_message(code, DNN_RECV, -1, ID_h, false, "second.h", two_at_h,
                two_batch);
    two_wait(code, ID_h, false);
  }
  if (is_second) {
    two_zero(code, two_at_gb, 4);
    two_zero(code, two_at_scalar, 4);
    two_kernel(code, 1, "second", two_at_loss, 6, TWO_BATCH, TWO_BATCH);
  }
  two_segment(code, 0, false);
  for (int i = 0; i < code->entry.n_instrs; i++) {
    code->instrs[i].n_loops = 0;
    code->instrs[i].advances = code->instrs[i].number_advances = NULL;
  }
  two_call(code, 0, 0);
}

static inline DnnEntryPoint two_entry(TwoCode *code, EntryPointId id,
                                      const DnnTensor *tensors, int n) {
  DnnEntryPoint *entry = &code->entry;
  entry->id = (uint8_t)id;
  entry->name = entry_point_name(id);
  entry->instrs = code->instrs;
  entry->segments = code->segments;
  entry->calls = code->calls;
  entry->batch = TWO_BATCH;
  entry->tensors = tensors;
  entry->n_tensors = n;
  return *entry;
}

/* ---- tensors and programs ---- */

static inline DnnTensor two_tensor(const char *path, DnnRole role,
                                   DnnDtype dtype, int64_t n, int64_t offset,
                                   int first, int ranks) {
  return (DnnTensor){.path = path,
                     .role = (uint8_t)role,
                     .dtype = dtype,
                     .rank = n > 0,
                     .size = {n},
                     .first = first,
                     .ranks = ranks,
                     .offset = offset,
                     .bytes = (n > 0 ? n : 1) * dtype_bytes(dtype)};
}

/* `last`: the rank of stage 1. */
static inline void two_persistent(DnnTensor *to, int last) {
  to[0] = two_tensor("m.w", DNN_PARAM, DNN_f32, TWO_INPUTS, IN_w, 0, 1);
  to[0].init = INIT_normal;
  to[0].init_a = 0.5;
  to[1] = two_tensor("sgd.m/m.w", DNN_OPTIMIZER_STATE, DNN_f32, TWO_INPUTS,
                     IN_mw, 0, 1);
  to[2] = two_tensor("m.b", DNN_PARAM, DNN_f32, 0, IN_b, last, 1);
  to[3] =
      two_tensor("sgd.m/m.b", DNN_OPTIMIZER_STATE, DNN_f32, 0, IN_mb, last, 1);
  to[4] = two_tensor("step", DNN_STEP, DNN_i32, 0, IN_step, 0, 0);
  to[5] = two_tensor("seed", DNN_SEED, DNN_i64, 0, IN_seed, 0, 0);
}

static inline void two_tensors(TwoStages *two, int program, int world) {
  DnnTensor x =
      two_tensor("d.x", DNN_DATA, DNN_f32, TWO_BATCH, IN_x, program, 1);
  x.rank = 2;
  x.size[1] = TWO_INPUTS;
  x.bytes *= TWO_INPUTS;
  two_persistent(two->tensors[program], world - 1);
  for (int i = 0; i < TWO_TENSORS; i++)
    if (!tensor_is_held(&two->tensors[program][i], program))
      two->tensors[program][i].offset = -1;
  two->train[program][0] = two->eval[program][0] = x;
  two->train[program][1] = two->eval[program][1] =
      two_tensor("loss", DNN_LOSS, DNN_f32, 0, IN_loss, program, 1);
}

static inline void two_program(TwoStages *two, int i, int world, int64_t steps,
                               const char *save) {
  static const DnnMetricPart loss[] = {{.sum = "loss", .factor = 1}};
  DnnEntryPoint *entries = two->entries[i];
  bool has_loss = i == world - 1;
  entries[0] = two_entry(&two->train_code[i], ENTRY_train, two->train[i], 2);
  entries[1] =
      two_entry(&two->eval_code[i], ENTRY_eval, two->eval[i], 1 + has_loss);
  two->programs[i] = (DnnProgram){
      .model = "two",
      .model_dir = ".",
      .target = "cpu",
      .stages = i ? "stage 1" : "stage 0",
      .model_hash = "m",
      .plan_hash = "p",
      .world = world,
      .arena_bytes = TWO_ARENA,
      .persistent_bytes = IN_loss,
      .parameters = TWO_INPUTS + 1,
      .n_pairs = world > 1 ? 2 : 0,
      .pairs = two->pairs,
      .n_tensors = TWO_TENSORS,
      .tensors = two->tensors[i],
      .n_kernels = ARRAY_LENGTH(two_kernels),
      .kernels = two_kernels,
      .n_entry_points = 2,
      .entry_points = entries,
      .n_data = 1,
      .data = &two->block,
      .settings = {
          .steps = steps,
          .batch = TWO_BATCH,
          .keep = 2,
          .seed = 1,
          .save = save,
          .is_save_given = 1, /* an absolute path */
          .items = "samples",
          .items_per_sample = 1,
          .validation = {.name = "loss", .n_parts = 1, .parts = loss}}};
}

static inline void two_data(TwoStages *two) {
  two->field = (DnnField){.path = "d.x",
                          .source = SOURCE_synthetic_floats,
                          .records = 512,
                          .scale = 1,
                          .dtype = DNN_f32,
                          .rank = 2,
                          .size = {TWO_BATCH, TWO_INPUTS}};
  two->block = (DnnData){
      .name = "d", .n_fields = 1, .fields = &two->field, .eval = TWO_EVAL};
}

/* `world`: 2, or 1 for both stages on rank 0. */
static inline void two_make(TwoStages *two, int world, int64_t steps,
                            const char *save, TwoFault fault) {
  *two = (TwoStages){.rows = {{0, 0}, {1, 1}},
                     .pairs = {{0, 1, 1}, {1, 1, -1}},
                     .fault = fault};
  two_data(two);
  if (world == 1) two_train_both(&two->train_code[0]);
  if (world == 2) two_train_first(&two->train_code[0]);
  if (world == 2) two_train_second(&two->train_code[1], fault);
  for (int i = 0; i < world; i++) {
    two_eval(&two->eval_code[i], i == 0, i == world - 1);
    two_tensors(two, i, world);
    two_program(two, i, world, steps, save);
  }
  two->bundle = (DnnBundle){.abi = DNN_ABI,
                            .world = world,
                            .n_programs = world,
                            .programs = two->programs,
                            .n_rows = world,
                            .rows = two->rows};
}

#endif
