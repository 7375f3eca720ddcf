/*
 * random_graph.h -- makes random graphs over a few named dims for tests of
 * passes: pointwise operators, reductions, rows, contractions, views and
 * gathers, with parameters that are read and replaced.
 */
#ifndef TESTS_UNIT_RANDOM_GRAPH_H
#define TESTS_UNIT_RANDOM_GRAPH_H

#include "tests/unit/values.h"

#define N_DIMS 4

typedef struct Maker {
  Module *module;
  Graph *graph;
  uint64_t seed, draw;
  VEC(Value) values;
  Name dims[N_DIMS], others[N_DIMS]; /* `others`: second names, same sizes */
  bool is_batched; /* parameters have no B, results have B summed away */
} Maker;

static const int64_t sizes[N_DIMS] = {4, 3, 5, 2};

static int below(Maker *m, int n) {
  return (int)random_below(m->seed, m->draw++, (uint64_t)n);
}

static Value pick(Maker *m) {
  /* Mostly something recent. */
  int n = m->values.n, back = below(m, 3) ? n < 5 ? n : 5 : n;
  return m->values.data[n - 1 - below(m, back)];
}

static const Type *random_type(Maker *m, bool has_batch) {
  Type *type = type_create(m->module->arena, DT_f32, 0);
  int order[N_DIMS] = {0, 1, 2, 3}, n = 0;
  Type *full = type_create(m->module->arena, DT_f32, N_DIMS);
  for (int i = 0; i < N_DIMS; i++) {
    int k = i + below(m, N_DIMS - i), swap = order[i];
    order[i] = order[k];
    order[k] = swap;
    if (below(m, 3) == 0 || (order[i] == 0 && !has_batch)) continue;
    full->dims[n++] = (Dim){m->dims[order[i]], sizes[order[i]], 0};
  }
  full->rank = (uint8_t)n;
  return n ? full : type;
}

static void keep(Maker *m, Value value) {
  vec_push(m->module->arena, &m->values, value);
}

/* A random subset of the value's dims, perhaps all. */
static int subset(Maker *m, const Type *type, Name *out) {
  int n = 0;
  for (int d = 0; d < type->rank; d++)
    if (below(m, 2)) out[n++] = type->dims[d].name;
  if (n == 0 && type->rank > 0)
    out[n++] = type->dims[below(m, type->rank)].name;
  return n;
}

static void make_rows(Maker *m, Value x) {
  static const Op ops[] = {OP_softmax, OP_layernorm, OP_logsumexp, OP_rmsnorm,
                           OP_log_softmax};
  Name over[MAX_RANK];
  int n = subset(m, graph_type(m->graph, x), over);
  if (n == 0) return;
  Op op = ops[below(m, ARRAY_LENGTH(ops))];
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_over, over, n);
  if (op == OP_layernorm || op == OP_rmsnorm)
    attrs_float(&attrs, ATTR_eps, 1e-3);
  keep(m, graph_append(m->graph, op, &x, 1, &attrs));
}

static void make_gather(Maker *m, Value x) {
  const Type *type = graph_type(m->graph, x);
  if (type->rank == 0) return;
  Name dim = type->dims[below(m, type->rank)].name;
  int other = below(m, N_DIMS);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, m->dims[other]);
  attrs_ints(&attrs, ATTR_sizes, &sizes[other], 1);
  if (m->dims[other] == dim) return;
  Value position = graph_append(m->graph, OP_iota, NULL, 0, &attrs);
  Value limit = graph_const(m->graph, DT_i32, (double)type_size(type, dim));
  Value index = graph_op2(m->graph, OP_mod, position, limit);
  Attrs along = {0};
  attrs_name(&along, ATTR_dim, dim);
  keep(m, graph_append(m->graph, OP_gather, (Value[]){x, index}, 2, &along));
}

static void make_mask(Maker *m, Value x) {
  const Type *type = graph_type(m->graph, x);
  if (type->rank < 2) return;
  Value position[2];
  for (int i = 0; i < 2; i++) {
    Attrs attrs = {0};
    attrs_name(&attrs, ATTR_dim, type->dims[i].name);
    attrs_ints(&attrs, ATTR_sizes, &type->dims[i].size, 1);
    position[i] = graph_append(m->graph, OP_iota, NULL, 0, &attrs);
  }
  Value seen = graph_op2(m->graph, OP_ge, position[0], position[1]);
  Value zero = graph_const(m->graph, DT_f32, 0.25);
  keep(m, graph_op3(m->graph, OP_select, seen, x, zero));
}

static void make_rename(Maker *m, Value x) {
  const Type *type = graph_type(m->graph, x);
  Name from[N_DIMS], to[N_DIMS];
  int n = 0;
  for (int d = m->is_batched; d < N_DIMS; d++) {
    bool has = type_find(type, m->dims[d]) >= 0;
    bool has_other = type_find(type, m->others[d]) >= 0;
    if (has == has_other || below(m, 2)) continue;
    from[n] = has ? m->dims[d] : m->others[d];
    to[n++] = has ? m->others[d] : m->dims[d];
  }
  if (n == 0) return;
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, from, n);
  attrs_names(&attrs, ATTR_to, to, n);
  keep(m, graph_append(m->graph, OP_rename, &x, 1, &attrs));
}

/* Two dims merged and split again, in between a square. */
static void make_merge(Maker *m, Value x) {
  const Type *type = graph_type(m->graph, x);
  if (type->rank < 2) return;
  int i = below(m, type->rank), j = below(m, type->rank - 1);
  j += j >= i;
  Name parts[2] = {type->dims[i].name, type->dims[j].name};
  int64_t part_sizes[2] = {type->dims[i].size, type->dims[j].size};
  Name whole = name_intern(m->module->names, "M");
  if (m->is_batched && (parts[0] == m->dims[0] || parts[1] == m->dims[0]))
    return;
  Attrs merge = {0}, split = {0};
  attrs_names(&merge, ATTR_from, parts, 2);
  attrs_name(&merge, ATTR_dim, whole);
  attrs_name(&split, ATTR_dim, whole);
  attrs_names(&split, ATTR_to, parts, 2);
  attrs_ints(&split, ATTR_sizes, part_sizes, 2);
  Value merged = graph_append(m->graph, OP_merge_dims, &x, 1, &merge);
  Value square = graph_op2(m->graph, OP_mul, merged, merged);
  keep(m, graph_append(m->graph, OP_split_dim, &square, 1, &split));
}

static void make_node(Maker *m) {
  static const Op unary[] = {OP_tanh, OP_neg, OP_relu, OP_sigmoid, OP_erf};
  static const Op binary[] = {OP_add, OP_mul, OP_sub, OP_maximum};
  Graph *graph = m->graph;
  Value x = pick(m), y = pick(m);
  const Type *type = graph_type(graph, x);
  Name dims[MAX_RANK];
  graph->phase = (Phase)(m->values.n * 4 / 60);
  if (graph->phase > PHASE_update) graph->phase = PHASE_update;
  switch (below(m, 14)) {
  case 0:
  case 1:
    keep(m, graph_op1(graph, unary[below(m, ARRAY_LENGTH(unary))], x));
    return;
  case 2:
  case 3:
  case 4:
  case 5:
    keep(m, graph_op2(graph, binary[below(m, ARRAY_LENGTH(binary))], x, y));
    return;
  case 6: {
    int n = subset(m, type, dims);
    if (n > 0)
      keep(m, graph_reduce(graph, below(m, 2) ? OP_sum : OP_max, x, dims, n));
    return;
  }
  case 7: {
    Type *order = type_create(m->module->arena, type->dtype, type->rank);
    for (int d = 0; d < type->rank; d++)
      order->dims[d] = type->dims[type->rank - 1 - d];
    keep(m, graph_transpose_to(graph, x, order));
    return;
  }
  case 8: make_rows(m, x); return;
  case 9: make_gather(m, x); return;
  case 10: make_mask(m, x); return;
  case 11: make_rename(m, x); return;
  case 12: make_merge(m, x); return;
  default: {
    const Type *other = graph_type(graph, y);
    int n = 0;
    for (int d = 0; d < type->rank; d++)
      if (type_find(other, type->dims[d].name) >= 0 && below(m, 2))
        dims[n++] = type->dims[d].name;
    Attrs attrs = {0};
    attrs_names(&attrs, ATTR_over, dims, n);
    keep(m, graph_append(graph, OP_dot, (Value[]){x, y}, 2, &attrs));
  }
  }
}

/* A new value for the slot: some value, brought to the slot's type. */
static Value fit(Maker *m, Value value, Value slot) {
  Graph *graph = m->graph;
  const Type *type = graph_type(graph, value), *to = graph_type(graph, slot);
  Name over[MAX_RANK];
  int n = 0;
  for (int d = 0; d < type->rank; d++)
    if (type_find(to, type->dims[d].name) < 0) over[n++] = type->dims[d].name;
  if (n > 0) value = graph_reduce(graph, OP_sum, value, over, n);
  Value half = graph_const(graph, DT_f32, 0.5);
  Value old = below(m, 4) ? slot : graph_op1(graph, OP_neg, slot);
  value = graph_op2(graph, OP_mul, value, half);
  return graph_transpose_to(graph, graph_op2(graph, OP_add, value, old), to);
}

/* Without the batch dims if results may not have them. */
static Value result_of(Maker *m, Value value) {
  const Type *type = graph_type(m->graph, value);
  if (!m->is_batched || type_find(type, m->dims[0]) < 0) return value;
  return graph_reduce(m->graph, below(m, 3) ? OP_sum : OP_max, value, m->dims,
                      1);
}

/* Six inputs p0..p5, of which the first three are parameters that may be
 * replaced; results r0..r2. */
static inline Graph *make_random(Module *module, uint64_t seed,
                                 bool is_batched) {
  static const char *const names[N_DIMS] = {"B", "C", "T", "H"};
  Maker m = {.module = module,
             .seed = seed,
             .graph = make_graph(module),
             .is_batched = is_batched};
  for (int d = 0; d < N_DIMS; d++) {
    m.dims[d] = name_intern(module->names, names[d]);
    m.others[d] = name_format(module->names, "%s2", names[d]);
  }
  Value slots[3];
  for (int i = 0; i < 6; i++) {
    char path[16];
    snprintf(path, sizeof path, "p%d", i);
    Role role = i < 3 ? ROLE_param : ROLE_data;
    Value value =
        graph_input(m.graph, role, name_intern(module->names, path),
                    random_type(&m, !is_batched || role != ROLE_param));
    if (i < 3) slots[i] = value;
    keep(&m, value);
  }
  int n = 5 + below(&m, 60);
  for (int i = 0; i < n; i++) make_node(&m);
  for (int i = 0; i < 3; i++) {
    char path[16];
    snprintf(path, sizeof path, "r%d", i);
    make_output(m.graph, ROLE_result, path, result_of(&m, pick(&m)));
  }
  m.graph->phase = PHASE_update;
  for (int i = 0; i < 3; i++) {
    if (below(&m, 4) == 0) continue;
    char path[16];
    snprintf(path, sizeof path, "p%d", i);
    make_output(m.graph, ROLE_param, path, fit(&m, pick(&m), slots[i]));
  }
  return m.graph;
}

/* DNNC_SEED=N runs one seed, DNNC_GRAPHS=N that many. */
static inline void for_seeds(int n, void (*check)(uint64_t seed)) {
  const char *one = getenv("DNNC_SEED"), *count = getenv("DNNC_GRAPHS");
  if (one != NULL) {
    check(strtoull(one, NULL, 10));
    return;
  }
  if (count != NULL) n = atoi(count);
  for (uint64_t seed = 1; seed <= (uint64_t)n; seed++) check(seed);
}

#endif
