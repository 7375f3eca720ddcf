/*
 * command_explain.c -- implements `dnnc explain`: what a plan decides at a path
 * or with a setting, what that costs, and what each alternative loses.
 *
 * The time goes into the searches: each alternative that is searched costs as
 * much as `dnnc plan` with the same --effort.
 */
#include <stdio.h>

#include "tools/explain/explain.h"

enum { DEFAULT_EFFORT = 60 };

static bool has_plan(Tool *tool) {
  Options *options = &tool->options;
  if (!options->plan) {
    message_print("dnnc: error: what is explained is a plan\n"
                  "help: name it with --plan FILE; 'dnnc plan' writes one\n");
    return false;
  }
  if (!options->cluster) tool_use_certificate(tool, options->plan);
  return true;
}

/* Compiles and prices the plan.  Returns an exit code. */
static int load(Explanation *e, Compilation *c, Priced *priced) {
  Tool *tool = e->tool;
  PriceRequest request = {0};
  int code = tool_price_request(tool, &request);
  if (code == EXIT_done) code = tool_compile(tool, c);
  if (code != EXIT_done) return code;
  if (!c->model->train || !c->plan) {
    message_print("dnnc: error: '%s' has no training step under a plan\n",
                  tool->options.subject);
    return EXIT_user;
  }
  if (driver_refuse_servers(c, "what a search would find")) {
    tool_report(tool);
    return EXIT_user;
  }
  e->planning = (Planning){.tool = tool, .loaded = *c, .request = request};
  planning_begin(&e->planning);
  request.wants_spans = true;
  bool is_priced = driver_price(c, &request, priced);
  tool_report(tool);
  e->priced = priced;
  return is_priced ? EXIT_done : EXIT_user;
}

/* Annotations of the model are the only pins of the searches. */
static bool open_pins(Explanation *e) {
  Diags *diags = e->tool->module.diags;
  Planning open;
  bool is_read =
      planning_with(&e->planning, "plan {\n}\n", e->ranks, 0, diags, &open);
  tool_report(e->tool);
  if (is_read) e->planning.loaded.pins = open.loaded.pins;
  return is_read;
}

int command_explain(Tool *tool) {
  const Options *options = &tool->options;
  Compilation c;
  Priced priced;
  Explanation e = {.tool = tool,
                   .effort = options->effort > 0 ? (int)options->effort
                                                 : DEFAULT_EFFORT};
  if (!has_plan(tool)) return EXIT_user;
  int code = load(&e, &c, &priced);
  if (code != EXIT_done) return code;
  e.ranks = c.plan->ranks;
  if (!open_pins(&e) || !explain_subject(&e, options->other)) return EXIT_user;
  Text plan = text_create(tool->arena), out = text_create(tool->arena);
  plan_print(&plan, c.plan);
  e.plan_text = text_string(&plan);
  explain_find_stage(&e);
  e.decision = explain_decision(&e);
  explain_add_terms(&e);
  explain_add_alternatives(&e);
  explain_price(&e);
  (options->json ? explain_print_json : explain_print)(&out, &e);
  tool_print(&out);
  fflush(stdout);
  tool_end_as_signalled();
  return EXIT_done;
}
