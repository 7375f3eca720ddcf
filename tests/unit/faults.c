// links: verify driver codegen frontend passes runtime ir support
/*
 * faults.c -- the player finds faults that partition could have: a reduction
 * that is missing, made twice or over the wrong axis, a shard that begins one
 * element late, a lost factor, a wrong operand, a buffer that keeps its old
 * value.
 *
 * A fault is put into the partitioned graph of a training step, behind the
 * checks of the compiler and with all types as they were; the passes after
 * partition then run on it.  Exact mode must find all that another oracle
 * finds: f64 on two sets of inputs, or exact mode modulo another prime.  A
 * fault that none of them finds is equivalent: the program computes the same
 * function.
 *
 *     DNNC_FAULTS=N: at most N sites of each kind, model and plan; without it
 *                    one, and at most FEW of a kind; with it 20 losses are
 *                    compared as well, and a table is printed
 */
#include "tests/unit/fault_kinds.h"
#include "tests/unit/play_model.h"
#include "verify/verify_steps.h"

enum { FEW = 5 };

TestSuite(faults, .fini = modules_destroy, .timeout = 7200);

typedef struct Seeding {
  const FaultKind *kind; /* NULL: count the sites of every kind */
  int index;             /* which site */
  const char *within;    /* what the path of its node has; NULL: anything */
  int n_sites[ARRAY_LENGTH(kinds)];
  char where[120]; /* the node of the fault */
} Seeding;

static int site_node(const Graph *graph, Site site) {
  return site.is_output ? graph->outputs.data[site.node].value.node : site.node;
}

static bool is_within(const Graph *graph, Site site, const char *word) {
  const char *path = graph->nodes.data[site_node(graph, site)]->path;
  return !word || (path && strstr(path, word));
}

/* Leaves out nodes that no output needs, which a later pass drops. */
static Sites find_live(const Graph *graph, const FaultKind *kind,
                       const char *within) {
  Arena *arena = graph->module->arena;
  Sites all = {.arena = arena}, live = {.arena = arena};
  bool *is_live = ARENA_ARRAY(arena, bool, graph->nodes.n);
  for (int i = 0; i < graph->outputs.n; i++)
    is_live[graph->outputs.data[i].value.node] = true;
  for (int id = graph->nodes.n - 1; id >= 0; id--) {
    const Node *node = graph->nodes.data[id];
    for (int i = 0; is_live[id] && i < node->n_inputs; i++)
      is_live[node->inputs[i].node] = true;
  }
  kind->find(graph, &all);
  for (int i = 0; i < all.list.n; i++)
    if (is_live[site_node(graph, all.list.data[i])] &&
        is_within(graph, all.list.data[i], within))
      add_site(&live, all.list.data[i]);
  return live;
}

static void seed_fault(void *user, const WatchedPass *pass) {
  Seeding *seeding = user;
  const Graph *graph = pass->graph;
  bool is_step = false;
  if (!pass_is_named(pass->row, "partition") || graph->mesh.n_axes == 0) return;
  for (int i = 0; i < graph->outputs.n; i++)
    is_step |= graph->outputs.data[i].role == ROLE_norm;
  if (!is_step) return;
  for (int k = 0; !seeding->kind && k < ARRAY_LENGTH(kinds); k++)
    seeding->n_sites[k] = find_live(graph, &kinds[k], seeding->within).list.n;
  if (!seeding->kind) return;
  Sites sites = find_live(graph, seeding->kind, seeding->within);
  Site site = sites.list.data[seeding->index];
  const Node *node = graph->nodes.data[site_node(graph, site)];
  snprintf(seeding->where, sizeof seeding->where, "%s '%s'",
           op_info(node->op)->name, node->path ? node->path : "");
  seeding->kind->make((Graph *)graph, site);
}

/* ---- cases ---- */

typedef struct FaultCase {
  PlayCase play;
  const char *within; /* as of Seeding */
} FaultCase;

#define SMALL_GPT  "benchmarks/systems/gpt.dnn"
#define PLAN(name) TEST_ROOT "/benchmarks/plans/" name ".plan"

static const FaultCase cases[] = {
    {.play = {.model = "models/mlp.dnn",
              .sizes = "B=8 P=4 H1=3 H2=3 K=3",
              .ranks = 2,
              .microbatches = 2}},
    {.play = {.model = "models/mlp.dnn",
              .sizes = "B=8 P=4 H1=3 H2=3 K=3",
              .plan = TEST_ROOT "/tests/plans/two_axes.plan"}},
    {.play = {.model = "models/charlstm.dnn",
              .sizes = "B=4 T=3 V=5 E=2 C=3",
              .ranks = 2}},
    {.play = {.model = "models/chargpt.dnn",
              .sizes = "B=4 T=3 V=7 C=4 H=2 L=1",
              .ranks = 2,
              .microbatches = 2}},
    {.play = {.model = "models/vit_digits.dnn",
              .sizes = "B=4 C=4 H=2 L=1 K=3",
              .ranks = 2}},
    {.play = {.model = "tests/reference/resnet_mnist_small.dnn",
              .sizes = "N=4 K=3 width=2",
              .ranks = 2}},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=4 V=8 C=4 H=2 L=1",
              .plan = PLAN("tensor")}},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=8 T=4 V=8 C=4 H=2 L=1",
              .plan = PLAN("sequence_zero3")}},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=4 V=7 C=4 H=2 L=1",
              .plan = PLAN("ring")}},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=4 V=7 C=4 H=2 L=1",
              .plan = PLAN("ulysses")}},
    {.play = {.model = "benchmarks/systems/moe.dnn",
              .sizes = "B=4 T=4 V=7 C=4 H=2 L=1",
              .plan = PLAN("experts")}},
    {.play = {.model = "benchmarks/systems/cnn.dnn",
              .sizes = "N=2 K=3",
              .plan = PLAN("space")}},
    {.play = {.model = "benchmarks/systems/mlp.dnn",
              .sizes = "B=7 P=5 H1=5 H2=3 K=2",
              .plan = PLAN("uneven_batch")}},
    /* in zigzag order, within attention and without; with an uneven sequence */
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=16 V=7 C=6 H=3 L=1",
              .plan = PLAN("ring4")}},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=4 V=7 C=4 H=2 L=1",
              .plan = PLAN("ring")},
     .within = "attn"},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=4 V=7 C=4 H=2 L=1",
              .plan = PLAN("ring")},
     .within = "text"},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=7 V=7 C=4 H=2 L=1",
              .plan = PLAN("ring")},
     .within = "attn"},
    /* sums over the full batch before micro-batches */
    {.play = {.model = "models/bert.dnn",
              .sizes = "B=4 T=6 V=9 C=4 H=2 L=1",
              .ranks = 2,
              .microbatches = 2}},
    {.play = {.model = "models/bert.dnn",
              .sizes = "B=8 T=6 V=9 C=4 H=2 L=1",
              .ranks = 2,
              .microbatches = 2},
     .within = "cross_entropy"},
    {.play = {.model = "models/bert.dnn",
              .sizes = "B=8 T=6 V=9 C=4 H=2 L=1",
              .ranks = 2,
              .microbatches = 2},
     .within = "text.word"},
    /* ranks share classes: equal samples, and replicas over three axes */
    {.play = {.model = "models/mlp.dnn",
              .sizes = "B=128 P=7 H1=5 H2=6 K=3",
              .ranks = 64}},
    {.play = {.model = SMALL_GPT,
              .sizes = "B=4 T=4 V=8 C=4 H=2 L=1",
              .plan = PLAN("three_axes")}},
};

typedef struct Score {
  int n_found, n_equivalent;
  int n_f64, n_exact, n_second; /* found so */
  int n_static; /* against the sharding rules, whatever they compute */
  int n_coarse; /* a tolerance of 1e-5 would have found them ... */
  int n_losses; /* ... and so would 20 losses, to the same */
} Score;

/* How many outputs differ modulo the second prime, with the clip that the
 * first run has chosen. */
static int count_in_second_prime(Compilation *c, uint64_t seed) {
  Arena *arena = c->module->arena;
  Module *module = module_apart(c->module, arena);
  VerifySteps steps = {0};
  cr_assert_eq(verify_compile(c, module, false, &steps), COMPILE_done);
  VerifyRun run = {.c = c,
                   .steps = &steps,
                   .arena = arena,
                   .numbers = {.number = INTERP_exact,
                               .has_second_prime = true,
                               .seed = seed},
                   .report = {.equal = ANSWER_yes, .memory_ok = ANSWER_yes}};
  verify_play(&run);
  return run.report.n_exact_different;
}

/* `out_second`: as count_in_second_prime, or NULL. */
static VerifyReport play_fault(const FaultCase *of, Seeding *seeding,
                               uint64_t seed, int *out_second) {
  PlayCase one = of->play;
  Compilation c;
  one.seed = seed;
  one.n_more_steps = seeding->kind && getenv("DNNC_FAULTS") ? 18 : 0;
  one.watch = (CompileWatch){.user = seeding, .pass = seed_fault};
  seeding->within = of->within;
  VerifyReport report = play_case_of(&one, &c);
  if (out_second) *out_second = count_in_second_prime(&c, seed + 7);
  return report;
}

/* Adds what a second set of inputs shows. */
static void add_report(VerifyReport *report, const VerifyReport *other) {
  if (other->equal == ANSWER_no) report->equal = ANSWER_no;
  report->max_rel_error = fmax(report->max_rel_error, other->max_rel_error);
  report->loss_error = fmax(report->loss_error, other->loss_error);
  report->n_f64_different += other->n_f64_different;
  report->n_exact_different += other->n_exact_different;
}

static void check_fault(const FaultCase *one, Seeding *seeding, Score *score) {
  int n_second;
  VerifyReport report = play_fault(one, seeding, 1, &n_second);
  cr_assert(*seeding->where);
  score->n_static += report.placement_ok == ANSWER_no;
  if (report.n_f64_different == 0 || report.n_exact_different == 0) {
    VerifyReport other = play_fault(one, seeding, 2, NULL);
    add_report(&report, &other);
  }
  bool is_found = report.n_exact_different > 0;
  score->n_coarse += report.max_rel_error > 1e-5;
  score->n_losses += report.loss_error > 1e-5;
  score->n_f64 += report.n_f64_different > 0;
  score->n_second += n_second > 0;
  score->n_exact += is_found;
  cr_expect(is_found || (report.n_f64_different == 0 && n_second == 0),
            "exact mode misses %s at %s of %s", seeding->kind->name,
            seeding->where, one->play.model);
  if (report.equal == ANSWER_no) {
    score->n_found++;
  } else {
    score->n_equivalent++;
    cr_log_info("equivalent: %s at %s of %s", seeding->kind->name,
                seeding->where, one->play.model);
  }
  modules_destroy();
}

/* At most as many sites of each kind, far from each other; 0: a few. */
static void check_case(const FaultCase *one, int most, Score *scores) {
  Seeding count = {0};
  int n_second, n_of_case = 0;
  VerifyReport report = play_fault(one, &count, 1, &n_second);
  cr_assert(report.equal == ANSWER_yes && n_second == 0, "%s: %s",
            one->play.model, report.path);
  modules_destroy();
  for (int k = 0; k < ARRAY_LENGTH(kinds); k++) {
    bool is_enough = most == 0 && !one->within &&
                     scores[k].n_found + scores[k].n_equivalent >= FEW;
    int n = is_enough ? 0 : most > 1 ? most : 1;
    if (n > count.n_sites[k]) n = count.n_sites[k];
    for (int i = 0; i < n; i++) {
      Seeding seeding = {.kind = &kinds[k], .index = i * count.n_sites[k] / n};
      check_fault(one, &seeding, &scores[k]);
    }
    n_of_case += n;
  }
  cr_expect(!one->within || n_of_case > 0, "%s has no site at '%s'",
            one->play.model, one->within);
}

static void print_score(const char *name, const Score *score) {
  cr_log_info("| %s | %d | %d | %d | %d | %d | %d | %d | %d |", name,
              score->n_found + score->n_equivalent, score->n_exact,
              score->n_f64, score->n_second, score->n_coarse, score->n_losses,
              score->n_static, score->n_equivalent);
}

Test(faults, the_player_finds_them) {
  const char *given = getenv("DNNC_FAULTS");
  Score scores[ARRAY_LENGTH(kinds)] = {0}, all = {0};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++)
    check_case(&cases[i], given ? atoi(given) : 0, scores);
  cr_log_info("| fault | seeded | exact mode | f64 | second prime | 1e-5 | "
              "20 losses | static | equivalent |");
  for (int k = 0; k < ARRAY_LENGTH(kinds); k++) {
    print_score(kinds[k].name, &scores[k]);
    cr_expect_gt(scores[k].n_found, 0, "%s", kinds[k].name);
    all.n_found += scores[k].n_found;
    all.n_equivalent += scores[k].n_equivalent;
    all.n_static += scores[k].n_static;
    all.n_f64 += scores[k].n_f64;
    all.n_exact += scores[k].n_exact;
    all.n_second += scores[k].n_second;
    all.n_coarse += scores[k].n_coarse;
    all.n_losses += scores[k].n_losses;
  }
  print_score("all", &all);
  /* Faults that change no number are rare. */
  cr_expect_geq(all.n_found, 9 * all.n_equivalent);
}

/* ---- one block ---- */

/* Drops the first reduction of block 57 of each graph that has it. */
static void drop_in_one_block(void *user, const WatchedPass *pass) {
  bool *is_dropped = user;
  const Graph *graph = pass->graph;
  if (!pass_is_named(pass->row, "partition") || graph->mesh.n_axes == 0) return;
  for (int id = 0; id < graph->nodes.n; id++) {
    Node *node = graph->nodes.data[id];
    if (node->op != OP_all_reduce || !path_has(node->path, "block[57]"))
      continue;
    drop_reduction((Graph *)graph, (Site){.node = id});
    *is_dropped = true;
    return;
  }
}

/* The block differs from those beside it, so that all are played. */
Test(faults, one_fault_in_block_57_of_96_is_found) {
  bool is_dropped = false;
  PlayCase deep = {.model = "models/chargpt.dnn",
                   .sizes = "L=96",
                   .plan = PLAN("tensor"),
                   .watch = {.user = &is_dropped, .pass = drop_in_one_block}};
  VerifyReport report = play_case(&deep);
  cr_expect(is_dropped);
  cr_expect_null(report.repeats);
  cr_expect_eq(report.equal, ANSWER_no);
  cr_assert_not_null(report.path);
  cr_expect(strstr(report.path, "block[57]"), "%s", report.path);
}
