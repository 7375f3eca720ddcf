/*
 * build.c -- builds loop nests: their loops, coordinates, expressions and
 * statements.
 *
 * Equal expressions are one: lower_expr returns the expression that is there,
 * so that a kernel computes once what two statements read.
 */
#include <string.h>

#include "codegen/nest/lower.h"

/* ---- buffers ---- */

static void add_buffer(Lower *lower, const Type *type, bool is_written) {
  NestBuffer buffer = {.dtype = type->dtype,
                       .is_written = is_written,
                       .is_read = !is_written,
                       .elements = type_local_elements(type, lower->mesh)};
  vec_push(lower->arena, &lower->nest->buffers, buffer);
}

Lower *lower_begin(Module *module, const Graph *graph, const Node *node,
                   const char *name) {
  Lower *lower = ARENA_NEW(module->arena, Lower);
  lower->module = module;
  lower->arena = module->arena;
  lower->mesh = &graph->mesh;
  lower->node = node;
  lower->nest = ARENA_NEW(module->arena, Nest);
  lower->nest->name = name_intern(module->names, name);
  lower->input_types = ARENA_ARRAY(lower->arena, const Type *, node->n_inputs);
  for (int i = 0; i < node->n_inputs; i++) {
    lower->input_types[i] = graph_type(graph, node->inputs[i]);
    add_buffer(lower, lower->input_types[i], false);
  }
  for (int i = 0; i < node->n_results; i++)
    add_buffer(lower, node->types[i], true);
  return lower;
}

int lower_input_buffer(const Lower *lower, int input) {
  ASSERT(input < lower->node->n_inputs);
  return input;
}

int lower_result_buffer(const Lower *lower, int result) {
  return lower->node->n_inputs + result;
}

int64_t lower_size(const Lower *lower, const Type *type, int dim) {
  return type_local_size(type, lower->mesh, dim);
}

/* ---- loops ---- */

static Coord add_loop(Lower *lower, int64_t extent) {
  ASSERT(lower->n_loops < MAX_LOOPS);
  Coord coord = coord_zero();
  coord.stride[lower->n_loops] = 1;
  lower->extent[lower->n_loops++] = extent;
  return coord;
}

Coord lower_outer(Lower *lower, Name dim, int64_t extent) {
  Nest *nest = lower->nest;
  ASSERT(nest->stages.n == 0);
  nest->outer[nest->n_outer++] = (NestLoop){.dim = dim, .extent = extent};
  return add_loop(lower, extent);
}

void lower_stage(Lower *lower) {
  NestStage stage = {0};
  vec_push(lower->arena, &lower->nest->stages, stage);
  lower->n_loops = lower->nest->n_outer;
  lower->space = -1;
}

static NestStage *open_stage(Lower *lower) {
  return &lower->nest->stages.data[lower->nest->stages.n - 1];
}

Coord lower_inner(Lower *lower, Name dim, int64_t extent) {
  NestStage *stage = open_stage(lower);
  stage->inner[stage->n_inner++] = (NestLoop){.dim = dim, .extent = extent};
  return add_loop(lower, extent);
}

static bool has_same_inner(const NestStage *a, const NestStage *b) {
  if (a->n_inner != b->n_inner) return false;
  for (int i = 0; i < a->n_inner; i++)
    if (a->inner[i].extent != b->inner[i].extent) return false;
  return true;
}

void lower_stage_ready(Lower *lower) {
  NestStage *stage = open_stage(lower);
  int n = lower->nest->stages.n;
  int found = 0;
  for (int i = 0; i + 1 < n && !found; i++)
    if (has_same_inner(&lower->nest->stages.data[i], stage))
      found = lower->stage_space.data[i];
  lower->space = found ? found : ++lower->n_spaces;
  vec_push(lower->arena, &lower->stage_space, lower->space);
}

/* ---- coordinates ---- */

Coord coord_zero(void) {
  Coord coord;
  memset(&coord, 0, sizeof coord);
  coord.expr = -1;
  return coord;
}

Coord coord_add(Coord coord, int64_t base) {
  coord.base += base;
  return coord;
}

Coord coord_scale(Coord coord, int64_t factor) {
  coord.base *= factor;
  for (int i = 0; i < MAX_LOOPS; i++) coord.stride[i] *= factor;
  coord.factor *= factor;
  return coord;
}

Coord coord_of_expr(int expr, int64_t limit) {
  Coord coord = coord_zero();
  coord.expr = expr;
  coord.factor = 1;
  coord.limit = limit;
  return coord;
}

Coord coord_sum(Lower *lower, Coord a, Coord b) {
  if (a.expr >= 0 && b.expr >= 0) { /* an index has one run-time term */
    int value = coord_value(lower, b);
    b = coord_of_expr(value, INT64_MAX);
    int sum = lower_pw(lower, OP_add, DT_i64, coord_value(lower, a), value, -1);
    return coord_of_expr(sum, INT64_MAX);
  }
  for (int i = 0; i < MAX_LOOPS; i++) a.stride[i] += b.stride[i];
  a.base += b.base;
  if (b.expr >= 0) {
    a.expr = b.expr;
    a.factor = b.factor;
    a.limit = b.limit;
  }
  return a;
}

static int add_values(Lower *lower, int sum, int term) {
  return sum < 0 ? term : lower_pw(lower, OP_add, DT_i64, sum, term, -1);
}

static int scale_value(Lower *lower, int value, int64_t factor) {
  if (factor == 1) return value;
  int number = lower_const(lower, DT_i64, (double)factor);
  return lower_pw(lower, OP_mul, DT_i64, value, number, -1);
}

int coord_value(Lower *lower, Coord coord) {
  int sum = -1;
  for (int i = 0; i < lower->n_loops; i++) {
    if (coord.stride[i] == 0 || lower->extent[i] == 1) continue;
    NestExpr loop = {.kind = NEST_loop, .dtype = DT_i64, .index = i};
    int value = scale_value(lower, lower_expr(lower, loop), coord.stride[i]);
    sum = add_values(lower, sum, value);
  }
  if (coord.expr >= 0) {
    int value = (int)coord.expr;
    if (coord.limit != INT64_MAX) {
      int zero = lower_const(lower, DT_i64, 0);
      int last = lower_const(lower, DT_i64, (double)(coord.limit - 1));
      value = lower_pw(lower, OP_maximum, DT_i64, value, zero, -1);
      value = lower_pw(lower, OP_minimum, DT_i64, value, last, -1);
    }
    sum = add_values(lower, sum, scale_value(lower, value, coord.factor));
  }
  if (coord.base != 0 || sum < 0)
    sum =
        add_values(lower, sum, lower_const(lower, DT_i64, (double)coord.base));
  return sum;
}

void coord_divide(Lower *lower, Coord coord, int64_t n, int64_t limit,
                  Coord *out_quotient, Coord *out_remainder) {
  Coord q = coord_zero(), r = coord_zero();
  q.base = coord.base / n;
  r.base = coord.base % n;
  int64_t most = r.base; /* of the terms that are no multiple of n */
  for (int i = 0; i < lower->n_loops; i++) {
    if (coord.stride[i] % n == 0) {
      q.stride[i] = coord.stride[i] / n;
    } else {
      r.stride[i] = coord.stride[i];
      most +=
          coord.stride[i] > 0 ? coord.stride[i] * (lower->extent[i] - 1) : n;
    }
  }
  if (coord.expr < 0 && coord.base >= 0 && most < n) {
    *out_quotient = q;
    *out_remainder = r;
    return;
  }
  int value = coord_value(lower, coord);
  int by = lower_const(lower, DT_i64, (double)n);
  *out_quotient =
      coord_of_expr(lower_pw(lower, OP_floordiv, DT_i64, value, by, -1), limit);
  *out_remainder =
      coord_of_expr(lower_pw(lower, OP_mod, DT_i64, value, by, -1), n);
}

Coord coord_global(Lower *lower, Coord coord, const Dim *dim) {
  int64_t shards = axis_list_shards(dim->split, lower->mesh);
  if (shards == 1) return coord;
  int64_t shard_size = (dim->size + shards - 1) / shards;
  int number = lower_number(lower, dim->split, shard_size);
  return coord_sum(lower, coord, coord_of_expr(number, INT64_MAX));
}

NestGuard coord_guard(Coord coord, int64_t limit) {
  ASSERT(coord.expr < 0);
  NestGuard guard = {.base = coord.base, .limit = limit};
  memcpy(guard.stride, coord.stride, sizeof guard.stride);
  return guard;
}

void lower_guard_if_needed(Lower *lower, Coord coord, int64_t limit) {
  int64_t low = coord.base, high = coord.base;
  for (int i = 0; i < lower->n_loops; i++) {
    int64_t reach = coord.stride[i] * (lower->extent[i] - 1);
    if (reach < 0)
      low += reach;
    else
      high += reach;
  }
  if (low >= 0 && high < limit) return;
  ASSERT(lower->n_guards < 3);
  lower->guards[lower->n_guards++] = coord_guard(coord, limit);
}

/* ---- spaces ---- */

void space_add(Space *space, Name name, Coord coord) {
  ASSERT(space->n < 2 * MAX_RANK);
  space->name[space->n] = name;
  space->coord[space->n++] = coord;
}

const Coord *space_find(const Space *space, Name name) {
  for (int i = space->n - 1; i >= 0; i--)
    if (space->name[i] == name) return &space->coord[i];
  return NULL;
}

void space_coords(const Space *space, const Type *type, Coord *out) {
  for (int i = 0; i < type->rank; i++) {
    const Coord *coord = space_find(space, type->dims[i].name);
    out[i] = coord ? *coord : coord_zero();
  }
}

/* ---- expressions ---- */

static bool index_equal(const NestIndex *a, const NestIndex *b) {
  if (a == b) return true;
  return a && b && memcmp(a, b, sizeof *a) == 0;
}

static bool expr_equal(const NestExpr *a, const NestExpr *b) {
  return a->kind == b->kind && a->dtype == b->dtype && a->op == b->op &&
         a->index == b->index &&
         memcmp(&a->number, &b->number, sizeof a->number) == 0 &&
         memcmp(a->args, b->args, sizeof a->args) == 0 &&
         index_equal(a->at, b->at);
}

static bool strides_use_inner(const Lower *lower, const int64_t *stride) {
  for (int i = lower->nest->n_outer; i < MAX_LOOPS; i++)
    if (stride[i] != 0) return true;
  return false;
}

static bool index_uses_inner(const Lower *lower, const NestIndex *at) {
  if (strides_use_inner(lower, at->stride)) return true;
  for (int i = 0; i < at->n_dynamic; i++)
    if (lower->expr_space.data[at->dynamic[i].expr]) return true;
  for (int i = 0; i < at->n_guards; i++)
    if (strides_use_inner(lower, at->guards[i].stride)) return true;
  return false;
}

static bool expr_uses_inner(const Lower *lower, const NestExpr *expr) {
  if (expr->kind == NEST_loop) return expr->index >= lower->nest->n_outer;
  if (expr->at) return index_uses_inner(lower, expr->at);
  for (int i = 0; i < 3; i++)
    if (expr->args[i] >= 0 && lower->expr_space.data[expr->args[i]])
      return true;
  return false;
}

int lower_expr(Lower *lower, NestExpr expr) {
  Nest *nest = lower->nest;
  bool has_args = expr.kind == NEST_pw || expr.kind == NEST_cast ||
                  expr.kind == NEST_random;
  for (int i = 0; i < 3 && !has_args; i++) expr.args[i] = -1;
  int space = expr_uses_inner(lower, &expr) ? lower->space : 0;
  for (int i = 0; i < nest->exprs.n; i++)
    if (lower->expr_space.data[i] == space &&
        expr_equal(&nest->exprs.data[i], &expr))
      return i;
  vec_push(lower->arena, &nest->exprs, expr);
  vec_push(lower->arena, &lower->expr_space, space);
  return nest->exprs.n - 1;
}

int lower_const(Lower *lower, DType dtype, double value) {
  NestExpr expr = {.kind = NEST_const, .dtype = dtype, .number = value};
  return lower_expr(lower, expr);
}

static DType expr_dtype(const Lower *lower, int expr) {
  return lower->nest->exprs.data[expr].dtype;
}

DType lower_work_dtype(DType dtype) {
  bool is_small = dtype_class(dtype) == CLASS_FLOAT &&
                  dtype_size_bytes(dtype) < dtype_size_bytes(DT_f32);
  return is_small ? DT_f32 : dtype;
}

int lower_cast(Lower *lower, int expr, DType dtype) {
  if (expr_dtype(lower, expr) == dtype) return expr;
  NestExpr cast = {.kind = NEST_cast, .dtype = dtype, .args = {expr, -1, -1}};
  return lower_expr(lower, cast);
}

int lower_pw(Lower *lower, Op op, DType dtype, int a, int b, int c) {
  NestExpr expr = {
      .kind = NEST_pw, .dtype = dtype, .op = op, .args = {a, b, c}};
  return lower_expr(lower, expr);
}

int lower_number(Lower *lower, AxisList split, int64_t factor) {
  Nest *nest = lower->nest;
  int index = 0;
  while (index < nest->n_numbers && (nest->numbers[index].split != split ||
                                     nest->numbers[index].factor != factor))
    index++;
  if (index == nest->n_numbers) {
    ASSERT(index < MAX_LOOPS);
    nest->numbers[nest->n_numbers++] =
        (NestNumber){.split = split, .factor = factor};
  }
  NestExpr expr = {.kind = NEST_number, .dtype = DT_i64, .index = index};
  return lower_expr(lower, expr);
}

/* The row-major address of an element, with the guards of `lower`. */
static NestIndex *make_index(Lower *lower, const Type *type,
                             const Coord *coords) {
  NestIndex *at = ARENA_NEW(lower->arena, NestIndex);
  int64_t step = 1;
  for (int d = type->rank - 1; d >= 0; d--) {
    const Coord *coord = &coords[d];
    int64_t size = lower_size(lower, type, d);
    if (size > 1) {
      at->base += coord->base * step;
      for (int i = 0; i < lower->n_loops; i++)
        if (lower->extent[i] > 1) at->stride[i] += coord->stride[i] * step;
      if (coord->expr >= 0) {
        ASSERT(at->n_dynamic < 4);
        NestTerm *term = &at->dynamic[at->n_dynamic++];
        term->expr = (int)coord->expr;
        term->stride = coord->factor * step;
        term->limit = coord->limit;
      }
    }
    step *= size;
  }
  at->n_guards = lower->n_guards;
  memcpy(at->guards, lower->guards,
         (size_t)lower->n_guards * sizeof at->guards[0]);
  return at;
}

int lower_load(Lower *lower, int buffer, const Type *type,
               const Coord *coords) {
  NestExpr load = {.kind = NEST_load,
                   .dtype = type->dtype,
                   .index = buffer,
                   .at = make_index(lower, type, coords)};
  lower->nest->buffers.data[buffer].is_read = true;
  return lower_expr(lower, load);
}

/* ---- statements ---- */

void lower_store(Lower *lower, NestStmtKind kind, int buffer, const Type *type,
                 const Coord *coords, int expr) {
  NestStmt stmt = {.kind = kind,
                   .target = buffer,
                   .dtype = type->dtype,
                   .expr = lower_cast(lower, expr, type->dtype),
                   .at = make_index(lower, type, coords)};
  if (kind == NEST_accumulate) lower->nest->buffers.data[buffer].is_read = true;
  vec_push(lower->arena, &open_stage(lower)->stmts, stmt);
}

int lower_reduce(Lower *lower, NestReduce reduce, DType dtype, int expr) {
  /* An argmax is an integer; its operands are compared in their own dtype. */
  bool is_argmax = reduce == NEST_argmax;
  DType compared =
      is_argmax ? lower_work_dtype(expr_dtype(lower, expr)) : dtype;
  NestStmt stmt = {.kind = NEST_reduce,
                   .target = lower->nest->n_reductions++,
                   .reduce = reduce,
                   .dtype = dtype,
                   .expr = lower_cast(lower, expr, compared)};
  vec_push(lower->arena, &open_stage(lower)->stmts, stmt);
  NestExpr result = {
      .kind = NEST_reduced, .dtype = dtype, .index = stmt.target};
  return lower_expr(lower, result);
}
