/*
 * command_schedule.c -- implements `dnnc schedule`: prints a pipeline schedule
 * as lists and as a picture, or checks lists that a person wrote.
 */
#include "ir/pipeline/rendezvous.h"
#include "tools/commands/schedule.h"

#include <string.h>

/* Calls of all ranks, and ranks that the simulator looks at: all of them after
 * each call, which takes a minute where no two calls end at one time. */
enum { MOST_CALLS = 1 << 20 };
#define MOST_LOOKS ((int64_t)1 << 31)

/* ---- a list that a person wrote ---- */

static void print_verdict_json(Text *out, const Pipeline *pipeline,
                               const RendezvousResult *result,
                               bool has_messages) {
  text_printf(out,
              "{\"verdict\":\"%s\",\"has_messages\":%s,\"ranks\":%d,"
              "\"stages\":%d,\"microbatches\":%d,\"places\":[",
              rendezvous_verdict_text(result->verdict),
              has_messages ? "true" : "false", pipeline->n_ranks,
              pipeline->n_stages, pipeline->n_microbatches);
  for (int i = 0; i < result->n_places; i++) {
    RendezvousPlace place = result->places[i];
    const Token *token = rendezvous_token(pipeline, place);
    text_printf(out, "%s{\"rank\":%d,\"action\":", i ? "," : "", place.class);
    text_add_json(out, token ? token_text(out->arena, pipeline, token) : "");
    text_add(out, "}");
  }
  text_add(out, "]}\n");
}

static int check_pipeline(Tool *tool, Pipeline *pipeline) {
  bool has_messages = pipeline_has_messages(pipeline);
  if (!has_messages) pipeline = pipeline_lower(tool->arena, pipeline);
  RendezvousResult result = rendezvous_check(
      tool->arena, pipeline_rendezvous(tool->arena, pipeline, 1),
      RENDEZVOUS_all);
  pipeline_report_hang(tool->arena, tool->module.diags, pipeline, &result);
  Text out = text_create(tool->arena);
  bool is_fine = result.verdict == RENDEZVOUS_fine;
  if (tool->options.json)
    print_verdict_json(&out, pipeline, &result, has_messages);
  else if (is_fine)
    text_printf(&out, "%s: fine: %d ranks, %d stages, %d micro-batches%s\n",
                tool->options.check, pipeline->n_ranks, pipeline->n_stages,
                pipeline->n_microbatches,
                has_messages ? "" : ", with the messages that dnnc inserts");
  tool_print(&out);
  tool_report(tool);
  return is_fine ? EXIT_done : EXIT_user;
}

static int check_list(Tool *tool) {
  Diags *diags = tool->module.diags;
  if (tool->options.subject) {
    message_print("dnnc: error: --check takes a file, and no schedule '%s'\n",
                  tool->options.subject);
    return EXIT_user;
  }
  tool->options.subject = tool->options.check;
  const Source *source = tool_read_subject(tool);
  if (!source) return EXIT_user;
  Pipeline *pipeline = pipeline_read(tool->arena, diags, source);
  if (pipeline) {
    pipeline_check_calls(tool->arena, diags, pipeline);
    pipeline_check_complete(tool->arena, diags, pipeline);
    pipeline_find_messages(tool->arena, diags, pipeline);
  }
  if (tool_report(tool) || !pipeline) return EXIT_user;
  return check_pipeline(tool, pipeline);
}

/* ---- a schedule ---- */

static bool find_schedule(Tool *tool, PipelineSpelling *spelling) {
  const char *wrong =
      pipeline_spelling_read(tool->arena, tool->options.subject, spelling);
  if (wrong) {
    message_print("dnnc: error: %s\nhelp: it is written %s\n", wrong,
                  pipeline_schedule_call(tool->arena, spelling->schedule));
    return false;
  }
  if (spelling->schedule) return true;
  int n = pipeline_schedule_count();
  const char **names = ARENA_ARRAY(tool->arena, const char *, n);
  Text all = text_create(tool->arena);
  for (int i = 0; i < n; i++) {
    names[i] = pipeline_schedule(i)->name;
    text_printf(&all, "%s%s",
                i == 0      ? ""
                : i + 1 < n ? ", "
                            : " and ",
                names[i]);
  }
  const char *nearest = text_nearest(spelling->name, names, n);
  message_print("dnnc: error: no pipeline schedule is called '%s'\n",
                spelling->name);
  if (nearest)
    message_print("help: did you mean '%s'?\n", nearest);
  else
    message_print("help: there are %s\n", text_string(&all));
  return false;
}

/* The simulator finds nothing that a bare list prints. */
static bool is_timed(const Options *options) {
  return options->json || options->html || !options->csv;
}

/* Names the nearest numbers of micro-batches that the schedule can have. */
static void help_microbatches(Tool *tool, const PipelineSpelling *spelling,
                              const PipelineShape *shape) {
  const char *found[2];
  int n = 0;
  for (int step = -1; step <= 1; step += 2) {
    PipelineShape other = *shape;
    do other.microbatches += step;
    while (other.microbatches > 0 &&
           other.microbatches < 2 * (shape->microbatches + shape->stages) &&
           pipeline_schedule_refuses(tool->arena, spelling->schedule, &other));
    if (other.microbatches > 0 &&
        !pipeline_schedule_refuses(tool->arena, spelling->schedule, &other))
      found[n++] = arena_printf(tool->arena, "%d", other.microbatches);
  }
  if (n > 0)
    message_print("help: --microbatches %s%s%s\n", found[0],
                  n == 2 ? " or " : "", n == 2 ? found[1] : "");
}

static bool has_good_size(const Options *options, int chunks) {
  int64_t stages = options->ranks <= MOST_CALLS ? options->ranks * chunks : 0;
  if (stages == 0 || stages > MOST_CALLS ||
      options->microbatches > MOST_CALLS / 2 / stages) {
    message_print("dnnc: error: %lld ranks with %lld micro-batches make more "
                  "than the %d calls that 'dnnc schedule' lists\n",
                  (long long)options->ranks, (long long)options->microbatches,
                  MOST_CALLS);
    return false;
  }
  if (is_timed(options) &&
      2 * stages * options->microbatches > MOST_LOOKS / options->ranks) {
    message_print(
        "dnnc: error: %lld ranks with %lld micro-batches are too many "
        "to be simulated\n"
        "help: --csv prints the lists alone\n",
        (long long)options->ranks, (long long)options->microbatches);
    return false;
  }
  return true;
}

static bool read_shape(Tool *tool, const PipelineSpelling *spelling,
                       PipelineShape *shape) {
  const Options *options = &tool->options;
  if (options->ranks < 0 || options->microbatches < 0) {
    message_print("dnnc: error: 'dnnc schedule %s' needs --ranks and "
                  "--microbatches\n"
                  "help: dnnc schedule %s --ranks 4 --microbatches 8\n",
                  spelling->name, spelling->name);
    return false;
  }
  if (!has_good_size(options, spelling->chunks)) return false;
  *shape = (PipelineShape){.ranks = (int)options->ranks,
                           .stages = (int)options->ranks * spelling->chunks,
                           .microbatches = (int)options->microbatches};
  const char *refused =
      pipeline_schedule_refuses(tool->arena, spelling->schedule, shape);
  if (!refused) return true;
  message_print("dnnc: error: %s\n", refused);
  help_microbatches(tool, spelling, shape);
  return false;
}

static void print_timed(Text *out, const Options *options,
                        const PipelineSchedule *schedule, const Pipeline *shown,
                        const TimedSchedule *timed) {
  if (options->json) {
    text_add(out, "{\"schedule\":");
    text_add_json(out, timed->name);
    text_printf(out, ",\"recomputes\":%s,",
                schedule->recomputes ? "true" : "false");
    schedule_print_ranks_json(out, timed, shown);
    text_add(out, "}\n");
    return;
  }
  pipeline_print(out, shown);
  if (options->csv) return;
  text_add(out, "\n");
  schedule_print_ranks(out, timed);
  text_add(out, "\n");
  schedule_print_picture(out, timed);
}

static Status write_page(Tool *tool, const TimedSchedule *timed) {
  if (!tool->options.html) return STATUS_OK;
  Text page = text_create(tool->arena);
  schedule_print_page(&page, timed);
  return file_replace(tool->options.html, text_string(&page), page.n);
}

/* The backward pass of a schedule that recomputes is longer by a forward pass.
 */
static TimedSchedule time_schedule(Tool *tool, const PipelineSchedule *schedule,
                                   const Pipeline *pipeline,
                                   ScheduleTimes times) {
  if (schedule->recomputes) times.input_grad += times.forward;
  return schedule_time(tool, tool->options.subject,
                       schedule_list_make(tool->arena, pipeline, &times));
}

/* A list depends on the times of its argument, if it has one, else on those of
 * --times.  It is drawn with those of --times, if they are given, else with
 * those of its argument. */
static void set_times(const Tool *tool, const PipelineSpelling *spelling,
                      PipelineShape *shape, ScheduleTimes *times) {
  const PipelineTimes *given = &spelling->times;
  shape->times =
      (PipelineTimes){times->forward, times->input_grad, times->weight_grad};
  if (!spelling->has_times) return;
  shape->times = *given;
  if (!tool->options.times)
    *times = (ScheduleTimes){given->forward * PS_PER_UNIT,
                             given->input_grad * PS_PER_UNIT,
                             given->weight_grad * PS_PER_UNIT};
}

static int print_schedule(Tool *tool) {
  const Options *options = &tool->options;
  ScheduleTimes times;
  PipelineShape shape;
  PipelineSpelling spelling;
  if (!find_schedule(tool, &spelling) || !read_shape(tool, &spelling, &shape) ||
      !schedule_read_times(tool, &times))
    return EXIT_user;
  const PipelineSchedule *schedule = spelling.schedule;
  set_times(tool, &spelling, &shape, &times);
  const Pipeline *pipeline = pipeline_make(tool->arena, schedule, &shape);
  const Pipeline *shown =
      options->comms ? pipeline_lower(tool->arena, pipeline) : pipeline;
  Text out = text_create(tool->arena);
  if (is_timed(options)) {
    TimedSchedule timed = time_schedule(tool, schedule, pipeline, times);
    Status status = write_page(tool, &timed);
    if (status.code != STATUS_ok) return tool_fail(status);
    print_timed(&out, options, schedule, shown, &timed);
  } else {
    pipeline_print(&out, shown);
  }
  tool_print(&out);
  return EXIT_done;
}

int command_schedule(Tool *tool) {
  return tool->options.check ? check_list(tool) : print_schedule(tool);
}
