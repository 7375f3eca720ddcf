/*
 * emit_expr.c -- emits the expressions of a loop nest as C: one constant each,
 * declared in the outermost loop that its value allows.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/c/emit_nest.h"

void c_emit_line(CEmit *emit, const char *format, ...) {
  for (int i = 0; i < emit->indent; i++) text_add(emit->out, "  ");
  va_list args;
  va_start(args, format);
  text_add(emit->out, arena_vprintf(emit->arena, format, args));
  va_end(args);
  text_add(emit->out, "\n");
}

const char *c_size(CEmit *emit, int64_t size) {
  if (!emit->takes_sizes || size == 0 || size == 1)
    return arena_printf(emit->arena, "%" PRId64, size);
  int i = 0;
  while (i < emit->sizes.n && emit->sizes.data[i] != size) i++;
  if (i == emit->sizes.n) vec_push(emit->arena, &emit->sizes, size);
  return arena_printf(emit->arena, "size%d", i);
}

/* ---- loops that an expression depends on ---- */

static bool is_stored_here(const CEmit *emit, int buffer) {
  return emit->nest->buffers.data[buffer].is_written;
}

/* How many loops of the order must be open: strides of an index. */
static int stride_depth(const CEmit *emit, const int64_t *stride) {
  int depth = 0;
  for (int i = 0; i < emit->n_order; i++)
    if (stride[emit->order[i]] != 0) depth = i + 1;
  return depth;
}

static int max_int(int a, int b) {
  return a > b ? a : b;
}

static int index_depth(const CEmit *emit, const NestIndex *at) {
  int depth = stride_depth(emit, at->stride);
  for (int i = 0; i < at->n_dynamic; i++)
    depth = max_int(depth, emit->depths[at->dynamic[i].expr]);
  for (int i = 0; i < at->n_guards; i++)
    depth = max_int(depth, stride_depth(emit, at->guards[i].stride));
  return depth;
}

static int expr_depth(const CEmit *emit, int id) {
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
void c_set_depths(CEmit *emit) {
  for (int id = 0; id < emit->nest->exprs.n; id++)
    emit->depths[id] = expr_depth(emit, id);
}

static void need_expr(bool *needed, const Nest *nest, int id);

static void need_index(bool *needed, const Nest *nest, const NestIndex *at) {
  for (int i = 0; i < at->n_dynamic; i++)
    need_expr(needed, nest, at->dynamic[i].expr);
}

static void need_expr(bool *needed, const Nest *nest, int id) {
  if (id < 0 || needed[id]) return;
  needed[id] = true;
  const NestExpr *expr = &nest->exprs.data[id];
  for (int i = 0; i < 3; i++) need_expr(needed, nest, expr->args[i]);
  if (expr->at) need_index(needed, nest, expr->at);
}

void c_need_stage(bool *needed, const Nest *nest, const NestStage *stage) {
  memset(needed, 0, (size_t)nest->exprs.n * sizeof *needed);
  for (int i = 0; i < stage->stmts.n; i++) {
    need_expr(needed, nest, stage->stmts.data[i].expr);
    if (stage->stmts.data[i].at)
      need_index(needed, nest, stage->stmts.data[i].at);
  }
}

/* ---- expressions ---- */

static void add_affine(CEmit *emit, int64_t base, const int64_t *stride) {
  Text *out = emit->out;
  bool is_first = true;
  for (int i = 0; i < MAX_LOOPS; i++) {
    if (stride[i] == 0) continue;
    text_printf(out, is_first ? "l%d" : " + l%d", i);
    if (stride[i] != 1) text_printf(out, " * %s", c_size(emit, stride[i]));
    is_first = false;
  }
  if (base != 0 || is_first)
    text_printf(out, is_first ? "%s" : " + %s", c_size(emit, base));
}

void c_add_index(CEmit *emit, const NestIndex *at) {
  add_affine(emit, at->base, at->stride);
  for (int i = 0; i < at->n_dynamic; i++) {
    const NestTerm *term = &at->dynamic[i];
    const char *stride = c_size(emit, term->stride);
    if (term->limit == INT64_MAX)
      text_printf(emit->out, " + e%d * %s", term->expr, stride);
    else
      text_printf(emit->out, " + dnn_clamp(e%d, %s) * %s", term->expr,
                  c_size(emit, term->limit), stride);
  }
}

void c_add_guards(CEmit *emit, const NestIndex *at) {
  for (int i = 0; i < at->n_guards; i++) {
    text_add(emit->out, i == 0 ? "(uint64_t)(" : " && (uint64_t)(");
    add_affine(emit, at->guards[i].base, at->guards[i].stride);
    text_printf(emit->out, ") < %s", c_size(emit, at->guards[i].limit));
  }
}

static bool is_word_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         (c >= '0' && c <= '9');
}

/* The text of a row of ops.def with its operands put in; functions get the
 * dtype as suffix: EXP(a) -> EXP_f32(e3). */
static void add_pointwise(Text *out, const NestExpr *expr, DType dtype) {
  const char *text = op_info(expr->op)->value;
  while (*text) {
    size_t n = 0;
    while (is_word_char(text[n])) n++;
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

static void add_cast(CEmit *emit, const NestExpr *expr) {
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

static void add_load(CEmit *emit, const NestExpr *expr) {
  Text *out = emit->out;
  if (expr->at->n_guards > 0) {
    c_add_guards(emit, expr->at);
    text_add(out, " ? ");
  }
  text_printf(out, "b%d[", expr->index);
  c_add_index(emit, expr->at);
  text_add(out, "]");
  if (expr->at->n_guards > 0) {
    text_add(out, " : ");
    c_add_literal(out, expr->dtype, expr->at->outside);
  }
}

static DType c_operand_dtype(const Nest *nest, const NestExpr *expr) {
  PwClass class = op_info(expr->op)->pw_class;
  bool by_operand = class == PW_COMPARE || class == PW_LOGIC;
  return by_operand ? nest->exprs.data[expr->args[0]].dtype : expr->dtype;
}

static void emit_one_expr(CEmit *emit, int id) {
  const NestExpr *expr = &emit->nest->exprs.data[id];
  Text *out = emit->out;
  for (int i = 0; i < emit->indent; i++) text_add(out, "  ");
  text_printf(out, "const %s e%d = ", c_number(expr->dtype), id);
  switch (expr->kind) {
  case NEST_const: c_add_literal(out, expr->dtype, expr->number); break;
  case NEST_loop: text_printf(out, "l%d", expr->index); break;
  case NEST_load: add_load(emit, expr); break;
  case NEST_pw:
    add_pointwise(out, expr, c_operand_dtype(emit->nest, expr));
    break;
  case NEST_cast: add_cast(emit, expr); break;
  case NEST_reduced:
    text_printf(out, emit->is_column ? "r%d[j]" : "r%d", expr->index);
    break;
  case NEST_number: text_printf(out, "numbers[%d]", expr->index); break;
  case NEST_random:
    text_printf(out, "dnn_%s(e%d, %uu, e%d, e%d", op_info(expr->op)->name,
                expr->args[0], (unsigned)expr->index, expr->args[1],
                expr->args[2]);
    if (expr->op == OP_random_keep)
      text_printf(out, ", %uu", (unsigned)(expr->number * 16777216.0));
    text_add(out, ")");
    break;
  }
  text_add(out, ";\n");
}

void c_emit_exprs(CEmit *emit, int depth) {
  for (int id = 0; id < emit->nest->exprs.n; id++) {
    if (!emit->needed[id] || emit->depths[id] != depth) continue;
    emit_one_expr(emit, id);
  }
}
