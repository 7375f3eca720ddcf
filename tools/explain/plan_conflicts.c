/*
 * plan_conflicts.c -- says why `dnnc plan` has found no plan.
 *
 *     error: none of 320 plans fits: ...              the bytes
 *     a.plan:4:3: error: no plan was found that keeps  pins and limits
 *     what helps                                      changes, with the step
 *       without 'zero = 0'   41.2 ms   70.1 GB        of the plan found then
 */
#include <stdio.h>
#include <string.h>

#include "planner/stages/stage_pins.h"
#include "tools/explain/searches.h"

/* ---- the searches ---- */

enum {
  MOST_RELAXED = 200, /* candidates of a search for a relaxation */
  MOST_SEARCHES = 20  /* for the conflict, where none finds a plan */
};

static int most_relaxed(const Planning *planning) {
  int most = planning_most_candidates(planning);
  return most < MOST_RELAXED ? most : MOST_RELAXED;
}

static int64_t most_priced(const Planning *planning) {
  return (int64_t)MOST_SEARCHES * most_relaxed(planning);
}

static SearchResult search_lean(void *user, const ConflictCase *one,
                                Bytes limit) {
  const Planning *planning = user;
  Planning other = planning_without(planning, one, most_relaxed(planning));
  return planning_lean(&other, limit);
}

static SearchResult search_best(void *user, const ConflictCase *one) {
  const Planning *planning = user;
  Planning other = planning_without(planning, one, most_relaxed(planning));
  return planning_find(&other);
}

static FoundPlan print_plan(void *user, const FoundPlan *found) {
  return planning_chosen(user, found->text);
}

static bool is_stopped(void *user) {
  (void)user;
  return tool_is_stopped();
}

/* ---- what is asked ---- */

static const char *find_what_if_memory(const Options *options) {
  for (int i = options->what_if.n - 1; i >= 0; i--)
    if (strncmp(options->what_if.data[i], "memory=", 7) == 0)
      return options->what_if.data[i];
  return NULL;
}

/* The limit that a rank has: of the plan, of the command line, of a device. */
static Demand memory_of(const Planning *planning) {
  Arena *arena = planning->tool->arena;
  PinNumber pin = planning->loaded.pins->memory_bytes;
  Bytes usable = planning_usable_memory(planning);
  const char *changed = find_what_if_memory(&planning->tool->options);
  Demand out = {.kind = DEMAND_memory};
  if (pin.is_set && pin.value <= usable) {
    out.text = span_text(arena, pin.span);
    vec_push(arena, &out.spans, pin.span);
  } else if (changed) {
    out.text = arena_printf(arena, "--what-if %s", changed);
  } else {
    out.text = arena_printf(arena, "%s of memory of a device",
                            text_quantity(arena, (double)usable, "B"));
  }
  return out;
}

/* Parameters and optimizer state.  A unit stands for those of some blocks. */
static Bytes stored_bytes(const Planning *planning) {
  const Units *units = planning->no_space ? NULL : planning->space.units;
  Bytes sum = 0;
  for (int i = 0; units && i < units->params.n; i++) {
    const UnitParam *param = &units->params.data[i];
    sum += param->state * units->units.data[param->unit]->times;
  }
  return sum;
}

static ConflictInput input_of(Planning *planning) {
  const Cluster *cluster = planning->loaded.cluster;
  SearchHost host;
  return (ConflictInput){.arena = planning->tool->arena,
                         .names = planning->tool->module.names,
                         .pins = planning->loaded.pins,
                         .memory = memory_of(planning),
                         .has_ranks_option = planning->tool->options.ranks > 0,
                         .ranks = planning_input(planning, &host).ranks,
                         .most_ranks = cluster_ranks(cluster),
                         .unit_ranks = cluster->groups[0].n_levels > 0
                                           ? cluster->groups[0].levels[0].count
                                           : 1,
                         .smallest = planning->result.best,
                         .stored = stored_bytes(planning),
                         .limit = planning->input.memory,
                         .most_priced = most_priced(planning),
                         .lean = search_lean,
                         .best = search_best,
                         .printed = print_plan,
                         .is_stopped = is_stopped,
                         .user = planning};
}

/* ---- the conflict ---- */

/* "'zero = 0', '--ranks 8' and 'memory = 1MB'" */
static const char *members_text(Arena *arena, const Conflict *conflict) {
  enum { LONGEST = 160 }; /* messages truncate what is longer */
  Text text = text_create(arena);
  int left = __builtin_popcount(conflict->members), n = left;
  for (int i = 0; i < conflict->n_demands; i++) {
    if (!(conflict->members >> i & 1)) continue;
    left--;
    text_printf(&text, "%s'%s'%s", left + 1 < n && left == 0 ? " and " : "",
                conflict->demands[i].text, left > 1 ? ", " : "");
  }
  return text.n <= LONGEST
             ? text_string(&text)
             : arena_printf(arena, "all of these %d pins and limits", n);
}

/* The member that has the caret: the first line. */
static int find_first(const Conflict *conflict) {
  int first = -1;
  for (int i = 0; i < conflict->n_demands; i++)
    if (conflict->members >> i & 1 &&
        (first < 0 || (conflict->demands[i].spans.n > 0 &&
                       conflict->demands[first].spans.n == 0)))
      first = i;
  return first;
}

static void note_member(Diag *d, const Demand *demand) {
  Span place = demand->spans.n > 0 ? demand->spans.data[0] : SPAN_NONE;
  const char *where = demand->spans.n > 0      ? "is here"
                      : demand->text[0] == '-' ? "is on the command line"
                                               : "is what the cluster has";
  diag_note(d, place, "'%s' %s", demand->text, where);
}

static void print_conflict(Arena *arena, const Conflict *conflict,
                           int64_t n_plans) {
  Diags *diags = diags_create(arena);
  int first = find_first(conflict);
  bool is_one = (conflict->members & (conflict->members - 1)) == 0;
  const Demand *demand = &conflict->demands[first];
  Diag *d = diag(diags, DIAG_plan_conflict,
                 demand->spans.n > 0 ? demand->spans.data[0] : SPAN_NONE,
                 members_text(arena, conflict));
  for (int i = 0; i < conflict->n_demands; i++)
    if (i != first && conflict->members >> i & 1)
      note_member(d, &conflict->demands[i]);
  if (conflict->is_cut)
    diag_help(d,
              "the search for the conflict ended after %lld plans: fewer of "
              "these may be in conflict, and other pins too",
              (long long)n_plans);
  else if (!conflict->is_each_enough)
    diag_help(d, "other pins are in conflict too: each row below names all "
                 "that has to change for a plan");
  else
    diag_help(d, is_one ? "without it there is a plan"
                        : "without any one of them there is a plan");
  Text text = text_create(arena);
  diags_print(diags, &text);
  fputs(text_string(&text), stderr);
}

/* ---- what helps ---- */

/* Returns what replaces a demand: "--ranks 16"; NULL: nothing does. */
static const char *replacement(const Planning *planning, const Demand *demand,
                               const Relaxation *relaxation) {
  Arena *arena = planning->tool->arena;
  bool is_line = demand->spans.n > 0;
  Bytes memory = relaxation->memory;
  if (demand->kind == DEMAND_ranks)
    return arena_printf(arena, is_line ? "ranks = %lld" : "--ranks %lld",
                        (long long)relaxation->ranks);
  if (demand->kind != DEMAND_memory) return NULL;
  if (is_line && memory <= planning_usable_memory(planning))
    return arena_printf(arena, "memory = %s",
                        quantity_text(arena, UNIT_bytes, memory));
  return arena_printf(arena, "--what-if memory=%s",
                      quantity_text(arena, UNIT_bytes,
                                    planning_device_memory(planning, memory)));
}

/* Returns whether the new text cannot stand in place of the old one. */
static bool is_removed(const Demand *demand, const char *by) {
  bool is_option = by && by[0] == '-';
  return !by || (is_option && demand->spans.n > 0);
}

/* "without 'zero = 0', --ranks 16" */
static const char *change_text(const Planning *planning,
                               const Conflict *conflict,
                               const Relaxation *relaxation) {
  Text text = text_create(planning->tool->arena);
  for (int i = 0; i < conflict->n_demands; i++) {
    const Demand *demand = &conflict->demands[i];
    if (!(relaxation->dropped >> i & 1)) continue;
    const char *by = replacement(planning, demand, relaxation);
    if (is_removed(demand, by))
      text_printf(&text, "%swithout '%s'%s", text.n ? ", " : "", demand->text,
                  demand->takes_lines ? " and the lines that name its axes"
                                      : "");
    if (by) text_printf(&text, "%s%s", text.n ? ", " : "", by);
  }
  return text_string(&text);
}

static void print_relaxations(const Planning *planning,
                              const Conflict *conflict) {
  Arena *arena = planning->tool->arena;
  const char *changes[MOST_DEMANDS];
  int n = conflict->n_relaxations, width = 20;
  for (int i = 0; i < n; i++) {
    changes[i] = change_text(planning, conflict, &conflict->relaxations[i]);
    int length = (int)strlen(changes[i]);
    if (length > width) width = length;
  }
  Text out = text_create(arena);
  if (n == 0) return;
  text_printf(&out, "\n%-*s %16s %14s  %s\n", width + 2, "what helps", "a step",
              "a rank needs", "plan");
  for (int i = 0; i < n; i++) {
    const FoundPlan *plan = &conflict->relaxations[i].plan;
    text_printf(&out, "  %-*s %16s %14s  %s\n", width, changes[i],
                inspect_ms(arena, plan->price.step),
                text_quantity(arena, (double)plan->price.peak, "B"),
                plan->words);
  }
  fputs(text_string(&out), stderr);
}

/* ---- JSON ---- */

static void print_place_json(Text *out, Span span) {
  int line, column;
  span_locate(span, &line, &column);
  text_add(out, ",\"file\":");
  text_add_json(out, span.source->path);
  text_printf(out, ",\"line\":%d,\"column\":%d", line, column);
}

static void print_members_json(Text *out, const Conflict *conflict) {
  text_add(out, ",\"conflict\":[");
  for (int i = 0, n = 0; i < conflict->n_demands; i++) {
    const Demand *demand = &conflict->demands[i];
    if (!(conflict->members >> i & 1)) continue;
    text_printf(out, "%s{\"text\":", n++ ? "," : "");
    text_add_json(out, demand->text);
    if (demand->spans.n > 0) print_place_json(out, demand->spans.data[0]);
    text_add(out, "}");
  }
  text_printf(out, "],\"conflict_is_least\":%s",
              conflict->is_cut ? "false" : "true");
}

static void print_change_json(Text *out, const Planning *planning,
                              const Conflict *conflict, const Relaxation *row) {
  Text added = text_create(out->arena);
  text_add(out, ",\"drop\":[");
  for (int i = 0, n = 0; i < conflict->n_demands; i++) {
    const Demand *demand = &conflict->demands[i];
    if (!(row->dropped >> i & 1)) continue;
    const char *by = replacement(planning, demand, row);
    bool is_device = demand->spans.n == 0 && demand->text[0] != '-';
    if (!is_device) {
      text_add(out, n++ ? "," : "");
      text_add_json(out, demand->text);
    }
    text_add(&added, by && added.n ? "," : "");
    if (by) text_add_json(&added, by);
  }
  text_printf(out, "],\"add\":[%s]", text_string(&added));
}

static void print_relaxation_json(Text *out, const Planning *planning,
                                  const Conflict *conflict,
                                  const Relaxation *row) {
  text_add(out, "{\"change\":");
  text_add_json(out, change_text(planning, conflict, row));
  print_change_json(out, planning, conflict, row);
  if (row->ranks > 0)
    text_printf(out, ",\"ranks\":%lld", (long long)row->ranks);
  if (row->memory > 0)
    text_printf(out, ",\"memory_bytes\":%lld", (long long)row->memory);
  text_add(out, ",\"step_s\":");
  text_add_real(out, (double)row->plan.price.step * 1e-12);
  text_printf(
      out, ",\"peak_bytes\":%lld,\"words\":", (long long)row->plan.price.peak);
  text_add_json(out, row->plan.words);
  text_add(out, ",\"plan\":");
  text_add_json(out, row->plan.text);
  text_add(out, "}");
}

static void print_json(const Planning *planning, const Conflict *conflict,
                       const Chosen *smallest) {
  const SearchResult *result = &planning->result;
  Text out = text_create(planning->tool->arena);
  text_printf(&out, "{\"plan\":null,\"candidates\":%d", result->n_priced);
  if (result->best.text) {
    const CandidatePrice *price = &result->best.price;
    text_printf(
        &out,
        ",\"needed_bytes\":%lld,\"memory_bytes\":%lld,\"missing_bytes\":%lld",
        (long long)price->peak, (long long)price->memory,
        (long long)(price->peak - price->memory));
  }
  if (smallest) print_missing_stages_json(&out, &smallest->trial.priced);
  print_members_json(&out, conflict);
  text_add(&out, ",\"relaxations\":[");
  for (int i = 0; i < conflict->n_relaxations; i++) {
    if (i > 0) text_add(&out, ",");
    print_relaxation_json(&out, planning, conflict, &conflict->relaxations[i]);
  }
  text_add(&out, "]}\n");
  tool_print(&out);
}

/* ---- why there is none ---- */

/* Mistakes in the pins themselves, which have their places. */
static bool report_pins(Planning *planning) {
  Module *module = &planning->tool->module;
  int n = diags_errors(module->diags);
  driver_close(&planning->loaded, planning->loaded.pins);
  tool_report(planning->tool);
  return diags_errors(module->diags) > n;
}

/* Then a search adds what the pins lack. */
static bool is_of_stages(const Planning *planning) {
  return stage_pins_of(planning->tool->arena, planning->loaded.pins)
      .needs_stages;
}

/* The mistakes of the pins, or else of one candidate. */
static int report_none_legal(Planning *planning) {
  const SearchResult *result = &planning->result;
  Text text = text_create(planning->tool->arena);
  Diags *diags;
  Chosen refused;
  if (result->n_priced == 0)
    message_print("dnnc: error: no plan is legal for '%s'\n",
                  planning->tool->options.subject);
  else
    message_print("dnnc: error: none of %d plans is legal for '%s'\n",
                  result->n_priced, planning->tool->options.subject);
  if ((!is_of_stages(planning) && report_pins(planning)) || !result->first ||
      planning_choose(planning, result->first, &diags, &refused))
    return EXIT_user;
  diags_print(diags, &text);
  fputs(text_string(&text), stderr);
  return EXIT_user;
}

/* Compiles the smallest plan, if it has stages.  Returns false if not. */
static bool choose_smallest(Planning *planning, Chosen *out) {
  Diags *diags;
  const FoundPlan *best = &planning->result.best;
  return best->text && strstr(best->text, "  pipe = ") &&
         planning_choose(planning, best->text, &diags, out) &&
         out->trial.c.plan && out->trial.c.plan->stages.n > 1;
}

static int report_none_fits(Planning *planning, const Chosen *smallest) {
  const SearchResult *result = &planning->result;
  const CandidatePrice *price = &result->best.price;
  Arena *arena = planning->tool->arena;
  message_print(
      "dnnc: error: none of %d plans fits: the smallest needs %s of %s on a "
      "rank, %s are missing (%s)\n",
      result->n_priced, text_quantity(arena, (double)price->peak, "B"),
      text_quantity(arena, (double)price->memory, "B"),
      text_quantity(arena, (double)(price->peak - price->memory), "B"),
      result->best.words);
  if (smallest) {
    Text stages = text_create(arena);
    print_missing_stages(&stages, &smallest->trial.priced);
    fputs(text_string(&stages), stderr);
  }
  return EXIT_no_plan;
}

bool plan_report_refusal(const Planning *planning) {
  if (!planning->refusal) return false;
  Text text = text_create(planning->tool->arena);
  diags_print(planning->refusal, &text);
  fputs(text_string(&text), stderr);
  return true;
}

int plan_report_none(Planning *planning) {
  if (plan_report_refusal(planning)) return EXIT_user;
  if (planning->result.is_stopped)
    message_print("note: the search was stopped: plans that it had not priced "
                  "may be legal and fit\n");
  Chosen *smallest = ARENA_NEW(planning->tool->arena, Chosen);
  if (!choose_smallest(planning, smallest)) smallest = NULL;
  int code = planning->result.best.text ? report_none_fits(planning, smallest)
                                        : report_none_legal(planning);
  planning->cases = map_create(planning->tool->arena);
  ConflictInput input = input_of(planning);
  Conflict *conflict = ARENA_NEW(planning->tool->arena, Conflict);
  bool is_found = !tool_is_stopped() && conflict_find(&input, conflict);
  if (!is_found) *conflict = (Conflict){0};
  if (is_found) {
    print_conflict(planning->tool->arena, conflict, input.most_priced);
    if (!planning->tool->options.quiet) print_relaxations(planning, conflict);
  }
  if (planning->tool->options.json) print_json(planning, conflict, smallest);
  fflush(stdout);
  tool_end_as_signalled();
  return code;
}
