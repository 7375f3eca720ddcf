/*
 * simulate_plans.c -- implements `dnnc simulate` with several plans: a table
 * with a row for each of them.
 *
 *     plan          ranks       step     MFU   samples/s    memory
 *     data.plan         8  12.345 ms  41.2 %        2074   31.9 GB  fits
 *     tensor.plan       8  14.000 ms  36.3 %        1829    8.1 GB  fits
 *
 * The model is loaded once, and the plans are priced on several threads.
 */
#include <stdio.h>

#include "driver/trial.h"
#include "tools/commands/planning.h"

typedef struct PlanRows {
  Tool *tool;
  Text *rows, *messages; /* by plan */
  bool has_mistakes;
} PlanRows;

static const char *rate(const Text *out, double items, double seconds) {
  return text_quantity(out->arena, seconds > 0 ? items / seconds : 0, "");
}

static void print_row(Text *out, const char *plan, const Inspection *in) {
  const Priced *p = in->priced;
  double seconds = (double)p->price.step * 1e-12;
  text_printf(out, "%-40s %7d %14s %5.1f %% %11s %11s %11s  %s\n", plan,
              p->c->ranks, inspect_ms(out->arena, p->price.step), 100 * in->mfu,
              rate(out, (double)in->samples, seconds),
              in->has_tokens ? rate(out, (double)in->items, seconds) : "-",
              text_quantity(out->arena, (double)p->peak, "B"),
              p->peak <= p->memory ? "fits" : "does not fit");
}

static void print_row_json(Text *out, const char *plan, const Inspection *in) {
  text_add(out, "{\"plan\":");
  text_add_json(out, plan);
  text_add(out, ",");
  priced_print_json(out, in->priced);
  inspect_print_rates_json(out, in);
  plan_print_floor_json(out, in->priced);
  text_add(out, "}\n");
}

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  PlanRows *rows = user;
  const Options *options = &rows->tool->options;
  Text *row = &rows->rows[i];
  Inspection in = {.priced = &trial->priced};
  if (is_priced && inspect_rates(&in))
    (options->json ? print_row_json : print_row)(row, options->plans.data[i],
                                                 &in);
  diags_print(trial->module.diags, &rows->messages[i]);
  rows->has_mistakes |= diags_errors(trial->module.diags) > 0;
}

/* NULL after mistakes, which are printed. */
static const TrialPlan *read_plans(Tool *tool, const Compilation *loaded) {
  int n = tool->options.plans.n;
  TrialPlan *plans = ARENA_ARRAY(tool->arena, TrialPlan, n);
  bool are_read = true;
  for (int i = 0; i < n; i++) {
    plans[i].pins = tool_read_pins(tool, loaded, tool->options.plans.data[i]);
    are_read &= plans[i].pins != NULL;
  }
  return are_read ? plans : NULL;
}

/* Exit code. */
static int print_rows(const PlanRows *rows) {
  const Options *options = &rows->tool->options;
  Text out = text_create(rows->tool->arena);
  if (!options->json)
    text_printf(&out, "%-40s %7s %14s %7s %11s %11s %11s\n", "plan", "ranks",
                "step, estimate", "MFU", "samples/s", "tokens/s", "memory");
  for (int i = 0; i < options->plans.n; i++) {
    fputs(text_string(&rows->messages[i]), stderr);
    text_add(&out, text_string(&rows->rows[i]));
  }
  if (rows->has_mistakes) return EXIT_user;
  tool_print(&out);
  return EXIT_done;
}

int simulate_plans(Tool *tool) {
  Arena *arena = tool->arena;
  int n = tool->options.plans.n;
  Compilation loaded;
  PriceRequest request = {0};
  int code = tool_price_request(tool, &request);
  if (code == EXIT_done) code = tool_load(tool, &loaded);
  if (code != EXIT_done) return code;
  const TrialPlan *plans = read_plans(tool, &loaded);
  if (!plans) return EXIT_user;
  PlanRows rows = {.tool = tool,
                   .rows = ARENA_ARRAY(arena, Text, n),
                   .messages = ARENA_ARRAY(arena, Text, n)};
  for (int i = 0; i < n; i++)
    rows.rows[i] = rows.messages[i] = text_create(arena);
  driver_try_all(&loaded, &(TrialList){.n = n,
                                       .plans = plans,
                                       .request = &request,
                                       .most_threads = tool_threads(),
                                       .visit = end_trial,
                                       .user = &rows});
  return print_rows(&rows);
}
