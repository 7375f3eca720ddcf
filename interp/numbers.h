/*
 * numbers.h -- the number systems of the interpreter, and what a program that
 * plays ranks does with arrays of numbers: copy, reduce, compare, fill.
 *
 * Integers and bools are doubles in every system.  Floats are doubles in
 * INTERP_f64 and INTERP_f32 and ExactNumber in INTERP_exact (exact.h).  Arrays
 * are plain memory of the caller, n elements of numbers_size_bytes each; a
 * dtype says which kind of element an array has.
 */
#ifndef INTERP_NUMBERS_H
#define INTERP_NUMBERS_H

#include "interp/interp.h"
#include "ir/place/mesh_place.h"

typedef struct InterpCall InterpCall; /* internal.h */
typedef void InterpKernel(const InterpCall *call);

typedef struct Numbers {
  InterpNumber number;
  /* INTERP_exact computes modulo 2^61 - 31, not 2^61 - 1. */
  bool has_second_prime;
  uint64_t seed; /* seed of the hashes of INTERP_exact, else unused */
  /* Gives the function for a call in place of that of its row, or NULL: other
   * arithmetic over the cells of INTERP_exact, such as that of tests/count. */
  InterpKernel *(*kernel)(const InterpCall *call);
} Numbers;

/* ---- arrays and tensors ---- */

/* Returns whether the elements are ExactNumber: floats of INTERP_exact. */
bool numbers_are_exact(const Numbers *numbers, DType dtype);
/* Returns the bytes of one element: a multiple of 8. */
size_t numbers_size_bytes(const Numbers *numbers, DType dtype);
/* Returns a tensor over type_elements(type) elements, which stay the caller's.
 */
Tensor numbers_tensor(const Numbers *numbers, const Type *type, void *elements);
/* Returns a tensor of zeros in the arena. */
Tensor numbers_create(const Numbers *numbers, Arena *arena, const Type *type);
/* Returns the elements of a tensor, of either kind. */
void *tensor_array(const Tensor *tensor);
/* Returns the element `index` of an array. */
void *numbers_at(const Numbers *numbers, DType dtype, void *array,
                 int64_t index);

/* Copies n elements; the arrays do not overlap. */
void numbers_copy(const Numbers *numbers, DType dtype, void *to,
                  const void *from, int64_t n);
/* Fills an array with n copies of the number that is nearest to `value`.  Exact
 * mode takes the fraction that a constant of this value is (exact_constant). */
void numbers_fill(const Numbers *numbers, DType dtype, void *to, int64_t n,
                  double value);
/* Makes numbers from n doubles, for inputs that a caller has chosen. */
void numbers_from_doubles(const Numbers *numbers, DType dtype, void *to,
                          const double *from, int64_t n);
/* Fills memory whose contents no correct program reads: other numbers for each
 * seed, never NaN, integers that their dtype holds. */
void numbers_poison(const Numbers *numbers, DType dtype, void *to, int64_t n,
                    uint64_t seed);

/* Fills in the elements first_index .. first_index + n - 1, in the row-major
 * order of its logical type, of the random value with this path; any part of a
 * value can be made anywhere.  Floats are uniform on [low, high) (in exact mode
 * any residue), integers are in low .. high - 1.  The numbers depend on
 * numbers->seed. */
void numbers_random(const Numbers *numbers, DType dtype, const char *path,
                    int64_t first_index, double low, double high, void *to,
                    int64_t n);

/* Computes into = kind(into, other), as a collective reduces what two ranks
 * hold. */
void numbers_reduce(const Numbers *numbers, DType dtype, ReduceKind kind,
                    void *into, const void *other, int64_t n);

/* ---- comparing ---- */

typedef struct NumbersDifference {
  /* The largest difference relative to `largest`; in exact mode, and of
   * integers, 0 or 1.  Infinite where one side alone is NaN. */
  double error;
  int64_t index; /* place of it (exact: the first one); -1 if error is 0 */
} NumbersDifference;

/* Returns the largest finite magnitude of n elements, at least `least`; in
 * exact mode `least`. */
double numbers_largest(const Numbers *numbers, DType dtype, const void *array,
                       int64_t n, double least);
/* Compares two arrays.  Floats: `largest` is the largest element of the whole
 * tensor (numbers_largest).  Exact: by E where either value descends from a
 * log, else by v.  Integers and bools: equal or not. */
NumbersDifference numbers_compare(const Numbers *numbers, DType dtype,
                                  const void *a, const void *b, int64_t n,
                                  double largest);

/* ---- interp.c ---- */

/* Interprets a graph in any number system; interp_run is that of seed 0. */
void interp_run_in(const Graph *graph, const Numbers *numbers, Arena *arena,
                   const Tensor *inputs, Tensor *out_outputs, Tensor *values);
/* Computes one node of a graph on operands of any local sizes into results
 * whose types and memory the caller gives (zeroed first).  The operands' types
 * need not be those of the graph; those of a region's body must be.  `place` is
 * the one whose shards the tensors are, and their types keep the splits
 * (type_local); NULL means that they are logical.  Scratch memory is taken
 * beside an arena. */
void interp_node(const Graph *graph, const Node *node, const Numbers *numbers,
                 const MeshPlace *place, const Tensor *inputs, Tensor *results,
                 const Arena *beside);

#endif
