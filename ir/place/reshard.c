/*
 * reshard.c -- finds the cheapest chain of steps between two placements of one
 * value.
 *
 *     f32[B:8@data, C:6]      -> f32[B:8, C:6@data]   all_to_all
 *     f32[C:6; sum@data]      -> f32[C:6@data]        reduce_scatter
 *     f32[B:8@(data, tensor)] -> f32[B:8@tensor]      permute, all_gather
 *
 * Dijkstra's algorithm (1959) runs over the placements that the value can have
 * when only those axes move whose placement differs; reshard_moves.c lists the
 * steps and the elements that they send.  A value that exists once per
 * micro-batch sends its bytes as often.  The order of all choices is fixed, so
 * equal questions have equal answers in every run.
 */
#include "ir/place/reshard_moves.h"

#include <string.h>

const char *reshard_name(ReshardKind kind) {
  static const char *const names[] = {
#define RESHARD(name, moves_data, meaning) #name,
#include "ir/place/reshard.def"
  };
  ASSERT((unsigned)kind < N_RESHARD_KINDS);
  return names[kind];
}

/* A question, without names of dims; compared by its bytes. */
typedef struct ReshardKey {
  Placement from, to;
  int64_t sizes[MAX_RANK];
  int32_t rank, element_bytes, from_kind, to_kind;
} ReshardKey;

typedef struct ReshardAnswer {
  ReshardKey key;
  struct ReshardAnswer *next; /* of the same hash */
  int n;                      /* -1: no chain */
  ReshardMove *moves;
  int64_t *bytes;
} ReshardAnswer;

struct Resharding {
  Arena *arena;
  const Mesh *mesh;
  Map *answers;  /* by the hash of the question */
  bool is_plain; /* chains leave out some steps */
};

Resharding *reshard_create(Arena *arena, const Mesh *mesh) {
  Resharding *table = ARENA_NEW(arena, Resharding);
  *table = (Resharding){arena, mesh, map_create(arena), false};
  return table;
}

Resharding *reshard_create_plain(Arena *arena, const Mesh *mesh) {
  Resharding *table = reshard_create(arena, mesh);
  table->is_plain = true;
  return table;
}

/* ---- the search ---- */

typedef struct ReshardVisit {
  Placement at;
  int64_t bytes, step_bytes;
  int n_steps, parent, next; /* next: of the same hash */
  bool is_done;
  ReshardMove move; /* that led here */
} ReshardVisit;

typedef struct Search {
  const ReshardProblem *problem;
  Arena *arena;
  int64_t bytes; /* the best known chain to the end: bytes, steps */
  int n_steps;
  VEC(ReshardVisit) visits;
  Map *index; /* hash of a placement -> 1 + number of its first visit */
  VEC(int) heap;
} Search;

/* By bytes, then steps, then the order of discovery. */
static bool is_before(const Search *s, int a, int b) {
  const ReshardVisit *x = &s->visits.data[a], *y = &s->visits.data[b];
  if (x->bytes != y->bytes) return x->bytes < y->bytes;
  if (x->n_steps != y->n_steps) return x->n_steps < y->n_steps;
  return a < b;
}

static void heap_swap(Search *s, int i, int j) {
  int kept = s->heap.data[i];
  s->heap.data[i] = s->heap.data[j];
  s->heap.data[j] = kept;
}

static void heap_push(Search *s, int visit) {
  vec_push(s->arena, &s->heap, visit);
  for (int i = s->heap.n - 1; i > 0; i = (i - 1) / 2) {
    if (!is_before(s, s->heap.data[i], s->heap.data[(i - 1) / 2])) break;
    heap_swap(s, i, (i - 1) / 2);
  }
}

static int heap_pop(Search *s) {
  int top = s->heap.data[0];
  s->heap.data[0] = s->heap.data[--s->heap.n];
  for (int i = 0;;) {
    int least = i;
    for (int child = 2 * i + 1; child <= 2 * i + 2; child++)
      if (child < s->heap.n &&
          is_before(s, s->heap.data[child], s->heap.data[least]))
        least = child;
    if (least == i) return top;
    heap_swap(s, i, least);
    i = least;
  }
}

/* Notes a visit of a placement if there is none yet or the
 * chain that is offered is better. */
static void offer(Search *s, const ReshardVisit *offered) {
  uint64_t hash = hash_bytes(&offered->at, sizeof offered->at, 0);
  void *key = (void *)(uintptr_t)hash; /* NOLINT: a Map takes 64-bit keys */
  int first = (int)(intptr_t)map_get(s->index, key);
  for (int i = first; i > 0; i = s->visits.data[i - 1].next) {
    ReshardVisit *old = &s->visits.data[i - 1];
    if (memcmp(&old->at, &offered->at, sizeof old->at) != 0) continue;
    bool is_better =
        offered->bytes < old->bytes ||
        (offered->bytes == old->bytes && offered->n_steps < old->n_steps);
    if (!is_better) return;
    old->is_done = true; /* its place in the heap is skipped */
  }
  vec_push(s->arena, &s->visits, *offered);
  s->visits.data[s->visits.n - 1].next = first;
  map_put(s->index, key, (void *)(intptr_t)s->visits.n);
  heap_push(s, s->visits.n - 1);
}

/* How often a step is made in a training step. */
static int64_t repeats(const ReshardProblem *p, const Placement *at) {
  int64_t times = 1;
  AxisSet set = (AxisSet)at->partial;
  for (int d = 0; d < p->rank; d++) set |= axis_list_set(at->splits[d]);
  for (int a = 0; a < p->mesh->n_axes; a++)
    if (set >> a & 1 && p->mesh->axes[a].is_sequential)
      times *= p->mesh->axes[a].size;
  return times;
}

static bool joins_microbatches(const Mesh *mesh, AxisSet group) {
  for (int a = 0; a < mesh->n_axes; a++)
    if (group >> a & 1 && mesh->axes[a].is_sequential) return true;
  return false;
}

/* Micro-batches are joined in the memory of a rank. */
static int64_t bytes_of(const ReshardProblem *p, const Placement *at,
                        const ReshardMove *move) {
  if (joins_microbatches(p->mesh, move->group)) return 0;
  return move->elements * p->element_bytes * repeats(p, at);
}

static bool is_plain_move(const ReshardProblem *p, const ReshardMove *move) {
  bool moves_dim = move->from_dim >= 0 || move->to_dim >= 0;
  if (move->kind == RESHARD_permute) return false;
  if (move->kind == RESHARD_all_to_all && move->axes != move->to_axes)
    return false;
  return move->kind == RESHARD_slice || !moves_dim ||
         !joins_microbatches(p->mesh, move->group);
}

/* Visits are taken in order, and chains only grow: a visit that is no better
 * than a known one of the end is never taken, so it need not be noted. */
static bool may_be_taken(const Search *s, int64_t bytes, int n_steps) {
  return bytes < s->bytes || (bytes == s->bytes && n_steps < s->n_steps);
}

/* Offers the placement behind a step. */
static void follow(Search *s, int parent, const ReshardVisit *at,
                   const ReshardMove *move, const Placement *to) {
  int64_t step_bytes = bytes_of(s->problem, &at->at, move);
  int64_t bytes = at->bytes + step_bytes;
  int n_steps = at->n_steps + 1;
  if (!may_be_taken(s, bytes, n_steps)) return;
  offer(s, &(ReshardVisit){.at = move->after,
                           .bytes = bytes,
                           .step_bytes = step_bytes,
                           .n_steps = n_steps,
                           .parent = parent,
                           .move = *move});
  if (memcmp(&move->after, to, sizeof *to) != 0) return;
  s->bytes = bytes;
  s->n_steps = n_steps;
}

/* The visit of `to`, or -1. */
static int search(Search *s, const Placement *from, const Placement *to) {
  ReshardMoves moves = {0};
  s->bytes = INT64_MAX;
  offer(s, &(ReshardVisit){.at = *from, .parent = -1});
  while (s->heap.n > 0) {
    int id = heap_pop(s);
    ReshardVisit at = s->visits.data[id];
    if (at.is_done) continue;
    if (memcmp(&at.at, to, sizeof *to) == 0) return id;
    s->visits.data[id].is_done = true;
    if (!may_be_taken(s, at.bytes, at.n_steps + 1)) continue;
    moves.n = 0;
    reshard_moves(s->problem, &at.at, s->arena, &moves);
    for (int i = 0; i < moves.n; i++)
      if (!s->problem->is_plain || is_plain_move(s->problem, &moves.data[i]))
        follow(s, id, &at, &moves.data[i], to);
  }
  return -1;
}

/* ---- questions ---- */

static int common_length(AxisList a, AxisList b) {
  int n = 0;
  while (a && b && (a & 15) == (b & 15)) {
    a >>= 4;
    b >>= 4;
    n++;
  }
  return n;
}

static AxisSet axes_after(AxisList list, int n) {
  return axis_list_set(n < 8 ? list >> 4 * n : 0);
}

static ReshardProblem problem_of(const Resharding *table,
                                 const ReshardKey *key) {
  AxisSet from = (AxisSet)key->from.partial, to = (AxisSet)key->to.partial;
  ReshardProblem p = {.mesh = table->mesh,
                      .is_plain = table->is_plain,
                      .rank = key->rank,
                      .element_bytes = key->element_bytes,
                      .live = from ^ to,
                      .reducible = from & (AxisSet)~to,
                      .zero_filled = to & (AxisSet)~from,
                      .was_partial = from,
                      .may_fill_beside = key->from_kind == REDUCE_sum};
  for (int d = 0; d < p.rank; d++) {
    AxisList a = key->from.splits[d], b = key->to.splits[d];
    p.sizes[d] = key->sizes[d];
    p.is_live[d] = a != b;
    p.n_fixed[d] = common_length(a, b);
    p.live |= axes_after(a, p.n_fixed[d]) | axes_after(b, p.n_fixed[d]);
  }
  return p;
}

static void answer(const Resharding *table, Arena *scratch,
                   ReshardAnswer *out) {
  ReshardProblem problem = problem_of(table, &out->key);
  Search s = {
      .problem = &problem, .arena = scratch, .index = map_create(scratch)};
  int id = search(&s, &out->key.from, &out->key.to);
  out->n = id < 0 ? -1 : s.visits.data[id].n_steps;
  ASSERT(out->n <= MAX_RESHARD_STEPS);
  if (out->n <= 0) return;
  out->moves = ARENA_ARRAY(table->arena, ReshardMove, out->n);
  out->bytes = ARENA_ARRAY(table->arena, int64_t, out->n);
  for (int i = out->n - 1; i >= 0; i--) {
    out->moves[i] = s.visits.data[id].move;
    out->bytes[i] = s.visits.data[id].step_bytes;
    id = s.visits.data[id].parent;
  }
}

static const ReshardAnswer *ask(Resharding *table, const ReshardKey *key) {
  uint64_t hash = hash_bytes(key, sizeof *key, 0);
  void *at = (void *)(uintptr_t)hash; /* NOLINT: a Map takes 64-bit keys */
  ReshardAnswer *first = map_get(table->answers, at);
  for (ReshardAnswer *old = first; old; old = old->next)
    if (memcmp(&old->key, key, sizeof *key) == 0) return old;
  ReshardAnswer *made = ARENA_NEW(table->arena, ReshardAnswer);
  made->key = *key;
  made->next = first;
  Arena *scratch = arena_beside(table->arena);
  answer(table, scratch, made);
  arena_destroy(scratch);
  map_put(table->answers, at, made);
  return made;
}

/* ---- types ---- */

static AxisSet split_axes(const Type *type) {
  AxisSet set = 0;
  for (int d = 0; d < type->rank; d++)
    set |= axis_list_set(type->dims[d].split);
  return set;
}

/* Why the value cannot become partial so; NULL: it can. */
static const char *partial_mistake(const Resharding *table, const Type *from,
                                   const Type *to) {
  for (int a = 0; a < table->mesh->n_axes; a++) {
    if (!(to->partial >> a & 1)) continue;
    const char *axis = table->mesh->axes[a].name;
    const char *kind = reduce_name(to->partial_kind);
    if (from->partial >> a & 1) {
      if (from->partial_kind == to->partial_kind) continue;
      return arena_printf(table->arena,
                          "a partial %s over '%s' is no partial %s",
                          reduce_name(from->partial_kind), axis, kind);
    }
    if (split_axes(from) >> a & 1)
      return arena_printf(table->arena,
                          "axis '%s' shards the value; only a replicated value "
                          "becomes a partial sum",
                          axis);
    if (to->partial_kind != REDUCE_sum)
      return arena_printf(table->arena,
                          "a value that is replicated over '%s' becomes a "
                          "partial sum only, not a partial %s",
                          axis, kind);
    if (table->mesh->axes[a].is_sequential)
      return arena_printf(table->arena,
                          "a value that exists once per step is not a partial "
                          "sum over micro-batches ('%s')",
                          axis);
  }
  return NULL;
}

static ReshardKey key_of(const Type *from, const Type *to) {
  ReshardKey key;
  memset(&key, 0, sizeof key);
  key.rank = from->rank;
  key.element_bytes = dtype_size_bytes(from->dtype);
  key.from.partial = from->partial;
  key.to.partial = to->partial;
  key.from_kind = from->partial ? from->partial_kind : REDUCE_sum;
  key.to_kind = to->partial ? to->partial_kind : REDUCE_sum;
  for (int d = 0; d < from->rank; d++) {
    key.sizes[d] = from->dims[d].size;
    key.from.splits[d] = from->dims[d].split;
    key.to.splits[d] = to->dims[d].split;
  }
  return key;
}

static const Type *placed_type(Arena *arena, const Type *from, const Type *to,
                               const Placement *at) {
  Type *type = type_create(arena, from->dtype, from->rank);
  for (int d = 0; d < from->rank; d++) {
    type->dims[d] = from->dims[d];
    type->dims[d].split = at->splits[d];
  }
  type->partial = (AxisSet)at->partial;
  bool is_old = (at->partial & from->partial) != 0;
  if (at->partial)
    type->partial_kind = is_old ? from->partial_kind : to->partial_kind;
  return type;
}

int reshard_steps(Resharding *table, const Type *from, const Type *to,
                  ReshardStep *out, const char **out_reason) {
  ASSERT(from->dtype == to->dtype && type_same_shape(from, to));
  *out_reason = partial_mistake(table, from, to);
  if (*out_reason) return -1;
  ReshardKey key = key_of(from, to);
  const ReshardAnswer *found = ask(table, &key);
  if (found->n < 0) *out_reason = "micro-batches cannot be rearranged so";
  for (int i = 0; i < found->n; i++) {
    const ReshardMove *move = &found->moves[i];
    out[i] = (ReshardStep){.kind = move->kind,
                           .group = move->group,
                           .axes = move->axes,
                           .to_axes = move->to_axes,
                           .from_dim = move->from_dim,
                           .to_dim = move->to_dim,
                           .bytes = found->bytes[i]};
    out[i].type = placed_type(table->arena, from, to, &move->after);
  }
  return found->n;
}

bool reshard_op(ReshardKind kind, Op *out) {
  switch (kind) {
  case RESHARD_all_gather: *out = OP_all_gather; return true;
  case RESHARD_reduce_scatter: *out = OP_reduce_scatter; return true;
  case RESHARD_all_to_all: *out = OP_all_to_all; return true;
  case RESHARD_all_reduce: *out = OP_all_reduce; return true;
  case RESHARD_permute: *out = OP_permute; return true;
  case RESHARD_slice:
  case RESHARD_zero_fill:
  case N_RESHARD_KINDS: break;
  }
  return false;
}
