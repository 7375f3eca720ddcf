/*
 * show_step.c -- implements `dnnc show PLAN --model MODEL --cluster FILE`: what
 * a step costs under the plan, as tables, as JSON, or as files to look at.
 */
#include "tools/show/inspect.h"

static Status write_text(const char *path, Text *text) {
  return file_replace(path, text_string(text), text->n);
}

/* The files that options name. */
static Status write_files(Tool *tool, const Inspection *in) {
  const Options *options = &tool->options;
  Arena *arena = tool->arena;
  if (options->trace) TRY(trace_step(arena, in->priced, options->trace));
  if (options->html) {
    Text page = text_create(arena);
    page_print(&page, in);
    TRY(write_text(options->html, &page));
  }
  if (options->dot) {
    Text graph = text_create(arena);
    dot_print(&graph, in);
    TRY(write_text(options->dot, &graph));
  }
  return STATUS_OK;
}

/* Looks at the stage of --stage. */
static bool choose_stage(const Options *options, Priced *priced) {
  if (options->stage < 0) return true;
  const Plan *plan = priced->c->plan;
  int n = plan && plan->stages.n > 1 ? plan->stages.n : 0;
  if (options->stage < n && priced_show_stage(priced, (int)options->stage))
    return true;
  if (n == 0)
    message_print("dnnc: error: --stage takes a plan with several stages, and "
                  "'%s' has one\n",
                  options->plan);
  else
    message_print("dnnc: error: '%s' has no stage %lld: its stages are 0 to "
                  "%d\n",
                  options->plan, (long long)options->stage, n - 1);
  return false;
}

int show_step(Tool *tool) {
  const Options *options = &tool->options;
  Priced priced;
  Inspection inspection;
  int code = tool_price(tool, true, &priced);
  if (code == EXIT_done && !choose_stage(options, &priced)) code = EXIT_user;
  if (code == EXIT_done) code = inspect(tool, &priced, &inspection);
  if (code != EXIT_done) return code;
  Status status = write_files(tool, &inspection);
  if (status.code != STATUS_ok) return tool_fail(status);
  Text out = text_create(tool->arena);
  if (options->json) text_add(&out, "{");
  if (options->collectives) {
    show_collectives(&out, priced.c, options->json);
    text_add(&out, options->json ? "," : "\n");
  }
  (options->json ? inspect_print_json : inspect_print)(&out, &inspection);
  if (options->json) text_add(&out, "}\n");
  tool_print(&out);
  return EXIT_done;
}
