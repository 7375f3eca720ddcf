/*
 * command_simulate.c -- implements `dnnc simulate`: a pipeline schedule as a
 * list of actions is run on the simulator, or a training step of a model is
 * priced.
 */
#include "price/schedule_list.h"
#include "tools/show/inspect.h"

#include <string.h>

/* Times are numbers of any unit, to a millionth of it. */
#define PS_PER_UNIT 1000000

/* Reads "1,1,1"; prints a mistake. */
static bool read_times(const char *text, ScheduleTimes *times) {
  Ps *const fields[] = {&times->forward, &times->input_grad,
                        &times->weight_grad};
  const char *at = text;
  for (int i = 0; i < 3; i++) {
    size_t n = strcspn(at, ",");
    double value;
    if (!text_read_real(at, n, &value) || !(value >= 0 && value <= 1e9) ||
        (at[n] == ',') != (i < 2)) {
      message_print("dnnc: error: --times takes three numbers from 0 to 1e9, "
                    "not '%s'\n"
                    "help: forward, gradient of the input and of the weights, "
                    "as in --times 1,1,1\n",
                    text);
      return false;
    }
    *fields[i] = (Ps)(value * PS_PER_UNIT + 0.5);
    at += n + 1;
  }
  return true;
}

static const char *units(const Text *out, Ps time) {
  Text text = text_create(out->arena);
  text_add_real(&text, (double)time / PS_PER_UNIT);
  return text_string(&text);
}

static void print_list(Text *out, const ScheduleList *list,
                       const SimResult *result) {
  text_printf(out,
              "%d ranks, %d stages, %d micro-batches: %s\n"
              "%6s %12s %12s %12s %6s\n",
              list->n_ranks, list->n_stages, list->n_microbatches,
              units(out, result->step), "rank", "end", "work", "waits", "live");
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &result->classes[r];
    text_printf(out, "%6d %12s %12s %12s %6d\n", r,
                units(out, *class->step_ends), units(out, list->work[r]),
                units(out, *class->exposed), list->peak_live[r]);
  }
}

static void print_list_json(Text *out, const ScheduleList *list,
                            const SimResult *result) {
  text_printf(out,
              "{\"makespan\":%s,\"stages\":%d,\"microbatches\":%d,"
              "\"ranks\":[",
              units(out, result->step), list->n_stages, list->n_microbatches);
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &result->classes[r];
    text_printf(out,
                "%s{\"rank\":%d,\"end\":%s,\"work\":%s,\"waits\":%s,"
                "\"peak_live\":%d}",
                r ? "," : "", r, units(out, *class->step_ends),
                units(out, list->work[r]), units(out, *class->exposed),
                list->peak_live[r]);
  }
  text_add(out, "]}\n");
}

/* The cell of an action, or its cells from the first to the last. */
static Span action_span(const ScheduleList *list, int action) {
  const ScheduleAction *a = &list->actions[action];
  const Token *tokens = list->pipeline->lists[a->rank].data;
  return span_join(tokens[a->first].span, tokens[a->end - 1].span);
}

/* Each rank that does not end, and the action that it waits before. */
static int report_deadlock(Tool *tool, const ScheduleList *list,
                           const SimResult *result) {
  for (int r = 0; r < list->n_ranks; r++) {
    const SimClassResult *class = &result->classes[r];
    if (class->waits_for < 0) continue;
    const SimClass *actions = &list->program.classes[r];
    int at = class->waits_at;
    while (at < actions->n_actions && actions->actions[at].kind != SIM_run)
      at++;
    Span span = action_span(list, actions->actions[at].id);
    int needed = list->senders[class->waits_for];
    Diag *d = diag(tool->module.diags, DIAG_schedule_deadlock, span, r,
                   span_text(tool->arena, span));
    diag_note(d, action_span(list, needed), "it needs this, which rank %d runs",
              list->actions[needed].rank);
  }
  tool_report(tool);
  return EXIT_user;
}

static int simulate_list(Tool *tool) {
  ScheduleTimes times = {PS_PER_UNIT, PS_PER_UNIT, PS_PER_UNIT};
  if (tool->options.times && !read_times(tool->options.times, &times))
    return EXIT_user;
  const Source *source = tool_read_subject(tool);
  if (!source) return EXIT_user;
  ScheduleList *list =
      schedule_list_read(tool->arena, tool->module.diags, source, &times);
  if (tool_report(tool) || !list) return EXIT_user;
  SimResult result = simulate(tool->arena, &list->program, 1, NULL, NULL);
  if (result.is_stuck) return report_deadlock(tool, list, &result);
  Text out = text_create(tool->arena);
  (tool->options.json ? print_list_json : print_list)(&out, list, &result);
  tool_print(&out);
  return EXIT_done;
}

/* The first plan is the one that the model is loaded with. */
static int simulate_model(Tool *tool) {
  Priced priced;
  Options *options = &tool->options;
  const char *trace = options->trace;
  if (options->plans.n > 0) options->plan = options->plans.data[0];
  if (options->plans.n > 1 && trace) {
    message_print("dnnc: error: --trace takes one --plan\n");
    return EXIT_user;
  }
  if (options->plans.n > 1) return simulate_plans(tool);
  int code = tool_price(tool, trace != NULL, &priced);
  if (code != EXIT_done) return code;
  if (trace) {
    Status status = trace_step(tool->arena, &priced, trace);
    if (status.code != STATUS_ok) return tool_fail(status);
  }
  Inspection rates = {.priced = &priced};
  if (!inspect_rates(&rates)) return EXIT_user;
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    text_add(&out, "{");
    priced_print_json(&out, &priced);
    inspect_print_rates_json(&out, &rates);
    text_add(&out, "}\n");
  } else {
    priced_print(&out, &priced);
    inspect_print_rates(&out, &rates);
  }
  tool_print(&out);
  return EXIT_done;
}

int command_simulate(Tool *tool) {
  const char *subject = tool->options.subject;
  size_t length = strlen(subject);
  if (length > 4 && strcmp(subject + length - 4, ".csv") == 0)
    return simulate_list(tool);
  return simulate_model(tool);
}
