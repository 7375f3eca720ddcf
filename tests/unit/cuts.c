// links: planner support
/*
 * cuts.c -- compares the search for stages with a walk over all cuts and
 * replicas, on random graphs of up to 8 nodes, flat and over two levels, under
 * each model of the sum of gradients; and looks at the states of graphs that
 * have too many.
 */
#include "planner/cuts/cuts.h"

#include <math.h>

#include "tests/unit/values.h"

TestSuite(cuts, .fini = modules_destroy);

enum { MOST_NODES = 8, SETS = 1 << MOST_NODES, MOST_EDGES = 28 };

/* ---- random problems; sets of nodes are masks ---- */

typedef struct Problem {
  uint64_t key, draw;
  int n;
  unsigned inputs[MOST_NODES];
  CutNode nodes[MOST_NODES];
  CutEdge edges[MOST_EDGES];
  int n_edges, n_levels;
  CutLevel levels[2];
  CutSync sync;
  double inner[SETS][SETS]; /* [begin][end] of level 0; negative: not known */
} Problem;

static int below(Problem *problem, int n) {
  return (int)random_below(problem->key, problem->draw++, (uint64_t)n);
}

/* Few values in a third of the problems, so that many plans cost the same. */
static int64_t some(Problem *problem, bool is_coarse, int64_t most) {
  return is_coarse ? below(problem, 3) * (most / 2)
                   : below(problem, (int)most + 1);
}

static void make_problem(Problem *problem, int seed) {
  *problem = (Problem){.key = (uint64_t)seed};
  bool is_coarse = below(problem, 3) == 0;
  int density = 1 + below(problem, 6);
  problem->n = 1 + below(problem, MOST_NODES);
  for (int node = 0; node < problem->n; node++) {
    problem->nodes[node] = (CutNode){
        some(problem, is_coarse, 20000000), some(problem, is_coarse, 40000000),
        some(problem, is_coarse, 30000000),
        below(problem, 3) ? some(problem, is_coarse, 40000000) : 0};
    for (int from = 0; from < node; from++) {
      if (below(problem, 7) > density) continue;
      problem->inputs[node] |= 1u << from;
      problem->edges[problem->n_edges++] = (CutEdge){from, node};
    }
  }
  problem->n_levels = 1 + (below(problem, 4) == 0);
  for (int l = 0; l < problem->n_levels; l++)
    problem->levels[l] =
        (CutLevel){1 + below(problem, problem->n_levels == 1 ? 5 : 3),
                   (l ? 1e9 : 2e9) * (1 + below(problem, 4))};
  problem->sync = (CutSync)below(problem, 3);
  for (int i = 0; i < SETS; i++)
    for (int k = 0; k < SETS; k++) problem->inner[i][k] = -1;
}

/* ---- the walk over all plans ---- */

static unsigned all_nodes(const Problem *problem) {
  return (1u << problem->n) - 1;
}

static bool holds_inputs(const Problem *problem, unsigned set) {
  for (int node = 0; node < problem->n; node++)
    if (set >> node & 1 && problem->inputs[node] & ~set) return false;
  return true;
}

static double bytes_out(const Problem *problem, unsigned set) {
  double bytes = 0;
  for (int node = 0; node < problem->n; node++) {
    bool is_sent = false;
    for (int user = 0; user < problem->n; user++)
      is_sent =
          is_sent || (!(set >> user & 1) && problem->inputs[user] >> node & 1);
    if (set >> node & 1 && is_sent)
      bytes += (double)problem->nodes[node].activation_bytes;
  }
  return bytes;
}

static double walk(Problem *problem, int level, unsigned begin, unsigned end,
                   int *out_stages);

/* Returns the cost of the nodes `end` without `begin` on m machines, as a first
 * stage or as another one. */
static double cost_of(Problem *problem, int level, bool is_first,
                      unsigned begin, unsigned end, int m) {
  double work = 0, bytes = 0, rate = problem->levels[level].bandwidth;
  for (int node = 0; node < problem->n; node++) {
    if (!((end & ~begin) >> node & 1)) continue;
    const CutNode *row = &problem->nodes[node];
    work += (double)(row->forward_ns + row->backward_ns) / 1e9;
    bytes += (double)row->parameter_bytes;
  }
  if (level == 1) {
    int unused;
    if (problem->inner[begin][end] < 0)
      problem->inner[begin][end] = walk(problem, 0, begin, end, &unused);
    work = problem->inner[begin][end];
  }
  double sum = (problem->sync == CUT_sum4 ? 4.0 : 2.0) * (m - 1) / m * bytes;
  sum /= rate;
  if (is_first && level == 1) sum /= problem->levels[0].machines;
  double cost = problem->sync == CUT_max ? fmax(work, sum) : work + sum;
  if (is_first) return cost / m;
  return fmax(cost / m, fmax(2 * bytes_out(problem, begin) / (rate * m),
                             2 * bytes_out(problem, end) / (rate * m)));
}

typedef struct Best {
  double cost;
  int n_stages;
} Best;

static void walk_on(Problem *problem, int level, unsigned begin, unsigned at,
                    unsigned end, int left, double cost, int n_stages,
                    Best *best) {
  for (unsigned next = at + 1; next <= end; next++) {
    if ((at & ~next) || (next & ~end) || !holds_inputs(problem, next)) continue;
    for (int m = next == end ? left : 1; m <= left - (next != end); m++) {
      double worst =
          fmax(cost, cost_of(problem, level, at == begin, at, next, m));
      if (next != end) {
        walk_on(problem, level, begin, next, end, left - m, worst, n_stages + 1,
                best);
      } else if (worst < best->cost * (1 - 1e-12)) {
        *best = (Best){worst, n_stages + 1};
      } else if (worst <= best->cost * (1 + 1e-12) &&
                 n_stages + 1 < best->n_stages) {
        best->n_stages = n_stages + 1;
      }
    }
  }
}

/* Returns the least cost of all plans between two sets on all machines of a
 * level, and the fewest stages with it. */
static double walk(Problem *problem, int level, unsigned begin, unsigned end,
                   int *out_stages) {
  Best best = {1e30, 0};
  walk_on(problem, level, begin, begin, end, problem->levels[level].machines, 0,
          0, &best);
  *out_stages = best.n_stages;
  return best.cost;
}

/* ---- the comparison ---- */

static unsigned mask_of(const Problem *problem, const CutStates *states,
                        int state) {
  unsigned mask = 0;
  for (int node = 0; node < problem->n; node++)
    mask |= (unsigned)cut_state_has(states, state, node) << node;
  return mask;
}

/* Checks that stages follow each other and use all machines, and that each
 * costs what it says; returns the cost of the slowest. */
static double check_stages(Problem *problem, const CutStates *states,
                           const CutStage *stages, int n, int level, int begin,
                           int end) {
  double worst = 0;
  int machines = 0, at = begin;
  for (int s = 0; s < n; s++) {
    const CutStage *stage = &stages[s];
    cr_assert_eq(stage->begin, at);
    at = stage->end;
    machines += stage->replicas;
    unsigned from = mask_of(problem, states, stage->begin);
    unsigned to = mask_of(problem, states, stage->end);
    cr_assert(!(from & ~to) && from != to && holds_inputs(problem, to));
    double cost = cost_of(problem, level, s == 0, from, to, stage->replicas);
    cr_assert_float_eq(stage->cost_s, cost, 1e-9 * cost + 1e-15);
    worst = fmax(worst, cost);
    if (level == 0) {
      cr_assert_eq(stage->n_inner, 0);
      continue;
    }
    double inner = check_stages(problem, states, stage->inner, stage->n_inner,
                                0, stage->begin, stage->end);
    cr_assert_float_eq(inner, stage->compute_s * stage->replicas,
                       1e-9 * inner + 1e-15);
  }
  cr_assert_eq(at, end);
  cr_assert_eq(machines, problem->levels[level].machines);
  return worst;
}

static void check_problem(Arena *arena, Problem *problem, int seed) {
  CutGraph graph = {problem->n, problem->n_edges, problem->nodes,
                    problem->edges};
  CutStates states;
  cr_assert(cut_states(arena, &graph, CUT_MOST_STATES, &states));
  int n_sets = 0;
  for (unsigned set = 0; set <= all_nodes(problem); set++)
    n_sets += holds_inputs(problem, set);
  cr_assert_eq(states.n, n_sets, "seed %d: %d states of %d", seed, states.n,
               n_sets);
  for (int s = 0; s < states.n; s++) {
    double bytes = bytes_out(problem, mask_of(problem, &states, s));
    cr_assert_eq((double)states.states[s].out_bytes, bytes);
  }
  CutPlan plan = cut_solve(arena, &states, problem->levels, problem->n_levels,
                           problem->sync);
  int level = problem->n_levels - 1, n_stages;
  double best = walk(problem, level, 0, all_nodes(problem), &n_stages);
  cr_assert_float_eq(plan.seconds, best, 1e-9 * best + 1e-15,
                     "seed %d: %.12g, and %.12g is the least", seed,
                     plan.seconds, best);
  cr_assert_eq(plan.n_stages, n_stages, "seed %d: %d stages, and %d suffice",
               seed, plan.n_stages, n_stages);
  double worst = check_stages(problem, &states, plan.stages, plan.n_stages,
                              level, 0, states.n - 1);
  cr_assert_float_eq(worst, best, 1e-9 * best + 1e-15);
}

Test(cuts, all_plans_of_random_graphs) {
  enum { N_PROBLEMS = 2000 };
  int n_several = 0;
  static Problem problem;
  Module *module = module_create();
  for (int seed = 1; seed <= N_PROBLEMS; seed++) {
    Arena *arena = arena_beside(module->arena);
    make_problem(&problem, seed);
    check_problem(arena, &problem, seed);
    n_several += problem.n_levels > 1;
    arena_destroy(arena);
  }
  cr_expect_gt(n_several, N_PROBLEMS / 10);
}

/* ---- too many states ---- */

enum { MOST_MADE = 200 };

typedef struct Made {
  int n, n_edges;
  CutNode nodes[MOST_MADE];
  CutEdge edges[2 * MOST_MADE];
} Made;

static int made_node(Made *made, int from) {
  int node = made->n++;
  made->nodes[node] = (CutNode){1000000 + 37000 * (node * 7 % 11), 2000000,
                                1000 * (1 + node * 5 % 13), 4000};
  if (from >= 0) made->edges[made->n_edges++] = (CutEdge){from, node};
  return node;
}

/* Makes blocks of branches of `length` nodes, with a node before and after. */
static void make_blocks(Made *made, int n_blocks, int n_branches, int length) {
  *made = (Made){0};
  int last = made_node(made, -1);
  for (int block = 0; block < n_blocks; block++) {
    int ends[8];
    for (int b = 0; b < n_branches; b++) {
      ends[b] = last;
      for (int i = 0; i < length; i++) ends[b] = made_node(made, ends[b]);
    }
    last = made_node(made, ends[0]);
    for (int b = 1; b < n_branches; b++)
      made->edges[made->n_edges++] = (CutEdge){ends[b], last};
  }
}

static CutStates made_states(Arena *arena, const Made *made, int most) {
  CutGraph graph = {made->n, made->n_edges, made->nodes, made->edges};
  CutStates states;
  cr_assert(cut_states(arena, &graph, most, &states));
  cr_assert_leq(states.n, most);
  for (int s = 1; s < states.n; s++) {
    for (int e = 0; e < made->n_edges; e++)
      cr_assert(!cut_state_has(&states, s, made->edges[e].to) ||
                cut_state_has(&states, s, made->edges[e].from));
    bool is_equal = states.states[s].n_nodes == states.states[s - 1].n_nodes &&
                    cut_state_within(&states, s - 1, s);
    cr_assert(!is_equal, "state %d is there twice", s);
  }
  cr_assert_eq(states.states[0].n_nodes, 0);
  cr_assert_eq(states.states[states.n - 1].n_nodes, made->n);
  return states;
}

static double made_seconds(Arena *arena, const CutStates *states) {
  CutLevel level = {6, 1e9};
  return cut_solve(arena, states, &level, 1, CUT_sum2).seconds;
}

Test(cuts, a_piece_of_many_states_is_cut_by_branch) {
  Module *module = module_create();
  static Made made;
  make_blocks(&made, 3, 3, 4); /* 3 * 5^3 + 2 states */
  CutStates all = made_states(module->arena, &made, 400);
  cr_expect_eq(all.n, 3 * 125 + 2);
  cr_expect_eq(all.n_pieces, 0);
  CutStates few = made_states(module->arena, &made, 377);
  cr_expect_eq(few.n, 377);
  few = made_states(module->arena, &made, 376); /* the last block has no room */
  cr_expect_eq(few.n_pieces, 4);
  cr_expect_eq(few.n_by_branch, 1);
  cr_expect_eq(few.n, 2 + 2 * 125 + 13);
  few = made_states(module->arena, &made, 100);
  cr_expect_eq(few.n_pieces, 4);
  cr_expect_eq(few.n_by_branch, 3);
  cr_expect_eq(few.n_by_node, 0);
  cr_expect_eq(few.n, made.n + 1);
  cr_expect_geq(made_seconds(module->arena, &few),
                made_seconds(module->arena, &all));
  /* Every single-tensor cut is there. */
  int n_single = 0;
  CutGraph graph = {made.n, made.n_edges, made.nodes, made.edges};
  for (int s = 1; s < few.n; s++) {
    int n_sent = 0;
    for (int node = 0; node < made.n; node++)
      n_sent += cut_state_sends(&graph, &few, s, node);
    n_single += n_sent == 1;
  }
  cr_expect_eq(n_single, 3);
}

Test(cuts, a_branch_of_many_states_is_cut_by_node) {
  Module *module = module_create();
  static Made made;
  make_blocks(&made, 1, 8, 3);
  /* A side branch joins the ends of two branches: the piece has one branch
   * less, and no node of it is alone. */
  for (int b = 1; b < 8; b++)
    made.edges[made.n_edges++] = (CutEdge){3 * b - 2, 3 * b + 1};
  CutStates states = made_states(module->arena, &made, 60);
  cr_expect_eq(states.n_by_branch, 1);
  cr_expect_eq(states.n_by_node, 1);
  cr_expect_eq(states.n, made.n + 1);
}

/* Two results, each after a node that all of its branches lead to: the cut
 * after one of these two is not within that after the other. */
Test(cuts, two_ends) {
  Module *module = module_create();
  static Made made;
  made = (Made){0};
  made_node(&made, -1);
  for (int end = 0; end < 2; end++) {
    int first = made.n;
    for (int b = 0; b < 3; b++) made_node(&made, made_node(&made, 0));
    int join = made_node(&made, first + 1);
    made.edges[made.n_edges++] = (CutEdge){first + 3, join};
    made.edges[made.n_edges++] = (CutEdge){first + 5, join};
    made_node(&made, join);
  }
  CutStates states = made_states(module->arena, &made, 60);
  cr_expect_eq(states.n_pieces, 3, "%d", states.n_pieces);
  cr_expect_eq(made_states(module->arena, &made, 1000).n_pieces, 0);
  cr_expect_gt(made_seconds(module->arena, &states), 0);
}

Test(cuts, more_nodes_than_states) {
  Module *module = module_create();
  static Made made;
  make_blocks(&made, 1, 1, 48);
  CutGraph graph = {made.n, made.n_edges, made.nodes, made.edges};
  CutStates states;
  cr_assert_eq(made.n, 50);
  cr_expect(!cut_states(module->arena, &graph, 50, &states));
  cr_expect(cut_states(module->arena, &graph, 51, &states));
  cr_expect_eq(states.n, 51);
  graph.n_nodes = graph.n_edges = 0;
  cr_expect(!cut_states(module->arena, &graph, 51, &states));
}

Test(cuts, room_for_levels) {
  CutLevel levels[] = {{8, 1e9}, {1024, 1e9}, {1024, 1e9}};
  cr_expect_eq(cut_most_states(levels, 1), CUT_MOST_STATES);
  cr_expect_eq(cut_most_states(levels, 2), CUT_MOST_STATES_LEVELS);
  cr_expect_eq(cut_most_states(levels, 3), 181);
}
