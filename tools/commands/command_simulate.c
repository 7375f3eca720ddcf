/*
 * command_simulate.c -- implements `dnnc simulate`: a pipeline schedule as a
 * list of actions is run on the simulator, or a training step of a model is
 * priced.
 */
#include "tools/commands/planning.h"
#include "tools/commands/schedule.h"

#include <string.h>

static int simulate_list(Tool *tool) {
  ScheduleTimes times;
  if (!schedule_read_times(tool, &times)) return EXIT_user;
  const Source *source = tool_read_subject(tool);
  if (!source) return EXIT_user;
  const ScheduleList *list =
      schedule_list_read(tool->arena, tool->module.diags, source, &times);
  if (tool_report(tool) || !list) return EXIT_user;
  TimedSchedule timed = schedule_time(tool, source->path, list);
  if (timed.result.is_stuck) {
    schedule_report_deadlock(tool, &timed);
    tool_report(tool);
    return EXIT_user;
  }
  Text out = text_create(tool->arena);
  if (tool->options.json) {
    text_add(&out, "{");
    schedule_print_ranks_json(&out, &timed, NULL);
    text_add(&out, "}\n");
  } else {
    schedule_print_ranks(&out, &timed);
  }
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
    plan_print_floor_json(&out, &priced);
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
