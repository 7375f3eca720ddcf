/*
 * emit_nest.h -- the state of emitting one loop nest as C, shared by emit.c,
 * emit_expr.c, emit_reduce.c and choose.c.
 */
#ifndef CODEGEN_C_EMIT_NEST_H
#define CODEGEN_C_EMIT_NEST_H

#include "codegen/c/emit.h"

/* A stage that is split has this many parts on any machine, so that the order
 * of additions does not depend on the number of threads. */
#define C_PARTS 16
/* Columns whose sums stay in registers or L1, at most. */
#define C_MOST_COLUMNS 96

typedef struct CEmit {
  Module *module;
  Text *out;
  const Nest *nest;
  Arena *arena;
  bool is_column;     /* the shape "columns", see emit.c */
  bool splits_stages; /* units run in order, stages are split into parts */
  bool is_parallel;
  int64_t chunk, n_chunks, n_units;
  bool takes_sizes;   /* sizes are run-time numbers, else constants */
  VEC(int64_t) sizes; /* the sizes for c_size */
  /* The stage that is being emitted; the fields from here on describe it. */
  const NestStage *stage;
  bool *needed; /* whether an expression is needed, by expression */
  /* Number of loops of the order that must be open, by expression. */
  int *depths;
  int n_order; /* loops from the outside in; the last carries the vector */
  int order[MAX_LOOPS];
  int64_t block; /* iterations of a block, as c_sum_block returns them */
  int indent;
} CEmit;

/* ---- choose.c ---- */

/* Chooses the shape of the kernel, the chunk, and whether units or the parts of
 * stages run in parallel. */
void c_choose(CEmit *emit);
/* Returns whether the kernel is as fast where its sizes are run-time numbers.
 */
bool c_may_take_sizes(const CEmit *emit);
/* Returns the loop at which the stage can be split: the first inner one that is
 * long enough, else that of the columns if there are many.  Returns -1 if there
 * is none. */
int c_split_loop(const CEmit *emit);
/* Returns whether distinct iterations of the inner loops add to distinct
 * elements. */
bool c_is_scattered_once(const CEmit *emit, const NestStmt *stmt);
/* Returns the product of the extents of the inner loops. */
int64_t c_stage_points(const NestStage *stage);

/* ---- emit_expr.c ---- */

void c_emit_line(CEmit *emit, const char *format, ...) PRINTF_LIKE(2, 3);
/* Returns the text of an extent, stride or limit: "64", or "size2" where the
 * kernel takes sizes. */
const char *c_size(CEmit *emit, int64_t size);
/* Marks the expressions that the statements of a stage need. */
void c_need_stage(bool *needed, const Nest *nest, const NestStage *stage);
void c_set_depths(CEmit *emit);
/* Declares the needed expressions of this depth. */
void c_emit_exprs(CEmit *emit, int depth);
void c_add_index(CEmit *emit, const NestIndex *at);
void c_add_guards(CEmit *emit, const NestIndex *at);

/* ---- emit_reduce.c ---- */

/* Declares r, and for argmax its best value m, with the identity. */
void c_declare_reduction(CEmit *emit, const NestStmt *stmt);
void c_emit_reduction(CEmit *emit, const NestStmt *stmt);
/* Adds the clauses of `omp simd` for the reductions of the stage. */
void c_add_clauses(const CEmit *emit, Text *out);
/* Puts back the NaNs that `omp simd` loses. */
void c_emit_nans(CEmit *emit);

typedef enum CRowMoment {
  ROW_before_all,
  ROW_before,
  ROW_after,
  ROW_after_all
} CRowMoment;
/* Returns how many iterations of the last inner loop of the stage make a block,
 * whose sums are added up apart.  Returns 0 if all are one. */
int64_t c_sum_block(const CEmit *emit);
/* Emits the sums of rows and blocks at one of four places around the loops:
 * before_all and after_all stand outside of all loops, the others around the
 * last inner loop or a block of it. */
void c_emit_row_sums(CEmit *emit, CRowMoment moment);
/* Emits the results of parts: their declaration, or the assignment of one part.
 */
void c_emit_part_arrays(CEmit *emit, bool is_declaration);
/* Reduces the results of parts in order. */
void c_combine_parts(CEmit *emit);

#endif
