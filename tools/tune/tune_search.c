/*
 * tune_search.c -- chooses the plans that `dnnc tune` runs: those of the
 * command line, or those that a search finds for the machines that were
 * measured.
 *
 * The search prices plans from the files that the measurements have left.  What
 * it gets wrong, a run corrects: the best plans of different programs run, and
 * data parallelism, which needs no search.
 */
#include "tools/explain/searches.h"
#include "tools/tune/tune.h"

#include <string.h>

enum {
  MOST_RUN = 5,    /* plans of the search */
  SEARCH_SHARE = 4 /* the search takes a quarter of what is left at most */
};

static const char *numbered(const Tuning *tuning, const TunePlans *plans,
                            const char *words) {
  int n = 1;
  const char *name = words;
  for (int i = 0; i < plans->n; i++) {
    if (strcmp(plans->data[i].name, name) != 0) continue;
    name = arena_printf(tuning->arena, "%s (%d)", words, ++n);
    i = -1;
  }
  return name;
}

static int add_found(const Tuning *tuning, TunePlans *out, const char *words,
                     const char *text) {
  Arena *arena = tuning->arena;
  const char *path =
      arena_printf(arena, "%s/found-%d.plan", tuning->folder, out->n);
  Status status = file_replace(path, text, strlen(text));
  if (status.code != STATUS_ok) return tool_fail(status);
  const char *name = numbered(tuning, out, arena_strdup(arena, words));
  vec_push(arena, out, (TunePlan){name, path, true});
  return EXIT_done;
}

static bool has_text(const SearchResult *result, int n, const char *text) {
  for (int i = 0; i < n; i++)
    if (strcmp(result->found[i].text, text) == 0) return true;
  return false;
}

/* The best one first, then what there is without a search. */
static int add_best(const Tuning *tuning, Planning *planning, TunePlans *out) {
  const SearchResult *result = &planning->result;
  int n = result->n_found < MOST_RUN ? result->n_found : MOST_RUN;
  int code = EXIT_done;
  bool fits = result->plain_text && result->plain.peak <= result->plain.memory;
  for (int i = 0; i < n && code == EXIT_done; i++) {
    FoundPlan found = planning_printed(planning, &result->found[i]);
    code = add_found(tuning, out, found.words, found.text);
    if (i == 0 && fits && !has_text(result, n, result->plain_text) &&
        code == EXIT_done)
      code = add_found(tuning, out, "data parallelism", result->plain_text);
  }
  return code;
}

/* The command line of `dnnc plan` for the machines that were measured. */
static Tool planner_of(const Tuning *tuning, Arena *arena) {
  Tool out = *tuning->tool;
  Options *options = &out.options;
  out.arena = arena;
  out.module =
      (Module){out.memory, arena, names_create(arena), diags_create(arena)};
  out.hides_warnings = true;
  options->command = COMMAND_plan;
  options->cluster = arena_printf(arena, "%s.cluster", tuning->prices);
  if (tuning->n_measured > 0)
    options->profile = arena_printf(arena, "%s.profile", tuning->prices);
  return out;
}

static int report_none(const Tuning *tuning, const SearchResult *result) {
  const Options *options = &tuning->tool->options;
  message_print("dnnc: error: no plan to run: none of %d plans %s\n"
                "help: 'dnnc plan %s --cluster %s.cluster%s%s' says why\n",
                result->n_priced, result->best.text ? "fits" : "is legal",
                options->subject, tuning->name,
                options->search ? " --search " : "",
                options->search ? options->search : "");
  return EXIT_no_plan;
}

static int search(const Tuning *tuning, Arena *arena, TunePlans *out) {
  Tool planner = planner_of(tuning, arena);
  Planning planning = {.tool = &planner,
                       .until_ms = child_now_ms() +
                                   tune_left_ms(tuning) / SEARCH_SHARE};
  int code = planning_load(&planning);
  if (code != EXIT_done) return code;
  planning_search(&planning);
  const SearchResult *result = &planning.result;
  if (tool_is_stopped()) return EXIT_machine;
  if (plan_report_refusal(&planning)) return EXIT_user;
  if (!result->has_plan) return report_none(tuning, result);
  tune_say(tuning, "the best of %d plans: %s\n", result->n_priced,
           result->best.words);
  return add_best(tuning, &planning, out);
}

static int search_plans(const Tuning *tuning, TunePlans *out) {
  if (tuning->unknown_gpu) {
    tune_say(tuning,
             "no plan was searched: no preset has '%s'; add its rates to "
             "%s.cluster\n",
             tuning->unknown_gpu, tuning->name);
    return EXIT_done;
  }
  Arena *arena = arena_create(tuning->tool->memory);
  int code = search(tuning, arena, out);
  arena_destroy(arena);
  return code;
}

int tune_plans(Tuning *tuning, TunePlans *out) {
  const Options *options = &tuning->tool->options;
  int code = EXIT_done;
  if (options->plans.n == 0 && !options->no_plans)
    return search_plans(tuning, out);
  for (int i = 0; i < options->plans.n && code == EXIT_done; i++) {
    const char *path = options->plans.data[i];
    if (tool_is_auto_plan(path))
      code = search_plans(tuning, out);
    else
      vec_push(tuning->arena, out, (TunePlan){path, path, false});
  }
  return code;
}
