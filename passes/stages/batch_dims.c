/*
 * batch_dims.c -- finds the batch dim of values that have it under another
 * name, and brings it back for a message.
 *
 *     %3 = merge_dims %2 {dim = N, from = [B, T]} : f32[N:8, C:8]
 *     %4 = dot %3, %0 : f32[N:8, K:4]
 *     %5 = split_dim %4 {dim = N, to = [B, T], sizes = [4, 2]}
 *     output send %5
 *
 *     %0 = input receive : f32[B:4, T:2, K:4]
 *     %1 = merge_dims %0 {dim = N, from = [B, T]} : f32[N:8, K:4]
 *
 * Placements divide the batch dim among ranks and micro-batches.  So a value
 * that is sent has it, and both ends divide the value alike.
 */
#include "passes/stages/batch_dims.h"

static bool has_name(const Name *names, int n, Name name) {
  for (int i = 0; i < n; i++)
    if (names[i] == name) return true;
  return false;
}

/* ---- where it is ---- */

static void add_part(HiddenBatch *batch, Name name, int64_t size) {
  if (batch->n == MAX_RANK) return;
  batch->parts[batch->n] = name;
  batch->sizes[batch->n++] = size;
}

static HiddenBatch renamed(const Node *node, HiddenBatch from) {
  int n = 0, n_to = 0;
  const Name *before = node_names(node, ATTR_from, &n);
  const Name *after = node_names(node, ATTR_to, &n_to);
  for (int i = 0; i < n; i++) {
    if (before[i] != from.dim) continue;
    from.dim = after[i];
    return from;
  }
  return (HiddenBatch){0};
}

static HiddenBatch merged(const Node *node, const Type *type,
                          HiddenBatch from) {
  int n = 0;
  const Name *before = node_names(node, ATTR_from, &n);
  HiddenBatch batch = {.dim = node_name(node, ATTR_dim)};
  if (!has_name(before, n, from.dim)) return (HiddenBatch){0};
  for (int i = 0; i < n && !from.is_split; i++) {
    if (before[i] != from.dim) {
      add_part(&batch, before[i], type_size(type, before[i]));
      continue;
    }
    for (int k = 0; k < from.n; k++)
      add_part(&batch, from.parts[k], from.sizes[k]);
  }
  return batch;
}

static HiddenBatch split(const Node *node, HiddenBatch from, Name batch_dim) {
  int n = 0, n_sizes = 0;
  const Name *after = node_names(node, ATTR_to, &n);
  const int64_t *sizes = node_ints(node, ATTR_sizes, &n_sizes);
  if (node_name(node, ATTR_dim) != from.dim || has_name(after, n, batch_dim))
    return (HiddenBatch){0};
  HiddenBatch batch = {.dim = after[0], .is_split = true};
  for (int i = 0; i < n && from.dim == batch_dim; i++)
    add_part(&batch, after[i], sizes[i]);
  return batch;
}

/* The batch in the result of a node that takes it from an operand. */
static HiddenBatch moved(const Node *node, const Type *type, HiddenBatch from,
                         Name batch_dim) {
  switch (node->op) {
  case OP_rename: return renamed(node, from);
  case OP_merge_dims: return merged(node, type, from);
  case OP_split_dim: return split(node, from, batch_dim);
  default: return (HiddenBatch){0};
  }
}

static HiddenBatch of_result(const Graph *graph, int id, const Type *type,
                             const HiddenBatch *batches, const int *first_value,
                             Name batch_dim) {
  const Node *node = graph->nodes.data[id];
  for (int i = 0; i < node->n_inputs; i++) {
    Value value = node->inputs[i];
    const Type *from = graph_type(graph, value);
    HiddenBatch hidden = batches[first_value[value.node] + value.result];
    int at = type_find(from, batch_dim);
    if (hidden.dim && type_find(type, hidden.dim) >= 0) return hidden;
    HiddenBatch shown = {.dim = batch_dim};
    if (at >= 0) add_part(&shown, batch_dim, from->dims[at].size);
    const HiddenBatch *both[] = {&shown, &hidden};
    for (int k = 0; k < 2; k++) {
      HiddenBatch now = {0};
      if (both[k]->dim) now = moved(node, from, *both[k], batch_dim);
      if (now.dim && type_find(type, now.dim) >= 0) return now;
    }
  }
  return (HiddenBatch){0};
}

void batch_dims_find(const Graph *graph, const int *first_value, Name batch_dim,
                     HiddenBatch *out) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    for (int r = 0; r < node->n_results; r++)
      out[first_value[id] + r] =
          of_result(graph, id, node->types[r], out, first_value, batch_dim);
  }
}

/* ---- brought back ---- */

/* The parts stand side by side in the type, with their sizes. */
static bool has_parts(const Type *type, const HiddenBatch *batch) {
  int at = type_find(type, batch->parts[0]);
  if (at < 0 || at + batch->n > type->rank) return false;
  for (int i = 0; i < batch->n; i++)
    if (type->dims[at + i].name != batch->parts[i] ||
        type->dims[at + i].size != batch->sizes[i])
      return false;
  return true;
}

static bool can_split(const Type *type, const HiddenBatch *batch) {
  int64_t product = 1;
  if (type->rank + batch->n - 1 > MAX_RANK) return false;
  for (int i = 0; i < batch->n; i++) {
    product *= batch->sizes[i];
    if (batch->parts[i] != batch->dim && type_find(type, batch->parts[i]) >= 0)
      return false;
  }
  return type_size(type, batch->dim) == product;
}

static int64_t batch_size(const HiddenBatch *batch) {
  int64_t size = 1;
  for (int i = 0; i < batch->n; i++) size *= batch->sizes[i];
  return size;
}

const Type *batch_dims_shown(Arena *arena, const Type *type,
                             const HiddenBatch *batch, Name batch_dim) {
  bool can = batch->is_split ? has_parts(type, batch) : can_split(type, batch);
  if (batch->n == 0 || !can) return NULL;
  int n_from = batch->is_split ? batch->n : 1;
  int n_to = batch->is_split ? 1 : batch->n;
  int at = type_find(type, batch->dim), n = 0;
  Type *shown = type_create(arena, type->dtype, type->rank - n_from + n_to);
  for (int i = 0; i < at; i++) shown->dims[n++] = type->dims[i];
  for (int i = 0; i < n_to; i++)
    shown->dims[n++] =
        batch->is_split
            ? (Dim){.name = batch_dim, .size = batch_size(batch)}
            : (Dim){.name = batch->parts[i], .size = batch->sizes[i]};
  for (int i = at + n_from; i < type->rank; i++)
    shown->dims[n++] = type->dims[i];
  return shown;
}

static Value append_rename(Graph *to, Value value, Name from, Name name) {
  Attrs attrs = {0};
  attrs_names(&attrs, ATTR_from, &from, 1);
  attrs_names(&attrs, ATTR_to, &name, 1);
  return graph_append(to, OP_rename, &value, 1, &attrs);
}

/* Splits `dim` into the parts of the batch, or merges them into it. */
static Value append_parts(Graph *to, Op op, Value value,
                          const HiddenBatch *batch, Name dim) {
  bool splits = op == OP_split_dim;
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_names(&attrs, splits ? ATTR_to : ATTR_from, batch->parts, batch->n);
  if (splits) attrs_ints(&attrs, ATTR_sizes, batch->sizes, batch->n);
  return graph_append(to, op, &value, 1, &attrs);
}

Value batch_dims_show(Graph *to, Value value, const HiddenBatch *batch,
                      Name batch_dim) {
  if (batch->is_split)
    return append_parts(to, OP_merge_dims, value, batch, batch_dim);
  if (batch->n == 1) return append_rename(to, value, batch->dim, batch_dim);
  return append_parts(to, OP_split_dim, value, batch, batch->dim);
}

Value batch_dims_hide(Graph *to, Value value, const HiddenBatch *batch,
                      Name batch_dim) {
  if (batch->is_split)
    return append_parts(to, OP_split_dim, value, batch, batch_dim);
  if (batch->n == 1) return append_rename(to, value, batch_dim, batch->dim);
  return append_parts(to, OP_merge_dims, value, batch, batch->dim);
}
