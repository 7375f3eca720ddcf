// links: planner ir support
/*
 * planner.c -- tests the space of a model and the search, with a judge that has
 * a formula in place of a compiler.
 */
#include "planner/candidate.h"
#include "tests/unit/values.h"

TestSuite(planner, .fini = modules_destroy);

/* A matmul pair, as of a block: w1 [C, F], w2 [F, C] and a table [V, C]. */
static const Graph *small_graph(Module *module) {
  static const char text[] =
      "graph g {\n"
      "%0 = input {index = 0} : f32[B:64, C:32] data \"x\"\n"
      "%1 = input {index = 1} : f32[C:32, F:128] param \"w1\"\n"
      "%2 = input {index = 2} : f32[F:128, C:32] param \"w2\"\n"
      "%3 = input {index = 3} : f32[V:256, C:32] param \"table\"\n"
      "%4 = exp %0 : f32[B:64, C:32] \"gate.exp\"\n"
      "output loss \"loss\" %0 }";
  const Graph *graph =
      graph_parse(module, &(Source){"case", text, strlen(text)});
  Text errors = text_create(module->arena);
  diags_print(module->diags, &errors);
  cr_assert(graph, "%s", text_string(&errors));
  return graph;
}

typedef struct Asked {
  int n, n_lists, most_in_list;
  int stop_after;  /* so many lists; 0: never */
  int n_too_large; /* whole programs that need more than their folded price */
  int64_t least;   /* bytes of any plan */
  const char *fits_with, *needs; /* lines of the plans that fit, that are legal;
                                    or NULL */
} Asked;

static int64_t size_after(const char *text, const char *word) {
  const char *at = strstr(text, word);
  return at ? atoll(at + strlen(word)) : 1;
}

/* Best are 4 ranks of `tensor` with F, and ZeRO 1; more than 8 samples a
 * micro-batch do not fit. */
static void price(void *user, const CandidateList *list, CandidatePrice *out) {
  Asked *asked = user;
  asked->n += list->n;
  asked->n_lists++;
  if (list->n > asked->most_in_list) asked->most_in_list = list->n;
  for (int i = 0; i < list->n; i++) {
    const char *text = list->texts[i];
    int64_t tensor = size_after(text, "tensor = ");
    int64_t data = size_after(text, "data = ");
    int64_t microbatches = size_after(text, "microbatches = ");
    int64_t off = tensor > 4 ? tensor - 4 : 4 - tensor;
    out[i] = (CandidatePrice){
        .is_legal = true,
        .step = 1000 + 100 * off + 10 * microbatches +
                (strstr(text, "zero = 1") ? 0 : 50) +
                (strstr(text, "shard F over tensor") ? 0 : 500),
        .peak = 64 / (data * microbatches),
        .memory = 8};
    if (out[i].peak < asked->least) out[i].peak = asked->least;
    if (asked->fits_with && !strstr(text, asked->fits_with)) out[i].peak += 8;
    if (asked->needs) out[i].is_legal = strstr(text, asked->needs) != NULL;
    if (list->is_whole && asked->n_too_large-- > 0) out[i].peak = 9;
  }
}

static bool is_stopped(void *user) {
  const Asked *asked = user;
  return asked->stop_after > 0 && asked->n_lists >= asked->stop_after;
}

static SearchInput search_input(Asked *asked, int most, int64_t ranks) {
  Module *module = module_create();
  static const SearchHost *host;
  SearchHost own = {.price = price, .is_stopped = is_stopped, .user = asked};
  host = arena_copy(module->arena, &own, sizeof own);
  Pins *pins = ARENA_NEW(module->arena, Pins);
  pins->batch_dim = name_intern(module->names, "B");
  pins->batch = 64;
  pins->has_train = true;
  return (SearchInput){.arena = module->arena,
                       .train = small_graph(module),
                       .pins = pins,
                       .ranks = ranks,
                       .most_candidates = most,
                       .host = host};
}

static SearchResult search(Asked *asked, int most, int64_t ranks) {
  SearchInput input = search_input(asked, most, ranks);
  return plan_search(&input);
}

Test(planner, sets_of_dims_that_no_parameter_has_together) {
  Module *module = module_create();
  SearchInput input = {
      .arena = module->arena, .train = small_graph(module), .ranks = 24};
  Space space = space_of(&input);
  cr_assert_eq(space.n_dims, 4); /* B is the batch of no pins here */
  Text sets = text_create(module->arena);
  for (int i = 0; i < space.n_sets; i++) {
    for (int k = 0; k < space.n_dims; k++)
      if (space.sets[i] >> k & 1) text_add(&sets, space.dims[k].name);
    text_add(&sets, " ");
  }
  cr_expect_str_eq(text_string(&sets), "FV C B ", "%s", text_string(&sets));
  static const int factors[] = {2, 2, 2, 3};
  cr_assert_eq(space.n_factors, 4);
  for (int i = 0; i < 4; i++) cr_expect_eq(space.factors[i], factors[i]);
}

Test(planner, finds_the_best_of_the_formula) {
  Asked asked = {0};
  SearchResult result = search(&asked, 2000, 16);
  cr_assert(result.has_plan);
  cr_expect(strstr(result.best.text, "tensor = 4"), "%s", result.best.text);
  cr_expect(strstr(result.best.text, "zero = 1"), "%s", result.best.text);
  cr_expect(strstr(result.best.text, "shard F over tensor"));
  cr_expect_eq(result.best.price.peak, 8);
  cr_expect(result.plain.is_legal);
  cr_expect_gt(result.plain.step, result.best.price.step);
  cr_expect_leq(asked.most_in_list, 16);
  cr_expect_eq(result.n_legal, result.n_priced);
}

/* FV C B are the sets of the small graph, `B` not being the batch.  Data has C,
 * too, which no product contracts here. */
Test(planner, axes_are_named_by_what_they_shard) {
  Module *module = module_create();
  SearchInput input = {
      .arena = module->arena, .train = small_graph(module), .ranks = 64};
  Space space = space_of(&input);
  DimSet params = space.sets[0], other = 1, rows = space.sets[1];
  const struct {
    Candidate candidate;
    const char *words;
  } cases[] = {
      {{.n_axes = 2, .sizes = {4, 8}, .dims = {0, params}},
       "data 4 x tensor 8"},
      {{.n_axes = 3, .sizes = {2, 4, 8}, .dims = {params, rows, other}},
       "tensor_outer 2 x sequence 4 x tensor 8"},
      {{.n_axes = 3, .sizes = {2, 4, 8}, .dims = {params, other, params}},
       "tensor_outermost 2 x tensor_outer 4 x tensor 8"},
      {{.n_axes = 3, .sizes = {2, 4, 8}, .dims = {0, params, params}},
       "data 2 x tensor 32"},
      {{.n_axes = 3, .sizes = {2, 4, 8}, .dims = {0, 0, 0}}, "data 64"}};
  for (int i = 0; i < ARRAY_LENGTH(cases); i++) {
    Candidate merged = candidate_merged(&space, &cases[i].candidate);
    cr_expect_str_eq(candidate_words(&space, &merged), cases[i].words, "%s",
                     candidate_words(&space, &merged));
  }
  for (int i = 0; i < space.n_dims; i++)
    space.dims[i].is_contracted = rows >> i & 1;
  Candidate features = {.n_axes = 1, .sizes = {2}, .dims = {rows}};
  cr_expect_str_eq(candidate_words(&space, &features), "tensor 2");
  space.dims[0].is_of_experts = true; /* of the set FV */
  cr_expect_str_eq(candidate_words(&space, &cases[0].candidate),
                   "data 4 x expert 8");
}

Test(planner, the_budget_is_a_number_of_candidates) {
  for (int most = 1; most < 300; most += 37) {
    Asked asked = {0}, again = {0};
    SearchResult result = search(&asked, most, 16);
    cr_expect_leq(result.n_priced, most);
    cr_expect_str_eq(search(&again, most, 16).best.text, result.best.text);
  }
}

Test(planner, a_stop_leaves_the_best_so_far) {
  Asked asked = {.stop_after = 2};
  SearchResult result = search(&asked, 2000, 16);
  cr_expect(result.is_stopped);
  cr_expect(result.best.text != NULL);
  cr_expect_lt(result.n_priced, 100);
}

/* The first 20 whole programs need more than was thought. */
Test(planner, looks_further_where_no_finalist_fits) {
  Asked asked = {.n_too_large = 20};
  SearchResult result = search(&asked, 2000, 16);
  cr_assert(result.has_plan);
  cr_expect_leq(result.best.price.peak, 8);
}

/* The fewest bytes, or the first plan that fits. */
Test(planner, searches_for_the_fewest_bytes) {
  Asked asked = {0};
  SearchInput input = search_input(&asked, 2000, 16);
  SearchResult result = plan_search_lean(&input, 0);
  cr_assert(result.has_plan);
  cr_expect_leq(result.best.price.peak, 8);
  cr_expect_eq(result.best.price.memory, 8);
  int n_early = asked.n;

  asked = (Asked){0};
  input = search_input(&asked, 2000, 16);
  result = plan_search_lean(&input, 1);
  cr_assert(result.has_plan);
  cr_expect_eq(result.best.price.peak, 1);
  cr_expect_eq(result.best.price.memory, 1);

  asked = (Asked){.least = 2};
  input = search_input(&asked, 2000, 16);
  result = plan_search_lean(&input, 1);
  cr_expect(!result.has_plan);
  cr_expect_eq(result.best.price.peak, 2, "the plan that misses least");
  cr_expect_eq(result.n_fit, 0);
  cr_expect_lt(n_early, asked.n, "a plan that fits ends the search");

  /* One that fits in part only does not. */
  asked = (Asked){.n_too_large = 3};
  input = search_input(&asked, 2000, 16);
  result = plan_search_lean(&input, 0);
  cr_assert(result.has_plan);
  cr_expect_leq(result.best.price.peak, 8);
}

/* 64 samples are shards of 3, 3, ..., 1 and 0 for 24 ranks. */
Test(planner, ranks_may_have_different_numbers_of_samples) {
  Asked asked = {0};
  SearchResult result = search(&asked, 1, 24);
  cr_assert(result.first);
  cr_expect(strstr(result.first, "data = 24"), "%s", result.first);
  cr_expect(!strstr(result.first, "over none"), "%s", result.first);
}

Test(planner, a_layer_is_computed_again_where_nothing_fits_else) {
  Asked asked = {.fits_with = "  remat gate\n"};
  SearchResult result = search(&asked, 2000, 16);
  cr_assert(result.has_plan);
  cr_expect(strstr(result.best.text, asked.fits_with), "%s", result.best.text);
  asked = (Asked){0};
  cr_expect(!strstr(search(&asked, 2000, 16).best.text, "remat gate"));
}

Test(planner, the_batch_shares_an_axis_where_nothing_fits_else) {
  Asked asked = {.fits_with = "  shard B over tensor\n"};
  SearchResult result = search(&asked, 2000, 16);
  cr_assert(result.has_plan);
  cr_expect(strstr(result.best.text, asked.fits_with), "%s", result.best.text);
}

/* By itself the batch takes no axis that another line names. */
Test(planner, the_batch_may_take_an_axis_that_a_line_names) {
  static const Source source;
  Asked asked = {.needs = "  shard B over (a, b)\n"};
  SearchInput input = search_input(&asked, 2000, 4);
  Pins *pins = arena_copy(input.arena, input.pins, sizeof *pins);
  Names *names = input.train->module->names;
  Name a = name_intern(names, "a"), b = name_intern(names, "b");
  pins->mesh_span.source = &source;
  vec_push(input.arena, &pins->axes, ((PinAxis){.name = a, .size = 2}));
  vec_push(input.arena, &pins->axes, ((PinAxis){.name = b}));
  vec_push(input.arena, &pins->shards,
           ((PlanShard){.dim = name_intern(names, "F"), 1, .axes = {a}}));
  input.pins = pins;
  cr_expect(plan_search(&input).has_plan);
}
