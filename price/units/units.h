/*
 * units.h -- declares the units of a training step: what is placed together,
 * which is a product with its gradients or a kernel of other operators with its
 * own, and the values that go from one to another.
 *
 *     %7 = dot %3, %4 "mlp.dot"            unit 5: B T C F
 *     %31 = dot ... "grad.mlp.dot"         the same unit
 *     %8 = fused %7 "mlp.gelu"             unit 6: B T F; edge 5 -> 6 of %7
 *
 * The graph is the final one of a single rank, whose nodes are kernels.
 */
#ifndef PRICE_UNITS_UNITS_H
#define PRICE_UNITS_UNITS_H

#include "ir/model/repeat.h"
#include "ir/plan/graph_paths.h"
#include "price/units/kernel_dims.h"

typedef struct UnitKernel {
  int id; /* of the graph */
  const KernelDims *dims;
  int8_t loop[MOST_LOOP_DIMS]; /* loop dim of the unit, by that of the kernel */
  bool is_light; /* so little work that it counts for nothing beside cuts */
} UnitKernel;

typedef struct UnitValue {
  Value value;
  DimMap dims;     /* of the unit */
  LoopSet partial; /* it is partial where these are sharded */
} UnitValue;

/* A value that ranks reduce before the unit reads it on. */
typedef struct UnitSum {
  Value value; /* of the graph; result -1: inside of that kernel */
  LoopSet over;
  const Type *type;
  DimMap dims; /* of the unit */
  bool is_backward;
  int readers;        /* units that read the value, this one included */
  int kernel, before; /* the sum is before or inside of `kernel`, and behind
                         `before`, which may be the same */
  bool is_cut;        /* no kernel of its phase can run meanwhile, but light
                         ones */
} UnitSum;

/* A value of the forward pass that the backward pass reads. */
typedef struct UnitSaved {
  Value value; /* of the graph */
  const Type *type;
  DimMap dims;
  bool of_params;    /* it depends on parameters alone */
  bool leaves_block; /* another block reads it, too */
} UnitSaved;

typedef struct PlanUnit {
  int n_dims;
  LoopDim dims[MOST_LOOP_DIMS];
  LoopSet batch; /* those that are the batch dim */
  VEC(UnitKernel) kernels;
  VEC(UnitValue) values; /* operands and results of kernels */
  VEC(UnitSum) sums;
  VEC(UnitSaved) saved;
  int block;     /* equal for units of one block of a repeat; -1: in none */
  int64_t times; /* units of the program that it stands for */
} PlanUnit;

/* A trained parameter, placed by the first unit that reads it. */
typedef struct UnitParam {
  Name path;
  const Type *type;
  int unit;
  DimMap dims;
  int cast;      /* kernel of `unit` that does nothing but cast it; -1: none */
  DType read_as; /* dtype of its readers */
  int passes;    /* that read it: 1, or 2 with the backward pass */
  int64_t state; /* bytes of it and of its optimizer state */
  int64_t updated; /* bytes that its update reads and writes */
} UnitParam;

/* A value that one unit makes and another one reads. */
typedef struct UnitEdge {
  int from, to;
  Value value;
  const Type *type;
  DimMap from_dims, to_dims;
  LoopSet partial; /* of `from`: it is partial where these are sharded */
  bool is_backward;
  bool is_cut;    /* no kernel of its phase can run while it is sent, but light
                     ones */
  int readers;    /* units that read the value, without `from` */
  int joined;     /* partial values that `to` may add before it sums once */
  bool from_sums; /* `from` reads it, too, and sums it if it is partial */
  bool only_weights; /* no kernel of `to` reads it but weight gradients, which
                        may be placed otherwise */
  int64_t times;     /* edges of the program that it stands for */
} UnitEdge;

/* A backward pass in two parts: what is in the head ends before the value of
 * `edge` is sent, what is in the rest begins behind it. */
typedef enum UnitSide { SIDE_head, SIDE_rest, SIDE_both } UnitSide;
typedef struct UnitSplit {
  int edge;
  const UnitSide *units; /* by unit */
  const bool *is_head;   /* by edge: its value is sent in the head */
} UnitSplit;

/* The runs of equal blocks of the program.  The graph has the first blocks of
 * each and the last, `kept` in all if there are more.  Block STANDS_FOR_MANY
 * stands for those that are left out. */
typedef struct UnitRepeats {
  int n, kept;
  const Repeat *repeats;
} UnitRepeats;
enum { KEPT_BLOCKS = 6, STANDS_FOR_MANY = 3 };

typedef struct Units {
  const Graph *graph;
  Name batch_dim; /* or NULL */
  const UnitRepeats *repeats;
  VEC(PlanUnit *) units;
  VEC(UnitParam) params;
  VEC(UnitEdge) edges;
  VEC(UnitSplit) splits;
} Units;

/* Returns NULL, with a reason, if the graph has a kernel that no unit can
 * have. */
Units *units_of(Arena *arena, const Graph *kernels, Name batch_dim,
                const UnitRepeats *repeats, const char **out_reason);
/* Returns which scan keeps units from being divided among stages.  Returns NULL
 * if there is none. */
const char *units_loop(Arena *arena, const Units *units);
/* Returns the value whose bytes a value has: of a view, that which it views. */
Value units_stored_value(const Graph *graph, Value value);

/* ---- unit_cuts.c ---- */

/* Fills in `is_light`, `is_cut` and `splits`. */
void units_find_cuts(Arena *arena, Units *units);

/* Returns which blocks of the program block `index` of a repeat stands for. */
PathRange unit_blocks(const UnitRepeats *repeats, const Repeat *repeat,
                      int64_t index);

#endif
