/*
 * tune_compare.c -- runs plans, and compares their steps with predictions.
 *
 * A prediction is the price of `dnnc simulate` with the files that the
 * measurements have left, so times of whole steps are in none.  A plan runs
 * twice: as it would train, for its step, and with every launch measured alone,
 * for the time of its kernels; the rest of a step is waiting.
 */
#include "driver/trial.h"
#include "tools/commands/tool_price.h"
#include "tools/tune/tune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FILE_BYTES = 64 << 20, MOST_STEPS = 2000, LEAST_STEPS = 4 };

/* One plan; times in seconds. */
typedef struct Compared {
  const char *plan, *why; /* why: it was left out; else NULL */
  double predicted, measured;
  double kernels_predicted, kernels_measured; /* of them: kernels */
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

static bool run_child(const Tuning *tuning, const Words *words,
                      int64_t limit_ms, const char *out, const char **out_why) {
  const char *errors = file_in(tuning, "errors");
  int code = child_run(tuning->arena, NULL,
                       &(Child){.words = words->data,
                                .n_words = words->n,
                                .out = out,
                                .err = errors,
                                .is_alone = true,
                                .limit_ms = limit_ms,
                                .is_stopped = tool_is_stopped});
  if (code == EXIT_done) return true;
  *out_why = code == CHILD_late ? "it took longer than its share of the budget"
                                : tune_why(tuning, code, errors);
  return false;
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
static int load_predictions(const Tuning *tuning, Predictions *out) {
  out->tool = *tuning->tool;
  Options *options = &out->tool.options;
  options->command = COMMAND_simulate;
  options->plan = options->plans.data[0];
  options->cluster = arena_printf(tuning->arena, "%s.cluster", tuning->name);
  options->profile = arena_printf(tuning->arena, "%s.profile", tuning->name);
  int code = tool_price_request(&out->tool, &out->request);
  return code == EXIT_done ? tool_load(&out->tool, &out->loaded) : code;
}

static const char *first_error(const Tuning *tuning, const Diags *diags) {
  const char *error = diags_first_error(diags, tuning->arena);
  return error ? error : "it has no price";
}

static bool predict(const Tuning *tuning, Predictions *with, Compared *plan) {
  Diags *diags = diags_create(tuning->arena);
  PlanSource from = {.file = driver_read_plan(&with->loaded, plan->plan)};
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

/* The median of "ms" in the lines of steps, but for the first two. */
static double median_step(const char *text) {
  double times[MOST_STEPS];
  int n = 0, skipped = 0;
  for (; *text && n < MOST_STEPS; text += strcspn(text, "\n")) {
    while (*text == '\n') text++;
    const char *line = text;
    if (strncmp(line, "{\"step\":", 8) != 0) continue;
    double ms = json_number(line, "ms");
    if (skipped++ >= 2 && isfinite(ms)) times[n++] = ms;
  }
  if (n == 0) return NAN;
  qsort(times, (size_t)n, sizeof *times, by_value);
  return times[n / 2] * 1e-3;
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

static bool run_plan(const Tuning *tuning, Compared *plan, int steps,
                     const char *profile, int64_t until_ms) {
  Words words = {0};
  vec_push(tuning->arena, &words, "run");
  tune_model_words(tuning, &words);
  tune_build_words(tuning, &words);
  const char *const more[] = {
      "--plan",    plan->plan,
      "--steps",   arena_printf(tuning->arena, "%d", steps),
      "--no-save", "--json",
      "--profile", profile};
  add_words(tuning, &words, more, ARRAY_LENGTH(more) - (profile ? 0 : 2));
  return run_child(tuning, &words, until_ms - child_now_ms(),
                   file_in(tuning, "run.json"), &plan->why);
}

/* First few steps, then as many as its share of the budget allows. */
static bool measure_plan(const Tuning *tuning, Compared *plan,
                         int64_t until_ms) {
  const char *profile = file_in(tuning, "plan.profile");
  if (!run_plan(tuning, plan, LEAST_STEPS, profile, until_ms)) return false;
  plan->kernels_measured =
      kernels_in(read_text(tuning, profile), LEAST_STEPS - 1);
  if (!run_plan(tuning, plan, LEAST_STEPS, NULL, until_ms)) return false;
  plan->measured = median_step(read_text(tuning, file_in(tuning, "run.json")));
  int64_t left = until_ms - child_now_ms();
  double fits = isfinite(plan->measured) && plan->measured > 0
                    ? 0.4e-3 * (double)left / plan->measured
                    : 0;
  if (fits > 2 * LEAST_STEPS) {
    int steps = fits < 200 ? (int)fits : 200;
    if (!run_plan(tuning, plan, steps, NULL, until_ms)) return false;
    plan->measured =
        median_step(read_text(tuning, file_in(tuning, "run.json")));
  }
  plan->why = "it made no step";
  return isfinite(plan->measured);
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
      text_printf(out, "%-40s left out: %s\n", p->plan, p->why);
      continue;
    }
    double waits = p->predicted - p->kernels_predicted;
    double waited = p->measured - p->kernels_measured;
    text_printf(out, "%-40s %9.3f ms %9.3f ms %+6.1f%% %+8.1f%% %+8.1f%%\n",
                p->plan, p->predicted * 1e3, p->measured * 1e3,
                100 * error_of(p->predicted, p->measured),
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
    text_add_json(out, p->plan);
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
      text_add(out, ",\"kernels_measured_s\":");
      text_add_real(out, p->kernels_measured);
    }
    text_add(out, "}\n");
  }
}

static int write_fastest(const Tuning *tuning, const Compared *plans, int n) {
  const Compared *best = NULL;
  for (int i = 0; i < n; i++)
    if (!plans[i].why && (!best || plans[i].measured < best->measured))
      best = &plans[i];
  if (!best) {
    message_print("dnnc: error: none of the plans could be run\n");
    return EXIT_no_plan;
  }
  const char *text = read_text(tuning, best->plan);
  const char *path = arena_printf(tuning->arena, "%s.plan", tuning->name);
  Status status = file_replace(path, text, strlen(text));
  if (status.code != STATUS_ok) return tool_fail(status);
  tune_say(tuning, "%s: %s, the fastest\n", path, best->plan);
  return EXIT_done;
}

int tune_compare(Tuning *tuning) {
  const Options *options = &tuning->tool->options;
  int n = options->plans.n;
  Predictions *predictions = ARENA_NEW(tuning->arena, Predictions);
  int code = load_predictions(tuning, predictions);
  if (code != EXIT_done) return code;
  Compared *plans = ARENA_ARRAY(tuning->arena, Compared, n);
  for (int i = 0; i < n && !tool_is_stopped(); i++) {
    plans[i].plan = options->plans.data[i];
    int64_t limit_ms = tune_left_ms(tuning) / (n - i);
    int64_t until_ms = child_now_ms() + limit_ms;
    if (predict(tuning, predictions, &plans[i]) &&
        measure_plan(tuning, &plans[i], until_ms))
      plans[i].why = NULL;
  }
  if (tool_is_stopped()) return EXIT_machine;
  Text out = text_create(tuning->arena);
  (options->json ? print_json : print_words)(&out, plans, n);
  tool_print(&out);
  return write_fastest(tuning, plans, n);
}
