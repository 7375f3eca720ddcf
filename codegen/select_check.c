/*
 * select_check.c -- says what no launches can be made of: micro-batches that do
 * not follow each other, inputs whose micro-batches do not lie end to end.
 */
#include "codegen/select.h"

/* ---- micro-batches ---- */

/* list_schedule puts micro-batches together unless a value for all of them,
 * such as a carry without the batch dim, lies between two of their values. */
static Status second_loop_status(const Graph *graph, int begin) {
  const Node *between = graph->nodes.data[begin - 1];
  const char *path = between->path && *between->path
                         ? between->path
                         : op_info(between->op)->name;
  return status_make(STATUS_invalid,
                     "'%s' is one value for all micro-batches between values "
                     "of each of them, which is not supported yet; build "
                     "without --microbatches",
                     path);
}

static bool is_sequential_split(const Graph *graph, AxisList list) {
  for (int i = 0; i < axis_list_length(list); i++)
    if (graph->mesh.axes[axis_list_at(list, i)].is_sequential) return true;
  return false;
}

/* The micro-batches of an input lie end to end only if its outermost dim is the
 * one that they split. */
static Status check_microbatched_inputs(const Graph *graph) {
  for (int i = 0; i < graph->inputs.n; i++) {
    const Type *type = graph_type(graph, graph->inputs.data[i].value);
    if (graph->inputs.data[i].role == ROLE_receive) continue;
    for (int d = 1; d < type->rank; d++)
      if (is_sequential_split(graph, type->dims[d].split) &&
          type_local_size(type, &graph->mesh, d - 1) > 1)
        return status_make(STATUS_unavailable,
                           "micro-batches along dimension '%s' of '%s' are "
                           "not supported yet: move it to the front",
                           type->dims[d].name, graph->inputs.data[i].path);
  }
  return STATUS_OK;
}

Status select_check(const ProgramStage *stage) {
  bool has_loop = false;
  TRY(mesh_check_placements(stage->graph));
  TRY(check_microbatched_inputs(stage->graph));
  for (int s = 0; s < stage->segments.n; s++) {
    const ProgramSegment *segment = &stage->segments.data[s];
    if (!segment_is_of_microbatch(segment)) continue;
    bool follows = s > 0 && segment_is_of_microbatch(segment - 1);
    if (has_loop && !follows)
      return second_loop_status(stage->graph, segment->first_node);
    has_loop = true;
  }
  return STATUS_OK;
}
