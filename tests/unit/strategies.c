// links: interp ir
/*
 * strategies.c -- every strategy of every operator means what the operator
 * means on one device.
 *
 * For each case of tests/ops/cases.h and each pointwise operator, on 2, 3 and
 * 2 x 2 ranks, every strategy is played: each rank gets the shards that the
 * strategy says, runs the operator in the interpreter, and its results, reduced
 * where the strategy says partial, are compared with those of the logical
 * operator.  Propagation (shard_infer) of the strategy's operands must give its
 * results, unless a dim needs what propagation does not do yet.  Shards may be
 * uneven or empty: padding of a dim that is summed holds 0, of a maximum
 * -infinity, other padding holds numbers that must not matter.
 */
#include "ir/place/strategies.h"
#include "tests/ops/cases.h"
#include "tests/unit/shards.h"

TestSuite(strategies, .fini = modules_destroy, .timeout = 300);

#define MOST_RANKS 4

typedef struct Player {
  Module *module;
  Arena *scratch;     /* of one strategy */
  const Graph *graph; /* with the mesh */
  const Node *node;
  const ShardCall *call;
  ShardRule rule;
  Mesh mesh;
  const Tensor *whole, *results;
  const char *label;
  AxisSet planted; /* partial axes that are forgotten */
  bool has_failed;
} Player;

static int n_played, n_uneven, n_positions, n_inferred, n_planted, n_seen;
static bool was_sharded[N_OPS];

/* ---- operands ---- */

static bool is_by_positions(const Player *p, Name input_dim) {
  int at = shard_rule_input(&p->rule, input_dim);
  return p->rule.dims[at].treatment == SHARD_positions;
}

static bool is_result_by_positions(const Player *p, Name dim) {
  int at = shard_rule_result(&p->rule, dim);
  return p->rule.dims[at].treatment == SHARD_positions;
}

static double padding_of(const Player *p, const Type *type, int dim,
                         int64_t i) {
  int at = shard_rule_input(&p->rule, type->dims[dim].name);
  if (dtype_class(type->dtype) != CLASS_FLOAT) return 0;
  switch (p->rule.dims[at].treatment) {
  case SHARD_max: return -INFINITY;
  case SHARD_min: return INFINITY;
  case SHARD_sum:
  case SHARD_pass_or_sum: return 0;
  default: return 0.375 + (double)(i % 5);
  }
}

/* The shard of an operand; along dims of positions all of it, with 0 where
 * other ranks hold it. */
static Tensor take_operand(const Player *p, Tensor whole, const Type *placed,
                           int rank) {
  const Type *local = shard_type(p->scratch, &p->mesh, placed);
  Type *wide = arena_copy(p->scratch, placed,
                          sizeof *placed + sizeof(Dim) * placed->rank);
  bool is_wide = false;
  for (int d = 0; d < wide->rank; d++)
    if (wide->dims[d].split && is_by_positions(p, wide->dims[d].name)) {
      wide->dims[d].split = 0;
      is_wide = true;
    }
  const Type *type = shard_type(p->scratch, &p->mesh, wide);
  Tensor out = tensor_create(p->scratch, type);
  double share = shard_share(&p->mesh, placed, rank);
  int64_t n = type_elements(is_wide ? whole.type : local);
  for (int64_t i = 0; i < (is_wide ? 0 : n); i++) {
    int ended;
    int64_t at = shard_place_or_padding(&p->mesh, placed, rank, i, &ended);
    out.data[i] =
        at < 0 ? padding_of(p, placed, ended, i) : share * whole.data[at];
  }
  if (!is_wide) return out;
  /* Elements of the shard, each at its place in the wide one. */
  for (int64_t i = 0; i < type_elements(local); i++) {
    int64_t rest = i, to = 0, stride = 1;
    int64_t at = shard_place_or_padding(&p->mesh, placed, rank, i, NULL);
    for (int d = local->rank - 1; d >= 0; d--) {
      int64_t size = local->dims[d].size, k = rest % size;
      rest /= size;
      if (type->dims[d].size != size)
        k += size * shard_index(&p->mesh, placed->dims[d].split, rank);
      to += k * stride;
      stride *= type->dims[d].size;
    }
    if (at >= 0) out.data[to] = share * whole.data[at];
  }
  return out;
}

/* ---- results ---- */

/* Runs the operator on a rank; `out_types` are the types of the results, which
 * are replicated along dims of positions. */
static Tensor *play_rank(const Player *p, const Strategy *strategy, int rank,
                         const Type **out_types) {
  Tensor inputs[6];
  const Type *types[8];
  for (int i = 0; i < p->node->n_inputs; i++)
    inputs[i] = take_operand(p, p->whole[i], strategy->inputs[i], rank);
  for (int r = 0; r < p->node->n_results; r++) {
    const Type *placed = strategy->results[r];
    Type *wide = arena_copy(p->scratch, placed,
                            sizeof *placed + sizeof(Dim) * placed->rank);
    for (int d = 0; d < wide->rank; d++)
      if (is_result_by_positions(p, wide->dims[d].name))
        wide->dims[d].split = 0;
    out_types[r] = wide;
    types[r] = type_local(p->scratch, wide, &p->mesh);
  }
  return shard_run(p->module, p->scratch, p->node, inputs, types, &p->mesh,
                   rank);
}

static double reduce(ReduceKind kind, double a, double b) {
  if (kind == REDUCE_sum) return a + b;
  return kind == REDUCE_max ? fmax(a, b) : fmin(a, b);
}

static bool differ_only(const Mesh *mesh, int a, int b, AxisSet axes) {
  for (int axis = 0; axis < mesh->n_axes; axis++)
    if (!(axes >> axis & 1) &&
        shard_coordinate(mesh, axis, a) != shard_coordinate(mesh, axis, b))
      return false;
  return true;
}

/* Element i of the result on a rank, reduced over the partial axes. */
static double reduced_at(const Player *p, Tensor *const *all, int result,
                         const Type *type, int rank, int64_t i) {
  AxisSet partial = type->partial & (AxisSet)~p->planted;
  double value = 0;
  bool is_first = true;
  for (int m = 0; m < mesh_ranks(&p->mesh); m++) {
    if (!differ_only(&p->mesh, rank, m, partial)) continue;
    double x = all[m][result].data[i];
    value = is_first ? x : reduce(type->partial_kind, value, x);
    is_first = false;
  }
  return value;
}

static bool is_right(const Player *p, const Strategy *strategy) {
  const Type *types[8];
  Tensor *all[MOST_RANKS];
  int n_ranks = mesh_ranks(&p->mesh);
  for (int rank = 0; rank < n_ranks; rank++)
    all[rank] = play_rank(p, strategy, rank, types);
  for (int r = 0; r < p->node->n_results; r++) {
    Tensor whole = p->results[r];
    int64_t n = type_local_elements(types[r], &p->mesh), n_set = 0;
    bool *is_set = ARENA_ARRAY(p->scratch, bool, type_elements(whole.type) + 1);
    for (int rank = 0; rank < n_ranks; rank++)
      for (int64_t i = 0; i < n; i++) {
        int64_t at = shard_place_or_padding(&p->mesh, types[r], rank, i, NULL);
        if (at < 0) continue;
        n_set += !is_set[at];
        is_set[at] = true;
        double x = reduced_at(p, all, r, types[r], rank, i);
        if (!shard_is_same(whole.data[at], x)) return false;
      }
    if (n_set != type_elements(whole.type)) return false;
  }
  return true;
}

/* ---- strategies ---- */

static void text_strategy(const Player *p, const Strategy *s, Text *out) {
  text_printf(out, "%s: ", p->label);
  for (int i = 0; i < p->node->n_inputs; i++) {
    type_print(out, s->inputs[i], &p->mesh);
    text_add(out, i + 1 < p->node->n_inputs ? ", " : " -> ");
  }
  for (int r = 0; r < p->node->n_results; r++) {
    if (r) text_add(out, ", ");
    type_print(out, s->results[r], &p->mesh);
  }
}

static bool has_uneven(const Player *p, const Type *type) {
  for (int d = 0; d < type->rank; d++)
    if (type->dims[d].size % axis_list_shards(type->dims[d].split, &p->mesh))
      return true;
  return false;
}

/* The strategy is also the one for its own iteration dims. */
static void check_asked(const Player *p, const Strategy *s) {
  const char *reason;
  if (s->partial) return;
  const Strategy *same =
      strategy_for(&p->mesh, p->call, s->dims, s->n_dims, p->scratch, &reason);
  cr_assert(same, "%s: %s", p->label, reason);
  for (int i = 0; i < p->node->n_inputs; i++)
    cr_assert(type_equal(same->inputs[i], s->inputs[i]));
  for (int r = 0; r < p->node->n_results; r++)
    cr_assert(type_equal(same->results[r], s->results[r]));
}

/* Propagation shards dims of operands only, and none by positions. */
static bool can_infer(const Player *p, const Strategy *s) {
  for (int i = 0; i < s->n_dims; i++) {
    int at = shard_rule_input(&p->rule, s->dims[i].dim);
    ShardTreatment treatment = p->rule.dims[at].treatment;
    if (treatment == SHARD_positions || treatment == SHARD_replicate)
      return false;
    bool is_operand = false;
    for (int k = 0; k < p->node->n_inputs; k++)
      is_operand |= type_find(s->inputs[k], s->dims[i].dim) >= 0;
    if (!is_operand) return false;
  }
  return true;
}

static void check_inferred(Player *p, const Strategy *s, const char *text) {
  const Type *wanted[6], *placed[8], *logical[8];
  const Node *node = p->node;
  if (!can_infer(p, s)) return;
  for (int r = 0; r < node->n_results; r++) logical[r] = node->types[r];
  shard_infer(p->graph, node->op, node->attrs, node->n_attrs, s->inputs,
              node->n_inputs, logical, node->n_results, p->scratch, wanted,
              placed);
  for (int i = 0; i < node->n_inputs; i++)
    cr_expect(type_equal(wanted[i], s->inputs[i]), "%s: operand %d", text, i);
  for (int r = 0; r < node->n_results; r++)
    cr_expect(type_equal(placed[r], s->results[r]), "%s: result %d", text, r);
  n_inferred++;
}

static bool check_strategy(void *user, const Strategy *s) {
  Player *p = user;
  p->scratch = arena_create(p->module->memory);
  Text text = text_create(p->scratch);
  text_strategy(p, s, &text);
  bool is_partial_integer = false, is_uneven = false;
  for (int i = 0; i < p->node->n_inputs; i++) {
    is_partial_integer |= s->inputs[i]->partial &&
                          dtype_class(s->inputs[i]->dtype) != CLASS_FLOAT;
    is_uneven |= has_uneven(p, s->inputs[i]);
  }
  check_inferred(p, s, text_string(&text));
  if (!is_partial_integer) { /* shares are fractions */
    cr_expect(is_right(p, s), "%s", text_string(&text));
    check_asked(p, s);
    n_played++;
    n_uneven += is_uneven;
    n_positions += s->positions != 0;
    was_sharded[p->node->op] |= s->n_dims > 0;
    p->planted = s->results[0]->partial;
    if (p->planted && n_played % 5 == 0) {
      n_planted++;
      n_seen += !is_right(p, s);
    }
    p->planted = 0;
  }
  arena_destroy(p->scratch);
  return true;
}

static void check_graph(Graph *graph, const char *label) {
  static const int meshes[][2] = {{2, 0}, {3, 0}, {2, 2}};
  const Node *node = graph_node(graph, graph->outputs.data[0].value);
  ShardCall call = shard_call(graph, node);
  Tensor *whole = op_case_inputs(graph, hash_bytes(label, strlen(label), 0));
  Player p = {
      .module = graph->module, .graph = graph, .node = node, .call = &call};
  p.whole = whole;
  p.results = run(graph, INTERP_f64, whole);
  p.label = label;
  shard_rule(&call, &p.rule);
  int64_t n_elements = 0;
  for (int i = 0; i < node->n_inputs; i++)
    n_elements += type_elements(whole[i].type);
  for (int i = 0; i < ARRAY_LENGTH(meshes); i++) {
    static const char *const axes[] = {"d", "t"};
    if (meshes[i][1] && n_elements > 3000) continue; /* for time */
    p.mesh.n_axes = 0;
    for (int a = 0; a < 2 && meshes[i][a]; a++)
      p.mesh.axes[p.mesh.n_axes++] = (MeshAxis){
          name_intern(graph->module->names, axes[a]), meshes[i][a], false};
    graph->mesh = p.mesh;
    shard_strategies(&p.mesh, &call, graph->module->arena, check_strategy, &p);
  }
}

Test(strategies, structured) {
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    Op op;
    char label[300];
    if (!op_case_takes(&op_cases[i], "f64") || !op_find(op_cases[i].op, &op) ||
        op_case_exempt(op))
      continue;
    snprintf(label, sizeof label, "%s {%s}", op_cases[i].op, op_cases[i].attrs);
    check_graph(op_case_graph(module_create(), &op_cases[i], "f64"), label);
    modules_destroy();
  }
  for (int op = 0; op < N_OPS; op++)
    cr_expect(was_sharded[op] || op_info((Op)op)->is_pointwise ||
                  op == OP_const || op_case_exempt((Op)op),
              "%s was never sharded", op_info((Op)op)->name);
  fprintf(stderr,
          "%d strategies played, %d with uneven shards, %d by positions, %d "
          "inferred; %d of %d forgotten reductions seen\n",
          n_played, n_uneven, n_positions, n_inferred, n_seen, n_planted);
  cr_assert_gt(n_played, 1500);
  cr_assert_gt(n_uneven, 500);
  cr_assert_gt(n_positions, 50);
  cr_assert_gt(n_inferred, 1000);
  cr_assert_eq(n_seen, n_planted);
}

Test(strategies, pointwise) {
  for (int op = 0; op < N_OPS; op++)
    for (int shape = 0; shape < 3; shape++) {
      if (!op_info((Op)op)->is_pointwise) continue;
      Graph *graph =
          pointwise_case_graph(module_create(), (Op)op, "f64", shape);
      if (graph) check_graph(graph, op_info((Op)op)->name);
      modules_destroy();
    }
  cr_assert_gt(n_played, 1000);
}
