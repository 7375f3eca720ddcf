// links: planner ir support
/*
 * conflicts.c -- tests the search for pins in conflict with an oracle that has
 * a list of conflicts in place of a compiler.
 */
#include "planner/conflicts.h"
#include "tests/unit/values.h"

TestSuite(conflicts, .fini = modules_destroy);

/* Bits of the demands, in the order of demands_of. */
enum { MEMORY = 1, RANKS = 2, ZERO = 4, MICROBATCHES = 8, LINE = 16, ROW = 32 };

/* Plans that a search prices which finds none. */
enum { PRICED = 10 };

typedef struct Oracle {
  DemandSet conflicts[4]; /* no plan keeps all of one */
  int64_t least_ranks; /* without RANKS: the fewest on which there is a plan */
  int n_asked;
  int n_memory;      /* searches for a plan without the limit of memory alone */
  int n_lean;        /* searches for the fewest bytes without this limit */
  int n_none;        /* searches that find no plan */
  int n_lean_priced; /* by searches for the fewest bytes */
  const ConflictCase *last;
} Oracle;

static bool has_plan(const Oracle *oracle, const ConflictCase *one) {
  for (int i = 0; i < 4; i++)
    if (oracle->conflicts[i] && !(oracle->conflicts[i] & one->dropped))
      return false;
  ConflictCase others = {.dropped = one->dropped & ~(DemandSet)RANKS};
  return !(one->dropped & RANKS) || one->ranks >= oracle->least_ranks ||
         has_plan(oracle, &others);
}

static SearchResult answer(Oracle *oracle, const ConflictCase *one) {
  oracle->n_asked++;
  SearchResult out = {.has_plan = has_plan(oracle, one)};
  out.n_priced = out.has_plan ? 1 : PRICED;
  oracle->n_none += !out.has_plan;
  out.best = (FoundPlan){"plan", "words", {true, 100, 123456, 100000}};
  out.best.price.step += one->dropped;
  return out;
}

static SearchResult lean(void *user, const ConflictCase *one, Bytes limit) {
  Oracle *oracle = user;
  oracle->n_lean += one->dropped & MEMORY && one->ranks <= 8;
  SearchResult out = answer(oracle, one);
  if (limit != 1) oracle->n_lean_priced += out.n_priced;
  return out;
}

static SearchResult best(void *user, const ConflictCase *one) {
  Oracle *oracle = user;
  oracle->n_memory += one->dropped == MEMORY;
  return answer(oracle, one);
}

static FoundPlan printed(void *user, const FoundPlan *plan) {
  (void)user;
  FoundPlan out = *plan;
  out.text = "printed";
  return out;
}

static bool is_stopped(void *user) {
  (void)user;
  return false;
}

static const char plan_text[] = "zero = 0\nmicrobatches = 2\nshard F over b\n"
                                "shard H over b\n";
static const Source plan = {"a.plan", plan_text, sizeof plan_text - 1};

static Span line(int at) {
  uint32_t begin = 0;
  for (; at > 0; begin++) at -= plan_text[begin] == '\n';
  uint32_t end = begin;
  while (plan_text[end] != '\n') end++;
  return (Span){&plan, begin, end};
}

/* Returns a plan if any keeps all demands but that of memory. */
static FoundPlan smallest_of(const Oracle *oracle) {
  bool is_one = has_plan(oracle, &(ConflictCase){.dropped = MEMORY});
  return is_one ? (FoundPlan){"plan", "words", {true, 100, 123456, 0}}
                : (FoundPlan){0};
}

static ConflictInput input_of(Oracle *oracle) {
  Module *module = module_create();
  Pins *pins = ARENA_NEW(module->arena, Pins);
  pins->ranks = pin_number(8);
  pins->zero = (PinNumber){true, 0, line(0)};
  pins->microbatches = (PinNumber){true, 2, line(1)};
  PlanShard shard = {.dim = "F", .n_axes = 1, .axes = {"b"}, .span = line(2)};
  vec_push(module->arena, &pins->shards, shard);
  shard.dim = "H";
  shard.span = line(3);
  vec_push(module->arena, &pins->shards, shard);
  return (ConflictInput){.arena = module->arena,
                         .names = module->names,
                         .pins = pins,
                         .memory = {.kind = DEMAND_memory, .text = "80 GB"},
                         .has_ranks_option = true,
                         .ranks = 8,
                         .most_ranks = 256,
                         .unit_ranks = 8,
                         .smallest = smallest_of(oracle),
                         .lean = lean,
                         .best = best,
                         .printed = printed,
                         .is_stopped = is_stopped,
                         .user = oracle};
}

static void expect(Oracle *oracle, DemandSet members, bool is_each_enough) {
  ConflictInput input = input_of(oracle);
  Conflict out;
  cr_assert(conflict_find(&input, &out));
  cr_assert_eq(out.n_demands, 6);
  cr_expect_eq(out.members, members, "%x, not %x", out.members, members);
  cr_expect_eq(out.is_each_enough, is_each_enough);
  cr_expect_gt(out.n_relaxations, 0);
  for (int i = 0; i < out.n_relaxations; i++) {
    const Relaxation *row = &out.relaxations[i];
    ConflictCase one = {.dropped = row->dropped, .ranks = row->ranks};
    cr_expect(has_plan(oracle, &one), "row %d: %x", i, row->dropped);
    if (i > 0) cr_expect_leq(row[-1].plan.price.step, row->plan.price.step);
    if (row->dropped & RANKS) cr_expect_eq(row->ranks, oracle->least_ranks);
    if (row->dropped & MEMORY) cr_expect_eq(row->memory, 123500);
  }
}

Test(conflicts, one_conflict_is_found_exactly) {
  for (DemandSet set = 1; set < 64; set++)
    expect(&(Oracle){.conflicts = {set}, .least_ranks = 24}, set, true);
}

/* With two conflicts that share one demand, each needs a change of its own. */
Test(conflicts, two_conflicts_are_told) {
  Oracle oracle = {.conflicts = {MEMORY | ZERO, MEMORY | LINE},
                   .least_ranks = 16};
  expect(&oracle, MEMORY | ZERO, false);
  oracle = (Oracle){.conflicts = {MEMORY | ZERO | ROW, ZERO | LINE},
                    .least_ranks = 16};
  expect(&oracle, ZERO | LINE, false);
}

Test(conflicts, the_least_ranks_are_whole_units) {
  for (int64_t least = 16; least <= 256; least += 8)
    expect(&(Oracle){.conflicts = {MEMORY | RANKS}, .least_ranks = least},
           MEMORY | RANKS, true);
}

/* All ranks together store as much as 36 have: fewer are not searched. */
Test(conflicts, too_few_ranks_are_not_searched) {
  Oracle oracle = {.conflicts = {MEMORY | RANKS}, .least_ranks = 40};
  ConflictInput input = input_of(&oracle);
  Conflict out, early;
  cr_assert(conflict_find(&input, &out));
  int n_asked = oracle.n_asked;
  oracle.n_asked = 0;
  input.stored = 3600;
  input.limit = 100;
  cr_assert(conflict_find(&input, &early));
  cr_expect_leq(oracle.n_asked, n_asked - 6, "%d of %d", oracle.n_asked,
                n_asked);
  cr_expect_eq(early.members, out.members);
  cr_expect_eq(oracle.n_memory, 1, "the first time: later it is known");
  cr_assert_eq(early.n_relaxations, out.n_relaxations);
  for (int i = 0; i < out.n_relaxations; i++) {
    cr_expect_eq(early.relaxations[i].dropped, out.relaxations[i].dropped);
    cr_expect_eq(early.relaxations[i].ranks, out.relaxations[i].ranks);
  }
}

/* The smallest plan shows that there is one without the limit of memory. */
Test(conflicts, the_smallest_plan_is_not_searched_again) {
  Oracle oracle = {.conflicts = {MEMORY | ZERO}, .least_ranks = 16};
  ConflictInput input = input_of(&oracle);
  Conflict out;
  cr_assert(conflict_find(&input, &out));
  cr_expect_eq(oracle.n_lean, 0);
  input.smallest.text = NULL;
  cr_assert(conflict_find(&input, &out));
  cr_expect_gt(oracle.n_lean, 0);
}

Test(conflicts, nothing_helps) {
  Oracle oracle = {.conflicts = {ZERO}, .least_ranks = 1000};
  ConflictInput input = input_of(&oracle);
  Conflict out;
  /* All ranks of the cluster are too few even without a pin. */
  oracle.conflicts[0] = 0;
  oracle.conflicts[1] = 1u << 20;
  cr_expect(!conflict_find(&input, &out));
}

Test(conflicts, what_is_left_of_the_pins) {
  Oracle oracle = {0};
  ConflictInput input = input_of(&oracle);
  Conflict out;
  demands_of(&input, &out);
  cr_expect_str_eq(out.demands[1].text, "--ranks 8");
  cr_expect_str_eq(out.demands[4].text, "shard F over b");
  ConflictCase one = demands_without(&input, &out, ZERO | LINE);
  cr_expect(!one.pins->zero.is_set);
  cr_expect(one.pins->microbatches.is_set);
  cr_assert_eq(one.pins->shards.n, 1);
  cr_expect_str_eq(one.pins->shards.data[0].dim, "H");
  cr_expect(input.pins->zero.is_set, "the pins themselves stay");
}

/* More lines than demands share some. */
Test(conflicts, many_lines) {
  Oracle oracle = {0};
  ConflictInput input = input_of(&oracle);
  Pins *pins = arena_copy(input.arena, input.pins, sizeof *pins);
  for (uint32_t i = 0; i < 40; i++) {
    PlanShard shard = {.dim = "F", .span = {&plan, i, i + 1}};
    vec_push(input.arena, &pins->shards, shard);
  }
  input.pins = pins;
  Conflict out;
  demands_of(&input, &out);
  cr_assert_leq(out.n_demands, MOST_DEMANDS);
  int n = 0;
  for (int i = 0; i < out.n_demands; i++)
    if (out.demands[i].kind == DEMAND_lines) n += out.demands[i].spans.n;
  cr_expect_geq(n, 40);
  ConflictCase all =
      demands_without(&input, &out, ((DemandSet)1 << out.n_demands) - 1);
  cr_expect_eq(all.pins->shards.n, 0);
}

/* Where demands are left out one by one, these conflicts of six take 581
 * searches that find nothing. */
Test(conflicts, few_searches_find_nothing) {
  int n = 0;
  for (DemandSet set = 1; set < 64; set++) {
    Oracle oracle = {.conflicts = {set}, .least_ranks = 16};
    ConflictInput input = input_of(&oracle);
    Conflict out;
    cr_assert(conflict_find(&input, &out));
    n += oracle.n_none;
  }
  cr_expect_leq(n, 480, "%d searches", n);
}

/* With any budget the members are a conflict; the message says if it is not
 * the least. */
Test(conflicts, a_budget_leaves_a_conflict) {
  for (DemandSet set = 1; set < 64; set++) {
    Oracle whole = {.conflicts = {set, 1u << 5 | 1u << 2}, .least_ranks = 16};
    ConflictInput input = input_of(&whole);
    Conflict exact, cut;
    cr_assert(conflict_find(&input, &exact));
    for (int most = 1; most < 400; most += 66) {
      Oracle oracle = whole;
      input = input_of(&oracle);
      input.most_priced = most;
      oracle.n_lean_priced = 0;
      if (!conflict_find(&input, &cut)) continue;
      cr_expect_leq(oracle.n_lean_priced, most + PRICED);
      ConflictCase others = {.dropped = 63u & ~cut.members, .ranks = 8};
      cr_expect(!has_plan(&oracle, &others), "%x is no conflict", cut.members);
      if (!cut.is_cut) cr_expect_eq(cut.members, exact.members);
      for (int i = 0; i < cut.n_relaxations; i++) {
        const Relaxation *row = &cut.relaxations[i];
        ConflictCase one = {.dropped = row->dropped, .ranks = row->ranks};
        cr_expect(has_plan(&oracle, &one), "%x leaves no plan", row->dropped);
      }
    }
  }
}
