/*
 * mesh_place.c -- shards as index arithmetic, declared in mesh_place.h.
 */
#include "ir/place/mesh_place.h"

MeshPlace mesh_place(const Mesh *mesh, int rank, int microbatch) {
  MeshPlace place = {.mesh = mesh};
  for (int a = mesh->n_axes - 1; a >= 0; a--) {
    int *from = mesh->axes[a].is_sequential ? &microbatch : &rank;
    place.at[a] = *from % mesh->axes[a].size;
    *from /= mesh->axes[a].size;
  }
  return place;
}

int mesh_microbatches(const Mesh *mesh) {
  int n = 1;
  for (int a = 0; a < mesh->n_axes; a++)
    if (mesh->axes[a].is_sequential) n *= mesh->axes[a].size;
  return n;
}

AxisSet mesh_sequential(const Mesh *mesh) {
  AxisSet set = 0;
  for (int a = 0; a < mesh->n_axes; a++)
    if (mesh->axes[a].is_sequential) set |= (AxisSet)(1u << a);
  return set;
}

bool mesh_same_group(const MeshPlace *a, const MeshPlace *b, AxisSet axes) {
  for (int i = 0; i < a->mesh->n_axes; i++)
    if (!(axes >> i & 1) && a->at[i] != b->at[i]) return false;
  return true;
}

int64_t shard_number(const MeshPlace *place, AxisList split) {
  int64_t number = 0;
  for (int i = 0; i < axis_list_length(split); i++) {
    int axis = axis_list_at(split, i);
    number = number * place->mesh->axes[axis].size + place->at[axis];
  }
  return number;
}

int64_t shard_begin(const MeshPlace *place, const Type *type, int d) {
  return shard_number(place, type->dims[d].split) *
         type_local_size(type, place->mesh, d);
}

int64_t shard_valid(const MeshPlace *place, const Type *type, int d) {
  int64_t left = type->dims[d].size - shard_begin(place, type, d);
  int64_t size = type_local_size(type, place->mesh, d);
  return left < 0 ? 0 : left < size ? left : size;
}

const Type *type_local(Arena *arena, const Type *type, const Mesh *mesh) {
  if (type_is_replicated(type)) return type;
  Type *local = type_create(arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) {
    local->dims[d] = type->dims[d];
    local->dims[d].size = type_local_size(type, mesh, d);
  }
  return local;
}

bool type_is_uneven(const Type *type, const Mesh *mesh) {
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].split &&
        type->dims[d].size % axis_list_shards(type->dims[d].split, mesh) != 0)
      return true;
  return false;
}

bool type_uses_axes(const Type *type, AxisSet axes) {
  AxisSet used = type->partial;
  for (int d = 0; d < type->rank; d++)
    used |= axis_list_set(type->dims[d].split);
  return (used & axes) != 0;
}

bool node_is_per_microbatch(const Graph *graph, int id) {
  AxisSet axes = mesh_sequential(&graph->mesh);
  const Node *node = graph->nodes.data[id];
  if (node->op == OP_input) return false;
  if (node_int(node, ATTR_per_microbatch, 0) != 0) return true;
  if (!axes) return false;
  for (int i = 0; i < node->n_inputs; i++)
    if (type_uses_axes(graph_type(graph, node->inputs[i]), axes)) return true;
  for (int r = 0; r < node->n_results; r++)
    if (type_uses_axes(node->types[r], axes)) return true;
  return false;
}

bool node_joins_microbatches(const Node *node) {
  return op_has(node->op, OP_FLAG_joins_microbatches) ||
         (node->op == OP_dot && node_has(node, ATTR_axes));
}

bool *nodes_before_microbatches(const Graph *graph, Arena *arena) {
  bool *is_before = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    bool is_per_microbatch = node_is_per_microbatch(graph, id);
    if (is_per_microbatch) is_before[id] = false;
    for (int i = 0; i < node->n_inputs; i++)
      is_before[node->inputs[i].node] |= is_per_microbatch || is_before[id];
  }
  return is_before;
}

int64_t local_to_logical(const MeshPlace *place, const Type *type,
                         int64_t index) {
  int64_t logical = 0, stride = 1;
  for (int d = type->rank - 1; d >= 0; d--) {
    int64_t size = type_local_size(type, place->mesh, d);
    int64_t at = shard_begin(place, type, d) + index % size;
    if (at >= type->dims[d].size) return -1;
    logical += at * stride;
    stride *= type->dims[d].size;
    index /= size;
  }
  return logical;
}

int64_t logical_to_local(const MeshPlace *place, const Type *type,
                         const Type *like, int64_t logical) {
  int64_t at[MAX_RANK], index = 0;
  for (int d = like->rank - 1; d >= 0; d--) {
    at[d] = logical % like->dims[d].size;
    logical /= like->dims[d].size;
  }
  for (int d = 0; d < type->rank; d++) {
    int64_t size = type_local_size(type, place->mesh, d);
    int64_t i =
        at[type_find(like, type->dims[d].name)] - shard_begin(place, type, d);
    if (i < 0 || i >= size) return -1;
    index = index * size + i;
  }
  return index;
}
