/*
 * space.h -- declares the space of the first search: meshes of the factors of
 * the cluster, lines about names, ZeRO, micro-batches, attention, remat of
 * repeats, sizes of buckets and of prefetched parameters.
 */
#ifndef PLANNER_SPACE_H
#define PLANNER_SPACE_H

#include "planner/search.h"

enum {
  MOST_DIMS = 24,
  MOST_SETS = 16,
  MOST_REMATS = 4,
  MOST_LAYERS = 8,
  MOST_FACTORS = 40,
  MOST_OPEN_AXES = 3,
  N_SIZES = 5 /* of buckets and of prefetched parameters; 0: the default */
};

typedef uint32_t DimSet; /* a bit for each dim of the space */

typedef struct SpaceDim {
  Name name;
  int64_t size, elements; /* elements: of all parameters that have it */
  bool is_of_data;        /* a data field has it */
  bool is_contracted;     /* by a product with a parameter */
  bool is_of_experts;     /* tokens are routed to its elements */
} SpaceDim;

typedef struct Space {
  const SearchInput *input;
  int n_dims;
  SpaceDim dims[MOST_DIMS];
  /* Dims that one axis may shard together, as no parameter has two of them. */
  int n_sets;
  DimSet sets[MOST_SETS];
  int n_remats;
  const char *remats[MOST_REMATS]; /* names of repeats */
  int n_layers;
  const char *layers[MOST_LAYERS]; /* names of other layers */
  int n_factors;
  int factors[MOST_FACTORS]; /* primes, whose product is the ranks */
  bool has_attention, has_sequence;
  bool has_border; /* ranks are in several groups of the cluster */
} Space;

Space space_of(const SearchInput *input);
/* Returns the size of an axis of a written mesh: one that is open takes the
 * ranks that the others leave. */
int64_t pinned_axis_size(const Pins *pins, int64_t ranks, int axis);
/* Returns the written mesh without axes of size 1.  Returns NULL if nobody
 * wrote one, or if units cannot be assigned over so many axes. */
const Mesh *pinned_mesh(Arena *arena, const Pins *pins, int64_t ranks);
/* The restrictions in words. */
/* `units`: of the plans that place unit by unit; NULL: there are none. */
const char *space_words(const Space *space, const char *units);

#endif
