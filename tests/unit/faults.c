// links: driver codegen frontend passes runtime ir support
/*
 * faults.c -- the player finds faults that partition could have: a reduction
 * that is missing, made twice or over the wrong axis, a shard that begins one
 * element late, a lost factor, a wrong operand, a buffer that keeps its old
 * value.
 *
 * A fault is put into the partitioned graph of a training step, behind the
 * checks of the compiler and with all types as they were; the passes after
 * partition then run on it.  Exact mode must find all that f64 finds; a fault
 * that neither finds on two sets of inputs each is equivalent: the program
 * computes the same function.
 *
 *     DNNC_FAULTS=N: at most N sites of each kind, model and plan (default 1)
 */
#include "tests/unit/play_model.h"

TestSuite(faults, .fini = modules_destroy, .timeout = 600);

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
    if (is_reduction(node) && !strcmp(node_name(node, ATTR_reduce), "sum"))
      add_site(sites, (Site){.node = id});
  }
}

static void take_maximum(Graph *graph, Site site) {
  find_attr_of(graph->nodes.data[site.node], ATTR_reduce)->name =
      name_intern(graph->module->names, "max");
}

/* ---- factors ---- */

static void find_constants(const Graph *graph, Sites *sites) {
  for (int id = 0; id < graph->nodes.n; id++) {
    const Node *node = graph->nodes.data[id];
    double value = node_float(node, ATTR_value, 0);
    if (node->op == OP_const && isfinite(value) && value != 0 &&
        dtype_class(node->types[0]->dtype) == CLASS_FLOAT)
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

/* ---- shards ---- */

/* The dim of a data input that ranks shard; -1: none. */
static int sharded_dim(const Graph *graph, int input) {
  if (graph->inputs.data[input].role != ROLE_data) return -1;
  const Type *type = graph_type(graph, graph->inputs.data[input].value);
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].split && type_local_size(type, &graph->mesh, d) > 1)
      return d;
  return -1;
}

static void find_shards(const Graph *graph, Sites *sites) {
  for (int i = 0; i < graph->inputs.n; i++)
    if (sharded_dim(graph, i) >= 0)
      add_site(sites,
               (Site){.node = graph->inputs.data[i].value.node, .input = i});
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
  int index = (int)node_int(graph_node(graph, value), ATTR_index, 0);
  int d = sharded_dim(graph, index);
  const Type *type = graph_type(graph, value);
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
    if (graph->nodes.data[id]->op == OP_random_keep)
      add_site(sites, (Site){.node = id});
}

static void change_mask(Graph *graph, Site site) {
  find_attr_of(graph->nodes.data[site.node], ATTR_stream)->name =
      name_intern(graph->module->names, "another");
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
};

typedef struct Seeding {
  const FaultKind *kind; /* NULL: count the sites of every kind */
  int index;             /* which site */
  int n_sites[ARRAY_LENGTH(kinds)];
  char where[120]; /* the node of the fault */
} Seeding;

static int site_node(const Graph *graph, Site site) {
  return site.is_output ? graph->outputs.data[site.node].value.node : site.node;
}

/* Leaves out nodes that no output needs, which a later pass drops. */
static Sites find_live(const Graph *graph, const FaultKind *kind) {
  Arena *arena = graph->module->arena;
  Sites all = {.arena = arena}, live = {.arena = arena};
  bool *is_live = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++)
    is_live[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; is_live[id] && i < node->n_inputs; i++)
      is_live[node->inputs[i].node] = true;
  }
  kind->find(graph, &all);
  for (int i = 0; i < all.list.n; i++)
    if (is_live[site_node(graph, all.list.data[i])])
      add_site(&live, all.list.data[i]);
  return live;
}

static void seed_fault(void *user, int pass, const Graph *graph) {
  Seeding *seeding = user;
  bool is_step = false;
  if (!pass_is_named(pass, "partition") || graph->mesh.n_axes == 0) return;
  for (int i = 0; i < graph->outputs.n; i++)
    is_step |= graph->outputs.data[i].role == ROLE_norm;
  if (!is_step) return;
  for (int k = 0; !seeding->kind && k < ARRAY_LENGTH(kinds); k++)
    seeding->n_sites[k] = find_live(graph, &kinds[k]).list.n;
  if (!seeding->kind) return;
  Site site = find_live(graph, seeding->kind).list.data[seeding->index];
  const Node *node = graph->nodes.data[site_node(graph, site)];
  snprintf(seeding->where, sizeof seeding->where, "%s '%s'",
           op_info(node->op)->name, node->path ? node->path : "");
  seeding->kind->make((Graph *)graph, site);
}

/* ---- cases ---- */

static const PlayCase cases[] = {
    {.model = "models/mlp.dnn",
     .sizes = "B=8 P=4 H1=3 H2=3 K=3",
     .ranks = 2,
     .microbatches = 2},
    {.model = "models/mlp.dnn",
     .sizes = "B=8 P=4 H1=3 H2=3 K=3",
     .plan = TEST_ROOT "/tests/plans/two_axes.plan"},
    {.model = "models/charlstm.dnn",
     .sizes = "B=4 T=3 V=5 E=2 C=3",
     .ranks = 2},
    {.model = "models/chargpt.dnn",
     .sizes = "B=4 T=3 V=7 C=4 H=2 L=1",
     .ranks = 2,
     .microbatches = 2},
    {.model = "models/vit_digits.dnn",
     .sizes = "B=4 C=4 H=2 L=1 K=3",
     .ranks = 2},
    {.model = "tests/reference/resnet_mnist_small.dnn",
     .sizes = "N=4 K=3 width=2",
     .ranks = 2},
};

typedef struct Score {
  int n_found, n_equivalent;
  int n_f64, n_exact; /* found so */
  int n_static;       /* against the sharding rules, whatever they compute */
  int n_coarse;       /* a tolerance of 1e-5 would have found them */
} Score;

static VerifyReport play_fault(const PlayCase *of, Seeding *seeding,
                               uint64_t seed) {
  PlayCase one = *of;
  one.seed = seed;
  one.watch = seed_fault;
  one.watch_user = seeding;
  VerifyReport report = play_case(&one);
  return report;
}

static void check_fault(const PlayCase *one, Seeding *seeding, Score *score) {
  VerifyReport report = play_fault(one, seeding, 1);
  cr_assert(*seeding->where);
  score->n_static += report.placement_ok == ANSWER_no;
  if (report.equal == ANSWER_yes) report = play_fault(one, seeding, 2);
  score->n_coarse += report.max_rel_error > 1e-5;
  score->n_f64 += report.n_f64_different > 0;
  score->n_exact += report.n_exact_different > 0;
  cr_expect(report.n_exact_different > 0 || report.n_f64_different == 0,
            "exact mode misses %s at %s of %s", seeding->kind->name,
            seeding->where, one->model);
  if (report.equal == ANSWER_no) {
    score->n_found++;
  } else {
    score->n_equivalent++;
    cr_log_info("equivalent: %s at %s of %s", seeding->kind->name,
                seeding->where, one->model);
  }
  modules_destroy();
}

/* At most as many sites of each kind, far from each other. */
static void check_case(const PlayCase *one, int most, Score *scores) {
  Seeding count = {0};
  VerifyReport report = play_fault(one, &count, 1);
  cr_assert_eq(report.equal, ANSWER_yes, "%s: %s", one->model, report.path);
  modules_destroy();
  for (int k = 0; k < ARRAY_LENGTH(kinds); k++) {
    int n = count.n_sites[k] < most ? count.n_sites[k] : most;
    for (int i = 0; i < n; i++) {
      Seeding seeding = {.kind = &kinds[k], .index = i * count.n_sites[k] / n};
      check_fault(one, &seeding, &scores[k]);
    }
  }
}

static void print_score(const char *name, const Score *score) {
  cr_log_info(
      "%s: %d found, %d by exact mode, %d by f64, %d beyond a tolerance "
      "of 1e-5; %d equivalent; %d against the sharding rules",
      name, score->n_found, score->n_exact, score->n_f64, score->n_coarse,
      score->n_equivalent, score->n_static);
}

Test(faults, the_player_finds_them) {
  const char *given = getenv("DNNC_FAULTS");
  Score scores[ARRAY_LENGTH(kinds)] = {0}, all = {0};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++)
    check_case(&cases[i], given ? atoi(given) : 1, scores);
  for (int k = 0; k < ARRAY_LENGTH(kinds); k++) {
    print_score(kinds[k].name, &scores[k]);
    cr_expect_gt(scores[k].n_found, 0, "%s", kinds[k].name);
    all.n_found += scores[k].n_found;
    all.n_equivalent += scores[k].n_equivalent;
    all.n_static += scores[k].n_static;
    all.n_f64 += scores[k].n_f64;
    all.n_exact += scores[k].n_exact;
    all.n_coarse += scores[k].n_coarse;
  }
  print_score("all", &all);
  /* Faults that change no number are rare. */
  cr_expect_geq(all.n_found, 9 * all.n_equivalent);
}

/* ---- one block ---- */

/* Drops the first reduction of block 57 where a graph has it. */
static void drop_in_one_block(void *user, int pass, const Graph *graph) {
  bool *is_dropped = user;
  if (!pass_is_named(pass, "partition") || graph->mesh.n_axes == 0) return;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    if (*is_dropped || node->op != OP_all_reduce ||
        !path_has(node->path, "block[57]"))
      continue;
    drop_reduction((Graph *)graph, (Site){.node = id});
    *is_dropped = true;
  }
}

/* The block is not played; it differs from those beside it. */
Test(faults, one_fault_in_block_57_of_96_is_found) {
  bool is_dropped = false;
  PlayCase deep = {.model = "models/chargpt.dnn",
                   .sizes = "L=96",
                   .plan = TEST_ROOT "/benchmarks/plans/tensor.plan",
                   .watch = drop_in_one_block,
                   .watch_user = &is_dropped};
  VerifyReport report = play_case(&deep);
  cr_expect(is_dropped);
  cr_expect_str_eq(report.repeats, "block[0..95]");
  cr_expect_eq(report.equal, ANSWER_no);
  cr_assert_not_null(report.path);
  cr_expect(strstr(report.path, "block[57]"), "%s", report.path);
}
