/*
 * toy.h -- makes a program by hand, as codegen would emit it: a linear model of
 * four inputs that learns to add them, with a matmul, an all-reduce, optimizer
 * state, evaluation with a remainder, and the predicated update.
 */
#ifndef TESTS_UNIT_TOY_H
#define TESTS_UNIT_TOY_H

#include "runtime/program.h"
#include "support/support.h"

#include <math.h>
#include <stdlib.h>

enum {
  TOY_BATCH = 16,
  TOY_RECORDS = 1024,
  TOY_EVAL = 100,
  TOY_INPUTS = 4,
  TOY_ARENA = 8192,
  AT_w = 0,
  AT_b = 64,
  AT_m = 128,
  AT_step = 192,
  AT_seed = 256,
  AT_loss = 320,
  AT_norm = 384,
  AT_rate = 448,
  AT_x = 512,
  AT_product = 1024,
  AT_gradient = 2048
};

/* Gradients and loss of the local rows; numbers: rows, batch. */
static void toy_backward(void *const *buffers, const int64_t *numbers) {
  const float *x = buffers[0], *product = buffers[1], *b = buffers[2];
  float *gradient = buffers[3], *loss = buffers[4];
  int64_t rows = numbers[0];
  float scale = 1.0f / (float)numbers[1];
  *loss = 0;
  for (int i = 0; i <= TOY_INPUTS; i++) gradient[i] = 0;
  for (int64_t r = 0; r < rows; r++) {
    float wanted = 0.5f;
    for (int i = 0; i < TOY_INPUTS; i++) wanted += x[r * TOY_INPUTS + i];
    float error = product[r] + *b - wanted;
    *loss += error * error * scale;
    for (int i = 0; i < TOY_INPUTS; i++)
      gradient[i] += 2 * error * x[r * TOY_INPUTS + i] * scale;
    gradient[TOY_INPUTS] += 2 * error * scale;
  }
}

/* Momentum, unless loss or norm are not finite; numbers: rate in millionths. */
static void toy_update(void *const *buffers, const int64_t *numbers) {
  float *w = buffers[0], *b = buffers[1], *m = buffers[2];
  const float *gradient = buffers[3], *loss = buffers[4];
  float *norm = buffers[5], *rate = buffers[6], sum = 0;
  *rate = (float)numbers[0] * 1e-6f;
  for (int i = 0; i <= TOY_INPUTS; i++) sum += gradient[i] * gradient[i];
  *norm = sqrtf(sum);
  if (!isfinite(*norm) || !isfinite(*loss)) return;
  for (int i = 0; i <= TOY_INPUTS; i++) {
    m[i] = 0.9f * m[i] + gradient[i];
    float *to = i < TOY_INPUTS ? &w[i] : b;
    *to -= *rate * m[i];
  }
}

typedef struct Toy {
  DnnBundle bundle; /* of this: */
  DnnProgram program;
  DnnTensor persistent[5], data[3], rest[2];
  DnnKernel kernels[2];
  DnnEntryPoint entry_points[3];
  DnnSegment segments[3];
  DnnInstr train[5], eval[4], eval_remainder[3];
  DnnGemm product[2];
  DnnField field;
  DnnData block;
  DnnGroup all;
  DnnCollective collective, eval_collective;
  int64_t backward[2], backward_rest[2], update[1];
} Toy;

static const int64_t toy_product_at[] = {AT_x, AT_w, AT_product},
                     toy_backward_at[] = {AT_x, AT_product, AT_b, AT_gradient,
                                          AT_loss},
                     toy_update_at[] = {AT_w,    AT_b,    AT_m,   AT_gradient,
                                        AT_loss, AT_norm, AT_rate},
                     toy_bucket_at[] = {AT_gradient, AT_gradient + 16, AT_loss},
                     toy_bucket_counts[] = {4, 1, 1}, toy_bucket_id[] = {1},
                     toy_product_checks[] = {AT_product, 1, DNN_f32, 2, 0},
                     toy_backward_checks[] = {AT_gradient, 5, DNN_f32, 3, 0,
                                              AT_loss,     1, DNN_f32, 4, 0};
static const DnnMetricPart toy_loss[] = {{.sum = "loss", .factor = 1}};

static inline DnnTensor toy_tensor(const char *path, DnnRole role,
                                   DnnDtype dtype, int64_t n, int64_t offset) {
  DnnTensor tensor = {.path = path,
                      .role = (uint8_t)role,
                      .dtype = dtype,
                      .rank = n > 0,
                      .size = {n},
                      .offset = offset,
                      .bytes = (n > 0 ? n : 1) * dtype_bytes(dtype)};
  return tensor;
}

static inline DnnTensor toy_input(int64_t batch, int world,
                                  const DnnGroup *all) {
  DnnTensor x = toy_tensor("d.x", DNN_DATA, DNN_f32, batch, AT_x);
  x.rank = 2;
  x.size[1] = TOY_INPUTS;
  if (world > 1) x.split[0] = all;
  x.bytes = batch / world * TOY_INPUTS * 4;
  return x;
}

#define TOY_INSTR(kind, name, at)                                              \
  .op = kind, .n_buffers = ARRAY_LENGTH(at), .buffers = at, .path = name,      \
  .kernel = -1

static inline void toy_code(Toy *toy, int index, EntryPointId id,
                            DnnInstr *instrs, int n_instrs, DnnTensor *tensors,
                            int n_tensors, int64_t batch) {
  static const DnnCall once = {.is_first = 1};
  toy->segments[index] = (DnnSegment){.n = n_instrs};
  toy->entry_points[index] = (DnnEntryPoint){.id = (uint8_t)id,
                                             .n_segments = 1,
                                             .segments = &toy->segments[index],
                                             .n_calls = 1,
                                             .calls = &once,
                                             .name = entry_point_name(id),
                                             .n_instrs = n_instrs,
                                             .instrs = instrs,
                                             .batch = batch,
                                             .n_tensors = n_tensors,
                                             .tensors = tensors};
}

static inline void toy_instrs(Toy *toy, DnnInstr *to, const DnnGemm *product,
                              const int64_t *backward,
                              const DnnCollective *sum) {
  to[0] = (DnnInstr){TOY_INSTR(DNN_OP_GEMM, "m.product", toy_product_at),
                     .detail = product,
                     .flops = 6,
                     .bytes_moved = 40,
                     .n_checks = 1,
                     .checks = toy_product_checks};
  to[1] = (DnnInstr){TOY_INSTR(DNN_OP_KERNEL, "m.loss", toy_backward_at),
                     .n_numbers = 2, .numbers = backward, .n_checks = 2,
                     .checks = toy_backward_checks};
  to[1].kernel = 0;
  if (!sum) return;
  to[2] = (DnnInstr){TOY_INSTR(DNN_OP_COLLECTIVE, "m.sum", toy_bucket_at),
                     .phase = 4, .detail = sum};
  to[3] = (DnnInstr){.op = DNN_OP_WAIT,
                     .phase = 4,
                     .n_numbers = 1,
                     .numbers = toy_bucket_id,
                     .path = "m.sum",
                     .kernel = -1};
  (void)toy;
}

static inline void toy_tensors(Toy *toy, int world) {
  toy->persistent[0] = toy_tensor("m.w", DNN_PARAM, DNN_f32, 4, AT_w);
  toy->persistent[0].init = INIT_normal;
  toy->persistent[0].init_a = 0.5;
  toy->persistent[1] = toy_tensor("m.b", DNN_PARAM, DNN_f32, 0, AT_b);
  toy->persistent[2] =
      toy_tensor("sgd.m/m", DNN_OPTIMIZER_STATE, DNN_f32, 5, AT_m);
  toy->persistent[3] = toy_tensor("step", DNN_STEP, DNN_i32, 0, AT_step);
  toy->persistent[4] = toy_tensor("seed", DNN_SEED, DNN_i64, 0, AT_seed);
  toy->data[0] = toy_tensor("loss", DNN_LOSS, DNN_f32, 0, AT_loss);
  toy->data[1] = toy_input(TOY_BATCH, world, &toy->all);
  toy->data[2] = toy_tensor("norm", DNN_NORM, DNN_f32, 0, AT_norm);
  toy->rest[0] = toy->data[0];
  toy->rest[1] = toy_input(TOY_EVAL % TOY_BATCH, 1, &toy->all);
}

static inline void toy_data(Toy *toy) {
  toy->field = (DnnField){.path = "d.x",
                          .source = SOURCE_synthetic_floats,
                          .records = TOY_RECORDS,
                          .scale = 1,
                          .dtype = DNN_f32,
                          .rank = 2,
                          .size = {TOY_BATCH, TOY_INPUTS}};
  toy->block = (DnnData){
      .name = "d", .n_fields = 1, .fields = &toy->field, .eval = TOY_EVAL};
}

static inline void toy_program(Toy *toy, int world, int64_t steps,
                               const char *save) {
  toy->program = (DnnProgram){
      .model = "toy",
      .model_dir = ".",
      .target = "cpu",
      .world = world,
      .arena_bytes = TOY_ARENA,
      .persistent_bytes = AT_loss,
      .parameters = 5,
      .n_tensors = 5,
      .tensors = toy->persistent,
      .n_groups = 1,
      .groups = &toy->all,
      .n_kernels = 2,
      .kernels = toy->kernels,
      .n_entry_points = 3,
      .entry_points = toy->entry_points,
      .n_data = 1,
      .data = &toy->block,
      .settings = {
          .steps = steps,
          .batch = TOY_BATCH,
          .keep = 2,
          .seed = 1,
          .save = save,
          .is_save_given = 1, /* an absolute path */
          .items = "samples",
          .items_per_sample = 1,
          .validation = {.name = "loss", .n_parts = 1, .parts = toy_loss}}};
}

/* rate: in millionths. */
static inline void toy_make(Toy *toy, int world, int64_t rate, int64_t steps,
                            const char *save) {
  static const DnnRankRow all_ranks = {0, 0};
  int64_t rows = TOY_BATCH / world, rest = TOY_EVAL % TOY_BATCH;
  *toy = (Toy){.backward = {rows, TOY_BATCH},
               .backward_rest = {rest, rest},
               .update = {rate}};
  toy->kernels[0] = (DnnKernel){.name = "backward", .function = toy_backward};
  toy->kernels[1] = (DnnKernel){.name = "update", .function = toy_update};
  for (int i = 0; i < 2; i++)
    toy->product[i] = (DnnGemm){.dtype = DNN_f32,
                                .c_dtype = DNN_f32,
                                .m = i ? rest : rows,
                                .n = 1,
                                .k = TOY_INPUTS,
                                .a_i = TOY_INPUTS,
                                .a_k = 1,
                                .b_k = 1,
                                .b_j = 1,
                                .c_i = 1,
                                .c_j = 1,
                                .batch = {1, 1}};
  toy->all = (DnnGroup){
      .ranks = world, .size = world, .n_digits = 1, .digits = {{world, 1}}};
  toy->collective = (DnnCollective){.kind = DNN_ALL_REDUCE,
                                    .reduce = REDUCE_sum,
                                    .dtype = DNN_f32,
                                    .id = 1,
                                    .group = &toy->all,
                                    .n_parts = 3,
                                    .counts = toy_bucket_counts};
  toy_tensors(toy, world);
  toy_instrs(toy, toy->train, &toy->product[0], toy->backward,
             &toy->collective);
  toy->train[4] =
      (DnnInstr){TOY_INSTR(DNN_OP_KERNEL, "update", toy_update_at), .phase = 3,
                 .n_numbers = 1, .numbers = toy->update};
  toy->train[4].kernel = 1;
  toy_instrs(toy, toy->eval, &toy->product[0], toy->backward, &toy->collective);
  toy_instrs(toy, toy->eval_remainder, &toy->product[1], toy->backward_rest,
             NULL);
  toy_code(toy, 0, ENTRY_train, toy->train, 5, toy->data, 3, TOY_BATCH);
  toy_code(toy, 1, ENTRY_eval, toy->eval, 4, toy->data, 2, TOY_BATCH);
  toy_code(toy, 2, ENTRY_eval_remainder, toy->eval_remainder, 2, toy->rest, 2,
           rest);
  toy_data(toy);
  toy_program(toy, world, steps, save);
  toy->bundle = (DnnBundle){.abi = DNN_ABI,
                            .world = world,
                            .n_programs = 1,
                            .programs = &toy->program,
                            .n_rows = 1,
                            .rows = &all_ranks};
}

#endif
