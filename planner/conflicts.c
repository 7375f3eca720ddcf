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
} Finder;

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

/* Returns whether there is a plan on so many ranks. */
static bool fits_on(const Finder *f, DemandSet dropped, int64_t ranks) {
  ConflictCase one = demands_without(f->input, f->out, dropped);
  Bytes limit = drops(f, dropped, DEMAND_memory) ? INT64_MAX : 0;
  one.ranks = ranks;
  if (is_smallest_enough(f, dropped, ranks)) return true;
  if (!has_memory(f, dropped, ranks)) return false;
  return f->input->lean(f->input->user, &one, limit).has_plan;
}

/* Twice as many each time, up to all ranks of the cluster. */
static int64_t more_ranks(const Finder *f, int64_t ranks) {
  int64_t most = f->input->most_ranks;
  return ranks > most / 2 ? most : 2 * ranks;
}

static const Known *ask(Finder *f, DemandSet dropped) {
  const ConflictInput *input = f->input;
  for (int i = 0; i < f->known.n; i++)
    if (f->known.data[i].dropped == dropped) return &f->known.data[i];
  bool is_open = drops(f, dropped, DEMAND_ranks);
  int64_t ranks = is_open ? input->ranks : 0;
  bool has_plan = fits_on(f, dropped, ranks);
  while (!has_plan && is_open && ranks < input->most_ranks && !is_stopped(f)) {
    ranks = more_ranks(f, ranks);
    has_plan = fits_on(f, dropped, ranks);
  }
  Known known = {dropped, has_plan, ranks};
  vec_push(input->arena, &f->known, known);
  return &f->known.data[f->known.n - 1];
}

static bool has_plan(Finder *f, DemandSet dropped) {
  return ask(f, dropped)->has_plan;
}

/* ---- the conflict ---- */

static DemandSet bit(int i) {
  return (DemandSet)1 << i;
}

/* The demands without which there is a plan, each by itself. */
static DemandSet find_needed(Finder *f) {
  DemandSet needed = 0;
  for (int i = 0; i < f->out->n_demands; i++)
    if (has_plan(f, bit(i))) needed |= bit(i);
  return needed;
}

/* Returns a conflict that has all of `needed`; 0: no plan without demands. */
static DemandSet find_members(Finder *f, DemandSet needed) {
  int n = f->out->n_demands;
  DemandSet all = bit(n) - 1;
  if (!has_plan(f, all & ~needed)) return needed;
  for (int i = 0; i < n; i++)
    if (!(needed >> i & 1) && !has_plan(f, all & ~(needed | bit(i))))
      return needed | bit(i);
  DemandSet dropped = 0;
  for (int i = 0; i < n; i++)
    if (!(needed >> i & 1) && !has_plan(f, dropped | bit(i))) dropped |= bit(i);
  return all & ~dropped;
}

/* ---- relaxations ---- */

/* Returns the demands to drop with `first`: none, or one if one suffices, else
 * those outside of the conflict but for the ones that may stay. */
static DemandSet find_dropped(Finder *f, int first) {
  int n = f->out->n_demands;
  DemandSet dropped = bit(first);
  if (has_plan(f, dropped)) return dropped;
  for (int i = 0; i < n; i++)
    if (i != first && !has_plan(f, bit(i)) && has_plan(f, dropped | bit(i)))
      return dropped | bit(i);
  dropped |= (bit(n) - 1) & ~f->out->members;
  for (int i = 0; i < n; i++)
    if (i != first && dropped >> i & 1 && has_plan(f, dropped & ~bit(i)))
      dropped &= ~bit(i);
  return has_plan(f, dropped) ? dropped : 0;
}

/* Returns the least number of ranks in whole units with which there is a plan,
 * where more ranks have one if fewer have. */
static int64_t least_ranks(Finder *f, DemandSet dropped) {
  int64_t unit = f->input->unit_ranks, most = ask(f, dropped)->ranks;
  int64_t less = most / 2 > f->input->ranks ? most / 2 : f->input->ranks;
  if (most <= f->input->ranks) return most;
  while (!is_stopped(f)) {
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
  DemandSet needed = find_needed(&f);
  out->members = find_members(&f, needed);
  out->is_each_enough = out->members == needed;
  if (is_stopped(&f)) return false;
  find_relaxations(&f);
  return true;
}
