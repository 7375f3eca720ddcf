/*
 * emit_expr.c -- emits the expressions of a nest as CUDA C: one constant each,
 * named by its number and declared once in a body.
 */
#include "codegen/cuda/emit.h"

static const NestExpr *nest_expr(const Emit *emit, int expr) {
  return &emit->nest->exprs.data[expr];
}

/* ---- expressions that a body needs ---- */

static bool strides_vary(const Emit *emit, const int64_t *stride) {
  for (int l = emit->first_varying; l < emit->n_loops; l++)
    if (stride[l] != 0) return true;
  return false;
}

static bool index_varies(const Emit *emit, const NestIndex *at) {
  if (strides_vary(emit, at->stride)) return true;
  for (int i = 0; i < at->n_guards; i++)
    if (strides_vary(emit, at->guards[i].stride)) return true;
  for (int i = 0; i < at->n_dynamic; i++)
    if (emit->varies[at->dynamic[i].expr]) return true;
  return false;
}

static bool has_args(const NestExpr *expr) {
  return expr->kind == NEST_pw || expr->kind == NEST_cast ||
         expr->kind == NEST_random;
}

static void need_expr(Emit *emit, int expr) {
  if (expr < 0 || emit->is_needed[expr]) return;
  emit->is_needed[expr] = true;
  const NestExpr *e = nest_expr(emit, expr);
  for (int i = 0; i < 3 && has_args(e); i++) need_expr(emit, e->args[i]);
  for (int i = 0; e->at && i < e->at->n_dynamic; i++)
    need_expr(emit, e->at->dynamic[i].expr);
}

static bool expr_varies(const Emit *emit, const NestExpr *expr) {
  if (expr->kind == NEST_loop) return expr->index >= emit->first_varying;
  if (expr->at) return index_varies(emit, expr->at);
  for (int i = 0; i < 3 && has_args(expr); i++)
    if (expr->args[i] >= 0 && emit->varies[expr->args[i]]) return true;
  return false;
}

void emit_analyse(Emit *emit, bool (*wants)(const Emit *, const NestStmt *)) {
  int n = emit->nest->exprs.n;
  emit->is_needed = ARENA_ARRAY(emit->arena, bool, n);
  emit->varies = ARENA_ARRAY(emit->arena, bool, n);
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (!wants(emit, stmt)) continue;
    need_expr(emit, stmt->expr);
    for (int k = 0; stmt->at && k < stmt->at->n_dynamic; k++)
      need_expr(emit, stmt->at->dynamic[k].expr);
  }
  for (int e = 0; e < n; e++)
    emit->varies[e] =
        emit->is_needed[e] && expr_varies(emit, nest_expr(emit, e));
}

/* ---- indices ---- */

/* base + sum stride * loop; "0" if that is all. */
static void emit_affine(Emit *emit, int64_t base, const int64_t *stride) {
  bool is_first = true;
  for (int l = 0; l < emit->n_loops; l++) {
    if (stride[l] == 0 || stage_extent(emit->nest, emit->stage, l) == 1)
      continue;
    text_add(emit->out, is_first ? "" : " + ");
    if (stride[l] == 1) {
      text_printf(emit->out, "x%d", l);
    } else {
      text_printf(emit->out, "x%d * %lld", l, (long long)stride[l]);
    }
    is_first = false;
  }
  if (is_first || base != 0)
    text_printf(emit->out, "%s%lld", is_first ? "" : " + ", (long long)base);
}

void emit_index(Emit *emit, const NestIndex *at) {
  emit_affine(emit, at->base, at->stride);
  for (int i = 0; i < at->n_dynamic; i++) {
    const NestTerm *term = &at->dynamic[i];
    text_printf(emit->out, " + (%s)dnn_clamp_i64(v%d, %lldLL) * %lld",
                emit->index, term->expr, (long long)term->limit,
                (long long)term->stride);
  }
}

bool emit_guards(Emit *emit, const NestIndex *at) {
  for (int i = 0; i < at->n_guards; i++) {
    text_printf(emit->out, "%s(unsigned %s)(", i > 0 ? " && " : "",
                emit->index);
    emit_affine(emit, at->guards[i].base, at->guards[i].stride);
    text_printf(emit->out, ") < %lldu", (long long)at->guards[i].limit);
  }
  return at->n_guards > 0;
}

/* ---- values ---- */

void emit_value(Emit *emit, int expr, DType dtype) {
  DType from = nest_expr(emit, expr)->dtype;
  bool is_same = cuda_number(from) == cuda_number(dtype);
  if (dtype == DT_bool && from != DT_bool) {
    text_printf(emit->out, "(v%d != 0)", expr);
  } else if (is_same) {
    text_printf(emit->out, "v%d", expr);
  } else {
    text_printf(emit->out, "(%s)v%d", cuda_number(dtype), expr);
  }
}

static bool is_vector_load(const Emit *emit, const NestExpr *expr) {
  return expr->kind == NEST_load && emit->vector_loop >= 0 &&
         expr->at->stride[emit->vector_loop] == 1;
}

static void emit_load(Emit *emit, int id, const NestExpr *expr) {
  if (expr->at->n_guards > 0) {
    emit_guards(emit, expr->at);
    text_add(emit->out, " ? ");
  }
  if (dtype_is_16bit(expr->dtype))
    text_printf(emit->out, "dnn_from_%s(", dtype_name(expr->dtype));
  if (is_vector_load(emit, expr)) {
    text_printf(emit->out, "w%d.e[k]", id);
  } else {
    text_printf(emit->out, "b%d[", expr->index);
    emit_index(emit, expr->at);
    text_add(emit->out, "]");
  }
  text_add(emit->out, dtype_is_16bit(expr->dtype) ? ")" : "");
  if (expr->at->n_guards > 0) {
    text_add(emit->out, " : ");
    cuda_constant(emit->out, expr->dtype, expr->at->outside);
  }
}

/* Conditions are bools whatever the operator is computed in. */
static void emit_pointwise(Emit *emit, const NestExpr *expr) {
  const OpInfo *info = op_info(expr->op);
  DType dtype = expr->dtype;
  if (info->pw_class == PW_COMPARE) {
    dtype = nest_expr(emit, expr->args[0])->dtype;
    for (int i = 1; i < info->max_inputs; i++)
      dtype = dtype_promote(dtype, nest_expr(emit, expr->args[i])->dtype);
  }
  if (expr->op == OP_finite && dtype_class(dtype) != CLASS_FLOAT) {
    text_add(emit->out, "1");
    return;
  }
  text_printf(emit->out, "dnn_%s_%s(", info->name, cuda_suffix(dtype));
  for (int i = 0; i < info->max_inputs; i++) {
    text_add(emit->out, i > 0 ? ", " : "");
    bool is_condition = info->pw_class == PW_SELECT && i == 0;
    emit_value(emit, expr->args[i],
               is_condition || info->pw_class == PW_LOGIC ? DT_bool : dtype);
  }
  text_add(emit->out, ")");
}

static void emit_random(Emit *emit, const NestExpr *expr) {
  text_printf(emit->out, "dnn_%s(v%d, %uu, v%d, v%d", op_info(expr->op)->name,
              expr->args[0], (unsigned)expr->index, expr->args[1],
              expr->args[2]);
  if (expr->op == OP_random_keep) {
    text_add(emit->out, ", ");
    text_add_real(emit->out, expr->number);
  }
  text_add(emit->out, ")");
}

/* Integers of 8 and 16 bits wrap where they are cast, as in memory. */
static void emit_cast(Emit *emit, const NestExpr *expr) {
  if (dtype_class(expr->dtype) == CLASS_INT &&
      dtype_class(nest_expr(emit, expr->args[0])->dtype) == CLASS_FLOAT) {
    text_printf(emit->out, "dnn_integer_%s(v%d)", dtype_name(expr->dtype),
                expr->args[0]);
    return;
  }
  bool is_small = dtype_class(expr->dtype) == CLASS_INT &&
                  dtype_size_bytes(expr->dtype) < 4;
  if (is_small) text_printf(emit->out, "(%s)", cuda_storage(expr->dtype));
  const char *name = dtype_name(expr->dtype);
  if (dtype_is_16bit(expr->dtype))
    text_printf(emit->out, "dnn_from_%s(dnn_to_%s(", name, name);
  emit_value(emit, expr->args[0], expr->dtype);
  if (dtype_is_16bit(expr->dtype)) text_add(emit->out, "))");
}

static void emit_expr_value(Emit *emit, int id, const NestExpr *expr) {
  switch (expr->kind) {
  case NEST_const: cuda_constant(emit->out, expr->dtype, expr->number); break;
  case NEST_loop: text_printf(emit->out, "x%d", expr->index); break;
  case NEST_load: emit_load(emit, id, expr); break;
  case NEST_pw: emit_pointwise(emit, expr); break;
  case NEST_cast: emit_cast(emit, expr); break;
  case NEST_reduced: text_printf(emit->out, "r%d", expr->index); break;
  case NEST_number: text_printf(emit->out, "args.n%d", expr->index); break;
  case NEST_random: emit_random(emit, expr); break;
  }
}

void emit_exprs(Emit *emit, bool varying) {
  for (int e = 0; e < emit->nest->exprs.n; e++) {
    if (!emit->is_needed[e] || emit->varies[e] != varying) continue;
    const NestExpr *expr = nest_expr(emit, e);
    text_printf(emit->out, "    const %s v%d = ", cuda_number(expr->dtype), e);
    emit_expr_value(emit, e, expr);
    text_add(emit->out, ";\n");
  }
}

void emit_store(Emit *emit, const NestStmt *stmt, const char *indent) {
  text_add(emit->out, indent);
  if (stmt->at->n_guards > 0) {
    text_add(emit->out, "if (");
    emit_guards(emit, stmt->at);
    text_add(emit->out, ") ");
  }
  const char *name = dtype_name(stmt->dtype);
  bool is_16bit = dtype_is_16bit(stmt->dtype);
  bool is_vector = emit->vector_loop >= 0;
  bool adds = stmt->kind == NEST_accumulate;
  if (is_vector) {
    text_printf(emit->out,
                "y%d.e[k] = ", (int)(stmt - emit->stage->stmts.data));
  } else {
    text_printf(emit->out, "b%d[", stmt->target);
    emit_index(emit, stmt->at);
    text_printf(emit->out, "] %s= ", adds && !is_16bit ? "+" : "");
  }
  if (is_16bit) text_printf(emit->out, "dnn_to_%s(", name);
  if (is_16bit && adds) {
    text_printf(emit->out, "dnn_from_%s(b%d[", name, stmt->target);
    emit_index(emit, stmt->at);
    text_add(emit->out, "]) + ");
  }
  text_printf(emit->out, "(%s)",
              is_16bit ? "float" : cuda_storage(stmt->dtype));
  emit_value(emit, stmt->expr, stmt->dtype);
  text_printf(emit->out, "%s;\n", is_16bit ? ")" : "");
}
