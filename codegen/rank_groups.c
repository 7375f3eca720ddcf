/*
 * rank_groups.c -- finds the process groups along mesh axes: ranks are numbered
 * row-major over the axes that are not sequential.
 *
 *     mesh(data = 2, tensor = 4)
 *     data              digits 2 x 4    ranks {0, 4}, {1, 5}, {2, 6}, {3, 7}
 *     (data, tensor)    digits 8 x 1    all ranks: neighbours are one digit
 *     (tensor, data)    digits 4 x 1, 2 x 4    all: 0, 4, 1, 5, 2, 6, 3, 7
 */
#include "codegen/select.h"

#include <string.h>

static int mesh_rank_stride(const Mesh *mesh, int axis) {
  int stride = 1;
  for (int i = axis + 1; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential) stride *= mesh->axes[i].size;
  return stride;
}

/* Puts a digit after the last, or into it where both are neighbours. */
static bool group_append(DnnGroup *group, DnnDigit digit) {
  DnnDigit *last = group->n_digits ? &group->digits[group->n_digits - 1] : NULL;
  group->size *= digit.size;
  if (last && last->stride == digit.stride * digit.size) {
    *last = (DnnDigit){last->size * digit.size, digit.stride};
    return true;
  }
  if (group->n_digits == DNN_MAX_DIGITS) return false;
  group->digits[group->n_digits++] = digit;
  return true;
}

bool mesh_group(const Mesh *mesh, int first_rank, AxisList list,
                DnnGroup *out) {
  *out = (DnnGroup){.first = first_rank, .ranks = mesh_ranks(mesh), .size = 1};
  for (int i = 0; i < axis_list_length(list); i++) {
    int axis = axis_list_at(list, i);
    if (mesh->axes[axis].is_sequential || mesh->axes[axis].size == 1) continue;
    DnnDigit digit = {mesh->axes[axis].size, mesh_rank_stride(mesh, axis)};
    if (!group_append(out, digit)) return false;
  }
  return true;
}

bool mesh_group_ascending(const Mesh *mesh, int first_rank, AxisList list,
                          DnnGroup *out) {
  AxisSet set = axis_list_set(list);
  AxisList ascending = 0;
  for (int axis = 0; axis < mesh->n_axes; axis++)
    if (set >> axis & 1) ascending = axis_list_append(ascending, axis);
  return mesh_group(mesh, first_rank, ascending, out);
}

Status mesh_check_placements(const Graph *graph) {
  DnnGroup group;
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->body) TRY(mesh_check_placements(node->body));
    for (int r = 0; r < node->n_results; r++)
      for (int d = 0; d < node->types[r]->rank; d++)
        if (!mesh_group(&graph->mesh, 0, node->types[r]->dims[d].split, &group))
          return status_make(STATUS_unavailable,
                             "dimension '%s' of '%s' is sharded over so many "
                             "axes in this order, which is not supported yet",
                             node->types[r]->dims[d].name,
                             graph_path(graph, id));
  }
  return STATUS_OK;
}

/* ---- what collectives do ---- */

/* Kinds of the collectives that travel, plus 1. */
static const uint8_t message_kinds[N_OPS] = {
#define MESSAGE(op, kind, elements) [OP_##op] = DNN_##kind + 1,
#include "ir/ops.def"
};

int codegen_message_kind(Op op) {
  return message_kinds[op];
}

ReduceKind collective_reduction(const Node *node) {
  const char *name =
      node_has(node, ATTR_reduce) ? node_name(node, ATTR_reduce) : "sum";
  for (int kind = 0; kind < N_REDUCTIONS; kind++)
    if (strcmp(name, reduce_name((ReduceKind)kind)) == 0)
      return (ReduceKind)kind;
  UNREACHABLE();
}
