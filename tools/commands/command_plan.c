/*
 * command_plan.c -- implements `dnnc plan`: searches for a plan of a model on a
 * cluster and writes it as text, with a certificate.
 *
 *     standard output   the plan (or the file of -o), or a JSON object
 *     standard error    what was found, and how to use it
 */
#include <stdio.h>

#include "tools/commands/planning.h"

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
  if (!result->first ||
      planning_choose(planning, result->first, &diags, &refused))
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
  int code = planning_load(&planning);
  if (code != EXIT_done) return code;
  planning_search(&planning);
  const SearchResult *result = &planning.result;
  if (!result->has_plan) return report_none(&planning, result);
  Chosen chosen;
  Diags *diags;
  bool is_chosen =
      planning_choose(&planning, result->best.text, &diags, &chosen);
  ASSERT(is_chosen); /* it was priced before */
  code = write_plan(&planning, result, &chosen);
  fflush(stdout);
  tool_end_as_signalled();
  return code;
}
