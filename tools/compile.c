/*
 * compile.c -- fills the options of the driver from the command line, and turns
 * its results into exit codes.
 */
#include "driver/trial.h"
#include "runtime/launch/launch.h"
#include "tools/tools.h"

#include <stdio.h>
#include <string.h>

/* ---- options ---- */

/* A bundle that stays can be asked for a prediction later. */
static Predicting command_predicting(const Options *options) {
  bool is_asked = options->command == COMMAND_predict || options->value ||
                  (options->command == COMMAND_ir && options->entry &&
                   !strcmp(options->entry, "predict"));
  if (is_asked) return PREDICTING_wanted;
  bool is_kept = options->command == COMMAND_build ||
                 (options->command == COMMAND_run && options->output);
  return is_kept ? PREDICTING_maybe : PREDICTING_none;
}

static Purpose command_purpose(CommandId command) {
  switch (command) {
  case COMMAND_sample: return PURPOSE_sample;
  case COMMAND_predict: return PURPOSE_predict;
  case COMMAND_eval: return PURPOSE_evaluate;
  default: return PURPOSE_train;
  }
}

static DataFiles command_data_files(CommandId command) {
  switch (command) {
  case COMMAND_check:
  case COMMAND_predict:
  case COMMAND_verify: return DATA_FILES_unread;
  case COMMAND_build:
  case COMMAND_run: return DATA_FILES_checked;
  default: return DATA_FILES_read;
  }
}

static void report_no_pass(Tool *tool, const char *wanted) {
  const char *names[64];
  int n = pass_count() < 64 ? pass_count() : 64, rows = 0;
  const char *name =
      arena_printf(tool->arena, "%.*s", (int)strcspn(wanted, "@"), wanted);
  for (int i = 0; i < n; i++) {
    names[i] = pass_info(i)->name;
    rows += pass_is_named(i, name);
  }
  const char *nearest = text_nearest(name, names, n);
  message_print("dnnc: error: no pass '%s'\n", wanted);
  if (rows > 0)
    message_print("help: '%s' runs %d times, as '%s@1' to '%s@%d'\n", name,
                  rows, name, name, rows);
  else if (nearest)
    message_print("help: did you mean '%s'?\n", nearest);
  else
    fprintf(stderr, "help: 'dnnc list passes' names them\n");
}

static bool check_passes(Tool *tool) {
  const Options *options = &tool->options;
  const char *given[2] = {options->after, options->stop_after};
  for (int i = 0; i < 2 + options->disable.n; i++) {
    const char *wanted = i < 2 ? given[i] : options->disable.data[i - 2];
    if (!wanted || pass_find(wanted) >= 0) continue;
    report_no_pass(tool, wanted);
    return false;
  }
  return true;
}

static int64_t given_or_zero(int64_t number) {
  return number > 0 ? number : 0;
}

/* The command wants the price of a step and no program. */
static bool command_prices(const Options *options) {
  return options->command == COMMAND_simulate ||
         options->command == COMMAND_plan || options->command == COMMAND_diff ||
         (options->command == COMMAND_show && options->cluster);
}

static bool read_options(Tool *tool, CompileOptions *out) {
  const Options *options = &tool->options;
  CommandId command = options->command;
  bool is_ir = command == COMMAND_ir;
  if (!check_passes(tool)) return false;
  if (command == COMMAND_check && options->ranks > 0 && !options->cluster) {
    message_print("dnnc: error: 'dnnc check' takes --ranks with --cluster "
                  "only\n");
    return false;
  }
  if (options->ranks > INT32_MAX) {
    fprintf(stderr,
            "dnnc: error: --ranks %lld is too large; the most is "
            "2147483647\n",
            (long long)options->ranks);
    return false;
  }
  *out = (CompileOptions){.purpose = command_purpose(command),
                          .path = options->subject,
                          .library = tool_models_folder(tool->arena),
                          .net = options->net,
                          .predicting = command_predicting(options),
                          .value = options->value,
                          .overrides = options->overrides.data,
                          .n_overrides = options->overrides.n,
                          .is_checked = options->checked,
                          .is_model_only = command == COMMAND_check,
                          .takes_cluster = command_prices(options),
                          .leaves_open = command == COMMAND_plan,
                          .has_whole_windows = options->whole_windows,
                          .explains_windows =
                              (is_ir || command == COMMAND_sample) &&
                              !options->quiet,
                          .plan = options->plan,
                          .cluster = options->cluster,
                          .ranks = given_or_zero(options->ranks),
                          .microbatches = given_or_zero(options->microbatches),
                          .bucket_bytes = given_or_zero(options->bucket),
                          .target = options->target,
                          .data_files = command_data_files(command),
                          .data_folder = options->data,
                          .follows_links = options->follow_links,
                          .level = options->level,
                          .verifies = options->verify_ir,
                          .disabled = options->disable.data,
                          .n_disabled = options->disable.n,
                          .watch = tool_watch(tool)};
  return true;
}

/* Without placements a rank would run the program of one rank on the memory of
 * a shard. */
static bool can_leave_out(const Compilation *c) {
  const Plan *plan = c->plan;
  const CompileOptions *options = c->options;
  if (!plan || (plan->ranks <= 1 && plan->microbatches <= 1)) return true;
  for (int i = 0; i < options->n_disabled; i++) {
    if (!pass_is_named(pass_find("partition"), options->disabled[i])) continue;
    message_print(
        "dnnc: error: '--disable %s' cannot hold: this pass gives the ranks "
        "and micro-batches of the plan their shards\n"
        "help: '--stop-after layout_assignment' ends before it\n",
        options->disabled[i]);
    return false;
  }
  return true;
}

/* How many ranks a command can serve: a bundle has a file for each, and
 * `verify` plays all of them; 0: any number. */
static int most_ranks(CommandId command) {
  enum { MOST_OF_A_BUNDLE = 1 << 15 };
  switch (command) {
  case COMMAND_run:
  case COMMAND_sample:
  case COMMAND_predict:
  case COMMAND_eval: return MOST_LAUNCHED;
  case COMMAND_build:
  case COMMAND_verify: return MOST_OF_A_BUNDLE;
  default: return 0;
  }
}

static bool check_ranks(const Tool *tool, const Compilation *c) {
  CommandId command = tool->options.command;
  int most = most_ranks(command);
  if (!most || c->ranks <= most) return true;
  message_print("dnnc: error: 'dnnc %s' takes at most %d ranks, not %d\n"
                "help: 'dnnc ir' and 'dnnc simulate' take any number\n",
                options_command_name(command), most, c->ranks);
  return false;
}

int tool_load(Tool *tool, Compilation *out) {
  CompileOptions *options = ARENA_NEW(tool->arena, CompileOptions);
  if (!read_options(tool, options)) return EXIT_user;
  /* The threads of a verification have memory of their own. */
  if (tool->options.command != COMMAND_verify) memory_keep_freed();
  CompileResult result = driver_load(&tool->module, options, out);
  tool_report(tool);
  return result == COMPILE_done && can_leave_out(out) && check_ranks(tool, out)
             ? EXIT_done
             : EXIT_user;
}

/* ---- compiling ---- */

/* The block that a command is about. */
static bool has_block(const Tool *tool, const Model *model) {
  CommandId command = tool->options.command;
  const char *subject = tool->options.subject;
  bool is_run = command == COMMAND_run;
  if (command == COMMAND_sample && !model->prefill) {
    message_print("dnnc: error: '%s' has no sample block\n"
                  "help: 'sample { ... }' says how it writes text\n",
                  subject);
    return false;
  }
  if (model->has_train || (!is_run && command != COMMAND_eval)) return true;
  message_print("dnnc: error: '%s' has no train block to %s\nhelp: %s\n",
                subject, is_run ? "run" : "evaluate",
                is_run ? "'dnnc build' compiles its net without training"
                       : "'dnnc predict' writes the results of its net");
  return false;
}

static int compile_loaded(Tool *tool, Compilation *out) {
  if (!has_block(tool, out->model)) return EXIT_user;
  bool is_priced = command_prices(&tool->options);
  CompileResult result =
      driver_compile(out, is_priced ? STATION_packed : STATION_program);
  if (!is_priced && result != COMPILE_mistake) driver_check_remat(out);
  tool_report(tool);
  switch (result) {
  case COMPILE_done: return EXIT_done;
  case COMPILE_mistake: return EXIT_user;
  case COMPILE_no_plan: return EXIT_no_plan;
  }
  UNREACHABLE();
}

int tool_compile(Tool *tool, Compilation *out) {
  int code = tool_load(tool, out);
  return code == EXIT_done ? compile_loaded(tool, out) : code;
}

const Pins *tool_read_pins(Tool *tool, const Compilation *loaded,
                           const char *path) {
  PlanSource from = {.file = driver_read_plan(loaded, path)};
  const Pins *pins = NULL;
  if (from.file) pins = driver_read_pins(loaded, &from, tool->module.diags);
  tool_report(tool);
  return pins;
}

int tool_compile_other(Tool *tool, const Compilation *loaded, const char *path,
                       Compilation *out) {
  const Pins *pins = tool_read_pins(tool, loaded, path);
  if (!pins) return EXIT_user;
  const Plan *plan = driver_close(loaded, pins);
  if (tool_report(tool)) return EXIT_user;
  *out = driver_replan(loaded, &tool->module, plan);
  if (!can_leave_out(out) || !check_ranks(tool, out)) return EXIT_user;
  return compile_loaded(tool, out);
}
