/*
 * reshard_moves.c -- lists the single steps from a placement with the elements
 * that each sends.
 *
 * A dim of n elements over an ordered list of axes has shards of ceil(n / k)
 * elements, k the product of the axes; the first axis is the outermost.  Shards
 * over (a) and over (a, b) are aligned when each shard over (a) consists of
 * complete shards over (a, b).  For 5 elements on a mesh 2 x 2 they are not:
 *
 *     over a:      [0 1 2] [3 4]
 *     over (a, b): [0 1] [2 3] [4] []
 *
 * Collectives join and divide aligned shards only; between unaligned ones a
 * permute brings the missing elements.  A dim that no axis shards is aligned
 * with all.
 */
#include "ir/place/reshard_moves.h"

/* Ordered lists of distinct axes out of seven: 7 + 42 + ... + 5,040. */
#define MAX_SEQUENCES 13699
_Static_assert(MAX_AXES == 7, "MAX_SEQUENCES counts the lists of 7 axes");

typedef struct Sequences {
  int n;
  AxisList lists[MAX_SEQUENCES];
} Sequences;

typedef struct MoveWalk {
  const ReshardProblem *p;
  const Placement *at;
  Arena *arena;
  ReshardMoves *out;
  AxisSet free; /* live axes over which the value is replicated */
  Sequences sequences;
} MoveWalk;

/* ---- lists of axes ---- */

static AxisSet ranks_of(const Mesh *mesh, AxisSet set, bool is_sequential) {
  AxisSet result = 0;
  for (int a = 0; a < mesh->n_axes; a++)
    if (set >> a & 1 && mesh->axes[a].is_sequential == is_sequential)
      result |= (AxisSet)(1u << a);
  return result;
}

static void extend_sequences(Sequences *all, AxisList list, AxisSet rest) {
  for (int a = 0; a < MAX_AXES; a++) {
    if (!(rest >> a & 1)) continue;
    ASSERT(all->n < MAX_SEQUENCES);
    AxisList longer = axis_list_append(list, a);
    all->lists[all->n++] = longer;
    extend_sequences(all, longer, (AxisSet)(rest & ~(1u << a)));
  }
}

/* No ranks exchange data in a slice, so it may also take micro-batches. */
static const Sequences *slice_sequences(MoveWalk *w) {
  w->sequences.n = 0;
  extend_sequences(&w->sequences, 0, w->free);
  return &w->sequences;
}

/* Ranks and micro-batches never work together in a step that moves data. */
static const Sequences *sequences_of(MoveWalk *w, AxisSet set) {
  Sequences *all = &w->sequences;
  all->n = 0;
  extend_sequences(all, 0, ranks_of(w->p->mesh, set, false));
  extend_sequences(all, 0, ranks_of(w->p->mesh, set, true));
  return all;
}

static bool is_one_kind(const Mesh *mesh, AxisSet set) {
  return ranks_of(mesh, set, true) == 0 || ranks_of(mesh, set, false) == 0;
}

static bool has_sequential(const Mesh *mesh, AxisSet set) {
  return ranks_of(mesh, set, true) != 0;
}

/* ---- sizes ---- */

static int64_t ceil_div(int64_t n, int64_t k) {
  return (n + k - 1) / k;
}

static int64_t shard_size(const ReshardProblem *p, int dim, AxisList split) {
  return ceil_div(p->sizes[dim], axis_list_shards(split, p->mesh));
}

static int64_t local_elements(const ReshardProblem *p, const Placement *at) {
  int64_t n = 1;
  for (int d = 0; d < p->rank; d++) n *= shard_size(p, d, at->splits[d]);
  return n;
}

/* `longer` continues `shorter`. */
static bool is_aligned(const ReshardProblem *p, int dim, AxisList shorter,
                       AxisList longer) {
  if (!shorter) return true;
  int64_t parts =
      axis_list_shards(longer, p->mesh) / axis_list_shards(shorter, p->mesh);
  return shard_size(p, dim, longer) * parts == shard_size(p, dim, shorter);
}

static int64_t overlap(int64_t a, int64_t a_end, int64_t b, int64_t b_end) {
  int64_t first = a > b ? a : b, end = a_end < b_end ? a_end : b_end;
  return end > first ? end - first : 0;
}

/* Most elements of the dim that a rank lacks, where `longer` continues
 * `shorter` and one replaces the other. */
static int64_t most_missing(const ReshardProblem *p, int dim, AxisList shorter,
                            AxisList longer, bool to_longer) {
  int64_t n = p->sizes[dim], most = 0;
  int64_t n_shards = axis_list_shards(longer, p->mesh);
  int64_t parts = n_shards / axis_list_shards(shorter, p->mesh);
  int64_t big = shard_size(p, dim, shorter), small = shard_size(p, dim, longer);
  for (int64_t i = 0, next; i < n_shards; i = next) {
    int64_t at = i / parts * big, end = at + big < n ? at + big : n;
    int64_t at2 = i * small, end2 = at2 + small < n ? at2 + small : n;
    int64_t shared = overlap(at, end, at2, end2);
    int64_t wanted = to_longer ? end2 - at2 : end - at;
    if (wanted - shared > most) most = wanted - shared;
    /* Shards behind the last element are equal within a part. */
    next = at2 < n ? i + 1 : (i / parts + 1) * parts;
  }
  return most;
}

/* ---- steps ---- */

static void add_move(const MoveWalk *w, ReshardMove move) {
  vec_push(w->arena, w->out, move);
}

static ReshardMove move_of(const MoveWalk *w, ReshardKind kind, AxisList axes) {
  return (ReshardMove){.kind = kind,
                       .axes = axes,
                       .group = axis_list_set(axes),
                       .from_dim = -1,
                       .to_dim = -1,
                       .after = *w->at};
}

static int64_t others(const MoveWalk *w, AxisList axes) {
  return axis_list_shards(axes, w->p->mesh) - 1;
}

/* Elements missing after a dim changed between unaligned shards. */
static void add_shift(const MoveWalk *w, int dim, AxisList shorter,
                      AxisList longer, bool to_longer) {
  if (has_sequential(w->p->mesh, axis_list_set(longer))) return;
  ReshardMove move =
      move_of(w, RESHARD_permute, axis_list_of_set(axis_list_set(longer)));
  move.from_dim = move.to_dim = dim;
  move.after.splits[dim] = to_longer ? longer : shorter;
  move.elements =
      most_missing(w->p, dim, shorter, longer, to_longer) *
      (local_elements(w->p, w->at) / shard_size(w->p, dim, w->at->splits[dim]));
  add_move(w, move);
}

static void add_slices(MoveWalk *w, int dim) {
  AxisList split = w->at->splits[dim];
  const Sequences *all = slice_sequences(w);
  for (int i = 0; i < all->n; i++) {
    AxisList longer = axis_list_join(split, all->lists[i]);
    if (!is_aligned(w->p, dim, split, longer)) {
      add_shift(w, dim, split, longer, true);
      continue;
    }
    ReshardMove move = move_of(w, RESHARD_slice, all->lists[i]);
    move.to_dim = dim;
    move.after.splits[dim] = longer;
    add_move(w, move);
  }
}

static void add_gathers(const MoveWalk *w, int dim) {
  AxisList split = w->at->splits[dim], suffix;
  int n = axis_list_length(split);
  for (int keep = w->p->n_fixed[dim]; keep < n; keep++) {
    AxisList head = axis_list_head(split, keep);
    axis_list_continues(split, head, &suffix);
    if (!is_one_kind(w->p->mesh, axis_list_set(suffix))) continue;
    if (!is_aligned(w->p, dim, head, split)) {
      add_shift(w, dim, head, split, false);
      continue;
    }
    ReshardMove move = move_of(w, RESHARD_all_gather, suffix);
    move.from_dim = dim;
    move.after.splits[dim] = head;
    move.elements = others(w, suffix) * local_elements(w->p, w->at);
    add_move(w, move);
  }
}

static void add_reduce_scatters(MoveWalk *w, int dim) {
  const ReshardProblem *p = w->p;
  AxisList split = w->at->splits[dim];
  const Sequences *all = sequences_of(
      w, ranks_of(p->mesh, p->reducible & (AxisSet)w->at->partial, false));
  for (int i = 0; i < all->n; i++) {
    AxisList longer = axis_list_join(split, all->lists[i]);
    if (!is_aligned(p, dim, split, longer)) continue;
    ReshardMove move = move_of(w, RESHARD_reduce_scatter, all->lists[i]);
    move.to_dim = dim;
    move.after.splits[dim] = longer;
    move.after.partial &= ~(uint32_t)move.group;
    move.elements = others(w, move.axes) * local_elements(p, &move.after);
    add_move(w, move);
  }
}

static void add_all_to_all(const MoveWalk *w, int from, int to, AxisList head,
                           AxisList suffix, AxisList order) {
  const ReshardProblem *p = w->p;
  AxisList longer = axis_list_join(w->at->splits[to], order);
  if (!is_aligned(p, to, w->at->splits[to], longer)) return;
  ReshardMove move = move_of(w, RESHARD_all_to_all, suffix);
  move.to_axes = order;
  move.from_dim = from;
  move.to_dim = to;
  Placement block = *w->at;
  block.splits[to] = move.after.splits[to] = longer;
  move.after.splits[from] = head;
  move.elements = others(w, suffix) * local_elements(p, &block);
  add_move(w, move);
}

static void add_all_to_alls(MoveWalk *w, int from) {
  const ReshardProblem *p = w->p;
  AxisList split = w->at->splits[from], suffix;
  int n = axis_list_length(split);
  for (int keep = p->n_fixed[from]; keep < n; keep++) {
    AxisList head = axis_list_head(split, keep);
    axis_list_continues(split, head, &suffix);
    AxisSet set = axis_list_set(suffix);
    if (has_sequential(p->mesh, set) || !is_aligned(p, from, head, split))
      continue;
    const Sequences *all = sequences_of(w, set);
    for (int to = 0; to < p->rank; to++)
      for (int i = 0; p->is_live[to] && to != from && i < all->n; i++)
        if (axis_list_set(all->lists[i]) == set)
          add_all_to_all(w, from, to, head, suffix, all->lists[i]);
  }
}

static void add_all_reduces(const MoveWalk *w) {
  AxisSet left = w->p->reducible & (AxisSet)w->at->partial;
  for (unsigned set = 1; set <= left; set++) {
    if ((set & left) != set || !is_one_kind(w->p->mesh, (AxisSet)set)) continue;
    ReshardMove move =
        move_of(w, RESHARD_all_reduce, axis_list_of_set((AxisSet)set));
    int64_t k = others(w, move.axes) + 1;
    move.after.partial &= ~set;
    move.elements = 2 * (k - 1) * ceil_div(local_elements(w->p, w->at), k);
    add_move(w, move);
  }
}

/* All at once: it is free, and more of them is not better. */
static void add_zero_fill(const MoveWalk *w) {
  const ReshardProblem *p = w->p;
  AxisSet set = p->zero_filled & w->free;
  if (!set || set != (p->zero_filled & ~w->at->partial)) return;
  if (w->at->partial & p->was_partial && !p->may_fill_beside) return;
  ReshardMove move = move_of(w, RESHARD_zero_fill, axis_list_of_set(set));
  move.after.partial |= set;
  add_move(w, move);
}

/* ---- permutes between shards of equal sizes ---- */

/* Gives each live dim from `dim` on any list with as many shards as it has. */
static void permute_dims(const MoveWalk *w, ReshardMove *move, int dim,
                         AxisSet unused);

static void permute_dim(const MoveWalk *w, ReshardMove *move, int dim,
                        AxisList list, AxisSet unused) {
  const Mesh *mesh = w->p->mesh;
  int64_t wanted = axis_list_shards(w->at->splits[dim], mesh);
  int64_t has = axis_list_shards(list, mesh);
  if (has == wanted) {
    move->after.splits[dim] = list;
    permute_dims(w, move, dim + 1, unused);
  }
  if (wanted % has != 0) return;
  for (int a = 0; a < mesh->n_axes; a++)
    if (unused >> a & 1 && mesh->axes[a].size > 1)
      permute_dim(w, move, dim, axis_list_append(list, a),
                  (AxisSet)(unused & ~(1u << a)));
}

static void permute_dims(const MoveWalk *w, ReshardMove *move, int dim,
                         AxisSet unused) {
  const ReshardProblem *p = w->p;
  while (dim < p->rank && !p->is_live[dim]) dim++;
  if (dim < p->rank) {
    AxisList fixed = axis_list_head(w->at->splits[dim], p->n_fixed[dim]);
    permute_dim(w, move, dim, fixed, unused);
    return;
  }
  AxisSet changed = 0;
  for (int d = 0; d < p->rank; d++)
    if (move->after.splits[d] != w->at->splits[d])
      changed |= axis_list_set(move->after.splits[d]) |
                 axis_list_set(w->at->splits[d]);
  if (!changed) return;
  ReshardMove found = *move;
  found.group = changed;
  found.axes = axis_list_of_set(changed);
  found.elements = local_elements(p, w->at);
  add_move(w, found);
}

static void add_permutes(const MoveWalk *w) {
  const ReshardProblem *p = w->p;
  AxisSet movable = p->live & (AxisSet)~w->at->partial;
  ReshardMove move = move_of(w, RESHARD_permute, 0);
  for (int d = 0; d < p->rank; d++)
    if (p->is_live[d] &&
        has_sequential(p->mesh, axis_list_set(w->at->splits[d]) & movable))
      return;
  permute_dims(w, &move, 0, ranks_of(p->mesh, movable, false));
}

void reshard_moves(const ReshardProblem *problem, const Placement *at,
                   Arena *arena, ReshardMoves *out) {
  MoveWalk w;
  w.p = problem;
  w.at = at;
  w.arena = arena;
  w.out = out;
  w.free = problem->live & (AxisSet)~at->partial;
  for (int d = 0; d < problem->rank; d++)
    w.free &= (AxisSet)~axis_list_set(at->splits[d]);
  for (int d = 0; d < problem->rank; d++) {
    if (!problem->is_live[d]) continue;
    add_slices(&w, d);
    add_gathers(&w, d);
    add_reduce_scatters(&w, d);
    add_all_to_alls(&w, d);
  }
  add_all_reduces(&w);
  add_zero_fill(&w);
  if (!problem->is_plain) add_permutes(&w);
}
