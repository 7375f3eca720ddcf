/*
 * emit.c -- emits a loop nest as one C function with OpenMP; a pure function to
 * text.
 *
 * There are two shapes.  In a *row* kernel the vector runs along the last inner
 * loop and an outer point is a unit of work:
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
 * A long loop is divided into blocks, which count as rows (c_sum_block), so
 * that no sum adds many numbers to one.
 *
 * In a *column* kernel (pointwise chains, sums over rows, scatter) the vector
 * runs along the last outer loop, a unit is a chunk of it, and reductions are
 * small arrays:
 *
 *     for unit in other outer points * chunks
 *       r0[chunk] = 0
 *       for inner: for j in chunk: r0[j] += ...
 *
 * The maximum of a NaN and a number is NaN, but `omp simd` combines the maxima
 * of its lanes as if there were none.  A row kernel therefore looks for NaNs
 * too, which costs nothing that could be measured:
 *
 *       r0 = -inf; n0 = 0
 *       for inner: { r0 = max(r0, ...); n0 |= isnan(...) }     simd
 *       if (n0) r0 = NaN
 *
 * Where there are few units and much work in each, units run one after the
 * other and every stage is split into a fixed number of parts instead, along an
 * inner loop or, where that would part additions to one element, along the
 * columns, so that the order of additions never depends on the number of
 * threads.
 *
 * A model has many kernels that differ in extents and strides alone, such as
 * the updates of its parameters.  Where a kernel is as fast with them as
 * run-time numbers, they are that, and one function does for all:
 *
 *     const int64_t size0 = numbers[0];
 *     for (int64_t l0 = 0; l0 < size0; l0++) ...
 *
 * Nothing is declared restrict, because a result may lie on the bytes of an
 * input (same element only); `omp simd` says that iterations are independent,
 * and all loads of a point come before its stores.
 */
#include <inttypes.h>
#include <string.h>

#include "codegen/c/emit_nest.h"

/* ---- statements ---- */

static void emit_stmt(CEmit *emit, const NestStmt *stmt) {
  if (stmt->kind == NEST_reduce) {
    c_emit_reduction(emit, stmt);
    return;
  }
  Text *out = emit->out;
  for (int i = 0; i < emit->indent; i++) text_add(out, "  ");
  if (stmt->at->n_guards > 0) {
    text_add(out, "if (");
    c_add_guards(emit, stmt->at);
    text_add(out, ") ");
  }
  text_printf(out, "b%d[", stmt->target);
  c_add_index(emit, stmt->at);
  if (stmt->kind == NEST_accumulate && dtype_is_16bit(stmt->dtype)) {
    const char *name = dtype_name(stmt->dtype);
    text_printf(out, "] = dnn_to_%s(dnn_from_%s(b%d[", name, name,
                stmt->target);
    c_add_index(emit, stmt->at);
    text_printf(out, "]) + dnn_from_%s(e%d));\n", name, stmt->expr);
    return;
  }
  const char *sign = stmt->kind == NEST_store ? "=" : "+=";
  text_printf(out, "] %s e%d;\n", sign, stmt->expr);
}

/* ---- loops of a stage ---- */

static bool is_simd(const CEmit *emit) {
  if (emit->is_column) return true;
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_accumulate && !c_is_scattered_once(emit, stmt))
      return false;
    if (stmt->kind == NEST_reduce && stmt->reduce == NEST_argmax) return false;
  }
  return true;
}

static void emit_simd(CEmit *emit) {
  Text clauses = text_create(emit->arena);
  c_add_clauses(emit, &clauses);
  c_emit_line(emit, "#pragma omp simd%s", text_string(&clauses));
}

static int64_t inner_extent(const CEmit *emit, int loop) {
  return emit->stage->inner[loop - emit->nest->n_outer].extent;
}

/* From which iteration to which the loop runs; a part of it where it is split.
 */
static void loop_bounds(CEmit *emit, int loop, int split,
                        const char **out_begin, const char **out_end) {
  const char *extent = c_size(emit, inner_extent(emit, loop));
  *out_begin = "0", *out_end = extent;
  if (loop != split) return;
  *out_begin = arena_printf(emit->arena, "%s * part / %d", extent, C_PARTS);
  *out_end = arena_printf(emit->arena, "%s * (part + 1) / %d", extent, C_PARTS);
}

static bool is_blocked(const CEmit *emit, int depth) {
  return emit->block > 0 && depth == emit->stage->n_inner - 1;
}

static void emit_loop_begin(CEmit *emit, int depth, int split) {
  int loop = emit->order[depth];
  if (depth == emit->n_order - 1 && is_simd(emit)) emit_simd(emit);
  if (emit->is_column && depth == emit->n_order - 1) {
    if (loop == split)
      c_emit_line(emit,
                  "for (int64_t j = (int64_t)jn * part / %d; "
                  "j < (int64_t)jn * (part + 1) / %d; j++) {",
                  C_PARTS, C_PARTS);
    else
      c_emit_line(emit, "for (int64_t j = 0; j < jn; j++) {");
    emit->indent++;
    c_emit_line(emit, "const int64_t l%d = j0 + j;", loop);
    return;
  }
  const char *begin, *end;
  loop_bounds(emit, loop, split, &begin, &end);
  if (is_blocked(emit, depth)) begin = "block", end = "end";
  c_emit_line(emit, "for (int64_t l%d = %s; l%d < %s; l%d++) {", loop, begin,
              loop, end, loop);
  emit->indent++;
}

/* The loop over the blocks of the last inner loop. */
static void emit_blocks_begin(CEmit *emit, int depth, int split) {
  const char *begin, *end, *size = c_size(emit, emit->block);
  loop_bounds(emit, emit->order[depth], split, &begin, &end);
  c_emit_line(emit, "for (int64_t block = %s; block < %s; block += %s) {",
              begin, end, size);
  emit->indent++;
  c_emit_line(emit, "const int64_t end = block + %s < %s ? block + %s : %s;",
              size, end, size, end);
}

static void emit_loops(CEmit *emit, int split) {
  int last = emit->stage->n_inner - 1; /* the loop of a row or block */
  emit->block = c_sum_block(emit);
  c_emit_row_sums(emit, ROW_before_all);
  for (int depth = 0; depth < emit->n_order; depth++) {
    if (is_blocked(emit, depth)) emit_blocks_begin(emit, depth, split);
    if (depth == last) c_emit_row_sums(emit, ROW_before);
    emit_loop_begin(emit, depth, split);
    c_emit_exprs(emit, depth + 1);
  }
  for (int i = 0; i < emit->stage->stmts.n; i++)
    emit_stmt(emit, &emit->stage->stmts.data[i]);
  for (int depth = emit->n_order - 1; depth >= 0; depth--) {
    emit->indent--;
    c_emit_line(emit, "}");
    if (depth == last) c_emit_row_sums(emit, ROW_after);
    if (!is_blocked(emit, depth)) continue;
    emit->indent--;
    c_emit_line(emit, "}");
  }
  c_emit_row_sums(emit, ROW_after_all);
  c_emit_nans(emit);
}

static void set_loop_order(CEmit *emit) {
  emit->n_order = 0;
  for (int i = 0; i < emit->stage->n_inner; i++)
    emit->order[emit->n_order++] = emit->nest->n_outer + i;
  if (emit->is_column) emit->order[emit->n_order++] = emit->nest->n_outer - 1;
}

/* ---- split stages ---- */

static void emit_split_stage(CEmit *emit, int split) {
  c_emit_part_arrays(emit, true);
  if (emit->is_parallel)
    c_emit_line(emit, "#pragma omp parallel for schedule(static)");
  c_emit_line(emit, "for (int64_t part = 0; part < %d; part++) {", C_PARTS);
  emit->indent++;
  for (int i = 0; i < emit->stage->stmts.n; i++)
    if (emit->stage->stmts.data[i].kind == NEST_reduce)
      c_declare_reduction(emit, &emit->stage->stmts.data[i]);
  emit_loops(emit, split);
  c_emit_part_arrays(emit, false);
  emit->indent--;
  c_emit_line(emit, "}");
  c_combine_parts(emit);
}

static void emit_stage(CEmit *emit, const NestStage *stage) {
  emit->stage = stage;
  set_loop_order(emit);
  c_set_depths(emit);
  c_need_stage(emit->needed, emit->nest, stage);
  for (int i = 0; i < stage->stmts.n; i++)
    if (stage->stmts.data[i].kind == NEST_reduce)
      c_declare_reduction(emit, &stage->stmts.data[i]);
  c_emit_line(emit, "{");
  emit->indent++;
  c_emit_exprs(emit, 0);
  int split = emit->splits_stages ? c_split_loop(emit) : -1;
  if (split >= 0)
    emit_split_stage(emit, split);
  else
    emit_loops(emit, -1);
  emit->indent--;
  c_emit_line(emit, "}");
}

/* ---- the function ---- */

static void declare_buffers(CEmit *emit) {
  for (int i = 0; i < emit->nest->buffers.n; i++) {
    const NestBuffer *buffer = &emit->nest->buffers.data[i];
    const char *type = c_storage(buffer->dtype);
    const char *constant = buffer->is_written ? "" : "const ";
    c_emit_line(emit, "%s%s *const b%d = buffers[%d];", constant, type, i, i);
    if (!buffer->is_read && !buffer->is_written)
      c_emit_line(emit, "(void)b%d;", i);
  }
  c_emit_line(emit, "(void)numbers;");
}

/* How many columns a unit has, from j0 on. */
static void declare_columns(CEmit *emit) {
  int64_t columns = emit->nest->outer[emit->nest->n_outer - 1].extent;
  bool is_chunked = emit->n_chunks > 1;
  const char *chunk = c_size(emit, emit->chunk);
  const char *all = c_size(emit, columns);
  if (is_chunked && (emit->takes_sizes || columns % emit->chunk != 0))
    c_emit_line(emit, "const int64_t jn = %s - j0 < %s ? %s - j0 : %s;", all,
                chunk, all, chunk);
  else if (emit->takes_sizes)
    c_emit_line(emit, "const int64_t jn = %s;", chunk);
  else
    c_emit_line(emit, "enum { jn = %s };", chunk);
}

/* The last outer loop whose value is one of a unit. */
static int last_unit_loop(const CEmit *emit) {
  return emit->nest->n_outer - (emit->is_column ? 2 : 1);
}

/* One loop over all units, which threads share. */
static void begin_parallel_units(CEmit *emit) {
  c_emit_line(emit, "#pragma omp parallel for schedule(static)");
  c_emit_line(emit, "for (int64_t u = 0; u < %s; u++) {",
              c_size(emit, emit->n_units));
  emit->indent++;
  int64_t step = 1;
  if (emit->is_column && emit->n_chunks > 1) {
    step = emit->n_chunks;
    c_emit_line(emit, "const int64_t j0 = u %% %s * %s;", c_size(emit, step),
                c_size(emit, emit->chunk));
  } else if (emit->is_column) {
    c_emit_line(emit, "const int64_t j0 = 0;");
  }
  for (int i = last_unit_loop(emit); i >= 0; i--) {
    c_emit_line(emit, "const int64_t l%d = u / %s %% %s;", i,
                c_size(emit, step), c_size(emit, emit->nest->outer[i].extent));
    step *= emit->nest->outer[i].extent;
  }
}

static void begin_units(CEmit *emit) {
  const Nest *nest = emit->nest;
  for (int i = 0; i <= last_unit_loop(emit); i++) {
    c_emit_line(emit, "for (int64_t l%d = 0; l%d < %s; l%d++) {", i, i,
                c_size(emit, nest->outer[i].extent), i);
    emit->indent++;
  }
  if (!emit->is_column) return;
  if (emit->n_chunks > 1) {
    c_emit_line(emit, "for (int64_t j0 = 0; j0 < %s; j0 += %s) {",
                c_size(emit, nest->outer[nest->n_outer - 1].extent),
                c_size(emit, emit->chunk));
    emit->indent++;
  } else {
    c_emit_line(emit, "const int64_t j0 = 0;");
  }
}

/* Loop values that no address uses are no mistake. */
static void void_unused(CEmit *emit) {
  int n = emit->is_column ? emit->nest->n_outer - 1 : emit->nest->n_outer;
  for (int i = 0; i < n; i++) c_emit_line(emit, "(void)l%d;", i);
}

/* Stages that repeat are emitted once, as cases of a switch. */
static void emit_steps(CEmit *emit) {
  const Nest *nest = emit->nest;
  bool repeats = nest->steps.n > 0;
  if (repeats) {
    Text steps = text_create(emit->arena);
    for (int i = 0; i < nest->steps.n; i++)
      text_printf(&steps, "%s%d", i ? ", " : "", nest->steps.data[i]);
    c_emit_line(emit, "static const uint16_t steps[] = {%s};",
                text_string(&steps));
    c_emit_line(emit, "for (int s = 0; s < %d; s++) switch (steps[s]) {",
                nest->steps.n);
  }
  for (int s = 0; s < nest->stages.n; s++) {
    if (repeats) c_emit_line(emit, "case %d:", s);
    emit_stage(emit, &nest->stages.data[s]);
    if (repeats) c_emit_line(emit, "break;");
  }
  if (repeats) c_emit_line(emit, "}");
}

static void emit_body(CEmit *emit) {
  if (emit->is_parallel && !emit->splits_stages && emit->n_units > 1)
    begin_parallel_units(emit);
  else
    begin_units(emit);
  if (emit->is_column) declare_columns(emit);
  void_unused(emit);
  emit_steps(emit);
  while (emit->indent > 1) {
    emit->indent--;
    c_emit_line(emit, "}");
  }
}

/* "dnn_fused_3f2a" by the text, which nests of other sizes have, too. */
static Name sized_name(const CEmit *emit, const char *text) {
  const char *own = emit->nest->name;
  uint64_t hash = hash_bytes(text, strlen(text), 0);
  return name_format(emit->module->names, "%.*s_%012llx",
                     (int)(strrchr(own, '_') - own), own,
                     (unsigned long long)hash >> 16);
}

/* `emit` has made its choices. */
static void emit_function(CEmit *emit, KernelText *out) {
  const Nest *nest = emit->nest;
  Text body = text_create(emit->arena), head = text_create(emit->arena);
  emit->depths = ARENA_ARRAY(emit->arena, int, nest->exprs.n);
  emit->out = &body;
  emit->indent = 1;
  emit_body(emit);
  emit->out = &head;
  declare_buffers(emit);
  for (int i = 0; i < emit->sizes.n; i++)
    c_emit_line(emit, "const int64_t size%d = numbers[%d];", i,
                nest->n_numbers + i);
  text_add(&head, text_string(&body));
  text_add(&head, "}\n");
  Name name = nest->name;
  if (emit->takes_sizes) name = sized_name(emit, text_string(&head));
  *out = (KernelText){
      .name = name,
      .text = arena_printf(
          emit->arena,
          "void %s(void *const *buffers, const int64_t *numbers) {\n%s", name,
          text_string(&head)),
      .sizes = emit->sizes.data,
      .n_sizes = emit->sizes.n};
}

static CEmit begin_emit(Module *module, const Nest *nest) {
  CEmit emit = {.module = module, .nest = nest, .arena = module->arena};
  emit.needed = ARENA_ARRAY(module->arena, bool, nest->exprs.n);
  c_choose(&emit);
  return emit;
}

void c_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                 KernelText *out) {
  (void)backend;
  CEmit emit = begin_emit(module, nest);
  emit_function(&emit, out);
}

bool c_emit_sized_nest(const Backend *backend, Module *module, const Nest *nest,
                       KernelText *out) {
  (void)backend;
  CEmit emit = begin_emit(module, nest);
  if (!c_may_take_sizes(&emit)) return false;
  emit.takes_sizes = true;
  emit_function(&emit, out);
  return true;
}
