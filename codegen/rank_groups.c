/*
 * rank_groups.c -- finds the ranks along mesh axes: ranks are numbered
 * row-major over the axes that are not sequential.
 */
#include "codegen/select.h"

int mesh_rank_stride(const Mesh *mesh, int axis) {
  int stride = 1;
  for (int i = axis + 1; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential) stride *= mesh->axes[i].size;
  return stride;
}

bool mesh_group(const Mesh *mesh, AxisList list, int *out_size,
                int *out_stride) {
  *out_size = *out_stride = 1;
  int last = -1;
  for (int i = 0; i < axis_list_length(list); i++) {
    int axis = axis_list_at(list, i);
    if (mesh->axes[axis].is_sequential || mesh->axes[axis].size == 1) continue;
    int stride = mesh_rank_stride(mesh, axis);
    if (last >= 0 &&
        mesh_rank_stride(mesh, last) != stride * mesh->axes[axis].size)
      return false;
    *out_size *= mesh->axes[axis].size;
    *out_stride = stride;
    last = axis;
  }
  return true;
}
