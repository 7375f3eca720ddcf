/*
 * compile.c -- fills the options of the driver from the command line, and turns
 * its results into exit codes.
 */
#include "driver/trial.h"
#include "tools/commands/tools.h"

#include <stdio.h>
#include <string.h>

/* ---- options ---- */

/* A bundle that stays can be asked for a prediction later. */
static Predicting command_predicting(const CommandInfo *command,
                                     const Options *options) {
  bool is_asked =
      command->purpose == PURPOSE_predict || options->value ||
      (options->entry && entry_point_find(options->entry) == ENTRY_predict);
  if (is_asked) return PREDICTING_wanted;
  bool is_kept = command->output == OUTPUT_bundle ||
                 (command->output == OUTPUT_kept && options->output);
  return is_kept ? PREDICTING_maybe : PREDICTING_none;
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
  CommandPrices prices = command_info(options->command)->prices;
  return prices == PRICES_yes ||
         (prices == PRICES_with_cluster && options->cluster);
}

/* A run would fail without its files; one that is paced reads none. */
static DataFiles data_files_of(const Options *options,
                               const CommandInfo *command) {
  bool needs = options->command == COMMAND_run && !options->paced;
  return needs ? DATA_FILES_needed : command->data;
}

static bool read_options(Tool *tool, CompileOptions *out) {
  const Options *options = &tool->options;
  const CommandInfo *command = command_info(options->command);
  if (!check_passes(tool) || !options_check_pairs(options)) return false;
  if (options->ranks > INT32_MAX) {
    fprintf(stderr,
            "dnnc: error: --ranks %lld is too large; the most is "
            "2147483647\n",
            (long long)options->ranks);
    return false;
  }
  *out = (CompileOptions){
      .purpose = command->purpose,
      .path = options->subject,
      .library = tool_models_folder(tool->arena),
      .net = options->net,
      .predicting = command_predicting(command, options),
      .value = options->value,
      .overrides = options->overrides.data,
      .n_overrides = options->overrides.n,
      .is_checked = options->checked,
      .is_model_only = command->flags & COMMAND_FLAG_model_only,
      .takes_cluster = command_prices(options),
      .leaves_open = command->flags & COMMAND_FLAG_open,
      .has_whole_windows = options->whole_windows,
      .explains_windows =
          command->flags & COMMAND_FLAG_windows && !options->quiet,
      .plan = options->plan,
      .cluster = options->cluster,
      .found_plan = tool->found_plan,
      .detected_cluster = tool->detected_cluster,
      .ranks = given_or_zero(options->ranks),
      .microbatches = given_or_zero(options->microbatches),
      .bucket_bytes = given_or_zero(options->bucket),
      .target = options->target,
      .data_files = data_files_of(options, command),
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
    if (!pass_is_named(pass_phase(PASSES_partition), options->disabled[i]))
      continue;
    message_print(
        "dnnc: error: '--disable %s' cannot hold: this pass gives the ranks "
        "and micro-batches of the plan their shards\n"
        "help: '--stop-after layout_assignment' ends before it\n",
        options->disabled[i]);
    return false;
  }
  return true;
}

static bool check_ranks(const Tool *tool, const Compilation *c) {
  const CommandInfo *command = command_info(tool->options.command);
  int most = command->most_ranks;
  if (!most || c->ranks <= most) return true;
  message_print("dnnc: error: 'dnnc %s' takes at most %d ranks, not %d\n"
                "help: 'dnnc ir' and 'dnnc simulate' take any number\n",
                command->name, most, c->ranks);
  return false;
}

int tool_load(Tool *tool, Compilation *out) {
  CompileOptions *options = ARENA_NEW(tool->arena, CompileOptions);
  if (!read_options(tool, options)) return EXIT_user;
  if (!(command_info(tool->options.command)->flags & COMMAND_FLAG_threads))
    memory_keep_freed();
  CompileResult result = driver_load(&tool->module, options, out);
  tool_report(tool);
  return result == COMPILE_done && can_leave_out(out) && check_ranks(tool, out)
             ? EXIT_done
             : EXIT_user;
}

/* ---- compiling ---- */

/* The block that a command is about. */
static bool has_block(const Tool *tool, const Model *model) {
#define NEEDS(name, field, what, help)                                         \
  if (tool->options.command == COMMAND_##name && !model->field) {              \
    message_print("dnnc: error: '%s' has no %s\nhelp: %s\n",                   \
                  tool->options.subject, what, help);                          \
    return false;                                                              \
  }
#include "tools/commands.def"
  return true;
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
