/*
 * edge_pieces.c -- finds what each rank of a stage sends to each rank of
 * another one, from the placements of the value on both meshes.
 *
 *     sender     B:6 over data = 3     rank 0: rows 0..1, rank 1: 2..3, ...
 *     receiver   B:6 on one rank       rank 0: rows 0..5
 *
 *     pieces     0 -> 0  rows 0..1 at row 0
 *                1 -> 0  rows 0..1 at row 2
 *                2 -> 0  rows 0..1 at row 4
 *
 * A shard is a box of the logical tensor, so a piece is the box that two shards
 * have in common.  The shards of the first micro-batch stand for those of all:
 * on both sides the split of the batch begins with the micro-batches, or ranks
 * have as many shards of it and it ends with them.  So all shards move by equal
 * numbers of samples.
 */
#include "ir/place/edge_pieces.h"

#include <stdlib.h>

/* The elements that a rank has of a tensor, by dim. */
typedef struct Box {
  int64_t begin[MAX_RANK], size[MAX_RANK]; /* size: without padding */
  int64_t local[MAX_RANK];                 /* with it */
} Box;

static int rank_of_mesh(const EdgeSide *side, int rank) {
  return rank % mesh_ranks(side->mesh);
}

static Box box_of(const EdgeSide *side, int rank) {
  Box box;
  MeshPlace place = mesh_place(side->mesh, rank_of_mesh(side, rank), 0);
  for (int d = 0; d < side->type->rank; d++) {
    box.begin[d] = shard_begin(&place, side->type, d);
    box.size[d] = shard_valid(&place, side->type, d);
    box.local[d] = type_local_size(side->type, side->mesh, d);
  }
  return box;
}

static bool boxes_equal(const Box *a, const Box *b, int rank) {
  for (int d = 0; d < rank; d++)
    if (a->begin[d] != b->begin[d] || a->size[d] != b->size[d] ||
        a->local[d] != b->local[d])
      return false;
  return true;
}

bool edge_sides_equal(const EdgeSide *from, const EdgeSide *to) {
  if (from->n_ranks != to->n_ranks) return false;
  for (int r = 0; r < from->n_ranks; r++) {
    Box a = box_of(from, r), b = box_of(to, r);
    if (!boxes_equal(&a, &b, from->type->rank)) return false;
  }
  return true;
}

/* Returns whether they have elements in common. */
static bool meet(const Box *a, const Box *b, int rank, Box *out) {
  for (int d = 0; d < rank; d++) {
    int64_t end_a = a->begin[d] + a->size[d], end_b = b->begin[d] + b->size[d];
    int64_t end = end_a < end_b ? end_a : end_b;
    out->begin[d] = a->begin[d] > b->begin[d] ? a->begin[d] : b->begin[d];
    out->size[d] = end - out->begin[d];
    if (out->size[d] <= 0) return false;
  }
  return true;
}

/* The inner dims of which both sides have all that the box has, as one run. */
static int first_of_run(const Box *box, const Box *from, const Box *to,
                        int rank) {
  int d = rank;
  while (d > 0) {
    d--;
    if (box->size[d] != from->local[d] || box->size[d] != to->local[d]) break;
  }
  return d;
}

/* Offset of the first element of run `number` in a local value. */
static int64_t run_at(const Box *box, const Box *side, int rank, int first,
                      int64_t number) {
  int64_t offset = 0, stride = 1;
  for (int d = rank - 1; d >= 0; d--) {
    int64_t at = box->begin[d] - side->begin[d];
    if (d < first) {
      at += number % box->size[d];
      number /= box->size[d];
    }
    offset += at * stride;
    stride *= side->local[d];
  }
  return offset;
}

static int64_t count_runs(const Box *box, const Box *from, const Box *to,
                          int rank) {
  int64_t n = 1;
  int first = rank == 0 ? 0 : first_of_run(box, from, to, rank);
  for (int d = 0; d < first; d++) n *= box->size[d];
  return n;
}

static EdgePiece make_piece(Arena *arena, const Box *box, const Box *from,
                            const Box *to, int rank) {
  EdgePiece piece = {.run = 1, .n_runs = (int)count_runs(box, from, to, rank)};
  int first = rank == 0 ? 0 : first_of_run(box, from, to, rank);
  for (int d = first; d < rank; d++) piece.run *= box->size[d];
  int64_t *from_at = ARENA_ARRAY(arena, int64_t, piece.n_runs);
  int64_t *to_at = ARENA_ARRAY(arena, int64_t, piece.n_runs);
  for (int i = 0; i < piece.n_runs; i++) {
    from_at[i] = run_at(box, from, rank, first, i);
    to_at[i] = run_at(box, to, rank, first, i);
  }
  piece.from_at = from_at;
  piece.to_at = to_at;
  return piece;
}

/* Ranks that have the same box as the first of them, ascending. */
typedef struct Replicas {
  int n;
  int *ranks;
} Replicas;

static Replicas replicas_of(Arena *arena, const Box *boxes, int n, int first,
                            int rank) {
  Replicas replicas = {0, ARENA_ARRAY(arena, int, n)};
  for (int i = first; i < n; i++)
    if (boxes_equal(&boxes[i], &boxes[first], rank))
      replicas.ranks[replicas.n++] = i;
  return replicas;
}

static bool is_first_replica(const Box *boxes, int at, int rank) {
  for (int i = 0; i < at; i++)
    if (boxes_equal(&boxes[i], &boxes[at], rank)) return false;
  return true;
}

static Box *boxes_of(Arena *arena, const EdgeSide *side) {
  Box *boxes = ARENA_ARRAY(arena, Box, side->n_ranks);
  for (int r = 0; r < side->n_ranks; r++) boxes[r] = box_of(side, r);
  return boxes;
}

/* Pieces out of one shard: receivers in their order are dealt out in equal
 * numbers among the ranks that have it. */
static void add_pieces(Arena *arena, const EdgeSide *to, const Box *receivers,
                       const Box *shard, const Replicas *senders, int rank,
                       EdgePieces *out) {
  int n = 0, at = 0;
  Box common;
  for (int r = 0; r < to->n_ranks; r++)
    n += meet(shard, &receivers[r], rank, &common);
  for (int r = 0; r < to->n_ranks; r++) {
    if (!meet(shard, &receivers[r], rank, &common)) continue;
    EdgePiece piece = make_piece(arena, &common, shard, &receivers[r], rank);
    piece.from = senders->ranks[(int64_t)at++ * senders->n / n];
    piece.to = r;
    vec_push(arena, out, piece);
  }
}

/* Pairs of ranks are in it once: two ranks have one shard in common at most. */
static int compare_pieces(const void *a, const void *b) {
  const EdgePiece *first = a, *second = b;
  if (first->from != second->from) return first->from < second->from ? -1 : 1;
  return (first->to > second->to) - (first->to < second->to);
}

EdgePieces edge_pieces(Arena *arena, const EdgeSide *from, const EdgeSide *to) {
  EdgePieces pieces = {0};
  int rank = from->type->rank;
  ASSERT(type_same_shape(from->type, to->type) && !from->type->partial &&
         !to->type->partial);
  const Box *senders = boxes_of(arena, from), *receivers = boxes_of(arena, to);
  for (int s = 0; s < from->n_ranks; s++) {
    if (!is_first_replica(senders, s, rank)) continue;
    Replicas replicas = replicas_of(arena, senders, from->n_ranks, s, rank);
    add_pieces(arena, to, receivers, &senders[s], &replicas, rank, &pieces);
  }
  if (pieces.n > 1)
    qsort(pieces.data, (size_t)pieces.n, sizeof *pieces.data, compare_pieces);
  return pieces;
}

int64_t edge_runs(Arena *arena, const EdgeSide *from, const EdgeSide *to) {
  int64_t n = 0;
  int rank = from->type->rank;
  const Box *senders = boxes_of(arena, from), *receivers = boxes_of(arena, to);
  Box common;
  for (int s = 0; s < from->n_ranks; s++) {
    if (!is_first_replica(senders, s, rank)) continue;
    for (int r = 0; r < to->n_ranks; r++)
      if (meet(&senders[s], &receivers[r], rank, &common))
        n += count_runs(&common, &senders[s], &receivers[r], rank);
  }
  return n;
}

int64_t edge_piece_elements(const EdgePiece *piece) {
  return piece->run * piece->n_runs;
}

int edge_pieces_most(Arena *arena, const EdgePieces *pieces) {
  int n_ranks = 0, most = 1;
  for (int i = 0; i < pieces->n; i++) {
    const EdgePiece *piece = &pieces->data[i];
    int greatest = piece->from > piece->to ? piece->from : piece->to;
    if (greatest >= n_ranks) n_ranks = greatest + 1;
  }
  int *sent = ARENA_ARRAY(arena, int, n_ranks);
  int *received = ARENA_ARRAY(arena, int, n_ranks);
  for (int i = 0; i < pieces->n; i++) {
    int a = ++sent[pieces->data[i].from], b = ++received[pieces->data[i].to];
    if (a > most) most = a;
    if (b > most) most = b;
  }
  return most;
}
