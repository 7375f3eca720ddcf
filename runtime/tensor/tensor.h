/*
 * tensor.h -- dtypes, numbers in their bytes, and the tensors of a program:
 * what they hold and which part of one a rank holds.
 */
#ifndef RUNTIME_TENSOR_TENSOR_H
#define RUNTIME_TENSOR_TENSOR_H

#include "runtime/program.h"
#include "support/support.h"
#include "support/tables.h"

#include <string.h>

/* ---- dtype.c ---- */

typedef enum DnnDtypeIndex {
#define DTYPE(name, ...) DNN_##name,
#include "support/dtype.def"
  N_DNN_DTYPES
} DnnDtypeIndex;

int64_t dtype_bytes(DnnDtype dtype);
/* Returns the name of a dtype, such as "f32". */
const char *dtype_label(DnnDtype dtype);
/* Returns whether a dtype is f16, bf16, f32 or f64; f8 is none of them. */
bool dtype_is_float(DnnDtype dtype);
/* Returns the smallest and the largest finite value. */
double dtype_least(DnnDtype dtype);
double dtype_greatest(DnnDtype dtype);
/* Returns the name of a dtype in npy files, such as "<f4".  Returns NULL if it
 * has none. */
const char *dtype_npy(DnnDtype dtype);
/* Returns the name of a dtype in safetensors files, such as "F32". */
const char *dtype_safetensors(DnnDtype dtype);
bool dtype_of_safetensors(const char *name, DnnDtype *out);

/* The bits of a float: sign, exponent, fraction. */
typedef struct FloatFormat {
  int bytes;
  int fraction, bias; /* bits of the fraction, bias of the exponent */
  uint64_t exponent_mask, fraction_mask;
} FloatFormat;

/* Returns the format of a dtype that dtype_is_float. */
FloatFormat dtype_float_format(DnnDtype dtype);

typedef enum FloatKind { FLOAT_finite, FLOAT_infinite, FLOAT_nan } FloatKind;

/* Returns the kind of a float by its bits alone, because a rank treats
 * denormals as zero. */
static inline FloatKind float_kind(const FloatFormat *format, const void *at) {
  uint64_t bits = 0;
  memcpy(&bits, at, (size_t)format->bytes); /* little endian */
  if ((bits & format->exponent_mask) != format->exponent_mask)
    return FLOAT_finite;
  return bits & format->fraction_mask ? FLOAT_nan : FLOAT_infinite;
}

/* ---- cast.c ---- */

/* Returns whether an integer dtype holds exactly this value; a float holds any.
 */
bool number_fits(DnnDtype dtype, double value);
/* Returns the value at an address, of any dtype but f8. */
double number_load(DnnDtype dtype, const void *at);
/* Stores a value in any dtype but f8: integers are cut, floats rounded to
 * nearest, ties to even. */
void number_store(DnnDtype dtype, void *to, double value);
/* Stores `n` of them, one after the other. */
void numbers_store(DnnDtype dtype, void *to, const double *values, int64_t n);
/* Casts floats of one dtype to another: to nearest, ties to even.  Both are as
 * dtype_is_float says. */
void floats_cast(DnnDtype from, const void *in, DnnDtype to, void *out,
                 int64_t n);

/* ---- tensor.c: tensors of a program ---- */

/* Returns the program of a rank; of a rank beyond the world that of the last.
 */
const DnnProgram *bundle_program(const DnnBundle *bundle, int rank);
const DnnEntryPoint *program_entry_point(const DnnProgram *program,
                                         EntryPointId id);
/* First tensor of this role in the entry point, then of those that persist here
 * in the program, or NULL. */
const DnnTensor *program_tensor(const DnnProgram *program,
                                const DnnEntryPoint *entry, DnnRole role);
/* Returns the number of elements of the logical tensor.  The next function
 * returns how many of them this rank holds, padding included. */
int64_t tensor_elements(const DnnTensor *tensor);
int64_t tensor_local_elements(const DnnTensor *tensor);
/* Returns whether a rank holds a shard of a persistent tensor; what is asked of
 * a shard below is asked of such a rank. */
bool tensor_is_held(const DnnTensor *tensor, int rank);
/* Returns how many shards a dim has, which of them a rank holds, and how many
 * elements a shard has (with padding). */
int tensor_shards(const DnnTensor *tensor, int dim);
int tensor_shard(const DnnTensor *tensor, int dim, int rank);
/* Returns the number of the term that a rank holds of a sum, 0 where it is no
 * sum. */
int tensor_term(const DnnTensor *tensor, int rank);
int64_t tensor_local_size(const DnnTensor *tensor, int dim);
/* Finds the elements [*begin, *begin + result) of dim `dim` on this rank. */
int64_t tensor_local_range(const DnnTensor *tensor, int dim, int rank,
                           int64_t *out_begin);

/* Returns the index in the logical tensor of local element `local`.  Returns -1
 * for padding. */
int64_t tensor_logical_index(const DnnTensor *tensor, int rank, int64_t local);

/* ---- runs.c: what a rank holds of a logical tensor ---- */

/* `n` elements that lie one after the other both in the logical tensor, from
 * element `logical` on, and in the shard of a rank, from its element `local`
 * on. */
typedef struct TensorRun {
  int64_t logical, local, n;
} TensorRun;

/* Finds the first run of `rank`, any rank, among the logical elements [from,
 * end).  Returns false if it holds none of them. */
bool tensor_next_run(const DnnTensor *tensor, int rank, int64_t from,
                     int64_t end, TensorRun *out);
/* Returns whether the shard of this rank, if it has one, is longer than what it
 * holds. */
bool tensor_has_padding(const DnnTensor *tensor, int rank);
/* Returns whether two ranks are replicas of one shard. */
bool tensor_same_shard(const DnnTensor *tensor, int a, int b);
/* Returns whether a rank, any rank, is the owner of a shard: the lowest one
 * that holds it. */
bool tensor_is_owner(const DnnTensor *tensor, int rank);
/* Lists the owners of all shards, ascending, in `out`, which has room for
 * `world`.  Returns how many shards there are. */
int tensor_owners(const DnnTensor *tensor, int world, int *out);

#endif
