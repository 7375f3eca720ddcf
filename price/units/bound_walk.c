/*
 * bound_walk.c -- tries weights for each setting, and more of them where the
 * bound is the least.
 *
 * The bound of a setting is that of the best weights and price of memory that
 * are tried; the bound of the space is the least of its settings.  Work goes to
 * the setting with the least bound, until no mean that is tried helps it.
 */
#include "price/units/bound_walk.h"

#include <math.h>

#include "price/units/bound_planes.h"

typedef struct WalkedSetting {
  BoundSetting is;
  const void *tables;
  Ps bound;
  BoundWeights weights;
  BoundBy by;
  VEC(BoundWeights) tried;
  int effort; /* of the list of efforts: those that were made */
} WalkedSetting;

typedef struct BoundWalk {
  Arena *arena;
  const BoundRequest *r;
  const BoundEvaluator *e;
  VEC(WalkedSetting *) settings;
  BoundWeights last; /* the best ones of the setting that was tried last */
  const char *reason;
} BoundWalk;

void bound_setting_print(Text *out, const BoundSetting *setting) {
  const Mesh *mesh = setting->mesh;
  for (int a = 0; a < mesh->n_axes; a++)
    text_printf(out, "%s%d", a ? " x " : "mesh ", mesh->axes[a].size);
  if (setting->groups > 1)
    text_printf(out, "%s%d groups of ranks", mesh->n_axes ? " on each of " : "",
                setting->groups);
  text_printf(out, "%sZeRO %d, micro-batches %lld%s",
              mesh->n_axes || setting->groups > 1 ? ", " : "", setting->zero,
              (long long)setting->microbatches,
              setting->recomputes ? ", blocks computed again" : "");
}

/* The mean of loads that bounds the step, in words. */
static void print_work(Text *out, const BoundWeights *weights) {
  text_add(out, "kernels of the model on the devices of all ranks, of which "
                "each does no more than fits in the step (a second of each "
                "kind is worth");
  for (int i = 0; i < weights->n_kinds; i++)
    text_printf(out, "%s %.3g", i ? "," : "", weights->of_kind[i]);
  text_add(out, ")");
}

void bound_print_limit(Text *out, const Bound *bound) {
  if (bound->by == BOUND_BY_work) {
    print_work(out, &bound->weights);
    return;
  }
  if (bound->by == BOUND_BY_chain)
    text_add(out, "one micro-batch through all stages and back");
  else
    bound_limit_print(out, &bound->weights);
  if (bound->by == BOUND_BY_operator)
    text_add(out, ", of one operator on one group of ranks");
  text_add(out, " (");
  bound_setting_print(out, &bound->setting);
  text_add(out, ")");
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
    s->by = at.by;
  }
  return at;
}

static bool has_weights(const BoundWeights *a, const BoundWeights *b) {
  bool is_equal = a->split == b->split;
  int of_links = 0;
  for (int k = 0; k < N_BOUND_WEIGHTS; k++) {
    is_equal &= a->of[k] == b->of[k];
    if (k != BOUND_forward_stream && k != BOUND_backward_stream &&
        k != BOUND_backward_chain)
      of_links += a->of[k];
  }
  return is_equal && (of_links == 0 || a->link == b->link);
}

/* Returns false if they have been noted, with some price of memory. */
static bool note_weights(BoundWalk *b, WalkedSetting *s,
                         const BoundWeights *weights) {
  for (int i = 0; i < s->tried.n; i++)
    if (has_weights(&s->tried.data[i], weights)) return false;
  vec_push(b->arena, &s->tried, *weights);
  return true;
}

/* The bound at a price of memory, and how it changes with the price. */
typedef struct PricedBound {
  double price, time, slope;
} PricedBound;

/* The bound is a concave function of the price of memory, below the lines along
 * its slopes.  Returns the most that it may be between two prices, where two
 * lines meet, and that price. */
static double most_between(const PricedBound *low, const PricedBound *high,
                           double *out_price) {
  double rise = high->time - low->time + low->slope * low->price -
                high->slope * high->price;
  double price = rise / (low->slope - high->slope);
  /* A sum that is too low may belong to other bytes. */
  if (!(price > low->price && price < high->price))
    price = (low->price + high->price) / 2;
  *out_price = price;
  return low->time + low->slope * (price - low->price);
}

/* A bound that is higher by less is not worth an answer. */
static Ps worth_of(const WalkedSetting *s) {
  enum { PARTS = 10000 };
  return s->bound + s->bound / PARTS;
}

/* Memory gets the price at which the least plan has about the bytes of a rank:
 * there the bound is highest. */
static void price_memory(BoundWalk *b, WalkedSetting *s, BoundWeights weights,
                         const BoundAnswer *free) {
  enum { MOST_PRICES = 8 };
  double memory = (double)b->r->memory, price = s->weights.per_byte;
  PricedBound low = {0, (double)free->time, (double)free->bytes - memory};
  PricedBound high = {0};
  if (price <= 0) price = b->last.per_byte;
  if (price <= 0) price = low.time / memory;
  for (int i = 0; i < MOST_PRICES && s->bound < b->r->step; i++) {
    weights.per_byte = price;
    BoundAnswer at = ask(b, s, &weights);
    PricedBound now = {price, (double)at.time, (double)at.bytes - memory};
    *(now.slope > 0 ? &low : &high) = now;
    if (high.price == 0) {
      price *= 4;
      continue;
    }
    double most = most_between(&low, &high, &price);
    if (most <= (double)worth_of(s)) return;
  }
}

static bool may_pass(const BoundWalk *b, const WalkedSetting *s,
                     const BoundWeights *weights) {
  BoundQuestion question = {&s->is, s->tables, *weights};
  return !b->e->may_pass || b->e->may_pass(b->e->user, &question, worth_of(s));
}

/* Returns false if there is no answer. */
static bool try_weights(BoundWalk *b, WalkedSetting *s, BoundWeights weights) {
  if (!bound_weights_suit(&weights, s->is.groups) ||
      !note_weights(b, s, &weights) || !may_pass(b, s, &weights))
    return true;
  weights.per_byte = 0;
  BoundAnswer at = ask(b, s, &weights);
  if (!at.is_known || b->reason) return false;
  if (at.bytes > b->r->memory) price_memory(b, s, weights, &at);
  return true;
}

/* Without those of links, which come last, a start says nothing of its link. */
static const int8_t starts[][N_BOUND_WEIGHTS] = {
    {64, 0, 64, 0, 0, 0},   {64, 0, 32, 32, 0, 0}, {64, 0, 0, 64, 0, 0},
    {64, 0, 48, 16, 0, 0},  {64, 0, 32, 0, 32, 0}, {64, 0, 0, 0, 64, 0},
    {64, 0, 16, 16, 32, 0}, {32, 32, 0, 0, 64, 0}, {32, 32, 32, 0, 32, 0},
    {32, 0, 32, 0, 0, 32}};
enum { FIRST_WITH_LINK = 4, PARTS_OF_64 = BOUND_ONE / 64 };

static BoundWeights stream_alone(void) {
  BoundWeights stream = {.split = -1};
  stream.of[BOUND_forward_stream] = stream.of[BOUND_backward_stream] =
      BOUND_ONE;
  return stream;
}

/* Returns false if there is no answer. */
static bool try_first(BoundWalk *b, WalkedSetting *s) {
  BoundWeights stream = stream_alone();
  BoundAnswer at = ask(b, s, &stream);
  const BoundWeights *known =
      b->e->known ? b->e->known(b->e->user, &s->is) : NULL;
  if (known && s->bound < b->r->step && bound_weights_suit(known, s->is.groups))
    ask(b, s, known);
  return at.is_known && !b->reason;
}

/* The best weights of one setting are often good for the next one. */
static void try_known(BoundWalk *b, WalkedSetting *s) {
  if (b->r->first && bound_weights_suit(b->r->first, s->is.groups))
    ask(b, s, b->r->first);
  if (s->bound < b->r->step) try_weights(b, s, stream_alone());
  if (s->bound < b->r->step && b->last.split >= -1) try_weights(b, s, b->last);
}

static void try_starts(BoundWalk *b, WalkedSetting *s) {
  for (int i = 0; i < ARRAY_LENGTH(starts) && s->bound < b->r->step; i++) {
    int n_links = i < FIRST_WITH_LINK ? 1 : N_LOAD_LINKS;
    if (i > 0 && s->is.mesh->n_axes == 0) break;
    for (int l = 0; l < n_links && s->bound < b->r->step; l++) {
      BoundWeights w = {.link = l, .split = -1};
      for (int k = 0; k < N_BOUND_WEIGHTS; k++)
        w.of[k] = starts[i][k] * PARTS_OF_64;
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

/* Adds the assignments of answers that came since. */
static void add_planes(const BoundWalk *b, const BoundQuestion *question,
                       BoundPlanes *planes) {
  BoundLoads loads;
  while (b->e->loads &&
         b->e->loads(b->e->user, question, planes->list.n, &loads))
    vec_push(b->arena, &planes->list, loads);
}

/* Asks for the weights that are best for the assignments that are known, until
 * no weights can help.  Returns whether none can: not where a sum is too low to
 * be that of an assignment. */
static bool try_planes(BoundWalk *b, WalkedSetting *s, int link, int split) {
  enum { MOST_PLANES = 40 };
  double most = INFINITY;
  BoundPlanes planes = {.setting = &s->is, .memory = b->r->memory};
  BoundQuestion question = {&s->is, s->tables, {.link = link, .split = split}};
  for (int i = 0; i < MOST_PLANES && s->bound < b->r->step && !b->reason; i++) {
    double before = most;
    int n = planes.list.n;
    add_planes(b, &question, &planes);
    if (planes.list.n == n) return false;
    Arena *scratch = arena_beside(b->arena);
    most = bound_planes_best(scratch, &planes, &question.weights);
    arena_destroy(scratch);
    if (most <= (double)worth_of(s)) return true;
    if (most >= before) return false;
    if (question.weights.per_byte > 0)
      ask(b, s, &question.weights);
    else
      try_weights(b, s, question.weights);
  }
  return false;
}

/* Moves weight from one load to another while that helps. */
static void try_moves(BoundWalk *b, WalkedSetting *s) {
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
        w.of[k] += moves[i][k] * step * PARTS_OF_64;
        is_legal &= w.of[k] >= 0;
      }
      Ps before = s->bound;
      if (is_legal) try_weights(b, s, w);
      is_better |= s->bound > before;
    }
    if (is_better) step *= 2;
  }
}

static void refine(BoundWalk *b, WalkedSetting *s) {
  int split = s->weights.split;
  bool is_best = true;
  for (int link = 0; link < N_LOAD_LINKS; link++)
    is_best &= try_planes(b, s, link, split);
  if (!is_best) try_moves(b, s);
}

/* ---- settings ---- */

/* One rank has the same state under each level. */
static unsigned zeros_of(const BoundWalk *b, const BoundSetting *first) {
  unsigned zeros = b->r->zeros;
  bool is_alone = first->groups > 1 && first->mesh->n_axes == 0;
  return is_alone ? zeros & -zeros : zeros;
}

/* Settings of the same tables.  A schedule of stages may compute again what no
 * block leaves, also without blocks. */
static bool add_settings(BoundWalk *b, const BoundSetting *first,
                         const void *tables) {
  bool may_recompute = b->r->may_recompute || first->groups > 1;
  unsigned zeros = zeros_of(b, first);
  for (int zero = 0; zero < N_ZERO_LEVELS; zero++)
    for (int again = 0; again <= may_recompute; again++) {
      if (!(zeros >> zero & 1)) continue;
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

static bool make_settings(BoundWalk *b, int groups, const Mesh *mesh,
                          int64_t microbatches) {
  int last = microbatches > 1 ? (1 << mesh->n_axes) - 1 : 0;
  for (int axes = 0; axes <= last; axes++) {
    BoundSetting first = {.mesh = mesh,
                          .groups = groups,
                          .microbatches = microbatches,
                          .batch_axes = microbatches > 1 ? axes : ANY_AXES};
    const void *tables = b->e->open(b->e->user, &first, &b->reason);
    if (b->reason) return false;
    if (tables && !add_settings(b, &first, tables)) return false;
  }
  return true;
}

static bool walk_microbatches(BoundWalk *b, int groups, const Mesh *mesh) {
  const BoundRequest *r = b->r;
  if (r->microbatches) return make_settings(b, groups, mesh, r->microbatches);
  int64_t most = r->most_microbatches;
  if (most == 0 || most > r->batch) most = r->batch;
  for (int64_t m = 1; m <= most && r->batch % m == 0; m *= 2)
    if (!make_settings(b, groups, mesh, m)) return false;
  return true;
}

static bool walk_meshes(BoundWalk *b, int groups) {
  int64_t ranks = b->r->ranks / groups;
  if (b->r->mesh) return walk_microbatches(b, groups, b->r->mesh);
  for (int64_t outer = 1; outer <= ranks; outer++) {
    if (ranks % outer != 0 || (outer == 1 && ranks > 1)) continue;
    Mesh *mesh = ARENA_NEW(b->arena, Mesh);
    int64_t sizes[] = {outer, ranks / outer};
    for (int i = 0; i < 2; i++)
      if (sizes[i] > 1)
        mesh->axes[mesh->n_axes++] = (MeshAxis){.name = i ? "inner" : "outer",
                                                .size = (int32_t)sizes[i]};
    if (!walk_microbatches(b, groups, mesh)) return false;
  }
  return true;
}

static bool walk_groups(BoundWalk *b) {
  int least = b->r->least_groups > 1 ? b->r->least_groups : 1;
  for (int groups = least; groups == 1 || groups <= b->r->most_groups; groups++)
    if (b->r->ranks % groups == 0 && !walk_meshes(b, groups)) return false;
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
static Effort *const efforts[] = {try_known, try_starts, try_splits,
                                  refine,    try_splits, refine};
enum { N_CHEAP = 1 };

Bound bound_walk(Arena *arena, const BoundRequest *request,
                 const BoundEvaluator *evaluator) {
  enum { MOST_EFFORTS = 200 };
  BoundWalk b = {
      .arena = arena, .r = request, .e = evaluator, .last = {.split = -2}};
  if (!walk_groups(&b)) return (Bound){.reason = b.reason};
  WalkedSetting *s = least_setting(&b);
  for (int i = 0; i < MOST_EFFORTS && s && s->effort < ARRAY_LENGTH(efforts) &&
                  s->bound<request->step; i += s->effort> N_CHEAP) {
    efforts[s->effort++](&b, s);
    b.last = s->weights;
    if (b.reason) return (Bound){.reason = b.reason};
    s = least_setting(&b);
  }
  if (!s)
    return (Bound){.reason = "no setting has a plan that fits",
                   .is_empty = true};
  return (Bound){.time = s->bound < request->step ? s->bound : request->step,
                 .setting = s->is,
                 .weights = s->weights,
                 .by = s->by};
}
