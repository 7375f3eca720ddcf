/*
 * command_plan.c -- implements `dnnc plan`: searches for a plan of a model on a
 * cluster and writes it as text, with a certificate.
 *
 *     standard output   the plan (or the file of -o), or a JSON object
 *     standard error    what was found, and how to use it
 *
 * A candidate of the search is read as a plan file would be, compiled and
 * simulated.  Of a model with many equal blocks a few are left: the step and
 * the arena with FEWER and with MORE of them say what each further block adds.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "driver/trial.h"
#include "ir/model/repeat.h"
#include "planner/search.h"
#include "tools/show/inspect.h"

enum {
  FEWER_BLOCKS = 10,
  MORE_BLOCKS = 12,
  MOST_CANDIDATES = 800 /* unless --effort says another number */
};

typedef struct Planning {
  Tool *tool;
  Compilation loaded;
  PriceRequest request;
  int n_blocks; /* of the longest run of equal ones; 0: nothing is cut */
  SearchHost host;
} Planning;

/* ---- prices of candidates ---- */

/* One program of a candidate. */
typedef struct Part {
  bool is_priced;
  Ps step;
  Bytes peak, memory;
} Part;

typedef struct Parts {
  Part *parts; /* by trial */
} Parts;

static void end_trial(void *user, int i, const Trial *trial, bool is_priced) {
  Parts *parts = user;
  const Priced *p = &trial->priced;
  parts->parts[i].is_priced = is_priced;
  if (!is_priced) return;
  parts->parts[i] = (Part){true, p->price.step, p->peak, p->memory};
}

/* Returns NULL after mistakes, which are in `diags`. */
static const Pins *read_candidate(Planning *planning, const char *text,
                                  Diags *diags) {
  Arena *arena = planning->tool->arena;
  Source *source = ARENA_NEW(arena, Source);
  *source = (Source){"candidate.plan", text, strlen(text)};
  PlanSource from = {.file = source};
  return driver_read_pins(&planning->loaded, &from, diags);
}

/* From the prices with FEWER and MORE blocks: each further block adds as much
 * as one of those between. */
static CandidatePrice extend(const Planning *planning, const Part *fewer,
                             const Part *more) {
  int64_t further = planning->n_blocks - MORE_BLOCKS;
  int64_t between = MORE_BLOCKS - FEWER_BLOCKS;
  return (CandidatePrice){
      .is_legal = fewer->is_priced && more->is_priced,
      .step = more->step + (more->step - fewer->step) * further / between,
      .peak = more->peak + (more->peak - fewer->peak) * further / between,
      .memory = more->memory};
}

static void price_candidates(void *user, const CandidateList *list,
                             CandidatePrice *out) {
  Planning *planning = user;
  Arena *arena = planning->tool->arena;
  bool is_cut = planning->n_blocks > MORE_BLOCKS && !list->is_whole;
  int *first = ARENA_ARRAY(arena, int, list->n), n = 0;
  TrialPlan *plans = ARENA_ARRAY(arena, TrialPlan, 2 * list->n);
  for (int i = 0; i < list->n; i++) {
    const Pins *pins =
        read_candidate(planning, list->texts[i], diags_create(arena));
    first[i] = pins ? n : -1;
    TrialPlan plan = {.pins = pins,
                      .blocks = is_cut ? MORE_BLOCKS : 0,
                      .is_training_only = !list->is_whole};
    if (pins) plans[n++] = plan;
    plan.blocks = FEWER_BLOCKS;
    if (pins && is_cut) plans[n++] = plan;
  }
  Parts parts = {ARENA_ARRAY(arena, Part, n + 1)};
  /* The plans found so far are judged even after a signal. */
  bool (*stop)(void) = list->is_whole ? NULL : tool_is_stopped;
  driver_try_all(&planning->loaded, &(TrialList){.n = n,
                                                 .plans = plans,
                                                 .request = &planning->request,
                                                 .most_threads = tool_threads(),
                                                 .is_stopped = stop,
                                                 .visit = end_trial,
                                                 .user = &parts});
  for (int i = 0; i < list->n; i++) {
    out[i] = (CandidatePrice){0};
    if (first[i] < 0) continue;
    const Part *more = &parts.parts[first[i]];
    out[i] = is_cut ? extend(planning, more + 1, more)
                    : (CandidatePrice){more->is_priced, more->step, more->peak,
                                       more->memory};
  }
}

static bool is_stopped(void *user) {
  (void)user;
  return tool_is_stopped();
}

static void show_progress(void *user, int n_priced, int of,
                          const CandidatePrice *best) {
  const Planning *planning = user;
  if (planning->tool->options.quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%d of at most %d plans priced", n_priced, of);
  if (best)
    fprintf(stderr, ", the best takes %.3f ms", (double)best->step * 1e-9);
  fprintf(stderr, "%10s", "");
  fflush(stderr);
}

static void end_progress(const Planning *planning) {
  if (planning->tool->options.quiet || !isatty(STDERR_FILENO)) return;
  fprintf(stderr, "\r%78s\r", "");
}

/* ---- the search ---- */

static int longest_run(const Graph *graph) {
  Repeat repeats[MOST_REPEATS];
  int n = graph_repeats(graph, NULL, repeats), longest = 0;
  for (int i = 0; i < n; i++) {
    int blocks = repeats[i].last - repeats[i].first + 1;
    if (blocks > longest) longest = blocks;
  }
  return longest;
}

/* Returns the ranks that --ranks, a written mesh or the cluster names. */
static int64_t ranks_of(const Planning *planning) {
  const Pins *pins = planning->loaded.pins;
  int64_t ranks = 1;
  bool is_open = !pins || !pins_have_mesh(pins);
  for (int a = 0; !is_open && a < pins->axes.n; a++) {
    if (pins->axes.data[a].size == 0) is_open = true;
    ranks *= pins->axes.data[a].size;
  }
  if (planning->tool->options.ranks > 0) return planning->tool->options.ranks;
  if (pins && pins->ranks.value > 0) return pins->ranks.value;
  return is_open ? cluster_ranks(planning->loaded.cluster) : ranks;
}

static int load(Planning *planning) {
  Tool *tool = planning->tool;
  int code = tool_price_request(tool, &planning->request);
  if (code == EXIT_done) code = tool_load(tool, &planning->loaded);
  if (code != EXIT_done) return code;
  const Model *model = planning->loaded.model;
  if (!model->train) {
    message_print("dnnc: error: '%s' has no train block, and a plan is for a "
                  "training step\n",
                  tool->options.subject);
    return EXIT_user;
  }
  planning->n_blocks = longest_run(model->train);
  return EXIT_done;
}

/* The whole program of the plan that was found. */
typedef struct Chosen {
  Trial trial;
  const char *text;
  Inspection rates;
} Chosen;

/* Returns false after mistakes, which are in `diags`. */
static bool choose(Planning *planning, const char *text, Diags **diags,
                   Chosen *out) {
  *diags = diags_create(planning->tool->arena);
  TrialPlan plan = {.pins = read_candidate(planning, text, *diags)};
  out->text = text;
  out->rates = (Inspection){.priced = &out->trial.priced};
  if (!plan.pins) return false;
  bool is_priced = driver_try(&planning->loaded, planning->tool->memory, &plan,
                              &planning->request, &out->trial);
  *diags = out->trial.module.diags;
  return is_priced && inspect_rates(&out->rates);
}

/* ---- output ---- */

static Ps floor_of(const Inspection *rates) {
  if (rates->peak_flops <= 0) return 0;
  return (Ps)(rates->flops / rates->peak_flops * 1e12);
}

static void print_certificate(Text *out, const Planning *planning,
                              const SearchResult *result,
                              const Chosen *chosen) {
  const Options *options = &planning->tool->options;
  Arena *arena = out->arena;
  text_add(out, "\ncertificate {\n  model   = ");
  text_add_json(out, options->subject);
  text_add(out, "\n  cluster = ");
  text_add_json(out, options->cluster);
  text_printf(out, "\n  ranks   = %d\n  step    = %s\n  floor   = %s\n",
              chosen->trial.c.ranks,
              quantity_text(arena, UNIT_time, chosen->trial.priced.price.step),
              quantity_text(arena, UNIT_time, floor_of(&chosen->rates)));
  text_add(out, "  space   = ");
  text_add_json(out, result->space);
  text_add(out, "\n}\n");
}

static void print_summary(const Planning *planning, const SearchResult *result,
                          const Chosen *chosen) {
  const Options *options = &planning->tool->options;
  const Priced *p = &chosen->trial.priced;
  Arena *arena = planning->tool->arena;
  double seconds = (double)p->price.step * 1e-12;
  Text out = text_create(arena);
  text_printf(&out, "%s\n", result->best.words);
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
  const char *plan = options->output ? options->output : "FILE";
  text_printf(&out, "\nstart it with: dnnc run %s --plan %s\n",
              options->subject, plan);
  fputs(text_string(&out), stderr);
}

static void print_json(Text *out, const SearchResult *result,
                       const Chosen *chosen) {
  text_add(out, "{\"plan\":");
  text_add_json(out, chosen->text);
  text_add(out, ",\"words\":");
  text_add_json(out, result->best.words);
  text_add(out, ",");
  priced_print_json(out, &chosen->trial.priced);
  inspect_print_rates_json(out, &chosen->rates);
  text_add(out, ",\"floor_s\":");
  text_add_real(out, (double)floor_of(&chosen->rates) * 1e-12);
  text_printf(out,
              ",\"peak_bytes\":%lld,\"candidates\":%d,\"legal\":%d,"
              "\"fitting\":%d,\"stopped\":%s,\"space\":",
              (long long)chosen->trial.priced.peak, result->n_priced,
              result->n_legal, result->n_fit,
              result->is_stopped ? "true" : "false");
  text_add_json(out, result->space);
  text_add(out, "}\n");
}

static int write_plan(Planning *planning, const SearchResult *result,
                      const Chosen *chosen) {
  const Options *options = &planning->tool->options;
  Text plan = text_create(planning->tool->arena);
  text_add(&plan, chosen->text);
  print_certificate(&plan, planning, result, chosen);
  if (options->output) {
    Status status = file_replace(options->output, text_string(&plan), plan.n);
    if (status.code != STATUS_ok) return tool_fail(status);
  }
  if (options->json) {
    Text json = text_create(planning->tool->arena);
    print_json(&json, result, chosen);
    tool_print(&json);
  } else if (!options->output) {
    tool_print(&plan);
  }
  if (!options->quiet) print_summary(planning, result, chosen);
  return EXIT_done;
}

/* The mistakes of one candidate say why none is legal. */
static int report_none_legal(Planning *planning, const SearchResult *result) {
  Text text = text_create(planning->tool->arena);
  Diags *diags;
  Chosen refused;
  message_print("dnnc: error: none of %d plans is legal for '%s'\n",
                result->n_priced, planning->tool->options.subject);
  if (!result->first || choose(planning, result->first, &diags, &refused))
    return EXIT_user;
  diags_print(diags, &text);
  fputs(text_string(&text), stderr);
  return EXIT_user;
}

static int report_none(Planning *planning, const SearchResult *result) {
  Arena *arena = planning->tool->arena;
  if (!result->best.text) return report_none_legal(planning, result);
  const CandidatePrice *price = &result->best.price;
  message_print(
      "dnnc: error: none of %d plans fits: the smallest needs %s of %s on a "
      "rank, %s are missing (%s)\n",
      result->n_priced, text_quantity(arena, (double)price->peak, "B"),
      text_quantity(arena, (double)price->memory, "B"),
      text_quantity(arena, (double)(price->peak - price->memory), "B"),
      result->best.words);
  return EXIT_no_plan;
}

int command_plan(Tool *tool) {
  Planning planning = {.tool = tool};
  int code = load(&planning);
  if (code != EXIT_done) return code;
  tool_hold_signals();
  planning.host = (SearchHost){.price = price_candidates,
                               .is_stopped = is_stopped,
                               .progress = show_progress,
                               .user = &planning};
  const Options *options = &tool->options;
  SearchInput input = {.arena = tool->arena,
                       .train = planning.loaded.model->train,
                       .pins = planning.loaded.pins,
                       .cluster = planning.loaded.cluster,
                       .ranks = ranks_of(&planning),
                       .most_candidates = options->effort > 0
                                              ? (int)options->effort
                                              : MOST_CANDIDATES,
                       .host = &planning.host};
  SearchResult result = plan_search(&input);
  end_progress(&planning);
  if (!result.has_plan) return report_none(&planning, &result);
  Chosen chosen;
  Diags *diags;
  bool is_chosen = choose(&planning, result.best.text, &diags, &chosen);
  ASSERT(is_chosen); /* it was priced before */
  code = write_plan(&planning, &result, &chosen);
  fflush(stdout);
  tool_end_as_signalled();
  return code;
}
