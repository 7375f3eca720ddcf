/*
 * states.c -- tracks the value that a state has at each place of a program.
 *
 *     state s: [] = 0
 *     a = s + 1           s is the graph input, the value after the last step
 *     s = a
 *     b = s * 2           s is a
 *     s = s + 1           the next step reads a + 1
 *
 * A state is a name like any other, and its last value is what the next step
 * reads. The value belongs to the path and not to a body: a net that is called
 * again and a second batchnorm continue with the value that the first call has
 * assigned. Gradients pass through values of this step as through any other;
 * the graph input is a constant.
 */
#include "frontend/elaborate/emit.h"
#include "frontend/elaborate/scan.h"
#include "frontend/elaborate/state.h"

ExprValue state_value(const Elab *e, Name path, ExprValue initial) {
  intptr_t at = (intptr_t)map_get(e->written_states, path);
  return at ? e->state_writes.data[at - 1].val : initial;
}

void state_set(Elab *e, Name path, ExprValue val) {
  val.is_weak = false;
  intptr_t at = (intptr_t)map_get(e->written_states, path);
  if (at) {
    e->state_writes.data[at - 1].val = val;
  } else {
    vec_push(e->arena, &e->state_writes, (StateWrite){path, val});
    map_put(e->written_states, path, (void *)(intptr_t)e->state_writes.n);
  }
  for (Frame *frame = e->frame; frame; frame = frame->caller)
    for (int i = 0; frame->has_states && i < frame->locals.n; i++)
      if (frame->locals.data[i].state_path == path)
        frame->locals.data[i].val = val;
}

/* A value that two states were assigned identifies neither. */
static Name state_that_has(const Elab *e, Value value) {
  Name path = NULL;
  for (int i = 0; i < e->state_writes.n; i++) {
    if (!value_equal(e->state_writes.data[i].val.tensor, value)) continue;
    if (path) return NULL;
    path = e->state_writes.data[i].path;
  }
  return path;
}

Name state_of_value(const Elab *e, ExprValue val) {
  const Node *node = graph_node(e->graph, val.tensor);
  if (node->op != OP_input) return state_that_has(e, val.tensor);
  const GraphInput *input =
      &e->graph->inputs.data[node_int(node, ATTR_index, 0)];
  return input->role == ROLE_state ? input->path
                                   : state_that_has(e, val.tensor);
}

void state_assign(Elab *e, const Local *state, ExprValue val, Span span) {
  if (scan_forbids(e, span, "the assignment of a state")) return;
  if (expr_value_is_poison(val) || expr_value_is_poison(state->val)) return;
  const Type *type = elab_type(e, state->val);
  if (type->rank == 0) val = elab_scalar(e, type->dtype, val);
  if (!expr_value_is_tensor(val) || !type_same_dims(elab_type(e, val), type) ||
      !elab_takes(type->dtype, elab_type(e, val)->dtype)) {
    diag(e->diags, DIAG_state_type, span, state->name, type_describe(e, type),
         expr_value_describe(e, val));
    return;
  }
  val = elab_cast(e, elab_typed(e, state->state_type, val), type->dtype);
  Value value = graph_transpose_to(e->graph, val.tensor, type);
  state_set(e, state->state_path, expr_value_tensor(value, false));
}
