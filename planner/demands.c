/*
 * demands.c -- makes a list of the pins that a person wrote and of the limits,
 * and leaves some of them out.
 *
 *     mesh { data = 2; tensor = 2 }     the mesh
 *     plan {
 *       zero = 0                        zero
 *       shard F, H over tensor          a line
 *     }                                 without the mesh there is no `tensor`:
 *     --ranks 4                         the line goes with it
 */
#include "planner/conflicts.h"

/* ---- the list ---- */

static Demand *add_demand(Conflict *out, DemandKind kind, const char *text,
                          Arena *arena, Span span) {
  Demand *demand = &out->demands[out->n_demands++];
  *demand = (Demand){.kind = kind, .text = text};
  if (span.source) vec_push(arena, &demand->spans, span);
  return demand;
}

/* A setting of the plan, or of the command line. */
static void add_number(const ConflictInput *input, Conflict *out,
                       DemandKind kind, PinNumber pin, const char *option) {
  Arena *arena = input->arena;
  if (!pin.is_set) return;
  const char *text = pin.span.source ? span_text(arena, pin.span)
                                     : arena_printf(arena, "%s %lld", option,
                                                    (long long)pin.value);
  add_demand(out, kind, text, arena, pin.span);
}

static const char *mesh_text(Arena *arena, const Pins *pins) {
  Text text = text_create(arena);
  text_add(&text, "mesh {");
  for (int i = 0; i < pins->axes.n; i++) {
    const PinAxis *axis = &pins->axes.data[i];
    text_printf(&text, "%s %s = ", i ? ";" : "", axis->name);
    if (axis->size > 0)
      text_printf(&text, "%lld", (long long)axis->size);
    else
      text_add(&text, "auto");
  }
  text_add(&text, " }");
  return text_string(&text);
}

static bool is_span(Span a, Span b) {
  return a.source == b.source && a.begin == b.begin;
}

typedef VEC(Span) Spans;

static bool has_span(const Spans *spans, Span span) {
  for (int i = 0; i < spans->n; i++)
    if (is_span(spans->data[i], span)) return true;
  return false;
}

static bool has_cuts(const Pins *pins) {
  return pins->stages.n > 0 && pins->stages.data[0].is_cut;
}

static Spans find_lines(Arena *arena, const Pins *pins) {
  Spans lines = {0};
  for (int i = 0; i < pins->stages.n && has_cuts(pins); i++)
    vec_push(arena, &lines, pins->stages.data[i].stage.span);
  for (int i = 0; i < pins->shards.n; i++) {
    Span span = pins->shards.data[i].span;
    if (span.source && !has_span(&lines, span)) vec_push(arena, &lines, span);
  }
  for (int i = 0; i < pins->of_paths.n; i++) {
    Span span = pins->of_paths.data[i].pin.span;
    if (span.source && !has_span(&lines, span)) vec_push(arena, &lines, span);
  }
  return lines;
}

/* Lines share demands if there are more than demands are left. */
static void add_lines(const ConflictInput *input, Conflict *out) {
  Arena *arena = input->arena;
  Spans lines = find_lines(arena, input->pins);
  int places = MOST_DEMANDS - out->n_demands;
  int each = (lines.n + places - 1) / places;
  for (int i = 0; i < lines.n; i += each) {
    int n = lines.n - i < each ? lines.n - i : each;
    const char *text = span_text(arena, lines.data[i]);
    if (n > 1)
      text = arena_printf(arena, "%s and %d further lines", text, n - 1);
    Demand *demand = add_demand(out, DEMAND_lines, text, arena, lines.data[i]);
    for (int k = 1; k < n; k++)
      vec_push(arena, &demand->spans, lines.data[i + k]);
  }
}

static void add_ranks(const ConflictInput *input, Conflict *out) {
  PinNumber ranks = input->pins->ranks;
  if (ranks.span.source || input->has_ranks_option)
    add_number(input, out, DEMAND_ranks, ranks, "--ranks");
}

static bool names_axes(const PlanPin *pin) {
  for (int i = 0; i < pin->n_shards; i++)
    if (pin->shards[i].n_axes > 0) return true;
  return pin->n_partial > 0;
}

static bool have_axes(const Pins *pins) {
  for (int i = 0; i < pins->shards.n; i++)
    if (pins->shards.data[i].n_axes > 0) return true;
  for (int i = 0; i < pins->of_paths.n; i++)
    if (names_axes(&pins->of_paths.data[i].pin)) return true;
  return pins->zero_over.n_axes > 0 || pins->border.n_axes > 0;
}

/* The schedule, and lines `stage`, none of which goes without the others. */
static void add_stages(const ConflictInput *input, Conflict *out) {
  const Pins *pins = input->pins;
  if (pins->schedule)
    add_demand(out, DEMAND_schedule,
               arena_printf(input->arena, "schedule = %s", pins->schedule),
               input->arena, pins->schedule_span);
  if (pins->stages.n == 0 || has_cuts(pins)) return;
  Demand *demand = add_demand(
      out, DEMAND_stages,
      arena_printf(input->arena, "the %d lines 'stage'", pins->stages.n),
      input->arena, pins->stages.data[0].stage.span);
  for (int i = 1; i < pins->stages.n; i++)
    vec_push(input->arena, &demand->spans, pins->stages.data[i].stage.span);
}

void demands_of(const ConflictInput *input, Conflict *out) {
  const Pins *pins = input->pins;
  Arena *arena = input->arena;
  *out = (Conflict){0};
  if (input->memory.text) out->demands[out->n_demands++] = input->memory;
  add_ranks(input, out);
  if (pins_have_mesh(pins))
    add_demand(out, DEMAND_mesh, mesh_text(arena, pins), arena, pins->mesh_span)
        ->takes_lines = have_axes(pins);
  add_number(input, out, DEMAND_zero, pins->zero, "--zero");
  add_number(input, out, DEMAND_microbatches, pins->microbatches,
             "--microbatches");
  if (pins->attention != ATTENTION_open)
    add_demand(out, DEMAND_attention,
               arena_printf(arena, "attention = %s",
                            plan_attention_name(pins->attention)),
               arena, pins->attention_span);
  add_stages(input, out);
  add_number(input, out, DEMAND_bucket, pins->bucket_bytes, "--bucket");
  add_number(input, out, DEMAND_prefetch, pins->prefetch_bytes, "--prefetch");
  add_lines(input, out);
}

/* ---- what is left ---- */

static void keep_lines(Arena *arena, const Pins *from, const Spans *dropped,
                       bool has_mesh, Pins *out, Spans *annotations) {
  out->stages.data = NULL;
  out->stages.n = out->stages.capacity = 0;
  for (int i = 0; i < from->stages.n; i++)
    if (!has_span(dropped, from->stages.data[i].stage.span))
      vec_push(arena, &out->stages, from->stages.data[i]);
  out->shards.data = NULL;
  out->shards.n = out->shards.capacity = 0;
  out->of_paths.data = NULL;
  out->of_paths.n = out->of_paths.capacity = 0;
  for (int i = 0; i < from->shards.n; i++) {
    const PlanShard *shard = &from->shards.data[i];
    bool stays = has_mesh || shard->n_axes == 0;
    if (stays && !has_span(dropped, shard->span))
      vec_push(arena, &out->shards, *shard);
  }
  for (int i = 0; i < from->of_paths.n; i++) {
    const PlanPin *pin = &from->of_paths.data[i].pin;
    bool stays = has_mesh || !names_axes(pin);
    if (stays && !has_span(dropped, pin->span))
      vec_push(arena, &out->of_paths, from->of_paths.data[i]);
    else if (pin->is_annotation)
      vec_push(arena, annotations, pin->span);
  }
}

/* Pins without a mesh have one axis for all ranks. */
static void drop_mesh(const ConflictInput *input, Pins *out) {
  PinAxis data = {.name = name_intern(input->names, "data")};
  out->mesh_span = out->data_span = SPAN_NONE;
  out->axes.data = NULL;
  out->axes.n = out->axes.capacity = 0;
  vec_push(input->arena, &out->axes, data);
  out->border = (PlanShard){0};
  if (input->pins->zero_over.n_axes == 0) return;
  out->zero = (PinNumber){0};
  out->zero_over = (PlanShard){0};
}

static void drop(const ConflictInput *input, const Demand *demand, Pins *pins,
                 ConflictCase *out) {
  bool is_written = demand->spans.n > 0;
  switch (demand->kind) {
  case DEMAND_lines: break;
  case DEMAND_microbatches:
    pins->microbatches = (PinNumber){0};
    out->has_no_microbatches = !is_written;
    break;
  case DEMAND_zero:
    pins->zero = (PinNumber){0};
    pins->zero_over = (PlanShard){0};
    break;
  case DEMAND_attention: pins->attention = ATTENTION_open; break;
  case DEMAND_stages: break;
  case DEMAND_schedule:
    pins->schedule = NULL;
    pins->list = NULL;
    break;
  case DEMAND_bucket:
    pins->bucket_bytes = (PinNumber){0};
    out->has_no_bucket = !is_written;
    break;
  case DEMAND_prefetch: pins->prefetch_bytes = (PinNumber){0}; break;
  case DEMAND_mesh: drop_mesh(input, pins); break;
  case DEMAND_ranks: pins->ranks = (PinNumber){0}; break;
  case DEMAND_memory: pins->memory_bytes = (PinNumber){0}; break;
  }
}

ConflictCase demands_without(const ConflictInput *input,
                             const Conflict *conflict, DemandSet dropped) {
  Arena *arena = input->arena;
  Pins *pins = arena_copy(arena, input->pins, sizeof *pins);
  ConflictCase out = {.dropped = dropped, .pins = pins};
  Spans spans = {0}, annotations = {0};
  bool has_mesh = true;
  for (int i = 0; i < conflict->n_demands; i++) {
    const Demand *demand = &conflict->demands[i];
    if (!(dropped >> i & 1)) continue;
    has_mesh &= demand->kind != DEMAND_mesh;
    drop(input, demand, pins, &out);
    bool is_lines =
        demand->kind == DEMAND_lines || demand->kind == DEMAND_stages;
    for (int k = 0; is_lines && k < demand->spans.n; k++)
      vec_push(arena, &spans, demand->spans.data[k]);
  }
  keep_lines(arena, input->pins, &spans, has_mesh, pins, &annotations);
  out.without = annotations.data;
  out.n_without = annotations.n;
  return out;
}
