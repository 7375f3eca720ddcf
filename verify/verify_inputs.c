/*
 * verify_inputs.c -- chooses the numbers that a model is played on, so that a
 * mistake cannot hide behind zeros, equal ranks or equal steps.
 *
 * Parameters are not zero, biases and norms included; variances are positive.
 * Data differs between samples and between steps.  Where the loss leaves out
 * targets, a third of them are left out and all of the first shard, so that
 * ranks count different numbers of tokens.  Where tokens choose experts, one
 * expert has none in the first step.
 *
 * If there are many shards of the batch, some hold equal samples: as many are
 * different as the root of their number.  A shard other than the first has a
 * number of two digits in this base, in a random order; the first training step
 * gives it the samples of the first digit, later steps those of the second.  So
 * any two shards differ in one of the training steps, and what a thousand ranks
 * compute is computed for the different ones alone.
 */
#include "verify/verify_steps.h"

#include <math.h>
#include <string.h>

static const DataField *find_field(const Model *model, Name path) {
  for (int b = 0; b < model->n_data; b++)
    for (int f = 0; f < model->data[b].n_fields; f++)
      if (model->data[b].fields[f].path == path)
        return &model->data[b].fields[f];
  return NULL;
}

/* The field with the limits that it has at the new sizes. */
static const DataField *resized_field(const VerifyInputs *inputs, Name path,
                                      Arena *arena) {
  const DataField *field = find_field(inputs->model, path);
  const Resizing *resizing = inputs->resizing;
  if (!field || !resizing) return field;
  DataField *own = arena_copy(arena, field, sizeof *field);
  own->below = resizing_integer(resizing, field->below);
  own->limits.data = arena_copy(arena, field->limits.data,
                                (size_t)field->limits.n * sizeof(DataLimit));
  for (int i = 0; i < field->limits.n; i++) {
    DataLimit *limit = &own->limits.data[i];
    limit->below = resizing_integer(resizing, limit->below);
    for (int d = 0; d < field->type->rank; d++) {
      const Dim *dim = &field->type->dims[d];
      limit->begin[d] =
          resizing_offset(resizing, dim->name, dim->size, limit->begin[d]);
      limit->size[d] =
          resizing_offset(resizing, dim->name, dim->size, limit->size[d]);
    }
  }
  return own;
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

static void fill_integers(const VerifyInputs *inputs, const DataField *field,
                          const Type *type, uint64_t key, double *out) {
  int64_t n = type_elements(type), shards = inputs->shards, first = 0;
  if (shards > 1 && type->rank > 0) {
    int64_t rows = type->dims[0].size;
    first = (rows + shards - 1) / shards * (n / rows);
  }
  for (int64_t i = 0; i < n; i++) {
    DataRange range = range_of(field, type, i);
    uint64_t at = (uint64_t)(2 * i);
    out[i] = (double)random_below(key, at, (uint64_t)range.below);
    if (range.ignoring && (i < first || random_below(key, at + 1, 3) == 0))
      out[i] = (double)range.ignoring->ignored;
  }
}

/* ---- equal shards of the batch ---- */

enum { MOST_DIFFERENT = 16 };

int64_t verify_contents(int64_t shards) {
  int64_t base = 1;
  if (shards <= MOST_DIFFERENT) return shards;
  while (base * base < shards - 1) base++;
  return base + 1;
}

/* Whose samples each shard has. */
static int64_t *contents_of_shards(Arena *arena, int64_t shards, int step,
                                   uint64_t key) {
  int64_t *of_shard = ARENA_ARRAY(arena, int64_t, shards);
  int64_t base = verify_contents(shards) - 1;
  for (int64_t i = 1; i < shards; i++) of_shard[i] = i - 1;
  for (int64_t i = shards - 1; i > 1; i--) {
    int64_t k = 1 + (int64_t)random_below(key, (uint64_t)i, (uint64_t)i);
    int64_t number = of_shard[i];
    of_shard[i] = of_shard[k];
    of_shard[k] = number;
  }
  for (int64_t i = 1; i < shards; i++)
    of_shard[i] =
        1 + (step == 0 ? of_shard[i] % base : of_shard[i] / base % base);
  return of_shard;
}

static void repeat_shards(const VerifyInputs *inputs, const Type *type,
                          Arena *arena, double *values) {
  int64_t shards = inputs->shards, n = type_elements(type);
  if (shards <= MOST_DIFFERENT || type->rank == 0 ||
      type->dims[0].size % shards != 0)
    return;
  Arena *scratch = arena_beside(arena);
  int64_t size = n / shards;
  uint64_t key = random_key(inputs->numbers->seed, "shards of the batch");
  double *all = arena_copy(scratch, values, (size_t)n * sizeof *values);
  int64_t *of_shard = contents_of_shards(scratch, shards, inputs->step, key);
  for (int64_t i = 0; i < n; i++)
    values[i] = all[of_shard[i / size] * size + i % size];
  arena_destroy(scratch);
}

/* ---- experts without tokens ---- */

/* The result of this topk says where tokens go. */
static bool chooses_experts(const Graph *graph, int topk) {
  for (int id = topk + 1; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_route && node->inputs[0].node == topk) return true;
  }
  return false;
}

/* The scores of this topk are computed from the parameter through values that
 * have a score for each expert, as the weights of experts are not. */
static bool gives_scores(const Graph *graph, int topk, Name path,
                         Arena *scratch) {
  const Node *node = graph->nodes.data[topk];
  Name experts = node_name(node, ATTR_dim);
  bool *is_score = ARENA_ARRAY(scratch, bool, topk);
  is_score[node->inputs[0].node] = true;
  for (int id = topk - 1; id >= 0; id--) {
    node = graph->nodes.data[id];
    if (!is_score[id] || type_find(node->types[0], experts) < 0) continue;
    if (node->path == path && node->op == OP_input) return true;
    for (int i = 0; i < node->n_inputs; i++)
      is_score[node->inputs[i].node] = true;
  }
  return false;
}

/* The topk of which this parameter gives the scores; NULL: it gives none. */
static const Node *find_choice(const Graph *graph, Name path, Arena *arena) {
  Arena *scratch = arena_beside(arena);
  const Node *found = NULL;
  for (int id = 0; graph && !found && id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->op == OP_topk && chooses_experts(graph, id) &&
        gives_scores(graph, id, path, scratch))
      found = graph->nodes.data[id];
  arena_destroy(scratch);
  return found;
}

/* Makes the scores of the last expert equal to those of as many others as a
 * token chooses: the first of equals is chosen, so it never is.  Two different
 * scores are left. */
static void starve_expert(const VerifyInputs *inputs, Name path,
                          const Type *type, Arena *arena, double *values) {
  const Graph *graph = inputs->model->train;
  const Node *topk = find_choice(graph, path, arena);
  int d = topk ? type_find(type, node_name(topk, ATTR_dim)) : -1, n;
  if (d < 0) return;
  int64_t chosen = node_ints(topk, ATTR_sizes, &n)[0];
  int64_t experts = type->dims[d].size, inner = 1;
  if (experts < chosen + 2) return;
  for (int i = d + 1; i < type->rank; i++) inner *= type->dims[i].size;
  for (int64_t i = 0; i < type_elements(type); i++) {
    int64_t e = i / inner % experts;
    if (e < chosen || e == experts - 1) values[i] = values[i - e * inner];
  }
}

/* ---- kinds of inputs ---- */

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

Tensor verify_input(const VerifyInputs *inputs, const GraphInput *input,
                    const Type *type, Arena *arena) {
  const Numbers *numbers = inputs->numbers;
  const Type *logical = type_logical(arena, type);
  int64_t n = type_elements(logical);
  double *values = ARENA_ARRAY(arena, double, n);
  uint64_t key = random_key(numbers->seed, input->path);
  switch (input->role) {
  case ROLE_step: values[0] = inputs->step + 1; break;
  case ROLE_seed: values[0] = (double)(numbers->seed % 1000); break;
  case ROLE_epoch: values[0] = 3; break;
  case ROLE_data:
    key = hash_bytes(&inputs->step, sizeof inputs->step, key);
    if (dtype_class(type->dtype) == CLASS_FLOAT)
      fill_uniform(key, -1, 1, n, values);
    else
      fill_integers(inputs, resized_field(inputs, input->path, arena), logical,
                    key, values);
    repeat_shards(inputs, logical, arena, values);
    break;
  default:
    fill_stored(arena, input, logical, key, values);
    if (input->role == ROLE_param)
      starve_expert(inputs, input->path, logical, arena, values);
  }
  Tensor tensor = numbers_create(numbers, arena, logical);
  numbers_from_doubles(numbers, type->dtype, tensor_array(&tensor), values, n);
  return tensor;
}
