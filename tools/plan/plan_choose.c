/*
 * plan_choose.c -- makes the plan that is written of the one that a search
 * chose.
 *
 *     candidate -> printed plan -> without lines that change nothing -> priced
 */
#include "tools/commands/planning.h"

/* Lines that somebody wrote stay. */
static bool has_path_lines(const Pins *pins) {
  for (int i = 0; pins && i < pins->of_paths.n; i++)
    if (!pins->of_paths.data[i].pin.is_annotation) return true;
  return false;
}

bool planning_choose(Planning *planning, const char *candidate, Diags **diags,
                     Chosen *out) {
  *diags = diags_create(planning->tool->arena);
  *out = (Chosen){.rates = {.priced = &out->trial.priced}};
  PlanTexts texts;
  const Pins *pins = planning_read(planning, candidate, *diags);
  if (!pins || !driver_plan_texts(&planning->loaded, pins, *diags, &texts))
    return false;
  if (has_path_lines(pins) && !has_path_lines(planning->loaded.pins)) {
    pins = planning_read(planning, planning_simplify(planning, texts.text),
                         *diags);
    ASSERT(pins && driver_plan_texts(&planning->loaded, pins, *diags, &texts));
  }
  out->text = texts.text;
  out->words = texts.words;
  TrialPlan plan = {.pins = planning_read(planning, out->text, *diags)};
  ASSERT(plan.pins); /* a printed plan can be read */
  bool is_priced = driver_try(&planning->loaded, planning->tool->memory, &plan,
                              &planning->request, &out->trial);
  *diags = out->trial.module.diags;
  if (is_priced) out->floor = planning_floor(&out->trial.priced);
  return is_priced && inspect_rates(&out->rates);
}
