/*
 * command_plan.c -- implements `dnnc plan`: searches for a plan of a model on a
 * cluster and writes it as text, with a certificate.
 *
 *     standard output   the plan (or the file of -o), or a JSON object
 *     standard error    what was found, and how to use it
 */
#include <stdio.h>
#include <string.h>

#include "tools/explain/searches.h"
#include "tools/plan/plan_predictions.h"
#include "tools/plan/plan_table.h"
#include "tools/plan/start_commands.h"

/* ---- output ---- */

/* Sets what the command line says in words; none: nothing. */
static void set_words(Certificate *out, CertificateField field, Text *words) {
  if (words->n > 0) certificate_set_text(out, field, text_string(words));
}

/* Files are named from the folder of the plan. */
static const char *path_from_plan(Tool *tool, const char *path) {
  const char *plan = tool->options.output;
  const char *slash = plan ? strrchr(plan, '/') : NULL;
  if (!slash) return path;
  const char *folder =
      arena_printf(tool->arena, "%.*s/", (int)(slash - plan), plan);
  return tool_path_from(tool, folder, path);
}

static void set_subject(Certificate *out, Tool *tool) {
  const Options *options = &tool->options;
  Text sizes = text_create(tool->arena), what_if = text_create(tool->arena);
  for (int i = 0; i < options->overrides.n; i++)
    text_printf(&sizes, "%s%s=%s", i ? " " : "",
                options->overrides.data[i].name,
                options->overrides.data[i].value);
  for (int i = 0; i < options->what_if.n; i++)
    text_printf(&what_if, "%s%s", i ? " " : "", options->what_if.data[i]);
  certificate_set_text(out, CERTIFICATE_model,
                       path_from_plan(tool, options->subject));
  set_words(out, CERTIFICATE_sizes, &sizes);
  certificate_set_text(out, CERTIFICATE_cluster,
                       path_from_plan(tool, options->cluster));
  set_words(out, CERTIFICATE_what_if, &what_if);
}

static double gap_of(const Chosen *chosen, Ps bound) {
  return 1 - (double)bound / (double)chosen->trial.priced.price.step;
}

/* The load that binds, and the setting whose plans may be that fast. */
static const char *bound_limit(Arena *arena, const PlanBound *of) {
  Text out = text_create(arena);
  bound_print_limit(&out, &of->bound);
  bound_print_kind(&out, &of->space);
  return text_string(&out);
}

static const char *bound_weights(Arena *arena, const Bound *bound) {
  Text out = text_create(arena);
  bound_weights_print(&out, &bound->weights);
  return text_string(&out);
}

static const char *bound_restrictions(Arena *arena, unsigned restrictions) {
  Text out = text_create(arena);
  for (Restriction i = 0; i < N_RESTRICTIONS; i++)
    if (restrictions >> i & 1)
      text_printf(&out, "%s%s", out.n ? " " : "", restriction_name(i));
  return text_string(&out);
}

/* Stages that are cut by simulated times. */
static bool is_bounded_by_floor(const Planning *planning, const Chosen *chosen,
                                const PlanBound *of) {
  return of->bound.reason && planning->result.is_timed && chosen->floor > 0;
}

static void set_floor(Certificate *out, const Planning *planning,
                      const Chosen *chosen, const PlanBound *of) {
  Arena *arena = planning->tool->arena;
  certificate_set_amount(out, CERTIFICATE_bound, chosen->floor);
  certificate_set_number(out, CERTIFICATE_gap, gap_of(chosen, chosen->floor));
  certificate_set_text(
      out, CERTIFICATE_limit,
      arena_printf(arena, "the floor, since there is no other bound: %s",
                   of->bound.reason));
  certificate_set_text(out, CERTIFICATE_restrictions,
                       restriction_name(RESTRICTION_floor_alone));
}

/* "P.duals" beside "P.plan". */
static const char *duals_path(Tool *tool) {
  const char *plan = tool->options.output, *end = plan + strlen(plan);
  if (end - plan > 5 && strcmp(end - 5, ".plan") == 0) end -= 5;
  return arena_printf(tool->arena, "%.*s.duals", (int)(end - plan), plan);
}

/* The name of the file and the hash of its text. */
static const char *duals_named(Tool *tool, const char *text) {
  const char *path = duals_path(tool), *slash = strrchr(path, '/');
  char hash[33];
  hash_hex(text, strlen(text), hash);
  return arena_printf(tool->arena, "%s %s", slash ? slash + 1 : path, hash);
}

static void set_bound(Certificate *out, const Planning *planning,
                      const Chosen *chosen, const PlanBound *of) {
  Arena *arena = planning->tool->arena;
  const Bound *bound = &of->bound;
  if (is_bounded_by_floor(planning, chosen, of))
    set_floor(out, planning, chosen, of);
  if (bound->reason) return;
  certificate_set_amount(out, CERTIFICATE_bound, bound->time);
  certificate_set_number(out, CERTIFICATE_gap, gap_of(chosen, bound->time));
  if (!of->load.reason)
    certificate_set_number(out, CERTIFICATE_search_gap,
                           plan_search_gap(&of->load, bound->time));
  certificate_set_text(out, CERTIFICATE_limit, bound_limit(arena, of));
  certificate_set_text(out, CERTIFICATE_weights, bound_weights(arena, bound));
  if (of->duals && planning->tool->options.output)
    certificate_set_text(out, CERTIFICATE_duals,
                         duals_named(planning->tool, of->duals));
  certificate_set_text(
      out, CERTIFICATE_restrictions,
      bound_restrictions(arena, planning_restrictions(planning)));
}

static Certificate certificate_of(const Planning *planning,
                                  const SearchResult *result,
                                  const Chosen *chosen, const PlanBound *of) {
  const Compilation *loaded = &planning->loaded;
  Certificate out = {0};
  char program[33], lines[33];
  driver_program_hash(loaded->model, loaded->pins, program);
  hash_hex(chosen->text, strlen(chosen->text), lines);
  set_subject(&out, planning->tool);
  certificate_set_text(&out, CERTIFICATE_program,
                       arena_strdup(planning->tool->arena, program));
  certificate_set_text(&out, CERTIFICATE_lines,
                       arena_strdup(planning->tool->arena, lines));
  certificate_set_amount(&out, CERTIFICATE_ranks, chosen->trial.c.ranks);
  certificate_set_amount(&out, CERTIFICATE_step,
                         chosen->trial.priced.price.step);
  if (chosen->floor > 0)
    certificate_set_amount(&out, CERTIFICATE_floor, chosen->floor);
  set_bound(&out, planning, chosen, of);
  certificate_set_text(&out, CERTIFICATE_space, result->space);
  return out;
}

/* Returns whether stages were not looked for, which suit unlike machines. */
static bool leaves_stages_out(const Planning *planning) {
  const ClusterSlice *slice = planning->input.slice;
  const char *search = planning->tool->options.search;
  return slice && slice->n_groups > 1 && !planning->result.has_stages &&
         !(search && strcmp(search, "stages") == 0);
}

static void print_summary(Planning *planning, const SearchResult *result,
                          const Chosen *chosen) {
  const Priced *p = &chosen->trial.priced;
  Arena *arena = planning->tool->arena;
  double seconds = (double)p->price.step * 1e-12;
  Text out = text_create(arena);
  text_printf(&out, "%s\n", chosen->words);
  text_printf(
      &out,
      "a step takes %s (estimate), %s a second, MFU %.1f %%, %s "
      "of %s",
      inspect_ms(arena, p->price.step),
      chosen->rates.has_tokens
          ? text_quantity(arena, (double)chosen->rates.items / seconds, "tok")
          : text_quantity(arena, (double)chosen->rates.samples / seconds,
                          "samples"),
      100 * chosen->rates.mfu, text_quantity(arena, (double)p->peak, "B"),
      text_quantity(arena, (double)p->memory, "B"));
  if (result->plain.is_legal && result->plain.peak <= result->plain.memory)
    text_printf(&out, "; data parallelism alone takes %s",
                inspect_ms(arena, result->plain.step));
  else if (result->plain.is_legal)
    text_printf(&out, "; data parallelism alone needs %s and does not fit",
                text_quantity(arena, (double)result->plain.peak, "B"));
  if (!result->is_stopped) planning_print_fewer(planning, p->price.step, &out);
  if (leaves_stages_out(planning))
    text_add(&out, "\nstages on machines of one kind each may be faster: "
                   "--search stages looks for them, too");
  if (result->is_stopped)
    text_printf(&out,
                "\nthe search was stopped: this is the best of the %d plans "
                "that it had priced",
                result->n_priced);
  text_add(&out, "\nstart it with: ");
  start_commands(&out, planning->tool, &chosen->trial.c);
  text_add(&out, "\n");
  fputs(text_string(&out), stderr);
}

static void print_gap_json(Text *out, const Chosen *chosen, Ps bound) {
  text_add(out, ",\"bound_s\":");
  text_add_real(out, (double)bound * 1e-12);
  text_add(out, ",\"gap\":");
  text_add_real(out, gap_of(chosen, bound));
}

static void print_bound_json(Text *out, const Planning *planning,
                             const Chosen *chosen, const PlanBound *of) {
  const Bound *bound = &of->bound;
  if (is_bounded_by_floor(planning, chosen, of))
    print_gap_json(out, chosen, chosen->floor);
  if (bound->reason) {
    text_add(out, ",\"no_bound\":");
    text_add_json(out, bound->reason);
    return;
  }
  print_gap_json(out, chosen, bound->time);
  if (of->load.reason) {
    text_add(out, ",\"no_search_gap\":");
    text_add_json(out, of->load.reason);
  } else {
    text_add(out, ",\"search_gap\":");
    text_add_real(out, plan_search_gap(&of->load, bound->time));
    text_add(out, ",\"load_s\":");
    text_add_real(out, (double)of->load.time * 1e-12);
    text_add(out, ",\"load\":");
    text_add_json(out, of->load.what);
  }
}

/* `page`: fields of the object of --html, or NULL. */
static void print_json(Text *out, const Planning *planning,
                       const Chosen *chosen, const PlanBound *bound,
                       const char *page) {
  const SearchResult *result = &planning->result;
  text_add(out, "{\"plan\":");
  text_add_json(out, chosen->text);
  text_add(out, ",\"words\":");
  text_add_json(out, chosen->words);
  text_add(out, ",");
  priced_print_json(out, &chosen->trial.priced);
  inspect_print_rates_json(out, &chosen->rates);
  text_add(out, ",\"floor_s\":");
  text_add_real(out, (double)chosen->floor * 1e-12);
  print_bound_json(out, planning, chosen, bound);
  text_printf(out,
              ",\"peak_bytes\":%lld,\"candidates\":%d,\"legal\":%d,"
              "\"fitting\":%d,\"solved\":{\"elimination\":%d,\"engine\":%d},"
              "\"search_s\":%.4f,\"stopped\":%s,\"space\":",
              (long long)chosen->trial.priced.peak, result->n_priced,
              result->n_legal, result->n_fit,
              result->n_solved[SOLVED_by_elimination],
              result->n_solved[SOLVED_by_engine], planning->search_seconds,
              result->is_stopped ? "true" : "false");
  text_add_json(out, result->space);
  if (page) text_printf(out, ",\n\"page\":{%s}", page);
  text_add(out, "}\n");
}

/* Comments are no part of the lines that the certificate has a hash of. */
static const char *printed_text(Planning *planning, const Chosen *chosen,
                                const PlanBound *bound) {
  Arena *arena = planning->tool->arena;
  const Pins *pins = bound->has_space ? planning_read(planning, chosen->text,
                                                      diags_create(arena))
                                      : NULL;
  return pins ? plan_with_predictions(arena, chosen->text, pins, &chosen->trial,
                                      &bound->space)
              : chosen->text;
}

static int write_plan(Planning *planning, const SearchResult *result,
                      const Chosen *chosen, const PlanBound *bound) {
  const Options *options = &planning->tool->options;
  Text plan = text_create(planning->tool->arena);
  text_printf(&plan, "%s\n", printed_text(planning, chosen, bound));
  Certificate certificate = certificate_of(planning, result, chosen, bound);
  certificate_print(&plan, &certificate);
  const char *page = NULL;
  if (options->html) {
    int code = plan_page(planning, chosen, text_string(&plan), &page);
    if (code != EXIT_done) return code;
  }
  /* A plan is never there without its duals. */
  if (options->output && bound->duals) {
    Status status = file_replace(duals_path(planning->tool), bound->duals,
                                 strlen(bound->duals));
    if (status.code != STATUS_ok) return tool_fail(status);
  }
  if (options->output) {
    Status status = file_replace(options->output, text_string(&plan), plan.n);
    if (status.code != STATUS_ok) return tool_fail(status);
  }
  if (options->json) {
    Text json = text_create(planning->tool->arena);
    print_json(&json, planning, chosen, bound, page);
    tool_print(&json);
  } else if (!options->output) {
    tool_print(&plan);
  }
  if (!options->quiet) print_summary(planning, result, chosen);
  if (!options->quiet && bound->duals && !options->output)
    message_print("note: only duals prove the bound of this plan: -o PLAN "
                  "writes them beside it, and without them 'dnnc verify' does "
                  "not check the bound\n");
  return EXIT_done;
}

static int report_stopped(void) {
  message_print("dnnc: error: the search was stopped before it had priced a "
                "plan\n");
  tool_end_as_signalled();
  return EXIT_user;
}

int command_plan(Tool *tool) {
  Planning planning = {.tool = tool};
  PlanMachinesList machines = {0};
  if (!plan_read_machines(tool, &machines)) return EXIT_user;
  if (tool->options.table || tool->options.frontier || machines.n > 1)
    return plan_table(tool, &machines);
  int code = planning_load(&planning);
  if (code != EXIT_done) return code;
  planning.lists_stages = tool->options.html != NULL;
  planning_search(&planning);
  const SearchResult *result = &planning.result;
  if (result->is_stopped && result->n_priced == 0) return report_stopped();
  if (!result->has_plan) return plan_report_none(&planning);
  Chosen chosen;
  Diags *diags;
  bool is_chosen =
      planning_choose(&planning, result->best.text, &diags, &chosen);
  ASSERT(is_chosen); /* it was priced before */
  PlanBound bound = planning_bound(&planning, &chosen);
  code = write_plan(&planning, result, &chosen, &bound);
  fflush(stdout);
  tool_end_as_signalled();
  return code;
}
