/*
 * params.c -- fills persistent buffers with their initial values, and computes
 * digests of parameters.
 *
 * The value of an element follows from the seed, the path and the index in the
 * logical tensor, so each rank makes its own shard and threads make parts of it
 * in any order.
 */
#include "runtime/cpu/cpu.h"
#include "runtime/params/params.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 1 << 20 }; /* elements made at a time */

typedef struct Making {
  const DnnTensor *tensor;
  int rank;
  uint64_t key;
  const double *values; /* of the full tensor; NULL: made one by one */
  int64_t first, n;     /* local elements */
  unsigned char *out;
} Making;

/* Elements [begin, end) of a tensor that is whole on this rank. */
static void make_normals(const Making *making, int64_t begin, int64_t end) {
  const DnnTensor *tensor = making->tensor;
  int64_t item = dtype_bytes(tensor->dtype);
  double values[256];
  for (int64_t i = begin; i < end; i += ARRAY_LENGTH(values)) {
    int64_t n = end - i < ARRAY_LENGTH(values) ? end - i : ARRAY_LENGTH(values);
    random_normals(making->key, (uint64_t)(making->first + i), n, values);
    for (int64_t k = 0; k < n; k++)
      number_store(tensor->dtype, making->out + (i + k) * item,
                   tensor->init_a * values[k]);
  }
}

static void make_part(void *arg, int index, int n_threads) {
  const Making *making = arg;
  const DnnTensor *tensor = making->tensor;
  Init init = {(InitKind)tensor->init, tensor->init_a};
  int64_t item = dtype_bytes(tensor->dtype);
  int64_t begin = making->n * index / n_threads;
  int64_t end = making->n * (index + 1) / n_threads;
  bool splits = tensor_is_sharded(tensor);
  if (init.kind == INIT_normal && !splits && !making->values) {
    make_normals(making, begin, end);
    return;
  }
  for (int64_t i = begin; i < end; i++) {
    int64_t element = making->first + i;
    if (splits) element = tensor_logical_index(tensor, making->rank, element);
    double value =
        element < 0 ? 0.0
        : making->values
            ? making->values[element]
            : init_value(init, making->key, tensor->size, (uint64_t)element);
    number_store(tensor->dtype, making->out + i * item, value);
  }
}

static bool is_initialised(const DnnTensor *tensor) {
  return tensor->role == DNN_PARAM || tensor->role == DNN_STATE ||
         tensor->role == DNN_OPTIMIZER_STATE || tensor->role == DNN_EMA ||
         tensor->role == DNN_DECODE_CACHE || tensor->role == DNN_LOSS_SCALE;
}

/* Values that all are the same are made once. */
static Status init_shard(const Threads *threads, Device *device,
                         Making *making) {
  const DnnTensor *tensor = making->tensor;
  int64_t n = tensor_local_elements(tensor), item = dtype_bytes(tensor->dtype);
  bool is_same =
      (tensor->init == INIT_zeros || tensor->init == INIT_constant) &&
      !tensor_is_sharded(tensor);
  for (making->first = 0; making->first < n; making->first += BLOCK) {
    making->n = n - making->first < BLOCK ? n - making->first : BLOCK;
    if (making->first == 0 || !is_same) threads_run(threads, make_part, making);
    TRY(device->write(device, tensor->offset + making->first * item,
                      making->out, making->n * item));
  }
  return STATUS_OK;
}

/* The rows of an orthogonal matrix depend on each other, so every rank makes
 * all of it, one matrix at a time. */
static Status init_tensor(Arena *arena, const Threads *threads, Device *device,
                          Making *making) {
  const DnnTensor *tensor = making->tensor;
  Init init = {(InitKind)tensor->init, tensor->init_a};
  making->values = NULL;
  if (init_is_elementwise(init.kind))
    return init_shard(threads, device, making);
  Arena *scratch = arena_beside(arena);
  double *values = ARENA_ARRAY(scratch, double, tensor_elements(tensor));
  init_fill(scratch, init, making->key, tensor->size, tensor->rank, values);
  making->values = values;
  Status status = init_shard(threads, device, making);
  arena_destroy(scratch);
  return status;
}

Status params_init(Arena *arena, const DnnProgram *program, Device *device,
                   uint64_t seed, bool (*skip)(const DnnTensor *tensor)) {
  Threads threads;
  threads_open(&threads);
  Making making = {.rank = device->rank,
                   .out = ARENA_ARRAY(arena, unsigned char, BLOCK * 8)};
  Status status = STATUS_OK;
  for (int i = 0; i < program->n_tensors && status.code == STATUS_ok; i++) {
    const DnnTensor *tensor = &program->tensors[i];
    if (tensor->offset < 0 || !is_initialised(tensor) || (skip && skip(tensor)))
      continue;
    if (tensor->init == INIT_zeros && device->is_zeroed) continue;
    /* An average starts as what it averages. */
    bool is_average = strncmp(tensor->path, "ema/", 4) == 0;
    making.tensor = tensor;
    making.key = random_key(seed, tensor->path + (is_average ? 4 : 0));
    status = init_tensor(arena, &threads, device, &making);
  }
  threads_close(&threads);
  return status;
}

Status params_fill(Arena *arena, Device *device, const DnnTensor *tensor,
                   uint64_t seed) {
  Threads threads;
  threads_open(&threads);
  Arena *scratch = arena_beside(arena);
  int64_t n = tensor_local_elements(tensor);
  Making making = {
      .tensor = tensor,
      .rank = device->rank,
      .key = random_key(seed, tensor->path),
      .out = ARENA_ARRAY(scratch, unsigned char, (n < BLOCK ? n : BLOCK) * 8)};
  Status status = init_tensor(scratch, &threads, device, &making);
  arena_destroy(scratch);
  threads_close(&threads);
  return status;
}

static int by_path(const void *a, const void *b) {
  return strcmp((*(const DnnTensor *const *)a)->path,
                (*(const DnnTensor *const *)b)->path);
}

/* Not every rank has all of it. */
static bool is_spread(const DnnTensor *tensor, int world) {
  return tensor_is_sharded(tensor) ||
         (tensor->ranks > 0 && tensor->ranks < world);
}

/* The parameters in path order. */
static int sort_parameters(const DnnProgram *program, const DnnTensor **sorted,
                           bool *out_has_spread) {
  int n = 0;
  *out_has_spread = false;
  for (int i = 0; i < program->n_tensors; i++) {
    if (program->tensors[i].role != DNN_PARAM) continue;
    sorted[n++] = &program->tensors[i];
    if (is_spread(&program->tensors[i], program->world)) *out_has_spread = true;
  }
  qsort(sorted, (size_t)n, sizeof *sorted, by_path);
  return n;
}

static Status hash_tensors(LogicalReader *reader, const DnnTensor **tensors,
                           int n, unsigned char *block, char out_hex[65]) {
  Sha256 sha;
  sha256_begin(&sha);
  for (int i = 0; i < n; i++) {
    int64_t bytes =
        tensor_elements(tensors[i]) * dtype_bytes(tensors[i]->dtype);
    for (int64_t at = 0; at < bytes; at += BLOCK) {
      int64_t here = bytes - at < BLOCK ? bytes - at : BLOCK;
      TRY(logical_read(reader, tensors[i], at, block, here));
      sha256_add(&sha, block, (size_t)here);
    }
  }
  sha256_end(&sha, out_hex);
  return STATUS_OK;
}

Status params_sha256(Arena *arena, const DnnProgram *program, Comm *comm,
                     Device *device, char out_hex[65]) {
  Arena *scratch = arena_beside(arena);
  const DnnTensor **sorted =
      ARENA_ARRAY(scratch, const DnnTensor *, program->n_tensors);
  bool has_spread, is_root = comm->rank == 0;
  int n = sort_parameters(program, sorted, &has_spread);
  LogicalReader *reader =
      logical_reader_create(scratch, program, has_spread ? comm : NULL, device);
  unsigned char *block = ARENA_ARRAY(scratch, unsigned char, BLOCK);
  Status status = has_spread && !is_root
                      ? logical_serve(reader)
                      : hash_tensors(reader, sorted, n, block, out_hex);
  if (has_spread && is_root) TRY(logical_end(reader));
  if (has_spread) TRY(comm->broadcast(comm, out_hex, 65, 0));
  arena_destroy(scratch);
  return status;
}
