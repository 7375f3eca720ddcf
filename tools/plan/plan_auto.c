/*
 * plan_auto.c -- implements `--plan auto`: searches for a plan before the
 * command begins, as `dnnc plan` does, and lets the word `auto` stand for it.
 *
 *     $ dnnc run mlp.dnn --plan auto
 *     plan: tensor 2: 2.090 ms a step (estimate), data parallelism 3.011 ms
 *
 * The search has a model, names and memory of its own, which are gone when the
 * command begins.
 */
#include "tools/explain/searches.h"

#include "driver/detect.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char auto_word[] = "auto";

bool tool_is_auto_plan(const char *plan) {
  return plan && strcmp(plan, auto_word) == 0;
}

static bool is_asked(const Options *options) {
  bool is_asked = tool_is_auto_plan(options->plan);
  if (options->command == COMMAND_show)
    return options->model && tool_is_auto_plan(options->subject);
  if (options->command == COMMAND_simulate)
    for (int i = 0; i < options->plans.n; i++)
      is_asked |= tool_is_auto_plan(options->plans.data[i]);
  return is_asked;
}

/* ---- the machines ---- */

/* Those of $DNNC_CLUSTER, else of this machine or job.  Returns an exit code.
 */
static int choose_cluster(Tool *planner) {
  Options *options = &planner->options;
  const char *given = getenv("DNNC_CLUSTER");
  const char *root = getenv("DNNC_DETECT_ROOT"); /* tests: instead of / */
  if (!options->cluster && given && given[0]) options->cluster = given;
  if (options->cluster) return EXIT_done;
  const char *unknown;
  Text text = text_create(planner->arena);
  Status status = driver_detect_cluster(&text, root ? root : "",
                                        &(DetectedLink){0}, &unknown);
  if (status.code != STATUS_ok) return tool_fail(status);
  if (unknown) {
    message_print("dnnc: error: no preset has '%s', so a step on it has no "
                  "price\n"
                  "help: 'dnnc cluster detect' writes a cluster file; add the "
                  "rates of the GPU and name it with --cluster FILE\n",
                  unknown);
    return EXIT_user;
  }
  Source *source = ARENA_NEW(planner->arena, Source);
  *source = (Source){"detected.cluster", text_string(&text), text.n};
  planner->detected_cluster = source;
  return EXIT_done;
}

static bool starts_ranks(CommandId command) {
  return command_info(command)->most_ranks ==
         command_info(COMMAND_run)->most_ranks;
}

/* Commands that start ranks start them on this machine, also in a job. */
static void stay_on_machine(Tool *planner, CommandId command) {
  const Source *detected = planner->detected_cluster;
  if (!detected || planner->options.ranks > 0 || !starts_ranks(command)) return;
  const Cluster *cluster = frontend_read_cluster(&planner->module, detected);
  if (cluster) planner->options.ranks = cluster->groups[0].levels[0].count;
}

/* Lets the command compile for the devices that the plan is for. */
static bool choose_target(Tool *tool, const Planning *planning) {
  const Compilation *loaded = &planning->loaded;
  int64_t ranks = planning->tool->options.ranks;
  const char *target =
      driver_cluster_target(loaded->cluster, ranks > 0 ? ranks : 0);
  if (!target) return driver_check_one_target(loaded);
  if (!tool->options.target)
    tool->options.target = arena_strdup(tool->arena, target);
  size_t n = strcspn(target, ":");
  if (strncmp(tool->options.target, target, n) == 0) return true;
  message_print(
      "dnnc: error: the devices of cluster '%s' are not those of "
      "--target %s but of %s\n"
      "help: --cluster FILE names the machines that the plan is for\n",
      loaded->cluster->name, tool->options.target, target);
  return false;
}

/* ---- the search ---- */

/* The command line of `dnnc plan` that finds the plan. */
static Tool planner_of(const Tool *tool, Arena *arena) {
  Tool out = *tool;
  Options *options = &out.options;
  CommandId command = options->command;
  out.arena = arena;
  out.module =
      (Module){tool->memory, arena, names_create(arena), diags_create(arena)};
  out.hides_warnings = true;
  options->command = COMMAND_plan;
  options->plan = NULL;
  if (command == COMMAND_show) options->subject = options->model;
  if (command == COMMAND_run) options->profile = options->paced;
  if (command_info(command)->purpose != PURPOSE_train) options->net = NULL;
  options->value = options->after = options->stop_after = options->dump = NULL;
  options->time_passes = false;
  return out;
}

static int report_none(const Planning *planning) {
  const SearchResult *result = &planning->result;
  const Options *options = &planning->tool->options;
  if (plan_report_refusal(planning)) return EXIT_user;
  message_print("dnnc: error: none of %d plans %s\n"
                "help: 'dnnc plan %s --cluster FILE%s%s' says why\n",
                result->n_priced, result->best.text ? "fits" : "is legal",
                options->subject, options->search ? " --search " : "",
                options->search ? options->search : "");
  return result->best.text ? EXIT_no_plan : EXIT_user;
}

static void say_what_was_found(const Planning *planning, const Chosen *chosen) {
  const CandidatePrice *plain = &planning->result.plain;
  Text out = text_create(planning->tool->arena);
  if (planning->tool->options.quiet) return;
  text_printf(&out, "plan: %s: %s a step (estimate)", chosen->words,
              inspect_ms(out.arena, chosen->trial.priced.price.step));
  if (plain->is_legal && plain->peak <= plain->memory)
    text_printf(&out, ", data parallelism %s",
                inspect_ms(out.arena, plain->step));
  else if (plain->is_legal)
    text_add(&out, ", data parallelism does not fit");
  message_print("%s\n", text_string(&out));
}

/* Returns an exit code. */
static int find_plan(Tool *tool, Planning *planning) {
  int code = choose_cluster(planning->tool);
  if (code != EXIT_done) return code;
  stay_on_machine(planning->tool, tool->options.command);
  code = planning_load(planning);
  if (code != EXIT_done) return code;
  if (!choose_target(tool, planning)) {
    tool_report(planning->tool);
    return EXIT_user;
  }
  planning_search(planning);
  tool_end_as_signalled();
  tool_release_signals();
  if (!planning->result.has_plan) return report_none(planning);
  Diags *diags;
  Chosen chosen;
  bool is_chosen =
      planning_choose(planning, planning->result.best.text, &diags, &chosen);
  ASSERT(is_chosen); /* it was priced before */
  say_what_was_found(planning, &chosen);
  const char *text = arena_strdup(tool->arena, chosen.text);
  Source *source = ARENA_NEW(tool->arena, Source);
  *source = (Source){auto_word, text, strlen(text)};
  tool->found_plan = source;
  return EXIT_done;
}

int tool_find_plan(Tool *tool) {
  const Options *options = &tool->options;
  if (!is_asked(options)) return EXIT_done;
  if (options->command == COMMAND_plan) {
    message_print("dnnc: error: 'dnnc plan' takes lines with --plan that the "
                  "plan must have, and '%s' has none\n"
                  "help: leave it out; a file of this name is './%s'\n",
                  auto_word, auto_word);
    return EXIT_user;
  }
  if (!options_check_pairs(options) ||
      (starts_ranks(options->command) && !tool_check_not_in_job(tool)))
    return EXIT_user;
  Arena *arena = arena_create(tool->memory);
  Tool planner = planner_of(tool, arena);
  Planning planning = {.tool = &planner};
  int code = find_plan(tool, &planning);
  arena_destroy(arena);
  return code;
}
