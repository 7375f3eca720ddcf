/*
 * emit.c -- emits a loop nest as one CUDA kernel; a pure function to text.
 *
 *     outer T:64                        for (tile of rows) {
 *     stage 0: inner S:128                float r0 = -inf;
 *       r0 = max x[T, S]          =>      for (i = lane; i < 128; i += 32)
 *     stage 1: inner S:128                  r0 = max(r0, b0[...]);
 *       y[T, S] = exp(x[T, S] - r0)       r0 = dnn_warp_max_f32(r0);
 *                                         for (i = lane; ...) b1[...] = ...;
 *
 * map.c maps points to threads.  A body loads all elements before it stores
 * any, because a result may lie in the bytes of an input.  The one atomic
 * operation counts the blocks that have arrived where a sum is split over
 * blocks; the order of additions is fixed.
 */
#include "codegen/cuda/emit.h"

static bool runs_in_order(const Emit *emit, const NestStmt *stmt) {
  return accumulates_in_order(emit->nest, emit->stage, stmt);
}
static bool runs_in_parallel(const Emit *emit, const NestStmt *stmt) {
  return !runs_in_order(emit, stmt);
}
static bool any_stmt(const Emit *emit, const NestStmt *stmt) {
  (void)emit, (void)stmt;
  return true;
}

static bool has_stmt(const Emit *emit,
                     bool (*wants)(const Emit *, const NestStmt *)) {
  for (int i = 0; i < emit->stage->stmts.n; i++)
    if (wants(emit, &emit->stage->stmts.data[i])) return true;
  return false;
}

/* ---- loops ---- */

/* Loop variables from one linear index: x2 = r % e2; r /= e2; ... */
static void emit_loop_indices(Emit *emit, const char *number, int first,
                              int last) {
  Text *out = emit->out;
  if (first > last) return;
  if (first == last) {
    text_printf(out, "    const %s x%d = %s;\n", emit->index, first, number);
    return;
  }
  text_printf(out, "    %s rest = %s;\n", emit->index, number);
  for (int l = last; l > first; l--) {
    long long extent = (long long)stage_extent(emit->nest, emit->stage, l);
    if (l == emit->vector_loop) {
      text_printf(out, "    const %s x%d_0 = rest %% %lld * 4;\n", emit->index,
                  l, extent / 4);
      extent /= 4;
    } else {
      text_printf(out, "    const %s x%d = rest %% %lld;\n", emit->index, l,
                  extent);
    }
    text_printf(out, "    rest /= %lld;\n", extent);
  }
  text_printf(out, "    const %s x%d = rest;\n", emit->index, first);
}

static void enter_stage(Emit *emit, const NestStage *stage) {
  emit->stage = stage;
  emit->n_loops = emit->nest->n_outer + stage->n_inner;
  emit->first_varying = emit->nest->n_outer;
  emit->vector_loop = -1;
}

/* ---- flat ---- */

static void emit_vector_loads(Emit *emit) {
  int last = emit->vector_loop;
  for (int e = 0; e < emit->nest->exprs.n; e++) {
    const NestExpr *expr = &emit->nest->exprs.data[e];
    if (!emit->is_needed[e] || expr->kind != NEST_load ||
        expr->at->stride[last] != 1)
      continue;
    text_printf(emit->out, "    const dnn_%s_4 w%d = *(const dnn_%s_4 *)&b%d[",
                dtype_name(expr->dtype), e, dtype_name(expr->dtype),
                expr->index);
    emit_index(emit, expr->at);
    text_add(emit->out, "];\n");
  }
}

/* Four elements of the last loop: loads, a loop in registers, stores. */
static void emit_vector_body(Emit *emit) {
  Text *out = emit->out;
  int last = emit->vector_loop;
  emit->first_varying = last;
  emit_analyse(emit, any_stmt);
  emit_exprs(emit, false);
  text_printf(out, "    {\n    const %s x%d = x%d_0;\n", emit->index, last,
              last);
  const NestStage *stage = emit->stage;
  for (int i = 0; i < stage->stmts.n; i++)
    text_printf(out, "    dnn_%s_4 y%d;\n",
                dtype_name(stage->stmts.data[i].dtype), i);
  emit_vector_loads(emit);
  text_printf(out,
              "    DNN_UNROLL for (int k = 0; k < 4; k++) {\n"
              "    const %s x%d = x%d_0 + k;\n    (void)x%d;\n",
              emit->index, last, last, last);
  emit_exprs(emit, true);
  for (int i = 0; i < stage->stmts.n; i++)
    emit_store(emit, &stage->stmts.data[i], "    ");
  text_add(out, "    }\n");
  for (int i = 0; i < stage->stmts.n; i++) {
    const NestStmt *stmt = &stage->stmts.data[i];
    text_printf(out, "    *(dnn_%s_4 *)&b%d[", dtype_name(stmt->dtype),
                stmt->target);
    emit_index(emit, stmt->at);
    text_printf(out, "] = y%d;\n", i);
  }
  text_add(out, "    }\n");
}

static void emit_flat_body(Emit *emit) {
  emit->first_varying = emit->n_loops; /* nothing is hoisted */
  emit_analyse(emit, any_stmt);
  emit_exprs(emit, false);
  for (int i = 0; i < emit->stage->stmts.n; i++)
    emit_store(emit, &emit->stage->stmts.data[i], "    ");
}

static void emit_flat_stage(Emit *emit, const NestStage *stage) {
  enter_stage(emit, stage);
  int64_t n = emit->mapping.outer * stage_points(stage);
  bool is_vector = stage_is_vector(emit->nest, stage);
  if (is_vector) {
    emit->vector_loop = emit->n_loops - 1;
    n /= 4;
  }
  text_printf(emit->out,
              "  for (%s p = (%s)blockIdx.x * %d + threadIdx.x; p < %lld; p += "
              "(%s)gridDim.x * %d) {\n",
              emit->index, emit->index, emit->mapping.threads, (long long)n,
              emit->index, emit->mapping.threads);
  if (is_vector && emit->n_loops == 1) {
    text_printf(emit->out, "    const %s x0_0 = p * 4;\n", emit->index);
  } else {
    emit_loop_indices(emit, "p", 0, emit->n_loops - 1);
  }
  if (is_vector) {
    emit_vector_body(emit);
  } else {
    emit_flat_body(emit);
  }
  text_add(emit->out, "  }\n");
}

/* ---- groups: reductions ---- */

/* The dtype that is compared or added. */
static DType reduced_dtype(const Emit *emit, const NestStmt *stmt) {
  return stmt->reduce == NEST_argmax ? emit->nest->exprs.data[stmt->expr].dtype
                                     : stmt->dtype;
}

/* rN is the result; of an argmax, mN is the element at that index. */
static void declare_reductions(Emit *emit) {
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    DType dtype = reduced_dtype(emit, stmt);
    bool is_argmax = stmt->reduce == NEST_argmax;
    if (is_argmax)
      text_printf(emit->out, "    int r%d = 2147483647;\n", stmt->target);
    text_printf(emit->out, "    %s %s%d = ", cuda_number(dtype),
                is_argmax ? "m" : "r", stmt->target);
    cuda_add_identity(emit->out, stmt->reduce, dtype);
    text_add(emit->out, ";\n");
  }
}

static void emit_reduction(Emit *emit, const NestStmt *stmt,
                           const char *counter) {
  Text *out = emit->out;
  DType dtype = reduced_dtype(emit, stmt);
  if (stmt->reduce == NEST_argmax) {
    text_printf(out, "    dnn_first_%s(&m%d, &r%d, v%d, (int)%s);\n",
                cuda_suffix(dtype), stmt->target, stmt->target, stmt->expr,
                counter);
    return;
  }
  text_printf(out, "    r%d = dnn_%s_%s(r%d, ", stmt->target,
              nest_reduction(stmt->reduce)->name, cuda_suffix(dtype),
              stmt->target);
  emit_value(emit, stmt->expr, dtype);
  text_add(out, ");\n");
}

static void emit_argmax_join(Emit *emit, const NestStmt *stmt) {
  const Mapping *map = &emit->mapping;
  const char *suffix = cuda_suffix(reduced_dtype(emit, stmt));
  int r = stmt->target;
  if (stage_points(emit->stage) == 1) {
    /* every thread has compared the one element */
  } else if (map->is_row && map->group == 32) {
    text_printf(emit->out, "    r%d = dnn_warp_argmax_%s(m%d, r%d);\n", r,
                suffix, r, r);
  } else if (map->group > 1) {
    text_printf(emit->out,
                "    r%d = dnn_any_argmax_%s(m%d, r%d, shared_%s, "
                "shared_index, %d, %d);\n",
                r, suffix, r, r, suffix, map->points, map->group);
  }
  text_printf(emit->out, "    if (r%d == 2147483647) r%d = 0;\n", r, r);
}

/* All threads of a point get the same value. */
static void emit_joins(Emit *emit) {
  const Mapping *map = &emit->mapping;
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    if (stmt->reduce == NEST_argmax) {
      emit_argmax_join(emit, stmt);
      continue;
    }
    int r = stmt->target;
    const char *word = nest_reduction(stmt->reduce)->name;
    const char *suffix = cuda_suffix(stmt->dtype);
    if (map->group == 1 || stage_points(emit->stage) == 1) continue;
    if (map->is_row && map->group == 32) {
      text_printf(emit->out, "    r%d = dnn_warp_%s_%s(r%d);\n", r, word,
                  suffix, r);
    } else if (map->is_row) {
      text_printf(emit->out, "    r%d = dnn_block_%s_%s(r%d, shared_%s, %d);\n",
                  r, word, suffix, r, suffix, map->group);
    } else {
      text_printf(emit->out,
                  "    r%d = dnn_column_%s_%s(r%d, shared_%s, %d, %d);\n", r,
                  word, suffix, r, suffix, map->points, map->group);
    }
  }
}

/* ---- groups: stages ---- */

/* All threads of a point have come this far. */
static void emit_barrier(Emit *emit) {
  const Mapping *map = &emit->mapping;
  bool is_warp = map->is_row && map->group == 32;
  text_printf(emit->out, "    %s();\n",
              is_warp ? "__syncwarp" : "__syncthreads");
}

static void emit_body_stmts(Emit *emit, const char *counter,
                            const char *condition,
                            bool (*wants)(const Emit *, const NestStmt *)) {
  emit_exprs(emit, true);
  for (int i = 0; i < emit->stage->stmts.n; i++)
    if (emit->stage->stmts.data[i].kind == NEST_reduce &&
        wants(emit, &emit->stage->stmts.data[i])) {
      if (emit->takes_turns) text_add(emit->out, "    if (is_own)\n");
      emit_reduction(emit, &emit->stage->stmts.data[i], counter);
    }
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind == NEST_reduce || !wants(emit, stmt)) continue;
    text_printf(emit->out, "    %s%s", condition, *condition ? "{\n" : "");
    emit_store(emit, stmt, "    ");
    if (*condition) text_add(emit->out, "    }\n");
    if (emit->takes_turns) emit_barrier(emit);
  }
}

/* Every thread goes through every iteration of the loop, the last one more than
 * once, because they wait for each other in it. */
static void emit_loop_in_turns(Emit *emit, int64_t n, bool may_be_dead) {
  Text *out = emit->out;
  int group = emit->mapping.group;
  text_printf(out,
              "    for (%s begin = 0; begin < %lld; begin += %d) {\n"
              "    const int is_own = %sbegin + lane < %lld;\n"
              "    const %s i = begin + lane < %lld ? begin + lane : %lld;\n",
              emit->index, (long long)n, group, may_be_dead ? "live && " : "",
              (long long)n, emit->index, (long long)n, (long long)n - 1);
  emit_loop_indices(emit, "i", emit->nest->n_outer, emit->n_loops - 1);
  emit->takes_turns = true;
  emit_body_stmts(emit, "i", "if (is_own) ", runs_in_parallel);
  emit->takes_turns = false;
  text_add(out, "    }\n    }\n");
}

static void emit_parallel_loop(Emit *emit, bool is_split) {
  const Mapping *map = &emit->mapping;
  Text *out = emit->out;
  emit_analyse(emit, runs_in_parallel);
  text_add(out, "    {\n");
  emit_exprs(emit, false);
  const char *live = map->outer % map->points ? "if (live) " : "";
  int64_t n = stage_points(emit->stage);
  if (n == 1) {
    emit_body_stmts(emit, "0",
                    map->group == 1 ? live
                    : *live         ? "if (live && lane == 0) "
                                    : "if (lane == 0) ",
                    runs_in_parallel);
    text_add(out, "    }\n");
    return;
  }
  if (map->group > 1 && stage_takes_turns(emit->nest, emit->stage)) {
    emit_loop_in_turns(emit, n, *live);
    return;
  }
  if (is_split) {
    text_printf(out, "    for (%s i = part * %d + lane; i < %lld; i += %d) {\n",
                emit->index, map->group, (long long)n,
                map->group * map->splits);
  } else {
    text_printf(out, "    for (%s i = lane; i < %lld; i += %d) {\n",
                emit->index, (long long)n, map->group);
  }
  emit_loop_indices(emit, "i", emit->nest->n_outer, emit->n_loops - 1);
  emit_body_stmts(emit, "i", live, runs_in_parallel);
  text_add(out, "    }\n    }\n");
}

/* One thread of each point walks the inner loops in order. */
static void emit_ordered_loop(Emit *emit) {
  const Mapping *map = &emit->mapping;
  Text *out = emit->out;
  emit_analyse(emit, runs_in_order);
  bool may_be_dead = map->outer % map->points != 0;
  text_printf(out, "    if (%slane == 0) {\n", may_be_dead ? "live && " : "");
  emit_exprs(emit, false);
  text_printf(out, "    for (%s i = 0; i < %lld; i++) {\n", emit->index,
              (long long)stage_points(emit->stage));
  emit_loop_indices(emit, "i", emit->nest->n_outer, emit->n_loops - 1);
  emit_body_stmts(emit, "i", "", runs_in_order);
  text_add(out, "    }\n    }\n");
}

/* The block of a tile that arrives last reduces the results of all. */
static void emit_split_joins(Emit *emit) {
  const Mapping *map = &emit->mapping;
  Text *out = emit->out;
  const char *name = emit->nest->name;
  const char *live = map->outer % map->points ? "live && " : "";
  for (int i = 0; i < emit->stage->stmts.n; i++)
    if (emit->stage->stmts.data[i].kind == NEST_reduce)
      text_printf(out,
                  "    if (%slane == 0) %s_part%d[part * %lld + p] = r%d;\n",
                  live, name, emit->stage->stmts.data[i].target,
                  (long long)map->outer, emit->stage->stmts.data[i].target);
  text_printf(out,
              "    __threadfence();\n    __syncthreads();\n"
              "    if (threadIdx.x == 0)\n"
              "      is_last = atomicInc(&%s_arrived[tile], %du) == %du;\n"
              "    __syncthreads();\n"
              "    if (!is_last) return;\n    __threadfence();\n",
              name, map->splits - 1, map->splits - 1);
  for (int i = 0; i < emit->stage->stmts.n; i++) {
    const NestStmt *stmt = &emit->stage->stmts.data[i];
    if (stmt->kind != NEST_reduce) continue;
    int r = stmt->target;
    const char *type = cuda_number(stmt->dtype);
    text_printf(out,
                "    r%d = *(volatile %s *)&%s_part%d[p];\n"
                "    for (int s = 1; s < %d; s++)\n"
                "      r%d = dnn_%s_%s(r%d, *(volatile %s *)&%s_part%d[s * "
                "%lld + p]);\n",
                r, type, name, r, map->splits, r,
                nest_reduction(stmt->reduce)->name, cuda_suffix(stmt->dtype), r,
                type, name, r, (long long)map->outer);
  }
}

static void emit_group_stage(Emit *emit, int s) {
  const Mapping *map = &emit->mapping;
  enter_stage(emit, &emit->nest->stages.data[s]);
  declare_reductions(emit);
  bool is_split = s == 0 && map->splits > 1;
  if (has_stmt(emit, runs_in_parallel)) emit_parallel_loop(emit, is_split);
  if (has_stmt(emit, runs_in_order)) emit_ordered_loop(emit);
  emit_joins(emit);
  if (is_split) emit_split_joins(emit);
  if (map->group > 1 && stage_is_read_later(emit->nest, s)) emit_barrier(emit);
}

/* Stages that repeat are emitted once, as cases of a switch that all threads
 * take alike. */
static void emit_group_steps(Emit *emit) {
  const Nest *nest = emit->nest;
  bool repeats = nest->steps.n > 0;
  if (repeats)
    text_printf(emit->out,
                "    for (int s = 0; s < %d; s++) switch (%s_steps[s]) {\n",
                nest->steps.n, nest->name);
  for (int s = 0; s < nest->stages.n; s++) {
    if (repeats) text_printf(emit->out, "    case %d: {\n", s);
    emit_group_stage(emit, s);
    if (repeats) text_add(emit->out, "    } break;\n");
  }
  if (repeats) text_add(emit->out, "    }\n");
}

static bool uses_shared(const Emit *emit, const char *suffix) {
  for (int s = 0; s < emit->nest->stages.n; s++) {
    const NestStage *stage = &emit->nest->stages.data[s];
    for (int i = 0; i < stage->stmts.n; i++)
      if (stage->stmts.data[i].kind == NEST_reduce &&
          cuda_suffix(reduced_dtype(emit, &stage->stmts.data[i])) == suffix)
        return true;
  }
  return false;
}

static bool has_argmax(const Nest *nest) {
  for (int s = 0; s < nest->stages.n; s++)
    for (int i = 0; i < nest->stages.data[s].stmts.n; i++) {
      const NestStmt *stmt = &nest->stages.data[s].stmts.data[i];
      if (stmt->kind == NEST_reduce && stmt->reduce == NEST_argmax) return true;
    }
  return false;
}

static void emit_shared_arrays(Emit *emit) {
  const Mapping *map = &emit->mapping;
  if (map->splits > 1) text_add(emit->out, "  DNN_SHARED int is_last;\n");
  if (map->group == 1 || (map->is_row && map->group == 32)) return;
  static const DType dtypes[] = {DT_f32, DT_f64, DT_i32, DT_i64};
  for (int i = 0; i < ARRAY_LENGTH(dtypes); i++) {
    const char *suffix = cuda_suffix(dtypes[i]);
    if (uses_shared(emit, suffix))
      text_printf(emit->out, "  DNN_SHARED %s shared_%s[%d];\n",
                  cuda_number(dtypes[i]), suffix, map->threads);
  }
  if (has_argmax(emit->nest))
    text_printf(emit->out, "  DNN_SHARED int shared_index[%d];\n",
                map->threads);
}

static void emit_group_kernel(Emit *emit) {
  const Mapping *map = &emit->mapping;
  Text *out = emit->out;
  emit_shared_arrays(emit);
  if (map->is_row) {
    text_printf(out,
                "  const int lane = threadIdx.x %% %d, point = threadIdx.x / "
                "%d;\n",
                map->group, map->group);
  } else {
    text_printf(out,
                "  const int lane = threadIdx.x / %d, point = threadIdx.x %% "
                "%d;\n",
                map->points, map->points);
  }
  text_add(out, "  (void)lane;\n");
  if (map->splits > 1) {
    text_printf(out,
                "  const int part = blockIdx.x %% %d;\n"
                "  {\n    const %s tile = blockIdx.x / %d;\n",
                map->splits, emit->index, map->splits);
  } else {
    text_printf(out,
                "  for (%s tile = blockIdx.x; tile < %lld; tile += gridDim.x) "
                "{\n",
                emit->index, (long long)map->tiles);
  }
  text_printf(out, "    %s p = tile * %d + point;\n", emit->index, map->points);
  if (map->outer % map->points)
    text_printf(out,
                "    const int live = p < %lld;\n"
                "    if (!live) p = %lld;\n",
                (long long)map->outer, (long long)map->outer - 1);
  text_add(out, "    (void)p;\n");
  enter_stage(emit, &emit->nest->stages.data[0]);
  emit_loop_indices(emit, "p", 0, emit->nest->n_outer - 1);
  emit_group_steps(emit);
  text_add(out, "  }\n");
}

/* ---- kernels ---- */

static void emit_split_arrays(Emit *emit) {
  const Mapping *map = &emit->mapping;
  if (map->splits <= 1) return;
  const NestStage *stage = &emit->nest->stages.data[0];
  for (int i = 0; i < stage->stmts.n; i++)
    if (stage->stmts.data[i].kind == NEST_reduce)
      text_printf(emit->out, "DNN_STATIC %s %s_part%d[%lld];\n",
                  cuda_number(stage->stmts.data[i].dtype), emit->nest->name,
                  stage->stmts.data[i].target,
                  (long long)map->outer * map->splits);
  text_printf(emit->out, "DNN_STATIC unsigned %s_arrived[%lld];\n",
              emit->nest->name, (long long)map->tiles);
}

static void emit_step_array(Emit *emit) {
  const Nest *nest = emit->nest;
  if (nest->steps.n == 0) return;
  text_printf(emit->out, "DNN_STATIC const unsigned short %s_steps[%d] = {",
              nest->name, nest->steps.n);
  for (int i = 0; i < nest->steps.n; i++)
    text_printf(emit->out, "%s%d", i ? ", " : "", nest->steps.data[i]);
  text_add(emit->out, "};\n");
}

static void emit_arguments_struct(Emit *emit) {
  const Nest *nest = emit->nest;
  text_add(emit->out, "typedef struct {\n");
  for (int i = 0; i < nest->buffers.n; i++)
    text_printf(emit->out, "  %s%s *b%d;\n",
                nest->buffers.data[i].is_written ? "" : "const ",
                cuda_storage(nest->buffers.data[i].dtype), i);
  for (int i = 0; i < nest->n_numbers; i++)
    text_printf(emit->out, "  long long n%d;\n", i);
  text_printf(emit->out, "} %s_args;\n", nest->name);
}

void cuda_emit_nest(const Backend *backend, Module *module, const Nest *nest,
                    KernelText *out) {
  (void)backend;
  Text text = text_create(module->arena);
  Emit emit = {.out = &text,
               .arena = module->arena,
               .nest = nest,
               .mapping = cuda_map(nest),
               .index = nest_is_wide(nest) ? "long long" : "int"};
  const Mapping *map = &emit.mapping;
  emit_arguments_struct(&emit);
  emit_split_arrays(&emit);
  emit_step_array(&emit);
  bool waits = !map->is_flat && map->group > 1;
  text_printf(&text, "DNN_KERNEL(%s, %d, %d) {\n", nest->name, map->threads,
              waits);
  for (int i = 0; i < nest->buffers.n; i++)
    text_printf(&text, "  %s%s *const b%d = args.b%d;\n  (void)b%d;\n",
                nest->buffers.data[i].is_written ? "" : "const ",
                cuda_storage(nest->buffers.data[i].dtype), i, i, i);
  if (map->is_flat) {
    for (int s = 0; s < nest->stages.n; s++)
      emit_flat_stage(&emit, &nest->stages.data[s]);
  } else {
    emit_group_kernel(&emit);
  }
  text_add(&text, "}\n");
  *out = (KernelText){.name = nest->name,
                      .text = text_string(&text),
                      .grid = {(uint32_t)map->blocks, 1, 1},
                      .block = {(uint32_t)map->threads, 1, 1},
                      .uses_barriers = waits};
}
