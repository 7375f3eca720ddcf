/*
 * searches.c -- searches for another plan of a loaded model: without some of
 * its pins, on other ranks, in more memory.
 *
 * The options of the command line are pins, too, and each candidate gets them
 * when it is read.  So the search has copies of both.
 */
#include "tools/explain/searches.h"

#include <string.h>

Bytes planning_device_memory(const Planning *planning, Bytes memory) {
  const Cluster *cluster = planning_cluster(planning);
  Bytes reserve = 0;
  for (int g = 0; g < cluster->n_groups; g++) {
    const int64_t *values = cluster->groups[g].device->values;
    if (values[DEVICE_reserve] > reserve) reserve = values[DEVICE_reserve];
  }
  return memory + reserve;
}

Bytes planning_usable_memory(const Planning *planning) {
  const Cluster *cluster = planning_cluster(planning);
  Bytes least = INT64_MAX;
  for (int g = 0; g < cluster->n_groups; g++) {
    Bytes usable = device_usable_memory(cluster->groups[g].device);
    if (usable < least) least = usable;
  }
  return least;
}

/* By a line of the plan, or by other devices. */
static void set_memory(Planning *planning, const Pins *pins, Bytes memory) {
  Tool *tool = planning->tool;
  if (memory <= planning_usable_memory(planning)) {
    Pins *changed = arena_copy(tool->arena, pins, sizeof *pins);
    changed->memory_bytes = pin_number(memory);
    planning->loaded.pins = changed;
    return;
  }
  const char *change =
      arena_printf(tool->arena, "memory=%lldB",
                   (long long)planning_device_memory(planning, memory));
  tool->options.what_if.data = NULL;
  tool->options.what_if.n = tool->options.what_if.capacity = 0;
  vec_push(tool->arena, &tool->options.what_if, change);
  planning->request.cluster = what_if(tool, planning_cluster(planning));
}

/* With a copy of the options, which it returns. */
static CompileOptions *copy_planning(const Planning *planning, Planning *out) {
  Arena *arena = planning->tool->arena;
  CompileOptions *options = arena_copy(arena, planning->loaded.options,
                                       sizeof *planning->loaded.options);
  *out = *planning;
  out->tool = arena_copy(arena, planning->tool, sizeof *out->tool);
  out->loaded.options = options;
  out->priced = priced_plans_create(arena);
  return options;
}

/* Returns what searches of the case have priced. */
static Map *known_of(const Planning *planning, const ConflictCase *one) {
  const int64_t numbers[] = {one->dropped, one->ranks, one->memory};
  uint64_t hash = hash_bytes(numbers, sizeof numbers, 71);
  const void *key = (const void *)(uintptr_t)(hash | 1);
  Map *known = map_get(planning->cases, key);
  if (known) return known;
  known = map_create(planning->tool->arena);
  map_put(planning->cases, key, known);
  return known;
}

Planning planning_without(const Planning *planning, const ConflictCase *one,
                          int most) {
  Planning out;
  CompileOptions *options = copy_planning(planning, &out);
  out.loaded.pins = one->pins;
  out.without = one->without;
  out.n_without = one->n_without;
  if (one->has_no_microbatches) options->microbatches = 0;
  if (one->has_no_bucket) options->bucket_bytes = 0;
  if (one->ranks > 0) out.tool->options.ranks = options->ranks = one->ranks;
  if (one->memory > 0) set_memory(&out, one->pins, one->memory);
  out.tool->options.effort = most;
  out.known = known_of(planning, one);
  return out;
}

bool planning_with(const Planning *planning, const char *pins, int64_t ranks,
                   int effort, Diags *diags, Planning *out) {
  CompileOptions *options = copy_planning(planning, out);
  Source *source = ARENA_NEW(planning->tool->arena, Source);
  *source = (Source){"pins.plan", pins, strlen(pins)};
  PlanSource from = {.file = source};
  out->tool->options.ranks = options->ranks = ranks;
  out->tool->options.effort = effort;
  out->tool->options.quiet = true;
  out->loaded.pins = driver_read_pins(&out->loaded, &from, diags);
  return out->loaded.pins != NULL;
}

FoundPlan planning_chosen(Planning *planning, const char *text) {
  Diags *diags;
  Chosen chosen;
  bool is_chosen = planning_choose(planning, text, &diags, &chosen);
  ASSERT(is_chosen); /* it was priced before */
  const Priced *priced = &chosen.trial.priced;
  return (FoundPlan){chosen.text,
                     chosen.words,
                     {true, priced->price.step, priced->peak, priced->memory}};
}

SearchResult planning_find(Planning *planning) {
  planning_search(planning);
  SearchResult out = planning->result;
  if (out.has_plan) out.best = planning_chosen(planning, out.best.text);
  return out;
}
