/*
 * bench_stages.c -- compares what the search estimates of plans with stages,
 * their bytes and their step, with the programs of these plans.
 *
 *     bench_stages [--plans N] [--seed S] [--state FILE] [--model NAME]
 *
 *     --plans N    of each model on each number of ranks (24)
 *     --show TEXT  prints the plans whose bytes are farther off than TEXT %
 *     --most TEXT  by so many percent bytes may be off on average (5)
 *
 * The search walks over the small models of bench_units on 2, 4 and 8 ranks and
 * estimates its plans; N of them by seed are written as it would write them,
 * compiled and priced.  With --state a run goes on after the last model of the
 * file.  It prints, for each model and number of ranks, the plans that are
 * legal, and the distance of the estimates from the packed arena and from the
 * simulated step: on average with and without its sign, and at most.
 * Exit status 1: the mean distance of bytes is above --most.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "planner/stages/stage_peak.h"
#include "planner/stages/staged.h"
#include "tests/assigned/assigned.h"

typedef struct Settings {
  AssignedOptions of;
  int64_t seed;
  double show; /* percent; 0: nothing */
  double most; /* percent, of bytes on average */
} Settings;

/* Distances of estimates: a share of what the program has. */
typedef struct Distances {
  double sum, absolute, most;
} Distances;

/* One model on some ranks. */
typedef struct Row {
  int model, ranks, estimated, plans, legal;
  Distances bytes, step;
} Row;

typedef VEC(Row) Rows;

static _Noreturn void no_memory(void *user) {
  (void)user;
  fprintf(stderr, "bench_stages: no memory left\n");
  exit(2);
}

/* ---- the search ---- */

static bool is_never_stopped(void *user) {
  (void)user;
  return false;
}

/* All plans that the search estimates, of the first ranks of the cluster. */
typedef struct Estimates {
  SearchHost host;
  SearchInput input;
  ClusterSlice slice;
  CostModel model;
  Pricing pricing;
  StageSearch search;
} Estimates;

/* The search cuts models with loops by simulated times (planner/timed), of
 * which no unit has an estimate that could be compared here. */
static void print_reason(const Program *program, int ranks,
                         const StageSearch *s, const char *reason) {
  bool is_loop = s->units && units_loop(program->module->arena, s->units);
  if (is_loop)
    printf("%s on %d ranks: not compared, since %s: its stages are cut by "
           "simulated times, not by estimates of units\n",
           program->subject->name, ranks, reason);
  else
    printf("%s on %d ranks: no stages: %s\n", program->subject->name, ranks,
           reason);
}

static bool estimate(const Program *program, int ranks, Estimates *out) {
  Arena *arena = program->module->arena;
  const Trial *trial = &program->trial;
  out->slice = cluster_slice(arena, trial->priced.cluster, 0, ranks);
  if (!driver_cost_model(&trial->c, &out->slice, &out->model)) return false;
  out->host = (SearchHost){.is_stopped = is_never_stopped};
  out->input = (SearchInput){.arena = arena,
                             .train = program->loaded.model->train,
                             .pins = program->loaded.pins,
                             .cluster = trial->priced.cluster,
                             .ranks = ranks,
                             .most_candidates = INT32_MAX,
                             .host = &out->host,
                             .kernels = trial->c.trained,
                             .repeats = *program->units->repeats,
                             .model = &out->model,
                             .slice = &out->slice,
                             .paths = program->paths,
                             .target = &trial->c.target.backend->target,
                             .memory = trial->priced.memory};
  out->pricing = pricing_create(&out->input);
  out->search =
      (StageSearch){.p = &out->pricing, .arena = arena, .best = INT64_MAX / 4};
  const char *reason = stage_begin(&out->search);
  if (reason) print_reason(program, ranks, &out->search, reason);
  if (!reason) stage_walk(&out->search);
  return !reason && out->search.plans.n > 0;
}

/* ---- prices ---- */

static void note(Distances *d, double estimated, double is) {
  double distance = is > 0 ? estimated / is - 1 : 0;
  d->sum += distance;
  d->absolute += fabs(distance);
  if (fabs(distance) > fabs(d->most)) d->most = distance;
}

typedef struct Judge {
  const Settings *settings;
  const StagedPlan *const *plans; /* by trial */
  const char *const *texts;
  Row *row;
} Judge;

static void print_refusal(const Trial *trial, const char *plan) {
  Text messages = text_create(trial->module.arena);
  diags_print(trial->module.diags, &messages);
  printf("# refused: %s\n%s\n", text_string(&messages), plan);
}

static void print_arena(const char *name, const ArenaParts *a) {
  printf("# %s: persistent %lld, step %lld, frames %lld, messages %lld, "
         "scratch %lld\n",
         name, (long long)a->persistent, (long long)a->step,
         (long long)a->frames, (long long)a->messages, (long long)a->scratch);
}

/* The arena of each group of ranks, and what it is estimated to be. */
static void print_far(const Trial *trial, const StagedPlan *plan,
                      const char *text) {
  StagePlay play;
  Arena *arena = trial->module.arena;
  printf("# %lld bytes, estimated %lld\n", (long long)trial->priced.peak,
         (long long)plan->peak);
  for (int g = 0; g < trial->priced.n_programs; g++)
    print_arena("is", &trial->priced.programs[g].step->arena);
  if (stage_play_create(arena, &plan->shape, NULL, 0, &play)) {
    const ArenaParts *arenas =
        stage_arenas(arena, &play, plan->costs, plan->ends);
    for (int g = 0; g < plan->shape.groups; g++)
      print_arena("estimated", &arenas[g]);
  }
  printf("%s\n", text);
}

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  Judge *j = user;
  if (!is_priced && j->settings->show > 0) print_refusal(trial, j->texts[i]);
  if (!is_priced) return;
  Bytes peak = trial->priced.peak, estimated = j->plans[i]->peak;
  double off = 100 * ((double)estimated / (double)peak - 1);
  j->row->legal++;
  note(&j->row->bytes, (double)estimated, (double)peak);
  note(&j->row->step, (double)j->plans[i]->step,
       (double)trial->priced.price.step);
  if (j->settings->show > 0 && fabs(off) > j->settings->show)
    print_far(trial, j->plans[i], j->texts[i]);
}

/* Prices some of the estimated plans, each at most once. */
static void price(const Settings *settings, const Program *program,
                  const Estimates *e, Row *row) {
  enum { THREADS = 1 };
  Arena *arena = program->module->arena;
  int n_plans = e->search.plans.n, n = 0;
  int most = settings->of.plans < n_plans ? (int)settings->of.plans : n_plans;
  TrialPlan *trials = ARENA_ARRAY(arena, TrialPlan, most);
  const StagedPlan **plans = ARENA_ARRAY(arena, const StagedPlan *, most);
  const char **texts = ARENA_ARRAY(arena, const char *, most);
  uint64_t key = random_key((uint64_t)settings->seed, "stages");
  for (int i = 0; i < most; i++) {
    /* One of each part of the list, which begins with few groups. */
    int first = (int)((int64_t)n_plans * i / most);
    int end = (int)((int64_t)n_plans * (i + 1) / most);
    uint64_t at = random_below(key, (uint64_t)i, (uint64_t)(end - first));
    plans[n] = &e->search.plans.data[first + (int)at];
    Candidate c = stage_candidate(&e->search, plans[n]);
    texts[n] = candidate_text(&e->pricing.space, &c);
    trials[n].pins = assigned_read(program, arena, texts[n]);
    row->plans++;
    if (trials[n].pins) n++;
  }
  Judge judge = {settings, plans, texts, row};
  driver_try_all(&program->loaded, &(TrialList){.n = n,
                                                .plans = trials,
                                                .request = &program->request,
                                                .most_threads = THREADS,
                                                .visit = end_trial,
                                                .user = &judge});
}

static Row compare(const Settings *settings, int model, int ranks) {
  Memory *memory = memory_create(no_memory, NULL);
  Row row = {.model = model, .ranks = ranks};
  Estimates e = {0};
  Program *program = assigned_load(memory, &assigned_subjects[model]);
  if (program && estimate(program, ranks, &e)) {
    row.estimated = e.search.plans.n;
    price(settings, program, &e, &row);
  }
  memory_destroy(memory);
  return row;
}

/* ---- the file of a run ---- */

static void append(const Settings *settings, const Row *r) {
  FILE *file = settings->of.state ? fopen(settings->of.state, "a") : NULL;
  if (!settings->of.state) return;
  if (!file ||
      fprintf(file, "%d %d %d %d %d %.9g %.9g %.9g %.9g %.9g %.9g\n", r->model,
              r->ranks, r->estimated, r->plans, r->legal, r->bytes.sum,
              r->bytes.absolute, r->bytes.most, r->step.sum, r->step.absolute,
              r->step.most) < 0 ||
      fclose(file) != 0) {
    perror(settings->of.state);
    exit(2);
  }
}

static void read_state(const Settings *settings, Arena *arena, Rows *rows) {
  Row r = {0};
  FILE *file = settings->of.state ? fopen(settings->of.state, "r") : NULL;
  while (file && fscanf(file, "%d %d %d %d %d %lf %lf %lf %lf %lf %lf",
                        &r.model, &r.ranks, &r.estimated, &r.plans, &r.legal,
                        &r.bytes.sum, &r.bytes.absolute, &r.bytes.most,
                        &r.step.sum, &r.step.absolute, &r.step.most) == 11)
    vec_push(arena, rows, r);
  if (file) fclose(file);
}

static bool is_known(const Rows *rows, int model, int ranks) {
  for (int i = 0; i < rows->n; i++)
    if (rows->data[i].model == model && rows->data[i].ranks == ranks)
      return true;
  return false;
}

/* ---- the table ---- */

static void print_row(const char *name, const Row *r) {
  double n = r->legal > 0 ? r->legal : 1;
  printf("%-16s %5d %9d %6d %6d %+7.2f %% %6.2f %% %+8.2f %% %+7.2f %% "
         "%6.2f %% %+8.2f %%\n",
         name, r->ranks, r->estimated, r->plans, r->legal,
         100 * r->bytes.sum / n, 100 * r->bytes.absolute / n,
         100 * r->bytes.most, 100 * r->step.sum / n, 100 * r->step.absolute / n,
         100 * r->step.most);
}

static void add(Row *all, const Row *r) {
  Distances *const to[] = {&all->bytes, &all->step};
  const Distances *const from[] = {&r->bytes, &r->step};
  all->estimated += r->estimated;
  all->plans += r->plans;
  all->legal += r->legal;
  for (int i = 0; i < 2; i++) {
    to[i]->sum += from[i]->sum;
    to[i]->absolute += from[i]->absolute;
    if (fabs(from[i]->most) > fabs(to[i]->most)) to[i]->most = from[i]->most;
  }
}

/* Returns whether the estimates of bytes are near enough. */
static bool print(const Settings *settings, const Rows *rows) {
  Row all = {0};
  printf("%-16s %5s %9s %6s %6s %33s %33s\n", "model", "ranks", "estimated",
         "plans", "legal", "bytes: mean, distance, most",
         "step: mean, distance, most");
  for (int i = 0; i < rows->n; i++) {
    print_row(assigned_subjects[rows->data[i].model].name, &rows->data[i]);
    add(&all, &rows->data[i]);
  }
  print_row("all", &all);
  return all.bytes.absolute <= settings->most / 100 * all.legal;
}

/* ---- the command line ---- */

static bool read_options(Settings *s, int argc, char **argv) {
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return false;
    const char *value = argv[i + 1];
    if (assigned_option(&s->of, argv[i], value)) continue;
    if (!strcmp(argv[i], "--seed"))
      s->seed = atoll(value);
    else if (!strcmp(argv[i], "--show"))
      s->show = atof(value);
    else if (!strcmp(argv[i], "--most"))
      s->most = atof(value);
    else
      return false;
  }
  return s->of.plans > 0;
}

static void run(const Settings *settings, Arena *arena, Rows *rows) {
  for (int model = 0; model < n_assigned_subjects; model++) {
    const Subject *subject = &assigned_subjects[model];
    if (settings->of.model && strcmp(settings->of.model, subject->name))
      continue;
    for (int ranks = 2; ranks <= 8; ranks *= 2) {
      if (is_known(rows, model, ranks)) continue;
      Row row = compare(settings, model, ranks);
      append(settings, &row);
      vec_push(arena, rows, row);
    }
  }
}

int main(int argc, char **argv) {
  Settings settings = {.of.plans = 24, .seed = 1, .most = 5};
  Memory *memory = memory_create(no_memory, NULL);
  Arena *arena = arena_create(memory);
  Rows rows = {0};
  if (!read_options(&settings, argc, argv)) {
    fprintf(stderr, "usage: bench_stages [--plans N] [--seed S] [--state FILE] "
                    "[--model NAME] [--show PERCENT] [--most PERCENT]\n");
    return 2;
  }
  read_state(&settings, arena, &rows);
  run(&settings, arena, &rows);
  bool is_near = print(&settings, &rows);
  memory_destroy(memory);
  return !is_near;
}
