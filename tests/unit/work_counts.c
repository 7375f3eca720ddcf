// links: count ir
/*
 * work_counts.c -- compares the work of every operator (ir/work.h) with what
 * the interpreter executes.
 *
 * tests/count counts operations and elements; rules.def there says where the
 * two differ on purpose.  Each case of cases.def and each pointwise row is
 * counted whole, and in shards of every dim and of every two dims of its
 * operands: over 2, 3 and 6 ranks, so that most shards are uneven.
 */
#include "tests/count/figures.h"
#include "tests/ops/cases.h"

TestSuite(work_counts, .fini = modules_destroy, .timeout = 300);

static const char *const numbers[] = {"f32", "bf16"};

static const OpCase cases[] = {
#define CASE(op, attrs, ...) {op, attrs, {__VA_ARGS__}},
#include "tests/count/cases.def"
};

typedef struct GraphCase {
  Op op;
  const char *text;
} GraphCase;

static const GraphCase graph_cases[] = {
#define GRAPH_CASE(op, text) {OP_##op, text},
#include "tests/count/cases.def"
};

/* Called for each node that is counted. */
typedef void Visit(void *user, const CountedNode *counted);

typedef struct Visitor {
  Visit *visit;
  void *user;
} Visitor;

static void visit_node(const Visitor *visitor, const Graph *graph) {
  Arena *arena = arena_beside(graph->module->arena);
  CountedNode counted = count_placed_node(graph, graph->nodes.n - 1, arena);
  visitor->visit(visitor->user, &counted);
  arena_destroy(arena);
}

/* ---- shards ---- */

static void set_mesh(Graph *graph) {
  static const MeshAxis axes[] = {
      {"d", 2, false}, {"t", 3, false}, {"time", 2, true}};
  graph->mesh.n_axes = ARRAY_LENGTH(axes);
  for (int a = 0; a < graph->mesh.n_axes; a++) {
    graph->mesh.axes[a] = axes[a];
    graph->mesh.axes[a].name = name_intern(graph->module->names, axes[a].name);
  }
}

static const Type *with_split(Arena *arena, const Type *type, Name dim,
                              AxisList axes) {
  int at = dim ? type_find(type, dim) : -1;
  if (at < 0) return type;
  Type *split =
      arena_copy(arena, type, sizeof *type + sizeof(Dim) * type->rank);
  split->dims[at].split = axes;
  return split;
}

/* The last node of `whole`, with dims of its operands sharded; the rule of the
 * operator says which placements follow. */
static Graph *placed_graph(const Graph *whole, const Name dims[2],
                           const AxisList axes[2]) {
  const Node *node = whole->nodes.data[whole->nodes.n - 1];
  Arena *arena = whole->module->arena;
  const Type *types[8], *wanted[8], *placed[8];
  Graph *graph = graph_create(whole->module, whole->name);
  set_mesh(graph);
  for (int i = 0; i < node->n_inputs; i++) {
    types[i] = graph_type(whole, node->inputs[i]);
    for (int k = 0; k < 2; k++)
      types[i] = with_split(arena, types[i], dims[k], axes[k]);
  }
  shard_infer(graph, node->op, node->attrs, node->n_attrs, types,
              node->n_inputs, node->types, node->n_results, arena, wanted,
              placed);
  Value inputs[8];
  for (int i = 0; i < node->n_inputs; i++)
    inputs[i] = graph_input(graph, ROLE_data, whole->name, wanted[i]);
  Attrs attrs = {.n = node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = node->attrs[i];
  graph_append_typed(graph, node->op, inputs, node->n_inputs, &attrs, placed,
                     node->n_results, NULL);
  return graph;
}

/* The names of all dims of the operands. */
static int operand_dims(const Graph *whole, Name *out) {
  const Node *node = whole->nodes.data[whole->nodes.n - 1];
  int n = 0;
  for (int i = 0; i < node->n_inputs; i++) {
    const Type *type = graph_type(whole, node->inputs[i]);
    for (int d = 0; d < type->rank; d++) {
      bool is_new = true;
      for (int k = 0; k < n; k++) is_new &= out[k] != type->dims[d].name;
      if (is_new) out[n++] = type->dims[d].name;
    }
  }
  return n;
}

static void visit_shards(const Visitor *visitor, const Graph *whole) {
  Name dims[8 * MAX_RANK];
  int n = operand_dims(whole, dims);
  AxisList d = axis_list_append(0, 0), t = axis_list_append(0, 1),
           both = axis_list_append(d, 1);
  const AxisList ways[] = {d, t, both};
  visit_node(visitor, placed_graph(whole, (Name[]){NULL, NULL}, ways));
  for (int i = 0; i < n; i++) {
    for (int way = 0; way < ARRAY_LENGTH(ways); way++)
      visit_node(visitor, placed_graph(whole, (Name[]){dims[i], NULL},
                                       (AxisList[]){ways[way], 0}));
    for (int k = 0; k < n; k++)
      if (k != i)
        visit_node(visitor, placed_graph(whole, (Name[]){dims[i], dims[k]},
                                         (AxisList[]){d, t}));
  }
}

/* ---- graphs ---- */

static void visit_structured(const Visitor *visitor, const OpCase *item) {
  for (int i = 0; i < ARRAY_LENGTH(numbers); i++) {
    if (!op_case_takes(item, numbers[i])) continue;
    visit_shards(visitor, op_case_graph(module_create(), item, numbers[i]));
    modules_destroy();
  }
}

/* Operands of three shapes, of a dtype that the row takes. */
static void visit_pointwise(const Visitor *visitor, Op op) {
  static const char *const shapes[] = {"A:3 B:5 C:7", "C:7", "C:7 A:3"};
  static const char *const dtypes[] = {"f32", "bf16", "i32", "bool"};
  const OpInfo *info = op_info(op);
  for (int i = 0; i < ARRAY_LENGTH(dtypes); i++) {
    bool is_logic = info->pw_class == PW_LOGIC;
    if ((i == 3) != is_logic || (info->pw_class == PW_FLOAT && i == 2) ||
        (info->pw_class == PW_INTEGER && i != 2))
      continue;
    Graph *graph = make_graph(module_create());
    Value inputs[3];
    for (int k = 0; k < info->max_inputs; k++) {
      bool is_condition = info->pw_class == PW_SELECT && k == 0;
      char text[60];
      snprintf(text, sizeof text, "%s %s", is_condition ? "bool" : dtypes[i],
               shapes[k]);
      inputs[k] = make_input(graph, ROLE_data, "x", text);
    }
    make(graph, info->name, "", inputs, info->max_inputs);
    visit_shards(visitor, graph);
    modules_destroy();
  }
}

static void visit_graph(const Visitor *visitor, const GraphCase *c) {
  Module *module = module_create();
  const char *text = arena_printf(
      module->arena, "graph g mesh(d = 2, t = 3, time = 2~) {\n%s\n}", c->text);
  Source *source = ARENA_NEW(module->arena, Source);
  *source = (Source){"case", text, strlen(text)};
  Graph *graph = graph_parse(module, source);
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph, "%s", text_string(&errors));
  cr_assert_eq(graph->nodes.data[graph->nodes.n - 1]->op, c->op);
  visit_node(visitor, graph);
  modules_destroy();
}

static void visit_all(const Visitor *visitor) {
  for (int op = 0; op < N_OPS; op++)
    if (op_info((Op)op)->is_pointwise) visit_pointwise(visitor, (Op)op);
  for (int i = 0; i < ARRAY_LENGTH(cases); i++)
    visit_structured(visitor, &cases[i]);
  for (int i = 0; i < ARRAY_LENGTH(graph_cases); i++)
    visit_graph(visitor, &graph_cases[i]);
}

/* ---- the figures are those that are counted ---- */

static const char *printed(const CountedNode *counted) {
  Text text = text_create(counted->arena);
  const Graph *graph = counted->graph;
  const Node *node = graph->nodes.data[counted->id];
  text_printf(&text, "%s", op_info(node->op)->name);
  for (int i = 0; i < node->n_inputs; i++) {
    text_add(&text, i ? ", " : " ");
    type_print(&text, graph_type(graph, node->inputs[i]), &graph->mesh);
  }
  return text_string(&text);
}

typedef struct Visited {
  int n[N_OPS], n_uneven;
} Visited;

static void compare(void *user, const CountedNode *counted) {
  Visited *visited = user;
  const Node *node = counted->graph->nodes.data[counted->id];
  Work work = node_work(counted->graph, counted->id);
  const char *difference = count_difference(counted, &work);
  cr_expect(!difference, "%s: %s", printed(counted), difference);
  visited->n[node->op]++;
  for (int i = 0; i < node->n_inputs; i++)
    visited->n_uneven += type_is_uneven(
        graph_type(counted->graph, node->inputs[i]), &counted->graph->mesh);
}

Test(work_counts, work_is_what_the_interpreter_executes) {
  Visited visited = {0};
  visit_all(&(Visitor){compare, &visited});
  for (int op = 0; op < N_OPS; op++)
    /* Swaps are made behind the launches, and compute nothing. */
    cr_expect(visited.n[op] > 0 || op == OP_input ||
                  op_is((Op)op, OPCLASS_swap) || op == OP_swapped,
              "%s has no case", op_info((Op)op)->name);
  cr_expect_gt(visited.n_uneven, 1000);
}

/* ---- wrong rules are found ---- */

/* Each seed puts one mistake that a cost rule may make into right work. */
typedef Work Seed(const Graph *graph, int id);

static const Type *local_operand(const Graph *graph, int id, int i) {
  return type_local(graph->module->arena,
                    graph_type(graph, graph->nodes.data[id]->inputs[i]),
                    &graph->mesh);
}

static int64_t bytes_of(const Type *type) {
  return type_elements(type) * dtype_size_bytes(type->dtype);
}

static const Type *local_result(const Graph *graph, int id, int r) {
  return type_local(graph->module->arena, graph->nodes.data[id]->types[r],
                    &graph->mesh);
}

/* The operations of all ranks. */
static Work logical_sizes(const Graph *graph, int id) {
  Graph whole = *graph;
  Work work = node_work(graph, id);
  for (int a = 0; a < whole.mesh.n_axes; a++) whole.mesh.axes[a].size = 1;
  work.flops = node_work(&whole, id).flops;
  return work;
}

static Work lost_operations(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  if (work.flops > 0)
    work.flops -= (double)type_elements(local_result(graph, id, 0));
  return work;
}

/* Elements of four bytes. */
static Work lost_dtype(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  if (dtype_size_bytes(work.dtype) == 2) work.read *= 2, work.written *= 2;
  return work;
}

static Work lost_operand(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  int n = graph->nodes.data[id]->n_inputs;
  if (work.read > 0) work.read -= bytes_of(local_operand(graph, id, n - 1));
  return work;
}

static Work lost_result(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  int n = graph->nodes.data[id]->n_results;
  if (work.written > 0)
    work.written -= bytes_of(local_result(graph, id, n - 1));
  return work;
}

static Work whole_operands(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  work.read = 0;
  for (int i = 0; i < graph->nodes.data[id]->n_inputs; i++)
    work.read += bytes_of(local_operand(graph, id, i));
  return work;
}

static Work exchanged_sizes(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  int64_t m = work.m;
  work.m = work.k, work.k = m;
  return work;
}

static Work lost_padding(const Graph *graph, int id) {
  Work work = node_work(graph, id);
  work.padding = 0;
  return work;
}

#define COMPUTING                                                              \
  " elementwise indexing scatter reduction contraction window normalisation "  \
  "collective region "
#define MOVING COMPUTING " data_movement routing "

static const struct SeedRow {
  const char *name;
  Seed *seed;
  const char *classes; /* where it must be found */
} seeds[] = {
    {"logical sizes", logical_sizes, COMPUTING},
    {"lost operations", lost_operations, COMPUTING},
    {"lost dtype", lost_dtype, MOVING "source"},
    {"lost operand", lost_operand, MOVING "random"},
    {"lost result", lost_result, MOVING "source random"},
    {"whole operands", whole_operands,
     " view indexing data_movement routing scatter collective region "},
    {"exchanged sizes", exchanged_sizes, " contraction "},
    {"lost padding", lost_padding, " contraction "},
};

typedef struct Found {
  int n[ARRAY_LENGTH(seeds)][N_OPS];
} Found;

static void seed_all(void *user, const CountedNode *counted) {
  Found *found = user;
  const Graph *graph = counted->graph;
  for (int s = 0; s < ARRAY_LENGTH(seeds); s++) {
    Work work = seeds[s].seed(graph, counted->id);
    Op op = graph->nodes.data[counted->id]->op;
    found->n[s][op] += count_difference(counted, &work) != NULL;
  }
}

static bool has_word(const char *list, const char *word) {
  size_t n = strlen(word);
  for (const char *at = list; (at = strstr(at, word)); at += n)
    if ((at == list || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
  return false;
}

static void check_class(const Found *found, int s, OpClass class,
                        const char *name) {
  int n = 0;
  for (int op = 0; op < N_OPS; op++)
    if (op_is((Op)op, class)) n += found->n[s][op];
  cr_expect(n > 0 || !has_word(seeds[s].classes, name),
            "no %s operator shows '%s'", name, seeds[s].name);
}

Test(work_counts, wrong_rules_are_found_in_each_class) {
  static Found found;
  visit_all(&(Visitor){seed_all, &found});
  for (int s = 0; s < ARRAY_LENGTH(seeds); s++) {
#define OPCLASS(name, work, meaning)                                           \
  check_class(&found, s, OPCLASS_##name, #name);
#include "ir/opclass.def"
  }
}
