// links: price interp ir support
/*
 * pipeline_schedules.c -- tests what every schedule promises: each call once,
 * after what it reads; times, idle times and micro-batches alive as published.
 */
#include "price/schedule_list.h"
#include "tests/unit/pipeline_lists.h"

TestSuite(pipeline_schedules, .fini = modules_destroy);

/* ---- a schedule on the clock ---- */

typedef struct Timed {
  const ScheduleList *list;
  Ps step, idle_span; /* longest from first to last call of a rank, less work */
  bool has_ended;
} Timed;

typedef struct Spans {
  Ps *begin, *end; /* by rank */
} Spans;

static void record(void *user, const SimSpan *span) {
  Spans *spans = user;
  if (span->queue >= 0 || span->is_wait) return; /* a message */
  if (spans->begin[span->class] < 0) spans->begin[span->class] = span->begin;
  spans->end[span->class] = span->end;
}

static Timed play(Module *module, const Pipeline *pipeline,
                  PipelineTimes times) {
  Arena *arena = module->arena;
  int p = pipeline->n_ranks;
  ScheduleTimes of = {times.forward, times.input_grad, times.weight_grad};
  Timed timed = {.list = schedule_list_make(arena, pipeline, &of),
                 .has_ended = true};
  Spans spans = {ARENA_ARRAY(arena, Ps, p), ARENA_ARRAY(arena, Ps, p)};
  for (int r = 0; r < p; r++) spans.begin[r] = -1;
  SimResult result = simulate(arena, &timed.list->program, 1, record, &spans);
  timed.step = result.step;
  for (int r = 0; r < p; r++) {
    Ps idle = spans.end[r] - spans.begin[r] - timed.list->work[r];
    if (idle > timed.idle_span) timed.idle_span = idle;
    timed.has_ended &= result.classes[r].waits_for < 0;
  }
  return timed;
}

static int largest_live(const ScheduleList *list) {
  int largest = 0;
  for (int r = 0; r < list->n_ranks; r++)
    if (list->peak_live[r] > largest) largest = list->peak_live[r];
  return largest;
}

/* ---- published figures ---- */

/* With F = I = W = 1: the step, the idle time of the rank that is busy longest,
 * and the most micro-batches of stages alive on a rank. */
static void check_figures(const char *name, int p, int m, int step, int idle,
                          int live) {
  Module *module = module_create();
  Timed timed =
      play(module, make_pipeline(module, name, p, m), (PipelineTimes){1, 1, 1});
  cr_expect(timed.has_ended, "%s p %d m %d", name, p, m);
  cr_expect_leq((int)timed.step, step, "%s p %d m %d", name, p, m);
  cr_expect_leq((int)timed.idle_span, idle, "%s p %d m %d", name, p, m);
  cr_expect_leq(largest_live(timed.list), live, "%s p %d m %d", name, p, m);
  modules_destroy();
}

Test(pipeline_schedules, figures) {
  static const struct {
    const char *name;
    int p, m, step, idle, live;
  } rows[] = {
      {"1f1b", 4, 8, 33, 9, 4},
      {"interleaved(v = 2)", 4, 8, 57, 9, 11},
      {"interleaved(v = 2)", 4, 3, 30, 12, 6},
      {"interleaved(v = 4)", 5, 10, 132, 12, 24},
      {"bfs(v = 2)", 4, 8, 57, 9, 16},
      {"zb1p(v = 1)", 4, 4, 15, 3, 4},
      {"zb1p(v = 2)", 4, 8, 51, 3, 8},
      {"zb1p(v = 3)", 4, 12, 111, 3, 12},
      {"zbh1", 2, 4, 13, 1, 2},
      {"zbh1", 8, 16, 55, 7, 8},
      {"zbh2", 2, 6, 19, 0, 3},
      {"zbh2", 8, 20, 67, 0, 15},
      {"zbv", 4, 4, 30, 6, 8},
      {"zbv", 4, 16, 99, 0, 8},
      {"zbv", 8, 16, 103, 0, 16},
      {"vhalf", 2, 4, 25, 1, 4},
      {"vhalf", 4, 8, 53, 5, 6},
      {"vhalf", 8, 16, 113, 17, 10},
      {"vmin", 2, 4, 27, 3, 4},
      {"vmin", 4, 8, 59, 11, 4},
      {"vmin", 8, 16, 123, 27, 8},
      {"dualpipev", 2, 4, 26, 2, 5},
      {"dualpipev", 4, 10, 66, 6, 9},
      {"dualpipev", 8, 16, 110, 14, 17},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++)
    check_figures(rows[i].name, rows[i].p, rows[i].m, rows[i].step,
                  rows[i].idle, rows[i].live);
}

/* The name of the schedule in that of a file, "zbpp_zbh1_p4_m8.csv", with its
 * stages a rank where they are an argument. */
static const char *schedule_of_file(Module *module, const char *file,
                                    const char *v) {
  const char *begin = strchr(file, '_') + 1;
  const char *name =
      arena_printf(module->arena, "%.*s", (int)strcspn(begin, "_"), begin);
  if (strcmp(name, "gpipe") == 0) return "fthenb";
  const PipelineSchedule *schedule = pipeline_schedule_find(name);
  cr_assert(schedule, "%s", file);
  if (schedule->args != PIPELINE_ARGS_chunks) return schedule->name;
  return arena_printf(module->arena, "%s(v = %s)", name, v);
}

static int largest_number(const char *text) {
  int largest = 0;
  for (char *at = (char *)text; *at;) {
    int value = (int)strtol(at, &at, 10);
    if (value > largest) largest = value;
  }
  return largest;
}

Test(pipeline_schedules, published_figures) {
  Module *module = module_create();
  const char *text = file_text(module, "metrics.csv");
  if (!text) {
    cr_skip("skipped: no ../shared/data/schedules");
    return;
  }
  char *rows = strdup(text), *rest;
  int n_rows = 0;
  strtok_r(rows, "\n", &rest); /* the names of the columns */
  for (char *row; (row = strtok_r(NULL, "\n", &rest)); n_rows++) {
    char *fields[11], *more;
    for (int f = 0; f < 11; f++)
      fields[f] = strtok_r(f ? NULL : row, ",", &more);
    Module *names = module_create();
    char *name = strdup(schedule_of_file(names, fields[0], fields[3]));
    check_figures(name, atoi(fields[2]), atoi(fields[4]), atoi(fields[6]),
                  atoi(fields[9]), largest_number(fields[10]));
    free(name);
  }
  free(rows);
  cr_expect_geq(n_rows, 50);
}

/* ---- random shapes and times ---- */

typedef struct Drawn {
  const char *name;
  int p, m, v;
  PipelineTimes times;
} Drawn;

static int draw(uint64_t key, int i, int k, int n) {
  return (int)random_below(key, (uint64_t)(16 * i + k), (uint64_t)n);
}

static Drawn draw_case(Module *module, int i) {
  uint64_t key = random_key(7, "schedules");
  const PipelineSchedule *schedule =
      pipeline_schedule(draw(key, i, 0, pipeline_schedule_count()));
  Drawn d = {.name = schedule->name,
             .p = 1 + draw(key, i, 1, 16),
             .m = 1 + draw(key, i, 2, 64),
             .v = 1 + draw(key, i, 3, 4),
             .times = {1 + draw(key, i, 4, 9), 1 + draw(key, i, 5, 9),
                       1 + draw(key, i, 6, 9)}};
  if (schedule->args == PIPELINE_ARGS_chunks)
    d.name = arena_printf(module->arena, "%s(v = %d)", d.name, d.v);
  if (schedule->args == PIPELINE_ARGS_times)
    d.name = arena_printf(module->arena, "%s(times = (%d, %d, %d))", d.name,
                          (int)d.times.forward, (int)d.times.input_grad,
                          (int)d.times.weight_grad);
  return d;
}

static int least(int a, int b) {
  return a < b ? a : b;
}

/* The most micro-batches of stages that a rank may keep. */
static int live_bound(const PipelineSchedule *schedule, const Drawn *d,
                      int rank) {
  const char *name = schedule->name;
  int p = d->p, m = d->m, v = d->v;
  int g = m / p > 1 ? m / (m / p) : m;
  if (strcmp(name, "naive") == 0) return 1;
  if (strcmp(name, "fthenb") == 0 || strcmp(name, "gpipe") == 0) return m;
  if (strcmp(name, "1f1b") == 0) return least(p - rank, m);
  if (strcmp(name, "interleaved") == 0)
    return least((v - 1) * g + 2 * (p - 1 - rank) + 1, v * m);
  if (strcmp(name, "bfs") == 0) return v * m;
  if (strcmp(name, "zb1p") == 0) return least((v - 1) * g + p, v * m);
  if (strcmp(name, "chimera") == 0) return p;
  if (strcmp(name, "zbh1") == 0) return least(p, m);
  if (strcmp(name, "zbh2") == 0) return 2 * p - 1;
  if (strcmp(name, "dualpipev") == 0) return 2 * p + 1;
  return 2 * p; /* on a V */
}

/* F, and B or I and W, of each stage and micro-batch once. */
static void check_calls(Module *module, const Pipeline *pipeline,
                        const char *name) {
  int n = pipeline->n_stages * pipeline->n_microbatches;
  int *forward = ARENA_ARRAY(module->arena, int, n),
      *input = ARENA_ARRAY(module->arena, int, n),
      *weight = ARENA_ARRAY(module->arena, int, n);
  for (int r = 0; r < pipeline->n_ranks; r++)
    for (int i = 0; i < pipeline->lists[r].n; i++) {
      const Token *token = &pipeline->lists[r].data[i];
      int at = token->stage * pipeline->n_microbatches + token->microbatch;
      bool is_whole = token->kind == TOKEN_backward;
      cr_assert(token->stage % pipeline->n_ranks == r ||
                    token->stage == 2 * pipeline->n_ranks - 1 - r ||
                    (strcmp(name, "chimera") == 0 &&
                     token->stage == pipeline->n_ranks - 1 - r),
                "%s", name);
      forward[at] += token->kind == TOKEN_forward;
      input[at] += is_whole || token->kind == TOKEN_input_grad;
      weight[at] += is_whole || token->kind == TOKEN_weight_grad;
    }
  for (int i = 0; i < n; i++)
    cr_assert(forward[i] == 1 && input[i] == 1 && weight[i] == 1, "%s", name);
  pipeline_check_calls(module->arena, module->diags, pipeline);
  cr_expect_eq(diags_errors(module->diags), 0, "%s", name);
}

/* Returns whether the schedule can have the shape. */
static bool check_drawn(int i) {
  Module *module = module_create();
  Drawn d = draw_case(module, i);
  PipelineSpelling spelling;
  pipeline_spelling_read(module->arena, d.name, &spelling);
  PipelineShape shape = {d.p, d.p * spelling.chunks, d.m, spelling.times};
  if (pipeline_schedule_refuses(module->arena, spelling.schedule, &shape))
    return false;
  Pipeline *pipeline = pipeline_make(module->arena, spelling.schedule, &shape);
  check_calls(module, pipeline, d.name);
  Timed timed = play(module, pipeline, d.times);
  cr_expect(timed.has_ended, "%s", d.name);
  for (int r = 0; r < d.p; r++)
    cr_expect_leq(timed.list->peak_live[r],
                  live_bound(spelling.schedule, &d, r), "%s p %d m %d rank %d",
                  d.name, d.p, d.m, r);
  return true;
}

Test(pipeline_schedules, random_shapes) {
  int n_made = 0;
  for (int i = 0; n_made < 500; i++) {
    n_made += check_drawn(i);
    modules_destroy();
  }
}

/* Where B takes as long as F, chimera is idle for (p - 2) F. */
Test(pipeline_schedules, chimera) {
  for (int p = 2; p <= 8; p += 2)
    for (int m = p; m <= 4 * p; m += p) {
      Module *module = module_create();
      Timed timed = play(module, make_pipeline(module, "chimera", p, m),
                         (PipelineTimes){2, 1, 1});
      cr_expect_eq((int)timed.step, 2 * (2 * m + p - 2), "p %d m %d", p, m);
      for (int r = 0; r < p; r++) {
        cr_expect_geq(timed.list->peak_live[r], p / 2);
        cr_expect_leq(timed.list->peak_live[r], p);
      }
      modules_destroy();
    }
}

/* ---- what schedules are compared with ---- */

static bool is_forward_or_input(const Token *token) {
  return token->kind == TOKEN_forward || token->kind == TOKEN_input_grad;
}

/* zbh1 takes no longer than 1f1b, whatever the times are, and has as few
 * micro-batches between F and I. */
Test(pipeline_schedules, zbh1_and_1f1b) {
  for (int i = 0; i < 200; i++) {
    Module *module = module_create();
    Drawn d = draw_case(module, i);
    PipelineShape shape = {d.p, d.p, d.m, d.times};
    Pipeline *zbh1 =
        pipeline_make(module->arena, pipeline_schedule_find("zbh1"), &shape);
    Pipeline *plain =
        pipeline_make(module->arena, pipeline_schedule_find("1f1b"), &shape);
    cr_expect_leq((int)play(module, zbh1, d.times).step,
                  (int)play(module, plain, d.times).step,
                  "p %d m %d times %d %d %d", d.p, d.m, (int)d.times.forward,
                  (int)d.times.input_grad, (int)d.times.weight_grad);
    for (int r = 0; r < d.p; r++) {
      int begun = 0;
      for (int k = 0; k < zbh1->lists[r].n; k++) {
        const Token *token = &zbh1->lists[r].data[k];
        if (!is_forward_or_input(token)) continue;
        begun += token->kind == TOKEN_forward ? 1 : -1;
        cr_assert_leq(begun, d.p - r);
      }
    }
    modules_destroy();
  }
}

/* A list is made for its times: long weight gradients want another order. */
Test(pipeline_schedules, times_matter) {
  static const char *const names[] = {"zbh1", "zbh2", "zbv", "vhalf", "vmin"};
  static const PipelineTimes times = {2, 3, 9};
  int n_shorter = 0;
  for (int i = 0; i < ARRAY_LENGTH(names); i++) {
    Module *module = module_create();
    char name[60];
    snprintf(name, sizeof name, "%s(times = (2, 3, 9))", names[i]);
    PipelineSpelling spelling;
    cr_assert(!pipeline_spelling_read(module->arena, name, &spelling));
    PipelineShape shape = {4, 4 * spelling.chunks, 12, spelling.times};
    Pipeline *made = pipeline_make(module->arena, spelling.schedule, &shape);
    Ps own = play(module, made, times).step;
    Ps other = play(module, make_pipeline(module, names[i], 4, 12), times).step;
    cr_expect_leq((int)own, (int)other, "%s", names[i]);
    n_shorter += own < other;
  }
  cr_expect_geq(n_shorter, 2);
}

/* ---- what they need ---- */

Test(pipeline_schedules, needs) {
  static const struct {
    const char *name;
    int p, m;
    const char *needed; /* NULL: nothing else */
  } rows[] = {
      {"zbh2", 4, 7, NULL},
      {"zbh2", 4, 6, "at least 7 micro-batches"},
      {"dualpipev", 4, 8, NULL},
      {"dualpipev", 4, 7, "at least 8 micro-batches"},
      {"interleaved", 4, 10, NULL},
      {"interleaved", 4, 11, "2 equal groups"},
      {"chimera", 4, 8, NULL},
      {"chimera", 4, 6, "a multiple"},
      {"chimera", 3, 6, "an even number of ranks"},
      {"zb1p(v = 3)", 3, 7, "2 equal groups"},
      {"zb1p(v = 1)", 3, 7, NULL},
  };
  for (int i = 0; i < ARRAY_LENGTH(rows); i++) {
    Module *module = module_create();
    const PipelineSchedule *schedule;
    PipelineShape shape =
        shape_of(module, rows[i].name, rows[i].p, rows[i].m, &schedule);
    const char *refused =
        pipeline_schedule_refuses(module->arena, schedule, &shape);
    cr_expect_eq(!refused, !rows[i].needed, "%s: %s", rows[i].name, refused);
    if (refused && rows[i].needed)
      cr_expect(strstr(refused, rows[i].needed), "%s", refused);
  }
}
