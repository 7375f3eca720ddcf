/*
 * choose.c -- chooses the shape of an emitted C kernel from its loop nest: row
 * or column, the chunk of columns, and what runs in parallel.
 */
#include "codegen/c/emit_nest.h"

#define CHUNK       64 /* columns whose sums stay in registers */
#define POINT_UNITS 64 /* units of a pointwise kernel */
#define FEW_UNITS   8  /* fewer: split the stages instead */
#define PARALLEL_WORK                                                          \
  32768 /* below, a parallel region costs more than it gains */

bool c_is_scattered_once(const CEmit *emit, const NestStmt *stmt) {
  if (stmt->at->n_dynamic > 0 || stmt->at->n_guards > 0) return false;
  return emit->stage->n_inner <= 1 &&
         (emit->stage->n_inner == 0 ||
          stmt->at->stride[emit->nest->n_outer] != 0);
}

int64_t c_stage_points(const NestStage *stage) {
  int64_t total = 1;
  for (int i = 0; i < stage->n_inner; i++) total *= stage->inner[i].extent;
  return total;
}

/* The first inner loop that is long enough, or -1. */
static int split_inner_loop(const CEmit *emit) {
  if (c_stage_points(emit->stage) < C_PARTS * 16) return -1;
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_reduce && stmt->reduce == NEST_argmax) return -1;
    if (stmt->kind == NEST_accumulate && !c_is_scattered_once(emit, stmt))
      return -1;
  }
  for (int i = 0; i < emit->stage->n_inner; i++)
    if (emit->stage->inner[i].extent >= C_PARTS) return emit->nest->n_outer + i;
  return -1;
}

int c_split_loop(const CEmit *emit) {
  int loop = split_inner_loop(emit);
  bool has_columns = emit->is_column && emit->chunk >= C_PARTS * 16;
  if (loop >= 0 || !has_columns) return loop;
  for (int i = 0; i < emit->stage->stmts.n; i++)
    if (emit->stage->stmts.data[i].kind == NEST_reduce) return -1;
  return emit->nest->n_outer - 1;
}

static double expr_flops(const NestExpr *expr) {
  if (expr->kind == NEST_pw) return op_info(expr->op)->flops;
  if (expr->kind == NEST_random) return 60;
  return expr->kind == NEST_load ? 1 : 0;
}

static double stage_work(CEmit *emit, const NestStage *stage) {
  double work = 1;
  c_need_stage(emit->needed, emit->nest, stage);
  for (int id = 0; id < emit->nest->exprs.n; id++)
    if (emit->needed[id]) work += expr_flops(&emit->nest->exprs.data[id]);
  return work * (double)c_stage_points(stage);
}

static int64_t outer_total(const Nest *nest) {
  int64_t total = 1;
  for (int i = 0; i < nest->n_outer; i++) total *= nest->outer[i].extent;
  return total;
}

/* Along which loop do neighbours in memory lie? */
static int stride_score(int64_t stride) {
  return stride == 1 ? 2 : stride == 0 ? 0 : -1;
}

static bool has_inner(const Nest *nest) {
  for (int s = 0; s < nest->stages.n; s++)
    if (nest->stages.data[s].n_inner > 0) return true;
  return false;
}

static bool choose_column(CEmit *emit) {
  const Nest *nest = emit->nest;
  if (nest->n_outer == 0) return false;
  if (!has_inner(nest)) return true;
  int score = 0;
  int64_t longest = 1;
  for (int s = 0; s < nest->stages.n; s++) {
    const NestStage *stage = &nest->stages.data[s];
    if (stage->n_inner == 0) continue;
    int column = nest->n_outer - 1, row = nest->n_outer + stage->n_inner - 1;
    int64_t extent = stage->inner[stage->n_inner - 1].extent;
    longest = extent > longest ? extent : longest;
    c_need_stage(emit->needed, nest, stage);
    for (int id = 0; id < nest->exprs.n; id++) {
      const NestIndex *at = nest->exprs.data[id].at;
      if (emit->needed[id] && at)
        score +=
            stride_score(at->stride[column]) - stride_score(at->stride[row]);
    }
    for (int i = 0; i < stage->stmts.n; i++) {
      const NestIndex *at = stage->stmts.data[i].at;
      if (at)
        score +=
            stride_score(at->stride[column]) - stride_score(at->stride[row]);
    }
  }
  int64_t columns = nest->outer[nest->n_outer - 1].extent;
  if (longest < 16 && columns >= 16) return true;
  if (columns < 16 && longest >= 16) return false;
  return score > 0;
}

/* A reduction without loops of its own: its sums are an array of the chunk. */
static bool has_sums(const Nest *nest) {
  for (int s = 0; s < nest->stages.n; s++)
    for (int i = 0; i < nest->stages.data[s].stmts.n; i++)
      if (nest->stages.data[s].stmts.data[i].kind == NEST_reduce) return true;
  return false;
}

/* Splitting stages pays if every stage with much work can be split. */
static bool choose_splitting(CEmit *emit) {
  const Nest *nest = emit->nest;
  if (!emit->is_parallel || emit->n_units >= FEW_UNITS) return false;
  bool splits_stages = false;
  for (int s = 0; s < nest->stages.n; s++) {
    emit->stage = &nest->stages.data[s];
    double work = stage_work(emit, emit->stage);
    if (emit->is_column) work *= (double)emit->chunk;
    if (emit->stage->n_inner == 0 || work < PARALLEL_WORK) continue;
    if (c_split_loop(emit) < 0) return false;
    splits_stages = true;
  }
  return splits_stages;
}

static void set_chunk(CEmit *emit, int64_t chunk) {
  const Nest *nest = emit->nest;
  int64_t columns = nest->outer[nest->n_outer - 1].extent;
  emit->chunk = chunk < columns ? chunk : columns;
  emit->n_chunks = (columns + emit->chunk - 1) / emit->chunk;
  emit->n_units = outer_total(nest) / columns * emit->n_chunks;
}

/* Without sums, as in a scatter, rows are written whole where threads find
 * enough to do: in chunks of 64 columns, clearing 50,257 rows of 768 takes
 * twice as long. */
static void choose_chunk(CEmit *emit) {
  const Nest *nest = emit->nest;
  int64_t columns = nest->outer[nest->n_outer - 1].extent;
  int64_t others = outer_total(nest) / columns;
  if (has_sums(nest)) {
    set_chunk(emit, columns <= C_MOST_COLUMNS ? columns : CHUNK);
  } else if (has_inner(nest)) {
    set_chunk(emit, columns);
    if (emit->is_parallel && emit->n_units < FEW_UNITS &&
        !choose_splitting(emit) && columns > C_MOST_COLUMNS)
      set_chunk(emit, CHUNK);
  } else {
    int64_t wanted = (POINT_UNITS + others - 1) / others;
    int64_t chunk = (columns + wanted - 1) / wanted;
    set_chunk(emit, (chunk + 63) / 64 * 64);
  }
}

void c_choose(CEmit *emit) {
  const Nest *nest = emit->nest;
  double work = 0;
  for (int i = 0; i < nest_step_count(nest); i++)
    work += stage_work(emit, &nest->stages.data[nest_step_stage(nest, i)]);
  work *= (double)outer_total(nest);
  emit->is_parallel = work >= PARALLEL_WORK;
  emit->is_column = choose_column(emit);
  emit->n_units = outer_total(nest);
  if (emit->is_column) choose_chunk(emit);
  emit->splits_stages = choose_splitting(emit);
}

/* A loop of a constant length is shorter by its last, partial vector and by
 * what gcc unrolls, which counts in short loops with much work. */
bool c_may_take_sizes(const CEmit *emit) {
  enum { LONG_LOOP = 256 };
  const Nest *nest = emit->nest;
  if (!emit->is_parallel) return true;
  if (emit->is_column)
    return !has_inner(nest) && !has_sums(nest) && emit->chunk >= CHUNK;
  for (int s = 0; s < nest->stages.n; s++) {
    const NestStage *stage = &nest->stages.data[s];
    if (stage->n_inner > 0 &&
        stage->inner[stage->n_inner - 1].extent < LONG_LOOP)
      return false;
  }
  return true;
}
