/*
 * plan_close.c -- makes a Plan of Pins without a search: each open decision
 * takes its default.
 *
 *     mesh { data = auto; tensor = 2 }     mesh { data = 4; tensor = 2 }
 *     plan { shard F over tensor }     =>  plan { microbatches = 1
 *     --ranks 8                                   shard F over tensor
 *                                                 shard B over data }
 *
 * The batch takes every axis that no `shard` line gives to another dim.  Lines
 * about gradients and optimizer state, and `zero`, leave their axes to the
 * batch: they are about what training stores.  `auto` is what the other axes
 * leave of the ranks.  Values without a line follow by completion, which is a
 * matter of `partition`.
 */
#include "ir/plan/pins.h"

#include "ir/pipeline/pipeline.h"

PinNumber pin_number(int64_t value) {
  return (PinNumber){.is_set = true, .value = value};
}

bool pins_ask(const Pins *pins) {
  return pins->is_given || pins->ranks.value > 1 ||
         pins->microbatches.value > 1;
}

/* ---- the mesh ---- */

bool pins_change_results(Arena *arena, const Pins *pins) {
  PipelineSpelling spelling = {0};
  if (pins->servers.n > 0) return true;
  if (pins->schedule && !pins->list)
    pipeline_spelling_read(arena, pins->schedule, &spelling);
  return spelling.schedule && spelling.schedule->is_pinned;
}

const PinAxis *pins_find_axis(const Pins *pins, Name name) {
  for (int i = 0; i < pins->axes.n; i++)
    if (pins->axes.data[i].name == name) return &pins->axes.data[i];
  return NULL;
}

/* The mesh with all sizes.  False after a message: no size follows, or the
 * number of ranks differs. */
static bool close_mesh(Module *module, const Pins *pins, Mesh *out) {
  RankGroups groups;
  if (!pins_count_groups(module, pins, &groups)) return false;
  int64_t ranks = groups.ranks / groups.n; /* of a stage */
  bool has_axes = pins->mesh_span.source || groups.ranks > 0;
  *out = (Mesh){0};
  if (!has_axes && pins->data_span.source) {
    diag(module->diags, DIAG_unknown_axis, pins->data_span, "data");
    return false;
  }
  if (has_axes && !pins_close_axes(module, pins, ranks, out)) return false;
  int64_t product = mesh_ranks(out);
  if (groups.size > 0 && product != groups.size) {
    diag(module->diags, DIAG_stage_ranks, pins->mesh_span, (long long)product,
         groups.size);
    return false;
  }
  if (groups.ranks > 0 && product * groups.n != groups.ranks) {
    Diag *d = diag(module->diags, DIAG_mesh_ranks, pins->mesh_span,
                   (long long)(product * groups.n), (long long)groups.ranks);
    if (pins->ranks.span.source)
      diag_note(d, pins->ranks.span, "the number of ranks is pinned here");
    else
      diag_help(d, "leave out --ranks, or change the mesh");
    return false;
  }
  return true;
}

/* ---- pins ---- */

/* Ranks have parameters in full, unless ZeRO gathers them. */
static PlanPin close_saving(Arena *arena, const Plan *plan,
                            const PathPin *written) {
  PlanPin closed = written->pin;
  const PathList *inputs = &written->inputs;
  bool takes_inputs = plan->zero >= 3 || closed.says == SAYS_offload;
  if (!takes_inputs || inputs->n == 0) return closed;
  Name *paths = ARENA_ARRAY(arena, Name, closed.n_paths + inputs->n);
  for (int i = 0; i < closed.n_paths; i++) paths[i] = closed.paths[i];
  for (int i = 0; i < inputs->n; i++) paths[closed.n_paths++] = inputs->data[i];
  closed.paths = paths;
  return closed;
}

/* Pin `i` of the plan is that of `of_paths`. */
static void close_pins(Arena *arena, Plan *plan, const Pins *pins) {
  const Mesh *mesh = plan_mesh(plan);
  for (int i = 0; i < pins->shards.n; i++)
    vec_push(arena, &plan->shards, plan_shard_on(mesh, &pins->shards.data[i]));
  for (int i = 0; i < pins->of_paths.n; i++) {
    const PathPin *written = &pins->of_paths.data[i];
    vec_push(arena, &plan->pins,
             written->pin.says == SAYS_placement
                 ? plan_pin_on(arena, mesh, &written->pin)
                 : close_saving(arena, plan, written));
  }
}

/* ---- settings ---- */

/* 0 too where its axes have one rank, which holds all. */
static int zero_level(const Pins *pins, const Mesh *mesh) {
  PlanShard over = plan_shard_on(mesh, &pins->zero_over);
  bool names_axes = pins->zero_over.n_axes > 0;
  return names_axes && over.n_axes == 0 ? 0 : (int)pins->zero.value;
}

static void close_settings(Plan *plan, const Pins *pins) {
  const Mesh *mesh = plan_mesh(plan);
  plan->microbatches = pins->microbatches.is_set ? pins->microbatches.value : 1;
  plan->zero = zero_level(pins, mesh);
  plan->zero_over = plan_shard_on(mesh, &pins->zero_over);
  if (pins->bucket_bytes.is_set) plan->bucket_bytes = pins->bucket_bytes.value;
  if (pins->prefetch_bytes.is_set)
    plan->prefetch_bytes = pins->prefetch_bytes.value;
  plan->memory_bytes = pins->memory_bytes.value;
  plan->memory_span = pins->memory_bytes.span;
  plan->schedule = pins->schedule;
  plan->list = pins->list;
  if (!plan->schedule && pins_have_stages(pins)) plan->schedule = "1f1b";
  plan->attention = pins->attention;
  plan->attention_span = pins->attention_span;
  plan->reduces_bf16 = pins->reduces_bf16;
  plan->compress = pins->compress;
  plan->compress_rank = pins->compress_rank;
  plan->compress_span = pins->compress_span;
  plan->border = plan_shard_on(mesh, &pins->border);
  plan->servers = pins->servers;
}

/* ---- the batch ---- */

static bool shards_over_axis(const PlanShard *shards, int n, Name axis,
                             Name batch_dim) {
  for (int i = 0; i < n; i++)
    for (int k = 0; k < shards[i].n_axes && shards[i].dim != batch_dim; k++)
      if (shards[i].axes[k] == axis) return true;
  return false;
}

static bool pins_name_axis(const Plan *plan, Name axis, Name batch_dim) {
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    if (pin_is_of_update(pin)) continue;
    if (shards_over_axis(pin->shards, pin->n_shards, axis, batch_dim))
      return true;
    for (int k = 0; k < pin->n_partial; k++)
      if (pin->partial[k] == axis) return true;
  }
  return false;
}

/* The schedule, with stages that are not known yet. */
static bool names_versions(Arena *arena, const Plan *plan) {
  PipelineSpelling spelling = {0};
  if (!plan->schedule || plan->list) return false;
  pipeline_spelling_read(arena, plan->schedule, &spelling);
  return spelling.schedule && spelling.schedule->has_versions;
}

/* Without a line about it the batch takes the axes over which no line shards
 * another dim, and it is the dim that micro-batches split. */
static void shard_batch(Module *module, Plan *plan, Name batch_dim) {
  const Mesh *mesh = plan_mesh(plan);
  PlanShard shard = {.dim = batch_dim};
  plan->batch_dim = batch_dim;
  /* Replicas run batches in turn. */
  int n_axes = names_versions(module->arena, plan) ? 0 : mesh->n_axes;
  for (int a = 0; a < n_axes; a++) {
    Name axis = mesh->axes[a].name;
    if (!shards_over_axis(plan->shards.data, plan->shards.n, axis, batch_dim) &&
        !pins_name_axis(plan, axis, batch_dim))
      shard.axes[shard.n_axes++] = axis;
  }
  if (batch_dim && !plan_find_shard(plan, batch_dim))
    vec_push(module->arena, &plan->shards, shard);
}

/* ---- names that generics stand for ---- */

static bool stands_for_name(const DimNames *names, Name name) {
  for (int i = 0; i < names->n; i++)
    if (names->names[i] == name) return true;
  return false;
}

/* A line reaches one dim of a tensor: the one of its name, else the first that
 * stands for it. */
static bool pin_reaches(const PinTensor *tensor, int d, Name name) {
  const Type *type = tensor->type;
  if (type->dims[d].name == name) return true;
  if (type_find(type, name) >= 0) return false;
  for (int k = 0; k < d; k++)
    if (stands_for_name(&tensor->stands_for[k], name)) return false;
  return stands_for_name(&tensor->stands_for[d], name);
}

static void reach_tensor(Arena *arena, Plan *plan, const PinTensor *tensor) {
  PlanReached found = {.n = tensor->type->rank};
  bool is_carried = false;
  for (int d = 0; d < found.n; d++) {
    found.dims[d] = tensor->type->dims[d].name;
    found.is_batch[d] = pin_reaches(tensor, d, plan->batch_dim);
    is_carried |= found.is_batch[d] && plan->batch_dim != found.dims[d];
    for (int k = 0; k < plan->shards.n; k++) {
      const PlanShard *line = &plan->shards.data[k];
      if (!pin_reaches(tensor, d, line->dim)) continue;
      found.lines[d] = line;
      is_carried |= line->dim != found.dims[d];
    }
  }
  if (is_carried)
    map_put(plan->reached, tensor->path,
            arena_copy(arena, &found, sizeof found));
}

/* ---- the plan ---- */

Plan *plan_close(Module *module, const Pins *pins) {
  Mesh mesh;
  Mesh *of_lines = ARENA_ARRAY(module->arena, Mesh, pins->stages.n + 1);
  bool has_meshes = pins_have_stage_meshes(pins);
  if (!(has_meshes ? pins_close_stage_meshes(module, pins, &mesh, of_lines,
                                             &has_meshes)
                   : close_mesh(module, pins, &mesh)))
    return NULL;
  Plan *plan = plan_create(module, pins->model);
  for (int a = 0; a < mesh.n_axes; a++)
    plan_add_axis(plan, mesh.axes[a].name, mesh.axes[a].size);
  plan->has_meshes = has_meshes;
  close_settings(plan, pins);
  close_pins(module->arena, plan, pins);
  shard_batch(module, plan, pins->batch_dim);
  if (!plan_close_stages(module, pins, of_lines, plan)) return NULL;
  plan->reached = map_create(module->arena);
  for (int i = 0; i < pins->tensors.n; i++)
    reach_tensor(module->arena, plan, &pins->tensors.data[i]);
  plan_index(module->arena, plan);
  if (!plan_check(module, pins, plan)) return NULL;
  plan_set_microbatches(module, plan, plan->microbatches);
  return plan;
}
