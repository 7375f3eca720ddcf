// links: random driver codegen frontend passes runtime ir support
/*
 * trials.c -- tests that many plans of a model are priced in one process: the
 * result of each depends on neither the others nor the order, and their memory
 * is given back.
 */
#include "driver/trial.h"
#include "tests/random/plans.h"
#include "tests/unit/values.h"

#include <string.h>
#include <sys/resource.h>

TestSuite(trials, .fini = modules_destroy, .timeout = 900);

#if defined(__SANITIZE_ADDRESS__)
enum { N_PLANS = 100 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { N_PLANS = 100 };
#else
enum { N_PLANS = 1000 };
#endif
#else
enum { N_PLANS = 1000 };
#endif

enum {
  N_DRAWN = N_PLANS / 3 * 3 / 2, /* of a model: some are refused */
  MOST_RANKS = 8,
  SAMPLES = 48
};

typedef struct Subject {
  const char *path;
  Override overrides[6];
  int n_overrides;
  PlanSubject plans;
} Subject;

static const Subject subjects[] = {
    {TEST_ROOT "/models/mlp.dnn",
     {{"B", "48"}, {"P", "24"}, {"H1", "12"}, {"H2", "8"}, {"K", "4"}},
     5,
     {.batch = "B"}},
    {TEST_ROOT "/models/lenet.dnn",
     {{"N", "48"}, {"F", "12"}, {"K", "4"}},
     3,
     {.batch = "N"}},
    {TEST_ROOT "/models/chargpt.dnn",
     {{"B", "48"},
      {"T", "8"},
      {"V", "24"},
      {"C", "16"},
      {"H", "4"},
      {"L", "2"}},
     6,
     {.batch = "B", .queries = "T", .keys = "S", .heads = "H"}},
};

typedef struct Result {
  bool is_priced;
  Ps step, exposed;
  Bytes peak, sent;
  uint64_t graph;
} Result;

/* The plans of one model. */
typedef struct Plans {
  Compilation loaded;
  int n, n_tried;
  TrialPlan pins[N_DRAWN];
  Result results[N_DRAWN];
} Plans;

static void load(const Subject *subject, Plans *out) {
  Module *module = module_create();
  CompileOptions *options = ARENA_NEW(module->arena, CompileOptions);
  *options =
      (CompileOptions){.path = subject->path,
                       .overrides = subject->overrides,
                       .n_overrides = subject->n_overrides,
                       .cluster = TEST_ROOT "/models/pipedream-a.cluster",
                       .level = 2};
  cr_assert_eq(driver_load(module, options, &out->loaded), COMPILE_done);
}

static const Pins *draw(const Subject *subject, Plans *plans, uint64_t number) {
  const Compilation *c = &plans->loaded;
  Arena *arena = c->module->arena;
  PlanSubject of = subject->plans;
  int64_t samples;
  int lines[N_LINES] = {0};
  of.graph = c->model->train;
  of.optimizer = &c->model->settings.optimizer;
  of.samples = SAMPLES;
  of.most_ranks = MOST_RANKS;
  Source *source = ARENA_NEW(arena, Source);
  source->path = "random.plan";
  source->text = plan_draw(choices_random(arena, number), &of, lines, &samples);
  source->n = strlen(source->text);
  PlanSource from = {.file = source};
  return driver_read_pins(c, &from, diags_create(arena));
}

static Result result_of(const Trial *trial, bool is_priced) {
  if (!is_priced) return (Result){0};
  const Priced *p = &trial->priced;
  return (Result){true,    p->price.step, p->price.exposed,
                  p->peak, p->price.sent, graph_hash(p->stage->graph)};
}

/* Plans that can be read. */
static void draw_all(const Subject *subject, Plans *plans) {
  for (uint64_t number = 0; plans->n < N_DRAWN; number++) {
    plans->pins[plans->n].pins = draw(subject, plans, number);
    plans->n += plans->pins[plans->n].pins != NULL;
  }
}

/* Prices plans until one is legal. */
static void price_next(Plans *plans) {
  Memory *memory = plans->loaded.module->memory;
  for (bool is_priced = false; !is_priced;) {
    ASSERT(plans->n_tried < plans->n);
    Trial trial;
    PriceRequest request = {0};
    int i = plans->n_tried++;
    is_priced =
        driver_try(&plans->loaded, memory, &plans->pins[i], &request, &trial);
    plans->results[i] = result_of(&trial, is_priced);
    driver_end_trial(&trial);
  }
}

typedef struct Backwards {
  const Plans *plans;
  int n_different;
} Backwards;

static void compare(void *user, int i, const Trial *trial, bool is_priced) {
  Backwards *b = user;
  Result again = result_of(trial, is_priced);
  const Result *first = &b->plans->results[b->plans->n_tried - 1 - i];
  b->n_different +=
      again.is_priced != first->is_priced || again.step != first->step ||
      again.exposed != first->exposed || again.peak != first->peak ||
      again.sent != first->sent || again.graph != first->graph;
}

/* From the last to the first, on two threads.  The number of plans that have
 * another price now. */
static int price_backwards(const Plans *plans) {
  int n = plans->n_tried;
  TrialPlan *pins = ARENA_ARRAY(plans->loaded.module->arena, TrialPlan, n);
  for (int i = 0; i < n; i++) pins[i] = plans->pins[plans->n_tried - 1 - i];
  Backwards b = {plans, 0};
  PriceRequest request = {0};
  driver_try_all(&plans->loaded, &(TrialList){.n = n,
                                              .plans = pins,
                                              .request = &request,
                                              .most_threads = 2,
                                              .visit = compare,
                                              .user = &b});
  return b.n_different;
}

static long peak_kilobytes(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

Test(trials, plans_have_the_same_prices_in_any_order) {
  static Plans all[ARRAY_LENGTH(subjects)];
  long first = 0, last;
  int n_plans = 0;
  for (int i = 0; i < ARRAY_LENGTH(subjects); i++) {
    load(&subjects[i], &all[i]);
    draw_all(&subjects[i], &all[i]);
  }
  for (int i = 0; i < N_PLANS; i++) {
    price_next(&all[i % ARRAY_LENGTH(subjects)]);
    if (i < 200) first = peak_kilobytes();
  }
  last = peak_kilobytes();
  for (int i = 0; i < ARRAY_LENGTH(subjects); i++) {
    cr_expect_eq(price_backwards(&all[i]), 0, "%s", subjects[i].path);
    n_plans += all[i].n_tried;
  }
  cr_expect_lt(n_plans, 2 * N_PLANS, "%d of %d plans are refused",
               n_plans - N_PLANS, n_plans);
  cr_expect_leq(last, first + first / 20, "%ld kB after 200 plans, then %ld kB",
                first, last);
}

/* Ranks 8 to 15 are two whole nodes of 4, as ranks 0 to 7 are; ranks 2 to 9 lie
 * in three. */
Test(trials, the_second_half_of_a_cluster_has_the_prices_of_the_first) {
  enum { N_HALVES = 40 };
  for (int i = 0; i < ARRAY_LENGTH(subjects); i++) {
    static Plans plans;
    memset(&plans, 0, sizeof plans);
    load(&subjects[i], &plans);
    draw_all(&subjects[i], &plans);
    Memory *memory = plans.loaded.module->memory;
    int n_between = 0;
    for (int k = 0; k < N_HALVES; k++) {
      static const int first_ranks[] = {0, 8, 2};
      Result half[3];
      for (int h = 0; h < 3; h++) {
        Trial trial;
        PriceRequest request = {.first_rank = first_ranks[h]};
        bool is_priced =
            driver_try(&plans.loaded, memory, &plans.pins[k], &request, &trial);
        half[h] = result_of(&trial, is_priced);
        driver_end_trial(&trial);
      }
      cr_expect_eq(half[0].step, half[1].step, "%s, plan %d: %lld and %lld",
                   subjects[i].path, k, (long long)half[0].step,
                   (long long)half[1].step);
      n_between += half[2].step != half[0].step;
    }
    cr_expect_gt(n_between, 0);
  }
}
