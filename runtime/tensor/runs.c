/*
 * runs.c -- finds which elements of a logical tensor a rank holds, as runs of
 * elements that lie one after the other both in the logical tensor and in the
 * shard of the rank.
 *
 *     [4, 6] f32, the second dim sharded over 2 ranks; rank 1 holds
 *
 *     . . . x x x        runs (logical, local, n):
 *     . . . x x x        (3, 0, 3) (9, 3, 3) (15, 6, 3) (21, 9, 3)
 *     . . . x x x
 *     . . . x x x
 *
 * Runs ascend in both, so the elements of a range of the logical tensor lie in
 * a range of the shard, which has nothing else but padding.
 */
#include "runtime/tensor/tensor.h"

static int last_sharded_dim(const DnnTensor *tensor) {
  int dim = tensor->rank - 1;
  while (dim >= 0 && tensor_shards(tensor, dim) == 1) dim--;
  return dim;
}

/* The run that begins at logical element `at`, if the rank holds that; else the
 * result is 0 and *out_next the next element that the rank may hold. */
static int64_t run_at(const DnnTensor *tensor, int rank, int last, int64_t at,
                      int64_t *out_local, int64_t *out_next) {
  int64_t block = tensor_elements(tensor), rest = at, n = 0;
  *out_local = 0;
  for (int d = 0; d <= last; d++) {
    int64_t begin, held = tensor_local_range(tensor, d, rank, &begin);
    block /= tensor->size[d]; /* elements of one index of this dim */
    int64_t index = rest / block;
    rest %= block;
    if (index < begin && held > 0) {
      *out_next = at + (begin - index) * block - rest;
      return 0;
    }
    if (held == 0 || index >= begin + held) {
      *out_next = at + (tensor->size[d] - index) * block - rest;
      return 0;
    }
    *out_local = *out_local * tensor_local_size(tensor, d) + index - begin;
    n = (begin + held - index) * block - rest;
  }
  *out_local = *out_local * block + rest;
  return n;
}

bool tensor_next_run(const DnnTensor *tensor, int rank, int64_t from,
                     int64_t end, TensorRun *out) {
  int last = last_sharded_dim(tensor);
  if (!tensor_is_held(tensor, rank)) return false;
  *out = (TensorRun){from, from, end - from};
  while (last >= 0 && from < end) {
    int64_t next = end;
    int64_t n = run_at(tensor, rank, last, from, &out->local, &next);
    out->logical = from;
    out->n = n < end - from ? n : end - from;
    if (n > 0) return true;
    from = next;
  }
  return from < end;
}

bool tensor_has_padding(const DnnTensor *tensor, int rank) {
  int64_t begin;
  for (int d = 0; d < tensor->rank && tensor_is_held(tensor, rank); d++)
    if (tensor_local_range(tensor, d, rank, &begin) !=
        tensor_local_size(tensor, d))
      return true;
  return false;
}

/* The number of the shard that a rank holds, and of its term of a sum, among
 * *out_n. */
static int shard_number(const DnnTensor *tensor, int rank, int *out_n) {
  int number = 0;
  *out_n = 1;
  for (int d = 0; d < tensor->rank; d++) {
    int shards = tensor_shards(tensor, d);
    number = number * shards + tensor_shard(tensor, d, rank);
    *out_n *= shards;
  }
  int terms = tensor->terms ? tensor->terms->size : 1;
  *out_n *= terms;
  return number * terms + tensor_term(tensor, rank);
}

bool tensor_same_shard(const DnnTensor *tensor, int a, int b) {
  int n;
  return shard_number(tensor, a, &n) == shard_number(tensor, b, &n);
}

bool tensor_is_owner(const DnnTensor *tensor, int rank) {
  if (!tensor_is_held(tensor, rank)) return false;
  for (int other = tensor->first; other < rank; other++)
    if (tensor_same_shard(tensor, other, rank)) return false;
  return true;
}

int tensor_owners(const DnnTensor *tensor, int world, int *out) {
  int n = 0, shards;
  for (int rank = 0; rank < world; rank++) {
    if (!tensor_is_held(tensor, rank)) continue;
    int number = shard_number(tensor, rank, &shards), i = 0;
    while (i < n && shard_number(tensor, out[i], &shards) != number) i++;
    if (i == n) out[n++] = rank;
  }
  return n;
}
