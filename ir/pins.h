/*
 * pins.h -- declares Pins: what a person wrote about the distribution of a
 * model, each pin with its place, and how a Plan is made of them.
 *
 * What no pin says is open: the size of an axis that is `auto`, a setting
 * without a value, the placement of a path without a line.  A planner chooses
 * what is open; `plan_close` takes the defaults.
 */
#ifndef IR_PINS_H
#define IR_PINS_H

#include "ir/plan.h"

typedef struct PinAxis {
  Name name;
  int64_t size; /* 0: auto */
  Span span;
} PinAxis;

/* A setting that is a number, or open. */
typedef struct PinNumber {
  bool is_set;
  int64_t value;
  Span span; /* of the line; no source: the command line says it */
} PinNumber;

/* The names of a caller that stand for one dim of a generic layer. */
typedef struct DimNames {
  int n;
  const Name *names;
} DimNames;

/* A parameter or state, to which lines about the names of its layer's caller
 * reach. */
typedef struct PinTensor {
  Name path;
  const Type *type;
  const DimNames *stands_for; /* by dim */
} PinTensor;

typedef struct Pins {
  Name model;
  Span mesh_span; /* of the block; no source: there is none */
  VEC(PinAxis) axes;
  PinNumber ranks, microbatches, bucket_bytes, prefetch_bytes, memory_bytes;
  PinNumber zero;
  PlanShard zero_over;  /* no axes: the line names none */
  const char *schedule; /* its word; NULL: open */
  PlanAttention attention;
  Span attention_span;
  bool reduces_bf16;
  VEC(PlanShard) shards; /* of names; a later one wins */
  VEC(PlanPlacement)
  placements; /* of paths; a later one wins, and any of them
                 over `shards` */
  VEC(PlanPlacement) operators;
  Map *saving; /* path of a forward value -> PlanSaving; NULL: none */
  /* The model, which pins are about. */
  Name batch_dim; /* or NULL */
  int64_t batch;  /* its size in training; 0: there is no training */
  VEC(PinTensor) tensors;
} Pins;

/* The axis of this name, or NULL. */
const PinAxis *pins_find_axis(const Pins *pins, Name name);
/* The mesh with all sizes: `auto` is what the other axes leave of the ranks;
 * axes of size 1 are left out.  False after a message: no size follows, or the
 * number of ranks differs. */
bool pins_close_mesh(Module *module, const Pins *pins, Mesh *out);
/* The same pin, or line, on a mesh that has no axes of size 1. */
PlanShard pins_close_shard(const Mesh *mesh, const PlanShard *shard);
PlanPlacement pins_close_line(Arena *arena, const Mesh *mesh,
                              const PlanPlacement *line);
/* The level of ZeRO; 0 too where its axes have one rank, which holds all. */
int pins_zero_level(const Pins *pins, const Mesh *mesh);
/* Makes a plan without a search, in the arena of the module: the batch takes
 * every axis that no `shard` line names, there is one micro-batch, nothing is
 * recomputed, buckets have the default size.  NULL after a message. */
Plan *plan_close(Module *module, const Pins *pins);

#endif
