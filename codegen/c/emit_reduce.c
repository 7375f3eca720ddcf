/*
 * emit_reduce.c -- emits the reductions of a loop nest as C: sums, maxima and
 * minima with NaN, argmax, f64 sums of rows, and the parts of a split stage.
 *
 * The words and signs of a reduction are its row of reductions.def.
 */
#include <inttypes.h>

#include "codegen/c/emit_nest.h"

static DType compared_dtype(const CEmit *emit, const NestStmt *stmt) {
  return stmt->reduce == NEST_argmax ? emit->nest->exprs.data[stmt->expr].dtype
                                     : stmt->dtype;
}

static bool is_extremum(const NestStmt *stmt) {
  return stmt->kind == NEST_reduce &&
         (stmt->reduce == NEST_max || stmt->reduce == NEST_min) &&
         dtype_class(stmt->dtype) == CLASS_FLOAT;
}

static const char *identity_of(const CEmit *emit, const NestStmt *stmt) {
  Text text = text_create(emit->arena);
  c_add_identity(&text, stmt->reduce, compared_dtype(emit, stmt));
  return text_string(&text);
}

/* Elements of an array for the columns of a unit. */
static int64_t room(const CEmit *emit) {
  ASSERT(emit->chunk <= C_MOST_COLUMNS);
  return emit->takes_sizes ? C_MOST_COLUMNS : emit->chunk;
}

void c_declare_reduction(CEmit *emit, const NestStmt *stmt) {
  const char *type = c_number(compared_dtype(emit, stmt));
  const char *start = identity_of(emit, stmt);
  bool is_argmax = stmt->reduce == NEST_argmax;
  char letter = is_argmax ? 'm' : 'r';
  if (!emit->is_column) {
    c_emit_line(emit, "%s %c%d = %s;", type, letter, stmt->target, start);
    if (is_argmax) c_emit_line(emit, "int64_t r%d = 0;", stmt->target);
    if (is_extremum(stmt)) c_emit_line(emit, "int n%d = 0;", stmt->target);
    return;
  }
  c_emit_line(emit, "%s %c%d[%" PRId64 "];", type, letter, stmt->target,
              room(emit));
  if (is_argmax)
    c_emit_line(emit, "int64_t r%d[%" PRId64 "];", stmt->target, room(emit));
  c_emit_line(emit, "for (int64_t j = 0; j < jn; j++) %c%d[j] = %s;", letter,
              stmt->target, start);
  if (is_argmax)
    c_emit_line(emit, "for (int64_t j = 0; j < jn; j++) r%d[j] = 0;",
                stmt->target);
}

/* The row-major index over the inner loops. */
static void add_flat_index(CEmit *emit) {
  int first = emit->nest->n_outer;
  Text *out = emit->out;
  text_add(out, "(");
  for (int i = 0; i < emit->stage->n_inner; i++) {
    int64_t step = 1;
    for (int k = i + 1; k < emit->stage->n_inner; k++)
      step *= emit->stage->inner[k].extent;
    text_printf(out, "%sl%d * %s", i ? " + " : "", first + i,
                c_size(emit, step));
  }
  text_add(out, emit->stage->n_inner ? ")" : "0)");
}

/* The first of the greatest elements; a NaN is above every number. */
static void emit_argmax(CEmit *emit, const NestStmt *stmt, const char *at) {
  int r = stmt->target, e = stmt->expr;
  const char *dtype = dtype_name(compared_dtype(emit, stmt));
  const char *is_above = arena_printf(
      emit->arena, "e%d > m%d%s || (ISNAN_%s(e%d) && !ISNAN_%s(m%d%s))", e, r,
      at, dtype, e, dtype, r, at);
  for (int i = 0; i < emit->indent; i++) text_add(emit->out, "  ");
  text_printf(emit->out, "r%d%s = %s ? ", r, at, is_above);
  add_flat_index(emit);
  text_printf(emit->out, " : r%d%s;\n", r, at);
  c_emit_line(emit, "m%d%s = %s ? e%d : m%d%s;", r, at, is_above, e, r, at);
}

static bool is_f32_sum(const NestStmt *stmt) {
  return stmt->kind == NEST_reduce && stmt->reduce == NEST_sum &&
         stmt->dtype == DT_f32;
}

/* Returns whether the stage at hand adds up the rows of a sum, or the blocks of
 * a row. */
static bool is_summed_by_rows(const CEmit *emit, const NestStmt *stmt) {
  enum { SHORTEST = 16 }; /* row that is worth a sum for each column */
  int n = emit->stage->n_inner;
  bool has_rows = n > 1 && (!emit->is_column ||
                            emit->stage->inner[n - 1].extent >= SHORTEST);
  return (has_rows || emit->block > 0) && is_f32_sum(stmt);
}

/* About the square root of the length, so that neither a block nor the sum of
 * blocks adds many numbers to one.  A vector has as many sums as lanes, and
 * adds them up at the end of each block, hence the longer blocks of rows. */
int64_t c_sum_block(const CEmit *emit) {
  enum { SHORTEST_COLUMN = 32, SHORTEST_ROW = 1024 };
  const NestStage *stage = emit->stage;
  if (stage->n_inner == 0) return 0;
  bool has_sum = false;
  for (int i = 0; i < stage->stmts.n; i++)
    has_sum |= is_f32_sum(&stage->stmts.data[i]);
  int64_t extent = stage->inner[stage->n_inner - 1].extent;
  int64_t block = emit->is_column ? SHORTEST_COLUMN : SHORTEST_ROW;
  while (block * block < extent) block *= 2;
  return has_sum && extent >= 2 * block ? block : 0;
}

/* The f32 sums of a block of rows in each column. */
static void emit_column_sums(CEmit *emit, int r, CRowMoment moment) {
  const char *each = "for (int64_t j = 0; j < jn; j++)";
  if (moment == ROW_before) {
    c_emit_line(emit, "float s%d[%" PRId64 "];", r, room(emit));
    c_emit_line(emit, "%s s%d[j] = 0;", each, r);
  } else if (moment == ROW_after) {
    c_emit_line(emit, "%s r%d[j] += s%d[j];", each, r, r);
  }
}

void c_emit_row_sums(CEmit *emit, CRowMoment moment) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    int r = stmt->target;
    if (!is_summed_by_rows(emit, stmt)) continue;
    if (emit->is_column) {
      emit_column_sums(emit, r, moment);
      continue;
    }
    switch (moment) {
    case ROW_before_all: c_emit_line(emit, "double w%d = 0;", r); break;
    case ROW_before: c_emit_line(emit, "float s%d = 0;", r); break;
    case ROW_after: c_emit_line(emit, "w%d += s%d;", r, r); break;
    case ROW_after_all: c_emit_line(emit, "r%d = (float)w%d;", r, r); break;
    }
  }
}

/* One more operand of a maximum or minimum, from an expression that may be
 * written twice; `at` is the index of a column or "". */
static void emit_extremum(CEmit *emit, const NestStmt *stmt, const char *value,
                          const char *at) {
  int r = stmt->target;
  char sign = nest_reduction(stmt->reduce)->compare;
  c_emit_line(emit, "r%d%s = %s %c r%d%s || ISNAN_%s(%s) ? %s : r%d%s;", r, at,
              value, sign, r, at, dtype_name(stmt->dtype), value, value, r, at);
}

void c_emit_reduction(CEmit *emit, const NestStmt *stmt) {
  const char *at = emit->is_column ? "[j]" : "";
  int r = stmt->target, e = stmt->expr;
  char sum = is_summed_by_rows(emit, stmt) ? 's' : 'r';
  char compare = nest_reduction(stmt->reduce)->compare;
  if (stmt->reduce == NEST_argmax) {
    emit_argmax(emit, stmt, at);
  } else if (!compare) {
    c_emit_line(emit, "%c%d%s += e%d;", sum, r, at, e);
  } else if (emit->is_column || !is_extremum(stmt)) {
    emit_extremum(emit, stmt, arena_printf(emit->arena, "e%d", e), at);
  } else {
    c_emit_line(emit, "r%d = e%d %c r%d ? e%d : r%d;", r, e, compare, r, e, r);
    c_emit_line(emit, "n%d |= ISNAN_%s(e%d);", r, dtype_name(stmt->dtype), e);
  }
}

void c_add_clauses(const CEmit *emit, Text *out) {
  for (int i = 0; i < emit->stage->stmts.n && !emit->is_column; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_reduce)
      text_printf(out, " reduction(%s : %c%d)",
                  nest_reduction(stmt->reduce)->clause,
                  is_summed_by_rows(emit, stmt) ? 's' : 'r', stmt->target);
    if (is_extremum(stmt))
      text_printf(out, " reduction(| : n%d)", stmt->target);
  }
}

void c_emit_nans(CEmit *emit) {
  for (int i = 0; i < emit->stage->stmts.n && !emit->is_column; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (is_extremum(stmt))
      c_emit_line(emit, "if (n%d) r%d = __builtin_nan(\"\");", stmt->target,
                  stmt->target);
  }
}

/* ---- parts of a stage ---- */

void c_emit_part_arrays(CEmit *emit, bool is_declaration) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    int r = stmt->target;
    if (is_declaration && emit->is_column)
      c_emit_line(emit, "%s q%d[%d][%" PRId64 "];", c_number(stmt->dtype), r,
                  C_PARTS, room(emit));
    else if (is_declaration)
      c_emit_line(emit, "%s q%d[%d];", c_number(stmt->dtype), r, C_PARTS);
    else if (emit->is_column)
      c_emit_line(emit,
                  "for (int64_t j = 0; j < jn; j++) q%d[part][j] = r%d[j];", r,
                  r);
    else
      c_emit_line(emit, "q%d[part] = r%d;", r, r);
  }
}

void c_combine_parts(CEmit *emit) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    const char *at = emit->is_column ? "[j]" : "";
    int r = stmt->target;
    c_emit_line(emit, "for (int part = 0; part < %d; part++)", C_PARTS);
    emit->indent++;
    if (emit->is_column) c_emit_line(emit, "for (int64_t j = 0; j < jn; j++)");
    if (stmt->reduce == NEST_sum) {
      c_emit_line(emit, "r%d%s += q%d[part]%s;", r, at, r, at);
    } else {
      emit_extremum(emit, stmt, arena_printf(emit->arena, "q%d[part]%s", r, at),
                    at);
    }
    emit->indent--;
  }
}
