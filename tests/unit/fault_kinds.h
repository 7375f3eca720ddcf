/*
 * fault_kinds.h -- the faults that partition could have: each kind finds its
 * sites in a partitioned graph and changes one of them, with all types as they
 * were.
 */
#ifndef TESTS_UNIT_FAULT_KINDS_H
#define TESTS_UNIT_FAULT_KINDS_H

#include "ir/place/mesh_place.h"
#include "tests/unit/values.h"

/* ---- editing a graph in its place ---- */

typedef struct Site {
  int node, input; /* or the numbers of outputs */
  Value value;     /* to be read instead, or of an output */
  bool is_output;
} Site;

typedef struct Sites {
  Arena *arena;
  VEC(Site) list;
} Sites;

static void add_site(Sites *sites, Site site) {
  vec_push(sites->arena, &sites->list, site);
}

/* Appends to the copied graph what stands for a value from there on. */
typedef Value Replacement(Graph *graph, Value value);

/* Every reader of result 0 of a node reads the replacement. */
static void replace_value(Graph *graph, int at, Replacement *replacement) {
  Graph *copy = graph_like(graph);
  Arena *arena = graph->module->arena;
  Value **map = ARENA_ARRAY(arena, Value *, graph->nodes.n);
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    Value *inputs = ARENA_ARRAY(arena, Value, node->n_inputs + 1);
    for (int i = 0; i < node->n_inputs; i++)
      inputs[i] = map[node->inputs[i].node][node->inputs[i].result];
    Value first = graph_copy_node(copy, graph, id, inputs, false);
    map[id] = ARENA_ARRAY(arena, Value, node->n_results);
    for (int r = 0; r < node->n_results; r++)
      map[id][r] = (Value){first.node, r};
    copy->path = node->path;
    copy->phase = node->phase;
    if (id == at) map[id][0] = replacement(copy, first);
  }
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    graph_output(copy, output->role, output->path,
                 map[output->value.node][output->value.result]);
  }
  *graph = *copy;
}

static Value append_like(Graph *graph, Op op, const Value *inputs, int n,
                         const Attrs *attrs, const Type *type) {
  return graph_append_typed(graph, op, inputs, n, attrs, &type, 1, NULL);
}

/* ---- reductions ---- */

static bool is_reduction(const Node *node) {
  return node->op == OP_all_reduce || node->op == OP_accumulate;
}

static void find_reductions(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++)
    if (is_reduction(graph->nodes.data[id]))
      add_site(sites, (Site){.node = id});
}

static void drop_reduction(Graph *graph, Site site) {
  Node *node = graph->nodes.data[site.node];
  node->op = OP_copy;
  node->n_attrs = 0;
}

static void find_all_reduces(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->op == OP_all_reduce)
      add_site(sites, (Site){.node = id});
}

static Value reduce_again(Graph *graph, Value value) {
  const Node *node = graph_node(graph, value);
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < node->n_attrs; i++) attrs.items[i] = node->attrs[i];
  return append_like(graph, OP_all_reduce, &value, 1, &attrs, node->types[0]);
}

static void double_reduction(Graph *graph, Site site) {
  replace_value(graph, site.node, reduce_again);
}

static Attr *find_attr_of(Node *node, AttrKey key) {
  for (int i = 0; i < node->n_attrs; i++)
    if (node->attrs[i].key == key) return (Attr *)&node->attrs[i];
  return NULL;
}

/* Over the first axis of ranks that the reduction is not over; where it is over
 * all, over the last of them alone. */
static void turn_axes(Graph *graph, Site site) {
  Node *node = graph->nodes.data[site.node];
  Attr *axes = find_attr_of(node, ATTR_axes);
  Name *names = ARENA_ARRAY(graph->module->arena, Name, 1);
  for (int a = 0; a < graph->mesh.n_axes; a++) {
    const MeshAxis *axis = &graph->mesh.axes[a];
    bool is_in = false;
    for (int i = 0; i < axes->n; i++) is_in |= axes->names[i] == axis->name;
    if (axis->is_sequential) continue;
    if (!is_in || !names[0]) names[0] = axis->name;
    if (!is_in) break;
  }
  axes->names = names;
  axes->n = 1;
}

static void find_axes(const Graph *graph, Sites *sites) {
  int n_axes = 0;
  for (int a = 0; a < graph->mesh.n_axes; a++)
    n_axes += !graph->mesh.axes[a].is_sequential;
  if (n_axes > 1) find_all_reduces(graph, sites);
}

static void find_sums(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    bool is_sum = is_reduction(node) || node->op == OP_reduce_scatter;
    if (is_sum && !strcmp(node_name(node, ATTR_reduce), "sum"))
      add_site(sites, (Site){.node = id});
  }
}

static void take_maximum(Graph *graph, Site site) {
  find_attr_of(graph->nodes.data[site.node], ATTR_reduce)->name =
      name_intern(graph->module->names, "max");
}

/* ---- factors ---- */

/* Exact mode takes a guard for its first operand; f64 sees its constant. */
static bool is_bound_of_guards(const Graph *graph, int id) {
  bool is_guard = false;
  for (int user = id + 1; user < graph->nodes.n; user++) {
    const Node *node = graph->nodes.data[user];
    for (int i = 0; i < node->n_inputs; i++) {
      if (node->inputs[i].node != id) continue;
      if (!node_int(node, ATTR_guard, 0)) return false;
      is_guard = true;
    }
  }
  return is_guard;
}

static void find_constants(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    double value = node_float(node, ATTR_value, 0);
    if (node->op == OP_const && isfinite(value) && value != 0 &&
        dtype_class(node->types[0]->dtype) == CLASS_FLOAT &&
        !is_bound_of_guards(graph, id))
      add_site(sites, (Site){.node = id});
  }
}

static void lose_factor(Graph *graph, Site site) {
  double *value = &find_attr_of(graph->nodes.data[site.node], ATTR_value)->real;
  *value = *value == 1 ? 2 : 1;
}

/* ---- operands ---- */

static void find_swaps(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op != OP_sub && node->op != OP_div) continue;
    if (!value_equal(node->inputs[0], node->inputs[1]))
      add_site(sites, (Site){.node = id});
  }
}

static void swap_operands(Graph *graph, Site site) {
  Node *node = graph->nodes.data[site.node];
  Value *inputs = ARENA_ARRAY(graph->module->arena, Value, 2);
  inputs[0] = node->inputs[1];
  inputs[1] = node->inputs[0];
  node->inputs = inputs;
}

/* Where a mask keeps what it should drop, and drops what it should keep. */
static void find_choices(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_select && !value_equal(node->inputs[1], node->inputs[2]))
      add_site(sites, (Site){.node = id});
  }
}

static void swap_choices(Graph *graph, Site site) {
  Node *node = graph->nodes.data[site.node];
  Value *inputs = ARENA_ARRAY(graph->module->arena, Value, 3);
  inputs[0] = node->inputs[0];
  inputs[1] = node->inputs[2];
  inputs[2] = node->inputs[1];
  node->inputs = inputs;
}

static bool is_alike(const Graph *graph, Value a, Value b) {
  return !value_equal(a, b) &&
         type_equal(graph_type(graph, a), graph_type(graph, b));
}

/* A value of the same type that is there before. */
static void find_operands(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (!op_info(node->op)->is_pointwise && node->op != OP_dot) continue;
    for (int i = 0; i < node->n_inputs; i++)
      for (int other = id - 1; other >= 0; other--) {
        Value value = {other, 0};
        if (!is_alike(graph, value, node->inputs[i])) continue;
        add_site(sites, (Site){.node = id, .input = i, .value = value});
        break;
      }
  }
}

static void change_operand(Graph *graph, Site site) {
  Node *node = graph->nodes.data[site.node];
  Value *inputs = arena_copy(graph->module->arena, node->inputs,
                             (size_t)node->n_inputs * sizeof(Value));
  inputs[site.input] = site.value;
  node->inputs = inputs;
}

/* ---- buffers ---- */

static void find_kept(const Graph *graph, Sites *sites) {
  for (int i = 0; i < graph->outputs.n; i++) {
    const GraphOutput *output = &graph->outputs.data[i];
    const GraphInput *input =
        graph_find_input(graph, output->role, output->path);
    if (input)
      add_site(sites,
               (Site){.node = i, .value = input->value, .is_output = true});
  }
}

static void keep_old(Graph *graph, Site site) {
  graph->outputs.data[site.node].value = site.value;
}

/* Two results of one type, each in the buffer of the other. */
static void find_exchanged(const Graph *graph, Sites *sites) {
  for (int i = 0; i < graph->outputs.n; i++)
    for (int k = i + 1; k < graph->outputs.n; k++) {
      if (!is_alike(graph, graph->outputs.data[i].value,
                    graph->outputs.data[k].value))
        continue;
      add_site(sites, (Site){.node = i, .input = k, .is_output = true});
      break;
    }
}

static void exchange_outputs(Graph *graph, Site site) {
  Value *a = &graph->outputs.data[site.node].value;
  Value *b = &graph->outputs.data[site.input].value, value = *a;
  *a = *b;
  *b = value;
}

/* ---- groups ---- */

/* Another axis of ranks with as many members; NULL: the mesh has none. */
static Name axis_of_equal_size(const Mesh *mesh, Name name) {
  int at = mesh_find(mesh, name);
  for (int a = 0; a < mesh->n_axes; a++)
    if (a != at && !mesh->axes[a].is_sequential &&
        mesh->axes[a].size == mesh->axes[at].size)
      return mesh->axes[a].name;
  return NULL;
}

/* Collectives over one axis, of which another has as many members. */
static void find_groups(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int n = 0;
    if (!op_has(node->op, OP_FLAG_group)) continue;
    const Name *axes = node_names(node, ATTR_axes, &n);
    Name other = n == 1 ? axis_of_equal_size(&graph->mesh, axes[0]) : NULL;
    const Type *from = graph_type(graph, node->inputs[0]);
    if (!other) continue;
    AxisSet swapped = (AxisSet)(1 << mesh_find(&graph->mesh, other));
    if (!type_uses_axes(from, swapped)) add_site(sites, (Site){.node = id});
  }
}

static void swap_group(Graph *graph, Site site) {
  Attr *axes = find_attr_of(graph->nodes.data[site.node], ATTR_axes);
  Name *names = ARENA_ARRAY(graph->module->arena, Name, 1);
  names[0] = axis_of_equal_size(&graph->mesh, axes->names[0]);
  axes->names = names;
}

static void find_permutes(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++)
    if (graph->nodes.data[id]->op == OP_permute)
      add_site(sites, (Site){.node = id});
}

static void turn_further(Graph *graph, Site site) {
  find_attr_of(graph->nodes.data[site.node], ATTR_shift)->integer++;
}

/* ---- indices ---- */

/* Slices that may begin one element earlier or later. */
static bool slice_has_room(const Graph *graph, const Node *node) {
  const Type *from = graph_type(graph, node->inputs[0]);
  int d = type_find(from, node_name(node, ATTR_dim));
  int k = type_find(node->types[0], node_name(node, ATTR_dim));
  return d >= 0 && k >= 0 && !from->dims[d].split &&
         from->dims[d].size > node->types[0]->dims[k].size;
}

static void find_slices(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_slice && slice_has_room(graph, node))
      add_site(sites, (Site){.node = id});
  }
}

static void shift_slice(Graph *graph, Site site) {
  Attr *start = find_attr_of(graph->nodes.data[site.node], ATTR_start);
  start->integer += start->integer > 0 ? -1 : 1;
}

/* Integers of the program, such as which half of a shard is gathered. */
static void find_integers(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (node->op == OP_const && dtype_class(node->types[0]->dtype) == CLASS_INT)
      add_site(sites, (Site){.node = id});
  }
}

static void move_integer(Graph *graph, Site site) {
  double *value = &find_attr_of(graph->nodes.data[site.node], ATTR_value)->real;
  *value += *value > 0 ? -1 : 1;
}

static void find_bounds(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    if (op_info(node->op)->pw_class == PW_COMPARE && node->n_inputs == 2 &&
        dtype_class(graph_type(graph, node->inputs[0])->dtype) == CLASS_INT)
      add_site(sites, (Site){.node = id});
  }
}

/* An element more or less lies inside. */
static void move_bound(Graph *graph, Site site) {
  Node *node = graph->nodes.data[site.node];
  node->op = node->op == OP_lt   ? OP_le
             : node->op == OP_le ? OP_lt
             : node->op == OP_ge ? OP_gt
             : node->op == OP_gt ? OP_ge
             : node->op == OP_eq ? OP_ge
                                 : OP_eq;
}

/* ---- shards ---- */

/* The first dim of a shard that has several elements; -1: none. */
static int sharded_dim(const Type *type, const Mesh *mesh) {
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].split && type_local_size(type, mesh, d) > 1) return d;
  return -1;
}

/* Shards of data, of ranks and of micro-batches. */
static void find_shards(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    int index = (int)node_int(node, ATTR_index, 0);
    bool is_data =
        node->op == OP_input && graph->inputs.data[index].role == ROLE_data;
    if ((is_data || node->op == OP_shard) &&
        sharded_dim(node->types[0], &graph->mesh) >= 0)
      add_site(sites, (Site){.node = id});
  }
}

/* Elements [from, from + n) of the shard; the type has as many on each. */
static Value take_part(Graph *graph, Value value, int d, int64_t from,
                       int64_t n) {
  const Type *type = graph_type(graph, value);
  Type *part = arena_copy(graph->module->arena, type,
                          sizeof *type + type->rank * sizeof(Dim));
  part->dims[d].size = n * axis_list_shards(type->dims[d].split, &graph->mesh);
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, type->dims[d].name);
  attrs_int(&attrs, ATTR_start, from);
  attrs_ints(&attrs, ATTR_sizes, &part->dims[d].size, 1);
  return append_like(graph, OP_slice, &value, 1, &attrs, part);
}

/* The rows of each shard begin one later; the first row comes last. */
static Value roll_shard(Graph *graph, Value value) {
  const Type *type = graph_type(graph, value);
  int d = sharded_dim(type, &graph->mesh);
  int64_t n = type_local_size(type, &graph->mesh, d);
  Value parts[2] = {take_part(graph, value, d, 1, n - 1),
                    take_part(graph, value, d, 0, 1)};
  Attrs attrs = {0};
  attrs_name(&attrs, ATTR_dim, type->dims[d].name);
  return append_like(graph, OP_concat, parts, 2, &attrs, type);
}

static void shift_shard(Graph *graph, Site site) {
  replace_value(graph, site.node, roll_shard);
}

/* ---- masks ---- */

static void find_masks(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++)
    if (op_is(graph->nodes.data[id]->op, OPCLASS_random))
      add_site(sites, (Site){.node = id});
}

static void change_mask(Graph *graph, Site site) {
  find_attr_of(graph->nodes.data[site.node], ATTR_stream)->name =
      name_intern(graph->module->names, "another");
}

/* ---- ranks ---- */

/* The first axis of ranks that hold equal parts of this type; -1: none. */
static int replicas_of(const Graph *graph, const Type *type) {
  for (int a = 0; a < graph->mesh.n_axes; a++)
    if (!graph->mesh.axes[a].is_sequential && graph->mesh.axes[a].size > 1 &&
        !type_uses_axes(type, (AxisSet)(1 << a)))
      return a;
  return -1;
}

static void find_replicated(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    const Type *type = node->n_results == 1 ? node->types[0] : NULL;
    if (type && (op_info(node->op)->is_pointwise || is_reduction(node)) &&
        dtype_class(type->dtype) == CLASS_FLOAT &&
        replicas_of(graph, type) >= 0)
      add_site(sites, (Site){.node = id});
  }
}

/* The position of a rank along an axis, as a value that claims to be the same
 * on all. */
static Value append_position(Graph *graph, int axis) {
  Module *module = graph->module;
  Name dim = name_intern(module->names, "replica");
  Type *of_axis = type_create(module->arena, DT_i32, 1);
  int64_t size = graph->mesh.axes[axis].size;
  of_axis->dims[0] = (Dim){.name = dim, .size = size};
  of_axis->dims[0].split = axis_list_append(0, axis);
  Attrs attrs = {0}, of_gather = {0};
  attrs_name(&attrs, ATTR_dim, dim);
  attrs_ints(&attrs, ATTR_sizes, &of_axis->dims[0].size, 1);
  attrs_name(&of_gather, ATTR_dim, dim);
  Value both[] = {append_like(graph, OP_iota, NULL, 0, &attrs, of_axis),
                  graph_const(graph, DT_i32, 0)};
  return append_like(graph, OP_gather, both, 2, &of_gather,
                     type_create(module->arena, DT_i32, 0));
}

/* Twice as much on the last of the ranks that should hold the same. */
static Value double_on_one(Graph *graph, Value value) {
  const Type *type = graph_type(graph, value);
  Arena *arena = graph->module->arena;
  int axis = replicas_of(graph, type);
  Value position = append_position(graph, axis);
  Value last = graph_const(graph, DT_i32, graph->mesh.axes[axis].size - 1);
  Attrs none = {0};
  Value is_last = append_like(graph, OP_eq, (Value[]){position, last}, 2, &none,
                              type_create(arena, DT_bool, 0));
  Value twice =
      append_like(graph, OP_add, (Value[]){value, value}, 2, &none, type);
  return append_like(graph, OP_select, (Value[]){is_last, twice, value}, 3,
                     &none, type);
}

static void change_one_rank(Graph *graph, Site site) {
  replace_value(graph, site.node, double_on_one);
}

/* ---- kinds ---- */

typedef struct FaultKind {
  const char *name;
  void (*find)(const Graph *graph, Sites *sites);
  void (*make)(Graph *graph, Site site);
} FaultKind;

static const FaultKind kinds[] = {
    {"dropped reduction", find_reductions, drop_reduction},
    {"doubled reduction", find_all_reduces, double_reduction},
    {"reduction over another axis", find_axes, turn_axes},
    {"maximum for sum", find_sums, take_maximum},
    {"lost scale", find_constants, lose_factor},
    {"swapped operands", find_swaps, swap_operands},
    {"another operand", find_operands, change_operand},
    {"stale buffer", find_kept, keep_old},
    {"exchanged buffers", find_exchanged, exchange_outputs},
    {"shard one off", find_shards, shift_shard},
    {"another mask", find_masks, change_mask},
    {"swapped group", find_groups, swap_group},
    {"permute to another rank", find_permutes, turn_further},
    {"slice one off", find_slices, shift_slice},
    {"bound one off", find_bounds, move_bound},
    {"integer one off", find_integers, move_integer},
    {"swapped choices", find_choices, swap_choices},
    {"one rank differs", find_replicated, change_one_rank},
};

#endif
