/*
 * work.c -- computes the operations and bytes of one launch from the sizes that
 * a rank has.
 *
 *     dot x [B:128@d, C:64@t], w [C:64@t, F:32] on mesh(d = 2, t = 4)
 *       contraction, m = 64, n = 32, k = 16, 2 * 64 * 32 * 16 operations
 *
 * The operations come from the cost rules of ops.def, which see local types.
 */
#include "ir/work.h"

#include "ir/place/mesh_place.h"

const char *work_class_name(WorkClass class) {
  static const char *const names[] = {
#define WORKCLASS(name, meaning) #name,
#include "ir/opclass.def"
  };
  ASSERT((unsigned)class < N_WORK_CLASSES);
  return names[class];
}

/* A collective without a group waits for nobody. */
static WorkClass class_of(Op op) {
  static const WorkClass classes[] = {
#define OPCLASS(name, work, meaning) WORK_##work,
#include "ir/opclass.def"
  };
  if (!op_is(op, OPCLASS_collective) || op_has(op, OP_FLAG_group))
    return classes[op_info(op)->class];
  return op_has(op, OP_FLAG_reduces) ? WORK_elementwise : WORK_movement;
}

/* ---- local types ---- */

/* Without a mesh, and of a type that is not sharded, the type itself. */
static const Type *local_type(Arena *arena, const Type *type,
                              const Mesh *mesh) {
  bool is_split = false;
  for (int d = 0; d < type->rank; d++) is_split |= type->dims[d].split != 0;
  if (!mesh || !is_split) return type;
  Type *local = type_create(arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++)
    local->dims[d] =
        (Dim){type->dims[d].name, type_local_size(type, mesh, d), 0};
  return local;
}

static void placed_work(Arena *arena, const Graph *graph, int id,
                        const Mesh *mesh, Work *out) {
  enum { FEW = 16 }; /* most nodes need no arena */
  const Type *few[2][FEW];
  const Node *node = graph->nodes.data[id];
  const Type **inputs = node->n_inputs <= FEW
                            ? few[0]
                            : ARENA_ARRAY(arena, const Type *, node->n_inputs);
  const Type **results =
      node->n_results <= FEW
          ? few[1]
          : ARENA_ARRAY(arena, const Type *, node->n_results);
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = local_type(arena, graph_type(graph, node->inputs[i]), mesh);
  for (int r = 0; r < node->n_results; r++)
    results[r] = local_type(arena, node->types[r], mesh);
  op_work(arena, &(WorkCall){node, inputs, results, mesh}, out);
}

/* ---- contractions ---- */

static int64_t dim_product(const Type *type, const Type *other, bool is_there,
                           const WorkCall *call, AttrKey over) {
  int64_t n = 1;
  int n_over;
  const Name *names = node_names(call->node, over, &n_over);
  for (int d = 0; d < type->rank; d++) {
    bool is_over = false;
    for (int i = 0; i < n_over; i++) is_over |= names[i] == type->dims[d].name;
    bool has = type_find(other, type->dims[d].name) >= 0;
    if (!is_over && has == is_there) n *= type->dims[d].size;
  }
  return n;
}

/* Returns the role of a dim in a product: batch, k, m or n. */
static int dim_role(Name dim, const Type *a, const Type *b, const Name *over,
                    int n_over) {
  enum { IN_A = 1, IN_B = 2, OVER = 4 };
  for (int i = 0; i < n_over; i++)
    if (over[i] == dim) return OVER;
  return (type_find(a, dim) >= 0 ? IN_A : 0) |
         (type_find(b, dim) >= 0 ? IN_B : 0);
}

/* A row is what the innermost dims of one role have. */
static bool has_unaligned_rows(const WorkCall *call, const Type *type) {
  enum { ALIGNED_BYTES = 16 };
  int n, role = -1;
  const Name *over = node_names(call->node, ATTR_over, &n);
  int64_t row = 1;
  for (int d = type->rank - 1; d >= 0; d--) {
    if (type->dims[d].size == 1) continue;
    int of =
        dim_role(type->dims[d].name, call->inputs[0], call->inputs[1], over, n);
    if (role >= 0 && of != role) break;
    role = of;
    row *= type->dims[d].size;
  }
  return row < type_elements(type) &&
         row * dtype_size_bytes(type->dtype) % ALIGNED_BYTES != 0;
}

static void dot_shape(const WorkCall *call, Work *out) {
  const Type *a = call->inputs[0], *b = call->inputs[1];
  int n;
  const Name *over = node_names(call->node, ATTR_over, &n);
  out->batch = dim_product(a, b, true, call, ATTR_over);
  out->m = dim_product(a, b, false, call, ATTR_over);
  out->n = dim_product(b, a, false, call, ATTR_over);
  out->k = 1;
  for (int i = 0; i < n; i++) out->k *= type_size(a, over[i]);
  out->has_unaligned_rows = has_unaligned_rows(call, a) ||
                            has_unaligned_rows(call, b) ||
                            has_unaligned_rows(call, call->results[0]);
}

static int64_t quotient(double flops, double of) {
  return of > 0 ? (int64_t)(flops / of + 0.5) : 0;
}

/* How many of `positions` have an index within [0, size), where the index of
 * the first is `first` and that of each next one higher by `stride`. */
static int64_t positions_within(int64_t positions, int64_t first,
                                int64_t stride, int64_t size) {
  int64_t begin = first < 0 ? (-first + stride - 1) / stride : 0;
  int64_t end = first < size ? (size - first + stride - 1) / stride : 0;
  if (end > positions) end = positions;
  return end > begin ? end - begin : 0;
}

/* The operations of a convolution at places of its windows outside of x. */
static double padded_flops(const Node *node, const Type *x, const Type *w,
                           const Type *dy, double flops) {
  double all = 1, within = 1;
  int n;
  const Name *space = node_names(node, ATTR_space, &n);
  for (int i = 0; i < n; i++) {
    int64_t positions = type_size(dy, space[i]);
    int64_t places = type_size(w, space[i]);
    int64_t stride = node_int_at(node, ATTR_stride, i, 1);
    int64_t first = -node_int_at(node, ATTR_pad, i, 0), n_within = 0;
    for (int64_t place = 0; place < places; place++) {
      n_within +=
          positions_within(positions, first, stride, type_size(x, space[i]));
      first += node_int_at(node, ATTR_dilate, i, 1);
    }
    all *= (double)(positions * places);
    within *= (double)n_within;
  }
  return all > 0 ? flops / all * (all - within) : 0;
}

/* A convolution as the matmul that it is over unfolded windows: [positions,
 * channels x window] times [channels x window, output channels], and the same
 * three numbers in other roles in its gradients. */
static void conv_shape(const WorkCall *call, Work *out) {
  Op op = call->node->op;
  const Type *dy = call->results[0], *w = call->inputs[1];
  if (op == OP_conv_input_grad) dy = call->inputs[0];
  if (op == OP_conv_weight_grad) dy = call->inputs[1], w = call->results[0];
  const Type *x = op == OP_conv_input_grad ? call->results[0] : call->inputs[0];
  int n_space;
  const Name *space = node_names(call->node, ATTR_space, &n_space);
  int64_t window = type_size(w, node_name(call->node, ATTR_dim)), outputs = 1;
  for (int i = 0; i < n_space; i++) window *= type_size(w, space[i]);
  out->batch = 1;
  for (int d = 0; d < w->rank; d++) {
    Name name = w->dims[d].name;
    bool is_space = false;
    for (int i = 0; i < n_space; i++) is_space |= space[i] == name;
    if (is_space || type_find(dy, name) < 0) continue;
    *(type_find(x, name) >= 0 ? &out->batch : &outputs) *= w->dims[d].size;
  }
  int64_t each = out->batch * outputs;
  int64_t positions = each ? type_elements(dy) / each : 0;
  out->m = positions, out->n = outputs, out->k = window;
  if (op == OP_conv_input_grad) out->n = window, out->k = outputs;
  if (op == OP_conv_weight_grad)
    out->m = outputs, out->n = window, out->k = positions;
  out->padding = padded_flops(call->node, x, w, dy, out->flops);
}

static void attention_shape(const WorkCall *call, Work *out) {
  const Type *q = call->inputs[0], *k = call->inputs[1];
  out->m = type_size(q, node_name(call->node, ATTR_query));
  out->n = type_size(k, node_name(call->node, ATTR_key));
  int n;
  const Name *over = node_names(call->node, ATTR_over, &n);
  int64_t head = 1;
  for (int i = 0; i < n; i++) head *= type_size(q, over[i]);
  int64_t one = out->m * head;
  out->batch = one ? type_elements(q) / one : 0;
  out->k = quotient(out->flops,
                    2.0 * (double)out->batch * (double)out->m * (double)out->n);
}

static void contraction_shape(const WorkCall *call, Work *out) {
  if (call->node->op == OP_dot) {
    dot_shape(call, out);
  } else if (op_has(call->node->op, OP_FLAG_attends)) {
    attention_shape(call, out);
  } else {
    conv_shape(call, out);
  }
}

/* ---- bytes ---- */

static int64_t type_bytes(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

/* The rows that a look-up reads of its table, no more than it has. */
static int64_t rows_bytes(const Type *table, const Type *result) {
  int64_t rows = type_elements(result), most = type_elements(table);
  return (rows < most ? rows : most) * dtype_size_bytes(table->dtype);
}

/* Dispatch and combine need one of their two indices; the other is for their
 * gradients. */
static bool is_unread(Op op, int operand) {
  return (op == OP_dispatch && operand == 1) ||
         (op == OP_combine && operand == 2);
}

/* The bytes that a region reads of its operand: all of it, unless every reader
 * looks rows up. */
static int64_t argument_bytes(const WorkCall *call, int argument,
                              Arena *arena) {
  const Graph *body = call->node->body;
  Value value = body->inputs.data[argument].value;
  int64_t rows = 0, all = type_bytes(call->inputs[argument]);
  for (int id = 0; id < body->nodes.n; id++) {
    const Node *node = body->nodes.data[id];
    for (int i = 0; i < node->n_inputs; i++) {
      if (!value_equal(node->inputs[i], value) || is_unread(node->op, i))
        continue;
      if (i > 0 || !op_has(node->op, OP_FLAG_lookup)) return all;
      rows += rows_bytes(call->inputs[argument],
                         local_type(arena, node->types[0], call->mesh));
    }
  }
  return rows < all ? rows : all;
}

/* A value that is two operands is read once. */
static int64_t operand_bytes(Arena *arena, const WorkCall *call, int operand) {
  const Node *node = call->node;
  for (int i = 0; i < operand; i++)
    if (value_equal(node->inputs[i], node->inputs[operand])) return 0;
  if (is_unread(node->op, operand)) return 0;
  if (node->op == OP_fused) return argument_bytes(call, operand, arena);
  if (operand == 0 && op_has(node->op, OP_FLAG_lookup))
    return rows_bytes(call->inputs[0], call->results[0]);
  return type_bytes(op_has(node->op, OP_FLAG_takes_part)
                        ? call->results[0]
                        : call->inputs[operand]);
}

/* A micro-batch writes its part of what is collected, and reads what it adds
 * to. */
static void count_bytes(Arena *arena, const WorkCall *call, Work *out) {
  const Node *node = call->node;
  if (op_is(node->op, OPCLASS_view) || node->op == OP_input) return;
  if (node->op == OP_update_slice) {
    out->read = type_bytes(call->inputs[1]) + type_bytes(call->inputs[2]);
    out->written = type_bytes(call->inputs[1]);
    return;
  }
  bool is_collected = op_has(node->op, OP_FLAG_joins_microbatches) &&
                      !op_has(node->op, OP_FLAG_reduces);
  for (int i = 0; i < node->n_inputs; i++)
    out->read += operand_bytes(arena, call, i);
  for (int r = 0; r < node->n_results; r++)
    out->written +=
        type_bytes(is_collected ? call->inputs[r] : call->results[r]);
  if (node_joins_microbatches(node) && !is_collected) out->read += out->written;
}

/* ---- work ---- */

/* A region's operations; its class is the last of the table that it has. */
static void add_body(Arena *arena, const WorkCall *call, Work *out) {
  const Graph *body = call->node->body;
  double flops = 0;
  for (int id = 0; body && id < body->nodes.n; id++) {
    Work inner;
    placed_work(arena, body, id, call->mesh, &inner);
    flops += inner.flops;
    if (inner.class > out->class) out->class = inner.class;
  }
  bool is_scan = call->node->op == OP_scan;
  out->flops = flops * (is_scan ? (double)scan_steps(call->node) : 1);
}

void op_work(Arena *scratch, const WorkCall *local, Work *out) {
  Node node = *local->node;
  node.types = local->results;
  *out = (Work){.class = class_of(node.op)};
  if (local->node->n_results > 0) out->dtype = local->results[0]->dtype;
  if (local->node->n_inputs > 0) out->dtype = local->inputs[0]->dtype;
  if (op_is(node.op, OPCLASS_contraction))
    out->dtype = dtype_promote(out->dtype, local->inputs[1]->dtype);
  CostRule *cost = op_info(node.op)->cost;
  if (cost) out->flops = cost(&node, local->inputs);
  if (op_is(node.op, OPCLASS_region)) add_body(scratch, local, out);
  if (out->class == WORK_contraction && !node.body)
    contraction_shape(local, out);
  count_bytes(scratch, local, out);
}

static Work work_under(const Graph *graph, int id, const Mesh *mesh) {
  Work work;
  Arena *scratch = arena_beside(graph->module->arena);
  placed_work(scratch, graph, id, mesh, &work);
  arena_destroy(scratch);
  return work;
}

Work node_work(const Graph *graph, int id) {
  return work_under(graph, id, &graph->mesh);
}

double node_flops(const Graph *graph, int id) {
  return work_under(graph, id, NULL).flops;
}

double node_contraction_flops(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  if (op_is(node->op, OPCLASS_contraction)) return node_flops(graph, id);
  double flops = 0;
  for (int i = 0; node->body && i < node->body->nodes.n; i++)
    flops += node_contraction_flops(node->body, i);
  return node->op == OP_scan ? flops * (double)scan_steps(node) : flops;
}

/* ---- messages ---- */

int64_t collective_sent_elements(Op op, int64_t n, int64_t from, int64_t to) {
#define MESSAGE(name, kind, elements)                                          \
  if (op == OP_##name) return elements;
#include "ir/ops.def"
  UNREACHABLE();
}

int64_t node_sent_bytes(const Graph *graph, int id) {
  const Node *node = graph->nodes.data[id];
  const Mesh *mesh = &graph->mesh;
  if (!op_has(node->op, OP_FLAG_group)) return 0;
  int n_axes = 0;
  const Name *axes = node_names(node, ATTR_axes, &n_axes);
  int64_t n = 1, bytes = 0;
  for (int i = 0; i < n_axes; i++)
    n *= mesh->axes[mesh_find(mesh, axes[i])].size;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *from = graph_type(graph, node->inputs[i]);
    bytes +=
        dtype_size_bytes(from->dtype) *
        collective_sent_elements(node->op, n, type_local_elements(from, mesh),
                                 type_local_elements(node->types[i], mesh));
  }
  return bytes;
}
