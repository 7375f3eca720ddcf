/*
 * emit.c -- loop nest to C with OpenMP; a pure function to text.
 *
 * Two shapes.  In a *row* kernel the vector runs along the last inner loop and
 * an outer point is a unit of work:
 *
 *     for unit in outer points           parallel
 *       r0 = 0
 *       for inner: r0 += ...             simd
 *
 * A sum over several loops is f32 along the last one only and adds up its rows
 * in f64, which costs one addition for each row:
 *
 *       w0 = 0
 *       for rows: { s0 = 0; for inner: s0 += ...; w0 += s0 }
 *       r0 = w0
 *
 * In a *column* kernel (pointwise chains, sums over rows, scatter) the vector
 * runs along the last outer loop, a unit is a chunk of it, and reductions are
 * small arrays:
 *
 *     for unit in other outer points * chunks
 *       r0[chunk] = 0
 *       for inner: for j in chunk: r0[j] += ...
 *
 * A NaN must be the result of a maximum, but `omp simd` joins the maxima of its
 * lanes as if there were none.  A row kernel therefore looks for NaNs beside
 * it, which costs nothing that could be measured:
 *
 *       r0 = -inf; n0 = 0
 *       for inner: { r0 = max(r0, ...); n0 |= isnan(...) }     simd
 *       if (n0) r0 = NaN
 *
 * Where there are few units and much work in each, units run one after the
 * other and every stage is cut into a fixed number of parts instead, so that
 * the order of additions never depends on the number of threads.
 *
 * Nothing is declared restrict, because a result may lie on the bytes of an
 * input (same element only); `omp simd` says that iterations are independent,
 * and all loads of a point stand before its stores.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/c/emit.h"

#define CHUNK       64 /* columns whose sums stay in registers or L1 */
#define POINT_UNITS 64 /* units of a pointwise kernel */
#define FEW_UNITS   8  /* fewer: cut the stages instead */
#define PARTS       16
#define PARALLEL_WORK                                                          \
  32768 /* below, a parallel region costs more than it gains */

typedef struct Emit {
  Text *out;
  const Nest *nest;
  Arena *arena;
  bool is_column, is_wide, is_parallel;
  int64_t chunk, n_chunks, n_units;
  /* Of the stage at hand. */
  const NestStage *stage;
  bool *needed;
  int *depths; /* by expression: how many loops of the order must be open */
  int n_order; /* loops from the outside in; the last carries the vector */
  int order[MAX_LOOPS];
  int indent;
} Emit;

static void line(Emit *emit, const char *format, ...) PRINTF_LIKE(2, 3);
static void line(Emit *emit, const char *format, ...) {
  for (int i = 0; i < emit->indent; i++) text_add(emit->out, "  ");
  va_list args;
  va_start(args, format);
  text_add(emit->out, arena_vprintf(emit->arena, format, args));
  va_end(args);
  text_add(emit->out, "\n");
}

/* ---- what an expression depends on ---- */

static bool is_stored_here(const Emit *emit, int buffer) {
  return emit->nest->buffers.data[buffer].is_written;
}

/* How many loops of the order must be open: strides of an index. */
static int stride_depth(const Emit *emit, const int64_t *stride) {
  int depth = 0;
  for (int i = 0; i < emit->n_order; i++)
    if (stride[emit->order[i]] != 0) depth = i + 1;
  return depth;
}

static int max_int(int a, int b) {
  return a > b ? a : b;
}

static int index_depth(const Emit *emit, const NestIndex *at) {
  int depth = stride_depth(emit, at->stride);
  for (int i = 0; i < at->n_dynamic; i++)
    depth = max_int(depth, emit->depths[at->dynamic[i].expr]);
  for (int i = 0; i < at->n_guards; i++)
    depth = max_int(depth, stride_depth(emit, at->guards[i].stride));
  return depth;
}

static int expr_depth(const Emit *emit, int id) {
  const NestExpr *expr = &emit->nest->exprs.data[id];
  int depth = 0;
  switch (expr->kind) {
  case NEST_load:
    if (is_stored_here(emit, expr->index)) return emit->n_order;
    return index_depth(emit, expr->at);
  case NEST_loop:
    for (int i = 0; i < emit->n_order; i++)
      if (emit->order[i] == expr->index) depth = i + 1;
    return depth;
  case NEST_reduced: return emit->is_column ? emit->n_order : 0;
  default:
    for (int i = 0; i < 3; i++)
      if (expr->args[i] >= 0)
        depth = max_int(depth, emit->depths[expr->args[i]]);
    return depth;
  }
}

/* Arguments precede users, so one pass suffices.  A walk from each root down
 * would visit a shared expression once for every path to it. */
static void set_depths(Emit *emit) {
  for (int id = 0; id < emit->nest->exprs.n; id++)
    emit->depths[id] = expr_depth(emit, id);
}

static void need(bool *needed, const Nest *nest, int id);

static void need_index(bool *needed, const Nest *nest, const NestIndex *at) {
  for (int i = 0; i < at->n_dynamic; i++)
    need(needed, nest, at->dynamic[i].expr);
}

static void need(bool *needed, const Nest *nest, int id) {
  if (id < 0 || needed[id]) return;
  needed[id] = true;
  const NestExpr *expr = &nest->exprs.data[id];
  for (int i = 0; i < 3; i++) need(needed, nest, expr->args[i]);
  if (expr->at) need_index(needed, nest, expr->at);
}

static void need_stage(bool *needed, const Nest *nest, const NestStage *stage) {
  memset(needed, 0, (size_t)nest->exprs.n * sizeof *needed);
  for (int i = 0; i < stage->stmts.n; i++) {
    need(needed, nest, stage->stmts.data[i].expr);
    if (stage->stmts.data[i].at)
      need_index(needed, nest, stage->stmts.data[i].at);
  }
}

/* ---- expressions ---- */

static void add_affine(Text *out, int64_t base, const int64_t *stride) {
  bool is_first = true;
  for (int i = 0; i < MAX_LOOPS; i++) {
    if (stride[i] == 0) continue;
    text_add(out, is_first ? "" : " + ");
    text_printf(out, stride[i] == 1 ? "l%d" : "l%d * %" PRId64, i, stride[i]);
    is_first = false;
  }
  if (base != 0 || is_first)
    text_printf(out, is_first ? "%" PRId64 : " + %" PRId64, base);
}

static void add_index(Text *out, const NestIndex *at) {
  add_affine(out, at->base, at->stride);
  for (int i = 0; i < at->n_dynamic; i++) {
    const NestTerm *term = &at->dynamic[i];
    if (term->limit == INT64_MAX)
      text_printf(out, " + e%d * %" PRId64, term->expr, term->stride);
    else
      text_printf(out, " + dnn_clamp(e%d, %" PRId64 ") * %" PRId64, term->expr,
                  term->limit, term->stride);
  }
}

static void add_guards(Text *out, const NestIndex *at) {
  for (int i = 0; i < at->n_guards; i++) {
    text_add(out, i == 0 ? "(uint64_t)(" : " && (uint64_t)(");
    add_affine(out, at->guards[i].base, at->guards[i].stride);
    text_printf(out, ") < %" PRId64, at->guards[i].limit);
  }
}

static bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c >= '0' && c <= '9');
}

/* The text of a row of ops.def with its operands put in; functions get the
 * dtype as suffix: EXP(a) -> EXP_f32(e3). */
static void add_pointwise(Text *out, const NestExpr *expr, DType dtype) {
  const char *text = op_info(expr->op)->value;
  while (*text) {
    size_t n = 0;
    while (is_word(text[n])) n++;
    if (n == 0) {
      text_add_n(out, text++, 1);
      continue;
    }
    bool is_digit = text[0] >= '0' && text[0] <= '9';
    if (n == 1 && text[0] >= 'a' && text[0] <= 'c') {
      text_printf(out, "e%d", expr->args[text[0] - 'a']);
    } else {
      text_add_n(out, text, n);
      bool is_plain =
          is_digit || !strncmp(text, "SEL", n) || !strncmp(text, "INF", n);
      if (!is_plain) text_printf(out, "_%s", dtype_name(dtype));
    }
    text += n;
  }
}

static void add_cast(Emit *emit, const NestExpr *expr) {
  Text *out = emit->out;
  DType from = emit->nest->exprs.data[expr->args[0]].dtype;
  int arg = expr->args[0];
  const char *value =
      dtype_is_16bit(from)
          ? arena_printf(emit->arena, "dnn_from_%s(e%d)", dtype_name(from), arg)
          : arena_printf(emit->arena, "e%d", arg);
  if (dtype_is_16bit(expr->dtype))
    text_printf(out, "dnn_to_%s((float)%s)", dtype_name(expr->dtype), value);
  else if (expr->dtype == DT_bool)
    text_printf(out, "%s != 0", value);
  else if (dtype_class(expr->dtype) == CLASS_INT &&
           dtype_class(from) == CLASS_FLOAT)
    text_printf(out, "dnn_integer_%s(%s)", dtype_name(expr->dtype), value);
  else
    text_printf(out, "(%s)%s", c_number(expr->dtype), value);
}

static void add_load(Emit *emit, const NestExpr *expr) {
  Text *out = emit->out;
  if (expr->at->n_guards > 0) {
    add_guards(out, expr->at);
    text_add(out, " ? ");
  }
  text_printf(out, "b%d[", expr->index);
  add_index(out, expr->at);
  text_add(out, "]");
  if (expr->at->n_guards > 0) {
    text_add(out, " : ");
    c_add_literal(out, expr->dtype, expr->at->outside);
  }
}

static DType operand_dtype(const Nest *nest, const NestExpr *expr) {
  PwClass class = op_info(expr->op)->pw_class;
  bool by_operand = class == PW_COMPARE || class == PW_LOGIC;
  return by_operand ? nest->exprs.data[expr->args[0]].dtype : expr->dtype;
}

static void emit_expr(Emit *emit, int id) {
  const NestExpr *expr = &emit->nest->exprs.data[id];
  Text *out = emit->out;
  for (int i = 0; i < emit->indent; i++) text_add(out, "  ");
  text_printf(out, "const %s e%d = ", c_number(expr->dtype), id);
  switch (expr->kind) {
  case NEST_const: c_add_literal(out, expr->dtype, expr->real); break;
  case NEST_loop: text_printf(out, "l%d", expr->index); break;
  case NEST_load: add_load(emit, expr); break;
  case NEST_pw:
    add_pointwise(out, expr, operand_dtype(emit->nest, expr));
    break;
  case NEST_cast: add_cast(emit, expr); break;
  case NEST_reduced:
    text_printf(out, emit->is_column ? "r%d[j]" : "r%d", expr->index);
    break;
  case NEST_number: text_printf(out, "numbers[%d]", expr->index); break;
  case NEST_random:
    text_printf(out, "dnn_keep(e%d, %uu, e%d, e%d, %uu)", expr->args[0],
                (unsigned)expr->index, expr->args[1], expr->args[2],
                (unsigned)(expr->real * 16777216.0));
    break;
  }
  text_add(out, ";\n");
}

static void emit_exprs(Emit *emit, int depth) {
  for (int id = 0; id < emit->nest->exprs.n; id++) {
    if (!emit->needed[id] || emit->depths[id] != depth) continue;
    emit_expr(emit, id);
  }
}

/* ---- reductions ---- */

static DType compared_dtype(const Emit *emit, const NestStmt *stmt) {
  return stmt->reduce == NEST_argmax ? emit->nest->exprs.data[stmt->expr].dtype
                                     : stmt->dtype;
}

static bool is_extremum(const NestStmt *stmt) {
  return stmt->kind == NEST_reduce &&
         (stmt->reduce == NEST_max || stmt->reduce == NEST_min) &&
         dtype_class(stmt->dtype) == CLASS_FLOAT;
}

static const char *identity_of(const Emit *emit, const NestStmt *stmt) {
  Text text = text_create(emit->arena);
  c_add_identity(&text, stmt->reduce, compared_dtype(emit, stmt));
  return text_string(&text);
}

/* Declares r (and for argmax its best value m), cleared. */
static void declare_reduction(Emit *emit, const NestStmt *stmt) {
  const char *type = c_number(compared_dtype(emit, stmt));
  const char *start = identity_of(emit, stmt);
  bool is_position = stmt->reduce == NEST_argmax;
  char letter = is_position ? 'm' : 'r';
  if (!emit->is_column) {
    line(emit, "%s %c%d = %s;", type, letter, stmt->target, start);
    if (is_position) line(emit, "int64_t r%d = 0;", stmt->target);
    if (is_extremum(stmt)) line(emit, "int n%d = 0;", stmt->target);
    return;
  }
  line(emit, "%s %c%d[%" PRId64 "];", type, letter, stmt->target, emit->chunk);
  if (is_position)
    line(emit, "int64_t r%d[%" PRId64 "];", stmt->target, emit->chunk);
  line(emit, "for (int64_t j = 0; j < jn; j++) %c%d[j] = %s;", letter,
       stmt->target, start);
  if (is_position)
    line(emit, "for (int64_t j = 0; j < jn; j++) r%d[j] = 0;", stmt->target);
}

/* Row-major position of the inner loops. */
static void add_position(Emit *emit) {
  int first = emit->nest->n_outer;
  Text *out = emit->out;
  text_add(out, "(");
  for (int i = 0; i < emit->stage->n_inner; i++) {
    int64_t step = 1;
    for (int k = i + 1; k < emit->stage->n_inner; k++)
      step *= emit->stage->inner[k].extent;
    text_printf(out, "%sl%d * %" PRId64, i ? " + " : "", first + i, step);
  }
  text_add(out, emit->stage->n_inner ? ")" : "0)");
}

/* The first of the greatest elements; a NaN is above every number. */
static void emit_argmax(Emit *emit, const NestStmt *stmt, const char *at) {
  int r = stmt->target, e = stmt->expr;
  const char *dtype = dtype_name(compared_dtype(emit, stmt));
  const char *is_above = arena_printf(
      emit->arena, "e%d > m%d%s || (ISNAN_%s(e%d) && !ISNAN_%s(m%d%s))", e, r,
      at, dtype, e, dtype, r, at);
  for (int i = 0; i < emit->indent; i++) text_add(emit->out, "  ");
  text_printf(emit->out, "r%d%s = %s ? ", r, at, is_above);
  add_position(emit);
  text_printf(emit->out, " : r%d%s;\n", r, at);
  line(emit, "m%d%s = %s ? e%d : m%d%s;", r, at, is_above, e, r, at);
}

/* Whether the stage at hand adds up the rows of a sum in f64. */
static bool is_summed_by_rows(const Emit *emit, const NestStmt *stmt) {
  return !emit->is_column && emit->n_order > 1 && stmt->kind == NEST_reduce &&
         stmt->reduce == NEST_sum && stmt->dtype == DT_f32;
}

typedef enum RowPlace {
  ROW_before_all,
  ROW_before,
  ROW_after,
  ROW_after_all
} RowPlace;

static void emit_row_sums(Emit *emit, RowPlace place) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    int r = stmt->target;
    if (!is_summed_by_rows(emit, stmt)) continue;
    switch (place) {
    case ROW_before_all: line(emit, "double w%d = 0;", r); break;
    case ROW_before: line(emit, "float s%d = 0;", r); break;
    case ROW_after: line(emit, "w%d += s%d;", r, r); break;
    case ROW_after_all: line(emit, "r%d = (float)w%d;", r, r); break;
    }
  }
}

/* One more operand of a maximum or minimum, from an expression that may be
 * written twice; `at` is the index of a column or "". */
static void emit_extremum(Emit *emit, const NestStmt *stmt, const char *value,
                          const char *at) {
  int r = stmt->target;
  char sign = nest_reduction(stmt->reduce)->compare;
  line(emit, "r%d%s = %s %c r%d%s || ISNAN_%s(%s) ? %s : r%d%s;", r, at, value,
       sign, r, at, dtype_name(stmt->dtype), value, value, r, at);
}

static void emit_reduce(Emit *emit, const NestStmt *stmt) {
  const char *at = emit->is_column ? "[j]" : "";
  int r = stmt->target, e = stmt->expr;
  char sum = is_summed_by_rows(emit, stmt) ? 's' : 'r';
  char compare = nest_reduction(stmt->reduce)->compare;
  if (stmt->reduce == NEST_argmax) {
    emit_argmax(emit, stmt, at);
  } else if (!compare) {
    line(emit, "%c%d%s += e%d;", sum, r, at, e);
  } else if (emit->is_column || !is_extremum(stmt)) {
    emit_extremum(emit, stmt, arena_printf(emit->arena, "e%d", e), at);
  } else {
    line(emit, "r%d = e%d %c r%d ? e%d : r%d;", r, e, compare, r, e, r);
    line(emit, "n%d |= ISNAN_%s(e%d);", r, dtype_name(stmt->dtype), e);
  }
}

static void emit_stmt(Emit *emit, const NestStmt *stmt) {
  if (stmt->kind == NEST_reduce) {
    emit_reduce(emit, stmt);
    return;
  }
  Text *out = emit->out;
  for (int i = 0; i < emit->indent; i++) text_add(out, "  ");
  if (stmt->at->n_guards > 0) {
    text_add(out, "if (");
    add_guards(out, stmt->at);
    text_add(out, ") ");
  }
  text_printf(out, "b%d[", stmt->target);
  add_index(out, stmt->at);
  if (stmt->kind == NEST_accumulate && dtype_is_16bit(stmt->dtype)) {
    const char *name = dtype_name(stmt->dtype);
    text_printf(out, "] = dnn_to_%s(dnn_from_%s(b%d[", name, name,
                stmt->target);
    add_index(out, stmt->at);
    text_printf(out, "]) + dnn_from_%s(e%d));\n", name, stmt->expr);
    return;
  }
  const char *sign = stmt->kind == NEST_store ? "=" : "+=";
  text_printf(out, "] %s e%d;\n", sign, stmt->expr);
}

/* ---- loops of a stage ---- */

/* Distinct iterations of the inner loops add to distinct elements. */
static bool is_scattered_once(const Emit *emit, const NestStmt *stmt) {
  if (stmt->at->n_dynamic > 0 || stmt->at->n_guards > 0) return false;
  return emit->stage->n_inner <= 1 &&
         (emit->stage->n_inner == 0 ||
          stmt->at->stride[emit->nest->n_outer] != 0);
}

static bool is_simd(const Emit *emit) {
  if (emit->is_column) return true;
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_accumulate && !is_scattered_once(emit, stmt))
      return false;
    if (stmt->kind == NEST_reduce && stmt->reduce == NEST_argmax) return false;
  }
  return true;
}

static void emit_simd(Emit *emit) {
  Text clauses = text_create(emit->arena);
  for (int i = 0; i < emit->stage->stmts.n && !emit->is_column; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_reduce)
      text_printf(&clauses, " reduction(%s : %c%d)",
                  nest_reduction(stmt->reduce)->clause,
                  is_summed_by_rows(emit, stmt) ? 's' : 'r', stmt->target);
    if (is_extremum(stmt))
      text_printf(&clauses, " reduction(| : n%d)", stmt->target);
  }
  line(emit, "#pragma omp simd%s", text_string(&clauses));
}

static int64_t inner_extent(const Emit *emit, int loop) {
  return emit->stage->inner[loop - emit->nest->n_outer].extent;
}

static void open_loop(Emit *emit, int depth, int split) {
  int loop = emit->order[depth];
  if (depth == emit->n_order - 1 && is_simd(emit)) emit_simd(emit);
  if (emit->is_column && depth == emit->n_order - 1) {
    line(emit, "for (int64_t j = 0; j < jn; j++) {");
    emit->indent++;
    line(emit, "const int64_t l%d = j0 + j;", loop);
    return;
  }
  int64_t extent = inner_extent(emit, loop);
  if (loop == split)
    line(emit,
         "for (int64_t l%d = %" PRId64 " * part / %d; l%d < %" PRId64
         " * (part + 1) / %d; l%d++) {",
         loop, extent, PARTS, loop, extent, PARTS, loop);
  else
    line(emit, "for (int64_t l%d = 0; l%d < %" PRId64 "; l%d++) {", loop, loop,
         extent, loop);
  emit->indent++;
}

/* What `omp simd` has lost. */
static void emit_nans(Emit *emit) {
  for (int i = 0; i < emit->stage->stmts.n && !emit->is_column; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (is_extremum(stmt))
      line(emit, "if (n%d) r%d = __builtin_nan(\"\");", stmt->target,
           stmt->target);
  }
}

static void emit_loops(Emit *emit, int split) {
  emit_row_sums(emit, ROW_before_all);
  for (int depth = 0; depth < emit->n_order; depth++) {
    if (depth == emit->n_order - 1) emit_row_sums(emit, ROW_before);
    open_loop(emit, depth, split);
    emit_exprs(emit, depth + 1);
  }
  for (int i = 0; i < emit->stage->stmts.n; i++)
    emit_stmt(emit, &emit->stage->stmts.data[i]);
  for (int depth = 0; depth < emit->n_order; depth++) {
    emit->indent--;
    line(emit, "}");
    if (depth == 0) emit_row_sums(emit, ROW_after);
  }
  emit_row_sums(emit, ROW_after_all);
  emit_nans(emit);
}

static void set_order(Emit *emit) {
  emit->n_order = 0;
  for (int i = 0; i < emit->stage->n_inner; i++)
    emit->order[emit->n_order++] = emit->nest->n_outer + i;
  if (emit->is_column) emit->order[emit->n_order++] = emit->nest->n_outer - 1;
}

/* ---- stages that are cut into parts ---- */

static int64_t inner_total(const NestStage *stage) {
  int64_t total = 1;
  for (int i = 0; i < stage->n_inner; i++) total *= stage->inner[i].extent;
  return total;
}

/* The loop at which the stage can be cut: the first that is long enough, or
 * -1. */
static int split_loop(const Emit *emit) {
  if (inner_total(emit->stage) < PARTS * 16) return -1;
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_reduce && stmt->reduce == NEST_argmax) return -1;
    if (stmt->kind == NEST_accumulate && !is_scattered_once(emit, stmt))
      return -1;
  }
  for (int i = 0; i < emit->stage->n_inner; i++)
    if (emit->stage->inner[i].extent >= PARTS) return emit->nest->n_outer + i;
  return -1;
}

static void emit_part_arrays(Emit *emit, bool is_declaration) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    int r = stmt->target;
    if (is_declaration && emit->is_column)
      line(emit, "%s q%d[%d][%" PRId64 "];", c_number(stmt->dtype), r, PARTS,
           emit->chunk);
    else if (is_declaration)
      line(emit, "%s q%d[%d];", c_number(stmt->dtype), r, PARTS);
    else if (emit->is_column)
      line(emit, "for (int64_t j = 0; j < jn; j++) q%d[part][j] = r%d[j];", r,
           r);
    else
      line(emit, "q%d[part] = r%d;", r, r);
  }
}

static void emit_combine(Emit *emit) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    const char *at = emit->is_column ? "[j]" : "";
    int r = stmt->target;
    line(emit, "for (int part = 0; part < %d; part++)", PARTS);
    emit->indent++;
    if (emit->is_column) line(emit, "for (int64_t j = 0; j < jn; j++)");
    if (stmt->reduce == NEST_sum) {
      line(emit, "r%d%s += q%d[part]%s;", r, at, r, at);
    } else {
      emit_extremum(emit, stmt, arena_printf(emit->arena, "q%d[part]%s", r, at),
                    at);
    }
    emit->indent--;
  }
}

static void emit_split_stage(Emit *emit, int split) {
  emit_part_arrays(emit, true);
  if (emit->is_parallel)
    line(emit, "#pragma omp parallel for schedule(static)");
  line(emit, "for (int64_t part = 0; part < %d; part++) {", PARTS);
  emit->indent++;
  for (int i = 0; i < emit->stage->stmts.n; i++)
    if (emit->stage->stmts.data[i].kind == NEST_reduce)
      declare_reduction(emit, &emit->stage->stmts.data[i]);
  emit_loops(emit, split);
  emit_part_arrays(emit, false);
  emit->indent--;
  line(emit, "}");
  emit_combine(emit);
}

static void emit_stage(Emit *emit, const NestStage *stage) {
  emit->stage = stage;
  set_order(emit);
  set_depths(emit);
  need_stage(emit->needed, emit->nest, stage);
  for (int i = 0; i < stage->stmts.n; i++)
    if (stage->stmts.data[i].kind == NEST_reduce)
      declare_reduction(emit, &stage->stmts.data[i]);
  line(emit, "{");
  emit->indent++;
  emit_exprs(emit, 0);
  int split = emit->is_wide ? split_loop(emit) : -1;
  if (split >= 0)
    emit_split_stage(emit, split);
  else
    emit_loops(emit, -1);
  emit->indent--;
  line(emit, "}");
}

/* ---- choices ---- */

static double expr_cost(const NestExpr *expr) {
  if (expr->kind == NEST_pw) return op_info(expr->op)->flops;
  if (expr->kind == NEST_random) return 60;
  return expr->kind == NEST_load ? 1 : 0;
}

static double stage_work(Emit *emit, const NestStage *stage) {
  double work = 1;
  need_stage(emit->needed, emit->nest, stage);
  for (int id = 0; id < emit->nest->exprs.n; id++)
    if (emit->needed[id]) work += expr_cost(&emit->nest->exprs.data[id]);
  return work * (double)inner_total(stage);
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

static bool choose_column(Emit *emit) {
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
    need_stage(emit->needed, nest, stage);
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

static void choose_chunk(Emit *emit) {
  const Nest *nest = emit->nest;
  int64_t columns = nest->outer[nest->n_outer - 1].extent;
  int64_t others = outer_total(nest) / columns;
  if (has_inner(nest) || has_sums(nest)) {
    emit->chunk = columns <= CHUNK + CHUNK / 2 ? columns : CHUNK;
  } else {
    int64_t wanted = (POINT_UNITS + others - 1) / others;
    int64_t chunk = (columns + wanted - 1) / wanted;
    chunk = (chunk + 63) / 64 * 64;
    emit->chunk = chunk < columns ? chunk : columns;
  }
  emit->n_chunks = (columns + emit->chunk - 1) / emit->chunk;
  emit->n_units = others * emit->n_chunks;
}

/* Cutting stages pays if every one with much work can be cut. */
static bool choose_wide(Emit *emit) {
  const Nest *nest = emit->nest;
  if (!emit->is_parallel || emit->n_units >= FEW_UNITS) return false;
  bool is_wide = false;
  for (int s = 0; s < nest->stages.n; s++) {
    emit->stage = &nest->stages.data[s];
    double work = stage_work(emit, emit->stage);
    if (emit->is_column) work *= (double)emit->chunk;
    if (emit->stage->n_inner == 0 || work < PARALLEL_WORK) continue;
    if (split_loop(emit) < 0) return false;
    is_wide = true;
  }
  return is_wide;
}

static void choose(Emit *emit) {
  const Nest *nest = emit->nest;
  double work = 0;
  for (int s = 0; s < nest->stages.n; s++)
    work += stage_work(emit, &nest->stages.data[s]);
  work *= (double)outer_total(nest);
  emit->is_column = choose_column(emit);
  emit->n_units = outer_total(nest);
  if (emit->is_column) choose_chunk(emit);
  emit->is_parallel = work >= PARALLEL_WORK;
  emit->is_wide = choose_wide(emit);
}

/* ---- the function ---- */

static void emit_buffers(Emit *emit) {
  for (int i = 0; i < emit->nest->buffers.n; i++) {
    const NestBuffer *buffer = &emit->nest->buffers.data[i];
    const char *type = c_storage(buffer->dtype);
    const char *constant = buffer->is_written ? "" : "const ";
    line(emit, "%s%s *const b%d = buffers[%d];", constant, type, i, i);
    if (!buffer->is_read && !buffer->is_written) line(emit, "(void)b%d;", i);
  }
  line(emit, "(void)numbers;");
}

/* The loop values of unit `u`. */
static void emit_unit(Emit *emit) {
  const Nest *nest = emit->nest;
  int n = nest->n_outer;
  if (n == 0) return;
  int64_t columns = nest->outer[n - 1].extent;
  bool is_chunked = emit->is_column && emit->n_chunks > 1;
  int last = emit->is_column ? n - 2 : n - 1;
  if (is_chunked)
    line(emit, "const int64_t j0 = u %% %" PRId64 " * %" PRId64 ";",
         emit->n_chunks, emit->chunk);
  else if (emit->is_column)
    line(emit, "const int64_t j0 = 0;");
  if (emit->is_column) {
    if (columns % emit->chunk == 0)
      line(emit, "enum { jn = %" PRId64 " };", emit->chunk);
    else
      line(emit,
           "const int64_t jn = %" PRId64 " - j0 < %" PRId64 " ? %" PRId64
           " - j0 : %" PRId64 ";",
           columns, emit->chunk, columns, emit->chunk);
  }
  int64_t step = is_chunked ? emit->n_chunks : 1;
  for (int i = last; i >= 0; i--) {
    line(emit, "const int64_t l%d = u / %" PRId64 " %% %" PRId64 ";", i, step,
         nest->outer[i].extent);
    step *= nest->outer[i].extent;
  }
}

/* Loop values that no address uses are no mistake. */
static void emit_unused(Emit *emit) {
  int n = emit->is_column ? emit->nest->n_outer - 1 : emit->nest->n_outer;
  for (int i = 0; i < n; i++) line(emit, "(void)l%d;", i);
}

void c_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                 KernelText *out) {
  (void)backend;
  Text text = text_create(module->arena);
  Emit emit = {.out = &text, .nest = nest, .arena = module->arena};
  emit.needed = ARENA_ARRAY(module->arena, bool, nest->exprs.n);
  emit.depths = ARENA_ARRAY(module->arena, int, nest->exprs.n);
  choose(&emit);
  line(&emit, "void %s(void *const *buffers, const int64_t *numbers) {",
       nest->name);
  emit.indent++;
  emit_buffers(&emit);
  if (emit.is_parallel && !emit.is_wide && emit.n_units > 1)
    line(&emit, "#pragma omp parallel for schedule(static)");
  line(&emit, "for (int64_t u = 0; u < %" PRId64 "; u++) {", emit.n_units);
  emit.indent++;
  emit_unit(&emit);
  emit_unused(&emit);
  for (int s = 0; s < nest->stages.n; s++)
    emit_stage(&emit, &nest->stages.data[s]);
  emit.indent--;
  line(&emit, "}");
  emit.indent--;
  line(&emit, "}");
  *out = (KernelText){.name = nest->name, .text = text_string(&text)};
}
