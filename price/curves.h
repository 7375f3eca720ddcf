/*
 * curves.h -- declares curves: what kernels and collectives took on a machine,
 * by size, as `dnnc tune` measures them.  They stand for the constants of
 * rates.def.
 */
#ifndef PRICE_CURVES_H
#define PRICE_CURVES_H

#include "ir/cluster/cluster.h"
#include "ir/work.h"

/* The measurement of one kernel: its work (ir/work.h) and how long it took a
 * rank with so many cores, what starting it takes included. */
typedef struct KernelPoint {
  Op op;
  DType dtype;
  int cores;
  int64_t batch, m, n, k;
  double flops; /* operations without those on padding */
  Bytes bytes;  /* read and written */
  Ps ps;
} KernelPoint;

/* The measurement of one collective of a group of so many ranks on so many
 * machines, of which each rank sends `bytes`, while all groups of this size run
 * it. */
typedef struct LinkPoint {
  Op op;
  int ranks, nodes;
  Bytes bytes;
  Ps ps;     /* time after DNN_REST_NS without a collective */
  Ps beside; /* time while the ranks compute; 0 means not known */
  /* The part of the speed of computation that is lost while the transfer runs,
   * in thousandths: with 250, kernels run at 75 %. */
  int64_t taken;
  Ps following; /* time right after another one; 0 means not known */
} LinkPoint;

typedef struct Curves {
  int n_kernels, n_links;
  const KernelPoint *kernels;
  const LinkPoint *links;
} Curves;

/* The rows of curves.def: what a block `measured` of a cluster file may name.
 */
typedef enum CurveKind {
#define CURVE(name, n_older, header) CURVE_##name,
#include "price/curves.def"
  N_CURVES
} CurveKind;

/* Returns the curve of this name.  Returns N_CURVES if there is none. */
CurveKind curve_find(const char *name);
/* Adds the points of a source; false after mistakes, which become diags. */
bool curves_read(Arena *arena, Diags *diags, const Source *source,
                 CurveKind kind, Curves *out);

/* Returns the time of a kernel of this work, from those of the same operator
 * that are like it.  Curves of another number of cores are scaled by it.
 * Returns -1 if there are none. */
Ps curves_kernel(const Curves *curves, Op op, const Work *work, int cores);

/* The places of the ranks of a process group. */
typedef enum LinkReach {
  REACH_inside, /* within one machine */
  REACH_between /* machines */
} LinkReach;

/* Finds the collective that was measured beside computation and is most like
 * this one: first by operator, then by reach, number of ranks and size. Returns
 * false if none was. */
bool curves_beside(const Curves *curves, Op op, LinkReach reach, int ranks,
                   Bytes bytes, LinkPoint *out);

/* Finds the time of a collective between those measured, of the group whose
 * size is nearest.  Returns false if none was. */
bool curves_link(const Curves *curves, Op op, LinkReach reach, int ranks,
                 Bytes bytes, LinkPoint *out);

#endif
