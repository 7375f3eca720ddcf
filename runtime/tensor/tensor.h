/*
 * tensor.h -- dtypes, numbers in their bytes, and the tensors of a program:
 * what they hold and which part of one a rank holds.
 */
#ifndef RUNTIME_TENSOR_TENSOR_H
#define RUNTIME_TENSOR_TENSOR_H

#include "runtime/program.h"
#include "support/support.h"

/* ---- dtype.c ---- */

typedef enum DnnDtypeIndex {
#define DTYPE(name, ...) DNN_##name,
#include "support/dtype.def"
  N_DNN_DTYPES
} DnnDtypeIndex;

int64_t dtype_bytes(DnnDtype dtype);
const char *dtype_label(DnnDtype dtype); /* "f32" */
/* It is whole and in the range of an integer dtype; any fits a real one. */
bool number_fits(DnnDtype dtype, double value);

/* ---- cast.c ---- */

bool dtype_is_real(DnnDtype dtype); /* f16 bf16 f32 f64 */
/* The bytes of a value in any dtype but f8: integers are cut, reals rounded to
 * nearest, ties to even. */
void number_store(DnnDtype dtype, void *to, double value);
/* Real numbers of one dtype into another: to nearest, ties to even.  Both are
 * as dtype_is_real says. */
void reals_cast(DnnDtype from, const void *in, DnnDtype to, void *out,
                int64_t n);

/* ---- tensor.c: tensors of a program ---- */

const DnnEntryPoint *program_entry_point(const DnnProgram *program,
                                         const char *name);
/* First tensor of this role in the code, then in the program, or NULL. */
const DnnTensor *program_tensor(const DnnProgram *program,
                                const DnnEntryPoint *code, DnnRole role);
/* Number of elements, and of those that this rank holds (with padding). */
int64_t tensor_elements(const DnnTensor *tensor);
int64_t tensor_local_elements(const DnnTensor *tensor);
/* Elements [*begin, *begin + result) of dim `dim` on this rank. */
int64_t tensor_local_range(const DnnTensor *tensor, int dim, int rank,
                           int64_t *out_begin);

/* Index in the whole tensor of local element `local`, or -1 for padding. */
int64_t tensor_whole_index(const DnnTensor *tensor, int rank, int64_t local);

#endif
