/*
 * planning.c -- loads a model and its cluster for a search, and prices the
 * candidates of the search.
 *
 * A candidate is read as a plan file would be, compiled and simulated.  Of a
 * model with many equal blocks a few are left: the step and the arena with
 * FEWER and with MORE of them say what each further block adds.
 */
#include "tools/commands/planning.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ir/model/repeat.h"
#include "planner/stages/stage_pins.h"
#include "tools/commands/child.h"
#include "tools/plan/one_rank.h"

enum {
  FEWER_BLOCKS = 10,
  MORE_BLOCKS = 12,
  MOST_LEAN = 160 /* candidates of a search for the fewest bytes */
};

/* ---- prices of candidates ---- */

/* One program of a candidate. */
typedef struct Part {
  bool is_priced;
  Ps step;
  Bytes peak, memory;
  const char *mesh, *words; /* "data 2"; "data 2, ZeRO 1" */
  uint64_t program;
} Part;

typedef struct Parts {
  Arena *arena;
  Part *parts; /* by trial */
} Parts;

static uint64_t hash_stage(const ProgramStage *stage, uint64_t hash) {
  const InstructionList *list = stage->instructions;
  uint64_t of_graph = graph_hash(stage->graph);
  hash = hash_bytes(&of_graph, sizeof of_graph, hash);
  for (int i = 0; i < list->instructions.n; i++) {
    const Instruction *of = &list->instructions.data[i];
    const int words[] = {(int)of->kind, of->node, of->collective, of->queue};
    hash = hash_bytes(words, sizeof words, hash);
  }
  return hash;
}

uint64_t planning_program(const Priced *priced) {
  uint64_t hash = 0;
  for (int i = 0; i < priced->n_programs; i++)
    for (int s = 0; s < priced->programs[i].step->stages.n; s++)
      hash = hash_stage(&priced->programs[i].step->stages.data[s], hash);
  return hash;
}

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  Parts *parts = user;
  const Priced *p = &trial->priced;
  parts->parts[i].is_priced = is_priced;
  if (!is_priced) return;
  parts->parts[i] =
      (Part){.is_priced = true,
             .step = p->price.step,
             .peak = p->peak,
             .memory = p->memory,
             .mesh = plan_mesh_words(parts->arena, trial->c.plan),
             .words = trial->c.plan ? plan_describe(parts->arena, trial->c.plan)
                                    : "one rank",
             .program = planning_program(p)};
}

const Pins *planning_read(Planning *planning, const char *text, Diags *diags) {
  Arena *arena = planning->tool->arena;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){"candidate.plan", text, strlen(text)};
  PlanSource from = {.file = source,
                     .without = planning->without,
                     .n_without = planning->n_without};
  return driver_read_pins(&planning->loaded, &from, diags);
}

/* More blocks take no less time.  The quotient first: a product of a long time
 * is too large. */
static Ps extend_step(Ps fewer, Ps more, int64_t further, int64_t between) {
  Ps added = more > fewer ? more - fewer : 0;
  if (added > 0 && further > (SIM_LONGEST - more) / added * between)
    return SIM_LONGEST;
  return more + added / between * further + added % between * further / between;
}

/* From the prices with FEWER and MORE blocks: each further block adds as much
 * as one of those between. */
static CandidatePrice extend(const Planning *planning, const Part *fewer,
                             const Part *more) {
  int64_t further = planning->n_blocks - MORE_BLOCKS;
  int64_t between = MORE_BLOCKS - FEWER_BLOCKS;
  return (CandidatePrice){
      .is_legal = fewer->is_priced && more->is_priced,
      .step = extend_step(fewer->step, more->step, further, between),
      .peak = more->peak + (more->peak - fewer->peak) * further / between,
      .memory = more->memory};
}

/* A plan is noted when it is priced for the first time. */
static void note_fall(Planning *planning, const CandidatePrice *price) {
  int n = planning->falls.n;
  Ps best = n ? planning->falls.data[n - 1].step : INT64_MAX;
  planning->n_priced++;
  if (price->is_legal && price->peak <= price->memory && price->step < best)
    vec_push(planning->tool->arena, &planning->falls,
             (StepFall){planning->n_priced, price->step});
}

static void remember(Planning *planning, const char *text,
                     const CandidatePrice *price, const Part *part) {
  PricedPlan plan = {{text, part->words, *price}, part->mesh, part->program};
  int n = planning->priced.list.n;
  priced_plans_add(&planning->priced, &plan);
  if (planning->priced.list.n > n) note_fall(planning, price);
}

/* Trials run in threads of their own, whose time is not counted. */
static double thread_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The price of a candidate, and the program of most blocks that has it. */
typedef struct KnownPrice {
  CandidatePrice price;
  Part part;
} KnownPrice;

static const void *known_key(const char *text, bool is_whole) {
  uint64_t hash = hash_bytes(text, strlen(text), is_whole);
  return (const void *)(uintptr_t)(hash | 1);
}

static void keep(Planning *planning, const char *text, bool is_whole,
                 const CandidatePrice *price, const Part *part) {
  remember(planning, text, price, part);
  if (!planning->known || tool_is_stopped()) return;
  KnownPrice *known = ARENA_NEW(planning->tool->arena, KnownPrice);
  *known = (KnownPrice){*price, *part};
  map_put(planning->known, known_key(text, is_whole), known);
}

static void price_unknown(Planning *planning, const CandidateList *list,
                          CandidatePrice *out) {
  Arena *arena = planning->tool->arena;
  bool is_cut = planning->n_blocks > MORE_BLOCKS && !list->is_whole;
  int *first = ARENA_ARRAY(arena, int, list->n), n = 0;
  TrialPlan *plans = ARENA_ARRAY(arena, TrialPlan, 2 * list->n);
  for (int i = 0; i < list->n; i++) {
    const Pins *pins =
        planning_read(planning, list->texts[i], diags_create(arena));
    first[i] = pins ? n : -1;
    TrialPlan plan = {.pins = pins,
                      .blocks = is_cut ? MORE_BLOCKS : 0,
                      .is_training_only = !list->is_whole};
    if (pins) plans[n++] = plan;
    plan.blocks = FEWER_BLOCKS;
    if (pins && is_cut) plans[n++] = plan;
  }
  Parts parts = {arena, ARENA_ARRAY(arena, Part, n + 1)};
  /* The plans found so far are judged even after a signal. */
  bool (*stop)(void) = list->is_whole ? NULL : tool_is_stopped;
  driver_try_all(&planning->loaded, &(TrialList){.n = n,
                                                 .plans = plans,
                                                 .request = &planning->request,
                                                 .most_threads = tool_threads(),
                                                 .is_stopped = stop,
                                                 .visit = end_trial,
                                                 .user = &parts});
  for (int i = 0; i < list->n; i++) {
    out[i] = (CandidatePrice){0};
    if (first[i] < 0) continue;
    const Part *more = &parts.parts[first[i]];
    out[i] = is_cut ? extend(planning, more + 1, more)
                    : (CandidatePrice){more->is_priced, more->step, more->peak,
                                       more->memory};
    keep(planning, list->texts[i], list->is_whole, &out[i], more);
  }
}

/* Each search prices a candidate once, but several may have the same. */
static void price_candidates(void *user, const CandidateList *list,
                             CandidatePrice *out) {
  Planning *planning = user;
  double begin = thread_seconds();
  Arena *arena = planning->tool->arena;
  const char **texts = ARENA_ARRAY(arena, const char *, list->n + 1);
  CandidatePrice *prices = ARENA_ARRAY(arena, CandidatePrice, list->n + 1);
  int *at = ARENA_ARRAY(arena, int, list->n + 1), n = 0;
  for (int i = 0; i < list->n; i++) {
    const void *key = known_key(list->texts[i], list->is_whole);
    const KnownPrice *known =
        planning->known ? map_get(planning->known, key) : NULL;
    at[n] = i;
    if (!known) texts[n++] = list->texts[i];
    if (!known) continue;
    out[i] = known->price;
    remember(planning, list->texts[i], &known->price, &known->part);
  }
  CandidateList unknown = {n, texts, list->is_whole};
  price_unknown(planning, &unknown, prices);
  for (int i = 0; i < n; i++) out[at[i]] = prices[i];
  planning->search_seconds -= thread_seconds() - begin;
}

void planning_price_whole(Planning *planning, int n, const char *const *texts,
                          CandidatePrice *out) {
  if (n == 0) return;
  CandidateList list = {.n = n, .texts = texts, .is_whole = true};
  price_candidates(planning, &list, out);
}

static bool is_stopped(void *user) {
  const Planning *planning = user;
  return tool_is_stopped() ||
         (planning->until_ms > 0 && child_now_ms() > planning->until_ms);
}

/* A bound is no part of the search: its time is not counted. */
static void list_bound_plans(void *user, Ps step, BoundPlans *out) {
  Planning *planning = user;
  double begin = thread_seconds();
  planning_bound_step(planning, step, out);
  planning->search_seconds -= thread_seconds() - begin;
}

/* Pins of one rank: the options may name others. */
static const Pins *pins_of_one(Planning *planning, int64_t microbatches) {
  Arena *arena = planning->tool->arena;
  const Pins *read =
      planning_read(planning, "mesh {\n}\nplan {\n}\n", diags_create(arena));
  Pins *out = read ? arena_copy(arena, read, sizeof *read) : NULL;
  if (!out) return NULL;
  out->ranks = (PinNumber){0};
  out->microbatches = pin_number(microbatches);
  return out;
}

static bool list_node_times(void *user, int64_t microbatches, int64_t rank,
                            NodeTimes *out) {
  Planning *planning = user;
  double begin = thread_seconds();
  const Pins *pins = pins_of_one(planning, microbatches);
  bool is_listed = pins && planning_node_times(planning, pins, rank, out);
  planning->search_seconds -= thread_seconds() - begin;
  return is_listed;
}

static void show_progress(void *user, int n_priced, int of,
                          const CandidatePrice *best) {
  const Planning *planning = user;
  if (planning->tool->options.quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%d of at most %d plans priced", n_priced, of);
  if (best)
    fprintf(stderr, ", the best takes %.3f ms", (double)best->step * 1e-9);
  fprintf(stderr, "%10s", "");
  fflush(stderr);
}

static void show_estimates(void *user, int64_t n_plans, int groups) {
  const Planning *planning = user;
  if (planning->tool->options.quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%-77s",
          arena_printf(planning->tool->arena,
                       "%lld plans with stages estimated, on up to %d groups "
                       "of ranks",
                       (long long)n_plans, groups));
  fflush(stderr);
}

static void end_progress(const Planning *planning) {
  if (planning->tool->options.quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%78s\r", "");
}

/* ---- the search ---- */

static int longest_run(const Graph *graph) {
  Repeat repeats[MOST_REPEATS];
  int n = graph_repeats(graph, NULL, repeats), longest = 0;
  for (int i = 0; i < n; i++) {
    int blocks = repeats[i].last - repeats[i].first + 1;
    if (blocks > longest) longest = blocks;
  }
  return longest;
}

/* Returns the ranks that --ranks, a written mesh or the cluster names. */
static int64_t ranks_of(const Planning *planning) {
  const Pins *pins = planning->loaded.pins;
  if (planning->tool->options.ranks > 0) return planning->tool->options.ranks;
  if (pins && pins->ranks.value > 0) return pins->ranks.value;
  int64_t ranks = stage_pins_ranks(planning->tool->arena, pins);
  return ranks > 0 ? ranks : cluster_ranks(planning->loaded.cluster);
}

/* Prints a mistake with the names that there are. */
static bool read_search(Planning *planning) {
  const Options *options = &planning->tool->options;
  Text names = text_create(planning->tool->arena);
  planning->search = options->search ? search_find(options->search) : 0;
  if (planning->search >= 0) return true;
  for (int i = 0; i < search_count(); i++)
    text_printf(&names, "%s%s", i ? ", " : "", search_info(i)->name);
  message_print("dnnc: error: --search has no '%s'\nhelp: there are %s\n",
                options->search, text_string(&names));
  return false;
}

void planning_begin(Planning *planning) {
  planning->n_blocks = longest_run(planning->loaded.model->train);
}

/* Copies of a Planning search with other pins, so each search has a record of
 * its own. */
static void begin_record(Planning *planning) {
  planning->priced = priced_plans_create(planning->tool->arena);
  planning->n_priced = planning->falls.n = 0;
  planning->falls.data = NULL;
  planning->falls.capacity = 0;
}

int planning_load(Planning *planning) {
  Tool *tool = planning->tool;
  if (!read_search(planning)) return EXIT_user;
  int code = tool_price_request(tool, &planning->request);
  if (code == EXIT_done) code = tool_load(tool, &planning->loaded);
  if (code != EXIT_done) return code;
  const Model *model = planning->loaded.model;
  if (!model->train) {
    message_print("dnnc: error: '%s' has no train block, and a plan is for a "
                  "training step\n",
                  tool->options.subject);
    return EXIT_user;
  }
  planning_begin(planning);
  return EXIT_done;
}

/* Any lines, so that the paths of the model are known. */
static const PlanPaths *known_paths(Planning *planning) {
  Arena *arena = planning->tool->arena;
  const Pins *pins = planning_read(
      planning, "mesh {\n}\nplan {\n  zero = 0\n}\n", diags_create(arena));
  return pins ? pins->paths : NULL;
}

/* The program of one rank, whose kernels the search places. */
static void add_kernels(Planning *planning, SearchInput *input) {
  OneRank program;
  if (input->ranks > cluster_ranks(input->cluster)) return;
  input->paths = known_paths(planning);
  if (!input->paths ||
      !one_rank_compile(planning->tool, &planning->loaded, &planning->request,
                        input->ranks, &program))
    return;
  input->repeats = program.repeats;
  input->kernels = program.kernels;
  input->model = program.model;
  input->slice = program.slice;
  input->target = program.target;
  input->memory = program.memory;
  input->most_microbatches = program.most_microbatches;
}

/* A price takes time for each node of a program, so a number of nodes is what
 * all candidates together may have. */
int planning_most_candidates(const Planning *planning) {
  enum { MOST = 800, FEWEST = 60, NODES = 240000 };
  int64_t effort = planning->tool->options.effort;
  int64_t nodes = planning->loaded.model->train->nodes.n;
  if (effort > 0) return effort < INT32_MAX ? (int)effort : INT32_MAX;
  if (planning->n_blocks > MORE_BLOCKS)
    nodes = nodes * (FEWER_BLOCKS + MORE_BLOCKS) / planning->n_blocks;
  int64_t most = NODES / (nodes + 1);
  return most < FEWEST ? FEWEST : most > MOST ? MOST : (int)most;
}

const Cluster *planning_cluster(const Planning *planning) {
  const Cluster *changed = planning->request.cluster;
  return changed ? changed : planning->loaded.cluster;
}

SearchInput planning_input(Planning *planning, SearchHost *host) {
  *host = (SearchHost){.price = price_candidates,
                       .is_stopped = is_stopped,
                       .progress = show_progress,
                       .estimated = show_estimates,
                       .times = list_node_times,
                       .user = planning};
  return (SearchInput){.arena = planning->tool->arena,
                       .train = planning->loaded.model->train,
                       .pins = planning->loaded.pins,
                       .cluster = planning_cluster(planning),
                       .ranks = ranks_of(planning),
                       .most_candidates = planning_most_candidates(planning),
                       .search = planning->search,
                       .lists_stages = planning->lists_stages,
                       .host = host};
}

static bool asks_for_stages(const Planning *planning) {
  return stage_pins_of(planning->tool->arena, planning->loaded.pins)
      .needs_stages;
}

/* Returns whether plans may keep the pins about ranks and stages. */
static bool check_pins(Planning *planning) {
  Module module = planning->tool->module;
  module.diags = diags_create(planning->tool->arena);
  if (driver_check_plan_ranks(&module, planning->loaded.cluster,
                              planning->loaded.pins, planning->input.ranks) &&
      stage_pins_check(&module, &planning->input))
    return true;
  planning->refusal = module.diags;
  planning->result = (SearchResult){0};
  return false;
}

static SearchResult search_lean(Planning *planning, Bytes limit, int most) {
  SearchHost host;
  SearchInput input = planning_input(planning, &host);
  if (asks_for_stages(planning)) add_kernels(planning, &input);
  if (input.most_candidates > most) input.most_candidates = most;
  tool_hold_search_signals();
  SearchResult result = plan_search_lean(&input, limit);
  end_progress(planning);
  return result;
}

SearchResult planning_lean(Planning *planning, Bytes limit) {
  begin_record(planning);
  return search_lean(planning, limit, MOST_LEAN);
}

/* The search for the shortest step may miss the few plans that fit.  Of small
 * programs many more are looked at. */
static void add_lean(Planning *planning) {
  int most = planning_most_candidates(planning) / 4 * 3;
  SearchResult *out = &planning->result;
  /* A limit of one byte ends no search early. */
  SearchResult lean =
      search_lean(planning, out->has_plan, most > MOST_LEAN ? most : MOST_LEAN);
  out->n_priced += lean.n_priced;
  out->n_legal += lean.n_legal;
  out->n_fit += lean.n_fit;
  out->is_stopped |= lean.is_stopped;
  if (!lean.best.text || out->has_plan) return;
  bool is_smaller =
      !out->best.text || lean.best.price.peak < out->best.price.peak;
  if (!lean.has_plan && !is_smaller) return;
  out->best = lean.best;
  out->has_plan = lean.has_plan;
}

/* Lines may say all about stages that no search knows, as what a search found
 * over several groups of a cluster, or about plans that no search compares. */
static bool says_all(const Planning *planning) {
  const Pins *pins = planning->loaded.pins;
  if (!pins) return false;
  bool has_default = pins_change_results(planning->tool->arena, pins);
  if (pins->servers.n > 0) return pins_have_mesh(pins);
  return pins_have_stages(pins) && pins->schedule &&
         (pins->microbatches.is_set || has_default);
}

static bool price_written(Planning *planning) {
  Arena *arena = planning->tool->arena;
  const Pins *pins = planning->loaded.pins;
  PlanTexts texts;
  CandidatePrice price = {0};
  if (!says_all(planning) ||
      !driver_plan_texts(&planning->loaded, pins, diags_create(arena), &texts))
    return false;
  planning_price_whole(planning, 1, &texts.text, &price);
  if (!price.is_legal) return false;
  bool fits = price.peak <= price.memory;
  planning->result = (SearchResult){
      .has_plan = fits,
      .best = {.text = texts.text, .words = texts.words, .price = price},
      .first = texts.text,
      .n_priced = 1,
      .n_legal = 1,
      .n_fit = fits,
      .space = pins_change_results(arena, pins)
                   ? "the plan as it is written: it changes what is computed, "
                     "so no search compares plans with it"
                   : "the plan as it is written, whose stages no search takes "
                     "yet"};
  priced_plans_list(&planning->priced, &planning->result);
  return true;
}

void planning_search(Planning *planning) {
  begin_record(planning);
  planning->input = planning_input(planning, &planning->host);
  tool_hold_search_signals();
  add_kernels(planning, &planning->input);
  bool is_searched = check_pins(planning);
  planning_find_space(planning);
  if (!is_searched) {
    if (price_written(planning)) planning->refusal = NULL;
    return;
  }
  if (!planning->no_space) planning->host.bound = list_bound_plans;
  planning->search_seconds = -thread_seconds();
  planning->result = plan_search(&planning->input);
  planning->search_seconds += thread_seconds();
  end_progress(planning);
  bool wants_lean = planning->looks_for_fewest_bytes;
  if ((!planning->result.has_plan || wants_lean) &&
      !planning->result.is_stopped)
    add_lean(planning);
  priced_plans_list(&planning->priced, &planning->result);
}

FoundPlan planning_printed(Planning *planning, const FoundPlan *found) {
  Diags *diags = diags_create(planning->tool->arena);
  FoundPlan out = *found;
  PlanTexts texts;
  const Pins *pins = planning_read(planning, found->text, diags);
  ASSERT(pins); /* it was priced before */
  if (!driver_plan_texts(&planning->loaded, pins, diags, &texts)) return out;
  out.text = texts.text;
  out.words = texts.words;
  return out;
}
