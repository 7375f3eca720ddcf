/*
 * emit.h -- the state of emitting one loop nest as CUDA C, shared by emit.c,
 * emit_expr.c and map.c.
 */
#ifndef CODEGEN_CUDA_EMIT_H
#define CODEGEN_CUDA_EMIT_H

#include "codegen/cuda/cuda.h"

/* How the points of a nest are laid over threads.
 *
 *   flat    no reductions, stages do not read each other: every stage is a
 *           loop over all its points, outer and inner, by all threads
 *   group   `points` outer points in a block, `group` threads for each; the
 *           threads of a point share its inner loops and join their sums.
 *           rows: neighbouring threads lie along the inner loops;
 *           else along the outer ones (columns).
 *
 * `splits` > 1: the first stage is split over that many blocks; the last block
 * to arrive adds their sums in order and runs the other stages. */
typedef struct Mapping {
  bool is_flat, is_row;
  int points, group, splits;
  int64_t outer, tiles;
  int threads;
  int64_t blocks;
} Mapping;

typedef struct Emit {
  Text *out;
  Arena *arena;
  const Nest *nest;
  Mapping mapping;
  const char *index; /* type of indices: "int" or "long long" */
  const NestStage *stage;
  int n_loops;       /* loops of nest and stage together */
  int first_varying; /* loops from here on change inside the body */
  /* The loop that is walked four at a time by vector loads; -1 means none. */
  int vector_loop;
  bool *is_needed, *varies; /* [exprs] */
  /* The stage is in a loop that all threads go through together. */
  bool takes_turns;
} Emit;

/* ---- map.c ---- */

Mapping cuda_map(const Nest *nest);
int64_t nest_outer_points(const Nest *nest);
int64_t stage_points(const NestStage *stage);
int64_t stage_extent(const Nest *nest, const NestStage *stage, int loop);
/* Returns whether different iterations may add to one element, so that they
 * must run in order. */
bool accumulates_in_order(const Nest *nest, const NestStage *stage,
                          const NestStmt *stmt);
/* Returns whether statements that run in parallel may add to one element in
 * different iterations, so that all threads must have done one before the next
 * begins. */
bool stage_takes_turns(const Nest *nest, const NestStage *stage);
/* Returns whether a stage from `stage` + 1 on touches a buffer that this or an
 * earlier one writes. */
bool stage_is_read_later(const Nest *nest, int stage);
/* Returns whether all loops of a stage that is flat can go four at a time. */
bool stage_is_vector(const Nest *nest, const NestStage *stage);
/* Returns whether indices need 64 bits. */
bool nest_is_wide(const Nest *nest);

/* ---- emit_expr.c ---- */

/* Finds the expressions that the statements of the stage need (those for which
 * `wants` holds), and which of them change inside its body. */
void emit_analyse(Emit *emit, bool (*wants)(const Emit *, const NestStmt *));
/* Declares the needed expressions: those that vary, or those that do not. */
void emit_exprs(Emit *emit, bool varying);
void emit_index(Emit *emit, const NestIndex *at);
/* Emits the guards as "(guard) && (guard)".  Returns false, and emits nothing,
 * if there are none. */
bool emit_guards(Emit *emit, const NestIndex *at);
/* Emits the value of `expr`, converted to the number type of `dtype`. */
void emit_value(Emit *emit, int expr, DType dtype);
void emit_store(Emit *emit, const NestStmt *stmt, const char *indent);

#endif
