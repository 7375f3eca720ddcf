/*
 * plan_written.c -- prices a plan whose lines leave nothing about stages open,
 * in place of a search that does not know such stages.
 *
 *     stage 0: conv on 0..7 as (data = 8)
 *     stage 1: fc   on 8    as (data = 1)
 *     schedule = 1f1b, microbatches = 4      =>  this plan, or its mistakes
 *
 * So a plan that a search found is found again when its lines are pins.
 */
#include "tools/commands/planning.h"

static bool says_all(const Pins *pins) {
  return pins && pins_have_stages(pins) && pins->schedule &&
         pins->microbatches.is_set;
}

bool planning_price_written(Planning *planning) {
  Arena *arena = planning->tool->arena;
  const Pins *pins = planning->loaded.pins;
  PlanTexts texts;
  CandidatePrice price = {0};
  if (!says_all(pins) ||
      !driver_plan_texts(&planning->loaded, pins, diags_create(arena), &texts))
    return false;
  planning_price_whole(planning, 1, &texts.text, &price);
  if (!price.is_legal) return false;
  bool fits = price.peak <= price.memory;
  planning->result = (SearchResult){
      .has_plan = fits,
      .best = {.text = texts.text, .words = texts.words, .price = price},
      .first = texts.text,
      .n_priced = 1,
      .n_legal = 1,
      .n_fit = fits,
      .space = "the plan as it is written, whose stages no search takes yet"};
  priced_plans_list(&planning->priced, &planning->result);
  return true;
}
