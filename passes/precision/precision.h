/*
 * precision.h -- what the two halves of `precision` share: precision.c decides
 * which values are rounded, precision_build.c builds the graph that does it.
 */
#ifndef PASSES_PRECISION_H
#define PASSES_PRECISION_H

#include "passes/rewrite.h"

/* What is known of a value before anything is decided, and what was. */
typedef struct Facts {
  bool is_made;       /* from numbers and positions alone */
  bool is_statistic;  /* from sums alone */
  bool is_kept;       /* f32 for all readers */
  bool is_multiplied; /* a product reads it */
  bool is_gradient;   /* moved at most, it is the gradient of a parameter */
  bool is_stacked;    /* a scan keeps it rounded for all positions */
  bool is_short;      /* of a body's input and its carry: only multiplied */
  bool crosses;       /* the backward pass reads what the forward pass made */
  bool moves_rounded; /* a move reads it whose result is rounded */
  bool is_typed;      /* an input whose readers are all pins */
  int n_readers;
  Name reader;        /* path of the one there is */
  DType rounded;      /* f32: not rounded */
  Value wide, narrow; /* in the new graph; VALUE_NONE: not made yet */
} Facts;

/* One graph, or the body of one scan. */
typedef struct Rounding {
  const Precision *precision;
  const Graph *from;
  Rewrite rewrite;
  Facts **facts; /* [node][result] */
  bool *is_live, *is_listed;
  struct Rounding **bodies; /* [node], of scans */
  struct Rounding *outer;   /* of a body: where its scan stands, */
  int scan_id;              /* as this node, */
  const Node *scan;         /* this one; NULL: no body */
} Rounding;

Facts *precision_facts(const Rounding *r, Value value);
DType precision_dtype(const Rounding *r, Value value); /* in the old graph */
/* Reads short values and sums in f32. */
bool precision_is_product(const Rounding *r, int id);
/* Computes nothing: a rounded value may be moved as it is. */
bool precision_is_move(Op op);
/* A cast to f32 that the program wrote: its value stays f32. */
bool precision_is_pin(const Graph *graph, const Node *node);
bool precision_is_attention(Op op);

/* precision_build.c: the new graph, once everything is decided. */
Graph *precision_build(Rounding *r);

#endif
