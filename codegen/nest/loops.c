/*
 * loops.c -- joins neighbouring loops of a nest that walk memory as one loop
 * would, and removes expressions that no statement uses.
 *
 *     outer B:12 T:64 C:128, x at 8192 B + 128 T + C   =>   outer B*T*C:98304
 *
 * Two neighbouring loops are one if every address and guard advances by the
 * inner extent times the inner step, and no expression reads their values.
 * Loops of one iteration vanish, and so do unused expressions.  Emitted kernels
 * then have long innermost loops, and equal kernels of differently named dims
 * are one.
 */
#include <string.h>

#include "codegen/nest/lower.h"

/* The loops in question: the outer ones (space 0) or those of one space. */
typedef struct Joiner {
  Lower *lower;
  int space;
  VEC(int64_t *) strides; /* every stride table that counts */
} Joiner;

static void add_index_strides(Joiner *joiner, NestIndex *at) {
  vec_push(joiner->lower->arena, &joiner->strides, at->stride);
  for (int i = 0; i < at->n_guards; i++)
    vec_push(joiner->lower->arena, &joiner->strides, at->guards[i].stride);
}

/* Equal expressions share no NestIndex, but a table may be met twice. */
static void collect_strides(Joiner *joiner) {
  Lower *lower = joiner->lower;
  Nest *nest = lower->nest;
  for (int i = 0; i < nest->exprs.n; i++) {
    NestExpr *expr = &nest->exprs.data[i];
    bool counts =
        joiner->space == 0 || lower->expr_space.data[i] == joiner->space;
    if (expr->at && counts) add_index_strides(joiner, expr->at);
  }
  for (int s = 0; s < nest->stages.n; s++) {
    NestStage *stage = &nest->stages.data[s];
    if (joiner->space != 0 && lower->stage_space.data[s] != joiner->space)
      continue;
    for (int i = 0; i < stage->stmts.n; i++)
      if (stage->stmts.data[i].at)
        add_index_strides(joiner, stage->stmts.data[i].at);
  }
}

static bool is_loop_value_used(const Joiner *joiner, int loop) {
  const Lower *lower = joiner->lower;
  for (int i = 0; i < lower->nest->exprs.n; i++) {
    const NestExpr *expr = &lower->nest->exprs.data[i];
    if (expr->kind == NEST_loop && expr->index == loop &&
        (joiner->space == 0 || lower->expr_space.data[i] == joiner->space))
      return true;
  }
  return false;
}

static bool can_join_loops(const Joiner *joiner, int loop,
                           int64_t inner_extent) {
  if (is_loop_value_used(joiner, loop) || is_loop_value_used(joiner, loop + 1))
    return false;
  for (int i = 0; i < joiner->strides.n; i++) {
    const int64_t *stride = joiner->strides.data[i];
    if (stride[loop] != stride[loop + 1] * inner_extent) return false;
  }
  return true;
}

static void drop_stride(int64_t *stride, int loop) {
  memmove(stride + loop, stride + loop + 1,
          (size_t)(MAX_LOOPS - 1 - loop) * sizeof *stride);
  stride[MAX_LOOPS - 1] = 0;
}

/* Takes loop `loop` out of every table and renumbers the later ones. */
static void drop_loop(Joiner *joiner, int loop) {
  Lower *lower = joiner->lower;
  for (int i = 0; i < joiner->strides.n; i++)
    drop_stride(joiner->strides.data[i], loop);
  for (int i = 0; i < lower->nest->exprs.n; i++) {
    NestExpr *expr = &lower->nest->exprs.data[i];
    if (expr->kind != NEST_loop ||
        (joiner->space != 0 && lower->expr_space.data[i] != joiner->space))
      continue;
    if (expr->index == loop) {
      *expr =
          (NestExpr){.kind = NEST_const, .dtype = DT_i64, .args = {-1, -1, -1}};
    } else if (expr->index > loop) {
      expr->index--;
    }
  }
}

static Name joined_name(Lower *lower, Name a, Name b) {
  return name_format(lower->module->names, "%s*%s", a, b);
}

/* Joins `loops` (numbered from `first`), returns how many are left. */
static int join_loops(Joiner *joiner, NestLoop *loops, int n, int first) {
  for (int i = 0; i < n;) {
    bool is_single = loops[i].extent == 1;
    bool joins = !is_single && i + 1 < n &&
                 can_join_loops(joiner, first + i, loops[i + 1].extent);
    if (!is_single && !joins) {
      i++;
      continue;
    }
    if (joins) {
      loops[i + 1].dim =
          joined_name(joiner->lower, loops[i].dim, loops[i + 1].dim);
      loops[i + 1].extent *= loops[i].extent;
    }
    drop_loop(joiner, first + i);
    memmove(&loops[i], &loops[i + 1], (size_t)(n - 1 - i) * sizeof *loops);
    n--;
    if (i > 0) i--; /* the joined loop may join with the one before */
  }
  return n;
}

static void join_inner_loops(Lower *lower, int space) {
  Nest *nest = lower->nest;
  Joiner joiner = {.lower = lower, .space = space};
  collect_strides(&joiner);
  NestStage *first = NULL;
  for (int s = 0; s < nest->stages.n; s++) {
    NestStage *stage = &nest->stages.data[s];
    if (lower->stage_space.data[s] != space) continue;
    if (!first) {
      first = stage;
      stage->n_inner =
          join_loops(&joiner, stage->inner, stage->n_inner, nest->n_outer);
    } else {
      stage->n_inner = first->n_inner;
      memcpy(stage->inner, first->inner, sizeof stage->inner);
    }
  }
}

/* ---- unused expressions ---- */

static void mark_needed(const Nest *nest, int id, bool *needed);

static void mark_needed_index(const Nest *nest, const NestIndex *at,
                              bool *needed) {
  for (int i = 0; at && i < at->n_dynamic; i++)
    mark_needed(nest, at->dynamic[i].expr, needed);
}

static void mark_needed(const Nest *nest, int id, bool *needed) {
  if (id < 0 || needed[id]) return;
  needed[id] = true;
  const NestExpr *expr = &nest->exprs.data[id];
  for (int i = 0; i < 3; i++) mark_needed(nest, expr->args[i], needed);
  mark_needed_index(nest, expr->at, needed);
}

static void renumber_index(NestIndex *at, const int *number) {
  for (int i = 0; at && i < at->n_dynamic; i++)
    at->dynamic[i].expr = number[at->dynamic[i].expr];
}

/* Every statement and expression has an index of its own, so that each is
 * renumbered once. */
static void drop_unused_exprs(Lower *lower) {
  Nest *nest = lower->nest;
  bool *needed = ARENA_ARRAY(lower->arena, bool, nest->exprs.n);
  int *number = ARENA_ARRAY(lower->arena, int, nest->exprs.n), n = 0;
  for (int s = 0; s < nest->stages.n; s++)
    for (int i = 0; i < nest->stages.data[s].stmts.n; i++) {
      mark_needed(nest, nest->stages.data[s].stmts.data[i].expr, needed);
      mark_needed_index(nest, nest->stages.data[s].stmts.data[i].at, needed);
    }
  for (int id = 0; id < nest->exprs.n; id++) {
    if (!needed[id]) continue;
    NestExpr expr = nest->exprs.data[id];
    for (int i = 0; i < 3; i++)
      if (expr.args[i] >= 0) expr.args[i] = number[expr.args[i]];
    renumber_index(expr.at, number);
    number[id] = n;
    lower->expr_space.data[n] = lower->expr_space.data[id];
    nest->exprs.data[n++] = expr;
  }
  nest->exprs.n = lower->expr_space.n = n;
  for (int s = 0; s < nest->stages.n; s++)
    for (int i = 0; i < nest->stages.data[s].stmts.n; i++) {
      NestStmt *stmt = &nest->stages.data[s].stmts.data[i];
      stmt->expr = number[stmt->expr];
      renumber_index(stmt->at, number);
    }
}

void lower_join_loops(Lower *lower) {
  drop_unused_exprs(lower);
  for (int space = 1; space <= lower->n_spaces; space++)
    join_inner_loops(lower, space);
  Joiner joiner = {.lower = lower, .space = 0};
  collect_strides(&joiner);
  lower->nest->n_outer =
      join_loops(&joiner, lower->nest->outer, lower->nest->n_outer, 0);
}
