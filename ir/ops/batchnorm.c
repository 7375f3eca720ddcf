/*
 * batchnorm.c -- implements every rule of batch normalisation in training. (For
 * evaluation the front end emits pointwise operators.)
 *
 *     %y, %m, %v = batchnorm %x, %mean, %var
 *                    {over = [N, Y], eps, momentum, group}
 *
 * Each group of `group` samples along the first dim of `over` (absent: all) is
 * normalised by its own mean and biased variance.  The states move once, by the
 * mean and the unbiased variance of all samples whatever the groups.
 *
 * Statistics take one pass: the mean and the mean of the squares, in f64, in
 * which squares of f32 numbers are exact.  The ranks that share them send one
 * message, and the data is read once.
 *
 *     var = avg(x^2) - avg(x)^2
 *
 * The subtraction loses (mean / deviation)^2 of the 53 bits, where the mean
 * square of differences from an f32 mean loses as much of 24.  What is f64
 * already takes two passes, the mean first.  The rest is computed in the dtype
 * of the attribute of this name or that of the states.
 *
 * Statistics of all groups together come from those of each: with d_g = mean_g
 * - running mean,
 *
 *     mean = running mean + avg(d_g)
 *     var  = avg(var_g + d_g^2) - avg(d_g)^2
 *
 * (Chan, Golub, LeVeque 1983, shifted).  The shift is known before the step, so
 * that each group adds its part and none waits for the mean of the others:
 * groups may be shards and micro-batches.  The subtraction loses the square of
 * the distance between running and batch mean.
 *
 * Gradient, with means over a group: r (g - mean(g) - y mean(g y)).
 */
#include "ir/ops/grad.h"
#include "ir/ops/infer.h"

/* ---- types ---- */

static void check_group(Infer *in, NameSpan over) {
  int64_t group = infer_int(in, ATTR_group, 0);
  if (group == 0 || over.n == 0 || in->failed) return;
  int64_t size = infer_size(in, 0, over.items[0]);
  if (group > 0 && size % group == 0) return;
  in->failed = true;
  diag(in->module->diags, DIAG_batchnorm_group, in->span, over.items[0],
       (long long)size, (long long)group);
}

int infer_batchnorm(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = infer_names(&in, ATTR_over, true);
  for (int i = 0; i < over.n; i++) infer_size(&in, 0, over.items[i]);
  check_group(&in, over);
  infer_dtype_attr(&in, DT_f32);
  for (int i = 0; i < 3; i++) infer_want_real(&in, i);
  infer_want_same_dims(&in, 1, 2);
  Dims dims = {0}, rest = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  dims_add_type(&rest, call->types[0], over);
  const Type *kept = infer_result(&in, call->types[1]->dtype, &rest);
  if (kept && !type_same_dims(kept, call->types[1])) {
    Text text = text_create(module->arena);
    type_print(&text, kept, NULL);
    infer_want(&in, 1, text_string(&text));
  }
  if (infer_one(&in, call->types[0]->dtype, &dims, out_types) < 0) return -1;
  out_types[1] = call->types[1];
  out_types[2] = call->types[2];
  return 3;
}

/* ---- shared by forward and gradient: spelled once, for cse ---- */

typedef struct Norm {
  Graph *graph;
  const Name *over;
  int n_over;
  int64_t n_groups, group; /* 1 group: `group` is not read */
  Name groups;             /* the dim that counts them */
  DType dtype;             /* dtype of the statistics */
  bool is_one_pass;        /* f64 has room for squares of the data */
} Norm;

static Norm norm_of(Graph *graph, const Node *node, const Type *x,
                    DType dtype) {
  Norm norm = {.graph = graph, .dtype = dtype, .n_groups = 1};
  if (node_has(node, ATTR_dtype))
    dtype_find(node_name(node, ATTR_dtype), &norm.dtype);
  norm.is_one_pass = x->dtype != DT_f64;
  norm.over = node_names(node, ATTR_over, &norm.n_over);
  norm.group = node_int(node, ATTR_group, 0);
  norm.groups = name_intern(graph->module->names, "batchnorm.groups");
  if (norm.group > 0) norm.n_groups = type_size(x, norm.over[0]) / norm.group;
  return norm;
}

/* In the dtype of the statistics, the batch dim split into groups. */
static Value enter_groups(const Norm *norm, Value x) {
  x = graph_cast(norm->graph, x, norm->dtype);
  if (norm->n_groups == 1) return x;
  const Name to[] = {norm->groups, norm->over[0]};
  const int64_t sizes[] = {norm->n_groups, norm->group};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, norm->over[0]);
  attrs_names(&attrs, ATTR_to, to, 2);
  attrs_ints(&attrs, ATTR_sizes, sizes, 2);
  return graph_append(norm->graph, OP_split_dim, &x, 1, &attrs);
}

static Value leave_groups(const Norm *norm, Value y, const Type *type) {
  if (norm->n_groups > 1) {
    const Name from[] = {norm->groups, norm->over[0]};
    Attrs attrs = {0};
    attrs_names(&attrs, ATTR_from, from, 2);
    attrs_name(&attrs, ATTR_dim, norm->over[0]);
    y = graph_append(norm->graph, OP_merge_dims, &y, 1, &attrs);
  }
  y = graph_transpose_to(norm->graph, y, type);
  return graph_cast(norm->graph, y, type->dtype);
}

static Value batchnorm_number(const Norm *norm, double value) {
  return graph_const(norm->graph, norm->dtype, value);
}

static Value batchnorm_mean(const Norm *norm, Value x) {
  return rows_mean(norm->graph, x, norm->over, norm->n_over);
}

typedef struct Moments {
  Value mean, var, y; /* of each group; y is normalised */
  Value rstd;
} Moments;

/* Both sums are of the data alone, so they are ready together. */
static void one_pass(const Norm *norm, Value x, Moments *out) {
  Graph *graph = norm->graph;
  Value wide = graph_cast(graph, x, DT_f64);
  Value square = graph_op2(graph, OP_mul, wide, wide);
  Value mean = batchnorm_mean(norm, wide);
  Value var = batchnorm_mean(norm, square);
  var = graph_op2(graph, OP_sub, var, graph_op2(graph, OP_mul, mean, mean));
  var = rows_guard(graph, OP_maximum, var, 0);
  out->mean = graph_cast(graph, mean, norm->dtype);
  out->var = graph_cast(graph, var, norm->dtype);
}

static Moments moments_of(const Norm *norm, Value x, double eps) {
  Graph *graph = norm->graph;
  Moments m;
  if (norm->is_one_pass)
    one_pass(norm, x, &m);
  else
    m.mean = batchnorm_mean(norm, x);
  Value centred = graph_op2(graph, OP_sub, x, m.mean);
  if (!norm->is_one_pass)
    m.var = batchnorm_mean(norm, graph_op2(graph, OP_mul, centred, centred));
  Value raised = graph_op2(graph, OP_add, m.var, batchnorm_number(norm, eps));
  m.rstd = graph_op1(graph, OP_rsqrt, raised);
  m.y = graph_op2(graph, OP_mul, centred, m.rstd);
  return m;
}

/* ---- forward ---- */

static Value running_average(const Norm *norm, Value x) {
  return norm->n_groups == 1 ? x : rows_mean(norm->graph, x, &norm->groups, 1);
}

/* (1 - momentum) state + momentum target */
static Value move_statistic(const Norm *norm, Value state, Value target,
                            double momentum) {
  Graph *graph = norm->graph;
  Value kept =
      graph_op2(graph, OP_mul, state, batchnorm_number(norm, 1 - momentum));
  Value added =
      graph_op2(graph, OP_mul, target, batchnorm_number(norm, momentum));
  return graph_op2(graph, OP_add, kept, added);
}

void decompose_batchnorm(Graph *graph, const Graph *from, int id,
                         const Value *inputs, Value *out_results) {
  const Node *node = from->nodes.data[id];
  const Type *x = graph_type(graph, inputs[0]);
  Norm norm = norm_of(graph, node, x, graph_type(graph, inputs[1])->dtype);
  Moments m = moments_of(&norm, enter_groups(&norm, inputs[0]),
                         node_float(node, ATTR_eps, 0));
  out_results[0] = leave_groups(&norm, m.y, node->types[0]);

  double count = 1, momentum = node_float(node, ATTR_momentum, 0);
  for (int i = 0; i < norm.n_over; i++)
    count *= (double)type_size(x, norm.over[i]);
  Value states[] = {graph_cast(graph, inputs[1], norm.dtype),
                    graph_cast(graph, inputs[2], norm.dtype)};
  Value batch_mean = m.mean, var = m.var;
  if (norm.n_groups > 1) {
    Value away = graph_op2(graph, OP_sub, m.mean, states[0]);
    Value shift = running_average(&norm, away);
    Value square = graph_op2(graph, OP_mul, away, away);
    var = running_average(&norm, graph_op2(graph, OP_add, var, square));
    square = graph_op2(graph, OP_mul, shift, shift);
    var = graph_op2(graph, OP_sub, var, square);
    var = rows_guard(graph, OP_maximum, var, 0);
    batch_mean = graph_op2(graph, OP_add, states[0], shift);
  }
  if (count > 1)
    var = graph_op2(graph, OP_mul, var,
                    batchnorm_number(&norm, count / (count - 1)));
  for (int r = 1; r < 3; r++) {
    Value now = move_statistic(&norm, states[r - 1], r == 1 ? batch_mean : var,
                               momentum);
    now = graph_cast(graph, now, node->types[r]->dtype);
    out_results[r] = graph_transpose_to(graph, now, node->types[r]);
  }
}

/* Operations of decompose_batchnorm, statement by statement: as layernorm in
 * each group (in one pass with the square of the mean, the difference and the
 * clamp), then what joins the groups, the variance over n - 1, and the
 * states. */
double cost_batchnorm(const Node *node, const Type *const *inputs) {
  const Type *x = inputs[0];
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  double channels = (double)type_elements(node->types[1]), count = 1;
  double batch = (double)type_size(x, over[0]);
  double groups = batch / (double)node_int(node, ATTR_group, (int64_t)batch);
  for (int i = 0; i < n; i++) count *= (double)type_size(x, over[i]);
  double of_group = 3 + op_info(OP_rsqrt)->flops;
  double of_channel = 6 + (count > 1);
  if (x->dtype != DT_f64) of_group += 3;
  if (groups > 1) of_group += 5, of_channel += 6;
  return 5 * (double)type_elements(x) +
         (of_group * groups + of_channel) * channels;
}

/* ---- gradient ---- */

void grad_batchnorm(Graph *graph, int id, const Value *cotangents, Value *out) {
  const Node *node = graph->nodes.data[id];
  if (!value_is(cotangents[0])) return;
  const Type *x = graph_type(graph, node->inputs[0]);
  DType dtype = graph_type(graph, node->inputs[1])->dtype;
  Norm norm = norm_of(graph, node, x, dtype);
  Value g = enter_groups(&norm, cotangents[0]);
  Moments m = moments_of(&norm, enter_groups(&norm, node->inputs[0]),
                         node_float(node, ATTR_eps, 0));
  /* Nothing reads a mean before both are there: ranks send one message. */
  Value along = batchnorm_mean(&norm, graph_op2(graph, OP_mul, g, m.y));
  Value mean = batchnorm_mean(&norm, g);
  along = graph_op2(graph, OP_mul, m.y, along);
  Value rest = graph_op2(graph, OP_sub, g, mean);
  rest = graph_op2(graph, OP_sub, rest, along);
  out[0] = leave_groups(&norm, graph_op2(graph, OP_mul, rest, m.rstd), x);
}
