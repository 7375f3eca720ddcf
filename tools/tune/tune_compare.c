/*
 * tune_compare.c -- runs plans, and compares their steps with predictions.
 *
 * A prediction is the price of `dnnc simulate` with the files that the
 * measurements have left, so times of whole steps are in none.  A plan runs
 * first as it would train, for its step, then with every launch measured alone,
 * for the time of its kernels; the rest of a step is waiting.
 *
 * The plan with the shortest prediction begins.  Until one has run, a plan may
 * take half of what is left, then as much as each that follows it.  A plan that
 * is ended there has the steps that it made.
 *
 * A machine is slower for seconds at a time.  So the plans run by turns, and
 * the step of each is the median over its turns.
 */
#include "driver/trial.h"
#include "tools/commands/tool_price.h"
#include "tools/tune/tune.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_FILE_BYTES = 64 << 20,
  MOST_STEPS = 2000, /* of a run */
  LEAST_STEPS = 4,
  MOST_TURNS = 5
};

/* One plan; times in seconds. */
typedef struct Compared {
  const TunePlan *plan;
  const char *why; /* why: it was left out; else NULL */
  double predicted, measured;
  double kernels_predicted;
  double kernels_measured; /* NAN: its share was used up before */
  int64_t start_ms;        /* time of a run beside its steps */
  int n_turns;
  double turns[MOST_TURNS];
} Compared;

static const char *file_in(const Tuning *tuning, const char *name) {
  return arena_printf(tuning->arena, "%s/%s", tuning->folder, name);
}

static const char *read_text(const Tuning *tuning, const char *path) {
  const char *text;
  size_t n;
  Status status = file_read(tuning->arena, path, MOST_FILE_BYTES, &text, &n);
  return status.code == STATUS_ok ? text : "";
}

/* Exit code, or a CHILD_. */
static int run_child(const Tuning *tuning, const Words *words, int64_t limit_ms,
                     const char *out, const char **out_why) {
  const char *errors = file_in(tuning, "errors");
  int code = child_run(tuning->arena, NULL,
                       &(Child){.words = words->data,
                                .n_words = words->n,
                                .out = out,
                                .err = errors,
                                .is_alone = true,
                                .limit_ms = limit_ms,
                                .is_stopped = tool_is_stopped});
  if (code == EXIT_done) return code;
  *out_why = code == CHILD_late ? "it took longer than its share of the budget"
                                : tune_why(tuning, code, errors);
  return code;
}

static void add_words(const Tuning *tuning, Words *words,
                      const char *const *from, int n) {
  for (int i = 0; i < n; i++) vec_push(tuning->arena, words, from[i]);
}

/* ---- predictions ---- */

/* The model, loaded for the machines that were measured. */
typedef struct Predictions {
  Tool tool; /* as if its command line were that of `dnnc simulate` */
  Compilation loaded;
  PriceRequest request;
} Predictions;

/* Exit code; mistakes are printed. */
static int load_predictions(const Tuning *tuning, const char *plan,
                            Predictions *out) {
  out->tool = *tuning->tool;
  Options *options = &out->tool.options;
  options->command = COMMAND_simulate;
  options->plan = plan;
  options->cluster = arena_printf(tuning->arena, "%s.cluster", tuning->prices);
  if (tuning->n_measured > 0)
    options->profile =
        arena_printf(tuning->arena, "%s.profile", tuning->prices);
  int code = tool_price_request(&out->tool, &out->request);
  return code == EXIT_done ? tool_load(&out->tool, &out->loaded) : code;
}

static const char *first_error(const Tuning *tuning, const Diags *diags) {
  const char *error = diags_first_error(diags, tuning->arena);
  return error ? error : "it has no price";
}

static bool predict(const Tuning *tuning, Predictions *with, Compared *plan) {
  Diags *diags = diags_create(tuning->arena);
  PlanSource from = {.file = driver_read_plan(&with->loaded, plan->plan->path)};
  const Pins *pins =
      from.file ? driver_read_pins(&with->loaded, &from, diags) : NULL;
  plan->why = from.file ? first_error(tuning, diags) : "it cannot be read";
  if (!pins) return false;
  Trial trial;
  Memory *memory = tuning->tool->memory;
  TrialPlan of = {.pins = pins};
  bool is_priced =
      driver_try(&with->loaded, memory, &of, &with->request, &trial);
  plan->why = first_error(tuning, trial.module.diags);
  plan->predicted = (double)trial.priced.price.step * 1e-12;
  plan->kernels_predicted = (double)trial.priced.price.compute * 1e-12;
  driver_end_trial(&trial);
  return is_priced;
}

/* ---- measurements ---- */

/* The number after "key": in a line of `dnnc run --json`; NAN. */
static double json_number(const char *text, const char *key) {
  for (size_t n = strlen(key); (text = strchr(text, '"')); text++) {
    if (strncmp(text + 1, key, n) != 0 || strncmp(text + 1 + n, "\":", 2) != 0)
      continue;
    return strtod(text + n + 3, NULL);
  }
  return NAN;
}

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median of "ms" in the lines of steps, but for the first two, or for the
 * first of two; NAN if there are fewer. */
static double median_step(const char *text) {
  double times[MOST_STEPS];
  int n = 0, first;
  for (; *text && n < MOST_STEPS; text += strcspn(text, "\n")) {
    while (*text == '\n') text++;
    const char *line = text;
    if (strncmp(line, "{\"step\":", 8) != 0) continue;
    double ms = json_number(line, "ms");
    if (isfinite(ms)) times[n++] = ms;
  }
  if (n < 2) return NAN;
  first = n > 2 ? 2 : 1;
  n -= first;
  qsort(times + first, (size_t)n, sizeof *times, by_value);
  return times[first + n / 2] * 1e-3;
}

/* Kernels of a step in a profile: the sum over its rows of time and runs.  The
 * first step is not in it. */
static double kernels_in(const char *text, int steps) {
  double sum = 0;
  for (; *text; text += strcspn(text, "\n")) {
    while (*text == '\n') text++;
    const char *end = text + strcspn(text, "\n"), *runs = end, *ps;
    while (runs > text && runs[-1] != ',') runs--;
    for (ps = runs - 1; ps > text && ps[-1] != ',';) ps--;
    sum += strtod(ps, NULL) * strtod(runs, NULL) / steps;
  }
  return sum * 1e-12;
}

/* Exit code, or a CHILD_. */
static int run_plan(const Tuning *tuning, Compared *plan, int steps,
                    const char *profile, int64_t until_ms) {
  Words words = {0};
  vec_push(tuning->arena, &words, "run");
  tune_model_words(tuning, &words);
  tune_build_words(tuning, &words);
  const char *const more[] = {
      "--plan",    plan->plan->path,
      "--steps",   arena_printf(tuning->arena, "%d", steps),
      "--no-save", "--json",
      "--profile", profile};
  add_words(tuning, &words, more, ARRAY_LENGTH(more) - (profile ? 0 : 2));
  const char *steps_path = file_in(tuning, "run.json");
  remove(steps_path); /* those of another plan, if no child starts */
  return run_child(tuning, &words, until_ms - child_now_ms(), steps_path,
                   &plan->why);
}

static double measured_step(const Tuning *tuning) {
  return median_step(read_text(tuning, file_in(tuning, "run.json")));
}

/* Compiles the plan and runs a few steps. */
static bool begin_steps(const Tuning *tuning, Compared *plan,
                        int64_t until_ms) {
  plan->why = "the budget is used up";
  if (child_now_ms() >= until_ms) return false;
  int code = run_plan(tuning, plan, LEAST_STEPS, NULL, until_ms);
  if (code != EXIT_done && code != CHILD_late) return false;
  plan->measured = measured_step(tuning);
  if (isfinite(plan->measured) && plan->measured > 0) return true;
  if (code == EXIT_done) plan->why = "it made no step";
  return false;
}

/* Runs a few steps, then once more for the time of its kernels. */
static bool begin_plan(const Tuning *tuning, Compared *plan, int64_t until_ms) {
  const char *profile = file_in(tuning, "plan.profile");
  plan->kernels_measured = NAN;
  if (!begin_steps(tuning, plan, until_ms)) return false;
  int64_t begin = child_now_ms();
  int code = run_plan(tuning, plan, LEAST_STEPS, profile, until_ms);
  plan->start_ms =
      child_now_ms() - begin - (int64_t)(LEAST_STEPS * plan->measured * 1e3);
  if (plan->start_ms < 0) plan->start_ms = 0;
  if (code == EXIT_done)
    plan->kernels_measured =
        kernels_in(read_text(tuning, profile), LEAST_STEPS - 1);
  plan->why = NULL;
  return true;
}

/* Returns the steps of a plan in each turn: as many as fit into the budget, if
 * all plans make as long turns. */
static int steps_of_turn(const Tuning *tuning, const Compared *plan, int n) {
  double share_ms = 0.8 * (double)tune_left_ms(tuning) / (n * MOST_TURNS);
  double steps = (share_ms - (double)plan->start_ms) * 1e-3 / plan->measured;
  return steps < LEAST_STEPS ? LEAST_STEPS : steps < 200 ? (int)steps : 200;
}

static void run_turn(const Tuning *tuning, Compared *plan, int steps) {
  double needed_ms = (double)plan->start_ms + steps * plan->measured * 1e3;
  const char *why = plan->why;
  if (plan->why || tool_is_stopped() ||
      !tune_has_left(tuning, (int64_t)(needed_ms * 5 / 4)))
    return;
  int64_t until_ms = child_now_ms() + tune_left_ms(tuning);
  int code = run_plan(tuning, plan, steps, NULL, until_ms);
  double step = code == EXIT_done ? measured_step(tuning) : NAN;
  plan->why = why; /* a turn that fails is as none */
  if (isfinite(step)) plan->turns[plan->n_turns++] = step;
}

static void run_turns(const Tuning *tuning, Compared *plans, int n) {
  int *steps = ARENA_ARRAY(tuning->arena, int, n), n_run = 0;
  for (int i = 0; i < n; i++) n_run += plans[i].why == NULL;
  for (int i = 0; i < n; i++)
    if (!plans[i].why) steps[i] = steps_of_turn(tuning, &plans[i], n_run);
  for (int turn = 0; turn < MOST_TURNS; turn++)
    for (int i = 0; i < n; i++) run_turn(tuning, &plans[i], steps[i]);
  for (int i = 0; i < n; i++) {
    Compared *plan = &plans[i];
    if (plan->n_turns == 0) continue;
    qsort(plan->turns, (size_t)plan->n_turns, sizeof *plan->turns, by_value);
    plan->measured = plan->turns[plan->n_turns / 2];
  }
}

/* ---- the report ---- */

static double error_of(double predicted, double measured) {
  return measured > 0 ? predicted / measured - 1 : 0;
}

static void print_words(Text *out, const Compared *plans, int n) {
  text_printf(out, "%-40s %12s %12s %7s %9s %9s\n", "plan", "predicted",
              "measured", "error", "kernels", "waiting");
  for (int i = 0; i < n; i++) {
    const Compared *p = &plans[i];
    if (p->why) {
      text_printf(out, "%-40s left out: %s\n", p->plan->name, p->why);
      continue;
    }
    double waits = p->predicted - p->kernels_predicted;
    double waited = p->measured - p->kernels_measured;
    text_printf(out, "%-40s %9.3f ms %9.3f ms %+6.1f%%", p->plan->name,
                p->predicted * 1e3, p->measured * 1e3,
                100 * error_of(p->predicted, p->measured));
    if (isnan(p->kernels_measured)) {
      text_printf(out, " %9s %9s\n", "-", "-");
      continue;
    }
    text_printf(out, " %+8.1f%% %+8.1f%%\n",
                100 * (p->kernels_predicted - p->kernels_measured) /
                    p->measured,
                100 * (waits - waited) / p->measured);
  }
  text_add(out, "kernels and waiting: their part of the error, of the measured "
                "step\n");
}

static void print_json(Text *out, const Compared *plans, int n) {
  for (int i = 0; i < n; i++) {
    const Compared *p = &plans[i];
    text_add(out, "{\"plan\":");
    text_add_json(out, p->plan->name);
    if (p->why) {
      text_add(out, ",\"left_out\":");
      text_add_json(out, p->why);
    } else {
      text_add(out, ",\"predicted_s\":");
      text_add_real(out, p->predicted);
      text_add(out, ",\"measured_s\":");
      text_add_real(out, p->measured);
      text_add(out, ",\"kernels_predicted_s\":");
      text_add_real(out, p->kernels_predicted);
    }
    if (!p->why && isfinite(p->kernels_measured)) {
      text_add(out, ",\"kernels_measured_s\":");
      text_add_real(out, p->kernels_measured);
    }
    text_add(out, "}\n");
  }
}

static int write_plan(const Tuning *tuning, const TunePlan *plan,
                      const char *about) {
  const char *text = read_text(tuning, plan->path);
  const char *path = arena_printf(tuning->arena, "%s.plan", tuning->name);
  Status status = file_replace(path, text, strlen(text));
  if (status.code != STATUS_ok) return tool_fail(status);
  tune_say(tuning, "%s: %s, %s\n", path, plan->name, about);
  return EXIT_done;
}

static int write_fastest(const Tuning *tuning, const Compared *plans, int n) {
  const Compared *best = NULL, *predicted = NULL;
  for (int i = 0; i < n; i++) {
    if (!plans[i].why && (!best || plans[i].measured < best->measured))
      best = &plans[i];
    if (plans[i].plan->is_found && !predicted) predicted = &plans[i];
  }
  if (best) return write_plan(tuning, best->plan, "the fastest");
  if (!tune_has_measured(tuning)) return tune_report_nothing(tuning);
  if (predicted)
    return write_plan(tuning, predicted->plan,
                      "the fastest by prediction; no plan could be run");
  message_print("dnnc: error: none of the plans could be run\n");
  return EXIT_no_plan;
}

/* The plans that have a prediction, the shortest first.  Returns how many. */
static int predict_plans(const Tuning *tuning, Predictions *with,
                         Compared *plans, int n, Compared **out) {
  int n_out = 0;
  for (int i = 0; i < n && !tool_is_stopped(); i++) {
    if (!predict(tuning, with, &plans[i])) continue;
    plans[i].why = "its ranks are on several machines";
    if (plans[i].plan->is_found && tune_spans_machines()) continue;
    int at = n_out++;
    for (; at > 0 && out[at - 1]->predicted > plans[i].predicted; at--)
      out[at] = out[at - 1];
    out[at] = &plans[i];
  }
  return n_out;
}

/* One share more than there are plans is for their turns. */
static void begin_plans(const Tuning *tuning, Compared **plans, int n) {
  bool has_run = false;
  for (int i = 0; i < n && !tool_is_stopped(); i++) {
    int shares = has_run ? n - i + 1 : 2;
    int64_t until_ms = child_now_ms() + tune_left_ms(tuning) / shares;
    has_run |= begin_plan(tuning, plans[i], until_ms);
  }
}

int tune_compare(Tuning *tuning, const TunePlans *list) {
  int n = list->n;
  Predictions *predictions = ARENA_NEW(tuning->arena, Predictions);
  int code = load_predictions(tuning, list->data[0].path, predictions);
  if (code != EXIT_done) return code;
  Compared *plans = ARENA_ARRAY(tuning->arena, Compared, n);
  Compared **runs = ARENA_ARRAY(tuning->arena, Compared *, n);
  for (int i = 0; i < n; i++) plans[i].plan = &list->data[i];
  begin_plans(tuning, runs, predict_plans(tuning, predictions, plans, n, runs));
  run_turns(tuning, plans, n);
  if (tool_is_stopped()) return EXIT_machine;
  Text out = text_create(tuning->arena);
  (tuning->tool->options.json ? print_json : print_words)(&out, plans, n);
  tool_print(&out);
  return write_fastest(tuning, plans, n);
}
