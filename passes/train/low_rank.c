/*
 * low_rank.c -- appends the compression of gradients to products of low rank.
 *
 * Nodes that work on the terms of a sum have the attribute `terms`.
 */
#include "passes/train/low_rank.h"
#include "ir/text/exprtext.h"
#include "passes/rewrite.h"

typedef struct Compression {
  Graph *graph;
  const Type *type; /* of the gradient */
  ExprDims in, out; /* its dims as those of a matrix; others count matrices */
  double n_in, n_out;
  Name columns; /* the dim of r elements */
  int64_t rank;
} Compression;

static void add_dim(Compression *c, const Dim *dim, bool is_in) {
  ExprDims *group = is_in ? &c->in : &c->out;
  group->dims[group->n++] = dim->name;
  *(is_in ? &c->n_in : &c->n_out) *= (double)dim->size;
}

/* The dims that an operator contracts, and those that it keeps; of a parameter
 * that none contracts the first dim, and the others. */
static void find_matrix(Compression *c, const GraphInput *param) {
  c->in = (ExprDims){.name = "in"};
  c->out = (ExprDims){.name = "out"};
  c->n_in = c->n_out = 1;
  for (int d = 0; d < c->type->rank; d++) {
    if (param->contracts != 0 && param->batches >> d & 1) continue;
    add_dim(c, &c->type->dims[d],
            param->contracts != 0 ? param->contracts >> d & 1 : d == 0);
  }
}

static Value append_terms(Graph *graph, Op op, const Value *inputs, int n,
                          Attrs attrs) {
  attrs_int(&attrs, ATTR_terms, 1);
  return graph_append(graph, op, inputs, n, &attrs);
}

static Value contract_terms(Compression *c, Value m, Value by,
                            const ExprDims *over) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over->dims, over->n);
  return append_terms(c->graph, OP_dot, (Value[]){m, by}, 2, attrs);
}

static Value column_of(Compression *c, Value p, int64_t i) {
  static const int64_t one = 1;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, c->columns);
  attrs_int(&attrs, ATTR_start, i);
  attrs_ints(&attrs, ATTR_sizes, &one, 1);
  return graph_append(c->graph, OP_slice, &p, 1, &attrs);
}

/* A column at its place in a matrix of zeros. */
static Value column_at(Compression *c, Value column, int64_t i) {
  int64_t pad[2] = {i, c->rank - 1 - i};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, c->columns);
  attrs_ints(&attrs, ATTR_pad, pad, 2);
  attrs_float(&attrs, ATTR_value, 0);
  return graph_append(c->graph, OP_pad, &column, 1, &attrs);
}

/* Gram-Schmidt.  Of a column that those before it span up to rounding nothing
 * is left, so it becomes 0: noise would not be orthogonal to them. */
static Value orthonormal(Compression *c, Value p) {
  Graph *graph = c->graph;
  Value *done = ARENA_ARRAY(graph->module->arena, Value, c->rank), u = p;
  for (int64_t i = 0; i < c->rank; i++) {
    ExprScope scope = {.graph = graph, .dtype = DT_f32, .n_groups = 1};
    scope.groups[0] = c->in;
    expr_bind(&scope, "c", column_of(c, p, i));
    expr_build(&scope, "whole = NORM(c, in)");
    for (int64_t j = 0; j < i; j++) {
      expr_bind(&scope, "u", done[j]);
      expr_build(&scope, "c = c - SUM(u * c, in) * u");
    }
    done[i] = expr_build(&scope, "left = NORM(c, in);"
                                 "SEL(left > 1e-4 * whole, c / left, 0)");
    Value placed = column_at(c, done[i], i);
    u = i == 0 ? placed : graph_op2(graph, OP_add, u, placed);
  }
  return u;
}

/* A column that became 0 begins again with the one before. */
static Value kept_factor(Compression *c, Value made, Value old) {
  ExprScope scope = {.graph = c->graph, .dtype = DT_f32, .n_groups = 1};
  scope.groups[0] = c->out;
  expr_bind(&scope, "made", made);
  expr_bind(&scope, "old", old);
  return expr_build(&scope, "SEL(NORM(made, out) > 0, made, old)");
}

static Value state_input(Graph *graph, Name path, const Type *type, Init init) {
  Value value = graph_input(graph, ROLE_optimizer_state, path, type);
  graph->inputs.data[graph->inputs.n - 1].init = init;
  return value;
}

static const Type *factor_type(const Compression *c) {
  Arena *arena = c->graph->module->arena;
  const Type *type = type_without(arena, c->type, c->in.dims, c->in.n);
  Type *factor = type_create(arena, DT_f32, type->rank + 1);
  for (int d = 0; d < type->rank; d++) factor->dims[d] = type->dims[d];
  factor->dims[type->rank] = (Dim){c->columns, c->rank, 0};
  return factor;
}

static bool is_worth_it(const Compression *c) {
  return (c->n_in + c->n_out) * (double)c->rank < c->n_in * c->n_out;
}

bool low_rank_is_asked(const PassContext *ctx) {
  const Plan *plan = pass_stage_plan(ctx);
  return plan && plan->compress == COMPRESS_power;
}

void low_rank_check(const PassContext *ctx) {
  const Plan *plan = pass_stage_plan(ctx);
  if (!low_rank_is_asked(ctx) || plan->stages.n < 2 ||
      pass_precision_of(ctx)->loss_scale >= 0)
    return;
  diag_help(diag(ctx->module->diags, DIAG_not_supported,
                 plan->stages.data[0].span,
                 "'compress = power' with a dynamic loss scale in a plan of "
                 "stages"),
            "take a loss scale that is a number, or 'compress = bf16'");
}

LowRank low_rank_gradient(PassContext *ctx, Graph *graph,
                          const GraphInput *param, Value g) {
  Names *names = graph->module->names;
  const Type *type = graph_type(graph, g);
  LowRank made = {0};
  if (type->rank < 2 || type->rank == MAX_RANK) return made;
  Compression c = {.graph = graph,
                   .type = type,
                   .columns = name_intern(names, "columns~"),
                   .rank = pass_stage_plan(ctx)->compress_rank};
  find_matrix(&c, param);
  if (!is_worth_it(&c)) return made;
  Name path = graph->path;
  graph->path = name_format(names, "compress.%s", param->path);
  made.is_used = true;
  made.error_path = name_format(names, "compress.e/%s", param->path);
  made.factor_path = name_format(names, "compress.q/%s", param->path);
  made.error =
      state_input(graph, made.error_path, type, (Init){.kind = INIT_zeros});
  made.factor = state_input(graph, made.factor_path, factor_type(&c),
                            (Init){.kind = INIT_normal, .a = 1});
  /* They are of the backward pass, so that p is sent beside it. */
  graph->phase = PHASE_weight_gradient;
  Value m =
      append_terms(graph, OP_add, (Value[]){g, made.error}, 2, (Attrs){0});
  Value p = contract_terms(&c, m, made.factor, &c.out);
  graph->phase = PHASE_update;
  Value u = orthonormal(&c, p);
  Value q = contract_terms(&c, m, u, &c.in);
  ExprDims columns = {.n = 1, .dims = {c.columns}};
  Attrs over = {0};
  attrs_names(&over, ATTR_over, columns.dims, 1);
  made.gradient = graph_transpose_to(
      graph, graph_append(graph, OP_dot, (Value[]){u, q}, 2, &over), type);
  /* A rank subtracts the part of the product that its own term makes, so no
   * error grows.  Were the whole product subtracted on one rank, the errors of
   * the others would add up all of their gradients. */
  Value own = append_terms(graph, OP_dot, (Value[]){u, q}, 2, over);
  made.next_error =
      append_terms(graph, OP_sub, (Value[]){m, own}, 2, (Attrs){0});
  made.next_factor = kept_factor(&c, q, made.factor);
  graph->path = path;
  return made;
}

/* Chooses in each rank's term: 0 adds nothing (`reduce` says so to the sharding
 * rule, or ranks would add up all terms first). */
static Value select_terms(Graph *graph, Value condition, Value value,
                          Value zero) {
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_reduce, name_intern(graph->module->names, "sum"));
  return append_terms(graph, OP_select, (Value[]){condition, value, zero}, 3,
                      attrs);
}

Value low_rank_select(Graph *graph, Value ok, Value value, Value old) {
  Value zero = graph_const(graph, DT_f32, 0);
  Value not_ok = graph_op1(graph, OP_not, ok);
  Value a = select_terms(graph, ok, value, zero);
  Value b = select_terms(graph, not_ok, old, zero);
  return append_terms(graph, OP_add, (Value[]){a, b}, 2, (Attrs){0});
}
