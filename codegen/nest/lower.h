/*
 * lower.h -- declares the functions that lower nodes to loop nests, for the
 * files of this folder.
 *
 * A value is lowered by asking for one element of it: every dim of its type has
 * a Coord, an index in terms of the loops.  Views, slices and broadcasts change
 * coordinates only, down to the loads.
 */
#ifndef CODEGEN_NEST_LOWER_H
#define CODEGEN_NEST_LOWER_H

#include "codegen/nest/nest.h"

/* base + sum stride[l] * loop l + factor * clamp(expr, 0, limit). */
typedef struct Coord {
  int64_t base, stride[MAX_LOOPS];
  int64_t expr; /* -1 means none */
  int64_t factor, limit;
} Coord;

/* The coordinates of dim names. */
typedef struct Space {
  int n;
  Name name[2 * MAX_RANK];
  Coord coord[2 * MAX_RANK];
} Space;

typedef struct Lower {
  Module *module;
  Arena *arena;
  const Mesh *mesh;
  const Node *node;
  const Type **input_types; /* types of the node's inputs */
  Nest *nest;
  /* Loops in scope: the outer ones, then the inner ones of the last stage. */
  int n_loops;
  int64_t extent[MAX_LOOPS];
  /* The number that stages whose inner loops have equal extents share, from 1;
   * they may share expressions. 0 means that the expression depends on no inner
   * loop. */
  int space, n_spaces;
  VEC(int) expr_space;
  VEC(int) stage_space;
  int n_guards; /* guards of the loads that are being built */
  NestGuard guards[3];
} Lower;

/* ---- build.c ---- */

Lower *lower_begin(Module *module, const Graph *graph, const Node *node,
                   const char *name);
/* Adds one buffer for each input of the node, then one for each result, and
 * returns the first. */
int lower_input_buffer(const Lower *lower, int input);
int lower_result_buffer(const Lower *lower, int result);
int64_t lower_size(const Lower *lower, const Type *type, int dim);

/* Opens all outer loops and returns the coordinates.  Then a stage is opened,
 * given its inner loops and closed by lower_stage_ready. */
Coord lower_outer(Lower *lower, Name dim, int64_t extent);
void lower_stage(Lower *lower);
Coord lower_inner(Lower *lower, Name dim, int64_t extent);
void lower_stage_ready(Lower *lower);

Coord coord_zero(void);
Coord coord_add(Coord coord, int64_t base);
Coord coord_scale(Coord coord, int64_t factor);
Coord coord_sum(Lower *lower, Coord a, Coord b);
Coord coord_of_expr(int expr, int64_t limit);
/* Returns the value as an i64 expression. */
int coord_value(Lower *lower, Coord coord);
/* Computes quotient and remainder by n; the quotient is below `limit`. */
void coord_divide(Lower *lower, Coord coord, int64_t n, int64_t limit,
                  Coord *out_quotient, Coord *out_remainder);
/* Returns the index in the logical tensor: adds the place at which this rank's
 * shard begins. */
Coord coord_global(Lower *lower, Coord coord, const Dim *dim);
NestGuard coord_guard(Coord coord, int64_t limit);
/* Pushes a guard of the loads to come where the coordinate can leave
 * [0, limit). */
void lower_guard_if_needed(Lower *lower, Coord coord, int64_t limit);

void space_add(Space *space, Name name, Coord coord);
/* Returns the coordinate of a dim.  Returns NULL if it is absent. */
const Coord *space_find(const Space *space, Name name);
/* Fills in the coordinates of the dims of a type, by name; dims without one get
 * zero. */
void space_coords(const Space *space, const Type *type, Coord *out);

int lower_expr(Lower *lower, NestExpr expr);
int lower_const(Lower *lower, DType dtype, double value);
int lower_cast(Lower *lower, int expr, DType dtype);
int lower_pw(Lower *lower, Op op, DType dtype, int a, int b, int c);
int lower_load(Lower *lower, int buffer, const Type *type, const Coord *coords);
int lower_number(Lower *lower, AxisList split, int64_t factor);
/* Returns the dtype in which a value is computed: floats of 8 and 16 bits in
 * f32. */
DType lower_work_dtype(DType dtype);

void lower_store(Lower *lower, NestStmtKind kind, int buffer, const Type *type,
                 const Coord *coords, int expr);
/* Adds a reduction over the inner loops of the open stage.  Returns its result
 * as an expression of `dtype` for later stages. */
int lower_reduce(Lower *lower, NestReduce reduce, DType dtype, int expr);

/* ---- loops.c ---- */

/* Joins loops that walk memory as one loop would. */
void lower_join_loops(Lower *lower);

/* ---- lower_fused.c ---- */
void lower_region(Lower *lower, const Graph *body);
/* Returns whether the operator may be part of a region. */
bool lower_is_regional(Op op);

/* ---- lower_experts.c ---- */
/* Finds where the table of a dispatch or combine is read for index `row`: adds
 * the coordinates of the dims that the index stands for; `sized` has their
 * sizes.  An index of -1 is clamped: the caller gives 0 there. */
void lower_row(Lower *lower, const Node *node, const Type *sized, int row,
               Space *out);

/* ---- what rows of ops.def name as nest(...) ---- */
typedef void LowerFunction(Lower *lower);
#define NEST(op, function) LowerFunction lower_##function;
#include "ir/ops.def"

#endif
