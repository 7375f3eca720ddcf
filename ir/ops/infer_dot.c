/*
 * infer_dot.c -- infers the types of dot and of attention as one operator.
 *
 * All dims that both operands have and that are not contracted are batched;
 * they stand where the first operand has them.
 */
#include "ir/ops/infer.h"

int infer_dot(Module *module, const OpCall *call, Span span,
              const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  NameSpan over = infer_names(&in, ATTR_over, true);
  for (int i = 0; i < over.n; i++) {
    infer_size(&in, 0, over.items[i]);
    infer_size(&in, 1, over.items[i]);
    infer_agree(&in, 0, 1, over.items[i]);
  }
  infer_want_number(&in, 0);
  infer_want_number(&in, 1);
  Dims dims = {0};
  dims_union(&in, &dims, 0, over);
  dims_union(&in, &dims, 1, over);
  DType dtype = dtype_promote(call->types[0]->dtype, call->types[1]->dtype);
  return infer_one(&in, infer_dtype_attr(&in, dtype), &dims, out_types);
}

double cost_dot(const Node *node, const Type *const *inputs) {
  const Type *a = inputs[0];
  double flops = 2 * (double)type_elements(node->types[0]);
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  for (int i = 0; i < n; i++) flops *= (double)type_size(a, over[i]);
  return flops;
}

/* ---- attention ---- */

typedef struct Attention {
  NameSpan over;
  Name query, key;
} Attention;

static bool is_batch_dim(const Attention *at, Name dim) {
  return dim != at->query && dim != at->key && !names_have(at->over, dim);
}

/* q has query and over, k has key and over; of the rest, k has nothing that q
 * does not have. */
static Attention read_attention(Infer *in) {
  Attention at = {infer_names(in, ATTR_over, true), infer_name(in, ATTR_query),
                  infer_name(in, ATTR_key)};
  for (int i = 0; i < 3; i++) infer_want_real(in, i);
  for (int i = 0; i < at.over.n; i++) {
    infer_size(in, 0, at.over.items[i]);
    infer_size(in, 1, at.over.items[i]);
    infer_agree(in, 0, 1, at.over.items[i]);
  }
  infer_size(in, 0, at.query);
  infer_size(in, 1, at.key);
  infer_size(in, 2, at.key);
  infer_agree(in, 1, 2, at.key);
  infer_lacks(in, 0, at.key);
  infer_lacks(in, 1, at.query);
  infer_lacks(in, 2, at.query);
  const Type *k = infer_type(in, 1);
  for (int i = 0; i < k->rank; i++) {
    if (!is_batch_dim(&at, k->dims[i].name)) continue;
    infer_size(in, 0, k->dims[i].name);
    infer_agree(in, 0, 1, k->dims[i].name);
  }
  return at;
}

/* A dim of v that makes up the width of a head: neither key nor batched. */
static bool is_width_dim(const Infer *in, const Attention *at, Name dim) {
  if (dim == at->key) return false;
  return names_have(at->over, dim) || type_find(infer_type(in, 0), dim) < 0;
}

static void add_widths(const Infer *in, const Attention *at, Dims *dims) {
  const Type *v = infer_type(in, 2);
  for (int i = 0; i < v->rank; i++) {
    if (is_width_dim(in, at, v->dims[i].name)) {
      dims_add(dims, v->dims[i].name, v->dims[i].size);
    }
  }
}

/* q with v's head width in the place of its own. */
static Dims attention_dims(Infer *in, const Attention *at) {
  const Type *q = infer_type(in, 0), *v = infer_type(in, 2);
  Dims dims = {0};
  bool is_done = false;
  for (int i = 0; i < q->rank; i++) {
    if (!names_have(at->over, q->dims[i].name)) {
      dims_add(&dims, q->dims[i].name, q->dims[i].size);
    } else if (!is_done) {
      add_widths(in, at, &dims);
      is_done = true;
    }
  }
  if (!is_done) add_widths(in, at, &dims);
  for (int i = 0; i < v->rank; i++) {
    if (!is_width_dim(in, at, v->dims[i].name)) {
      infer_agree(in, 0, 2, v->dims[i].name);
    }
  }
  return dims;
}

/* The number of keys has no dims but those that attention goes through. */
static void read_key_count(Infer *in, const Attention *at, int operand) {
  if (in->call->n_inputs <= operand) return;
  const Type *type = infer_type(in, operand);
  infer_want_integer(in, operand);
  infer_lacks(in, operand, at->query);
  for (int i = 0; i < type->rank; i++) {
    if (names_have(at->over, type->dims[i].name))
      infer_lacks(in, operand, type->dims[i].name);
    infer_size(in, 0, type->dims[i].name);
    infer_agree(in, 0, operand, type->dims[i].name);
  }
}

int infer_attention(Module *module, const OpCall *call, Span span,
                    const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Attention at = read_attention(&in);
  read_key_count(&in, &at, 3);
  Dims o = attention_dims(&in, &at);
  Dims lse = {0};
  dims_add_type(&lse, call->types[0], at.over);
  DType dtype = dtype_promote(call->types[0]->dtype, call->types[2]->dtype);
  out_types[0] = infer_result(&in, dtype, &o);
  out_types[1] = infer_result(&in, DT_f32, &lse);
  bool is_relative = infer_int(&in, ATTR_relative, 0) != 0;
  if (is_relative) out_types[2] = out_types[1];
  return in.failed ? -1 : 2 + is_relative;
}

int infer_attention_grad(Module *module, const OpCall *call, Span span,
                         const Type **out_types) {
  Infer in = infer_begin(module, call, span);
  Attention at = read_attention(&in);
  attention_dims(&in, &at);
  read_key_count(&in, &at, 6);
  infer_want_same_dims(&in, 3, 5);
  infer_lacks(&in, 4, at.key);
  infer_size(&in, 4, at.query);
  if (in.failed) return -1;
  for (int i = 0; i < 3; i++) {
    out_types[i] = type_logical(module->arena, call->types[i]);
  }
  return 3;
}

/* The full square of scores, causal or not: two contractions forward, five
 * backward (one of them the scores again), two operations each. */
double cost_attention(const Node *node, const Type *const *inputs) {
  const Type *q = inputs[0];
  const Type *k = inputs[1];
  const Type *v = inputs[2];
  double keys = (double)type_size(k, node_name(node, ATTR_key));
  int n;
  const Name *over = node_names(node, ATTR_over, &n);
  double head = 1, width = 1;
  for (int i = 0; i < n; i++) head *= (double)type_size(q, over[i]);
  for (int i = 0; i < v->rank; i++) {
    Name dim = v->dims[i].name;
    bool is_over = names_have((NameSpan){over, n}, dim);
    if (dim == node_name(node, ATTR_key)) continue;
    if (is_over || type_find(q, dim) < 0) width *= (double)v->dims[i].size;
  }
  double queries = (double)type_elements(q) / head;
  bool is_grad = node->op == OP_attention_grad;
  double scores = 2 * queries * keys;
  return scores * (is_grad ? 3 * head + 2 * width : head + width);
}
