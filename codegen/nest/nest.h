/*
 * nest.h -- declares loop nests, the form of a kernel between a node and its C
 * or CUDA text.
 *
 * A nest has `outer` loops, whose points are independent (parallel), and a list
 * of stages that every outer point runs in order, or in the order of `steps`,
 * which may repeat them.  A stage has `inner` loops of its own and statements;
 * a reduction over the inner loops of a stage is a scalar of the outer point
 * that later stages read.  So
 *
 *     softmax over S of x[T, S]
 *       outer T
 *       stage 0: inner S: m = max x[T, S]
 *       stage 1: inner S: d = sum exp(x[T, S] - m)
 *       stage 2: inner S: y[T, S] = exp(x[T, S] - m) / d
 *
 * Pointwise chains, row and column reductions, windows, gathers and the naive
 * matmul all have this form.  nest_print writes it as text.
 */
#ifndef CODEGEN_NEST_H
#define CODEGEN_NEST_H

#include "ir/ir.h"

#define MAX_LOOPS 12

typedef struct NestLoop {
  Name dim; /* name for printing */
  int64_t extent;
} NestLoop;

typedef enum NestExprKind {
  NEST_const,   /* number */
  NEST_loop,    /* value of loop `index` as i64 */
  NEST_load,    /* element of buffer `index` at `at` */
  NEST_pw,      /* pointwise op of args, computed in `dtype` */
  NEST_cast,    /* args[0] to dtype */
  NEST_reduced, /* result of reduction `index` of an earlier stage */
  NEST_number,  /* run-time number `index` of the launch (i64) */
  NEST_random,  /* number of `op` of the key random_stream(args[0]: seed,
                   index), args[1]: step, args[2]: element; random_keep: by
                   `number`; args are i64 */
} NestExprKind;

/* A term of an index that is only known at run time: `expr` (i64), clamped to
 * [0, limit), times stride. */
typedef struct NestTerm {
  int expr;
  int64_t stride, limit;
} NestTerm;

/* Holds iff 0 <= base + sum stride * loop < limit. */
typedef struct NestGuard {
  int64_t base, stride[MAX_LOOPS], limit;
} NestGuard;

/* base + sum stride[l] * loop l + sum over dynamic of stride * expr, in
 * elements. */
typedef struct NestIndex {
  int64_t base;
  /* Strides by loop: outer loops first, then inner ones. */
  int64_t stride[MAX_LOOPS];
  int n_dynamic;
  NestTerm dynamic[4];
  /* Bounds of a window: the element is inside iff every guard holds; outside a
   * load gives `outside` and a store does nothing. */
  int n_guards;
  NestGuard guards[3];
  double outside;
} NestIndex;

typedef struct NestExpr {
  NestExprKind kind;
  DType dtype;
  Op op;
  int index;
  double number;
  int args[3];
  NestIndex *at;
} NestExpr;

typedef enum NestStmtKind {
  NEST_store,      /* buffer[at] = expr */
  NEST_accumulate, /* buffer[at] += expr: the stage's inner loops are run in
                      order by one thread for each outer point */
  NEST_reduce,     /* reduction `target`: sum, max, min, argmax over inner */
} NestStmtKind;

typedef enum NestReduce {
#define REDUCTION(name, ...)      NEST_##name,
#define LOOP_REDUCTION(name, ...) NEST_##name,
#include "support/reductions.def"
  N_NEST_REDUCTIONS
} NestReduce;

/* A row of reductions.def. */
typedef struct NestReduction {
  const char *name, *clause;
  char compare;
  double identity;
} NestReduction;
const NestReduction *nest_reduction(NestReduce reduce);

typedef struct NestStmt {
  NestStmtKind kind;
  int target; /* buffer or reduction */
  NestReduce reduce;
  /* Dtype of the reduction: f32 sums are f32, scalars of losses f64. */
  DType dtype;
  int expr; /* root */
  NestIndex *at;
} NestStmt;

typedef struct NestStage {
  int n_inner;
  NestLoop inner[MAX_LOOPS];
  VEC(NestStmt) stmts;
} NestStage;

typedef struct NestBuffer {
  DType dtype;
  bool is_written, is_read;
  int64_t elements;
} NestBuffer;

/* Run-time number `i` of the launch: the index of the shard that this rank or
 * micro-batch has along `split`, times `factor`. */
typedef struct NestNumber {
  AxisList split;
  int64_t factor;
} NestNumber;

typedef struct Nest {
  Name name; /* "fused_3f2a" by content */
  int n_outer;
  NestLoop outer[MAX_LOOPS];
  VEC(NestStage) stages;
  VEC(int) steps;      /* stages as they run; empty means each once, in order */
  VEC(NestExpr) exprs; /* arguments precede users */
  VEC(NestBuffer) buffers; /* inputs of the node, then results */
  int n_reductions;
  int n_numbers;
  NestNumber numbers[MAX_LOOPS];
} Nest;

/* Expressions are shared by stages; loops n_outer.. in one mean the inner loops
 * of the stage that uses it.  Operands of NEST_pw have the dtype in which it is
 * computed (that of the result, but for comparisons that of the operands and
 * for the condition of a select bool); floats of 8 and 16 bits are loaded,
 * stored and cast only.
 *
 * Lowers a node (fused or any structured operator with a loop nest) on the
 * local sizes of its mesh.  NULL where only an override exists (attention). */
Nest *nest_lower(Module *module, const Graph *graph, int id);
int nest_step_count(const Nest *nest);
int nest_step_stage(const Nest *nest, int step);
void nest_print(Text *out, const Nest *nest);
/* Returns the kernel key of a nest: names of the kernel and of dims do not
 * count. */
uint64_t nest_hash(const Nest *nest, Arena *scratch);

#endif
