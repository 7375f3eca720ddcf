/*
 * plan_check.c -- checks the lines of a plan once all sizes are known, and
 * warns of those that others imply.
 *
 *     shard B over data
 *     shard x: B over data      warning: this pin says so already
 */
#include "ir/plan/pins.h"

#include <string.h>

void pin_warn_implied(Module *module, Span later, Span earlier) {
  Diag *d = diag(module->diags, DIAG_pin_repeats, later,
                 span_text(module->arena, later));
  diag_note(d, earlier, "this pin says so already");
}

/* ---- settings ---- */

static bool check_parallel(Module *module, const Pins *pins, const Plan *plan) {
  if (pins->has_train || (plan->ranks <= 1 && plan->microbatches <= 1))
    return true;
  bool is_mesh = plan->ranks > 1 || !pins->block_span.source;
  diag(module->diags, DIAG_plan_needs_train,
       is_mesh ? pins->mesh_span : pins->block_span);
  return false;
}

/* The ranks of a stage split the samples of each micro-batch, or the other way
 * round. */
static bool check_stage_microbatches(Module *module, const Pins *pins,
                                     const Plan *plan) {
  int64_t n = plan->microbatches;
  for (int s = 0; s < plan->stages.n && n > 1; s++) {
    int64_t shards = plan_batch_shards(plan, s);
    if (pins->batch % (n * shards) == 0) continue;
    Diag *d =
        diag(module->diags, DIAG_stage_microbatches, plan->stages.data[s].span,
             s, (long long)shards, (long long)n, (long long)pins->batch);
    if (pins->microbatches.span.source)
      diag_note(d, pins->microbatches.span, "the micro-batches are here");
    return false;
  }
  return true;
}

/* A rank splits its own samples into micro-batches. */
static bool check_microbatches(Module *module, const Pins *pins,
                               const Plan *plan) {
  const Mesh *mesh = plan_mesh(plan);
  const PlanShard *shard = plan_find_shard(plan, pins->batch_dim);
  int64_t n = plan->microbatches, samples = pins->batch;
  if (plan->has_meshes) return check_stage_microbatches(module, pins, plan);
  for (int i = 0; shard && i < shard->n_axes; i++) {
    int size = mesh->axes[mesh_find(mesh, shard->axes[i])].size;
    if (samples % size != 0) return true; /* `partition` says so */
    samples /= size;
  }
  if (samples == 0 || (n <= samples && samples % n == 0)) return true;
  Diag *d = diag(module->diags, DIAG_microbatches_divide,
                 pins->microbatches.span, (long long)n, (long long)samples);
  if (n > samples) n = samples;
  while (samples % n != 0) n--;
  diag_help(d, "write 'microbatches = %lld'", (long long)n);
  return false;
}

/* ---- lines about names ---- */

static bool share_axis(const PlanShard *a, const PlanShard *b) {
  for (int i = 0; i < a->n_axes; i++)
    for (int k = 0; k < b->n_axes; k++)
      if (a->axes[i] == b->axes[k]) return true;
  return false;
}

static bool have_same_axes(const PlanShard *a, const PlanShard *b) {
  bool is_same = a->n_axes == b->n_axes;
  for (int i = 0; is_same && i < a->n_axes; i++)
    is_same = a->axes[i] == b->axes[i];
  return is_same;
}

/* An earlier line that says the same as line `at`, or NULL.  Where another dim
 * has taken an axis since, saying it again takes the axis back. */
static const PlanShard *find_same(const Plan *plan, int at) {
  const PlanShard *shard = &plan->shards.data[at];
  int known = at - 1;
  while (known >= 0 && plan->shards.data[known].dim != shard->dim) known--;
  if (known < 0 || !have_same_axes(&plan->shards.data[known], shard))
    return NULL;
  for (int i = known + 1; i < at; i++)
    if (share_axis(&plan->shards.data[i], shard)) return NULL;
  return &plan->shards.data[known];
}

/* A line may name several dims: it is implied if each of them is. */
static void check_names(Module *module, const Plan *plan) {
  for (int from = 0, to; from < plan->shards.n; from = to) {
    Span line = plan->shards.data[from].span, known = SPAN_NONE;
    bool is_new = !line.source;
    for (to = from; to < plan->shards.n; to++) {
      Span span = plan->shards.data[to].span;
      if (span.source != line.source || span.begin != line.begin) break;
      const PlanShard *same = find_same(plan, to);
      is_new |= same == NULL;
      if (same) known = same->span;
    }
    if (!is_new && known.source) pin_warn_implied(module, line, known);
  }
}

/* ---- lines about paths ---- */

/* The pin that decides if this one is removed, if it gives this type the same
 * placement: an earlier pin about the path, or pins about all dims. */
static Span decides_alike(const Plan *plan, const PlanPin *line,
                          const PlanPin *before, Name path, const Type *type) {
  const PlanShard *now[MAX_RANK], *else_[MAX_RANK];
  Span by = before ? before->span : SPAN_NONE;
  for (int d = 0; d < type->rank; d++) {
    Name dim = type->dims[d].name;
    now[d] = plan_placed_dim(line, dim);
    else_[d] =
        before ? plan_placed_dim(before, dim) : plan_named_dim(plan, path, dim);
    if (!before && (!else_[d] || !else_[d]->span.source)) return SPAN_NONE;
    if (!before) by = else_[d]->span;
  }
  for (int d = 0; d < type->rank; d++) {
    Name axes[MAX_AXES], other[MAX_AXES];
    int n = plan_lines_axes(now, type->rank, d, axes);
    if (n != plan_lines_axes(else_, type->rank, d, other)) return SPAN_NONE;
    for (int i = 0; i < n; i++)
      if (axes[i] != other[i]) return SPAN_NONE;
  }
  return by;
}

static bool same_partial(const PlanPin *a, const PlanPin *b) {
  int n = b ? b->n_partial : 0;
  bool is_same = a->n_partial == n;
  for (int i = 0; is_same && i < n; i++)
    is_same = a->partial[i] == b->partial[i];
  return is_same;
}

/* Earlier pins imply this one; `by` gets the place of the last of them.  Only
 * another pin about it makes one about a gradient or optimizer state
 * superfluous. */
static bool is_implied(const PlanPaths *paths, const Plan *plan,
                       const Map *placed, const PlanPin *pin, Span *by) {
  for (int i = 0; i < pin->n_paths; i++) {
    Name path = pin->paths[i];
    const PlanNodes *nodes = plan_paths_nodes_of(paths, path);
    const PlanPin *before = map_get(placed, path);
    if (pin_is_of_update(pin) && !before) return false;
    for (int k = 0; k < nodes->n; k++) {
      const Node *node = nodes->data[k].node;
      for (int r = 0; r < node->n_results; r++) {
        if (node->types[r]->rank == 0) continue;
        *by = decides_alike(plan, pin, before, path, node->types[r]);
        if (!by->source) return false;
      }
    }
    if (!same_partial(pin, before)) return false;
  }
  return true;
}

/* Returns where the pins end that were written as one with pin `i`, which may
 * be about gradients and optimizer state at once. */
static int end_of_written(const Plan *plan, int i) {
  const PlanPin *first = &plan->pins.data[i++];
  for (; i < plan->pins.n && pin_is_of_update(first); i++) {
    const PlanPin *pin = &plan->pins.data[i];
    if (!pin_is_of_update(pin) || pin->span.source != first->span.source ||
        pin->span.begin != first->span.begin)
      break;
  }
  return i;
}

static void warn_implied_placements(Module *module, const PlanPaths *paths,
                                    const Plan *plan) {
  Map *placed = map_create(module->arena);
  for (int i = 0, end; i < plan->pins.n; i = end) {
    const PlanPin *pins = plan->pins.data;
    bool implied = true;
    Span by = SPAN_NONE;
    end = end_of_written(plan, i);
    if (pins[i].is_annotation || !pin_is_placement(&pins[i])) continue;
    for (int k = i; k < end && implied; k++)
      implied = is_implied(paths, plan, placed, &pins[k], &by);
    if (implied && by.source) pin_warn_implied(module, pins[i].span, by);
    for (int k = i; k < end; k++)
      for (int j = 0; j < pins[k].n_paths; j++)
        map_put(placed, pins[k].paths[j], (void *)&pins[k]);
  }
}

static bool same_shards(const PlanPin *a, const PlanPin *b) {
  bool is_same = a->n_shards == b->n_shards;
  for (int i = 0; is_same && i < a->n_shards; i++) {
    const PlanShard *other = plan_placed_dim(b, a->shards[i].dim);
    is_same = other && have_same_axes(other, &a->shards[i]);
  }
  return is_same;
}

static void warn_implied_operators(Module *module, const Plan *plan) {
  Map *known = map_create(module->arena);
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *line = &plan->pins.data[i];
    if (line->about != ABOUT_operator) continue;
    const PlanPin *before = map_get(known, line->paths[0]);
    bool repeats = before != NULL;
    for (int k = 0; k < line->n_paths; k++) {
      const PlanPin *other = map_get(known, line->paths[k]);
      repeats = repeats && other && same_shards(line, other);
      map_put(known, line->paths[k], (void *)line);
    }
    if (repeats) pin_warn_implied(module, line->span, before->span);
  }
}

/* One axis shards one dim of a value. */
static bool check_type_axes(Module *module, const Type *type, const char *path,
                            const PlanPin *line) {
  for (int i = 0; i < line->n_shards; i++)
    for (int k = 0; k < i; k++) {
      const PlanShard *a = &line->shards[k], *b = &line->shards[i];
      if (!share_axis(a, b) || type_find(type, a->dim) < 0 ||
          type_find(type, b->dim) < 0)
        continue;
      int at = 0;
      PlanShard one = {.n_axes = 1};
      do one.axes[0] = a->axes[at++];
      while (!share_axis(&one, b));
      Diag *d = diag(module->diags, DIAG_axis_two_dims, line->span, one.axes[0],
                     a->dim, b->dim, path);
      diag_help(d, "one axis shards one dimension of a value: leave out one");
      return false;
    }
  return true;
}

static bool check_pin_axes(Module *module, const PlanPaths *paths,
                           const PlanPin *line) {
  for (int i = 0; i < line->n_paths && line->n_shards >= 2; i++) {
    const PlanNodes *at = plan_paths_nodes_of(paths, line->paths[i]);
    const char *path = pin_is_of_update(line)
                           ? plan_paths_other(paths, line->paths[i], 0)
                           : line->paths[i];
    for (int k = 0; k < at->n; k++)
      for (int r = 0; r < at->data[k].node->n_results; r++)
        if (!check_type_axes(module, at->data[k].node->types[r], path, line))
          return false;
  }
  return true;
}

static bool check_axes(Module *module, const Pins *pins, const Plan *plan) {
  bool is_good = true;
  for (int i = 0, end; i < plan->pins.n; i = end) {
    bool is_sound = true;
    end = end_of_written(plan, i);
    if (!pin_is_placement(&plan->pins.data[i])) continue;
    for (int k = i; k < end && is_sound; k++)
      is_sound = check_pin_axes(module, pins->paths, &plan->pins.data[k]);
    is_good &= is_sound;
  }
  return is_good;
}

/* ---- `remat` and `keep` ---- */

/* Reports a line to which later lines leave no value. */
static bool report_replaced(Module *module, const Plan *plan, int line) {
  const PlanPin *saving = &plan->pins.data[line];
  Span last = saving->span;
  for (int k = line + 1; k < plan->pins.n; k++) {
    const PlanPin *later = &plan->pins.data[k];
    if (!pin_is_saving(later)) continue;
    last = later->span;
    if (later->says == saving->says) continue;
    Diag *d = diag(module->diags, DIAG_plan_contradicts, later->span,
                   span_text(module->arena, later->span),
                   span_text(module->arena, saving->span));
    diag_note(d, saving->span, "the earlier pin is here");
    diag_help(d, "remove one of the two, or write the pin about fewer values "
                 "after the other");
    return false;
  }
  pin_warn_implied(module, saving->span, last);
  return true;
}

/* Marks the pins that are the last one about some value. */
static bool *find_winning_savings(Arena *arena, const Plan *plan) {
  bool *wins = ARENA_ARRAY(arena, bool, plan->pins.n + 1);
  for (int i = 0; plan->saved && i < map_size(plan->saved); i++)
    wins[(const PlanPin *)map_value_at(plan->saved, i) - plan->pins.data] =
        true;
  return wins;
}

/* Each line must name something, and later ones must leave something to it. */
static bool check_savings(Module *module, const Pins *pins, const Plan *plan) {
  const bool *wins = find_winning_savings(module->arena, plan);
  bool is_good = true;
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    const PathPin *written = &pins->of_paths.data[i];
    if (!pin_is_saving(pin) || pin->is_annotation || wins[i]) continue;
    if (written->names_values || pin->n_paths > 0) {
      is_good &= report_replaced(module, plan, i);
      continue;
    }
    diag(module->diags, DIAG_plan_not_computed, written->subject,
         span_text(module->arena, written->subject),
         pin->says == SAYS_remat ? "remat" : "keep");
    is_good = false;
  }
  return is_good;
}

/* ---- `offload` ---- */

/* Each line must name something that may be in host memory. */
static bool check_offloads(Module *module, const Pins *pins, const Plan *plan) {
  bool is_good = true;
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    const PathPin *written = &pins->of_paths.data[i];
    if (pin->says != SAYS_offload) continue;
    if (plan_has_versions(module->arena, plan)) {
      Diag *d =
          diag(module->diags, DIAG_not_supported, pin->span,
               arena_printf(module->arena, "'offload' under the schedule '%s'",
                            plan->schedule));
      diag_help(d, "take a schedule that keeps one version of the parameters, "
                   "such as '1f1b'");
      is_good = false;
    } else if (pin->n_paths == 0 && !written->names_values) {
      diag(module->diags, DIAG_offload_nothing, written->subject,
           span_text(module->arena, written->subject));
      is_good = false;
    }
  }
  return is_good;
}

/* ---- the plan ---- */

bool plan_check(Module *module, const Pins *pins, const Plan *plan) {
  bool is_good = check_parallel(module, pins, plan) &&
                 check_microbatches(module, pins, plan);
  is_good = is_good && plan_check_schedule(module, pins, plan) &&
            plan_check_servers(module, plan);
  is_good &= check_axes(module, pins, plan);
  is_good &= check_savings(module, pins, plan);
  is_good &= check_offloads(module, pins, plan);
  return is_good;
}

void plan_warn_implied(Module *module, const Pins *pins, const Plan *plan) {
  check_names(module, plan);
  warn_implied_operators(module, plan);
  warn_implied_placements(module, pins->paths, plan);
}
