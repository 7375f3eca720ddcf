/*
 * remat_check.c -- warns where the lines `remat` of a plan do not lower the
 * peak memory of a training step.
 *
 * Training is compiled once more without them, and the packed bytes of both are
 * compared.  A line may lower the saved activations and still change nothing,
 * because something else is alive when the most memory is in use: the message
 * says what.  A plan without such a line costs nothing here.
 */
#include "passes/buffers/memory_peak.h"

#include "driver/internal.h"

/* The first line `remat`, or NULL. */
static const PlanPin *first_remat(const Plan *plan) {
  const PlanPin *first = NULL;
  for (int i = 0; plan && plan->saved && i < map_size(plan->saved); i++) {
    const PlanPin *line = map_value_at(plan->saved, i);
    if (line->says == SAYS_remat &&
        (!first || line->span.begin < first->span.begin))
      first = line;
  }
  return first;
}

/* The plan without its lines `remat`: passes look for them in `saved` alone. */
static Plan *without_remat(Arena *arena, const Plan *plan) {
  Plan *out = arena_copy(arena, plan, sizeof *plan);
  out->saved = map_create(arena);
  for (int i = 0; i < map_size(plan->saved); i++) {
    const PlanPin *line = map_value_at(plan->saved, i);
    if (line->says != SAYS_remat)
      map_put(out->saved, map_key_at(plan->saved, i), (void *)line);
  }
  return out;
}

/* False: the plan is no plan without the lines.  Reports nothing. */
static bool peak_without(const Compilation *c, MemoryPeak *out) {
  Arena *arena = c->module->arena;
  Compilation trial = driver_replan(c, module_apart(c->module, arena),
                                    without_remat(arena, c->plan));
  trial.is_trial = true;
  if (driver_compile(&trial, STATION_ordered) != COMPILE_done) return false;
  const BufferAssignment *assignment =
      driver_assign_alone(&trial, ENTRY_train, trial.trained);
  *out = memory_peak(trial.trained, assignment, &c->target.backend->target);
  return true;
}

static PeakKind largest_kind(const MemoryPeak *peak) {
  PeakKind largest = 0;
  for (int k = 1; k < N_PEAK_KINDS; k++)
    if (peak->bytes[k] > peak->bytes[largest]) largest = (PeakKind)k;
  return largest;
}

void driver_check_remat(const Compilation *c) {
  const PlanPin *line = first_remat(c->plan);
  const EntryPoint *entry = c->classes.n <= 1 ? driver_training_step(c) : NULL;
  const ProgramStage *step =
      entry && entry->stages.n == 1 ? entry_point_stage(entry) : NULL;
  MemoryPeak without;
  if (!line || !step || !peak_without(c, &without)) return;
  MemoryPeak with =
      memory_peak(step->graph, step->assignment, &c->target.backend->target);
  if (with.packed < without.packed) return;
  PeakKind kind = largest_kind(&with);
  const char *path =
      with.node < 0 ? NULL : step->graph->nodes.data[with.node]->path;
  diag(c->module->diags, DIAG_remat_peak, line->span, (long long)with.packed,
       (long long)without.packed, path ? path : "", (long long)with.bytes[kind],
       (long long)with.live, peak_kind_words(kind));
}
