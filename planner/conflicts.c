/*
 * conflicts.c -- finds a smallest set of demands that no plan keeps together.
 *
 *     demands   memory, ranks, zero, a line     no plan keeps all of them
 *     without   memory: a plan   ranks: a plan  zero: a plan   the line: none
 *     conflict  memory, ranks, zero             no plan keeps these
 *
 * A demand without which there is a plan is in every conflict.  Where such
 * demands alone leave a plan, further ones are needed: one, if one suffices,
 * else those that a deletion filter leaves, which drops one demand after the
 * other and takes it back if there is a plan then.
 *
 * A search that finds nothing takes long, one that finds a plan ends there.
 * So demands are dropped together first, and one by one where there is a plan:
 *
 *     without zero, bucket, a line: none     so none without one of these
 *
 * and where fewer demands leave no plan, or more leave one, nothing is searched
 * again.  A plan that keeps more keeps these, too.
 *
 * A relaxation drops a member and whatever else keeps all plans away then.  Of
 * memory and ranks it names the least that suffices.
 */
#include "planner/conflicts.h"

#include <stdlib.h>

typedef struct Known {
  DemandSet dropped;
  bool has_plan;
  int64_t ranks; /* with which it was found; 0: those of the pins */
} Known;

typedef struct Finder {
  const ConflictInput *input;
  Conflict *out;
  VEC(Known) known;
  int64_t n_priced; /* by searches of the oracle */
} Finder;

/* An answer of the oracle; open: no more plans may be priced. */
typedef enum Answer { ANSWER_none, ANSWER_plan, ANSWER_open } Answer;

/* ---- the oracle ---- */

static bool is_stopped(const Finder *f) {
  return f->input->is_stopped(f->input->user);
}

static bool drops(const Finder *f, DemandSet set, DemandKind kind) {
  for (int i = 0; i < f->out->n_demands; i++)
    if (set >> i & 1 && f->out->demands[i].kind == kind) return true;
  return false;
}

/* Every rank has memory for its share of what all store together. */
static bool has_memory(const Finder *f, DemandSet dropped, int64_t ranks) {
  const ConflictInput *input = f->input;
  if (ranks == 0 && drops(f, dropped, DEMAND_mesh)) ranks = input->most_ranks;
  if (ranks == 0) ranks = input->ranks;
  return drops(f, dropped, DEMAND_memory) ||
         input->stored / ranks <= input->limit;
}

/* The smallest plan keeps all demands but that of memory. */
static bool is_smallest_enough(const Finder *f, DemandSet dropped,
                               int64_t ranks) {
  const ConflictInput *input = f->input;
  return input->smallest.text && drops(f, dropped, DEMAND_memory) &&
         !drops(f, dropped, DEMAND_mesh) &&
         (ranks == 0 || ranks == input->ranks);
}

static bool is_spent(const Finder *f) {
  return f->input->most_priced > 0 && f->n_priced >= f->input->most_priced;
}

static bool may_ask(const Finder *f) {
  return !is_spent(f) && !is_stopped(f);
}

/* Returns whether there is a plan on so many ranks. */
static bool fits_on(Finder *f, DemandSet dropped, int64_t ranks) {
  ConflictCase one = demands_without(f->input, f->out, dropped);
  Bytes limit = drops(f, dropped, DEMAND_memory) ? INT64_MAX : 0;
  one.ranks = ranks;
  if (is_smallest_enough(f, dropped, ranks)) return true;
  if (!has_memory(f, dropped, ranks)) return false;
  SearchResult found = f->input->lean(f->input->user, &one, limit);
  f->n_priced += found.n_priced;
  return found.has_plan;
}

/* Twice as many each time, up to all ranks of the cluster. */
static int64_t more_ranks(const Finder *f, int64_t ranks) {
  int64_t most = f->input->most_ranks;
  return ranks > most / 2 ? most : 2 * ranks;
}

static bool has_all(DemandSet set, DemandSet of) {
  return (of & ~set) == 0;
}

static const Known *find_known(const Finder *f, DemandSet dropped) {
  for (int i = 0; i < f->known.n; i++)
    if (f->known.data[i].dropped == dropped) return &f->known.data[i];
  return NULL;
}

/* Where ranks are open, more demands may leave a plan on fewer ranks: that of
 * fewer demands tells nothing unless it has the ranks of the pins. */
static bool tells(const Finder *f, const Known *known, DemandSet dropped) {
  bool is_open = drops(f, dropped, DEMAND_ranks);
  if (!known->has_plan) return has_all(known->dropped, dropped);
  return has_all(dropped, known->dropped) &&
         (!is_open || known->ranks == 0 || known->ranks == f->input->ranks);
}

static Answer recall(const Finder *f, DemandSet dropped) {
  const Known *known = find_known(f, dropped);
  if (known) return known->has_plan ? ANSWER_plan : ANSWER_none;
  for (int i = 0; i < f->known.n; i++)
    if (tells(f, &f->known.data[i], dropped))
      return f->known.data[i].has_plan ? ANSWER_plan : ANSWER_none;
  return ANSWER_open;
}

static void keep(Finder *f, DemandSet dropped, bool has_plan, int64_t ranks) {
  vec_push(f->input->arena, &f->known, ((Known){dropped, has_plan, ranks}));
}

static DemandSet ranks_among(const Finder *f, DemandSet dropped) {
  for (int i = 0; i < f->out->n_demands; i++)
    if (f->out->demands[i].kind == DEMAND_ranks)
      return dropped & (DemandSet)1 << i;
  return 0;
}

/* On fewer ranks there is no plan even without further demands. */
static int64_t first_ranks(const Finder *f, DemandSet dropped) {
  int64_t out = more_ranks(f, f->input->ranks);
  for (int i = 0; i < f->known.n; i++) {
    const Known *known = &f->known.data[i];
    if (has_all(known->dropped, dropped) && known->has_plan &&
        ranks_among(f, known->dropped) && known->ranks > out)
      out = known->ranks;
  }
  return out;
}

static Answer ask(Finder *f, DemandSet dropped);

/* The ranks of the pins, then more. */
static Answer ask_open(Finder *f, DemandSet dropped) {
  const ConflictInput *input = f->input;
  Answer on_same = ask(f, dropped & ~ranks_among(f, dropped));
  if (on_same == ANSWER_plan) keep(f, dropped, true, input->ranks);
  if (on_same != ANSWER_none) return on_same;
  int64_t ranks = input->ranks;
  while (ranks < input->most_ranks) {
    if (!may_ask(f)) return ANSWER_open;
    ranks =
        ranks == input->ranks ? first_ranks(f, dropped) : more_ranks(f, ranks);
    if (!fits_on(f, dropped, ranks)) continue;
    keep(f, dropped, true, ranks);
    return ANSWER_plan;
  }
  keep(f, dropped, false, ranks);
  return ANSWER_none;
}

/* Returns ANSWER_open if no more plans may be priced. */
static Answer ask(Finder *f, DemandSet dropped) {
  Answer known = recall(f, dropped);
  if (known != ANSWER_open || !may_ask(f)) return known;
  if (ranks_among(f, dropped)) return ask_open(f, dropped);
  bool has_plan = fits_on(f, dropped, 0);
  keep(f, dropped, has_plan, 0);
  return has_plan ? ANSWER_plan : ANSWER_none;
}

static bool has_plan(Finder *f, DemandSet dropped) {
  return ask(f, dropped) == ANSWER_plan;
}

static bool has_no_plan(Finder *f, DemandSet dropped) {
  return ask(f, dropped) == ANSWER_none;
}

/* ---- the conflict ---- */

static DemandSet bit(int i) {
  return (DemandSet)1 << i;
}

/* The first half of the members. */
static DemandSet half_of(DemandSet set) {
  DemandSet out = 0;
  for (int n = __builtin_popcount(set) / 2; n > 0; n--)
    out |= (set & ~out) & -(set & ~out);
  return out;
}

static bool is_single(DemandSet set) {
  return (set & (set - 1)) == 0;
}

/* Returns those of the set without which there is a plan, each by itself, and
 * those that may be so where no more plans are priced. */
static DemandSet find_needed(Finder *f, DemandSet set) {
  if (set == 0 || has_no_plan(f, set)) return 0;
  if (is_single(set)) return set;
  DemandSet half = half_of(set), first = find_needed(f, half);
  return first | find_needed(f, set & ~half);
}

/* Returns the demands that are dropped after those of the set are, one after
 * the other, where that leaves no plan. */
static DemandSet drop_more(Finder *f, DemandSet dropped, DemandSet set) {
  if (set == 0) return dropped;
  if (has_no_plan(f, dropped | set)) return dropped | set;
  if (is_single(set)) return dropped;
  DemandSet half = half_of(set);
  return drop_more(f, drop_more(f, dropped, half), set & ~half);
}

/* Returns a conflict that has all of `needed`; 0: no plan without demands. */
static DemandSet find_members(Finder *f, DemandSet needed) {
  int n = f->out->n_demands;
  DemandSet all = bit(n) - 1;
  if (has_no_plan(f, all & ~needed)) return needed;
  for (int i = 0; i < n; i++)
    if (!(needed >> i & 1) && has_no_plan(f, all & ~(needed | bit(i))))
      return needed | bit(i);
  return all & ~drop_more(f, 0, all & ~needed);
}

/* ---- relaxations ---- */

/* Returns the first of the set that suffices with what is dropped; 0: none. */
static DemandSet find_second(Finder *f, DemandSet dropped, DemandSet set) {
  if (set == 0 || !has_plan(f, dropped | set)) return 0;
  if (is_single(set)) return set;
  DemandSet half = half_of(set), found = find_second(f, dropped, half);
  return found ? found : find_second(f, dropped, set & ~half);
}

/* Those without which there is no plan, each by itself. */
static DemandSet insufficient(Finder *f, DemandSet first) {
  DemandSet out = 0;
  for (int i = 0; i < f->out->n_demands; i++)
    if (bit(i) != first && !has_plan(f, bit(i))) out |= bit(i);
  return out;
}

/* Returns the demands to drop with `first`: none, or one if one suffices, else
 * those outside of the conflict but for the ones that may stay. */
static DemandSet find_dropped(Finder *f, int first) {
  int n = f->out->n_demands;
  DemandSet dropped = bit(first);
  if (has_plan(f, dropped)) return dropped;
  DemandSet second = find_second(f, dropped, insufficient(f, dropped));
  if (second) return dropped | second;
  dropped |= (bit(n) - 1) & ~f->out->members;
  for (int i = 0; i < n; i++)
    if (i != first && dropped >> i & 1 && has_plan(f, dropped & ~bit(i)))
      dropped &= ~bit(i);
  return has_plan(f, dropped) ? dropped : 0;
}

/* Returns the least number of ranks in whole units with which there is a plan,
 * where more ranks have one if fewer have. */
static int64_t least_ranks(Finder *f, DemandSet dropped) {
  const Known *known = find_known(f, dropped);
  int64_t unit = f->input->unit_ranks;
  int64_t most = known ? known->ranks : f->input->ranks;
  int64_t less = most / 2 > f->input->ranks ? most / 2 : f->input->ranks;
  if (most <= f->input->ranks) return most;
  while (may_ask(f)) {
    int64_t middle = (less + most) / 2 / unit * unit;
    if (middle <= less) break;
    if (fits_on(f, dropped, middle))
      most = middle;
    else
      less = middle;
  }
  return most;
}

/* To four digits. */
static Bytes round_up(Bytes bytes) {
  Bytes unit = 1;
  while (bytes / unit >= 10000) unit *= 10;
  return (bytes + unit - 1) / unit * unit;
}

static Bytes least_memory(const Finder *f, const ConflictCase *one) {
  const ConflictInput *input = f->input;
  bool is_only = (one->dropped & (one->dropped - 1)) == 0;
  if (is_only && input->smallest.text)
    return round_up(input->smallest.price.peak);
  /* In one byte nothing fits: the search goes on to the smallest. */
  return round_up(input->lean(input->user, one, 1).best.price.peak);
}

static bool is_known(const Conflict *out, DemandSet dropped) {
  for (int i = 0; i < out->n_relaxations; i++)
    if (out->relaxations[i].dropped == dropped) return true;
  return false;
}

/* Only memory is dropped, and a plan is known that needs no more. */
static bool has_smallest(const Finder *f, DemandSet dropped) {
  bool is_memory = f->out->demands[0].kind == DEMAND_memory && dropped == 1;
  return is_memory && f->input->smallest.text;
}

/* In the bytes of the smallest plan hardly another one fits: where nothing but
 * this plan was searched for, a further search is as long as that one, and
 * where a search estimates that nothing fits, it is the plan. */
static void relax(Finder *f, DemandSet dropped) {
  const ConflictInput *input = f->input;
  Conflict *out = f->out;
  Relaxation *row = &out->relaxations[out->n_relaxations];
  if (dropped == 0 || is_known(out, dropped)) return;
  *row = (Relaxation){.dropped = dropped};
  ConflictCase one = demands_without(input, out, dropped);
  if (drops(f, dropped, DEMAND_ranks))
    one.ranks = row->ranks = least_ranks(f, dropped);
  if (drops(f, dropped, DEMAND_memory))
    one.memory = row->memory = least_memory(f, &one);
  SearchResult found = {0};
  bool is_known_to_fit = has_smallest(f, dropped);
  if (!is_known_to_fit || has_memory(f, 0, 0))
    found = input->best(input->user, &one);
  row->plan = found.best;
  if (!found.has_plan && is_known_to_fit)
    row->plan = input->printed(input->user, &input->smallest);
  out->n_relaxations += found.has_plan || is_known_to_fit;
}

static int compare(const void *a, const void *b) {
  const Relaxation *x = a, *y = b;
  if (x->plan.price.step != y->plan.price.step)
    return x->plan.price.step < y->plan.price.step ? -1 : 1;
  return x->dropped < y->dropped ? -1 : 1;
}

static void find_relaxations(Finder *f) {
  Conflict *out = f->out;
  for (int i = 0; i < out->n_demands && !is_stopped(f); i++)
    if (out->members >> i & 1) relax(f, find_dropped(f, i));
  qsort(out->relaxations, (size_t)out->n_relaxations, sizeof *out->relaxations,
        compare);
}

bool conflict_find(const ConflictInput *input, Conflict *out) {
  Finder f = {.input = input, .out = out};
  demands_of(input, out);
  DemandSet all = bit(out->n_demands) - 1;
  if (!has_plan(&f, all) || is_stopped(&f)) return false;
  DemandSet needed = find_needed(&f, all);
  out->members = find_members(&f, needed);
  out->is_cut = is_spent(&f);
  out->is_each_enough = out->members == needed && !out->is_cut;
  if (is_stopped(&f)) return false;
  find_relaxations(&f);
  return true;
}
