// links: ir
/*
 * sharded.c -- every operator, cut in pieces through its sharding rule, means
 * what it means whole.
 *
 * For each case of tests/ops/cases.h, each dim and 2, 3 and 4 ranks: the dim is
 * split in all operands that have it, the rule says what it wants of each
 * operand and what placement the results have, every rank runs the operator on
 * its pieces, and the pieces of a result, put together or reduced as its type
 * says, must be the result of the whole.  The same with an operand that is a
 * partial sum.
 */
#include "tests/ops/cases.h"

TestSuite(sharded, .fini = modules_destroy, .timeout = 300);

#define MOST_RANKS 4

typedef struct Play {
  Module *module;
  const Graph *graph; /* inputs, then one node */
  const Node *node;
  const Tensor *whole;   /* inputs */
  const Tensor *results; /* of the whole */
  int ranks;
  Mesh mesh;
  const char *label;
} Play;

static int n_played, n_partial;
static bool was_split[N_OPS];

/* Draws and positions are by global index, which the interpreter does not know
 * of pieces (unit_codegen has pieces_know_their_place). */
static bool is_by_global_index(Op op) {
  return op == OP_random_keep || op == OP_iota || op == OP_const;
}

static const Type *local_type(const Play *play, const Type *type) {
  Type *local = type_create(play->module->arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++)
    local->dims[d] =
        (Dim){type->dims[d].name, type_local_size(type, &play->mesh, d), 0};
  return local;
}

/* Where element i of a rank's piece lies in the whole. */
static int64_t place_of(const Play *play, const Type *type, const Type *local,
                        int rank, int64_t i) {
  int64_t at = 0, stride = 1;
  for (int d = type->rank - 1; d >= 0; d--) {
    int64_t k = i % local->dims[d].size;
    i /= local->dims[d].size;
    if (type->dims[d].split) k += rank * local->dims[d].size;
    at += k * stride;
    stride *= type->dims[d].size;
  }
  (void)play;
  return at;
}

/* A rank's piece; of a partial sum a share, which all add up to the whole. */
static Tensor piece_of(const Play *play, Tensor whole, const Type *type,
                       int rank) {
  static const double shares[] = {0.5, -1.25, 2, 0.75};
  const Type *local = local_type(play, type);
  Tensor piece = tensor_create(play->module->arena, local);
  double rest = 1, share = 1;
  if (type->partial) {
    for (int r = 0; r + 1 < play->ranks; r++) rest -= shares[r];
    share = rank + 1 < play->ranks ? shares[rank] : rest;
  }
  for (int64_t i = 0; i < type_elements(local); i++)
    piece.data[i] = share * whole.data[place_of(play, type, local, rank, i)];
  return piece;
}

/* The node on the pieces of one rank. */
static Tensor *run_rank(const Play *play, const Type **wanted,
                        const Type **placed, int rank) {
  Arena *arena = play->module->arena;
  Graph *one = make_graph(play->module);
  Value args[6];
  const Type *types[8];
  Tensor inputs[6];
  for (int i = 0; i < play->node->n_inputs; i++) {
    inputs[i] = piece_of(play, play->whole[i], wanted[i], rank);
    args[i] = graph_input(one, ROLE_arg, name_intern(play->module->names, ""),
                          inputs[i].type);
  }
  for (int r = 0; r < play->node->n_results; r++)
    types[r] = local_type(play, placed[r]);
  Attrs attrs = {.n = play->node->n_attrs};
  for (int i = 0; i < attrs.n; i++) attrs.items[i] = play->node->attrs[i];
  Value value =
      graph_append_typed(one, play->node->op, args, play->node->n_inputs,
                         &attrs, types, play->node->n_results, NULL);
  for (int r = 0; r < play->node->n_results; r++)
    graph_output(one, ROLE_result, name_intern(play->module->names, ""),
                 (Value){value.node, r});
  Tensor *outputs = ARENA_ARRAY(arena, Tensor, play->node->n_results);
  interp_run(one, INTERP_f64, arena, inputs, outputs, NULL);
  return outputs;
}

static double reduced(ReduceKind kind, double a, double b) {
  return kind == REDUCE_sum   ? a + b
         : kind == REDUCE_max ? fmax(a, b)
                              : fmin(a, b);
}

/* The pieces of a result, put together, against the whole. */
static void check_result(const Play *play, Tensor **ranks, const Type *placed,
                         int result) {
  Tensor whole = play->results[result];
  int64_t n = type_elements(whole.type);
  double *sum = ARENA_ARRAY(play->module->arena, double, n);
  bool *is_set = ARENA_ARRAY(play->module->arena, bool, n);
  for (int rank = 0; rank < play->ranks; rank++) {
    const Tensor *piece = &ranks[rank][result];
    for (int64_t i = 0; i < type_elements(piece->type); i++) {
      int64_t at = place_of(play, placed, piece->type, rank, i);
      double x = piece->data[i];
      if (!is_set[at])
        sum[at] = x;
      else if (placed->partial)
        sum[at] = reduced(placed->partial_kind, sum[at], x);
      else /* every rank has it */
        cr_assert(sum[at] == x || (isnan(x) && isnan(sum[at])), "%s",
                  play->label);
      is_set[at] = true;
    }
  }
  for (int64_t k = 0; k < n; k++) {
    double a = whole.data[k], b = sum[k];
    cr_assert(is_set[k] && (a == b || (isnan(a) && isnan(b)) ||
                            fabs(a - b) <= 1e-9 * (1 + fabs(a))),
              "%s on %d ranks: result %d, element %ld is %.17g, not %.17g",
              play->label, play->ranks, result, (long)k, b, a);
  }
}

/* The operands placed as asked. */
static void check_placed(const Play *play, const Type **inputs) {
  const Type *wanted[6], *placed[8];
  Arena *arena = play->module->arena;
  const Node *node = play->node;
  const Type **whole = ARENA_ARRAY(arena, const Type *, 8);
  for (int r = 0; r < node->n_results; r++) whole[r] = node->types[r];
  ((Graph *)play->graph)->mesh = play->mesh;
  shard_infer(play->graph, node->op, node->attrs, node->n_attrs, inputs,
              node->n_inputs, whole, node->n_results, arena, wanted, placed);
  Tensor *ranks[MOST_RANKS];
  for (int rank = 0; rank < play->ranks; rank++)
    ranks[rank] = run_rank(play, wanted, placed, rank);
  for (int r = 0; r < node->n_results; r++)
    check_result(play, ranks, placed[r], r);
}

static const Type *split_type(Arena *arena, const Type *type, Name dim) {
  int at = type_find(type, dim);
  if (at < 0) return type;
  Type *split = type_create(arena, type->dtype, type->rank);
  for (int d = 0; d < type->rank; d++) split->dims[d] = type->dims[d];
  split->dims[at].split = axis_list_append(0, 0);
  return split;
}

static void check_splits(const Play *play, int input) {
  const Type *from = play->whole[input].type;
  Arena *arena = play->module->arena;
  for (int d = 0; d < from->rank; d++) {
    Name dim = from->dims[d].name;
    const Type *types[6];
    bool is_even = true;
    for (int i = 0; i < play->node->n_inputs; i++) {
      const Type *type = play->whole[i].type;
      int at = type_find(type, dim);
      is_even = is_even && (at < 0 || type->dims[at].size % play->ranks == 0);
      types[i] = split_type(arena, type, dim);
    }
    if (!is_even) continue; /* not supported yet */
    check_placed(play, types);
    was_split[play->node->op] = true;
    n_played++;
  }
}

/* One operand as a partial sum; the rule may want it whole. */
static void check_partial(const Play *play, int input) {
  const Type *types[6], *from = play->whole[input].type;
  if (dtype_class(from->dtype) != CLASS_REAL) return;
  Type *partial = type_create(play->module->arena, from->dtype, from->rank);
  for (int d = 0; d < from->rank; d++) partial->dims[d] = from->dims[d];
  partial->partial = 1;
  partial->partial_kind = REDUCE_sum;
  for (int i = 0; i < play->node->n_inputs; i++)
    types[i] = i == input ? partial : play->whole[i].type;
  check_placed(play, types);
  n_partial++;
}

static void check_graph(Graph *graph, const char *label) {
  Module *module = graph->module;
  const Node *node = graph_node(graph, graph->outputs.data[0].value);
  if (is_by_global_index(node->op)) return;
  Play play = {.module = module, .graph = graph, .node = node, .label = label};
  play.whole = op_case_inputs(graph, hash_bytes(label, strlen(label), 0));
  play.results = run(graph, INTERP_f64, play.whole);
  for (play.ranks = 2; play.ranks <= MOST_RANKS; play.ranks++) {
    play.mesh.n_axes = 1;
    play.mesh.axes[0] =
        (MeshAxis){name_intern(module->names, "data"), play.ranks, false};
    for (int i = 0; i < node->n_inputs; i++) {
      check_splits(&play, i);
      check_partial(&play, i);
    }
  }
}

Test(sharded, structured) {
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    const OpCase *item = &op_cases[i];
    if (!op_case_takes(item, "f64")) continue;
    Module *module = module_create();
    check_graph(op_case_graph(module, item, "f64"),
                arena_printf(module->arena, "%s {%s}", item->op, item->attrs));
    modules_destroy();
  }
  cr_assert_gt(n_played, 100);
  cr_assert_gt(n_partial, 100);
  for (int op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info((Op)op);
    cr_expect(was_split[op] || info->is_pointwise || info->max_inputs == 0 ||
                  op_case_exempt((Op)op) || is_by_global_index((Op)op),
              "no case of %s could be split", info->name);
  }
}

Test(sharded, pointwise) {
  for (int op = 0; op < N_OPS; op++)
    for (int shape = 0; shape < POINTWISE_SHAPES; shape++) {
      if (!op_info((Op)op)->is_pointwise) continue;
      static const char *const numbers[] = {"f64", "i32", "bool"};
      for (int k = 0; k < ARRAY_LENGTH(numbers); k++) {
        Module *module = module_create();
        Graph *graph = pointwise_case_graph(module, (Op)op, numbers[k], shape);
        if (graph) check_graph(graph, op_info((Op)op)->name);
        modules_destroy();
      }
    }
}
