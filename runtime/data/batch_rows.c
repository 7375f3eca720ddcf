/*
 * batch_rows.c -- finds the sample of each row of a batch, and stores this
 * rank's shard of it.
 */
#include "runtime/data/blocks.h"

int64_t batch_place(const BatchFill *fill, const Block *block, int64_t i) {
  if (fill->is_eval)
    return block_eval_place(block, fill->first + i, fill->data->eval_batch,
                            fill->is_random, fill->epoch);
  return block_train_place(block, fill->t, i, fill->entry->batch, fill->epoch);
}

int64_t batch_sample(const DnnTensor *tensor, int64_t begin, int64_t rows,
                     int64_t i) {
  int64_t parts = tensor->microbatches;
  if (parts <= 1) return begin + i;
  int64_t of_part = rows / parts, shard = begin / rows;
  return i / of_part * (tensor->size[0] / parts) + shard * of_part +
         i % of_part;
}

bool batch_can_store(DnnDtype dtype) {
  return dtype != DNN_f8e4m3 && dtype != DNN_f8e5m2;
}

unsigned char *batch_store(const DnnTensor *tensor, int rank, int dim,
                           const double *row, unsigned char *to) {
  int64_t item = dtype_bytes(tensor->dtype);
  if (dim == tensor->rank) {
    number_store(tensor->dtype, to, *row);
    return to + item;
  }
  int64_t inner = 1, begin;
  for (int i = dim + 1; i < tensor->rank; i++) inner *= tensor->size[i];
  int64_t n = tensor_local_range(tensor, dim, rank, &begin);
  unsigned char *start = to;
  bool is_last = dim + 1 == tensor->rank;
  if (is_last) numbers_store(tensor->dtype, to, row + begin, n);
  for (int64_t i = 0; !is_last && i < n; i++)
    to = batch_store(tensor, rank, dim + 1, row + (begin + i) * inner, to);
  /* After the last element comes padding. */
  int64_t bytes = item;
  for (int i = dim; i < tensor->rank; i++)
    bytes *= tensor_local_size(tensor, i);
  return start + bytes;
}
