/*
 * scan.c -- reads and builds `scan` nodes: a scan runs its body once for each
 * index of a dim, in order, and carries values from one iteration to the next.
 *
 *     %3, %4 = scan %0, %1, %2 {dim = T} : f32[B, O], f32[T, B, O] {
 *       %0 = input {index = 0} : f32[B, O] carry "h"      # %0: initial value
 *       %1 = input {index = 1} : f32[B, O] slice "u"      # %1: f32[T, B, O]
 *       %2 = input {index = 2} : f32[P, O] arg "w"        # %2 as it is
 *       ...
 *       output carry "h" %7                               # %3: last value
 *       output result "y" %7                              # %4: all, stacked
 *     }
 *
 * The role of a body's input says what it is given.  Carries come first, among
 * the inputs and among the results, in one order.  A slice and a stacked result
 * have the scanned dim in front of the body's dims, in the body's order, so
 * that an iteration reads and writes a run of bytes and neither is ever moved.
 * `reverse = 1` runs from the last index to the first, `unroll = 4` puts four
 * iterations into one round of the emitted loop.  A body may hold scans.
 *
 * The index itself is no input: values that depend on it (random numbers, iota)
 * are computed outside, for all iterations, and sliced.
 */
#include "ir/ir.h"

int scan_carries(const Node *node) {
  int n = 0;
  while (n < node->body->inputs.n &&
         node->body->inputs.data[n].role == ROLE_carry)
    n++;
  return n;
}

int64_t scan_steps(const Node *node) {
  int n;
  return node_ints(node, ATTR_sizes, &n)[0];
}

bool scan_is_reversed(const Node *node) {
  return node_int(node, ATTR_reverse, 0) != 0;
}

Role scan_input_role(const Node *node, int index) {
  return node->body->inputs.data[index].role;
}

const Type *scan_stacked_type(Arena *arena, const Type *position, Name dim,
                              int64_t steps) {
  Type *type = type_create(arena, position->dtype, position->rank + 1);
  type->partial = position->partial;
  type->partial_kind = position->partial_kind;
  type->dims[0] = (Dim){.name = dim, .size = steps};
  for (int d = 0; d < position->rank; d++)
    type->dims[d + 1] = position->dims[d];
  return type;
}

ScanForm scan_form(const Node *node) {
  return (ScanForm){.dim = node_name(node, ATTR_dim),
                    .steps = scan_steps(node),
                    .is_reversed = scan_is_reversed(node),
                    .unroll = node_int(node, ATTR_unroll, 1)};
}

Value scan_append(Graph *graph, ScanForm form, const Value *inputs,
                  Graph *body) {
  Arena *arena = graph->module->arena;
  int n = body->outputs.n;
  const Type **types = ARENA_ARRAY(arena, const Type *, n);
  for (int i = 0; i < n; i++) {
    const GraphOutput *output = &body->outputs.data[i];
    types[i] = graph_type(body, output->value);
    if (output->role != ROLE_carry)
      types[i] = scan_stacked_type(arena, types[i], form.dim, form.steps);
  }
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, form.dim);
  attrs_ints(&attrs, ATTR_sizes, &form.steps, 1);
  if (form.is_reversed) attrs_int(&attrs, ATTR_reverse, 1);
  if (form.unroll > 1) attrs_int(&attrs, ATTR_unroll, form.unroll);
  return graph_append_typed(graph, OP_scan, inputs, body->inputs.n, &attrs,
                            types, n, body);
}
