/*
 * entry_points.c -- compiles the graphs of a model, one entry point at a time.
 *
 * Only training and full evaluation batches are sharded as the plan says.  All
 * other entry points are computed in full by each rank that runs them, so their
 * results do not depend on the number of ranks; parameters that the plan shards
 * stay sharded there too.
 *
 * An evaluation has the micro-batches of training, and the remainder of its
 * batches the fewest that are equal and no larger, so that neither needs more
 * memory than a forward pass of training.
 */
#include "driver/internal.h"
#include "ir/model/repeat.h"

#include <string.h>

enum { placement_sharded = true, placement_replicated = false };

static const EntryPointInfo entry_point_rows[] = {
#define ENTRY_POINT(name, purpose, placement, about)                           \
  {PURPOSE_##purpose, placement_##placement, false, about},
#define DECODE_ENTRY_POINT(name, purpose, placement, about)                    \
  {PURPOSE_##purpose, placement_##placement, true, about},
#include "support/entry_points.def"
};

const EntryPointInfo *entry_point_info(EntryPointId id) {
  ASSERT(id >= 0 && id < N_ENTRY_POINTS);
  return &entry_point_rows[id];
}

Graph *driver_model_graph(const Model *model, EntryPointId id) {
  switch (id) {
#define ENTRY_POINT(name, purpose, placement, about)                           \
  case ENTRY_##name:                                                           \
    return model->name;
#define DECODE_ENTRY_POINT(name, purpose, placement, about) case ENTRY_##name:
#include "support/entry_points.def"
  case N_ENTRY_POINTS: return NULL;
  }
  UNREACHABLE();
}

/* A copy, in which each run of more than `blocks` equal blocks (0: none) is cut
 * to so many. */
static Graph *copy_graph(Module *module, const Graph *graph, int blocks) {
  Repeat repeats[MOST_REPEATS];
  Graph *own = graph_copy(module, graph);
  int n = blocks ? graph_repeats(own, NULL, repeats) : 0;
  for (int i = 0; i < n; i++)
    if (repeats[i].last - repeats[i].first >= blocks)
      own = graph_fold(own, &repeats[i], blocks);
  return own;
}

const Model *driver_copy_model(Module *module, const Model *model, int blocks) {
  Model *own = arena_copy(module->arena, model, sizeof *model);
#define ENTRY_POINT(name, purpose, placement, about)                           \
  if (model->name) own->name = copy_graph(module, model->name, blocks);
#define DECODE_ENTRY_POINT(name, purpose, placement, about)
#include "support/entry_points.def"
  return own;
}

/* Samples in the batch of an entry point. */
int64_t driver_entry_point_batch(const Model *model, EntryPointId id) {
  switch (id) {
  case ENTRY_train:
  case ENTRY_eval: return model->settings.batch;
  case ENTRY_eval_remainder: return model->eval_remainder_batch;
  case ENTRY_predict:
    return graph_type(model->predict, model->predict->outputs.data[0].value)
        ->dims[0]
        .size;
  default: return 1;
  }
}

/* The most samples that a rank has at a time in training. */
static int64_t microbatch_samples(const Model *model, const Plan *plan) {
  const Mesh *mesh = plan_mesh(plan);
  const PlanShard *shard = plan_find_shard(plan, plan->batch_dim);
  int64_t shards = plan->microbatches, batch = model->settings.batch;
  for (int i = 0; shard && i < shard->n_axes; i++)
    shards *= mesh->axes[mesh_find(mesh, shard->axes[i])].size;
  return (batch + shards - 1) / shards;
}

/* The fewest equal micro-batches of `samples` that have at most `most` each. */
static int64_t fewest_microbatches(int64_t samples, int64_t most) {
  int64_t n = (samples + most - 1) / most;
  while (samples % n != 0) n++;
  return n;
}

/* Every rank computes all of the data, in micro-batches that take no more
 * memory than those of training; parameters stay where they are. */
static const Plan *replicated_plan(const Compilation *c, EntryPointId id) {
  const Plan *plan = c->plan;
  bool is_remainder = id == ENTRY_eval_remainder;
  int64_t microbatches =
      is_remainder ? fewest_microbatches(driver_entry_point_batch(c->model, id),
                                         microbatch_samples(c->model, plan))
                   : 1;
  bool has_stages = plan->stages.n > 1;
  if (!plan_shards_parameters(plan) && microbatches == 1 && !has_stages &&
      !plan->offloaded)
    return NULL;
  Plan *own = plan_shards_parameters(plan)
                  ? arena_copy(c->module->arena, plan, sizeof *plan)
                  : plan_create(c->module, plan->name);
  memset(&own->stages, 0, sizeof own->stages);
  for (int s = 0; s < plan->stages.n; s++)
    vec_push(c->module->arena, &own->stages, plan->stages.data[s]);
  own->stage_of = plan->stage_of;
  own->offloaded = plan->offloaded;
  plan_drop_time(own);
  own->batch_dim = plan->batch_dim;
  own->replicates_data = true;
  plan_set_microbatches(c->module, own, microbatches);
  return own;
}

const Plan *driver_entry_point_plan(const Compilation *c, EntryPointId id) {
  if (entry_point_info(id)->is_sharded) return c->plan;
  return c->plan ? replicated_plan(c, id) : NULL;
}

/* Caches of what depends on weights would hold on every rank what the plan
 * shards. */
static bool stores_weights(const Compilation *c, EntryPointId id) {
  return id == ENTRY_decode && !(c->plan && plan_shards_parameters(c->plan));
}

PassRun driver_pass_run(const Compilation *c, EntryPointId id, int end) {
  return (PassRun){.name = entry_point_name(id),
                   .plan = driver_entry_point_plan(c, id),
                   .is_training = id == ENTRY_train,
                   .is_decode = stores_weights(c, id),
                   .end = end};
}

static bool has_one_stage(const Compilation *c) {
  if (!c->plan || c->plan->stages.n <= 1) return true;
  diag(c->module->diags, DIAG_not_supported, c->plan->stages.data[0].span,
       "this for a plan of several stages");
  return false;
}

bool driver_compile_graph(const Compilation *c, EntryPointId id, Graph *graph,
                          int end, PassResult *out) {
  bool is_joint = end > 0 && end <= pass_phase(PASSES_partition);
  if (!is_joint && !has_one_stage(c)) return false;
  PassRun run = driver_pass_run(c, id, end);
  *out = driver_passes(c, c->module, &run, graph);
  return diags_errors(c->module->diags) == 0;
}

Graph *driver_run_passes(const Compilation *c, EntryPointId id, Graph *graph,
                         int end) {
  PassResult result;
  return driver_compile_graph(c, id, graph, end, &result) ? result.graph : NULL;
}

const InstructionList *driver_instructions(const Compilation *c,
                                           const Graph *graph) {
  return instructions_of(c->module->arena, graph, &c->target.backend->target);
}

EntryPoint driver_entry_point(const Compilation *c, EntryPointId id,
                              const Graph *graph) {
  EntryPoint entry =
      entry_point_of_list(c->module->arena, id, driver_instructions(c, graph));
  entry.batch = driver_entry_point_batch(c->model, id);
  return entry;
}
