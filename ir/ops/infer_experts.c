/*
 * infer_experts.c -- infers the types of topk and of the operators that move
 * tokens to experts and back. The head of grad_experts.c describes how these
 * operators fit together.
 */
#include "ir/ops/infer.h"

#define MAX_SIZE (INT64_MAX >> 8)

int infer_topk(Module *module, const OpCall *call, Span span,
               const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Name dim = infer_name(&in, ATTR_dim);
  NameSpan to = infer_names(&in, ATTR_to, true);
  int64_t size = infer_size(&in, 0, dim), k;
  infer_want_real(&in, 0);
  infer_ints(&in, ATTR_sizes, 1, 1, size, 0, &k);
  infer_positions(&in, dim, size, DT_i32);
  if (to.n != 1) {
    in.failed = true;
    diag(module->diags, DIAG_op_attr_count, span, "to", in.op, to.n, 1);
    return -1;
  }
  Dims dims = {0};
  dims_add_type(&dims, call->types[0], (NameSpan){&dim, 1});
  dims_add(&dims, to.items[0], k);
  out_types[0] = infer_result(&in, call->types[0]->dtype, &dims);
  out_types[1] = infer_result(&in, DT_i32, &dims);
  return out_types[0] && out_types[1] ? 2 : -1;
}

/* Each of the k passes over a row compares what is not taken yet. */
double cost_topk(const Node *node, const Type *const *inputs) {
  const Type *x = inputs[0];
  int n;
  double k = (double)node_ints(node, ATTR_sizes, &n)[0];
  double size = (double)type_size(x, node_name(node, ATTR_dim));
  double rows = size > 0 ? (double)type_elements(x) / size : 0;
  return rows * (k * size - k * (k - 1) / 2);
}

/* Checks that i32 holds a number for each element of the dims. */
static void number_tokens(Infer *in, NameSpan over) {
  int64_t n = 1; /* a part of the operand's elements, so it cannot overflow */
  for (int i = 0; i < over.n; i++) n *= infer_size(in, 0, over.items[i]);
  infer_numbers(in, "numbers of routed tokens", n, DT_i32,
                arena_printf(in->module->arena,
                             "a group has %lld tokens and choices",
                             (long long)n),
                "make groups of fewer tokens, as in route(p, E, group = B)");
}

/* Dims of `to` first: the rows of one expert are then adjacent. */
static void add_slots(Infer *in, Dims *dims) {
  NameSpan to = infer_names(in, ATTR_to, true);
  int64_t sizes[2];
  if (to.n != 2) {
    in->failed = true;
    diag(in->module->diags, DIAG_op_attr_count, in->span, "to", in->op, to.n,
         2);
    return;
  }
  infer_ints(in, ATTR_sizes, 2, 1, MAX_SIZE, 0, sizes);
  for (int i = 0; i < 2; i++) {
    infer_lacks(in, 0, to.items[i]);
    dims_add(dims, to.items[i], sizes[i]);
  }
  int64_t slots;
  if (__builtin_mul_overflow(sizes[0], sizes[1], &slots)) slots = INT64_MAX;
  infer_numbers(in, "numbers of capacity slots", slots, DT_i32,
                arena_printf(in->module->arena,
                             "there are %lld experts with %lld slots each",
                             (long long)sizes[0], (long long)sizes[1]),
                "use less capacity, or groups of fewer tokens");
}

int infer_route(Module *module, const OpCall *call, Span span,
                const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = infer_names(&in, ATTR_over, true);
  infer_want_integer(&in, 0);
  number_tokens(&in, over);
  Dims slots = {0}, dims = {0};
  add_slots(&in, &slots);
  dims_add_type(&dims, call->types[0], (NameSpan){0});
  return infer_one(&in, DT_i32, &dims, out_types);
}

int infer_route_inverse(Module *module, const OpCall *call, Span span,
                        const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = infer_names(&in, ATTR_over, true);
  infer_want_integer(&in, 0);
  number_tokens(&in, over);
  Dims dims = {0};
  add_slots(&in, &dims);
  dims_add_type(&dims, call->types[0], over);
  return infer_one(&in, DT_i32, &dims, out_types);
}

/* The dims of the index operand `at`, then those of the table that the index
 * does not select. */
static int infer_look_up(Infer *in, int at, NameSpan own, NameSpan table,
                         const Type **out_types) {
  const Type *x = infer_type(in, 0), *index = infer_type(in, at);
  infer_want_integer(in, 1);
  infer_want_integer(in, 2);
  for (int i = 0; i < own.n; i++) {
    infer_size(in, at, own.items[i]);
    infer_lacks(in, 0, own.items[i]);
  }
  for (int i = 0; i < table.n; i++) {
    infer_size(in, 3 - at, table.items[i]);
    infer_agree(in, 0, 3 - at, table.items[i]);
    infer_lacks(in, at, table.items[i]);
  }
  for (int i = 0; i < x->rank; i++) infer_agree(in, 0, at, x->dims[i].name);
  Dims dims = {0};
  dims_add_type(&dims, index, (NameSpan){0});
  for (int i = 0; i < x->rank; i++) {
    Name name = x->dims[i].name;
    if (!names_have(table, name) && dims_find(&dims, name) < 0)
      dims_add(&dims, name, x->dims[i].size);
  }
  return infer_one(in, x->dtype, &dims, out_types);
}

int infer_dispatch(Module *module, const OpCall *call, Span span,
                   const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = infer_names(&in, ATTR_over, true);
  NameSpan to = infer_names(&in, ATTR_to, true);
  return infer_look_up(&in, 2, to, over, out_types);
}

int infer_combine(Module *module, const OpCall *call, Span span,
                  const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = infer_names(&in, ATTR_over, true);
  NameSpan to = infer_names(&in, ATTR_to, true);
  return infer_look_up(&in, 1, over, to, out_types);
}
