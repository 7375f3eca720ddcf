/*
 * experts.c -- interprets topk and the moves between tokens and experts by the
 * plain algorithm, with one counter for each expert.
 */
#include "ir/interp/internal.h"

void interp_topk(const InterpCall *call) {
  const Tensor *x = &call->inputs[0];
  const Tensor *y = &call->results[0], *at = &call->results[1];
  Name dim = node_name(call->node, ATTR_dim);
  int n_to;
  Name to = node_names(call->node, ATTR_to, &n_to)[0];
  int64_t stride = type_stride(x->type, dim), n = type_size(x->type, dim);
  int64_t step = type_stride(y->type, to), k = type_size(y->type, to);
  bool *is_taken = ARENA_ARRAY(call->arena, bool, n);
  Loops loops = {0};
  const Type *rows = type_without(call->arena, x->type, &dim, 1);
  loops_add_type(&loops, rows);
  loops_bind(&loops, x->type);
  loops_bind(&loops, y->type);
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    const double *row = x->data + loops.offset[0];
    for (int64_t i = 0; i < n; i++) is_taken[i] = false;
    for (int64_t j = 0; j < k; j++) {
      int64_t best = -1;
      for (int64_t i = 0; i < n; i++) {
        if (is_taken[i]) continue;
        if (best < 0 || interp_is_above(row[i * stride], row[best * stride]))
          best = i;
      }
      is_taken[best] = true;
      y->data[loops.offset[1] + j * step] = row[best * stride];
      at->data[loops.offset[1] + j * step] = (double)best;
    }
  }
}

/* ---- routed tokens and slots ---- */

/* The dims that an attribute lists, walked in that order. */
static Loops loops_of_attr(const Node *node, AttrKey key, const Type *type) {
  Loops loops = {0};
  int n;
  const Name *names = node_names(node, key, &n);
  for (int i = 0; i < n; i++)
    loops_add(&loops, names[i], type_size(type, names[i]));
  loops_bind(&loops, type);
  return loops;
}

/* The dims of `type` that the attribute does not list. */
static Loops loops_of_others(const InterpCall *call, AttrKey key,
                             const Type *type) {
  Loops loops = {0};
  int n;
  const Name *names = node_names(call->node, key, &n);
  loops_add_type(&loops, type_without(call->arena, type, names, n));
  return loops;
}

void interp_route(const InterpCall *call) {
  const Tensor *choice = &call->inputs[0], *slot = &call->results[0];
  int n;
  const int64_t *sizes = node_ints(call->node, ATTR_sizes, &n);
  int64_t *used = ARENA_ARRAY(call->arena, int64_t, sizes[0]);
  Loops groups = loops_of_others(call, ATTR_over, choice->type);
  loops_bind(&groups, choice->type);
  for (bool more = loops_start(&groups); more; more = loops_next(&groups)) {
    Loops tokens = loops_of_attr(call->node, ATTR_over, choice->type);
    for (int64_t e = 0; e < sizes[0]; e++) used[e] = 0;
    for (bool next = loops_start(&tokens); next; next = loops_next(&tokens)) {
      int64_t at = groups.offset[0] + tokens.offset[0];
      int64_t e = (int64_t)choice->data[at];
      bool fits = e >= 0 && e < sizes[0] && used[e] < sizes[1];
      slot->data[at] = fits ? (double)(e * sizes[1] + used[e]++) : -1;
    }
  }
}

void interp_route_inverse(const InterpCall *call) {
  const Tensor *slot = &call->inputs[0], *token = &call->results[0];
  int64_t n_tokens = type_elements(token->type);
  for (int64_t i = 0; i < n_tokens; i++) token->data[i] = -1;
  Loops slots = loops_of_attr(call->node, ATTR_to, token->type);
  int64_t *offset = loops_offsets(&slots, 0, call->arena);
  double n_slots = (double)loops_count(&slots);
  Loops groups = loops_of_others(call, ATTR_over, slot->type);
  loops_bind(&groups, slot->type);
  loops_bind(&groups, token->type);
  for (bool more = loops_start(&groups); more; more = loops_next(&groups)) {
    Loops tokens = loops_of_attr(call->node, ATTR_over, slot->type);
    double number = 0;
    for (bool next = loops_start(&tokens); next; next = loops_next(&tokens)) {
      double s = slot->data[groups.offset[0] + tokens.offset[0]];
      if (s >= 0 && s < n_slots)
        token->data[groups.offset[1] + offset[(int64_t)s]] = number;
      number++;
    }
  }
}

/* Rows of the table where the index operand says: dims `key` of the table,
 * whose sizes operand `sized` has, are what the index stands for. */
static void look_up_rows(const InterpCall *call, AttrKey key, int sized,
                         int at) {
  const Tensor *x = &call->inputs[0], *index = &call->inputs[at];
  const Tensor *y = &call->results[0];
  Loops rows = loops_of_attr(call->node, key, call->inputs[sized].type);
  rows.n_tensors = 0;
  loops_bind(&rows, x->type);
  int64_t n_rows = loops_count(&rows);
  int64_t *offset = loops_offsets(&rows, 0, call->arena);
  Loops loops = {0};
  loops_add_type(&loops, y->type);
  loops_bind(&loops, x->type);
  loops_bind(&loops, index->type);
  for (int i = 0; i < loops.rank; i++)
    if (loops_has(&rows, loops.names[i])) loops.strides[0][i] = 0;
  int64_t to = 0;
  for (bool more = loops_start(&loops); more; more = loops_next(&loops)) {
    double row = index->data[loops.offset[1]];
    bool is_there = row >= 0 && row < (double)n_rows;
    y->data[to++] =
        is_there ? x->data[loops.offset[0] + offset[(int64_t)row]] : 0;
  }
}

void interp_dispatch(const InterpCall *call) {
  look_up_rows(call, ATTR_over, 1, 2);
}

void interp_combine(const InterpCall *call) {
  look_up_rows(call, ATTR_to, 2, 1);
}
