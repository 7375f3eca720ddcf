/*
 * bound_walk.c -- tries weights for each setting, and more of them where the
 * bound is the least.
 *
 * The bound of a setting is that of the best weights and price of memory that
 * are tried; the bound of the space is the least of its settings.  Work goes to
 * the setting with the least bound, until no mean that is tried helps it.
 */
#include "price/units/bound_walk.h"

typedef struct WalkedSetting {
  BoundSetting is;
  const void *tables;
  Ps bound;
  BoundWeights weights;
  int effort; /* of the list of efforts: those that were made */
} WalkedSetting;

typedef struct BoundWalk {
  Arena *arena;
  const BoundRequest *r;
  const BoundEvaluator *e;
  VEC(WalkedSetting *) settings;
  BoundWeights last; /* that were the best of a setting */
  const char *reason;
} BoundWalk;

void bound_setting_print(Text *out, const BoundSetting *setting) {
  const Mesh *mesh = setting->mesh;
  for (int a = 0; a < mesh->n_axes; a++)
    text_printf(out, "%s%d", a ? " x " : "mesh ", mesh->axes[a].size);
  text_printf(out, "%sZeRO %d, micro-batches %lld%s", mesh->n_axes ? ", " : "",
              setting->zero, (long long)setting->microbatches,
              setting->recomputes ? ", blocks computed again" : "");
}

/* ---- the best weights of a setting ---- */

static BoundAnswer ask(BoundWalk *b, WalkedSetting *s,
                       const BoundWeights *weights) {
  BoundQuestion question = {&s->is, s->tables, *weights};
  BoundAnswer at = b->e->answer(b->e->user, &question);
  if (b->r->is_stopped && b->r->is_stopped(b->r->user))
    b->reason = "the search was stopped";
  if (at.is_known && at.time > s->bound) {
    s->bound = at.time;
    s->weights = *weights;
  }
  return at;
}

/* Returns false if there is no answer.  Memory gets a price where the least
 * plan does not fit: the price that makes the bytes those of a rank is best. */
static bool try_weights(BoundWalk *b, WalkedSetting *s, BoundWeights weights) {
  enum { MOST_PRICES = 8 };
  weights.per_byte = 0;
  BoundAnswer at = ask(b, s, &weights);
  if (!at.is_known || b->reason) return false;
  if (at.bytes <= b->r->memory) return true;
  double low = 0, high = 0, price = b->last.per_byte;
  if (price <= 0) price = (double)at.time / (double)b->r->memory;
  for (int i = 0; i < MOST_PRICES && s->bound < b->r->step; i++) {
    weights.per_byte = price;
    at = ask(b, s, &weights);
    if (at.bytes > b->r->memory)
      low = price;
    else
      high = price;
    price = high > 0 ? (low + high) / 2 : price * 4;
  }
  return true;
}

/* Without those of links, which come last, a start says nothing of its link. */
static const int8_t starts[][N_BOUND_WEIGHTS] = {
    {64, 0, 64, 0, 0, 0},   {64, 0, 32, 32, 0, 0}, {64, 0, 0, 64, 0, 0},
    {64, 0, 48, 16, 0, 0},  {64, 0, 32, 0, 32, 0}, {64, 0, 0, 0, 64, 0},
    {64, 0, 16, 16, 32, 0}, {32, 32, 0, 0, 64, 0}, {32, 32, 32, 0, 32, 0},
    {32, 0, 32, 0, 0, 32}};
enum { FIRST_WITH_LINK = 4 };

/* The best weights of a setting are often good for the next one. */
static bool try_first(BoundWalk *b, WalkedSetting *s) {
  BoundWeights stream = {.split = -1};
  stream.of[BOUND_forward_stream] = stream.of[BOUND_backward_stream] =
      BOUND_ONE;
  if (!try_weights(b, s, stream)) return false;
  if (s->bound < b->r->step && b->r->first) ask(b, s, b->r->first);
  if (s->bound < b->r->step && b->last.split >= -1) try_weights(b, s, b->last);
  b->last = s->weights;
  return true;
}

static void try_starts(BoundWalk *b, WalkedSetting *s) {
  for (int i = 0; i < ARRAY_LENGTH(starts) && s->bound < b->r->step; i++) {
    int n_links = i < FIRST_WITH_LINK ? 1 : N_LOAD_LINKS;
    if (i > 0 && b->r->ranks == 1) break;
    for (int l = 0; l < n_links && s->bound < b->r->step; l++) {
      BoundWeights w = {.link = l, .split = -1};
      for (int k = 0; k < N_BOUND_WEIGHTS; k++) w.of[k] = starts[i][k];
      try_weights(b, s, w);
    }
  }
}

static void try_splits(BoundWalk *b, WalkedSetting *s) {
  BoundWeights w = s->weights;
  for (int i = 0; i < b->r->units->splits.n && s->bound < b->r->step; i++) {
    w.split = i;
    try_weights(b, s, w);
  }
}

/* Moves weight from one load to another while that helps. */
static void refine(BoundWalk *b, WalkedSetting *s) {
  static const int8_t moves[][N_BOUND_WEIGHTS] = {
      {0, 0, -1, 1, 0, 0},  {0, 0, 1, -1, 0, 0}, {0, 0, -1, 0, 1, 0},
      {0, 0, 1, 0, -1, 0},  {0, 0, 0, -1, 1, 0}, {0, 0, 0, 1, -1, 0},
      {-1, 1, 0, 0, 0, 0},  {1, -1, 0, 0, 0, 0}, {-1, 0, -1, 0, 0, 1},
      {-1, 0, 0, 0, -1, 1}, {1, 0, 1, 0, 0, -1}, {1, 0, 0, 0, 1, -1}};
  for (int step = 16; step >= 2 && s->bound < b->r->step; step /= 2) {
    bool is_better = false;
    for (int i = 0; i < ARRAY_LENGTH(moves) && s->bound < b->r->step; i++) {
      BoundWeights w = s->weights;
      bool is_legal = true;
      for (int k = 0; k < N_BOUND_WEIGHTS; k++) {
        w.of[k] += moves[i][k] * step;
        is_legal &= w.of[k] >= 0;
      }
      Ps before = s->bound;
      if (is_legal) try_weights(b, s, w);
      is_better |= s->bound > before;
    }
    if (is_better) step *= 2;
  }
}

/* ---- settings ---- */

/* Settings of the same tables. */
static bool add_settings(BoundWalk *b, const BoundSetting *first,
                         const void *tables) {
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++)
    for (int again = 0; again <= b->r->may_recompute; again++) {
      if (!(b->r->zeros >> zero & 1)) continue;
      WalkedSetting *s = ARENA_NEW(b->arena, WalkedSetting);
      *s = (WalkedSetting){*first, tables, .bound = -1};
      s->is.zero = zero;
      s->is.recomputes = again;
      BoundQuestion question = {&s->is, tables, {.split = -1}};
      if (b->e->least_bytes(b->e->user, &question) > b->r->memory) continue;
      vec_push(b->arena, &b->settings, s);
      if (!try_first(b, s)) {
        if (!b->reason) b->reason = "a table would be too large";
        return false;
      }
    }
  return true;
}

static bool make_settings(BoundWalk *b, const Mesh *mesh,
                          int64_t microbatches) {
  int last = microbatches > 1 ? (1 << mesh->n_axes) - 1 : 0;
  for (int axes = 0; axes <= last; axes++) {
    BoundSetting first = {.mesh = mesh,
                          .microbatches = microbatches,
                          .batch_axes = microbatches > 1 ? axes : ANY_AXES};
    const void *tables = b->e->open(b->e->user, &first, &b->reason);
    if (b->reason) return false;
    if (tables && !add_settings(b, &first, tables)) return false;
  }
  return true;
}

static bool walk_microbatches(BoundWalk *b, const Mesh *mesh) {
  const BoundRequest *r = b->r;
  if (r->microbatches) return make_settings(b, mesh, r->microbatches);
  for (int64_t m = 1; m <= r->batch && r->batch % m == 0; m *= 2)
    if (!make_settings(b, mesh, m)) return false;
  return true;
}

static bool walk_meshes(BoundWalk *b) {
  const BoundRequest *r = b->r;
  if (r->mesh) return walk_microbatches(b, r->mesh);
  for (int64_t outer = 1; outer <= r->ranks; outer++) {
    if (r->ranks % outer != 0 || (outer == 1 && r->ranks > 1)) continue;
    Mesh *mesh = ARENA_NEW(b->arena, Mesh);
    int64_t sizes[] = {outer, r->ranks / outer};
    for (int i = 0; i < 2; i++)
      if (sizes[i] > 1)
        mesh->axes[mesh->n_axes++] = (MeshAxis){.name = i ? "inner" : "outer",
                                                .size = (int32_t)sizes[i]};
    if (!walk_microbatches(b, mesh)) return false;
  }
  return true;
}

static WalkedSetting *least_setting(const BoundWalk *b) {
  WalkedSetting *best = NULL;
  for (int i = 0; i < b->settings.n; i++) {
    WalkedSetting *s = b->settings.data[i];
    if (!best || s->bound < best->bound) best = s;
  }
  return best;
}

/* Only the setting whose bound is the least is worth one. */
typedef void Effort(BoundWalk *b, WalkedSetting *s);
static Effort *const efforts[] = {try_starts, try_splits, refine, try_splits};

Bound bound_walk(Arena *arena, const BoundRequest *request,
                 const BoundEvaluator *evaluator) {
  enum { MOST_EFFORTS = 200 };
  BoundWalk b = {
      .arena = arena, .r = request, .e = evaluator, .last = {.split = -2}};
  if (!walk_meshes(&b)) return (Bound){.reason = b.reason};
  WalkedSetting *s = least_setting(&b);
  for (int i = 0; i < MOST_EFFORTS && s && s->effort < ARRAY_LENGTH(efforts);
       i++) {
    efforts[s->effort++](&b, s);
    if (b.reason) return (Bound){.reason = b.reason};
    s = least_setting(&b);
  }
  if (!s) return (Bound){.reason = "no setting has a plan that fits"};
  return (Bound){.time = s->bound < request->step ? s->bound : request->step,
                 .setting = s->is,
                 .weights = s->weights};
}
