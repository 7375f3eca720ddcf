// links: ir support
/*
 * edge_pieces.c -- tests the pieces of edges between random placements: each
 * element of each receiver comes from one sender that has it, once, and runs
 * are contiguous; and who sends what in small cases.
 */
#include "ir/place/edge_pieces.h"
#include "tests/unit/values.h"

TestSuite(edge_pieces, .fini = modules_destroy);

typedef struct Dice {
  uint64_t key, n;
} Dice;

static int roll(Dice *dice, int n) {
  return (int)random_below(dice->key, dice->n++, (uint64_t)n);
}

/* ---- random placements ---- */

static Name letter(Module *module, const char *word, int i) {
  return name_format(module->names, "%s%d", word, i);
}

/* Axes of ranks, and one of micro-batches in front of them in lists. */
static Mesh random_mesh(Module *module, Dice *dice, int n_microbatches) {
  Mesh mesh = {.n_axes = roll(dice, 3)};
  for (int a = 0; a < mesh.n_axes; a++)
    mesh.axes[a] = (MeshAxis){letter(module, "axis", a), 2 + roll(dice, 3), 0};
  if (n_microbatches > 1)
    mesh.axes[mesh.n_axes++] =
        (MeshAxis){letter(module, "time", 0), n_microbatches, true};
  return mesh;
}

/* The first dim is that of the batch. */
static const Type *random_type(Module *module, Dice *dice, const Mesh *mesh,
                               const int64_t *sizes, int rank) {
  Type *type = type_create(module->arena, DT_f32, rank);
  for (int d = 0; d < rank; d++)
    type->dims[d] = (Dim){letter(module, "D", d), sizes[d], 0};
  AxisList time = axis_list_of_set(mesh_sequential(mesh));
  type->dims[0].split = time;
  for (int a = 0; a < mesh->n_axes; a++) {
    int d = roll(dice, rank + 1);
    if (d < rank && !mesh->axes[a].is_sequential)
      type->dims[d].split = axis_list_append(type->dims[d].split, a);
  }
  return type;
}

/* ---- the check ---- */

static int64_t logical_at(const EdgeSide *side, int rank, int64_t element) {
  MeshPlace place = mesh_place(side->mesh, rank, 0);
  return local_to_logical(&place, side->type, element);
}

static void check_pieces(const EdgeSide *from, const EdgeSide *to) {
  Arena *arena = module_create()->arena;
  EdgePieces pieces = edge_pieces(arena, from, to);
  int64_t n = type_local_elements(to->type, to->mesh);
  int64_t n_sent = type_local_elements(from->type, from->mesh);
  int *times = ARENA_ARRAY(arena, int, to->n_ranks *(int)n);
  for (int i = 0; i < pieces.n; i++) {
    const EdgePiece *piece = &pieces.data[i];
    const EdgePiece *before = i > 0 ? piece - 1 : NULL;
    if (before)
      cr_assert(before->from < piece->from ||
                (before->from == piece->from && before->to < piece->to));
    for (int r = 0; r < piece->n_runs; r++)
      for (int64_t k = 0; k < piece->run; k++) {
        int64_t a = piece->from_at[r] + k, b = piece->to_at[r] + k;
        cr_assert(a < n_sent && b < n);
        times[piece->to * n + b]++;
        cr_assert_eq(logical_at(from, piece->from, a),
                     logical_at(to, piece->to, b));
      }
  }
  int64_t n_runs = 0;
  for (int i = 0; i < pieces.n; i++) n_runs += pieces.data[i].n_runs;
  cr_assert_eq(edge_runs(arena, from, to), n_runs);
  for (int rank = 0; rank < to->n_ranks; rank++)
    for (int64_t i = 0; i < n; i++)
      cr_assert_eq(times[rank * n + i], logical_at(to, rank, i) >= 0);
}

Test(edge_pieces, bring_each_element_once) {
  for (uint64_t seed = 1; seed <= 400; seed++) {
    Dice dice = {seed, 0};
    Module *module = module_create();
    int n_microbatches = 1 + roll(&dice, 2), rank = 1 + roll(&dice, 3);
    int64_t sizes[3];
    for (int d = 0; d < rank; d++) sizes[d] = 1 + roll(&dice, 9);
    /* Uneven where there is one micro-batch. */
    if (n_microbatches > 1)
      sizes[0] = n_microbatches * 48 * (1 + roll(&dice, 2));
    Mesh a = random_mesh(module, &dice, n_microbatches);
    Mesh b = random_mesh(module, &dice, n_microbatches);
    EdgeSide from = {random_type(module, &dice, &a, sizes, rank), &a,
                     mesh_ranks(&a)};
    EdgeSide to = {random_type(module, &dice, &b, sizes, rank), &b,
                   mesh_ranks(&b)};
    check_pieces(&from, &to);
    modules_destroy();
  }
}

/* ---- small cases ---- */

/* "0>0 0>1": senders and receivers. */
static const char *pairs_text(Module *module, const EdgePieces *pieces) {
  Text text = text_create(module->arena);
  for (int i = 0; i < pieces->n; i++)
    text_printf(&text, "%s%d>%d:%lld", i ? " " : "", pieces->data[i].from,
                pieces->data[i].to,
                (long long)edge_piece_elements(&pieces->data[i]));
  return text_string(&text);
}

static EdgeSide side_of(Module *module, int n_ranks, bool is_split) {
  Mesh *mesh = ARENA_NEW(module->arena, Mesh);
  if (n_ranks > 1)
    *mesh = (Mesh){1, {{letter(module, "axis", 0), n_ranks, false}}};
  Type *type = type_create(module->arena, DT_f32, 1);
  type->dims[0] = (Dim){letter(module, "D", 0), 12, 0};
  if (is_split && n_ranks > 1) type->dims[0].split = axis_list_append(0, 0);
  return (EdgeSide){type, mesh, n_ranks};
}

Test(edge_pieces, receivers_are_dealt_out_among_replicas) {
  static const struct {
    int n_from, n_to;
    bool splits_from, splits_to;
    const char *text;
    int most;
  } cases[] = {
      {3, 1, true, false, "0>0:4 1>0:4 2>0:4", 3},
      {1, 3, false, true, "0>0:4 0>1:4 0>2:4", 3},
      {4, 2, false, false, "0>0:12 2>1:12", 1},
      {2, 4, false, false, "0>0:12 0>1:12 1>2:12 1>3:12", 2},
      {2, 2, true, false, "0>0:6 0>1:6 1>0:6 1>1:6", 2},
      {2, 2, false, true, "0>0:6 1>1:6", 1},
      {3, 2, true, true, "0>0:4 1>0:2 1>1:2 2>1:4", 2},
  };
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Module *module = module_create();
    EdgeSide from = side_of(module, cases[i].n_from, cases[i].splits_from);
    EdgeSide to = side_of(module, cases[i].n_to, cases[i].splits_to);
    cr_expect_not(edge_sides_equal(&from, &to));
    EdgePieces pieces = edge_pieces(module->arena, &from, &to);
    cr_expect_str_eq(pairs_text(module, &pieces), cases[i].text);
    cr_expect_eq(edge_pieces_most(module->arena, &pieces), cases[i].most);
  }
  Module *module = module_create();
  EdgeSide side = side_of(module, 3, true);
  cr_expect(edge_sides_equal(&side, &side));
}

/* Ranks of a stage without a mesh all have the value. */
Test(edge_pieces, ranks_without_a_mesh_are_replicas) {
  Module *module = module_create();
  EdgeSide from = side_of(module, 1, false), to = from;
  from.n_ranks = 2;
  to.n_ranks = 3;
  EdgePieces pieces = edge_pieces(module->arena, &from, &to);
  cr_expect_str_eq(pairs_text(module, &pieces), "0>0:12 0>1:12 1>2:12");
}
