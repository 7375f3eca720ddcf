/*
 * target.h -- declares the properties of a back end that passes ask for, as
 * data and callbacks.  Codegen fills it in; passes name no back end.
 */
#ifndef IR_TARGET_H
#define IR_TARGET_H

#include "ir/ir.h"

typedef struct Target Target;
struct Target {
  const char *name;    /* "cpu", "cuda" */
  int alignment_bytes; /* alignment of every buffer in the arena */
  /* Returns whether the operator has a kernel of its own on this target; else
   * `decompose` writes it in simpler ones. */
  bool (*has_kernel)(const Target *target, const Graph *graph, int id);
  /* Returns the scratch memory of libraries that the kernel of this node needs,
   * in the arena. */
  int64_t (*workspace_bytes)(const Target *target, const Graph *graph, int id);
  /* May a fused kernel hold these two nodes (on top of the pass's own rules)?
   */
  int max_fused_nodes, max_fused_inputs;
  /* Its transport has the queues of DnnQueue (runtime/program.h) once for every
   * process group; else once for all groups together, in one order on all
   * ranks. */
  bool has_queues_per_group;
  /* Returns the dtype in which its transport reduces values of this one between
   * ranks: partition casts to it before and back after.  NULL means that values
   * are always reduced in their own dtype. */
  DType (*reduce_dtype)(DType dtype, ReduceKind kind);
  /* f64 in loops that memory sets the pace of costs nothing. */
  bool has_free_f64;
  /* Returns the scratch memory that the libraries of this machine need for a
   * DnnGemm and a DnnConv of runtime/program.h.  Set by the driver, which sees
   * the runtime.  NULL means none. */
  int64_t (*gemm_scratch)(const Target *target, const void *gemm);
  int64_t (*conv_scratch)(const Target *target, const void *conv);
  void *user;
};

#endif
