/*
 * print.c -- prints loop nests as text and hashes that text, so that equal
 * nests become one kernel.
 *
 *     kernel dnn_fused_0f3a
 *       buffer b0 f32[8192] read
 *       outer l0 T:64
 *       stage inner l1 S:128
 *         e0 = load f32 b0[l0*128 + l1]
 *         r0 = max f32 e0
 *
 * Two nests with equal text are one kernel; names do not count.
 */
#include <inttypes.h>

#include "codegen/nest/nest.h"

typedef struct Printer {
  Text *out;
  const Nest *nest;
  bool has_names; /* of the kernel and of dims */
} Printer;

static void print_affine(Text *out, int64_t base, const int64_t *stride) {
  bool is_first = true;
  for (int i = 0; i < MAX_LOOPS; i++) {
    if (stride[i] == 0) continue;
    text_printf(out, is_first ? "l%d" : " + l%d", i);
    if (stride[i] != 1) text_printf(out, "*%" PRId64, stride[i]);
    is_first = false;
  }
  if (is_first)
    text_printf(out, "%" PRId64, base);
  else if (base != 0)
    text_printf(out, " %c %" PRId64, base < 0 ? '-' : '+',
                base < 0 ? -base : base);
}

static void print_index(Text *out, const NestIndex *at) {
  text_add(out, "[");
  print_affine(out, at->base, at->stride);
  for (int i = 0; i < at->n_dynamic; i++) {
    const NestTerm *term = &at->dynamic[i];
    text_printf(out, " + e%d*%" PRId64, term->expr, term->stride);
    if (term->limit != INT64_MAX)
      text_printf(out, " (< %" PRId64 ")", term->limit);
  }
  text_add(out, "]");
  for (int i = 0; i < at->n_guards; i++) {
    text_add(out, " if 0 <= ");
    print_affine(out, at->guards[i].base, at->guards[i].stride);
    text_printf(out, " < %" PRId64, at->guards[i].limit);
  }
  if (at->n_guards > 0) {
    text_add(out, " else ");
    text_add_real(out, at->outside);
  }
}

static void print_args(Text *out, const NestExpr *expr) {
  for (int i = 0; i < 3; i++)
    if (expr->args[i] >= 0)
      text_printf(out, i == 0 ? " e%d" : ", e%d", expr->args[i]);
}

static void print_expr(Printer *printer, int id) {
  Text *out = printer->out;
  const NestExpr *expr = &printer->nest->exprs.data[id];
  text_printf(out, "  e%d = ", id);
  const char *dtype = dtype_name(expr->dtype);
  switch (expr->kind) {
  case NEST_const:
    text_printf(out, "const %s ", dtype);
    text_add_real(out, expr->number);
    break;
  case NEST_loop: text_printf(out, "loop l%d", expr->index); break;
  case NEST_load:
    text_printf(out, "load %s b%d", dtype, expr->index);
    print_index(out, expr->at);
    break;
  case NEST_pw:
    text_printf(out, "%s %s", op_info(expr->op)->name, dtype);
    print_args(out, expr);
    break;
  case NEST_cast:
    text_printf(out, "cast %s", dtype);
    print_args(out, expr);
    break;
  case NEST_reduced:
    text_printf(out, "reduced %s r%d", dtype, expr->index);
    break;
  case NEST_number: text_printf(out, "number n%d", expr->index); break;
  case NEST_random:
    text_printf(out, "%s %d ", op_info(expr->op)->name, expr->index);
    text_add_real(out, expr->number);
    print_args(out, expr);
    break;
  }
  text_add(out, "\n");
}

static void print_stmt(Printer *printer, const NestStmt *stmt) {
  Text *out = printer->out;
  if (stmt->kind == NEST_reduce) {
    text_printf(out, "    r%d = %s %s e%d\n", stmt->target,
                nest_reduction(stmt->reduce)->name, dtype_name(stmt->dtype),
                stmt->expr);
    return;
  }
  text_printf(out, "    b%d", stmt->target);
  print_index(out, stmt->at);
  text_printf(out, " %s e%d\n",
              stmt->kind == NEST_store ? "=" : "+=", stmt->expr);
}

static void print_loops(Printer *printer, const NestLoop *loops, int n,
                        int first) {
  for (int i = 0; i < n; i++)
    text_printf(printer->out, " l%d %s:%" PRId64, first + i,
                printer->has_names ? loops[i].dim : "", loops[i].extent);
  text_add(printer->out, "\n");
}

static void print_nest(Printer *printer) {
  const Nest *nest = printer->nest;
  Text *out = printer->out;
  for (int i = 0; i < nest->buffers.n; i++) {
    const NestBuffer *buffer = &nest->buffers.data[i];
    text_printf(out, "  buffer b%d %s[%" PRId64 "]%s%s\n", i,
                dtype_name(buffer->dtype), buffer->elements,
                buffer->is_read ? " read" : "",
                buffer->is_written ? " written" : "");
  }
  for (int i = 0; i < nest->n_numbers; i++)
    text_printf(out, "  number n%d = %" PRId64 " * shard %x\n", i,
                nest->numbers[i].factor, nest->numbers[i].split);
  for (int i = 0; i < nest->exprs.n; i++) print_expr(printer, i);
  text_add(out, "  outer");
  print_loops(printer, nest->outer, nest->n_outer, 0);
  for (int s = 0; s < nest->stages.n; s++) {
    const NestStage *stage = &nest->stages.data[s];
    text_add(out, "  stage inner");
    print_loops(printer, stage->inner, stage->n_inner, nest->n_outer);
    for (int i = 0; i < stage->stmts.n; i++)
      print_stmt(printer, &stage->stmts.data[i]);
  }
  if (nest->steps.n > 0) {
    text_add(out, "  steps");
    for (int i = 0; i < nest->steps.n; i++)
      text_printf(out, " %d", nest->steps.data[i]);
    text_add(out, "\n");
  }
}

int nest_step_count(const Nest *nest) {
  return nest->steps.n > 0 ? nest->steps.n : nest->stages.n;
}

int nest_step_stage(const Nest *nest, int step) {
  return nest->steps.n > 0 ? nest->steps.data[step] : step;
}

void nest_print(Text *out, const Nest *nest) {
  Printer printer = {.out = out, .nest = nest, .has_names = true};
  text_printf(out, "kernel %s\n", nest->name);
  print_nest(&printer);
}

uint64_t nest_hash(const Nest *nest, Arena *scratch) {
  Text text = text_create(scratch);
  Printer printer = {.out = &text, .nest = nest};
  print_nest(&printer);
  return hash_bytes(text_string(&text), text.n, 0);
}
