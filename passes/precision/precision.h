/*
 * precision.h -- declares what the two files of `precision` share: precision.c
 * decides which values are rounded, precision_build.c builds the graph with
 * these roundings.
 */
#ifndef PASSES_PRECISION_H
#define PASSES_PRECISION_H

#include "passes/rewrite.h"

/* Facts about a value, and the decision. */
typedef struct Facts {
  bool is_constant;   /* depends on constants and indices alone */
  bool is_statistic;  /* depends on sums alone */
  bool stays_f32;     /* all readers see f32 */
  bool is_contracted; /* a contraction reads it */
  bool is_gradient;   /* it is the gradient of a parameter, perhaps moved */
  bool is_stacked;    /* a scan stacks it rounded */
  /* The input of a body and its carry may be stored in 16 bits: contractions
   * alone read it. */
  bool is_16bit;
  bool crosses; /* the backward pass reads what the forward pass made */
  /* An operator that moves elements reads it, and its result is rounded. */
  bool is_moved_rounded;
  /* An input all of whose readers are casts that the program wrote. */
  bool is_typed;
  int n_readers;
  Name reader;   /* path of the one there is */
  DType rounded; /* f32: not rounded */
  /* Values in the new graph; VALUE_NONE means not made yet. */
  Value in_f32, in_16bit;
} Facts;

/* One graph, or the body of one scan. */
typedef struct Rounding {
  const Precision *precision;
  const Graph *from;
  Rewrite rewrite;
  Facts **facts; /* [node][result] */
  bool *is_live, *is_listed;
  struct Rounding **bodies; /* [node], of scans */
  /* For the body of a scan: the rounding of the graph in which the scan stands,
   * the id of the scan there, and the scan.  NULL means that this is no body.
   */
  struct Rounding *outer;
  int scan_id;
  const Node *scan;
} Rounding;

Facts *precision_facts(const Rounding *r, Value value);
/* Returns the dtype of a value in the old graph. */
DType precision_dtype(const Rounding *r, Value value);
/* Reads 16-bit values and sums in f32. */
bool precision_is_contraction(const Rounding *r, int id);
/* Moves elements and computes nothing, so rounding commutes with it. */
bool precision_is_move(Op op);
/* Returns whether a node is a cast to f32 that the program wrote: its value
 * stays f32. */
bool precision_is_pin(const Graph *graph, const Node *node);

/* Returns the new graph, once everything is decided. */
Graph *precision_build(Rounding *r);

#endif
