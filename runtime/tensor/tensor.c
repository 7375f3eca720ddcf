/*
 * tensor.c -- finds the entry points and tensors of a program, and computes
 * which elements of a tensor a rank holds.
 */
#include "runtime/tensor/tensor.h"
#include "runtime/comm/group.h"

#include <string.h>

const DnnProgram *bundle_program(const DnnBundle *bundle, int rank) {
  int row = bundle->n_rows - 1;
  while (row > 0 && bundle->rows[row].first > rank) row--;
  return &bundle->programs[bundle->rows[row].program];
}

const DnnEntryPoint *program_entry_point(const DnnProgram *program,
                                         EntryPointId id) {
  for (int i = 0; i < program->n_entry_points; i++)
    if (program->entry_points[i].id == id) return &program->entry_points[i];
  return NULL;
}

static const DnnTensor *tensor_of_role(const DnnTensor *tensors, int n,
                                       DnnRole role) {
  for (int i = 0; i < n; i++)
    if (tensors[i].role == role && tensors[i].offset >= 0) return &tensors[i];
  return NULL;
}

const DnnTensor *program_tensor(const DnnProgram *program,
                                const DnnEntryPoint *entry, DnnRole role) {
  const DnnTensor *found =
      entry ? tensor_of_role(entry->tensors, entry->n_tensors, role) : NULL;
  return found ? found
               : tensor_of_role(program->tensors, program->n_tensors, role);
}

int64_t tensor_elements(const DnnTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor->size[i];
  return n;
}

bool tensor_is_held(const DnnTensor *tensor, int rank) {
  int number = rank - tensor->first;
  return tensor->ranks == 0 || (number >= 0 && number < tensor->ranks);
}

int tensor_shards(const DnnTensor *tensor, int dim) {
  return tensor->split[dim] ? tensor->split[dim]->size : 1;
}

int tensor_shard(const DnnTensor *tensor, int dim, int rank) {
  return tensor->split[dim] ? group_index(tensor->split[dim], rank) : 0;
}

int tensor_term(const DnnTensor *tensor, int rank) {
  return tensor->terms ? group_index(tensor->terms, rank) : 0;
}

int64_t tensor_local_size(const DnnTensor *tensor, int dim) {
  int64_t shards = tensor_shards(tensor, dim);
  return (tensor->size[dim] + shards - 1) / shards;
}

int64_t tensor_local_elements(const DnnTensor *tensor) {
  int64_t n = 1;
  for (int i = 0; i < tensor->rank; i++) n *= tensor_local_size(tensor, i);
  return n;
}

int64_t tensor_local_range(const DnnTensor *tensor, int dim, int rank,
                           int64_t *out_begin) {
  int64_t each = tensor_local_size(tensor, dim);
  int64_t begin = tensor_shard(tensor, dim, rank) * each, end = begin + each;
  if (begin > tensor->size[dim]) begin = tensor->size[dim];
  if (end > tensor->size[dim]) end = tensor->size[dim];
  *out_begin = begin;
  return end - begin;
}

int64_t tensor_logical_index(const DnnTensor *tensor, int rank, int64_t local) {
  int64_t result = 0, stride = 1;
  for (int i = tensor->rank - 1; i >= 0; i--) {
    int64_t each = tensor_local_size(tensor, i), begin;
    int64_t n = tensor_local_range(tensor, i, rank, &begin), at = local % each;
    if (at >= n) return -1;
    result += (begin + at) * stride;
    stride *= tensor->size[i];
    local /= each;
  }
  return result;
}
