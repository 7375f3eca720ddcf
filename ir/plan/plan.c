/*
 * plan.c -- makes the plan of plain data parallelism, and finds what the lines
 * of a plan say about a path, a dim or an axis.
 *
 * Micro-batches are a sequential axis "time" of the mesh.
 */
#include "ir/plan/plan.h"

#include "ir/pipeline/pipeline.h"

#include <string.h>

/* Enough to hide latency, and small enough to start early. */
#define BUCKET_BYTES 25000000

Plan *plan_create(Module *module, Name model) {
  Plan *plan = ARENA_NEW(module->arena, Plan);
  plan->name = model;
  plan->ranks = 1;
  plan->microbatches = 1;
  plan->bucket_bytes = BUCKET_BYTES;
  plan->prefetch_bytes = PLAN_PREFETCH_BYTES;
  return plan;
}

static void add_axis(Mesh *mesh, Name name, int64_t size, bool is_sequential) {
  if (size <= 1) return;
  ASSERT(mesh->n_axes < MAX_AXES && size <= INT32_MAX);
  mesh->axes[mesh->n_axes++] = (MeshAxis){name, (int32_t)size, is_sequential};
}

const Mesh *plan_mesh(const Plan *plan) {
  return &plan->mesh;
}

void plan_add_axis(Plan *plan, Name axis, int64_t size) {
  add_axis(&plan->mesh, axis, size, false);
  plan->ranks = mesh_ranks(&plan->mesh);
}

/* The axes of ranks may be called anything, "time" too. */
void plan_set_microbatches(Module *module, Plan *plan, int64_t microbatches) {
  Name name = name_intern(module->names, "time");
  while (mesh_find(plan_mesh(plan), name) >= 0)
    name = name_format(module->names, "%s~", name);
  plan->microbatches = microbatches;
  add_axis(&plan->mesh, name, microbatches, true);
  for (int s = 0; s < plan->stages.n; s++)
    add_axis(&plan->stages.data[s].mesh, name, microbatches, true);
}

/* A rank holds a run of samples, which the sequential axis divides into
 * micro-batches: a shard names rank axes only (none on one rank), and
 * `partition` appends the sequential axis. */
Plan *plan_data_parallel(Module *module, Name model, Name batch_dim, int ranks,
                         int64_t microbatches) {
  ASSERT(ranks >= 1 && microbatches >= 1);
  Plan *plan = plan_create(module, model);
  plan->batch_dim = batch_dim;
  plan_add_axis(plan, name_intern(module->names, "data"), ranks);
  const Mesh *mesh = plan_mesh(plan);
  PlanShard shard = {.dim = batch_dim, .n_axes = mesh->n_axes};
  if (shard.n_axes) shard.axes[0] = mesh->axes[0].name;
  plan_set_microbatches(module, plan, microbatches);
  if (batch_dim && mesh->n_axes) vec_push(module->arena, &plan->shards, shard);
  return plan;
}

const PlanShard *plan_find_shard(const Plan *plan, Name dim) {
  for (int i = plan->shards.n - 1; i >= 0; i--)
    if (plan->shards.data[i].dim == dim) return &plan->shards.data[i];
  return NULL;
}

const PlanShard *plan_batch_shard(const Plan *plan) {
  return plan->batch_dim ? plan_find_shard(plan, plan->batch_dim) : NULL;
}

const PlanShard *plan_zero_shard(const Plan *plan) {
  return plan->zero_over.n_axes > 0 ? &plan->zero_over : plan_batch_shard(plan);
}

/* ---- pins about paths ---- */

static const char *const update_keys[] = {
    [ABOUT_gradient] = "grad/", [ABOUT_optimizer] = "optimizer/"};

Name plan_update_key(Names *names, PinAbout about, const char *parameter) {
  return name_format(names, "%s%s", update_keys[about], parameter);
}

PinAbout plan_path_about(const char *path, const char **out_parameter) {
  for (PinAbout about = ABOUT_gradient; about <= ABOUT_optimizer; about++) {
    size_t n = strlen(update_keys[about]);
    *out_parameter = path + n;
    if (strncmp(path, update_keys[about], n) == 0) return about;
  }
  *out_parameter = path;
  return ABOUT_value;
}

bool plan_path_is_of_update(const char *path) {
  const char *parameter;
  return plan_path_about(path, &parameter) != ABOUT_value;
}

bool pin_is_placement(const PlanPin *pin) {
  return pin->says == SAYS_placement && pin->about != ABOUT_operator;
}

bool pin_is_of_update(const PlanPin *pin) {
  return pin->about == ABOUT_gradient || pin->about == ABOUT_optimizer;
}

bool pin_is_saving(const PlanPin *pin) {
  return pin->says == SAYS_remat || pin->says == SAYS_keep;
}

static Map **map_of_pin(Plan *plan, const PlanPin *pin) {
  if (pin_is_saving(pin)) return &plan->saved;
  if (pin->says == SAYS_offload) return &plan->offloaded;
  return pin->about == ABOUT_operator ? &plan->computed : &plan->placed;
}

static void index_pin(Arena *arena, Map **map, const PlanPin *pin) {
  if (!*map) *map = map_create(arena);
  for (int i = 0; i < pin->n_paths; i++)
    map_put(*map, pin->paths[i], (void *)pin);
}

void plan_index(Arena *arena, Plan *plan) {
  plan->placed = plan->computed = plan->saved = plan->offloaded = NULL;
  for (int i = 0; i < plan->pins.n; i++) {
    const PlanPin *pin = &plan->pins.data[i];
    index_pin(arena, map_of_pin(plan, pin), pin);
  }
}

static const PlanPin *find_path(const Map *map, Name path) {
  return map && path ? map_get(map, path) : NULL;
}

const PlanPin *plan_find_placement(const Plan *plan, Name path) {
  return find_path(plan->placed, path);
}

const PlanPin *plan_find_operator(const Plan *plan, Name path) {
  return find_path(plan->computed, path);
}

const PlanPin *plan_find_saving(const Plan *plan, Name path) {
  return find_path(plan->saved, path);
}

const PlanPin *plan_find_offload(const Plan *plan, Name path) {
  return find_path(plan->offloaded, path);
}

bool plan_recomputes(const Plan *plan) {
  /* No schedule that recomputes has arguments. */
  const PipelineSchedule *schedule =
      plan->schedule ? pipeline_schedule_find(plan->schedule) : NULL;
  return schedule && schedule->recomputes;
}

/* NULL: none, or a list that a person wrote. */
static const PipelineSchedule *schedule_of(Arena *arena, const Plan *plan) {
  PipelineSpelling spelling = {0};
  if (plan->schedule && !plan->list)
    pipeline_spelling_read(arena, plan->schedule, &spelling);
  return spelling.schedule;
}

bool plan_splits_backward(Arena *arena, const Plan *plan) {
  const PipelineSchedule *schedule = schedule_of(arena, plan);
  if (plan->list) return pipeline_splits_backward(plan->list);
  return schedule && schedule->splits_backward;
}

bool plan_updates_early(Arena *arena, const Plan *plan) {
  const PipelineSchedule *schedule = schedule_of(arena, plan);
  return schedule && schedule->updates_early;
}

bool plan_has_versions(Arena *arena, const Plan *plan) {
  const PipelineSchedule *schedule = schedule_of(arena, plan);
  return plan->stages.n > 1 && schedule && schedule->has_versions;
}

const PlanPin *plan_find_update(const Plan *plan, Names *names, PinAbout about,
                                const char *parameter) {
  return plan_find_placement(plan, plan_update_key(names, about, parameter));
}

/* ---- dims ---- */

static int find_reached(const Plan *plan, Name path, Name dim,
                        const PlanReached **out) {
  *out = plan->reached && path ? map_get(plan->reached, path) : NULL;
  for (int i = 0; *out && i < (*out)->n; i++)
    if ((*out)->dims[i] == dim) return i;
  return -1;
}

const PlanShard *plan_named_dim(const Plan *plan, Name path, Name dim) {
  const PlanReached *reached;
  int i = find_reached(plan, path, dim, &reached);
  return i >= 0 ? reached->lines[i] : plan_find_shard(plan, dim);
}

bool plan_is_batch(const Plan *plan, Name path, Name dim) {
  const PlanReached *reached;
  int i = find_reached(plan, path, dim, &reached);
  return i >= 0 ? reached->is_batch[i] : dim == plan->batch_dim;
}

const PlanShard *plan_placed_dim(const PlanPin *pin, Name dim) {
  for (int i = pin->n_shards - 1; i >= 0; i--)
    if (pin->shards[i].dim == dim) return &pin->shards[i];
  return NULL;
}

int plan_axis_taken(const PlanShard *const *lines, int n, int d, Name axis) {
  for (int k = 0; k < n; k++) {
    const PlanShard *other = lines[k];
    if (!other || other <= lines[d]) continue;
    for (int j = 0; j < other->n_axes; j++)
      if (other->axes[j] == axis) return k;
  }
  return -1;
}

bool plan_shards_parameters(const Plan *plan) {
  for (int i = 0; i < plan->shards.n; i++)
    if (plan->shards.data[i].dim != plan->batch_dim &&
        plan->shards.data[i].n_axes > 0)
      return true;
  for (int i = 0; i < plan->pins.n; i++)
    if (plan->pins.data[i].about == ABOUT_value &&
        plan->pins.data[i].n_shards > 0)
      return true;
  return plan->zero > 0;
}

static void drop_sequential_axes(Mesh *mesh) {
  int n = 0;
  for (int i = 0; i < mesh->n_axes; i++)
    if (!mesh->axes[i].is_sequential) mesh->axes[n++] = mesh->axes[i];
  mesh->n_axes = n;
}

/* ---- the plan of a stage ---- */

static int axes_on(const Mesh *mesh, Name *axes, int n) {
  int kept = 0;
  for (int i = 0; i < n; i++)
    if (mesh_find(mesh, axes[i]) >= 0) axes[kept++] = axes[i];
  return kept;
}

PlanShard plan_shard_on(const Mesh *mesh, const PlanShard *shard) {
  PlanShard own = *shard;
  own.n_axes = axes_on(mesh, own.axes, own.n_axes);
  return own;
}

PlanPin plan_pin_on(Arena *arena, const Mesh *mesh, const PlanPin *pin) {
  PlanPin own = *pin;
  PlanShard *shards = ARENA_ARRAY(arena, PlanShard, pin->n_shards + 1);
  for (int i = 0; i < pin->n_shards; i++)
    shards[i] = plan_shard_on(mesh, &pin->shards[i]);
  own.shards = shards;
  own.n_partial = axes_on(mesh, own.partial, own.n_partial);
  return own;
}

/* Lines of the new plan take the places of those of the old one. */
static Map *reached_on(Arena *arena, const Plan *plan, const Plan *own) {
  Map *reached = map_create(arena);
  for (int i = 0; plan->reached && i < map_size(plan->reached); i++) {
    const PlanReached *old = map_value_at(plan->reached, i);
    PlanReached *now = arena_copy(arena, old, sizeof *old);
    for (int d = 0; d < now->n; d++)
      if (now->lines[d])
        now->lines[d] = own->shards.data + (old->lines[d] - plan->shards.data);
    map_put(reached, map_key_at(plan->reached, i), now);
  }
  return reached;
}

int64_t plan_batch_shards(const Plan *plan, int stage) {
  const PlanShard *shard = plan_batch_shard(plan);
  const Mesh *mesh = &plan->stages.data[stage].mesh;
  int64_t n = 1;
  for (int i = 0; shard && i < shard->n_axes; i++) {
    int axis = mesh_find(mesh, shard->axes[i]);
    if (axis >= 0) n *= mesh->axes[axis].size;
  }
  return n;
}

static bool batch_shards_differ(const Plan *plan) {
  for (int s = 1; s < plan->stages.n; s++)
    if (plan_batch_shards(plan, s) != plan_batch_shards(plan, 0)) return true;
  return false;
}

static void use_mesh(Arena *arena, const Plan *plan, Plan *own,
                     const Mesh *mesh) {
  bool names_axes = plan->zero_over.n_axes > 0;
  own->mesh = *mesh;
  own->has_meshes = false;
  own->divides_microbatches = batch_shards_differ(plan);
  own->zero_over = plan_shard_on(mesh, &plan->zero_over);
  if (names_axes && own->zero_over.n_axes == 0) own->zero = 0;
  own->border = plan_shard_on(mesh, &plan->border);
  memset(&own->shards, 0, sizeof own->shards);
  memset(&own->pins, 0, sizeof own->pins);
  for (int i = 0; i < plan->shards.n; i++)
    vec_push(arena, &own->shards, plan_shard_on(mesh, &plan->shards.data[i]));
  for (int i = 0; i < plan->pins.n; i++)
    vec_push(arena, &own->pins,
             plan->pins.data[i].says == SAYS_placement
                 ? plan_pin_on(arena, mesh, &plan->pins.data[i])
                 : plan->pins.data[i]);
  own->reached = reached_on(arena, plan, own);
  plan_index(arena, own);
}

Plan *plan_of_stage(Module *module, const Plan *plan, int stage) {
  Plan *own = arena_copy(module->arena, plan, sizeof *plan);
  memset(&own->stages, 0, sizeof own->stages);
  own->stage_of = NULL;
  own->has_cuts = own->has_ranks = false;
  if (plan->has_meshes)
    use_mesh(module->arena, plan, own, &plan->stages.data[stage].mesh);
  own->ranks = mesh_ranks(&own->mesh);
  return own;
}

void plan_drop_time(Plan *plan) {
  drop_sequential_axes(&plan->mesh);
  for (int s = 0; s < plan->stages.n; s++)
    drop_sequential_axes(&plan->stages.data[s].mesh);
  plan->microbatches = 1;
}
