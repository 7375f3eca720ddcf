// links: interp ir runtime
/*
 * sharded.c -- tests that every operator computes the same when its sharding
 * rule shards it as on one rank.
 *
 * The ranks are threads joined by the transport `local`.  For each case of
 * tests/ops/cases.h, on 2, 3 and 4 ranks and on a mesh of 2 x 2, dims are split
 * in all operands that have them, and operands are partial sums; the rule says
 * what it wants of each operand and what placement the results have.  Every
 * rank takes its pieces, runs the operator, adds up what is partial by an
 * all-reduce over those axes, gathers the pieces of all ranks, and must then
 * hold the result of the whole.
 */
#include "runtime/exec/exec.h"
#include "tests/ops/cases.h"
#include "tests/unit/shards.h"

#include <pthread.h>

TestSuite(sharded, .fini = modules_destroy, .timeout = 300);

#define MOST_RANKS 4

typedef struct Rank {
  Comm *comm;
  Module *module;
  Arena *scratch;     /* of one play */
  const Graph *graph; /* inputs, then one node */
  const Node *node;
  const Tensor *whole;   /* inputs */
  const Tensor *results; /* of the whole */
  Mesh mesh;
  int32_t id; /* of the last collective; equal on all ranks */
  int n_split, n_partial;
  const char *label;
  const char *failure; /* the first, or NULL */
} Rank;

static int n_played, n_partial;
static bool was_split[N_OPS];

/* Draws and positions are by global index, which the interpreter does not know
 * of pieces (unit_codegen has pieces_know_their_place). */
static bool is_by_global_index(Op op) {
  return op_is(op, OPCLASS_random) || op == OP_iota || op == OP_const;
}

static void fail(Rank *rank, const char *what) {
  if (!rank->failure)
    rank->failure = arena_printf(
        rank->module->arena, "%s, rank %d of %d (%d axes): %s", rank->label,
        rank->comm->rank, rank->comm->world, rank->mesh.n_axes, what);
}

/* ---- pieces ---- */

static const Type *local_type(const Rank *rank, const Type *type) {
  return shard_type(rank->module->arena, &rank->mesh, type);
}

static Tensor take_piece(const Rank *rank, Tensor whole, const Type *type) {
  const Type *local = local_type(rank, type);
  Tensor piece = tensor_create(rank->scratch, local);
  double share = shard_share(&rank->mesh, type, rank->comm->rank);
  for (int64_t i = 0; i < type_elements(local); i++)
    piece.data[i] =
        share * whole.data[shard_place(&rank->mesh, type, rank->comm->rank, i)];
  return piece;
}

/* The node on this rank's pieces. */
static Tensor *run_piece(const Rank *rank, const Type **wanted,
                         const Type **placed) {
  Tensor inputs[6];
  const Type *types[8];
  for (int i = 0; i < rank->node->n_inputs; i++)
    inputs[i] = take_piece(rank, rank->whole[i], wanted[i]);
  for (int r = 0; r < rank->node->n_results; r++)
    types[r] = type_local(rank->module->arena, placed[r], &rank->mesh);
  return shard_run(rank->module, rank->scratch, rank->node, inputs, types,
                   &rank->mesh, rank->comm->rank);
}

/* ---- by the transport ---- */

static void communicate(Rank *rank, DnnCollective what, DnnDigit digit,
                        double *data, int64_t n) {
  DnnGroup *group = ARENA_NEW(rank->scratch, DnnGroup);
  *group = (DnnGroup){.ranks = rank->comm->world,
                      .size = digit.size,
                      .n_digits = 1,
                      .digits = {digit}};
  what.group = group;
  int64_t *counts = arena_copy(rank->scratch, &n, sizeof n);
  CommPart *part = ARENA_NEW(rank->scratch, CommPart);
  what.id = ++rank->id;
  what.dtype = DNN_f64;
  what.n_parts = 1;
  what.counts = counts;
  *part = comm_in_place(&what, rank->comm->rank, data, n);
  const DnnCollective *kept = arena_copy(rank->scratch, &what, sizeof what);
  Status status = rank->comm->start(rank->comm, kept, part);
  if (status.code == STATUS_ok) status = rank->comm->wait(rank->comm, what.id);
  if (status.code != STATUS_ok) fail(rank, status.message);
}

/* The pieces of all ranks, end to end; sums of what is partial are made. */
static double *combine(Rank *rank, const Tensor *piece, const Type *placed) {
  int64_t n = type_elements(piece->type);
  int world = rank->comm->world;
  double *all = ARENA_ARRAY(rank->scratch, double, n *world);
  double *own = all + rank->comm->rank * n;
  memcpy(own, piece->data, (size_t)n * sizeof *own);
  for (int axis = 0; axis < rank->mesh.n_axes; axis++)
    if (placed->partial >> axis & 1)
      communicate(rank,
                  (DnnCollective){.kind = DNN_ALL_REDUCE,
                                  .reduce = placed->partial_kind},
                  (DnnDigit){rank->mesh.axes[axis].size,
                             shard_stride(&rank->mesh, axis)},
                  own, n);
  communicate(rank, (DnnCollective){.kind = DNN_ALL_GATHER},
              (DnnDigit){world, 1}, all, n * world);
  return all;
}

/* Everything that any rank has, against the whole. */
static void check_result(Rank *rank, const Tensor *piece, const Type *placed,
                         int result) {
  Tensor whole = rank->results[result];
  int64_t n = type_elements(piece->type), n_whole = type_elements(whole.type);
  double *all = combine(rank, piece, placed);
  bool *is_set = ARENA_ARRAY(rank->scratch, bool, n_whole);
  for (int of = 0; of < rank->comm->world; of++)
    for (int64_t i = 0; i < n; i++) {
      int64_t at = shard_place(&rank->mesh, placed, of, i);
      is_set[at] = true;
      if (!shard_is_same(whole.data[at], all[of * n + i]))
        fail(rank, arena_printf(rank->scratch,
                                "result %d of rank %d, element %ld is %.17g, "
                                "not %.17g",
                                result, of, (long)at, all[of * n + i],
                                whole.data[at]));
    }
  for (int64_t k = 0; k < n_whole; k++)
    if (!is_set[k]) fail(rank, "a part of the result is nowhere");
}

/* ---- placements ---- */

/* The operands placed as asked.  The barrier keeps what others may look at. */
static void check_placed(Rank *rank, const Type **inputs) {
  const Node *node = rank->node;
  const Type *wanted[6], *placed[8], *whole[8];
  rank->scratch = arena_create(rank->module->memory);
  for (int r = 0; r < node->n_results; r++) whole[r] = node->types[r];
  ((Graph *)rank->graph)->mesh = rank->mesh;
  shard_infer(rank->graph, node->op, node->attrs, node->n_attrs, inputs,
              node->n_inputs, whole, node->n_results, rank->module->arena,
              wanted, placed);
  Tensor *pieces = run_piece(rank, wanted, placed);
  for (int r = 0; r < node->n_results; r++)
    check_result(rank, &pieces[r], placed[r], r);
  rank->comm->barrier(rank->comm);
  arena_destroy(rank->scratch);
}

static Type *copy_type(const Rank *rank, const Type *type) {
  return arena_copy(rank->module->arena, type,
                    sizeof *type + sizeof(Dim) * type->rank);
}

/* The dim split over the axes in all operands that have it; false, and nothing
 * done, where they do not divide it (not supported yet). */
static bool split_all(const Rank *rank, const Type **types, Name dim,
                      AxisList axes) {
  int64_t pieces = axis_list_shards(axes, &rank->mesh);
  for (int i = 0; i < rank->node->n_inputs; i++) {
    int at = type_find(types[i], dim);
    if (at >= 0 && types[i]->dims[at].size % pieces) return false;
  }
  for (int i = 0; i < rank->node->n_inputs; i++) {
    int at = type_find(types[i], dim);
    if (at < 0) continue;
    Type *split = copy_type(rank, types[i]);
    split->dims[at].split = axes;
    types[i] = split;
  }
  return true;
}

static bool make_partial(const Rank *rank, const Type **types, int input,
                         int axis) {
  const Type *from = types[input];
  if (dtype_class(from->dtype) != CLASS_FLOAT) return false;
  Type *partial = copy_type(rank, from);
  partial->partial = (AxisSet)(1u << axis);
  partial->partial_kind = REDUCE_sum;
  types[input] = partial;
  return true;
}

static void take_types(const Rank *rank, const Type **types) {
  for (int i = 0; i < rank->node->n_inputs; i++) types[i] = rank->whole[i].type;
}

/* All names of dims of the operands. */
static int dim_names(const Rank *rank, Name *names) {
  int n = 0;
  for (int i = 0; i < rank->node->n_inputs; i++) {
    const Type *type = rank->whole[i].type;
    for (int d = 0; d < type->rank; d++) {
      bool found = false;
      for (int k = 0; k < n; k++) found |= names[k] == type->dims[d].name;
      if (!found) names[n++] = type->dims[d].name;
    }
  }
  return n;
}

/* A dim over all axes, or none of them; and over the second axis another dim or
 * the partial sum of an operand. */
static void check_placements(Rank *rank) {
  const Type *types[6];
  Name names[6 * MAX_RANK];
  int n = dim_names(rank, names), last = rank->mesh.n_axes - 1;
  AxisList first = axis_list_append(0, 0), all = first;
  if (last > 0) all = axis_list_append(all, last);
  for (int d = 0; d < n; d++) {
    take_types(rank, types);
    if (!split_all(rank, types, names[d], all)) continue;
    check_placed(rank, types);
    rank->n_split++;
  }
  for (int i = 0; i < rank->node->n_inputs; i++)
    for (int d = -1; d < (last > 0 ? n : 0); d++) {
      take_types(rank, types);
      if (d >= 0 && !split_all(rank, types, names[d], first)) continue;
      if (!make_partial(rank, types, i, last)) continue;
      check_placed(rank, types);
      rank->n_partial++;
    }
  for (int d = 0; last > 0 && d < n; d++)
    for (int e = 0; e < n; e++) {
      take_types(rank, types);
      if (d == e || !split_all(rank, types, names[d], first) ||
          !split_all(rank, types, names[e], axis_list_append(0, last)))
        continue;
      check_placed(rank, types);
      rank->n_split++;
    }
}

/* ---- ranks ---- */

static void *rank_thread(void *user) {
  Rank *rank = user;
  check_placements(rank);
  rank->comm->close(rank->comm);
  return NULL;
}

typedef Graph *MakeGraph(Module *module, const void *user);

/* `sizes`: of the axes; 0: no second one. */
static void check_mesh(MakeGraph *make_case, const void *user,
                       const char *label, const int sizes[2]) {
  int world = sizes[0] * (sizes[1] ? sizes[1] : 1);
  Rank ranks[MOST_RANKS] = {0};
  pthread_t threads[MOST_RANKS];
  Comm *comms;
  Module *first = module_create();
  cr_assert_eq(
      comm_local_create(first->arena, world, &(LocalOptions){.seed = 1}, &comms)
          .code,
      STATUS_ok);
  for (int r = 0; r < world; r++) {
    Rank *rank = &ranks[r];
    *rank = (Rank){.comm = &comms[r], .module = module_create()};
    rank->label = label;
    rank->graph = make_case(rank->module, user);
    rank->node = graph_node(rank->graph, rank->graph->outputs.data[0].value);
    Tensor *whole =
        op_case_inputs(rank->graph, hash_bytes(label, strlen(label), 0));
    rank->whole = whole;
    rank->results = run(rank->graph, INTERP_f64, whole);
    static const char *const axes[] = {"data", "tensor"};
    for (int a = 0; a < 2 && sizes[a]; a++)
      rank->mesh.axes[rank->mesh.n_axes++] = (MeshAxis){
          name_intern(rank->module->names, axes[a]), sizes[a], false};
  }
  for (int r = 0; r < world; r++)
    pthread_create(&threads[r], NULL, rank_thread, &ranks[r]);
  for (int r = 0; r < world; r++) pthread_join(threads[r], NULL);
  for (int r = 0; r < world; r++)
    cr_assert(!ranks[r].failure, "%s", ranks[r].failure);
  n_played += ranks[0].n_split;
  n_partial += ranks[0].n_partial;
  if (ranks[0].n_split > 0) was_split[ranks[0].node->op] = true;
  modules_destroy();
}

static void check_case(MakeGraph *make_case, const void *user,
                       const char *label) {
  static const int meshes[][2] = {{2, 0}, {3, 0}, {4, 0}, {2, 2}};
  for (int i = 0; i < ARRAY_LENGTH(meshes); i++)
    check_mesh(make_case, user, label, meshes[i]);
}

typedef struct Structured {
  const OpCase *item;
  const char *number;
} Structured;

static Graph *make_structured(Module *module, const void *user) {
  const Structured *of = user;
  return op_case_graph(module, of->item, of->number);
}

static void check_structured(const char *number) {
  for (int i = 0; i < ARRAY_LENGTH(op_cases); i++) {
    Structured of = {&op_cases[i], number};
    Op op;
    char label[300];
    if (!op_case_takes(of.item, number) || !op_find(of.item->op, &op) ||
        is_by_global_index(op))
      continue;
    snprintf(label, sizeof label, "%s %s {%s}", number, of.item->op,
             of.item->attrs);
    check_case(make_structured, &of, label);
  }
}

Test(sharded, structured) {
  check_structured("f64");
  cr_assert_geq(n_played, 500);
  cr_assert_gt(n_partial, 600);
  for (int op = 0; op < N_OPS; op++) {
    const OpInfo *info = op_info((Op)op);
    cr_expect(was_split[op] || info->is_pointwise || info->max_inputs == 0 ||
                  op_case_exempt((Op)op) || is_by_global_index((Op)op),
              "no case of %s could be split", info->name);
  }
}

Test(sharded, structured_integers) {
  check_structured("i32");
  cr_assert_gt(n_played, 200);
}

typedef struct Pointwise {
  Op op;
  const char *number;
  int shape;
} Pointwise;

static Graph *make_pointwise(Module *module, const void *user) {
  const Pointwise *of = user;
  return pointwise_case_graph(module, of->op, of->number, of->shape);
}

static bool pointwise_takes(const Pointwise *of) {
  bool takes = pointwise_case_graph(module_create(), of->op, of->number,
                                    of->shape) != NULL;
  modules_destroy();
  return takes;
}

Test(sharded, pointwise) {
  static const char *const numbers[] = {"f64", "i32", "bool"};
  for (int op = 0; op < N_OPS; op++)
    for (int k = 0; k < POINTWISE_SHAPES * ARRAY_LENGTH(numbers); k++) {
      if (!op_info((Op)op)->is_pointwise || is_by_global_index((Op)op))
        continue;
      Pointwise of = {(Op)op, numbers[k % ARRAY_LENGTH(numbers)],
                      k / ARRAY_LENGTH(numbers)};
      if (pointwise_takes(&of))
        check_case(make_pointwise, &of, op_info((Op)op)->name);
    }
  cr_assert_gt(n_played, 500);
  for (int op = 0; op < N_OPS; op++)
    cr_expect(was_split[op] || !op_info((Op)op)->is_pointwise ||
                  is_by_global_index((Op)op),
              "%s was never split", op_info((Op)op)->name);
}
