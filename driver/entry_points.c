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
static int64_t entry_point_batch(const Model *model, EntryPointId id) {
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
      is_remainder ? fewest_microbatches(entry_point_batch(c->model, id),
                                         microbatch_samples(c->model, plan))
                   : 1;
  bool has_stages = plan->stages.n > 1;
  if (!plan_shards_parameters(plan) && microbatches == 1 && !has_stages)
    return NULL;
  Plan *own = plan_shards_parameters(plan)
                  ? arena_copy(c->module->arena, plan, sizeof *plan)
                  : plan_create(c->module, plan->name);
  memcpy(&own->stages, &plan->stages, sizeof own->stages);
  own->stage_of = plan->stage_of;
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

/* Other entry points than training read averages where training stores them. */
static Graph *with_averages(const Compilation *c, Graph *graph) {
  if (!c->trained) return graph;
  PassContext ctx = driver_pass_context(c, NULL);
  Graph *result = ema_weights_read(&ctx, graph, c->trained);
  arena_destroy(ctx.scratch);
  return result;
}

/* Caches of what depends on weights would hold on every rank what the plan
 * shards. */
static bool stores_weights(const Compilation *c, EntryPointId id) {
  return id == ENTRY_decode && !(c->plan && plan_shards_parameters(c->plan));
}

/* The gate for all that cannot deal with a program of several stages yet. Their
 * joint graph is one graph. */
static bool has_one_stage(const Compilation *c, int end) {
  bool is_joint = end > 0 && end <= pass_phase(PASSES_partition);
  if (!c->plan || c->plan->stages.n <= 1 || is_joint) return true;
  diag(c->module->diags, DIAG_not_supported, c->plan->stages.data[0].span,
       "a program of several stages");
  return false;
}

PassRun driver_pass_run(const Compilation *c, EntryPointId id, int end) {
  return (PassRun){.name = entry_point_name(id),
                   .plan = driver_entry_point_plan(c, id),
                   .is_training = id == ENTRY_train,
                   .is_decode = stores_weights(c, id),
                   .end = end};
}

bool driver_compile_graph(const Compilation *c, EntryPointId id, Graph *graph,
                          int end, PassResult *out) {
  if (!has_one_stage(c, end)) return false;
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
  entry.batch = entry_point_batch(c->model, id);
  return entry;
}

RankProgram *driver_program(Compilation *c) {
  if (c->classes.n == 0)
    vec_push(c->module->arena, &c->classes,
             (ProgramClass){.first_rank = 0, .n_ranks = c->ranks});
  ASSERT(c->classes.n == 1);
  return &c->classes.data[0].program;
}

const RankProgram *driver_only_program(const Compilation *c) {
  static const RankProgram none;
  ASSERT(c->classes.n <= 1);
  return c->classes.n == 0 ? &none : &c->classes.data[0].program;
}

static bool has_stages(const Compilation *c) {
  return c->plan && c->plan->stages.n > 1;
}

static ProgramParts parts_of(const Compilation *c, EntryPointId id,
                             const StageGraphs *graphs) {
  Arena *arena = c->module->arena;
  int n = graphs->graphs.n;
  ProgramStage *stages = ARENA_ARRAY(arena, ProgramStage, n);
  ProgramParts parts = {.id = id,
                        .batch = entry_point_batch(c->model, id),
                        .n_stages = n,
                        .stages = stages,
                        .target = &c->target.backend->target,
                        .diags = c->module->diags,
                        .span = c->plan->stages.data[0].span};
  if (id == ENTRY_train)
    parts.schedule = pipeline_schedule_find(c->plan->schedule);
  for (int s = 0; s < n; s++)
    stages[s] =
        (ProgramStage){.graph = graphs->graphs.data[s],
                       .first_rank = c->plan->stages.data[s].first_rank};
  for (int e = 0; e < graphs->cut.edges.n; e++) {
    const StageEdge *edge = &graphs->cut.edges.data[e];
    vec_push(arena, &parts.edges,
             (ProgramEdge){.from = edge->from,
                           .to = edge->to,
                           .path = edge->path,
                           .is_of_step = edge->is_of_step,
                           .is_after = edge->is_after,
                           .level = edge->level});
  }
  return parts;
}

static void add_classes(Compilation *c, const ProgramParts *parts) {
  Arena *arena = c->module->arena;
  int *class_of = ARENA_ARRAY(arena, int, parts->n_stages);
  const int *first_rank;
  int n = program_classes(arena, parts->stages, parts->n_stages, class_of,
                          &first_rank);
  for (int i = 0; i < n && c->classes.n < n; i++)
    vec_push(
        arena, &c->classes,
        (ProgramClass){.first_rank = first_rank[i],
                       .n_ranks = mesh_ranks(&parts->stages[0].graph->mesh)});
}

/* Adds the entry point of each class of ranks. */
static bool add_stage_graphs(Compilation *c, EntryPointId id, Graph *graph) {
  Arena *arena = c->module->arena;
  StageGraphs graphs;
  if (!driver_compile_stages(c, id, graph, 0, &graphs)) return false;
  ProgramParts parts = parts_of(c, id, &graphs);
  EntryPoint *entries = ARENA_ARRAY(arena, EntryPoint, parts.n_stages);
  if (!program_timeline(arena, &parts, entries)) return false;
  add_classes(c, &parts);
  for (int i = 0; i < c->classes.n; i++) {
    RankProgram *program = &c->classes.data[i].program;
    program->entry_points[program->n_entry_points++] = entries[i];
  }
  return true;
}

bool driver_add_graph(Compilation *c, EntryPointId id, Graph *graph,
                      PassResult *out) {
  PassResult result = {0};
  if (!graph) return true;
  if (has_stages(c)) return add_stage_graphs(c, id, graph);
  if (!driver_compile_graph(c, id, with_averages(c, graph), 0, &result))
    return false;
  if (id == ENTRY_train) c->trained = result.graph;
  RankProgram *program = driver_program(c);
  program->entry_points[program->n_entry_points++] =
      driver_entry_point(c, id, result.graph);
  if (out) *out = result;
  return true;
}

static bool serves(const Compilation *c, EntryPointId id) {
  Purpose purpose = c->options->purpose;
  return purpose == PURPOSE_train || entry_point_info(id)->purpose == purpose;
}

bool driver_add_entry_point(Compilation *c, EntryPointId id) {
  return !serves(c, id) ||
         driver_add_graph(c, id, driver_model_graph(c->model, id), NULL);
}

bool driver_compile_averages(Compilation *c) {
  const Model *model = c->model;
  PassResult result;
  bool adds_training = serves(c, ENTRY_train);
  if (adds_training || !model->has_train || model->settings.ema == 0)
    return true;
  bool is_good = driver_compile_graph(c, ENTRY_train, model->train, 0, &result);
  c->trained = result.graph;
  return is_good;
}

void driver_add_plain(Compilation *c) {
  const Graph *train = c->model->train;
  if (!train || !serves(c, ENTRY_train) || has_stages(c)) return;
  /* Its mistakes are not the user's. */
  Arena *arena = c->module->arena;
  Module *module = module_apart(c->module, arena);
  Graph *graph = arena_copy(arena, train, sizeof *train);
  graph->module = module;
  memset(&graph->outputs, 0, sizeof graph->outputs);
  for (int i = 0; i < train->outputs.n; i++)
    if (train->outputs.data[i].role == ROLE_loss)
      vec_push(arena, &graph->outputs, train->outputs.data[i]);
  PassRun run = {
      .name = "plain", .plan = c->plan, .is_training = true, .is_plain = true};
  PassResult result = driver_passes(c, module, &run, graph);
  if (diags_errors(module->diags) > 0) return;
  RankProgram *program = driver_program(c);
  program->plain = driver_entry_point(c, ENTRY_train, result.graph);
  program->plain.name = "plain";
}
