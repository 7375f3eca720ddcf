/*
 * verify_inputs.c -- chooses the numbers that a model is played on, so that a
 * mistake cannot hide behind zeros, equal ranks or equal steps.
 *
 * Parameters are not zero, biases and norms included; variances are positive.
 * Data differs between samples and between steps.  Where the loss leaves out
 * targets, a third of them are left out and all of the first shard, so that
 * ranks count different numbers of tokens.
 */
#include "driver/verify.h"

#include <math.h>
#include <string.h>

static const DataField *find_field(const Model *model, Name path) {
  for (int b = 0; b < model->n_data; b++)
    for (int f = 0; f < model->data[b].n_fields; f++)
      if (model->data[b].fields[f].path == path)
        return &model->data[b].fields[f];
  return NULL;
}

/* The element of the sample lies in the box of the limit. */
static bool limit_applies(const DataLimit *limit, const Type *type,
                          int64_t index) {
  for (int d = type->rank - 1; d >= 1; d--) {
    int64_t at = index % type->dims[d].size;
    index /= type->dims[d].size;
    if (limit->size[d] > 0 &&
        (at < limit->begin[d] || at >= limit->begin[d] + limit->size[d]))
      return false;
  }
  return true;
}

typedef struct DataRange {
  int64_t below;
  const DataLimit *ignoring; /* or NULL */
} DataRange;

static DataRange range_of(const DataField *field, const Type *type,
                          int64_t index) {
  DataRange range = {.below = type->dtype == DT_bool ? 2 : 10};
  bool is_limited = false;
  if (field && field->below > 0) range.below = field->below;
  for (int i = 0; field && i < field->limits.n; i++) {
    const DataLimit *limit = &field->limits.data[i];
    if (!limit_applies(limit, type, index)) continue;
    if (!is_limited || limit->below < range.below) range.below = limit->below;
    if (limit->has_ignored) range.ignoring = limit;
    is_limited = true;
  }
  return range;
}

static void fill_integers(const DataField *field, const Type *type,
                          uint64_t key, int64_t shards, double *out) {
  int64_t n = type_elements(type), first = shards > 1 ? n / shards : 0;
  for (int64_t i = 0; i < n; i++) {
    DataRange range = range_of(field, type, i);
    uint64_t at = (uint64_t)(2 * i);
    out[i] = (double)random_below(key, at, (uint64_t)range.below);
    if (range.ignoring && (i < first || random_below(key, at + 1, 3) == 0))
      out[i] = (double)range.ignoring->ignored;
  }
}

static void fill_uniform(uint64_t key, double low, double high, int64_t n,
                         double *out) {
  for (int64_t i = 0; i < n; i++)
    out[i] += low + (high - low) * random_uniform(key, (uint64_t)i);
}

/* Its own initial values, moved where they are all the same. */
static void fill_stored(Arena *arena, const GraphInput *input, const Type *type,
                        uint64_t key, double *out) {
  int64_t n = type_elements(type), sizes[MAX_RANK];
  Arena *scratch = arena_beside(arena);
  for (int d = 0; d < type->rank; d++) sizes[d] = type->dims[d].size;
  init_fill(scratch, input->init, key, sizes, type->rank, out);
  arena_destroy(scratch);
  if (dtype_class(type->dtype) != CLASS_FLOAT) return;
  bool is_constant =
      input->init.kind == INIT_zeros || input->init.kind == INIT_constant;
  switch (input->role) {
  case ROLE_param:
    if (is_constant) fill_uniform(key + 1, -0.3, 0.3, n, out);
    break;
  case ROLE_ema: fill_uniform(key + 1, -0.3, 0.3, n, out); break;
  case ROLE_state: fill_uniform(key + 1, 0, 0.3, n, out); break;
  case ROLE_optimizer_state: fill_uniform(key + 1, 0, 0.01, n, out); break;
  default: break;
  }
}

Tensor verify_input(const Model *model, const Numbers *numbers,
                    const GraphInput *input, const Type *type, int step,
                    int64_t shards, Arena *arena) {
  const Type *logical = type_logical(arena, type);
  int64_t n = type_elements(logical);
  double *values = ARENA_ARRAY(arena, double, n);
  uint64_t key = random_key(numbers->seed, input->path);
  switch (input->role) {
  case ROLE_step: values[0] = step + 1; break;
  case ROLE_seed: values[0] = (double)(numbers->seed % 1000); break;
  case ROLE_epoch: values[0] = 3; break;
  case ROLE_data:
    key = hash_bytes(&step, sizeof step, key);
    if (dtype_class(type->dtype) == CLASS_FLOAT)
      fill_uniform(key, -1, 1, n, values);
    else
      fill_integers(find_field(model, input->path), logical, key, shards,
                    values);
    break;
  default: fill_stored(arena, input, logical, key, values);
  }
  Tensor tensor = numbers_create(numbers, arena, logical);
  numbers_from_doubles(numbers, type->dtype, tensor_array(&tensor), values, n);
  return tensor;
}
