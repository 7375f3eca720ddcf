/*
 * random.h -- declares hashes, random numbers, 16-bit floats, and the initial
 * values of parameters.
 */
#ifndef SUPPORT_RANDOM_H
#define SUPPORT_RANDOM_H

#include "support/base.h"

/* ---- hash.c ---- */

/* Returns XXH3 of the bytes. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);
/* Mixes one more number into a hash.  The hash has less quality than that of
 * hash_bytes, but is faster; it is for tables in memory alone. */
static inline uint64_t hash_mix(uint64_t hash, uint64_t number) {
  hash = (hash ^ number) * UINT64_C(0x9e3779b97f4a7c15);
  return hash ^ hash >> 29;
}
/* Writes 128 bits of XXH3 as 32 hex digits and NUL. */
void hash_hex(const void *data, size_t n, char out_hex[33]);

typedef struct Sha256 {
  uint32_t state[8];
  uint64_t n_bytes;
  uint8_t block[64];
} Sha256;
void sha256_begin(Sha256 *sha);
void sha256_add(Sha256 *sha, const void *data, size_t n);
void sha256_end(Sha256 *sha, char out_hex[65]);

/* ---- random.c: counter-based random numbers (Philox 4x32-10, Salmon et al.
 *      2011); the same on every machine, for every plan and device ---- */

/* Computes four 32-bit words for (key, counter). */
void philox(uint64_t key, uint64_t counter_low, uint64_t counter_high,
            uint32_t out[4]);
/* Returns the key of a path under a seed: hash_bytes(path, seed). */
uint64_t random_key(uint64_t seed, const char *path);
/* Returns a number uniform on [0, 1), of 53 bits: element `index` of the stream
 * of `key`. */
double random_uniform(uint64_t key, uint64_t index);
/* Returns a standard normal number (Box-Muller on own polynomials, no libm). */
double random_normal(uint64_t key, uint64_t index);
/* Computes such numbers for n elements from `first` on, in half of the time. */
void random_normals(uint64_t key, uint64_t first, int64_t n, double *out);
/* Returns a number uniform on [0, n), n > 0. */
uint64_t random_below(uint64_t key, uint64_t index, uint64_t n);
/* Returns the key of a random number inside a graph: the seed mixed
 * (splitmix64) with (uint32_t)hash_bytes(stream, strlen(stream), 0); plain
 * arithmetic, because emitted code does it too. */
static inline uint64_t random_stream(uint64_t seed, uint32_t stream) {
  uint64_t z = seed + UINT64_C(0x9E3779B97F4A7C15) * ((uint64_t)stream + 1);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return z ^ (z >> 31);
}
/* Returns whether element `index` survives a dropout of probability p at
 * `step`.  It compares integers only, so that emitted code can compute the same
 * numbers. */
static inline bool random_keep(uint64_t key, uint64_t step, uint64_t index,
                               double p) {
  uint32_t words[4];
  philox(key, index, step, words);
  return (words[0] >> 8) >= (uint32_t)(p * 16777216.0);
}

/* Returns element `index` of the numbers of a step: uniform on [0, 1), a
 * multiple of 2^-24, or normal (random_code.h). */
float random_uniform_of_step(uint64_t key, uint64_t step, uint64_t index);
float random_normal_of_step(uint64_t key, uint64_t step, uint64_t index);

/* ---- half.c: 16-bit floats, rounded to nearest, ties to even ---- */

uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t half);
uint16_t f16_from_float(float value);
float f16_to_float(uint16_t half);

/* ---- init.c: initial values of parameters and states ---- */

typedef enum InitKind {
  INIT_zeros,
  INIT_constant,     /* a */
  INIT_normal,       /* a = standard deviation */
  INIT_trunc_normal, /* a; redrawn beyond 2 a */
  INIT_uniform,      /* on (-a, a) */
  INIT_orthogonal,   /* a = set of dims, bits by index: rows of a matrix whose
                        columns are the rest; the fewer are orthonormal */
  INIT_eye,          /* matrix of two dims: 1 where their indices are equal */
} InitKind;

typedef struct Init {
  InitKind kind;
  double a;
} Init;

/* Returns whether an element depends on its index alone; orthogonal ones do
 * not. */
bool init_is_elementwise(InitKind kind);
/* Returns element `index` (row-major in the parameter's own dim order) of the
 * tensor with this key and these sizes, which only eye reads; independent of
 * plan and device. */
double init_value(Init init, uint64_t key, const int64_t *sizes,
                  uint64_t index);
/* Fills in all elements of a tensor, of any kind; orthogonal uses scratch
 * memory. */
void init_fill(Arena *scratch, Init init, uint64_t key, const int64_t *sizes,
               int rank, double *out);

/* ---- what the runtime measures and passes price ---- */

/* Ranks that have sent nothing for so long are at rest: their next collective
 * takes as long as any. */
#define DNN_REST_NS 1000000

#endif
