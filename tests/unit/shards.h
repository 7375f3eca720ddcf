/*
 * shards.h -- shards of tensors and nodes that run on them, for the tests that
 * play the ranks of a mesh.
 */
#ifndef TESTS_UNIT_SHARDS_H
#define TESTS_UNIT_SHARDS_H

#include "interp/numbers.h"
#include "tests/unit/values.h"

/* Ranks between two neighbours on this axis; the last axis varies fastest. */
static inline int shard_stride(const Mesh *mesh, int axis) {
  int stride = 1;
  for (int a = axis + 1; a < mesh->n_axes; a++) stride *= mesh->axes[a].size;
  return stride;
}

static inline int shard_coordinate(const Mesh *mesh, int axis, int rank) {
  return rank / shard_stride(mesh, axis) % mesh->axes[axis].size;
}

/* Which shard of a dim; the first axis of the list is the outermost. */
static inline int shard_index(const Mesh *mesh, AxisList split, int rank) {
  int index = 0;
  for (int i = 0; i < axis_list_length(split); i++) {
    int axis = axis_list_at(split, i);
    index = index * mesh->axes[axis].size + shard_coordinate(mesh, axis, rank);
  }
  return index;
}

static inline const Type *shard_type(Arena *arena, const Mesh *mesh,
                                     const Type *type) {
  Type *local = type_create(arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++)
    local->dims[d] =
        (Dim){type->dims[d].name, type_local_size(type, mesh, d), 0};
  return local;
}

/* Position of element i of a rank's shard in the logical tensor, or -1: it is
 * padding.  The first dim that ends before it is then in *out_dim (may be
 * NULL).
 */
static inline int64_t shard_place_or_padding(const Mesh *mesh, const Type *type,
                                             int rank, int64_t i,
                                             int *out_dim) {
  int64_t at = 0, stride = 1;
  int ended = -1;
  for (int d = type->rank - 1; d >= 0; d--) {
    int64_t size = type_local_size(type, mesh, d);
    int64_t k = i % size + shard_index(mesh, type->dims[d].split, rank) * size;
    i /= size;
    if (k >= type->dims[d].size) ended = d;
    at += k * stride;
    stride *= type->dims[d].size;
  }
  if (out_dim) *out_dim = ended;
  return ended < 0 ? at : -1;
}

static inline int64_t shard_place(const Mesh *mesh, const Type *type, int rank,
                                  int64_t i) {
  int64_t at = shard_place_or_padding(mesh, type, rank, i, NULL);
  cr_assert_geq(at, 0);
  return at;
}

/* Shares of partial sums, which all add up to the whole. */
static inline double shard_share(const Mesh *mesh, const Type *type, int rank) {
  static const double shares[] = {0.5, -1.25, 2, 0.75};
  double share = 1;
  for (int axis = 0; axis < mesh->n_axes; axis++) {
    if (!(type->partial >> axis & 1)) continue;
    int at = shard_coordinate(mesh, axis, rank);
    int last = mesh->axes[axis].size - 1;
    double rest = 1;
    for (int k = 0; k < last; k++) rest -= shares[k];
    share *= at < last ? shares[at] : rest;
  }
  return share;
}

static inline bool shard_is_same(double a, double b) {
  return a == b || (isnan(a) && isnan(b)) ||
         fabs(a - b) <= 1e-9 * (1 + fabs(a));
}

/* A node on the shards of a rank, with results of these local types, which keep
 * their splits where the operator asks for positions. */
static inline Tensor *shard_run(Module *module, Arena *scratch,
                                const Node *node, const Tensor *inputs,
                                const Type *const *types, const Mesh *mesh,
                                int rank) {
  Graph *one = make_graph(module);
  Name none = name_intern(module->names, "");
  Value args[6];
  for (int i = 0; i < node->n_inputs; i++)
    args[i] = graph_input(one, ROLE_arg, none, inputs[i].type);
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  Value value = graph_append_typed(one, node->op, args, node->n_inputs, &attrs,
                                   types, node->n_results, NULL);
  Tensor *outputs = ARENA_ARRAY(scratch, Tensor, node->n_results);
  for (int r = 0; r < node->n_results; r++)
    outputs[r] = tensor_create(scratch, types[r]);
  Numbers numbers = {.number = INTERP_f64};
  MeshPlace place = mesh_place(mesh, rank, 0);
  interp_node(one, graph_node(one, value), &numbers, &place, inputs, outputs,
              scratch);
  return outputs;
}

#endif
